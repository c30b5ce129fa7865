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
 * By arrival there is no such schedule: the executor (executor_arrival.h) looks for messages and for room, and sends
 * only then.
 *
 * With `peers` messages are sent from device to device instead (transport_peers.h). */
#pragma once

#include "exec/stages.h"
#include "exec/transport.h"
#include "distributed/transport_peers.h"
#include "schedule/program.h"
#include "group/progress_thread.h"

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

/* Return the maximum bytes of the buffers of one boundary and direction, by channels of the progress thread, for
 * messages of `message_bytes`: at the sender, and at the receiver in addition to the messages that wait there by the
 * schedule. Both count as messages of their stage. */
int64_t petra_transport_ranks_bytes_out(int64_t message_bytes);
int64_t petra_transport_ranks_bytes_in(int64_t message_bytes);

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

/* Maximum number of forward messages, and of those of evaluations, that may wait for a stage when the stage below it
 * sends another one by arrival. */
enum { PETRA_TRANSPORT_AHEAD = 2 };

/* By arrival: returns the first message from another rank that waits for a stage here, as of the last
 * petra_progress_thread_look, and the time of its arrival (base/clock.h); false if there is none. */
bool petra_transport_ranks_first(petra_transport *transport, int32_t stage, petra_message_kind kind, int64_t *number,
                                 int64_t *came_ns);

/* By arrival: returns true if `post` to a stage elsewhere would not wait. A backward message waits only for one of the
 * two buffers of its channel. */
bool petra_transport_ranks_room(petra_transport *transport, int32_t stage, petra_message_kind kind);
