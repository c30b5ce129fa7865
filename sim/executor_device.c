/* SPDX-License-Identifier: Apache-2.0 */
/* Programs with an order: how a device reads it, the rules by which an action waits (schedule/program.h), and what a
 * stage exchanges with its replicas before an update. */
#include "base/log.h"
#include "base/mem.h"
#include "sim/executor_virtual_private.h" /* circle: the devices are parts of the executor that they query */

#include <stdlib.h>

void petra_device_read(const petra_executor_virtual *executor, int32_t device, int engine, petra_engine *reader) {
  petra_counters *counters = &reader->reading;
  petra_action action;
  int64_t round;
  bool joined = false;
  reader->waiting = false;
  while (petra_program_next(executor->program, executor->options, device + 1, &reader->cursor, &action, &round)) {
    if (round != reader->round) {
      reader->round = round;
      counters->round_start = counters->order;
    }
    bool ours = petra_engine_of(executor, action.kind) == engine;
    if (ours && !joined) {
      reader->next.before = *counters;
      reader->next.count = 0;
    }
    if (ours)
      reader->next.action[reader->next.count++] = action;
    reader->waiting |= ours;
    joined = reader->cursor.joined && executor->settings.engines == 1;
    counters->order++;
    if (action.kind == PETRA_ACTION_UPDATE)
      counters->updates_before++;
    else if (action.kind != PETRA_ACTION_EVALUATE)
      counters->passes_before++;
    if (ours && !joined)
      return;
  }
}

/* Returns true if the messages of the action have arrived. A stage's own passes come in the order of its device and
 * need no check. */
static bool fed(const petra_executor_virtual *executor, const petra_action *action) {
  int32_t stage = action->stage;
  if (action->kind == PETRA_ACTION_FORWARD ||
      (action->kind == PETRA_ACTION_BACKWARD && petra_program_fused(executor->options, stage)))
    return stage == 1 || petra_microbatch_set_has(&executor->forward[stage - 1], action->microbatch);
  /* The loss of a split head counts as a message: with two engines its F may still run. */
  if (action->kind == PETRA_ACTION_BACKWARD)
    return petra_microbatch_set_has(&executor->backward[stage - 1], action->microbatch);
  return true;
}

bool petra_device_ready(const petra_executor_virtual *executor, const petra_device *device, const petra_step *step) {
  if (device->done < step->before.round_start)
    return false;
  for (int i = 0; i < step->count; i++)
    if (!fed(executor, &step->action[i]))
      return false;
  switch (step->action[0].kind) {
  case PETRA_ACTION_FORWARD:
  case PETRA_ACTION_BACKWARD:
  case PETRA_ACTION_WEIGHT_GRADIENT:
    return device->updates >= step->before.updates_before;
  case PETRA_ACTION_UPDATE:
    return device->passes >= step->before.passes_before && petra_exchange_done(executor, step->action[0].stage);
  case PETRA_ACTION_EVALUATE:
    return device->done >= step->before.order;
  case PETRA_ACTION_KINDS:
    break;
  }
  return false;
}

/* --- replicas --- */

petra_status petra_exchange_count(petra_executor_virtual *executor, const petra_action *ended) {
  const petra_action_kind completes =
      executor->settings.rule.split_backward ? PETRA_ACTION_WEIGHT_GRADIENT : PETRA_ACTION_BACKWARD;
  petra_exchange *exchange = &executor->exchanges[ended->stage - 1];
  if (ended->kind == PETRA_ACTION_UPDATE)
    *exchange = (petra_exchange){0};
  if (ended->kind != completes)
    return PETRA_OK;
  if (exchange->gradients == executor->options->accumulate)
    return petra_fail(PETRA_SCHEDULE,
                      "stage %d: more than %lld gradients without an update; with cluster.replicas an update takes "
                      "exactly method.accumulate gradients",
                      ended->stage, (long long)exchange->gradients);
  if (++exchange->gradients < executor->options->accumulate)
    return PETRA_OK;
  const petra_packet packet = {.stage = ended->stage, .exchange = true, .microbatch = ended->microbatch};
  const int32_t device = petra_program_device(executor->options, ended->stage) - 1;
  const petra_stage_cost *cost = petra_executor_virtual_cost(&executor->settings, ended->stage);
  PETRA_TRY(petra_fabric_exchange(executor->fabric, executor->now_ns, device,
                                  petra_cost_exchange_bytes(executor->settings.replicas, cost->gradient_bytes), &packet,
                                  &exchange->done));
  if (!exchange->done)
    PETRA_NOTIFY(petra_observer, executor->observers, sent, observer, ended->stage, &packet, executor->now_ns);
  return PETRA_OK;
}

