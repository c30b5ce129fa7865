/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: the operations of transformers. */
#include "cases.h"

#include "naive.h"

#include <math.h>

static petra_tensor *sequence(cases_run *run, int n, int t, int c) {
  return cases_output(run, PETRA_TENSOR_SEQUENCE, n, t, c, 1);
}

static petra_tensor *inner(cases_run *run, int n, int t, int c) {
  return cases_output(run, cases_inner(run, PETRA_TENSOR_SEQUENCE), n, t, c, 1);
}

/* p: n, positions, features; whether y is wanted; what is added to x; whether dx is dy. A row is to layer norm what a channel
 * of one image is to batch norm, but for scale and shift. */
static void layer_norm(cases_run *run, const int *p) {
  const int rows = p[0] * p[1], features = p[2], count = rows * features;
  double *host = cases_random(run, count);
  for (int i = 0; i < count; i++)
    host[i] += p[4];
  cases_tensor x = cases_given(run, PETRA_TENSOR_SEQUENCE, p[0], p[1], features, 1, host);
  cases_tensor scale = cases_input(run, PETRA_TENSOR_VECTOR, features, 1, 1, 1);
  cases_tensor shift = cases_input(run, PETRA_TENSOR_VECTOR, features, 1, 1, 1);
  cases_tensor dy = cases_input(run, PETRA_TENSOR_SEQUENCE, p[0], p[1], features, 1);
  petra_tensor *y = p[3] ? inner(run, p[0], p[1], features) : NULL, *mean = sequence(run, p[0], p[1], 1);
  petra_tensor *deviation = sequence(run, p[0], p[1], 1);
  petra_tensor *dx = p[5] ? dy.tensor : sequence(run, p[0], p[1], features);
  petra_tensor *dscale = cases_output(run, PETRA_TENSOR_VECTOR, features, 1, 1, 1);
  petra_tensor *dshift = cases_output(run, PETRA_TENSOR_VECTOR, features, 1, 1, 1);
  const naive_norm_sizes s = {1, rows, features};
  double *m = cases_array(run, rows), *v = cases_array(run, rows), *of_mean = cases_array(run, rows);
  double *ones = cases_array(run, rows), *zeros = cases_array(run, rows), *of_rows = cases_array(run, 4 * rows);
  double *z = cases_array(run, count), *of_z = cases_array(run, count), *dz = cases_array(run, count);
  double *through = cases_array(run, count), *e = cases_array(run, count), *of_e = cases_array(run, count);
  double *sums = cases_array(run, 4 * features);
  for (int i = 0; i < rows; i++)
    ones[i] = 1;
  naive_norm_statistics(&s, x.host, m, v, of_mean);
  naive_norm_apply(&s, x.host, ones, zeros, m, v, false, PETRA_JOIN_NONE, NULL, z, of_z);
  for (int i = 0; i < count; i++) {
    const int f = i % features;
    e[i] = scale.host[f] * z[i] + shift.host[f];
    of_e[i] = fabs(scale.host[f]) * of_z[i] + fabs(shift.host[f]);
    dz[i] = dy.host[i] * scale.host[f];
    sums[f] += dy.host[i] * z[i];
    sums[features + f] += fabs(dy.host[i]) * of_z[i];
    sums[2 * features + f] += dy.host[i];
    sums[3 * features + f] += fabs(dy.host[i]);
  }
  for (int i = 0; i < rows; i++)
    v[i] = sqrt(v[i] + PETRA_NORM_EPSILON);
  const petra_layer_norm_forward f = {x.tensor, scale.tensor, shift.tensor, y, mean, deviation};
  cases_ok(petra_op_layer_norm_forward(run->backend, &f));
  cases_expect(run, CASES_layer_norm_forward, mean, m, of_mean, features);
  cases_expect(run, CASES_layer_norm_forward, deviation, v, NULL, features);
  if (y)
    cases_expect(run, CASES_layer_norm_forward, y, e, of_e, features);
  for (int i = 0; i < rows; i++)
    v[i] = v[i] * v[i] - PETRA_NORM_EPSILON;
  naive_norm_backward(&s, x.host, ones, zeros, m, v, false, dz, through, e, of_rows, of_rows + rows, of_e,
                      of_rows + 2 * rows, of_rows + 3 * rows);
  const petra_layer_norm_backward b = {x.tensor, scale.tensor, mean, deviation, dy.tensor, dx, dscale, dshift};
  if (p[5])
    cases_changed(run, dx);
  cases_ok(petra_op_layer_norm_backward(run->backend, &b));
  cases_expect(run, CASES_layer_norm_backward, dx, e, of_e, features);
  cases_expect(run, CASES_layer_norm_backward, dscale, sums, sums + features, rows);
  cases_expect(run, CASES_layer_norm_backward, dshift, sums + 2 * features, sums + 3 * features, rows);
}

