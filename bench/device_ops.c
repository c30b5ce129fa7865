/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the network alone, each with its shapes: calls in segments like those of a stage's action (on
 * cuda: graphs), some segments between two synchronizations, going round sets of tensors which together are larger
 * than the caches. */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TENSORS = 3 * PETRA_BLOCK_TENSORS + 1, SETS_MAX = 64, CALLS_WARM = 4 };

/* A tensor of an operation: its kind and shape. */
typedef struct spec {
  petra_tensor_kind kind;
  int32_t shape[4];
} spec;

typedef struct operation operation;
struct operation {
  char name[96]; /* "conv.forward/64x64x3x3s1@32" */
  petra_status (*call)(petra_backend *backend, const operation *what, petra_tensor *const *t);
  spec specs[TENSORS];
  int tensors;
  petra_conv_geometry geometry;
  petra_join join;
  const void *host;     /* upload's images, cross-entropy's labels */
  bool alone;           /* a segment has one call: the host takes part in it */
  double flops, passes; /* bytes that it must move at least */
  int per_tick;         /* calls in a tick of petra; 0: not added up */
};

typedef struct bench {
  petra_backend *backend;
  const bench_options *options;
  const bench_key *key;
  double copy_bytes_per_s, flops_per_s; /* the ceilings, measured; 0 before */
  double conv_s, other_s;               /* of a tick */
} bench;

/* --- the calls --- */

static petra_status call_copy(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  return petra_op_copy(backend, t[0], t[1]);
}

static petra_status call_upload(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  return petra_op_upload(backend, t[0], what->host, PETRA_HOST_F64);
}

static petra_status call_add(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  return petra_op_add(backend, t[0], t[1], t[2]);
}

static petra_status call_split(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  return petra_op_split(backend, t[0], t[1], t[2]);
}

static petra_status call_conv_forward(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  return petra_op_conv_forward(backend, &what->geometry, t[0], t[1], t[2]);
}

static petra_status call_conv_data(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  return petra_op_conv_backward_data(backend, &what->geometry, t[2], t[1], NULL, t[0]);
}

static petra_status call_conv_filter(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  return petra_op_conv_backward_filter(backend, &what->geometry, t[0], t[2], t[1]);
}

/* x, addend, y, then scale, shift, mean, variance. */
static petra_status call_norm_forward(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  const petra_norm_forward arguments = {.x = t[0],
                                        .scale = t[3],
                                        .shift = t[4],
                                        .relu = true,
                                        .join = what->join,
                                        .addend = what->join == PETRA_JOIN_NONE ? NULL : t[1],
                                        .y = t[2],
                                        .mean = t[5],
                                        .variance = t[6]};
  return petra_op_norm_forward(backend, &arguments);
}

static petra_status call_norm_backward(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  const petra_norm_backward arguments = {.x = t[0],
                                         .dy = t[1],
                                         .dx = t[2],
                                         .scale = t[3],
                                         .shift = t[4],
                                         .mean = t[5],
                                         .variance = t[6],
                                         .relu = true,
                                         .dscale = t[7],
                                         .dshift = t[8]};
  return petra_op_norm_backward(backend, &arguments);
}

static petra_status call_norm_running(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  return petra_op_norm_update_running(backend, t[0], t[1], 1024, 0.1, t[2], t[3]);
}

static petra_status call_pool_forward(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  return petra_op_average_pool_forward(backend, t[0], t[1], 0);
}

static petra_status call_pool_backward(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  return petra_op_average_pool_backward(backend, t[1], 0, t[0]);
}

/* x, w, b, y, dw, db */
static petra_status call_linear_forward(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  return petra_op_linear_forward(backend, &(petra_linear_forward){.x = t[0], .w = t[1], .b = t[2], .y = t[3]});
}

static petra_status call_linear_backward(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  (void)what;
  PETRA_TRY(petra_op_linear_backward_data(backend, t[3], t[1], t[6]));
  return petra_op_linear_backward_weights(backend, t[0], t[3], t[4], t[5]);
}