/* --- hosts --- */

/* Hosts issue the actions of devices, one at a time. An action of an ordered program starts when it has been issued and
 * nothing else delays it; E is not issued. Hosts serve requests in their order, and requests of one moment in the
 * order of devices and engines: start_ready passes them on whenever everything else at this moment is done, except the
 * ends of actions of length zero; requests after such an end come later. */

typedef struct lane {
  petra_engine reader;     /* positioned at the next action to be issued */
  int64_t issued, started; /* actions of the engine in their order, including E */
  int64_t evaluations;     /* E among the actions that are issued and not started; an E takes no room */
  bool requested;          /* the lane is in the queue of its host, or its action is being issued */
} lane;

typedef struct host {
  int32_t *line; /* a ring of lanes */
  int32_t first, waiting;
  bool busy;
  int64_t busy_ns;
} host;

struct petra_hosts {
  int engines;
  int32_t count, host_lanes; /* number of hosts; number of lanes per host */
  lane *lanes;               /* the lanes, device by device */
  host *hosts;
  int32_t *lines;                    /* the lines of all hosts */
  int64_t (*ns)[PETRA_ACTION_KINDS]; /* per stage: time for the kernels of an action; NULL: 0 */
  int32_t *asking, asking_count;     /* lanes with requests of this moment */
};

static host *host_of(const petra_executor_virtual *executor, int32_t index) {
  return &executor->hosts->hosts[index / executor->hosts->host_lanes];
}

static void advance(petra_executor_virtual *executor, int32_t index) {
  lane *l = &executor->hosts->lanes[index];
  const int engines = executor->hosts->engines;
  petra_device_read(executor, index / engines, index % engines, &l->reader);
  while (l->reader.waiting && l->reader.next.action[0].kind == PETRA_ACTION_EVALUATE) {
    l->issued++;
    l->evaluations++;
    petra_device_read(executor, index / engines, index % engines, &l->reader);
  }
}

static void ask(petra_hosts *hosts, int32_t index) {
  lane *l = &hosts->lanes[index];
  if (l->requested || !l->reader.waiting)
    return;
  l->requested = true;
  hosts->asking[hosts->asking_count++] = index;
}

/* If cluster.host.ahead is set: requests an action as soon as there is room. */
static void request_ahead(petra_executor_virtual *executor, int32_t index) {
  const lane *l = &executor->hosts->lanes[index];
  if (l->issued - l->started - l->evaluations < executor->settings.host.ahead)
    ask(executor->hosts, index);
}

bool petra_host_may_start(petra_executor_virtual *executor, int32_t device, int engine) {
  const int32_t index = device * executor->hosts->engines + engine;
  const lane *l = &executor->hosts->lanes[index];
  if (l->issued > l->started)
    return true;
  ask(executor->hosts, index);
  return false;
}

void petra_host_started(petra_executor_virtual *executor, int32_t device, int engine, petra_action_kind kind) {
  const int32_t index = device * executor->hosts->engines + engine;
  lane *l = &executor->hosts->lanes[index];
  l->started++;
  l->evaluations -= kind == PETRA_ACTION_EVALUATE;
  request_ahead(executor, index);
}

static int64_t issue_ns(const petra_executor_virtual *executor, const petra_step *step) {
  const petra_hosts *hosts = executor->hosts;
  int64_t ns = step->count * executor->settings.host.action_ns;
  for (int i = 0; i < step->count && hosts->ns; i++)
    ns += hosts->ns[step->action[i].stage - 1][step->action[i].kind];
  return ns;
}

static petra_status serve(petra_executor_virtual *executor, host *h) {
  if (h->busy || h->waiting == 0)
    return PETRA_OK;
  const int32_t index = h->line[h->first];
  const int64_t ns = issue_ns(executor, &executor->hosts->lanes[index].reader.next);
  h->first = (h->first + 1) % executor->hosts->host_lanes;
  h->waiting--;
  h->busy = true;
  h->busy_ns += ns;
  const petra_event event = {.time_ns = executor->now_ns + ns, .priority = 2, .kind = PETRA_EVENT_HOST, .stage = index};
  return petra_event_queue_push(executor->events, &event);
}

