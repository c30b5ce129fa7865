/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/program_order.h"

#include "base/log.h"
#include "base/mem.h"
#include "schedule/schedule.h"

#include <string.h>

static const int64_t NEVER = INT64_C(1) << 59;

/* The maximum number of passes of one kind for which orders are searched. */
enum { SEARCHED = 1 << 20 };

/* In this structure stages and devices count from 0. */
typedef struct problem {
  int32_t stages, devices;
  int64_t microbatches, limit, message;
  const int32_t *device;  /* the device of each stage */
  int32_t *first, *local; /* local[first[d] ..]: the stages of device d, rising */
  int32_t *above;         /* per stage: number of later stages on its device */
  int64_t *f, *b, *w;     /* costs of each stage, at least 1 */
} problem;

/* An order: the actions of device d begin at 3 * microbatches * first[d]. In actions, stages count from 1. */
typedef petra_action *order;

static int64_t begin_of(const problem *p, int32_t device) {
  return 3 * p->microbatches * p->first[device];
}

/* The state of a run through an order, or of the list scheduler. */
typedef struct state {
  int64_t *forward, *backward;             /* per stage and microbatch: the time at which the input is available */
  int64_t *forwards, *backwards, *weights; /* per stage: number of F, B and W done so far */
  int64_t *now, *start, *kept, *place;     /* per device; place: position in the order */
  /* devices by `now`, then by number, with the first at the root; at: their positions in the heap */
  int32_t *heap, *at;
} state;

static petra_status init_state(const problem *p, state *s) {
  const size_t passes = (size_t)p->stages * (size_t)p->microbatches;
  *s = (state){0};
  PETRA_TRY(petra_allocate(&s->forward, 2 * passes, sizeof *s->forward));
  PETRA_TRY(petra_allocate(&s->forwards, 3 * (size_t)p->stages, sizeof *s->forwards));
  PETRA_TRY(petra_allocate(&s->now, 4 * (size_t)p->devices, sizeof *s->now));
  PETRA_TRY(petra_allocate(&s->heap, 2 * (size_t)p->devices, sizeof *s->heap));
  s->at = s->heap + p->devices;
  s->backward = s->forward + passes;
  s->backwards = s->forwards + p->stages;
  s->weights = s->backwards + p->stages;
  s->start = s->now + p->devices;
  s->kept = s->start + p->devices;
  s->place = s->kept + p->devices;
  return PETRA_OK;
}

static void reset_state(const problem *p, state *s) {
  for (int64_t i = 0; i < 2 * p->stages * p->microbatches; i++)
    s->forward[i] = i < p->microbatches ? 0 : NEVER; /* stage 1 has its input */
  memset(s->forwards, 0, 3 * (size_t)p->stages * sizeof *s->forwards);
  memset(s->now, 0, 4 * (size_t)p->devices * sizeof *s->now);
  for (int32_t d = 0; d < p->devices; d++) {
    s->start[d] = -1;
    s->place[d] = begin_of(p, d);
    s->heap[d] = s->at[d] = d;
  }
}

static int64_t cost_of(const problem *p, const petra_action *a) {
  const int32_t s = a->stage - 1;
  return a->kind == PETRA_ACTION_FORWARD ? p->f[s] : a->kind == PETRA_ACTION_BACKWARD ? p->b[s] : p->w[s];
}

/* Records that an action ends, and returns the stage that gets its message; -1: none. */
static int32_t finish(const problem *p, state *s, const petra_action *a, int64_t end) {
  const int32_t stage = a->stage - 1;
  const bool last = stage == p->stages - 1;
  int32_t to = -1;
  int64_t *input = NULL;
  if (a->kind == PETRA_ACTION_FORWARD) {
    s->forwards[stage]++;
    to = last ? stage : stage + 1;
    input = last ? s->backward : s->forward;
  } else if (a->kind == PETRA_ACTION_BACKWARD) {
    s->backwards[stage]++;
    to = stage - 1;
    input = s->backward;
  } else {
    s->weights[stage]++;
  }
  if (to >= 0)
    input[to * p->microbatches + a->microbatch] = end + (p->device[to] == p->device[stage] ? 0 : p->message);
  return to;
}

