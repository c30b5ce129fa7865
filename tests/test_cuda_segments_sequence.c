/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of transformers as segments that are recorded and launched again. */
#include "test_cuda_segments.h"

enum { SAMPLES = 2, POSITIONS = 5, FEATURES = 4, HEADS = 2, TOKENS = 6, ROUNDS = 5 };
enum {
  IN,
  TABLE,
  PLACES,
  SCALE,
  QKV_W,
  OUT_W,
  EMBEDDED,
  MEAN,
  DEVIATION,
  NORMED,
  QKV,
  ATTENDED,
  LOG_SUM,
  OUT,
  CURVED,
  DOUT
};
enum { DCURVED = DOUT + 1, DOUT_W, DSCALE, DSHIFT, DATTENDED, DQKV, DNORMED, DTABLE, DPLACES, TENSORS };

/* Kinds (S, M, V: sequence, matrix, vector) and sizes in their order; all are inputs up to OUT_W. */
static const struct {
  char kind;
  int size;
} sequences[TENSORS] = {{'S', 1},
                        {'M', TOKENS},
                        {'M', POSITIONS},
                        {'V', 1},
                        {'M', 3 * FEATURES},
                        {'M', FEATURES},
                        {'S', FEATURES},
                        {'S', 1},
                        {'S', 1},
                        {'S', FEATURES},
                        {'S', 3 * FEATURES},
                        {'S', FEATURES},
                        {'S', HEADS},
                        {'S', FEATURES},
                        {'S', FEATURES},
                        {'S', FEATURES},
                        {'S', FEATURES},
                        {'M', FEATURES},
                        {'V', 1},
                        {'V', 1},
                        {'S', FEATURES},
                        {'S', 3 * FEATURES},
                        {'S', FEATURES},
                        {'M', TOKENS},
                        {'M', POSITIONS}};

static petra_tensor *make_sequence(petra_backend *backend, int i) {
  const int size = sequences[i].size;
  const int32_t sequence[4] = {SAMPLES, POSITIONS, size, 1}, matrix[4] = {size, FEATURES, 1, 1},
                line[4] = {FEATURES, 1, 1, 1};
  const char kind = sequences[i].kind;
  const petra_tensor_kind kinds = kind == 'S'   ? PETRA_TENSOR_SEQUENCE
                                  : kind == 'M' ? PETRA_TENSOR_MATRIX
                                                : PETRA_TENSOR_VECTOR;
  const int32_t *shape = kind == 'S' ? sequence : kind == 'M' ? matrix : line;
  return i <= OUT_W ? make_filled(backend, kinds, shape, 1) : make(backend, kinds, shape);
}

static void go_forward(petra_backend *backend, petra_tensor *const *t) {
  const petra_linear_forward project = {.x = t[NORMED], .w = t[QKV_W], .y = t[QKV]};
  const petra_linear_forward out = {
      .x = t[ATTENDED], .w = t[OUT_W], .join = PETRA_JOIN_SUBTRACT, .addend = t[EMBEDDED], .y = t[OUT], .b = t[SCALE]};
  must(petra_op_embed_forward(backend, t[IN], t[TABLE], t[PLACES], t[EMBEDDED]));
  must(petra_op_layer_norm_forward(backend, &(petra_layer_norm_forward){.x = t[EMBEDDED],
                                                                        .scale = t[SCALE],
                                                                        .shift = t[SCALE],
                                                                        .y = t[NORMED],
                                                                        .mean = t[MEAN],
                                                                        .deviation = t[DEVIATION]}));
  must(petra_op_linear_forward(backend, &project));
  must(petra_op_rotary(backend, &(petra_rotary){t[QKV], 2 * HEADS, FEATURES / HEADS, 10000, false, t[QKV]}));
  must(petra_op_attention_forward(
      backend,
      &(petra_attention){
          .qkv = t[QKV], .heads = HEADS, .kv_heads = HEADS, .causal = true, .y = t[ATTENDED], .log_sum = t[LOG_SUM]}));
  must(petra_op_linear_forward(backend, &out));
  must(petra_op_gelu_forward(backend, PETRA_GELU_TANH, t[OUT], t[CURVED]));
}

static void go_backward(petra_backend *backend, petra_tensor *const *t) {
  must(petra_op_gelu_backward(backend, PETRA_GELU_TANH, t[OUT], t[DCURVED], t[DOUT]));
  must(petra_op_linear_backward_data(backend, t[DOUT], t[OUT_W], t[DATTENDED]));
  must(petra_op_linear_backward_weights(backend, t[ATTENDED], t[DOUT], t[DOUT_W], t[DSHIFT]));
  must(petra_op_attention_backward(backend, &(petra_attention){.qkv = t[QKV],
                                                               .y = t[ATTENDED],
                                                               .log_sum = t[LOG_SUM],
                                                               .heads = HEADS,
                                                               .kv_heads = HEADS,
                                                               .causal = true,
                                                               .dy = t[DATTENDED],
                                                               .dqkv = t[DQKV]}));
  must(petra_op_rotary(backend, &(petra_rotary){t[DQKV], 2 * HEADS, FEATURES / HEADS, 10000, true, t[DQKV]}));
  must(petra_op_linear_backward_data(backend, t[DQKV], t[QKV_W], t[DNORMED]));
  must(petra_op_layer_norm_backward(backend, &(petra_layer_norm_backward){.x = t[EMBEDDED],
                                                                          .scale = t[SCALE],
                                                                          .mean = t[MEAN],
                                                                          .deviation = t[DEVIATION],
                                                                          .dy = t[DNORMED],
                                                                          .dx = t[DNORMED],
                                                                          .dscale = t[DSCALE],
                                                                          .dshift = t[DSHIFT]}));
  must(petra_op_embed_backward(backend, t[IN], t[DNORMED], t[DTABLE], t[DPLACES]));
}