/* p: n, positions, features; whether y is wanted; whether dx is dy. Layer norm without a mean. */
static void rms_norm(cases_run *run, const int *p) {
  const int rows = p[0] * p[1], features = p[2], count = rows * features;
  cases_tensor x = cases_input(run, PETRA_TENSOR_SEQUENCE, p[0], p[1], features, 1);
  cases_tensor scale = cases_input(run, PETRA_TENSOR_VECTOR, features, 1, 1, 1);
  cases_tensor dy = cases_input(run, PETRA_TENSOR_SEQUENCE, p[0], p[1], features, 1);
  petra_tensor *y = p[3] ? inner(run, p[0], p[1], features) : NULL, *deviation = sequence(run, p[0], p[1], 1);
  petra_tensor *dx = p[4] ? dy.tensor : sequence(run, p[0], p[1], features);
  petra_tensor *dscale = cases_output(run, PETRA_TENSOR_VECTOR, features, 1, 1, 1);
  double *d = cases_array(run, rows), *e = cases_array(run, count), *de = cases_array(run, count);
  double *of_de = cases_array(run, count), *sums = cases_array(run, features), *of_sums = cases_array(run, features);
  for (int i = 0; i < rows; i++) {
    const double *of_x = x.host + i * features, *of_dy = dy.host + i * features;
    double squares = 0, products = 0, of_products = 0;
    for (int f = 0; f < features; f++)
      squares += of_x[f] * of_x[f];
    d[i] = sqrt(squares / features + PETRA_NORM_EPSILON);
    for (int f = 0; f < features; f++) {
      const double product = of_dy[f] * of_x[f] / d[i];
      products += scale.host[f] * product / features;
      of_products += fabs(scale.host[f] * product) / features;
      sums[f] += product;
      of_sums[f] += fabs(product);
      e[i * features + f] = scale.host[f] * of_x[f] / d[i];
    }
    for (int f = 0; f < features; f++) {
      const double g = of_dy[f] * scale.host[f], z = of_x[f] / d[i];
      de[i * features + f] = (g - z * products) / d[i];
      of_de[i * features + f] = (fabs(g) + fabs(z) * of_products) / d[i];
    }
  }
  const petra_layer_norm_forward f = {.x = x.tensor, .scale = scale.tensor, .y = y, .deviation = deviation};
  cases_ok(petra_op_layer_norm_forward(run->backend, &f));
  cases_expect(run, CASES_layer_norm_forward, deviation, d, NULL, features);
  if (y)
    cases_expect(run, CASES_layer_norm_forward, y, e, NULL, features);
  const petra_layer_norm_backward b = {
      .x = x.tensor, .scale = scale.tensor, .deviation = deviation, .dy = dy.tensor, .dx = dx, .dscale = dscale};
  if (p[4])
    cases_changed(run, dx);
  cases_ok(petra_op_layer_norm_backward(run->backend, &b));
  cases_expect(run, CASES_layer_norm_backward, dx, de, of_de, features);
  cases_expect(run, CASES_layer_norm_backward, dscale, sums, of_sums, rows);
}

