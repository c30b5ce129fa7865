/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a probe, shared by the files probe*.c. */
#ifndef PETRA_PROBE_PROBE_PRIVATE_H
#define PETRA_PROBE_PROBE_PRIVATE_H

#include "probe/probe.h"

/* What a replica has of a microbatch. */
typedef struct petra_probe_part {
  petra_tensor *images; /* NULL: not read yet, or not needed any more */
  int32_t *labels;
  int32_t label_count;
  petra_streams *inputs; /* per stage: of its F, where B will reconstruct it */
} petra_probe_part;

/* A microbatch of a window. */
typedef struct petra_probe_slot {
  petra_probe_part *parts; /* per replica */
  int64_t *forward;        /* per stage: the version that F read, at all replicas; -1: F was not done */
  bool delayed;            /* the delayed gradient was computed */
  bool *end_to_end;        /* per stage: the end-to-end gradient was computed */
  int64_t *begun; /* per stage, with PETRA_MOMENT_CLOCK: its version when B began; -1: B did not; with `forward` */
} petra_probe_slot;

/* An update window that is probed. */
typedef struct petra_probe_window {
  int64_t first;
  petra_probe_slot *slots;                 /* k */
  petra_tensor_set *sums[PETRA_GRADIENTS]; /* per block: means over the window, once they are complete */
  bool *updated;                           /* per stage: the method's gradient is there */
  bool *compared;                          /* per stage; allocated with `updated` */
  double *stage, *concatenated, *reconstruction, *parameter; /* as in the row; allocated as one */
  struct petra_probe_window *next;
} petra_probe_window;

/* A copy of a stage's weights. */
typedef struct petra_probe_kept {
  int32_t stage; /* from 0 */
  petra_weights_key key;
  petra_tensor_set *sets; /* per block of the stage */
} petra_probe_kept;

/* What a replica tells. */
typedef struct petra_probe_input {
  petra_stage_observer base;
  petra_probe *probe;
  int replica;
} petra_probe_input;

struct petra_probe {
  petra_probe_options options;
  petra_probe_input *inputs; /* per replica */
  petra_account account;
  petra_compute compute;
  const petra_model *model;
  int32_t stages; /* J */
  int64_t accumulate;
  petra_program_moment moment; /* of the end-to-end networks */
  int64_t now_ns;              /* when the last group of actions started */
  int32_t parameters;
  int32_t *offset;             /* per block: of a block's tensors among all parameters */
  petra_probe_window *windows; /* oldest first */
  petra_probe_block *blocks;   /* what a pass is told */
  int64_t *versions;           /* per stage: those of a reference */
  petra_probe_kept *kept;
  int kept_count;
  int64_t kept_capacity;
};

/* Of stage `index`, from 0: its blocks, end excluded, and the updates that it has made. */
static inline int petra_probe_first(const petra_probe *probe, int32_t index) {
  return probe->options.partition->first[index];
}

static inline int petra_probe_end(const petra_probe *probe, int32_t index) {
  return probe->options.partition->first[index + 1];
}

static inline int64_t petra_probe_version(const petra_probe *probe, int32_t index) {
  return probe->options.source->ops->version(probe->options.source, index + 1);
}

/* Whether F of stage `index` reads a prediction of its weights. */
static inline bool petra_probe_predicts(const petra_probe *probe, int32_t index) {
  return probe->options.source->ops->predicts(probe->options.source, index + 1);
}

static inline petra_probe_slot *petra_probe_slot_of(const petra_probe_window *window, int64_t microbatch) {
  return &window->slots[microbatch - window->first];
}

/* --- probe_window.c --- */

/* The window that `microbatch` is in; NULL if it is not probed (any more). */
petra_probe_window *petra_probe_find(const petra_probe *probe, int64_t microbatch);
/* Microbatches of the window whose delayed gradient, or end-to-end gradient at a stage (from 0), is not in yet. */
int64_t petra_probe_delayed_left(const petra_probe *probe, const petra_probe_window *window);
int64_t petra_probe_end_to_end_left(const petra_probe *probe, const petra_probe_window *window, int32_t stage);
petra_status petra_probe_open(petra_probe *probe, int64_t first, petra_probe_window **out);
void petra_probe_close(petra_probe *probe, petra_probe_window *window);
/* Whether all replicas have read their part, and some reference still needs them. */
bool petra_probe_slot_is_read(const petra_probe *probe, const petra_probe_slot *slot);
/* Releases what only the references of a microbatch needed. */
void petra_probe_slot_release(const petra_probe *probe, petra_probe_slot *slot);

/* --- probe_reference.c --- */

/* Whether the end-to-end versions follow from the numbers of microbatch and stages; with one stage they always do. */
static inline bool petra_probe_is_fixed(const petra_probe *probe) {
  return probe->moment != PETRA_MOMENT_CLOCK || probe->stages == 1;
}

/* Copies a version of a stage's weights (stage from 0), which the stage has, unless there is a copy. */
petra_status petra_probe_keep(petra_probe *probe, int32_t stage, petra_weights_key key);
/* A place for a copy, with empty sets; for a checkpoint to fill. */
petra_status petra_probe_keep_empty(petra_probe *probe, int32_t stage, petra_weights_key key);
/* Copies the latest version of a stage if some reference will need it. */
petra_status petra_probe_keep_wanted(petra_probe *probe, int32_t stage);
/* Lets go of copies that no reference needs any more. */
void petra_probe_forget(petra_probe *probe);
/* Computes every reference whose weights are there. */
petra_status petra_probe_compute_due(petra_probe *probe);
/* Computes the end-to-end references of all backwards that have begun, where they follow the clock: with the latest
 * weights of the other stages. */
petra_status petra_probe_compute_begun(petra_probe *probe);

#endif
