/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas: a run with r of them against r networks that are gone through by hand, one batch a replica, with the mean of their
 * gradients computed here; what a loss, and the part of a loader, is; what an update waits for in a simulation. */
#include "backend/backend.h"
#include "exec/stage_observer.h"
#include "exec/worker_replicas.h"
#include "harness.h"
#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"
#include "stage/stage.h"
#include "tolerances.h"
#include "training.h"

enum { REPLICAS = 3, BATCH = 4, MICROBATCHES = 6 };
#define NETWORK "model.depth=18", "model.width=2", "device.threads=1", "optim.lr=0.05", "method.name=backprop"

/* The stages of r networks, by hand. */
typedef struct hand {
  training *whole; /* whose batch is that of all replicas: data, plan and backend are its */
  petra_network network[REPLICAS];
  double loss[REPLICAS];
} hand;

/* Replica i's images [i B, (i + 1) B) of microbatch m, cut from those of all. */
static void cut_batch(const hand *h, int64_t m, int replica, petra_tensor **images, int32_t *labels) {
  const petra_loader_options options = petra_network_loader(h->whole->network, m, m + 1);
  petra_loader *loader;
  petra_batch *batch;
  must(petra_loader_create(h->whole->set, &options, &loader));
  must(petra_loader_next(loader, &batch));
  ck_assert_int_eq(batch->count, REPLICAS * BATCH);
  const int32_t shape[4] = {BATCH, batch->shape[1], batch->shape[2], batch->shape[3]};
  const size_t values = (size_t)shape[1] * (size_t)shape[2] * (size_t)shape[3];
  must(petra_tensor_create(h->whole->network->backend, PETRA_TENSOR_ACTIVATION, shape, NULL, PETRA_MEMORY_WORKSPACE,
                           images));
  must(petra_op_upload(h->whole->network->backend, *images, batch->values + (size_t)(replica * BATCH) * values,
                       PETRA_HOST_F64));
  memcpy(labels, batch->labels + (ptrdiff_t)replica * BATCH, BATCH * sizeof *labels);
  petra_loader_give_back(loader, batch);
  petra_loader_destroy(loader);
}

/* A microbatch up and down through one replica. */
static void pass(hand *h, int replica, int64_t m) {
  petra_stage **stage = h->network[replica].stage;
  const int stages = h->whole->plan->stages;
  petra_message message = {{{NULL, NULL}}, {{NULL, NULL}}};
  int32_t labels[BATCH];
  petra_loss loss;
  cut_batch(h, m, replica, &message.streams.tensor[0], labels);
  for (int j = 0; j < stages; j++) {
    petra_message out = {{{NULL, NULL}}, {{NULL, NULL}}};
    must(j < stages - 1 ? petra_stage_forward(stage[j], m, &message, NULL, 0, &out, NULL)
                        : petra_stage_loss(stage[j], m, &message, labels, &out, &loss));
    petra_message_release(&message);
    message = out;
  }
  for (int j = stages - 2; j >= 0; j--) {
    petra_message out;
    must(petra_stage_backward(stage[j], m, &message, &out));
    petra_message_release(&message);
    message = out;
  }
  petra_message_release(&message);
  h->loss[replica] = loss.loss;
}

/* Replaces a tensor of all replicas by its mean, element by element, in the type of its elements. */
static void average(const petra_backend *backend, petra_tensor *tensor[REPLICAS]) {
  const size_t elements = (size_t)tensor[0]->elements;
  double *values[REPLICAS];
  for (int i = 0; i < REPLICAS; i++) {
    values[i] = malloc(elements * sizeof(double));
    must(petra_op_download(tensor[i]->backend, tensor[i], values[i], PETRA_HOST_F64));
  }
  const bool wide = backend->element_bytes[tensor[0]->kind] > sizeof(float);
  for (size_t e = 0; e < elements; e++)
    values[0][e] = wide ? (values[0][e] + values[1][e] + values[2][e]) / REPLICAS
                        : (double)(((float)values[0][e] + (float)values[1][e] + (float)values[2][e]) / (float)REPLICAS);
  for (int i = 0; i < REPLICAS; i++)
    must(petra_op_upload(tensor[i]->backend, tensor[i], values[0], PETRA_HOST_F64));
  for (int i = 0; i < REPLICAS; i++)
    free(values[i]);
}