/* --- the time of an order --- */

typedef struct score {
  int64_t makespan, span; /* span: the longest time between the first and the last action of a device */
  bool fits;              /* the order respects the limit */
} score;

/* Adds a device to the stack of the devices to advance, unless it is already in the stack. The stack uses the memory of
 * the heap. */
static void push(state *s, int32_t *count, int32_t device) {
  if (s->at[device] < 0)
    s->heap[(*count)++] = device;
  s->at[device] = 0;
}

/* Advances a device as far as its inputs are available, and adds the devices that wait for its messages to the
 * stack. */
static void advance(const problem *p, state *s, const petra_action *actions, int32_t device, int32_t *count,
                    score *out) {
  const int64_t end = begin_of(p, device + 1);
  for (; s->place[device] < end; s->place[device]++) {
    const petra_action *a = &actions[s->place[device]];
    const int64_t at = (a->stage - 1) * p->microbatches + a->microbatch;
    int64_t start = s->now[device];
    if (a->kind != PETRA_ACTION_WEIGHT_GRADIENT) {
      const int64_t input = a->kind == PETRA_ACTION_FORWARD ? s->forward[at] : s->backward[at];
      if (input == NEVER)
        break;
      start = input > start ? input : start;
    }
    if (s->start[device] < 0)
      s->start[device] = start;
    s->kept[device] += a->kind == PETRA_ACTION_FORWARD;
    out->fits &= s->kept[device] <= p->limit;
    s->kept[device] -= a->kind == PETRA_ACTION_WEIGHT_GRADIENT;
    s->now[device] = start + cost_of(p, a);
    const int32_t to = finish(p, s, a, s->now[device]);
    if (to >= 0 && p->device[to] != device)
      push(s, count, p->device[to]);
  }
}

static score measure(const problem *p, state *s, const petra_action *actions) {
  score out = {.fits = true};
  reset_state(p, s);
  int32_t count = p->devices;
  for (int32_t d = 0; d < p->devices; d++)
    s->at[d] = 0; /* all devices are in the stack */
  while (count > 0) {
    const int32_t device = s->heap[--count];
    s->at[device] = -1;
    advance(p, s, actions, device, &count, &out);
  }
  for (int32_t d = 0; d < p->devices; d++) {
    const int64_t span = s->now[d] - s->start[d];
    out.makespan = s->now[d] > out.makespan ? s->now[d] : out.makespan;
    out.span = span > out.span ? span : out.span;
    out.fits &= s->place[d] == begin_of(p, d + 1); /* otherwise the device waits for ever */
  }
  return out;
}

/* --- the list scheduler --- */

/* The guide of the list scheduler: ideal times of the passes, or the passes of another order, in which only W is placed
 * anew. */
typedef struct guide {
  int64_t *f, *b, *cap; /* per stage; cap: maximum number of microbatches that the stage keeps */
  int64_t period;
  bool backward_first;
  int hold;                     /* a W does not start if a pass can start within hold / 4 of its cost */
  const petra_action *sequence; /* NULL: by ideal times */
} guide;

/* Describes the best action that a device can do next. */
typedef struct choice {
  int class; /* 0, 1: passes; 2: W; 3: nothing */
  int64_t rank;
  petra_action action;
  int64_t soon; /* the time of the next input; NEVER: not known */
} choice;

static void offer(choice *best, int class, int64_t rank, petra_action action) {
  if (class < best->class || (class == best->class && rank < best->rank))
    *best = (choice){class, rank, action, best->soon};
}

