/* From a config to the modelled cluster: the program's options, the virtual executor's costs, network and
 * luck, and the trace of what runs on it. `petra train` and `petra simulate` share it, so that equal costs
 * give equal traces. */
#ifndef PETRA_CLI_CLUSTER_H
#define PETRA_CLI_CLUSTER_H

#include "cli/recorder.h"
#include "cli/setup.h"
#include "io/trace.h"
#include "sim/executor_virtual.h"
#include "sim/jitter.h"

typedef struct petra_cluster {
  petra_executor_virtual_options executor; /* for petra_executor_virtual_create */
  petra_stage_cost *costs;
  int32_t *node;
  petra_jitter_options jitter;
  petra_trace *trace;       /* NULL: none */
  petra_recorder *recorder; /* NULL: none */
} petra_cluster;

/* Options of the method's program over `stages` stages, checked against the method. With method.schedule the
 * microbatches are those of the file. `setup` has its config and method. */
petra_status petra_cluster_program(const petra_setup *setup, int32_t stages, int64_t microbatches, int64_t batches,
                                   petra_program_options *out);

/* `setup` has its plan, and is given the profile where the costs come from one; with cluster.stages > 0 only its
 * config and method. `trace_path`: NULL for no trace. The cluster must stay where it is until petra_cluster_fini, as
 * its executor options point into it. */
petra_status petra_cluster_init(petra_cluster *cluster, petra_setup *setup, const petra_program_options *program,
                                const char *trace_path);

/* Records the run of `worker`: its memory into the trace (`account` as in cli/recorder.h), its actions into the log
 * if that is not NULL. *out is for the executor, in the place of `worker`, and `worker` itself where there is
 * nothing to record. */
petra_status petra_cluster_record(petra_cluster *cluster, const petra_recorder_options *options, petra_worker **out);

/* A trace sink for the executor; `context` is the cluster. */
petra_status petra_cluster_sink(void *context, const petra_trace_row *row);

/* Ends the trace. */
petra_status petra_cluster_finish(petra_cluster *cluster);

void petra_cluster_fini(petra_cluster *cluster);

#endif
