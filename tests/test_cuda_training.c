/* SPDX-License-Identifier: Apache-2.0 */
/* Training on the cuda backend: as close to ref fp64 as single precision is, and the same bit for bit whatever the
 * order in which stages get the device, with graphs and without. Over the fake run time (PETRA_CUDA_FAKE:
 * tests/cuda_host), which runs streams in random orders, and on a device where there is one. */
#include "cuda_device.h"
#include "harness.h"
#include "tolerances.h"
#include "training.h"

#include "backend/cuda/cuda.h"
#ifdef PETRA_CUDA_FAKE
#include "cuda_host/control.h"
#endif

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define NETWORK "model.depth=18", "model.width=2", "data.batch=2", "optim.lr=0.02", "device.threads=1"
#define CUDA "device.backend=cuda", "device.precision=fp32"
#define FOUR_STAGES "stages.partition=list", "stages.blocks=[3,2,2,3]"

static void seed(uint64_t number) {
#ifdef PETRA_CUDA_FAKE
  petra_cuda_host_seed(number);
#else
  (void)number;
#endif
}

/* How a run of graphs went. */
typedef struct counts {
  int64_t captured, launched, single;
  petra_evaluation evaluation; /* the last one, if there was one */
} counts;

static void finish(training *run, training_tensors *final, counts *graphs) {
  must(training_run(run));
  must(training_weights(run, final));
  const cuda_backend *cuda = cuda_of(run->network->backend);
  if (graphs)
    graphs->evaluation = run->evaluation;
  if (graphs && cuda->graphs)
    cuda_graphs_count(cuda->graphs, &graphs->captured, &graphs->launched, &graphs->single);
  training_close(run);
}

/* The distance of `backend` in `precision` (with a setting more, or NULL) from ref fp64 after one update: later the signs of small numbers decide. */
static void distance(const char *const *sets, const char *backend, const char *precision, const char *extra,
                     training_distance *out) {
  const char *all[16] = {NETWORK};
  int n = 5;
  training run;
  training_tensors init, exact, single;
  for (int i = 0; i < 3; i++)
    all[n++] = sets[i];
  all[n++] = "device.backend=ref";
  all[n++] = "device.precision=fp64";
  must(training_open(&run, all, n));
  must(training_weights(&run, &init));
  finish(&run, &exact, NULL);
  all[n - 2] = backend;
  all[n - 1] = precision;
  if (extra)
    all[n++] = extra;
  must(training_open(&run, all, n));
  finish(&run, &single, NULL);
  must(training_compare(&exact, &single, &init, TOLERANCE_ROUNDING_FP32, out));
  printf("%s, %s, %s %s against ref fp64: worst %.3e (%s), median %.3e\n", sets[0], sets[1], backend, precision,
         out->worst, out->worst_name, out->median);
  training_tensors_fini(&init);
  training_tensors_fini(&exact);
  training_tensors_fini(&single);
}

static const char *const one_update[] = {"method.name=backprop", "method.accumulate=8", "run.max_microbatches=8"};
static const char *const first_updates[] = {"method.name=petra", "stages.partition=block", "run.max_microbatches=20"};

START_TEST(close_to_ref) {
  training_distance cuda;
  seed(1);
  distance(one_update, "device.backend=cuda", "device.precision=fp32", NULL, &cuda);
  within("worst", cuda.worst, TOLERANCE_FP32_BACKPROP_WORST);
  within("median", cuda.median, TOLERANCE_FP32_BACKPROP_MEDIAN);
  distance(first_updates, "device.backend=cuda", "device.precision=fp32", NULL, &cuda);
  within("worst", cuda.worst, TOLERANCE_FP32_PETRA_WORST);
}
END_TEST

/* Eight bits of mantissa move small networks far: what is seen here is that convolutions get the right tensors. */
START_TEST(close_to_ref_in_few_bits) {
  training_distance cuda;
  seed(2);
  distance(one_update, "device.backend=cuda", "device.precision=tf32", NULL, &cuda);
  within("median", cuda.median, 0.1);
  distance(one_update, "device.backend=cuda", "device.precision=bf16", NULL, &cuda);
  within("median", cuda.median, 0.3);
  distance(one_update, "device.backend=cuda", "device.precision=bf16", "device.wide_gradients=true", &cuda);
  within("median", cuda.median, 0.3);
}
END_TEST

