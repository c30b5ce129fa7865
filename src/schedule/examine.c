/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/schedule.h"

#include "config/config.h"
#include "base/log.h"
#include "base/mem.h"
#include "schedule/method.h"

/* Counts a stage at F, for one microbatch after another. */
typedef struct forward_place {
  int64_t updates, forwards;
} forward_place;

static void measure_stage(const petra_schedule *s, int32_t stage, forward_place *place, petra_schedule_distance *out) {
  const bool fused = petra_head_is_fused(stage, s->stages, s->split_head);
  const int32_t device = s->device_of[stage - 1] - 1;
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
  PETRA_FREED forward_place *place = NULL;
  PETRA_TRY(petra_allocate(&place, (size_t)schedule->microbatches, sizeof *place));
  for (int32_t stage = 1; stage <= schedule->stages; stage++)
    measure_stage(schedule, stage, place, &out[stage - 1]);
  return PETRA_OK;
}

/* --- the moment of a schedule --- */

/* Returns true if the device does the actions that the program prescribes. */
static bool follows_on(const petra_schedule *s, const petra_program_ops *program, const petra_program_options *options,
                       int32_t device) {
  petra_cursor cursor = {0};
  petra_action expected;
  int64_t round;
  for (int64_t i = s->first[device - 1]; i < s->first[device]; i++) {
    const petra_action *a = &s->entries[i].action;
    if (a->kind == PETRA_ACTION_EVALUATE)
      continue;
    if (!program->next(options, device, &cursor, &expected, &round) || a->stage != expected.stage ||
        a->kind != expected.kind || a->microbatch != expected.microbatch)
      return false;
  }
  return !program->next(options, device, &cursor, &expected, &round);
}

static bool follows(const petra_schedule *s, const petra_program_ops *program, int64_t accumulate) {
  petra_program_options options = petra_schedule_options(s);
  if (!program->next || program->write || !petra_program_has_layout(&options, program->layout))
    return false;
  /* If `accumulate` exceeds M, there is no update. The limit keeps every position within a flush below the maximum of
   * an int (petra_flush_check). */
  options.accumulate = accumulate <= s->microbatches ? accumulate : s->microbatches + 1;
  if (options.accumulate > INT32_MAX / 16 / (s->stages / s->devices))
    return false;
  for (int drain = 0; drain <= program->undrained; drain++) {
    int32_t device = 1;
    options.drain = drain;
    while (device <= s->devices && follows_on(s, program, &options, device))
      device++;
    if (device > s->devices)
      return true;
  }
  return false;
}

static petra_status is_synchronous(const petra_schedule *s, int64_t accumulate, bool *out) {
  PETRA_FREED int64_t *updates = NULL;
  PETRA_TRY(petra_allocate(&updates, (size_t)s->stages, sizeof *updates));
  *out = true;
  for (int64_t i = 0; i < s->first[s->devices] && *out; i++) {
    const petra_action *a = &s->entries[i].action;
    if (a->kind == PETRA_ACTION_UPDATE)
      updates[a->stage - 1]++;
    else if (a->kind != PETRA_ACTION_EVALUATE)
      *out = updates[a->stage - 1] == a->microbatch / accumulate;
  }
  return PETRA_OK;
}

petra_status petra_schedule_find_moment(petra_schedule *schedule, const petra_program_ops *own, int64_t accumulate) {
  petra_program_moment *moment = &schedule->program.moment;
  bool synchronous;
  *moment = PETRA_MOMENT_NONE;
  if (own->moment == PETRA_MOMENT_CLOCK)
    return PETRA_OK;
  PETRA_TRY(is_synchronous(schedule, accumulate, &synchronous));
  if (follows(schedule, own, accumulate))
    *moment = own->moment;
  else if (synchronous)
    *moment = PETRA_MOMENT_WINDOW;
  for (int i = 0; i < petra_program_count() && *moment == PETRA_MOMENT_NONE; i++)
    if (follows(schedule, petra_program_get(i), accumulate))
      *moment = petra_program_get(i)->moment;
  return PETRA_OK;
}

/* --- training --- */

/* The progress of a stage through a run: how many actions of each kind it has done. */
typedef struct progress {
  int64_t read, backwards, updates, evaluations;
  int64_t at_update; /* backwards at the last U */
} progress;

typedef struct trainer {
  const petra_schedule *schedule;
  const char *name;
  petra_program_options options; /* the options; they have no evaluations if the schedule is one flush */
  bool double_buffer;            /* F and B of microbatch m read the weights after max(0, floor(m / k) - 1) updates */
} trainer;

/* Returns the last microbatch before evaluation number `index` (from 0) of the run. */
static int64_t evaluated(const petra_program_options *d, int64_t index) {
  return (index + 1) * d->eval_every * d->batches - 1;
}

