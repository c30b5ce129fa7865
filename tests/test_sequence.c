/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of transformers: backward against finite differences, values at the edges, and what is refused. */
#include "op_gradients.h"

#include <math.h>

static petra_tensor *sequence(int n, int t, int c) {
  return drawn(PETRA_TENSOR_SEQUENCE, n, t, c, 1);
}

static petra_tensor *matrix(int rows, int columns) {
  return drawn(PETRA_TENSOR_MATRIX, rows, columns, 1, 1);
}

static petra_tensor *vector(int n) {
  return drawn(PETRA_TENSOR_VECTOR, n, 1, 1, 1);
}

/* --- gradients --- */

typedef struct part {
  petra_tensor *r; /* the weights of the loss */
  petra_linear_forward linear;
  petra_layer_norm_forward norm;
  petra_attention attention;
  petra_rotary rotary;
  petra_gelu form;
  petra_tensor *x, *y, *tokens, *table, *positions;
  petra_cross_entropy loss;
} part;

static double linear_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_linear_forward(backend, &p->linear));
  return weighted(p->r, p->linear.y);
}

START_TEST(linear) {
  static const double sign[] = {1, 1, -1};
  for (int join = PETRA_JOIN_NONE; join <= PETRA_JOIN_SUBTRACT; join++) {
    open_backend();
    part p = {
        .r = sequence(2, 3, 4),
        .linear = {sequence(2, 3, 5), matrix(4, 5), vector(4), (petra_join)join, sequence(2, 3, 4), sequence(2, 3, 4)}};
    petra_tensor *dz = like(p.r), *dx = like(p.linear.x), *dw = like(p.linear.w), *db = like(p.linear.b);
    cases_ok(petra_op_fill(backend, dz, 0));
    cases_ok(petra_op_axpy(backend, sign[join], p.r, dz));
    cases_ok(petra_op_linear_backward_data(backend, dz, p.linear.w, dx));
    cases_ok(petra_op_linear_backward_weights(backend, p.linear.x, dz, dw, db));
    check_gradient("linear dx", linear_loss, &p, (petra_tensor *)p.linear.x, dx);
    check_gradient("linear dw", linear_loss, &p, (petra_tensor *)p.linear.w, dw);
    check_gradient("linear db", linear_loss, &p, (petra_tensor *)p.linear.b, db);
    if (join != PETRA_JOIN_NONE)
      check_gradient("linear daddend", linear_loss, &p, (petra_tensor *)p.linear.addend, p.r);
    close_backend();
  }
}
END_TEST

static double norm_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_layer_norm_forward(backend, &p->norm));
  return weighted(p->r, p->norm.y);
}

START_TEST(layer_norm) {
  open_backend();
  part p = {.r = sequence(2, 3, 5),
            .norm = {sequence(2, 3, 5), vector(5), vector(5), sequence(2, 3, 5), sequence(2, 3, 1), sequence(2, 3, 1)}};
  petra_tensor *dx = like(p.r), *dscale = vector(5), *dshift = vector(5);
  norm_loss(&p);
  const petra_layer_norm_backward b = {p.norm.x, p.norm.scale, p.norm.mean, p.norm.deviation, p.r, dx, dscale, dshift};
  cases_ok(petra_op_layer_norm_backward(backend, &b));
  check_gradient("layer_norm dx", norm_loss, &p, (petra_tensor *)p.norm.x, dx);
  check_gradient("layer_norm dscale", norm_loss, &p, (petra_tensor *)p.norm.scale, dscale);
  check_gradient("layer_norm dshift", norm_loss, &p, (petra_tensor *)p.norm.shift, dshift);
  close_backend();
}
END_TEST

START_TEST(rms_norm) {
  open_backend();
  part p = {
      .r = sequence(2, 3, 5),
      .norm = {.x = sequence(2, 3, 5), .scale = vector(5), .y = sequence(2, 3, 5), .deviation = sequence(2, 3, 1)}};
  petra_tensor *dx = like(p.r), *dscale = vector(5);
  norm_loss(&p);
  const petra_layer_norm_backward b = {
      .x = p.norm.x, .scale = p.norm.scale, .deviation = p.norm.deviation, .dy = p.r, .dx = dx, .dscale = dscale};
  cases_ok(petra_op_layer_norm_backward(backend, &b));
  check_gradient("rms_norm dx", norm_loss, &p, (petra_tensor *)p.norm.x, dx);
  check_gradient("rms_norm dscale", norm_loss, &p, (petra_tensor *)p.norm.scale, dscale);
  close_backend();
}
END_TEST

