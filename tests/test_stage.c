/* SPDX-License-Identifier: Apache-2.0 */
/* Stages and the worker that runs them, on real tensors: versions, buffers, accounts, evaluations. */
#include "backend/backend.h"
#include "base/mem.h"
#include "harness.h"
#include "stage/stage_private.h"
#include "training_rig.h"

enum { STAGES_MAX = RIG_STAGES, MICROBATCHES_MAX = 128, EPOCHS_MAX = 8 };

/* What the trace tells. */
typedef struct reported {
  int64_t read[PETRA_ACTION_KINDS][STAGES_MAX + 1][MICROBATCHES_MAX];
  int64_t updates[STAGES_MAX + 1];
  int32_t evaluations;
  int64_t evaluated[EPOCHS_MAX];
  petra_evaluation evaluation[EPOCHS_MAX];
  int64_t losses;
} reported;

static petra_status keep_row(void *context, const petra_trace_row *row) {
  reported *t = context;
  const petra_action *a = &row->action;
  t->read[a->kind][a->stage][a->microbatch] = row->result.version_read;
  if (a->kind == PETRA_ACTION_UPDATE)
    ck_assert_int_eq(row->result.version_written, ++t->updates[a->stage]);
  else
    ck_assert_int_eq(row->result.version_written, -1);
  return PETRA_OK;
}

typedef struct reporter {
  petra_stage_observer base;
  reported *reported;
} reporter;

static petra_status keep_loss(petra_stage_observer *observer, int64_t microbatch, const petra_loss *loss, double lr,
                              int64_t virtual_ns) {
  reported *t = ((reporter *)observer)->reported;
  (void)lr;
  (void)virtual_ns;
  ck_assert_int_eq(microbatch, t->losses++);
  ck_assert_double_gt(loss->loss, 0);
  return PETRA_OK;
}

static petra_status keep_evaluation(petra_stage_observer *observer, int64_t microbatch,
                                    const petra_evaluation *evaluation) {
  reported *t = ((reporter *)observer)->reported;
  t->evaluated[t->evaluations] = microbatch;
  t->evaluation[t->evaluations++] = *evaluation;
  return PETRA_OK;
}

static reported shared_told;
static const petra_stage_observer_ops teller_ops = {.loss = keep_loss, .evaluated = keep_evaluation};
static reporter shared_teller = {.base.ops = &teller_ops, .reported = &shared_told};

static void start_reported(void) {
  memset(&shared_told, 0xff, sizeof shared_told); /* -1: no such action */
  memset(shared_told.updates, 0, sizeof shared_told.updates);
  shared_told.evaluations = 0;
  shared_told.losses = 0;
}

/* "[4, 2, 2]": the blocks dealt to the stages from the first on. */
static void deal(int blocks, int stages, char *text, size_t size) {
  size_t at = (size_t)snprintf(text, size, "stages.blocks=[");
  for (int j = 0; j < stages; j++)
    at += (size_t)snprintf(text + at, size - at, "%s%d", j ? ", " : "", blocks / stages + (j < blocks % stages));
  snprintf(text + at, size - at, "]");
}

typedef struct plan {
  const char *method, *family;
  int depth, stages, accumulate, batch;
  rig_options options;
} plan;

