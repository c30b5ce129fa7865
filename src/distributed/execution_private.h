/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an execution (execution.h): the links between the ranks, the relay of losses, the worker and the
 * executor of a rank. */
#pragma once

#include "backend/backend.h"
#include "distributed/execution.h"
#include "sim/worker_cost.h"

/* --- rank_links.c: the ways to send messages between the ranks of a run ---
 * Messages go through the hosts, by the progress thread, or from device to device. */

typedef enum petra_link_kind {
  PETRA_LINKS_HOSTS,       /* by the channels of the progress thread */
  PETRA_LINKS_MPI_DEVICES, /* by an MPI library that reads memory of devices */
  PETRA_LINKS_NCCL,
} petra_link_kind;

typedef struct petra_rank_links {
  petra_link_kind kind;
  int id;                       /* with MPI_DEVICES: of the channel */
  struct petra_parcel *parcels; /* with MPI_DEVICES: tensors on their way */
  int64_t parcel_count, parcel_capacity;
  int32_t *connections[2]; /* from and to each rank; -1: not a neighbour; NULL: HOSTS */
  char name[48];           /* "NCCL 2.28.9", "MPI"; on a GPU "MPI, through host memory" */
} petra_rank_links;

/* Sends and receives tensors from device to device, as in backend/peers.h; the tensors are released when it returns.
 * Not for HOSTS. */
petra_status petra_rank_links_exchange(petra_execution *execution, const petra_peer_operation *operations, int count);

/* Call this before a received tensor is used. `what` names it in messages. */
petra_status petra_rank_links_await(petra_execution *execution, petra_tensor *tensor, const char *what);

/* Waits for all transfers in progress, unless the device itself waits for them. */
petra_status petra_rank_links_drain(petra_execution *execution);

/* Waits for all transfers in progress, and closes the links. Call this after the training, on all ranks. */
petra_status petra_rank_links_close(petra_execution *execution);

/* Cancels the transfers and links that were not closed. */
void petra_rank_links_fini(petra_execution *execution);

/* --- transport_peers.c: the part that sends from device to device ---
 * It is used if all ranks have such a backend (backend/peers.h). Every rank goes through the one schedule of all
 * stages, so the receiver knows when a message is sent. At that position of the schedule the receiver creates the
 * tensors, whose shapes follow from the network, begins to receive them, and puts them into the mailbox of the stage.
 * All operations of one group of actions go to the device as one group. So both ends of every connection name its
 * messages in the order of the schedule. No rank waits for ever, no host waits for a message, and a rank stores what
 * the schedule requires and nothing more: docs/adr/0018. */

/* Work as in transport.h: `to` is elsewhere; `at` is here, and its message comes from elsewhere. */
petra_status petra_transport_peers_post(petra_execution *execution, const petra_address *to, petra_message *message);
petra_status petra_transport_peers_take(petra_execution *execution, const petra_address *at, petra_message *out);

/* Call this when the schedule reaches the position at which a stage elsewhere sends this message, of a microbatch, to a
 * stage that is here. */
petra_status petra_transport_peers_coming(petra_execution *execution, const petra_address *to);

/* Passes all operations that were named since the last call, if there are any, to the device as one group. Call this
 * when all actions of a group are done. */
petra_status petra_transport_peers_flush(petra_execution *execution);

void petra_transport_peers_fini(petra_execution *execution);

/* --- transport_ranks.c ---
 * The transport between the ranks of a run. A message for a stage that is here goes by the local transport, any other
 * one by a channel of the progress thread: as the logical tensors in the element type of the backend's activations
 * (f32, or f64 with ref's fp64), so that ranks need not have the same backend.
 *
 * Every rank goes through the one schedule of all stages. So a sender knows how many messages, by the schedule, its
 * receiver has taken before the sender sends the next one. Before it sends, it waits until the receiver has really
 * taken all but two of these messages. So no rank stores more than the schedule requires and two more messages per
 * boundary. No rank waits for ever: the first action of the schedule that is not done has its messages, and the
 * receiver of its message has room.
 *
 * For a checkpoint a receiver waits for all messages that were sent by the schedule. They then wait in the mailboxes of
 * the local transport, from where they are taken first.
 *
 * By arrival there is no such schedule: the executor (executor_ranks.c) looks for messages and for room, and sends only
 * if it has found them.
 *
 * With links between devices messages are sent from device to device instead (transport_peers.c). */

