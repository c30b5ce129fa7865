/* SPDX-License-Identifier: Apache-2.0 */
/* Actions of a group side by side: the crew, journals, the division of threads, and trainings whose result does not show how
 * many groups there were. */
#include "backend/tensor.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/threads.h"
#include "exec/worker_replicas.h"
#include "harness.h"
#include "setup/placement.h"
#include "tolerances.h"
#include "training.h"

#include <math.h>

/* --- crew --- */

enum { JOBS = 1000, THREADS = 4 };

typedef struct tally {
  int times[JOBS];
  int lane[JOBS];
} tally;

static void count_job(void *context, int job) {
  tally *t = context;
  t->times[job]++;
  t->lane[job] = petra_lane_here()->number;
}

START_TEST(a_thread_pool_runs_each_job_once) {
  for (int threads = 1; threads <= THREADS; threads++) {
    petra_thread_pool *pool;
    must(petra_thread_pool_create(threads, &pool));
    for (int jobs = 0; jobs <= JOBS; jobs += jobs < 3 ? 1 : JOBS - 3) {
      tally t = {{0}, {0}};
      petra_thread_pool_run(pool, jobs, count_job, &t);
      for (int i = 0; i < JOBS; i++) {
        ck_assert_int_eq(t.times[i], i < jobs);
        ck_assert(t.lane[i] >= 0 && t.lane[i] < threads);
      }
    }
    petra_thread_pool_destroy(pool);
  }
  ck_assert_int_eq(petra_lane_here()->number, 0);
}
END_TEST

/* --- journals --- */

static const int32_t shape[4] = {1, 1, 4, 4};

static petra_tensor *make(petra_backend *backend, petra_account *account, petra_memory_category category) {
  petra_tensor *tensor;
  must(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, shape, account, category, &tensor));
  return tensor;
}

/* A message that stage 0 made passes on through stage 1, while stage 0 lets go of it: two actions. */
typedef struct passing {
  petra_backend *backend;
  petra_account account[2];
  petra_tensor *held, *taken; /* the same tensor: stage 0's reference, stage 1's */
  petra_deferred_work work[2];
} passing;

static void pass(passing *p, int action) {
  petra_account *own = &p->account[action];
  petra_tensor *work = make(p->backend, own, PETRA_MEMORY_WORKSPACE);
  petra_tensor *again = petra_tensor_retain(work);
  if (action == 0) {
    petra_tensor_release(&p->held);
  } else {
    petra_tensor_charge(p->taken, own, PETRA_MEMORY_INPUT_BUFFER);
    petra_tensor_release(&p->taken);
  }
  petra_tensor_release(&work);
  petra_tensor_release(&again);
}

static void open_passing(passing *p) {
  *p = (passing){0};
  must(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP32, 1, true, &p->backend));
  p->held = make(p->backend, &p->account[0], PETRA_MEMORY_MESSAGES);
  p->taken = petra_tensor_retain(p->held);
  for (int a = 0; a < 2; a++)
    must(petra_deferred_work_init(&p->work[a]));
}

static void close_passing(passing *p) {
  for (int a = 0; a < 2; a++) {
    ck_assert_int_eq(p->account[a].total_bytes, 0);
    petra_deferred_work_fini(&p->work[a]);
  }
  petra_backend_destroy(p->backend);
}

/* Accounts after the two actions are those of one after the other, in whatever order they are done. */
START_TEST(journals_are_read_out_in_order) {
  passing plain, beside;
  open_passing(&plain);
  pass(&plain, 0);
  pass(&plain, 1);
  for (int first = 0; first < 2; first++) {
    open_passing(&beside);
    petra_tensor *shared = beside.taken;
    for (int k = 0; k < 2; k++) {
      const int action = k == 0 ? first : 1 - first;
      petra_deferred_work_begin(&beside.work[action], beside.backend);
      petra_deferred_work_enter(&beside.work[action], false);
      pass(&beside, action);
      petra_deferred_work_leave(&beside.work[action]);
      ck_assert_int_eq(beside.account[action].total_peak_bytes,
                       action == 0 ? (int64_t)shared->bytes : 0); /* nothing is seen yet */
      ck_assert_int_eq(shared->references, 2);
    }
    must(petra_deferred_work_end(&beside.work[0], PETRA_OK));
    ck_assert_int_eq(shared->references, 1);
    must(petra_deferred_work_end(&beside.work[1], PETRA_OK));
    ck_assert_mem_eq(plain.account, beside.account, sizeof plain.account);
    close_passing(&beside);
  }
  close_passing(&plain);
}
END_TEST