static void update(hand *h, int j) {
  const petra_plan *plan = h->whole->plan;
  petra_backend *backend = h->whole->network->backend;
  petra_tensor *same[REPLICAS];
  for (int b = plan->partition.first[j]; b < plan->partition.first[j + 1]; b++) {
    const petra_block *block = &plan->model.blocks[b];
    for (int t = 0; t < petra_block_parameter_count(block); t++) {
      for (int i = 0; i < REPLICAS; i++)
        same[i] = petra_stage_mean_gradients(h->network[i].stage[j], b)->tensor[t];
      average(backend, same);
    }
    for (int t = 0; t < petra_block_statistic_count(block); t++) {
      for (int i = 0; i < REPLICAS; i++)
        same[i] = petra_stage_tensor(h->network[i].stage[j], b, true, t);
      average(backend, same);
    }
  }
  for (int i = 0; i < REPLICAS; i++)
    must(petra_stage_update(h->network[i].stage[j], 0.05));
}

/* With k microbatches an update, shuffled and augmented images. */
static void compare_with_hand(const char *backend, const char *precision, const char *accumulate, int k) {
  training run, whole;
  hand h = {.whole = &whole};
  training_tensors found, expected, initial;
  must(TRAINING_OPEN(&run, NETWORK, backend, precision, accumulate, "data.batch=4", "cluster.replicas=3",
                     "data.shuffle=true", "data.augment=[crop, flip]", "run.max_microbatches=6"));
  must(TRAINING_OPEN(&whole, NETWORK, backend, precision, accumulate, "data.batch=12", "data.shuffle=true",
                     "data.augment=[crop, flip]", "run.max_microbatches=6"));
  ck_assert_int_eq(run.plan->program.batches, whole.plan->program.batches);
  must(training_weights(&run, &initial));
  must(training_run(&run));
  ck_assert_int_eq(run.loss_count, MICROBATCHES);
  for (int i = 0; i < REPLICAS; i++) {
    must(petra_network_open(&h.network[i], whole.plan, NULL, 0, whole.network->backend));
    must(petra_network_initialise(&h.network[i]));
  }
  for (int64_t m = 0; m < MICROBATCHES; m++) {
    for (int i = 0; i < REPLICAS; i++)
      pass(&h, i, m);
    ck_assert(run.losses[m] == (h.loss[0] + h.loss[1] + h.loss[2]) / REPLICAS);
    for (int j = 0; j < whole.plan->stages && (m + 1) % k == 0; j++)
      update(&h, j);
  }
  must(training_weights(&run, &found));
  petra_network *own = whole.network;
  for (int i = 0; i < REPLICAS; i++) { /* each of them, after its updates */
    whole.network = &h.network[i];
    must(training_weights(&whole, &expected));
    ck_assert_msg(training_same(&found, &expected), "replica %d, %s, k = %d", i, backend, k);
    training_tensors_fini(&expected);
  }
  whole.network = own;
  ck_assert(!training_same(&found, &initial));
  training_tensors_fini(&initial);
  training_tensors_fini(&found);
  for (int i = 0; i < REPLICAS; i++) {
    h.network[i].backend = NULL; /* the run's */
    petra_network_fini(&h.network[i]);
  }
  training_close(&run);
  training_close(&whole);
}

START_TEST(an_update_takes_the_mean_of_the_replicas) {
  compare_with_hand("device.backend=cpu", "device.precision=fp32", "method.accumulate=1", 1);
  compare_with_hand("device.backend=ref", "device.precision=fp64", "method.accumulate=3", 3);
}
END_TEST

