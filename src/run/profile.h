/* Measures what the stages of a plan cost on its backend. */
#ifndef PETRA_RUN_PROFILE_H
#define PETRA_RUN_PROFILE_H

#include "run/network.h"

/* Times the parts of every stage of the plan on `backend`, as config->profile says, with random images. Whole
 * microbatches go through two sets of stages in turn, first to last and back: one whose stages keep their graphs and
 * one whose stages keep none (reversible blocks are inverted on the way back, others are computed again from their
 * input); what B takes longer in the second is reconstruction. Nothing is trained: the learning rate is 0. Fills the
 * `part`s of `out`, one a stage. */
petra_status petra_profile_measure(const petra_plan *plan, petra_backend *backend, bool quiet,
                                   petra_profile_stage *out);

#endif
