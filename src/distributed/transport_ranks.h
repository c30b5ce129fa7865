/* SPDX-License-Identifier: Apache-2.0 */
/* The transport between the ranks of a run. A message for a stage that is here goes by the local transport, any other
 * one by a channel of the progress thread: as the logical tensors in the element type of the backend's activations
 * (f32, or f64 with ref's fp64), so that ranks need not have the same backend.
 *
 * Every rank goes through the one schedule of all stages. So a sender knows how many messages, by the schedule, its
 * receiver has taken before the sender sends the next one. Before it sends, it waits until the receiver has really
 * taken all but two of these. So no rank stores more than the schedule itself and two messages per boundary, and none
 * waits for ever: the first action of the schedule that is not done has its messages, and its receiver has room.
 *
 * For a checkpoint a receiver waits for all messages that were sent by the schedule. They then wait in the mailboxes of
 * the local transport, from where they are taken first.
 *
 * By arrival there is no such schedule: the executor (execution_private.h) looks for messages and for room, and sends
 * only then.
 *
 * With `peers` messages are sent from device to device instead (transport_peers.h). */
#pragma once

#include "exec/stages.h"
#include "exec/transport.h"
#include "schedule/program.h"
#include "group/progress_thread.h"

/* --- transport_peers.c: the part that sends from device to device ---
 * Used (backend/peers.h) if all ranks have such a backend. Every rank goes through the one schedule of all stages, so the receiver knows when a message is sent. At that place
 * of the schedule it creates the tensors, whose shapes follow from the network, begins to receive them, and puts them
 * into the mailbox of the stage. All operations of one group of actions go to the device as one group. So both ends of
 * every connection name its messages in the order of the schedule. No rank waits for ever, no host waits for a message,
 * and a rank stores what the schedule requires and nothing more: docs/adr/0018. */

/* Sends tensors to another device. */
typedef struct petra_peer_link {
  /* Works as in backend/peers.h; the tensors are released when it returns. */
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

/* --- transport_ranks.c --- */

typedef struct petra_transport_ranks_options {
  petra_stages stages;
  petra_backend *backend;
  petra_progress_thread *progress; /* borrowed */
  petra_transport *local;          /* owned, also on failure */
  const int32_t *rank_of;          /* of each stage; borrowed */
  bool evaluates;                  /* there are evaluations */
  bool by_arrival;                 /* no order of the actions is known beforehand */
  const int64_t *forward_bytes;    /* maximum size of the message that each stage sends up, and down; borrowed */
  const int64_t *backward_bytes;
  petra_transport_peers *peers; /* owned, also on failure; NULL: by channels of the progress thread */
} petra_transport_ranks_options;

petra_status petra_transport_ranks_create(const petra_transport_ranks_options *options, petra_transport **out);

/* Returns the nanoseconds of the wall clock spent so far on converting tensors to messages and back. */
int64_t petra_transport_ranks_copying_ns(const petra_transport *transport);

/* Adds the messages and bytes sent from device to device so far. */
void petra_transport_ranks_count_direct(const petra_transport *transport, int64_t *messages, int64_t *bytes);

/* Returns the time (base/clock.h) at which a message was last taken; 0: none. */
int64_t petra_transport_ranks_took_ns(const petra_transport *transport);

/* Counts the messages that an action of any stage takes and sends by the schedule. Call this for every action of all
 * stages, in the order that is the same on all ranks. `before`: the action was done before this transport existed; its
 * messages are in the checkpoint that the receiver reads. */
petra_status petra_transport_ranks_count(petra_transport *transport, const petra_program_options *program,
                                         const petra_action *action, bool before);

/* Call this when all actions of a group are done. */
petra_status petra_transport_ranks_step(petra_transport *transport);

/* By arrival: returns the first message from another rank that waits for a stage here, as of the last
 * petra_progress_thread_look, and the time of its arrival (base/clock.h); false if there is none. */
bool petra_transport_ranks_first(petra_transport *transport, int32_t stage, petra_message_kind kind, int64_t *number,
                                 int64_t *came_ns);

/* By arrival: returns true if `post` to a stage elsewhere would not wait. A backward message waits only for one of the
 * two buffers of its channel. */
bool petra_transport_ranks_room(petra_transport *transport, int32_t stage, petra_message_kind kind);
