/* SPDX-License-Identifier: Apache-2.0 */
/* Examines what a schedule that passed petra_schedule_check requires of its executor. */
#pragma once

#include "schedule/schedule.h"

/* The largest counts between the forward and the backward of a microbatch at a stage, over its microbatches. */
typedef struct petra_schedule_distance {
  int64_t lag;   /* updates of the stage */
  int64_t delay; /* later forwards of the stage */
} petra_schedule_distance;

/* Computes the gaps of every stage (schedule->stages of them, from 0). A fused last stage has 0 and 0. */
petra_status petra_schedule_distances(const petra_schedule *schedule, petra_schedule_distance *out);

/* Determines the moment "when a backward runs" (schedule/program.h) and stores it in schedule->program.moment. It is
 * that of `own`, the program that the schedule replaces, if the schedule has its order; else WINDOW if every pass of
 * microbatch m comes after floor(m / accumulate) updates of its stage; else that of another program with this order;
 * else NONE. Two orders are the same if every device does the same F, B, W and U one after the other, drained or not;
 * rounds and E may differ. CLOCK becomes NONE, since the schedule does not have its trace. */
petra_status petra_schedule_find_moment(petra_schedule *schedule, const petra_program_ops *own, int64_t accumulate);

/* Further requirements of training. */
typedef struct petra_schedule_demands {
  int64_t accumulate; /* k: passes of every U */
  int64_t batches;    /* N: microbatches per epoch */
  int64_t eval_every; /* epochs between evaluations; 0: none */
  bool double_buffer; /* F and B of microbatch m read the weights after max(0, floor(m / k) - 1) updates */
} petra_schedule_demands;

/* Checks that real stages can run the schedule: stage 1 reads the microbatches in the order of their numbers, from 0;
 * every U covers k of them; with a double buffer F reads the weights before the latest update or the latest; there is
 * an E at the end of each epoch with an evaluation, and no other. Errors: PETRA_SCHEDULE, logged as "NAME: device 2,
 * action 3 (2B0): reason". */
petra_status petra_schedule_check_training(const petra_schedule *schedule, const char *name,
                                           const petra_schedule_demands *demands);
