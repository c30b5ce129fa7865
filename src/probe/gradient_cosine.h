/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between gradients: the measures of docs/semantics/gradient-fidelity.md, over pairs of the three
 * gradients of a probe. */
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

/* Sums over the elements of one tensor, or of many concatenated. */
typedef struct petra_products {
  double square[PETRA_GRADIENTS]; /* <x, x> */
  double product[PETRA_PAIRS];    /* <x, y> */
  double distance[PETRA_PAIRS];   /* <x - y, x - y> */
} petra_products;

/* Computes the sums of one tensor from its three gradients. */
petra_status petra_products_compute(const petra_compute *compute, const petra_tensor *const tensors[PETRA_GRADIENTS],
                                    petra_products *out);

void petra_products_add(petra_products *sum, const petra_products *products);

/* Returns a measure of a pair; NaN if it would divide by a norm of 0. */
double petra_products_measure(const petra_products *products, petra_measure measure, petra_pair pair);
