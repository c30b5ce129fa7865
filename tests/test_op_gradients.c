/* SPDX-License-Identifier: Apache-2.0 */
/* The backward operations of ref in fp64 against central finite differences of the forward ones. */
#include "op_gradients.h"

#include <math.h>

/* A ReLU or a maximum closer to its kink than this is drawn again: a step must not cross it. */
#define KINK_MARGIN 1e-3

/* --- convolutions --- */

typedef struct conv_part {
  petra_conv_geometry g;
  petra_tensor *x, *w, *y, *r;
} conv_part;

static double conv_loss(void *context) {
  conv_part *p = context;
  cases_ok(petra_op_conv_forward(backend, &p->g, p->x, p->w, p->y));
  return weighted(p->r, p->y);
}

static const struct {
  int n, c, h, w, o, kernel, stride, pad;
} conv_cases[] = {
    {1, 3, 4, 5, 2, 3, 1, 1},
    {2, 2, 5, 4, 3, 3, 2, 1},
    {2, 3, 4, 5, 2, 1, 2, 0},
    {1, 1, 8, 7, 2, 7, 2, 3},
};

START_TEST(convolutions) {
  open_backend();
  for (int k = 0; k < HARNESS_COUNT(conv_cases); k++) {
    int kernel = conv_cases[k].kernel, stride = conv_cases[k].stride, pad = conv_cases[k].pad;
    conv_part p = {.g = {stride, pad}};
    p.x = activation(conv_cases[k].n, conv_cases[k].c, conv_cases[k].h, conv_cases[k].w);
    p.w = drawn(PETRA_TENSOR_FILTER, conv_cases[k].o, conv_cases[k].c, kernel, kernel);
    p.y = activation(conv_cases[k].n, conv_cases[k].o, (conv_cases[k].h + 2 * pad - kernel) / stride + 1,
                     (conv_cases[k].w + 2 * pad - kernel) / stride + 1);
    p.r = like(p.y);
    draw(p.r);
    petra_tensor *dx = like(p.x), *dw = like(p.w);
    cases_ok(petra_op_conv_backward_data(backend, &p.g, p.r, p.w, NULL, dx));
    cases_ok(petra_op_conv_backward_filter(backend, &p.g, p.x, p.r, dw));
    check_gradient("conv dx", conv_loss, &p, p.x, dx);
    check_gradient("conv dw", conv_loss, &p, p.w, dw);
    while (tensor_count > 0)
      petra_tensor_release(&tensors[--tensor_count]);
  }
  close_backend();
}
END_TEST

/* --- norm with its joins, alone or behind a convolution --- */

typedef struct norm_part {
  conv_part conv; /* conv.w NULL: none; else conv.y is x of the norm */
  petra_norm_forward norm;
  petra_tensor *r;
} norm_part;

static double norm_loss(void *context) {
  norm_part *p = context;
  if (p->conv.w)
    cases_ok(petra_op_conv_forward(backend, &p->conv.g, p->conv.x, p->conv.w, p->conv.y));
  cases_ok(petra_op_norm_forward(backend, &p->norm));
  return weighted(p->r, p->norm.y);
}

/* Whether a ReLU is so near to its kink that a step could cross it: seen on its argument, which the norm
 * gives without ReLU and, unless the sum is activated, without join. */
static bool near_kink(const norm_part *p) {
  if (!p->norm.relu)
    return false;
  petra_norm_forward plain = p->norm;
  plain.relu = false;
  if (plain.join != PETRA_JOIN_ADD_ACTIVATE)
    plain.join = PETRA_JOIN_NONE;
  if (p->conv.w)
    cases_ok(petra_op_conv_forward(backend, &p->conv.g, p->conv.x, p->conv.w, p->conv.y));
  cases_ok(petra_op_norm_forward(backend, &plain));
  double *z = malloc((size_t)plain.y->elements * sizeof *z), least = 1;
  download(plain.y, z);
  for (int64_t i = 0; i < plain.y->elements; i++)
    least = fmin(least, fabs(z[i]));
  free(z);
  return least < KINK_MARGIN;
}

