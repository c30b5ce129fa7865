/* SPDX-License-Identifier: Apache-2.0 */
/* What a schedule that passed petra_schedule_check asks of those who run it. */
#ifndef PETRA_SCHEDULE_EXAMINE_H
#define PETRA_SCHEDULE_EXAMINE_H

#include "schedule/schedule.h"

/* Between the forward and the backward of a microbatch at a stage, the largest over its microbatches. */
typedef struct petra_schedule_distance {
  int64_t lag;   /* updates of the stage */
  int64_t delay; /* forwards of the stage that come after its own */
} petra_schedule_distance;

/* For every stage (stages of them, from 0). A fused last stage has 0 and 0. */
petra_status petra_schedule_distances(const petra_schedule *schedule, petra_schedule_distance *out);

/* Finds out when "when a backward runs" is, and puts it into schedule->program.moment (schedule/program.h): that of
 * `own`, the program in whose place the schedule stands, where the schedule has its order; else WINDOW, where every pass of
 * microbatch m comes after floor(m / accumulate) updates of its stage; else that of another program that has this order;
 * else NONE. An order is the same where every device does the same F, B, W and U one after the other, drained or
 * not; rounds and E may differ. With CLOCK, whose trace the schedule has not, it is NONE. */
petra_status petra_schedule_find_moment(petra_schedule *schedule, const petra_program_ops *own, int64_t accumulate);

/* What training asks for besides. */
typedef struct petra_schedule_demands {
  int64_t accumulate; /* k: passes of every U */
  int64_t batches;    /* N: microbatches per epoch */
  int64_t eval_every; /* epochs between evaluations; 0: none */
  bool double_buffer; /* F and B of microbatch m read the weights after max(0, floor(m / k) - 1) updates */
} petra_schedule_demands;

/* Whether real stages can run the schedule: stage 1 reads the microbatches in the order of their numbers, from 0;
 * every U covers k of them; with a double buffer the weights that F reads are those before the latest update or the
 * latest; E come at the ends of the epochs to be evaluated, all of them. PETRA_SCHEDULE, logged as "NAME: device 2,
 * action 3 (2B0): reason". */
petra_status petra_schedule_check_training(const petra_schedule *schedule, const char *name,
                                           const petra_schedule_demands *demands);

#endif
