/* SPDX-License-Identifier: Apache-2.0 */
/* Times the operations of a GPT in training, one by one; peer_pytorch_sequence.py does the same with PyTorch.
 *
 *   bench_sequence [threads [batch [positions [features [heads [words [repetitions [bf16]]]]]]]]
 *
 * defaults: 2 16 128 128 4 65 40, in fp32; in bf16 what stays inside a block is, as in training.
 * Prints the shortest of the repetitions, which other programs disturb least, and the sum over a step of four blocks. */
#include "bench/frame.h"

enum { BLOCKS = 4 };

typedef struct sizes {
  int n, t, c, heads, words;
} sizes;

/* Operands: streams of c features a token; inner ones of c (n, m), 3 c and 4 c; rows: one number a token. */
typedef struct operands {
  const sizes *s;
  petra_tensor *x, *y, *d, *n, *m, *qkv, *dqkv, *h, *g, *dh, *mean, *deviation, *log_sum, *logits, *dlogits, *tokens;
  petra_tensor *w_qkv, *w_out, *w_up, *w_down, *w_words, *table, *positions;
  petra_tensor *b_qkv, *b_out, *b_up, *scale, *shift, *dscale, *dshift;
  int32_t *labels;
} operands;

static petra_tensor *sequence(const bench *b, const sizes *s, int features) {
  return tensor(b, PETRA_TENSOR_SEQUENCE, s->n, s->t, features, 1);
}

static petra_tensor *inner(const bench *b, const sizes *s, int features) {
  return tensor(b, petra_tensor_inner_kind(b->backend, PETRA_TENSOR_SEQUENCE), s->n, s->t, features, 1);
}

static petra_tensor *matrix(const bench *b, int rows, int columns) {
  return tensor(b, PETRA_TENSOR_MATRIX, rows, columns, 1, 1);
}

static petra_tensor *vector(const bench *b, int n) {
  return tensor(b, PETRA_TENSOR_VECTOR, n, 1, 1, 1);
}

static operands make(const bench *b, const sizes *s) {
  const int c = s->c, count = s->n * s->t;
  operands o = {s,
                sequence(b, s, c),
                sequence(b, s, c),
                sequence(b, s, c),
                inner(b, s, c),
                inner(b, s, c),
                inner(b, s, 3 * c),
                inner(b, s, 3 * c),
                inner(b, s, 4 * c),
                inner(b, s, 4 * c),
                inner(b, s, 4 * c),
                sequence(b, s, 1),
                sequence(b, s, 1),
                sequence(b, s, s->heads),
                sequence(b, s, s->words),
                sequence(b, s, s->words),
                sequence(b, s, 1),
                matrix(b, 3 * c, c),
                matrix(b, c, c),
                matrix(b, 4 * c, c),
                matrix(b, c, 4 * c),
                matrix(b, s->words, c),
                matrix(b, s->words, c),
                matrix(b, s->t, c),
                vector(b, 3 * c),
                vector(b, c),
                vector(b, 4 * c),
                vector(b, c),
                vector(b, c),
                vector(b, c),
                vector(b, c),
                malloc((size_t)count * sizeof(int32_t))};
  float *tokens = malloc((size_t)count * sizeof *tokens);
  for (int i = 0; i < count; i++) {
    o.labels[i] = (int32_t)((int64_t)i * 7919 % s->words);
    tokens[i] = (float)o.labels[i];
  }
  require(petra_op_upload(b->backend, o.tokens, tokens, PETRA_HOST_F32));
  free(tokens);
  return o;
}

/* Prints the shortest time of a call and adds that of `times` of them to *step_s. */
#define MEASURE(name, times, call)                                                                                     \
  do {                                                                                                                 \
    double least = 1e30;                                                                                               \
    for (int i = 0; i < b->repetitions; i++) {                                                                         \
      double start = petra_clock_s();                                                                                  \
      require(call);                                                                                                   \
      start = petra_clock_s() - start;                                                                                 \
      least = start < least ? start : least;                                                                           \
    }                                                                                                                  \
    printf("%-20s %9.3f ms\n", name, least * 1e3);                                                                     \
    *step_s += (times)*least;                                                                                          \
  } while (0)