static double gelu_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_gelu_forward(backend, p->form, p->x, p->y));
  return weighted(p->r, p->y);
}

START_TEST(gelu) {
  for (int form = PETRA_GELU_TANH; form <= PETRA_GELU_ERF; form++) {
    open_backend();
    part p = {.form = (petra_gelu)form, .x = sequence(2, 3, 7), .y = sequence(2, 3, 7), .r = sequence(2, 3, 7)};
    petra_tensor *dx = like(p.x);
    cases_ok(petra_op_axpy(backend, 2, p.r, p.x)); /* of order 3 */
    cases_ok(petra_op_gelu_backward(backend, p.form, p.x, p.r, dx));
    check_gradient("gelu", gelu_loss, &p, p.x, dx);
    close_backend();
  }
}
END_TEST

static double swiglu_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_swiglu_forward(backend, p->x, p->y));
  return weighted(p->r, p->y);
}

START_TEST(swiglu) {
  open_backend();
  part p = {.x = sequence(2, 3, 14), .y = sequence(2, 3, 7), .r = sequence(2, 3, 7)};
  petra_tensor *dx = like(p.x);
  cases_ok(petra_op_scale(backend, 3, p.x));
  cases_ok(petra_op_swiglu_backward(backend, p.x, p.r, dx));
  check_gradient("swiglu", swiglu_loss, &p, p.x, dx);
  close_backend();
}
END_TEST

static double rotary_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_rotary(backend, &p->rotary));
  return weighted(p->r, p->rotary.y);
}

START_TEST(rotary) {
  open_backend();
  petra_tensor *x = sequence(2, 5, 15), *dx = like(x);
  part p = {.r = sequence(2, 5, 15), .rotary = {x, 2, 6, 100, false, like(x)}};
  cases_ok(petra_op_rotary(backend, &(petra_rotary){p.r, 2, 6, 100, true, dx}));
  check_gradient("rotary", rotary_loss, &p, x, dx);
  close_backend();
}
END_TEST

static double attention_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_attention_forward(backend, &p->attention));
  return weighted(p->r, p->attention.y);
}

START_TEST(attention) {
  static const int kv_heads[] = {4, 2, 1};
  for (int k = 0; k < 2 * HARNESS_COUNT(kv_heads); k++) {
    const int kv = kv_heads[k / 2], causal = k % 2;
    open_backend();
    petra_tensor *qkv = sequence(2, 4, 8 + 4 * kv);
    petra_tensor *r = sequence(2, 4, 8), *y = sequence(2, 4, 8), *log_sum = sequence(2, 4, 4), *dqkv = like(qkv);
    part p = {.r = r, .attention = {qkv, 4, kv, causal, y, log_sum, r, dqkv}};
    attention_loss(&p);
    cases_ok(petra_op_attention_backward(backend, &p.attention));
    check_gradient(causal ? "attention, causal" : "attention", attention_loss, &p, qkv, dqkv);
    close_backend();
  }
}
END_TEST

static double embed_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_embed_forward(backend, p->tokens, p->table, p->positions, p->y));
  return weighted(p->r, p->y);
}

START_TEST(embed) {
  static const double tokens[] = {4, 0, 2, 4, 4, 1};
  open_backend();
  part p = {.r = sequence(2, 3, 4), .y = sequence(2, 3, 4), .tokens = sequence(2, 3, 1), .table = matrix(5, 4)};
  p.positions = matrix(4, 4); /* one more than there are */
  upload(p.tokens, tokens);
  petra_tensor *dtable = like(p.table), *dpositions = like(p.positions);
  cases_ok(petra_op_embed_backward(backend, p.tokens, p.r, dtable, dpositions));
  check_gradient("embed dtable", embed_loss, &p, p.table, dtable);
  check_gradient("embed dpositions", embed_loss, &p, p.positions, dpositions);
  p.positions = NULL;
  cases_ok(petra_op_embed_backward(backend, p.tokens, p.r, dtable, NULL));
  check_gradient("embed dtable without positions", embed_loss, &p, p.table, dtable);
  close_backend();
}
END_TEST

static double mean_loss(void *context) {
  part *p = context;
  cases_ok(petra_op_mean_positions_forward(backend, p->x, p->y, 2));
  return weighted(p->r, p->y);
}

