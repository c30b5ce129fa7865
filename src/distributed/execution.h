/* SPDX-License-Identifier: Apache-2.0 */
/* A training of several processes (run.mode: execute). Every rank has some of the stages. petra_execution connects the
 * ranks, moves messages between them, and sends the losses of the last stage to the other ranks. A run of one process
 * has no petra_execution. */
#pragma once

#include "data/dataset.h"
#include "exec/pipeline.h"
#include "setup/virtual_cluster.h"
#include "sim/rank_times.h"

typedef struct petra_execution petra_execution;

/* Returns PETRA_CONFIG, with the key, if the ranks cannot execute the plan, which has its program. `times` receives the
 * actions of this rank. The arguments are borrowed. */
petra_status petra_execution_create(const petra_placement *placement, const petra_plan *plan, petra_rank_times *times,
                                    petra_execution **out);
void petra_execution_destroy(petra_execution *execution); /* after its transport; NULL is allowed */

/* Call this on all ranks, after they agreed and before anything is written. Rank 0 chooses, by cluster.transport, how
 * all ranks send messages, and neighbours connect. On failure, all ranks return PETRA_CONFIG or another status, and one
 * line is logged. */
petra_status petra_execution_connect(petra_execution *execution, const petra_network *network);
const char *petra_execution_link_name(const petra_execution *execution); /* "NCCL 2.28.9" */

/* Creates the transport of the stages that are here. `evaluation` is NULL if there are no evaluations. */
petra_status petra_execution_transport(petra_execution *execution, const petra_network *network,
                                       const petra_dataset *evaluation, petra_transport **out);

/* Creates the relay of losses. `observers` is a list of this rank (borrowed). On rank 0, the relay notifies them of the
 * losses and evaluations of all replicas; with `keeps_best`, it notifies them of the evaluations on every rank of
 * replica 0. Adds the relay, and the observers here, to `list`: the observers of the worker of the replica that is
 * here. */
petra_status petra_execution_relay(petra_execution *execution, petra_stage_observer *observers, bool keeps_best,
                                   petra_stage_observer **list);

/* Waits until the observers know all losses and evaluations so far. All ranks call this at the same position of the
 * schedule. */
petra_status petra_execution_drain(petra_execution *execution);

/* Creates the worker for the executor, and begins the summary of this rank; pass the summary to petra_execution_finish
 * as well. `performing` performs the actions of the stages that are here. `groups` is a list that is notified (begins,
 * done) of the actions of all stages. `actions` is a list that is notified (ended) of the actions of this rank. NULL:
 * none. All is borrowed, and so is *out. For tests, PETRA_TEST_DELAYS=SEED:MAXIMUM in the environment delays each
 * action at random, by up to MAXIMUM microseconds; each rank draws its own delays. */
petra_status petra_execution_worker(petra_execution *execution, petra_worker *performing, petra_stage_observer *groups,
                                    petra_observer *actions, petra_rank_summary *this_rank, petra_worker **out);

/* Returns the worker that counts the actions of all stages which a checkpoint has done, before any other action;
 * borrowed. */
petra_worker *petra_execution_counting(petra_execution *execution);

/* Creates the executor of a program without an order (`arrival`), for the worker of petra_execution_worker; `stages` is
 * the worker of worker_stage. All ranks call this. The caller owns it, and destroys it after petra_execution_finish. */
petra_status petra_execution_executor(petra_execution *execution, petra_worker *stages, const petra_pipeline_cuts *cuts,
                                      petra_executor **out);

/* Call this after the executor. Calls drain(context), which waits for the messages that other ranks still send, and
 * completes the summary of this rank. */
petra_status petra_execution_finish(petra_execution *execution, petra_status (*drain)(void *context), void *context,
                                    petra_rank_summary *this_rank);

/* Returns the clock of rank 0 now. */
int64_t petra_execution_clock_ns(const petra_execution *execution);

/* Adds up the times of all ranks on rank 0; all ranks call this, each with the times of its actions. */
petra_status petra_execution_gather_times(petra_rank_times *times, petra_ranks *ranks);

/* --- facts that must be the same on all ranks: program, backend, data, files that they read, the config --- */

typedef struct petra_consistency {
  const petra_network *network;
  const petra_cluster *cluster;            /* its costs determine the order */
  const petra_dataset *train, *evaluation; /* evaluation NULL: none */
  bool resumes, traces;                    /* --resume, --trace: all ranks act on them together */
} petra_consistency;

/* Prints the lines of text that the ranks compare; it is a petra_text_printer for a petra_consistency. Files and images
 * are printed as hashes. Fails if a file or an image cannot be read. */
petra_status petra_consistency_print(const void *digest, FILE *out);
