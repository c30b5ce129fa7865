/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static const int64_t STUCK_NS = 5000000000; /* between cancelling the device's work and ending the run */

/* --- from device to device by MPI ---
 * The MPI library reads the memory of the devices (CUDA-aware MPI). The host waits until a tensor to send is computed,
 * and until a received tensor has arrived, but it copies nothing. The number of a connection encodes the other rank,
 * and the direction. */

/* A tensor on its way, with a reference. */
struct petra_parcel {
  petra_tensor *tensor;
  bool sends;
  int request;
};

static void drop(petra_execution *e, int64_t i) {
  petra_tensor_release(&e->links.parcels[i].tensor);
  e->links.parcels[i] = e->links.parcels[--e->links.parcel_count];
}

/* Releases tensors that have been sent. */
static void drop_sent(petra_execution *e) {
  for (int64_t i = e->links.parcel_count - 1; i >= 0; i--)
    if (e->links.parcels[i].sends && petra_progress_thread_over(e->ranks->progress, &e->links.parcels[i].request))
      drop(e, i);
}

static petra_status begin(petra_execution *e, int connection, petra_tensor *tensor) {
  const bool sends = connection % 2;
  PETRA_TRY(e->backend->ops->settle(e->backend, tensor, !sends));
  PETRA_TRY(petra_array_reserve(&e->links.parcels, &e->links.parcel_capacity, e->links.parcel_count + 1,
                                sizeof *e->links.parcels));
  struct petra_parcel *out = &e->links.parcels[e->links.parcel_count];
  *out = (struct petra_parcel){.sends = sends, .request = PETRA_WIRE_NONE};
  PETRA_TRY(petra_progress_thread_begin(e->ranks->progress, connection / 2, e->links.id, sends, tensor->data,
                                        tensor->bytes, &out->request));
  out->tensor = petra_tensor_retain(tensor);
  e->links.parcel_count++;
  return PETRA_OK;
}

/* Begins to receive first: a receive waits for no work that this group sends. */
static petra_status exchange_by_mpi(petra_execution *e, const petra_peer_operation *operations, int count) {
  drop_sent(e);
  for (int sends = 0; sends < 2; sends++)
    for (int i = 0; i < count; i++)
      if (operations[i].lane % 2 == sends)
        PETRA_TRY(begin(e, operations[i].lane, operations[i].tensor));
  return PETRA_OK;
}

petra_status petra_rank_links_exchange(petra_execution *e, const petra_peer_operation *operations, int count) {
  return e->links.kind == PETRA_LINKS_MPI_DEVICES ? exchange_by_mpi(e, operations, count)
                                                  : e->backend->peers->exchange(e->backend, operations, count);
}

petra_status petra_rank_links_await(petra_execution *e, petra_tensor *tensor, const char *what) {
  for (int64_t i = 0; i < e->links.parcel_count; i++)
    if (e->links.parcels[i].tensor == tensor && !e->links.parcels[i].sends) {
      PETRA_TRY(petra_progress_thread_await(e->ranks->progress, &e->links.parcels[i].request, what));
      drop(e, i);
      return PETRA_OK;
    }
  return PETRA_OK; /* it arrived before */
}

/* Also waits for the receives of messages that the run never took. */
petra_status petra_rank_links_drain(petra_execution *e) {
  while (e->links.parcel_count > 0) {
    PETRA_TRY(petra_progress_thread_await(e->ranks->progress, &e->links.parcels[e->links.parcel_count - 1].request,
                                          "messages at the end of the run"));
    drop(e, e->links.parcel_count - 1);
  }
  return PETRA_OK;
}

/* --- all links --- */

/* The report of a rank to rank 0. */
typedef struct report {
  char name[128];   /* "rank 1 (host)" */
  char device[128]; /* differs from the text of any other rank with another device */
  char why_not[96]; /* why it has no NCCL; "" if it has */
  int32_t wire;     /* MPI reads the memory of its device */
} report;

/* The decision of rank 0. */
typedef struct verdict {
  int32_t status, kind;
} verdict;

