/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates a schedule on ranks that have several stages each.
 *
 * A rank is one device with one engine. It does its actions in the order in which all ranks of an executed run go
 * through the schedule (distributed/worker_ranks.c): the order of the virtual executor over all stages, regardless of
 * durations. It waits only for messages. A message between its own stages takes no time. A message to another rank
 * takes the time of its link, and both ranks spend time to pack and unpack it. So the executor runs twice: once over
 * the stages, to record their order, and once over the ranks, in that order.
 *
 * A profile of several ranks has durations of actions while all ranks compute, and while the other ranks wait. The
 * duration of an action is interpolated by the share of the other ranks that compute at the same time. This share
 * depends on the run, so the executor runs several times, each time with the shares of the previous run.
 *
 * Costs are the costs of the plan's cluster or, for an interval, quartiles of its profile: all costs at the first
 * quartile, or all at the third. The results are the durations if the whole machine is as fast as in the fastest
 * quarter of the time, or as slow as in the slowest quarter. */
#pragma once

#include "setup/virtual_cluster.h"
#include "sim/rank_times.h"

typedef struct petra_rank_simulation petra_rank_simulation;

/* `plan` (with its program) and `cluster` are borrowed. `rank_of` has the rank of each stage and is copied; NULL: every
 * device of the plan is a rank, with the clock and the links of the cluster. Links between ranks are the links of the
 * profile if it has measured them and cluster.link does not say otherwise. *out is NULL before; destroy it even on
 * failure. PETRA_CONFIG if the method has no order, or the links are shared fairly. */
petra_status petra_rank_simulation_create(const petra_plan *plan, const petra_cluster *cluster, const int32_t *rank_of,
                                          int32_t ranks, petra_rank_simulation **out);
void petra_rank_simulation_destroy(petra_rank_simulation *rank_simulation); /* NULL is allowed */

/* Returns true if there are quartiles. */
bool petra_rank_simulation_has_interval(const petra_rank_simulation *rank_simulation);
bool petra_rank_simulation_measured_link(const petra_rank_simulation *rank_simulation);

/* Gets the arguments of an executor over the ranks, with means. Valid until petra_rank_simulation_destroy. */
void petra_rank_simulation_arguments(const petra_rank_simulation *rank_simulation,
                                     const petra_executor_virtual_options **clock, const petra_program_ops **program,
                                     const petra_program_options **options);

/* Finds the order, and the costs that depend on it. Call it before you create an executor from
 * petra_rank_simulation_arguments. */
petra_status petra_rank_simulation_order(petra_rank_simulation *rank_simulation);

/* Runs the simulation; *times (petra_rank_times_init) is notified of every action. */
petra_status petra_rank_simulation_run(petra_rank_simulation *rank_simulation, petra_profile_statistic statistic,
                                       petra_rank_times *times);

/* Returns the upper end of the interval of the time per microbatch, computed from the time by means and the time by
 * third quartiles. On several ranks a run also reads samples, writes a log and goes through the schedule, and has slow
 * moments that the means exclude as outliers. The profile contains none of that, and it only makes runs slower. Eight
 * runs of two ranks took 1.00 to 1.11 times the prediction by means: the upper end is at least that. */
double petra_rank_simulation_high_s(int32_t ranks, double mean_s, double quartile3_s);

/* Creates an observer of a run over ranks, which measures the time in which several ranks compute. `device_of` has the
 * rank of each stage, from 1; borrowed. */
petra_status petra_overlap_create(const int32_t *device_of, int32_t ranks, petra_observer **out);
void petra_overlap_destroy(petra_observer *overlap); /* NULL is allowed */

/* Computes for each rank the share of the other ranks that compute while it does, averaged over its time in actions: 0
 * if the rank always computes alone, 1 if all other ranks compute all that time; 0 for a rank that does nothing. */
void petra_overlap_shares(const petra_observer *overlap, double *shares);
