/* SPDX-License-Identifier: Apache-2.0 */
/* Attention. One thread computes each head of each sample; in the backward, one thread computes all query heads that
 * share a head of keys and values, because the gradients of keys and values are sums over these heads. A thread
 * processes a few queries at a time against all keys that they attend to, so that no T x T matrix is stored (as in
 * FlashAttention, Dao et al., arXiv:2205.14135, which also divides the keys into tiles, because its memory is
 * smaller). */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_kernels.h"
#include "base/threads.h"

#include <math.h>

enum { QUERIES = 64 };

/* The numbers of one head of one sample: a matrix of positions and `width` features. */
typedef cpu_rows rows;

/* One head of one sample. For tensors in bf16 the members are copies in floats, which lie in scratch memory. */
typedef struct attention_head {
  int64_t positions, width; /* T, d */
  rows q, k, v, y, dy, dq, dk, dv;
  float *log_sum;
  int64_t log_sum_step;
  float scale; /* of scores: 1 / sqrt(d) */
  bool causal;
  bool adds; /* adds to the dk and dv of the heads before */
} attention_head;

/* Queries [first, first + rows) and the keys to which the last query attends; `keys`: the number of keys to which the
 * first query attends, as for cpu_kernel_softmax. */
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

static rows from(rows all, int64_t first) {
  return (rows){all.at + first * all.step, all.step};
}

/* scores = alpha q k^T of a strip; with dy and v in their places, dp. */
static petra_status multiply_keys(const strip *s, int64_t width, float alpha, rows q, rows k, float *scores) {
  const cpu_product product = {.m = s->rows,
                               .n = s->count,
                               .k = width,
                               .alpha = alpha,
                               .a = {q.at, q.step, false},
                               .b = {k.at, k.step, true},
                               .c = {scores, cpu_strip_step(s->count)}};
  return cpu_onednn_product(&product);
}

/* y = alpha p v of a strip */
static petra_status add_values(const strip *s, int64_t width, float alpha, const float *p, rows v, rows y) {
  const cpu_product product = {.m = s->rows,
                               .n = width,
                               .k = s->count,
                               .alpha = alpha,
                               .a = {p, cpu_strip_step(s->count), false},
                               .b = {v.at, v.step, false},
                               .c = y};
  return cpu_onednn_product(&product);
}

/* dv = alpha p^T dy + beta dv of a strip */
static petra_status add_to_keys(const strip *s, int64_t width, float alpha, float beta, const float *p, rows dy,
                                rows dv) {
  const cpu_product product = {.m = s->count,
                               .n = width,
                               .k = s->rows,
                               .alpha = alpha,
                               .beta = beta,
                               .a = {p, cpu_strip_step(s->count), true},
                               .b = {dy.at, dy.step, false},
                               .c = dv};
  return cpu_onednn_product(&product);
}

static bool is_finite(rows x, int64_t count, int64_t width) {
  float nothing = 0;
  for (int64_t i = 0; i < count; i++, x.at += x.step)
#pragma omp simd reduction(+ : nothing)
    for (int64_t c = 0; c < width; c++)
      nothing += 0 * x.at[c];
  return nothing == 0;
}

/* Processes `queries` queries at a time; `scores`: room for a strip. */
static petra_status attend_strips(const attention_head *h, int64_t queries, float *scores) {
  float inverse[QUERIES];
  for (int64_t first = 0; first < h->positions; first += queries) {
    const strip s = strip_at(h, first, queries);
    const rows y = from(h->y, first);
    PETRA_TRY(multiply_keys(&s, h->width, h->scale, from(h->q, first), h->k, scores));
    cpu_kernel_softmax(scores, s.rows, s.count, s.keys, inverse, h->log_sum + first * h->log_sum_step, h->log_sum_step);
    PETRA_TRY(add_values(&s, h->width, 1, scores, h->v, y));
    cpu_kernel_scale_rows(inverse, s.rows, h->width, y.step, y.at);
  }
  return PETRA_OK;
}

/* The products of a causal strip also include, with probability 0, the keys to which only its later queries attend; if
 * these keys are not finite, the result is NaN. Processing one query at a time is slow, but then each query attends to
 * all keys of its product, and only results that depend on a non-finite number are not finite. */
