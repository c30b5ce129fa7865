/* The `cpu` backend against small naive loops in double. Run also with oneDNN held to AVX2
 * (tests/test_cpu_avx2), where the blocks are 8 wide. */
#include "harness.h"

#include "backend/backend.h"

#include <math.h>

/* Sums of up to 7 * 7 * 64 products of numbers below 1 in float: error of about sqrt(n) * 2^-24 * |sum|, far
 * below. */
#define SUM_TOLERANCE 2e-5
/* A few float operations on numbers of order 1. */
#define POINT_TOLERANCE 2e-6

static petra_backend *backend;

static petra_tensor *make(petra_tensor_kind kind, int a, int b, int c, int d) {
  const int32_t shape[4] = {a, b, c, d};
  petra_tensor *t;
  ck_assert_int_eq(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &t), PETRA_OK);
  return t;
}

static uint32_t random_state;

static double next_random(void) { /* -1 .. 1 */
  random_state = random_state * 1664525u + 1013904223u;
  return (double)(random_state >> 8) / 8388608.0 - 1;
}

static double *values(const petra_tensor *t) {
  double *host = malloc((size_t)t->elements * sizeof *host);
  ck_assert_int_eq(backend->ops->download(backend, t, host, PETRA_HOST_F64), PETRA_OK);
  return host;
}

static petra_tensor *upload(petra_tensor *t, const double *host) {
  ck_assert_int_eq(backend->ops->upload(backend, t, host, PETRA_HOST_F64), PETRA_OK);
  return t;
}

static petra_tensor *randomised(petra_tensor *t) {
  double *host = malloc((size_t)t->elements * sizeof *host);
  for (int64_t i = 0; i < t->elements; i++)
    host[i] = next_random();
  upload(t, host);
  free(host);
  return t;
}

/* Every output starts as NaN, so that what an operation leaves out is seen. */
static petra_tensor *poisoned(petra_tensor *t) {
  ck_assert_int_eq(backend->ops->fill(backend, t, NAN), PETRA_OK);
  return t;
}

static petra_tensor *activation(int n, int c, int h, int w) {
  return randomised(make(PETRA_TENSOR_ACTIVATION, n, c, h, w));
}

static petra_tensor *output(int n, int c, int h, int w) {
  return poisoned(make(PETRA_TENSOR_ACTIVATION, n, c, h, w));
}

static petra_tensor *vector(int n) {
  return make(PETRA_TENSOR_VECTOR, n, 1, 1, 1);
}

/* Equal up to tolerance * (1 + |expected|), and zero lanes are still zero: the sum over all memory of the
 * squares is that of the elements. */
static void check(const petra_tensor *t, const double *expected, double tolerance) {
  double *found = values(t), squares = 0, dot;
  for (int64_t i = 0; i < t->elements; i++) {
    ck_assert_msg(fabs(found[i] - expected[i]) <= tolerance * (1 + fabs(expected[i])),
                  "(%d, %d, %d, %d) [%lld]: %g, expected %g", t->shape[0], t->shape[1], t->shape[2], t->shape[3],
                  (long long)i, found[i], expected[i]);
    squares += found[i] * found[i];
  }
  ck_assert_int_eq(backend->ops->dot(backend, t, t, &dot), PETRA_OK);
  ck_assert_double_le(fabs(dot - squares), 1e-12 * squares); /* double sums in another order */
  for (size_t i = 0; i < t->bytes / sizeof(float); i++)
    ck_assert(((const float *)t->data)[i] == ((const float *)t->data)[i]);
  free(found);
}

static void release(petra_tensor *t) {
  petra_tensor_release(&t);
}

/* --- storage and element-wise operations --- */

static const int channel_counts[] = {1, 2, 3, 4, 8, 16, 17, 20, 32, 40};

START_TEST(upload_download) {
  for (size_t i = 0; i < sizeof channel_counts / sizeof *channel_counts; i++)
    for (int kind = 0; kind < PETRA_TENSOR_MASK; kind++) {
      int c = channel_counts[i];
      int32_t shape[4] = {3, c, 5, 7};
      if (kind == PETRA_TENSOR_FILTER)
        shape[0] = 19;
      if (kind >= PETRA_TENSOR_MATRIX)
        shape[2] = shape[3] = 1;
      if (kind == PETRA_TENSOR_VECTOR)
        shape[0] = c, shape[1] = 1;
      petra_tensor *t = poisoned(make(kind, shape[0], shape[1], shape[2], shape[3]));
      float *single = malloc((size_t)t->elements * sizeof *single), *back = malloc((size_t)t->elements * sizeof *back);
      double *expected = malloc((size_t)t->elements * sizeof *expected);
      for (int64_t e = 0; e < t->elements; e++)
        expected[e] = single[e] = (float)e;
      ck_assert_int_eq(backend->ops->upload(backend, t, single, PETRA_HOST_F32), PETRA_OK);
      check(t, expected, 0);
      ck_assert_int_eq(backend->ops->download(backend, t, back, PETRA_HOST_F32), PETRA_OK);
      ck_assert_mem_eq(single, back, (size_t)t->elements * sizeof *back);
      free(single);
      free(back);
      free(expected);
      release(t);
    }
}
END_TEST

