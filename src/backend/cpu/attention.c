/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: each head of each sample by one thread, some queries against all keys that they see at a time, so that no
 * T x T matrix is kept (as in FlashAttention, Dao et al., arXiv:2205.14135; its keys too come in tiles, since its memory
 * is smaller). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/product.h"

#include <math.h>
#include <omp.h>

enum { QUERIES = 64 };

/* One head of one sample. */
typedef struct attention_head {
  int64_t positions, width; /* T, d */
  int64_t row, features;    /* elements from a row of qkv, and of y, to the next */
  int64_t heads;            /* from a row of log_sum to the next */
  int64_t in_qkv, in_y, in_log_sum;
  float scale; /* of scores: 1 / sqrt(d) */
  bool causal;
} attention_head;

static attention_head head_of(const petra_tensor *y, int heads, bool causal, int64_t number) {
  const int64_t positions = y->shape[1], features = y->shape[2], width = features / heads;
  const int64_t first = number / heads * positions, head = number % heads;
  return (attention_head){.positions = positions,
                          .width = width,
                          .row = 3 * features,
                          .features = features,
                          .heads = heads,
                          .in_qkv = first * 3 * features + head * width,
                          .in_y = first * features + head * width,
                          .in_log_sum = first * heads + head,
                          .scale = (float)(1 / sqrt((double)width)),
                          .causal = causal};
}

/* Queries [first, first + rows) and as many keys as the last of them sees; `keys`: what the first sees, as
 * cpu_kernel_softmax has it. */
typedef struct strip {
  int64_t first, rows, count, keys;
} strip;

static strip strip_at(const attention_head *h, int64_t first, int64_t queries) {
  strip s = {.first = first, .rows = cpu_minimum(queries, h->positions - first), .count = h->positions};
  if (h->causal)
    s.count = first + s.rows;
  s.keys = h->causal ? first + 1 : s.count;
  return s;
}

/* scores = alpha q k^T of a strip; with dy and v in their places, dp. */
static petra_status multiply_keys(const strip *s, int64_t width, float alpha, const float *q, int64_t step_q,
                                  const float *k, int64_t step_k, float *scores) {
  const cpu_product product = {.transpose_b = true,
                               .m = s->rows,
                               .n = s->count,
                               .k = width,
                               .alpha = alpha,
                               .a = q,
                               .b = k,
                               .c = scores,
                               .step_a = step_q,
                               .step_b = step_k,
                               .step_c = cpu_strip_step(s->count)};
  return cpu_onednn_product(&product);
}

/* y = alpha p v of a strip */
static petra_status add_values(const strip *s, int64_t width, float alpha, const float *p, const float *v,
                               int64_t step_v, float *y, int64_t step_y) {
  const cpu_product product = {.m = s->rows,
                               .n = width,
                               .k = s->count,
                               .alpha = alpha,
                               .a = p,
                               .b = v,
                               .c = y,
                               .step_a = cpu_strip_step(s->count),
                               .step_b = step_v,
                               .step_c = step_y};
  return cpu_onednn_product(&product);
}

/* dv = alpha p^T dy + beta dv of a strip */
static petra_status add_to_keys(const strip *s, int64_t width, float alpha, float beta, const float *p, const float *dy,
                                int64_t step_dy, float *dv, int64_t step_dv) {
  const cpu_product product = {.transpose_a = true,
                               .m = s->count,
                               .n = width,
                               .k = s->rows,
                               .alpha = alpha,
                               .beta = beta,
                               .a = p,
                               .b = dy,
                               .c = dv,
                               .step_a = cpu_strip_step(s->count),
                               .step_b = step_dy,
                               .step_c = step_dv};
  return cpu_onednn_product(&product);
}

/* Whether the head's rows of `width` elements, `step` apart, are finite. */
static bool is_finite(const attention_head *h, const float *x, int64_t step, int64_t width) {
  float nothing = 0;
  for (int64_t i = 0; i < h->positions; i++, x += step)
#pragma omp simd reduction(+ : nothing)
    for (int64_t c = 0; c < width; c++)
      nothing += 0 * x[c];
  return nothing == 0;
}

/* `queries` at a time; `scores`: room for a strip. */
static petra_status attend_strips(const petra_attention *a, const attention_head *h, int64_t queries, float *scores) {
  const float *q = cpu_read(a->qkv) + h->in_qkv, *k = q + h->features, *v = k + h->features;
  float inverse[QUERIES];
  for (int64_t first = 0; first < h->positions; first += queries) {
    const strip s = strip_at(h, first, queries);
    float *y = cpu_data(a->y) + h->in_y + first * h->features;
    float *log_sum = cpu_data(a->log_sum) + h->in_log_sum + first * h->heads;
    PETRA_TRY(multiply_keys(&s, h->width, h->scale, q + first * h->row, h->row, k, h->row, scores));
    cpu_kernel_softmax(scores, s.rows, s.count, s.keys, inverse, log_sum, h->heads);
    PETRA_TRY(add_values(&s, h->width, 1, scores, v, h->row, y, h->features));
    cpu_kernel_scale_rows(inverse, s.rows, h->width, h->features, y);
  }
  return PETRA_OK;
}