/* Returns the next pass of the sequence, skipping its W; NULL if there is none. */
static const petra_action *head_of(const problem *p, state *s, const guide *g, int32_t device) {
  while (s->place[device] < begin_of(p, device + 1) &&
         g->sequence[s->place[device]].kind == PETRA_ACTION_WEIGHT_GRADIENT)
    s->place[device]++;
  return s->place[device] < begin_of(p, device + 1) ? &g->sequence[s->place[device]] : NULL;
}

static bool may_forward(const problem *p, const state *s, const guide *g, int32_t stage, const petra_action *head) {
  const int32_t device = p->device[stage];
  if (g->sequence)
    return head && head->stage == stage + 1 && head->kind == PETRA_ACTION_FORWARD && s->kept[device] < p->limit;
  return s->forwards[stage] < p->microbatches && s->kept[device] + p->above[stage] < p->limit &&
         s->forwards[stage] - s->weights[stage] < g->cap[stage];
}

static bool may_backward(const state *s, const guide *g, int32_t stage, const petra_action *head) {
  return s->backwards[stage] < s->forwards[stage] &&
         (!g->sequence || (head && head->stage == stage + 1 && head->kind == PETRA_ACTION_BACKWARD));
}

static choice choose(const problem *p, state *s, const guide *g, int32_t device, int64_t now) {
  const petra_action *head = g->sequence ? head_of(p, s, g, device) : NULL;
  choice best = {.class = 3, .soon = NEVER};
  for (int32_t i = p->first[device]; i < p->first[device + 1]; i++) {
    const int32_t stage = p->local[i];
    const int64_t b = s->backwards[stage], f = s->forwards[stage], w = s->weights[stage];
    if (may_backward(s, g, stage, head)) {
      const int64_t input = s->backward[stage * p->microbatches + b];
      if (input <= now)
        offer(&best, 0, g->b[stage] + g->period * b, (petra_action){stage + 1, PETRA_ACTION_BACKWARD, b});
      else if (input < best.soon)
        best.soon = input;
    }
    if (may_forward(p, s, g, stage, head)) {
      const int64_t input = s->forward[stage * p->microbatches + f];
      if (input <= now)
        offer(&best, g->backward_first, g->f[stage] + g->period * f,
              (petra_action){stage + 1, PETRA_ACTION_FORWARD, f});
      else if (input < best.soon)
        best.soon = input;
    }
    if (w < b) /* of two W of equal age, the W of the later stage comes first */
      offer(&best, 2, w * p->stages - stage, (petra_action){stage + 1, PETRA_ACTION_WEIGHT_GRADIENT, w});
  }
  return best;
}

static bool comes_before(const state *s, int32_t a, int32_t b) {
  return s->now[a] < s->now[b] || (s->now[a] == s->now[b] && a < b);
}

static void put(state *s, int32_t place, int32_t device) {
  s->heap[place] = device;
  s->at[device] = place;
}

/* Sets the time at which the scheduler next looks at a device. */
static void set_now(const problem *p, state *s, int32_t device, int64_t now) {
  int32_t place = s->at[device];
  s->now[device] = now;
  for (; place > 0 && comes_before(s, device, s->heap[(place - 1) / 2]); place = (place - 1) / 2)
    put(s, place, s->heap[(place - 1) / 2]);
  for (;;) {
    int32_t child = 2 * place + 1;
    if (child + 1 < p->devices && comes_before(s, s->heap[child + 1], s->heap[child]))
      child++;
    if (child >= p->devices || !comes_before(s, s->heap[child], device))
      break;
    put(s, place, s->heap[child]);
    place = child;
  }
  put(s, place, device);
}

