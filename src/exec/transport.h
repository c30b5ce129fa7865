/* SPDX-License-Identifier: Apache-2.0 */
/* Carries messages between stages. The worker computes a message and names its receiver; the transport knows where the
 * receiver is and how the message gets there. The local transport works within this process, with mailboxes;
 * distributed/transport_ranks.c works between processes. */
#pragma once

#include "backend/tensor_archive.h"
#include "exec/stages.h"

typedef enum petra_message_kind {
  PETRA_MESSAGE_FORWARD,    /* streams from the stage below, by microbatch */
  PETRA_MESSAGE_BACKWARD,   /* gradients (and streams) from the stage above, by microbatch */
  PETRA_MESSAGE_EVALUATION, /* streams from the stage below, by batch of an evaluation */
  PETRA_MESSAGE_KINDS
} petra_message_kind;

/* The receiver of a message, and its number. */
typedef struct petra_address {
  int32_t stage; /* the receiver, from 1 */
  petra_message_kind kind;
  int64_t number; /* from 0; one message of each number at a time */
} petra_address;

typedef struct petra_transport petra_transport;

typedef struct petra_transport_ops {
  /* Sends the message. The transport takes it over, also on failure; it is empty afterwards. */
  petra_status (*post)(petra_transport *transport, const petra_address *to, petra_message *message);
  /* Returns a message that has arrived in *out, which is empty before; the caller releases it, also on failure. A
   * worker takes a message of a microbatch only when it has arrived, but waits for a message of an evaluation.
   * PETRA_INTERNAL, logged, if the message cannot arrive or the transport cannot wait. */
  petra_status (*take)(petra_transport *transport, const petra_address *at, petra_message *out);
  /* Reads or writes, in a checkpoint, the messages of microbatches that wait for a stage that is here. When reading,
   * the transport must be new. */
  petra_status (*archive)(petra_transport *transport, int32_t stage, petra_tensor_archive *tensors);
  void (*destroy)(petra_transport *transport);
} petra_transport_ops;

struct petra_transport {
  const petra_transport_ops *ops;
};

static inline void petra_transport_destroy(petra_transport *transport) {
  if (transport)
    transport->ops->destroy(transport);
}

/* --- within a process: a mailbox for each stage and kind of message ---
 * A message counts in the account of its receiver (category messages) from the moment when it is posted. */

/* Serves the stages that are here; they are borrowed. Posting to another stage returns PETRA_INTERNAL. */
petra_status petra_transport_local_create(const petra_stages *stages, petra_transport **out);

/* The first function returns true if this message waits. The second function returns the number of messages of a kind
 * that wait. */
bool petra_transport_local_has(const petra_transport *transport, const petra_address *at);
int64_t petra_transport_local_count(const petra_transport *transport, int32_t stage, petra_message_kind kind);

/* --- between processes: messages as bytes ---
 * The bytes of a tensor are its logical elements in their order, as f32, or as f64 if the backend stores elements in 8
 * bytes; a quantised tensor is sent as its bytes. So ranks may have different layouts. No value is rounded. */

/* Return the size of `elements` elements of a kind, and of a tensor. */
size_t petra_packed_bytes(const petra_backend *backend, petra_tensor_kind kind, int64_t elements);
static inline size_t petra_packed_tensor_bytes(const petra_tensor *tensor) {
  return petra_packed_bytes(tensor->backend, tensor->kind, tensor->elements);
}

/* Writes all elements of the tensor. Fails as petra_op_download does. */
petra_status petra_pack(const petra_tensor *tensor, void *to);

/* Overwrites all elements of the tensor with the bytes that petra_pack wrote for a tensor of the same kind and
 * shape. */
petra_status petra_unpack(petra_tensor *tensor, const void *from);

/* The maximum number of messages by which a sender may be ahead of the schedule or, by arrival, of the receiver. */
enum { PETRA_TRANSPORT_AHEAD = 2 };

/* Maximum bytes of a message; MPI counts to 2^31 - 1. */
static const int64_t PETRA_MESSAGE_BYTES_MAX = INT32_MAX - 4096;

/* The header of a message: the shape of each tensor; zeros if the tensor is missing. */
typedef struct petra_message_shapes {
  int32_t shape[PETRA_MESSAGE_PARTS][4];
} petra_message_shapes;

/* Writes "the forward message 3 of stage 2". */
enum { PETRA_ADDRESS_TEXT = 96 };
const char *petra_address_describe(const petra_address *address, char text[PETRA_ADDRESS_TEXT]);

/* Return the maximum bytes of the buffers of one boundary and direction, for messages of `message_bytes`: at the
 * sender, and at the receiver in addition to the messages that wait there by the schedule. Both count as messages of
 * their stage. */
int64_t petra_transport_bytes_out(int64_t message_bytes);
int64_t petra_transport_bytes_in(int64_t message_bytes);

/* The channels of the progress thread (group/progress_thread.h) in a run of J stages: one per receiving stage (from 1)
 * and kind of message, then the others. The channels of the probes are the last ones. */
typedef enum petra_channel_use {
  PETRA_CHANNEL_LOSSES,
  PETRA_CHANNEL_LINKS,
  PETRA_CHANNEL_REPLICAS,
  PETRA_CHANNEL_PROBES
} petra_channel_use;

static inline int petra_channel_id(int32_t stages, petra_channel_use use) {
  return stages * PETRA_MESSAGE_KINDS + (int)use;
}
