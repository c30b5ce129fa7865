/* SPDX-License-Identifier: Apache-2.0 */
#include "record/chakra.h"

#include "base/log.h"
#include "base/mem.h"
#include "record/chakra_file.h"

#include <stdio.h>
#include <string.h>

enum { ENGINES = 2 };

/* A reader goes through the order of a device for the actions of one engine. Positions count the actions of the device
 * from 0, without E; -1: there is none. */
typedef struct reader {
  petra_cursor cursor;
  int64_t round, count;  /* count: position of the next action */
  int64_t last[ENGINES]; /* per engine: its last action */
  int64_t join;          /* the last action of the other engine that the actions of this engine wait for */
} reader;

/* The node of an action whose result is still to be used, and the node with which its step ends. */
typedef struct result {
  int64_t microbatch, node, end;
} result;

typedef struct results {
  result *list;
  int64_t count, capacity;
} results;

/* The uses of a result at a stage. CREDIT: with method.credit, a B of stage 1 lets it read one more microbatch. */
enum { INPUT_FORWARD, INPUT_BACKWARD, OWN_FORWARD, OWN_BACKWARD, CREDIT, USES };

typedef struct chakra {
  petra_observer base;
  petra_chakra_options options;
  petra_chakra_files *files;
  reader *readers;  /* per device: ENGINES of them */
  int64_t *rest_ns; /* per device: what its durations, in whole microseconds, have left out so far */
  petra_action step[PETRA_STEP_ACTIONS]; /* the actions of a step that have ended so far */
  int64_t step_node[PETRA_STEP_ACTIONS];
  int step_count;
  int64_t finished; /* microbatches whose B has ended at stage 1 */
  results *unused;  /* per stage: USES of them */
} chakra;

/* The nodes of the action at a position: its message, the action, the message that it sends. A device that can do only
 * one of two messages at a time does the one with the smaller number. */
static int64_t compute_node(int64_t position) {
  return 3 * position + 1;
}

static int64_t receive_node(int64_t compute) {
  return compute - 1;
}

static int64_t send_node(int64_t compute) {
  return compute + 1;
}

static int32_t device_of(const chakra *c, int32_t stage) {
  return petra_program_device(c->options.program_options, stage) - 1;
}

/* --- the order on a device --- */

static int engine_of(const chakra *c, petra_action_kind kind) {
  return c->options.executor->engines == ENGINES && kind != PETRA_ACTION_FORWARD;
}

/* Goes past an action in the order of the device. */
static void pass(const chakra *c, reader *r, int engine, petra_action_kind kind) {
  const int its = engine_of(c, kind);
  if (kind == PETRA_ACTION_EVALUATE || kind == PETRA_ACTION_UPDATE) {
    if (its == engine) /* it waits for everything before it */
      r->join = r->last[!engine];
    else if (kind == PETRA_ACTION_UPDATE) /* F and B wait for it */
      r->join = r->count;
  }
  if (kind != PETRA_ACTION_EVALUATE)
    r->last[its] = r->count++;
}

/* Finds an action of the program's order, the next one of its engine. *position: its own; after[2]: the actions that it
 * waits for; -1: none; *joined: the next action is in the same step. */
static petra_status find(chakra *c, const petra_action *action, int64_t *position, int64_t after[ENGINES],
                         bool *joined) {
  const petra_program_ops *program = c->options.program;
  const int32_t device = device_of(c, action->stage);
  const int engine = engine_of(c, action->kind);
  reader *r = &c->readers[ENGINES * device + engine];
  petra_action next = *action;
  int64_t round = 0;
  while (program->arrival ||
         petra_program_next(program, c->options.program_options, device + 1, &r->cursor, &next, &round)) {
    if (round != r->round) {
      r->round = round;
      r->join = r->last[!engine];
    }
    const bool found = next.kind != PETRA_ACTION_EVALUATE && engine_of(c, next.kind) == engine;
    *position = r->count;
    after[0] = r->last[engine];
    pass(c, r, engine, next.kind);
    after[1] = r->join;
    *joined = r->cursor.joined && c->options.executor->engines == 1;
    if (!found)
      continue;
    if (next.stage == action->stage && next.kind == action->kind && next.microbatch == action->microbatch)
      return PETRA_OK;
    break;
  }
  char text[40];
  petra_action_print(action, text, sizeof text);
  return petra_fail(PETRA_INTERNAL, "--chakra: %s is not the next action in the order of its device", text);
}

/* --- results --- */

static petra_status keep(chakra *c, int32_t stage, int use, int64_t microbatch, int64_t node, int64_t end) {
  results *here = &c->unused[USES * (stage - 1) + use];
  PETRA_TRY(petra_array_reserve(&here->list, &here->capacity, here->count + 1, sizeof *here->list));
  here->list[here->count++] = (result){microbatch, node, end};
  return PETRA_OK;
}