START_TEST(elementwise) {
  for (size_t i = 0; i < sizeof channel_counts / sizeof *channel_counts; i++) {
    petra_tensor *a = activation(3, channel_counts[i], 5, 7), *b = activation(3, channel_counts[i], 5, 7);
    petra_tensor *y = output(3, channel_counts[i], 5, 7);
    double *va = values(a), *vb = values(b), dot, expected_dot = 0;
    double *e = malloc((size_t)a->elements * sizeof *e);
    backend->ops->add(backend, a, b, y);
    for (int64_t k = 0; k < a->elements; k++)
      e[k] = va[k] + vb[k], expected_dot += va[k] * vb[k];
    check(y, e, POINT_TOLERANCE);
    backend->ops->dot(backend, a, b, &dot);
    ck_assert_double_eq_tol(dot, expected_dot, 1e-12 * (double)a->elements);
    backend->ops->relu_backward(backend, a, b, y);
    for (int64_t k = 0; k < a->elements; k++)
      e[k] = va[k] > 0 ? vb[k] : 0;
    check(y, e, 0);
    backend->ops->copy(backend, a, y);
    check(y, va, 0);
    backend->ops->axpy(backend, -0.75, b, y);
    for (int64_t k = 0; k < a->elements; k++)
      e[k] = va[k] - 0.75 * vb[k];
    check(y, e, POINT_TOLERANCE);
    backend->ops->fill(backend, y, 2.5);
    for (int64_t k = 0; k < a->elements; k++)
      e[k] = 2.5;
    check(y, e, 0);
    backend->ops->axpy(backend, INFINITY, b, y); /* 0 * infinity must not stay in the zero lanes */
    backend->ops->fill(backend, y, 0);
    backend->ops->dot(backend, y, y, &dot);
    ck_assert_double_eq(dot, 0);
    free(va);
    free(vb);
    free(e);
    release(a);
    release(b);
    release(y);
  }
}
END_TEST

START_TEST(split_and_concat) {
  static const int parts[][2] = {{16, 16}, {32, 16}, {16, 20}, {4, 4}, {8, 8},
                                 {3, 1},   {20, 13}, {1, 40},  {3, 3}, {8, 16}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    int n = 3, c1 = parts[i][0], c2 = parts[i][1], c = c1 + c2, hw = 35;
    petra_tensor *x = activation(n, c, 5, 7), *back = output(n, c, 5, 7);
    petra_tensor *x1 = output(n, c1, 5, 7), *x2 = output(n, c2, 5, 7);
    double *v = values(x), *e1 = malloc((size_t)x1->elements * 8), *e2 = malloc((size_t)x2->elements * 8);
    for (int k = 0; k < n; k++) {
      memcpy(e1 + k * c1 * hw, v + k * c * hw, (size_t)(c1 * hw) * 8);
      memcpy(e2 + k * c2 * hw, v + (k * c + c1) * hw, (size_t)(c2 * hw) * 8);
    }
    backend->ops->split(backend, x, x1, x2);
    check(x1, e1, 0);
    check(x2, e2, 0);
    backend->ops->concat(backend, x1, x2, back);
    check(back, v, 0);
    free(v);
    free(e1);
    free(e2);
    release(x);
    release(back);
    release(x1);
    release(x2);
  }
}
END_TEST

/* --- convolutions --- */

typedef struct conv_case {
  int n, in, h, w, out, kernel, stride, pad;
} conv_case;

static const conv_case conv_cases[] = {
    {2, 3, 9, 7, 16, 3, 1, 1},   {1, 3, 9, 7, 20, 7, 2, 3},  {3, 1, 8, 6, 17, 3, 1, 1},  {2, 16, 9, 7, 16, 3, 1, 1},
    {2, 16, 9, 7, 32, 3, 2, 1},  {2, 16, 8, 6, 32, 1, 2, 0}, {3, 32, 5, 4, 16, 1, 1, 0}, {7, 4, 6, 5, 4, 3, 1, 1},
    {2, 4, 6, 5, 8, 3, 2, 1},    {2, 8, 6, 5, 20, 1, 2, 0},  {2, 20, 6, 5, 40, 3, 2, 1}, {1, 17, 5, 5, 17, 3, 1, 0},
    {2, 20, 11, 9, 3, 3, 1, 1},  {2, 3, 6, 5, 3, 3, 1, 1},   {2, 2, 6, 5, 1, 1, 1, 0},   {1, 64, 4, 4, 64, 3, 1, 1},
    {2, 16, 12, 11, 8, 7, 2, 3}, {2, 3, 8, 9, 32, 3, 1, 1},  {1, 1, 7, 9, 1, 3, 2, 1},   {2, 40, 5, 6, 24, 1, 1, 0}};

