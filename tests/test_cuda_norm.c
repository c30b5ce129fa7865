/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels of batch normalisation on the host, forwards and in reverse, against `ref` in fp64. */
#include "cuda_rig.h"

#include "backend/cuda/cuda_device.h"
#include "backend/element.h"

static const int shapes[][2] = {{1, 1},    {2, 3},    {1, 4},    {50, 10},  {300, 64},
                                {97, 513}, {2100, 3}, {9001, 1}, {5000, 36}}; /* pixels, c */

/* What a norm works on; element (p, c) of x is its own channel's. */
typedef struct norm_case {
  int pixels, c;
  float *x, *scale, *shift, *mean, *variance, *dy, *addend;
  uint16_t *narrow_x; /* x in bf16; NULL: x is of f32 */
} norm_case;

static const void *data_of(const norm_case *s) {
  return s->narrow_x ? (const void *)s->narrow_x : s->x;
}

static norm_case make_case(int pixels, int c, double mean, double deviation) {
  norm_case s = {.pixels = pixels, .c = c};
  s.x = rig_normal((int64_t)pixels * c, 1, mean, deviation);
  s.scale = rig_normal(c, 2, 1, 0.3);
  s.shift = rig_normal(c, 3, 0.2, 0.3);
  s.mean = rig_empty(c);
  s.variance = rig_empty(c);
  s.dy = rig_normal((int64_t)pixels * c, 4, 0.1, 1);
  s.addend = rig_normal((int64_t)pixels * c, 5, 0, 1);
  return s;
}

/* What all launches over a case have. */
static cuda_norm_apply_args apply_of(const norm_case *s) {
  return (cuda_norm_apply_args){.x = data_of(s),
                                .scale = s->scale,
                                .shift = s->shift,
                                .mean = s->mean,
                                .variance = s->variance,
                                .pixels = s->pixels,
                                .c = s->c,
                                .c_first = s->c,
                                .narrow = s->narrow_x};
}

static cuda_norm_backward_args backward_of(const norm_case *s, bool relu) {
  return (cuda_norm_backward_args){.x = data_of(s),
                                   .scale = s->scale,
                                   .shift = s->shift,
                                   .mean = s->mean,
                                   .variance = s->variance,
                                   .dscale = rig_empty(s->c),
                                   .dshift = rig_empty(s->c),
                                   .pixels = s->pixels,
                                   .c = s->c,
                                   .c_first = s->c,
                                   .relu = relu,
                                   .narrow = s->narrow_x};
}

static void statistics(const norm_case *s) {
  RIG_LAUNCH(cuda_norm_statistics_launch,
             (&(cuda_norm_statistics_args){data_of(s), s->mean, s->variance, s->pixels, s->c, s->narrow_x}),
             cuda_norm_scratch(s->pixels, s->c), FLOATS(s->mean, s->c), FLOATS(s->variance, s->c));
}

/* The two passes of the definition. */
static void check_statistics(const norm_case *s) {
  for (int c = 0; c < s->c; c++) {
    double mean = 0, scale = 0, variance = 0;
    for (int p = 0; p < s->pixels; p++) {
      mean += (double)s->x[p * s->c + c] / s->pixels;
      scale += fabs((double)s->x[p * s->c + c]) / s->pixels;
    }
    for (int p = 0; p < s->pixels; p++)
      variance += (s->x[p * s->c + c] - mean) * (s->x[p * s->c + c] - mean) / s->pixels;
    ck_assert_msg(rig_near(s->mean[c], mean, 10 * scale), "%d pixels, channel %d: mean %.17g, expected %.17g",
                  s->pixels, c, s->mean[c], mean);
    ck_assert_msg(rig_near(s->variance[c], variance, 10 * s->pixels * variance),
                  "%d pixels, channel %d: variance %.17g, expected %.17g", s->pixels, c, s->variance[c], variance);
  }
}

START_TEST(statistics_of_batches) {
  for (int k = 0; k < HARNESS_COUNT(shapes); k++)
    for (int narrow = 0; narrow < 2; narrow++) {
      norm_case s = make_case(shapes[k][0], shapes[k][1], 0.3, 2);
      if (narrow)
        s.narrow_x = rig_narrow(s.x, (int64_t)s.pixels * s.c);
      statistics(&s);
      check_statistics(&s);
      rig_end();
    }
}
END_TEST

