/* SPDX-License-Identifier: Apache-2.0 */
/* Units, and the common parts of block kinds that consist of them: passes and statistics. */
#include "backend/backend.h"
#include "nn/blocks.h"

enum { PARAMETERS = PETRA_UNIT_PARAMETERS, STATISTICS = PETRA_UNIT_STATISTICS };

static const double statistics_momentum = 0.1; /* PyTorch's default, which the paper's authors use */

petra_status petra_pass_stream(const petra_pass *pass, int32_t samples, const petra_stream_shape *shape,
                               petra_tensor **out) {
  int32_t all[4];
  petra_stream_tensor_shape(shape, samples, all);
  return petra_compute_tensor(pass->compute, shape->kind, all, PETRA_MEMORY_WORKSPACE, out);
}

petra_tensor_kind petra_pass_kind(const petra_pass *pass, petra_tensor_kind stream, petra_unit_output output) {
  const bool head = pass->block->is_loss && pass->block->unit_count == 0;
  return output == PETRA_UNIT_STREAM || head ? stream : petra_tensor_inner_kind(pass->compute->backend, stream);
}

petra_status petra_pass_read(const petra_pass *pass, petra_tensor *x, petra_memory_category category,
                             petra_tensor **out) {
  const petra_tensor_kind kind = petra_pass_kind(pass, petra_kind_of_stream(x->kind), PETRA_UNIT_INNER);
  if (x->kind == kind || pass->compute->backend->rounds_streams) {
    *out = petra_tensor_retain(x);
    return PETRA_OK;
  }
  PETRA_TRY(petra_compute_tensor(pass->compute, kind, x->shape, category, out));
  return petra_op_copy(pass->compute->backend, x, *out);
}

/* Gets the convolution's input and output, and the batch's or the running statistics. */
static petra_status keep(const petra_pass *pass, int index, petra_tensor *x, petra_memory_category category,
                         petra_unit_graph *kept) {
  const petra_unit *unit = &pass->block->units[index];
  const int32_t images = x->shape[0], channels[4] = {unit->out, 1, 1, 1};
  const int32_t shape[4] = {images, unit->out, unit->height_out, unit->width_out};
  PETRA_TRY(petra_pass_read(pass, x, category, &kept->x));
  const petra_tensor_kind kind = petra_pass_kind(pass, PETRA_TENSOR_ACTIVATION, PETRA_UNIT_INNER);
  PETRA_TRY(petra_compute_tensor(pass->compute, kind, shape, category, &kept->conv));
  if (pass->statistics) {
    kept->mean = petra_tensor_retain(pass->statistics[STATISTICS * index]);
    kept->variance = petra_tensor_retain(pass->statistics[STATISTICS * index + 1]);
    return PETRA_OK;
  }
  PETRA_TRY(petra_compute_tensor(pass->compute, PETRA_TENSOR_VECTOR, channels, category, &kept->mean));
  return petra_compute_tensor(pass->compute, PETRA_TENSOR_VECTOR, channels, category, &kept->variance);
}

static petra_status move_statistics(const petra_compute *compute, const petra_unit_graph *unit, int index, double share,
                                    petra_tensor *const *statistics) {
  const int32_t *shape = unit->conv->shape;
  const int64_t samples = (int64_t)shape[0] * shape[2] * shape[3];
  return petra_op_norm_update_running(compute->backend, unit->mean, unit->variance, samples, share,
                                      statistics[STATISTICS * index], statistics[STATISTICS * index + 1]);
}

/* Computes the unit and creates tensors for its output in `y`: one, two (with PETRA_JOIN_NONE), or none. */
static petra_status unit_into(const petra_pass *pass, int index, petra_unit_graph *kept, petra_join join,
                              const petra_tensor *addend, const petra_streams *y) {
  const petra_unit *unit = &pass->block->units[index];
  petra_tensor *const *parameters = pass->parameters + PARAMETERS * index;
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY(petra_op_conv_forward(backend, &unit->geometry, kept->x, parameters[0], kept->conv));
  const petra_norm_forward norm = {.x = kept->conv,
                                   .scale = parameters[1],
                                   .shift = parameters[2],
                                   .relu = unit->relu,
                                   .join = join,
                                   .addend = addend,
                                   .y = y->tensor[0],
                                   .second = y->tensor[1],
                                   .mean = kept->mean,
                                   .variance = kept->variance};
  PETRA_TRY(pass->statistics ? petra_op_norm_evaluate(backend, &norm) : petra_op_norm_forward(backend, &norm));
  return pass->estimates ? move_statistics(pass->compute, kept, index, pass->share, pass->estimates) : PETRA_OK;
}

petra_status petra_pass_unit(const petra_pass *pass, int index, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_unit_output output, petra_tensor **y) {
  PETRA_FINISHED(petra_block_graph_release) petra_block_graph own = {0};
  petra_unit_graph *kept = &(pass->graph ? pass->graph : &own)->units[index];
  const petra_memory_category category = petra_pass_kept(pass);
  PETRA_TRY(keep(pass, index, x, category, kept));
  if (y)
    PETRA_TRY(petra_compute_tensor(pass->compute, petra_pass_kind(pass, PETRA_TENSOR_ACTIVATION, output),
                                   kept->conv->shape, category, y));
  return unit_into(pass, index, kept, join, addend, &(petra_streams){{y ? *y : NULL}});
}

