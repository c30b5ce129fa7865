#include "run/worker_ranks.h"

#include "base/clock.h"
#include "base/mem.h"
#include "exec/transport_ranks.h"

typedef struct worker_ranks {
  petra_worker base;
  petra_worker_ranks_options options;
  petra_worker *counting;
  petra_trace_row *rows;
  int64_t count, capacity, busy_ns;
} worker_ranks;

/* An action of a stage that is elsewhere: what it takes by the schedule. */
static void count_taken(const worker_ranks *w, const petra_action *action) {
  const bool fused = petra_program_fused(w->options.program, action->stage);
  const bool last = action->stage == w->options.program->stages;
  const bool forward = action->kind == PETRA_ACTION_FORWARD || (action->kind == PETRA_ACTION_BACKWARD && fused);
  if (forward && action->stage > 1)
    petra_transport_ranks_taken(w->options.transport, action->stage, PETRA_CHANNEL_FORWARD);
  else if (action->kind == PETRA_ACTION_BACKWARD && !last)
    petra_transport_ranks_taken(w->options.transport, action->stage, PETRA_CHANNEL_BACKWARD);
}

static petra_status record(worker_ranks *w, const petra_action *action, const petra_action_result *result,
                           int64_t start_ns, int64_t end_ns) {
  PETRA_TRY(petra_array_reserve(&w->rows, &w->capacity, w->count + 1, sizeof *w->rows));
  w->rows[w->count++] =
      (petra_trace_row){*action, start_ns - w->options.origin_ns, end_ns - w->options.origin_ns, *result};
  return PETRA_OK;
}

/* An action of a stage that is here, or an evaluation, which all ranks do together when the last stage has reached it. */
static petra_status perform_here(worker_ranks *w, int64_t virtual_ns, const petra_action *action,
                                 petra_action_result *result) {
  const int64_t start_ns = petra_clock_ns(), waited_ns = petra_carrier_counted(w->options.carrier).wait_ns;
  PETRA_TRY(w->options.worker->ops->perform(w->options.worker, virtual_ns, action, 1, result));
  const int64_t end_ns = petra_clock_ns();
  w->busy_ns += end_ns - start_ns;
  petra_rank_times_add(w->options.times, action, start_ns - w->options.origin_ns, end_ns - w->options.origin_ns,
                       end_ns - start_ns - (petra_carrier_counted(w->options.carrier).wait_ns - waited_ns));
  if (!w->options.record || !petra_stages_has(&w->options.stages, action->stage))
    return PETRA_OK;
  const int64_t took_ns = petra_transport_ranks_took_ns(w->options.transport);
  const bool waited = action->kind != PETRA_ACTION_EVALUATE && took_ns > start_ns; /* for its message */
  return record(w, action, result, waited ? took_ns : start_ns, end_ns);
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  worker_ranks *w = (worker_ranks *)base;
  for (int i = 0; i < count; i++) {
    const bool here = petra_stages_has(&w->options.stages, actions[i].stage);
    if (here || actions[i].kind == PETRA_ACTION_EVALUATE)
      PETRA_TRY(perform_here(w, virtual_ns, &actions[i], &results[i]));
    if (here)
      continue;
    count_taken(w, &actions[i]);
    PETRA_TRY(w->counting->ops->perform(w->counting, virtual_ns, &actions[i], 1, &results[i]));
  }
  return w->options.between ? w->options.between(w->options.context) : PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  return petra_worker_finish(((worker_ranks *)base)->options.worker);
}

petra_status petra_worker_ranks_create(const petra_worker_ranks_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  worker_ranks *w;
  PETRA_TRY(petra_allocate(&w, 1, sizeof *w));
  w->base.ops = &ops;
  w->options = *options;
  petra_status status = petra_worker_cost_create(&options->counting, &w->counting);
  if (status != PETRA_OK)
    petra_free(w);
  else
    *out = &w->base;
  return status;
}

void petra_worker_ranks_destroy(petra_worker *base) {
  worker_ranks *w = (worker_ranks *)base;
  if (!w)
    return;
  petra_worker_cost_destroy(w->counting);
  petra_free(w->rows);
  petra_free(w);
}

const petra_trace_row *petra_worker_ranks_rows(const petra_worker *base, int64_t *count) {
  const worker_ranks *w = (const worker_ranks *)base;
  *count = w->count;
  return w->rows;
}

int64_t petra_worker_ranks_busy_ns(const petra_worker *base) {
  return ((const worker_ranks *)base)->busy_ns;
}