/* Runs the plan up to its end; the rig stays open. */
static void run_plan(rig *r, const plan *p) {
  char text[6][120];
  const char *const sets[] = {text[0],
                              text[1],
                              text[2],
                              text[3],
                              text[4],
                              text[5],
                              "stages.partition=list",
                              "model.width=1",
                              "device.backend=ref",
                              "device.precision=fp64",
                              "device.threads=1",
                              "optim.lr=0.001",
                              "optim.lr_scaling=none",
                              "lr.warmup_epochs=0"};
  rig_options options = p->options;
  snprintf(text[0], 120, "method.name=%s", p->method);
  snprintf(text[1], 120, "model.depth=%d", p->depth);
  snprintf(text[2], 120, "method.accumulate=%d", p->accumulate);
  snprintf(text[3], 120, "data.batch=%d", p->batch);
  snprintf(text[4], 120, "model.family=%s", p->family);
  deal(p->depth == 18 ? 10 : 18, p->stages, text[5], sizeof text[5]);
  options.sets = sets;
  options.set_count = HARNESS_COUNT(sets);
  options.observer = &shared_teller.base;
  start_reported();
  ck_assert_int_eq(rig_open(r, &options), PETRA_OK);
  ck_assert_int_eq(rig_run(r, keep_row, &shared_told), PETRA_OK);
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* v_fwd(m) = floor(max(0, m - tau) / k), v_bwd(m) = floor(m / k) and the largest lag ceil(tau / k), for every
 * stage. */
static void expect_lags(const rig *r) {
  int64_t k = r->program.accumulate;
  for (int32_t j = 1; j <= r->program.stages; j++) {
    int64_t delay = 2 * (r->program.stages - j), maximum = 0;
    for (int64_t m = 0; m < r->program.microbatches; m++) {
      int64_t backward = shared_told.read[PETRA_ACTION_BACKWARD][j][m];
      int64_t forward = j < r->program.stages ? shared_told.read[PETRA_ACTION_FORWARD][j][m] : backward;
      ck_assert_int_eq(forward, (m > delay ? m - delay : 0) / k);
      ck_assert_int_eq(backward, m / k);
      maximum = larger(maximum, backward - forward);
    }
    ck_assert_int_eq(maximum, (delay + k - 1) / k);
    ck_assert_int_eq(petra_stage_version(r->network->stage[j - 1]), r->program.microbatches / k);
    ck_assert_int_eq(r->network->stage[j - 1]->records.count, 0);
    ck_assert_int_eq(r->network->stage[j - 1]->records.count_max, delay + 1);
  }
}

START_TEST(lags_of_the_real_network) {
  const int factors[] = {1, 2, 3, 8};
  for (int stages = 2; stages <= 18; stages++)
    for (size_t f = 0; f < sizeof factors / sizeof *factors; f++) {
      rig r;
      /* Enough microbatches for stage 1 to come to its largest lag. */
      const plan p = {
          "petra",
          "revnet",
          stages % 2 ? 50 : 34,
          stages,
          factors[f],
          2,
          {.batches = 10, .microbatches = 2 * stages + 2 * factors[f], .drain = true, .engines = 1 + stages / 2 % 2}};
      run_plan(&r, &p);
      ck_assert_int_eq(shared_told.losses, r.program.microbatches);
      expect_lags(&r);
      rig_close(&r);
    }
}
END_TEST

/* Bytes of all tensors of a kind in a stage. */
static int64_t bytes_of(rig *r, int j, bool statistics) {
  int64_t sum = 0;
  for (int b = r->plan->partition.first[j]; b < r->plan->partition.first[j + 1]; b++) {
    const petra_block *block = &r->plan->model.blocks[b];
    int count = statistics ? petra_block_statistic_count(block) : petra_block_parameter_count(block);
    for (int i = 0; i < count; i++)
      sum += petra_stage_tensor(r->network->stage[j], b, statistics, i)->elements * (int64_t)sizeof(double);
  }
  return sum;
}

/* What stays after a drained run, when the worker is gone: weights and what belongs to them; the rest was
 * given back. */
static void expect_kept(rig *r, int j) {
  const petra_account *account = petra_stage_account(r->network->stage[j]);
  int64_t parameters = bytes_of(r, j, false), statistics = bytes_of(r, j, true);
  int64_t gradients = parameters * (r->program.accumulate > 1 ? 2 : 1);
  int64_t expected[PETRA_MEMORY_CATEGORIES] = {0};
  expected[PETRA_MEMORY_PARAMETERS] = expected[PETRA_MEMORY_MOMENTUM] = parameters;
  expected[PETRA_MEMORY_GRADIENTS] = gradients;
  expected[PETRA_MEMORY_STATISTICS] = statistics;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++) {
    ck_assert_msg(account->bytes[c] == expected[c], "stage %d, %s: %lld bytes held, expected %lld", j + 1,
                  petra_memory_category_name((petra_memory_category)c), (long long)account->bytes[c],
                  (long long)expected[c]);
    if (expected[c])
      ck_assert_int_eq(account->peak_bytes[c], expected[c]);
  }
  ck_assert_int_eq(account->total_bytes, 2 * parameters + gradients + statistics);
}

/* Bytes of the inputs that a stage keeps of one microbatch: those of its blocks that are not reversible. */
static int64_t input_bytes(const rig *r, int j, int batch) {
  int64_t sum = 0;
  for (int b = r->plan->partition.first[j]; b < r->plan->partition.first[j + 1]; b++)
    if (!r->plan->model.blocks[b].reversible)
      sum += batch * petra_block_input_elements(&r->plan->model.blocks[b]) * (int64_t)sizeof(double);
  return sum;
}

/* Peak of the input buffer: (tau + 1) inputs where a block is not reversible, none where all are; the last
 * stage keeps its graph within the one action. */