static void attention_half(const bench *b, const operands *o, double *step_s) {
  const int heads = o->s->heads;
  const petra_attention attention = {o->qkv, heads, heads, true, o->n, o->log_sum, o->m, o->dqkv};
  MEASURE("layer_norm forward", 2 * BLOCKS + 1,
          petra_op_layer_norm_forward(
              b->backend, &(petra_layer_norm_forward){o->x, o->scale, o->shift, o->n, o->mean, o->deviation}));
  MEASURE("layer_norm backward", 2 * BLOCKS + 1,
          petra_op_layer_norm_backward(b->backend, &(petra_layer_norm_backward){o->x, o->scale, o->mean, o->deviation,
                                                                                o->y, o->d, o->dscale, o->dshift}));
  MEASURE("qkv forward", BLOCKS,
          petra_op_linear_forward(b->backend,
                                  &(petra_linear_forward){.x = o->n, .w = o->w_qkv, .b = o->b_qkv, .y = o->dqkv}));
  MEASURE("qkv data", BLOCKS, petra_op_linear_backward_data(b->backend, o->qkv, o->w_qkv, o->d));
  MEASURE("qkv weights", BLOCKS, petra_op_linear_backward_weights(b->backend, o->n, o->qkv, o->w_qkv, o->b_qkv));
  MEASURE("attention forward", BLOCKS, petra_op_attention_forward(b->backend, &attention));
  MEASURE("attention backward", BLOCKS, petra_op_attention_backward(b->backend, &attention));
  if (o->n->kind != o->x->kind)
    MEASURE("stream rounded", 2 * BLOCKS, petra_op_copy(b->backend, o->y, o->m));
  MEASURE("out forward, add", BLOCKS,
          petra_op_linear_forward(b->backend,
                                  &(petra_linear_forward){o->n, o->w_out, o->b_out, PETRA_JOIN_ADD, o->d, o->y}));
  MEASURE("out data", BLOCKS, petra_op_linear_backward_data(b->backend, o->m, o->w_out, o->n));
  MEASURE("out weights", BLOCKS, petra_op_linear_backward_weights(b->backend, o->n, o->m, o->w_out, o->b_out));
}

static void rest(const bench *b, const operands *o, double *step_s) {
  MEASURE(
      "up forward", BLOCKS,
      petra_op_linear_forward(b->backend, &(petra_linear_forward){.x = o->n, .w = o->w_up, .b = o->b_up, .y = o->dh}));
  MEASURE("up data", BLOCKS, petra_op_linear_backward_data(b->backend, o->h, o->w_up, o->d));
  MEASURE("up weights", BLOCKS, petra_op_linear_backward_weights(b->backend, o->n, o->h, o->w_up, o->b_up));
  MEASURE("gelu forward, tanh", BLOCKS, petra_op_gelu_forward(b->backend, PETRA_GELU_TANH, o->h, o->dh));
  MEASURE("gelu backward, tanh", BLOCKS, petra_op_gelu_backward(b->backend, PETRA_GELU_TANH, o->h, o->g, o->dh));
  MEASURE("gelu forward, erf", 0, petra_op_gelu_forward(b->backend, PETRA_GELU_ERF, o->h, o->dh));
  MEASURE("gelu backward, erf", 0, petra_op_gelu_backward(b->backend, PETRA_GELU_ERF, o->h, o->g, o->dh));
  MEASURE("down forward, add", BLOCKS,
          petra_op_linear_forward(b->backend,
                                  &(petra_linear_forward){o->h, o->w_down, o->b_out, PETRA_JOIN_ADD, o->d, o->y}));
  MEASURE("down data", BLOCKS, petra_op_linear_backward_data(b->backend, o->m, o->w_down, o->dh));
  MEASURE("down weights", BLOCKS, petra_op_linear_backward_weights(b->backend, o->h, o->m, o->w_down, o->b_out));
  MEASURE("words forward", 1,
          petra_op_linear_forward(b->backend, &(petra_linear_forward){.x = o->x, .w = o->w_words, .y = o->logits}));
  MEASURE("words data", 1, petra_op_linear_backward_data(b->backend, o->logits, o->w_words, o->d));
  MEASURE("words weights", 1, petra_op_linear_backward_weights(b->backend, o->x, o->logits, o->w_words, NULL));
  MEASURE("cross entropy", 1,
          petra_op_cross_entropy(
              b->backend, &(petra_cross_entropy){.logits = o->logits, .labels = o->labels, .dlogits = o->dlogits}));
  MEASURE("embed forward", 1, petra_op_embed_forward(b->backend, o->tokens, o->table, o->positions, o->y));
  MEASURE("embed backward", 1, petra_op_embed_backward(b->backend, o->tokens, o->x, o->table, o->positions));
}