/* What an action alone holds, or made, is given back at once: its storage serves it again. */
START_TEST(an_action_has_its_own_storage_again) {
  passing p;
  open_passing(&p);
  petra_tensor_release(&p.held); /* one reference is left */
  const void *alone = p.taken->data;
  petra_deferred_work_begin(&p.work[0], p.backend);
  petra_deferred_work_enter(&p.work[0], false);
  petra_tensor_release(&p.taken);
  for (int i = 0; i < 3; i++) {
    petra_tensor *made = make(p.backend, &p.account[0], PETRA_MEMORY_WORKSPACE);
    petra_tensor *again = petra_tensor_retain(made);
    ck_assert_ptr_eq(made->data, alone);
    petra_tensor_release(&made);
    petra_tensor_release(&again);
  }
  petra_deferred_work_leave(&p.work[0]);
  must(petra_deferred_work_end(&p.work[0], PETRA_OK));
  close_passing(&p);
}
END_TEST

/* --- the division of threads --- */

#define NETWORK                                                                                                        \
  "model.depth=18", "model.width=2", "data.batch=4", "optim.lr=0.02", "run.max_microbatches=24", "device.backend=cpu"

static void expect_groups(const char *method, int threads, int groups) {
  training run;
  int chosen;
  must(TRAINING_OPEN(&run, NETWORK, "device.threads=1", method));
  must(petra_groups_choose(run.plan, threads, &chosen));
  ck_assert_msg(chosen == groups, "%s, %d threads: %d groups, expected %d", method, threads, chosen, groups);
  training_close(&run);
}

START_TEST(groups_are_chosen_by_the_schedule) {
  expect_groups("method.name=petra", 1, 1);
  expect_groups("method.name=petra", 2, 2);
  expect_groups("method.name=backprop", 64, 1); /* one action at a time */
  for (int t = 2; t <= 1024; t *= 2)            /* doubled threads make an operation faster, but not twice */
    ck_assert(petra_groups_speed(t) > petra_groups_speed(t / 2) &&
              petra_groups_speed(t) < 2 * petra_groups_speed(t / 2));
}
END_TEST

static void expect_refusal(const char *text, const char *const *sets, int count) {
  training run;
  harness_clear();
  ck_assert_int_eq(training_open(&run, sets, count), PETRA_CONFIG);
  ck_assert_logged("device.groups");
  ck_assert_logged(text);
  ck_assert_int_eq(harness_lines, 1);
  training_close(&run);
}

START_TEST(what_cannot_be_divided_is_refused) {
  expect_refusal("2 with device.threads: 3; expected a divisor",
                 (const char *const[]){NETWORK, "device.threads=3", "device.groups=2"}, 8);
  expect_refusal("cores; expected at most that many",
                 (const char *const[]){NETWORK, "device.threads=0", "device.groups=1024"}, 8);
  expect_refusal("measured",
                 (const char *const[]){NETWORK, "device.threads=2", "device.groups=2", "cluster.cost.model=measured"},
                 9);
}
END_TEST

/* --- trainings --- */

/* All that a training tells: rows of the trace and of the probe, one number after the other. */
typedef struct reported {
  double *numbers;
  int64_t count, capacity;
} reported;

static petra_status note(reported *t, const void *numbers, int64_t count) {
  PETRA_TRY(petra_array_reserve(&t->numbers, &t->capacity, t->count + count, sizeof *t->numbers));
  memcpy(t->numbers + t->count, numbers, (size_t)count * sizeof *t->numbers);
  t->count += count;
  return PETRA_OK;
}

static petra_status note_row(void *context, const petra_trace_row *row) {
  const double numbers[] = {(double)row->action.stage,
                            (double)row->action.kind,
                            (double)row->action.microbatch,
                            (double)row->start_ns,
                            (double)row->end_ns,
                            (double)row->result.version_read,
                            (double)row->result.version_written};
  return note(context, numbers, HARNESS_COUNT(numbers));
}

static petra_status note_probe(void *context, const petra_probe_row *row) {
  PETRA_TRY(note(context, row->stage, (int64_t)PETRA_MEASURES * PETRA_PAIRS * row->stages));
  return note(context, row->reconstruction, row->stages);
}

typedef struct outcome {
  training run;
  training_tensors weights;
  reported reported;
} outcome;