START_TEST(mean_positions) {
  open_backend();
  part p = {.x = sequence(2, 3, 4), .y = matrix(2, 7), .r = matrix(2, 7)};
  petra_tensor *dx = like(p.x);
  cases_ok(petra_op_mean_positions_backward(backend, p.r, 2, dx));
  check_gradient("mean_positions", mean_loss, &p, p.x, dx);
  close_backend();
}
END_TEST

static double token_loss(void *context) {
  part *p = context;
  petra_cross_entropy loss = p->loss;
  loss.dlogits = NULL;
  cases_ok(petra_op_cross_entropy(backend, &loss));
  return loss.loss;
}

START_TEST(cross_entropy) {
  static const int32_t labels[] = {0, 3, 1, 1, 2, 3};
  open_backend();
  petra_tensor *logits = sequence(2, 3, 4), *dlogits = like(logits);
  part p = {.loss = {.logits = logits, .labels = labels, .dlogits = dlogits}};
  cases_ok(petra_op_cross_entropy(backend, &p.loss));
  check_gradient("cross_entropy of tokens", token_loss, &p, logits, dlogits);
  close_backend();
}
END_TEST

static void open_kind(petra_backend_kind kind) {
  open_backend();
  petra_backend_destroy(backend);
  cases_ok(petra_backend_create(kind, PETRA_PRECISION_FP32, 1, true, &backend));
}

/* --- values --- */

static const petra_backend_kind kinds[] = {PETRA_BACKEND_REF, PETRA_BACKEND_CPU};

/* Feature i of a head is turned with feature i + width / 2, by the position times base^(-2 i / width); computed by hand. */
START_TEST(rotary_layout) {
  static const double x[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5};
  static const double expected[] = {1,
                                    2,
                                    3,
                                    4,
                                    5, /* cos 1, sin 1; cos 0.01, sin 0.01; the same of 2 and 0.02 */
                                    1 * 0.5403023058681398 - 3 * 0.8414709848078965,
                                    2 * 0.9999500004166653 - 4 * 0.009999833334166665,
                                    3 * 0.5403023058681398 + 1 * 0.8414709848078965,
                                    4 * 0.9999500004166653 + 2 * 0.009999833334166665,
                                    5,
                                    1 * -0.4161468365471424 - 3 * 0.9092974268256817,
                                    2 * 0.9998000066665778 - 4 * 0.01999866669333308,
                                    3 * -0.4161468365471424 + 1 * 0.9092974268256817,
                                    4 * 0.9998000066665778 + 2 * 0.01999866669333308,
                                    5};
  for (int k = 0; k < HARNESS_COUNT(kinds); k++) {
    double found[15];
    open_kind(kinds[k]);
    petra_tensor *t = sequence(1, 3, 5), *turned = like(t);
    upload(t, x);
    cases_ok(petra_op_rotary(backend, &(petra_rotary){t, 1, 4, 10000, false, turned}));
    download(turned, found);
    for (int i = 0; i < 15; i++)
      cases_require(fabs(found[i] - expected[i]) < 1e-6, "[%d]: %.9g, expected %.9g", i, found[i], expected[i]);
    cases_ok(petra_op_rotary(backend, &(petra_rotary){turned, 1, 4, 10000, true, turned}));
    download(turned, found);
    for (int i = 0; i < 15; i++)
      cases_require(fabs(found[i] - x[i]) < 2e-6, "[%d] and back: %.9g, expected %.9g", i, found[i], x[i]);
    close_backend();
  }
}
END_TEST

/* Gates beyond the range of exp: SiLU is 0 or the gate, and its derivative 0 or 1. */
START_TEST(swiglu_extremes) {
  static const double x[] = {-3e38, -1e4, -89, 89, 1e4, 3e38, 1, 1, 1, 1, 1, 1}, ones[] = {1, 1, 1, 1, 1, 1};
  for (int k = 0; k < HARNESS_COUNT(kinds); k++) {
    double y[6], gradient[12];
    open_kind(kinds[k]);
    petra_tensor *t = sequence(1, 1, 12), *out = sequence(1, 1, 6), *dy = like(out), *dx = like(t);
    upload(t, x);
    upload(dy, ones);
    cases_ok(petra_op_swiglu_forward(backend, t, out));
    cases_ok(petra_op_swiglu_backward(backend, t, dy, dx));
    download(out, y);
    download(dx, gradient);
    for (int i = 0; i < 6; i++) {
      const double expected = i < 3 ? 0 : (double)(float)x[i];
      cases_require(fabs(y[i] - expected) < 1e-30 && fabs(gradient[6 + i] - expected) < 1e-30, "%g: %g, %g", x[i], y[i],
                    gradient[6 + i]);
      cases_require(fabs(gradient[i] - (i >= 3)) < 1e-30, "derivative at %g: %g", x[i], gradient[i]);
    }
    close_backend();
  }
}
END_TEST

