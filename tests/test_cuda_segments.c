/* SPDX-License-Identifier: Apache-2.0 */
/* What is between the operations and the device (segments, values, results that come later, the storage of actions
 * that come again), over the fake run time, whose streams run late and in random orders. */
#include "test_cuda_segments.h"

#include "backend/tensor_archive.h"

#include <math.h>

enum { SEEDS = 25 };

static const int32_t scores[4] = {IMAGES, CLASSES, 1, 1}, vector[4] = {33, 1, 1, 1};

static double loss_of(const float *logits, const int32_t *labels) {
  double sum = 0;
  for (int n = 0; n < IMAGES; n++) {
    double total = 0;
    for (int c = 0; c < CLASSES; c++)
      total += exp((double)logits[n * CLASSES + c]);
    sum += log(total) - (double)logits[n * CLASSES + labels[n]];
  }
  return sum / IMAGES;
}

/* Updates, whose rates take places among the values of a segment. */
static void step(petra_backend *backend, int times, petra_tensor *parameter, petra_tensor *velocity,
                 petra_tensor *gradient) {
  static const double no_decay;
  for (int i = 0; i < times; i++) {
    const petra_sgd_step sgd = {.count = 1,
                                .parameters = &parameter,
                                .velocities = &velocity,
                                .gradients = &gradient,
                                .weight_decay = &no_decay,
                                .lr = 1e-3 * i};
    must(petra_op_sgd_step(backend, &sgd));
  }
}

/* Losses that are collected later are those of their labels, whatever else the segment computes and however many
 * there are. */
START_TEST(losses_that_come_later) {
  enum { LOSSES = 3 };
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    petra_backend *backend = open_cuda(seed, PETRA_GRAPH_ON);
    petra_tensor *logits = make_filled(backend, PETRA_TENSOR_MATRIX, scores, 3);
    petra_tensor *parameter = make(backend, PETRA_TENSOR_VECTOR, vector),
                 *velocity = make(backend, PETRA_TENSOR_VECTOR, vector);
    petra_tensor *gradient = make(backend, PETRA_TENSOR_VECTOR, vector);
    float host[IMAGES * CLASSES];
    must(petra_op_download(backend, logits, host, PETRA_HOST_F32));
    for (int round = 0; round < 4; round++) {
      petra_cross_entropy loss[LOSSES];
      int32_t labels[LOSSES][IMAGES];
      double dot;
      must(petra_backend_begin(backend, 2, BACKWARD));
      for (int i = 0; i < LOSSES; i++) {
        for (int n = 0; n < IMAGES; n++)
          labels[i][n] = (i + n + round) % CLASSES;
        loss[i] = (petra_cross_entropy){.logits = logits, .labels = labels[i], .later = true};
        must(petra_op_cross_entropy(backend, &loss[i]));
        ck_assert_int_ne(loss[i].ticket, 0);
        step(backend, 2 + 2 * i, parameter, velocity, gradient);
      }
      must(petra_op_dot(backend, logits, logits, &dot));
      must(petra_backend_end(backend));
      for (int i = 0; i < LOSSES; i++) {
        petra_cross_entropy found = {.loss = -1};
        double expected = loss_of(host, labels[i]);
        must(petra_backend_collect(backend, loss[i].ticket, &found));
        ck_assert_msg(fabs(found.loss - expected) < 1e-5, "order %d, round %d, loss %d: %.9g, expected %.9g", (int)seed,
                      round, i, found.loss, expected);
      }
    }
    petra_tensor_release(&logits);
    petra_tensor_release(&parameter);
    petra_tensor_release(&velocity);
    petra_tensor_release(&gradient);
    petra_backend_destroy(backend);
  }
}
END_TEST

START_TEST(tickets_expire) {
  petra_backend *backend = open_cuda(1, PETRA_GRAPH_AUTO);
  petra_tensor *logits = make_filled(backend, PETRA_TENSOR_MATRIX, scores, 3);
  static const int32_t labels[IMAGES] = {0, 1, 2, 3};
  petra_cross_entropy loss = {.logits = logits, .labels = labels, .later = true}, found;
  for (int i = 0; i < 5; i++) {
    must(petra_backend_begin(backend, 1, BACKWARD));
    must(petra_op_cross_entropy(backend, &loss));
    must(petra_backend_end(backend));
  }
  must(petra_backend_collect(backend, loss.ticket - 3, &found));
  ck_assert_int_eq(petra_backend_collect(backend, loss.ticket - 4, &found), PETRA_INTERNAL);
  ck_assert_logged("was asked for after");
  ck_assert_int_eq(petra_backend_collect(backend, loss.ticket + 1, &found), PETRA_INTERNAL);
  petra_tensor_release(&logits);
  petra_backend_destroy(backend);
}
END_TEST