static void train(outcome *o, const char *const *sets, int count) {
  o->reported = (reported){0};
  must(training_open(&o->run, sets, count));
  o->run.sink = note_row;
  o->run.probe_row = note_probe;
  o->run.context = &o->reported;
  must(training_run(&o->run));
  must(training_weights(&o->run, &o->weights));
}

static void expect_same(const outcome *a, const outcome *b) {
  const int32_t stages = a->run.plan->stages;
  ck_assert(training_same(&a->weights, &b->weights));
  ck_assert_int_eq(a->run.loss_count, b->run.loss_count);
  ck_assert_mem_eq(a->run.losses, b->run.losses, (size_t)a->run.loss_count * sizeof *a->run.losses);
  ck_assert(a->run.evaluation.images > 0);
  ck_assert_mem_eq(&a->run.evaluation, &b->run.evaluation, sizeof a->run.evaluation);
  ck_assert_int_eq(a->reported.count, b->reported.count);
  ck_assert_mem_eq(a->reported.numbers, b->reported.numbers, (size_t)a->reported.count * sizeof *a->reported.numbers);
  for (int32_t j = 0; j < stages; j++) /* memory, with its peaks */
    ck_assert_mem_eq(petra_stage_account(a->run.network->stage[j]), petra_stage_account(b->run.network->stage[j]),
                     sizeof(petra_account));
}

static void close_outcome(outcome *o) {
  training_tensors_fini(&o->weights);
  training_close(&o->run);
  petra_free(o->reported.numbers);
}

START_TEST(the_result_does_not_show_how_many_groups) {
  static const char *const methods[][4] = {
      {"method.name=petra", "method.accumulate=1", "cluster.engines=1", "probe.per_epoch=120"},
      {"method.name=delayed", "method.accumulate=2", "cluster.engines=1", "probe.per_epoch=120"},
      {"method.name=zb-h1", "method.accumulate=4", "cluster.engines=2", "probe.per_epoch=60"},
      {"method.name=petra-arrival", "method.accumulate=1", "cluster.engines=2", "probe.per_epoch=0"},
      {"method.name=petra", "method.accumulate=2", "cluster.engines=1", "cluster.replicas=2"}};
  static const char *const division[][2] = {{"device.threads=1", "device.groups=1"},
                                            {"device.threads=2", "device.groups=2"},
                                            {"device.threads=3", "device.groups=3"}};
  for (int m = 0; m < HARNESS_COUNT(methods); m++) {
    outcome found[HARNESS_COUNT(division)];
    for (int d = 0; d < HARNESS_COUNT(division); d++) {
      const char *const sets[] = {NETWORK,        "run.eval_every=1", "data.limit=64", "data.recalibrate=3",
                                  methods[m][0],  methods[m][1],      methods[m][2],   methods[m][3],
                                  division[d][0], division[d][1]};
      train(&found[d], sets, HARNESS_COUNT(sets));
      ck_assert_int_eq(found[d].run.network->backend->lanes, d + 1);
      ck_assert_int_eq(found[d].run.network->backend->threads, 1);
    }
    for (int d = 1; d < HARNESS_COUNT(division); d++)
      expect_same(&found[0], &found[d]);
    for (int d = 0; d < HARNESS_COUNT(division); d++)
      close_outcome(&found[d]);
  }
}
END_TEST

/* --- recalibration --- */

START_TEST(a_recalibration_changes_nothing_of_the_training) {
  static const char *const recalibrate[] = {"data.recalibrate=0", "data.recalibrate=1", "data.recalibrate=3"};
  outcome found[HARNESS_COUNT(recalibrate)];
  for (int r = 0; r < HARNESS_COUNT(recalibrate); r++) {
    const char *const sets[] = {NETWORK, "run.eval_every=1", "data.limit=64", "device.threads=1", recalibrate[r]};
    train(&found[r], sets, HARNESS_COUNT(sets));
  }
  const petra_evaluation *plain = &found[0].run.evaluation, *one = &found[1].run.evaluation;
  ck_assert(isnan(plain->recalibrated.loss) && isnan(plain->recalibrated.top1) && isnan(plain->recalibrated.top5));
  for (int r = 1; r < HARNESS_COUNT(recalibrate); r++) {
    const petra_evaluation *evaluation = &found[r].run.evaluation;
    ck_assert(training_same(&found[0].weights, &found[r].weights)); /* with running statistics */
    ck_assert_mem_eq(found[0].run.losses, found[r].run.losses,
                     (size_t)found[0].run.loss_count * sizeof *found[0].run.losses);
    ck_assert(evaluation->images == plain->images && evaluation->loss == plain->loss &&
              evaluation->top1 == plain->top1 && evaluation->top5 == plain->top5);
    ck_assert(isfinite(evaluation->recalibrated.loss) && evaluation->recalibrated.loss != plain->loss);
  }
  ck_assert(found[2].run.evaluation.recalibrated.loss != one->recalibrated.loss);
  for (int r = 0; r < HARNESS_COUNT(recalibrate); r++)
    close_outcome(&found[r]);
}
END_TEST