/* --- refusals --- */

#define REFUSED ck_assert_refused

static void refuse_linear(petra_backend_kind kind) {
  open_kind(kind);
  petra_tensor *x = sequence(2, 3, 5), *w = matrix(4, 5), *b = vector(4), *y = sequence(2, 3, 4), *m = matrix(6, 4);
  const petra_linear_forward good = {.x = x, .w = w, .b = b, .y = y};
  petra_linear_forward a;
#define BAD(status, text, ...)                                                                                         \
  do {                                                                                                                 \
    a = good;                                                                                                          \
    __VA_ARGS__;                                                                                                       \
    REFUSED(status, "linear_forward: " text, petra_op_linear_forward(backend, &a));                                    \
  } while (0)
  BAD(SHAPE, "w is a matrix of shape (6, 4, 1, 1), expected a matrix of shape (any, 5, 1, 1)", a.w = m);
  BAD(SHAPE, "b is a matrix", a.b = m);
  BAD(SHAPE, "y is a matrix of shape (6, 4, 1, 1), expected a sequence of shape (2, 3, 4, 1)", a.y = m);
  BAD(SHAPE, "x is a vector, expected a matrix or a sequence", a.x = b);
  BAD(INTERNAL, "tensor w is missing", a.w = NULL);
  BAD(INTERNAL, "tensor addend is missing", a.join = PETRA_JOIN_ADD);
  BAD(SHAPE, "addend is a sequence of shape (2, 3, 5, 1)", a.join = PETRA_JOIN_ADD; a.addend = x);
  BAD(INTERNAL, "there is no activation", a.join = PETRA_JOIN_ADD_ACTIVATE);
  petra_tensor *square = matrix(5, 5);
  a = (petra_linear_forward){.x = square, .w = w, .y = w};
  REFUSED(SHAPE, "linear_forward: y is a matrix of shape (4, 5, 1, 1)", petra_op_linear_forward(backend, &a));
  a = (petra_linear_forward){.x = square, .w = square, .y = square};
  REFUSED(INTERNAL, "the output y is the same tensor as x", petra_op_linear_forward(backend, &a));
  REFUSED(SHAPE, "linear_backward_data: w is a matrix", petra_op_linear_backward_data(backend, x, w, x));
  REFUSED(SHAPE, "linear_backward_data: dx is a sequence", petra_op_linear_backward_data(backend, y, w, y));
  REFUSED(INTERNAL, "linear_backward_data: the output dx is the same tensor as w",
          petra_op_linear_backward_data(backend, like(square), square, square));
  REFUSED(SHAPE, "linear_backward_weights: dy is a matrix", petra_op_linear_backward_weights(backend, x, m, w, b));
  REFUSED(SHAPE, "linear_backward_weights: dw is a matrix", petra_op_linear_backward_weights(backend, x, y, m, b));
  REFUSED(SHAPE, "linear_backward_weights: db is a matrix", petra_op_linear_backward_weights(backend, x, y, w, m));
  close_backend();
}