/* p: form, kind, shape, what inputs of order 1 are multiplied by, whether dx is dy. */
static void gelu(cases_run *run, const int *p) {
  const petra_gelu form = (petra_gelu)p[0];
  const petra_tensor_kind kind =
      p[1] == PETRA_TENSOR_SEQUENCE ? cases_inner(run, PETRA_TENSOR_SEQUENCE) : (petra_tensor_kind)p[1];
  const int count = p[2] * p[3] * p[4];
  double *host = cases_random(run, count);
  for (int i = 0; i < count; i++)
    host[i] *= p[5];
  cases_tensor x = cases_given(run, kind, p[2], p[3], p[4], 1, host);
  cases_tensor dy = cases_input(run, kind, p[2], p[3], p[4], 1);
  petra_tensor *y = cases_output(run, kind, p[2], p[3], p[4], 1);
  petra_tensor *dx = p[6] ? dy.tensor : cases_output(run, kind, p[2], p[3], p[4], 1);
  double *e = cases_array(run, count), *de = cases_array(run, count);
  double *of_e = cases_array(run, count), *of_de = cases_array(run, count);
  for (int i = 0; i < count; i++) {
    const double v = x.host[i], slope = sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
    const double t = form == PETRA_GELU_ERF ? erf(v / sqrt(2)) : tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v));
    const double dt = form == PETRA_GELU_ERF ? 2 * exp(-v * v / 2) / sqrt(2 * M_PI) : (1 - t * t) * slope;
    e[i] = v / 2 * (1 + t);
    de[i] = dy.host[i] * ((1 + t) / 2 + v / 2 * dt);
    of_e[i] = fabs(v);
    of_de[i] = fabs(dy.host[i]);
  }
  cases_ok(petra_op_gelu_forward(run->backend, form, x.tensor, y));
  cases_expect(run, CASES_gelu_forward, y, e, of_e, 1);
  if (p[6])
    cases_changed(run, dx);
  cases_ok(petra_op_gelu_backward(run->backend, form, x.tensor, dy.tensor, dx));
  cases_expect(run, CASES_gelu_backward, dx, de, of_de, 1);
}

/* p: kind, shape of y, what inputs of order 1 are multiplied by. */
static void swiglu(cases_run *run, const int *p) {
  const petra_tensor_kind kind =
      p[0] == PETRA_TENSOR_SEQUENCE ? cases_inner(run, PETRA_TENSOR_SEQUENCE) : (petra_tensor_kind)p[0];
  const bool matrix = kind == PETRA_TENSOR_MATRIX;
  const int features = matrix ? p[2] : p[3], count = p[1] * p[2] * p[3];
  int wide[3] = {p[1], p[2], p[3]};
  wide[matrix ? 1 : 2] *= 2;
  double *host = cases_random(run, 2 * count);
  for (int i = 0; i < 2 * count; i++)
    host[i] *= p[4];
  cases_tensor x = cases_given(run, kind, wide[0], wide[1], wide[2], 1, host);
  cases_tensor dy = cases_input(run, kind, p[1], p[2], p[3], 1);
  petra_tensor *y = cases_output(run, kind, p[1], p[2], p[3], 1);
  petra_tensor *dx = cases_output(run, kind, wide[0], wide[1], wide[2], 1);
  double *e = cases_array(run, count), *de = cases_array(run, 2 * count);
  double *of_e = cases_array(run, count), *of_de = cases_array(run, 2 * count);
  for (int i = 0; i < count; i++) {
    const int of_gate = i / features * 2 * features + i % features, of_up = of_gate + features;
    const double g = x.host[of_gate], u = x.host[of_up], d = dy.host[i], s = 1 / (1 + exp(-g));
    e[i] = g * s * u;
    de[of_gate] = d * u * (s + g * s * (1 - s));
    de[of_up] = d * g * s;
    of_e[i] = fabs(g * u);
    of_de[of_gate] = fabs(d * u);
    of_de[of_up] = fabs(d * g);
  }
  cases_ok(petra_op_swiglu_forward(run->backend, x.tensor, y));
  cases_expect(run, CASES_swiglu_forward, y, e, of_e, 1);
  cases_ok(petra_op_swiglu_backward(run->backend, x.tensor, dy.tensor, dx));
  cases_expect(run, CASES_swiglu_backward, dx, de, of_de, 1);
}

