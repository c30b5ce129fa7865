/* SPDX-License-Identifier: Apache-2.0 */
#include "run/simulation.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "record/action_log.h"
#include "plan/virtual_cluster.h"
#include "predict/memory.h"
#include "distributed/rank_simulation.h"
#include "plan/placement.h"
#include "record/trace_observer.h"
#include "sim/worker_cost.h"
#include "sim/observer_memory.h"

#include <math.h>
#include <string.h>

struct petra_simulation {
  const petra_config *config;
  petra_simulation_options options;
  petra_plan plan;
  petra_cluster cluster;
  petra_placed *placed;
  int32_t *rank_of;     /* per stage; NULL without cluster.placement */
  double *rank_busy;    /* per rank */
  petra_worker *worker; /* counts */
  petra_executor *executor;
  petra_folder folder;  /* without a path: nothing is written */
  petra_observer stops; /* a signal ends the simulation */
  petra_rank_times times;
  petra_memory_stage *memory; /* per stage; NULL without a model */
  petra_samples *samples;     /* NULL unless they are written */
  petra_observer *ledger;     /* NULL without a model */
  petra_critical *critical;   /* NULL unless it was asked for */
  int64_t *critical_stage_ns;
  petra_action_log *actions; /* NULL unless they are written */
  petra_observer *trace;     /* NULL: none */
  petra_observer *observers;
  const char *critical_names[PETRA_CRITICAL_KINDS];
  double *reals;     /* the columns of the result, one after the other */
  int64_t *integers; /* the same */
  petra_simulated result;
};

/* Bins of /memory/bytes: as many as a figure has pixels, more or less. */
enum { MEMORY_BINS = 1024 };

/* How many processes cluster.placement has; 0: every device is on its own. */
static int32_t ranks_of(const petra_simulation *s) {
  return (int32_t)s->config->cluster.placement.count;
}

static petra_status place(petra_simulation *s) {
  const int32_t ranks = ranks_of(s);
  if (ranks > 0) {
    PETRA_TRY(petra_allocate(&s->rank_of, (size_t)s->plan.stages, sizeof *s->rank_of));
    PETRA_TRY(petra_allocate(&s->rank_busy, (size_t)ranks, sizeof *s->rank_busy));
    PETRA_TRY(petra_placement_cut(&s->plan, ranks, s->rank_of));
  }
  return petra_placed_create(&s->plan, &s->cluster, s->rank_of, ranks, &s->placed);
}

