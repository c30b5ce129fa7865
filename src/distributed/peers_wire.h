/* SPDX-License-Identifier: Apache-2.0 */
/* The channel between devices of an MPI library that reads their memory (CUDA-aware MPI): the host waits for what is sent to be
 * computed and for what is received to have come, but copies nothing. */
#pragma once

#include "distributed/transport_peers.h"
#include "group/progress_thread.h"

typedef struct petra_peers_wire petra_peers_wire;

/* `id` is that of a channel of the progress thread that nobody else uses; the backend has `settle`. Both are borrowed. */
petra_status petra_peers_wire_create(petra_progress_thread *progress, petra_backend *backend, int id,
                                     petra_peers_wire **out);
/* Gives up what is under way. NULL is allowed. */
void petra_peers_wire_destroy(petra_peers_wire *peers);

petra_peer_link petra_peers_wire_peers(petra_peers_wire *peers);

/* Waits until all that was sent has left. */
petra_status petra_peers_wire_close(petra_peers_wire *peers);

/* Lanes tell who the other rank is, and whether to send to it or receive. */
static inline int petra_peers_wire_lane(int other, bool sends) {
  return 2 * other + sends;
}