START_TEST(memory_of_petra) {
  const int depths[] = {18, 50};
  for (int d = 0; d < 2; d++)
    for (int engines = 1; engines <= 2; engines++)
      for (int stages = 2; stages <= (d ? 18 : 10); stages += d ? 8 : 4) {
        rig r;
        const plan p = {"petra",
                        "revnet",
                        depths[d],
                        stages,
                        engines,
                        3,
                        {.batches = 10,
                         .microbatches = 2 * stages + 3,
                         .drain = true,
                         .engines = engines,
                         .eval_every = 1,
                         .eval_images = 7}};
        int reversible = 0;
        run_plan(&r, &p);
        petra_run_drop_worker(r.run);
        for (int j = 0; j < r.plan->partition.stages; j++) {
          const petra_account *account = petra_stage_account(r.network->stage[j]);
          int64_t delay = 2 * (stages - (j + 1)), each = j + 1 < stages ? input_bytes(&r, j, 3) : 0;
          reversible += each == 0;
          ck_assert_int_eq(account->peak_bytes[PETRA_MEMORY_INPUT_BUFFER], (delay + 1) * each);
          ck_assert_int_eq(account->peak_bytes[PETRA_MEMORY_WEIGHT_BUFFER], 0);
          expect_kept(&r, j);
        }
        if (stages == 10 || stages == 18)
          ck_assert_int_gt(reversible, 4);
        rig_close(&r);
      }
}
END_TEST

START_TEST(memory_of_the_sequential_methods) {
  const char *const methods[] = {"backprop", "reversible"};
  for (int i = 0; i < 4; i++) {
    rig r;
    const plan p = {
        methods[i % 2],
        i / 2 ? "resnet" : "revnet",
        18,
        5,
        2,
        3,
        {.batches = 4, .microbatches = 5, .drain = true, .engines = 1 + i / 2, .eval_every = 1, .eval_images = 7}};
    run_plan(&r, &p);
    petra_run_drop_worker(r.run);
    for (int j = 0; j < r.plan->partition.stages; j++) {
      int64_t peak = petra_stage_account(r.network->stage[j])->peak_bytes[PETRA_MEMORY_INPUT_BUFFER];
      ck_assert_int_eq(peak, i % 2 == 0 || j == r.plan->partition.stages - 1 ? 0 : input_bytes(&r, j, 3));
      ck_assert_int_eq(r.network->stage[j]->records.count_max, 1);
      expect_kept(&r, j);
    }
    rig_close(&r);
  }
}
END_TEST

/* An undrained run ends with the pipeline full: the microbatches under way are held, and given back with the
 * stages. */
START_TEST(undrained_runs_are_given_back) {
  rig r;
  const plan p = {"petra", "revnet", 18, 10, 1, 2, {.batches = 10, .microbatches = 24}};
  run_plan(&r, &p);
  for (int j = 0; j < 9; j++)
    ck_assert_int_eq(r.network->stage[j]->records.count,
                     larger(0, 2 * (10 - (j + 1)))); /* F and B of the last tick are done */
  rig_close(&r);
}
END_TEST

static void expect_same_evaluation(const petra_evaluation *a, const petra_evaluation *b) {
  ck_assert_int_eq(a->images, b->images);
  ck_assert(a->loss == b->loss); /* bit for bit: the same weights, the same sums */
  ck_assert(a->top1 == b->top1 && a->top5 == b->top5);
}

/* The evaluation of epoch e in a run of several epochs is that of the weights at the end of an undrained run
 * of e epochs: those after global tick eN - 1. N is smaller than J in half of the cases. */
START_TEST(evaluations_see_the_weights_of_their_tick) {
  const char *const methods[] = {"petra", "backprop"};
  for (int i = 0; i < 8; i++) {
    int batches = i / 2 % 2 ? 3 : 9, epochs = batches == 3 ? 5 : 3;
    plan p = {
        methods[i % 2],
        "revnet",
        18,
        5,
        1 + i / 4,
        2,
        {.batches = batches, .microbatches = epochs * batches, .eval_every = 1, .eval_images = 7, .drain = i % 2}};
    petra_evaluation seen[EPOCHS_MAX];
    rig r;
    run_plan(&r, &p);
    ck_assert_int_eq(shared_told.evaluations, epochs);
    for (int e = 0; e < epochs; e++) {
      seen[e] = shared_told.evaluation[e];
      ck_assert_int_eq(shared_told.evaluated[e], (e + 1) * batches - 1);
      ck_assert_int_eq(seen[e].images, 7);
    }
    rig_close(&r);
    ck_assert(seen[0].loss != seen[epochs - 1].loss);
    for (int e = 0; e < epochs; e++) {
      petra_evaluation end;
      p.options.microbatches = (e + 1) * batches;
      p.options.eval_every = 0;
      run_plan(&r, &p);
      ck_assert_int_eq(shared_told.evaluations, 0);
      ck_assert_int_eq(rig_evaluate(&r, &end), PETRA_OK);
      expect_same_evaluation(&end, &seen[e]);
      rig_close(&r);
    }
  }
}
END_TEST

