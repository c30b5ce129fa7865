/* SPDX-License-Identifier: Apache-2.0 */
/* What one stage does, whatever the method's order: what it keeps and for how long, when its running
 * statistics move, what several blocks in a stage compute after the weights changed
 * (docs/semantics/methods.md). */
#include "harness.h"
#include "stage/stage_private.h"
#include "tolerances.h"
#include "training.h"

#include "backend/backend.h"

#include <math.h>

#define SMALL                                                                                                          \
  "model.depth=18", "model.width=2", "data.batch=4", "optim.lr=0.02", "device.threads=1", "device.backend=ref",        \
      "device.precision=fp64"
#define LIST "stages.partition=list", "stages.blocks=[2, 3, 5]"

enum { BATCH = 4, STAGES = 3 };

/* --- buffers --- */

/* Bytes of the inputs that a stage keeps of one microbatch: those of its blocks that cannot be inverted. */
static int64_t kept_bytes(const training *run, int stage) {
  int64_t elements = 0;
  for (int b = run->plan->partition.first[stage]; b < run->plan->partition.first[stage + 1]; b++)
    if (!run->plan->model.blocks[b].reversible)
      elements += petra_block_input_elements(&run->plan->model.blocks[b]);
  return elements * BATCH * (int64_t)sizeof(double);
}

static void check_buffers(const char *partition, const char *blocks) {
  training run;
  must(TRAINING_OPEN(&run, SMALL, partition, blocks, "method.name=petra", "run.max_microbatches=24", "run.drain=true"));
  int32_t stages = run.plan->partition.stages;
  must(training_run(&run));
  ck_assert_int_eq(run.loss_count, 24);
  for (int j = 0; j < stages; j++) {
    petra_stage *stage = run.network->stage[j];
    const petra_account *account = petra_stage_account(stage);
    int64_t peak = 2 * (stages - j - 1) + 1;
    ck_assert_int_eq(stage->records.count_max, peak);
    ck_assert_int_eq(stage->records.count, 0);
    ck_assert_int_eq(petra_stage_version(stage), 24);
    /* The last stage does F and B in one action and keeps graphs in between, not inputs. */
    int64_t inputs = j == stages - 1 ? 0 : peak * kept_bytes(&run, j);
    ck_assert_msg(account->peak_bytes[PETRA_MEMORY_INPUT_BUFFER] == inputs,
                  "stage %d of %d: %lld bytes of inputs, expected %lld", j + 1, stages,
                  (long long)account->peak_bytes[PETRA_MEMORY_INPUT_BUFFER], (long long)inputs);
    ck_assert_int_eq(account->bytes[PETRA_MEMORY_INPUT_BUFFER], 0);
  }
  training_close(&run);
}

START_TEST(petra_keeps_inputs_of_irreversible_blocks_alone) {
  check_buffers("stages.partition=block", "stages.blocks=[]");
  check_buffers("stages.partition=list", "stages.blocks=[2, 3, 5]");
  check_buffers("stages.partition=list", "stages.blocks=[4, 2, 2, 2]");
}
END_TEST

/* --- a run by hand: three stages and the messages between them --- */

typedef struct hand {
  training run;
  petra_stage **stage;
  int32_t labels[BATCH];
  petra_message up[STAGES];   /* input of each stage */
  petra_message down[STAGES]; /* what each stage sends down */
} hand;

static void hand_open(hand *h, const char *accumulate) {
  *h = (hand){0};
  must(TRAINING_OPEN(&h->run, SMALL, LIST, "method.name=petra", accumulate));
  ck_assert_int_eq(h->run.plan->partition.stages, STAGES);
  h->stage = h->run.network->stage;
}

static void hand_release(hand *h) {
  for (int j = 0; j < STAGES; j++) {
    petra_message_release(&h->up[j]);
    petra_message_release(&h->down[j]);
  }
}

static void hand_close(hand *h) {
  hand_release(h);
  training_close(&h->run);
}

/* F of the first two stages on microbatch `m`, which holds batch `batch` of the data. */
static void hand_forward(hand *h, int64_t m, int64_t batch) {
  must(training_batch(&h->run, batch, &h->up[0], h->labels));
  must(petra_stage_forward(h->stage[0], m, &h->up[0], NULL, 0, &h->up[1], NULL));
  must(petra_stage_forward(h->stage[1], m, &h->up[1], NULL, 0, &h->up[2], NULL));
}

static void hand_loss(hand *h, int64_t m) {
  petra_loss loss;
  must(petra_stage_loss(h->stage[2], m, &h->up[2], h->labels, &h->down[2], &loss));
  ck_assert(isfinite(loss.loss) && loss.images == BATCH);
}

