/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a schedule can run: follows its orders without time. */
#include "schedule/schedule.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A pass (F, B or W) or an evaluation, found by stage, kind and microbatch. */
typedef struct item {
  petra_action action;
  int64_t entry;
  bool done;
  int32_t waiter; /* first device (from 1) whose next action waits for it; 0: none */
} item;

typedef struct stage_state {
  int64_t last_back;       /* microbatch of the last B; -1: none */
  int64_t backs, weights;  /* number of B and W done so far */
  int64_t backs_at_update; /* value of `backs` at the last U */
} stage_state;

typedef struct checker {
  const petra_schedule *schedule;
  const char *name; /* name of its file or method */
  item *items;      /* sorted */
  int64_t item_count;
  int64_t *place;       /* per device: index of the next entry */
  int32_t *next_waiter; /* per device */
  int32_t *runnable;    /* a stack of devices, from 1 */
  int32_t runnable_count;
  stage_state *stage;
  /* Only for a locked schedule: */
  int64_t round;   /* current round */
  int64_t *left;   /* by round: number of entries that are not done */
  int32_t *parked; /* by round: first device (from 1) that waits for the round; 0: none */
} checker;

/* Returns true if an action must be unique. A repeated U for a microbatch is detected separately: it covers nothing. */
static bool is_unique(petra_action_kind kind) {
  return kind != PETRA_ACTION_UPDATE;
}

