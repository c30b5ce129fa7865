/* petra simulate: prices a method on the modelled cluster; no tensor is touched. */
#include "cli/simulate.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cluster.h"
#include "cli/cluster_plan.h"
#include "cli/command.h"
#include "cli/footprint.h"
#include "cli/run_folder.h"
#include "io/runlog_simulate.h"
#include "sim/worker_cost.h"
#include "sim/worker_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct simulation {
  const petra_arguments *arguments;
  petra_config *config;
  petra_setup setup;
  petra_program_options program;
  petra_cluster cluster;
  petra_worker *worker;       /* counts */
  petra_memory_stage *memory; /* per stage; NULL without a model */
  petra_samples *samples;     /* NULL unless they are written */
  petra_worker *ledger;       /* around `worker`; NULL without a model */
  petra_critical *critical;   /* NULL unless it was asked for */
  petra_message_hook message; /* the trace's, NULL without one */
  int64_t *critical_stage_ns;
  char *directory; /* NULL: nothing is written */
  int lock;        /* its descriptor; -1: none */
  petra_runlog *runlog;
  petra_executor *executor;
  int64_t *busy_ns;            /* per stage */
  int64_t quarter, half;       /* microbatches between whose B at stage 1 the steady state is measured */
  int64_t quarter_ns, half_ns; /* when these ended; -1: never */
  petra_simulated_stage *stage;
  petra_simulated result;
} simulation;

/* Bins of /memory/bytes: as many as a figure has pixels, more or less. */
enum { MEMORY_BINS = 1024 };