static void hand_backward(hand *h, int64_t m) {
  must(petra_stage_backward(h->stage[1], m, &h->down[2], &h->down[1]));
  must(petra_stage_backward(h->stage[0], m, &h->down[1], &h->down[0]));
}

/* --- running statistics --- */

/* Of the stages whose bit is set all statistics differ from `before`, of the others none. */
static void check_moved(hand *h, const training_tensors *before, unsigned moved) {
  training_tensors now;
  must(training_weights(&h->run, &now));
  for (int i = 0; i < now.count; i++) {
    int block = atoi(now.tensor[i].name) - 1, j = 0;
    while (block >= h->run.plan->partition.first[j + 1])
      j++;
    bool same =
        memcmp(now.tensor[i].values, before->tensor[i].values, (size_t)now.tensor[i].elements * sizeof(double)) == 0;
    bool expected = now.tensor[i].statistic && (moved >> j & 1);
    ck_assert_msg(same != expected, "%s: %s", now.tensor[i].name, same ? "did not move" : "moved");
  }
  training_tensors_fini(&now);
}

/* With the same batch twice: r1 = (1 - a) r0 + a s and r2 = (1 - a) r1 + a s with a = 0.1, so r2 - r1 = 0.9
 * (r1 - r0). */
static double wrong_moves(const training_tensors *r0, const training_tensors *r1, const training_tensors *r2) {
  double worst = 0;
  for (int i = 0; i < r0->count; i++)
    for (int64_t e = 0; r0->tensor[i].statistic && e < r0->tensor[i].elements; e++) {
      double a = r0->tensor[i].values[e], b = r1->tensor[i].values[e], c = r2->tensor[i].values[e];
      double wrong = fabs(c - b - 0.9 * (b - a));
      if (!(wrong <= worst))
        worst = wrong;
    }
  return worst;
}

START_TEST(statistics_move_once_a_microbatch_and_in_b_alone) {
  hand h;
  training_tensors before, first, second;
  hand_open(&h, "method.accumulate=2");
  must(training_weights(&h.run, &before));
  hand_forward(&h, 0, 0);
  check_moved(&h, &before, 0);
  hand_loss(&h, 0);
  check_moved(&h, &before, 1u << 2);
  must(petra_stage_backward(h.stage[1], 0, &h.down[2], &h.down[1]));
  check_moved(&h, &before, 1u << 2 | 1u << 1);
  must(petra_stage_backward(h.stage[0], 0, &h.down[1], &h.down[0]));
  check_moved(&h, &before, 7);
  must(training_weights(&h.run, &first));
  hand_release(&h);
  hand_forward(&h, 1, 0);
  check_moved(&h, &first, 0);
  hand_loss(&h, 1);
  hand_backward(&h, 1);
  must(training_weights(&h.run, &second));
  within("a statistic against its closed form after two microbatches", wrong_moves(&before, &first, &second),
         TOLERANCE_STATISTICS);
  training_tensors_fini(&before);
  training_tensors_fini(&first);
  training_tensors_fini(&second);
  hand_close(&h);
}
END_TEST

/* --- evaluation --- */

/* Mean loss over `images` images of the data from the start, in batches of `batch`. */
static double evaluated(hand *h, int32_t batch) {
  petra_snapshot *snapshots[STAGES];
  petra_evaluation evaluation;
  for (int j = 0; j < STAGES; j++)
    must(petra_stage_snapshot(h->stage[j], &snapshots[j]));
  petra_network network = *h->run.network;
  petra_plan plan = *network.plan;
  petra_config config = *plan.config;
  config.data.batch = batch;
  plan.config = &config;
  network.plan = &plan;
  const petra_evaluation_options options = {.network = &network, .set = h->run.set};
  must(petra_evaluate(&options, snapshots, &evaluation));
  ck_assert_int_eq(evaluation.images, 40);
  for (int j = 0; j < STAGES; j++)
    petra_snapshot_destroy(snapshots[j]);
  return evaluation.loss;
}

START_TEST(evaluation_reads_the_running_statistics) {
  hand h = {0};
  training_tensors before;
  must(TRAINING_OPEN(&h.run, SMALL, LIST, "method.name=petra", "data.limit=40", "run.max_microbatches=8"));
  h.stage = h.run.network->stage;
  must(training_run(&h.run));
  must(training_weights(&h.run, &before));
  /* With batch statistics an image's loss would depend on the batch that it is in. */
  double whole = evaluated(&h, 40), parts = evaluated(&h, 7);
  within("evaluation in batches of 40 and of 7", fabs(parts / whole - 1), TOLERANCE_EVALUATION);
  check_moved(&h, &before, 0);
  /* The variance of the stem's norm is read: with another one the loss is another. */
  must(petra_op_fill(h.run.network->backend, petra_stage_tensor(h.stage[0], 0, true, 1), 100));
  double other = evaluated(&h, 40);
  ck_assert_double_gt(fabs(other / whole - 1), 1e-3);
  training_tensors_fini(&before);
  hand_close(&h);
}
END_TEST

