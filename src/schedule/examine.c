#include "schedule/examine.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdarg.h>

/* A stage between its F and its B, for one microbatch after the other: when F came. */
typedef struct forward_place {
  int64_t updates, forwards;
} forward_place;

static void measure_stage(const petra_schedule *s, int32_t stage, forward_place *place,
                          petra_schedule_distance *out) {
  const bool fused = stage == s->stages && !s->split_head;
  const int32_t device = (stage - 1) % s->devices;
  forward_place now = {0, 0};
  *out = (petra_schedule_distance){0, 0};
  for (int64_t i = s->first[device]; i < s->first[device + 1]; i++) {
    const petra_action *a = &s->entries[i].action;
    if (a->stage != stage)
      continue;
    now.updates += a->kind == PETRA_ACTION_UPDATE;
    if (a->kind == PETRA_ACTION_FORWARD) {
      now.forwards++;
      place[a->microbatch] = now;
    } else if (a->kind == PETRA_ACTION_BACKWARD && !fused) {
      int64_t lag = now.updates - place[a->microbatch].updates;
      int64_t delay = now.forwards - place[a->microbatch].forwards;
      out->lag = lag > out->lag ? lag : out->lag;
      out->delay = delay > out->delay ? delay : out->delay;
    }
  }
}

petra_status petra_schedule_distances(const petra_schedule *schedule, petra_schedule_distance *out) {
  forward_place *place;
  PETRA_TRY(petra_allocate(&place, (size_t)schedule->microbatches, sizeof *place));
  for (int32_t stage = 1; stage <= schedule->stages; stage++)
    measure_stage(schedule, stage, place, &out[stage - 1]);
  petra_free(place);
  return PETRA_OK;
}

/* One stage of a run: how many of each kind it has done. */
typedef struct progress {
  int64_t forwards, backwards, at_update, evaluations;
} progress;

typedef struct trainer {
  const petra_schedule *schedule;
  const char *name;
  const petra_schedule_demands *demands;
  int32_t device; /* from 0 */
} trainer;

__attribute__((format(printf, 3, 4))) static petra_status refuse(const trainer *t, int64_t entry,
                                                                 const char *format, ...) {
  char reason[200], text[40];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  petra_action_print(&t->schedule->entries[entry].action, text, sizeof text);
  return petra_fail(PETRA_SCHEDULE, "%s: device %d, action %lld (%s): %s", t->name, t->device + 1,
                    (long long)(entry - t->schedule->first[t->device] + 1), text, reason);
}

/* The last microbatch of the evaluation number `index` (from 0) of the run. */
static int64_t evaluated(const petra_schedule_demands *d, int64_t index) {
  return (index + 1) * d->eval_every * d->batches - 1;
}

static petra_status check_evaluation(const trainer *t, int64_t entry, const progress *p) {
  const petra_schedule_demands *d = t->demands;
  int64_t found = t->schedule->entries[entry].action.microbatch;
  if (d->eval_every == 0)
    return refuse(t, entry, "an evaluation where run.eval_every is 0; expected none");
  if (found != evaluated(d, p->evaluations))
    return refuse(t, entry, "expected the evaluation of microbatch %lld, with %lld microbatches an epoch and run.eval_every: %lld",
                  (long long)evaluated(d, p->evaluations), (long long)d->batches, (long long)d->eval_every);
  return PETRA_OK;
}

static petra_status check_update(const trainer *t, int64_t entry, const progress *p) {
  int64_t covered = p->backwards - p->at_update;
  if (covered != t->demands->accumulate)
    return refuse(t, entry, "it covers %lld backwards of its stage; the trainer expects method.accumulate: %lld in each",
                  (long long)covered, (long long)t->demands->accumulate);
  return t->demands->graph && p->forwards > p->backwards
             ? refuse(t, entry, "it changes weights that the graphs of %lld microbatches in flight still need; expected "
                                "none, or a method that keeps no graph",
                      (long long)(p->forwards - p->backwards))
             : PETRA_OK;
}

static petra_status check_entry(const trainer *t, int64_t entry, progress *p) {
  const petra_action *a = &t->schedule->entries[entry].action;
  const bool last = a->stage == t->schedule->stages;
  const int64_t most = 2 * (int64_t)t->schedule->stages + 1;
  switch (a->kind) {
  case PETRA_ACTION_FORWARD:
    if (last)
      return refuse(t, entry, "the trainer computes the last stage's forward, loss and backward in one action, named B; "
                              "expected no F there");
    if (a->microbatch != p->forwards)
      return refuse(t, entry, "the trainer takes microbatches in order; expected %dF%lld", a->stage, (long long)p->forwards);
    if (++p->forwards - p->backwards > most)
      return refuse(t, entry, "more than %lld microbatches are in flight, which is the most that the trainer keeps",
                    (long long)most);
    return PETRA_OK;
  case PETRA_ACTION_BACKWARD:
    if (a->microbatch != p->backwards)
      return refuse(t, entry, "the trainer takes microbatches in order; expected %dB%lld", a->stage, (long long)p->backwards);
    p->backwards++;
    p->forwards += last;
    return PETRA_OK;
  case PETRA_ACTION_WEIGHT_GRADIENT:
    return refuse(t, entry, "the trainer does not split the weight gradient from B; expected no W");
  case PETRA_ACTION_UPDATE:
    PETRA_TRY(check_update(t, entry, p));
    p->at_update = p->backwards;
    return PETRA_OK;
  case PETRA_ACTION_EVALUATE:
    PETRA_TRY(check_evaluation(t, entry, p));
    p->evaluations++;
    return PETRA_OK;
  case PETRA_ACTION_KINDS:
    break;
  }
  return PETRA_OK;
}

petra_status petra_schedule_check_training(const petra_schedule *schedule, const char *name,
                                           const petra_schedule_demands *demands) {
  trainer t = {schedule, name, demands, 0};
  progress *stages;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&stages, (size_t)schedule->stages, sizeof *stages));
  for (; t.device < schedule->devices; t.device++)
    for (int64_t i = schedule->first[t.device]; i < schedule->first[t.device + 1]; i++)
      PETRA_TRY_GOTO(status, check_entry(&t, i, &stages[schedule->entries[i].action.stage - 1]), done);
  for (int32_t j = 0; j < schedule->stages; j++)
    if (demands->eval_every > 0 && evaluated(demands, stages[j].evaluations) < schedule->microbatches) {
      status = petra_fail(PETRA_SCHEDULE, "%s: stage %d: no evaluation at the end of an epoch; expected %dE%lld, or run.eval_every: 0",
                          name, j + 1, j + 1, (long long)evaluated(demands, stages[j].evaluations));
      break;
    }
done:
  petra_free(stages);
  return status;
}