static petra_status describe(const petra_execution *e, report *out) {
  const petra_backend *backend = e->backend;
  char host[64], device[48] = "";
  *out = (report){0};
  snprintf(out->name, sizeof out->name, "%s", e->ranks->name);
  out->wire = e->ranks->wire->cuda && backend->ops->settle;
  if (!backend->peers) {
    snprintf(out->why_not, sizeof out->why_not, "%s",
             strcmp(backend->ops->name, "cuda") == 0 ? "was built without NCCL"
                                                     : "computes on the processor, not with device.backend: cuda");
    return PETRA_OK;
  }
  petra_ranks_host_id(e->ranks, host, sizeof host);
  PETRA_TRY(backend->peers->device(backend, device, sizeof device));
  snprintf(out->device, sizeof out->device, "%s of %s", device, host);
  return PETRA_OK;
}

/* --- rank 0 chooses --- */

typedef struct choice {
  report *reports;
  char why_not[400]; /* why NCCL is not possible; "": it is */
  bool wire;         /* MPI reads the memory of all devices */
} choice;

static petra_status take_report(void *context, int rank, const void *data, size_t size) {
  choice *c = context;
  report *mine = &c->reports[rank];
  memcpy(mine, data, size);
  c->wire = mine->wire && (rank == 0 || c->wire);
  for (int r = 0; r < rank && !*c->why_not && !*mine->why_not; r++)
    if (strcmp(c->reports[r].device, mine->device) == 0)
      snprintf(c->why_not, sizeof c->why_not, "%s and %s have one GPU, %.*s", c->reports[r].name, mine->name,
               (int)strcspn(mine->device, " "), mine->device);
  if (*mine->why_not && !*c->why_not)
    snprintf(c->why_not, sizeof c->why_not, "%s %s", mine->name, mine->why_not);
  return PETRA_OK;
}

static verdict decide(const petra_plan *plan, choice *c) {
  const petra_config *config = plan->config;
  const petra_transport_choice wanted = config->cluster.transport;
  if (plan->method.program->arrival) {
    c->wire = false;
    snprintf(c->why_not, sizeof c->why_not, "%s runs actions as messages arrive, and no schedule gives them in advance",
             plan->method.name);
  }
  const bool can = !*c->why_not;
  if (wanted == PETRA_TRANSPORT_NCCL && !can)
    return (verdict){petra_config_fail(config, "cluster.transport",
                                       "%s; expected a GPU of its own for every process and a petra with NCCL, or mpi",
                                       c->why_not),
                     PETRA_LINKS_HOSTS};
  if (can && wanted != PETRA_TRANSPORT_MPI)
    return (verdict){PETRA_OK, PETRA_LINKS_NCCL};
  return (verdict){PETRA_OK, c->wire ? PETRA_LINKS_MPI_DEVICES : PETRA_LINKS_HOSTS};
}

static petra_status choose(petra_execution *e) {
  petra_ranks *ranks = e->ranks;
  PETRA_FREED report *reports = NULL;
  report mine;
  verdict v = {describe(e, &mine), false};
  PETRA_TRY(petra_ranks_agree(ranks, (petra_status)v.status, NULL));
  PETRA_TRY(petra_allocate(&reports, (size_t)ranks->count, sizeof *reports));
  choice c = {.reports = reports};
  PETRA_TRY(petra_ranks_gather(ranks, &mine, sizeof mine, take_report, &c));
  if (ranks->rank == 0)
    v = decide(e->plan, &c);
  PETRA_TRY(petra_ranks_share(ranks, &v, sizeof v));
  ranks->agreed = v.status != PETRA_OK; /* rank 0 has reported it, and all end together */
  e->links.kind = ranks->count > 1 ? (petra_link_kind)v.kind : PETRA_LINKS_HOSTS;
  return (petra_status)v.status;
}

/* --- connecting --- */

static petra_status wait_connected(petra_execution *e, int connection, int other) {
  const int64_t until_ns = petra_clock_ns() + (int64_t)(1e9 * e->ranks->timeout_s);
  for (bool is = false; !is;) {
    PETRA_TRY(e->backend->peers->connected(e->backend, connection, &is));
    if (!is && petra_clock_ns() > until_ns)
      return petra_fail(PETRA_CHILD, "no connection to rank %d by %s within %g s", other, e->links.name,
                        e->ranks->timeout_s);
    sched_yield();
  }
  return PETRA_OK;
}

