/* SPDX-License-Identifier: Apache-2.0 */
/* Times the operations of a backend on the layer shapes of RevNet-18 (CIFAR), one by one.
 *
 *   bench_ops [threads [batch [repetitions [precision]]]]      defaults: 2 64 7 fp32; precision: fp32, bf16
 *
 * Prints the median of the repetitions. The last table puts together one tick of PETRA (F, then reconstruct,
 * backward and update of all stages) and compares it with the time of its convolutions. */
#include "bench/frame.h"

/* --- convolutions --- */

typedef struct conv_context {
  petra_conv_geometry geometry;
  petra_tensor *x, *w, *y;
} conv_context;

static petra_status conv_forward(petra_backend *backend, void *context) {
  conv_context *c = context;
  return petra_op_conv_forward(backend, &c->geometry, c->x, c->w, c->y);
}

static petra_status conv_backward_data(petra_backend *backend, void *context) {
  conv_context *c = context;
  return petra_op_conv_backward_data(backend, &c->geometry, c->y, c->w, NULL, c->x);
}

static petra_status conv_backward_filter(petra_backend *backend, void *context) {
  conv_context *c = context;
  return petra_op_conv_backward_filter(backend, &c->geometry, c->x, c->y, c->w);
}

/* `count` such layers in the network, each with `forwards` forward passes a tick. */
static void conv(bench *b, int in, int out, int size, int kernel, int stride, int count, int forwards) {
  conv_context c = {.geometry = {stride, kernel / 2}};
  int out_size = (size + 2 * (kernel / 2) - kernel) / stride + 1;
  const petra_tensor_kind inner = petra_tensor_inner_kind(b->backend, PETRA_TENSOR_ACTIVATION);
  c.x = tensor(b, inner, b->batch, in, size, size);
  c.w = tensor(b, PETRA_TENSOR_FILTER, out, in, kernel, kernel);
  c.y = tensor(b, inner, b->batch, out, out_size, out_size);
  double flops = 2.0 * (double)c.y->elements * in * kernel * kernel;
  double forward = median_s(b, conv_forward, &c), data = in == 3 ? 0 : median_s(b, conv_backward_data, &c);
  double filter = median_s(b, conv_backward_filter, &c);
  printf("conv %4d -> %4d %3dx%-3d k%d s%d  x%-2d %8.3f %8.3f %8.3f ms  %6.1f %6.1f %6.1f GFLOP/s\n", in, out, size,
         size, kernel, stride, count, forward * 1e3, data * 1e3, filter * 1e3, flops / forward * 1e-9,
         data > 0 ? flops / data * 1e-9 : 0, flops / filter * 1e-9);
  b->conv_s += count * (forwards * forward + data + filter);
  petra_tensor_release(&c.x);
  petra_tensor_release(&c.w);
  petra_tensor_release(&c.y);
}

/* --- norms and the other passes over activations --- */

typedef struct norm_context {
  petra_norm_forward forward;
  petra_norm_backward backward;
  petra_tensor *sum, *rounded; /* what is added to; copies of streams for convolutions */
} norm_context;

static petra_status norm_forward(petra_backend *backend, void *context) {
  return petra_op_norm_forward(backend, &((norm_context *)context)->forward);
}

static petra_status norm_backward(petra_backend *backend, void *context) {
  return petra_op_norm_backward(backend, &((norm_context *)context)->backward);
}

static petra_status add(petra_backend *backend, void *context) {
  norm_context *c = context;
  return petra_op_add(backend, c->sum, c->forward.addend, c->sum);
}

static petra_status narrow(petra_backend *backend, void *context) {
  norm_context *c = context;
  return petra_op_copy(backend, c->forward.addend, c->rounded);
}

/* `forwards` and `joined` forward passes a tick without and with addend, `backwards` backward passes, `adds`.
 */