/* The sums of squares of all tensors after each round, whose tokens and labels are its own. */
static void run_sequences(uint64_t seed, petra_graph_choice graph, double sums[ROUNDS][TENSORS + 1]) {
  petra_backend *backend = open_cuda(seed, graph);
  petra_tensor *t[TENSORS];
  for (int i = 0; i < TENSORS; i++)
    t[i] = make_sequence(backend, i);
  for (int round = 0; round < ROUNDS; round++) {
    float tokens[SAMPLES * POSITIONS];
    int32_t labels[SAMPLES * POSITIONS];
    petra_cross_entropy loss = {.logits = t[CURVED], .labels = labels, .dlogits = t[DCURVED], .later = true};
    for (int i = 0; i < SAMPLES * POSITIONS; i++) {
      tokens[i] = (float)((i * i + round) % TOKENS);
      labels[i] = (i + round) % FEATURES;
    }
    must(petra_op_upload(backend, t[IN], tokens, PETRA_HOST_F32));
    must(petra_backend_begin(backend, 1, FORWARD));
    go_forward(backend, t);
    must(petra_op_cross_entropy(backend, &loss));
    go_backward(backend, t);
    must(petra_backend_end(backend));
    must(petra_backend_collect(backend, loss.ticket, &loss));
    sums[round][TENSORS] = loss.loss;
    for (int i = 0; i < TENSORS; i++)
      must(petra_op_dot(backend, t[i], t[i], &sums[round][i]));
  }
  int64_t captured, launched, single;
  if (graph == PETRA_GRAPH_ON) {
    cuda_graphs_count(((cuda_backend *)backend)->graphs, &captured, &launched, &single);
    ck_assert(captured > 0 && launched >= ROUNDS / 2);
  }
  for (int i = 0; i < TENSORS; i++)
    petra_tensor_release(&t[i]);
  petra_backend_destroy(backend);
}

/* A graph of all of them, launched again for other tokens and labels, gives what single launches give, to the bit. */
START_TEST(transformers_as_graphs) {
  petra_log_set_sink(harness_capture, NULL); /* this file's own */
  double alone[ROUNDS][TENSORS + 1], found[ROUNDS][TENSORS + 1];
  run_sequences(1, PETRA_GRAPH_OFF, alone);
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i <= TENSORS; i++)
      ck_assert_msg(isfinite(alone[round][i]) && alone[round][i] > 0, "round %d, %d: %g", round, i, alone[round][i]);
  ck_assert(alone[0][TENSORS] != alone[1][TENSORS] && alone[0][DQKV] != alone[1][DQKV]);
  for (uint64_t seed = 2; seed <= 5; seed++) {
    run_sequences(seed, PETRA_GRAPH_ON, found);
    ck_assert_mem_eq(alone, found, sizeof alone);
  }
}
END_TEST

/* A label for each of many tokens goes up with a segment; of more than 65,536 they are refused. */
START_TEST(labels_of_many_tokens) {
  petra_log_set_sink(harness_capture, NULL); /* this file's own */
  static const int32_t counts[2] = {20000, 65537};
  petra_backend *backend = open_cuda(1, PETRA_GRAPH_ON);
  static int32_t labels[65537];
  for (int many = 0; many < 2; many++) {
    const int32_t shape[4] = {counts[many], 1, 2, 1};
    petra_tensor *logits = make(backend, PETRA_TENSOR_SEQUENCE, shape);
    petra_cross_entropy loss = {.logits = logits, .labels = labels};
    harness_clear();
    must(petra_op_fill(backend, logits, 0));
    ck_assert_int_eq(petra_op_cross_entropy(backend, &loss), many ? PETRA_UNSUPPORTED : PETRA_OK);
    if (many)
      ck_assert_logged(
          "262148 bytes of labels or rates in one operation; expected at most 262144: a smaller data.batch");
    else
      ck_assert(fabs(loss.loss - log(2)) < 1e-9 && loss.top1 == counts[0]); /* ties go to the lower class */
    petra_tensor_release(&logits);
  }
  petra_backend_destroy(backend);
}
END_TEST

int sequence_tests(const TTest **tests) {
  tests[0] = transformers_as_graphs;
  tests[1] = labels_of_many_tokens;
  return 2;
}