/* The products of a causal strip also have the keys that only its later queries see, with the probability 0, which makes NaN of what
 * is not finite there. One query at a time sees all keys of its product: slowly, and only what depends on it is not finite. */
static petra_status attend(const void *arguments, const attention_head *h, float *scores) {
  const petra_attention *a = arguments;
  PETRA_TRY(attend_strips(a, h, QUERIES, scores));
  return h->causal && !is_finite(h, cpu_read(a->y) + h->in_y, h->features, h->width) ? attend_strips(a, h, 1, scores)
                                                                                     : PETRA_OK;
}

/* dv = p^T dy, dp = dy v^T, ds = p (dp - dy y), dq = ds k / sqrt(d), dk = ds^T q / sqrt(d). The last strip comes first: it
 * has all keys, so that the others add to their gradients. `p`: room for two strips. */
static petra_status attend_backward(const void *arguments, const attention_head *h, float *p) {
  const petra_attention_backward *a = arguments;
  const float *q = cpu_read(a->qkv) + h->in_qkv, *k = q + h->features, *v = k + h->features;
  float *dq = cpu_data(a->dqkv) + h->in_qkv, *dk = dq + h->features, *dv = dk + h->features;
  float *dp = p + QUERIES * cpu_strip_step(h->positions);
  const bool finite = is_finite(h, q, h->row, h->width) && is_finite(h, k, h->row, h->width) &&
                      is_finite(h, v, h->row, h->width) &&
                      is_finite(h, cpu_read(a->y) + h->in_y, h->features, h->width) &&
                      is_finite(h, cpu_read(a->dy) + h->in_y, h->features, h->width);
  const int64_t queries = h->causal && !finite ? 1 : QUERIES, last = (h->positions - 1) / queries * queries;
  for (int64_t first = last; first >= 0; first -= queries) {
    const strip s = strip_at(h, first, queries);
    const int64_t at = h->in_y + first * h->features, row = first * h->row;
    const float *dy = cpu_read(a->dy) + at;
    const float beta = first == last ? 0 : 1;
    PETRA_TRY(multiply_keys(&s, h->width, h->scale, q + row, h->row, k, h->row, p));
    cpu_kernel_softmax_again(p, s.rows, s.count, s.keys, cpu_read(a->log_sum) + h->in_log_sum + first * h->heads,
                             h->heads);
    PETRA_TRY(add_to_keys(&s, h->width, 1, beta, p, dy, h->features, dv, h->row));
    PETRA_TRY(multiply_keys(&s, h->width, 1, dy, h->features, v, h->row, dp));
    cpu_kernel_softmax_backward(p, dp, s.rows, s.count, cpu_read(a->y) + at, dy, h->width, h->features);
    PETRA_TRY(add_values(&s, h->width, h->scale, dp, k, h->row, dq + row, h->row));
    PETRA_TRY(add_to_keys(&s, h->width, h->scale, beta, dp, q + row, h->row, dk, h->row));
  }
  return PETRA_OK;
}

/* Does something for each head of each sample, with room for so many strips. */
static petra_status do_heads(petra_backend *backend, const petra_tensor *y, int heads, bool causal, int strips,
                             petra_status (*function)(const void *arguments, const attention_head *h, float *room),
                             const void *arguments) {
  const int64_t room = strips * QUERIES * cpu_strip_step(y->shape[1]);
  void *scratch;
  int status = PETRA_OK;
  PETRA_TRY(cpu_scratch(backend, (size_t)(backend->threads * room) * sizeof(float), &scratch));
  cpu_use_threads(backend);
#pragma omp parallel for schedule(static) num_threads(backend->threads) reduction(max : status)
  for (int64_t number = 0; number < (int64_t)y->shape[0] * heads; number++) {
    const attention_head h = head_of(y, heads, causal, number);
    status = cpu_worse(status, function(arguments, &h, (float *)scratch + omp_get_thread_num() * room));
  }
  return (petra_status)status;
}

petra_status cpu_attention_forward(petra_backend *backend, const petra_attention *a) {
  return do_heads(backend, a->y, a->heads, a->causal, 1, attend, a);
}

petra_status cpu_attention_backward(petra_backend *backend, const petra_attention_backward *a) {
  return do_heads(backend, a->y, a->heads, a->causal, 2, attend_backward, a);
}
