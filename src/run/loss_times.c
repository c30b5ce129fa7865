/* SPDX-License-Identifier: Apache-2.0 */
#include "run/loss_times.h"

#include "base/mem.h"
#include "run/simulation.h"
#include "sim/cost.h"

/* --- the plan --- */

/* Sets the length of the run. If the run has more losses than its config implies, it is longer than its config says. */
static petra_status set_length(const petra_loss_request *request, petra_plan *plan) {
  const int64_t planned = petra_plan_microbatches(plan->config, request->batches);
  PETRA_TRY(petra_plan_program(plan, planned, request->batches));
  const int64_t without = plan->program.microbatches - petra_program_losses(plan->method.program, &plan->program);
  return request->logged + without <= planned || plan->schedule
             ? PETRA_OK
             : petra_plan_program(plan, request->logged + without, request->batches);
}

static petra_status make_plan(const petra_config *config, const petra_loss_request *request, petra_plan *plan) {
  PETRA_TRY(petra_plan_init_any(plan, config));
  PETRA_TRY(petra_plan_read_order(plan));
  PETRA_TRY(set_length(request, plan));
  return petra_plan_load_profile(plan);
}

/* --- the simulation --- */

typedef struct watch {
  petra_observer base;
  const petra_plan *plan;
  petra_stage_summary *stage; /* the row of each stage */
  petra_loss_times *times;
  int64_t sent;    /* bytes that were sent so far */
  int64_t missing; /* microbatches that have not begun their loss */
} watch;

static bool has_loss(const watch *w, const petra_action *action) {
  return action->stage == w->plan->stages &&
         action->kind == (w->plan->program.split_head ? PETRA_ACTION_FORWARD : PETRA_ACTION_BACKWARD);
}

/* Ends the simulation when it knows everything that was requested. */
static petra_status on_started(petra_observer *base, int64_t now_ns, const petra_action *actions,
                               const petra_action_result *results, int count) {
  watch *w = (watch *)base;
  (void)results;
  for (int i = 0; i < count; i++) {
    const int64_t m = actions[i].microbatch;
    if (!has_loss(w, &actions[i]) || m >= w->times->count)
      continue;
    w->missing -= w->times->start_ns[m] < 0;
    w->times->start_ns[m] = now_ns;
    w->times->bytes[m] = w->sent;
  }
  return w->missing > 0 ? PETRA_OK : PETRA_STOPPED;
}

static bool leaves_device(const watch *w, int32_t from, int32_t to) {
  return petra_program_device(&w->plan->program, from) != petra_program_device(&w->plan->program, to);
}

static petra_status on_ended(petra_observer *base, const petra_trace_row *row) {
  watch *w = (watch *)base;
  const int32_t stage = row->action.stage, replicas = (int32_t)w->plan->config->cluster.replicas;
  const petra_stage_summary *sizes = &w->stage[stage - 1];
  if (row->action.kind == PETRA_ACTION_FORWARD && stage < w->plan->stages && leaves_device(w, stage, stage + 1))
    w->sent += replicas * sizes->forward_bytes;
  else if (row->action.kind == PETRA_ACTION_BACKWARD && stage > 1 && leaves_device(w, stage, stage - 1))
    w->sent += replicas * sizes->backward_bytes;
  else if (row->action.kind == PETRA_ACTION_UPDATE)
    w->sent += replicas * petra_cost_exchange_bytes(replicas, sizes->gradient_bytes);
  return PETRA_OK;
}

static petra_status simulate(const petra_plan *plan, watch *w) {
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE, .times_alone = true, .plan = plan};
  PETRA_DESTROYED(petra_run_destroy) petra_run *run = NULL;
  PETRA_TRY(petra_run_open(plan->config, &options, &run));
  petra_run_observe(run, &w->base);
  const petra_status status = petra_run_go(run);
  return status == PETRA_STOPPED && w->missing == 0 ? PETRA_OK : status;
}

/* Gets the bytes of the messages of a stage. */
static void get_sizes(const petra_plan *plan, int32_t stage, petra_stage_summary *out) {
  const petra_config *config = plan->config;
  if (config->cluster.stages == 0)
    petra_plan_stage_summary(plan, stage, out);
  else
    *out = (petra_stage_summary){.forward_bytes = config->cluster.message.forward_bytes,
                                 .backward_bytes = config->cluster.message.backward_bytes,
                                 .gradient_bytes = config->cluster.message.gradient_bytes};
}

static petra_status prepare(watch *w, int64_t count) {
  petra_loss_times *times = w->times;
  times->count = w->missing = count;
  PETRA_TRY(petra_allocate(&times->start_ns, (size_t)times->count, sizeof *times->start_ns));
  PETRA_TRY(petra_allocate(&times->bytes, (size_t)times->count, sizeof *times->bytes));
  for (int64_t m = 0; m < times->count; m++)
    times->start_ns[m] = times->bytes[m] = -1;
  return PETRA_OK;
}

petra_status petra_loss_times_simulate(const petra_config *config, const petra_loss_request *request,
                                       petra_loss_times *out) {
  static const petra_observer_ops ops = {.started = on_started, .ended = on_ended};
  PETRA_FINISHED(petra_plan_fini) petra_plan plan = {0};
  PETRA_FREED petra_stage_summary *stage = NULL;
  watch w = {.base.ops = &ops, .plan = &plan, .times = out};
  *out = (petra_loss_times){0};
  PETRA_TRY(make_plan(config, request, &plan));
  PETRA_TRY(petra_allocate(&stage, (size_t)plan.stages, sizeof *stage));
  w.stage = stage;
  for (int32_t j = 0; j < plan.stages; j++)
    get_sizes(&plan, j, &stage[j]);
  PETRA_TRY(prepare(&w, request->count));
  return simulate(&plan, &w);
}

void petra_loss_times_fini(petra_loss_times *times) {
  PETRA_FREE_ALL(times->start_ns, times->bytes);
  *times = (petra_loss_times){0};
}
