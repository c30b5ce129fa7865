#include "nn/block.h"

#include "backend/ops.h"
#include "base/log.h"
#include "nn/blocks.h"

#include <assert.h>

petra_status petra_pass_unit(const petra_pass *pass, int index, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_tensor **y) {
  const petra_unit *unit = &pass->block->units[index];
  petra_tensor *const *parameters = pass->parameters + 3 * index;
  if (pass->statistics)
    return petra_convbn_evaluate(pass->compute, unit, parameters, pass->statistics + 2 * index, x, join, addend, y);
  return petra_convbn_forward(pass->compute, unit, parameters, x, join, addend,
                              pass->graph ? &pass->graph->units[index] : NULL, y);
}

petra_status petra_pass_path(const petra_pass *pass, petra_tensor *x, petra_join join, const petra_tensor *addend,
                             petra_tensor **first, petra_tensor **y) {
  int last = pass->block->path_count - 1;
  petra_tensor *h = petra_tensor_retain(x), *kept = NULL;
  petra_status status = PETRA_OK;
  for (int u = 0; u <= last; u++) {
    petra_tensor *next = NULL;
    PETRA_TRY_GOTO(status,
                   petra_pass_unit(pass, u, h, u == last ? join : PETRA_JOIN_NONE, u == last ? addend : NULL, &next),
                   done);
    petra_tensor_release(&h);
    h = next;
    if (u == 0 && first)
      kept = petra_tensor_retain(h);
  }
  *y = h;
  h = NULL;
  if (first) {
    *first = kept;
    kept = NULL;
  }
done:
  petra_tensor_release(&h);
  petra_tensor_release(&kept);
  return status;
}

petra_status petra_unit_backward(const petra_pass *pass, int index, bool relu, const petra_tensor *dy,
                                 petra_tensor *const *gradients, petra_tensor **dx) {
  return petra_convbn_backward(pass->compute, &pass->block->units[index], relu, pass->graph->defer_filters,
                               pass->parameters + 3 * index, &pass->graph->units[index], dy, gradients + 3 * index, dx);
}

petra_status petra_path_backward(const petra_pass *pass, const petra_tensor *dy, bool last_relu,
                                 const petra_tensor *dfirst, petra_tensor *const *gradients, petra_tensor **dx) {
  petra_tensor *d = NULL;
  petra_status status = PETRA_OK;
  int last = pass->block->path_count - 1;
  for (int u = last; u >= 0; u--) {
    petra_tensor *next = NULL;
    bool relu = pass->block->units[u].relu && (u < last || last_relu);
    PETRA_TRY_GOTO(status, petra_unit_backward(pass, u, relu, u == last ? dy : d, gradients, &next), done);
    petra_tensor_release(&d);
    d = next;
    if (u == 1 && dfirst)
      PETRA_TRY_GOTO(status, petra_op_add(pass->compute->backend, d, dfirst, d), done);
  }
  *dx = d;
  d = NULL;
done:
  petra_tensor_release(&d);
  return status;
}

static petra_status run_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  switch (pass->block->kind) {
  case PETRA_BLOCK_STEM:
    return petra_stem_forward(pass, in, out);
  case PETRA_BLOCK_REVERSIBLE:
    return petra_revblock_forward(pass, in, out);
  case PETRA_BLOCK_DOWNSAMPLE:
    return petra_downsample_forward(pass, in, out);
  case PETRA_BLOCK_SHUFFLE:
    return petra_shuffle_forward(pass, in, out);
  case PETRA_BLOCK_RESIDUAL:
    return petra_resblock_forward(pass, in, out);
  case PETRA_BLOCK_HEAD:
    break;
  }
  return petra_fail(PETRA_INTERNAL, "block %s has no plain forward pass", pass->block->name);
}

petra_status petra_block_forward(const petra_compute *compute, const petra_block *block,
                                 petra_tensor *const *parameters, const petra_streams *in, petra_block_graph *graph,
                                 petra_streams *out) {
  petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .graph = graph};
  petra_status status = run_forward(&pass, in, out);
  if (status != PETRA_OK && graph)
    petra_block_graph_release(graph);
  return status;
}

petra_status petra_block_evaluate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_tensor *const *statistics,
                                  const petra_streams *in, petra_streams *out) {
  petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .statistics = statistics};
  return run_forward(&pass, in, out);
}

petra_status petra_block_invert(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *out, petra_block_graph *graph, petra_streams *in) {
  assert(block->reversible);
  petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .graph = graph};
  petra_status status =
      block->kind == PETRA_BLOCK_SHUFFLE ? petra_shuffle_invert(&pass, out, in) : petra_revblock_invert(&pass, out, in);
  if (status != PETRA_OK && graph)
    petra_block_graph_release(graph);
  return status;
}

petra_status petra_block_backward(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_block_graph *graph, const petra_streams *dout,
                                  petra_tensor *const *gradients, petra_streams *din) {
  petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .graph = graph};
  *din = (petra_streams){{NULL, NULL}};
  switch (block->kind) {
  case PETRA_BLOCK_STEM:
    return petra_stem_backward(&pass, dout, gradients);
  case PETRA_BLOCK_REVERSIBLE:
    return petra_revblock_backward(&pass, dout, gradients, din);
  case PETRA_BLOCK_DOWNSAMPLE:
    return petra_downsample_backward(&pass, dout, gradients, din);
  case PETRA_BLOCK_SHUFFLE:
    return petra_shuffle_backward(&pass, dout, gradients, din);
  case PETRA_BLOCK_RESIDUAL:
    return petra_resblock_backward(&pass, dout, gradients, din);
  case PETRA_BLOCK_HEAD:
    return petra_head_backward(&pass, gradients, din);
  }
  return PETRA_INTERNAL;
}

petra_status petra_block_filter_gradients(const petra_compute *compute, const petra_block *block,
                                          const petra_block_graph *graph, petra_tensor *const *gradients) {
  for (int u = 0; u < block->unit_count; u++)
    PETRA_TRY(petra_convbn_filter_gradient(compute, &block->units[u], &graph->units[u], gradients[3 * u]));
  return PETRA_OK;
}

petra_status petra_block_update_statistics(const petra_compute *compute, const petra_block *block,
                                           const petra_block_graph *graph, petra_tensor *const *statistics) {
  for (int u = 0; u < block->unit_count; u++)
    PETRA_TRY(petra_convbn_update_statistics(compute, &graph->units[u], statistics + 2 * u));
  return PETRA_OK;
}
