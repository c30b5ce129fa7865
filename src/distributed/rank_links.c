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
 * and until a received one has arrived, but it copies nothing. The number of a connection encodes the other rank, and
 * the direction. */

/* A tensor on its way, with a reference. */
struct petra_parcel {
  petra_tensor *tensor;
  bool sends;
  int request;
};

static void drop(petra_rank_links *links, int64_t i) {
  petra_tensor_release(&links->parcels[i].tensor);
  links->parcels[i] = links->parcels[--links->parcel_count];
}

/* Releases tensors that have been sent. */
static void drop_sent(petra_rank_links *links) {
  for (int64_t i = links->parcel_count - 1; i >= 0; i--)
    if (links->parcels[i].sends && petra_progress_thread_over(links->ranks->progress, &links->parcels[i].request))
      drop(links, i);
}

static petra_status begin(petra_rank_links *links, int connection, petra_tensor *tensor) {
  const bool sends = connection % 2;
  PETRA_TRY(links->backend->ops->settle(links->backend, tensor, !sends));
  PETRA_TRY(
      petra_array_reserve(&links->parcels, &links->parcel_capacity, links->parcel_count + 1, sizeof *links->parcels));
  struct petra_parcel *out = &links->parcels[links->parcel_count];
  *out = (struct petra_parcel){.sends = sends, .request = PETRA_WIRE_NONE};
  PETRA_TRY(petra_progress_thread_begin(links->ranks->progress, connection / 2, links->id, sends, tensor->data,
                                        tensor->bytes, &out->request));
  out->tensor = petra_tensor_retain(tensor);
  links->parcel_count++;
  return PETRA_OK;
}

/* Begins to receive first: a receive waits for no work that this group sends. */
static petra_status exchange_by_mpi(petra_rank_links *links, const petra_peer_operation *operations, int count) {
  drop_sent(links);
  for (int sends = 0; sends < 2; sends++)
    for (int i = 0; i < count; i++)
      if (operations[i].lane % 2 == sends)
        PETRA_TRY(begin(links, operations[i].lane, operations[i].tensor));
  return PETRA_OK;
}

petra_status petra_rank_links_exchange(petra_rank_links *links, const petra_peer_operation *operations, int count) {
  return links->kind == PETRA_LINKS_MPI_DEVICES ? exchange_by_mpi(links, operations, count)
                                                : links->backend->peers->exchange(links->backend, operations, count);
}

petra_status petra_rank_links_await(petra_rank_links *links, petra_tensor *tensor, const char *what) {
  for (int64_t i = 0; i < links->parcel_count; i++)
    if (links->parcels[i].tensor == tensor && !links->parcels[i].sends) {
      PETRA_TRY(petra_progress_thread_await(links->ranks->progress, &links->parcels[i].request, what));
      drop(links, i);
      return PETRA_OK;
    }
  return PETRA_OK; /* it arrived before */
}