/* --- order --- */

START_TEST(a_backward_that_is_not_due_is_refused) {
  hand h;
  hand_open(&h, "method.accumulate=1");
  hand_forward(&h, 4, 0);
  hand_loss(&h, 4);
  petra_message out;
  harness_clear();
  ck_assert_int_eq(petra_stage_backward(h.stage[1], 5, &h.down[2], &out), PETRA_INTERNAL);
  ck_assert_logged("stage 2: backward of microbatch 5, which is not in flight there");
  ck_assert_int_eq(harness_lines, 1);
  harness_clear();
  ck_assert_int_eq(petra_stage_update(h.stage[1], 0.1), PETRA_INTERNAL);
  ck_assert_logged("stage 2: update after 0 backward passes; expected 1");
  ck_assert_int_eq(harness_lines, 1);
  /* The refusal changed nothing: the right one goes on. */
  hand_backward(&h, 4);
  harness_clear();
  ck_assert_int_eq(petra_stage_backward(h.stage[1], 4, &h.down[2], &out), PETRA_INTERNAL);
  ck_assert_logged("stage 2: backward of microbatch 4");
  ck_assert_int_eq(harness_lines, 1);
  hand_close(&h);
}
END_TEST

/* --- several blocks in a stage, block by block --- */

/* Every weight of the stage 2 % larger or smaller, by turns. */
static void change_weights(hand *h, petra_stage *stage) {
  for (int b = 0; b < stage->blocks; b++)
    for (int i = 0; i < stage->sets[b].parameters.count; i++) {
      petra_tensor *tensor = stage->sets[b].parameters.tensor[i];
      double *values = malloc((size_t)tensor->elements * sizeof *values);
      must(petra_op_download(h->run.network->backend, tensor, values, PETRA_HOST_F64));
      for (int64_t e = 0; e < tensor->elements; e++)
        values[e] *= (e * 7 + i * 3 + b) % 5 < 2 ? 1.02 : 0.98;
      must(petra_op_upload(h->run.network->backend, tensor, values, PETRA_HOST_F64));
      free(values);
    }
}

/* Backward through the stage's block `b`, by hand: `graph` becomes empty, *gradients those of the block's
 * input. */
static void block_backward(petra_stage *stage, int b, petra_block_graph *graph, petra_streams *gradients,
                           petra_tensor_set *out) {
  const petra_block *block = petra_stage_block(stage, b);
  petra_streams below;
  must(petra_tensor_set_create(&stage->compute, stage->options.model, block, false, PETRA_MEMORY_WORKSPACE, out));
  must(petra_block_backward(&stage->compute, block, stage->sets[b].parameters.tensor, graph, gradients, out->tensor,
                            &below));
  petra_block_graph_release(graph);
  petra_streams_release(gradients);
  *gradients = below;
}

/* Distance over length of all gradients of block `b` between what the stage has and `found`. */
static double gradients_apart(hand *h, petra_stage *stage, int b, const petra_tensor_set *found) {
  double apart = 0, length = 0;
  for (int i = 0; i < found->count; i++) {
    petra_tensor *expected = stage->sets[b].gradients.tensor[i];
    double one, two, mixed;
    must(petra_op_dot(h->run.network->backend, expected, expected, &one));
    must(petra_op_dot(h->run.network->backend, found->tensor[i], found->tensor[i], &two));
    must(petra_op_dot(h->run.network->backend, expected, found->tensor[i], &mixed));
    apart += one + two - 2 * mixed;
    length += one;
  }
  return sqrt(fabs(apart) / length);
}

static bool same_values(hand *h, const petra_tensor *a, const petra_tensor *b) {
  size_t bytes = (size_t)a->elements * sizeof(double);
  double *x = malloc(bytes), *y = malloc(bytes);
  ck_assert_int_eq(a->elements, b->elements);
  must(petra_op_download(h->run.network->backend, a, x, PETRA_HOST_F64));
  must(petra_op_download(h->run.network->backend, b, y, PETRA_HOST_F64));
  bool same = memcmp(x, y, bytes) == 0;
  free(x);
  free(y);
  return same;
}

