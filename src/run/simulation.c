/* SPDX-License-Identifier: Apache-2.0 */
#include "run/simulation.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "predict/memory.h"
#include "record/action_stream.h"
#include "run/run_private.h"
#include "setup/rank_simulation.h"
#include "sim/observer_memory.h"

#include <math.h>
#include <string.h>

struct petra_simulation {
  petra_rank_simulation *over_ranks;
  int32_t *rank_of; /* rank of each stage; NULL: every device is a rank */
  int32_t ranks;
  double *rank_busy;    /* busy share of each rank */
  petra_worker *worker; /* counts versions */
  petra_observer stops; /* a signal ends the simulation */
  petra_rank_times times[PETRA_PROFILE_QUARTILE3 + 1];
  petra_memory_stage *memory;      /* per stage; NULL without a model */
  petra_time_bins *samples;        /* NULL unless memory over time is written */
  petra_observer *memory_observer; /* NULL without a model */
  petra_observer *critical;        /* NULL unless it was requested */
  petra_observer *actions;         /* the same */
  int64_t *critical_stage_ns;
  const char *critical_names[PETRA_CRITICAL_KINDS];
  double *reals;     /* the columns of the result, one after the other */
  int64_t *integers; /* the same */
  double wall_s;
  petra_simulated result;
};

/* Bins of /memory/bytes: about as many as a figure has pixels. */
enum { MEMORY_BINS = 1024 };

static petra_status place(petra_run *run) {
  petra_simulation *s = run->simulation;
  s->ranks = (int32_t)run->config->cluster.placement.count;
  if (s->ranks > 0) {
    PETRA_TRY(petra_allocate(&s->rank_of, (size_t)run->plan.stages, sizeof *s->rank_of));
    PETRA_TRY(petra_placement_cut(&run->plan, s->ranks, s->rank_of));
  }
  PETRA_TRY(petra_allocate(&s->rank_busy, (size_t)s->ranks, sizeof *s->rank_busy));
  PETRA_TRY(petra_rank_simulation_create(&run->plan, &run->cluster, s->rank_of, s->ranks, &s->over_ranks));
  petra_rank_simulation_arguments(s->over_ranks, &run->clock, &run->program, &run->program_options);
  return PETRA_OK;
}

static petra_status make_plan(petra_run *run) {
  if (run->options.plan) {
    run->plan = *run->options.plan;
    return PETRA_OK;
  }
  if (run->config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(
        run->config, "cluster.cost.model",
        "measured: a simulation computes nothing to measure; expected another model, or petra train");
  PETRA_TRY(petra_plan_simulated(&run->plan, run->config, 0));
  PETRA_TRY(petra_plan_check_norms(&run->plan));
  return petra_plan_load_profile(&run->plan);
}

static petra_status end_if_asked(petra_observer *base, int64_t now_ns, const petra_action *actions, int count) {
  (void)base, (void)now_ns, (void)actions, (void)count;
  return petra_stop_requested();
}

/* The observer has no state. */
static void ignore_cycle(petra_observer *base, struct petra_cycle *cycle) {
  (void)base, (void)cycle;
}

/* petra simulate catches signals if it may need to restore an earlier run. */
static petra_status watch_clock(petra_run *run) {
  static const petra_observer_ops ops = {.starting = end_if_asked, .state = ignore_cycle};
  petra_simulation *s = run->simulation;
  s->stops.ops = &ops;
  if (run->options.files && run->options.overwrite)
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, &s->stops);
  for (int i = 0; i <= PETRA_PROFILE_QUARTILE3; i++)
    PETRA_TRY(petra_rank_times_init(&s->times[i], &run->plan.program));
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, &s->times[PETRA_PROFILE_MEAN].base);
  return PETRA_OK;
}

static petra_status watch_critical_path(petra_run *run) {
  petra_simulation *s = run->simulation;
  PETRA_TRY(petra_allocate(&s->critical_stage_ns, (size_t)run->plan.stages, sizeof *s->critical_stage_ns));
  PETRA_TRY(petra_critical_create(run->clock, run->program_options, run->program->locked, &s->critical));
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, s->critical);
  return PETRA_OK;
}