/* --- replicas --- */

enum { ASKED = 3 };

/* A worker that is asked for groups: of how many actions, and with what prices. */
typedef struct requested_worker {
  petra_worker base;
  int groups, actions;
  int64_t measured_ns;
} requested_worker;

static petra_status ask(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                        petra_action_result *results) {
  requested_worker *w = (requested_worker *)base;
  (void)virtual_ns;
  w->groups++;
  w->actions += count;
  for (int i = 0; i < count; i++) {
    ck_assert_int_eq(results[i].priced_ns, 10 + i);
    results[i].version_read = actions[i].microbatch;
    results[i].measured_ns = i == 0 ? w->measured_ns : 5;
  }
  return PETRA_OK;
}

/* Each replica is given a group as a whole, so that it can do its actions side by side. */
START_TEST(replicas_do_whole_groups) {
  static const petra_worker_ops ops = {.perform = ask};
  static const petra_plan none = {0};
  requested_worker replica[2] = {{.base.ops = &ops, .measured_ns = 3}, {.base.ops = &ops, .measured_ns = 7}};
  petra_pipeline replicas[] = {{.network.plan = &none, .worker = &replica[0].base},
                               {.network.plan = &none, .worker = &replica[1].base}};
  petra_pipeline *const pipelines[] = {&replicas[0], &replicas[1]};
  petra_ranks alone = {0};
  const petra_placement placement = {.ranks = &alone, .replicas = 2};
  petra_action actions[ASKED];
  petra_action_result results[ASKED] = {{0}};
  petra_worker *worker;
  for (int i = 0; i < ASKED; i++) {
    actions[i] = (petra_action){.stage = i + 1, .kind = PETRA_ACTION_FORWARD, .microbatch = 20 - i};
    results[i].priced_ns = 10 + i;
  }
  must(petra_worker_replicas_create(pipelines, &placement, &worker));
  must(worker->ops->perform(worker, 0, actions, ASKED, results));
  petra_worker_replicas_destroy(worker);
  for (int r = 0; r < 2; r++) {
    ck_assert_int_eq(replica[r].groups, 1);
    ck_assert_int_eq(replica[r].actions, ASKED);
  }
  for (int i = 0; i < ASKED; i++) {
    ck_assert_int_eq(results[i].version_read, 20 - i);
    ck_assert_int_eq(results[i].measured_ns, i == 0 ? 7 : 5);
  }
}
END_TEST

/* --- failures --- */

static petra_status as_priced(void *context, const petra_action *action, int64_t *duration_ns) {
  (void)context, (void)action, (void)duration_ns;
  return PETRA_OK;
}

/* Two actions fail at once: the first of the group is told, whichever failed first. */
START_TEST(the_first_failure_of_a_group_is_told) {
  static const petra_action actions[] = {{.stage = 3, .kind = PETRA_ACTION_WEIGHT_GRADIENT, .microbatch = 77},
                                         {.stage = 2, .kind = PETRA_ACTION_WEIGHT_GRADIENT, .microbatch = 78}};
  petra_action_result results[HARNESS_COUNT(actions)] = {{0}};
  training run;
  must(TRAINING_OPEN(&run, NETWORK, "method.name=petra", "device.threads=2", "device.groups=2"));
  run.duration = as_priced;
  must(training_run(&run));
  petra_worker *worker = run.timed.inner;
  for (int i = 0; i < 20; i++) {
    harness_clear();
    ck_assert_int_eq(worker->ops->perform(worker, 0, actions, HARNESS_COUNT(actions), results), PETRA_INTERNAL);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged("stage 3: backward of microbatch 77");
  }
  training_close(&run);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_thread_pool_runs_each_job_once,
                                journals_are_read_out_in_order,
                                an_action_has_its_own_storage_again,
                                groups_are_chosen_by_the_schedule,
                                what_cannot_be_divided_is_refused,
                                the_result_does_not_show_how_many_groups,
                                a_recalibration_changes_nothing_of_the_training,
                                replicas_do_whole_groups,
                                the_first_failure_of_a_group_is_told};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int code = harness_run("groups", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return code;
}
