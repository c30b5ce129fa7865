/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/observer_critical.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* Records lie in blocks, so that they never move. */
enum { BLOCK_BITS = 15, BLOCK = 1 << BLOCK_BITS };

/* The lines of a stage: messages from below, from above, exchanges with its replicas. */
enum { LINE_FORWARD, LINE_BACKWARD, LINE_EXCHANGE, LINES };

typedef struct record {
  int64_t start_ns, end_ns, microbatch;
  int64_t before; /* the action that ended before it on its device; -1: none */
  int64_t shared_ns;
  int32_t stage;
  petra_action_kind kind;
} record;

typedef struct message {
  int64_t microbatch, arrival_ns; /* -1: in transit */
  int64_t sender;                 /* record of the action that sent the message */
  /* In transit: the next message sent to the same stage. After the arrival: the message that arrived before it. */
  struct message *link;
} message;

typedef struct blocks {
  char **block;
  int64_t count, capacity; /* records; pointers */
  size_t bytes;            /* of a record */
} blocks;

typedef struct line {
  message *first, *last; /* in transit */
  message *arrived;      /* the last one */
} line;

typedef struct critical_observer {
  petra_observer base;
  const petra_executor_virtual_options *options;
  const petra_program_options *program;
  bool locked; /* the program of the run is locked */
  blocks records, messages;
  int64_t *last; /* per device: the record that ended last; -1: none */
  line lines[];  /* per stage: LINES of them; then `last` */
} critical_observer;

const char *petra_critical_name(petra_critical_kind kind) {
  static const char *const names[] = {
#define PETRA_CRITICAL_NAME(name, text) text,
      PETRA_CRITICAL_LIST(PETRA_CRITICAL_NAME)
#undef PETRA_CRITICAL_NAME
  };
  return names[kind];
}

static void *at(const blocks *list, int64_t index) {
  return list->block[index >> BLOCK_BITS] + (size_t)(index & (BLOCK - 1)) * list->bytes;
}

static petra_status append(blocks *list, const void *value) {
  int64_t block = list->count >> BLOCK_BITS;
  PETRA_TRY(petra_array_reserve(&list->block, &list->capacity, block + 1, sizeof *list->block));
  if (!list->block[block])
    PETRA_TRY(petra_allocate_raw(&list->block[block], BLOCK, list->bytes));
  memcpy(at(list, list->count), value, list->bytes);
  list->count++;
  return PETRA_OK;
}

static void free_blocks(blocks *list) {
  for (int64_t b = 0; b < list->capacity; b++)
    petra_free(list->block[b]);
  petra_free(list->block);
}

static int32_t device_of(const critical_observer *critical, int32_t stage) {
  return petra_program_device(critical->program, stage) - 1;
}

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  critical_observer *critical = (critical_observer *)base;
  int64_t *last = &critical->last[device_of(critical, row->action.stage)];
  const record one = {.start_ns = row->start_ns,
                      .end_ns = row->end_ns,
                      .shared_ns = row->shared_ns,
                      .microbatch = row->action.microbatch,
                      .before = *last,
                      .stage = row->action.stage,
                      .kind = row->action.kind};
  if (critical->records.count == PETRA_CRITICAL_MAX_ACTIONS)
    return petra_fail(PETRA_CONFIG, "--critical-path: more than %lld actions; expected fewer microbatches",
                      (long long)PETRA_CRITICAL_MAX_ACTIONS);
  *last = critical->records.count;
  return append(&critical->records, &one);
}

static line *line_of(critical_observer *critical, const petra_packet *packet) {
  const int kind = packet->exchange ? LINE_EXCHANGE : packet->backward ? LINE_BACKWARD : LINE_FORWARD;
  return &critical->lines[LINES * (packet->stage - 1) + kind];
}

/* The record of the sender follows: the executor sends before it reports the end. */
static petra_status sent(petra_observer *base, int32_t from, const petra_packet *packet, int64_t now_ns) {
  (void)from;
  (void)now_ns;
  critical_observer *critical = (critical_observer *)base;
  line *way = line_of(critical, packet);
  const message new = {.microbatch = packet->microbatch, .arrival_ns = -1, .sender = critical->records.count};
  PETRA_TRY(append(&critical->messages, &new));
  message *one = at(&critical->messages, critical->messages.count - 1);
  if (way->last)
    way->last->link = one;
  else
    way->first = one;
  way->last = one;
  return PETRA_OK;
}

