/* SPDX-License-Identifier: Apache-2.0 */
/* The critical path by kind: cases whose path is known, and for random pipelines of all programs that the
 * parts sum to the makespan to the nanosecond and that the path is one: whatever lies on it, made longer,
 * makes the run longer by as much. */
#include "base/rng.h"
#include "harness.h"
#include "lay_out.h"
#include "sim/observer_critical.h"
#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"
#include "sink.h"

enum { STAGES_MAX = 12 };

/* A run: what it is made of, and what its path turned out to be. */
typedef struct run {
  petra_executor_virtual_options cluster;
  petra_program_options program;
  petra_config jitter;
  petra_stage_cost costs[STAGES_MAX];
  petra_action_kind longer; /* actions of this kind take `more` times as long */
  int64_t more;
  petra_observer *critical;
  petra_critical_path path;
  int64_t stage_ns[STAGES_MAX];
  int64_t makespan_ns;
} run;

/* The cost with the random draws of the run; some kind of action may take longer. */
static petra_status duration(void *context, const petra_action *action, int64_t *duration_ns) {
  const run *r = context;
  int64_t costs[PETRA_ACTION_KINDS];
  petra_cost_durations(&r->costs[action->stage - 1], &r->cluster.rule, action->stage == r->program.stages, costs);
  PETRA_TRY(petra_jitter_duration(&r->jitter, NULL, action->stage, (int)action->kind, action->microbatch,
                                  costs[action->kind], duration_ns));
  if (costs[action->kind] > 0 && *duration_ns == 0)
    *duration_ns = 1; /* 0 has the executor price it */
  if (r->more && action->kind == r->longer)
    *duration_ns *= r->more;
  return PETRA_OK;
}

/* Runs it, and checks what holds for every run: the sum, the parts' signs, no wait, the stages' sum. */
static void run_program(run *r, const petra_program_ops *program) {
  const petra_method method = {.program = program};
  petra_worker *worker;
  petra_executor *executor;
  timed slow;
  r->cluster.costs = r->costs;
  r->cluster.cost_count = r->program.stages;
  r->cluster.rule.fused_head = !r->program.split_head;
  r->cluster.rule.split_backward = program->split_backward;
  if (r->program.batches == 0)
    r->program.batches = INT64_MAX;
  ck_assert_int_eq(petra_program_check(program, &r->program), PETRA_OK);
  ck_assert_int_eq(petra_worker_cost_create(&method, &r->program, &worker), PETRA_OK);
  ck_assert_int_eq(petra_executor_virtual_create(&r->cluster, &executor), PETRA_OK);
  ck_assert_int_eq(petra_critical_create(&r->cluster, &r->program, program->locked, &r->critical), PETRA_OK);
  ck_assert_int_eq(
      executor->ops->run(executor, program, &r->program, timed_of(&slow, worker, duration, r), r->critical), PETRA_OK);
  r->makespan_ns = executor->ops->now_ns(executor);
  ck_assert_int_eq(petra_critical_trace(r->critical, &r->path, r->stage_ns), PETRA_OK);
  int64_t sum = 0, computing = 0, stages = 0;
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++) {
    ck_assert_int_ge(r->path.ns[k], 0);
    sum += r->path.ns[k];
    computing += k <= PETRA_CRITICAL_UPDATE ? r->path.ns[k] : 0;
  }
  for (int j = 0; j < r->program.stages; j++)
    stages += r->stage_ns[j];
  ck_assert_int_eq(sum, r->makespan_ns);
  ck_assert_int_eq(stages, computing);
  ck_assert_int_eq(r->path.ns[PETRA_CRITICAL_WAIT], 0);
  petra_critical_destroy(r->critical);
  executor->ops->destroy(executor);
  petra_worker_cost_destroy(worker);
}

static run same_stages(int32_t stages, int64_t microbatches, petra_stage_cost cost) {
  run r = {.cluster = {.engines = 1},
           .program = {.stages = stages, .microbatches = microbatches, .accumulate = 1, .drain = true}};
  for (int j = 0; j < stages; j++)
    r.costs[j] = cost;
  return r;
}

START_TEST(sequential_is_everything) {
  for (int engines = 1; engines <= 2; engines++) {
    run r = same_stages(5, 7, (petra_stage_cost){.forward_ns = 3, .backward_ns = 11, .update_ns = 2});
    r.cluster.engines = engines;
    run_program(&r, &petra_program_sequential);
    /* The fused head's action does its F as well. The updates of the stages above run beside the backward
     * below. */
    ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_FORWARD], 7 * 4 * 3);
    ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_BACKWARD], 7 * (5 * 11 + 3));
    ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_UPDATE], 7 * 2);
    ck_assert_int_eq(r.path.actions, 7 * (4 + 5 + 1));
    ck_assert_int_eq(r.path.messages, 0);
    ck_assert_int_eq(r.stage_ns[0], 7 * (3 + 11 + 2));
    ck_assert_int_eq(r.stage_ns[2], 7 * (3 + 11));
  }
}
END_TEST

