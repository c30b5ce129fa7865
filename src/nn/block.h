/* A block of the network: forward, inversion, backward, evaluation. `parameters` are the block's tensors in the
 * order of petra_block_parameter, `statistics` in that of petra_block_statistic. Streams that come out are new
 * references and may be the same tensors as streams that go in (y2 = x1): tensors are never changed after they were
 * made. */
#ifndef PETRA_NN_BLOCK_H
#define PETRA_NN_BLOCK_H

#include "nn/graph.h"

/* out = block(in) with the statistics of the batch. `graph` (empty, or NULL: no backward will follow) is filled. Not
 * for the head. */
petra_status petra_block_forward(const petra_compute *compute, const petra_block *block,
                                 petra_tensor *const *parameters, const petra_streams *in, petra_block_graph *graph,
                                 petra_streams *out);

/* Reversible blocks only: in = block^-1(out): x1 = y2, x2 = y1 - F(y2), or with space to depth S x1 = S^-1(y2),
 * x2 = S^-1(y1 - F(x1)); the graph of F is kept on the way (NULL: not
 * wanted). */
petra_status petra_block_invert(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *out, petra_block_graph *graph, petra_streams *in);

/* From the gradients of the outputs: gradients of the parameters (overwritten) and of the inputs (din, new references;
 * the stem gives none). For the head `dout` is ignored: its graph holds the loss's gradient. */
petra_status petra_block_backward(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_block_graph *graph, const petra_streams *dout,
                                  petra_tensor *const *gradients, petra_streams *din);

/* The convolutions' weight gradients (overwritten; the other tensors are left alone) that a backward with
 * graph->defer_filters left. */
petra_status petra_block_filter_gradients(const petra_compute *compute, const petra_block *block,
                                          const petra_block_graph *graph, petra_tensor *const *gradients);

/* out = block(in) with the running statistics. Not for the head. */
petra_status petra_block_evaluate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_tensor *const *statistics,
                                  const petra_streams *in, petra_streams *out);

/* Moves the running statistics by the batch statistics that the graph holds. */
petra_status petra_block_update_statistics(const petra_compute *compute, const petra_block *block,
                                           const petra_block_graph *graph, petra_tensor *const *statistics);

/* What the head reports of one microbatch. */
typedef struct petra_loss {
  double loss;        /* mean over the images */
  int32_t top1, top5; /* images classified right, among the first five */
  int32_t images;
  int64_t ticket; /* 0: all is there; otherwise the numbers come with petra_backend_collect */
} petra_loss;

/* The head: pooled features, logits, loss. `graph` as above (NULL: evaluation). The head has no batch norm, so that
 * training and evaluation compute the same. `loss` NULL: not wanted. */
petra_status petra_head_forward(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *in, const int32_t *labels, petra_block_graph *graph,
                                petra_loss *loss);

#endif
