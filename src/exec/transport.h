/* SPDX-License-Identifier: Apache-2.0 */
/* Carries messages between stages. The worker computes what is sent and says for whom it is; where the receiver is, and
 * how a message gets there, is the transport's. transport_local: within this process, in
 * mailboxes; transport_ranks: between processes. */
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

/* For whom a message is, and which one it is. */
typedef struct petra_address {
  int32_t stage; /* the receiver, from 1 */
  petra_message_kind kind;
  int64_t number; /* from 0; one message of each number at a time */
} petra_address;

typedef struct petra_transport petra_transport;

typedef struct petra_transport_ops {
  /* Sends; the message is taken over, also on failure, and empty afterwards. */
  petra_status (*post)(petra_transport *transport, const petra_address *to, petra_message *message);
  /* Hands over what came, which the caller releases. A worker asks for messages of microbatches when they have come;
   * those of an evaluation are waited for. Where nothing can be waited for, and for what never comes: PETRA_INTERNAL,
   * logged. */
  petra_status (*take)(petra_transport *transport, const petra_address *at, petra_message *out);
  /* Messages of microbatches that wait to be taken by a stage that is here, in a checkpoint. One that is read into must be
   * new. */
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
