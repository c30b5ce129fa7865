/* SPDX-License-Identifier: Apache-2.0 */
/* Carries messages between stages. The worker computes a message and names its receiver; the transport knows where the
 * receiver is and how the message gets there. transport_local works within this process, with mailboxes;
 * transport_ranks works between processes. */
#pragma once

#include "backend/tensor_archive.h"
#include "stage/stage.h"

/* X(NAME, name in checkpoints) */
#define PETRA_MESSAGE_LIST(X)                                                                                          \
  X(FORWARD, "forward")       /* streams from the stage below, by microbatch */                                        \
  X(BACKWARD, "backward")     /* gradients (and streams) from the stage above, by microbatch */                        \
  X(EVALUATION, "evaluation") /* streams from the stage below, by batch of an evaluation */

typedef enum petra_message_kind {
#define PETRA_MESSAGE_ENUM(name, text) PETRA_MESSAGE_##name,
  PETRA_MESSAGE_LIST(PETRA_MESSAGE_ENUM)
#undef PETRA_MESSAGE_ENUM
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
  /* Sends the message. It becomes the transport's, also on failure, and is empty afterwards. */
  petra_status (*post)(petra_transport *transport, const petra_address *to, petra_message *message);
  /* Returns a message that has arrived; the caller releases it. A worker takes a message of a microbatch only when it
   * has arrived, but waits for one of an evaluation. PETRA_INTERNAL, logged, if the message cannot arrive or the
   * transport cannot wait. */
  petra_status (*take)(petra_transport *transport, const petra_address *at, petra_message *out);
  /* Reads or writes, in a checkpoint, the messages of microbatches that wait for a stage that is here. A transport that
   * is read into must be new. */
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
