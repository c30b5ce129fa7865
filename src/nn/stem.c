/* The stem: convolution, batch norm, ReLU, (ImageNet) max-pool, (RevNet) split along channels into two streams. */
#include "backend/ops.h"
#include "nn/blocks.h"

/* What its graph keeps of its own. */
enum { POOL_MASK = 1 };

static petra_status new_like_output(const petra_pass *pass, int32_t images, int32_t channels, petra_tensor_kind kind,
                                    petra_memory_category category, petra_tensor **out) {
  const petra_image_shape *image = &pass->block->shape_out;
  const int32_t shape[4] = {images, channels, image->height, image->width};
  return petra_tensor_create(pass->compute->backend, kind, shape, pass->compute->account, category, out);
}

static petra_status max_pool(const petra_pass *pass, petra_tensor *x, petra_tensor **y) {
  petra_tensor *mask = NULL, *out = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status,
                 new_like_output(pass, x->shape[0], x->shape[1], PETRA_TENSOR_ACTIVATION, PETRA_MEMORY_WORKSPACE, &out),
                 done);
  if (pass->graph)
    PETRA_TRY_GOTO(status,
                   new_like_output(pass, x->shape[0], x->shape[1], PETRA_TENSOR_MASK, PETRA_MEMORY_GRAPH, &mask), done);
  PETRA_TRY_GOTO(status, petra_op_max_pool_forward(pass->compute->backend, &pass->block->pool, x, out, mask), done);
  if (pass->graph)
    pass->graph->own[POOL_MASK] = petra_tensor_retain(mask);
  *y = petra_tensor_retain(out);
done:
  petra_tensor_release(&mask);
  petra_tensor_release(&out);
  return status;
}

static petra_status split(const petra_pass *pass, const petra_tensor *x, petra_streams *out) {
  petra_streams streams = {{NULL, NULL}};
  petra_status status;
  for (int i = 0; i < 2; i++)
    PETRA_TRY_GOTO(status,
                   new_like_output(pass, x->shape[0], pass->block->shape_out.channels, PETRA_TENSOR_ACTIVATION,
                                   PETRA_MEMORY_WORKSPACE, &streams.tensor[i]),
                   done);
  PETRA_TRY_GOTO(status, petra_op_split(pass->compute->backend, x, streams.tensor[0], streams.tensor[1]), done);
  *out = streams;
  return PETRA_OK;
done:
  petra_streams_release(&streams);
  return status;
}

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  petra_tensor *y = NULL, *pooled = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_pass_unit(pass, 0, in->tensor[0], PETRA_JOIN_NONE, NULL, &y), done);
  if (pass->block->pooled) {
    PETRA_TRY_GOTO(status, max_pool(pass, y, &pooled), done);
    petra_tensor_release(&y);
    y = petra_tensor_retain(pooled);
  }
  if (pass->block->streams_out == 2)
    status = split(pass, y, out);
  else
    *out = (petra_streams){{petra_tensor_retain(y), NULL}};
done:
  petra_tensor_release(&pooled);
  petra_tensor_release(&y);
  return status;
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  (void)din; /* an image has no gradient */
  petra_tensor *dy = NULL, *dunit = NULL;
  petra_status status;
  const petra_unit *unit = &pass->block->units[0];
  petra_backend *backend = pass->compute->backend;
  int32_t images = dout->tensor[0]->shape[0];
  if (pass->block->streams_out == 2) {
    PETRA_TRY_GOTO(
        status, new_like_output(pass, images, unit->out, PETRA_TENSOR_ACTIVATION, PETRA_MEMORY_WORKSPACE, &dy), done);
    PETRA_TRY_GOTO(status, petra_op_concat(backend, dout->tensor[0], dout->tensor[1], dy), done);
  } else {
    dy = petra_tensor_retain(dout->tensor[0]);
  }
  if (pass->block->pooled) {
    const int32_t shape[4] = {images, unit->out, unit->height_out, unit->width_out};
    PETRA_TRY_GOTO(status,
                   petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, shape, pass->compute->account,
                                       PETRA_MEMORY_WORKSPACE, &dunit),
                   done);
    PETRA_TRY_GOTO(
        status, petra_op_max_pool_backward(backend, &pass->block->pool, dy, pass->graph->own[POOL_MASK], dunit), done);
  } else {
    dunit = petra_tensor_retain(dy);
  }
  status = petra_unit_backward(pass, 0, true, dunit, gradients, NULL);
done:
  petra_tensor_release(&dunit);
  petra_tensor_release(&dy);
  return status;
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

const petra_block_ops petra_stem_ops = {.name = "stem",
                                        .reads_data = true,
                                        .forward = forward,
                                        .backward = backward,
                                        PETRA_OPS_OF_UNITS,
                                        .kernels = add_kernels};