static void forward_block(petra_stage *stage, int b, const petra_streams *in, petra_block_graph *graph,
                          petra_streams *out) {
  must(petra_block_forward(&stage->compute, petra_stage_block(stage, b), stage->sets[b].parameters.tensor, in, NULL,
                           graph, out));
}

static void invert_block(petra_stage *stage, int b, const petra_streams *out, petra_block_graph *graph,
                         petra_streams *in) {
  must(petra_block_invert(&stage->compute, petra_stage_block(stage, b), stage->sets[b].parameters.tensor, out, graph,
                          in));
}

/* Stage 2 holds a reversible block, one that is not, and a reversible one. */
START_TEST(blocks_of_a_stage_follow_the_rules_one_by_one) {
  hand h;
  petra_streams kept, below, unused, gradients;
  petra_block_graph graph[3] = {0};
  petra_tensor_set found[3];
  hand_open(&h, "method.accumulate=1");
  petra_stage *stage = h.stage[1];
  ck_assert(petra_stage_block(stage, 0)->reversible && !petra_stage_block(stage, 1)->reversible &&
            petra_stage_block(stage, 2)->reversible);
  hand_forward(&h, 0, 0);
  hand_loss(&h, 0);
  forward_block(stage, 0, &h.up[1].streams, NULL, &kept); /* the middle block's input, with the weights of F */
  change_weights(&h, stage);
  must(petra_stage_backward(stage, 0, &h.down[2], &h.down[1]));
  /* By hand, with the new weights: invert from the message, recompute from the kept input, invert from the
   * kept input. */
  gradients = petra_streams_retain(&h.down[2].gradients);
  invert_block(stage, 2, &h.down[2].streams, &graph[2], &unused);
  petra_streams_release(&unused);
  block_backward(stage, 2, &graph[2], &gradients, &found[2]);
  forward_block(stage, 1, &kept, &graph[1], &unused);
  petra_streams_release(&unused);
  block_backward(stage, 1, &graph[1], &gradients, &found[1]);
  invert_block(stage, 0, &kept, &graph[0], &below);
  block_backward(stage, 0, &graph[0], &gradients, &found[0]);
  for (int b = 0; b < 3; b++) {
    for (int i = 0; i < found[b].count; i++)
      ck_assert_msg(same_values(&h, stage->sets[b].gradients.tensor[i], found[b].tensor[i]), "block %d, tensor %d", b,
                    i);
    petra_tensor_set_release(&found[b]);
  }
  for (int i = 0; i < 2; i++) {
    ck_assert(same_values(&h, h.down[1].gradients.tensor[i], gradients.tensor[i]));
    ck_assert(same_values(&h, h.down[1].streams.tensor[i], below.tensor[i]));
  }
  petra_streams_release(&below);
  petra_streams_release(&gradients);
  petra_streams_release(&kept);
  hand_close(&h);
}
END_TEST

/* The rule matters: the whole stage recomputed from its input gives other gradients. */
START_TEST(recomputing_the_stage_from_its_input_is_something_else) {
  hand h;
  petra_streams streams[4], gradients;
  petra_block_graph graph[3] = {0};
  hand_open(&h, "method.accumulate=1");
  petra_stage *stage = h.stage[1];
  hand_forward(&h, 0, 0);
  hand_loss(&h, 0);
  change_weights(&h, stage);
  must(petra_stage_backward(stage, 0, &h.down[2], &h.down[1]));
  streams[0] = petra_streams_retain(&h.up[1].streams);
  for (int b = 0; b < 3; b++)
    forward_block(stage, b, &streams[b], &graph[b], &streams[b + 1]);
  gradients = petra_streams_retain(&h.down[2].gradients);
  for (int b = 2; b >= 0; b--) {
    petra_tensor_set found;
    block_backward(stage, b, &graph[b], &gradients, &found);
    double apart = gradients_apart(&h, stage, b, &found);
    printf("block %d of 3: gradients %.3f away when the stage is recomputed from its input\n", b + 1, apart);
    ck_assert_double_gt(apart, 0.01);
    petra_tensor_set_release(&found);
  }
  petra_streams_release(&gradients);
  for (int b = 0; b < 4; b++)
    petra_streams_release(&streams[b]);
  hand_close(&h);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      petra_keeps_inputs_of_irreversible_blocks_alone, statistics_move_once_a_microbatch_and_in_b_alone,
      evaluation_reads_the_running_statistics,         a_backward_that_is_not_due_is_refused,
      blocks_of_a_stage_follow_the_rules_one_by_one,   recomputing_the_stage_from_its_input_is_something_else};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("stage_rules", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