/* Connects one direction between this rank and another one; both call this at the same time. */
static petra_status connect_direction(petra_execution *e, int connection, int other, bool sends) {
  petra_backend *backend = e->backend;
  unsigned char id[PETRA_PEER_ID_BYTES];
  if (connection >= PETRA_PEER_LANES)
    return petra_fail(PETRA_INTERNAL, "more than %d directions to and from neighbours", PETRA_PEER_LANES);
  if (sends) {
    PETRA_TRY(backend->peers->make_id(id));
    PETRA_TRY(petra_progress_thread_put(e->ranks->progress, other, id, sizeof id));
  } else {
    PETRA_TRY(petra_progress_thread_get(e->ranks->progress, other, id, sizeof id));
  }
  PETRA_TRY(backend->peers->connect(backend, connection, id, sends));
  e->links.connections[sends][other] = connection;
  return wait_connected(e, connection, other);
}

/* Returns true if a stage of rank `from` is a neighbour of a stage of rank `to`. */
static bool neighbours(const petra_placement *placement, const petra_plan *plan, int from, int to) {
  for (int j = 1; j < plan->stages; j++)
    if ((placement->rank_of[j - 1] == from && placement->rank_of[j] == to) ||
        (placement->rank_of[j - 1] == to && placement->rank_of[j] == from))
      return true;
  return false;
}

/* Connects all directions in one order: both ends of the first direction that is not connected wait for it. */
static petra_status connect_all(petra_execution *e) {
  const int here = e->ranks->rank;
  int connection = 0;
  for (int from = 0; from < e->ranks->count; from++)
    for (int to = 0; to < e->ranks->count; to++) {
      if (from == to || (from != here && to != here) || !neighbours(e->placement, e->plan, from, to))
        continue;
      PETRA_TRY(connect_direction(e, connection++, from == here ? to : from, from == here));
    }
  return PETRA_OK;
}

/* Sends a small message on every connection. The library then does its preparations for a first message, and no rank
 * waits for them later. */
static petra_status try_connections(petra_execution *e) {
  petra_backend *backend = e->backend;
  petra_peer_operation operations[PETRA_PEER_LANES];
  petra_tensor *tensors[PETRA_PEER_LANES] = {NULL};
  const int32_t shape[4] = {1, 1, 1, 1};
  petra_status status = PETRA_OK;
  int count = 0;
  for (int r = 0; r < e->ranks->count; r++)
    for (int sends = 0; sends < 2; sends++)
      if (e->links.connections[sends][r] >= 0)
        operations[count++].lane = e->links.connections[sends][r];
  for (int i = 0; i < count && status == PETRA_OK; i++) {
    status = petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, shape, NULL, PETRA_MEMORY_WORKSPACE, &tensors[i]);
    operations[i].tensor = tensors[i];
  }
  if (status == PETRA_OK)
    status = backend->peers->exchange(backend, operations, count);
  if (status == PETRA_OK)
    status = petra_backend_synchronize(backend);
  for (int i = 0; i < count; i++)
    petra_tensor_release(&tensors[i]);
  return status;
}

/* --- functions that the progress thread calls --- */

static petra_status look(void *context) {
  const petra_execution *e = context;
  return e->backend->peers->check(e->backend);
}

static void give_up(void *context) {
  const petra_execution *e = context;
  e->backend->peers->give_up(e->backend);
}

static void stuck(void *context, petra_status status) {
  const petra_execution *e = context;
  petra_ranks_end_all(e->ranks, status);
}

/* With MPI every rank is a neighbour, and the number of a connection encodes rank and direction as `begin` reads
 * them. */
static petra_status allocate_connections(petra_execution *e) {
  for (int sends = 0; sends < 2; sends++) {
    PETRA_TRY(petra_allocate(&e->links.connections[sends], (size_t)e->ranks->count, sizeof(int32_t)));
    for (int r = 0; r < e->ranks->count; r++)
      e->links.connections[sends][r] = e->links.kind == PETRA_LINKS_MPI_DEVICES ? 2 * r + sends : -1;
  }
  return PETRA_OK;
}

static petra_status bind(void *context) {
  const petra_execution *e = context;
  return e->backend->ops->bind(e->backend);
}

/* MPI may copy from and to the device whenever it is called, and the progress thread calls it too. NCCL ends its work
 * in that thread. Without this call the thread would have no device, or device 0. */
