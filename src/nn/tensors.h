/* SPDX-License-Identifier: Apache-2.0 */
/* A set with the tensors of a block: parameters, their gradients or velocities, or running statistics. */
#pragma once

#include "nn/graph.h"

typedef struct petra_tensor_set {
  int count;
  petra_tensor *tensor[PETRA_BLOCK_TENSORS];
} petra_tensor_set;

/* Creates a set with the shapes of the block's parameters (or statistics), filled with zeros. */
petra_status petra_tensor_set_create(const petra_compute *compute, const petra_model *model, const petra_block *block,
                                     bool statistics, petra_memory_category category, petra_tensor_set *out);

/* Creates a set with the same shapes and content, counted under another account and category. */
petra_status petra_tensor_set_clone(const petra_compute *compute, const petra_tensor_set *set,
                                    petra_memory_category category, petra_tensor_set *out);

void petra_tensor_set_release(petra_tensor_set *set);

/* The initial value of a parameter (statistics: of a statistic): U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and the
 * head's bias (Kaiming-uniform with a = sqrt 5); N(0, deviation^2) where the spec has one; else the constant of the spec.
 * `values` has spec.elements
 * entries, each representable as a float. A function of (seed, block, index) alone. */
void petra_initial_values(const petra_tensor_spec *spec, uint64_t seed, const petra_block *block, int index,
                          double *values);
