/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 gets of the other ranks for the run's files. */
#include "distributed/execution_private.h"

#include "base/mem.h"

#include <string.h>

/* An element of `size` bytes for each stage of each of so many replicas, in their order. */
typedef struct of_stages {
  const petra_execution *execution;
  void *elements;
  size_t size;
} of_stages;

/* Those of the stages that the rank has. */
static petra_status take_elements(void *context, int rank, const void *data, size_t size) {
  const of_stages *of = context;
  const int32_t stages = of->execution->plan->stages, count = (int32_t)(size / of->size);
  for (int32_t i = 0; i < count; i++)
    if (petra_placement_rank(&of->execution->placement, i / stages, i % stages + 1) == rank)
      memmove((char *)of->elements + (size_t)i * of->size, (const char *)data + (size_t)i * of->size, of->size);
  return PETRA_OK;
}

static petra_status gather_elements(const petra_execution *e, int replicas, void *elements, size_t size) {
  of_stages all = {e, elements, size};
  return petra_ranks_gather(e->ranks, elements, (size_t)replicas * (size_t)e->plan->stages * size, take_elements, &all);
}

petra_status petra_execution_collect(petra_execution *e, petra_status status, int64_t *numbers) {
  PETRA_TRY(petra_execution_agree_on(e, status));
  return e ? gather_elements(e, e->placement.replicas, numbers, sizeof *numbers) : PETRA_OK;
}

petra_status petra_execution_accounts(petra_execution *e, petra_account *accounts) {
  return gather_elements(e, 1, accounts, sizeof *accounts);
}

petra_status petra_execution_gather_ranks(const petra_placement *placement, const petra_runlog_rank *did,
                                          int32_t stages, petra_runlog *runlog) {
  petra_ranks *ranks = placement->ranks;
  petra_runlog_rank *rows;
  PETRA_TRY(petra_allocate(&rows, (size_t)ranks->count, sizeof *rows));
  petra_status status = petra_ranks_gather_rows(ranks, did, sizeof *did, rows);
  if (status == PETRA_OK && runlog)
    status = petra_runlog_ranks(runlog, rows, ranks->count, placement->places, placement->rank_of, stages);
  petra_free(rows);
  return status;
}

petra_status petra_execution_ranks(petra_execution *e, petra_runlog *runlog) {
  return petra_execution_gather_ranks(&e->placement, &e->did, e->plan->stages, runlog);
}

petra_status petra_execution_actions(petra_execution *e, petra_runlog *runlog, petra_observer *trace) {
  return petra_action_log_gather(e->actions, e->ranks, e->placement.replica == 0, runlog, trace); /* all do the same */
}
