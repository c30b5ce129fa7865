/* SPDX-License-Identifier: Apache-2.0 */
/* Identities of docs/semantics/guarantees.md, on the cuda backend, bit for bit: on one stage every method is SGD;
 * synchronous methods give the same whatever the partition and the program; a run gives the same twice. Over the
 * fake run time, and on a device. */
#include "cuda_device.h"
#include "harness.h"
#include "tolerances.h"
#include "training.h"

#ifdef PETRA_CUDA_FAKE
#define SIZE "model.depth=18", "model.width=1", "data.batch=2"
#else
#define SIZE "model.depth=18", "model.width=8", "data.batch=8"
#endif
#define CUDA SIZE, "optim.lr=0.02", "device.backend=cuda", "device.precision=fp32"

#ifdef __SANITIZE_ADDRESS__ /* under which threads of kernels are slow */
enum { ACCUMULATE_MAX = 1 };
#else
enum { ACCUMULATE_MAX = 3 };
#endif

/* A V has two stages on its one device. */
static bool in_v(const char *method) {
  for (int i = 0; i < petra_method_count(); i++)
    if (strcmp(petra_method_get(i).name, method) == 0)
      return petra_method_get(i).program->layout == PETRA_LAYOUT_V;
  return false;
}

static void train(const char *method, const char *partition, const char *blocks, int accumulate,
                  training_tensors *out) {
  char name[64], cut[64], list[64], k[64];
  training run;
  training_tensors init;
  snprintf(name, sizeof name, "method.name=%s", method);
  snprintf(cut, sizeof cut, "stages.partition=%s", partition);
  snprintf(list, sizeof list, "stages.blocks=%s", blocks);
  snprintf(k, sizeof k, "method.accumulate=%d", accumulate);
  must(TRAINING_OPEN(&run, CUDA, name, cut, list, k, "run.max_microbatches=6", "run.drain=auto",
                     in_v(method) ? "method.chunks=2" : "method.chunks=1"));
  must(training_weights(&run, &init));
  must(training_run(&run));
  must(training_weights(&run, out));
  ck_assert(!training_same(&init, out));
  training_tensors_fini(&init);
  training_close(&run);
}

static void same(const training_tensors *first, const char *method, const char *partition, const char *blocks,
                 int accumulate) {
  training_tensors other;
  train(method, partition, blocks, accumulate, &other);
  ck_assert_msg(training_same(first, &other), "%s, partition %s %s, k = %d: other weights", method, partition, blocks,
                accumulate);
  training_tensors_fini(&other);
}

START_TEST(on_one_stage_every_method_is_sgd) {
  for (int accumulate = 1; accumulate <= ACCUMULATE_MAX; accumulate += 2) {
    training_tensors first;
    train("backprop", "list", "[10]", accumulate, &first);
    for (int i = 0; i < petra_method_count(); i++)
      same(&first, petra_method_get(i).name, "list", in_v(petra_method_get(i).name) ? "[5, 5]" : "[10]", accumulate);
    training_tensors_fini(&first);
  }
}
END_TEST

/* All of them keep the inputs or the graphs: none reconstructs. */
START_TEST(synchronous_methods_are_backprop) {
  static const char *const methods[] = {"backprop", "gpipe", "gpipe-checkpoint", "1f1b", "zb-h1"};
  training_tensors first;
  train("backprop", "block", "[]", 3, &first);
  for (int m = 0; m < HARNESS_COUNT(methods); m++) {
    same(&first, methods[m], "block", "[]", 3);
    same(&first, methods[m], "list", "[2, 3, 5]", 3);
  }
  training_tensors_fini(&first);
}
END_TEST

START_TEST(a_run_gives_the_same_twice) {
  training_tensors first;
  train("petra", "list", "[1, 1, 7, 1]", 1, &first);
  same(&first, "petra", "list", "[1, 1, 7, 1]", 1);
  training_tensors_fini(&first);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {on_one_stage_every_method_is_sgd, synchronous_methods_are_backprop,
                                a_run_gives_the_same_twice};
  if (cuda_device_missing())
    return 77;
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("cuda_identities", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