/* Also waits for receives of messages that the run ended without taking. */
petra_status petra_rank_links_drain(petra_rank_links *links) {
  while (links->parcel_count > 0) {
    PETRA_TRY(petra_progress_thread_await(links->ranks->progress, &links->parcels[links->parcel_count - 1].request,
                                          "messages at the end of the run"));
    drop(links, links->parcel_count - 1);
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

static petra_status describe(const petra_rank_links *links, report *out) {
  const petra_backend *backend = links->backend;
  char host[64], device[48] = "";
  *out = (report){0};
  snprintf(out->name, sizeof out->name, "%s", links->ranks->name);
  out->wire = links->ranks->wire->cuda && backend->ops->settle;
  if (!backend->peers) {
    snprintf(out->why_not, sizeof out->why_not, "%s",
             strcmp(backend->ops->name, "cuda") == 0 ? "was built without NCCL"
                                                     : "computes on the processor, not with device.backend: cuda");
    return PETRA_OK;
  }
  petra_ranks_host_id(links->ranks, host, sizeof host);
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

static petra_status choose(petra_rank_links *links, const petra_plan *plan) {
  petra_ranks *ranks = links->ranks;
  choice c = {0};
  report mine;
  verdict v = {describe(links, &mine), false};
  PETRA_TRY(petra_ranks_agree(ranks, (petra_status)v.status, NULL));
  PETRA_TRY(petra_allocate(&c.reports, (size_t)ranks->count, sizeof *c.reports));
  petra_status status = petra_ranks_gather(ranks, &mine, sizeof mine, take_report, &c);
  if (status == PETRA_OK && ranks->rank == 0)
    v = decide(plan, &c);
  petra_free(c.reports);
  PETRA_TRY(status);
  PETRA_TRY(petra_ranks_share(ranks, &v, sizeof v));
  ranks->agreed = v.status != PETRA_OK; /* rank 0 has reported it, and all end together */
  links->kind = ranks->count > 1 ? (petra_link_kind)v.kind : PETRA_LINKS_HOSTS;
  return (petra_status)v.status;
}

/* --- connecting --- */

static petra_status wait_connected(petra_rank_links *links, int connection, int other) {
  const int64_t until_ns = petra_clock_ns() + (int64_t)(1e9 * links->ranks->timeout_s);
  for (bool is = false; !is;) {
    PETRA_TRY(links->backend->peers->connected(links->backend, connection, &is));
    if (!is && petra_clock_ns() > until_ns)
      return petra_fail(PETRA_CHILD, "no connection to rank %d by %s within %g s", other, links->name,
                        links->ranks->timeout_s);
    sched_yield();
  }
  return PETRA_OK;
}

/* Connects one direction between this rank and another one; both call this at the same time. */
static petra_status connect_direction(petra_rank_links *links, int connection, int other, bool sends) {
  petra_backend *backend = links->backend;
  unsigned char id[PETRA_PEER_ID_BYTES];
  if (connection >= PETRA_PEER_LANES)
    return petra_fail(PETRA_INTERNAL, "more than %d directions to and from neighbours", PETRA_PEER_LANES);
  if (sends) {
    PETRA_TRY(backend->peers->make_id(id));
    PETRA_TRY(petra_progress_thread_put(links->ranks->progress, other, id, sizeof id));
  } else {
    PETRA_TRY(petra_progress_thread_get(links->ranks->progress, other, id, sizeof id));
  }
  PETRA_TRY(backend->peers->connect(backend, connection, id, sends));
  (sends ? links->connection_out : links->connection_in)[other] = connection;
  return wait_connected(links, connection, other);
}

/* Returns true if a stage of rank `from` is a neighbour of one of rank `to`. */
static bool neighbours(const petra_placement *placement, const petra_plan *plan, int from, int to) {
  for (int j = 1; j < plan->stages; j++)
    if ((placement->rank_of[j - 1] == from && placement->rank_of[j] == to) ||
        (placement->rank_of[j - 1] == to && placement->rank_of[j] == from))
      return true;
  return false;
}

/* Connects all directions in one order: both ends of the first one that is not connected wait for it. */
static petra_status connect_all(petra_rank_links *links, const petra_placement *placement, const petra_plan *plan) {
  const int here = links->ranks->rank;
  int connection = 0;
  for (int from = 0; from < links->ranks->count; from++)
    for (int to = 0; to < links->ranks->count; to++) {
      if (from == to || (from != here && to != here) || !neighbours(placement, plan, from, to))
        continue;
      PETRA_TRY(connect_direction(links, connection++, from == here ? to : from, from == here));
    }
  return PETRA_OK;
}

/* Sends a small message on every connection. A library then sets up what it needs for the first message, and later
 * nobody waits for that. */
static petra_status try_connections(petra_rank_links *links) {
  petra_backend *backend = links->backend;
  petra_peer_operation operations[PETRA_PEER_LANES];
  petra_tensor *tensors[PETRA_PEER_LANES] = {NULL};
  const int32_t shape[4] = {1, 1, 1, 1};
  petra_status status = PETRA_OK;
  int count = 0;
  for (int r = 0; r < links->ranks->count; r++)
    for (int sends = 0; sends < 2; sends++)
      if ((sends ? links->connection_out : links->connection_in)[r] >= 0)
        operations[count++].lane = (sends ? links->connection_out : links->connection_in)[r];
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

/* --- what the progress thread does --- */

static petra_status look(void *context) {
  const petra_rank_links *links = context;
  return links->backend->peers->check(links->backend);
}

static void give_up(void *context) {
  const petra_rank_links *links = context;
  links->backend->peers->give_up(links->backend);
}

static void stuck(void *context, petra_status status) {
  const petra_rank_links *links = context;
  petra_ranks_end_all(links->ranks, status);
}

static petra_status allocate_connections(petra_rank_links *links) {
  const size_t count = (size_t)links->ranks->count;
  PETRA_TRY(petra_allocate(&links->connection_out, count, sizeof *links->connection_out));
  PETRA_TRY(petra_allocate(&links->connection_in, count, sizeof *links->connection_in));
  for (size_t r = 0; r < count; r++)
    links->connection_out[r] = links->connection_in[r] = -1;
  return PETRA_OK;
}

static petra_status bind(void *context) {
  const petra_rank_links *links = context;
  return links->backend->ops->bind(links->backend);
}

/* MPI may copy from and to the device whenever it is called, which the progress thread does too, and NCCL ends its work
 * there: without this call the thread would have no device, or device 0. */
static petra_status bind_progress_thread(petra_rank_links *links) {
  return links->backend->ops->bind ? petra_progress_thread_call(links->ranks->progress, bind, links) : PETRA_OK;
}

/* MPI is connected already. */
static petra_status open_wire(petra_rank_links *links, int id) {
  const int channels = petra_progress_thread_channels(links->ranks->progress);
  snprintf(links->name, sizeof links->name, "MPI, from device to device");
  links->id = id;
  PETRA_TRY(bind_progress_thread(links));
  PETRA_TRY(allocate_connections(links));
  for (int r = 0; r < links->ranks->count; r++) {
    links->connection_out[r] = 2 * r + 1;
    links->connection_in[r] = 2 * r;
  }
  return id < channels ? PETRA_OK
                       : petra_fail(PETRA_UNSUPPORTED, "channel %d between ranks, but this MPI library has tags for %d",
                                    id, channels);
}

static petra_status open_connections(petra_rank_links *links, const petra_placement *placement,
                                     const petra_plan *plan) {
  const petra_progress_thread_watch watch = {.look = look,
                                             .give_up = give_up,
                                             .stuck = stuck,
                                             .stuck_ns = STUCK_NS,
                                             .what = "what its GPU does",
                                             .context = links};
  links->backend->peers->describe(links->backend, links->name, sizeof links->name);
  PETRA_TRY(bind_progress_thread(links));
  PETRA_TRY(allocate_connections(links));
  petra_progress_thread_watch_set(links->ranks->progress, &watch);
  PETRA_TRY(connect_all(links, placement, plan));
  return try_connections(links);
}

petra_status petra_rank_links_init(petra_rank_links *links, const petra_placement *placement, const petra_plan *plan,
                                   petra_backend *backend, int id) {
  *links = (petra_rank_links){.ranks = placement->ranks, .backend = backend};
  snprintf(links->name, sizeof links->name, "%s",
           strcmp(backend->ops->name, "cuda") == 0 ? "MPI, through host memory" : "MPI");
  PETRA_TRY(choose(links, plan));
  if (links->kind == PETRA_LINKS_HOSTS)
    return PETRA_OK;
  return petra_ranks_agree(
      links->ranks, links->kind == PETRA_LINKS_NCCL ? open_connections(links, placement, plan) : open_wire(links, id),
      NULL);
}

petra_status petra_rank_links_close(petra_rank_links *links) {
  if (links->kind == PETRA_LINKS_MPI_DEVICES)
    return petra_rank_links_drain(links);
  if (links->kind == PETRA_LINKS_HOSTS)
    return PETRA_OK;
  PETRA_TRY(petra_backend_synchronize(links->backend));
  PETRA_TRY(petra_ranks_agree(links->ranks, PETRA_OK, NULL)); /* no rank closes what another one still uses */
  petra_status status = links->backend->peers->close(links->backend);
  petra_progress_thread_watch_set(links->ranks->progress, NULL);
  links->kind = PETRA_LINKS_HOSTS;
  return status;
}

void petra_rank_links_fini(petra_rank_links *links) {
  while (links->parcel_count > 0) {
    struct petra_parcel *last = &links->parcels[links->parcel_count - 1];
    if (!last->sends)
      petra_progress_thread_cancel(links->ranks->progress, &last->request);
    drop(links, links->parcel_count - 1);
  }
  petra_free(links->parcels);
  if (links->kind == PETRA_LINKS_NCCL) {
    petra_progress_thread_watch_set(links->ranks->progress, NULL);
    links->backend->peers->give_up(links->backend);
  }
  petra_free(links->connection_out);
  petra_free(links->connection_in);
  *links = (petra_rank_links){0};
}
