/* The part of a run that is there only where the run is executed by several processes (run.mode: execute): which stages
 * are here, messages between the ranks, and what the other ranks have for the log and the files of rank 0. */
#ifndef PETRA_RUN_EXECUTION_H
#define PETRA_RUN_EXECUTION_H

#include "data/dataset.h"
#include "exec/worker_stage.h"
#include "io/runlog.h"
#include "run/cluster.h"
#include "run/network.h"
#include "run/placement.h"
#include "run/ranks.h"

typedef struct petra_execution petra_execution;

/* What the mode cannot do (`resume`: going on from a checkpoint): PETRA_CONFIG or PETRA_UNSUPPORTED, with the key. Places the stages. `ranks` and `plan` are
 * borrowed; the plan has its program. */
petra_status petra_execution_create(petra_ranks *ranks, const petra_plan *plan, bool resume, petra_execution **out);
void petra_execution_destroy(petra_execution *execution); /* NULL is allowed */
const petra_placement *petra_execution_placement(const petra_execution *execution);

/* Before anything is written: whether every rank got so far, with the same config, program, data and backend. */
petra_status petra_execution_agree(petra_ranks *ranks, petra_status status, const petra_network *network,
                                   const petra_cluster *cluster, const petra_dataset *train,
                                   const petra_dataset *evaluation);

/* The transport of the stages that are here. */
petra_status petra_execution_transport(petra_execution *execution, const petra_network *network, petra_transport **out);

/* The observer for the worker: what the last stage has to tell goes to the observer `log` of rank 0, from this rank or
 * another one. Borrowed. */
petra_stage_observer *petra_execution_observer(petra_execution *execution, petra_stage_observer *log);

/* The worker for the executor, around that of the stages that are here. `record`: rows of actions are kept. */
petra_status petra_execution_worker(petra_execution *execution, petra_worker *worker, const petra_network *network,
                                    petra_transport *transport, bool record, petra_worker **out);

/* After the executor: rank 0 waits for what the last stage still has to tell. */
petra_status petra_execution_finish(petra_execution *execution);

/* To rank 0: the accounts of all stages. */
petra_status petra_execution_accounts(petra_execution *execution, petra_account *accounts);

/* To rank 0: what each rank did, into its run.h5 (NULL on the others). */
petra_status petra_execution_ranks(petra_execution *execution, petra_runlog *runlog);

/* To rank 0: the actions that the workers of all ranks recorded, by the wall clock from the first one on: into run.h5 in the
 * order of their starts, to `trace` in that of their ends. Either may be NULL, as both are on the other ranks. */
petra_status petra_execution_actions(petra_execution *execution, petra_runlog *runlog, petra_observer *trace);

/* The same without an execution: of what each rank did, and of the rows of each. */
petra_status petra_execution_gather_ranks(const petra_placement *placement, const petra_runlog_rank *did,
                                          int32_t stages, petra_runlog *runlog);
petra_status petra_execution_gather_actions(petra_ranks *ranks, const petra_trace_row *rows, int64_t count,
                                            petra_runlog *runlog, petra_observer *trace);

#endif