/* Writes an order; returns false if it would wait for ever. `next` are numbers of devices. */
static bool schedule(const problem *p, state *s, const guide *g, int64_t *next, petra_action *out) {
  const int64_t passes = 3 * p->stages * p->microbatches;
  reset_state(p, s);
  for (int32_t d = 0; d < p->devices; d++)
    next[d] = begin_of(p, d);
  /* s->now: the time at which to look at the device; s->start: the end of its last action. */
  for (int64_t done = 0; done < passes;) {
    const int32_t device = s->heap[0];
    const int64_t now = s->now[device];
    if (now == NEVER)
      return false;
    const choice best = choose(p, s, g, device, now);
    if (best.class == 3 || (best.class == 2 && (best.soon - now) * 4 < g->hold * cost_of(p, &best.action))) {
      set_now(p, s, device, best.soon);
      continue;
    }
    const int64_t end = now + cost_of(p, &best.action);
    s->start[device] = end;
    set_now(p, s, device, end);
    s->kept[device] += best.action.kind == PETRA_ACTION_FORWARD;
    s->kept[device] -= best.action.kind == PETRA_ACTION_WEIGHT_GRADIENT;
    s->place[device] += g->sequence && best.class < 2;
    out[next[device]++] = best.action;
    done++;
    const int32_t to = finish(p, s, &best.action, end);
    if (to >= 0 && p->device[to] != device) {
      const int32_t d = p->device[to];
      const int64_t there = end + p->message, look = there > s->start[d] ? there : s->start[d];
      if (look < s->now[d])
        set_now(p, s, d, look);
    }
  }
  return true;
}

/* Sets the ideal times. */
static void apply_rule(const problem *p, const petra_order_rule *rule, bool v, guide *g) {
  int64_t work = 0, t = 0;
  for (int32_t d = 0; d < p->devices; d++) {
    int64_t sum = 0;
    for (int32_t i = p->first[d]; i < p->first[d + 1]; i++)
      sum += p->f[p->local[i]] + p->b[p->local[i]] + p->w[p->local[i]];
    work = sum > work ? sum : work;
  }
  const int64_t unit = work * p->devices / (3 * p->stages); /* a mean action of the busiest device */
  for (int32_t s = 0; s < p->stages; s++) {
    const bool hop = s + 1 < p->stages && p->device[s + 1] != p->device[s];
    g->f[s] = t;
    t += 2 * p->f[s] + hop * (((v && s >= p->devices ? rule->up : rule->down) - 2) * unit + 2 * p->message);
  }
  for (int32_t s = p->stages - 1; s >= 0; s--) {
    const bool hop = s > 0 && p->device[s - 1] != p->device[s];
    g->b[s] = t;
    t += 2 * p->b[s] + hop * (((v && s >= p->devices ? rule->down : rule->up) - 2) * unit + 2 * p->message);
  }
  g->period = 2 * work;
  g->backward_first = rule->backward_first;
  for (int32_t s = 0; s < p->stages; s++)
    g->cap[s] = rule->slack < 0
                    ? NEVER
                    : (g->b[s] + 2 * (p->b[s] + p->w[s]) - g->f[s] + g->period - 1) / g->period + rule->slack;
}

/* --- the search --- */

typedef struct order_search {
  const petra_order_search_options *options;
  problem p;
  state state;
  guide guide;
  int64_t *next;                      /* state of the list scheduler, per device */
  order best, equal, candidate, seed; /* seed: NULL if there is none */
  score score;                        /* score of the best order */
  bool found;
} order_search;

/* Returns a lower bound of the makespan of all orders. */
static int64_t least(const problem *p) {
  int64_t bound = 0;
  for (int32_t d = 0; d < p->devices; d++) {
    int64_t sum = 0;
    for (int32_t i = p->first[d]; i < p->first[d + 1]; i++)
      sum += p->f[p->local[i]] + p->b[p->local[i]] + p->w[p->local[i]];
    sum *= p->microbatches;
    for (int32_t s = 0; s < p->local[p->first[d]]; s++)
      sum += p->f[s] + p->message;
    bound = sum > bound ? sum : bound;
  }
  return bound;
}

static size_t bytes_of(const problem *p) {
  return 3 * (size_t)p->stages * (size_t)p->microbatches * sizeof(petra_action);
}