static petra_status attend(const attention_head *h, float *scores) {
  PETRA_TRY(attend_strips(h, QUERIES, scores));
  return h->causal && !is_finite(h->y, h->positions, h->width) ? attend_strips(h, 1, scores) : PETRA_OK;
}

/* dv = p^T dy, dp = dy v^T, ds = p (dp - dy y), dq = ds k / sqrt(d), dk = ds^T q / sqrt(d). The last strip comes first:
 * it has all keys, so that the other strips add to the gradients of the keys. `p`: room for two strips. */
static petra_status attend_backward(const attention_head *h, float *p) {
  float *dp = p + QUERIES * cpu_strip_step(h->positions);
  const rows all[] = {h->q, h->k, h->v, h->y, h->dy};
  bool finite = true;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    finite = finite && is_finite(all[i], h->positions, h->width);
  const int64_t queries = h->causal && !finite ? 1 : QUERIES, last = (h->positions - 1) / queries * queries;
  for (int64_t first = last; first >= 0; first -= queries) {
    const strip s = strip_at(h, first, queries);
    const rows q = from(h->q, first), dy = from(h->dy, first);
    const float beta = first == last && !h->adds ? 0 : 1;
    PETRA_TRY(multiply_keys(&s, h->width, h->scale, q, h->k, p));
    cpu_kernel_softmax_recompute(p, s.rows, s.count, s.keys, h->log_sum + first * h->log_sum_step, h->log_sum_step);
    PETRA_TRY(add_to_keys(&s, h->width, 1, beta, p, dy, h->dv));
    PETRA_TRY(multiply_keys(&s, h->width, 1, dy, h->v, dp));
    cpu_kernel_softmax_backward(p, dp, s.rows, s.count, from(h->y, first).at, dy.at, h->width, dy.step);
    PETRA_TRY(add_values(&s, h->width, h->scale, dp, h->k, from(h->dq, first)));
    PETRA_TRY(add_to_keys(&s, h->width, h->scale, beta, dp, q, h->dk));
  }
  return PETRA_OK;
}

/* --- all heads --- */

typedef struct work {
  const petra_attention *a;
  bool backward;
  int together; /* number of heads of a unit of work; they have the same keys and values */
} work;

enum { COPIES_FORWARD = 4, COPIES_BACKWARD = 8 }; /* copies of a head: q, k, v, y; and dy, dq, dk, dv */

static int64_t width_of(const petra_attention *a) {
  return petra_tensor_columns(a->qkv) / (a->heads + 2 * a->kv_heads);
}

/* Returns the element at which the rows of head `head` of a sample begin in a tensor. */
static int64_t begin_of(const petra_tensor *t, const petra_attention *a, int64_t sample, int64_t head) {
  return sample * t->shape[1] * petra_tensor_columns(t) + head * width_of(a);
}

/* Gets the rows themselves or, in bf16, room for a copy. */
static rows find(const petra_tensor *t, int64_t begin, const attention_head *h, float **room) {
  float *copy = *room;
  if (!t)
    return (rows){NULL, 0};
  if (!cpu_layout_of(t)->narrow)
    return (rows){(float *)t->data + begin, petra_tensor_columns(t)};
  *room += h->positions * h->width;
  return (rows){copy, h->width};
}

static void read_rows(const petra_tensor *t, int64_t begin, const attention_head *h, rows to) {
  if (t && cpu_layout_of(t)->narrow)
    cpu_kernel_widen_rows(cpu_element(t, begin), petra_tensor_columns(t), h->positions, h->width, to.at, to.step);
}

static void write_rows(petra_tensor *t, int64_t begin, const attention_head *h, rows of) {
  if (t && cpu_layout_of(t)->narrow)
    cpu_kernel_narrow_rows(of.at, of.step, h->positions, h->width, cpu_write(t, begin), petra_tensor_columns(t));
}

/* Computes one head, whose keys and values are known; `copies`: room for copies of the other rows; `strips`: for
 * strips. */