/* Starts the reader of --chakra, whose traces have no messages between replicas. */
static petra_status stream_actions(petra_run *run) {
  petra_simulation *s = run->simulation;
  const petra_action_stream_options options = {.open = run->options.read_actions,
                                               .method = run->plan.method.name,
                                               .program = run->program,
                                               .program_options = run->program_options,
                                               .executor = run->clock};
  if (run->config->cluster.replicas > 1)
    return petra_config_fail(run->config, "cluster.replicas",
                             "%lld with --chakra, which writes the devices of one replica; expected 1",
                             (long long)run->config->cluster.replicas);
  PETRA_TRY(petra_action_stream_create(&options, &s->actions));
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, s->actions);
  return PETRA_OK;
}

/* Counts the memory of the model's stages by the accounting of --memory. */
static petra_status plan_memory(petra_run *run) {
  petra_simulation *s = run->simulation;
  const char *accounting = run->options.memory ? run->options.memory : "measured";
  bool measured = strcmp(accounting, "measured") == 0;
  petra_accounting counted = PETRA_ACCOUNTING_PAPER;
  if (strcmp(accounting, "strict") == 0)
    counted = PETRA_ACCOUNTING_STRICT;
  else if (!measured && strcmp(accounting, "paper") != 0)
    return petra_fail(PETRA_USAGE, "--memory: unknown accounting '%s'; expected measured, paper or strict", accounting);
  if (run->config->cluster.stages > 0)
    return run->options.memory
               ? petra_config_fail(
                     run->config, "cluster.stages",
                     "%lld stages without a model with --memory, which counts the memory of a model; expected 0",
                     (long long)run->config->cluster.stages)
               : PETRA_OK;
  s->result.accounting = accounting;
  PETRA_TRY(petra_allocate(&s->memory, (size_t)run->plan.program.stages, sizeof *s->memory));
  if (!measured)
    return petra_predict_memory_counted(&run->plan, counted, s->memory);
  return run->options.memory_cache && !s->rank_of
             ? petra_memory_cache_measured(run->options.memory_cache, &run->plan, s->memory)
             : petra_predict_memory_measured(&run->plan, s->rank_of, s->memory);
}

static const petra_account *account_of(const void *run, int32_t stage) {
  return &((const petra_run *)run)->simulation->result.accounts[stage - 1];
}

static petra_status watch_memory(petra_run *run) {
  petra_simulation *s = run->simulation;
  if (!s->memory)
    return PETRA_OK;
  if (run->options.files)
    PETRA_TRY(petra_time_bins_create(run->plan.stages, PETRA_MEMORY_CATEGORIES + 1, MEMORY_BINS, &s->samples));
  PETRA_TRY(petra_memory_observer_create(s->memory, &run->plan.method, run->program_options, s->samples,
                                         &s->memory_observer));
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, s->memory_observer);
  s->result.accounts = petra_memory_observer_accounts(s->memory_observer);
  s->result.device_accounts = petra_memory_observer_devices(s->memory_observer);
  run->account = account_of;
  return PETRA_OK;
}

/* Prepares the simulation. The observers of memory come before the trace, which shows memory. */
static petra_status prepare(petra_run *run) {
  PETRA_TRY(petra_allocate(&run->simulation, 1, sizeof *run->simulation));
  run->simulation->result.plan = &run->plan;
  run->simulation->result.times = run->simulation->times;
  PETRA_TRY(make_plan(run));
  PETRA_TRY(petra_cluster_init(&run->cluster, &run->plan));
  PETRA_TRY(place(run));
  if (!run->options.times_alone)
    PETRA_TRY(plan_memory(run));
  PETRA_TRY(watch_clock(run));
  PETRA_TRY(watch_memory(run));
  if (run->options.critical_path)
    PETRA_TRY(watch_critical_path(run));
  if (run->options.read_actions)
    PETRA_TRY(stream_actions(run));
  if (!run->options.files && !run->options.plan && run->config->run.trace_actions)
    petra_log(PETRA_LOG_WARNING, "run.trace_actions without --output: nothing is written");
  return PETRA_OK;
}

static double time_per_microbatch_s(const petra_run *run, int64_t makespan_ns) {
  const petra_rank_times *times = &run->simulation->times[PETRA_PROFILE_MEAN];
  const int64_t microbatches = run->plan.program.microbatches;
  if (petra_program_time_of(run->plan.method.program, &run->plan.program) == PETRA_TIME_WHOLE &&
      times->passes[0] == microbatches) /* all microbatches came back */
    return 1e-9 * (double)makespan_ns / (double)microbatches;
  return petra_rank_times_microbatch_s(times, PETRA_TIME_STEADY);
}