/* p: n, positions, heads, width, other columns, base, whether back, whether y is x. */
static void rotary(cases_run *run, const int *p) {
  const int positions = p[1], heads = p[2], width = p[3], half = width / 2, columns = heads * width + p[4];
  cases_tensor x = cases_input(run, cases_inner(run, PETRA_TENSOR_SEQUENCE), p[0], positions, columns, 1);
  petra_tensor *y = p[7] ? x.tensor : inner(run, p[0], positions, columns);
  double *e = cases_array(run, y->elements), *of_e = cases_array(run, y->elements);
  for (int i = 0; i < p[0] * positions * columns; i++) {
    const int column = i % columns, place = column % width, t = i / columns % positions;
    if (column >= heads * width) {
      e[i] = x.host[i];
      continue;
    }
    const double angle = t * pow(p[5], -2.0 * (place % half) / width);
    const double other = (place < half) == (p[6] != 0) ? sin(angle) : -sin(angle);
    const double turned = x.host[place < half ? i + half : i - half];
    e[i] = x.host[i] * cos(angle) + turned * other;
    of_e[i] = fabs(x.host[i] * cos(angle)) + fabs(turned * other);
  }
  const petra_rotary r = {x.tensor, heads, width, p[5], p[6], y};
  if (p[7])
    cases_changed(run, y);
  cases_ok(petra_op_rotary(run->backend, &r));
  cases_expect(run, CASES_rotary, y, e, of_e, 1);
}

/* The arrays of one case of attention: what comes out, and what its error is relative to; the y that the backward reads. */
typedef struct attention_expected {
  double *y, *log_sum, *dqkv, *of_y, *of_log_sum, *of_dqkv;
  const double *y_read;
} attention_expected;

/* A query: row `i` of the sample that begins at row `first`, of one head. Where its parts begin in qkv and in y. */
typedef struct attention_query {
  int positions, width, keys, row, q, k, v, out;
  double scale, maximum; /* most: what an error of the scores is multiplied by */
} attention_query;

/* The query and its probabilities p. A score that is off by an epsilon of the sum of its absolute terms moves what depends on it by
 * as much. */
static attention_query score(const petra_attention *a, int number, const double *qkv, double *p,
                             attention_expected *e) {
  const int positions = a->y->shape[1], features = a->y->shape[2], width = features / a->heads;
  const int head = number % a->heads, at = number / a->heads, first = at / positions * positions;
  const int row = a->qkv->shape[2], kv_head = head * a->kv_heads / a->heads;
  attention_query s = {.positions = positions,
                       .width = width,
                       .keys = a->causal ? at - first + 1 : positions,
                       .row = row,
                       .q = at * row + head * width,
                       .k = first * row + features + kv_head * width,
                       .v = first * row + features + (a->kv_heads + kv_head) * width,
                       .out = at * features + head * width,
                       .scale = 1 / sqrt(width),
                       .maximum = 1};
  double sum = 0;
  for (int j = 0; j < s.keys; j++) {
    double size = 0;
    p[j] = 0;
    for (int c = 0; c < width; c++) {
      const double term = s.scale * qkv[s.q + c] * qkv[s.k + j * row + c];
      p[j] += term;
      size += fabs(term);
    }
    sum += exp(p[j]);
    s.maximum = fmax(s.maximum, 1 + size);
  }
  e->log_sum[number] = log(sum);
  e->of_log_sum[number] = s.maximum;
  for (int j = 0; j < s.keys; j++)
    p[j] = exp(p[j]) / sum;
  return s;
}

