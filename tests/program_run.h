/* SPDX-License-Identifier: Apache-2.0 */
/* A program on the virtual executor with the worker that counts, for test_programs and test_closed_forms: costs that
 * share no factor, and what a run gave. */
#pragma once

#include "harness.h"
#include "sim/executor_virtual.h"
#include "lay_out.h"
#include "sink.h"
#include "sim/worker_cost.h"

enum { STAGES_MAX = 32, MICROBATCHES_MAX = 64 };

typedef struct costs {
  int64_t forward, backward, reconstruct, weight; /* backward includes weight */
} costs;

static const costs unit = {1, 2, 1, 1};
/* F smaller and larger than B. */
static const costs coprime[] = {{3, 7, 5, 2}, {11, 4, 7, 3}, {1, 101, 13, 29}};
enum { COSTS = sizeof coprime / sizeof *coprime };

/* What a run gave. */
static petra_stage_counts counts[2 * STAGES_MAX * 4 + 1];     /* by stage from 1 */
static petra_device_counts device_counts[STAGES_MAX * 4 + 1]; /* by device from 1 */
static int64_t back_end[MICROBATCHES_MAX + 64];               /* of stage 1's B */
static int64_t update_rows, evaluate_rows, last_end;
enum { ROWS_MAX = 3 * STAGES_MAX * MICROBATCHES_MAX };
static petra_trace_row rows[ROWS_MAX]; /* the first ones, in the order of their ends */
static int64_t row_count;              /* all of them */

static inline petra_status keep_row(void *context, const petra_trace_row *row) {
  (void)context;
  if (row->action.kind == PETRA_ACTION_BACKWARD && row->action.stage == 1)
    back_end[row->action.microbatch] = row->end_ns;
  update_rows += row->action.kind == PETRA_ACTION_UPDATE;
  evaluate_rows += row->action.kind == PETRA_ACTION_EVALUATE;
  last_end = row->end_ns;
  if (row_count < ROWS_MAX)
    rows[row_count] = *row;
  row_count++;
  return PETRA_OK;
}

static bool early_recompute;                /* for the runs that follow */
static const petra_stage_cost *stage_costs; /* so too: of each stage, in place of the same for all; NULL: not */

static inline petra_status run_program(const petra_program_ops *program, const petra_program_options *options,
                                       const costs *x, bool recomputes, int engines, int64_t *makespan) {
  const petra_stage_cost cost = {.forward_ns = x->forward,
                                 .backward_ns = x->backward,
                                 .reconstruct_ns = x->reconstruct,
                                 .weight_gradient_ns = x->weight};
  const petra_executor_virtual_options settings = {.engines = engines,
                                                   .rule = {.recomputes = recomputes,
                                                            .split_backward = program->split_backward,
                                                            .early = early_recompute,
                                                            .fused_head = !options->split_head},
                                                   .costs = stage_costs ? stage_costs : &cost,
                                                   .cost_count = stage_costs ? options->stages : 1};
  const petra_method method = {.program = program};
  petra_executor *executor;
  sink reported;
  petra_worker *worker;
  ck_assert_int_eq(petra_program_check(program, options), PETRA_OK);
  ck_assert_int_eq(petra_executor_virtual_create(&settings, &executor), PETRA_OK);
  ck_assert_int_eq(petra_worker_cost_create(&method, options, &worker), PETRA_OK);
  update_rows = evaluate_rows = last_end = row_count = 0;
  petra_status status = executor->ops->run(executor, program, options, worker, sink_of(&reported, keep_row, NULL));
  *makespan = executor->ops->now_ns(executor);
  for (int32_t j = 1; j <= options->stages; j++)
    counts[j] = petra_worker_cost_counts(worker)[j - 1];
  for (int32_t d = 1; status == PETRA_OK && d <= petra_program_devices(options); d++)
    device_counts[d] = petra_executor_virtual_totals(executor)->counts[d - 1];
  petra_worker_cost_destroy(worker);
  executor->ops->destroy(executor);
  return status;
}

static inline int64_t time_of(const petra_program_ops *program, const petra_program_options *options, const costs *x,
                              bool recomputes, int engines) {
  int64_t makespan = -1;
  ck_assert_int_eq(run_program(program, options, x, recomputes, engines, &makespan), PETRA_OK);
  for (int32_t j = 1; j <= options->stages; j++) {
    ck_assert_int_eq(counts[j].forwards, options->microbatches);
    ck_assert_int_eq(counts[j].backwards, options->microbatches);
    ck_assert_int_eq(counts[j].updates, options->microbatches / options->accumulate);
    ck_assert_int_eq(counts[j].kept, 0);
  }
  return makespan;
}

/* One flush of all microbatches. */
static inline petra_program_options flush_of(int32_t stages, int64_t microbatches, bool split_head) {
  return (petra_program_options){.stages = stages,
                                 .microbatches = microbatches,
                                 .accumulate = microbatches,
                                 .drain = true,
                                 .batches = microbatches,
                                 .split_head = split_head};
}

static inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

#define EXPECT(time, expected, what, options)                                                                          \
  do {                                                                                                                 \
    int64_t time_ = (time), expected_ = (expected);                                                                    \
    ck_assert_msg(time_ == expected_, "%s: J %d, M %lld, k %lld: %lld, expected %lld", (what), (options)->stages,      \
                  (long long)(options)->microbatches, (long long)(options)->accumulate, (long long)time_,              \
                  (long long)expected_);                                                                               \
  } while (0)