/* A run of `method` with a seed for the order of the streams. */
static void train(const char *const *sets, int count, const char *graph, uint64_t number, training_tensors *final,
                  counts *graphs) {
  const char *all[24] = {NETWORK, CUDA, graph};
  training run;
  int n = 8;
  ck_assert_int_le(n + count, HARNESS_COUNT(all));
  for (int i = 0; i < count; i++)
    all[n++] = sets[i];
  seed(number);
  must(training_open(&run, all, n));
  finish(&run, final, graphs);
}

#ifdef __SANITIZE_ADDRESS__ /* under which the fake's threads are slow */
enum { ORDERS = 2 };
#else
enum { ORDERS = 3 };
#endif

static petra_evaluation same_in_every_order(const char *const *sets, int count) {
  training_tensors first, other;
  counts single = {0};
  train(sets, count, "device.graph=off", 1, &first, &single);
  for (uint64_t number = 2; number <= ORDERS; number++) {
    counts graphs = {0};
    train(sets, count, "device.graph=on", number, &other, &graphs);
    ck_assert_mem_eq(&single.evaluation, &graphs.evaluation, sizeof single.evaluation);
    ck_assert_msg(training_same(&first, &other), "%s: other weights with order %d", sets[0], (int)number);
    ck_assert_int_gt(graphs.launched, 0);
    training_tensors_fini(&other);
  }
  training_tensors_fini(&first);
  return single.evaluation;
}

START_TEST(the_order_of_stages_does_not_matter) {
  static const char *const petra[] = {"method.name=petra", "run.max_microbatches=10", FOUR_STAGES};
  static const char *const accumulated[] = {"method.name=petra", "method.accumulate=3", "run.max_microbatches=12",
                                            "method.keep=input", FOUR_STAGES};
  static const char *const gpipe[] = {"method.name=gpipe-checkpoint", "method.accumulate=4", "run.max_microbatches=12",
                                      FOUR_STAGES};
  static const char *const split[] = {"method.name=zb-h1", "method.accumulate=4", "run.max_microbatches=12",
                                      FOUR_STAGES};
  static const char *const stashed[] = {"method.name=pipedream", "run.max_microbatches=10", FOUR_STAGES,
                                        "optim.nesterov=true"};
  static const char *const replicas[] = {"method.name=petra", "cluster.replicas=3", "run.max_microbatches=8",
                                         FOUR_STAGES};
  same_in_every_order(replicas, HARNESS_COUNT(replicas));
  same_in_every_order(petra, HARNESS_COUNT(petra));
  same_in_every_order(accumulated, HARNESS_COUNT(accumulated));
  same_in_every_order(gpipe, HARNESS_COUNT(gpipe));
  same_in_every_order(split, HARNESS_COUNT(split));
  same_in_every_order(stashed, HARNESS_COUNT(stashed));
}
END_TEST

/* In bf16, where numbers wait in one type until they are asked for in the other; on other numbers of streams, too. */
START_TEST(the_order_of_stages_does_not_matter_in_bf16) {
  static const char *const petra[] = {"device.precision=bf16", "method.name=petra", "run.max_microbatches=10",
                                      FOUR_STAGES};
  static const char *const accumulated[] = {"device.precision=bf16", "method.name=delayed", "method.accumulate=3",
                                            "run.max_microbatches=12", FOUR_STAGES};
  static const char *const stashed[] = {"device.precision=bf16", "method.name=pipedream", "run.max_microbatches=10",
                                        "optim.clip=0.5", FOUR_STAGES};
  static const char *const resnet[] = {"device.precision=bf16", "model.family=resnet",     "method.name=gpipe",
                                       "method.accumulate=4",   "run.max_microbatches=12", FOUR_STAGES};
  static const char *const wide[] = {
      "device.precision=bf16", "device.wide_gradients=true", "method.name=petra", "probe.per_epoch=3",
      "data.limit=24",         "run.max_microbatches=10",    FOUR_STAGES};
  const char *const streams[] = {"device.streams=1", "device.streams=3"};
  training_tensors first, other;
  counts graphs = {0};
  same_in_every_order(petra, HARNESS_COUNT(petra));
  same_in_every_order(accumulated, HARNESS_COUNT(accumulated));
  same_in_every_order(stashed, HARNESS_COUNT(stashed));
  same_in_every_order(resnet, HARNESS_COUNT(resnet));
  same_in_every_order(wide, HARNESS_COUNT(wide));
  train(petra, HARNESS_COUNT(petra), "device.graph=on", 1, &first, &graphs);
  for (int i = 0; i < HARNESS_COUNT(streams); i++) {
    const char *sets[] = {streams[i], "device.precision=bf16", "method.name=petra", "run.max_microbatches=10",
                          FOUR_STAGES};
    train(sets, HARNESS_COUNT(sets), "device.graph=on", 2, &other, &graphs);
    ck_assert_msg(training_same(&first, &other), "%s: other weights", streams[i]);
    training_tensors_fini(&other);
  }
  training_tensors_fini(&first);
}
END_TEST