static petra_status call_loss(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  petra_cross_entropy arguments = {.logits = t[0], .labels = what->host, .dlogits = t[1]};
  return petra_op_cross_entropy(backend, &arguments);
}

/* All parameters, then all velocities, then all gradients. */
static petra_status call_sgd(petra_backend *backend, const operation *what, petra_tensor *const *t) {
  static const double decay[PETRA_BLOCK_TENSORS];
  int count = what->tensors / 3;
  const petra_sgd_step arguments = {.count = count,
                                    .parameters = t,
                                    .velocities = t + count,
                                    .gradients = t + 2 * count,
                                    .weight_decay = decay,
                                    .lr = 1e-6,
                                    .momentum = 0.9,
                                    .nesterov = true};
  return petra_op_sgd_step(backend, &arguments);
}

/* --- timing --- */

/* The tensors of one set hold uniform numbers of deviation 1/2 around 0, vectors around 1; other sets are copies. */
static petra_status fill(petra_backend *backend, petra_tensor *tensor) {
  float *host;
  uint32_t state = 12345;
  PETRA_TRY(petra_allocate(&host, (size_t)tensor->elements, sizeof *host));
  for (int64_t i = 0; i < tensor->elements; i++) {
    state = state * 1664525u + 1013904223u;
    host[i] = ((float)(state >> 8) / 8388608.0f - 1) * 0.87f + (tensor->kind == PETRA_TENSOR_VECTOR ? 1 : 0);
  }
  petra_status status = petra_op_upload(backend, tensor, host, PETRA_HOST_F32);
  petra_free(host);
  return status;
}

static petra_status make_set(const bench *b, const operation *what, petra_tensor *const *like, petra_tensor **out) {
  for (int i = 0; i < what->tensors; i++) {
    PETRA_TRY(petra_tensor_create(b->backend, what->specs[i].kind, what->specs[i].shape, NULL, PETRA_MEMORY_WORKSPACE,
                                  &out[i]));
    PETRA_TRY(like ? petra_op_copy(b->backend, like[i], out[i]) : fill(b->backend, out[i]));
  }
  return PETRA_OK;
}

typedef struct sets {
  int count;
  petra_tensor *tensor[SETS_MAX][TENSORS];
} sets;

static petra_status make_sets(const bench *b, const operation *what, sets *all) {
  size_t bytes = 0;
  PETRA_TRY(make_set(b, what, NULL, all->tensor[0]));
  for (int i = 0; i < what->tensors; i++)
    bytes += all->tensor[0][i]->bytes;
  double wanted = ceil(b->options->cold_bytes / (double)(bytes ? bytes : 1));
  all->count = wanted < 1 ? 1 : wanted > SETS_MAX ? SETS_MAX : (int)wanted;
  for (int s = 1; s < all->count; s++)
    PETRA_TRY(make_set(b, what, all->tensor[0], all->tensor[s]));
  return petra_backend_synchronize(b->backend);
}

/* `chain` segments of `calls` calls; every segment is the same, so that it can be a graph. */
static petra_status round_of(const bench *b, const operation *what, sets *all, int calls, int chain, double *out_s) {
  PETRA_TRY(petra_backend_synchronize(b->backend));
  double start = petra_clock_s();
  for (int s = 0; s < chain; s++) {
    petra_status status = PETRA_OK;
    PETRA_TRY(petra_backend_begin(b->backend, 1, 0));
    for (int i = 0; i < calls && status == PETRA_OK; i++)
      status = what->call(b->backend, what, all->tensor[(what->alone ? s : i) % all->count]);
    petra_status end = petra_backend_end(b->backend);
    PETRA_TRY(status != PETRA_OK ? status : end);
  }
  PETRA_TRY(petra_backend_synchronize(b->backend));
  *out_s = petra_clock_s() - start;
  return PETRA_OK;
}

static int at_max(double wanted, int maximum) {
  return wanted < 1 ? 1 : wanted > maximum ? maximum : (int)wanted;
}

