/* SPDX-License-Identifier: Apache-2.0 */
/* The transport between the ranks of a run: what is for a stage that is here goes by the local transport, anything else by
 * a channel of the progress thread, as the logical tensors in the element type of the backend's activations (f32, or f64 with ref's
 * fp64), so that ranks need not have the same backend.
 *
 * Every rank goes through the one schedule of all stages. At the moment when a message is sent, its receiver has taken so
 * many by the schedule; the sender waits until it really has, but for two messages: so no rank holds more than the
 * schedule itself and two messages a boundary, and none waits for ever (the first action of the schedule that is not done
 * has its messages, and its receiver room).
 *
 * For a checkpoint a receiver waits for all messages that were sent by the schedule, which then wait in the mailboxes of the
 * local transport, from where they are taken first.
 *
 * By arrival there is no such schedule: the executor (executor_wall.h) asks what has come and where there is room, and sends
 * only then.
 *
 * With `peers` messages go from device to device instead (transport_peers.h). */
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
  petra_transport *local;          /* taken over, also on failure */
  const int32_t *rank_of;          /* of each stage; borrowed */
  bool evaluates;                  /* there are evaluations */
  bool by_arrival;                 /* no order of the actions is known beforehand */
  const int64_t *forward_bytes;    /* of the message that each stage sends up, and down, at most; borrowed */
  const int64_t *backward_bytes;
  petra_transport_peers *peers; /* taken over, also on failure; NULL: by channels of the progress thread */
} petra_transport_ranks_options;

petra_status petra_transport_ranks_create(const petra_transport_ranks_options *options, petra_transport **out);

/* Bytes of the buffers of one boundary and direction, by channels of the progress thread, for messages of so many bytes: at most, at the stage
 * that sends, and at the one that receives beside the messages that the schedule has wait there. Both count as messages of
 * their stage. */
int64_t petra_transport_ranks_bytes_out(int64_t message_bytes);
int64_t petra_transport_ranks_bytes_in(int64_t message_bytes);

/* Nanoseconds of the wall clock spent on turning tensors into messages and back, so far. */
int64_t petra_transport_ranks_copying_ns(const petra_transport *transport);

/* Adds messages and bytes that were sent from device to device, so far. */
void petra_transport_ranks_count_direct(const petra_transport *transport, int64_t *messages, int64_t *bytes);

/* When the last message came that was taken (base/clock.h); 0: none. */
int64_t petra_transport_ranks_took_ns(const petra_transport *transport);

/* Counts the messages that an action of any stage takes and sends by the schedule: to be told every action, in the one order
 * of all. `before`: it was done before this transport was; what it sent is in the checkpoint that its receiver reads. */
petra_status petra_transport_ranks_count(petra_transport *transport, const petra_program_options *program,
                                         const petra_action *action, bool before);

/* All actions of a group were done. */
petra_status petra_transport_ranks_step(petra_transport *transport);

/* Forward messages, and those of evaluations, that may wait for a stage at most when the stage below it sends one more by
 * arrival. */
enum { PETRA_TRANSPORT_AHEAD = 2 };

/* By arrival, as the last petra_progress_thread_look found it. The first message from another rank that waits for a stage that is
 * here, and when it came (base/clock.h); false: none. */
bool petra_transport_ranks_first(petra_transport *transport, int32_t stage, petra_message_kind kind, int64_t *number,
                                 int64_t *came_ns);

/* By arrival: whether `post` to a stage that is elsewhere would not wait. A backward message waits for nothing but one of
 * the two buffers of its channel. */
bool petra_transport_ranks_room(petra_transport *transport, int32_t stage, petra_message_kind kind);