static void refuse_others(petra_backend_kind kind) {
  open_kind(kind);
  petra_tensor *x = sequence(2, 3, 6), *y = sequence(2, 3, 6), *three = sequence(2, 3, 18),
               *twelve = sequence(2, 3, 12), *m = matrix(4, 6);
  petra_tensor *one = sequence(2, 3, 1), *other = sequence(2, 3, 1), *v = vector(6), *v2 = vector(6);
  petra_tensor *table = matrix(2, 6), *single = vector(1), *image = drawn(PETRA_TENSOR_ACTIVATION, 2, 3, 4, 6),
               *turned = sequence(3, 2, 6);
  REFUSED(SHAPE, "layer_norm_forward: shift is a matrix",
          petra_op_layer_norm_forward(backend, &(petra_layer_norm_forward){x, v, m, y, one, other}));
  REFUSED(SHAPE, "layer_norm_forward: mean is a sequence",
          petra_op_layer_norm_forward(backend, &(petra_layer_norm_forward){x, v, v2, y, x, other}));
  REFUSED(INTERNAL, "layer_norm_forward: the output mean is the same tensor as deviation",
          petra_op_layer_norm_forward(backend, &(petra_layer_norm_forward){x, NULL, NULL, NULL, one, one}));
  REFUSED(INTERNAL, "layer_norm_forward: the output y is the same tensor as x",
          petra_op_layer_norm_forward(backend, &(petra_layer_norm_forward){x, v, v2, x, one, other}));
  REFUSED(INTERNAL, "layer_norm_backward: the output dx is the same tensor as x",
          petra_op_layer_norm_backward(backend, &(petra_layer_norm_backward){x, v, one, other, y, x, v2, v}));
  REFUSED(INTERNAL, "layer_norm_forward: shift without mean, expected both or neither",
          petra_op_layer_norm_forward(backend, &(petra_layer_norm_forward){x, v, v2, y, NULL, other}));
  REFUSED(INTERNAL, "layer_norm_forward: the output y is the same tensor as deviation",
          petra_op_layer_norm_forward(backend, &(petra_layer_norm_forward){one, single, NULL, other, NULL, other}));
  REFUSED(INTERNAL, "layer_norm_backward: dshift without mean, expected both or neither",
          petra_op_layer_norm_backward(backend, &(petra_layer_norm_backward){x, v, NULL, other, y, y, v2, v}));
  REFUSED(INTERNAL, "layer_norm_backward: tensor dshift is missing",
          petra_op_layer_norm_backward(backend, &(petra_layer_norm_backward){x, v, one, other, y, y, v2, NULL}));
  REFUSED(INTERNAL, "layer_norm_backward: the output dscale is the same tensor as dshift",
          petra_op_layer_norm_backward(backend, &(petra_layer_norm_backward){x, v, one, other, y, y, v2, v2}));
  REFUSED(SHAPE, "gelu_forward: y is a sequence of shape (3, 2, 6, 1)",
          petra_op_gelu_forward(backend, PETRA_GELU_ERF, x, turned));
  REFUSED(INTERNAL, "gelu_backward: the output dx is the same tensor as x",
          petra_op_gelu_backward(backend, PETRA_GELU_ERF, x, y, x));
  REFUSED(SHAPE, "attention_forward: 4 heads, expected a divisor of 6 features",
          petra_op_attention_forward(backend, &(petra_attention){three, 4, 4, true, y, one, NULL, NULL}));
  REFUSED(SHAPE, "attention_forward: 0 heads",
          petra_op_attention_forward(backend, &(petra_attention){three, 0, 0, true, y, one, NULL, NULL}));
  REFUSED(SHAPE,
          "attention_forward: qkv is a sequence of shape (2, 3, 6, 1), expected a sequence of shape (2, 3, 18, 1)",
          petra_op_attention_forward(backend, &(petra_attention){x, 1, 1, true, y, one, NULL, NULL}));
  REFUSED(SHAPE, "attention_forward: 2 heads of keys and values, expected a divisor of 3 heads",
          petra_op_attention_forward(backend, &(petra_attention){three, 3, 2, true, y, one, NULL, NULL}));
  REFUSED(SHAPE, "attention_forward: 0 heads of keys and values",
          petra_op_attention_forward(backend, &(petra_attention){three, 3, 0, true, y, one, NULL, NULL}));
  REFUSED(SHAPE,
          "attention_forward: qkv is a sequence of shape (2, 3, 18, 1), expected a sequence of shape (2, 3, 10, 1)",
          petra_op_attention_forward(backend, &(petra_attention){three, 3, 1, true, y, one, NULL, NULL}));
  REFUSED(SHAPE, "attention_forward: log_sum is a sequence",
          petra_op_attention_forward(backend, &(petra_attention){three, 2, 2, true, y, one, NULL, NULL}));
  REFUSED(INTERNAL, "attention_backward: the output dqkv is the same tensor as qkv",
          petra_op_attention_backward(backend, &(petra_attention){three, 1, 1, true, y, one, x, three}));
  REFUSED(SHAPE, "rotary: heads of 3 features, expected an even number",
          petra_op_rotary(backend, &(petra_rotary){x, 2, 3, 10000, false, y}));
  REFUSED(SHAPE, "rotary: heads of 0 features", petra_op_rotary(backend, &(petra_rotary){x, 2, 0, 10000, false, y}));
  REFUSED(SHAPE, "rotary: 4 heads of 2 features, expected at least 1 head and at most 6 features in all",
          petra_op_rotary(backend, &(petra_rotary){x, 4, 2, 10000, false, y}));
  REFUSED(SHAPE, "rotary: 0 heads", petra_op_rotary(backend, &(petra_rotary){x, 0, 2, 10000, false, y}));
  REFUSED(INTERNAL, "rotary: the base is 0, expected a number above 0",
          petra_op_rotary(backend, &(petra_rotary){x, 3, 2, 0, false, y}));
  REFUSED(INTERNAL, "rotary: the base is nan", petra_op_rotary(backend, &(petra_rotary){x, 3, 2, NAN, false, y}));
  REFUSED(SHAPE, "rotary: y is a sequence of shape (3, 2, 6, 1)",
          petra_op_rotary(backend, &(petra_rotary){x, 3, 2, 10000, false, turned}));
  REFUSED(SHAPE, "swiglu_forward: x has 1 features, expected an even number", petra_op_swiglu_forward(backend, one, y));
  REFUSED(SHAPE, "swiglu_forward: y is a sequence of shape (2, 3, 6, 1), expected a sequence of shape (2, 3, 3, 1)",
          petra_op_swiglu_forward(backend, x, y));
  REFUSED(SHAPE, "swiglu_backward: dy is a sequence", petra_op_swiglu_backward(backend, x, y, three));
  REFUSED(INTERNAL, "swiglu_backward: the output dx is the same tensor as x",
          petra_op_swiglu_backward(backend, twelve, y, twelve));
  REFUSED(SHAPE, "embed_forward: tokens is a sequence", petra_op_embed_forward(backend, x, m, m, y));
  REFUSED(SHAPE, "embed_forward: positions has 2 rows, expected one for each of 3 positions",
          petra_op_embed_forward(backend, one, m, table, y));
  REFUSED(INTERNAL, "embed_backward: the output dtable is the same tensor as dpositions",
          petra_op_embed_backward(backend, one, x, m, m));
  REFUSED(SHAPE, "patches: patches of size 3, expected a divisor of the height 4 and the width 6",
          petra_op_patches(backend, image, 3, y));
  REFUSED(SHAPE, "patches: y is a sequence of shape (2, 3, 6, 1), expected a sequence of shape (2, 6, 12, 1)",
          petra_op_patches(backend, image, 2, y));
  REFUSED(SHAPE, "mean_positions_forward: 6 columns from column 1, but y has 6",
          petra_op_mean_positions_forward(backend, x, table, 1));
  close_backend();
}