/* One query of one head, from the definition by the whole row of probabilities p. */
static void attend(const petra_attention *a, int number, const double *qkv, double *p, attention_expected *e) {
  const attention_query s = score(a, number, qkv, p, e);
  for (int j = 0; j < s.keys; j++)
    for (int c = 0; c < s.width; c++) {
      e->y[s.out + c] += p[j] * qkv[s.v + j * s.row + c];
      e->of_y[s.out + c] += s.maximum * p[j] * fabs(qkv[s.v + j * s.row + c]);
    }
}

/* Its backward: ds = p (dp - dy y), where dy y is the sum of p dp for a y that was not rounded. */
static void attend_backward(const petra_attention *a, int number, const double *qkv, const double *dy, double *p,
                            attention_expected *e) {
  const attention_query s = score(a, number, qkv, p, e);
  double *dp = p + s.positions, *of_dp = dp + s.positions, mean = 0, of_mean = 0;
  for (int j = 0; j < s.keys; j++) {
    dp[j] = of_dp[j] = 0;
    for (int c = 0; c < s.width; c++) {
      dp[j] += dy[s.out + c] * qkv[s.v + j * s.row + c];
      of_dp[j] += fabs(dy[s.out + c] * qkv[s.v + j * s.row + c]);
    }
    of_mean += p[j] * of_dp[j];
  }
  for (int c = 0; c < s.width; c++)
    mean += dy[s.out + c] * e->y_read[s.out + c];
  for (int j = 0; j < s.keys; j++)
    for (int c = 0; c < s.width; c++) {
      const int at_k = s.k + j * s.row + c, at_v = s.v + j * s.row + c;
      const double ds = s.scale * p[j] * (dp[j] - mean), of_ds = s.maximum * s.scale * p[j] * (of_dp[j] + of_mean);
      e->dqkv[s.q + c] += ds * qkv[at_k];
      e->of_dqkv[s.q + c] += of_ds * fabs(qkv[at_k]);
      e->dqkv[at_k] += ds * qkv[s.q + c];
      e->of_dqkv[at_k] += of_ds * fabs(qkv[s.q + c]);
      e->dqkv[at_v] += p[j] * dy[s.out + c];
      e->of_dqkv[at_v] += s.maximum * p[j] * fabs(dy[s.out + c]);
    }
}

/* The y that the backward reads: the forward's or, where it is narrow, the expected one rounded, so that all read the same. */
static petra_tensor *read_y(cases_run *run, petra_tensor *y, attention_expected *e) {
  e->y_read = e->y;
  if (!run->narrow)
    return y;
  double *rounded = cases_array(run, y->elements);
  memcpy(rounded, e->y, (size_t)y->elements * sizeof *rounded);
  const cases_tensor given = cases_given(run, y->kind, y->shape[0], y->shape[1], y->shape[2], 1, rounded);
  e->y_read = given.host;
  return given.tensor;
}