static petra_status arrived(petra_observer *base, const petra_packet *packet, int64_t now_ns) {
  critical_observer *critical = (critical_observer *)base;
  line *way = line_of(critical, packet);
  /* Usually this is the first message; with fair sharing a later message may overtake it. */
  message *before = NULL, *one = way->first;
  while (one && one->microbatch != packet->microbatch) {
    before = one;
    one = one->link;
  }
  if (!one)
    return petra_fail(PETRA_INTERNAL, "a message of microbatch %lld arrives but was not sent",
                      (long long)packet->microbatch);
  if (before)
    before->link = one->link;
  else
    way->first = one->link;
  if (way->last == one)
    way->last = before;
  one->arrival_ns = now_ns;
  one->link = way->arrived;
  way->arrived = one;
  return PETRA_OK;
}

petra_status petra_critical_create(const petra_executor_virtual_options *options, const petra_program_options *program,
                                   bool locked, petra_observer **out) {
  static const petra_observer_ops ops = {.ended = ended, .sent = sent, .arrived = arrived};
  critical_observer *critical;
  const int32_t devices = petra_program_devices(program);
  const size_t lines = LINES * (size_t)program->stages;
  PETRA_TRY(
      petra_allocate(&critical, 1, sizeof *critical + lines * sizeof(line) + (size_t)devices * sizeof *critical->last));
  critical->base.ops = &ops;
  critical->options = options;
  critical->program = program;
  critical->locked = locked;
  critical->records.bytes = sizeof(record);
  critical->messages.bytes = sizeof(message);
  critical->last = (int64_t *)(critical->lines + lines);
  for (int32_t d = 0; d < devices; d++)
    critical->last[d] = -1;
  *out = &critical->base;
  return PETRA_OK;
}

void petra_critical_destroy(petra_observer *base) {
  critical_observer *critical = (critical_observer *)base;
  if (!critical)
    return;
  free_blocks(&critical->records);
  free_blocks(&critical->messages);
  petra_free(critical);
}

/* --- the way back --- */

/* The position of the walk back. On the path records and times only decrease, and so do these members. */
typedef struct way_back {
  const critical_observer *critical;
  int64_t *record;         /* per device: no record after this one is before the current one */
  int64_t any;             /* the same for all devices together */
  const message **arrived; /* per line: no message after this one has arrived by now */
} way_back;

static const record *record_at(const critical_observer *critical, int64_t index) {
  return index < 0 ? NULL : at(&critical->records, index);
}

/* Returns the last record of a device before record `index` that ended at `time_ns` or earlier. */
static int64_t ended_by(way_back *back, int32_t device, int64_t index, int64_t time_ns) {
  int64_t *tip = &back->record[device];
  while (*tip >= 0 && (*tip >= index || record_at(back->critical, *tip)->end_ns > time_ns))
    *tip = record_at(back->critical, *tip)->before;
  return *tip;
}

/* Gets the line and the number of the message that an action needs; returns false if it needs none. */
static bool input_of(const critical_observer *critical, const record *action, int32_t *from, int *kind) {
  int32_t stages = critical->program->stages;
  bool fused = petra_program_fused(critical->program, action->stage);
  *kind = action->kind == PETRA_ACTION_UPDATE               ? LINE_EXCHANGE
          : action->kind == PETRA_ACTION_BACKWARD && !fused ? LINE_BACKWARD
                                                            : LINE_FORWARD;
  *from = action->stage + (*kind == LINE_BACKWARD) - (*kind == LINE_FORWARD);
  if (*kind == LINE_EXCHANGE)
    return critical->options->replicas > 1;
  if (*kind == LINE_BACKWARD && petra_program_has_loss(critical->program, action->stage))
    return false;
  return (action->kind == PETRA_ACTION_FORWARD || action->kind == PETRA_ACTION_BACKWARD) && *from >= 1 &&
         *from <= stages;
}

/* Returns the action's message if it took time and arrived at the action's start. */
static const message *arrived_message(way_back *back, const record *action, int kind) {
  const message **tip = &back->arrived[LINES * (action->stage - 1) + kind];
  while (*tip && (*tip)->arrival_ns > action->start_ns)
    *tip = (*tip)->link;
  for (const message *one = *tip; one && one->arrival_ns == action->start_ns; one = one->link)
    if (kind == LINE_EXCHANGE || one->microbatch == action->microbatch) /* a stage has one exchange at a time */
      return one;
  return NULL;
}

