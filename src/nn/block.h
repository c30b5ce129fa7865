/* SPDX-License-Identifier: Apache-2.0 */
/* A block of the network: forward, inversion, backward, evaluation. `parameters` are the block's tensors in the order
 * of petra_block_parameter, `statistics` in the order of petra_block_statistic. Output streams are new references and
 * may be the same tensors as input streams (y2 = x1): tensors are never changed after they were made. petra_block_ops
 * defines a kind of block. */
#pragma once

#include "nn/graph.h"

/* The result that a block with a loss reports for one microbatch. */
typedef struct petra_loss {
  double loss;        /* mean over the labels */
  int32_t top1, top5; /* labels that are the first, or one of the first five predictions */
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
 * follow. A block with a loss leaves `out` empty, an auxiliary head makes it `in`; for others `target` may be NULL. If
 * `out` is NULL, only the graph is filled, with the same numbers; what is needed for the output alone is not
 * computed. */
petra_status petra_block_forward(const petra_compute *compute, const petra_block *block,
                                 petra_tensor *const *parameters, const petra_streams *in, const petra_target *target,
                                 petra_block_graph *graph, petra_streams *out);

/* The same with the running statistics; a loss is computed as in a forward without a graph. */
petra_status petra_block_evaluate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_tensor *const *statistics,
                                  const petra_streams *in, const petra_target *target, petra_streams *out);

/* petra_block_forward without a graph, for a block without a loss. `statistics` move by `share` towards the statistics
 * of the batch (1: become them), as running statistics do: the mean and the unbiased variance. */
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

/* A kind of block: one file each, listed in nn/blocks.h. It has the parameters and statistics of its units (weight,
 * scale, shift of each; running mean, running variance of each), of its layers (scale and shift of the norm, weight,
 * bias of each, if present), and `own_parameters` more. Passes begin with empty outputs; if they fail, their caller
 * releases these and the graph. `kernels` adds all kernels except the kernels of the update. */
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