static petra_status do_head(const work *w, int64_t sample, int64_t head, attention_head *h, float *copies,
                            float *strips) {
  const petra_attention *a = w->a;
  const int64_t of_q = begin_of(a->qkv, a, sample, head), of_y = begin_of(a->y, a, sample, head);
  h->log_sum = (float *)a->log_sum->data + sample * h->positions * a->heads + head;
  h->q = find(a->qkv, of_q, h, &copies);
  h->y = find(a->y, of_y, h, &copies);
  read_rows(a->qkv, of_q, h, h->q);
  if (!w->backward) {
    PETRA_TRY(attend(h, strips));
    write_rows(a->y, of_y, h, h->y);
    return PETRA_OK;
  }
  h->dq = find(a->dqkv, of_q, h, &copies);
  h->dy = find(a->dy, of_y, h, &copies);
  read_rows(a->y, of_y, h, h->y);
  read_rows(a->dy, of_y, h, h->dy);
  PETRA_TRY(attend_backward(h, strips));
  write_rows(a->dqkv, of_q, h, h->dq);
  return PETRA_OK;
}

/* Computes the unit `number` of all samples; `room`: for `strips` strips and, after them, for copies. */
static petra_status do_unit(const work *w, int64_t number, int strips, float *room) {
  const petra_attention *a = w->a;
  const int64_t positions = a->qkv->shape[1], width = width_of(a);
  const int64_t sample = number * w->together / a->heads, first = number * w->together % a->heads;
  const int64_t kv_head = first / (a->heads / a->kv_heads);
  const int64_t of_k = begin_of(a->qkv, a, sample, a->heads + kv_head), of_v = of_k + a->kv_heads * width;
  petra_tensor *dqkv = w->backward ? a->dqkv : NULL;
  float *copies = room + strips * QUERIES * cpu_strip_step(positions);
  attention_head h = {.positions = positions,
                      .width = width,
                      .log_sum_step = a->heads,
                      .scale = (float)(1 / sqrt((double)width)),
                      .causal = a->causal};
  h.k = find(a->qkv, of_k, &h, &copies);
  h.v = find(a->qkv, of_v, &h, &copies);
  h.dk = find(dqkv, of_k, &h, &copies);
  h.dv = find(dqkv, of_v, &h, &copies);
  read_rows(a->qkv, of_k, &h, h.k);
  read_rows(a->qkv, of_v, &h, h.v);
  for (int64_t head = first; head < first + w->together; head++) {
    h.adds = head > first;
    PETRA_TRY(do_head(w, sample, head, &h, copies, room));
  }
  write_rows(dqkv, of_k, &h, h.dk);
  write_rows(dqkv, of_v, &h, h.dv);
  return PETRA_OK;
}

static petra_status do_heads(petra_backend *backend, const petra_attention *a, bool backward) {
  const work w = {.a = a, .backward = backward, .together = backward ? a->heads / a->kv_heads : 1};
  const int strips = backward ? 2 : 1;
  const int64_t positions = a->qkv->shape[1], units = (int64_t)a->qkv->shape[0] * (a->heads / w.together);
  const int64_t count = !cpu_layout_of(a->qkv)->narrow ? 0 : backward ? COPIES_BACKWARD : COPIES_FORWARD;
  const int64_t copies = count * positions * width_of(a);
  const int64_t room = strips * QUERIES * cpu_strip_step(positions) + (copies + CPU_STRIP - 1) / CPU_STRIP * CPU_STRIP;
  void *scratch;
  int status = PETRA_OK;
  PETRA_TRY(cpu_scratch(backend, (size_t)(backend->threads * room) * sizeof(float), &scratch));
  cpu_use_threads(backend);
#pragma omp parallel for schedule(static) num_threads(backend->threads) reduction(max : status)
  for (int64_t number = 0; number < units; number++) {
    cpu_use_threads(backend);
    status = cpu_worse(status, do_unit(&w, number, strips, (float *)scratch + petra_threads_number() * room));
  }
  return (petra_status)status;
}

petra_status cpu_attention_forward(petra_backend *backend, const petra_attention *a) {
  cpu_touch(a->y);
  cpu_touch(a->log_sum);
  return do_heads(backend, a, false);
}

petra_status cpu_attention_backward(petra_backend *backend, const petra_attention *a) {
  cpu_touch(a->dqkv);
  return do_heads(backend, a, true);
}