static petra_status plan(simulation *s) {
  if (s->config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(
        s->config, "cluster.cost.model",
        "measured: nothing is computed that could be measured; expected another model, or petra train");
  PETRA_TRY(petra_cluster_plan(&s->setup, s->config, 0, &s->program));
  s->quarter = s->program.microbatches / 4;
  s->half = s->program.microbatches / 2;
  s->quarter_ns = s->half_ns = -1;
  return petra_cluster_init(&s->cluster, &s->setup, &s->program, s->arguments->trace);
}

static petra_status sink(void *context, const petra_trace_row *row) {
  simulation *s = context;
  s->busy_ns[row->action.stage - 1] += row->end_ns - row->start_ns;
  if (row->action.stage == 1 && row->action.kind == PETRA_ACTION_BACKWARD) {
    if (row->action.microbatch == s->quarter)
      s->quarter_ns = row->end_ns;
    if (row->action.microbatch == s->half)
      s->half_ns = row->end_ns;
  }
  if (s->critical)
    PETRA_TRY(petra_critical_action(s->critical, row));
  return s->cluster.trace || s->cluster.recorder ? petra_cluster_sink(&s->cluster, row) : PETRA_OK;
}

/* Messages for the critical path, and for the trace where there is one. */
static petra_status on_message(void *context, bool sent, int32_t from, const petra_packet *packet, int64_t now_ns) {
  simulation *s = context;
  PETRA_TRY(petra_critical_message(s->critical, sent, packet, now_ns));
  return s->message ? s->message(s->cluster.trace, sent, from, packet, now_ns) : PETRA_OK;
}

static petra_status watch_critical_path(simulation *s) {
  PETRA_TRY(petra_allocate(&s->critical_stage_ns, (size_t)s->program.stages, sizeof *s->critical_stage_ns));
  PETRA_TRY(petra_critical_create(&s->cluster.executor, &s->program, &s->critical));
  s->message = s->cluster.executor.message;
  s->cluster.executor.message = on_message;
  s->cluster.executor.message_context = s;
  return PETRA_OK;
}

/* What the model's stages hold, by the accounting of --memory. */
static petra_status plan_memory(simulation *s) {
  const char *accounting = s->arguments->memory ? s->arguments->memory : "measured";
  bool measured = strcmp(accounting, "measured") == 0;
  petra_accounting counted = PETRA_ACCOUNTING_PAPER;
  if (strcmp(accounting, "strict") == 0)
    counted = PETRA_ACCOUNTING_STRICT;
  else if (!measured && strcmp(accounting, "paper") != 0)
    return petra_fail(PETRA_USAGE, "--memory: no accounting '%s'; expected measured, paper or strict", accounting);
  if (s->config->cluster.stages > 0)
    return s->arguments->memory
               ? petra_config_fail(
                     s->config, "cluster.stages",
                     "%lld stages without a model with --memory, which counts the memory of a model; expected 0",
                     (long long)s->config->cluster.stages)
               : PETRA_OK;
  s->result.accounting = accounting;
  PETRA_TRY(petra_allocate(&s->memory, (size_t)s->program.stages, sizeof *s->memory));
  return measured ? petra_footprint_measured(&s->setup, &s->program, s->memory)
                  : petra_footprint_counted(&s->setup, counted, s->memory);
}

/* Folder, lock, run.h5 and config.yaml. */
static petra_status open_log(simulation *s) {
  char *text = NULL, *path = NULL;
  size_t size;
  petra_status status;
  if (!s->arguments->output) {
    if (s->config->run.trace_actions)
      petra_log(PETRA_LOG_WARNING, "run.trace_actions without --output: nothing is written");
    return PETRA_OK;
  }
  PETRA_TRY(petra_setup_output(s->config, s->arguments->output, &s->directory));
  PETRA_TRY(petra_run_folder_lock(s->directory, &s->lock));
  PETRA_TRY_GOTO(status, petra_run_folder_expand_config(s->config, &text, &size), done);
  PETRA_TRY_GOTO(status, petra_join_path(s->directory, "run.h5", &path), done);
  const petra_runlog_about about = {.command = s->arguments->command_line,
                                    .backend = "none: costs only",
                                    .libraries = "",
                                    .config = text,
                                    .seed = (uint64_t)s->config->run.seed,
                                    .actions = s->config->run.trace_actions};
  PETRA_TRY_GOTO(status, petra_runlog_create(path, &about, &s->runlog), done);
  PETRA_TRY_GOTO(status, petra_run_folder_write_config(s->directory, text, size), done);
  if (s->config->cluster.stages == 0)
    status = petra_run_folder_write_stages(&s->setup, s->runlog);
done:
  free(text); /* open_memstream's */
  petra_free(path);
  return status;
}

static const petra_account *account_of(const void *context, int32_t stage) {
  return &petra_worker_memory_accounts(context)[stage - 1];
}

/* The workers around the one that counts: memory, then the records. */
static petra_status wrap_worker(simulation *s, petra_worker **out) {
  if (s->memory) {
    if (s->runlog)
      PETRA_TRY(petra_samples_create(s->program.stages, PETRA_MEMORY_CATEGORIES + 1, MEMORY_BINS, &s->samples));
    const petra_worker_memory_options options = {
        .stages = s->program.stages, .stage = s->memory, .counting = s->worker, .samples = s->samples};
    PETRA_TRY(petra_worker_memory_create(&options, &s->ledger));
    s->result.accounts = petra_worker_memory_accounts(s->ledger);
  }
  const petra_recorder_options recorder = {.worker = s->ledger ? s->ledger : s->worker,
                                           .stages = s->program.stages,
                                           .account = s->ledger ? account_of : NULL,
                                           .account_context = s->ledger,
                                           .runlog = s->config->run.trace_actions ? s->runlog : NULL};
  return petra_cluster_record(&s->cluster, &recorder, out);
}

static petra_status run_program(simulation *s) {
  const petra_program_ops *program = s->setup.method.program;
  const petra_worker_cost_options worker = {.stages = s->program.stages,
                                            .split_head = s->program.split_head,
                                            .split_backward = program->split_backward,
                                            .forward_weights = s->setup.method.forward_weights,
                                            .backward_weights = s->setup.method.backward_weights,
                                            .accumulate = s->setup.method.accumulate,
                                            .sync_period = s->setup.method.sync_period};
  PETRA_TRY(petra_allocate(&s->busy_ns, (size_t)s->program.stages, sizeof *s->busy_ns));
  PETRA_TRY(petra_worker_cost_create(&worker, &s->worker));
  petra_worker *wrapped;
  PETRA_TRY(wrap_worker(s, &wrapped));
  if (s->arguments->critical_path)
    PETRA_TRY(watch_critical_path(s));
  PETRA_TRY(petra_executor_virtual_create(&s->cluster.executor, &s->executor));
  double start_s = petra_clock_s();
  PETRA_TRY(s->executor->ops->run(s->executor, program, &s->program, wrapped, sink, s));
  s->result.wall_s = petra_clock_s() - start_s;
  return petra_cluster_finish(&s->cluster);
}

/* Flush programs and sequential come to rest: all of the time over all microbatches. The others: their steady
 * state. */
static double time_per_microbatch_s(const simulation *s) {
  const petra_program_ops *program = s->setup.method.program;
  int64_t makespan_ns = s->executor->ops->now_ns(s->executor);
  if (program->flush || program == &petra_program_sequential)
    return 1e-9 * (double)makespan_ns / (double)s->program.microbatches;
  if (s->quarter_ns < 0 || s->half_ns < 0 || s->half == s->quarter)
    return NAN;
  return 1e-9 * (double)(s->half_ns - s->quarter_ns) / (double)(s->half - s->quarter);
}

static bool leaves_device(const simulation *s, int32_t from, int32_t to) {
  return petra_program_device(&s->program, from) != petra_program_device(&s->program, to);
}

static void measure_stage(const simulation *s, int32_t stage, double available_ns, petra_simulated_stage *out) {
  const petra_stage_counts *counts = &petra_worker_cost_counts(s->worker)[stage - 1];
  const petra_stage_cost *cost = &s->cluster.costs[s->cluster.executor.cost_count == 1 ? 0 : stage - 1];
  *out =
      (petra_simulated_stage){.utilization = available_ns > 0 ? (double)s->busy_ns[stage - 1] / available_ns : 0,
                              .lag_mean = counts->backwards ? (double)counts->lag_sum / (double)counts->backwards : 0,
                              .lag_max = counts->lag_max,
                              .in_flight_max = counts->kept_max};
  if (stage < s->program.stages && leaves_device(s, stage, stage + 1))
    out->bytes_up = counts->forwards * cost->forward_bytes;
  if (stage > 1 && leaves_device(s, stage, stage - 1))
    out->bytes_down = counts->backwards * cost->backward_bytes;
}

static petra_status measure(simulation *s) {
  petra_simulated *result = &s->result;
  int32_t devices = petra_program_devices(&s->program);
  double busy_ns = 0;
  PETRA_TRY(petra_allocate(&s->stage, (size_t)s->program.stages, sizeof *s->stage));
  result->setup = &s->setup;
  result->program = &s->program;
  result->makespan_ns = s->executor->ops->now_ns(s->executor);
  result->actions = petra_executor_virtual_actions(s->executor);
  result->runaway = petra_executor_virtual_runaway(s->executor);
  result->time_per_microbatch_s = time_per_microbatch_s(s);
  result->stage = s->stage;
  double available_ns = (double)s->config->cluster.engines * (double)result->makespan_ns;
  for (int32_t j = 1; j <= s->program.stages; j++) {
    measure_stage(s, j, available_ns, &s->stage[j - 1]);
    busy_ns += (double)s->busy_ns[j - 1];
  }
  result->bubble_fraction = available_ns > 0 ? 1 - busy_ns / (available_ns * devices) : 0;
  result->critical = s->critical != NULL;
  result->critical_stage_ns = s->critical_stage_ns;
  return s->critical ? petra_critical_trace(s->critical, &result->path, s->critical_stage_ns) : PETRA_OK;
}

static petra_status write_log(simulation *s) {
  if (!s->runlog)
    return PETRA_OK;
  PETRA_TRY(petra_simulated_write(&s->result, s->runlog));
  if (s->samples) {
    petra_runlog_memory_time memory = {.accounting = s->result.accounting, .stages = s->program.stages};
    petra_samples_finish(s->samples, s->result.makespan_ns, &memory.bins, &memory.width_ns, &memory.values);
    PETRA_TRY(petra_runlog_memory_over_time(s->runlog, &memory));
  }
  PETRA_TRY(petra_runlog_complete(s->runlog));
  petra_runlog *runlog = s->runlog;
  s->runlog = NULL;
  return petra_runlog_close(runlog);
}

static petra_status report(const simulation *s) {
  const petra_simulated *result = &s->result;
  if (result->runaway >= 0)
    petra_log(PETRA_LOG_WARNING,
              "forward runs away from backward: with microbatch %lld more than %lld are in flight; "
              "method.credit bounds them",
              (long long)result->runaway, 2 * (2 * (long long)s->program.stages - 1));
  if (s->arguments->json)
    return petra_simulated_print_json(result);
  if (s->arguments->quiet)
    return PETRA_OK;
  PETRA_TRY(petra_simulated_print_table(result));
  if (s->directory)
    petra_utf8_print(stdout, "written: %s/{config.yaml,run.h5}\n", s->directory);
  return PETRA_OK;
}

static petra_status run(const petra_arguments *arguments) {
  simulation s = {.arguments = arguments, .lock = -1};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_arguments_config(arguments, "simulate", &s.config), done);
  PETRA_TRY_GOTO(status, plan(&s), done);
  PETRA_TRY_GOTO(status, plan_memory(&s), done);
  PETRA_TRY_GOTO(status, open_log(&s), done);
  PETRA_TRY_GOTO(status, run_program(&s), done);
  PETRA_TRY_GOTO(status, measure(&s), done);
  PETRA_TRY_GOTO(status, write_log(&s), done);
  status = report(&s);
done:
  if (s.executor)
    s.executor->ops->destroy(s.executor);
  petra_cluster_fini(&s.cluster);
  petra_worker_memory_destroy(s.ledger);
  petra_worker_cost_destroy(s.worker);
  petra_samples_destroy(s.samples);
  petra_critical_destroy(s.critical);
  petra_runlog_close(s.runlog);
  if (s.lock >= 0)
    close(s.lock);
  petra_free(s.directory);
  petra_free(s.critical_stage_ns);
  petra_free(s.memory);
  petra_free(s.stage);
  petra_free(s.busy_ns);
  petra_setup_fini(&s.setup);
  petra_config_destroy(s.config);
  return status;
}