/* Keeps the order if it is the best so far; returns true if no better order is possible. */
static bool try_order(order_search *s, const petra_action *actions) {
  const score found = measure(&s->p, &s->state, actions);
  if (found.fits && (!s->found || found.makespan < s->score.makespan ||
                     (found.makespan == s->score.makespan && found.span < s->score.span))) {
    memcpy(s->best, actions, bytes_of(&s->p));
    s->score = found;
    s->found = true;
  }
  return s->found && s->score.makespan == least(&s->p);
}

static bool try_again(order_search *s, const petra_action *sequence, int hold) {
  s->guide.sequence = sequence;
  s->guide.hold = hold;
  return schedule(&s->p, &s->state, &s->guide, s->next, s->candidate) && try_order(s, s->candidate);
}

/* Searches orders for the costs of the problem, with up to two orders to begin with. */
static void search_orders(order_search *s, const petra_action *const *seeds) {
  static const int holds[] = {0, 1, 3}, rule_holds[] = {0, 2};
  const bool v = s->options->options->device_of && petra_program_has_layout(s->options->options, PETRA_LAYOUT_V);
  const bool large = (int64_t)s->p.stages * s->p.microbatches > SEARCHED;
  s->found = false;
  for (int i = 0; i < 2; i++)
    if (seeds[i] && (try_order(s, seeds[i]) || (large && s->found)))
      return;
  for (int h = 0; h < 3 && !large; h++)
    for (int i = 0; i < 2; i++)
      if (seeds[i] && try_again(s, seeds[i], holds[h]))
        return;
  for (int h = 0; h < 2; h++)
    for (int i = 0; i < s->options->rule_count; i++) {
      apply_rule(&s->p, &s->options->rules[i], v, &s->guide);
      if (try_again(s, NULL, rule_holds[h]) || (large && s->found))
        return;
    }
}

static void set_costs(problem *p, const petra_order_costs *costs) {
  p->message = costs ? costs->message : 0;
  for (int32_t s = 0; s < p->stages; s++) {
    int64_t *const own[] = {&p->f[s], &p->b[s], &p->w[s]};
    for (int k = 0; k < 3; k++) {
      const int64_t cost = costs ? costs->duration[s][k] : 1;
      *own[k] = cost > 0 ? cost : 1;
    }
  }
}

/* Returns true if all actions cost the same and messages cost nothing. */
static bool are_equal(const problem *p) {
  for (int32_t s = 0; s < p->stages; s++)
    if (p->f[s] != p->f[0] || p->b[s] != p->f[0] || p->w[s] != p->f[0])
      return false;
  return p->message == 0;
}

static petra_status init(order_search *s, const petra_order_search_options *options, int32_t *device) {
  const petra_program_options *program = options->options;
  problem *p = &s->p;
  *s = (order_search){.options = options,
                      .p = {.stages = program->stages,
                            .devices = petra_program_devices(program),
                            .microbatches = program->accumulate,
                            .limit = options->limit,
                            .device = device}};
  const size_t stages = (size_t)p->stages;
  PETRA_TRY(petra_allocate(&p->f, 6 * stages, sizeof *p->f));
  p->b = p->f + stages;
  p->w = p->b + stages;
  s->guide = (guide){.f = p->w + stages, .b = p->w + 2 * stages, .cap = p->w + 3 * stages};
  PETRA_TRY(petra_allocate(&p->first, 2 * stages + (size_t)p->devices + 1, sizeof *p->first));
  p->local = p->first + p->devices + 1;
  p->above = p->local + stages;
  for (int32_t d = 0, count = 0; d < p->devices; p->first[++d] = count)
    for (int32_t j = 0; j < p->stages; j++)
      if (device[j] == d)
        p->local[count++] = j;
  for (int32_t d = 0; d < p->devices; d++)
    for (int32_t i = p->first[d]; i < p->first[d + 1]; i++)
      p->above[p->local[i]] = p->first[d + 1] - 1 - i;
  PETRA_TRY(petra_allocate(&s->next, (size_t)p->devices, sizeof *s->next));
  PETRA_TRY(petra_allocate(&s->best, 4, bytes_of(p)));
  s->equal = s->best + bytes_of(p) / sizeof *s->best;
  s->candidate = s->equal + bytes_of(p) / sizeof *s->best;
  if (options->seed) {
    s->seed = s->candidate + bytes_of(p) / sizeof *s->best;
    for (int64_t i = 0; i < options->seed->first[p->devices]; i++)
      s->seed[i] = options->seed->entries[i].action;
  }
  return init_state(p, &s->state);
}

