/* SPDX-License-Identifier: Apache-2.0 */
/* A method: a program, which weights a stage reads, and what it keeps and computes again. Presets by name, each
 * choice of which a config may replace alone; docs/semantics/methods.md has the table. */
#ifndef PETRA_SCHEDULE_METHOD_H
#define PETRA_SCHEDULE_METHOD_H

#include "config/config.h"
#include "schedule/program.h"

/* Weights: LATEST; STASHED, those that the microbatch's F read; DOUBLE_BUFFER, those after the update before last of
 * the microbatch's window of k: F and B of microbatch m read version max(0, floor(m / k) - 1). With a sync period p,
 * LATEST of F is a copy that is refreshed before every microbatch that p divides. */
typedef struct petra_method {
  const char *name; /* of the preset */
  const char *help;
  const petra_program_ops *program;
  petra_weights forward_weights;  /* LATEST or DOUBLE_BUFFER */
  petra_weights backward_weights; /* which weights B reads */
  petra_weights invert_weights;   /* which weights the reconstruction of the input reads; NONE: nothing is inverted */
  petra_keep keep;                /* kept between F and B besides weights */
  bool inverts;                   /* B reconstructs the input; messages down carry streams: keep is NOTHING */
  bool recomputes;             /* B computes the graph again, by reconstruction or from the input: keep is not GRAPH */
  bool split_head;             /* the last stage's F and B are two actions */
  int32_t chunks;              /* stages a device */
  int64_t accumulate;          /* k */
  bool early_recompute;        /* durations only: recomputation does not wait for the gradient */
  int64_t sync_period;         /* p; 0: F reads the weights themselves */
  petra_int_list extra_delay;  /* petra_program_options.extra_delay; borrowed from the config */
  petra_mitigation mitigation; /* none in a preset */
} petra_method;

int petra_method_count(void);
/* A preset, with k = 1. */
petra_method petra_method_get(int index);

/* The method of a config: the preset that method.name names with what the config's method section puts in its place.
 * What follows from another choice follows it: keep decides whether inputs are reconstructed, the program how the last
 * stage and a device's chunks are. PETRA_CONFIG for a name that is none and for choices that contradict each other. */
petra_status petra_method_from_config(const petra_config *config, petra_method *out);

/* Makes the method that of `stages` stages: on one there is nothing that a double buffer would have to keep apart. */
void petra_method_fit(petra_method *method, int32_t stages);

/* PETRA_CONFIG where method.extra_delay is neither for all stages nor for each of `stages`. */
petra_status petra_method_check_stages(const petra_config *config, int32_t stages);

/* "latest", "graph". */
const char *petra_weights_name(petra_weights weights);
const char *petra_keep_name(petra_keep keep);

/* Whether a microbatch's own weights have to be there at its B. */
bool petra_method_stashes(const petra_method *method);

/* What the method says of its program's options, with `stages` stages; not the length of a run. */
petra_program_options petra_method_options(const petra_method *method, int32_t stages);

/* petra_program_delay of the method's program with the method's head and extra delay: microbatches that stage `stage` of `stages`
 * forwards between the F of one and its B. */
int64_t petra_method_distance(const petra_method *method, int32_t stages, int32_t stage);

/* Largest lag of a stage, in updates between the weights that a microbatch's F read and the latest ones at its backward; -1
 * where the program does not fix it (`arrival`): ceil(distance / k); double buffered, the same for all stages:
 * ceil((J - 1) / k), that is 1 for k >= J. A sync period p adds up to p - 1 microbatches to the distance. */
int64_t petra_method_lag(const petra_method *method, int32_t stages, int32_t stage);

/* Takes method.extra_delay, with the head that it asks for, into a method that has everything else: extra_delay.c.
 * PETRA_CONFIG, logged, where the method has no delay to make longer, or the delays rise from one stage to the next. */
petra_status petra_method_set_extra(const petra_config *config, petra_method *method);

/* --- mitigations of delay: mitigation.c --- */

/* The key of the first mitigation that is on, "method.mitigation.spike_compensation"; NULL: none is. */
const char *petra_mitigation_key(const petra_mitigation *mitigation);

/* PETRA_CONFIG, logged, where a mitigation has no delay to go by (a synchronous method, one by arrival, one with a sync
 * period), or where two contradict each other or the optimiser. */
petra_status petra_mitigation_check(const petra_config *config, const petra_method *method);

/* PETRA_CONFIG, logged, where error_feedback is on and the delay of a stage is not a whole number of updates. */
petra_status petra_mitigation_check_delays(const petra_config *config, const petra_method *method, int32_t stages);

/* Delay of a stage in updates, as the mitigations take it: the mean number of updates between a microbatch's F and its B
 * once the pipeline is full, or 1 where weights are double-buffered. With k microbatches an update it may be a fraction:
 * petra_method_distance / k. Not for a method by arrival or with a sync period. */
double petra_method_delay(const petra_method *method, int32_t stages, int32_t stage);

/* petra_program_descent in updates: divided by k. */
double petra_method_descent(const petra_method *method, int32_t stages, int32_t stage);

#endif