/* The gradients as the stages make them: through the join, the activation, the norm, the convolution. */
static void check_norm(norm_part *p, const char *name) {
  const petra_norm_forward *f = &p->norm;
  const bool activate = f->join == PETRA_JOIN_ADD_ACTIVATE;
  norm_loss(p);
  petra_tensor *dact = like(f->y), *dx = like(f->y), *dscale = like(f->scale), *dshift = like(f->shift);
  cases_ok(petra_op_copy(backend, p->r, dact));
  if (activate && f->relu)
    cases_ok(petra_op_relu_backward(backend, f->y, dact, dact));
  petra_tensor *daddend = like(f->y);
  cases_ok(petra_op_copy(backend, dact, daddend)); /* of all joins: the addend goes in as it is */
  if (f->join == PETRA_JOIN_SUBTRACT) {
    cases_ok(petra_op_fill(backend, dact, 0));
    cases_ok(petra_op_axpy(backend, -1, p->r, dact));
  }
  const petra_norm_backward b = {f->x, f->scale, f->shift, f->mean, f->variance, f->relu && !activate,
                                 dact, dx,       dscale,   dshift,  NULL};
  cases_ok(petra_op_norm_backward(backend, &b));
  check_gradient(name, norm_loss, p, (petra_tensor *)f->scale, dscale);
  check_gradient(name, norm_loss, p, (petra_tensor *)f->shift, dshift);
  if (f->join != PETRA_JOIN_NONE)
    check_gradient(name, norm_loss, p, (petra_tensor *)f->addend, daddend);
  if (!p->conv.w) {
    check_gradient(name, norm_loss, p, (petra_tensor *)f->x, dx);
    return;
  }
  petra_tensor *dw = like(p->conv.w), *dinput = like(p->conv.x);
  cases_ok(petra_op_conv_backward_filter(backend, &p->conv.g, p->conv.x, dx, dw));
  cases_ok(petra_op_conv_backward_data(backend, &p->conv.g, dx, p->conv.w, NULL, dinput));
  check_gradient(name, norm_loss, p, p->conv.w, dw);
  check_gradient(name, norm_loss, p, p->conv.x, dinput);
}

static void check_joins(bool composed) {
  static const char *const names[] = {"norm", "norm, add", "norm, subtract", "norm, add and activate"};
  for (int join = PETRA_JOIN_NONE; join <= PETRA_JOIN_ADD_ACTIVATE; join++)
    for (int relu = 0; relu < 2; relu++) {
      open_backend();
      norm_part p = {.conv.g = {2, 1}};
      petra_tensor *x = activation(2, 3, 3, 2), *scale = drawn(PETRA_TENSOR_VECTOR, 3, 1, 1, 1), *shift = like(scale),
                   *addend = like(x);
      p.r = activation(2, 3, 3, 2);
      if (composed) {
        p.conv.x = activation(2, 2, 5, 4);
        p.conv.w = drawn(PETRA_TENSOR_FILTER, 3, 2, 3, 3);
        p.conv.y = x;
      }
      p.norm = (petra_norm_forward){x,      scale,   shift,       relu,        (petra_join)join,
                                    addend, like(x), like(scale), like(scale), NULL};
      do {
        draw(composed ? p.conv.x : x);
        draw(scale);
        draw(shift);
        draw(addend);
      } while (near_kink(&p));
      check_norm(&p, names[join]);
      close_backend();
    }
}

START_TEST(norms) {
  check_joins(false);
}
END_TEST

START_TEST(conv_norm_join) {
  check_joins(true);
}
END_TEST

/* --- pools and the head --- */

typedef struct pool_part {
  petra_pool_geometry g;
  petra_tensor *x, *y, *r, *mask;
  int column;
} pool_part;

static double max_pool_loss(void *context) {
  pool_part *p = context;
  cases_ok(petra_op_max_pool_forward(backend, &p->g, p->x, p->y, NULL));
  return weighted(p->r, p->y);
}

static double average_pool_loss(void *context) {
  pool_part *p = context;
  cases_ok(petra_op_average_pool_forward(backend, p->x, p->y, p->column));
  return weighted(p->r, p->y);
}

START_TEST(pools) {
  open_backend();
  pool_part p = {.g = {3, 2, 1}, .x = activation(2, 2, 5, 6), .y = activation(2, 2, 3, 3), .r = activation(2, 2, 3, 3)};
  double host[120];
  for (int i = 0; i < 120; i++) /* all different by 0.01 at least: the winners stay the winners */
    host[i] = (i * 77 % 120) * 0.01 - 0.5;
  upload(p.x, host);
  p.mask = empty(PETRA_TENSOR_MASK, 2, 2, 3, 3);
  petra_tensor *dx = like(p.x);
  cases_ok(petra_op_max_pool_forward(backend, &p.g, p.x, p.y, p.mask));
  cases_ok(petra_op_max_pool_backward(backend, &p.g, p.r, p.mask, dx));
  check_gradient("max_pool", max_pool_loss, &p, p.x, dx);
  p.y = drawn(PETRA_TENSOR_MATRIX, 2, 5, 1, 1);
  p.r = drawn(PETRA_TENSOR_MATRIX, 2, 5, 1, 1);
  p.column = 2;
  cases_ok(petra_op_average_pool_backward(backend, p.r, p.column, dx));
  check_gradient("average_pool", average_pool_loss, &p, p.x, dx);
  close_backend();
}
END_TEST