START_TEST(gpipe_is_m_and_j) {
  run r = same_stages(6, 10, (petra_stage_cost){.forward_ns = 3, .backward_ns = 11});
  r.program.accumulate = 10;
  r.program.split_head = true;
  run_program(&r, &petra_program_gpipe);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_FORWARD], (10 + 6 - 1) * 3);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_BACKWARD], (10 + 6 - 1) * 11);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_UPDATE], 0);
}
END_TEST

START_TEST(zero_bubble_has_weight_gradients) {
  run r = same_stages(4, 8, (petra_stage_cost){.forward_ns = 10, .backward_ns = 21, .weight_gradient_ns = 9});
  r.program.accumulate = 8;
  r.program.split_head = true;
  run_program(&r, &petra_program_zb_h1);
  ck_assert_int_eq(r.makespan_ns, 8 * (10 + 12 + 9) + 3 * (10 + 12 - 9)); /* docs/semantics/methods.md */
  ck_assert_int_gt(r.path.ns[PETRA_CRITICAL_WEIGHT_GRADIENT], 0);
}
END_TEST

START_TEST(bottleneck_carries_it) {
  run r = same_stages(3, 20, (petra_stage_cost){.forward_ns = 3, .backward_ns = 9});
  r.costs[1] = (petra_stage_cost){.forward_ns = 100, .backward_ns = 170, .reconstruct_ns = 90, .update_ns = 7};
  r.cluster.rule.recomputes = true;
  run_program(&r, &petra_program_lockstep);
  /* Once it has begun the slow stage never waits; one action of stage 1 comes before it, and one after it,
   * beside its last update. */
  ck_assert_int_eq(r.stage_ns[0], 3 + 9);
  ck_assert_int_eq(r.stage_ns[1], 20 * (100 + 170 + 90) + 19 * 7);
  ck_assert_int_eq(r.stage_ns[2], 0);
}
END_TEST

START_TEST(slow_link_in_parts) {
  static const petra_stage_cost cost = {.forward_ns = 1, .backward_ns = 2, .forward_bytes = 10, .backward_bytes = 20};
  run r = same_stages(2, 4, cost);
  r.program.accumulate = 4;
  r.program.split_head = true;
  r.cluster.fabric = (petra_fabric_options){.latency_ns = 3, .bandwidth_Bps = 1e9}; /* 10 and 20 ns */
  run_program(&r, &petra_program_gpipe);
  /* F of the four microbatches at stage 1, the last one's message: sent at 4, its turn at 31, there at 44; F
   * and four B at stage 2 to 53, of which the first ends at 47: turns at 47, 67, 87, 107, the last one there
   * at 130, sent at 53. */
  ck_assert_int_eq(r.makespan_ns, 132);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_FORWARD], 4 + 1);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_BACKWARD], 4 * 2 + 2);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_TRANSMISSION], 10 + 20);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_LATENCY], 2 * 3);
  ck_assert_int_eq(r.path.ns[PETRA_CRITICAL_QUEUEING], 27 + 54);
  ck_assert_int_eq(r.path.messages, 2);
  /* Shared fairly the last message arrives no earlier, and what is beyond its own time is queueing again. */
  run fair = same_stages(2, 4, cost);
  fair.program = r.program;
  fair.cluster.fabric = r.cluster.fabric;
  fair.cluster.fabric.sharing = PETRA_LINK_FAIR;
  run_program(&fair, &petra_program_gpipe);
  ck_assert_int_eq(fair.path.ns[PETRA_CRITICAL_LATENCY], 3 * fair.path.messages);
  ck_assert_int_gt(fair.path.ns[PETRA_CRITICAL_QUEUEING], 0);
}
END_TEST

static int64_t below(petra_rng *rng, int64_t bound) {
  return (int64_t)(petra_rng_uniform(rng) * (double)bound);
}

