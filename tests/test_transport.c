/* SPDX-License-Identifier: Apache-2.0 */
/* Workers with some of the stages each, and messages between them by the transport: the same losses, evaluations and
 * weights, bit for bit, as one worker with all of them. */
#include "base/mem.h"
#include "exec/pipeline.h"
#include "exec/transport.h"
#include "harness.h"
#include "tolerances.h"
#include "training.h"

enum { PARTS_MAX = 3, STAGES = 10, LOSSES = 24 };

#define NETWORK                                                                                                        \
  "model.depth=18", "model.width=2", "data.batch=4", "device.threads=1", "device.backend=ref",                         \
      "device.precision=fp64", "optim.lr=0.05", "run.max_microbatches=24", "data.limit=64"

/* What the workers tell; each has an observer of its own. */
typedef struct reporter {
  petra_stage_observer base;
  struct parts *parts;
} reporter;

/* Workers in the place of one, each with stages first[p] .. first[p + 1] - 1. */
typedef struct parts {
  petra_worker base;
  training *run;
  int count;
  int32_t first[PARTS_MAX + 1];
  petra_stage *some[PARTS_MAX][STAGES];
  petra_transport *transport;
  petra_loader *loader[PARTS_MAX];
  petra_pipeline pipeline[PARTS_MAX];
  petra_worker *worker[PARTS_MAX];
  reporter reporter[PARTS_MAX];
  petra_lr lr;
  double loss[LOSSES];
  int losses, evaluations;
  petra_evaluation evaluation;
} parts;

static petra_status on_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                            int64_t virtual_ns) {
  parts *p = ((reporter *)base)->parts;
  (void)lr;
  (void)virtual_ns;
  p->loss[microbatch] = loss->loss;
  p->losses++;
  return PETRA_OK;
}

static petra_status on_evaluation(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation) {
  parts *p = ((reporter *)base)->parts;
  (void)microbatch;
  p->evaluation = *evaluation;
  p->evaluations++;
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  parts *p = (parts *)base;
  for (int i = 0; i < count; i++) {
    for (int w = 0; w < p->count; w++)
      if (actions[i].kind == PETRA_ACTION_EVALUATE || p->some[w][actions[i].stage - 1])
        PETRA_TRY(p->worker[w]->ops->perform(p->worker[w], virtual_ns, &actions[i], 1, &results[i]));
  }
  return PETRA_OK;
}

static petra_status finish(petra_worker *base) {
  parts *p = (parts *)base;
  for (int w = 0; w < p->count; w++)
    PETRA_TRY(petra_worker_finish(p->worker[w]));
  return PETRA_OK;
}

/* Makes the workers; the run's own is left alone. */
static petra_worker *divide(void *context, petra_worker *whole) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  static const petra_stage_observer_ops report = {.loss = on_loss, .evaluated = on_evaluation};
  parts *p = context;
  const petra_network *network = p->run->network;
  const petra_stages all = petra_network_stages(network);
  const petra_plan *plan = p->run->plan;
  const petra_loader_options loader = petra_network_loader(network, 0, plan->program.microbatches);
  (void)whole;
  p->base.ops = &ops;
  p->lr = petra_lr_from_config(plan->config, plan->program.batches);
  must(petra_transport_local_create(&all, &p->transport));
  for (int w = 0; w < p->count; w++) {
    for (int32_t j = p->first[w]; j < p->first[w + 1]; j++)
      p->some[w][j - 1] = network->stage[j - 1];
    p->reporter[w] = (reporter){.base.ops = &report, .parts = p};
    must(petra_loader_create(p->run->set, &loader, &p->loader[w]));
    p->pipeline[w] = (petra_pipeline){.network = *network, .loader = p->loader[w], .transport = p->transport};
    p->pipeline[w].network.stage = p->some[w];
    const petra_pipeline_options options = {
        .train = p->run->set, .evaluation = p->run->set, .lr = &p->lr, .observers = &p->reporter[w].base};
    must(petra_worker_stage_create(&p->pipeline[w], &options, &p->worker[w]));
  }
  return &p->base;
}

