/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an execution (execution.h): the links between the ranks, the relay of losses, the worker and the executor
 * of a rank. */
#pragma once

#include "backend/backend.h"
#include "distributed/execution.h"
#include "distributed/transport_ranks.h"
#include "sim/worker_cost.h"

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
 * neighbours connect. `id` is that of a channel of the progress thread that nobody else uses. PETRA_CONFIG or a failure
 * on all ranks, with one line. Call petra_rank_links_fini even on failure. */
petra_status petra_rank_links_init(petra_rank_links *links, const petra_placement *placement, const petra_plan *plan,
                                   petra_backend *backend, int id);

/* Waits for what is under way. Call this after the training, on all ranks. */
petra_status petra_rank_links_close(petra_rank_links *links);

/* Cancels what was not closed. */
void petra_rank_links_fini(petra_rank_links *links);

/* --- loss_relay.c ---
 * Sends the losses and evaluations of a run from the process with the last stage (of each replica) to the observers of
 * other processes. Rank 0 receives all of them. With `keeps_best` every rank of replica 0 receives the
 * evaluations. They are messages on ordinary channels of the progress thread. What a process observes itself goes to its
 * own observers directly. */

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

/* --- worker_ranks.c ---
 * The worker of a rank. It receives the actions of all stages, in the one order that the schedule has under the virtual
 * clock, the same on every rank. The worker of the stages performs the actions of the stages that are here, and waits for
 * the messages of other ranks; the actions of other stages are counted. So the order, and what depends on it (evaluations, the end), is the
 * same everywhere without communication. */

/* All is borrowed. */
typedef struct petra_worker_ranks_options {
  petra_stages stages;
  petra_worker *worker; /* worker_stage's */
  petra_worker_cost_options counting;
  const petra_program_options *program;
  petra_transport *transport;      /* transport_ranks' */
  petra_stage_observer *groups;    /* a list, or NULL; notified (begins, done) of the actions of all stages */
  petra_observer *actions;         /* a list, or NULL; notified (ended) of the actions here, by the wall clock */
  int64_t origin_ns;               /* of the wall clock (base/clock.h): times of rows are relative to it */
  petra_progress_thread *progress; /* of the transport */
  petra_rank_times *times;         /* notified of its own actions */
  /* Is called now and then, between actions; may be NULL. */
  petra_status (*between)(void *context);
  void *context;
} petra_worker_ranks_options;

petra_status petra_worker_ranks_create(const petra_worker_ranks_options *options, petra_worker **out);
void petra_worker_ranks_destroy(petra_worker *worker);

/* Returns a worker that counts actions of all stages without performing them: the actions that a checkpoint has done,
 * before any other. Valid as long as the worker. */
petra_worker *petra_worker_ranks_counting(petra_worker *worker);

/* Nanoseconds spent so far in its own actions, and the parts spent waiting, and converting tensors to messages and
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

/* All is borrowed. */
typedef struct petra_executor_ranks_options {
  petra_stages stages;        /* the stages that are here are neighbours */
  petra_transport *transport; /* transport_ranks', by arrival */
  petra_progress_thread *progress;
  petra_worker *evaluating; /* of worker_stage, with options.waves; actions go to the worker that `run` gets */
  int64_t origin_ns;        /* of the clock (base/clock.h): the executor's counts from it */
  petra_pipeline_cuts cuts;
  /* Is called between actions and while the rank waits; may be NULL. */
  petra_status (*between)(void *context);
  void *context;
} petra_executor_ranks_options;

/* Its `run` is for programs that are `arrival`; for others it logs and returns PETRA_UNSUPPORTED. */
petra_status petra_executor_ranks_create(const petra_executor_ranks_options *options, petra_executor **out);

/* Nanoseconds of the wall clock so far: spent waiting between actions, and on batches of evaluations. */
typedef struct petra_executor_ranks_times {
  int64_t waiting_ns, evaluating_ns;
} petra_executor_ranks_times;
petra_executor_ranks_times petra_executor_ranks_took(const petra_executor *executor);