static petra_status check_evaluation(const trainer *t, int64_t entry, const progress *p) {
  const petra_program_options *d = &t->options;
  int64_t found = t->schedule->entries[entry].action.microbatch;
  if (d->eval_every == 0)
    return petra_schedule_refuse(t->schedule, t->name, entry, "an evaluation where run.eval_every is 0; expected none");
  if (found != evaluated(d, p->evaluations))
    return petra_schedule_refuse(
        t->schedule, t->name, entry,
        "expected the evaluation of microbatch %lld, with %lld microbatches an epoch and run.eval_every: %lld",
        (long long)evaluated(d, p->evaluations), (long long)d->batches, (long long)d->eval_every);
  return PETRA_OK;
}

static petra_status check_update(const trainer *t, int64_t entry, const progress *p) {
  int64_t covered = p->backwards - p->at_update;
  if (covered == t->options.accumulate)
    return PETRA_OK;
  return petra_schedule_refuse(
      t->schedule, t->name, entry,
      "it covers %lld backwards of its stage; the trainer expects method.accumulate: %lld in each", (long long)covered,
      (long long)t->options.accumulate);
}

/* Checks the pass that reads a microbatch: F, or B of a fused last stage. */
static petra_status check_reading(const trainer *t, int64_t entry, const progress *p) {
  const petra_action *a = &t->schedule->entries[entry].action;
  if (a->stage == 1 && a->microbatch != p->read)
    return petra_schedule_refuse(t->schedule, t->name, entry,
                                 "the training data is read in order; expected microbatch %lld", (long long)p->read);
  return PETRA_OK;
}

/* Checks F or B: with a double buffer it reads the latest weights or the weights before the latest update. */
static petra_status check_version(const trainer *t, int64_t entry, const progress *p) {
  const petra_action *a = &t->schedule->entries[entry].action;
  int64_t version = petra_buffered_version(a->microbatch, t->options.accumulate);
  if (t->double_buffer && (p->updates < version || p->updates > version + 1))
    return petra_schedule_refuse(t->schedule, t->name, entry,
                                 "it comes after %lld updates of its stage; the double buffer expects %lld or %lld",
                                 (long long)p->updates, (long long)version, (long long)version + 1);
  return PETRA_OK;
}

static petra_status check_entry(const trainer *t, int64_t entry, progress *p) {
  const petra_action *a = &t->schedule->entries[entry].action;
  const bool fused = petra_head_is_fused(a->stage, t->schedule->stages, t->schedule->split_head);
  if (a->kind == PETRA_ACTION_FORWARD || (a->kind == PETRA_ACTION_BACKWARD && fused)) {
    PETRA_TRY(check_reading(t, entry, p));
    p->read++;
  }
  if (a->kind == PETRA_ACTION_FORWARD || a->kind == PETRA_ACTION_BACKWARD)
    PETRA_TRY(check_version(t, entry, p));
  if (a->kind == PETRA_ACTION_UPDATE) {
    PETRA_TRY(check_update(t, entry, p));
    p->updates++;
    p->at_update = p->backwards;
  }
  if (a->kind == PETRA_ACTION_EVALUATE) {
    PETRA_TRY(check_evaluation(t, entry, p));
    p->evaluations++;
  }
  p->backwards += a->kind == PETRA_ACTION_BACKWARD;
  return PETRA_OK;
}

/* Checks that no stage lacks its last evaluation or its last update. */
static petra_status check_end(const trainer *t, const progress *stages) {
  const petra_schedule *s = t->schedule;
  const petra_program_options *d = &t->options;
  for (int32_t j = 0; j < s->stages; j++)
    if (d->eval_every > 0 && evaluated(d, stages[j].evaluations) < s->microbatches)
      return petra_fail(PETRA_SCHEDULE,
                        "%s: stage %d: no evaluation at the end of an epoch; expected %dE%lld, or run.eval_every: 0",
                        t->name, j + 1, j + 1, (long long)evaluated(d, stages[j].evaluations));
  for (int32_t j = 0; j < s->stages && !s->flush; j++)
    if (stages[j].backwards - stages[j].at_update >= d->accumulate)
      return petra_fail(PETRA_SCHEDULE,
                        "%s: stage %d: no update (U) after its last %lld backwards; expected one after each %lld of "
                        "them (method.accumulate)",
                        t->name, j + 1, (long long)(stages[j].backwards - stages[j].at_update),
                        (long long)d->accumulate);
  return PETRA_OK;
}

petra_status petra_schedule_check_training(const petra_schedule *schedule, const char *name,
                                           const petra_program_options *options, bool double_buffer) {
  trainer t = {schedule, name, *options, double_buffer};
  PETRA_FREED progress *stages = NULL;
  if (schedule->flush)
    t.options.eval_every = 0;
  PETRA_TRY(petra_allocate(&stages, (size_t)schedule->stages, sizeof *stages));
  for (int64_t i = 0; i < schedule->first[schedule->devices]; i++)
    PETRA_TRY(check_entry(&t, i, &stages[schedule->entries[i].action.stage - 1]));
  return check_end(&t, stages);
}