/* Multiplications in place of divisions: around each multiple, and at the end of the range. */
START_TEST(division_by_constants) {
  for (int32_t d = 1; d <= 3000; d++) {
    const cuda_divisor divisor = cuda_divisor_of(d);
    for (int64_t q = 0; q * d <= INT32_MAX; q = q < 8 ? q + 1 : q * 5 / 3)
      for (int64_t n = q * d - 1; n <= q * d + 1; n++)
        HOLDS(n < 0 || n > INT32_MAX || cuda_divide((int32_t)n, divisor) == n / d);
    for (int64_t n = INT32_MAX; n > INT32_MAX - 3; n--)
      HOLDS(cuda_divide((int32_t)n, divisor) == n / d);
  }
  for (int32_t d = INT32_MAX; d > INT32_MAX / 2; d -= d / 9)
    HOLDS(cuda_divide(INT32_MAX, cuda_divisor_of(d)) == INT32_MAX / d && cuda_divide(d - 1, cuda_divisor_of(d)) == 0);
}
END_TEST

/* One block sums the partial sums of a channel: these are few, however many pixels there are, and blocks are many. */
START_TEST(partial_sums_are_few) {
  for (int c = 1; c <= 1024; c *= 2)
    for (int64_t pixels = 1; pixels <= 1 << 24; pixels *= 4) {
      const int64_t slices = (int64_t)(cuda_norm_scratch(pixels, c) / (2 * sizeof(double)) / (size_t)c) - 1;
      ck_assert_msg(slices <= 128, "%lld slices for %d channels", (long long)slices, c);
      ck_assert(pixels < 1 << 20 || c > 512 || slices * ((c + 31) / 32) >= 128);
    }
}
END_TEST

/* Squares of which the variance is a millionth, and less: x of mean 1000, of mean 1e6, and an outlier first. */
START_TEST(statistics_far_from_zero) {
  for (int kind = 0; kind < 3; kind++) {
    norm_case s = make_case(3000, 5, kind == 1 ? 1e6 : 1000, kind == 2 ? 0.01 : 1);
    if (kind == 2)
      s.x[0] = -1e7f;
    statistics(&s);
    check_statistics(&s);
    rig_end();
  }
}
END_TEST

START_TEST(statistics_of_special_channels) {
  norm_case s = make_case(500, 6, 0, 1);
  for (int p = 0; p < s.pixels; p++)
    s.x[p * 6] = 1000.1f;
  s.x[0 * 6 + 1] = NAN;      /* the first element */
  s.x[300 * 6 + 2] = NAN;    /* another */
  s.x[0 * 6 + 3] = INFINITY; /* as `ref`: the mean is infinite, the variance NaN */
  s.x[77 * 6 + 4] = -INFINITY;
  statistics(&s);
  ck_assert(s.mean[0] == 1000.1f && s.variance[0] == 0);
  for (int c = 1; c < 3; c++)
    ck_assert(isnan(s.mean[c]) && isnan(s.variance[c]));
  ck_assert(s.mean[3] == INFINITY && isnan(s.variance[3]));
  ck_assert(s.mean[4] == -INFINITY && isnan(s.variance[4]));
  ck_assert(isfinite(s.mean[5]) && s.variance[5] > 0);
  rig_end();
}
END_TEST