static petra_status plan(petra_simulation *s) {
  if (s->config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(
        s->config, "cluster.cost.model",
        "measured: a simulation computes nothing to measure; expected another model, or petra train");
  s->result.plan = &s->plan;
  PETRA_TRY(petra_plan_simulated(&s->plan, s->config, 0));
  PETRA_TRY(petra_plan_check_norms(&s->plan));
  petra_plan_warn_idle(&s->plan);
  PETRA_TRY(petra_plan_load_profile(&s->plan));
  PETRA_TRY(petra_cluster_init(&s->cluster, &s->plan));
  return place(s);
}

static petra_status end_if_asked(petra_observer *base, int64_t now_ns, const petra_action *actions, int count) {
  (void)base, (void)now_ns, (void)actions, (void)count;
  return petra_stop_requested();
}

/* petra simulate catches signals if an earlier run may have to be put back. */
static petra_status watch_clock(petra_simulation *s) {
  static const petra_observer_ops ops = {.starting = end_if_asked};
  s->stops.ops = &ops;
  if (s->options.records.output && s->options.records.overwrite)
    PETRA_OBSERVERS_ADD(petra_observer, &s->observers, &s->stops);
  PETRA_TRY(petra_rank_times_init(&s->times, &s->plan));
  PETRA_OBSERVERS_ADD(petra_observer, &s->observers, &s->times.base);
  return PETRA_OK;
}

static const petra_executor_virtual_options *executor_options(const petra_simulation *s) {
  return s->rank_of ? petra_placed_executor(s->placed, PETRA_PROFILE_MEAN) : &s->cluster.executor;
}

static petra_status watch_critical_path(petra_simulation *s) {
  PETRA_TRY(petra_allocate(&s->critical_stage_ns, (size_t)s->plan.stages, sizeof *s->critical_stage_ns));
  PETRA_TRY(petra_critical_create(executor_options(s), petra_placed_options(s->placed),
                                  petra_placed_program(s->placed)->locked, &s->critical));
  PETRA_OBSERVERS_ADD(petra_observer, &s->observers, petra_critical_observer(s->critical));
  return PETRA_OK;
}

/* What the model's stages hold, by the accounting of --memory. */
static petra_status plan_memory(petra_simulation *s) {
  const char *accounting = s->options.memory ? s->options.memory : "measured";
  bool measured = strcmp(accounting, "measured") == 0;
  petra_accounting counted = PETRA_ACCOUNTING_PAPER;
  if (strcmp(accounting, "strict") == 0)
    counted = PETRA_ACCOUNTING_STRICT;
  else if (!measured && strcmp(accounting, "paper") != 0)
    return petra_fail(PETRA_USAGE, "--memory: unknown accounting '%s'; expected measured, paper or strict", accounting);
  if (s->config->cluster.stages > 0)
    return s->options.memory
               ? petra_config_fail(
                     s->config, "cluster.stages",
                     "%lld stages without a model with --memory, which counts the memory of a model; expected 0",
                     (long long)s->config->cluster.stages)
               : PETRA_OK;
  s->result.accounting = accounting;
  PETRA_TRY(petra_allocate(&s->memory, (size_t)s->plan.program.stages, sizeof *s->memory));
  if (!measured)
    return petra_footprint_counted(&s->plan, counted, s->memory);
  return petra_footprint_measured(&s->plan, s->rank_of, s->memory);
}

static petra_status open_log(petra_simulation *s) {
  petra_runlog_about about = {
      .command = s->options.records.command_line, .backend = PETRA_SIMULATION_BACKEND, .libraries = ""};
  if (!s->options.records.output) {
    if (s->config->run.trace_actions)
      petra_log(PETRA_LOG_WARNING, "run.trace_actions without --output: nothing is written");
    return PETRA_OK;
  }
  PETRA_TRY(petra_folder_open(&s->folder, s->config, s->options.records.output,
                              s->options.records.overwrite ? PETRA_FOLDER_OVERWRITE : PETRA_FOLDER_NEW));
  PETRA_TRY(petra_folder_begin(&s->folder, &s->plan, &about));
  if (s->config->cluster.stages == 0)
    PETRA_TRY(petra_folder_write_stages(&s->folder, &s->plan));
  if (s->config->run.trace_actions) {
    PETRA_TRY(petra_action_log_create(&s->plan.program, s->folder.runlog, &s->actions));
    PETRA_OBSERVERS_ADD(petra_observer, &s->observers, petra_action_log_observer(s->actions));
  }
  return PETRA_OK;
}

static const petra_account *account_of(const void *context, int32_t stage) {
  return &((const petra_simulation *)context)->result.accounts[stage - 1];
}

static petra_status watch_memory(petra_simulation *s) {
  const petra_memory_observer_options options = {.stages = s->plan.stages,
                                                 .stage = s->memory,
                                                 .counting = petra_worker_cost_of(&s->plan.method, &s->plan.program),
                                                 .samples = s->samples};
  PETRA_TRY(petra_memory_observer_create(&options, &s->ledger));
  PETRA_OBSERVERS_ADD(petra_observer, &s->observers, s->ledger);
  s->result.accounts = petra_memory_observer_accounts(s->ledger);
  return PETRA_OK;
}

static petra_status watch_trace(petra_simulation *s) {
  const petra_trace_observer_options options = {.path = s->options.records.trace,
                                                .program = &s->plan.program,
                                                .split_backward = s->plan.method.program->split_backward,
                                                .account = s->memory ? account_of : NULL,
                                                .context = s};
  PETRA_TRY(petra_trace_observer_create(&options, &s->trace));
  PETRA_OBSERVERS_ADD(petra_observer, &s->observers, s->trace);
  return PETRA_OK;
}

/* Memory comes before the trace, which shows it. */
static petra_status create_observers(petra_simulation *s) {
  PETRA_TRY(watch_clock(s));
  if (s->memory && s->options.records.output)
    PETRA_TRY(petra_samples_create(s->plan.stages, PETRA_MEMORY_CATEGORIES + 1, MEMORY_BINS, &s->samples));
  if (s->memory)
    PETRA_TRY(watch_memory(s));
  if (s->options.critical_path)
    PETRA_TRY(watch_critical_path(s));
  return s->options.records.trace ? watch_trace(s) : PETRA_OK;
}

petra_status petra_simulation_open(const petra_config *config, const petra_simulation_options *options,
                                   petra_simulation **out) {
  petra_simulation *s;
  petra_status status;
  PETRA_TRY(petra_allocate(&s, 1, sizeof *s));
  s->config = config;
  s->options = *options;
  s->folder.lock = -1;
  PETRA_TRY_GOTO(status, plan(s), fail);
  if (!options->times_alone)
    PETRA_TRY_GOTO(status, plan_memory(s), fail);
  PETRA_TRY_GOTO(status, create_observers(s), fail);
  PETRA_TRY_GOTO(status, open_log(s), fail);
  *out = s;
  return PETRA_OK;
fail:
  petra_simulation_destroy(s);
  return status;
}

static double time_per_microbatch_s(const petra_simulation *s, int64_t makespan_ns) {
  const int64_t microbatches = s->plan.program.microbatches;
  if (petra_program_time_of(s->plan.method.program, &s->plan.program) == PETRA_TIME_WHOLE &&
      s->times.passes[0] == microbatches) /* all came back */
    return 1e-9 * (double)makespan_ns / (double)microbatches;
  return petra_rank_times_microbatch_s(&s->times, PETRA_TIME_STEADY);
}

static bool leaves_device(const petra_simulation *s, int32_t from, int32_t to) {
  const petra_program_options *options = petra_placed_options(s->placed);
  return petra_program_device(options, from) != petra_program_device(options, to);
}

/* The columns of the stages. */
static petra_status measure_stages(petra_simulation *s, double available_ns) {
  const petra_stage_counts *counts = petra_worker_cost_counts(s->worker);
  const size_t stages = (size_t)s->plan.stages;
  PETRA_TRY(petra_allocate(&s->reals, stages, 2 * sizeof *s->reals));
  const int32_t replicas = s->cluster.executor.replicas;
  PETRA_TRY(petra_allocate(&s->integers, stages, 6 * sizeof *s->integers));
  double *utilization = s->reals, *lag_mean = utilization + stages;
  int64_t *lag_max = s->integers, *in_flight_max = lag_max + stages, *kept_max = in_flight_max + stages,
          *bytes_up = kept_max + stages, *bytes_down = bytes_up + stages, *bytes_exchanged = bytes_down + stages;
  for (int32_t j = 0; j < s->plan.stages; j++) {
    const petra_stage_cost *cost = &s->cluster.costs[s->cluster.executor.cost_count == 1 ? 0 : j];
    utilization[j] = available_ns > 0 ? (double)petra_rank_times_busy_ns(&s->times, j + 1) / available_ns : 0;
    lag_mean[j] = counts[j].backwards ? (double)counts[j].lag_sum / (double)counts[j].backwards : 0;
    lag_max[j] = counts[j].lag_max;
    in_flight_max[j] = counts[j].in_flight_max;
    kept_max[j] = counts[j].kept_max;
    if (j + 1 < s->plan.stages && leaves_device(s, j + 1, j + 2))
      bytes_up[j] = counts[j].forwards * cost->forward_bytes;
    if (j > 0 && leaves_device(s, j + 1, j))
      bytes_down[j] = counts[j].backwards * cost->backward_bytes;
    bytes_exchanged[j] = counts[j].updates * petra_cost_exchange_bytes(replicas, cost->gradient_bytes);
  }
  s->result.figures = (petra_runlog_simulation){.stages = s->plan.stages,
                                                .utilization = utilization,
                                                .lag_mean = lag_mean,
                                                .lag_max = lag_max,
                                                .in_flight_max = in_flight_max,
                                                .kept_max = kept_max,
                                                .bytes_up = bytes_up,
                                                .bytes_down = bytes_down,
                                                .bytes_exchanged = replicas > 1 ? bytes_exchanged : NULL};
  return PETRA_OK;
}

/* Of the ranks of cluster.placement: the share of the time that each is in actions. */
static void measure_ranks(petra_simulation *s, int64_t makespan_ns) {
  petra_runlog_simulation *figures = &s->result.figures;
  if (!s->rank_of)
    return;
  for (int32_t j = 0; j < s->plan.stages; j++)
    if (makespan_ns > 0)
      s->rank_busy[s->rank_of[j]] += (double)petra_rank_times_busy_ns(&s->times, j + 1) / (double)makespan_ns;
  figures->ranks = ranks_of(s);
  figures->of_stage = s->rank_of;
  figures->rank_busy = s->rank_busy;
}

/* The time per microbatch with all costs at a quartile; NaN where there are none. */
static petra_status quartile_s(petra_simulation *s, petra_profile_statistic statistic, double *out) {
  petra_rank_times times;
  *out = NAN;
  if (!petra_placed_has_interval(s->placed))
    return PETRA_OK;
  PETRA_TRY(petra_rank_times_init(&times, &s->plan));
  petra_status status = petra_placed_run(s->placed, statistic, &times);
  *out = petra_rank_times_microbatch_s(&times, petra_program_time_of(s->plan.method.program, &s->plan.program));
  petra_rank_times_fini(&times);
  return status;
}

static petra_status measure(petra_simulation *s, double wall_s) {
  petra_simulated *result = &s->result;
  petra_runlog_simulation *figures = &result->figures;
  const int64_t makespan_ns = s->executor->ops->now_ns(s->executor);
  const double available_ns = (double)executor_options(s)->engines * (double)makespan_ns;
  double busy_ns = 0;
  PETRA_TRY(measure_stages(s, available_ns));
  for (int32_t j = 0; j < s->plan.stages; j++)
    busy_ns += (double)petra_rank_times_busy_ns(&s->times, j + 1);
  figures->makespan_ns = makespan_ns;
  figures->actions = petra_executor_virtual_actions(s->executor);
  figures->microbatches = s->plan.program.microbatches;
  figures->time_per_microbatch_s = time_per_microbatch_s(s, makespan_ns);
  if (available_ns > 0)
    figures->bubble_fraction = 1 - busy_ns / (available_ns * petra_program_devices(petra_placed_options(s->placed)));
  figures->wall_s = wall_s;
  measure_ranks(s, makespan_ns);
  PETRA_TRY(quartile_s(s, PETRA_PROFILE_QUARTILE1, &figures->low_s));
  PETRA_TRY(quartile_s(s, PETRA_PROFILE_QUARTILE3, &figures->high_s));
  figures->high_s = petra_placed_high_s(s->placed, figures->time_per_microbatch_s, figures->high_s);
  result->measured_link = petra_placed_measured_link(s->placed);
  result->directory = s->folder.path;
  result->runaway = petra_executor_virtual_runaway(s->executor);
  result->host_busy = s->cluster.executor.host.devices > 0 && makespan_ns > 0
                          ? (double)petra_executor_virtual_host_ns(s->executor) / (double)makespan_ns
                          : NAN;
  if (!s->critical)
    return PETRA_OK;
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    s->critical_names[k] = petra_critical_name((petra_critical_kind)k);
  figures->critical_kinds = PETRA_CRITICAL_KINDS;
  figures->critical_names = s->critical_names;
  figures->critical_ns = result->path.ns;
  figures->critical_stage_ns = s->critical_stage_ns;
  return petra_critical_trace(s->critical, &result->path, s->critical_stage_ns);
}

petra_status petra_simulation_go(petra_simulation *s) {
  const petra_worker_cost_options worker = petra_worker_cost_of(&s->plan.method, &s->plan.program);
  PETRA_TRY(petra_worker_cost_create(&worker, &s->worker));
  const double start_s = petra_clock_s();
  PETRA_TRY(petra_placed_order(s->placed));
  PETRA_TRY(petra_executor_virtual_create(executor_options(s), &s->executor));
  PETRA_TRY(s->executor->ops->run(s->executor, petra_placed_program(s->placed), petra_placed_options(s->placed),
                                  s->worker, s->observers));
  const double wall_s = petra_clock_s() - start_s;
  if (s->trace)
    PETRA_TRY(petra_trace_observer_finish(s->trace));
  return measure(s, wall_s);
}

petra_status petra_simulation_close(petra_simulation *s) {
  if (!s->folder.runlog)
    return PETRA_OK;
  PETRA_TRY(petra_runlog_simulated(s->folder.runlog, &s->result.figures));
  if (s->result.accounts)
    PETRA_TRY(petra_runlog_memory(s->folder.runlog, s->result.accounts, s->plan.stages));
  if (s->samples) {
    petra_runlog_memory_time memory = {.accounting = s->result.accounting, .stages = s->plan.program.stages};
    petra_samples_finish(s->samples, s->result.figures.makespan_ns, &memory.bins, &memory.width_ns, &memory.values);
    PETRA_TRY(petra_runlog_memory_over_time(s->folder.runlog, &memory));
  }
  return petra_folder_complete(&s->folder);
}

void petra_simulation_destroy(petra_simulation *s) {
  if (!s)
    return;
  petra_executor_destroy(s->executor);
  petra_worker_cost_destroy(s->worker);
  petra_trace_observer_destroy(s->trace);
  petra_action_log_destroy(s->actions);
  petra_memory_observer_destroy(s->ledger);
  petra_samples_destroy(s->samples);
  petra_critical_destroy(s->critical);
  petra_folder_fini(&s->folder);
  petra_free(s->critical_stage_ns);
  petra_free(s->memory);
  petra_free(s->reals);
  petra_free(s->integers);
  petra_rank_times_fini(&s->times);
  petra_placed_destroy(s->placed);
  petra_free(s->rank_busy);
  petra_free(s->rank_of);
  petra_cluster_fini(&s->cluster);
  petra_plan_fini(&s->plan);
  petra_free(s);
}

const petra_simulated *petra_simulation_result(const petra_simulation *simulation) {
  return &simulation->result;
}

petra_status petra_simulate_units(const petra_schedule *schedule, const petra_program_options *program, bool recomputes,
                                  int engines, petra_observer *observers, int64_t *makespan_ns) {
  static const petra_stage_cost cost = {
      .forward_ns = 1, .backward_ns = 2, .reconstruct_ns = 1, .weight_gradient_ns = 1};
  const petra_executor_virtual_options settings = {.engines = engines,
                                                   .rule = {.recomputes = recomputes,
                                                            .split_backward = schedule->split_backward,
                                                            .fused_head = !schedule->split_head},
                                                   .costs = &cost,
                                                   .cost_count = 1};
  const petra_worker_cost_options counting = {
      .stages = schedule->stages, .split_head = schedule->split_head, .split_backward = schedule->split_backward};
  return petra_worker_cost_run(&settings, &counting, &schedule->program, program, observers, makespan_ns);
}
