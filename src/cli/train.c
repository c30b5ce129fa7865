/* SPDX-License-Identifier: Apache-2.0 */
/* petra train: emulates a training method on this device under the virtual clock. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "run/folder.h"
#include "run/rehearsal.h"
#include "run/run.h"
#include "group/launcher.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static petra_status print_json(petra_run *run) {
  const petra_plan *plan = petra_run_plan(run);
  json_t *epochs = json_array();
  int64_t count, losses;
  const petra_runlog_epoch *rows = petra_training_log_epochs(petra_run_log(run), &count);
  double mean_loss = petra_training_log_mean_loss(petra_run_log(run), &losses);
  for (int64_t e = 0; e < count; e++)
    petra_json_append(&epochs,
                      petra_epoch_json(&rows[e], petra_samples_of(plan->config), plan->config->data.recalibrate > 0));
  return petra_json_print_new(json_pack(
      "{s:o, s:s, s:i, s:I, s:I, s:o, s:o, s:o}", "output", petra_json_string(petra_run_directory(run)), "method",
      plan->method.name, "stages", (int)plan->program.stages, "microbatches", (json_int_t)plan->program.microbatches,
      "losses", (json_int_t)losses, "mean_loss", petra_json_real(mean_loss), "virtual_s",
      petra_json_real(1e-9 * (double)petra_run_now_ns(run)), "epochs", epochs));
}

/* The closing line. A run without a whole epoch has no line of its own: its loss is told here. */
static void print_end(petra_run *run) {
  int64_t epochs, losses;
  double loss = petra_training_log_mean_loss(petra_run_log(run), &losses);
  petra_training_log_epochs(petra_run_log(run), &epochs);
  printf("%lld microbatches with %s on %d stage%s", (long long)petra_run_plan(run)->program.microbatches,
         petra_run_plan(run)->method.name, petra_run_plan(run)->program.stages,
         petra_run_plan(run)->program.stages == 1 ? "" : "s");
  if (petra_run_plan(run)->config->cluster.replicas > 1)
    printf(" in %lld replicas", (long long)petra_run_plan(run)->config->cluster.replicas);
  if (losses == 0)
    printf(", too few for a loss to come back");
  else if (epochs == 0)
    printf(", mean loss %.4f over %lld", loss, (long long)losses);
  petra_utf8_print(stdout, "; written: %s/{config.yaml,run.h5,weights.h5%s}\n", petra_run_directory(run),
                   petra_run_has_checkpoint(run) ? ",checkpoint.h5,checkpoint/" : "");
}

/* cluster.stages on the processes of mpirun: nothing is trained. */
static petra_status rehearse(const petra_arguments *arguments, const petra_config *config, petra_ranks *ranks) {
  const petra_rehearsal_options options = {
      .records = {arguments->output, arguments->trace, arguments->command_line, arguments->overwrite},
      .resume = arguments->resume,
      .ranks = ranks};
  petra_rehearsal *rehearsal = NULL;
  petra_status status;
  PETRA_TRY(petra_rehearsal_open(config, &options, &rehearsal));
  PETRA_TRY_GOTO(status, petra_rehearsal_go(rehearsal), done);
  PETRA_TRY_GOTO(status, petra_rehearsal_close(rehearsal), done);
  const petra_rehearsed *result = petra_rehearsal_result(rehearsal);
  if (ranks->rank == 0 && arguments->json) {
    status = petra_json_print_new(
        json_pack("{s:o, s:s, s:i, s:I, s:o, s:o}", "output", petra_json_string(result->directory), "method",
                  result->plan->method.name, "stages", (int)result->plan->stages, "microbatches",
                  (json_int_t)result->plan->program.microbatches, "time_per_microbatch_s",
                  petra_json_real(result->pace.measured), "predicted_s", petra_json_real(result->pace.predicted)));
  } else if (ranks->rank == 0 && !arguments->quiet) {
    printf("%lld microbatches with %s on %d stage%s, slept", (long long)result->plan->program.microbatches,
           result->plan->method.name, result->plan->stages, result->plan->stages == 1 ? "" : "s");
    if (isfinite(result->pace.measured))
      printf(": %.6g s per microbatch, simulated %.6g s", result->pace.measured, result->pace.predicted);
    petra_utf8_print(stdout, "; written: %s/{config.yaml,run.h5}\n", result->directory);
  }
done:
  petra_rehearsal_destroy(rehearsal);
  return status;
}

/* --resume of a run that has ended. */
static petra_status report_complete(const petra_arguments *arguments, const petra_config *config) {
  char *output;
  PETRA_TRY(petra_folder_of_run(config, arguments->output, &output));
  petra_status status = PETRA_OK;
  if (arguments->json)
    status = petra_json_print_new(json_pack("{s:o, s:b}", "output", petra_json_string(output), "complete", true));
  else if (!arguments->quiet)
    petra_utf8_print(stdout, "%s: this run is complete; there is nothing left to do\n", output);
  petra_free(output);
  return status;
}

