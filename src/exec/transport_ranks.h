/* The transport between the ranks of a run: what is for a stage that is here goes by the local transport, anything else by
 * a way of the carrier, as the logical tensors in the element type of the backend's activations (f32, or f64 with ref's
 * fp64), so that ranks need not have the same backend.
 *
 * Every rank goes through the one schedule of all stages. At the moment when a message is sent, its receiver has taken so
 * many by the schedule; the sender waits until it really has, but for two messages: so no rank holds more than the
 * schedule itself and two messages a boundary, and none waits for ever (the first action of the schedule that is not done
 * has its messages, and its receiver room).
 *
 * With `peers` messages go from device to device instead (transport_peers.h). */
#ifndef PETRA_EXEC_TRANSPORT_RANKS_H
#define PETRA_EXEC_TRANSPORT_RANKS_H

#include "exec/stages.h"
#include "exec/transport.h"
#include "exec/transport_peers.h"
#include "wire/carrier.h"

typedef struct petra_transport_ranks_options {
  petra_stages stages;
  petra_backend *backend;
  petra_carrier *carrier;       /* borrowed */
  petra_transport *local;       /* taken over, also on failure */
  const int32_t *rank_of;       /* of each stage; borrowed */
  bool evaluates;               /* there are evaluations */
  const int64_t *forward_bytes; /* of the message that each stage sends up, and down, at most; borrowed */
  const int64_t *backward_bytes;
  petra_transport_peers *peers; /* taken over, also on failure; NULL: by ways of the carrier */
} petra_transport_ranks_options;

petra_status petra_transport_ranks_create(const petra_transport_ranks_options *options, petra_transport **out);

/* Nanoseconds of the wall clock spent on turning tensors into messages and back, so far. */
int64_t petra_transport_ranks_copying_ns(const petra_transport *transport);

/* Adds messages and bytes that were sent from device to device, so far. */
void petra_transport_ranks_count_direct(const petra_transport *transport, int64_t *messages, int64_t *bytes);

/* When the last message came that was taken (base/clock.h); 0: none. */
int64_t petra_transport_ranks_took_ns(const petra_transport *transport);

/* By the schedule a stage that is elsewhere sends this message (to whatever stage), in the group of actions that is being
 * done; and all actions of the group were done. */
petra_status petra_transport_ranks_sent(petra_transport *transport, const petra_address *to);
petra_status petra_transport_ranks_step(petra_transport *transport);

/* By the schedule a stage that is elsewhere takes the next message of a channel. */
void petra_transport_ranks_taken(petra_transport *transport, int32_t stage, petra_channel channel);

#endif