static void conv_naive(const conv_case *c, int oh, int ow, const double *x, const double *w, const double *y,
                       double *ex, double *ew, double *ey) {
  for (int n = 0; n < c->n; n++)
    for (int o = 0; o < c->out; o++)
      for (int i = 0; i < c->in; i++)
        for (int p = 0; p < oh * ow; p++)
          for (int k = 0; k < c->kernel * c->kernel; k++) {
            int iy = p / ow * c->stride - c->pad + k / c->kernel, ix = p % ow * c->stride - c->pad + k % c->kernel;
            if (iy < 0 || iy >= c->h || ix < 0 || ix >= c->w)
              continue;
            int at_x = ((n * c->in + i) * c->h + iy) * c->w + ix, at_y = (n * c->out + o) * oh * ow + p;
            int at_w = (o * c->in + i) * c->kernel * c->kernel + k;
            ey[at_y] += x[at_x] * w[at_w];
            ex[at_x] += y[at_y] * w[at_w];
            ew[at_w] += x[at_x] * y[at_y];
          }
}

START_TEST(convolutions) {
  const conv_case *c = &conv_cases[_i];
  int oh = (c->h + 2 * c->pad - c->kernel) / c->stride + 1, ow = (c->w + 2 * c->pad - c->kernel) / c->stride + 1;
  petra_conv_geometry g = {c->stride, c->pad};
  petra_tensor *x = activation(c->n, c->in, c->h, c->w), *y = activation(c->n, c->out, oh, ow);
  petra_tensor *w = randomised(make(PETRA_TENSOR_FILTER, c->out, c->in, c->kernel, c->kernel));
  petra_tensor *out_x = output(c->n, c->in, c->h, c->w), *out_y = output(c->n, c->out, oh, ow);
  petra_tensor *out_w = poisoned(make(PETRA_TENSOR_FILTER, c->out, c->in, c->kernel, c->kernel));
  double *vx = values(x), *vy = values(y), *vw = values(w);
  double *ex = calloc((size_t)x->elements, 8), *ey = calloc((size_t)y->elements, 8),
         *ew = calloc((size_t)w->elements, 8);
  conv_naive(c, oh, ow, vx, vw, vy, ex, ew, ey);
  for (int round = 0; round < 2; round++) { /* the second time from the cache of primitives */
    poisoned(out_x);
    poisoned(out_y);
    poisoned(out_w);
    ck_assert_int_eq(backend->ops->conv_forward(backend, &g, x, w, out_y), PETRA_OK);
    check(out_y, ey, SUM_TOLERANCE);
    ck_assert_int_eq(backend->ops->conv_backward_data(backend, &g, y, w, out_x), PETRA_OK);
    check(out_x, ex, SUM_TOLERANCE);
    ck_assert_int_eq(backend->ops->conv_backward_filter(backend, &g, x, y, out_w), PETRA_OK);
    check(out_w, ew, SUM_TOLERANCE);
  }
  vx[0] = INFINITY; /* reaches the outputs but not the zero lanes, where it is multiplied by 0 */
  upload(x, vx);
  ck_assert_int_eq(backend->ops->conv_forward(backend, &g, x, w, out_y), PETRA_OK);
  for (size_t i = 0; i < out_y->bytes / 4; i++)
    ck_assert(!isnan(((float *)out_y->data)[i]));
  petra_tensor *all[] = {x, y, w, out_x, out_y, out_w};
  for (int i = 0; i < 6; i++)
    release(all[i]);
  double *hosts[] = {vx, vy, vw, ex, ey, ew};
  for (int i = 0; i < 6; i++)
    free(hosts[i]);
}
END_TEST

/* --- batch norm --- */

typedef struct norm_case {
  int n, c, h, w;
} norm_case;

static const norm_case norm_cases[] = {{3, 16, 5, 7}, {7, 17, 3, 3},   {1, 1, 9, 9},   {2, 3, 5, 4},   {64, 4, 2, 2},
                                       {2, 20, 1, 2}, {1, 32, 40, 30}, {5, 8, 17, 16}, {70, 16, 3, 2}, {130, 40, 1, 1}};

