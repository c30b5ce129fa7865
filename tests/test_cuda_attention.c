/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels of attention on the host, forwards and in reverse, against `ref` in fp64. */
#include "cuda_rig.h"

typedef struct attention_case {
  int n, t, heads, kv_heads, d;
  bool causal;
  float *qkv, *dy, *y, *log_sum, *dqkv;
} attention_case;

static attention_case make_case(int n, int t, int heads, int kv_heads, int d, bool causal, double deviation) {
  const int rows = n * t, c = heads * d, row = c + 2 * kv_heads * d;
  return (attention_case){.n = n,
                          .t = t,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .d = d,
                          .causal = causal,
                          .qkv = rig_normal(rows * row, 1, 0.1, deviation),
                          .dy = rig_normal(rows * c, 2, 0.1, 1),
                          .y = rig_empty(rows * c),
                          .log_sum = rig_empty(rows * heads),
                          .dqkv = rig_empty(rows * row)};
}

/* The columns of qkv. */
static int row_of(const attention_case *s) {
  return (s->heads + 2 * s->kv_heads) * s->d;
}

static void launch(const attention_case *s) {
  const int rows = s->n * s->t, c = s->heads * s->d;
  const cuda_attention_args a = {.qkv = s->qkv,
                                 .dy = s->dy,
                                 .y = s->y,
                                 .log_sum = s->log_sum,
                                 .dqkv = s->dqkv,
                                 .n = s->n,
                                 .t = s->t,
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .d = s->d,
                                 .causal = s->causal};
  RIG_LAUNCH(cuda_attention_forward_launch, &a, 0, FLOATS(s->y, rows * c), FLOATS(s->log_sum, rows * s->heads));
  RIG_LAUNCH(cuda_attention_backward_launch, &a, cuda_attention_backward_scratch(s->n, s->t, s->heads),
             FLOATS(s->dqkv, rows * row_of(s)));
}

/* Within `tolerance` of the largest number that is expected; NaN where NaN is. */
static void agree(const char *what, const petra_tensor *expected, const float *got, double tolerance) {
  double *values = malloc((size_t)expected->elements * sizeof *values), largest = 0;
  ck_assert_int_eq(rig_ref->ops->download(rig_ref, expected, values, PETRA_HOST_F64), PETRA_OK);
  for (int64_t i = 0; i < expected->elements; i++)
    if (isfinite(values[i]))
      largest = fmax(largest, fabs(values[i]));
  for (int64_t i = 0; i < expected->elements; i++)
    if (isnan(values[i]) != isnan(got[i]) || fabs(got[i] - values[i]) > tolerance * largest)
      ck_abort_msg("%s: element %lld: %.9g, expected %.9g; the largest is %.9g", what, (long long)i, (double)got[i],
                   values[i], largest);
  free(values);
}

/* Scores of order 1 to 10 are off by some units in the last place of f32, and a weight is off by as much of itself. */
static void compare(const attention_case *s, double tolerance) {
  const int c = s->heads * s->d;
  const petra_tensor *qkv = SEQUENCE(s->n, s->t, row_of(s), s->qkv);
  const petra_attention attention = {.qkv = qkv,
                                     .heads = s->heads,
                                     .kv_heads = s->kv_heads,
                                     .causal = s->causal,
                                     .y = SEQUENCE(s->n, s->t, c, NULL),
                                     .log_sum = SEQUENCE(s->n, s->t, s->heads, NULL),
                                     .dy = SEQUENCE(s->n, s->t, c, s->dy),
                                     .dqkv = SEQUENCE(s->n, s->t, row_of(s), NULL)};
  ck_assert_int_eq(rig_ref->ops->attention_forward(rig_ref, &attention), PETRA_OK);
  ck_assert_int_eq(rig_ref->ops->attention_backward(rig_ref, &attention), PETRA_OK);
  agree("y", attention.y, s->y, tolerance);
  agree("log_sum", attention.log_sum, s->log_sum, tolerance);
  agree("dqkv", attention.dqkv, s->dqkv, tolerance);
}

START_TEST(attentions) {
  static const int sizes[][5] = {
      {1, 1, 1, 1, 1},  {2, 7, 3, 3, 5}, {1, 64, 2, 2, 8},  {1, 65, 1, 1, 33}, {1, 130, 1, 1, 70},
      {3, 2, 2, 2, 64}, {2, 7, 6, 2, 5}, {1, 130, 4, 1, 7}, {1, 65, 4, 2, 70}, /* n, t, heads, kv_heads, d */
  };
  for (int k = 0; k < HARNESS_COUNT(sizes); k++)
    for (int causal = 0; causal < 2; causal++) {
      const attention_case s = make_case(sizes[k][0], sizes[k][1], sizes[k][2], sizes[k][3], sizes[k][4], causal, 1);
      launch(&s);
      compare(&s, 4e-6);
      rig_end();
    }
}
END_TEST

/* Scores up to some hundreds: the maximum goes up from tile to tile, and what was summed before comes to nothing. */
START_TEST(large_scores) {
  for (int causal = 0; causal < 2; causal++) {
    const attention_case s = make_case(1, 150, 1, 1, 4, causal, 1);
    for (int i = 0; i < s.t * 3 * s.d; i++)
      if (i % (3 * s.d) < 2 * s.d) /* q and k, not v */
        s.qkv[i] *= (float)(i / (3 * s.d)) / 8;
    launch(&s);
    compare(&s, 1e-4); /* of scores of 300 half a unit in the last place is 1.5e-5 */
    rig_end();
  }
}
END_TEST

/* A NaN, or an infinity, in one place of q, k, v or dy is where `ref` has it, and nowhere else. */
START_TEST(special_values) {
  enum { T = 70, D = 3, PLACE = 66 };
  static const float values[] = {NAN, INFINITY};
  for (int part = 0; part < 4; part++)
    for (int k = 0; k < 4; k++) {
      const attention_case s = make_case(1, T, 1, 1, D, k / 2, 1);
      if (part < 3)
        s.qkv[PLACE * 3 * D + part * D + 1] = values[k % 2];
      else
        s.dy[PLACE * D + 1] = values[k % 2];
      launch(&s);
      compare(&s, 4e-6);
      rig_end();
    }
}
END_TEST

/* Every score of the first tile is -infinity for some queries: what comes after it counts alone. For the others it is NaN. */
START_TEST(tiles_of_nothing) {
  for (int causal = 0; causal < 2; causal++) {
    const attention_case s = make_case(1, 70, 1, 1, 3, causal, 1);
    for (int t = 0; t < 64; t++)
      s.qkv[t * 9 + 3] = -INFINITY;
    launch(&s);
    compare(&s, 4e-6);
    int numbers = 0;
    for (int i = 0; i < 70 * 3; i++)
      numbers += isfinite(s.y[i]);
    ck_assert_int_gt(numbers, 0);
    rig_end();
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {attentions, large_scores, special_values, tiles_of_nothing};
  return harness_run("cuda_attention", tests, HARNESS_COUNT(tests));
}