/* The time of one call. */
static petra_status time_sets(const bench *b, const operation *what, sets *all, bench_spread *out, int *out_calls,
                              int *out_chain) {
  const bench_options *o = b->options;
  double seconds[BENCH_ROUNDS_MAX];
  for (int i = 0; i < 2; i++) /* plans and scratch are made in the first */
    PETRA_TRY(round_of(b, what, all, 1, 1, &seconds[0]));
  int calls = what->alone ? 1 : at_max(o->budget_s / seconds[0], o->repeats);
  int chain =
      what->alone ? at_max(o->budget_s / seconds[0], o->repeats) : at_max(o->budget_s / (seconds[0] * calls), o->chain);
  for (int i = 0; i < CALLS_WARM; i++) /* a segment that comes a second time becomes a graph */
    PETRA_TRY(round_of(b, what, all, calls, what->alone ? chain : 1, &seconds[0]));
  for (int i = 0; i < o->rounds; i++) {
    PETRA_TRY(round_of(b, what, all, calls, chain, &seconds[i]));
    seconds[i] /= (double)calls * chain;
  }
  *out = bench_spread_of(seconds, o->rounds);
  *out_calls = calls;
  *out_chain = chain;
  return PETRA_OK;
}

static petra_status measure(const bench *b, const operation *what, bench_spread *out, int *count, int *calls,
                            int *chain) {
  sets *all;
  PETRA_TRY(petra_allocate(&all, 1, sizeof *all));
  petra_status status = make_sets(b, what, all);
  if (status == PETRA_OK)
    status = time_sets(b, what, all, out, calls, chain);
  *count = all->count;
  for (int s = 0; s < SETS_MAX; s++)
    for (int i = 0; i < what->tensors; i++)
      petra_tensor_release(&all->tensor[s][i]);
  petra_free(all);
  return status;
}

static double bytes_of_one(const bench *b, const spec *s) {
  return (double)b->backend->element_bytes[s->kind] * s->shape[0] * s->shape[1] * s->shape[2] * s->shape[3];
}

/* Bytes of all tensors, each once. */
static double bytes_of(const bench *b, const operation *what) {
  double sum = 0;
  for (int i = 0; i < what->tensors; i++)
    sum += bytes_of_one(b, &what->specs[i]);
  return sum;
}

static petra_status time_operation(bench *b, const operation *what) {
  bench_spread s;
  int count, calls, chain;
  PETRA_TRY(measure(b, what, &s, &count, &calls, &chain));
  double bytes = what->passes > 0 ? what->passes : bytes_of(b, what), of_copy = bytes / s.median / b->copy_bytes_per_s;
  printf("op/%s/%s ms=%.5f min=%.5f max=%.5f per_tick=%d mib=%.3f gb_per_s=%.1f of_copy=%.3f", b->key->text, what->name,
         1e3 * s.median, 1e3 * s.min, 1e3 * s.max, what->per_tick, bytes / 1048576, 1e-9 * bytes / s.median, of_copy);
  if (what->flops > 0)
    printf(" gflop=%.3f tflop_per_s=%.3f of_conv=%.3f", 1e-9 * what->flops, 1e-12 * what->flops / s.median,
           what->flops / s.median / b->flops_per_s);
  printf(" rounds=%d segments=%d calls=%d sets=%d\n", b->options->rounds, chain, calls, count);
  *(strncmp(what->name, "conv.", 5) == 0 ? &b->conv_s : &b->other_s) += what->per_tick * s.median;
  return PETRA_OK;
}

/* --- the operations --- */

static spec activation(int32_t n, int32_t c, int32_t h, int32_t w) {
  return (spec){PETRA_TENSOR_ACTIVATION, {n, c, h, w}};
}

/* The kind of the tensors that units of the network compute with: bf16 if the precision is bf16, although streams are f32. */
static spec inner(const bench *b, int32_t n, int32_t c, int32_t h, int32_t w) {
  return (spec){petra_tensor_inner_kind(b->backend, PETRA_TENSOR_ACTIVATION), {n, c, h, w}};
}

static spec vector(int32_t n) {
  return (spec){PETRA_TENSOR_VECTOR, {n, 1, 1, 1}};
}