/* The operations of a Llama that take their place; the sum over a step omits them. Keys and values have half as many heads as
 * queries. */
static void llama(const bench *b, const operands *o, double *step_s) {
  const sizes *s = o->s;
  const int kv_heads = s->heads % 2 == 0 ? s->heads / 2 : s->heads, width = s->c / s->heads / 2 * 2;
  petra_tensor *qkv = inner(b, s, (s->heads + 2 * kv_heads) * (s->c / s->heads));
  petra_tensor *dqkv = inner(b, s, (s->heads + 2 * kv_heads) * (s->c / s->heads));
  const petra_attention attention = {qkv, s->heads, kv_heads, true, o->n, o->log_sum, o->m, dqkv};
  petra_tensor *hidden = inner(b, s, (8 * s->c / 3 + 31) / 32 * 32);
  petra_tensor *gated = inner(b, s, 2 * hidden->shape[2]), *dgated = inner(b, s, 2 * hidden->shape[2]);
  MEASURE(
      "rms_norm forward", 0,
      petra_op_layer_norm_forward(
          b->backend, &(petra_layer_norm_forward){.x = o->x, .scale = o->scale, .y = o->n, .deviation = o->deviation}));
  MEASURE(
      "rms_norm backward", 0,
      petra_op_layer_norm_backward(
          b->backend,
          &(petra_layer_norm_backward){
              .x = o->x, .scale = o->scale, .deviation = o->deviation, .dy = o->y, .dx = o->d, .dscale = o->dscale}));
  if (width > 0)
    MEASURE("rotary, in place", 0,
            petra_op_rotary(b->backend, &(petra_rotary){qkv, s->heads + kv_heads, width, 10000, false, qkv}));
  MEASURE("grouped forward", 0, petra_op_attention_forward(b->backend, &attention));
  MEASURE("grouped backward", 0, petra_op_attention_backward(b->backend, &attention));
  MEASURE("swiglu forward", 0, petra_op_swiglu_forward(b->backend, gated, hidden));
  MEASURE("swiglu backward", 0, petra_op_swiglu_backward(b->backend, gated, hidden, dgated));
  petra_tensor_release(&dgated);
  petra_tensor_release(&gated);
  petra_tensor_release(&hidden);
  petra_tensor_release(&dqkv);
  petra_tensor_release(&qkv);
}

int main(int argc, char **argv) {
  int threads = 2;
  sizes s = {16, 128, 128, 4, 65};
  bench b = {.repetitions = 40};
  int *const numbers[] = {&threads, &s.n, &s.t, &s.c, &s.heads, &s.words, &b.repetitions};
  const int count = (int)(sizeof numbers / sizeof *numbers);
  const bool bf16 = argc - 1 == count + 1 && strcmp(argv[argc - 1], "bf16") == 0;
  bool good = argc - 1 <= count || bf16;
  for (int i = 0; i < argc - 1 && i < count; i++)
    good = (*numbers[i] = atoi(argv[i + 1])) >= 1 && good;
  if (!good) {
    fprintf(stderr,
            "usage: bench_sequence [threads [batch [positions [features [heads [words [repetitions [bf16]]]]]]]]\n");
    return 2;
  }
  require(petra_backend_create(PETRA_BACKEND_CPU, bf16 ? PETRA_PRECISION_BF16 : PETRA_PRECISION_FP32, threads, true,
                               &b.backend));
  const operands o = make(&b, &s);
  double step_s = 0;
  attention_half(&b, &o, &step_s);
  rest(&b, &o, &step_s);
  llama(&b, &o, &step_s);
  printf("%-20s %9.3f ms\n", "step of 4 blocks", step_s * 1e3);
  return 0;
}
