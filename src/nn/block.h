/* SPDX-License-Identifier: Apache-2.0 */
/* A block of the network: its graph, its passes, and the interface of a kind of block. Source of the rules:
 * docs/semantics. */
#pragma once

#include "nn/model.h"

/* The backend and the account with which a computation allocates tensors. */
typedef struct petra_compute {
  petra_backend *backend;
  petra_account *account; /* may be NULL */
  bool losses_later;      /* the head need not wait for its loss (petra_loss.ticket) */
} petra_compute;

/* Create a new tensor of the computation; a tensor of the kind and shape of another; a copy of another. */
petra_status petra_compute_tensor(const petra_compute *compute, petra_tensor_kind kind, const int32_t shape[4],
                                  petra_memory_category category, petra_tensor **out);
petra_status petra_compute_like(const petra_compute *compute, const petra_tensor *like, petra_memory_category category,
                                petra_tensor **out);
petra_status petra_compute_copy(const petra_compute *compute, const petra_tensor *tensor,
                                petra_memory_category category, petra_tensor **out);

/* One or two tensors that travel together: (x1, x2), or x alone. */
typedef struct petra_streams {
  petra_tensor *tensor[2];
} petra_streams;

void petra_streams_release(petra_streams *streams);
petra_streams petra_streams_retain(const petra_streams *streams);
/* Moves both tensors to another account and category. */
void petra_streams_charge(const petra_streams *streams, petra_account *account, petra_memory_category category);

/* --- the graph of a block: what a forward pass or an inversion keeps for its backward pass. All tensors are references
 * that the graph owns. --- */

/* The graph of a unit or, after the units, of a layer. */
typedef struct petra_unit_graph {
  petra_tensor *x;    /* input of the convolution or the linear map */
  petra_tensor *conv; /* input of the norm: the convolution's output; the input of a layer */
  /* Statistics of the norm; for a layer norm `variance` is the deviation (layer_norm_forward). */
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

/* Gets the addresses of the pointers to all tensors of a graph. */
void petra_block_graph_tensors(petra_block_graph *graph, petra_tensor **places[PETRA_GRAPH_TENSORS]);

/* Releases the tensors that the omitted gradients do not need: all except `x` and `dconv` of units and layers that have
 * a `dconv`. */
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

/* Sets count = 0. A set with count = 0 has nothing to release. */
void petra_tensor_set_release(petra_tensor_set *set);

/* --- the passes: forward, inversion, backward, evaluation. `parameters` are the block's tensors in the order
 * of petra_block_parameter, `statistics` in the order of petra_block_statistic. Output streams are new references and
 * may be the same tensors as input streams (y2 = x1): tensors are never changed after they were made. petra_block_ops
 * defines a kind of block. --- */

/* The result that a block with a loss reports for one microbatch. */
typedef struct petra_loss {
  double loss;        /* mean over the labels */
  int32_t top1, top5; /* labels that are the first prediction, or among the first five predictions */
  int32_t images;     /* number of labels */
  int64_t ticket;     /* 0: complete; otherwise petra_backend_collect gets the numbers */
} petra_loss;

/* The labels with which a block with a loss compares its output, and the destination of its loss; other blocks ignore
 * it. */
typedef struct petra_target {
  const int32_t *labels;
  petra_loss *loss; /* NULL: not wanted */
} petra_target;

/* Computes out = block(in) with the statistics of the batch. Fills `graph`, which is empty, or NULL if no backward will
 * follow. A block with a loss leaves `out` empty, and an auxiliary head sets it to `in`; for other blocks `target` may
 * be NULL. If `out` is NULL, only the graph is filled, with the same numbers; values that only the output needs are not
 * computed. */
petra_status petra_block_forward(const petra_compute *compute, const petra_block *block,
                                 petra_tensor *const *parameters, const petra_streams *in, const petra_target *target,
                                 petra_block_graph *graph, petra_streams *out);

/* Computes the same with the running statistics; a loss is computed as in a forward without a graph. */
petra_status petra_block_evaluate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_tensor *const *statistics,
                                  const petra_streams *in, const petra_target *target, petra_streams *out);

/* petra_block_forward without a graph, for a block without a loss. `statistics` move by `share` towards the statistics
 * of the batch (1: they become equal to these), as running statistics do: the mean and the unbiased variance. */
petra_status petra_block_estimate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, double share, petra_tensor *const *statistics,
                                  const petra_streams *in, petra_streams *out);

/* For reversible blocks: computes in = block^-1(out), and the graph of F on the way (NULL: not wanted). */
petra_status petra_block_invert(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *out, petra_block_graph *graph, petra_streams *in);

/* Computes the gradients of the parameters (overwritten) and of the inputs (din, new references; empty for a block that
 * reads the data set) from the gradients of the outputs. For a loss `dout` is ignored: its graph holds the loss's
 * gradient. */
petra_status petra_block_backward(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_block_graph *graph, const petra_streams *dout,
                                  petra_tensor *const *gradients, petra_streams *din);

/* Computes the gradients (overwritten; other tensors are unchanged) of the parameters that petra_block_parameter calls
 * `deferred`, which a backward with graph->defer omitted. */
petra_status petra_block_weight_gradients(const petra_compute *compute, const petra_block *block,
                                          petra_block_graph *graph, petra_tensor *const *gradients);

/* Moves the running statistics by the batch statistics in the graph. */
petra_status petra_block_update_statistics(const petra_compute *compute, const petra_block *block,
                                           petra_block_graph *graph, petra_tensor *const *statistics);

/* A pass through a block, as its kind receives it. Training and evaluation differ only in the source of the
 * statistics. */
typedef struct petra_pass {
  const petra_compute *compute;
  const petra_block *block;
  petra_tensor *const *parameters;
  petra_tensor *const *statistics; /* evaluation: running statistics; NULL: statistics of the batch */
  petra_block_graph *graph;        /* NULL: none is kept */
  const petra_target *target;
  petra_tensor *const *estimates; /* statistics that move by `share` towards the batch's; NULL: none */
  double share;
} petra_pass;

/* A kind of block. Each kind has a file of its own, listed in nn/blocks.h. A kind has the parameters and statistics of
 * its units (weight, scale, shift of each; running mean, running variance of each), of its layers (scale and shift of
 * the norm, weight, bias of each, if present), and `own_parameters` more. Passes begin with empty outputs; if they
 * fail, their caller releases these and the graph. `kernels` adds all kernels except the kernels of the update. */
struct petra_block_ops {
  const char *name;
  bool reads_data; /* its input comes from the data set, and has no gradient */
  bool is_loss;    /* it ends in a loss, and has no output */
  petra_status (*forward)(const petra_pass *pass, const petra_streams *in, petra_streams *out); /* out: may be NULL */
  petra_status (*invert)(const petra_pass *pass, const petra_streams *out, petra_streams *in);  /* reversible */
  petra_status (*backward)(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                           petra_streams *din);
  int own_parameters;
  void (*own_parameter)(const petra_block *block, int index, petra_tensor_spec *out); /* index from 0 */
  void (*kernels)(const petra_block *block, petra_kernel_list *out);
};