static spec matrix(int32_t rows, int32_t columns) {
  return (spec){PETRA_TENSOR_MATRIX, {rows, columns, 1, 1}};
}

static petra_status time_ceilings(bench *b) {
  const int32_t *c = b->options->ceiling;
  int32_t rows = (int32_t)(b->options->copy_bytes / 4 / 65536);
  bench_spread s;
  int count, calls, chain;
  const operation copy = {
      .call = call_copy, .specs = {activation(rows, 64, 32, 32), activation(rows, 64, 32, 32)}, .tensors = 2};
  PETRA_TRY(measure(b, &copy, &s, &count, &calls, &chain));
  b->copy_bytes_per_s = bytes_of(b, &copy) / s.median;
  printf("ceiling/%s/copy ms=%.4f min=%.4f max=%.4f mib=%.0f gb_per_s=%.1f\n", b->key->text, 1e3 * s.median,
         1e3 * s.min, 1e3 * s.max, bytes_of(b, &copy) / 1048576, 1e-9 * b->copy_bytes_per_s);
  const operation conv = {.call = call_conv_forward,
                          .geometry = {1, 1},
                          .tensors = 3,
                          .specs = {inner(b, c[0], c[1], c[2], c[2]),
                                    {PETRA_TENSOR_FILTER, {c[1], c[1], 3, 3}},
                                    inner(b, c[0], c[1], c[2], c[2])}};
  double flops = 18.0 * c[0] * c[1] * c[1] * c[2] * c[2];
  PETRA_TRY(measure(b, &conv, &s, &count, &calls, &chain));
  b->flops_per_s = flops / s.median;
  printf("ceiling/%s/conv ms=%.4f min=%.4f max=%.4f gflop=%.1f tflop_per_s=%.3f shape=%dx%dx%dx%d\n", b->key->text,
         1e3 * s.median, 1e3 * s.min, 1e3 * s.max, 1e-9 * flops, 1e-12 * b->flops_per_s, (int)c[0], (int)c[1],
         (int)c[2], (int)c[2]);
  return PETRA_OK;
}

static bool same_conv(const petra_unit *a, const petra_unit *b) {
  return a->in == b->in && a->out == b->out && a->kernel == b->kernel && a->geometry.stride == b->geometry.stride &&
         a->height_in == b->height_in && a->width_in == b->width_in;
}

static bool same_norm(const petra_unit *a, const petra_unit *b) {
  return a->out == b->out && a->height_out == b->height_out && a->width_out == b->width_out;
}

/* How many units of the model, from this one on, are like it; 0 if one before it is. */
static int count_units(const petra_model *model, const petra_unit *unit,
                       bool (*same)(const petra_unit *, const petra_unit *)) {
  int count = 0;
  for (int i = 0; i < model->block_count; i++)
    for (int u = 0; u < model->blocks[i].unit_count; u++) {
      const petra_unit *other = &model->blocks[i].units[u];
      if (other < unit && same(other, unit))
        return 0;
      count += same(other, unit);
    }
  return count;
}

/* Forward in F and again in B (reconstruction or recomputation), both gradients in B; the stem's input has none. */
static petra_status time_conv(bench *b, const petra_unit *unit, int32_t batch, int units, bool stem) {
  static const struct {
    const char *name;
    petra_status (*call)(petra_backend *, const operation *, petra_tensor *const *);
    int per_tick;
  } kinds[] = {
      {"conv.forward", call_conv_forward, 2}, {"conv.filter", call_conv_filter, 1}, {"conv.data", call_conv_data, 1}};
  operation what = {.geometry = unit->geometry,
                    .tensors = 3,
                    .specs = {inner(b, batch, unit->in, unit->height_in, unit->width_in),
                              {PETRA_TENSOR_FILTER, {unit->out, unit->in, unit->kernel, unit->kernel}},
                              inner(b, batch, unit->out, unit->height_out, unit->width_out)},
                    .flops = 2.0 * batch * unit->out * unit->height_out * unit->width_out * unit->in * unit->kernel *
                             unit->kernel};
  for (int i = 0; i < (stem ? 2 : 3); i++) {
    what.call = kinds[i].call;
    what.per_tick = kinds[i].per_tick * units;
    snprintf(what.name, sizeof what.name, "%s/%dx%dx%dx%ds%d@%dx%d", kinds[i].name, (int)unit->out, (int)unit->in,
             (int)unit->kernel, (int)unit->kernel, unit->geometry.stride, (int)unit->height_in, (int)unit->width_in);
    PETRA_TRY(time_operation(b, &what));
  }
  return PETRA_OK;
}