/* Returns the action that sent the message if it ended at the action's start, else -1. */
static int64_t sender_of(way_back *back, int64_t index, const record *action, int32_t from, int which) {
  petra_action_kind kind = which == LINE_BACKWARD ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD;
  int64_t i = ended_by(back, device_of(back->critical, from), index, action->start_ns);
  for (const record *r; (r = record_at(back->critical, i)) && r->end_ns == action->start_ns; i = r->before)
    if (r->stage == from && r->kind == kind && r->microbatch == action->microbatch)
      return i;
  return -1;
}

/* Returns the action that ended at this action's start on its engine, else on its device's other engine; -1: none. */
static int64_t neighbour_of(way_back *back, int64_t index, const record *action) {
  bool two = back->critical->options->engines == 2;
  int64_t i = ended_by(back, device_of(back->critical, action->stage), index, action->start_ns);
  int64_t longer = -1, any = -1;
  for (const record *r; (r = record_at(back->critical, i)) && r->end_ns == action->start_ns; i = r->before) {
    if (!two || (r->kind == PETRA_ACTION_FORWARD) == (action->kind == PETRA_ACTION_FORWARD))
      return i;
    /* An action of length zero may have started together with this action: it is the last choice. */
    if (longer < 0 && r->start_ns < r->end_ns)
      longer = i;
    if (any < 0)
      any = i;
  }
  return longer >= 0 ? longer : any;
}

/* Locked programs: returns an action on any device that ended at the action's start, and with it the previous round;
 * -1: none. */
static int64_t round_before(way_back *back, int64_t index, const record *action) {
  int64_t any = -1;
  while (back->any >= 0 && (back->any >= index || record_at(back->critical, back->any)->end_ns > action->start_ns))
    back->any--;
  for (int64_t i = back->any; i >= 0 && record_at(back->critical, i)->end_ns == action->start_ns; i--) {
    if (record_at(back->critical, i)->start_ns < action->start_ns)
      return i;
    any = any < 0 ? i : any; /* it has length zero: as in neighbour_of */
  }
  return any;
}

static void add_message(const critical_observer *critical, const record *sender, const record *action,
                        petra_critical_path *path) {
  const petra_executor_virtual_options *options = critical->options;
  const petra_stage_cost *cost = petra_executor_virtual_cost(options, sender->stage);
  const bool exchange = sender->stage == action->stage;
  int64_t bytes = sender->stage < action->stage ? cost->forward_bytes : cost->backward_bytes;
  int64_t left_ns = action->start_ns - sender->end_ns;
  const int32_t from = device_of(critical, sender->stage), to = device_of(critical, action->stage);
  int64_t latency_ns = exchange ? 2 * options->fabric.latency_ns : petra_fabric_latency_ns(&options->fabric, from, to);
  latency_ns = latency_ns < left_ns ? latency_ns : left_ns;
  left_ns -= latency_ns;
  int64_t alone_ns =
      exchange ? petra_fabric_exchange_alone_ns(&options->fabric,
                                                petra_cost_exchange_bytes(options->replicas, cost->gradient_bytes))
               : petra_fabric_alone_ns(&options->fabric, from, to, bytes);
  if (alone_ns > left_ns) /* possible by a nanosecond of rounding, with fair rates */
    alone_ns = left_ns;
  path->ns[PETRA_CRITICAL_LATENCY] += latency_ns;
  path->ns[PETRA_CRITICAL_TRANSMISSION] += alone_ns;
  path->ns[PETRA_CRITICAL_QUEUEING] += left_ns - alone_ns;
  path->messages++;
}

/* If the input arrived at the start of `action`: returns the action that produced the input, and adds its message to
 * the path; else returns -1. */
static int64_t input_before(way_back *back, int64_t index, const record *action, petra_critical_path *path) {
  int32_t from;
  int which;
  if (!input_of(back->critical, action, &from, &which))
    return -1;
  const message *one = arrived_message(back, action, which);
  if (!one)
    return which == LINE_EXCHANGE ? -1 : sender_of(back, index, action, from, which);
  add_message(back->critical, record_at(back->critical, one->sender), action, path);
  return one->sender;
}

