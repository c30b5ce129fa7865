/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels of sequences on the host, forwards and in reverse, against `ref` in fp64: layer norm and RMS norm, GELU, SwiGLU,
 * rotary positions, embeddings, patches. test_cuda_attention has attention. */
#include "cuda_rig.h"

/* --- layer norm, RMS norm --- */

/* What a layer norm works on; an RMS norm has neither mean nor shift. Where an output is missing, the list of outputs names an
 * input in its place, which must stay the same. */
typedef struct norm_case {
  int rows, c;
  float *x, *scale, *shift, *mean, *deviation, *dy;
} norm_case;

static norm_case make_norm(int rows, int c, double mean, bool rms) {
  const int64_t count = (int64_t)rows * c;
  return (norm_case){.rows = rows,
                     .c = c,
                     .x = rig_normal(count, 1, mean, 2),
                     .scale = rig_normal(c, 2, 1, 0.3),
                     .shift = rms ? NULL : rig_normal(c, 3, 0.2, 0.3),
                     .mean = rms ? NULL : rig_empty(rows),
                     .deviation = rig_empty(rows),
                     .dy = rig_normal(count, 4, 0.1, 1)};
}

static void check_norm_forward(const norm_case *s) {
  const int64_t count = (int64_t)s->rows * s->c;
  float *y = rig_empty(count), *mean = s->mean ? rig_empty(s->rows) : NULL, *deviation = rig_empty(s->rows);
  cuda_layer_norm_args a = {s->x, s->scale, s->shift, y, s->mean, s->deviation, s->rows, s->c};
  RIG_LAUNCH(cuda_layer_norm_launch, &a, 0, FLOATS(y, count), FLOATS(s->deviation, s->rows),
             FLOATS(s->mean ? s->mean : s->x, s->rows));
  const petra_layer_norm_forward expected = {.x = SEQUENCE(s->rows, 1, s->c, s->x),
                                             .scale = VECTOR(s->c, s->scale),
                                             .shift = s->shift ? VECTOR(s->c, s->shift) : NULL,
                                             .y = SEQUENCE(s->rows, 1, s->c, NULL),
                                             .mean = s->mean ? SEQUENCE(s->rows, 1, 1, NULL) : NULL,
                                             .deviation = SEQUENCE(s->rows, 1, 1, NULL)};
  ck_assert_int_eq(rig_ref->ops->layer_norm_forward(rig_ref, &expected), PETRA_OK);
  if (s->mean)
    rig_agree("mean", expected.mean, s->mean, 1000);
  rig_agree("deviation", expected.deviation, s->deviation, 1000);
  rig_agree("y", expected.y, y, 1000);
  a = (cuda_layer_norm_args){.x = s->x, .mean = mean, .deviation = deviation, .rows = s->rows, .c = s->c};
  rig_launch_once(cuda_layer_norm_launch, &a, 0);
  if (s->mean)
    ck_assert_mem_eq(mean, s->mean, (size_t)s->rows * sizeof *mean);
  ck_assert_mem_eq(deviation, s->deviation, (size_t)s->rows * sizeof *deviation);
}

