/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors between the devices of processes, without passing through the hosts: an optional part of a backend (cuda has it
 * where it was built with NCCL). All processes need the same backend, since a tensor's elements go as they lie on the device.
 *
 * A lane is one direction between this process and another one. What is sent on a lane is received in that order; a send
 * takes place when the other process has named its receive, and everything behind it on the lane waits. No function waits for
 * that but `close`: the device does. So both processes have to name what goes over their lanes in orders that agree: docs/adr/0018.
 *
 * Failures: PETRA_BACKEND, logged. */
#ifndef PETRA_BACKEND_PEERS_H
#define PETRA_BACKEND_PEERS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PETRA_PEER_LANES = 4, PETRA_PEER_ID_BYTES = 128 };

struct petra_backend;
struct petra_tensor;

typedef struct petra_peer_operation {
  int lane; /* which was connected, to send or to receive */
  struct petra_tensor *tensor;
} petra_peer_operation;

typedef struct petra_peer_ops {
  /* The library: "NCCL 2.28.9". */
  void (*describe)(const struct petra_backend *backend, char *text, size_t size);
  /* The device, other than that of any other process of the host that has another device: its address on the bus. */
  petra_status (*device)(const struct petra_backend *backend, char *text, size_t size);
  /* A new id for a lane, which both ends of it need. */
  petra_status (*make_id)(unsigned char id[PETRA_PEER_ID_BYTES]);
  /* Begins to connect a lane (from 0) of which this process is one end, and whether that is done: it comes to be once the
   * other end has begun as well. */
  petra_status (*connect)(struct petra_backend *backend, int lane, const unsigned char id[PETRA_PEER_ID_BYTES],
                          bool sends);
  petra_status (*connected)(struct petra_backend *backend, int lane, bool *is);
  /* Has the tensors sent and received, all at once, after the operations on them before this call, and before those after
   * it. They may be released when it returns. */
  petra_status (*exchange)(struct petra_backend *backend, const petra_peer_operation *operations, int count);
  /* From any thread: whether all lanes are in order, as far as the library knows. */
  petra_status (*check)(struct petra_backend *backend);
  /* From any thread: ends what is under way on all lanes, whose tensors are then undefined. Afterwards every function that
   * gives the host a result of the device, and `exchange`, fails with PETRA_CHILD and logs nothing: who gives up has. */
  void (*give_up)(struct petra_backend *backend);
  /* Waits for what is under way and ends the lanes; the other end has to come here too. */
  petra_status (*close)(struct petra_backend *backend);
} petra_peer_ops;

#endif