static petra_status take(chakra *c, int32_t stage, int use, int64_t microbatch, result *out) {
  results *here = &c->unused[USES * (stage - 1) + use];
  for (int64_t i = 0; i < here->count; i++) {
    if (here->list[i].microbatch != microbatch)
      continue;
    *out = here->list[i];
    here->count--;
    memmove(&here->list[i], &here->list[i + 1], (size_t)(here->count - i) * sizeof *here->list);
    return PETRA_OK;
  }
  return petra_fail(PETRA_INTERNAL, "--chakra: stage %d uses a result of microbatch %lld that nobody computed", stage,
                    (long long)microbatch);
}

/* --- nodes --- */

static void add_after(petra_chakra_node *node, int64_t id) {
  for (int i = 0; i < node->after_count; i++)
    if (node->after[i] == id)
      return;
  node->after[node->after_count++] = id;
}

/* Writes the two nodes of the message that `use` receives, with the result of stage `from`. */
static petra_status write_message(chakra *c, const petra_action *use, int32_t from, const result *sent_result,
                                  petra_chakra_node *compute) {
  const petra_executor_virtual_options *executor = c->options.executor;
  const petra_stage_cost *cost = &executor->costs[executor->cost_count == 1 ? 0 : from - 1];
  const bool backward = from > use->stage;
  const petra_action sent = {from, backward ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD, use->microbatch};
  const int64_t stages = c->options.program_options->stages,
                bytes = backward ? cost->backward_bytes : cost->forward_bytes;
  petra_chakra_node node = {.kind = PETRA_CHAKRA_SEND,
                            .id = send_node(sent_result->node),
                            .after_count = 1,
                            .after = {sent_result->end},
                            .from = device_of(c, from),
                            .to = device_of(c, use->stage),
                            .tag = (int32_t)((use->microbatch * stages + use->stage - 1) * 2 + backward),
                            .bytes = bytes > 0 ? bytes : 1}; /* the networks of ASTRA-sim refuse 0 bytes */
  char text[40];
  petra_action_print(&sent, text, sizeof text);
  snprintf(node.name, sizeof node.name, "send %s", text);
  PETRA_TRY(petra_chakra_files_add(c->files, node.from, &node));
  node.kind = PETRA_CHAKRA_RECEIVE;
  node.id = receive_node(compute->id);
  node.after_count = compute->after_count;
  memcpy(node.after, compute->after, sizeof node.after);
  snprintf(node.name, sizeof node.name, "receive %s", text);
  add_after(compute, node.id);
  return petra_chakra_files_add(c->files, node.to, &node);
}

/* Returns method.credit if it may delay the F of stage 1; else 0. In a fixed order it is part of the order. */
static int64_t credit_of(const chakra *c, int32_t stage) {
  return c->options.program->arrival && stage == 1 ? c->options.program_options->credit : 0;
}

/* Adds the data that an action waits for to its node, which has the order of the device so far. */
static petra_status add_data(chakra *c, const petra_action *action, bool fused, petra_chakra_node *compute) {
  const int32_t stage = action->stage;
  const bool up = action->kind == PETRA_ACTION_FORWARD || (action->kind == PETRA_ACTION_BACKWARD && fused),
             down = action->kind == PETRA_ACTION_BACKWARD && !fused;
  const int32_t from = stage + (up ? -1 : 1);
  result found = {-1, -1, -1};
  if ((up && stage > 1) || (down && !petra_program_has_loss(c->options.program_options, stage))) {
    PETRA_TRY(take(c, stage, up ? INPUT_FORWARD : INPUT_BACKWARD, action->microbatch, &found));
    if (device_of(c, from) == device_of(c, stage))
      add_after(compute, found.end);
    else
      PETRA_TRY(write_message(c, action, from, &found, compute));
  }
  if (down) {
    PETRA_TRY(take(c, stage, OWN_FORWARD, action->microbatch, &found));
    add_after(compute, found.end);
  }
  if (action->kind == PETRA_ACTION_FORWARD && credit_of(c, stage) > 0 && action->microbatch >= credit_of(c, stage)) {
    PETRA_TRY(take(c, stage, CREDIT, action->microbatch, &found));
    add_after(compute, found.end);
  }
  if (action->kind == PETRA_ACTION_WEIGHT_GRADIENT) {
    PETRA_TRY(take(c, stage, OWN_BACKWARD, action->microbatch, &found));
    add_after(compute, found.end);
  }
  return PETRA_OK;
}

/* Keeps the node of an action for the later actions of its stage. */
static petra_status keep_own(chakra *c, const petra_action *action, int64_t node) {
  const int32_t stage = action->stage;
  if (action->kind == PETRA_ACTION_FORWARD)
    return keep(c, stage, OWN_FORWARD, action->microbatch, node, node);
  if (action->kind == PETRA_ACTION_BACKWARD && c->options.executor->rule.split_backward)
    PETRA_TRY(keep(c, stage, OWN_BACKWARD, action->microbatch, node, node));
  if (action->kind == PETRA_ACTION_BACKWARD && credit_of(c, stage) > 0)
    return keep(c, stage, CREDIT, c->finished++ + credit_of(c, stage), node, node);
  return PETRA_OK;
}

