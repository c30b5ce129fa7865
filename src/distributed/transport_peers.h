/* SPDX-License-Identifier: Apache-2.0 */
/* The part of transport_ranks that sends from device to device (backend/backend.h), if all ranks have such a backend.
 *
 * Every rank goes through the one schedule of all stages, so the receiver knows when a message is sent. At that place
 * of the schedule it creates the tensors, whose shapes follow from the network, begins to receive them, and puts them
 * into the mailbox of the stage. All operations of one group of actions go to the device as one group. So both ends of
 * every connection name its messages in the order of the schedule. No rank waits for ever, no host waits for a message,
 * and a rank stores what the schedule requires and nothing more: docs/adr/0018. */
#pragma once

#include "exec/stages.h"
#include "exec/transport.h"

/* Sends tensors to another device. */
typedef struct petra_peer_link {
  /* Works as in backend/backend.h; the tensors are released when it returns. */
  petra_status (*exchange)(void *context, const petra_peer_operation *operations, int count);
  /* Is called before a received tensor is used; NULL: the device waits itself. `what` names it in messages. */
  petra_status (*await)(void *context, petra_tensor *tensor, const char *what);
  /* Waits for all that is under way; NULL: the device waits itself. */
  petra_status (*drain)(void *context);
  void *context;
} petra_peer_link;

typedef struct petra_transport_peers petra_transport_peers;

typedef struct petra_transport_peers_options {
  petra_stages stages;
  petra_backend *backend;
  petra_peer_link link;
  petra_transport *local;        /* borrowed; receives what arrives */
  const int32_t *rank_of;        /* of each stage; borrowed */
  const int32_t *connection_out; /* connections to each rank, and from it; borrowed */
  const int32_t *connection_in;
  int32_t batch;             /* images of a microbatch */
  int64_t evaluation_images; /* of the evaluation split, whose last batch may be smaller */
  int64_t recalibrate;       /* batches of an evaluation's recalibration */
} petra_transport_peers_options;

petra_status petra_transport_peers_create(const petra_transport_peers_options *options, petra_transport_peers **out);
void petra_transport_peers_destroy(petra_transport_peers *peers); /* NULL is allowed */

/* Work as in transport.h: `to` is elsewhere; `at` is here, and its message comes from elsewhere. */
petra_status petra_transport_peers_post(petra_transport_peers *peers, const petra_address *to, petra_message *message);
petra_status petra_transport_peers_take(petra_transport_peers *peers, const petra_address *at, petra_message *out);

/* Call this when the schedule reaches the place at which a stage elsewhere sends this message, of a microbatch, to a
 * stage that is here. */
petra_status petra_transport_peers_coming(petra_transport_peers *peers, const petra_address *to);

/* Passes all operations that were named since to the device, as one group. */
petra_status petra_transport_peers_flush(petra_transport_peers *peers);

/* Waits until all tensors named so far have arrived: a checkpoint then reads them from the mailboxes. */
petra_status petra_transport_peers_drain(petra_transport_peers *peers);

/* Counts the messages sent so far, and their bytes. */
void petra_transport_peers_count(const petra_transport_peers *peers, int64_t *messages, int64_t *bytes);
