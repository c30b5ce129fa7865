/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an execution (execution.h): the links between the ranks, the relay of losses, the worker and the
 * executor of a rank. */
#pragma once

#include "backend/backend.h"
#include "distributed/execution.h"
#include "sim/worker_cost.h"

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

/* --- rank_links.c: the ways to send messages between the ranks of a run ---
 * Messages go through the hosts, by the progress thread, or from device to device. */

typedef enum petra_link_kind {
  PETRA_LINKS_HOSTS,       /* by the channels of the progress thread */
  PETRA_LINKS_MPI_DEVICES, /* by an MPI library that reads memory of devices */
  PETRA_LINKS_NCCL,
} petra_link_kind;

typedef struct petra_rank_links {
  petra_ranks *ranks; /* borrowed, as the backend is */
  petra_backend *backend;
  petra_link_kind kind;
  struct petra_peers_wire *wire;           /* of MPI_DEVICES */
  int32_t *connection_out, *connection_in; /* to and from each rank; -1: not a neighbour; NULL: HOSTS */
  char name[48];                           /* "NCCL 2.28.9", "MPI"; on a GPU "MPI, through host memory" */
} petra_rank_links;

/* Returns how tensors are sent from device to device; not for HOSTS. */
petra_peer_link petra_rank_links_peers(petra_rank_links *links);

/* All ranks call this together, after they agreed. Rank 0 chooses by cluster.transport, the same for all, and
 * neighbours connect. `id` is the id of a channel of the progress thread that nobody else uses. PETRA_CONFIG or a
 * failure on all ranks, with one line. Call petra_rank_links_fini even on failure. */
petra_status petra_rank_links_init(petra_rank_links *links, const petra_placement *placement, const petra_plan *plan,
                                   petra_backend *backend, int id);

/* Waits for what is under way. Call this after the training, on all ranks. */
petra_status petra_rank_links_close(petra_rank_links *links);

/* Cancels what was not closed. */
void petra_rank_links_fini(petra_rank_links *links);

/* --- transport_peers.c: the part that sends from device to device ---
 * Used (backend/peers.h) if all ranks have such a backend. Every rank goes through the one schedule of all stages, so
 * the receiver knows when a message is sent. At that place of the schedule it creates the tensors, whose shapes follow
 * from the network, begins to receive them, and puts them into the mailbox of the stage. All operations of one group of
 * actions go to the device as one group. So both ends of every connection name its messages in the order of the
 * schedule. No rank waits for ever, no host waits for a message, and a rank stores what the schedule requires and
 * nothing more: docs/adr/0018. */

typedef struct petra_transport_peers petra_transport_peers;

/* `local` receives what arrives; borrowed. */
petra_status petra_transport_peers_create(petra_execution *execution, petra_transport *local,
                                          petra_transport_peers **out);
void petra_transport_peers_destroy(petra_transport_peers *peers); /* NULL is allowed */

/* Work as in transport.h: `to` is elsewhere; `at` is here, and its message comes from elsewhere. */
petra_status petra_transport_peers_post(petra_transport_peers *peers, const petra_address *to, petra_message *message);
petra_status petra_transport_peers_take(petra_transport_peers *peers, const petra_address *at, petra_message *out);

/* Call this when the schedule reaches the position at which a stage elsewhere sends this message, of a microbatch, to a
 * stage that is here. */
petra_status petra_transport_peers_coming(petra_transport_peers *peers, const petra_address *to);

/* Passes all operations that were named since to the device, as one group. */
petra_status petra_transport_peers_flush(petra_transport_peers *peers);

/* Waits until all tensors named so far have arrived: a checkpoint then reads them from the mailboxes. */
petra_status petra_transport_peers_drain(petra_transport_peers *peers);

/* Counts the messages sent so far, and their bytes. */
void petra_transport_peers_count(const petra_transport_peers *peers, int64_t *messages, int64_t *bytes);

/* --- transport_ranks.c ---
 * The transport between the ranks of a run. A message for a stage that is here goes by the local transport, any other
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
 * By arrival there is no such schedule: the executor (executor_ranks.c) looks for messages and for room, and sends
 * only then.
 *
 * With `peers` messages are sent from device to device instead (transport_peers.c). */

/* `local` is the transport of the stages here; `peers` is NULL if messages go by channels of the progress thread. Both
 * are owned, also on failure. */
petra_status petra_transport_ranks_create(petra_execution *execution, petra_transport *local,
                                          petra_transport_peers *peers, petra_transport **out);

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

/* --- loss_relay.c ---
 * Sends the losses and evaluations of a run from the process with the last stage (of each replica) to the observers of
 * other processes. Rank 0 receives all of them. With `keeps_best` every rank of replica 0 receives the evaluations.
 * They are messages on ordinary channels of the progress thread. What a process observes itself goes to its own
 * observers directly. */

typedef struct petra_loss_relay petra_loss_relay;

/* Call this on all ranks, for a network of `stages` stages. `observers` is the list of this process to notify; with
 * replicas rank 0 notifies it of the losses of all replicas (exec/stage_observer.h). `channel` is the id of the
 * channels, which nobody else uses. All arguments are borrowed. */