static void same_as_one(const char *method, const char *speeds, const char *eval_every, const int32_t *first,
                        int count) {
  training one, many;
  training_tensors expected, found;
  parts p = {.run = &many, .count = count};
  for (int w = 0; w <= count; w++)
    p.first[w] = first[w];
  must(TRAINING_OPEN(&one, NETWORK, speeds, method, eval_every));
  must(training_run(&one));
  must(training_weights(&one, &expected));
  must(TRAINING_OPEN(&many, NETWORK, speeds, method, eval_every));
  petra_run_wrap(many.run, divide, &p);
  must(training_run(&many));
  must(training_weights(&many, &found));
  ck_assert_msg(training_same(&expected, &found), "%s in %d parts: other weights", method, count);
  ck_assert_int_eq(p.losses, one.loss_count);
  for (int64_t m = 0; m < p.losses; m++)
    ck_assert_msg(p.loss[m] == one.losses[m], "%s in %d parts: another loss of microbatch %lld", method, count,
                  (long long)m);
  ck_assert_int_eq(p.evaluation.images, one.evaluation.images);
  ck_assert(p.evaluation.loss == one.evaluation.loss && p.evaluation.top1 == one.evaluation.top1);
  for (int w = 0; w < count; w++) {
    petra_worker_stage_destroy(p.worker[w]);
    petra_loader_destroy(p.loader[w]);
  }
  petra_transport_destroy(p.transport);
  training_tensors_fini(&expected);
  training_tensors_fini(&found);
  training_close(&one);
  training_close(&many);
}

static const int32_t halves[] = {1, 5, 11}, thirds[] = {1, 2, 10, 11};

START_TEST(workers_with_some_stages) {
  static const char *const methods[] = {"method.name=petra", "method.name=backprop", "method.name=delayed",
                                        "method.name=1f1b",  "method.name=zb-h1",    "method.name=ddg"};
  for (int i = 0; i < HARNESS_COUNT(methods); i++) {
    same_as_one(methods[i], "cluster.speeds=[]", "run.eval_every=0", halves, 2);
    same_as_one(methods[i], "cluster.speeds=[]", "run.eval_every=0", thirds, 3);
  }
}
END_TEST

/* Whichever stage comes to its E first, all evaluate when the last one has. */
START_TEST(evaluation_goes_from_worker_to_worker) {
  static const char *const speeds[] = {"cluster.speeds=[]", "cluster.speeds=[1,1,1,1,1,1,1,1,1,0.4]",
                                       "cluster.speeds=[0.4,1,1,1,1,1,1,1,1,1]"};
  for (int i = 0; i < HARNESS_COUNT(speeds); i++) {
    same_as_one("method.name=petra", speeds[i], "run.eval_every=1", halves, 2);
    same_as_one("method.name=petra", speeds[i], "run.eval_every=1", thirds, 3);
  }
}
END_TEST

/* What cannot be delivered, or was not sent, is one line. */
START_TEST(messages_that_are_not_there) {
  training run;
  petra_transport *transport;
  petra_message message = {{{NULL, NULL}}, {{NULL, NULL}}};
  must(TRAINING_OPEN(&run, NETWORK, "method.name=petra"));
  petra_stage *four[STAGES] = {NULL};
  memcpy(four, run.network->stage, 4 * sizeof *four);
  const petra_stages some = {petra_network_stages(run.network).count, four};
  must(petra_transport_local_create(&some, &transport));
  const petra_address elsewhere = {5, PETRA_MESSAGE_FORWARD, 0}, here = {4, PETRA_MESSAGE_BACKWARD, 7};
  harness_clear();
  ck_assert_int_eq(transport->ops->post(transport, &elsewhere, &message), PETRA_INTERNAL);
  ck_assert_logged("stage 5, which is not in this process");
  harness_clear();
  ck_assert_int_eq(transport->ops->take(transport, &here, &message), PETRA_INTERNAL);
  ck_assert_logged("the message of microbatch 7 is not there");
  ck_assert_int_eq(harness_lines, 1);
  petra_transport_destroy(transport);
  training_close(&run);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {workers_with_some_stages, evaluation_goes_from_worker_to_worker,
                                messages_that_are_not_there};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int status = harness_run("transport", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return status;
}