/* With what can be wrong before processes find each other. */
static petra_status read_config(const petra_arguments *arguments, petra_config **out) {
  const int launched = petra_launcher_size(NULL);
  if (arguments->resume && arguments->overwrite)
    return petra_fail(PETRA_USAGE, "--resume and --overwrite; expected one of them");
  if (arguments->input && strcmp(arguments->input, "-") == 0 && launched > 1)
    return petra_fail(
        PETRA_USAGE, "a config from standard input reaches the first of %d processes alone; expected a file", launched);
  PETRA_TRY(petra_arguments_config(arguments, "train", out));
  return (*out)->run.mode == PETRA_MODE_EXECUTE
             ? PETRA_OK
             : petra_ranks_alone("train with run.mode: emulate",
                                 "run.mode: execute for one run on all of them, or one process");
}

static petra_status train(const petra_arguments *arguments) {
  const bool print = !arguments->json && !arguments->quiet;
  petra_run_options options = {.files = true,
                               .output = arguments->output,
                               .trace = arguments->trace,
                               .command_line = arguments->command_line,
                               .resume_command = arguments->resume_command,
                               .resume = arguments->resume,
                               .overwrite = arguments->overwrite,
                               .print = print,
                               .progress = arguments->quiet ? PETRA_PROGRESS_QUIET : PETRA_PROGRESS_AUTO};
  petra_config *config = NULL;
  petra_ranks *ranks = NULL;
  petra_run *run = NULL;
  petra_status status;
  petra_stop_catch();
  petra_stop_say("stopped before the run began");
  petra_ranks_hold_lines();
  status = read_config(arguments, &config);
  if (petra_launcher_size(NULL) > 1 || (status == PETRA_OK && config->run.mode == PETRA_MODE_EXECUTE))
    status = petra_ranks_open(config ? config->cluster.timeout_s : PETRA_RANKS_TIMEOUT_S, status, &ranks);
  PETRA_TRY_GOTO(status, status, done);
  if (!ranks)
    petra_ranks_release_lines();
  if (ranks && config->cluster.stages > 0) {
    status = rehearse(arguments, config, ranks);
    goto done;
  }
  options.ranks = ranks;
  PETRA_TRY_GOTO(status, petra_run_open(config, &options, &run), done);
  PETRA_TRY_GOTO(status, petra_run_go(run), done);
  if (petra_stop_signalled())
    petra_log(PETRA_LOG_WARNING, "the signal came when nothing was left to train; the run is complete");
  petra_stop_release(); /* what is left is to write the weights */
  PETRA_TRY_GOTO(status, petra_run_close(run), done);
  if (ranks && ranks->rank > 0)
    goto done;
  if (arguments->json)
    status = print_json(run);
  else if (print)
    print_end(run);
done:
  if (petra_ranks_end_together(ranks, &status)) {
    petra_run_destroy(run);
    run = NULL;
  }
  petra_run_put_back(run); /* before the end of the program there */
  const bool tells = !ranks || ranks->rank == 0;
  petra_ranks_close(ranks, status); /* another failure ends the program there, on every rank */
  if (status == PETRA_STOPPED)
    petra_stop_report();
  if (status == PETRA_COMPLETE)
    status = tells ? report_complete(arguments, config) : PETRA_OK;
  petra_run_destroy(run);
  petra_config_destroy(config);
  petra_ranks_release_lines();
  return status;
}

const petra_command petra_command_train = {
    .name = "train",
    .summary = "trains a network cut into stages, emulated on this device or on the processes of mpirun",
    .arguments =
        "CONFIG.yaml [--set KEY=VALUE]... [--output DIR] [--resume | --overwrite] [--trace FILE] [--json] [--quiet]",
    .help =
        "Trains the network of the config with the method of the config. All J stages are emulated on this device,\n"
        "in the order in which a virtual clock lets them act; with run.mode: execute under mpirun each process has\n"
        "some of them. Writes into DIR: config.yaml (every key with its value), run.h5 (losses, accuracies, stages,\n"
        "memory, probes of gradients; readable while the run goes on) and, at the end, weights.h5; on the way\n"
        "checkpoint.h5 and checkpoint/ (run.checkpoint_every), which go at the end (run.keep_checkpoint), and with\n"
        "run.keep: best best.h5, which becomes weights.h5. Tells first what the run will take, as far as a profile\n"
        "or counting can.\n"
        "SIGINT (Ctrl-C), SIGTERM and SIGUSR1 end the run after writing a checkpoint, and the last line is the "
        "command\n"
        "that resumes it. The same signal again ends it at once.\n"
        "Of a complete run --resume says so, with --json by {\"output\": DIR, \"complete\": true}, and changes "
        "nothing.\n",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output, "where files go (default: run.output/run.name of the config)"),
            PETRA_OPTION("trace", "FILE", trace,
                         "writes a trace of every action for Chrome's or Perfetto's viewer; a line says so if it may "
                         "be above 500 MB"),
            PETRA_OPTION_MORE("resume", NULL, resume,
                              "goes on from checkpoint.h5 in DIR, bit for bit; from the beginning where there is none",
                              "Of a complete run nothing is left to do, unless it is to become longer and kept its "
                              "checkpoint (run.keep_checkpoint)."),
            PETRA_OPTION_MORE("overwrite", NULL, overwrite,
                              "replaces the run that DIR holds; else that is left as it is, and no run begins",
                              "The earlier run is set aside, and removed after the first loss of the new one, or its "
                              "first checkpoint. If the new run ends before that, the earlier one is as it was."),
            {0}},
    .ranks = true,
    .lasting = true,
    .run = train};