/* From the mean and the deviation as the forward rounded them. */
static void check_norm_backward(const norm_case *s) {
  const int64_t count = (int64_t)s->rows * s->c;
  float *dx = rig_empty(count), *in_place = rig_copy(s->dy, count), *dscale = rig_empty(s->c),
        *dshift = s->shift ? rig_empty(s->c) : NULL;
  cuda_layer_norm_backward_args a = {s->x, s->scale, s->mean, s->deviation, s->dy, dx, dscale, dshift, s->rows, s->c};
  RIG_LAUNCH(cuda_layer_norm_backward_launch, &a, cuda_layer_norm_scratch(s->rows, s->c), FLOATS(dx, count),
             FLOATS(dscale, s->c), FLOATS(dshift ? dshift : s->scale, s->c));
  const petra_layer_norm_backward expected = {.x = SEQUENCE(s->rows, 1, s->c, s->x),
                                              .scale = VECTOR(s->c, s->scale),
                                              .mean = s->mean ? SEQUENCE(s->rows, 1, 1, s->mean) : NULL,
                                              .deviation = SEQUENCE(s->rows, 1, 1, s->deviation),
                                              .dy = SEQUENCE(s->rows, 1, s->c, s->dy),
                                              .dx = SEQUENCE(s->rows, 1, s->c, NULL),
                                              .dscale = VECTOR(s->c, NULL),
                                              .dshift = dshift ? VECTOR(s->c, NULL) : NULL};
  ck_assert_int_eq(rig_ref->ops->layer_norm_backward(rig_ref, &expected), PETRA_OK);
  rig_agree("dx", expected.dx, dx, 1000);
  rig_agree("dscale", expected.dscale, dscale, 1000);
  if (dshift)
    rig_agree("dshift", expected.dshift, dshift, 1000);
  a.dy = a.dx = in_place;
  RIG_LAUNCH(cuda_layer_norm_backward_launch, &a, cuda_layer_norm_scratch(s->rows, s->c), FLOATS(in_place, count));
  ck_assert_mem_eq(in_place, dx, (size_t)count * sizeof *dx);
}

START_TEST(layer_norms) {
  static const int shapes[][2] = {{1, 1}, {3, 5}, {50, 48}, {33, 300}, {5, 1030}, {2100, 2}}; /* rows, c */
  for (int k = 0; k < HARNESS_COUNT(shapes); k++)
    for (int special = 0; special < 3; special++)
      for (int rms = 0; rms < 2; rms++) {
        norm_case s = make_norm(shapes[k][0], shapes[k][1], special == 1 ? 1000 : 0.3, rms);
        if (special == 2)
          s.x[(s.rows * s.c) / 2] = NAN; /* one row of y and dx, all of dscale; not dshift */
        check_norm_forward(&s);
        check_norm_backward(&s);
        rig_end();
      }
}
END_TEST

/* --- GELU --- */

START_TEST(gelus) {
  enum { N = 3000 };
  for (int form = PETRA_GELU_TANH; form <= PETRA_GELU_ERF; form++) {
    float *x = rig_normal(N, 1, 0, 3), *dy = rig_normal(N, 2, 0, 1), *y = rig_empty(N), *dx = rig_copy(dy, N);
    x[0] = 0;
    x[1] = NAN;
    x[2] = INFINITY;
    x[3] = -40;
    RIG_LAUNCH(cuda_gelu_launch, (&(cuda_gelu_args){x, NULL, y, N, form}), 0, FLOATS(y, N));
    RIG_LAUNCH(cuda_gelu_launch, (&(cuda_gelu_args){x, dx, dx, N, form}), 0, FLOATS(dx, N));
    petra_tensor *expected = SEQUENCE(1, 1, N, NULL), *gradient = SEQUENCE(1, 1, N, NULL),
                 *input = SEQUENCE(1, 1, N, x);
    ck_assert_int_eq(rig_ref->ops->gelu_forward(rig_ref, form, input, expected), PETRA_OK);
    ck_assert_int_eq(rig_ref->ops->gelu_backward(rig_ref, form, input, SEQUENCE(1, 1, N, dy), gradient), PETRA_OK);
    rig_agree("gelu y", expected, y, 0);
    rig_agree("gelu dx", gradient, dx, 0);
    rig_end();
  }
}
END_TEST

/* --- SwiGLU --- */