/* Values whose sum depends on the order. */
START_TEST(the_mean_is_summed_in_the_order_of_replicas) {
  const float parts[3][2] = {{1e8F, 3}, {-1e8F, 5}, {1, 8}};
  const double wide[3][2] = {{1, 3}, {1e17, 5}, {-1e17, 8}};
  const petra_shared_size floats = {2, sizeof(float)}, doubles = {2, sizeof(double)};
  float mean[2];
  double wide_mean[2];
  petra_replica_mean((const void *const[]){parts[0], parts[1], parts[2]}, 3, &floats, mean);
  ck_assert(mean[0] == 1.0F / 3.0F && mean[1] == 16.0F / 3.0F);
  petra_replica_mean((const void *const[]){parts[2], parts[0], parts[1]}, 3, &floats, mean);
  ck_assert(mean[0] == 0);
  petra_replica_mean((const void *const[]){wide[0], wide[1], wide[2]}, 3, &doubles, wide_mean);
  ck_assert(wide_mean[0] == 0 && wide_mean[1] == 16.0 / 3);
}
END_TEST

/* A worker that computes nothing: how many actions it was given, a digit for each time. */
typedef struct counter {
  petra_worker base;
  int calls;
  int64_t takes_ns;
} counter;

static petra_status count_actions(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                  petra_action_result *results) {
  counter *c = (counter *)base;
  ck_assert_int_eq(virtual_ns, 7);
  c->calls = 10 * c->calls + count;
  for (int i = 0; i < count; i++) {
    ck_assert_int_eq(results[i].priced_ns, actions[i].stage); /* as it was given, at every replica */
    results[i].priced_ns = -1;
    results[i].version_read = c->takes_ns;
    results[i].measured_ns = c->takes_ns;
  }
  return PETRA_OK;
}

/* Each replica is given the actions that start together at once, so that they can be done side by side. */
START_TEST(actions_of_a_group_stay_together) {
  static const petra_worker_ops ops = {.perform = count_actions};
  counter counters[2] = {{.base.ops = &ops, .takes_ns = 4}, {.base.ops = &ops, .takes_ns = 9}};
  const petra_plan none = {0};
  petra_pipeline replicas[] = {{.network.plan = &none, .worker = &counters[0].base},
                               {.network.plan = &none, .worker = &counters[1].base}};
  petra_pipeline *const pipelines[] = {&replicas[0], &replicas[1]};
  petra_ranks alone = {0};
  const petra_placement placement = {.ranks = &alone, .replicas = 2};
  const petra_action actions[] = {
      {1, PETRA_ACTION_FORWARD, 5}, {2, PETRA_ACTION_BACKWARD, 4}, {3, PETRA_ACTION_FORWARD, 3}};
  petra_action_result results[3] = {{.priced_ns = 1}, {.priced_ns = 2}, {.priced_ns = 3}};
  petra_worker *worker;
  must(petra_worker_replicas_create(pipelines, &placement, &worker));
  must(worker->ops->perform(worker, 7, actions, 3, results));
  ck_assert(counters[0].calls == 3 && counters[1].calls == 3);
  for (int i = 0; i < 3; i++)
    ck_assert(results[i].version_read == 4 && results[i].measured_ns == 9);
  petra_worker_replicas_destroy(worker);
}
END_TEST

/* --- what is told --- */

/* A digit for each thing that is told: 1 a loss, 2 an evaluation. */
typedef struct reported {
  petra_stage_observer base;
  int order;
} reported;

static petra_status hear_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                              int64_t virtual_ns) {
  reported *t = (reported *)base;
  t->order = 10 * t->order + 1;
  ck_assert(loss->images == 2 * REPLICAS && loss->loss == 2 && lr == 0.5 && virtual_ns == microbatch);
  return PETRA_OK;
}

static petra_status hear_evaluation(petra_stage_observer *base, int64_t microbatch,
                                    const petra_evaluation *evaluation) {
  reported *t = (reported *)base;
  t->order = 10 * t->order + 2;
  ck_assert_int_eq(evaluation->images, microbatch);
  return PETRA_OK;
}