/* Batch norm reads x twice, and its backward dy as well. Inside of a block all is inner; a join adds to a stream. Forward
 * passes with and without a join count half of the units each: the sum is for an overview. */
static petra_status time_norm(bench *b, const petra_unit *unit, int32_t batch, int units) {
  const spec x = inner(b, batch, unit->out, unit->height_out, unit->width_out), v = vector(unit->out),
             stream = activation(batch, unit->out, unit->height_out, unit->width_out);
  operation what = {.specs = {x, x, x, v, v, v, v, v, v}, .tensors = 9};
  static const struct {
    const char *name;
    petra_status (*call)(petra_backend *, const operation *, petra_tensor *const *);
    petra_join join;
    int inner, streams; /* passes over them */
  } kinds[] = {{"norm.forward", call_norm_forward, PETRA_JOIN_NONE, 3, 0},
               {"norm.forward.add", call_norm_forward, PETRA_JOIN_ADD, 2, 2},
               {"norm.backward", call_norm_backward, PETRA_JOIN_NONE, 5, 0}};
  for (int i = 0; i < 3; i++) {
    what.call = kinds[i].call;
    what.join = kinds[i].join;
    what.specs[1] = what.specs[2] = kinds[i].streams > 0 ? stream : x; /* addend and y, or dy and dx */
    what.passes = kinds[i].inner * bytes_of_one(b, &x) + kinds[i].streams * bytes_of_one(b, &stream);
    what.per_tick = units;
    snprintf(what.name, sizeof what.name, "%s/%d@%dx%d", kinds[i].name, (int)unit->out, (int)unit->height_out,
             (int)unit->width_out);
    PETRA_TRY(time_operation(b, &what));
  }
  what = (operation){.call = call_add, .specs = {stream, stream, stream}, .tensors = 3};
  snprintf(what.name, sizeof what.name, "add/%d@%dx%d", (int)unit->out, (int)unit->height_out, (int)unit->width_out);
  PETRA_TRY(time_operation(b, &what));
  what = (operation){.call = call_norm_running, .specs = {v, v, v, v}, .tensors = 4, .per_tick = units};
  snprintf(what.name, sizeof what.name, "norm.running/%d@%dx%d", (int)unit->out, (int)unit->height_out,
           (int)unit->width_out);
  return time_operation(b, &what);
}

static petra_status time_units(bench *b, const petra_model *model, int32_t batch) {
  for (int i = 0; i < model->block_count; i++)
    for (int u = 0; u < model->blocks[i].unit_count; u++) {
      const petra_unit *unit = &model->blocks[i].units[u];
      int units = count_units(model, unit, same_conv);
      if (units)
        PETRA_TRY(time_conv(b, unit, batch, units, model->blocks[i].reads_data));
    }
  for (int i = 0; i < model->block_count; i++)
    for (int u = 0; u < model->blocks[i].unit_count; u++) {
      const petra_unit *unit = &model->blocks[i].units[u];
      int units = count_units(model, unit, same_norm);
      if (units)
        PETRA_TRY(time_norm(b, unit, batch, units));
    }
  return PETRA_OK;
}

/* The update of a block, all its parameters in one call. */
static petra_status time_sgd(bench *b, const petra_model *model, const petra_block *block) {
  operation what = {.call = call_sgd, .per_tick = 1};
  int count = petra_block_parameter_count(block);
  double elements = 0;
  for (int i = 0; i < count; i++) {
    petra_tensor_spec parameter;
    petra_block_parameter(model, block, i, &parameter);
    for (int k = 0; k < 3; k++) {
      spec *s = &what.specs[k * count + i];
      s->kind = parameter.kind;
      memcpy(s->shape, parameter.shape, sizeof s->shape);
    }
    elements += (double)parameter.shape[0] * parameter.shape[1] * parameter.shape[2] * parameter.shape[3];
  }
  what.tensors = 3 * count;
  what.passes = 5 * 4 * elements;
  snprintf(what.name, sizeof what.name, "sgd/%s", block->name);
  return time_operation(b, &what);
}