static void check_apply(norm_case *s, petra_join join, bool relu) {
  int64_t count = (int64_t)s->pixels * s->c;
  float *y = rig_copy(s->addend, count); /* y may alias addend */
  uint16_t *rounded = relu ? rig_bytes((size_t)count * sizeof *rounded) : NULL;
  cuda_norm_apply_args a = apply_of(s);
  a.addend = join ? y : NULL;
  a.y = y;
  a.rounded = rounded;
  a.join = join;
  a.relu = relu;
  if (join && !rounded) /* where y is read, it is another after the first launch */
    RIG_LAUNCH(cuda_norm_apply_launch, &a, 0, FLOATS(y, count));
  else
    rig_launch_once(cuda_norm_apply_launch, &a, 0);
  for (int64_t i = 0; rounded && i < count; i++)
    HOLDS(rounded[i] == host_to_bf16(y[i]));
  const petra_norm_forward expected = {.x = ACTIVATION(1, s->c, s->pixels, 1, s->x),
                                       .scale = VECTOR(s->c, s->scale),
                                       .shift = VECTOR(s->c, s->shift),
                                       .relu = relu,
                                       .join = join,
                                       .addend = join ? ACTIVATION(1, s->c, s->pixels, 1, s->addend) : NULL,
                                       .y = ACTIVATION(1, s->c, s->pixels, 1, NULL),
                                       .mean = VECTOR(s->c, s->mean),
                                       .variance = VECTOR(s->c, s->variance)};
  ck_assert_int_eq(rig_ref->ops->norm_evaluate(rig_ref, &expected), PETRA_OK);
  rig_agree("norm y", expected.y, y, 10);
}

START_TEST(applied) {
  for (int k = 0; k < HARNESS_COUNT(shapes); k++)
    for (int join = PETRA_JOIN_NONE; join <= PETRA_JOIN_ADD_ACTIVATE; join++)
      for (int relu = 0; relu < 2; relu++) {
        norm_case s = make_case(shapes[k][0], shapes[k][1], 0.3, 2);
        statistics(&s);
        s.x[s.c / 2] = NAN; /* with finite statistics, as of an evaluation: it reaches y */
        check_apply(&s, (petra_join)join, relu);
        rig_end();
      }
}
END_TEST

/* `alias`: dx takes the place of dy. */
static void check_backward(const norm_case *s, bool relu, bool alias) {
  int64_t count = (int64_t)s->pixels * s->c;
  float *dy = rig_copy(s->dy, count), *dx = alias ? dy : rig_empty(count);
  cuda_norm_backward_args a = backward_of(s, relu);
  a.dy = dy;
  a.dx = dx;
  RIG_LAUNCH(cuda_norm_backward_launch, &a, cuda_norm_scratch(s->pixels, s->c), FLOATS(dx, count),
             FLOATS(a.dscale, s->c), FLOATS(a.dshift, s->c));
  const petra_norm_backward expected = {.x = ACTIVATION(1, s->c, s->pixels, 1, s->x),
                                        .scale = VECTOR(s->c, s->scale),
                                        .shift = VECTOR(s->c, s->shift),
                                        .mean = VECTOR(s->c, s->mean),
                                        .variance = VECTOR(s->c, s->variance),
                                        .relu = relu,
                                        .dy = ACTIVATION(1, s->c, s->pixels, 1, s->dy),
                                        .dx = ACTIVATION(1, s->c, s->pixels, 1, NULL),
                                        .dscale = VECTOR(s->c, NULL),
                                        .dshift = VECTOR(s->c, NULL)};
  ck_assert_int_eq(rig_ref->ops->norm_backward(rig_ref, &expected), PETRA_OK);
  rig_agree("dscale", expected.dscale, a.dscale, s->pixels);
  rig_agree("dshift", expected.dshift, a.dshift, s->pixels);
  /* Of one pixel the variance is 0 and terms of 1 / sqrt(epsilon) = 316 cancel. */
  rig_agree("dx", expected.dx, dx, 1000);
}

START_TEST(backward) {
  for (int k = 0; k < HARNESS_COUNT(shapes); k++)
    for (int kind = 0; kind < 4; kind++) {
      norm_case s = make_case(shapes[k][0], shapes[k][1], 0.3, 2);
      statistics(&s);
      check_backward(&s, kind & 1, kind & 2);
      rig_end();
    }
}
END_TEST

/* A NaN in x: NaN in dx and dscale of its channel; with relu 0 in dshift where it was in the statistics too. */
START_TEST(backward_of_nan) {
  for (int relu = 0; relu < 2; relu++)
    for (int in_statistics = 0; in_statistics < 2; in_statistics++) {
      norm_case s = make_case(100, 3, 0, 1);
      if (in_statistics)
        s.x[50 * 3 + 1] = NAN;
      statistics(&s);
      s.x[50 * 3 + 1] = NAN;
      check_backward(&s, relu, false);
      rig_end();
    }
}
END_TEST