/* Expected values of one channel's batch norm and of its gradient. */
static void norm_naive(const norm_case *s, const double *x, const double *scale, const double *shift, bool relu,
                       petra_join join, const double *addend, const double *dy, double *mean, double *variance,
                       double *y, double *dx, double *dscale, double *dshift) {
  int hw = s->h * s->w, m = s->n * hw;
  for (int c = 0; c < s->c; c++) {
    double sum = 0, square = 0, g_sum = 0, g_hat = 0;
#define AT(k) (((k) / hw * s->c + c) * hw + (k) % hw)
    for (int k = 0; k < m; k++)
      sum += x[AT(k)];
    mean[c] = sum / m;
    for (int k = 0; k < m; k++)
      square += (x[AT(k)] - mean[c]) * (x[AT(k)] - mean[c]);
    variance[c] = square / m;
    double inverse = 1 / sqrt(variance[c] + PETRA_NORM_EPSILON);
    for (int pass = 0; pass < 2; pass++)
      for (int k = 0; k < m; k++) {
        double hat = (x[AT(k)] - mean[c]) * inverse, z = hat * scale[c] + shift[c];
        double g = relu && join != PETRA_JOIN_ADD_ACTIVATE && z <= 0 ? 0 : dy[AT(k)];
        if (pass == 0) {
          g_sum += g;
          g_hat += g * hat;
        } else
          dx[AT(k)] = scale[c] * inverse * (g - g_sum / m - hat * g_hat / m);
        double before = join == PETRA_JOIN_ADD_ACTIVATE ? z + addend[AT(k)] : z, act = relu ? fmax(before, 0) : before;
        y[AT(k)] = join == PETRA_JOIN_ADD        ? addend[AT(k)] + act
                   : join == PETRA_JOIN_SUBTRACT ? addend[AT(k)] - act
                                                 : act;
      }
    dscale[c] = g_hat;
    dshift[c] = g_sum;
#undef AT
  }
}

static void norm_one(const norm_case *s, bool relu, petra_join join) {
  petra_tensor *x = activation(s->n, s->c, s->h, s->w), *addend = activation(s->n, s->c, s->h, s->w);
  petra_tensor *dy = activation(s->n, s->c, s->h, s->w), *y = output(s->n, s->c, s->h, s->w);
  petra_tensor *dx = output(s->n, s->c, s->h, s->w);
  petra_tensor *scale = randomised(vector(s->c)), *shift = randomised(vector(s->c));
  petra_tensor *v[4];
  double *e[6], *vx = values(x), *va = values(addend), *vd = values(dy), *vs = values(scale), *vb = values(shift);
  for (int i = 0; i < 4; i++)
    v[i] = poisoned(vector(s->c));
  for (int i = 0; i < 6; i++)
    e[i] = malloc((size_t)x->elements * 8);
  norm_naive(s, vx, vs, vb, relu, join, va, vd, e[0], e[1], e[2], e[3], e[4], e[5]);
  petra_norm_forward f = {.x = x,
                          .scale = scale,
                          .shift = shift,
                          .relu = relu,
                          .join = join,
                          .y = y,
                          .mean = v[0],
                          .addend = join == PETRA_JOIN_NONE ? NULL : addend,
                          .variance = v[1]};
  ck_assert_int_eq(backend->ops->norm_forward(backend, &f), PETRA_OK);
  check(v[0], e[0], POINT_TOLERANCE);
  check(v[1], e[1], POINT_TOLERANCE);
  /* Few samples give small variances, and 1 / sqrt(variance + eps) up to 316 enlarges the rounding of x -
   * mean. */
  double tolerance = s->n * s->h * s->w < 16 ? 2e-4 : 2e-5;
  check(y, e[2], tolerance);
  petra_norm_backward b = {.x = x,
                           .scale = scale,
                           .shift = shift,
                           .mean = v[0],
                           .variance = v[1],
                           .relu = relu && join != PETRA_JOIN_ADD_ACTIVATE,
                           .dy = dy,
                           .dx = dx,
                           .dscale = v[2],
                           .dshift = v[3]};
  ck_assert_int_eq(backend->ops->norm_backward(backend, &b), PETRA_OK);
  check(dx, e[3], tolerance * 10);
  check(v[2], e[4], tolerance * 10);
  check(v[3], e[5], tolerance * 10);
  b.dx = dy; /* in place */
  ck_assert_int_eq(backend->ops->norm_backward(backend, &b), PETRA_OK);
  check(dy, e[3], tolerance * 10);
  if (join != PETRA_JOIN_NONE) {
    f.y = addend;
    ck_assert_int_eq(backend->ops->norm_evaluate(backend, &f), PETRA_OK); /* the batch's statistics are in v */
    check(addend, e[2], tolerance);
  }
  petra_tensor *all[] = {x, addend, dy, y, dx, scale, shift, v[0], v[1], v[2], v[3]};
  for (int i = 0; i < 11; i++)
    release(all[i]);
  double *hosts[] = {e[0], e[1], e[2], e[3], e[4], e[5], vx, va, vd, vs, vb};
  for (int i = 0; i < 11; i++)
    free(hosts[i]);
}

