/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/execution_probe.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/worker_stage.h"

static const size_t PARCEL_MAX = INT32_MAX - 4096; /* bytes; MPI counts to 2^31 - 1 */

/* A parcel of rank 0 to itself. */
typedef struct own_parcel {
  struct own_parcel *next;
  size_t bytes;
  unsigned char *data;
} own_parcel;

/* The way of a rank to rank 0, at either end. */
typedef struct way_of_rank {
  petra_way *way;  /* NULL: none */
  int64_t count;   /* parcels sent, or done with */
  int64_t charged; /* bytes of buffers in the probe's account */
} way_of_rank;

struct petra_execution_probe {
  const petra_network *network;
  petra_ranks *ranks;
  petra_account *account; /* the probe's, at rank 0 */
  petra_probe_tap *tap;
  petra_probe_replay *replay; /* rank 0 */
  petra_stage_observer *groups;
  int32_t *rank_of;          /* [replica][stage] */
  way_of_rank *ways;         /* by rank */
  own_parcel *first, **last; /* of rank 0, in order */
  own_parcel *room;          /* that is being written */
};

static const char awaited[] = "what the probe needs of a stage";

/* --- sending --- */

static petra_status own_room(petra_execution_probe *p, size_t bytes, void **buffer) {
  own_parcel *parcel;
  PETRA_TRY(petra_allocate(&parcel, 1, sizeof *parcel));
  petra_status status = petra_allocate_raw(&parcel->data, bytes, 1);
  if (status != PETRA_OK) {
    petra_free(parcel);
    return status;
  }
  parcel->bytes = bytes;
  p->room = parcel;
  *buffer = parcel->data;
  return PETRA_OK;
}

/* Rank 0 takes all that comes whatever it does, so that nobody waits for room there but for the two buffers of a way. */
static petra_status room(void *context, size_t bytes, void **buffer) {
  petra_execution_probe *p = context;
  return p->ranks->rank == 0 ? own_room(p, bytes, buffer)
                             : petra_way_buffer(p->ways[0].way, 0, "room for what the probe is sent", buffer);
}

static petra_status send(void *context, size_t bytes) {
  petra_execution_probe *p = context;
  if (p->ranks->rank > 0)
    return petra_way_send(p->ways[0].way, p->ways[0].count++, bytes);
  *p->last = p->room;
  p->last = &p->room->next;
  p->room = NULL;
  petra_account_add(p->account, PETRA_MEMORY_MESSAGES, (int64_t)bytes);
  return PETRA_OK;
}

/* --- receiving --- */

/* Counts the buffers that a way has by now. */
static void charge(petra_execution_probe *p, way_of_rank *from) {
  const int64_t held = petra_way_bytes(from->way);
  petra_account_add(p->account, PETRA_MEMORY_MESSAGES, held - from->charged);
  from->charged = held;
}

static petra_status peek(void *context, int rank, bool wait, const void **data, size_t *size) {
  petra_execution_probe *p = context;
  way_of_rank *from = &p->ways[rank];
  int64_t number;
  if (rank == 0) {
    *data = p->first ? p->first->data : NULL;
    *size = p->first ? p->first->bytes : 0;
    return *data || !wait ? PETRA_OK : petra_fail(PETRA_INTERNAL, "rank 0 waits for what its own stages tell a probe");
  }
  petra_status status = wait ? petra_way_take(from->way, from->count, awaited, data, size)
                             : petra_way_poll(from->way, &number, data, size);
  if (status == PETRA_OK && *data)
    charge(p, from);
  return status;
}

static petra_status drop_own(petra_execution_probe *p) {
  own_parcel *parcel = p->first;
  p->first = parcel->next;
  if (!p->first)
    p->last = &p->first;
  petra_account_add(p->account, PETRA_MEMORY_MESSAGES, -(int64_t)parcel->bytes);
  petra_free(parcel->data);
  petra_free(parcel);
  return PETRA_OK;
}

static petra_status finished(void *context, int rank) {
  petra_execution_probe *p = context;
  return rank == 0 ? drop_own(p) : petra_way_done(p->ways[rank].way, p->ways[rank].count++);
}

petra_status petra_execution_probe_hear(petra_execution_probe *p, bool wait) {
  return p->replay && petra_probe_replay_waits(p->replay) ? petra_probe_replay_advance(p->replay, wait) : PETRA_OK;
}

petra_status petra_execution_probe_pass(petra_execution_probe *p, const petra_action *actions, int count) {
  PETRA_TRY(petra_probe_tap_pass(p->tap, actions, count));
  return p->replay ? petra_probe_replay_pass(p->replay, actions, count) : PETRA_OK;
}

/* --- creation --- */

/* The largest parcel of a rank's stages. */
static petra_status capacity_of(const petra_execution_probe *p, int rank, size_t *out) {
  const petra_plan *plan = p->network->plan;
  const int places = p->network->placement->places;
  size_t element_bytes[PETRA_TENSOR_KINDS];
  *out = 0;
  for (int kind = 0; kind < PETRA_TENSOR_KINDS; kind++)
    element_bytes[kind] = (size_t)petra_plan_element_bytes(plan, (petra_tensor_kind)kind);
  for (int32_t j = 0; j < plan->stages; j++) {
    const int *first = &plan->partition.first[j];
    if (p->rank_of[j] != rank % places) /* all replicas have the same stages at a place */
      continue;
    const size_t maximum =
        petra_parcel_max(&plan->model, first[0], first[1], (int32_t)plan->config->data.batch, element_bytes);
    if (maximum > PARCEL_MAX)
      return petra_config_fail(plan->config, "probe.per_epoch",
                               "a probe needs %zu bytes of stage %d in one message; expected at most %zu with "
                               "run.mode: execute, a smaller batch",
                               maximum, j + 1, PARCEL_MAX);
    *out = maximum > *out ? maximum : *out;
  }
  return PETRA_OK;
}