START_TEST(swiglus) {
  enum { ROWS = 70, FEATURES = 43, N = ROWS * FEATURES };
  float *x = rig_normal(2 * N, 1, 0, 3), *dy = rig_normal(N, 2, 0, 1), *y = rig_empty(N), *dx = rig_empty(2 * N);
  static const float special[] = {0, NAN, INFINITY, -INFINITY, -40, 1e37f, -1e37f, -1e3f};
  for (int i = 0; i < HARNESS_COUNT(special); i++)
    x[i] = x[3 * FEATURES + 10 + i] = special[i]; /* gates of the first row, factors of the second */
  RIG_LAUNCH(cuda_swiglu_launch, (&(cuda_swiglu_args){x, NULL, y, ROWS, FEATURES}), 0, FLOATS(y, N));
  RIG_LAUNCH(cuda_swiglu_launch, (&(cuda_swiglu_args){x, dy, dx, ROWS, FEATURES}), 0, FLOATS(dx, 2 * N));
  petra_tensor *input = SEQUENCE(ROWS, 1, 2 * FEATURES, x), *expected = SEQUENCE(ROWS, 1, FEATURES, NULL);
  petra_tensor *gradient = SEQUENCE(ROWS, 1, 2 * FEATURES, NULL);
  ck_assert_int_eq(rig_ref->ops->swiglu_forward(rig_ref, input, expected), PETRA_OK);
  ck_assert_int_eq(rig_ref->ops->swiglu_backward(rig_ref, input, SEQUENCE(ROWS, 1, FEATURES, dy), gradient), PETRA_OK);
  rig_agree("swiglu y", expected, y, 0);
  rig_agree("swiglu dx", gradient, dx, 0);
  rig_end();
}
END_TEST

/* --- rotary positions --- */

START_TEST(rotaries) {
  static const int sizes[][5] = {
      {1, 1, 1, 2, 0}, {2, 7, 3, 6, 4}, {3, 30, 9, 64, 128}}; /* n, t, heads, width, others */
  for (int k = 0; k < HARNESS_COUNT(sizes); k++)
    for (int back = 0; back < 2; back++) {
      const int n = sizes[k][0], t = sizes[k][1], heads = sizes[k][2], width = sizes[k][3];
      const int columns = heads * width + sizes[k][4], count = n * t * columns;
      float *x = rig_normal(count, 1, 0, 1), *y = rig_empty(count);
      x[count / 2] = NAN; /* two elements of y */
      cuda_rotary_args a = {x, y, n * t, t, columns, heads, width, 10000, back};
      RIG_LAUNCH(cuda_rotary_launch, &a, 0, FLOATS(y, count));
      const petra_rotary expected = {SEQUENCE(n, t, columns, x),   heads, width, 10000, back,
                                     SEQUENCE(n, t, columns, NULL)};
      ck_assert_int_eq(rig_ref->ops->rotary(rig_ref, &expected), PETRA_OK);
      rig_agree("rotary", expected.y, y, 10);
      a.y = x;
      RIG_LAUNCH(cuda_rotary_launch, &a, 0, FLOATS(x, count));
      ck_assert_mem_eq(x, y, (size_t)count * sizeof *x);
      rig_end();
    }
}
END_TEST

/* --- embeddings --- */

static const int embeddings[][5] = {{1, 1, 1, 1, 1},
                                    {2, 7, 5, 3, 9},
                                    {2, 7, 5, 3, 0},
                                    {3, 300, 33, 11, 300},
                                    {40, 3, 2, 1, 4}}; /* n, t, c, rows, positions */

START_TEST(embeds) {
  for (int k = 0; k < HARNESS_COUNT(embeddings); k++) {
    const int n = embeddings[k][0], t = embeddings[k][1], c = embeddings[k][2], rows = embeddings[k][3],
              positions = embeddings[k][4], count = n * t * c;
    float *tokens = rig_empty(n * t), *table = rig_normal(rows * c, 1, 0, 1),
          *places = positions ? rig_normal(positions * c, 2, 0, 1) : NULL;
    float *y = rig_empty(count), *dy = rig_normal(count, 3, 0, 1), *dtable = rig_empty(rows * c);
    float *dpositions = positions ? rig_empty(positions * c) : NULL;
    for (int i = 0; i < n * t; i++)
      tokens[i] = (float)(i * i / 3 % (rows > 4 ? rows - 2 : rows)); /* the last two do not occur */
    const cuda_embed_args a = {tokens, table, places, y, n, t, c, rows};
    const cuda_embed_backward_args b = {tokens, dy, dtable, dpositions, n, t, c, rows, positions};
    RIG_LAUNCH(cuda_embed_launch, &a, 0, FLOATS(y, count));
    RIG_LAUNCH(cuda_embed_backward_launch, &b, cuda_embed_scratch(n, t), FLOATS(dtable, rows * c),
               FLOATS(positions ? dpositions : table, positions * c));
    petra_tensor *expected = SEQUENCE(n, t, c, NULL), *of_table = MATRIX(rows, c, NULL);
    petra_tensor *of_positions = positions ? MATRIX(positions, c, NULL) : NULL, *given = SEQUENCE(n, t, 1, tokens);
    petra_tensor *from = positions ? MATRIX(positions, c, places) : NULL;
    ck_assert_int_eq(rig_ref->ops->embed_forward(rig_ref, given, MATRIX(rows, c, table), from, expected), PETRA_OK);
    ck_assert_int_eq(rig_ref->ops->embed_backward(rig_ref, given, SEQUENCE(n, t, c, dy), of_table, of_positions),
                     PETRA_OK);
    rig_agree("embed y", expected, y, 0);
    rig_agree("embed dtable", of_table, dtable, n * t);
    if (positions)
      rig_agree("embed dpositions", of_positions, dpositions, n);
    rig_end();
  }
}
END_TEST

