/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of a block: what a forward pass or an inversion keeps for its backward pass. Source of the rules:
 * docs/semantics. All tensors are references that the graph owns. */
#pragma once

#include "nn/model.h"

/* The backend and the account with which a computation allocates tensors. */
typedef struct petra_compute {
  petra_backend *backend;
  petra_account *account; /* may be NULL */
  bool losses_later;      /* the head need not wait for its loss (petra_loss.ticket) */
} petra_compute;

/* Create a new tensor of the computation, and one of the kind and shape of another. */
petra_status petra_compute_tensor(const petra_compute *compute, petra_tensor_kind kind, const int32_t shape[4],
                                  petra_memory_category category, petra_tensor **out);
petra_status petra_compute_like(const petra_compute *compute, const petra_tensor *like, petra_memory_category category,
                                petra_tensor **out);

/* One or two tensors that travel together: (x1, x2), or x alone. */
typedef struct petra_streams {
  petra_tensor *tensor[2];
} petra_streams;

void petra_streams_release(petra_streams *streams);
petra_streams petra_streams_retain(const petra_streams *streams);
/* Moves both to another account and category. */
void petra_streams_charge(const petra_streams *streams, petra_account *account, petra_memory_category category);

/* The graph of a unit or, after the units, of a layer. */
typedef struct petra_unit_graph {
  petra_tensor *x;    /* input of the convolution or the linear map */
  petra_tensor *conv; /* input of the norm: the convolution's output; the input of a layer */
  /* Statistics of the norm; in a layer norm `variance` is the deviation (layer_norm_forward). */
  petra_tensor *mean, *variance;
  /* After a backward that omitted the weight's gradient: the gradient of the convolution's or the linear map's
   * output. */
  petra_tensor *dconv;
} petra_unit_graph;

/* A checkpoint holds these tensors in this order. */
enum { PETRA_GRAPH_OWN = 4, PETRA_GRAPH_TENSORS = 5 * PETRA_BLOCK_UNITS + PETRA_GRAPH_OWN };
typedef struct petra_block_graph {
  petra_unit_graph units[PETRA_BLOCK_UNITS];
  petra_tensor *own[PETRA_GRAPH_OWN]; /* tensors of the kind in addition to its units; numbered in its file */
  bool defer;                         /* backward leaves gradients to petra_block_weight_gradients */
} petra_block_graph;

/* Gets the places of all tensors of a graph. */
void petra_block_graph_places(petra_block_graph *graph, petra_tensor **places[PETRA_GRAPH_TENSORS]);

/* Releases the tensors that the omitted gradients do not need: all except `x` and `dconv` of units and layers that have
 * one. */
void petra_block_graph_keep_deferred(petra_block_graph *graph);

/* Releases every tensor; the structure is empty afterwards. */
void petra_block_graph_release(petra_block_graph *graph);

/* A set with the tensors of a block: parameters, their gradients or velocities, or running statistics. */

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
 * head's bias (Kaiming-uniform with a = sqrt 5); N(0, deviation^2) where the spec has one; else the constant of the
 * spec. `values` has spec.elements entries, each representable as a float. A function of (seed, block, index) alone. */
void petra_initial_values(const petra_tensor_spec *spec, uint64_t seed, const petra_block *block, int index,
                          double *values);