START_TEST(running_statistics) {
  static const int64_t samples[] = {1, 2, 1000};
  for (int k = 0; k < 3; k++)
    for (int c = 1; c <= 513; c += 256) {
      float *mean = rig_normal(c, 1, 0, 1), *variance = rig_normal(c, 2, 5, 1);
      float *running_mean = rig_normal(c, 3, 0, 1), *running_variance = rig_normal(c, 4, 5, 1);
      petra_tensor *expected_mean = VECTOR(c, running_mean), *expected_variance = VECTOR(c, running_variance);
      const cuda_norm_running_args a = {
          .norm = {{mean, variance, running_mean, running_variance, samples[k], c},
                   {mean, variance, rig_copy(running_mean, c), rig_copy(running_variance, c), 7, c}},
          .momentum = 0.1,
          .norms = 2};
      RIG_LAUNCH(cuda_norm_running_launch, &a, 0, FLOATS(running_mean, c), FLOATS(running_variance, c));
      ck_assert_int_eq(rig_ref->ops->norm_update_running(rig_ref, VECTOR(c, mean), VECTOR(c, variance), samples[k], 0.1,
                                                         expected_mean, expected_variance),
                       PETRA_OK);
      rig_agree("running mean", expected_mean, running_mean, 1);
      rig_agree("running variance", expected_variance, running_variance, 10);
      rig_end();
    }
}
END_TEST

/* --- of bf16: against the formulas in double; the kernels compute in float, whose rounding errors come to less than 8 units of
 * 2^-24 of the terms, and round once to bf16, 2^-8, what is of bf16 --- */

static bool near_float(double got, double expected, double terms, bool narrow) {
  if (isnan(expected))
    return isnan(got);
  return fabs(got - expected) <= 0x1p-21 * terms + (narrow ? 0x1.01p-8 * fabs(expected) : 0);
}

typedef struct of_element {
  double z, terms, normalized, factor; /* terms: what z is the sum of */
} of_element;

static of_element element_of(const norm_case *s, int64_t i) {
  const int c = (int)(i % s->c);
  const double inverse = petra_element_inverse_deviation(s->variance[c]), factor = s->scale[c] * inverse;
  const double difference = (double)s->x[i] - s->mean[c];
  return (of_element){factor * difference + s->shift[c], fabs(factor * difference) + fabs(s->shift[c]),
                      difference * inverse, factor};
}

static void check_narrow_apply(const norm_case *s, petra_join join, bool relu, bool narrow_y) {
  const int64_t count = (int64_t)s->pixels * s->c;
  float *y = rig_empty(count);
  uint16_t *inner = rig_bytes((size_t)count * sizeof *inner), *rounded = rig_bytes((size_t)count * sizeof *rounded);
  cuda_norm_apply_args a = apply_of(s);
  a.addend = join ? s->addend : NULL;
  a.y = narrow_y ? (void *)inner : y;
  a.rounded = narrow_y ? NULL : rounded;
  a.join = join;
  a.relu = relu;
  a.narrow_y = narrow_y;
  if (narrow_y)
    RIG_LAUNCH(cuda_norm_apply_launch, &a, 0, {inner, (size_t)count * sizeof *inner});
  else
    RIG_LAUNCH(cuda_norm_apply_launch, &a, 0, FLOATS(y, count), {rounded, (size_t)count * sizeof *rounded});
  for (int64_t i = 0; i < count; i++) {
    const of_element e = element_of(s, i);
    const double expected = petra_element_join(join, relu, e.z, join ? s->addend[i] : 0);
    HOLDS(near_float(narrow_y ? host_from_bf16(inner[i]) : y[i], expected,
                     e.terms + (join ? fabs((double)s->addend[i]) : 0), narrow_y));
    HOLDS(narrow_y || rounded[i] == host_to_bf16(y[i]));
  }
}

