/* SPDX-License-Identifier: Apache-2.0 */
/* What a schedule takes on ranks that have several stages each. A rank is one device with one engine, and does its actions in
 * the order in which all ranks of an executed run go through the schedule (distributed/worker_ranks.h): that of the virtual executor
 * over all stages, whatever their times. It waits for messages alone; a message between its own stages takes no time, one for
 * another rank takes its link, and both ranks time to turn tensors into it and back. So there are two runs of the executor:
 * one over the stages, whose order is kept, and one over the ranks, which goes by that order.
 *
 * A profile of several ranks tells what actions take while all of them compute, and while the others wait. An action then takes
 * what lies between, by the share of the other ranks that compute while its rank does: which is the run's, so that it is found by
 * some runs of the executor, each with the shares of the one before.
 *
 * Costs are those of the plan's cluster or, for an interval, the quartiles of its profile: every cost at its first, or at its
 * third, which is what the run takes where all of the machine is as fast, or as slow, as a quarter of the time. */
#pragma once

#include "plan/virtual_cluster.h"
#include "distributed/rank_times.h"

typedef struct petra_rank_simulation petra_rank_simulation;

/* `plan` (with its program) and `cluster` are borrowed. rank_of: of each stage; copied; NULL: every device of the plan on its
 * own, with the clock and the links of the cluster. Links between ranks are those of the profile where it has measured
 * them and cluster.link does not say otherwise. PETRA_CONFIG where the method has no order, or the links are shared fairly. */
petra_status petra_rank_simulation_create(const petra_plan *plan, const petra_cluster *cluster, const int32_t *rank_of,
                                          int32_t ranks, petra_rank_simulation **out);
void petra_rank_simulation_destroy(petra_rank_simulation *placed); /* NULL is allowed */

/* Whether there are quartiles. */
bool petra_rank_simulation_has_interval(const petra_rank_simulation *placed);
bool petra_rank_simulation_measured_link(const petra_rank_simulation *placed);

/* For an executor over the ranks: with means or quartiles. Valid until petra_rank_simulation_destroy. */
const petra_executor_virtual_options *petra_rank_simulation_executor(const petra_rank_simulation *placed,
                                                                     petra_profile_statistic statistic);
const petra_program_ops *petra_rank_simulation_program(const petra_rank_simulation *placed);
const petra_program_options *petra_rank_simulation_options(const petra_rank_simulation *placed);

/* Finds the order, and the costs that depend on it; before an executor is made of petra_rank_simulation_executor. */
petra_status petra_rank_simulation_order(petra_rank_simulation *placed);

/* Runs it; *times (petra_rank_times_init) is told of every action. */
petra_status petra_rank_simulation_run(petra_rank_simulation *placed, petra_profile_statistic statistic,
                                       petra_rank_times *times);

/* The upper end of an interval, of the time per microbatch by means and that by third quartiles. On several ranks a run also reads samples,
 * writes a log and goes through the schedule, and has moments that the means leave out as far out: none of it is in a profile, and it
 * makes runs slower alone. Eight of two ranks took 1.00 to 1.11 times what the means say: the upper end is that, at least. */
double petra_rank_simulation_high_s(int32_t ranks, double mean_s, double quartile3_s);