/* All values of a stage's statistics or parameters, one after the other. */
static double *download(rig *r, int j, bool statistics, int64_t *count) {
  int64_t at = 0;
  double *values;
  *count = bytes_of(r, j, statistics) / (int64_t)sizeof(double);
  ck_assert_int_eq(petra_allocate(&values, (size_t)*count, sizeof *values), PETRA_OK);
  for (int b = r->plan->partition.first[j]; b < r->plan->partition.first[j + 1]; b++) {
    const petra_block *block = &r->plan->model.blocks[b];
    for (int i = 0; i < (statistics ? petra_block_statistic_count(block) : petra_block_parameter_count(block)); i++) {
      petra_tensor *tensor = petra_stage_tensor(r->network->stage[j], b, statistics, i);
      ck_assert_int_eq(petra_op_download(r->network->backend, tensor, values + at, PETRA_HOST_F64), PETRA_OK);
      at += tensor->elements;
    }
  }
  return values;
}

/* F leaves the running statistics alone; B moves them, also where it inverts. */
START_TEST(statistics_move_in_backward_alone) {
  for (int64_t microbatches = 3; microbatches <= 5; microbatches += 2) {
    rig r;
    /* J = 3: stage 1 gives microbatch 0 back in global tick 4, the fifth; after three ticks there was F
     * alone. */
    const plan p = {"petra", "revnet", 18, 3, 1, 2, {.batches = 8, .microbatches = microbatches}};
    run_plan(&r, &p);
    int64_t count, moved = 0;
    double *values = download(&r, 0, true, &count);
    for (int64_t i = 0; i < count; i++)
      moved += values[i] != 0 && values[i] != 1;
    ck_assert_int_gt(count, 10);
    if (microbatches == 3)
      ck_assert_int_eq(moved, 0);
    else
      ck_assert_int_gt(moved, count / 2);
    petra_free(values);
    rig_close(&r);
  }
}
END_TEST

/* Initial values belong to block, seed and place alone: not to the partition or the threads. */
START_TEST(initial_values_whatever_the_partition_and_threads) {
  double *first[10] = {NULL};
  for (int c = 0; c < 3; c++) {
    const char *const partitions[] = {"stages.partition=block", "stages.blocks=[3, 3, 4]", "stages.blocks=[10]"};
    const char *const sets[] = {
        "model.width=2",         c ? "stages.partition=list" : partitions[0],      partitions[c], "device.backend=ref",
        "device.precision=fp64", c == 2 ? "device.threads=2" : "device.threads=1", "data.batch=2"};
    const rig_options options = {.sets = sets, .set_count = HARNESS_COUNT(sets), .batches = 1, .microbatches = 1};
    rig r;
    ck_assert_int_eq(rig_open(&r, &options), PETRA_OK);
    for (int j = 0; j < r.plan->partition.stages; j++) {
      int64_t count, at = 0;
      double *values = download(&r, j, false, &count);
      if (c == 0) {
        first[j] = values;
        continue;
      }
      for (int b = r.plan->partition.first[j]; b < r.plan->partition.first[j + 1]; b++) {
        int64_t size = petra_block_parameters(&r.plan->model, &r.plan->model.blocks[b]);
        ck_assert_int_eq(memcmp(values + at, first[b], (size_t)size * sizeof *values), 0);
        at += size;
      }
      ck_assert_int_eq(at, count);
      petra_free(values);
    }
    rig_close(&r);
  }
  for (int b = 0; b < 10; b++)
    petra_free(first[b]);
}
END_TEST

/* A backward that is not due and an update with too few backwards are refused in one line. */
START_TEST(misuse_is_refused) {
  rig r;
  const plan p = {"petra", "revnet", 18, 3, 2, 2, {.batches = 8, .microbatches = 3}};
  run_plan(&r, &p);
  petra_message in = {{{NULL, NULL}}, {{NULL, NULL}}}, out;
  harness_clear();
  ck_assert_int_eq(petra_stage_backward(r.network->stage[0], 77, &in, &out), PETRA_INTERNAL);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("stage 1: backward of microbatch 77, which is not in flight there");
  harness_clear();
  ck_assert_int_eq(petra_stage_update(r.network->stage[0], 0.1), PETRA_INTERNAL);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("stage 1: update after 0 backward passes; expected 2");
  rig_close(&r);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {lags_of_the_real_network,
                                memory_of_petra,
                                memory_of_the_sequential_methods,
                                undrained_runs_are_given_back,
                                evaluations_see_the_weights_of_their_tick,
                                statistics_move_in_backward_alone,
                                initial_values_whatever_the_partition_and_threads,
                                misuse_is_refused};
  return harness_run("stage", tests, HARNESS_COUNT(tests));
}