/* A row of the table is read for a token that has one, and for no other. */
static void refuse_tokens(petra_backend_kind kind) {
  static const double good[] = {0, 1, 4, 3, 2, 4}, bad[] = {5, -1, 1.5, 1e9, NAN, INFINITY};
  open_kind(kind);
  petra_tensor *tokens = sequence(2, 3, 1), *table = matrix(5, 2), *positions = matrix(3, 2), *y = sequence(2, 3, 2);
  petra_tensor *dtable = matrix(5, 2), *dpositions = matrix(3, 2);
  for (int i = 0; i < HARNESS_COUNT(bad); i++) {
    double host[6];
    memcpy(host, good, sizeof host);
    upload(tokens, host);
    cases_ok(petra_op_embed_forward(backend, tokens, table, positions, y));
    host[4] = bad[i];
    upload(tokens, host);
    REFUSED(BACKEND, "at position 1 of sample 1, expected a whole number from 0 to 4",
            petra_op_embed_forward(backend, tokens, table, positions, y));
    REFUSED(BACKEND, "embed_backward: token ", petra_op_embed_backward(backend, tokens, y, dtable, dpositions));
  }
  close_backend();
}

START_TEST(refusals) {
  for (int i = 0; i < HARNESS_COUNT(kinds); i++) {
    refuse_linear(kinds[i]);
    refuse_others(kinds[i]);
    refuse_tokens(kinds[i]);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {linear,        layer_norm,      rms_norm, gelu,           swiglu,
                                rotary,        attention,       embed,    mean_positions, cross_entropy,
                                rotary_layout, swiglu_extremes, refusals};
  return harness_run("sequence", tests, HARNESS_COUNT(tests));
}