static petra_status write_order(const order_search *s, const petra_action *actions, const char *name,
                                petra_schedule **out) {
  petra_schedule_builder builder = {.schedule.flush = true};
  petra_status status = PETRA_OK;
  for (int32_t d = 0; d < s->p.devices && status == PETRA_OK; d++) {
    status = petra_schedule_add_device(&builder);
    for (int64_t i = begin_of(&s->p, d); i < begin_of(&s->p, d + 1) && status == PETRA_OK; i++)
      status = petra_schedule_add(&builder, (petra_schedule_entry){.action = actions[i]});
  }
  return petra_schedule_finish(&builder, status, name, out);
}

/* Sets *slower if a run takes longer in the first order than in the second: a run of one flush or, if messages take
 * time, a run of many flushes. */
static petra_status compare(const order_search *s, const petra_order_costs *costs, const petra_schedule *first,
                            const petra_schedule *second, bool *slower) {
  static const int64_t flushes[] = {1, 100};
  const petra_schedule *const orders[] = {first, second};
  int64_t times[2] = {0};
  *slower = false;
  for (int i = 0; i < (s->p.message > 0 ? 2 : 1) && !*slower && times[0] < NEVER / flushes[i]; i++) {
    for (int o = 0; o < 2; o++)
      PETRA_TRY(costs->simulate(costs->context, orders[o], flushes[i], &times[o]));
    *slower = times[0] > times[1];
  }
  return PETRA_OK;
}

/* Writes the best order or, if the simulation finds it slower, the best order for equal costs. */
static petra_status write_best(const order_search *s, const petra_order_costs *costs, const char *name,
                               petra_schedule **out) {
  PETRA_DESTROYED(petra_schedule_destroy) petra_schedule *best = NULL, *equal = NULL;
  bool slower = false;
  PETRA_TRY(write_order(s, s->best, name, &best));
  if (costs->simulate && memcmp(s->best, s->equal, bytes_of(&s->p)) != 0) {
    PETRA_TRY(write_order(s, s->equal, name, &equal));
    PETRA_TRY(compare(s, costs, best, equal, &slower));
  }
  petra_schedule **const chosen = slower ? &equal : &best;
  *out = *chosen;
  *chosen = NULL;
  return PETRA_OK;
}

petra_status petra_order_find(const petra_order_search_options *options, const petra_order_costs *costs,
                              const char *name, petra_schedule **out) {
  int32_t *device;
  order_search s;
  PETRA_TRY(petra_allocate(&device, (size_t)options->options->stages, sizeof *device));
  for (int32_t j = 0; j < options->options->stages; j++)
    device[j] = petra_program_device(options->options, j + 1) - 1;
  petra_status status = init(&s, options, device);
  if (status == PETRA_OK) {
    set_costs(&s.p, NULL);
    search_orders(&s, (const petra_action *const[]){NULL, s.seed});
    memcpy(s.equal, s.best, bytes_of(&s.p));
    set_costs(&s.p, costs);
    if (!are_equal(&s.p))
      search_orders(&s, (const petra_action *const[]){s.equal, s.seed});
    status = s.found ? write_best(&s, costs, name, out) : petra_fail(PETRA_INTERNAL, "program %s finds no order", name);
  }
  PETRA_FREE_ALL(s.state.forward, s.state.forwards, s.state.now, s.state.heap);
  PETRA_FREE_ALL(s.best, s.next, s.p.first, s.p.f, device);
  return status;
}