static petra_status open_ways(petra_execution_probe *p, int way) {
  petra_carrier *carrier = p->ranks->carrier;
  size_t capacity;
  for (int r = 1; r < p->ranks->count && p->ranks->rank == 0; r++) {
    PETRA_TRY(capacity_of(p, r, &capacity));
    PETRA_TRY(petra_carrier_way_in(carrier, r, way, capacity, &p->ways[r].way));
  }
  if (p->ranks->rank == 0)
    return PETRA_OK;
  PETRA_TRY(capacity_of(p, p->ranks->rank, &capacity));
  return petra_carrier_way_out(carrier, 0, way, capacity, &p->ways[0].way);
}

petra_probe_tap_options petra_execution_probe_tap_of(const petra_plan *plan, petra_backend *backend,
                                                     petra_stages stages, int replica, petra_parcel_outlet outlet) {
  return (petra_probe_tap_options){.stages = stages,
                                   .replica = replica,
                                   .backend = backend,
                                   .partition = &plan->partition,
                                   .program = plan->method.program,
                                   .program_options = &plan->program,
                                   .per_epoch = plan->config->probe.per_epoch,
                                   .outlet = outlet};
}

petra_probe_replay_options petra_execution_probe_replay_of(const petra_plan *plan, petra_backend *backend,
                                                           const int32_t *rank_of, petra_parcel_inlet inlet) {
  return (petra_probe_replay_options){.backend = backend,
                                      .model = &plan->model,
                                      .partition = &plan->partition,
                                      .rule = petra_method_stage_rule(&plan->method, plan->inverts),
                                      .method = &plan->method,
                                      .program = plan->method.program,
                                      .program_options = &plan->program,
                                      .per_epoch = plan->config->probe.per_epoch,
                                      .replicas = (int)plan->config->cluster.replicas,
                                      .rank_of = rank_of,
                                      .inlet = inlet};
}

static petra_status create_ends(petra_execution_probe *p) {
  const petra_network *network = p->network;
  const petra_probe_tap_options tap =
      petra_execution_probe_tap_of(network->plan, network->backend, petra_network_stages(network), network->replica,
                                   (petra_parcel_outlet){p, room, send});
  const petra_probe_replay_options replay = petra_execution_probe_replay_of(network->plan, network->backend, p->rank_of,
                                                                            (petra_parcel_inlet){p, peek, finished});
  PETRA_TRY(petra_probe_tap_create(&tap, &p->tap));
  PETRA_OBSERVERS_ADD(petra_stage_observer, &p->groups, petra_probe_tap_groups(p->tap));
  if (p->ranks->rank > 0)
    return PETRA_OK;
  PETRA_TRY(petra_probe_replay_create(&replay, &p->replay));
  PETRA_OBSERVERS_ADD(petra_stage_observer, &p->groups, petra_probe_replay_groups(p->replay));
  return PETRA_OK;
}

static petra_status place(petra_execution_probe *p) {
  const petra_placement *placement = p->network->placement;
  const int32_t stages = p->network->plan->stages;
  PETRA_TRY(petra_allocate(&p->rank_of, (size_t)placement->replicas * (size_t)stages, sizeof *p->rank_of));
  for (int32_t i = 0; i < placement->replicas * stages; i++)
    p->rank_of[i] = petra_placement_rank(placement, i / stages, i % stages + 1);
  return PETRA_OK;
}

petra_status petra_execution_probe_create(const petra_network *network, int way, petra_execution_probe **out) {
  petra_execution_probe *p;
  petra_status status;
  PETRA_TRY(petra_allocate(&p, 1, sizeof *p));
  p->network = network;
  p->ranks = network->placement->ranks;
  p->last = &p->first;
  PETRA_TRY_GOTO(status, petra_allocate(&p->ways, (size_t)p->ranks->count, sizeof *p->ways), fail);
  PETRA_TRY_GOTO(status, place(p), fail);
  PETRA_TRY_GOTO(status, open_ways(p, way), fail);
  PETRA_TRY_GOTO(status, create_ends(p), fail);
  *out = p;
  return PETRA_OK;
fail:
  petra_execution_probe_destroy(p);
  return status;
}

void petra_execution_probe_destroy(petra_execution_probe *p) {
  if (!p)
    return;
  petra_probe_tap_destroy(p->tap);
  petra_probe_replay_destroy(p->replay);
  while (p->first)
    drop_own(p);
  if (p->room)
    petra_free(p->room->data);
  petra_free(p->room);
  petra_free(p->rank_of);
  petra_free(p->ways);
  petra_free(p);
}

petra_probe_source *petra_execution_probe_source(petra_execution_probe *p) {
  return p->replay ? petra_probe_replay_source(p->replay) : NULL;
}

void petra_execution_probe_attach(petra_execution_probe *p, petra_probe *to) {
  p->account = petra_probe_account(to);
  petra_probe_replay_set_probe(p->replay, to);
}

petra_stage_observer *petra_execution_probe_observer(petra_execution_probe *p) {
  return petra_probe_tap_observer(p->tap);
}

petra_stage_observer *petra_execution_probe_groups(petra_execution_probe *p) {
  return p->groups;
}