START_TEST(narrow_applied) {
  for (int k = 0; k < HARNESS_COUNT(shapes); k++)
    for (int join = PETRA_JOIN_NONE; join <= PETRA_JOIN_ADD_ACTIVATE; join++)
      for (int relu = 0; relu < 2; relu++)
        for (int narrow_y = 0; narrow_y <= (join == PETRA_JOIN_NONE); narrow_y++) {
          norm_case s = make_case(shapes[k][0], shapes[k][1], 0.3, 2);
          s.narrow_x = rig_narrow(s.x, (int64_t)s.pixels * s.c);
          statistics(&s);
          check_narrow_apply(&s, (petra_join)join, relu, narrow_y);
          rig_end();
        }
}
END_TEST

/* What the forward lets through its ReLU the backward lets through: z > 0 is asked of the same number. */
static void check_narrow_backward(const norm_case *s, bool relu, bool narrow_dy) {
  const int64_t count = (int64_t)s->pixels * s->c;
  uint16_t *dx = rig_bytes((size_t)count * sizeof *dx);
  uint16_t *dy = narrow_dy ? rig_narrow(s->dy, count) : NULL, *y = rig_bytes((size_t)count * sizeof *y);
  cuda_norm_apply_args forward = apply_of(s);
  forward.y = y;
  forward.relu = relu;
  forward.narrow_y = true;
  cuda_norm_backward_args a = backward_of(s, relu);
  a.dy = narrow_dy ? (void *)dy : s->dy;
  a.dx = dx;
  a.narrow_dy = narrow_dy;
  rig_launch_once(cuda_norm_apply_launch, &forward, 0);
  RIG_LAUNCH(cuda_norm_backward_launch, &a, cuda_norm_scratch(s->pixels, s->c), {dx, (size_t)count * sizeof *dx},
             FLOATS(a.dscale, s->c), FLOATS(a.dshift, s->c));
  for (int c = 0; c < s->c; c++) {
    double sum = 0, product = 0, scale = 0;
    for (int64_t i = c; i < count; i += s->c) {
      const double dz = relu && !(host_from_bf16(y[i]) > 0) ? 0 : s->dy[i];
      sum += dz;
      product += dz * element_of(s, i).normalized;
      scale += fabs(dz) * (1 + fabs(element_of(s, i).normalized));
    }
    HOLDS(near_float(a.dshift[c], sum, scale, false) && near_float(a.dscale[c], product, scale, false));
    for (int64_t i = c; i < count; i += s->c) {
      const of_element e = element_of(s, i);
      const double dz = relu && !(host_from_bf16(y[i]) > 0) ? 0 : s->dy[i], n = s->pixels;
      const double expected = e.factor * (dz - sum / n - e.normalized * product / n);
      const double terms = fabs(e.factor) * (fabs(dz) + fabs(sum / n) + fabs(e.normalized * product / n));
      HOLDS(near_float(host_from_bf16(dx[i]), expected, terms, true));
    }
  }
}

START_TEST(narrow_backward) {
  for (int k = 0; k < HARNESS_COUNT(shapes); k++)
    for (int kind = 0; kind < 4; kind++) {
      norm_case s = make_case(shapes[k][0], shapes[k][1], 0.3, 2);
      s.narrow_x = rig_narrow(s.x, (int64_t)s.pixels * s.c);
      statistics(&s);
      check_narrow_backward(&s, kind & 1, kind & 2);
      rig_end();
    }
}
END_TEST

/* --- in two parts: the numbers of one, in two places --- */

static void divide(const float *x, int64_t pixels, int c, int first, float *one, float *other) {
  for (int64_t p = 0; p < pixels; p++)
    for (int k = 0; k < c; k++)
      *(k < first ? &one[p * first + k] : &other[p * (c - first) + k - first]) = x[p * c + k];
}

