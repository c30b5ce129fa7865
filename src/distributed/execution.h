/* SPDX-License-Identifier: Apache-2.0 */
/* The common work of the processes of a training, a group of at least one: it knows which stages are here, moves
 * messages between the ranks, and collects from the other ranks what rank 0 logs and writes. In a group of one without
 * a progress thread (PETRA_RANKS_ONE, run.mode: emulate) the stages of all replicas are here. Functions marked "with a
 * progress thread" are only for run.mode: execute. */
#pragma once

#include "data/dataset.h"
#include "distributed/executor_arrival.h"
#include "probe/probe.h"
#include "exec/worker_stage.h"
#include "record/run_h5.h"
#include "record/action_log.h"
#include "distributed/best_weights.h"
#include "exec/pipeline.h"
#include "setup/placement.h"
#include "distributed/rank_links.h"
#include "distributed/rank_times.h"
#include "group/ranks.h"

typedef struct petra_execution petra_execution;

/* Returns PETRA_CONFIG, with the key, if the ranks cannot execute the plan, which has its program. `times` receives the
 * actions of this rank, with a progress thread. The arguments are borrowed. */
petra_status petra_execution_create(const petra_placement *placement, const petra_plan *plan, petra_rank_times *times,
                                    petra_execution **out);
void petra_execution_destroy(petra_execution *execution); /* NULL is allowed */

/* Returns true if the group has no progress thread, because nothing was launched. */
bool petra_execution_alone(const petra_execution *execution);

/* Call this on all ranks, after they agreed and before anything is written. It chooses how messages are sent, and opens
 * the connections for it. */
petra_status petra_execution_connect(petra_execution *execution, const petra_network *network);
const char *petra_execution_link_name(const petra_execution *execution); /* "NCCL 2.28.9"; with a progress thread */

/* Creates the transport of the stages that are here; NULL without a progress thread, because no message leaves the
 * process. `evaluation` is NULL if there are no evaluations. */
petra_status petra_execution_transport(petra_execution *execution, const petra_network *network,
                                       const petra_dataset *evaluation, petra_transport **out);

/* Creates the relay of losses (distributed/loss_relay.h). It notifies `observers`, a list of this rank, of losses and
 * evaluations. With run.keep: best `best` is among them, else NULL. Borrowed. */
petra_status petra_execution_relay(petra_execution *execution, petra_stage_observer *observers, petra_best *best);

/* Returns the observer for the worker of a replica that is here. Call petra_execution_relay first. */
petra_stage_observer *petra_execution_observer(petra_execution *execution, int replica);

/* Creates the probe of this process, before the worker; `options` without `ranks`. The caller owns it, and destroys it
 * after petra_execution_destroy. */
petra_status petra_execution_create_probe(petra_execution *execution, const petra_probe_options *options,
                                          petra_probe **out);

/* Creates the worker for the executor, around those of `pipelines` (one per replica; NULL: in another process). With a
 * progress thread `actions` (NULL: none) records the actions of this rank, and `account` begins its account of the run;
 * pass the same one to petra_execution_finish. */
petra_status petra_execution_worker(petra_execution *execution, petra_pipeline *const *pipelines,
                                    petra_action_log *actions, petra_run_h5_rank *this_rank, petra_worker **out);

/* Creates the executor of a program without an order (`arrival`), for the worker of petra_execution_worker. `stages` is
 * the worker of the stages that are here; `cuts` are the checkpoints. All ranks call this. The caller owns it, and
 * destroys it after petra_execution_finish. */
petra_status petra_execution_executor(petra_execution *execution, petra_worker *stages, const petra_network *network,
                                      const petra_executor_cuts *cuts, petra_executor **out);

/* Call this after the executor. Rank 0 waits for the messages that remain from the last stage and the probes, and
 * writes the weights of the best evaluation. */
petra_status petra_execution_finish(petra_execution *execution, petra_run_h5_rank *this_rank);

/* --- checkpoints --- */

/* Waits until the observers know all losses and evaluations so far (petra_execution_relay), and best.h5 is written. */
petra_status petra_execution_drain(petra_execution *execution);

/* Checks that all ranks came without a failure (petra_ranks_agree). Then it collects on rank 0 one number per stage of
 * each replica, from the rank that has the stage. */
petra_status petra_execution_collect(petra_execution *execution, petra_status status, int64_t *of_stages);
petra_status petra_execution_agree_on(petra_execution *execution, petra_status status);

/* From now on all ranks meet when any of them receives a signal, or `every_ns` (0: never) after the last meeting.
 * `place` is where this rank is. By arrival the executor goes to the meetings, otherwise petra_execution_meets does. */
void petra_execution_meet(petra_execution *execution, int64_t every_ns, int64_t place);

/* Call this when `done` actions of all stages are done, before the rank goes on to `next`. *meets is true if all ranks
 * meet here. */
petra_status petra_execution_meets(petra_execution *execution, int64_t done, int64_t next, bool *meets,
                                   petra_meeting_end *end);

/* Measures the time to the next meeting from now; with `met` this rank leaves one. */
void petra_execution_met(petra_execution *execution, bool met);

/* Does the same as petra_progress_thread_unbegun. */
bool petra_execution_unbegun(petra_execution *execution, bool unbegun);

/* Returns the clock of rank 0 now; 0 without a progress thread. */
int64_t petra_execution_clock_ns(const petra_execution *execution);

/* Records that a checkpoint took `ns` nanoseconds, which do not count as time of the microbatches. */
void petra_execution_paused(petra_execution *execution, int64_t ns);

/* Reads or writes the recorded actions of a stage, in its part. `clock_ns` is petra_execution_clock_ns when it was
 * written. The times become those of a run without a pause. */
petra_status petra_execution_archive(petra_execution *execution, int32_t stage, int64_t clock_ns,
                                     petra_archive *archive);

/* All ranks resume from the checkpoint that rank 0 found, whose file has this digest; 0: from the beginning. Afterwards
 * *digest is the same on all ranks. */
petra_status petra_execution_resume(petra_execution *execution, uint64_t *digest);

/* Returns the worker that counts the actions which the checkpoint has done (checkpoint/checkpoints.h); borrowed. */
petra_status petra_execution_counting(petra_execution *execution, petra_worker **out);

/* Collects the accounts of all stages on rank 0. */
petra_status petra_execution_accounts(petra_execution *execution, petra_account *accounts);