petra_status petra_pass_unit_streams(const petra_pass *pass, int index, petra_tensor *x, petra_streams *out) {
  PETRA_FINISHED(petra_block_graph_release) petra_block_graph own = {0};
  petra_unit_graph *kept = &(pass->graph ? pass->graph : &own)->units[index];
  PETRA_TRY(keep(pass, index, x, petra_pass_kept(pass), kept));
  for (int i = 0; i < 2; i++)
    PETRA_TRY(petra_pass_stream(pass, x->shape[0], &pass->block->shape_out, &out->tensor[i]));
  return unit_into(pass, index, kept, PETRA_JOIN_NONE, NULL, out);
}

petra_status petra_pass_path(const petra_pass *pass, petra_tensor *x, petra_join join, const petra_tensor *addend,
                             petra_tensor **first, petra_tensor **y) {
  if (pass->block->middle)
    return petra_function_forward(pass, x, join, addend, y);
  int last = pass->block->path_count - 1;
  PETRA_RELEASED petra_tensor *in = petra_tensor_retain(x);
  for (int u = 0; u < last; u++) {
    const petra_unit_output output = u == 0 && first ? PETRA_UNIT_STREAM : PETRA_UNIT_INNER;
    PETRA_RELEASED petra_tensor *before = in;
    in = NULL;
    PETRA_TRY(petra_pass_unit(pass, u, before, PETRA_JOIN_NONE, NULL, output, &in));
    if (u == 0 && first)
      *first = petra_tensor_retain(in);
  }
  return petra_pass_unit(pass, last, in, join, addend, PETRA_UNIT_STREAM, y);
}

petra_status petra_unit_backward(const petra_pass *pass, int index, bool relu, const petra_tensor *dy,
                                 const petra_tensor *dsecond, petra_tensor *const *gradients, petra_unit_output input,
                                 const petra_tensor *addend, petra_tensor **dx) {
  const petra_conv_geometry *geometry = &pass->block->units[index].geometry;
  PETRA_RELEASED petra_tensor *dconv = NULL;
  petra_tensor *const *parameters = pass->parameters + PARAMETERS * index;
  petra_unit_graph *graph = &pass->graph->units[index];
  petra_backend *backend = pass->compute->backend;
  gradients += PARAMETERS * index;
  PETRA_TRY(petra_compute_like(pass->compute, graph->conv, PETRA_MEMORY_WORKSPACE, &dconv));
  const petra_norm_backward norm = {.x = graph->conv,
                                    .scale = parameters[1],
                                    .shift = parameters[2],
                                    .mean = graph->mean,
                                    .variance = graph->variance,
                                    .relu = relu,
                                    .dy = dy,
                                    .dsecond = dsecond,
                                    .dx = dconv,
                                    .dscale = gradients[1],
                                    .dshift = gradients[2]};
  PETRA_TRY(petra_op_norm_backward(backend, &norm));
  if (pass->graph->defer) {
    petra_tensor_charge(dconv, pass->compute->account, PETRA_MEMORY_GRAPH);
    graph->dconv = petra_tensor_retain(dconv);
  } else {
    PETRA_TRY(petra_op_conv_backward_filter(backend, geometry, graph->x, dconv, gradients[0]));
  }
  if (!dx)
    return PETRA_OK;
  PETRA_TRY(petra_compute_tensor(pass->compute, petra_pass_kind(pass, PETRA_TENSOR_ACTIVATION, input), graph->x->shape,
                                 PETRA_MEMORY_WORKSPACE, dx));
  return petra_op_conv_backward_data(backend, geometry, dconv, parameters[0], addend, *dx);
}

petra_status petra_path_backward(const petra_pass *pass, petra_tensor *dy, bool last_relu, const petra_tensor *dfirst,
                                 petra_tensor *const *gradients, const petra_tensor *addend, petra_tensor **dx) {
  if (pass->block->middle) {
    PETRA_TRY(petra_function_backward(pass, dy, gradients, dx));
    return addend ? petra_op_add(pass->compute->backend, *dx, addend, *dx) : PETRA_OK;
  }
  int last = pass->block->path_count - 1;
  for (int u = last; u >= 0; u--) {
    PETRA_RELEASED petra_tensor *above = *dx;
    bool relu = pass->block->units[u].relu && (u < last || last_relu), stream = u == 0 || (u == 1 && dfirst);
    *dx = NULL;
    const petra_tensor *added = u == 0 ? addend : u == 1 ? dfirst : NULL;
    PETRA_TRY(petra_unit_backward(pass, u, relu, u == last ? dy : above, NULL, gradients,
                                  stream ? PETRA_UNIT_STREAM : PETRA_UNIT_INNER, added, dx));
  }
  return PETRA_OK;
}

petra_status petra_block_update_statistics(const petra_compute *compute, const petra_block *block,
                                           petra_block_graph *graph, petra_tensor *const *statistics) {
  for (int u = 0; u < block->unit_count; u++)
    PETRA_TRY(move_statistics(compute, &graph->units[u], u, statistics_momentum, statistics));
  return PETRA_OK;
}