/* Many updates, each with a rate of its own, before anything is read: a rate must not reach the device before its
 * turn. */
START_TEST(rates_change) {
  enum { STEPS = 12, COUNT = 33 };
  for (uint64_t seed = 1; seed <= SEEDS; seed++)
    for (int graph = 0; graph < 2; graph++) {
      petra_backend *backend = open_cuda(seed, graph ? PETRA_GRAPH_ON : PETRA_GRAPH_OFF);
      petra_tensor *parameter = make_filled(backend, PETRA_TENSOR_VECTOR, vector, 1),
                   *velocity = make(backend, PETRA_TENSOR_VECTOR, vector);
      petra_tensor *gradient = make_filled(backend, PETRA_TENSOR_VECTOR, vector, 0.5);
      double p[COUNT], v[COUNT] = {0}, g[COUNT], found[COUNT];
      static const double no_decay;
      must(petra_op_download(backend, parameter, p, PETRA_HOST_F64));
      must(petra_op_download(backend, gradient, g, PETRA_HOST_F64));
      for (int step = 0; step < STEPS; step++) {
        const petra_sgd_step sgd = {.count = 1,
                                    .parameters = &parameter,
                                    .velocities = &velocity,
                                    .gradients = &gradient,
                                    .weight_decay = &no_decay,
                                    .lr = 1.0 / (1 + step * step),
                                    .momentum = 0.5};
        must(petra_backend_begin(backend, 1, UPDATE));
        must(petra_op_sgd_step(backend, &sgd));
        must(petra_backend_end(backend));
        for (int i = 0; i < COUNT; i++) {
          v[i] = 0.5 * v[i] + g[i];
          p[i] -= sgd.lr * v[i];
        }
      }
      must(petra_op_download(backend, parameter, found, PETRA_HOST_F64));
      for (int i = 0; i < COUNT; i++)
        ck_assert_msg(fabs(found[i] - p[i]) < 1e-5, "order %d, graph %d, element %d: %.9g, expected %.9g", (int)seed,
                      graph, i, found[i], p[i]);
      petra_tensor_release(&parameter);
      petra_tensor_release(&velocity);
      petra_tensor_release(&gradient);
      petra_backend_destroy(backend);
    }
}
END_TEST

/* --- storage of what outlives an action --- */

enum { HELD = 3, KEPT_MAX = 64 };

/* Every action makes a tensor that is held for HELD actions; those of `longer` for ever. Tells the storage made, and
 * whether the last 64 actions found the addresses of the 64 before. */
static void run_ring(int actions, const int *longer, int longer_count, int64_t *made, bool *again) {
  petra_backend *backend = open_cuda(1, PETRA_GRAPH_OFF);
  petra_tensor *held[HELD] = {NULL}, *kept[KEPT_MAX] = {NULL};
  const void *addresses[128];
  int kept_count = 0;
  *made = 0;
  for (int a = 0; a < actions; a++) {
    must(petra_backend_begin(backend, 1, FORWARD));
    petra_tensor_release(&held[a % HELD]);
    held[a % HELD] = make(backend, PETRA_TENSOR_VECTOR, vector);
    addresses[a % 128] = held[a % HELD]->data;
    if (held[a % HELD]->number >= *made)
      *made = held[a % HELD]->number + 1;
    for (int i = 0; i < longer_count; i++)
      if (longer[i] == a)
        kept[kept_count++] = petra_tensor_retain(held[a % HELD]);
    must(petra_backend_end(backend));
  }
  *again = memcmp(addresses, addresses + 64, sizeof addresses / 2) == 0;
  for (int i = 0; i < HELD; i++)
    petra_tensor_release(&held[i]);
  for (int i = 0; i < kept_count; i++)
    petra_tensor_release(&kept[i]);
  petra_backend_destroy(backend);
}