static petra_status bind_progress_thread(petra_execution *e) {
  return e->backend->ops->bind ? petra_progress_thread_call(e->ranks->progress, bind, e) : PETRA_OK;
}

/* MPI is connected already. */
static petra_status open_wire(petra_execution *e) {
  const int channels = petra_progress_thread_channels(e->ranks->progress);
  snprintf(e->links.name, sizeof e->links.name, "MPI, from device to device");
  e->links.id = petra_channel_id(e->plan->stages, PETRA_CHANNEL_LINKS);
  PETRA_TRY(bind_progress_thread(e));
  PETRA_TRY(allocate_connections(e));
  return e->links.id < channels
             ? PETRA_OK
             : petra_fail(PETRA_UNSUPPORTED, "channel %d between ranks, but this MPI library has tags for %d",
                          e->links.id, channels);
}

static petra_status open_connections(petra_execution *e) {
  const petra_progress_thread_watch watch = {.look = look,
                                             .give_up = give_up,
                                             .stuck = stuck,
                                             .stuck_ns = STUCK_NS,
                                             .what = "what its GPU does",
                                             .context = e};
  e->backend->peers->describe(e->backend, e->links.name, sizeof e->links.name);
  PETRA_TRY(bind_progress_thread(e));
  PETRA_TRY(allocate_connections(e));
  petra_progress_thread_watch_set(e->ranks->progress, &watch);
  PETRA_TRY(connect_all(e));
  return try_connections(e);
}

/* Warns if the profile was measured on another number of hosts. */
static petra_status check_hosts(petra_execution *e) {
  const petra_profile *profile = e->plan->profile;
  int32_t hosts;
  if (!profile)
    return PETRA_OK;
  PETRA_TRY(petra_ranks_hosts(e->ranks, &hosts));
  if (profile->hosts > 0 && profile->hosts != hosts)
    petra_log(PETRA_LOG_WARNING,
              "%s: was measured on %d host%s, but this run uses %d: its predictions assume other messages and another "
              "sharing of memory; expected a profile of as many hosts",
              e->plan->config->cluster.cost.profile, (int)profile->hosts, profile->hosts == 1 ? "" : "s", (int)hosts);
  return PETRA_OK;
}

petra_status petra_execution_connect(petra_execution *e, const petra_network *network) {
  e->backend = network->backend;
  PETRA_TRY(check_hosts(e));
  snprintf(e->links.name, sizeof e->links.name, "%s",
           strcmp(e->backend->ops->name, "cuda") == 0 ? "MPI, through host memory" : "MPI");
  PETRA_TRY(choose(e));
  if (e->links.kind == PETRA_LINKS_HOSTS)
    return PETRA_OK;
  return petra_ranks_agree(e->ranks, e->links.kind == PETRA_LINKS_NCCL ? open_connections(e) : open_wire(e), NULL);
}

const char *petra_execution_link_name(const petra_execution *e) {
  return e->links.name;
}

petra_status petra_rank_links_close(petra_execution *e) {
  if (e->links.kind == PETRA_LINKS_MPI_DEVICES)
    return petra_rank_links_drain(e);
  if (e->links.kind == PETRA_LINKS_HOSTS)
    return PETRA_OK;
  PETRA_TRY(petra_backend_synchronize(e->backend));
  PETRA_TRY(petra_ranks_agree(e->ranks, PETRA_OK, NULL)); /* no rank closes a connection that another rank still uses */
  petra_status status = e->backend->peers->close(e->backend);
  petra_progress_thread_watch_set(e->ranks->progress, NULL);
  e->links.kind = PETRA_LINKS_HOSTS;
  return status;
}

void petra_rank_links_fini(petra_execution *e) {
  while (e->links.parcel_count > 0) {
    struct petra_parcel *last = &e->links.parcels[e->links.parcel_count - 1];
    if (!last->sends)
      petra_progress_thread_cancel(e->ranks->progress, &last->request);
    drop(e, e->links.parcel_count - 1);
  }
  petra_free(e->links.parcels);
  if (e->links.kind == PETRA_LINKS_NCCL) {
    petra_progress_thread_watch_set(e->ranks->progress, NULL);
    e->backend->peers->give_up(e->backend);
  }
  PETRA_FREE_ALL(e->links.connections[0], e->links.connections[1]);
  e->links = (petra_rank_links){0};
}