/* Keeps the node of an action, and the last one of its step, for the stage that uses its result. */
static petra_status keep_output(chakra *c, const petra_action *action, int64_t node, int64_t end) {
  const int32_t stage = action->stage;
  if (action->kind == PETRA_ACTION_FORWARD && stage < c->options.program_options->stages)
    return keep(c, stage + 1, INPUT_FORWARD, action->microbatch, node, end);
  if (action->kind == PETRA_ACTION_BACKWARD && petra_program_sends_down(c->options.program_options, stage))
    return keep(c, stage - 1, INPUT_BACKWARD, action->microbatch, node, end);
  return PETRA_OK;
}

/* With a program by arrival, the order of a device is that in which its actions end. */
static void pass_other(chakra *c, const petra_action *action) {
  const int32_t device = device_of(c, action->stage);
  const int its = engine_of(c, action->kind);
  for (int engine = 0; engine < ENGINES; engine++)
    if (engine != its || action->kind == PETRA_ACTION_EVALUATE)
      pass(c, &c->readers[ENGINES * device + engine], engine, action->kind);
}

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  chakra *c = (chakra *)base;
  const petra_action *action = &row->action;
  int64_t position = -1, after[ENGINES] = {-1, -1};
  bool joined = false;
  if (c->options.program->arrival)
    pass_other(c, action);
  if (action->kind == PETRA_ACTION_EVALUATE)
    return PETRA_OK;
  PETRA_TRY(find(c, action, &position, after, &joined));
  const int32_t device = device_of(c, action->stage);
  /* The last action of a step, which waits for the others, has the time of the step. */
  const int64_t ns = (joined ? 0 : row->end_ns - row->start_ns) + c->rest_ns[device];
  petra_chakra_node node = {.kind = PETRA_CHAKRA_COMPUTE, .id = compute_node(position), .duration_us = ns / 1000};
  c->rest_ns[device] = ns % 1000;
  for (int i = 0; i < ENGINES; i++)
    if (after[i] >= 0)
      add_after(&node, compute_node(after[i]));
  petra_action_print(action, node.name, sizeof node.name);
  PETRA_TRY(add_data(c, action, petra_program_fused(c->options.program_options, action->stage), &node));
  PETRA_TRY(petra_chakra_files_add(c->files, device, &node));
  PETRA_TRY(keep_own(c, action, node.id));
  c->step[c->step_count] = *action;
  c->step_node[c->step_count++] = node.id;
  for (int i = 0; i < c->step_count && !joined; i++)
    PETRA_TRY(keep_output(c, &c->step[i], c->step_node[i], node.id));
  c->step_count = joined ? c->step_count : 0;
  return PETRA_OK;
}

/* --- the observer --- */

static petra_status check(const petra_chakra_options *options) {
  const petra_program_options *program = options->program_options;
  const int64_t tags = 2 * (int64_t)program->stages * program->microbatches;
  if (options->program->locked)
    return petra_fail(PETRA_SCHEDULE,
                      "--chakra: in program %s a round waits for the whole network, which the nodes of a device cannot "
                      "express; expected a method with another program",
                      options->program->name);
  if (tags > INT32_MAX)
    return petra_fail(PETRA_SCHEDULE,
                      "--chakra: %lld messages; the format has %d tags for them; expected fewer microbatches",
                      (long long)tags, INT32_MAX);
  return PETRA_OK;
}

petra_status petra_chakra_observer_create(const petra_chakra_options *options, petra_observer **out) {
  static const petra_observer_ops ops = {.ended = ended};
  const int32_t devices = petra_program_devices(options->program_options);
  chakra *c;
  petra_status status;
  PETRA_TRY(check(options));
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  c->base.ops = &ops;
  c->options = *options;
  const size_t stages = (size_t)options->program_options->stages;
  PETRA_TRY_GOTO(status, petra_allocate(&c->readers, (size_t)devices, ENGINES * sizeof *c->readers), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&c->rest_ns, (size_t)devices, sizeof *c->rest_ns), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&c->unused, stages, USES * sizeof *c->unused), fail);
  for (int32_t i = 0; i < ENGINES * devices; i++)
    c->readers[i] = (reader){.last = {-1, -1}, .join = -1};
  PETRA_TRY_GOTO(status,
                 petra_chakra_files_create(options->directory, devices, options->method, options->overwrite, &c->files),
                 fail);
  *out = &c->base;
  return PETRA_OK;
fail:
  petra_chakra_observer_destroy(&c->base);
  return status;
}

petra_status petra_chakra_observer_finish(petra_observer *base) {
  return petra_chakra_files_finish(((chakra *)base)->files);
}

void petra_chakra_observer_destroy(petra_observer *base) {
  chakra *c = (chakra *)base;
  if (!c)
    return;
  petra_chakra_files_destroy(c->files);
  for (int64_t i = 0; c->unused && i < USES * (int64_t)c->options.program_options->stages; i++)
    petra_free(c->unused[i].list);
  petra_free(c->unused);
  petra_free(c->rest_ns);
  petra_free(c->readers);
  petra_free(c);
}
