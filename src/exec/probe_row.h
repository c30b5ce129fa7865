/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a probe of gradient fidelity (probe/probe.h), for the code that records it. */
#pragma once

#include "nn/block.h"

/* X(NAME, name in files, meaning) */
#define PETRA_GRADIENT_LIST(X)                                                                                         \
  X(METHOD, "method", "the gradient that the update takes")                                                            \
  X(DELAYED, "delayed", "exact, every stage with the weights of the microbatch's forward there")                       \
  X(END_TO_END, "end_to_end", "exact, every stage with its weights when the backward of the microbatch runs")

/* X(NAME, name in files, first, second) */
#define PETRA_PAIR_LIST(X)                                                                                             \
  X(METHOD_DELAYED, "method_delayed", METHOD, DELAYED)                                                                 \
  X(METHOD_END_TO_END, "method_end_to_end", METHOD, END_TO_END)                                                        \
  X(DELAYED_END_TO_END, "delayed_end_to_end", DELAYED, END_TO_END)

/* X(NAME, name in files): <x, y> / (||x|| ||y||), ||x|| / ||y||, ||x - y|| / ||y|| */
#define PETRA_MEASURE_LIST(X)                                                                                          \
  X(COSINE, "cosine")                                                                                                  \
  X(NORM_RATIO, "norm_ratio")                                                                                          \
  X(RELATIVE_ERROR, "relative_error")

#define PETRA_FIDELITY_ENUM(name, ...) PETRA_GRADIENT_##name,
typedef enum petra_gradient { PETRA_GRADIENT_LIST(PETRA_FIDELITY_ENUM) PETRA_GRADIENTS } petra_gradient;
#undef PETRA_FIDELITY_ENUM
#define PETRA_FIDELITY_ENUM(name, ...) PETRA_PAIR_##name,
typedef enum petra_pair { PETRA_PAIR_LIST(PETRA_FIDELITY_ENUM) PETRA_PAIRS } petra_pair;
#undef PETRA_FIDELITY_ENUM
#define PETRA_FIDELITY_ENUM(name, ...) PETRA_MEASURE_##name,
typedef enum petra_measure { PETRA_MEASURE_LIST(PETRA_FIDELITY_ENUM) PETRA_MEASURES } petra_measure;
#undef PETRA_FIDELITY_ENUM

/* The result of one probe. J stages, P parameter tensors in the order of blocks and petra_block_parameter; NaN if a
 * measure is not defined (a gradient of 0) or nothing is reconstructed. */
typedef struct petra_probe_row {
  int64_t microbatch; /* the first of the update window's k */
  int32_t epoch;      /* of this microbatch, from 0 */
  int32_t stages, parameters;
  const double *stage;                                /* [measure][pair][J]: means over the stage's tensors */
  const double *concatenated;                         /* [pair][J]: cosine of all the stage's tensors as one vector */
  const double *reconstruction;                       /* [J]: ||x~ - x|| / ||x||, mean over the k microbatches */
  const double *parameter;                            /* [measure][pair][P] */
  const petra_tensor_set *gradients[PETRA_GRADIENTS]; /* per block; NULL unless they were requested */
} petra_probe_row;