/* Evaluation, probes (dot products, downloads) and evaluations in between. */
START_TEST(what_the_host_reads_in_between) {
  static const char *const probed[] = {"method.name=petra", "run.max_microbatches=20", "probe.per_epoch=3",
                                       "data.limit=24",     "run.eval_every=1",        "data.recalibrate=3",
                                       FOUR_STAGES};
  const petra_evaluation evaluation = same_in_every_order(probed, HARNESS_COUNT(probed));
  ck_assert_int_eq(evaluation.images, 24);
  ck_assert(evaluation.recalibrated.loss > 0);
}
END_TEST

/* Convolutions that are measured when they are first described, while graphs are captured: what one run measured is what the next takes.
 * tf32, so that engines give different bits. */
START_TEST(measured_plans_are_taken_again) {
  char plans[64], key[96];
  snprintf(plans, sizeof plans, "training-%ld.plans", (long)getpid());
  snprintf(key, sizeof key, "device.plans=%s", plans);
  const char *sets[] = {key, "device.precision=tf32", "method.name=petra", "run.max_microbatches=16", FOUR_STAGES};
  training_tensors first, again;
  struct stat was, is;
  counts graphs = {0};
  train(sets, HARNESS_COUNT(sets), "device.graph=on", 1, &first, &graphs);
  const bool kept = stat(plans, &was) == 0; /* the stand-in of all of cuDNN has nothing to measure */
  train(sets, HARNESS_COUNT(sets), "device.graph=on", 2, &again, &graphs);
  ck_assert_msg(training_same(&first, &again), "other weights");
  ck_assert(stat(plans, &is) == (kept ? 0 : -1));
  ck_assert(!kept || was.st_ino == is.st_ino); /* nothing was added */
  training_tensors_fini(&first);
  training_tensors_fini(&again);
  remove(plans);
}
END_TEST

/* In the steady state of PETRA every action is a graph that is there: what the pool's order is for. */
START_TEST(actions_come_again_as_graphs) {
  static const char *const sets[][3] = {{"method.name=petra", "run.max_microbatches=90", "data.batch=1"},
                                        {"method.name=petra", "run.max_microbatches=110", "data.batch=1"}};
  counts graphs[2];
  for (int i = 0; i < 2; i++) {
    training_tensors final;
    train(sets[i], 3, "device.graph=on", 5, &final, &graphs[i]);
    training_tensors_fini(&final);
  }
  printf("petra, 10 stages: %lld graphs, %lld segments as graphs, %lld one by one\n", (long long)graphs[1].captured,
         (long long)graphs[1].launched, (long long)graphs[1].single);
  int64_t more = graphs[1].launched + graphs[1].single - graphs[0].launched - graphs[0].single;
  int64_t more_single = graphs[1].single - graphs[0].single;
  ck_assert_int_ge(more, 20 * 28);
  ck_assert_int_eq(more_single, 0);
}
END_TEST

#ifdef PETRA_CUDA_FAKE

