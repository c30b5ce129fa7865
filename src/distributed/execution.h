/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a run that is there only where the run is executed by several processes (run.mode: execute): which stages
 * are here, messages between the ranks, and what the other ranks have for the log and the files of rank 0. */
#pragma once

#include "data/dataset.h"
#include "distributed/executor_arrival.h"
#include "probe/probe.h"
#include "exec/worker_stage.h"
#include "record/run_h5.h"
#include "record/action_log.h"
#include "distributed/best_weights.h"
#include "plan/network.h"
#include "plan/placement.h"
#include "distributed/rank_links.h"
#include "distributed/rank_times.h"
#include "group/ranks.h"

typedef struct petra_execution petra_execution;

/* What the mode cannot do: PETRA_CONFIG, with the key. Places the stages. `ranks` and `plan` are borrowed; the plan has its
 * program. */
petra_status petra_execution_create(petra_ranks *ranks, const petra_plan *plan, petra_execution **out);
void petra_execution_destroy(petra_execution *execution); /* NULL is allowed */
const petra_placement *petra_execution_placement(const petra_execution *execution);

/* Before anything is written, at all ranks, which have agreed: how messages go, and the connections for it. */
petra_status petra_execution_connect(petra_execution *execution, const petra_network *network);
const char *petra_execution_way(const petra_execution *execution); /* "NCCL 2.28.9" */

/* The transport of the stages that are here; `evaluation` is NULL where nothing is evaluated. */
petra_status petra_execution_transport(petra_execution *execution, const petra_network *network,
                                       const petra_dataset *evaluation, petra_transport **out);

/* The observer for the worker of the stages that are here (distributed/loss_relay.h). `observers`, a list, are those of this rank that are
 * notified of losses and evaluations; with run.keep: best `best` is among them, else NULL. Borrowed. */
petra_status petra_execution_relay(petra_execution *execution, petra_stage_observer *observers, petra_best *best,
                                   petra_stage_observer **out);

/* Before the worker: the probe of this process; `options` but for `ranks`. Adds what looks at the stages that are here to
 * `observers`. The caller has it, until after petra_execution_destroy. */
petra_status petra_execution_add_probe(petra_execution *execution, const petra_probe_options *options,
                                       petra_stage_observer **observers, petra_probe **out);

/* The worker for the executor, around that of the stages that are here. `actions` (NULL: none) records
 * those of this rank. */
petra_status petra_execution_worker(petra_execution *execution, petra_worker *worker, const petra_network *network,
                                    petra_transport *transport, petra_action_log *actions, petra_worker **out);

/* The executor of a program without an order (`arrival`), for the worker that petra_execution_worker gave. `stages`: the
 * worker of the stages that are here; `cuts`: the checkpoints. All ranks come here. The caller has it, until after
 * petra_execution_finish. */
petra_status petra_execution_executor(petra_execution *execution, petra_worker *stages, const petra_network *network,
                                      const petra_executor_cuts *cuts, petra_executor **out);

/* After the executor: rank 0 waits for what the last stage and probes still have to tell, and has the weights of the best
 * evaluation. */
petra_status petra_execution_finish(petra_execution *execution);

/* --- checkpoints: NULL is a run of one process, to which there is nothing to do --- */

/* The observers know all losses and evaluations so far (petra_execution_relay), and best.h5 is written. */
petra_status petra_execution_settle(petra_execution *execution);

/* Whether all ranks got here in order (petra_ranks_agree); then to rank 0: a number of each stage of each replica, of the rank that
 * has it. */
petra_status petra_execution_collect(petra_execution *execution, petra_status status, int64_t *of_stages);
petra_status petra_execution_agree_on(petra_execution *execution, petra_status status);

/* petra_carrier_meet. By arrival the executor goes to the meetings, otherwise petra_execution_meets does. */
void petra_execution_meet(petra_execution *execution, int64_t every_ns, int64_t place);

/* `done` actions of all stages are done, and the rank is about to go on to `next`: whether all ranks meet here. */
petra_status petra_execution_meets(petra_execution *execution, int64_t done, int64_t next, bool *meets,
                                   petra_meeting_end *end);

/* petra_carrier_meet_restart, and with `met` petra_carrier_met. */
void petra_execution_met(petra_execution *execution, bool met);

/* petra_carrier_unbegun; true without an execution. */
bool petra_execution_unbegun(petra_execution *execution, bool unbegun);

/* The clock of rank 0 now; 0 without an execution. */
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

/* For the actions that the checkpoint has done (checkpoint/checkpoints.h). */
petra_worker *petra_execution_counting(petra_execution *execution);

/* To rank 0: the accounts of all stages. */
petra_status petra_execution_accounts(petra_execution *execution, petra_account *accounts);

/* To rank 0: what each rank did, into its run.h5 (NULL on the others). */
petra_status petra_execution_ranks(petra_execution *execution, petra_runlog *runlog);

/* Of the actions of this rank. */
petra_rank_times *petra_execution_times(petra_execution *execution);

/* To rank 0: the actions that the workers of all ranks recorded, by the wall clock from the first one on: into run.h5 in one
 * order (record/action_log.h), to `trace` in that of their ends. Either may be NULL, as both are on the other ranks. */
petra_status petra_execution_actions(petra_execution *execution, petra_runlog *runlog, petra_observer *trace);

/* petra_execution_ranks without an execution: of what each rank did. */
petra_status petra_execution_gather_ranks(const petra_placement *placement, const petra_runlog_rank *did,
                                          int32_t stages, petra_runlog *runlog);