START_TEST(norms) {
  for (int relu = 0; relu < 2; relu++)
    for (int join = 0; join <= PETRA_JOIN_ADD_ACTIVATE; join++)
      norm_one(&norm_cases[_i], relu != 0, (petra_join)join);
}
END_TEST

START_TEST(norm_far_from_zero) {
  /* Mean 1000, deviation 0.58: a sum of squares in float would lose all digits; x itself carries 2^-24 *
   * 1000. */
  petra_tensor *x = make(PETRA_TENSOR_ACTIVATION, 8, 16, 16, 16), *y = output(8, 16, 16, 16);
  petra_tensor *one = vector(16), *zero = vector(16), *mean = vector(16), *variance = vector(16);
  double *host = malloc((size_t)x->elements * 8), sum = 0, square = 0;
  for (int64_t i = 0; i < x->elements; i++)
    host[i] = (double)(float)(1000 + next_random());
  upload(x, host);
  for (int i = 0; i < 8 * 256; i++)
    sum += host[i / 256 * 4096 + i % 256];
  for (int i = 0; i < 8 * 256; i++)
    square += pow(host[i / 256 * 4096 + i % 256] - sum / 2048, 2);
  backend->ops->fill(backend, one, 1);
  backend->ops->fill(backend, zero, 0);
  petra_norm_forward f = {.x = x, .scale = one, .shift = zero, .y = y, .mean = mean, .variance = variance};
  ck_assert_int_eq(backend->ops->norm_forward(backend, &f), PETRA_OK);
  double *m = values(mean), *v = values(variance);
  ck_assert_double_eq_tol(m[0], sum / 2048, 2e-4); /* 2^-24 * 1000 and a few roundings */
  ck_assert_double_eq_tol(v[0], square / 2048, 1e-5);
  free(m);
  free(v);
  free(host);
  petra_tensor *all[] = {x, y, one, zero, mean, variance};
  for (int i = 0; i < 6; i++)
    release(all[i]);
}
END_TEST

START_TEST(norm_nan_and_running) {
  petra_tensor *x = activation(2, 17, 3, 3), *y = output(2, 17, 3, 3);
  petra_tensor *scale = randomised(vector(17)), *shift = randomised(vector(17));
  petra_tensor *mean = vector(17), *variance = vector(17), *rm = vector(17), *rv = vector(17);
  double *host = values(x);
  host[16 * 9] = NAN; /* the last channel, beside the zero lanes */
  upload(x, host);
  petra_norm_forward f = {
      .x = x, .scale = scale, .shift = shift, .relu = true, .y = y, .mean = mean, .variance = variance};
  ck_assert_int_eq(backend->ops->norm_forward(backend, &f), PETRA_OK);
  double *out = values(y);
  for (int n = 0; n < 2; n++)
    for (int c = 0; c < 17; c++)
      for (int p = 0; p < 9; p++)
        ck_assert_int_eq(isnan(out[(n * 17 + c) * 9 + p]) != 0, c == 16);
  ck_assert_int_eq(isnan(((float *)y->data)[16]) != 0 && y->bytes > 32 * 4 * 18, 0);
  backend->ops->fill(backend, mean, 2);
  backend->ops->fill(backend, variance, 3);
  backend->ops->fill(backend, rm, 1);
  backend->ops->fill(backend, rv, 1);
  ck_assert_int_eq(backend->ops->norm_update_running(backend, mean, variance, 4, 0.1, rm, rv), PETRA_OK);
  double e[17];
  for (int i = 0; i < 17; i++)
    e[i] = 0.9 + 0.2;
  check(rm, e, POINT_TOLERANCE);
  for (int i = 0; i < 17; i++)
    e[i] = 0.9 + 0.1 * 3 * 4 / 3;
  check(rv, e, POINT_TOLERANCE);
  free(host);
  free(out);
  petra_tensor *all[] = {x, y, scale, shift, mean, variance, rm, rv};
  for (int i = 0; i < 8; i++)
    release(all[i]);
}
END_TEST

/* --- pooling --- */