static int compare(const void *a, const void *b) {
  const item *x = a, *y = b;
  if (x->action.stage != y->action.stage)
    return x->action.stage < y->action.stage ? -1 : 1;
  if (x->action.kind != y->action.kind)
    return x->action.kind < y->action.kind ? -1 : 1;
  if (x->action.microbatch != y->action.microbatch)
    return x->action.microbatch < y->action.microbatch ? -1 : 1;
  return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Returns the first item of an action; NULL: no device has it. */
static item *find(const checker *c, int32_t stage, petra_action_kind kind, int64_t microbatch) {
  const item key = {.action = {stage, kind, microbatch}, .entry = -1};
  int64_t low = 0, high = c->item_count;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (compare(&c->items[middle], &key) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == c->item_count || memcmp(&c->items[low].action, &key.action, sizeof key.action) != 0)
    return NULL;
  return &c->items[low];
}

static bool fused(const checker *c, int32_t stage) {
  return petra_head_is_fused(stage, c->schedule->stages, c->schedule->split_head);
}

/* Checks an input from another stage; sets *awaited if the action that produces it is not done. */
static petra_status needs(checker *c, int64_t entry, int32_t stage, petra_action_kind kind, item **awaited) {
  const petra_action needed = {stage, kind, c->schedule->entries[entry].action.microbatch};
  item *input = find(c, stage, kind, needed.microbatch);
  char text[40];
  if (!input)
    return petra_schedule_refuse(c->schedule, c->name, entry, "it needs %s, which no device does",
                                 petra_schedule_action_text(c->schedule, &needed, text, sizeof text));
  if (!input->done)
    *awaited = input;
  return PETRA_OK;
}

/* Checks that a pass of the same stage, and so of the same device, has come before. */
static petra_status follows(checker *c, int64_t entry, petra_action_kind kind) {
  const petra_action *a = &c->schedule->entries[entry].action;
  const item *before = find(c, a->stage, kind, a->microbatch);
  const petra_action needed = {a->stage, kind, a->microbatch};
  char text[40];
  if (!before || !before->done)
    return petra_schedule_refuse(c->schedule, c->name, entry, "it comes %s its %s %s", before ? "before" : "without",
                                 kind == PETRA_ACTION_FORWARD ? "forward" : "backward",
                                 petra_schedule_action_text(c->schedule, &needed, text, sizeof text));
  return PETRA_OK;
}

static petra_status check_update(checker *c, int64_t entry) {
  const petra_action *a = &c->schedule->entries[entry].action;
  const stage_state *s = &c->stage[a->stage - 1];
  if (s->backs == s->backs_at_update)
    return petra_schedule_refuse(c->schedule, c->name, entry, "there is no backward of stage %d since its last update",
                                 a->stage);
  if (c->schedule->split_backward && s->weights < s->backs)
    return petra_schedule_refuse(c->schedule, c->name, entry, "stage %d still has to do %lld weight gradients (W)",
                                 a->stage, (long long)(s->backs - s->weights));
  if (a->microbatch != s->last_back)
    return petra_schedule_refuse(c->schedule, c->name, entry,
                                 "the last backward before it is %dB%lld; expected %dU%lld", a->stage,
                                 (long long)s->last_back, a->stage, (long long)s->last_back);
  return PETRA_OK;
}

static petra_status judge(checker *c, int64_t entry, item **awaited) {
  const petra_action *a = &c->schedule->entries[entry].action;
  int32_t device = petra_schedule_device(c->schedule, entry), right = c->schedule->device_of[a->stage - 1];
  if (device != right)
    return petra_schedule_refuse(c->schedule, c->name, entry,
                                 c->schedule->torch ? "stage %d is on rank %d" : "stage %d is on device %d",
                                 a->stage - c->schedule->torch, right - c->schedule->torch);
  if (is_unique(a->kind) && find(c, a->stage, a->kind, a->microbatch)->done)
    return petra_schedule_refuse(c->schedule, c->name, entry, "it has been done before");
  switch (a->kind) {
  case PETRA_ACTION_FORWARD:
    return a->stage > 1 ? needs(c, entry, a->stage - 1, PETRA_ACTION_FORWARD, awaited) : PETRA_OK;
  case PETRA_ACTION_BACKWARD:
    if (fused(c, a->stage))
      return a->stage > 1 ? needs(c, entry, a->stage - 1, PETRA_ACTION_FORWARD, awaited) : PETRA_OK;
    PETRA_TRY(follows(c, entry, PETRA_ACTION_FORWARD));
    return a->stage < c->schedule->stages && !c->schedule->local
               ? needs(c, entry, a->stage + 1, PETRA_ACTION_BACKWARD, awaited)
               : PETRA_OK;
  case PETRA_ACTION_WEIGHT_GRADIENT:
    return follows(c, entry, PETRA_ACTION_BACKWARD);
  case PETRA_ACTION_UPDATE:
    return check_update(c, entry);
  case PETRA_ACTION_EVALUATE:
  case PETRA_ACTION_KINDS:
    break;
  }
  return PETRA_OK;
}

/* Returns true if entry `i` of a step that begins with entry `first` cannot be in one step with the entries before it:
 * a step has at most one F, one B and the W of that B. */
static bool breaks_step(const petra_schedule_entry *entries, int64_t first, int64_t i) {
  const petra_action *a = &entries[i].action, *b = NULL;
  for (int64_t e = first; e < i; e++) {
    if (entries[e].action.kind == a->kind)
      return true;
    if (entries[e].action.kind == PETRA_ACTION_BACKWARD)
      b = &entries[e].action;
  }
  if (a->kind == PETRA_ACTION_WEIGHT_GRADIENT)
    return !b || b->stage != a->stage || b->microbatch != a->microbatch;
  return a->kind > PETRA_ACTION_WEIGHT_GRADIENT;
}

/* Judges all actions of a step, which start together. */
static petra_status judge_step(checker *c, int64_t first, item **awaited) {
  const petra_schedule_entry *entries = c->schedule->entries;
  PETRA_TRY(judge(c, first, awaited));
  if (entries[first].joined && entries[first].action.kind > PETRA_ACTION_BACKWARD)
    return petra_schedule_refuse(c->schedule, c->name, first, "only F, B and W can be joined, beginning with F or B");
  for (int64_t i = first + 1; entries[i - 1].joined && !*awaited; i++) {
    if (breaks_step(entries, first, i))
      return petra_schedule_refuse(c->schedule, c->name, i,
                                   "it is joined to other actions; expected at most one F, one B and the W of that B");
    if (entries[i].action.kind != PETRA_ACTION_WEIGHT_GRADIENT)
      PETRA_TRY(judge(c, i, awaited));
  }
  return PETRA_OK;
}

/* Returns true if the entry's round has begun. */
static bool in_round(const checker *c, int64_t entry) {
  return !c->schedule->locked || c->schedule->entries[entry].round == c->round;
}

static void release(checker *c, int32_t first) {
  for (int32_t d = first; d; d = c->next_waiter[d - 1])
    c->runnable[c->runnable_count++] = d;
}

/* Counts an entry of the current round as done. After the last entry, the next round that has entries begins. */
static void count_round(checker *c) {
  if (!c->schedule->locked || --c->left[c->round] > 0)
    return;
  while (c->left[c->round] == 0)
    c->round++; /* left[] ends with a round that is never done */
  release(c, c->parked[c->round]);
}

/* Performs an action that is ready, and resumes the devices that waited for it. */
static void perform(checker *c, int64_t entry) {
  const petra_action *a = &c->schedule->entries[entry].action;
  stage_state *s = &c->stage[a->stage - 1];
  if (a->kind == PETRA_ACTION_BACKWARD) {
    s->last_back = a->microbatch;
    s->backs++;
  }
  s->weights += a->kind == PETRA_ACTION_WEIGHT_GRADIENT;
  if (a->kind == PETRA_ACTION_UPDATE)
    s->backs_at_update = s->backs;
  count_round(c);
  if (!is_unique(a->kind))
    return;
  item *own = find(c, a->stage, a->kind, a->microbatch);
  own->done = true;
  release(c, own->waiter);
}

/* Advances every device as far as possible. */
static petra_status follow(checker *c) {
  for (int32_t d = c->schedule->devices; d >= 1; d--)
    c->runnable[c->runnable_count++] = d;
  while (c->runnable_count > 0) {
    int32_t d = c->runnable[--c->runnable_count];
    int32_t *waiters = NULL;
    while (!waiters && c->place[d - 1] < c->schedule->first[d]) {
      const int64_t entry = c->place[d - 1];
      item *awaited = NULL;
      if (!in_round(c, entry))
        waiters = &c->parked[c->schedule->entries[entry].round];
      else
        PETRA_TRY(judge_step(c, entry, &awaited));
      if (awaited)
        waiters = &awaited->waiter;
      for (bool joined = !waiters; joined;) {
        joined = c->schedule->entries[c->place[d - 1]].joined;
        perform(c, c->place[d - 1]++);
      }
    }
    if (waiters) {
      c->next_waiter[d - 1] = *waiters;
      *waiters = d;
    }
  }
  return PETRA_OK;
}

/* Is called when no device can advance: every device that is not at its end waits for another such device (so some of
 * them wait in a circle) or for an action in a later round, which does not begin before this round ends. */
static petra_status find_deadlock(checker *c) {
  int32_t d = 1;
  while (d <= c->schedule->devices && (c->place[d - 1] == c->schedule->first[d] || !in_round(c, c->place[d - 1])))
    d++;
  if (d > c->schedule->devices)
    return PETRA_OK;
  item *awaited = NULL;
  char wanted[40], there[40];
  PETRA_TRY(judge_step(c, c->place[d - 1], &awaited));
  /* Then it is part of the circle. */
  for (int32_t i = 0; i < c->schedule->devices && in_round(c, awaited->entry); i++) {
    d = petra_schedule_device(c->schedule, awaited->entry);
    awaited = NULL;
    PETRA_TRY(judge_step(c, c->place[d - 1], &awaited));
  }
  int32_t other = petra_schedule_device(c->schedule, awaited->entry);
  petra_schedule_action_text(c->schedule, &awaited->action, wanted, sizeof wanted);
  petra_schedule_action_text(c->schedule, &c->schedule->entries[c->place[other - 1]].action, there, sizeof there);
  if (!in_round(c, awaited->entry))
    return petra_schedule_refuse(c->schedule, c->name, c->place[d - 1],
                                 "deadlock: it waits for %s, whose round comes after its own", wanted);
  return petra_schedule_refuse(c->schedule, c->name, c->place[d - 1],
                               c->schedule->torch ? "deadlock: it waits for %s, but rank %d waits at %s before that"
                                                  : "deadlock: it waits for %s, but device %d waits at %s before that",
                               wanted, other - c->schedule->torch, there);
}

/* Checks that every B has a W if W is split off. */
static petra_status find_missing_weights(checker *c) {
  char text[40];
  for (int64_t i = 0; c->schedule->split_backward && i < c->item_count; i++) {
    const petra_action *a = &c->items[i].action;
    if (a->kind == PETRA_ACTION_BACKWARD && !find(c, a->stage, PETRA_ACTION_WEIGHT_GRADIENT, a->microbatch))
      return petra_schedule_refuse(
          c->schedule, c->name, c->items[i].entry, "its weight gradient %s is missing",
          petra_schedule_action_text(
              c->schedule, &(petra_action){a->stage, PETRA_ACTION_WEIGHT_GRADIENT, a->microbatch}, text, sizeof text));
  }
  return PETRA_OK;
}

/* Checks that all stages take part in each evaluation, since it uses their weights. */
static petra_status find_missing_evaluations(checker *c) {
  for (int64_t i = 0; i < c->item_count; i++) {
    const petra_action *a = &c->items[i].action;
    const int32_t other = a->stage % c->schedule->stages + 1;
    if (a->kind == PETRA_ACTION_EVALUATE && !find(c, other, PETRA_ACTION_EVALUATE, a->microbatch))
      return petra_schedule_refuse(c->schedule, c->name, c->items[i].entry,
                                   "stage %d has no %dE%lld; expected one at every stage", other, other,
                                   (long long)a->microbatch);
  }
  return PETRA_OK;
}

/* Checks that in the order of a flush every stage has an F and a B of each microbatch. */
static petra_status find_missing_passes(checker *c) {
  const petra_schedule *s = c->schedule;
  char text[40];
  for (int32_t stage = 1; s->flush && stage <= s->stages; stage++)
    for (int64_t m = 0; m < s->microbatches; m++)
      for (int kind = fused(c, stage) ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD; kind <= PETRA_ACTION_BACKWARD;
           kind++)
        if (!find(c, stage, (petra_action_kind)kind, m))
          return petra_fail(
              PETRA_SCHEDULE, "%s: %s is missing; expected microbatches 0 to %lld at every stage", c->name,
              petra_schedule_action_text(s, &(petra_action){stage, (petra_action_kind)kind, m}, text, sizeof text),
              (long long)s->microbatches - 1);
  return PETRA_OK;
}

/* Counts the entries of every round and finds the first round that has entries. */
static petra_status prepare_rounds(checker *c) {
  const petra_schedule *s = c->schedule;
  int64_t rounds = 0;
  for (int64_t i = 0; i < s->first[s->devices]; i++)
    rounds = s->entries[i].round >= rounds ? s->entries[i].round + 1 : rounds;
  PETRA_TRY(petra_allocate(&c->left, (size_t)rounds + 1, sizeof *c->left));
  PETRA_TRY(petra_allocate(&c->parked, (size_t)rounds + 1, sizeof *c->parked));
  for (int64_t i = 0; i < s->first[s->devices]; i++)
    c->left[s->entries[i].round]++;
  c->left[rounds] = 1;
  while (c->left[c->round] == 0)
    c->round++;
  return PETRA_OK;
}

static petra_status prepare(checker *c) {
  const petra_schedule *s = c->schedule;
  int64_t entries = s->first[s->devices];
  PETRA_TRY(petra_allocate(&c->items, (size_t)entries, sizeof *c->items));
  PETRA_TRY(petra_allocate(&c->place, (size_t)s->devices, sizeof *c->place));
  PETRA_TRY(petra_allocate(&c->next_waiter, (size_t)s->devices, sizeof *c->next_waiter));
  PETRA_TRY(petra_allocate(&c->runnable, (size_t)s->devices, sizeof *c->runnable));
  PETRA_TRY(petra_allocate(&c->stage, (size_t)s->stages, sizeof *c->stage));
  for (int64_t i = 0; i < entries; i++)
    if (is_unique(s->entries[i].action.kind))
      c->items[c->item_count++] = (item){.action = s->entries[i].action, .entry = i};
  qsort(c->items, (size_t)c->item_count, sizeof *c->items, compare);
  memcpy(c->place, s->first, (size_t)s->devices * sizeof *c->place);
  for (int32_t j = 0; j < s->stages; j++)
    c->stage[j].last_back = -1;
  return s->locked ? prepare_rounds(c) : PETRA_OK;
}

petra_status petra_schedule_check(const petra_schedule *schedule, const char *name) {
  checker c = {.schedule = schedule, .name = name};
  petra_status status = PETRA_OK;
  PETRA_TRY_GOTO(status, prepare(&c), done);
  PETRA_TRY_GOTO(status, follow(&c), done);
  PETRA_TRY_GOTO(status, find_deadlock(&c), done);
  PETRA_TRY_GOTO(status, find_missing_weights(&c), done);
  PETRA_TRY_GOTO(status, find_missing_evaluations(&c), done);
  status = find_missing_passes(&c);
done:
  PETRA_FREE_ALL(c.parked, c.left, c.stage, c.runnable, c.next_waiter, c.place, c.items);
  return status;
}