/* What is no row of the table: nothing outside is read (a sanitizer sees it), y is NaN there, and other rows are as without. */
START_TEST(tokens_that_are_none) {
  enum { N = 2, T = 5, C = 3, ROWS = 4 };
  static const float wrong[] = {4, -1, NAN, INFINITY, -INFINITY, 3e9f, 4.5f};
  for (int k = 0; k < HARNESS_COUNT(wrong); k++) {
    float tokens_in[N * T] = {0, 3, 2, 1, 3, wrong[k], 0, wrong[k], 3, 3};
    float *tokens = rig_copy(tokens_in, N * T), *table = rig_normal(ROWS * C, 1, 0, 1), *y = rig_empty(N * T * C);
    float *positions = rig_normal(T * C, 2, 0, 1), *dy = rig_normal(N * T * C, 3, 0, 1), *dtable = rig_empty(ROWS * C);
    float *dpositions = rig_empty(T * C);
    RIG_LAUNCH(cuda_embed_launch, (&(cuda_embed_args){tokens, table, positions, y, N, T, C, ROWS}), 0,
               FLOATS(y, N * T * C));
    RIG_LAUNCH(cuda_embed_backward_launch,
               (&(cuda_embed_backward_args){tokens, dy, dtable, dpositions, N, T, C, ROWS, T}),
               cuda_embed_scratch(N, T), FLOATS(dtable, ROWS * C), FLOATS(dpositions, T * C));
    for (int i = 0; i < N * T; i++)
      for (int c = 0; c < C; c++)
        HOLDS(i == 5 || i == 7 ? isnan(y[i * C + c])
                               : y[i * C + c] == table[(int)tokens[i] * C + c] + positions[i % T * C + c]);
    for (int i = 0; i < ROWS * C; i++) {
      double sum = 0;
      for (int place = 0; place < N * T; place++)
        sum += place != 5 && place != 7 && (int)tokens[place] == i / C ? dy[place * C + i % C] : 0;
      HOLDS(rig_near(dtable[i], sum, 10));
    }
    rig_end();
  }
}
END_TEST

/* --- patches --- */

START_TEST(patches) {
  static const int sizes[][4] = {{1, 1, 1, 1}, {2, 6, 4, 2}, {3, 8, 12, 4}, {1, 5, 10, 5}}; /* n, h, w, size */
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    const int n = sizes[k][0], h = sizes[k][1], w = sizes[k][2], size = sizes[k][3], count = n * h * w * 3;
    float *x = rig_normal(count, 1, 0, 1), *y = rig_empty(count);
    RIG_LAUNCH(cuda_patches_launch, (&(cuda_patches_args){x, y, n, h, w, size}), 0, FLOATS(y, count));
    petra_tensor *expected = SEQUENCE(n, h / size * (w / size), 3 * size * size, NULL);
    ck_assert_int_eq(rig_ref->ops->patches(rig_ref, ACTIVATION(n, 3, h, w, x), size, expected), PETRA_OK);
    rig_agree("patches", expected, y, 0);
    rig_end();
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {layer_norms, gelus, swiglus, rotaries, embeds, tokens_that_are_none, patches};
  return harness_run("cuda_sequence", tests, HARNESS_COUNT(tests));
}