static void report_loss(petra_replica_losses *losses, int replica, int64_t microbatch) {
  petra_stage_observer *to = petra_replica_losses_of(losses, replica);
  const petra_loss loss = {.loss = replica + 1, .images = 2};
  must(to->ops->loss(to, microbatch, &loss, 0.5, microbatch));
}

static void report_evaluation(petra_replica_losses *losses, int64_t microbatch) {
  petra_stage_observer *to = petra_replica_losses_of(losses, 0);
  must(to->ops->evaluated(to, microbatch, &(petra_evaluation){.images = microbatch}));
}

/* Replica 0 is two epochs of a microbatch ahead of the others: what is told of an epoch is complete before its evaluation. */
START_TEST(an_evaluation_is_told_after_the_losses_before_it) {
  static const petra_stage_observer_ops ops = {.loss = hear_loss, .evaluated = hear_evaluation};
  reported t = {.base.ops = &ops};
  petra_replica_losses *losses;
  must(petra_replica_losses_create(REPLICAS, &t.base, &losses));
  for (int64_t m = 0; m < 2; m++) {
    report_loss(losses, 0, m);
    report_evaluation(losses, m);
  }
  ck_assert_int_eq(t.order, 0);
  for (int64_t m = 0; m < 2; m++)
    for (int i = 1; i < REPLICAS; i++)
      report_loss(losses, i, m);
  ck_assert_int_eq(t.order, 1212);
  for (int i = 0; i < REPLICAS; i++)
    report_loss(losses, i, 2);
  report_evaluation(losses, 2);
  ck_assert_int_eq(t.order, 121212);
  petra_replica_losses_destroy(losses);
}
END_TEST

/* --- simulations --- */

typedef struct simulated {
  petra_stage_cost cost;
  petra_fabric_options fabric;
  int32_t replicas;
} simulated;

/* The end of the last action, of two stages. */
static petra_status simulate(const simulated *s, const petra_program_ops *program, int64_t accumulate,
                             int64_t microbatches, int64_t *end_ns) {
  const petra_program_options options = {
      .stages = 2, .chunks = 1, .microbatches = microbatches, .accumulate = accumulate, .batches = microbatches};
  const petra_executor_virtual_options settings = {.engines = 1,
                                                   .rule = {.fused_head = true},
                                                   .costs = &s->cost,
                                                   .cost_count = 1,
                                                   .replicas = s->replicas,
                                                   .fabric = s->fabric};
  const petra_method method = {.program = program};
  petra_executor *executor;
  petra_worker *worker;
  must(petra_executor_virtual_create(&settings, &executor));
  must(petra_worker_cost_create(&method, &options, &worker));
  petra_status status = executor->ops->run(executor, program, &options, worker, NULL);
  *end_ns = executor->ops->now_ns(executor);
  petra_worker_cost_destroy(worker);
  petra_executor_destroy(executor);
  return status;
}

/* F 10, B 20, U 1 ns; messages of no bytes take the latency, 5 ns. 300 bytes, a byte a nanosecond: with three replicas each sends
 * 2 * 2 * 100 bytes, and the latency comes twice. Stage 2 (fused) is at 10 + 5 .. 45, stage 1's B at 50 .. 70; its gradients are
 * exchanged until 70 + 400 + 10, and its update ends at 481. Stage 2's exchange, from 45 on, is on a link of its own; but where
 * both devices share a node whose card has no more than a link, stage 1's waits until 445: 445 + 400 + 10 + 1. */