/* p: n, positions, features, heads, heads of keys and values, causal, what inputs of order 1 are multiplied by. */
static void attention(cases_run *run, const int *p) {
  const int n = p[0], positions = p[1], features = p[2], heads = p[3], kv_heads = p[4], rows = n * positions;
  const int row = features + 2 * kv_heads * (features / heads);
  double *host = cases_random(run, (int64_t)rows * row);
  for (int i = 0; i < rows * row; i++)
    host[i] *= p[6];
  const petra_tensor_kind kind = cases_inner(run, PETRA_TENSOR_SEQUENCE);
  cases_tensor qkv = cases_given(run, kind, n, positions, row, 1, host);
  cases_tensor dy = cases_input(run, kind, n, positions, features, 1);
  petra_tensor *y = inner(run, n, positions, features), *log_sum = sequence(run, n, positions, heads);
  petra_tensor *dqkv = inner(run, n, positions, row);
  petra_attention a = {qkv.tensor, heads, kv_heads, p[5], y, log_sum, dy.tensor, dqkv};
  attention_expected e = {.y = cases_array(run, y->elements),
                          .log_sum = cases_array(run, log_sum->elements),
                          .dqkv = cases_array(run, dqkv->elements),
                          .of_y = cases_array(run, y->elements),
                          .of_log_sum = cases_array(run, log_sum->elements),
                          .of_dqkv = cases_array(run, dqkv->elements)};
  double *room = cases_array(run, 3 * positions);
  for (int i = 0; i < rows * heads; i++)
    attend(&a, i, qkv.host, room, &e);
  petra_tensor *y_read = read_y(run, y, &e);
  for (int i = 0; i < rows * heads; i++)
    attend_backward(&a, i, qkv.host, dy.host, room, &e);
  cases_ok(petra_op_attention_forward(run->backend, &a));
  cases_expect(run, CASES_attention_forward, y, e.y, e.of_y, positions);
  cases_expect(run, CASES_attention_forward, log_sum, e.log_sum, e.of_log_sum, positions);
  a.y = y_read;
  cases_ok(petra_op_attention_backward(run->backend, &a));
  cases_expect(run, CASES_attention_backward, dqkv, e.dqkv, e.of_dqkv, positions * heads / kv_heads);
}

/* p: n, positions, features, rows of the table, rows of the positions (0: there are none). Tokens are no input that may be NaN. */
static void embed(cases_run *run, const int *p) {
  const int rows = p[0] * p[1], features = p[2];
  petra_tensor *tokens = sequence(run, p[0], p[1], 1), *y = sequence(run, p[0], p[1], features);
  cases_tensor table = cases_input(run, PETRA_TENSOR_MATRIX, p[3], features, 1, 1);
  cases_tensor positions = {0};
  if (p[4] > 0)
    positions = cases_input(run, PETRA_TENSOR_MATRIX, p[4], features, 1, 1);
  cases_tensor dy = cases_input(run, PETRA_TENSOR_SEQUENCE, p[0], p[1], features, 1);
  petra_tensor *dtable = cases_output(run, PETRA_TENSOR_MATRIX, p[3], features, 1, 1);
  petra_tensor *dpositions = p[4] > 0 ? cases_output(run, PETRA_TENSOR_MATRIX, p[4], features, 1, 1) : NULL;
  double *token = cases_array(run, rows), *e = cases_array(run, y->elements), *of_e = cases_array(run, y->elements);
  double *dt = cases_array(run, dtable->elements), *of_dt = cases_array(run, dtable->elements);
  double *dp = cases_array(run, (int64_t)p[4] * features), *of_dp = cases_array(run, (int64_t)p[4] * features);
  for (int i = 0; i < rows; i++) {
    token[i] = i % 3 == 0 ? p[3] - 1 : i * 5 % p[3]; /* the last one often; some never */
    for (int c = 0; c < features; c++) {
      const int in_table = (int)token[i] * features + c, in_positions = i % p[1] * features + c, at = i * features + c;
      e[at] = table.host[in_table];
      of_e[at] = fabs(table.host[in_table]);
      dt[in_table] += dy.host[at];
      of_dt[in_table] += fabs(dy.host[at]);
      if (p[4] == 0)
        continue;
      e[at] += positions.host[in_positions];
      of_e[at] += fabs(positions.host[in_positions]);
      dp[in_positions] += dy.host[at];
      of_dp[in_positions] += fabs(dy.host[at]);
    }
  }
  cases_ok(petra_op_upload(run->backend, tokens, token, PETRA_HOST_F64));
  cases_ok(petra_op_embed_forward(run->backend, tokens, table.tensor, positions.tensor, y));
  cases_expect(run, CASES_embed_forward, y, e, of_e, 1);
  cases_ok(petra_op_embed_backward(run->backend, tokens, dy.tensor, dtable, dpositions));
  cases_expect(run, CASES_embed_backward, dtable, dt, of_dt, rows);
  if (dpositions)
    cases_expect(run, CASES_embed_backward, dpositions, dp, of_dp, p[0]);
}

