/* SPDX-License-Identifier: Apache-2.0 */
/* The way between devices of an MPI library that reads their memory (CUDA-aware MPI): the host waits for what is sent to be
 * computed and for what is received to have come, but copies nothing. */
#pragma once

#include "distributed/transport_peers.h"
#include "group/progress_thread.h"

typedef struct petra_peers_wire petra_peers_wire;

/* `id` is that of a way of the carrier that nobody else uses; the backend has `settle`. Both are borrowed. */
petra_status petra_peers_wire_create(petra_carrier *carrier, petra_backend *backend, int id, petra_peers_wire **out);
/* Gives up what is under way. NULL is allowed. */
void petra_peers_wire_destroy(petra_peers_wire *peers);

petra_peer_way petra_peers_wire_way(petra_peers_wire *peers);

/* Waits until all that was sent has left. */
petra_status petra_peers_wire_close(petra_peers_wire *peers);

/* Lanes tell who the other rank is, and whether to send to it or receive. */
static inline int petra_peers_wire_lane(int other, bool sends) {
  return 2 * other + sends;
}