START_TEST(an_update_waits_for_its_exchange) {
  simulated s = {.cost = {.forward_ns = 10, .backward_ns = 20, .update_ns = 1, .gradient_bytes = 300},
                 .fabric = {.latency_ns = 5, .bandwidth_Bps = 1e9},
                 .replicas = 3};
  static const int32_t one_node[] = {0, 0};
  int64_t end_ns;
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 481);
  /* The second microbatch begins at stage 1 when its update has ended: so much later all over again. */
  must(simulate(&s, &petra_program_sequential, 1, 2, &end_ns));
  ck_assert_int_eq(end_ns, 2 * 481);
  /* Two microbatches an update: one exchange, after the second. */
  must(simulate(&s, &petra_program_sequential, 2, 2, &end_ns));
  ck_assert_int_eq(end_ns, 70 + 481);
  s.fabric.card_Bps = 1e9;
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 481);
  s.fabric.node = one_node;
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 445 + 400 + 10 + 1);
  /* Shared fairly: 25 ns of stage 2's alone, then both at half the rate until stage 2's 375 bytes have gone, at 70 + 750;
   * stage 1's last 25 follow. */
  s.fabric.sharing = PETRA_LINK_FAIR;
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 70 + 750 + 25 + 10 + 1);
  /* A link that is free of charge, and a run without replicas. */
  s.fabric = (petra_fabric_options){.latency_ns = 5};
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 70 + 10 + 1);
  s.replicas = 1;
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 70 + 1);
}
END_TEST

/* As much comes as goes: 400 bytes take 399 ns alone, and twice that on a link whose two directions wait for each other. */
START_TEST(an_exchange_takes_both_directions_of_a_measured_link) {
  static const int64_t bytes[] = {1, 401}, alone[] = {5, 405}, shared[] = {5, 805};
  const petra_link_times times = {2, bytes, alone}, slower = {2, bytes, shared};
  simulated s = {.cost = {.forward_ns = 10, .backward_ns = 20, .update_ns = 1, .gradient_bytes = 300},
                 .fabric = {.latency_ns = 5, .times = &times},
                 .replicas = 3};
  int64_t end_ns;
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 70 + 399 + 10 + 1);
  s.fabric.shared = &slower;
  must(simulate(&s, &petra_program_sequential, 1, 1, &end_ns));
  ck_assert_int_eq(end_ns, 70 + 798 + 10 + 1);
}
END_TEST

/* What is exchanged while a device computes costs nothing. Two chunks a device (interleaved): stage 3's gradients, on
 * device 1, are complete before the B of stage 1. */
START_TEST(an_exchange_goes_on_while_its_device_computes) {
  const petra_program_options options = {
      .stages = 4, .chunks = 2, .microbatches = 2, .accumulate = 2, .batches = 2, .split_head = true};
  static const int64_t bytes[] = {0, 15, 1000};
  int64_t end_ns[3];
  for (int i = 0; i < 3; i++) {
    petra_stage_cost costs[4];
    for (int j = 0; j < 4; j++)
      costs[j] = (petra_stage_cost){.forward_ns = 10, .backward_ns = 20, .gradient_bytes = j == 2 ? bytes[i] : 0};
    const petra_executor_virtual_options settings = {
        .engines = 1, .costs = costs, .cost_count = 4, .replicas = 2, .fabric = {.bandwidth_Bps = 1e9}};
    const petra_method method = {.program = &petra_program_interleaved};
    petra_executor *executor;
    petra_worker *worker;
    must(petra_executor_virtual_create(&settings, &executor));
    must(petra_worker_cost_create(&method, &options, &worker));
    must(executor->ops->run(executor, &petra_program_interleaved, &options, worker, NULL));
    end_ns[i] = executor->ops->now_ns(executor);
    petra_worker_cost_destroy(worker);
    petra_executor_destroy(executor);
  }
  ck_assert_int_eq(end_ns[0], end_ns[1]);
  ck_assert_int_gt(end_ns[2], end_ns[0]);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {an_update_takes_the_mean_of_the_replicas,
                                actions_of_a_group_stay_together,
                                the_mean_is_summed_in_the_order_of_replicas,
                                an_evaluation_is_told_after_the_losses_before_it,
                                an_update_waits_for_its_exchange,
                                an_exchange_takes_both_directions_of_a_measured_link,
                                an_exchange_goes_on_while_its_device_computes};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int status = harness_run("replicas", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return status;
}
