/* SPDX-License-Identifier: Apache-2.0 */
/* The Pareto set of a search: simulated candidates of which none is covered by another. A point covers another if its
 * time per sample, its memory and its largest lag are at most those of the other. */
#pragma once

#include "search/candidate.h"

typedef struct petra_point {
  petra_candidate candidate;
  int64_t *blocks; /* of the candidate; NULL: it has no cut */
  petra_candidate_figures found;
  double seconds; /* per sample; without a model per microbatch */
  bool exact;     /* its gradients: synchronous; else delayed */
  bool expanded;  /* for the search */
} petra_point;

typedef struct petra_point_set {
  petra_point *point;
  int64_t count, capacity;
} petra_point_set;

void petra_point_set_fini(petra_point_set *set);

/* Returns true if a point covers these figures. */
bool petra_point_set_covers(const petra_point_set *set, double seconds, int64_t bytes, int64_t lag);

/* Inserts a point, with a copy of its candidate's cut, unless it is covered; removes those that it covers. */
petra_status petra_point_set_insert(petra_point_set *set, const petra_point *point);

/* Sorts by rising seconds, and for equal seconds by memory. */
void petra_point_set_sort(petra_point_set *set);
