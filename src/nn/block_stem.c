/* SPDX-License-Identifier: Apache-2.0 */
/* The stem: convolution, batch norm, ReLU, (ImageNet) max-pool, (RevNet) split along channels into two streams. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* The graph's own tensors. */
enum { POOL_MASK = 1 };

/* Gets the output before it is split into streams. */
static petra_status new_whole(const petra_pass *pass, int32_t images, petra_tensor **out) {
  const petra_stream_shape *stream = &pass->block->shape_out;
  const petra_stream_shape whole = {
      .channels = pass->block->units[0].out, .height = stream->height, .width = stream->width};
  return petra_pass_stream(pass, images, &whole, out);
}

static petra_status max_pool(const petra_pass *pass, const petra_tensor *x, petra_tensor **y) {
  petra_tensor **mask = pass->graph ? &pass->graph->own[POOL_MASK] : NULL;
  PETRA_TRY(new_whole(pass, x->shape[0], y));
  if (mask)
    PETRA_TRY(petra_compute_tensor(pass->compute, PETRA_TENSOR_MASK, (*y)->shape, PETRA_MEMORY_GRAPH, mask));
  return petra_op_max_pool_forward(pass->compute->backend, &pass->block->pool, x, *y, mask ? *mask : NULL);
}

static petra_status split(const petra_pass *pass, const petra_tensor *x, petra_streams *out) {
  for (int i = 0; i < 2; i++)
    PETRA_TRY(petra_pass_stream(pass, x->shape[0], &pass->block->shape_out, &out->tensor[i]));
  return petra_op_split(pass->compute->backend, x, out->tensor[0], out->tensor[1]);
}

/* Returns true if the batch norm writes both streams itself. */
static bool is_divided(const petra_pass *pass) {
  return pass->compute->backend->divides_streams && !pass->block->pooled && pass->block->streams_out == 2;
}

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  PETRA_RELEASED petra_tensor *y = NULL, *unit = NULL;
  if (!out && !pass->block->pooled)
    return petra_pass_unit(pass, 0, in->tensor[0], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, NULL);
  if (is_divided(pass))
    return petra_pass_unit_streams(pass, 0, in->tensor[0], out);
  PETRA_TRY(petra_pass_unit(pass, 0, in->tensor[0], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, &unit));
  if (pass->block->pooled)
    PETRA_TRY(max_pool(pass, unit, &y));
  else
    y = petra_tensor_retain(unit);
  petra_tensor_release(&unit);
  if (!out)
    return PETRA_OK;
  if (pass->block->streams_out == 2)
    return split(pass, y, out);
  out->tensor[0] = petra_tensor_retain(y);
  return PETRA_OK;
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  (void)din; /* an image has no gradient */
  PETRA_RELEASED petra_tensor *whole = NULL, *dunit = NULL;
  petra_tensor *dy = dout->tensor[0];
  petra_backend *backend = pass->compute->backend;
  petra_block_graph *graph = pass->graph;
  if (is_divided(pass))
    return petra_unit_backward(pass, 0, true, dy, dout->tensor[1], gradients, PETRA_UNIT_STREAM, NULL, NULL);
  if (pass->block->streams_out == 2) {
    PETRA_TRY(new_whole(pass, dy->shape[0], &whole));
    PETRA_TRY(petra_op_concat(backend, dy, dout->tensor[1], whole));
    dy = whole;
  }
  if (pass->block->pooled) {
    PETRA_TRY(petra_compute_tensor(pass->compute, PETRA_TENSOR_ACTIVATION, graph->units[0].conv->shape,
                                   PETRA_MEMORY_WORKSPACE, &dunit));
    PETRA_TRY(petra_op_max_pool_backward(backend, &pass->block->pool, dy, graph->own[POOL_MASK], dunit));
    dy = dunit;
  }
  return petra_unit_backward(pass, 0, true, dy, NULL, gradients, PETRA_UNIT_STREAM, NULL, NULL);
}

static void add_kernels(const petra_block *block, petra_kernel_list *kernels) {
  const petra_unit *unit = &block->units[0];
  petra_units_kernels(block, kernels);
  if (!block->pooled)
    return;
  double in = (double)unit->out * unit->height_out * unit->width_out, out = (double)petra_block_output_elements(block);
  double samples = (double)kernels->samples, window = block->pool.window;
  petra_kernels_add_both(kernels, samples * out * window * window, samples * (in + out));
}

const petra_block_ops petra_stem_ops = {
    .name = "stem", .reads_data = true, .forward = forward, .backward = backward, .kernels = add_kernels};