static void norm(bench *b, int channels, int size, int forwards, int joined, int backwards, int adds) {
  const petra_tensor_kind inner = petra_tensor_inner_kind(b->backend, PETRA_TENSOR_ACTIVATION);
  petra_tensor *x = tensor(b, inner, b->batch, channels, size, size);
  petra_tensor *between = tensor(b, inner, b->batch, channels, size, size);
  petra_tensor *addend = tensor(b, PETRA_TENSOR_ACTIVATION, b->batch, channels, size, size);
  petra_tensor *y = tensor(b, PETRA_TENSOR_ACTIVATION, b->batch, channels, size, size);
  petra_tensor *v[6];
  for (int i = 0; i < 6; i++)
    v[i] = tensor(b, PETRA_TENSOR_VECTOR, channels, 1, 1, 1);
  norm_context c = {.forward = {.x = x,
                                .scale = v[0],
                                .shift = v[1],
                                .relu = true,
                                .join = PETRA_JOIN_NONE,
                                .y = between,
                                .mean = v[2],
                                .variance = v[3],
                                .addend = addend},
                    .backward = {.x = x,
                                 .scale = v[0],
                                 .shift = v[1],
                                 .mean = v[2],
                                 .variance = v[3],
                                 .relu = true,
                                 .dy = addend,
                                 .dx = between,
                                 .dscale = v[4],
                                 .dshift = v[5]}};
  c.sum = y;
  c.rounded = between;
  double plain = median_s(b, norm_forward, &c), back = median_s(b, norm_backward, &c), sum = median_s(b, add, &c);
  double copy = inner == PETRA_TENSOR_INNER ? median_s(b, narrow, &c) : 0;
  c.forward.y = y;
  c.forward.join = PETRA_JOIN_ADD;
  double join = median_s(b, norm_forward, &c);
  double gb = (double)x->elements * 4e-9; /* once through the tensor, in float */
  printf("norm %4d %3dx%-3d  forward %7.3f  with add %7.3f  backward %7.3f  add %7.3f  rounding %7.3f ms  %5.1f %5.1f "
         "%5.1f %5.1f GB/s\n",
         channels, size, size, plain * 1e3, join * 1e3, back * 1e3, sum * 1e3, copy * 1e3, 3 * gb / plain,
         4 * gb / join, 5 * gb / back, 3 * gb / sum);
  b->other_s += forwards * plain + joined * join + backwards * back + adds * sum + joined * copy;
  petra_tensor_release(&x);
  petra_tensor_release(&between);
  petra_tensor_release(&addend);
  petra_tensor_release(&y);
  for (int i = 0; i < 6; i++)
    petra_tensor_release(&v[i]);
}

/* --- the optimiser --- */

static petra_status step(petra_backend *backend, void *context) {
  return petra_op_sgd_step(backend, context);
}

static void optimiser(bench *b, int width) {
  petra_tensor *t[3];
  for (int i = 0; i < 3; i++)
    t[i] = tensor(b, PETRA_TENSOR_FILTER, 8 * width, 8 * width, 3, 3);
  const double decay = 5e-4;
  petra_sgd_step s = {.count = 1,
                      .parameters = &t[0],
                      .velocities = &t[1],
                      .gradients = &t[2],
                      .weight_decay = &decay,
                      .lr = 1e-9,
                      .momentum = 0.9,
                      .nesterov = true};
  double time = median_s(b, step, &s);
  double all = 11180938.0 * width * width / (64 * 64); /* parameters of RevNet-18, nearly all in convolutions */
  printf("sgd  %lld parameters %7.3f ms  %5.1f GB/s\n", (long long)t[0]->elements, time * 1e3,
         20e-9 * (double)t[0]->elements / time);
  b->update_s = time * all / (double)t[0]->elements;
  for (int i = 0; i < 3; i++)
    petra_tensor_release(&t[i]);
}

static void network(bench *b, int width) {
  printf("\nRevNet-18 width %d, batch %d, %d threads\n", width, b->batch, b->backend->threads);
  b->conv_s = b->other_s = 0;
  conv(b, 3, 2 * width, 32, 3, 1, 1, 2);
  norm(b, 2 * width, 32, 2, 0, 1, 0);
  for (int group = 0, size = 32, c = width; group < 4; group++) {
    if (group > 0) { /* downsampling block: two convolutions and a shortcut; its backward recomputes the forward */
      conv(b, c, 2 * c, size, 3, 2, 1, 2);
      conv(b, c, 2 * c, size, 1, 2, 1, 2);
      c *= 2;
      size /= 2;
      conv(b, c, c, size, 3, 1, 3, 2);
      norm(b, c, size, 2 * 3, 2 * 2, 2 + 3, 2);
    } else {
      conv(b, c, c, size, 3, 1, 4, 2);
      norm(b, c, size, 2 * 2, 2 * 2, 4, 2);
    }
  }
  optimiser(b, width);
  printf("one tick: convolutions %.1f ms, norms, joins and sums %.1f ms, update %.1f ms, ratio to "
         "convolutions %.3f\n",
         b->conv_s * 1e3, b->other_s * 1e3, b->update_s * 1e3, 1 + (b->other_s + b->update_s) / b->conv_s);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 2;
  bench b = {.batch = argc > 2 ? atoi(argv[2]) : 64, .repetitions = argc > 3 ? atoi(argv[3]) : 7};
  const petra_precision precision =
      argc > 4 && strcmp(argv[4], "bf16") == 0 ? PETRA_PRECISION_BF16 : PETRA_PRECISION_FP32;
  if (threads < 1 || b.batch < 1 || b.repetitions < 1 || b.repetitions > REPETITIONS_MAX) {
    fprintf(stderr, "usage: bench_ops [threads [batch [repetitions [precision]]]]\n");
    return 2;
  }
  require(petra_backend_create(PETRA_BACKEND_CPU, precision, threads, true, &b.backend));
  char text[512];
  b.backend->ops->describe(b.backend, text, sizeof text);
  printf("%s\n", text);
  network(&b, 64);
  network(&b, 16);
  petra_backend_destroy(b.backend);
  return 0;
}