static bool leaves_device(const petra_run *run, int32_t from, int32_t to) {
  return petra_program_device(run->program_options, from) != petra_program_device(run->program_options, to);
}

/* Computes the columns of the stages. */
static petra_status measure_stages(petra_run *run, double available_ns) {
  petra_simulation *s = run->simulation;
  const petra_stage_counts *counts = petra_worker_cost_counts(s->worker);
  const size_t stages = (size_t)run->plan.stages;
  PETRA_TRY(petra_allocate(&s->reals, stages, 2 * sizeof *s->reals));
  const int32_t replicas = run->cluster.executor.replicas;
  PETRA_TRY(petra_allocate(&s->integers, stages, 6 * sizeof *s->integers));
  double *utilization = s->reals, *lag_mean = utilization + stages;
  int64_t *lag_max = s->integers, *in_flight_max = lag_max + stages, *kept_max = in_flight_max + stages,
          *bytes_up = kept_max + stages, *bytes_down = bytes_up + stages, *bytes_exchanged = bytes_down + stages;
  for (int32_t j = 0; j < run->plan.stages; j++) {
    const petra_stage_cost *cost = petra_executor_virtual_cost(&run->cluster.executor, j + 1);
    utilization[j] =
        available_ns > 0 ? (double)petra_rank_times_busy_ns(&s->times[PETRA_PROFILE_MEAN], j + 1) / available_ns : 0;
    lag_mean[j] = counts[j].backwards ? (double)counts[j].lag_sum / (double)counts[j].backwards : 0;
    lag_max[j] = counts[j].lag_max;
    in_flight_max[j] = counts[j].in_flight_max;
    kept_max[j] = counts[j].kept_max;
    if (j + 1 < run->plan.stages && leaves_device(run, j + 1, j + 2))
      bytes_up[j] = counts[j].forwards * cost->forward_bytes;
    if (j > 0 && leaves_device(run, j + 1, j))
      bytes_down[j] = counts[j].backwards * cost->backward_bytes;
    bytes_exchanged[j] = counts[j].updates * petra_cost_exchange_bytes(replicas, cost->gradient_bytes);
  }
  s->result.figures = (petra_run_h5_simulation){.stages = run->plan.stages,
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

/* Computes the share of the time that each rank of cluster.placement is in actions. */
static void measure_ranks(petra_run *run, int64_t makespan_ns) {
  petra_simulation *s = run->simulation;
  petra_run_h5_simulation *figures = &s->result.figures;
  if (!s->rank_of)
    return;
  for (int32_t j = 0; j < run->plan.stages; j++)
    if (makespan_ns > 0)
      s->rank_busy[s->rank_of[j]] +=
          (double)petra_rank_times_busy_ns(&s->times[PETRA_PROFILE_MEAN], j + 1) / (double)makespan_ns;
  figures->ranks = s->ranks;
  figures->of_stage = s->rank_of;
  figures->rank_busy = s->rank_busy;
}

/* Returns the time per microbatch with all costs at a quartile; NaN without quartiles. */
static petra_status quartile_s(petra_run *run, petra_profile_statistic statistic, double *out) {
  petra_rank_times *times = &run->simulation->times[statistic];
  *out = NAN;
  if (!run->simulation->result.interval)
    return PETRA_OK;
  PETRA_TRY(petra_rank_simulation_run(run->simulation->over_ranks, statistic, times));
  *out = petra_rank_times_microbatch_s(times, petra_program_time_of(run->plan.method.program, &run->plan.program));
  return PETRA_OK;
}

static petra_status measure_critical_path(petra_simulation *s) {
  petra_run_h5_simulation *figures = &s->result.figures;
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    s->critical_names[k] = petra_critical_name((petra_critical_kind)k);
  figures->critical_kinds = PETRA_CRITICAL_KINDS;
  figures->critical_names = s->critical_names;
  figures->critical_ns = s->result.path.ns;
  figures->critical_stage_ns = s->critical_stage_ns;
  return petra_critical_trace(s->critical, &s->result.path, s->critical_stage_ns);
}

static petra_status measure(petra_run *run) {
  petra_simulation *s = run->simulation;
  petra_simulated *result = &s->result;
  petra_run_h5_simulation *figures = &result->figures;
  const petra_virtual_totals *totals = petra_executor_virtual_totals(run->executor);
  const int64_t makespan_ns = petra_run_now_ns(run);
  const double available_ns = (double)run->clock->engines * (double)makespan_ns;
  double busy_ns = 0;
  PETRA_TRY(measure_stages(run, available_ns));
  for (int32_t j = 0; j < run->plan.stages; j++)
    busy_ns += (double)petra_rank_times_busy_ns(&s->times[PETRA_PROFILE_MEAN], j + 1);
  figures->makespan_ns = makespan_ns;
  figures->makespan_s = 1e-9 * (double)makespan_ns;
  figures->actions = totals->actions;
  result->devices = totals->counts;
  result->device_count = petra_program_devices(run->program_options);
  figures->microbatches = run->plan.program.microbatches;
  figures->time_per_microbatch_s = time_per_microbatch_s(run, makespan_ns);
  if (available_ns > 0)
    figures->bubble_fraction = 1 - busy_ns / (available_ns * petra_program_devices(run->program_options));
  figures->wall_s = s->wall_s;
  measure_ranks(run, makespan_ns);
  result->interval = petra_rank_simulation_has_interval(run->simulation->over_ranks);
  PETRA_TRY(quartile_s(run, PETRA_PROFILE_QUARTILE1, &figures->low_s));
  PETRA_TRY(quartile_s(run, PETRA_PROFILE_QUARTILE3, &figures->high_s));
  figures->high_s = petra_rank_simulation_high_s(s->ranks, figures->time_per_microbatch_s, figures->high_s);
  result->measured_link = petra_rank_simulation_measured_link(run->simulation->over_ranks);
  result->skipped = totals->skipped_microbatches;
  result->runaway = totals->runaway;
  result->host_busy =
      run->cluster.executor.host.devices > 0 && makespan_ns > 0 ? (double)totals->host_ns / (double)makespan_ns : NAN;
  return s->critical ? measure_critical_path(s) : PETRA_OK;
}

static petra_status start(petra_run *run, petra_worker **worker) {
  petra_simulation *s = run->simulation;
  PETRA_TRY(petra_worker_cost_create(&run->plan.method, &run->plan.program, &s->worker));
  s->wall_s = -petra_clock_s();
  *worker = s->worker;
  return petra_rank_simulation_order(run->simulation->over_ranks);
}

static petra_status finish(petra_run *run, petra_status status) {
  run->simulation->wall_s += petra_clock_s();
  return status == PETRA_OK ? measure(run) : status;
}

static petra_status write(petra_run *run) {
  const petra_simulation *s = run->simulation;
  petra_run_h5 *run_h5 = run->folder.run_h5;
  if (s->actions) {
    petra_action_stream_finish(s->actions);
    PETRA_TRY(run->options.end_actions());
  }
  if (!run_h5)
    return PETRA_OK;
  PETRA_TRY(petra_run_h5_simulated(run_h5, &s->result.figures));
  if (s->result.accounts)
    PETRA_TRY(petra_run_h5_memory(run_h5, s->result.accounts, run->plan.stages));
  if (!s->samples)
    return PETRA_OK;
  petra_run_h5_memory_time memory = {.accounting = s->result.accounting, .stages = run->plan.program.stages};
  petra_time_bins_finish(s->samples, s->result.figures.makespan_ns, &memory.bins, &memory.width_ns, &memory.values);
  return petra_run_h5_memory_over_time(run_h5, &memory);
}

static void destroy(petra_run *run) {
  petra_simulation *s = run->simulation;
  if (!s)
    return;
  petra_rank_simulation_destroy(s->over_ranks);
  petra_worker_cost_destroy(s->worker);
  petra_memory_observer_destroy(s->memory_observer);
  petra_free(s->samples);
  petra_critical_destroy(s->critical);
  petra_action_stream_destroy(s->actions);
  for (int i = 0; i <= PETRA_PROFILE_QUARTILE3; i++)
    petra_rank_times_fini(&s->times[i]);
  PETRA_FREE_ALL(s->critical_stage_ns, s->memory, s->reals, s->integers, s->rank_busy, s->rank_of, s);
}

const petra_run_ops petra_run_simulating = {.backend = PETRA_SIMULATION_BACKEND,
                                            .prepare = prepare,
                                            .start = start,
                                            .finish = finish,
                                            .write = write,
                                            .destroy = destroy};

const petra_simulated *petra_run_simulated(const petra_run *run) {
  return &run->simulation->result;
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
  const petra_method method = {.program = &schedule->program};
  return petra_worker_cost_run(&settings, &method, program, observers, makespan_ns);
}