static const struct {
  int c, h, w, window, stride, pad;
} pool_cases[] = {{16, 8, 6, 2, 2, 0}, {20, 9, 7, 3, 2, 1}, {3, 7, 9, 3, 2, 1}, {1, 5, 5, 2, 1, 1}};

START_TEST(max_pools) {
  int c = pool_cases[_i].c, h = pool_cases[_i].h, w = pool_cases[_i].w;
  petra_pool_geometry g = {pool_cases[_i].window, pool_cases[_i].stride, pool_cases[_i].pad};
  int oh = (h + 2 * g.pad - g.window) / g.stride + 1, ow = (w + 2 * g.pad - g.window) / g.stride + 1;
  petra_tensor *x = activation(2, c, h, w), *y = output(2, c, oh, ow), *mask = make(PETRA_TENSOR_MASK, 2, c, oh, ow);
  petra_tensor *dy = activation(2, c, oh, ow), *dx = output(2, c, h, w);
  double *vx = values(x), *vd = values(dy), *ey = malloc((size_t)y->elements * 8);
  double *ex = calloc((size_t)x->elements, 8);
  for (int q = 0; q < 2 * c; q++)
    for (int p = 0; p < oh * ow; p++) {
      int best = -1;
      for (int k = 0; k < g.window * g.window; k++) {
        int iy = p / ow * g.stride - g.pad + k / g.window, ix = p % ow * g.stride - g.pad + k % g.window;
        int at = (q * h + iy) * w + ix;
        if (iy >= 0 && iy < h && ix >= 0 && ix < w && (best < 0 || vx[at] > vx[best]))
          best = at;
      }
      ey[q * oh * ow + p] = vx[best];
      ex[best] += vd[q * oh * ow + p];
    }
  ck_assert_int_eq(backend->ops->max_pool_forward(backend, &g, x, y, mask), PETRA_OK);
  check(y, ey, 0);
  ck_assert_int_eq(backend->ops->max_pool_backward(backend, &g, dy, mask, dx), PETRA_OK);
  check(dx, ex, POINT_TOLERANCE);
  backend->ops->fill(backend, x, NAN);
  ck_assert_int_eq(backend->ops->max_pool_forward(backend, &g, x, y, NULL), PETRA_OK);
  free(ey);
  ey = values(y);
  ck_assert(isnan(ey[0]) && isnan(ey[y->elements - 1]));
  petra_tensor *all[] = {x, y, mask, dy, dx};
  for (int i = 0; i < 5; i++)
    release(all[i]);
  free(vx);
  free(vd);
  free(ey);
  free(ex);
}
END_TEST

START_TEST(average_pool) {
  for (size_t i = 0; i < sizeof channel_counts / sizeof *channel_counts; i++) {
    int c = channel_counts[i], columns = c + 6;
    petra_tensor *x = activation(3, c, 4, 3), *dx = output(3, c, 4, 3);
    petra_tensor *y = randomised(make(PETRA_TENSOR_MATRIX, 3, columns, 1, 1));
    double *vx = values(x), *ey = values(y), *ex = malloc((size_t)x->elements * 8);
    ck_assert_int_eq(backend->ops->average_pool_backward(backend, y, 2, dx), PETRA_OK);
    for (int k = 0; k < 3 * c * 12; k++)
      ex[k] = ey[k / (12 * c) * columns + 2 + k / 12 % c] / 12;
    check(dx, ex, POINT_TOLERANCE);
    ck_assert_int_eq(backend->ops->average_pool_forward(backend, x, y, 2), PETRA_OK);
    for (int q = 0; q < 3 * c; q++) {
      double sum = 0;
      for (int p = 0; p < 12; p++)
        sum += vx[q * 12 + p];
      ey[q / c * columns + 2 + q % c] = sum / 12;
    }
    check(y, ey, POINT_TOLERANCE);
    release(x);
    release(dx);
    release(y);
    free(vx);
    free(ey);
    free(ex);
  }
}
END_TEST

/* --- head and optimiser --- */

