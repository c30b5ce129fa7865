/* SPDX-License-Identifier: Apache-2.0 */
/* petra train: emulates a training method on this device under the virtual clock. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "record/run_h5_columns.h"
#include "run/folder.h"
#include "run/run.h"
#include "group/ranks.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Returns a row of /epoch. If `recalibrated` is true, it includes the columns of a recalibration. */
static json_t *epoch_json(const petra_run_h5_epoch *row, petra_sample_kind samples, bool recalibrated) {
  const petra_column_group *group = petra_run_h5_epoch_group(samples, recalibrated);
  json_t *object = json_object();
  for (int c = 0; c < group->count; c++)
    petra_json_set(&object, group->columns[c].name,
                   group->columns[c].type == PETRA_COLUMN_I32
                       ? json_integer(row->epoch)
                       : petra_json_real(petra_column_real(&group->columns[c], row)));
  return object;
}

static petra_status print_json(petra_run *run) {
  const petra_plan *plan = petra_run_plan(run);
  json_t *epochs = json_array();
  int64_t count, losses;
  const petra_run_h5_epoch *rows = petra_training_log_epochs(petra_run_log(run), &count);
  double mean_loss = petra_training_log_mean_loss(petra_run_log(run), &losses);
  for (int64_t e = 0; e < count; e++)
    petra_json_append(&epochs,
                      epoch_json(&rows[e], petra_sample_kind_of(plan->config), plan->config->data.recalibrate > 0));
  return petra_json_print_new(json_pack(
      "{s:o, s:s, s:i, s:I, s:I, s:o, s:o, s:o}", "output", petra_json_string(petra_run_directory(run)), "method",
      plan->method.name, "stages", (int)plan->program.stages, "microbatches", (json_int_t)plan->program.microbatches,
      "losses", (json_int_t)losses, "mean_loss", petra_json_real(mean_loss), "virtual_s",
      petra_json_real(1e-9 * (double)petra_run_now_ns(run)), "epochs", epochs));
}

/* Prints the closing line. A run without a whole epoch has no other line, so its loss is printed here. */
static void print_end(petra_run *run) {
  int64_t epochs, losses;
  double loss = petra_training_log_mean_loss(petra_run_log(run), &losses);
  petra_training_log_epochs(petra_run_log(run), &epochs);
  const petra_program_options *program = &petra_run_plan(run)->program;
  printf("%lld microbatch%s with %s on %d stage%s", (long long)program->microbatches,
         program->microbatches == 1 ? "" : "es", petra_run_plan(run)->method.name, program->stages,
         program->stages == 1 ? "" : "s");
  if (petra_run_plan(run)->config->cluster.replicas > 1)
    printf(" in %lld replicas", (long long)petra_run_plan(run)->config->cluster.replicas);
  if (losses == 0)
    printf(", too few to produce a loss");
  else if (epochs == 0)
    printf(", mean loss %.4f over %lld", loss, (long long)losses);
  petra_utf8_print(stdout, "; written: %s/{config.yaml,run.h5,weights.h5%s}\n", petra_run_directory(run),
                   petra_run_has_checkpoint(run) ? ",checkpoint.h5,checkpoint/" : "");
}

/* Handles --resume of a run that has ended. */
static petra_status report_complete(const petra_arguments *arguments, const petra_config *config) {
  PETRA_FREED char *output = NULL;
  PETRA_TRY(petra_folder_of_run(config, arguments->output, &output));
  if (arguments->json)
    return petra_json_print_new(json_pack("{s:o, s:b}", "output", petra_json_string(output), "complete", true));
  if (!arguments->quiet)
    petra_utf8_print(stdout, "%s: this run is complete; there is nothing left to do\n", output);
  return PETRA_OK;
}

/* Finds errors that can be found before the processes are connected. */
static petra_status read_config(const petra_arguments *arguments, petra_config **out) {
  const int launched = petra_launcher_size(NULL);
  if (arguments->resume && arguments->overwrite)
    return petra_fail(PETRA_USAGE, "both --resume and --overwrite; expected one of them");
  if (arguments->input && strcmp(arguments->input, "-") == 0 && launched > 1)
    return petra_fail(PETRA_USAGE,
                      "a config from standard input reaches only the first of %d processes; expected a file", launched);
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
  options.ranks = ranks;
  PETRA_TRY_GOTO(status, petra_run_open(config, &options, &run), done);
  PETRA_TRY_GOTO(status, petra_run_go(run), done);
  if (petra_stop_signalled())
    petra_log(PETRA_LOG_WARNING, "the signal came when nothing was left to train; the run is complete");
  petra_stop_release(); /* only the weights remain to be written */
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
  petra_run_restore(run); /* this must come before petra_ranks_close, which may end the program */
  const bool tells = !ranks || ranks->rank == 0;
  petra_ranks_close(ranks, status); /* on another failure this ends the program, on every rank */
  if (status == PETRA_COMPLETE)
    status = tells ? report_complete(arguments, config) : PETRA_OK;
  petra_run_destroy(run);
  petra_config_destroy(config);
  petra_ranks_release_lines();
  return status;
}

const petra_command petra_command_train = {
    .name = "train",
    .summary = "trains a network that is split into stages, emulated in one process or on the processes of mpirun",
    .arguments =
        "CONFIG.yaml [--set KEY=VALUE]... [--output DIR] [--resume | --overwrite] [--trace FILE] [--json] [--quiet]",
    .help =
        "Trains the network of the config with the method of the config. By default all J stages are emulated in\n"
        "this process, in the order of a virtual clock. With run.mode: execute under mpirun, each process\n"
        "computes some of the stages.\n"
        "\n"
        "The run writes these files into DIR:\n"
        "  config.yaml                      every key with its value\n"
        "  run.h5                           losses, accuracies, stages, memory, probes; readable during the run\n"
        "  weights.h5                       the final weights, or with run.keep: best those of the best evaluation\n"
        "  best.h5                          with run.keep: best; it becomes weights.h5 at the end\n"
        "  checkpoint.h5 and checkpoint/    as run.checkpoint_every says; removed at the end unless "
        "run.keep_checkpoint\n"
        "Before the run, petra prints an estimate of its time (with a profile), memory and disk space.\n"
        "\n"
        "SIGINT (Ctrl-C), SIGTERM and SIGUSR1 end the run after a checkpoint is written; the last line of the\n"
        "output is the command that resumes the run. A second signal ends the run at once. If the run is already\n"
        "complete, --resume says so and changes nothing; with --json it prints {\"output\": DIR, \"complete\": true}.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output, "where files go (default: run.output/run.name of the config)"),
            PETRA_OPTION("trace", "FILE", trace,
                         "writes a trace of every action for the viewers of Chrome and Perfetto; prints a line if it "
                         "may exceed 500 MB"),
            PETRA_OPTION(
                "resume", NULL, resume,
                "resumes from checkpoint.h5 in DIR; the result is bit-identical to that of a run without an "
                "interruption. If there is no checkpoint.h5, the run starts at the beginning. A complete run "
                "is left as it is. To make it longer, it must have kept its checkpoint (run.keep_checkpoint)."),
            PETRA_OPTION("overwrite", NULL, overwrite,
                         "replaces the run in DIR; without this option, a run in DIR is an error and is left as it is. "
                         "The earlier run is moved aside, and removed after the first loss or the first checkpoint of "
                         "the new run. If the new run ends before that, the earlier run is restored."),
            {0}},
    .ranks = true,
    .lasting = true,
    .run = train};