/* Counts the messages that an action of any stage takes and sends by the schedule. Call this for every action of all
 * stages, in the order that is the same on all ranks. `before`: the action was done before this transport existed; its
 * messages are in the checkpoint that the receiver reads. */
petra_status petra_transport_ranks_count(petra_execution *execution, const petra_action *action, bool before);

/* By arrival: gets the first message from another rank that waits for a stage here, at the time of the last
 * petra_progress_thread_look, and the time of its arrival (base/clock.h). Returns false if there is none. */
bool petra_transport_ranks_first(petra_execution *execution, int32_t stage, petra_message_kind kind, int64_t *number,
                                 int64_t *came_ns);

/* By arrival: returns true if `post` to a stage elsewhere would not wait. A backward message waits only for one of the
 * two buffers of its channel. */
bool petra_transport_ranks_room(petra_execution *execution, int32_t stage, petra_message_kind kind);

/* --- loss_relay.c ---
 * Sends the losses and evaluations of a run from the process with the last stage (of each replica) to the observers of
 * other processes. Rank 0 receives all of them. With `keeps_best` every rank of replica 0 receives the evaluations.
 * They are messages on ordinary channels of the progress thread. The losses and evaluations of a process itself go
 * directly to its own observers. */

typedef struct petra_loss_relay petra_loss_relay;

void petra_loss_relay_destroy(petra_loss_relay *relay); /* NULL is allowed */

/* Notifies the observers of all messages received so far. */
petra_status petra_loss_relay_poll(petra_loss_relay *relay);

/* --- the execution --- */

/* Nanoseconds of the wall clock that a rank has spent so far. */
typedef struct petra_execution_times {
  int64_t busy_ns;              /* in the actions here */
  int64_t waited_ns, copied_ns; /* in these actions: waiting, and converting tensors to messages and back */
  int64_t copying_ns;           /* converting, also outside actions */
  int64_t between_ns;           /* by arrival: waiting between actions */
  int64_t evaluating_ns;        /* by arrival: on batches of evaluations */
} petra_execution_times;

struct petra_execution {
  petra_worker base, before; /* worker_ranks.c; `before` is for actions that a checkpoint has done */
  petra_ranks *ranks;
  const petra_plan *plan;
  const petra_placement *placement;
  petra_rank_times *times; /* of the actions of this rank */
  petra_stages stages;     /* with the stages that are here */
  petra_backend *backend;
  int64_t evaluation_images; /* of the evaluation split; 0: no evaluations */
  petra_rank_links links;
  petra_loss_relay *relay;
  petra_worker *performing;     /* performs the actions of the stages that are here; borrowed */
  petra_worker *counting;       /* counts the actions of other stages */
  petra_stage_observer *groups; /* as in petra_execution_worker */
  petra_observer *actions;
  unsigned delay_seed, delay_max_us; /* random delays; 0: none */
  petra_executor *executor;          /* of `arrival`, borrowed; else NULL */
  petra_transport transport;         /* transport_ranks.c; of the pipeline, which destroys it */
  bool direct;                       /* it sends from device to device, not by channels of the progress thread */
  struct petra_boundary *boundaries; /* by receiving stage (from 1) and kind of message */
  petra_transport *local;            /* of the stages that are here; destroyed with `transport` */
  /* transport_peers.c: operations that are named, not passed to the device yet; messages of operations that send */
  petra_peer_operation *operations;
  int64_t operation_count, operation_capacity;
  petra_message *leaving;
  int64_t leaving_count, leaving_capacity;
  int64_t origin_ns;
  petra_progress_thread_counts counts_before; /* before the training */
  petra_execution_times took;
  int64_t message_ns;                    /* the time (base/clock.h) at which a message was last taken; 0: none */
  int64_t direct_messages, direct_bytes; /* sent from device to device so far */
};
