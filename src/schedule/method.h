/* SPDX-License-Identifier: Apache-2.0 */
/* A method: a program, the weights that a stage reads, and the tensors that it keeps or recomputes. Presets have names,
 * and a config may replace each of their choices; docs/semantics/methods.md has the table. */
#pragma once

#include "config/config.h"
#include "schedule/program.h"

/* Weights: LATEST; STASHED: the weights that the microbatch's F read; DOUBLE_BUFFER: the weights one update older than
 * the latest weights at the start of the microbatch's window of k, so that F and B of microbatch m read version max(0,
 * floor(m / k) - 1). With a sync period p, LATEST of F is a copy that is refreshed before every microbatch that p
 * divides. */
typedef struct petra_method {
  const char *name; /* name of the preset */
  const char *help;
  const petra_program_ops *program;
  petra_weights forward_weights;  /* LATEST or DOUBLE_BUFFER */
  petra_weights backward_weights; /* weights that B reads */
  petra_weights invert_weights;   /* weights that the reconstruction of the input reads; NONE: nothing is inverted */
  petra_keep keep;                /* the tensors that are kept between F and B in addition to weights */
  bool inverts;                   /* B reconstructs the input; messages down carry streams: keep is NOTHING */
  bool recomputes;                /* B recomputes the graph, by reconstruction or from the input: keep is not GRAPH */
  bool split_head;                /* the last stage's F and B are two actions */
  int32_t chunks;                 /* stages per device */
  int64_t accumulate;             /* k */
  bool early_recompute;           /* durations only: recomputation does not wait for the gradient */
  int64_t sync_period;            /* p; 0: F reads the weights themselves */
  petra_int_list extra_delay;     /* petra_program_options.extra_delay; borrowed from the config */
  petra_mitigation mitigation;    /* mitigations of delay; presets have none */
} petra_method;

int petra_method_count(void);
/* Returns a preset, with k = 1. */
petra_method petra_method_get(int index);

/* Gets the method of a config: the preset that method.name names, with the replacements of the config's method section.
 * Some choices depend on others: `keep` decides whether inputs are reconstructed; the program decides about the last
 * stage and the chunks of a device. Errors: PETRA_CONFIG for an unknown name and for choices that contradict each
 * other. */
petra_status petra_method_from_config(const petra_config *config, petra_method *out);

/* Adapts the method to `stages` stages: with one stage a double buffer has nothing to keep apart. */
void petra_method_fit(petra_method *method, int32_t stages);

/* Returns PETRA_CONFIG unless method.extra_delay is one number, or one number for each of `stages` stages. */
petra_status petra_method_check_stages(const petra_config *config, int32_t stages);

/* Return the names of choices, such as "latest" or "graph". */
const char *petra_weights_name(petra_weights weights);
const char *petra_keep_name(petra_keep keep);

/* Returns true if a microbatch's own weights must be available at its B. */
bool petra_method_stashes(const petra_method *method);

/* Sets the options of the method's program that follow from the method, with `stages` stages; not the length of a
 * run. */
petra_program_options petra_method_options(const petra_method *method, int32_t stages);

/* Returns petra_program_delay of the method's program with the method's head and extra delay: the number of
 * microbatches that stage `stage` of `stages` forwards between the F of a microbatch and its B. */
int64_t petra_method_distance(const petra_method *method, int32_t stages, int32_t stage);

/* Returns the largest lag of a stage, in updates between the weights that a microbatch's F read and the latest weights
 * at its backward; -1 if the program does not determine it (`arrival`). It is ceil(distance / k); with a double buffer
 * it is ceil((J - 1) / k) for all stages, which is 1 for k >= J. A sync period p adds up to p - 1 microbatches to the
 * distance. */
int64_t petra_method_lag(const petra_method *method, int32_t stages, int32_t stage);

/* --- mitigations of delay: mitigation.c --- */

/* Returns the key of the first active mitigation, "method.mitigation.spike_compensation"; NULL if none is. */
const char *petra_mitigation_key(const petra_mitigation *mitigation);

/* Returns PETRA_CONFIG, logged, if a mitigation has no delay to use (the method is synchronous, works by arrival or has
 * a sync period), or if two mitigations, or a mitigation and the optimiser, contradict each other. */
petra_status petra_mitigation_check(const petra_config *config, const petra_method *method);

/* Returns PETRA_CONFIG, logged, if error_feedback is active and the delay of a stage is not a whole number of
 * updates. */
petra_status petra_mitigation_check_delays(const petra_config *config, const petra_method *method, int32_t stages);

/* Returns the delay of a stage in updates, as the mitigations use it: the mean number of updates between a microbatch's
 * F and its B once the pipeline is full, or 1 if weights are double-buffered. With k microbatches per update it may be
 * a fraction: petra_method_distance / k. Do not call this for a method by arrival or with a sync period. */
double petra_method_delay(const petra_method *method, int32_t stages, int32_t stage);

/* Returns petra_program_descent in updates, i.e. divided by k. */
double petra_method_descent(const petra_method *method, int32_t stages, int32_t stage);

/* --- versions --- */

/* The rule for the version of its weights that a stage reads. A version is a number of updates. The stages on tensors
 * and the worker that only counts share this rule. */

typedef struct petra_version_rule {
  petra_weights forward_weights; /* LATEST or DOUBLE_BUFFER */
  /* LATEST, STASHED or DOUBLE_BUFFER; a forward double buffer requires STASHED or DOUBLE_BUFFER. */
  petra_weights backward_weights;
  int64_t accumulate; /* k of a double buffer; not read without one */
  /* p: LATEST of F is a copy, which is made anew before every microbatch that p divides; 0: no copy */
  int64_t sync_period;
} petra_version_rule;

static inline petra_version_rule petra_method_versions(const petra_method *method) {
  return (petra_version_rule){method->forward_weights, method->backward_weights, method->accumulate,
                              method->sync_period};
}

/* Returns the version that F and B of a microbatch read from a double buffer: one update older than the latest at the
 * start of the microbatch's window of k. */
static inline int64_t petra_buffered_version(int64_t microbatch, int64_t accumulate) {
  const int64_t window = microbatch / accumulate;
  return window > 0 ? window - 1 : 0;
}

/* Finds the version that F of a microbatch reads at `stage` (from 1), which has done `updates`. `*copy` is the version
 * of F's copy; if a new copy is due, *copy becomes the latest version. PETRA_SCHEDULE, logged, if the version does not
 * exist yet. */
petra_status petra_forward_version(const petra_version_rule *rule, int32_t stage, int64_t microbatch, int64_t updates,
                                   int64_t *copy, int64_t *out);

/* Returns the version that B of a microbatch reads with a choice of weights, if the F of the microbatch read version
 * `forward`. */
int64_t petra_backward_version(const petra_version_rule *rule, petra_weights weights, int64_t microbatch,
                               int64_t updates, int64_t forward);