/* p: n, height, width, size. */
static void patches(cases_run *run, const int *p) {
  const int n = p[0], height = p[1], width = p[2], size = p[3], down = height / size, across = width / size;
  cases_tensor images = cases_input(run, PETRA_TENSOR_ACTIVATION, n, 3, height, width);
  petra_tensor *y = sequence(run, n, down * across, 3 * size * size);
  double *e = cases_array(run, y->elements);
  for (int i = 0; i < n * 3 * height * width; i++) {
    const int w = i % width, h = i / width % height, channel = i / width / height % 3, image = i / width / height / 3;
    const int patch = (image * down + h / size) * across + w / size;
    e[(patch * 3 + channel) * size * size + h % size * size + w % size] = images.host[i];
  }
  cases_ok(petra_op_patches(run->backend, images.tensor, size, y));
  cases_expect(run, CASES_patches, y, e, NULL, 1);
}

/* p: n, positions, features, columns of the matrix, first column. */
static void mean_positions(cases_run *run, const int *p) {
  const int n = p[0], positions = p[1], features = p[2], columns = p[3], first = p[4];
  cases_tensor x = cases_input(run, PETRA_TENSOR_SEQUENCE, n, positions, features, 1);
  cases_tensor y = cases_input(run, PETRA_TENSOR_MATRIX, n, columns, 1, 1); /* the other columns stay */
  cases_tensor dy = cases_input(run, PETRA_TENSOR_MATRIX, n, columns, 1, 1);
  petra_tensor *dx = sequence(run, n, positions, features);
  cases_changed(run, y.tensor);
  double *expected = cases_array(run, y.tensor->elements), *scale = cases_array(run, y.tensor->elements);
  double *gradient = cases_array(run, dx->elements);
  memcpy(expected, y.host, (size_t)y.tensor->elements * sizeof *expected);
  for (int i = 0; i < n * features; i++)
    expected[i / features * columns + first + i % features] = 0;
  for (int i = 0; i < n * positions * features; i++) {
    const int at = i / features / positions * columns + first + i % features;
    expected[at] += x.host[i] / positions;
    scale[at] += fabs(x.host[i]) / positions;
    gradient[i] = dy.host[at] / positions;
  }
  cases_ok(petra_op_mean_positions_forward(run->backend, x.tensor, y.tensor, first));
  cases_expect(run, CASES_mean_positions_forward, y.tensor, expected, scale, positions);
  cases_ok(petra_op_mean_positions_backward(run->backend, dy.tensor, first, dx));
  cases_expect(run, CASES_mean_positions_backward, dx, gradient, NULL, 1);
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

const cases_entry cases_sequence[] = {
    CASE(layer_norm, 1, 1, 1, true, 0, false),
    CASE(layer_norm, 1, 1, 17, true, 0, true),
    CASE(layer_norm, 3, 5, 20, true, 0, true),
    CASE(layer_norm, 2, 7, 33, false, 0, false),
    CASE(layer_norm, 2, 3, 48, true, 50, false), /* a mean far from 0 */
    CASE(layer_norm, 3, 70, 96, true, 0, false), /* split among threads */
    CASE(gelu, PETRA_GELU_TANH, PETRA_TENSOR_SEQUENCE, 1, 1, 1, 1, false),
    CASE(gelu, PETRA_GELU_ERF, PETRA_TENSOR_SEQUENCE, 1, 1, 1, 1, true),
    CASE(gelu, PETRA_GELU_TANH, PETRA_TENSOR_SEQUENCE, 3, 5, 17, 4, true),
    CASE(gelu, PETRA_GELU_ERF, PETRA_TENSOR_SEQUENCE, 3, 5, 17, 4, false),
    CASE(gelu, PETRA_GELU_TANH, PETRA_TENSOR_MATRIX, 7, 33, 1, 40, false), /* flat on both sides */
    CASE(gelu, PETRA_GELU_ERF, PETRA_TENSOR_MATRIX, 7, 33, 1, 40, true),
    CASE(gelu, PETRA_GELU_TANH, PETRA_TENSOR_SEQUENCE, 3, 70, 80, 8, false), /* split among threads */
    CASE(gelu, PETRA_GELU_ERF, PETRA_TENSOR_SEQUENCE, 3, 70, 80, 8, false),
    CASE(rms_norm, 1, 1, 1, true, false),
    CASE(rms_norm, 1, 1, 17, true, true),
    CASE(rms_norm, 3, 5, 20, true, false),
    CASE(rms_norm, 2, 7, 33, false, true),
    CASE(rms_norm, 3, 70, 96, true, false), /* split among threads */
    CASE(swiglu, PETRA_TENSOR_SEQUENCE, 1, 1, 1, 1),
    CASE(swiglu, PETRA_TENSOR_SEQUENCE, 3, 5, 17, 8),
    CASE(swiglu, PETRA_TENSOR_MATRIX, 7, 33, 1, 300),   /* beyond the range of exp in f32 */
    CASE(swiglu, PETRA_TENSOR_SEQUENCE, 3, 70, 80, 4),  /* split among threads */
    CASE(swiglu, PETRA_TENSOR_SEQUENCE, 1, 1, 4100, 4), /* a row longer than a chunk */
    CASE(rotary, 1, 1, 1, 2, 0, 10000, false, false),
    CASE(rotary, 2, 5, 3, 4, 0, 10000, false, true),
    CASE(rotary, 2, 7, 3, 6, 5, 100, true, false),
    CASE(rotary, 2, 7, 3, 6, 5, 100, false, true),
    CASE(rotary, 3, 70, 5, 34, 34, 500000, false, false), /* split among threads */
    CASE(rotary, 3, 70, 5, 34, 34, 10000, true, true),
    CASE(attention, 1, 1, 1, 1, 1, true, 1),
    CASE(attention, 2, 1, 6, 3, 3, false, 1),
    CASE(attention, 2, 5, 12, 1, 1, true, 1),
    CASE(attention, 3, 7, 21, 3, 3, true, 2),
    CASE(attention, 3, 7, 21, 3, 3, false, 2),
    CASE(attention, 1, 17, 16, 1, 1, false, 6), /* scores of order 100 */
    CASE(attention, 1, 130, 48, 3, 3, true, 1), /* more positions than a tile has */
    CASE(attention, 1, 130, 40, 1, 1, false, 1),
    CASE(attention, 2, 1, 6, 3, 1, false, 1),
    CASE(attention, 3, 7, 24, 6, 2, true, 2),
    CASE(attention, 3, 7, 24, 6, 3, false, 2),
    CASE(attention, 2, 130, 24, 4, 1, true, 1),
    CASE(attention, 1, 70, 24, 4, 2, false, 1),
    CASE(embed, 1, 1, 1, 1, 1),
    CASE(embed, 3, 5, 17, 11, 8),
    CASE(embed, 3, 5, 17, 11, 0),
    CASE(embed, 2, 70, 128, 65, 70), /* split among threads */
    CASE(embed, 2, 70, 128, 65, 0),
    CASE(patches, 1, 1, 1, 1),
    CASE(patches, 3, 4, 6, 2),
    CASE(patches, 2, 12, 9, 3),
    CASE(patches, 7, 32, 32, 4), /* split among threads */
    CASE(mean_positions, 1, 1, 1, 1, 0),
    CASE(mean_positions, 3, 5, 17, 40, 5),
    CASE(mean_positions, 2, 64, 160, 160, 0), /* split among threads */
    {0},
};
