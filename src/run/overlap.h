/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how much ranks compute at the same time: an observer of a run over ranks. */
#pragma once

#include "schedule/executor.h"

typedef struct petra_overlap petra_overlap;

/* `rank_of` has the rank of each stage, from 0; borrowed. */
petra_status petra_overlap_create(const int32_t *rank_of, int32_t ranks, petra_overlap **out);
void petra_overlap_destroy(petra_overlap *overlap); /* NULL is allowed */
petra_observer *petra_overlap_observer(petra_overlap *overlap);

/* Computes for each rank the share of the other ranks that compute while it does, averaged over its time in actions: 0
 * if it always computes alone, 1 if all others compute all that time; 0 for a rank that does nothing. */
void petra_overlap_shares(const petra_overlap *overlap, double *shares);