/* The n-th call of a function fails: one line, the right status, and nothing is left over. */
static void fails(const char *function, int n, cudaError_t error, petra_status expected, const char *text) {
  training run;
  training_tensors final;
  petra_cuda_host_reset();
  petra_cuda_host_fail(function, n, error);
  harness_clear();
  petra_status status = TRAINING_OPEN(&run, NETWORK, FOUR_STAGES, CUDA, "method.name=petra", "run.max_microbatches=8");
  if (status == PETRA_OK) {
    status = training_run(&run);
    if (status == PETRA_OK) {
      status = training_weights(&run, &final);
      training_tensors_fini(&final);
    }
  }
  training_close(&run);
  ck_assert_msg(petra_cuda_host_failed(), "%s was not called %d times", function, n);
  ck_assert_msg(status == expected, "%s, call %d: status %d, '%s'", function, n, (int)status, harness_line);
  ck_assert_msg(harness_lines == 1, "%s, call %d: %d lines, the last '%s'", function, n, harness_lines, harness_line);
  ck_assert_logged(text);
  petra_cuda_host_counts left = petra_cuda_host_count();
  if (strcmp(function, "execution") == 0)
    return; /* the device answers nothing any more, as after an illegal access */
  ck_assert_msg(left.streams + left.events + left.graphs + left.graph_execs == 0,
                "%s, call %d: streams or events are left", function, n);
  ck_assert_msg(left.device_allocations + left.pinned_allocations == 0, "%s, call %d: memory is left", function, n);
}

START_TEST(every_failure_is_one_line) {
  static const int calls[] = {1, 3, 40};
  for (int i = 0; i < HARNESS_COUNT(calls); i++) {
    fails("cudaMalloc", calls[i], cudaErrorMemoryAllocation, PETRA_NO_MEMORY, "out of memory");
    fails("cudaMemcpyAsync", calls[i], cudaErrorInvalidValue, PETRA_BACKEND, "copy");
    fails("cudaEventRecord", calls[i], cudaErrorInvalidValue, PETRA_BACKEND, "cudaEventRecord");
    fails("petra_cuda_host_launch", calls[i], cudaErrorInvalidValue, PETRA_BACKEND, "cuda: ");
    fails("execution", calls[i], cudaErrorIllegalAddress, PETRA_BACKEND, "cuda: ");
  }
  fails("cudaStreamCreateWithFlags", 5, cudaErrorInvalidValue, PETRA_BACKEND, "cudaStreamCreate");
  fails("cudaEventCreateWithFlags", 9, cudaErrorInvalidValue, PETRA_BACKEND, "cudaEventCreate");
  fails("cudaHostAlloc", 1, cudaErrorMemoryAllocation, PETRA_NO_MEMORY, "pinned memory");
  petra_cuda_host_reset();
}
END_TEST

START_TEST(no_device) {
  static const int devices[] = {0, -cudaErrorInsufficientDriver, -cudaErrorStubLibrary};
  for (int i = 0; i < HARNESS_COUNT(devices); i++) {
    petra_backend *backend = NULL;
    petra_cuda_host_reset();
    petra_cuda_host_devices(devices[i]);
    harness_clear();
    ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_CUDA, PETRA_PRECISION_FP32, 1, true, &backend),
                     PETRA_UNSUPPORTED);
    ck_assert_ptr_null(backend);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged("there is no CUDA device");
    /* The automatic choice is then the processor. */
    must(petra_backend_create(PETRA_BACKEND_AUTO, PETRA_PRECISION_FP32, 1, true, &backend));
    ck_assert_str_eq(backend->ops->name, "cpu");
    petra_backend_destroy(backend);
  }
  petra_cuda_host_reset();
  petra_backend *backend = NULL;
  must(petra_backend_create(PETRA_BACKEND_AUTO, PETRA_PRECISION_FP32, 1, true, &backend));
  ck_assert_str_eq(backend->ops->name, "cuda");
  petra_backend_destroy(backend);
  harness_clear();
  ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_CUDA, PETRA_PRECISION_FP64, 1, true, &backend),
                   PETRA_UNSUPPORTED);
  ck_assert_logged("expected device.backend: ref");
  petra_cuda_host_reset();
}
END_TEST

#endif

int main(void) {
  const TTest *const tests[] = {
      close_to_ref,
      close_to_ref_in_few_bits,
      the_order_of_stages_does_not_matter,
      the_order_of_stages_does_not_matter_in_bf16,
      what_the_host_reads_in_between,
      measured_plans_are_taken_again,
#ifdef PETRA_CUDA_FAKE
      every_failure_is_one_line,
      no_device,
#endif
      actions_come_again_as_graphs,
  };
#ifdef __SANITIZE_ADDRESS__ /* the last one counts what the others run */
  const int count = HARNESS_COUNT(tests) - 1;
#else
  const int count = HARNESS_COUNT(tests);
#endif
  if (cuda_device_missing())
    return 77;
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("cuda_training", tests, count);
  training_data_remove();
  return result;
}
