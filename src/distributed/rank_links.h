/* SPDX-License-Identifier: Apache-2.0 */
/* How messages go between the ranks of a run: through the hosts, by the progress thread, or from device to device. */
#pragma once

#include "distributed/peers_wire.h"
#include "plan/placement.h"

typedef enum petra_link_kind {
  PETRA_LINKS_HOSTS,       /* by the channels of the progress thread */
  PETRA_LINKS_MPI_DEVICES, /* an MPI library that reads memory of devices */
  PETRA_LINKS_NCCL,
} petra_link_kind;

typedef struct petra_rank_links {
  petra_ranks *ranks; /* borrowed, as the backend is */
  petra_backend *backend;
  petra_link_kind kind;
  petra_peers_wire *wire;      /* MPI_DEVICES */
  int32_t *lane_out, *lane_in; /* not of HOSTS: to and from each rank; -1: not a neighbour */
  char name[48];               /* "NCCL 2.28.9", "MPI"; "MPI, through host memory" where a device computes */
} petra_rank_links;

/* How tensors go from device to device; not of HOSTS. */
petra_peer_link petra_rank_links_peers(petra_rank_links *links);

/* All ranks come here at once, after they agreed: rank 0 chooses by cluster.transport, the same for all, and neighbours connect.
 * `id` is that of a channel of the progress thread that nobody else uses. PETRA_CONFIG or a failure everywhere, with one line.
 * petra_rank_links_fini is due whatever comes back. */
petra_status petra_rank_links_init(petra_rank_links *links, const petra_placement *placement, const petra_plan *plan,
                                   petra_backend *backend, int id);

/* After the training, at all ranks: waits for what is under way. */
petra_status petra_rank_links_close(petra_rank_links *links);

/* Gives up what was not closed. */
void petra_rank_links_fini(petra_rank_links *links);
