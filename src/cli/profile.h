/* The parts of `petra profile`: the measurement and its report. */
#ifndef PETRA_CLI_PROFILE_H
#define PETRA_CLI_PROFILE_H

#include "cli/setup.h"
#include "io/profile.h"

/* Times the parts of every stage of the plan on setup->backend, as config->profile says, with random images. Whole
 * microbatches go through two sets of stages in turn, first to last and back: one whose stages keep their graphs and
 * one whose stages keep none (reversible blocks are inverted on the way back, others are computed again from their
 * input); what B takes longer in the second is reconstruction. Nothing is trained: the learning rate is 0. Fills the
 * `part`s of `out`, one a stage. */
petra_status petra_profile_measure(const petra_setup *setup, bool quiet, petra_profile_stage *out);

/* Seconds of one run of the backend's operations that give the gradients of the convolution filters of stage `stage`
 * (from 0) and, where it has the head, half of the operation that gives all gradients of the fully connected layer
 * (two products of equal size, one of them for the weights). Batch norms' parameters, whose gradients come with that
 * of the input, are no part of it. */
petra_status petra_profile_time_weights(const petra_setup *setup, int stage, double *seconds);

typedef struct petra_profile_report {
  const petra_setup *setup;
  const petra_profile *profile;
  const petra_profile_about *about;
  const char *path;
} petra_profile_report;

petra_status petra_profile_print_json(const petra_profile_report *report);
petra_status petra_profile_print_table(const petra_profile_report *report);

#endif