/* At most four times what was held at once, whenever something is held for longer than usual. */
START_TEST(rings_are_bounded) {
  static const int moments[] = {0, 1, 2, 7, 10, 500, 1022, 1023, 1024, 1025, 1026, 1900};
  int many[KEPT_MAX];
  int64_t made;
  bool again;
  run_ring(2048, NULL, 0, &made, &again);
  ck_assert_int_le(made, 4);
  ck_assert(again);
  for (int i = 0; i < HARNESS_COUNT(moments); i++) {
    run_ring(2048, &moments[i], 1, &made, &again);
    ck_assert_msg(made <= 4 * (HELD + 1), "one held from action %d on: %d made", moments[i], (int)made);
    ck_assert_msg(again, "one held from action %d on: addresses do not come again", moments[i]);
  }
  for (int i = 0; i < KEPT_MAX; i++)
    many[i] = 17 * i;
  run_ring(2048, many, KEPT_MAX, &made, &again);
  ck_assert_msg(made <= 4 * (HELD + KEPT_MAX), "%d held: %d made", KEPT_MAX, (int)made);
  ck_assert(again);
}
END_TEST

/* --- captures that fail --- */

/* Some updates with captures that fail at `function`; the status of the last and the lines that were logged. */
static petra_status updates(petra_graph_choice graph, const char *function, double *sum) {
  petra_backend *backend = open_cuda(1, graph);
  petra_tensor *x = make_filled(backend, PETRA_TENSOR_VECTOR, vector, 1),
               *y = make_filled(backend, PETRA_TENSOR_VECTOR, vector, 2);
  petra_status status = PETRA_OK;
  if (function)
    petra_cuda_host_fail(function, 1, cudaErrorNotSupported);
  harness_clear();
  for (int step = 0; step < 5 && status == PETRA_OK; step++) {
    must(petra_backend_begin(backend, 1, UPDATE));
    must(petra_op_axpy(backend, 0.5, x, y));
    status = petra_backend_end(backend);
  }
  if (status == PETRA_OK)
    must(petra_op_dot(backend, y, y, sum));
  ck_assert(!function || petra_cuda_host_failed());
  petra_tensor_release(&x);
  petra_tensor_release(&y);
  petra_backend_destroy(backend);
  return status;
}

START_TEST(captures_that_fail) {
  static const char *const functions[] = {"cudaStreamBeginCapture",
                                          "cudaGraphInstantiate"}; /* a failed end leaves the fake capturing */
  double expected, sum;
  must(updates(PETRA_GRAPH_OFF, NULL, &expected));
  for (int i = 0; i < HARNESS_COUNT(functions); i++) {
    must(updates(PETRA_GRAPH_AUTO, functions[i], &sum));
    ck_assert_msg(harness_lines == 1, "%s: %d lines", functions[i], harness_lines);
    ck_assert_logged("from now on the kernels of such actions are launched one by one");
    ck_assert(sum == expected);
    ck_assert_int_eq(updates(PETRA_GRAPH_ON, functions[i], &sum), PETRA_BACKEND);
    ck_assert_msg(harness_lines == 1, "%s: %d lines", functions[i], harness_lines);
    ck_assert_logged("cudaErrorNotSupported");
  }
  petra_cuda_host_reset();
}
END_TEST

/* A library that reads device memory itself gets the numbers, also of a gradient that was in bf16 alone. */
START_TEST(settled_means_there) {
  static const int32_t shape_x[4] = {1, 2, 3, 3}, shape_w[4] = {2, 2, 1, 1};
  int wrong = 0;
  for (int seed = 1; seed < 40; seed++) {
    const petra_backend_options options = {.kind = PETRA_BACKEND_CUDA,
                                           .precision = PETRA_PRECISION_BF16,
                                           .threads = 1,
                                           .deterministic = true,
                                           .graph = PETRA_GRAPH_OFF};
    petra_backend *backend;
    petra_cuda_host_reset();
    petra_cuda_host_seed((uint64_t)seed);
    must(petra_backend_create_with(&options, &backend));
    petra_tensor *dy = make_filled(backend, PETRA_TENSOR_INNER, shape_x, 1),
                 *w = make_filled(backend, PETRA_TENSOR_FILTER, shape_w, 1),
                 *dx = make(backend, PETRA_TENSOR_ACTIVATION, shape_x);
    const petra_conv_geometry geometry = {.stride = 1, .pad = 0};
    must(petra_op_conv_backward_data(backend, &geometry, dy, w, NULL, dx));
    must(backend->ops->settle(backend, dx, false));
    float now[18], then[18];
    memcpy(now, dx->data, sizeof now);
    must(petra_backend_synchronize(backend));
    memcpy(then, dx->data, sizeof then);
    wrong += memcmp(now, then, sizeof now) != 0;
    petra_tensor_release(&dy);
    petra_tensor_release(&w);
    petra_tensor_release(&dx);
    petra_backend_destroy(backend);
  }
  ck_assert_msg(wrong == 0, "after settle the elements were not there in %d of 39 runs", wrong);
}
END_TEST