static petra_status time_ends(bench *b, const petra_model *model, int32_t batch, const void *images,
                              const void *labels) {
  const petra_block *stem = &model->blocks[0], *head = &model->blocks[model->block_count - 1];
  const petra_stream_shape in = stem->shape_in, out = stem->shape_out, last = head->shape_in;
  int32_t features = head->features, classes = head->classes;
  const operation all[] = {
      {.name = "upload/images",
       .call = call_upload,
       .specs = {activation(batch, in.channels, in.height, in.width)},
       .tensors = 1,
       .host = images,
       .alone = true,
       .per_tick = 1},
      {.name = "split/stem",
       .call = call_split,
       .tensors = 3,
       .per_tick = 1,
       .specs = {activation(batch, 2 * out.channels, out.height, out.width),
                 activation(batch, out.channels, out.height, out.width),
                 activation(batch, out.channels, out.height, out.width)}},
      {.name = "pool.forward/head",
       .call = call_pool_forward,
       .tensors = 2,
       .per_tick = head->streams_in,
       .specs = {activation(batch, last.channels, last.height, last.width), matrix(batch, features)}},
      {.name = "pool.backward/head",
       .call = call_pool_backward,
       .tensors = 2,
       .per_tick = head->streams_in,
       .specs = {activation(batch, last.channels, last.height, last.width), matrix(batch, features)}},
      {.name = "linear.forward/head",
       .call = call_linear_forward,
       .tensors = 4,
       .per_tick = 1,
       .specs = {matrix(batch, features), matrix(classes, features), vector(classes), matrix(batch, classes)}},
      {.name = "linear.backward/head",
       .call = call_linear_backward,
       .tensors = 7,
       .per_tick = 1,
       .specs = {matrix(batch, features), matrix(classes, features), vector(classes), matrix(batch, classes),
                 matrix(classes, features), vector(classes), matrix(batch, features)}},
      {.name = "loss/head",
       .call = call_loss,
       .specs = {matrix(batch, classes), matrix(batch, classes)},
       .tensors = 2,
       .host = labels,
       .alone = true,
       .per_tick = 1}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].call != call_split || stem->streams_out == 2)
      PETRA_TRY(time_operation(b, &all[i]));
  for (int i = 0; i < model->block_count; i++)
    PETRA_TRY(time_sgd(b, model, &model->blocks[i]));
  return PETRA_OK;
}

petra_status bench_device_operations(const petra_plan *plan, petra_backend *backend, const bench_options *options,
                                     const bench_key *key) {
  const petra_model *model = &plan->model;
  int32_t batch = (int32_t)plan->config->data.batch;
  bench b = {.backend = backend, .options = options, .key = key};
  double *images = NULL;
  int32_t *labels = NULL;
  petra_status status;
  const petra_stream_shape in = model->blocks[0].shape_in;
  PETRA_TRY_GOTO(status,
                 petra_allocate(&images, (size_t)batch * (size_t)in.channels * (size_t)in.height * (size_t)in.width,
                                sizeof *images),
                 done);
  PETRA_TRY_GOTO(status, petra_allocate(&labels, (size_t)batch, sizeof *labels), done);
  PETRA_TRY_GOTO(status, time_ceilings(&b), done);
  PETRA_TRY_GOTO(status, time_units(&b, model, batch), done);
  PETRA_TRY_GOTO(status, time_ends(&b, model, batch, images, labels), done);
  printf("sum/%s/convolutions ms=%.4f\nsum/%s/others ms=%.4f\n", key->text, 1e3 * b.conv_s, key->text, 1e3 * b.other_s);
done:
  petra_free(images);
  petra_free(labels);
  return status;
}