START_TEST(head) {
  enum { N = 5, I = 37, O = 11 };
  petra_tensor *x = randomised(make(PETRA_TENSOR_MATRIX, N, I, 1, 1)),
               *w = randomised(make(PETRA_TENSOR_MATRIX, O, I, 1, 1));
  petra_tensor *b = randomised(vector(O)), *dy = randomised(make(PETRA_TENSOR_MATRIX, N, O, 1, 1));
  petra_tensor *y = poisoned(make(PETRA_TENSOR_MATRIX, N, O, 1, 1)),
               *dx = poisoned(make(PETRA_TENSOR_MATRIX, N, I, 1, 1));
  petra_tensor *dw = poisoned(make(PETRA_TENSOR_MATRIX, O, I, 1, 1)), *db = poisoned(vector(O));
  double *vx = values(x), *vw = values(w), *vb = values(b), *vd = values(dy);
  double ey[N * O], ex[N * I] = {0}, ew[O * I] = {0}, eb[O] = {0};
  for (int n = 0; n < N; n++)
    for (int o = 0; o < O; o++) {
      ey[n * O + o] = vb[o];
      eb[o] += vd[n * O + o];
      for (int i = 0; i < I; i++) {
        ey[n * O + o] += vx[n * I + i] * vw[o * I + i];
        ex[n * I + i] += vd[n * O + o] * vw[o * I + i];
        ew[o * I + i] += vd[n * O + o] * vx[n * I + i];
      }
    }
  ck_assert_int_eq(backend->ops->linear_forward(backend, x, w, b, y), PETRA_OK);
  check(y, ey, SUM_TOLERANCE);
  ck_assert_int_eq(backend->ops->linear_backward(backend, x, w, dy, dx, dw, db), PETRA_OK);
  check(dx, ex, SUM_TOLERANCE);
  check(dw, ew, SUM_TOLERANCE);
  check(db, eb, SUM_TOLERANCE);
  int32_t labels[N] = {0, 3, 10, 5, 5};
  petra_cross_entropy c = {.logits = y, .labels = labels, .dlogits = dy};
  ck_assert_int_eq(backend->ops->cross_entropy(backend, &c), PETRA_OK);
  double loss = 0;
  int top1 = 0, top5 = 0;
  for (int n = 0; n < N; n++) {
    double sum = 0;
    int better = 0;
    for (int o = 0; o < O; o++) {
      sum += exp(ey[n * O + o]);
      better += ey[n * O + o] > ey[n * O + labels[n]];
    }
    loss += log(sum) - ey[n * O + labels[n]];
    top1 += better == 0;
    top5 += better < 5;
    for (int o = 0; o < O; o++)
      vd[n * O + o] = (exp(ey[n * O + o]) / sum - (o == labels[n])) / N;
  }
  check(dy, vd, SUM_TOLERANCE);
  ck_assert_double_eq_tol(c.loss, loss / N, SUM_TOLERANCE);
  ck_assert_int_eq(c.top1, top1);
  ck_assert_int_eq(c.top5, top5);
  backend->ops->fill(backend, y, 1); /* ties: the lower class is the better one */
  c.dlogits = NULL;
  ck_assert_int_eq(backend->ops->cross_entropy(backend, &c), PETRA_OK);
  ck_assert_int_eq(c.top1, 1);
  ck_assert_int_eq(c.top5, 2);
  petra_tensor *all[] = {x, w, b, dy, y, dx, dw, db};
  for (int i = 0; i < 8; i++)
    release(all[i]);
  free(vx);
  free(vw);
  free(vb);
  free(vd);
}
END_TEST

START_TEST(sgd) {
  petra_tensor *p[2] = {randomised(make(PETRA_TENSOR_FILTER, 20, 40, 3, 3)), randomised(vector(17))};
  petra_tensor *g[2] = {randomised(make(PETRA_TENSOR_FILTER, 20, 40, 3, 3)), randomised(vector(17))};
  petra_tensor *v[2] = {poisoned(make(PETRA_TENSOR_FILTER, 20, 40, 3, 3)), poisoned(vector(17))};
  const double decay[2] = {0.1, 0};
  double *vp[2] = {values(p[0]), values(p[1])}, *vg[2] = {values(g[0]), values(g[1])};
  double *vv[2] = {calloc(7200, 8), calloc(17, 8)};
  for (int i = 0; i < 4; i++) {
    petra_sgd_step s = {.count = 2,
                        .parameters = p,
                        .velocities = v,
                        .gradients = g,
                        .weight_decay = decay,
                        .lr = 0.5,
                        .momentum = 0.9,
                        .nesterov = i % 2 == 0,
                        .first = i == 0};
    ck_assert_int_eq(backend->ops->sgd_step(backend, &s), PETRA_OK);
    for (int t = 0; t < 2; t++) {
      for (int64_t k = 0; k < p[t]->elements; k++) {
        double step = vg[t][k] + decay[t] * vp[t][k];
        vv[t][k] = i == 0 ? step : 0.9 * vv[t][k] + step;
        vp[t][k] -= 0.5 * (s.nesterov ? step + 0.9 * vv[t][k] : vv[t][k]);
      }
      check(p[t], vp[t], POINT_TOLERANCE);
      check(v[t], vv[t], POINT_TOLERANCE);
    }
  }
  for (int t = 0; t < 2; t++) {
    release(p[t]);
    release(g[t]);
    release(v[t]);
    free(vp[t]);
    free(vg[t]);
    free(vv[t]);
  }
}
END_TEST