/* --- masks in an archive --- */

enum { ITEMS = 8, ITEM_BYTES = 4096 };

/* An archive in memory. */
typedef struct stored {
  petra_archive base;
  char name[ITEMS][64];
  unsigned char bytes[ITEMS][ITEM_BYTES];
  int count;
} stored;

static petra_status stored_values(petra_archive *archive, const char *name, petra_archive_type type, int rank,
                                  const int64_t *extent, void *values) {
  static const size_t sizes[] = {1, 8, 4, 8};
  stored *s = (stored *)archive;
  size_t bytes = sizes[type];
  int i = 0;
  for (int d = 0; d < rank; d++)
    bytes *= (size_t)extent[d];
  while (i < s->count && strcmp(s->name[i], name) != 0)
    i++;
  ck_assert(bytes <= ITEM_BYTES && i < ITEMS && (!archive->reading || i < s->count));
  if (archive->reading && values)
    memcpy(values, s->bytes[i], bytes);
  if (archive->reading)
    return PETRA_OK;
  snprintf(s->name[s->count], sizeof s->name[i], "%s", name);
  memcpy(s->bytes[s->count++], values, bytes);
  return PETRA_OK;
}

/* What a pool's forward has just written (queued) goes to the archive; a mask that is read back routes gradients as it. */
START_TEST(masks_in_an_archive) {
  static const int32_t in[4] = {1, 3, 4, 4}, out[4] = {1, 3, 2, 2};
  static const petra_archive_ops ops = {.values = stored_values};
  const petra_pool_geometry geometry = {.window = 2, .stride = 2, .pad = 0};
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    static stored file;
    float dx[2][48];
    petra_backend *backend = open_cuda(seed, PETRA_GRAPH_OFF);
    petra_tensor *x = make_filled(backend, PETRA_TENSOR_ACTIVATION, in, 2),
                 *dy = make_filled(backend, PETRA_TENSOR_ACTIVATION, out, 1),
                 *y = make(backend, PETRA_TENSOR_ACTIVATION, out), *back = make(backend, PETRA_TENSOR_ACTIVATION, in);
    petra_tensor *mask = make(backend, PETRA_TENSOR_MASK, out), *read = NULL;
    petra_tensor **const written_place = &mask, **const read_place = &read;
    file = (stored){.base = {.ops = &ops, .path = "memory"}};
    must(petra_backend_begin(backend, 1, FORWARD));
    must(petra_op_max_pool_forward(backend, &geometry, x, y, mask));
    must(petra_backend_end(backend));
    for (int reading = 0; reading < 2; reading++) {
      petra_tensor_archive tensors = {.backend = backend};
      file.base.reading = reading;
      petra_tensor_archive_part(&tensors, &file.base, 0, NULL);
      must(petra_tensor_archive_references(&tensors, "masks", reading ? &read_place : &written_place, 1));
      petra_tensor_archive_fini(&tensors);
    }
    for (int i = 0; i < 2; i++) {
      must(petra_op_max_pool_backward(backend, &geometry, dy, i ? read : mask, back));
      must(petra_op_download(backend, back, dx[i], PETRA_HOST_F32));
    }
    ck_assert_mem_eq(dx[0], dx[1], sizeof dx[0]);
    petra_tensor **const all[] = {&x, &dy, &y, &back, &mask, &read};
    for (int i = 0; i < HARNESS_COUNT(all); i++)
      petra_tensor_release(all[i]);
    petra_backend_destroy(backend);
  }
}
END_TEST

int main(void) {
  const TTest *tests[10] = {losses_that_come_later, tickets_expire,      rates_change,       rings_are_bounded,
                            captures_that_fail,     settled_means_there, masks_in_an_archive};
  return harness_run("cuda_segments", tests, 7 + sequence_tests(tests + 7));
}