static int by_number(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

petra_status petra_hosts_serve(petra_executor_virtual *executor) {
  petra_hosts *hosts = executor->hosts;
  qsort(hosts->asking, (size_t)hosts->asking_count, sizeof *hosts->asking, by_number);
  for (int32_t i = 0; i < hosts->asking_count; i++) {
    host *h = host_of(executor, hosts->asking[i]);
    h->line[(h->first + h->waiting++) % hosts->host_lanes] = hosts->asking[i];
  }
  for (int32_t i = 0; i < hosts->asking_count; i++)
    PETRA_TRY(serve(executor, host_of(executor, hosts->asking[i])));
  hosts->asking_count = 0;
  return PETRA_OK;
}

petra_status petra_host_issued(petra_executor_virtual *executor, int32_t index) {
  lane *l = &executor->hosts->lanes[index];
  host *h = host_of(executor, index);
  l->issued++;
  l->requested = false;
  h->busy = false;
  advance(executor, index);
  request_ahead(executor, index);
  return serve(executor, h);
}

petra_status petra_hosts_create(petra_executor_virtual *executor) {
  petra_hosts *hosts;
  const int32_t devices = executor->devices, each = executor->settings.host.devices;
  const int32_t shared = each < devices ? each : devices;
  PETRA_TRY(petra_allocate(&hosts, 1, sizeof *hosts));
  executor->hosts = hosts;
  hosts->engines = executor->settings.engines;
  hosts->count = (devices + shared - 1) / shared;
  hosts->host_lanes = shared * hosts->engines;
  const size_t lanes = (size_t)devices * (size_t)hosts->engines;
  PETRA_TRY(petra_allocate(&hosts->lanes, lanes, sizeof *hosts->lanes));
  PETRA_TRY(petra_allocate(&hosts->asking, lanes, sizeof *hosts->asking));
  PETRA_TRY(petra_allocate(&hosts->hosts, (size_t)hosts->count, sizeof *hosts->hosts));
  PETRA_TRY(petra_allocate(&hosts->lines, (size_t)hosts->count * (size_t)hosts->host_lanes, sizeof *hosts->lines));
  if (executor->settings.host.costs)
    PETRA_TRY(petra_cost_all_durations(executor->settings.host.costs, executor->options->stages,
                                       &executor->settings.rule, executor->options->stages, &hosts->ns));
  for (int32_t h = 0; h < hosts->count; h++)
    hosts->hosts[h].line = &hosts->lines[(size_t)h * (size_t)hosts->host_lanes];
  for (size_t l = 0; l < lanes; l++) {
    advance(executor, (int32_t)l);
    request_ahead(executor, (int32_t)l);
  }
  return PETRA_OK;
}

int64_t petra_hosts_busy_ns(const petra_hosts *hosts) {
  int64_t maximum = 0;
  for (int32_t h = 0; h < hosts->count; h++)
    maximum = hosts->hosts[h].busy_ns > maximum ? hosts->hosts[h].busy_ns : maximum;
  return maximum;
}

void petra_hosts_destroy(petra_hosts *hosts) {
  if (!hosts)
    return;
  PETRA_FREE_ALL(hosts->ns, hosts->lines, hosts->hosts, hosts->asking, hosts->lanes, hosts);
}

void petra_hosts_state(petra_executor_virtual *executor, petra_cycle *cycle) {
  petra_hosts *hosts = executor->hosts;
  for (int32_t i = 0; i < hosts->count * hosts->host_lanes && i < executor->devices * hosts->engines; i++) {
    const lane *l = &hosts->lanes[i];
    petra_cycle_value(cycle, l->issued - l->started);
    petra_cycle_value(cycle, l->evaluations);
    petra_cycle_value(cycle, l->requested);
    petra_engine_state(executor, &l->reader, i / hosts->engines, cycle);
  }
  for (int32_t i = 0; i < hosts->count; i++) {
    host *h = &hosts->hosts[i];
    petra_cycle_value(cycle, h->busy);
    petra_cycle_value(cycle, h->waiting);
    for (int32_t w = 0; w < h->waiting; w++)
      petra_cycle_value(cycle, h->line[(h->first + w) % hosts->host_lanes]);
    petra_cycle_total(cycle, h->busy_ns, &h->busy_ns);
  }
}