/* Returns action `i` if it is another action of the step of record `index`; else NULL. Their records are neighbours. */
static const record *companion(const critical_observer *critical, int64_t index, int64_t i) {
  const record *action = record_at(critical, index),
               *other = i < critical->records.count ? record_at(critical, i) : NULL;
  return other && i != index && critical->options->engines == 1 && other->start_ns == action->start_ns &&
                 other->end_ns == action->end_ns &&
                 device_of(critical, other->stage) == device_of(critical, action->stage)
             ? other
             : NULL;
}

/* Does the same for the other actions of the step. */
static int64_t input_of_step(way_back *back, int64_t index, petra_critical_path *path) {
  int64_t found = -1;
  for (int64_t i = index - PETRA_STEP_ACTIONS + 1; i < index + PETRA_STEP_ACTIONS && found < 0; i++) {
    const record *other = companion(back->critical, index, i);
    if (other)
      found = input_before(back, index, other, path);
  }
  return found;
}

/* Goes one step back: returns the record before `index` on the path and what lies between the two; -1: the start of the
 * run. */
static int64_t step_back(way_back *back, int64_t index, petra_critical_path *path) {
  const record *action = record_at(back->critical, index);
  if (action->start_ns == 0)
    return -1;
  int64_t before = input_before(back, index, action, path);
  if (before >= 0)
    return before;
  before = neighbour_of(back, index, action);
  if (before < 0)
    before = input_of_step(back, index, path);
  if (before < 0 && back->critical->locked)
    before = round_before(back, index, action);
  if (before >= 0)
    return before;
  before = ended_by(back, device_of(back->critical, action->stage), index, action->start_ns);
  path->ns[PETRA_CRITICAL_WAIT] += action->start_ns - (before < 0 ? 0 : record_at(back->critical, before)->end_ns);
  return before;
}

static const petra_critical_kind kind_of[PETRA_ACTION_KINDS] = {
    [PETRA_ACTION_FORWARD] = PETRA_CRITICAL_FORWARD,
    [PETRA_ACTION_BACKWARD] = PETRA_CRITICAL_BACKWARD,
    [PETRA_ACTION_WEIGHT_GRADIENT] = PETRA_CRITICAL_WEIGHT_GRADIENT,
    [PETRA_ACTION_UPDATE] = PETRA_CRITICAL_UPDATE,
    [PETRA_ACTION_EVALUATE] = PETRA_CRITICAL_WAIT, /* takes no time */
};

static void add_action(const record *action, petra_critical_path *path, int64_t *stage_ns) {
  const int64_t ns = action->end_ns - action->start_ns - action->shared_ns;
  path->ns[kind_of[action->kind]] += ns;
  if (stage_ns)
    stage_ns[action->stage - 1] += ns;
}

/* Adds the step of a record to the path: each action adds its own part. */
static void add_step(const critical_observer *critical, int64_t index, petra_critical_path *path, int64_t *stage_ns) {
  const record *action = record_at(critical, index);
  path->actions++;
  add_action(action, path, stage_ns);
  for (int64_t i = index - PETRA_STEP_ACTIONS + 1; i < index + PETRA_STEP_ACTIONS && action->shared_ns > 0; i++) {
    const record *other = companion(critical, index, i);
    if (other)
      add_action(other, path, stage_ns);
  }
}

petra_status petra_critical_trace(const petra_observer *base, petra_critical_path *out, int64_t *stage_ns) {
  const critical_observer *critical = (const critical_observer *)base;
  size_t devices = (size_t)petra_program_devices(critical->program), lines = LINES * (size_t)critical->program->stages;
  petra_critical_path path = {.actions = 0};
  PETRA_FREED int64_t *before = NULL;
  PETRA_FREED const message **arrivals = NULL;
  PETRA_TRY(petra_allocate(&before, devices, sizeof *before));
  PETRA_TRY(petra_allocate(&arrivals, lines, sizeof *arrivals));
  way_back back = {critical, before, critical->records.count - 1, arrivals};
  memcpy(before, critical->last, devices * sizeof *before);
  for (size_t l = 0; l < lines; l++)
    arrivals[l] = critical->lines[l].arrived;
  if (stage_ns)
    memset(stage_ns, 0, (size_t)critical->program->stages * sizeof *stage_ns);
  /* Records are in the order of their ends, so the last record ended last. */
  for (int64_t i = critical->records.count - 1; i >= 0; i = step_back(&back, i, &path))
    add_step(critical, i, &path, stage_ns);
  *out = path;
  return PETRA_OK;
}
