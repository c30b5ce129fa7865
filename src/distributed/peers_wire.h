/* SPDX-License-Identifier: Apache-2.0 */
/* Sends tensors between devices by an MPI library that reads their memory (CUDA-aware MPI). The host waits until a
 * tensor to send is computed, and until a received one has arrived, but it copies nothing. */
#pragma once

#include "distributed/transport_peers.h"
#include "group/progress_thread.h"

typedef struct petra_peers_wire petra_peers_wire;

/* `id` is that of a channel of the progress thread that nobody else uses; the backend must have `settle`. Both pointers
 * are borrowed. */
petra_status petra_peers_wire_create(petra_progress_thread *progress, petra_backend *backend, int id,
                                     petra_peers_wire **out);
/* Cancels what is under way. NULL is allowed. */
void petra_peers_wire_destroy(petra_peers_wire *peers);

petra_peer_link petra_peers_wire_peers(petra_peers_wire *peers);

/* Waits until all that was sent has left. */
petra_status petra_peers_wire_close(petra_peers_wire *peers);

/* The number of a connection encodes the other rank, and the direction. */
static inline int petra_peers_wire_connection(int other, bool sends) {
  return 2 * other + sends;
}
