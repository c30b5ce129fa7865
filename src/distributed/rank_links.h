/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to send messages between the ranks of a run: through the hosts, by the progress thread, or from device to
 * device. */
#pragma once

#include "distributed/peers_wire.h"
#include "setup/placement.h"

typedef enum petra_link_kind {
  PETRA_LINKS_HOSTS,       /* by the channels of the progress thread */
  PETRA_LINKS_MPI_DEVICES, /* by an MPI library that reads memory of devices */
  PETRA_LINKS_NCCL,
} petra_link_kind;

typedef struct petra_rank_links {
  petra_ranks *ranks; /* borrowed, as the backend is */
  petra_backend *backend;
  petra_link_kind kind;
  petra_peers_wire *wire;                  /* of MPI_DEVICES */
  int32_t *connection_out, *connection_in; /* to and from each rank; -1: not a neighbour; NULL: HOSTS */
  char name[48];                           /* "NCCL 2.28.9", "MPI"; on a GPU "MPI, through host memory" */
} petra_rank_links;

/* Returns how tensors are sent from device to device; not for HOSTS. */
petra_peer_link petra_rank_links_peers(petra_rank_links *links);

/* All ranks call this together, after they agreed. Rank 0 chooses by cluster.transport, the same for all, and
 * neighbours connect. `id` is that of a channel of the progress thread that nobody else uses. PETRA_CONFIG or a failure
 * on all ranks, with one line. Call petra_rank_links_fini even on failure. */
petra_status petra_rank_links_init(petra_rank_links *links, const petra_placement *placement, const petra_plan *plan,
                                   petra_backend *backend, int id);

/* Waits for what is under way. Call this after the training, on all ranks. */
petra_status petra_rank_links_close(petra_rank_links *links);

/* Cancels what was not closed. */
void petra_rank_links_fini(petra_rank_links *links);
