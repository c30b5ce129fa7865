/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the candidates for a config (candidate.h) for the Pareto set: the candidates for which no other candidate is
 * at least as good in time per sample, memory of the fullest device and largest lag, and better in one of these.
 *
 * The search covers
 * - all presets of petra_method_get;
 * - stages per device: one, or two in a V; in a loop from one to PETRA_SEARCH_CHUNKS (without a network: two), or to
 *   method.chunks if it is larger;
 * - k, if costs are counted from kernels (cost models roofline and kernels): all divisors of the samples per update,
 *   data.batch x method.accumulate, which stay the same;
 * - recomputation: graph, input and, in a network with reversible blocks, nothing for every method whose B reads the
 *   weights of its F, so that the gradient stays the same; and early recomputation in the programs that support it;
 * - cuts of the network into stages, if costs are known for each block (cost models roofline and kernels, and a profile
 *   with one block per stage): all cuts if there are at most PETRA_SEARCH_CUTS; otherwise the cuts that trade the
 *   bottleneck against memory (search_cuts.h). Then every boundary of every point is moved by one block, as long as
 *   that gives a better point.
 *
 * A candidate is excluded without a simulation only if a bound shows that another candidate is at least as good in all
 * three figures, or that the candidate does not fit. Without jitter, pauses and failures these bounds hold for every
 * cut (search_cuts.h). */
#pragma once

#include "search/candidate.h"

enum { PETRA_SEARCH_CUTS = 2000, PETRA_SEARCH_CHUNKS = 4 };

/* A point of the Pareto set: a simulated candidate that no other point covers. A point covers another if its time per
 * sample, its memory and its largest lag are at most as large as in the other point. */
typedef struct petra_point {
  petra_candidate candidate; /* owns its cut */
  petra_candidate_figures found;
  double seconds; /* time per sample; without a model per microbatch */
  bool exact;     /* its gradients are synchronous; else they are delayed */
  int64_t family; /* private to the search, like `expanded` */
  bool expanded;
} petra_point;

typedef struct petra_point_set {
  petra_point *point;
  int64_t count, capacity;
} petra_point_set;

typedef struct petra_search_options {
  int64_t memory_bytes; /* maximum memory of a device; 0: no limit */
  bool exact;           /* only methods with exact gradients */
  int64_t lag_max;      /* maximum lag in updates; -1: no limit */
} petra_search_options;

typedef struct petra_search_result {
  petra_point_set points;      /* by rising seconds */
  int64_t simulated, excluded; /* number of candidates that were simulated, and that a bound excluded */
} petra_search_result;

/* Runs the search. Call petra_search_fini even on failure. If no candidate can run: PETRA_CONFIG, with the reason for
 * the config's own method, or else for the first candidate. If candidates run but none is within the options, count is
 * 0. */
petra_status petra_search(const petra_candidates *c, const petra_search_options *options, petra_search_result *out);
void petra_search_fini(petra_search_result *result);