/* --- the handle --- */

/* A hash of the results of conv, norm and dot at a size where all threads work. */
static uint32_t run_once(void) {
  random_state = 99;
  petra_conv_geometry g = {1, 1};
  petra_tensor *x = activation(8, 32, 16, 16), *y = output(8, 32, 16, 16), *dx = output(8, 32, 16, 16);
  petra_tensor *w = randomised(make(PETRA_TENSOR_FILTER, 32, 32, 3, 3)), *dw = make(PETRA_TENSOR_FILTER, 32, 32, 3, 3);
  petra_tensor *v[6];
  for (int i = 0; i < 6; i++)
    v[i] = randomised(vector(32));
  double dot;
  backend->ops->conv_forward(backend, &g, x, w, y);
  petra_norm_forward f = {.x = y, .scale = v[0], .shift = v[1], .relu = true, .y = dx, .mean = v[2], .variance = v[3]};
  backend->ops->norm_forward(backend, &f);
  petra_norm_backward b = {.x = y,
                           .scale = v[0],
                           .shift = v[1],
                           .mean = v[2],
                           .variance = v[3],
                           .relu = true,
                           .dy = x,
                           .dx = dx,
                           .dscale = v[4],
                           .dshift = v[5]};
  backend->ops->norm_backward(backend, &b);
  backend->ops->conv_backward_filter(backend, &g, x, dx, dw);
  backend->ops->conv_backward_data(backend, &g, dx, w, y);
  backend->ops->dot(backend, y, dx, &dot);
  uint32_t hash = 0;
  petra_tensor *all[] = {y, dx, dw, v[4], v[5], x, w, v[0], v[1], v[2], v[3]};
  for (int i = 0; i < 5; i++)
    for (size_t k = 0; k < all[i]->bytes; k++)
      hash = hash * 31 + ((unsigned char *)all[i]->data)[k];
  for (size_t k = 0; k < sizeof dot; k++)
    hash = hash * 31 + ((unsigned char *)&dot)[k];
  for (int i = 0; i < 11; i++)
    release(all[i]);
  return hash;
}

START_TEST(same_to_the_bit) {
  uint32_t first = run_once();
  for (int i = 0; i < 5; i++)
    ck_assert_uint_eq(run_once(), first);
  petra_backend *other, *kept = backend; /* and with another handle's primitives */
  ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, true, &other), PETRA_OK);
  backend = other;
  ck_assert_uint_eq(run_once(), first);
  backend = kept;
  petra_backend_destroy(other);
}
END_TEST

START_TEST(handle) {
  char text[512];
  backend->ops->describe(backend, text, sizeof text);
  ck_assert_ptr_nonnull(strstr(text, "oneDNN "));
  ck_assert_ptr_nonnull(strstr(text, "2 threads"));
  petra_backend *other;
  harness_clear();
  ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP64, 1, true, &other), PETRA_UNSUPPORTED);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("device.precision");
  ck_assert_logged("ref");
  petra_pool_geometry g = {17, 1, 0};
  petra_tensor *x = activation(1, 1, 20, 20), *y = output(1, 1, 4, 4);
  harness_clear();
  ck_assert_int_eq(backend->ops->max_pool_forward(backend, &g, x, y, NULL), PETRA_UNSUPPORTED);
  ck_assert_int_eq(harness_lines, 1);
  release(x);
  release(y);
}
END_TEST

int main(void) {
  petra_log_set_sink(harness_capture, NULL);
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, true, &backend) != PETRA_OK)
    return EXIT_FAILURE;
  Suite *suite = suite_create("cpu");
  TCase *tcase = tcase_create("cpu");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, upload_download);
  tcase_add_test(tcase, elementwise);
  tcase_add_test(tcase, split_and_concat);
  tcase_add_loop_test(tcase, convolutions, 0, HARNESS_COUNT(conv_cases));
  tcase_add_loop_test(tcase, norms, 0, HARNESS_COUNT(norm_cases));
  tcase_add_test(tcase, norm_far_from_zero);
  tcase_add_test(tcase, norm_nan_and_running);
  tcase_add_loop_test(tcase, max_pools, 0, HARNESS_COUNT(pool_cases));
  tcase_add_test(tcase, average_pool);
  tcase_add_test(tcase, head);
  tcase_add_test(tcase, sgd);
  tcase_add_test(tcase, same_to_the_bit);
  tcase_add_test(tcase, handle);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_set_fork_status(runner, CK_NOFORK);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  petra_backend_destroy(backend);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