/* A pipeline drawn from `number`; every program but the user's own. */
static run random_run(int number, const petra_program_ops *program) {
  petra_rng rng;
  petra_rng_init(&rng, 7, PETRA_RNG_TEST, 0, (uint64_t)number);
  int32_t stages = 2 + (int32_t)below(&rng, STAGES_MAX - 2);
  run r = same_stages(stages, 1 + below(&rng, 30), (petra_stage_cost){0});
  r.program.accumulate = 1 + below(&rng, 4);
  if (program->layout != PETRA_LAYOUT_SINGLE) {
    r.program.stages = stages = stages / 2 * 2;
    r.program.microbatches = r.program.accumulate = stages / 2 * (1 + below(&rng, 3));
  }
  r.program.drain = !program->undrained || below(&rng, 2);
  r.program.split_head = (program->split_head && program->time == PETRA_TIME_WHOLE) || below(&rng, 2);
  r.program.credit = program->arrival ? below(&rng, 6) : 0;
  if (below(&rng, 2)) {
    r.program.eval_every = 1;
    r.program.batches = 1 + below(&rng, 5);
  }
  r.cluster.engines = 1 + (int)below(&rng, 2);
  r.cluster.rule.recomputes = below(&rng, 2);
  for (int j = 0; j < stages; j++)
    r.costs[j] = (petra_stage_cost){.forward_ns = below(&rng, 50),
                                    .backward_ns = 20 + below(&rng, 80),
                                    .reconstruct_ns = below(&rng, 50),
                                    .weight_gradient_ns = below(&rng, 20),
                                    .update_ns = below(&rng, 2) * below(&rng, 9),
                                    .forward_bytes = below(&rng, 60),
                                    .backward_bytes = below(&rng, 120)};
  r.cluster.fabric.latency_ns = below(&rng, 2) * below(&rng, 20);
  r.jitter = (petra_config){.run.seed = number,
                            .cluster.jitter.model = below(&rng, 2) ? PETRA_JITTER_GAMMA : PETRA_JITTER_NONE,
                            .cluster.jitter.scale = 0.5};
  if (!program->arrival)
    r.cluster.replicas = (int32_t)below(&rng, 4);
  for (int j = 0; j < stages; j++)
    r.costs[j].gradient_bytes = below(&rng, 200);
  r.cluster.overlap = (double)below(&rng, 2);
  lay_out(program, &r.program);
  return r;
}

/* The programs, and two of them with rounds of the whole network. */
static petra_program_ops program_of(int number) {
  const int count = petra_program_count();
  petra_program_ops program = *(number < count    ? petra_program_get(number)
                                : number == count ? &petra_program_lockstep
                                                  : &petra_program_sequential);
  program.locked |= number >= count;
  return program;
}

START_TEST(parts_sum_to_the_makespan) {
  static const int32_t node[STAGES_MAX] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3};
  int64_t queued = 0;
  for (int p = 0; p < petra_program_count() + 2; p++)
    for (int number = 0; number < 200; number++) {
      const petra_program_ops program = program_of(p);
      run r = random_run(number, &program);
      if (number % 4) { /* links: first come first served, with cards, fair */
        r.cluster.fabric.bandwidth_Bps = 1e9;
        r.cluster.fabric.card_Bps = number % 4 == 2 ? 1.3e9 : 0;
        r.cluster.fabric.node = number % 4 == 2 ? node : NULL;
        r.cluster.fabric.has_node_link = number % 8 == 2;
        r.cluster.fabric.node_latency_ns = 7;
        r.cluster.fabric.node_bandwidth_Bps = 2e9;
        r.cluster.fabric.sharing = number % 4 == 3 ? PETRA_LINK_FAIR : PETRA_LINK_FIFO;
      }
      run_program(&r, &program);
      queued += r.path.ns[PETRA_CRITICAL_QUEUEING];
    }
  ck_assert_int_gt(queued, 0);
}
END_TEST

/* In a fixed order, and without queues, a chain of actions and messages that each wait for the one before is
 * a lower bound of the makespan at any durations. So the path's time with some of its actions n times as long
 * is one. */
START_TEST(longer_parts_make_a_longer_run) {
  int64_t seen[PETRA_ACTION_KINDS] = {0}, messages = 0;
  for (int p = 0; p < petra_program_count() + 2; p++) {
    const petra_program_ops fixed = program_of(p), *program = &fixed;
    for (int number = 0; number < 100 && !program->arrival; number++) {
      run first = random_run(number, program);
      run_program(&first, program);
      for (int k = PETRA_ACTION_FORWARD; k <= PETRA_ACTION_UPDATE; k++) {
        run r = random_run(number, program);
        r.longer = (petra_action_kind)k;
        r.more = 9;
        run_program(&r, program);
        ck_assert_int_ge(r.makespan_ns, first.makespan_ns + 8 * first.path.ns[k]);
        seen[k] += first.path.ns[k];
      }
      run r = random_run(number, program);
      r.cluster.fabric.latency_ns += 100;
      if (first.cluster.fabric.latency_ns > 0) { /* else messages that take no time are not counted */
        run_program(&r, program);
        ck_assert_int_ge(r.makespan_ns, first.makespan_ns + 100 * first.path.messages);
        messages += first.path.messages;
      }
    }
  }
  for (int k = PETRA_ACTION_FORWARD; k <= PETRA_ACTION_UPDATE; k++)
    ck_assert_int_gt(seen[k], 0);
  ck_assert_int_gt(messages, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {sequential_is_everything,      gpipe_is_m_and_j,   zero_bubble_has_weight_gradients,
                                bottleneck_carries_it,         slow_link_in_parts, parts_sum_to_the_makespan,
                                longer_parts_make_a_longer_run};
  return harness_run("critical", tests, HARNESS_COUNT(tests));
}
