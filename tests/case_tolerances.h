/* SPDX-License-Identifier: Apache-2.0 */
/* How far the output of an operation may be from what is expected: coefficient * epsilon * sqrt(K) * scale,
 * where epsilon is that of the element type (2^-23 or 2^-52), K the number of terms of the sum (1: no sum),
 * and scale the same formula over absolute values: the error of a sum of K rounded terms grows like sqrt(K)
 * when the roundings are independent, and is bounded by K * scale. A coefficient of 0: equal bit for bit. */
#pragma once

/* X(operation, coefficient): the reason for the coefficient. One for each of the list in backend.h (cases.c). */
#define CASE_TOLERANCES(X)                                                                                             \
  X(upload, 0)                  /* host values are f32: exact in both types */                                         \
  X(download, 0)                /* the same */                                                                         \
  X(quantise, 0)                /* bytes, the same on all backends */                                                  \
  X(dequantise, 1)              /* in double, rounded once: half an epsilon */                                         \
  X(copy, 0)                    /* moves */                                                                            \
  X(fill, 0)                    /* moves; the values filled in are f32 */                                              \
  X(axpy, 2)                    /* alpha, product and sum are rounded: half an epsilon each */                         \
  X(add, 1)                     /* one rounding */                                                                     \
  X(dot, 4)                     /* in double on all backends: epsilon is 2^-52 (cases.c) */                            \
  X(split, 0)                   /* moves */                                                                            \
  X(concat, 0)                  /* moves */                                                                            \
  X(space_to_depth, 0)          /* moves */                                                                            \
  X(depth_to_space, 0)          /* moves */                                                                            \
  X(conv_forward, 4)            /* product and sum rounded; 4 for the largest of some thousand elements */             \
  X(conv_backward_data, 4)      /* the same */                                                                         \
  X(conv_backward_filter, 4)    /* the same */                                                                         \
  X(norm_forward, 8)            /* mean and variance rounded, their sums, then five operations */                      \
  X(norm_backward, 8)           /* the same, and two more sums */                                                      \
  X(norm_evaluate, 8)           /* no sum: deviation, difference, product, shift, join */                              \
  X(norm_update_running, 4)     /* two products, a factor, a sum */                                                    \
  X(relu_backward, 0)           /* selects */                                                                          \
  X(max_pool_forward, 0)        /* selects */                                                                          \
  X(max_pool_backward, 4)       /* sums of a few gradients */                                                          \
  X(average_pool_forward, 2)    /* a sum in double, a division, one rounding; sqrt(K) for fp64 */                      \
  X(average_pool_backward, 1)   /* one division */                                                                     \
  X(linear_forward, 4)          /* as the convolutions */                                                              \
  X(linear_backward_data, 4)    /* the same */                                                                         \
  X(linear_backward_weights, 4) /* the same */                                                                         \
  X(layer_norm_forward, 8)      /* as batch norm */                                                                    \
  X(layer_norm_backward, 8)     /* the same */                                                                         \
  X(gelu_forward, 4)            /* a polynomial, exp or tanh within two units of the last place, a product */          \
  X(gelu_backward, 16)          /* the same; two parts, of which the second is up to 2.5 for x of order 3 */           \
  X(attention_forward, 8)       /* two sums, exp of what is off by the first, which the scale has */                   \
  X(attention_backward, 16)     /* probabilities found again from log_sum, which is rounded; four sums */              \
  X(rotary, 2)                  /* cosine and sine, products and their sum rounded: half an epsilon each */            \
  X(swiglu_forward, 4)          /* exp within two units of the last place, a sum, a quotient, two products */          \
  X(swiglu_backward, 8)         /* the same; the derivative, which is up to 1.1, has three more operations */          \
  X(embed_forward, 1)           /* one sum */                                                                          \
  X(embed_backward, 4)          /* sums of a few gradients */                                                          \
  X(patches, 0)                 /* moves */                                                                            \
  X(mean_positions_forward, 2)  /* as average_pool */                                                                  \
  X(mean_positions_backward, 1) /* one division */                                                                     \
  X(cross_entropy, 8)           /* the exponent is off by epsilon times the logits, of order 4 here */                 \
  X(sgd_step, 4)                /* rates rounded to f32, three products, three sums */                                 \
  X(adam_step, 8)               /* rates, two averages, a root, a quotient, two products and sums */                   \
  X(scale, 2)                   /* alpha and the product rounded */                                                    \
  X(orthogonalize, 2000)        /* five steps that make what is small, a rounding too, up to 3.4445^5 = 485 as large */

/* Finite differences: relative to the largest gradient. Central differences with step 1e-5 on losses of order
 * 1 to 10 carry a rounding error of about 10 * 2^-52 / 1e-5 = 2e-10 and a truncation error of about 1e-10
 * times the third derivative, which for a norm over a dozen elements is of order 100. */
#define FINITE_DIFFERENCE_STEP 1e-5
#define FINITE_DIFFERENCE_TOLERANCE 1e-7
