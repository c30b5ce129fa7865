/* petra simulate: prices a method on the modelled cluster; no tensor is touched. */
#include "cli/simulate.h"

#include "base/log.h"
#include "base/mem.h"
#include "cli/cluster.h"
#include "cli/cluster_plan.h"
#include "cli/command.h"
#include "sim/worker_cost.h"

#include <math.h>
#include <time.h>

typedef struct simulation {
  const petra_arguments *arguments;
  petra_config *config;
  petra_setup setup;
  petra_program_options program;
  petra_cluster cluster;
  petra_worker *worker;
  petra_executor *executor;
  int64_t *busy_ns;            /* per stage */
  int64_t quarter, half;       /* microbatches between whose B at stage 1 the steady state is measured */
  int64_t quarter_ns, half_ns; /* when these ended; -1: never */
  petra_simulated_stage *stage;
  petra_simulated result;
} simulation;

static petra_status plan(simulation *s) {
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
  return s->cluster.trace ? petra_cluster_sink(&s->cluster, row) : PETRA_OK;
}

static double wall_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static petra_status run_program(simulation *s) {
  const petra_program_ops *program = s->setup.method->program;
  const petra_worker_cost_options worker = {.stages = s->program.stages,
                                            .split_head = s->program.split_head,
                                            .split_backward = program->split_backward};
  PETRA_TRY(petra_allocate(&s->busy_ns, (size_t)s->program.stages, sizeof *s->busy_ns));
  PETRA_TRY(petra_worker_cost_create(&worker, &s->worker));
  PETRA_TRY(petra_executor_virtual_create(&s->cluster.executor, &s->executor));
  double start_s = wall_s();
  PETRA_TRY(s->executor->ops->run(s->executor, program, &s->program, s->worker, sink, s));
  s->result.wall_s = wall_s() - start_s;
  return petra_cluster_finish(&s->cluster);
}

/* Flush programs and sequential come to rest: all of the time over all microbatches. The others: their steady
 * state. */
static double time_per_microbatch_s(const simulation *s) {
  const petra_program_ops *program = s->setup.method->program;
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

static void measure_stage(const simulation *s, int32_t stage, double available_ns,
                          petra_simulated_stage *out) {
  const petra_stage_counts *counts = &petra_worker_cost_counts(s->worker)[stage - 1];
  const petra_stage_cost *cost = &s->cluster.costs[s->cluster.executor.cost_count == 1 ? 0 : stage - 1];
  *out = (petra_simulated_stage){
      .utilization = available_ns > 0 ? (double)s->busy_ns[stage - 1] / available_ns : 0,
      .lag_mean = counts->backwards ? (double)counts->lag_sum / (double)counts->backwards : 0,
      .lag_max = counts->lag_max,
      .in_flight_max = counts->kept_max};
  if (stage < s->program.stages && leaves_device(s, stage, stage + 1))
    out->bytes_up = counts->forwards * cost->forward_bytes;
  if (stage > 1 && leaves_device(s, stage, stage - 1))
    out->bytes_down = counts->backwards * cost->backward_bytes;
  if (s->config->cluster.stages == 0) {
    petra_stage_summary summary;
    petra_setup_stage_summary(&s->setup, stage - 1, &summary);
    out->parameters_bytes =
        summary.parameters * (s->config->device.precision == PETRA_PRECISION_FP64 ? 8 : 4);
  }
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
  return PETRA_OK;
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
  return s->arguments->quiet ? PETRA_OK : petra_simulated_print_table(result);
}

static petra_status run(const petra_arguments *arguments) {
  simulation s = {.arguments = arguments};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_arguments_config(arguments, "simulate", &s.config), done);
  PETRA_TRY_GOTO(status, plan(&s), done);
  PETRA_TRY_GOTO(status, run_program(&s), done);
  PETRA_TRY_GOTO(status, measure(&s), done);
  status = report(&s);
done:
  if (s.executor)
    s.executor->ops->destroy(s.executor);
  petra_worker_cost_destroy(s.worker);
  petra_cluster_fini(&s.cluster);
  petra_free(s.stage);
  petra_free(s.busy_ns);
  petra_setup_fini(&s.setup);
  petra_config_destroy(s.config);
  return status;
}

const petra_command petra_command_simulate = {
    .name = "simulate",
    .summary = "prices a method on a modelled cluster, without computing anything",
    .arguments = "CONFIG.yaml [--set KEY=VALUE]... [--trace FILE] [--json] [--quiet]",
    .help = "Runs the actions of the config's method on the modelled cluster (cluster.*) under a virtual "
            "clock and prints what it\n"
            "takes: time per microbatch, idle time, lags, messages. Nothing is computed and nothing is "
            "written but --trace. The stages are\n"
            "the model's, or, where cluster.stages is given, so many equal ones. run.max_microbatches "
            "microbatches are run; where it is\n"
            "0, 16 per stage. run.drain: auto leaves the pipeline as `petra train` does: lockstep ends "
            "undrained, others drain.\n",
    .takes_config = true,
    .traces = true,
    .run = run};