petra_status petra_loss_relay_create(const petra_placement *placement, int32_t stages, int channel, bool keeps_best,
                                     petra_stage_observer *observers, petra_loss_relay **out);
void petra_loss_relay_destroy(petra_loss_relay *relay); /* NULL is allowed */

/* Returns the observer for the worker of the replica that is here. */
petra_stage_observer *petra_loss_relay_observer(petra_loss_relay *relay);

/* Notifies the observers of all messages received so far. */
petra_status petra_loss_relay_poll(petra_loss_relay *relay);

/* All ranks call this at the same position of the schedule. Afterwards the observers know all that was sent before. */
petra_status petra_loss_relay_drain(petra_loss_relay *relay);

/* --- the execution --- */

struct petra_execution {
  petra_ranks *ranks;
  const petra_plan *plan;
  const petra_placement *placement;
  petra_rank_times *times; /* of the actions of this rank */
  petra_stages stages;     /* with the stages that are here */
  petra_backend *backend;
  int64_t evaluation_images; /* of the evaluation split; 0: no evaluations */
  petra_rank_links links;
  int64_t *forward_bytes, *backward_bytes; /* maximum sizes of the messages of each stage */
  petra_loss_relay *relay;
  petra_execution_worker_options options; /* of the worker */
  petra_worker *worker;
  petra_worker *delays;       /* NULL: no random delays */
  petra_executor *executor;   /* of `arrival`, borrowed; else NULL */
  petra_transport *transport; /* borrowed */
  int64_t origin_ns;
  petra_progress_thread_counts before; /* before the training */
};

/* --- worker_ranks.c ---
 * The worker of a rank. It receives the actions of all stages, in the one order that the schedule has under the virtual
 * clock, the same on every rank. The worker of the stages performs the actions of the stages that are here, and waits
 * for the messages of other ranks; the actions of other stages are counted. So the order, and what depends on it
 * (evaluations, the end), is the same everywhere without communication. */

/* With the options of the execution; the transport exists. */
petra_status petra_worker_ranks_create(petra_execution *execution, petra_worker **out);
void petra_worker_ranks_destroy(petra_worker *worker);

/* Returns a worker that counts actions of all stages without performing them: the actions that a checkpoint has done,
 * before any other. Valid as long as the worker. */
petra_worker *petra_worker_ranks_counting(petra_worker *worker);

/* Nanoseconds spent so far in the actions here, and the parts spent waiting, and converting tensors to messages and
 * back. */
typedef struct petra_worker_ranks_times {
  int64_t busy_ns, waited_ns, copied_ns;
} petra_worker_ranks_times;
petra_worker_ranks_times petra_worker_ranks_took(const petra_worker *worker);

/* Wraps `worker`, which is borrowed, if the environment has PETRA_TEST_DELAYS=SEED:MOST; else *out is NULL. The delays
 * are up to MOST microseconds per action, drawn for each rank by itself. */
petra_status petra_random_delays_create(petra_worker *worker, int rank, petra_worker **out);
void petra_random_delays_destroy(petra_worker *delays); /* NULL is allowed */

/* --- executor_ranks.c ---
 * The executor of a rank under the wall clock, for program `arrival`, which has no order. Of the actions that its
 * stages can do, the rank does the one whose message arrived first (schedule/arrival.h), and it waits only for
 * messages. It does one action at a time, of any of its stages; at equal times B before F, then the higher stage. F of
 * a stage also waits while more than PETRA_TRANSPORT_AHEAD of its messages wait at the next stage, here or elsewhere.
 *
 * An evaluation goes through the ranks batch by batch, between actions. A rank passes on a batch when it is that
 * batch's turn, once all its stages have their snapshots. A stage takes no further snapshot (and does nothing else)
 * while the one before is in use.
 *
 * The rank is done when every microbatch has come back through all its stages and its part of every evaluation is over.
 * No rank waits for ever: docs/adr/0017.
 *
 * If there are cuts, stage 1 reads no microbatch behind a cut before the cut was written. So each rank finishes all
 * that was read, as at the end of the run, and no message is under way. A checkpoint on which the ranks agree
 * (group/progress_thread.h) is a cut as well; its position is the number of microbatches that stage 1 has read. */

/* `evaluating` is the worker of worker_stage, with options.waves; actions go to the worker that `run` gets. The
 * executor's clock (base/clock.h) counts from `origin_ns`. Its `run` is for programs that are `arrival`; for others it
 * logs and returns PETRA_UNSUPPORTED. The arguments are borrowed. */
petra_status petra_executor_ranks_create(petra_execution *execution, petra_worker *evaluating, int64_t origin_ns,
                                         const petra_pipeline_cuts *cuts, petra_executor **out);

/* Nanoseconds of the wall clock so far: spent waiting between actions, and on batches of evaluations. */
typedef struct petra_executor_ranks_times {
  int64_t waiting_ns, evaluating_ns;
} petra_executor_ranks_times;
petra_executor_ranks_times petra_executor_ranks_took(const petra_executor *executor);