static void check_divided_apply(const norm_case *s, int first) {
  const int64_t count = (int64_t)s->pixels * s->c, sizes[2] = {(int64_t)s->pixels * first, count - sizes[0]};
  float *y = rig_empty(count), *expected[2] = {rig_empty(sizes[0]), rig_empty(sizes[1])};
  float *part[2] = {rig_empty(sizes[0]), rig_empty(sizes[1])};
  uint16_t *rounded[2] = {rig_bytes((size_t)sizes[0] * 2), rig_bytes((size_t)sizes[1] * 2)};
  cuda_norm_apply_args a = apply_of(s);
  a.y = y;
  a.relu = true;
  rig_launch_once(cuda_norm_apply_launch, &a, 0);
  divide(y, s->pixels, s->c, first, expected[0], expected[1]);
  a.y = part[0];
  a.second = part[1];
  a.rounded = rounded[0];
  a.rounded_second = rounded[1];
  a.c_first = first;
  RIG_LAUNCH(cuda_norm_apply_launch, &a, 0, FLOATS(part[0], sizes[0]), FLOATS(part[1], sizes[1]));
  for (int k = 0; k < 2; k++)
    for (int64_t i = 0; i < sizes[k]; i++)
      HOLDS(part[k][i] == expected[k][i] && rounded[k][i] == host_to_bf16(part[k][i]));
}

static void check_divided_backward(const norm_case *s, int first) {
  const bool narrow = s->narrow_x;
  const int64_t count = (int64_t)s->pixels * s->c;
  float *dy[2] = {rig_empty((int64_t)s->pixels * first), rig_empty((int64_t)s->pixels * (s->c - first))};
  float *sums[4] = {rig_empty(s->c), rig_empty(s->c), rig_empty(s->c), rig_empty(s->c)};
  void *dx[2] = {rig_empty(count), rig_empty(count)};
  cuda_norm_backward_args a = backward_of(s, true);
  a.dy = s->dy;
  a.dx = dx[0];
  a.dscale = sums[0];
  a.dshift = sums[1];
  rig_launch_once(cuda_norm_backward_launch, &a, cuda_norm_scratch(s->pixels, s->c));
  divide(s->dy, s->pixels, s->c, first, dy[0], dy[1]);
  a.dy = dy[0];
  a.dsecond = dy[1];
  a.c_first = first;
  a.dx = dx[1];
  a.dscale = sums[2];
  a.dshift = sums[3];
  rig_launch_once(cuda_norm_backward_launch, &a, cuda_norm_scratch(s->pixels, s->c));
  for (int c = 0; c < s->c; c++) /* where channels that were four a thread are one, slices are others */
    for (int k = 0; k < 2; k++)
      HOLDS(narrow ? near_float(sums[2 + k][c], sums[k][c], s->pixels, false)
                   : rig_near(sums[2 + k][c], sums[k][c], s->pixels));
  for (int64_t i = 0; i < count; i++) {
    const double got = narrow ? host_from_bf16(((uint16_t *)dx[1])[i]) : ((float *)dx[1])[i];
    const double expected = narrow ? host_from_bf16(((uint16_t *)dx[0])[i]) : ((float *)dx[0])[i];
    HOLDS(fabs(got - expected) <= (narrow ? 0x1p-7 : 0x1p-22) * fabs(expected) + 1e-6); /* a unit in the last place */
  }
}

START_TEST(in_two_parts) {
  static const int parts[][3] = {{300, 64, 32}, {50, 12, 8}, {97, 10, 3}, {33, 8, 3}}; /* pixels, c, of the first */
  for (int k = 0; k < HARNESS_COUNT(parts); k++)
    for (int narrow = 0; narrow < 2; narrow++) {
      norm_case s = make_case(parts[k][0], parts[k][1], 0.3, 2);
      if (narrow)
        s.narrow_x = rig_narrow(s.x, (int64_t)s.pixels * s.c);
      statistics(&s);
      check_divided_apply(&s, parts[k][2]);
      check_divided_backward(&s, parts[k][2]);
      rig_end();
    }
}
END_TEST

int main(void) {
  const TTest *tests[] = {division_by_constants,
                          partial_sums_are_few,
                          statistics_of_batches,
                          statistics_far_from_zero,
                          statistics_of_special_channels,
                          applied,
                          backward,
                          backward_of_nan,
                          running_statistics,
                          narrow_applied,
                          narrow_backward,
                          in_two_parts};
  return harness_run("cuda_norm", tests, HARNESS_COUNT(tests));
}
