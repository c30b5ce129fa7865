/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers tensors between the devices of processes directly, without the hosts: an optional part of a backend (cuda
 * has it if it was built with NCCL). All processes need the same backend, since the elements of a tensor are sent in
 * their layout on the device.
 *
 * A lane is one direction between this process and another one. Tensors are received in the order in which they are
 * sent. A send takes place when the other process has posted its receive; everything after it on the lane waits. No
 * function waits for that except `close`: the device does. So both processes have to post the operations of their lanes
 * in orders that agree: docs/adr/0018.
 *
 * Failures: PETRA_BACKEND, logged. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PETRA_PEER_LANES = 4, PETRA_PEER_ID_BYTES = 128 };

struct petra_backend;
struct petra_tensor;

typedef struct petra_peer_operation {
  int lane; /* a connected lane; it decides between send and receive */
  struct petra_tensor *tensor;
} petra_peer_operation;

typedef struct petra_peer_ops {
  /* Describes the library: "NCCL 2.28.9". */
  void (*describe)(const struct petra_backend *backend, char *text, size_t size);
  /* Gets the address of the device on the bus, which differs between different devices of a host. */
  petra_status (*device)(const struct petra_backend *backend, char *text, size_t size);
  /* Makes a new id for a lane, which both of its ends need. */
  petra_status (*make_id)(unsigned char id[PETRA_PEER_ID_BYTES]);
  /* connect begins to connect a lane (from 0) of which this process is one end; connected gets whether that is done. It
   * completes once the other end has begun as well. */
  petra_status (*connect)(struct petra_backend *backend, int lane, const unsigned char id[PETRA_PEER_ID_BYTES],
                          bool sends);
  petra_status (*connected)(struct petra_backend *backend, int lane, bool *is);
  /* Sends and receives the tensors, all at once, after the operations on them before this call, and before those after
   * it. The caller may release them when it returns. */
  petra_status (*exchange)(struct petra_backend *backend, const petra_peer_operation *operations, int count);
  /* May be called from any thread: checks whether all lanes work, as far as the library knows. */
  petra_status (*check)(struct petra_backend *backend);
  /* May be called from any thread: cancels the transfers of all lanes, whose tensors are then undefined. Afterwards
   * every function that returns a result of the device to the host, and `exchange`, fails with PETRA_CHILD and logs
   * nothing, since the caller of give_up has logged the reason. */
  void (*give_up)(struct petra_backend *backend);
  /* Waits for the current transfers and closes the lanes; the other end has to call it too. */
  petra_status (*close)(struct petra_backend *backend);
} petra_peer_ops;