const petra_command petra_command_simulate = {
    .name = "simulate",
    .summary = "prices a method on a modelled cluster, without computing anything",
    .arguments = "CONFIG.yaml [--set KEY=VALUE]... [--output DIR] [--trace FILE] [--critical-path] [--memory A] "
                 "[--json] [--quiet]",
    .help = "Runs the actions of the config's method on the modelled cluster (cluster.*) under a virtual "
            "clock and prints what it\n"
            "takes: time per microbatch, idle time, lags, messages, memory. Nothing is computed, and nothing is "
            "written but what --output and --trace ask for. The stages are\n"
            "the model's, or, where cluster.stages is given, so many equal ones. run.max_microbatches "
            "microbatches are run; where it is\n"
            "0, 16 per stage. run.drain: auto leaves the pipeline as `petra train` does: lockstep ends "
            "undrained, others drain.\n",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output,
                         "writes run.h5 and config.yaml into DIR (default: nothing is written)"),
            PETRA_OPTION("trace", "FILE", trace, "writes a trace of every action for Chrome's or Perfetto's viewer"),
            PETRA_OPTION("critical-path", NULL, critical_path,
                         "tells which actions and messages the makespan is made of; keeps every action in memory"),
            PETRA_OPTION("memory", "A", memory,
                         "accounting of the stages' memory: measured (default), paper or strict"),
            {0}},
    .run = run};
