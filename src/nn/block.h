/* SPDX-License-Identifier: Apache-2.0 */
/* A block of the network: forward, inversion, backward, evaluation. `parameters` are the block's tensors in the
 * order of petra_block_parameter, `statistics` in that of petra_block_statistic. Streams that come out are new
 * references and may be the same tensors as streams that go in (y2 = x1): tensors are never changed after they were
 * made. What a kind of block is made of: petra_block_ops. */
#ifndef PETRA_NN_BLOCK_H
#define PETRA_NN_BLOCK_H

#include "nn/graph.h"

/* What a block that ends in a loss reports of one microbatch. */
typedef struct petra_loss {
  double loss;        /* mean over the labels */
  int32_t top1, top5; /* labels found, among the first five */
  int32_t images;     /* labels */
  int64_t ticket;     /* 0: all is there; otherwise the numbers come with petra_backend_collect */
} petra_loss;

/* What such a block compares its output with, and where its loss goes; others ignore it. */
typedef struct petra_target {
  const int32_t *labels;
  petra_loss *loss; /* NULL: not wanted */
} petra_target;

/* out = block(in) with the statistics of the batch. `graph` (empty, or NULL: no backward will follow) is filled. What
 * ends in a loss leaves `out` empty; for others `target` may be NULL. With `out` NULL the graph alone is wanted, which is filled
 * with the same numbers; what is for the output alone is not computed. */
petra_status petra_block_forward(const petra_compute *compute, const petra_block *block,
                                 petra_tensor *const *parameters, const petra_streams *in, const petra_target *target,
                                 petra_block_graph *graph, petra_streams *out);

/* The same with the running statistics; a loss is that of a forward without a graph. */
petra_status petra_block_evaluate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_tensor *const *statistics,
                                  const petra_streams *in, const petra_target *target, petra_streams *out);

/* petra_block_forward without a graph, of a block that is no loss; `statistics` move by `share` towards those of the batch (1: become
 * them), as running statistics do: the mean, and the unbiased variance. */
petra_status petra_block_estimate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, double share, petra_tensor *const *statistics,
                                  const petra_streams *in, petra_streams *out);

/* Reversible blocks only: in = block^-1(out); the graph of F is kept on the way (NULL: not wanted). */
petra_status petra_block_invert(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *out, petra_block_graph *graph, petra_streams *in);

/* From the gradients of the outputs: gradients of the parameters (overwritten) and of the inputs (din, new references;
 * empty for a block that reads the data set). For a loss `dout` is ignored: its graph holds the loss's gradient. */
petra_status petra_block_backward(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_block_graph *graph, const petra_streams *dout,
                                  petra_tensor *const *gradients, petra_streams *din);

/* The gradients (overwritten; the other tensors are left alone) of the parameters that petra_block_parameter calls
 * `deferred`, which a backward with graph->defer left. */
petra_status petra_block_weight_gradients(const petra_compute *compute, const petra_block *block,
                                          petra_block_graph *graph, petra_tensor *const *gradients);

/* Moves the running statistics by the batch statistics that the graph holds. */
petra_status petra_block_update_statistics(const petra_compute *compute, const petra_block *block,
                                           petra_block_graph *graph, petra_tensor *const *statistics);

/* A pass through a block, as its kind gets it. Where the statistics come from is all that tells training from
 * evaluation. */
typedef struct petra_pass {
  const petra_compute *compute;
  const petra_block *block;
  petra_tensor *const *parameters;
  petra_tensor *const *statistics; /* evaluation: running statistics; NULL: those of the batch */
  petra_block_graph *graph;        /* NULL: none is kept */
  const petra_target *target;
  petra_tensor *const *estimates; /* statistics that move by `share` towards those of the batch; NULL: none */
  double share;
} petra_pass;

/* A kind of block: one file each, listed in nn/blocks.h. Its parameters and statistics are those of its units (weight,
 * scale, shift of each; running mean, running variance of each), of its layers (scale and shift of the norm, weight, bias
 * of each, those that it has), and then `own_parameters` more. Passes begin with empty
 * outputs; where they fail, their caller releases what they have put there, and the graph. `kernels` adds all but the
 * update's. */
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

#endif
