#include "nn/convbn.h"

#include "backend/ops.h"

static const double statistics_momentum = 0.1; /* PyTorch's default, used by the paper's authors */

static petra_status new_activation(const petra_compute *compute, int32_t images, int32_t channels, int32_t height,
                                   int32_t width, petra_memory_category category, petra_tensor **out) {
  const int32_t shape[4] = {images, channels, height, width};
  return petra_tensor_create(compute->backend, PETRA_TENSOR_ACTIVATION, shape, compute->account, category, out);
}

/* What the graph keeps beside x: the convolution's output, and the batch's statistics. */
static petra_status new_kept(const petra_compute *compute, const petra_unit *unit, int32_t images, bool backward,
                             petra_unit_graph *kept) {
  petra_memory_category category = backward ? PETRA_MEMORY_GRAPH : PETRA_MEMORY_WORKSPACE;
  const int32_t shape[4] = {images, unit->out, unit->height_out, unit->width_out};
  const int32_t channels[4] = {unit->out, 1, 1, 1};
  petra_backend *backend = compute->backend;
  petra_account *account = compute->account;
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, shape, account, category, &kept->conv));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_VECTOR, channels, account, category, &kept->mean));
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_VECTOR, channels, account, category, &kept->variance));
  return PETRA_OK;
}

static void release_kept(petra_unit_graph *kept) {
  petra_tensor_release(&kept->x);
  petra_tensor_release(&kept->conv);
  petra_tensor_release(&kept->mean);
  petra_tensor_release(&kept->variance);
}

petra_status petra_convbn_forward(const petra_compute *compute, const petra_unit *unit, petra_tensor *const *parameters,
                                  petra_tensor *x, petra_join join, const petra_tensor *addend, petra_unit_graph *graph,
                                  petra_tensor **y) {
  petra_unit_graph kept = {0};
  petra_tensor *out = NULL;
  petra_status status;
  int32_t images = x->shape[0];
  PETRA_TRY_GOTO(status, new_kept(compute, unit, images, graph != NULL, &kept), done);
  PETRA_TRY_GOTO(status,
                 new_activation(compute, images, unit->out, unit->height_out, unit->width_out,
                                graph ? PETRA_MEMORY_GRAPH : PETRA_MEMORY_WORKSPACE, &out),
                 done);
  PETRA_TRY_GOTO(status, petra_op_conv_forward(compute->backend, &unit->geometry, x, parameters[0], kept.conv), done);
  const petra_norm_forward norm = {.x = kept.conv,
                                   .scale = parameters[1],
                                   .shift = parameters[2],
                                   .relu = unit->relu,
                                   .join = join,
                                   .addend = addend,
                                   .y = out,
                                   .mean = kept.mean,
                                   .variance = kept.variance};
  PETRA_TRY_GOTO(status, petra_op_norm_forward(compute->backend, &norm), done);
  if (graph) {
    kept.x = petra_tensor_retain(x);
    *graph = kept;
    kept = (petra_unit_graph){0};
  }
  *y = out;
  out = NULL;
done:
  petra_tensor_release(&out);
  release_kept(&kept);
  return status;
}

petra_status petra_convbn_evaluate(const petra_compute *compute, const petra_unit *unit,
                                   petra_tensor *const *parameters, petra_tensor *const *statistics, petra_tensor *x,
                                   petra_join join, const petra_tensor *addend, petra_tensor **y) {
  petra_tensor *conv = NULL, *out = NULL;
  petra_status status;
  PETRA_TRY_GOTO(
      status,
      new_activation(compute, x->shape[0], unit->out, unit->height_out, unit->width_out, PETRA_MEMORY_WORKSPACE, &conv),
      done);
  PETRA_TRY_GOTO(
      status,
      new_activation(compute, x->shape[0], unit->out, unit->height_out, unit->width_out, PETRA_MEMORY_WORKSPACE, &out),
      done);
  PETRA_TRY_GOTO(status, petra_op_conv_forward(compute->backend, &unit->geometry, x, parameters[0], conv), done);
  const petra_norm_forward norm = {.x = conv,
                                   .scale = parameters[1],
                                   .shift = parameters[2],
                                   .relu = unit->relu,
                                   .join = join,
                                   .addend = addend,
                                   .y = out,
                                   .mean = statistics[0],
                                   .variance = statistics[1]};
  PETRA_TRY_GOTO(status, petra_op_norm_evaluate(compute->backend, &norm), done);
  *y = petra_tensor_retain(out);
done:
  petra_tensor_release(&out);
  petra_tensor_release(&conv);
  return status;
}

petra_status petra_convbn_filter_gradient(const petra_compute *compute, const petra_unit *unit,
                                          const petra_unit_graph *graph, petra_tensor *gradient) {
  return petra_op_conv_backward_filter(compute->backend, &unit->geometry, graph->x, graph->dconv, gradient);
}

petra_status petra_convbn_backward(const petra_compute *compute, const petra_unit *unit, bool relu, bool defer,
                                   petra_tensor *const *parameters, petra_unit_graph *graph, const petra_tensor *dy,
                                   petra_tensor *const *gradients, petra_tensor **dx) {
  petra_tensor *dconv = NULL, *out = NULL;
  petra_status status;
  int32_t images = graph->x->shape[0];
  PETRA_TRY_GOTO(
      status,
      new_activation(compute, images, unit->out, unit->height_out, unit->width_out, PETRA_MEMORY_WORKSPACE, &dconv),
      done);
  const petra_norm_backward norm = {.x = graph->conv,
                                    .scale = parameters[1],
                                    .shift = parameters[2],
                                    .mean = graph->mean,
                                    .variance = graph->variance,
                                    .relu = relu,
                                    .dy = dy,
                                    .dx = dconv,
                                    .dscale = gradients[1],
                                    .dshift = gradients[2]};
  PETRA_TRY_GOTO(status, petra_op_norm_backward(compute->backend, &norm), done);
  if (defer) {
    petra_tensor_charge(dconv, compute->account, PETRA_MEMORY_GRAPH);
    graph->dconv = petra_tensor_retain(dconv);
  } else {
    PETRA_TRY_GOTO(
        status, petra_op_conv_backward_filter(compute->backend, &unit->geometry, graph->x, dconv, gradients[0]), done);
  }
  if (dx) {
    PETRA_TRY_GOTO(
        status,
        new_activation(compute, images, unit->in, unit->height_in, unit->width_in, PETRA_MEMORY_WORKSPACE, &out), done);
    PETRA_TRY_GOTO(status, petra_op_conv_backward_data(compute->backend, &unit->geometry, dconv, parameters[0], out),
                   done);
    *dx = petra_tensor_retain(out);
  }
done:
  petra_tensor_release(&out);
  petra_tensor_release(&dconv);
  return status;
}

petra_status petra_convbn_update_statistics(const petra_compute *compute, const petra_unit_graph *graph,
                                            petra_tensor *const *statistics) {
  const int32_t *shape = graph->conv->shape;
  int64_t samples = (int64_t)shape[0] * shape[2] * shape[3];
  return petra_op_norm_update_running(compute->backend, graph->mean, graph->variance, samples, statistics_momentum,
                                      statistics[0], statistics[1]);
}
