/* SPDX-License-Identifier: Apache-2.0 */
/* What execution.c, execution_checkpoint.c and execution_gather.c share. */
#pragma once

#include "distributed/execution.h"

#include "distributed/loss_relay.h"
#include "distributed/rank_times.h"

struct petra_execution {
  petra_ranks *ranks;
  const petra_plan *plan;
  petra_placement placement;
  petra_rank_links links;
  int64_t *forward_bytes, *backward_bytes; /* of the messages of each stage */
  petra_loss_relay *relay;
  petra_probe *probe;            /* borrowed; NULL: none */
  petra_probe_ranks probe_ranks; /* what it is told of this run */
  petra_best *best;              /* borrowed; NULL: run.keep: last */
  petra_action_log *actions;     /* borrowed; NULL: nobody records them */
  petra_worker *worker;
  petra_worker *pauses, *exchange; /* NULL: no pauses, no replicas */
  petra_executor *executor;        /* of `arrival`, borrowed; else NULL */
  petra_transport *transport;      /* borrowed */
  int64_t origin_ns;
  int64_t resumed_ns; /* the clock of rank 0 when the run went on from a checkpoint */
  petra_rank_times times;
  petra_carrier_counts before; /* the training */
  petra_runlog_rank did;       /* by this rank */
};
