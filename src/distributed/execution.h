/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a training do together, which is a group of at least one: which stages are here, the messages between the ranks,
 * and what the other ranks have for the log and the files of rank 0. With a group of one without a progress thread (PETRA_RANKS_ONE, run.mode:
 * emulate) the stages of all replicas are here. The functions that say "with a progress thread" are for run.mode: execute alone. */
#pragma once

#include "data/dataset.h"
#include "distributed/executor_arrival.h"
#include "probe/probe.h"
#include "exec/worker_stage.h"
#include "record/run_h5.h"
#include "record/action_log.h"
#include "distributed/best_weights.h"
#include "plan/pipeline.h"
#include "plan/placement.h"
#include "distributed/rank_links.h"
#include "distributed/rank_times.h"
#include "group/ranks.h"

typedef struct petra_execution petra_execution;

/* PETRA_CONFIG, with the key, if the ranks cannot execute the plan, which has its program. `times` gets the actions of this rank, with a
 * progress thread. Borrowed. */
petra_status petra_execution_create(const petra_placement *placement, const petra_plan *plan, petra_rank_times *times,
                                    petra_execution **out);
void petra_execution_destroy(petra_execution *execution); /* NULL is allowed */

/* Whether nothing was launched: the group has no progress thread. */
bool petra_execution_alone(const petra_execution *execution);

/* Before anything is written, at all ranks, which have agreed: finds how messages go, and opens the connections for it. */
petra_status petra_execution_connect(petra_execution *execution, const petra_network *network);
const char *petra_execution_link_name(const petra_execution *execution); /* "NCCL 2.28.9"; with a progress thread */

/* The transport of the stages that are here; NULL without a progress thread, as nothing leaves the process. `evaluation` is NULL if nothing is
 * evaluated. */
petra_status petra_execution_transport(petra_execution *execution, const petra_network *network,
                                       const petra_dataset *evaluation, petra_transport **out);

/* Creates the relay of losses (distributed/loss_relay.h). `observers`, a list, are those of this rank that are notified of losses and
 * evaluations; with run.keep: best `best` is among them, else NULL. Borrowed. */
petra_status petra_execution_relay(petra_execution *execution, petra_stage_observer *observers, petra_best *best);

/* The observer for the worker of a replica that is here; after petra_execution_relay. */
petra_stage_observer *petra_execution_observer(petra_execution *execution, int replica);

/* Before the worker: the probe of this process; `options` but for `ranks`. The caller has it, until after petra_execution_destroy. */
petra_status petra_execution_create_probe(petra_execution *execution, const petra_probe_options *options,
                                          petra_probe **out);

/* The worker for the executor, around those of `pipelines` (of each replica; NULL: in another process). `actions` (NULL: none) records
 * those of this rank; with a progress thread. `did` is what the rank does, from here to petra_execution_finish, which gets the same. */
petra_status petra_execution_worker(petra_execution *execution, petra_pipeline *const *pipelines,
                                    petra_action_log *actions, petra_runlog_rank *did, petra_worker **out);

/* The executor of a program without an order (`arrival`), for the worker that petra_execution_worker gave. `stages`: the
 * worker of the stages that are here; `cuts`: the checkpoints. All ranks come here. The caller has it, until after
 * petra_execution_finish. */
petra_status petra_execution_executor(petra_execution *execution, petra_worker *stages, const petra_network *network,
                                      const petra_executor_cuts *cuts, petra_executor **out);

/* After the executor: rank 0 waits for what the last stage and probes still have to tell, and has the weights of the best
 * evaluation. */
petra_status petra_execution_finish(petra_execution *execution, petra_runlog_rank *did);

/* --- checkpoints --- */

/* The observers know all losses and evaluations so far (petra_execution_relay), and best.h5 is written. */
petra_status petra_execution_drain(petra_execution *execution);

/* Whether all ranks got here in order (petra_ranks_agree); then to rank 0: a number of each stage of each replica, of the rank that
 * has it. */
petra_status petra_execution_collect(petra_execution *execution, petra_status status, int64_t *of_stages);
petra_status petra_execution_agree_on(petra_execution *execution, petra_status status);

/* From now on all ranks meet when a signal comes to any of them, or `every_ns` (0: never) after the last meeting. `place`: where this rank
 * is. By arrival the executor goes to the meetings, otherwise petra_execution_meets does. */
void petra_execution_meet(petra_execution *execution, int64_t every_ns, int64_t place);

/* `done` actions of all stages are done, and the rank is about to go on to `next`: whether all ranks meet here. */
petra_status petra_execution_meets(petra_execution *execution, int64_t done, int64_t next, bool *meets,
                                   petra_meeting_end *end);

/* The time to the next meeting counts from now; with `met` this rank leaves one. */
void petra_execution_met(petra_execution *execution, bool met);

/* As petra_progress_thread_unbegun. */
bool petra_execution_unbegun(petra_execution *execution, bool unbegun);

/* The clock of rank 0 now; 0 without a progress thread. */
int64_t petra_execution_clock_ns(const petra_execution *execution);

/* A checkpoint took so long: that is no time of the microbatches. */
void petra_execution_paused(petra_execution *execution, int64_t ns);

/* The recorded actions of a stage, in its part; `clock_ns`: petra_execution_clock_ns when it was written. Their times are
 * made those of a run without a pause. */
petra_status petra_execution_archive(petra_execution *execution, int32_t stage, int64_t clock_ns,
                                     petra_archive *archive);

/* All ranks go on from the checkpoint that rank 0 found, whose file has this digest; 0: from the beginning. The same on all
 * ranks afterwards. */
petra_status petra_execution_resume(petra_execution *execution, uint64_t *digest);

/* The worker for the actions that the checkpoint has done (checkpoint/checkpoints.h), which counts them; borrowed. */
petra_status petra_execution_counting(petra_execution *execution, petra_worker **out);

/* To rank 0: the accounts of all stages. */
petra_status petra_execution_accounts(petra_execution *execution, petra_account *accounts);
