/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what the stages of a plan cost on its backend. */
#pragma once

#include "plan/network.h"

/* Times the parts of every stage of the plan on `backend`, as config->profile says, with random images. Microbatches go through
 * two sets of stages in turn: one whose stages keep their graphs and one whose stages keep none (reversible blocks are
 * inverted on the way back, others are computed again from their input); what B takes longer in the second is
 * reconstruction. The set that does as the method has as many microbatches under way as a method with delays, so that each
 * stage finds its tensors where it does in a training (profile_pipeline.h). Nothing is trained: the learning rate is 0. Fills the
 * `part`s of `out`, one a stage. `ranks` (NULL: none): all of them do this at the same time, sharing what they share in a run, and
 * rank 0 gets the samples of all. */
petra_status petra_profile_measure(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks, bool quiet,
                                   petra_profile_stage *out);

/* Of at least two ranks, which all come here: each measures the stages while the others wait. Fills `alone_s` of the stages of
 * `out` at rank 0, with the means of all. */
petra_status petra_profile_measure_alone(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                         petra_profile *out);

/* Of at least two ranks, which all come here: what messages take between neighbours, one pair after the other, by the progress thread,
 * from 64 bytes to the largest message of the plan (1 MiB at least), with one of the same size the other way and with nothing; and
 * what a rank takes to make such a message of tensors and back. Fills `messages` and `message` of `out` at rank 0, from the samples of all. */
petra_status petra_profile_measure_link(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                        petra_profile *out);

/* The parts of stages whose quartiles lie more than half the median apart, and more than a twentieth of what the stage takes for
 * a microbatch (F and B with reconstruction, medians): their costs would come out otherwise another time. */
typedef struct petra_profile_unsure {
  int count; /* of such parts; 0: none, and nothing below is set */
  int stage; /* from 0, and part, of the one whose quartiles are the farthest apart over what the stage takes */
  petra_profile_part part;
} petra_profile_unsure;
petra_profile_unsure petra_profile_find_unsure(const petra_profile *profile);

/* Of `count` >= 1 samples, which are sorted. */
petra_spread petra_profile_spread(double *samples, size_t count);

/* At all ranks, each with `rows` rows of `row` samples: `pooled` of rank 0 gets each row with the samples of all ranks, one after the
 * other. */
petra_status petra_profile_pool(petra_ranks *ranks, const double *samples, size_t rows, size_t row, double *pooled);
