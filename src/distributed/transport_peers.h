/* SPDX-License-Identifier: Apache-2.0 */
/* The part of transport_ranks that sends from device to device (backend/peers.h), where all ranks have such a backend.
 *
 * Every rank goes through the one schedule of all stages, so that the receiver knows when a message is sent: at that place
 * of the schedule it makes its tensors, whose shapes follow from the network, has them received, and puts them into the
 * mailbox of the stage. What is sent and received in one group of actions goes to the device as one group. So both ends of
 * every lane name its messages in the order of the schedule; no rank waits for ever, no host waits for a message, and a rank holds
 * what the schedule says and nothing more: docs/adr/0018. */
#pragma once

#include "exec/stages.h"
#include "exec/transport.h"

/* How tensors get to another device. */
typedef struct petra_peer_link {
  /* As in backend/peers.h; the tensors are released when it returns. */
  petra_status (*exchange)(void *context, const petra_peer_operation *operations, int count);
  /* Before a tensor is used that was received; NULL: the device knows. `what` is waited for. */
  petra_status (*await)(void *context, petra_tensor *tensor, const char *what);
  /* Waits for all that is under way; NULL: the device knows. */
  petra_status (*settle)(void *context);
  void *context;
} petra_peer_link;

typedef struct petra_transport_peers petra_transport_peers;

typedef struct petra_transport_peers_options {
  petra_stages stages;
  petra_backend *backend;
  petra_peer_link channel;
  petra_transport *local;  /* borrowed: what came is put there */
  const int32_t *rank_of;  /* of each stage; borrowed */
  const int32_t *lane_out; /* to each rank, and from it; borrowed */
  const int32_t *lane_in;
  int32_t batch;             /* images of a microbatch */
  int64_t evaluation_images; /* of the evaluation split, whose last batch may be smaller */
  int64_t recalibrate;       /* batches of an evaluation's recalibration */
} petra_transport_peers_options;

petra_status petra_transport_peers_create(const petra_transport_peers_options *options, petra_transport_peers **out);
void petra_transport_peers_destroy(petra_transport_peers *peers); /* NULL is allowed */

/* As in transport.h: `to` is elsewhere; `at` is here, and what it takes comes from elsewhere. */
petra_status petra_transport_peers_post(petra_transport_peers *peers, const petra_address *to, petra_message *message);
petra_status petra_transport_peers_take(petra_transport_peers *peers, const petra_address *at, petra_message *out);

/* The schedule has come to where a stage elsewhere sends this message, of a microbatch, to a stage that is here. */
petra_status petra_transport_peers_coming(petra_transport_peers *peers, const petra_address *to);

/* Gives the device what was named since, as one group. */
petra_status petra_transport_peers_flush(petra_transport_peers *peers);

/* What was named so far has come: for a checkpoint, which then has it from the mailboxes. */
petra_status petra_transport_peers_drain(petra_transport_peers *peers);

/* Messages sent so far, and their bytes. */
void petra_transport_peers_count(const petra_transport_peers *peers, int64_t *messages, int64_t *bytes);