typedef struct head_part {
  petra_tensor *x, *w, *b, *y, *r;
  petra_cross_entropy loss;
} head_part;

static double linear_loss(void *context) {
  head_part *p = context;
  cases_ok(petra_op_linear_forward(backend, &(petra_linear_forward){.x = p->x, .w = p->w, .b = p->b, .y = p->y}));
  return weighted(p->r, p->y);
}

static double head_loss(void *context) {
  head_part *p = context;
  cases_ok(petra_op_linear_forward(backend, &(petra_linear_forward){.x = p->x, .w = p->w, .b = p->b, .y = p->y}));
  petra_cross_entropy loss = p->loss;
  loss.dlogits = NULL;
  cases_ok(petra_op_cross_entropy(backend, &loss));
  return loss.loss;
}

/* --- space to depth: each direction is the other's backward --- */

typedef struct shuffle_part {
  petra_tensor *x, *y, *r;
  bool back;
} shuffle_part;

static double shuffle_loss(void *context) {
  shuffle_part *p = context;
  if (p->back)
    cases_ok(petra_op_depth_to_space(backend, p->x, p->y));
  else
    cases_ok(petra_op_space_to_depth(backend, p->x, p->y));
  return weighted(p->r, p->y);
}

START_TEST(shuffles) {
  open_backend();
  petra_tensor *wide = activation(2, 3, 4, 6), *deep = activation(2, 12, 2, 3);
  shuffle_part down = {wide, like(deep), like(deep), false}, up = {deep, like(wide), like(wide), true};
  petra_tensor *dwide = like(wide), *ddeep = like(deep);
  draw(down.r);
  draw(up.r);
  cases_ok(petra_op_depth_to_space(backend, down.r, dwide));
  check_gradient("space_to_depth", shuffle_loss, &down, wide, dwide);
  cases_ok(petra_op_space_to_depth(backend, up.r, ddeep));
  check_gradient("depth_to_space", shuffle_loss, &up, deep, ddeep);
  close_backend();
}
END_TEST

START_TEST(head) {
  static const int32_t labels[] = {0, 3, 1};
  open_backend();
  head_part p = {.x = drawn(PETRA_TENSOR_MATRIX, 3, 5, 1, 1),
                 .w = drawn(PETRA_TENSOR_MATRIX, 4, 5, 1, 1),
                 .b = drawn(PETRA_TENSOR_VECTOR, 4, 1, 1, 1),
                 .y = drawn(PETRA_TENSOR_MATRIX, 3, 4, 1, 1),
                 .r = drawn(PETRA_TENSOR_MATRIX, 3, 4, 1, 1)};
  petra_tensor *dx = like(p.x), *dw = like(p.w), *db = like(p.b), *dy = like(p.y);
  cases_ok(petra_op_linear_backward_data(backend, p.r, p.w, dx));
  cases_ok(petra_op_linear_backward_weights(backend, p.x, p.r, dw, db));
  check_gradient("linear dx", linear_loss, &p, p.x, dx);
  check_gradient("linear dw", linear_loss, &p, p.w, dw);
  check_gradient("linear db", linear_loss, &p, p.b, db);
  p.loss = (petra_cross_entropy){.logits = p.y, .labels = labels, .dlogits = dy};
  linear_loss(&p);
  cases_ok(petra_op_cross_entropy(backend, &p.loss));
  cases_ok(petra_op_linear_backward_data(backend, dy, p.w, dx));
  cases_ok(petra_op_linear_backward_weights(backend, p.x, dy, dw, db));
  check_gradient("cross_entropy dx", head_loss, &p, p.x, dx);
  check_gradient("cross_entropy dw", head_loss, &p, p.w, dw);
  check_gradient("cross_entropy db", head_loss, &p, p.b, db);
  close_backend();
}
END_TEST

int main(void) {
  const TTest *const tests[] = {convolutions, norms, conv_norm_join, pools, shuffles, head};
  return harness_run("gradients", tests, HARNESS_COUNT(tests));
}
