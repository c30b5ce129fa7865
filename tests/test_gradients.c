/* SPDX-License-Identifier: Apache-2.0 */
/* Backpropagation through whole networks on ref in fp64 against central differences of the loss.
 *
 * The loss f is smooth but for the kinks of the ReLUs, and rounded. A central difference with step e is off
 * by e^2 times a third of a third derivative, by r / e, where r = 1e-15 to 1e-14 is the rounding of f after
 * all layers, and by a share of the jump of f' at a kink within the step. No one step suits all entries, so
 * that several are tried: of two neighbours that agree best the finer one is taken, and how far they are
 * apart is its uncertainty. Entries whose uncertainty is too large (a kink at every step) are passed over,
 * which f alone decides, whatever backpropagation says; of every tensor one entry must remain. */
#include "harness.h"
#include "stage/stage_private.h"
#include "tolerances.h"
#include "training.h"

#include "backend/backend.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

#ifdef __SANITIZE_ADDRESS__ /* a second entry of a tensor has the code of the first one */
enum { WANTED = 1 };
#else
enum { WANTED = 2 };
#endif
enum { BATCH = 3, CONTEXT = 5, TRIES = 12 };

static const double steps[] = {2e-5, 4e-6, 8e-7, 1.6e-7};
/* Rounding of the loss (1e-14) over the steps at which kinks are rare (1e-6), three times: no difference is
 * sure beyond it. */
static const double noise = 3e-8;

typedef struct network {
  training run;
  petra_stage *stage; /* the only one */
  petra_message images;
  int first;                       /* the block whose parameters are moved: those before it give the same each time */
  petra_streams before;            /* its input */
  int32_t labels[BATCH * CONTEXT]; /* of tokens; fewer of images */
} network;

/* Replaces the streams by those after block `b`. */
static void pass_block(network *n, int b, petra_streams *streams) {
  petra_stage *stage = n->stage;
  petra_streams next;
  must(petra_block_forward(&stage->compute, petra_stage_block(stage, b), stage->sets[b].parameters.tensor, streams,
                           NULL, NULL, &next));
  petra_streams_release(streams);
  *streams = next;
}

static double loss_of(network *n) {
  petra_stage *stage = n->stage;
  petra_streams streams = petra_streams_retain(&n->before), next;
  petra_loss loss;
  for (int b = n->first; b < stage->blocks - 1; b++)
    pass_block(n, b, &streams);
  int head = stage->blocks - 1;
  const petra_target target = {n->labels, &loss};
  must(petra_block_forward(&stage->compute, petra_stage_block(stage, head), stage->sets[head].parameters.tensor,
                           &streams, &target, NULL, &next));
  petra_streams_release(&streams);
  petra_streams_release(&next); /* an auxiliary head has the streams as its output */
  return loss.loss;
}

/* The loss with `tensor`'s entry moved by `by`. */
static double moved_loss(network *n, petra_tensor *tensor, double *values, int64_t entry, double by) {
  double kept = values[entry];
  values[entry] = kept + by;
  must(petra_op_upload(n->run.network->backend, tensor, values, PETRA_HOST_F64));
  double loss = loss_of(n);
  values[entry] = kept;
  must(petra_op_upload(n->run.network->backend, tensor, values, PETRA_HOST_F64));
  return loss;
}

typedef struct tally {
  int checked, kinks;
  double worst;
  char worst_name[64];
} tally;

/* The derivative of the loss along an entry and its uncertainty. */
static double differences(network *n, petra_tensor *tensor, double *values, int64_t entry, double *uncertainty) {
  double best = 0, before = NAN;
  *uncertainty = INFINITY;
  for (int i = 0; i < HARNESS_COUNT(steps); i++) {
    double up = moved_loss(n, tensor, values, entry, steps[i]);
    double down = moved_loss(n, tensor, values, entry, -steps[i]);
    double slope = (up - down) / (2 * steps[i]), apart = fabs(slope - before);
    if (apart < *uncertainty) { /* never at the first step */
      *uncertainty = apart;
      best = slope;
    }
    before = slope;
  }
  return best;
}

/* Checks up to WANTED entries of one tensor. */
static void check_tensor(network *n, petra_tensor *tensor, const training_tensor *gradient, double *values,
                         tally *out) {
  double square = 0;
  int checked = 0;
  for (int64_t e = 0; e < gradient->elements; e++)
    square += gradient->values[e] * gradient->values[e];
  double scale = sqrt(square / (double)gradient->elements);
  for (int i = 0; i < TRIES && checked < WANTED; i++) {
    int64_t entry = (int64_t)(i * 7919 + 5) % gradient->elements;
    double exact = gradient->values[entry], uncertainty;
    double slope = differences(n, tensor, values, entry, &uncertainty);
    double limit = fmax(TOLERANCE_FINITE_DIFFERENCE * fmax(fabs(slope), scale), noise);
    if (uncertainty > limit) {
      out->kinks++;
      continue;
    }
    double wrong = fabs(slope - exact) / (limit / TOLERANCE_FINITE_DIFFERENCE);
    checked++;
    if (!(wrong <= out->worst)) {
      out->worst = wrong;
      snprintf(out->worst_name, sizeof out->worst_name, "%s", gradient->name);
    }
    /* Twice the tolerance: an uncertainty of its own size is allowed. */
    ck_assert_msg(wrong <= 2 * TOLERANCE_FINITE_DIFFERENCE,
                  "%s[%lld]: backward %.10e, differences %.10e, uncertain by %.1e", gradient->name, (long long)entry,
                  exact, slope, uncertainty);
  }
  ck_assert_msg(checked > 0, "%s: every entry tried lies at a kink", gradient->name);
  out->checked += checked;
}

#define REF                                                                                                            \
  "stages.partition=list", "method.name=backprop", "data.batch=3", "device.backend=ref", "device.precision=fp64",      \
      "device.threads=1"

/* The gradients of an open network, on microbatch `batch`. */
static void check_gradients(network *open, const char *what, int64_t batch) {
  network n = *open;
  petra_message out;
  petra_loss loss;
  training_tensors gradients, weights;
  tally result = {0};
  n.stage = n.run.network->stage[0];
  must(training_batch(&n.run, batch, &n.images, n.labels));
  must(petra_stage_loss(n.stage, 0, &n.images, n.labels, &out, &loss));
  petra_message_release(&out);
  must(training_gradients(&n.run, false, &gradients));
  must(training_weights(&n.run, &weights));
  n.first = 0;
  n.before = petra_streams_retain(&n.images.streams);
  ck_assert_double_eq(loss_of(&n), loss.loss);
  int g = 0, w = 0;
  for (int b = 0; b < n.stage->blocks; b++) {
    n.first = b;
    for (int i = 0; i < n.stage->sets[b].parameters.count; i++, g++, w++)
      check_tensor(&n, n.stage->sets[b].parameters.tensor[i], &gradients.tensor[g], weights.tensor[w].values, &result);
    w += n.stage->sets[b].statistics.count;
    if (b < n.stage->blocks - 1)
      pass_block(&n, b, &n.before);
  }
  ck_assert_double_eq(loss_of(&n), loss.loss); /* of the head alone: every block has its own weights again */
  petra_streams_release(&n.before);
  ck_assert_int_eq(g, gradients.count);
  printf("%s: %d entries of %d tensors, worst %.3e (%s), %d passed over at kinks\n", what, result.checked, g,
         result.worst, result.worst_name, result.kinks);
  training_tensors_fini(&gradients);
  training_tensors_fini(&weights);
  petra_message_release(&n.images);
}

static void check_network(const char *family, const char *depth, const char *width, const char *stem,
                          const char *blocks, int64_t batch) {
  network n = {0};
  char what[160];
  must(TRAINING_OPEN(&n.run, family, depth, width, stem, blocks, REF));
  snprintf(what, sizeof what, "%s %s %s %s", family, depth, width, stem);
  check_gradients(&n, what, batch);
  training_close(&n.run);
}

/* Weights as large as those of a network that has learned: as they begin most gradients are rounding beside the loss. */
static void draw_weights(const training *run) {
  const petra_stage *stage = run->network->stage[0];
  petra_rng rng;
  petra_rng_init(&rng, 5, PETRA_RNG_TEST, 0, 0);
  for (int b = 0; b < stage->blocks; b++)
    for (int i = 0; i < stage->sets[b].parameters.count; i++) {
      petra_tensor *tensor = stage->sets[b].parameters.tensor[i];
      petra_tensor_spec spec;
      double *values;
      petra_block_parameter(&run->plan->model, petra_stage_block(stage, b), i, &spec);
      must(petra_allocate(&values, (size_t)tensor->elements, sizeof *values));
      for (int64_t e = 0; e < tensor->elements; e++)
        values[e] = (spec.role == PETRA_ROLE_SCALE) + 0.3 * petra_rng_normal(&rng);
      must(petra_op_upload(run->network->backend, tensor, values, PETRA_HOST_F64));
      petra_free(values);
    }
}

static void check_transformer(const char *family, const char *set, const char *setting) {
  network n = {0};
  const bool tokens = strcmp(set, "data.set=grammar") == 0;
  must(TRAINING_OPEN(&n.run, family, set, tokens ? "model.context=5" : "model.patch=16", "model.depth=2",
                     "model.width=6", "model.heads=3", setting, "stages.blocks=[6]", REF));
  draw_weights(&n.run);
  check_gradients(&n, family, 0);
  training_close(&n.run);
}

/* The gradient of a tensor and its values, downloaded. */
static void check_set_tensor(network *n, int b, int i, tally *result) {
  petra_backend *backend = n->run.network->backend;
  const petra_stage_sets *sets = &n->stage->sets[b];
  petra_tensor *weight = sets->parameters.tensor[i];
  training_tensor gradient = {.elements = weight->elements};
  petra_tensor_spec spec;
  double *values;
  petra_block_parameter(&n->run.plan->model, petra_stage_block(n->stage, b), i, &spec);
  snprintf(gradient.name, sizeof gradient.name, "%d/%s", b, spec.name);
  must(petra_allocate(&values, (size_t)weight->elements, sizeof *values));
  must(petra_allocate(&gradient.values, (size_t)weight->elements, sizeof *gradient.values));
  must(petra_op_download(backend, weight, values, PETRA_HOST_F64));
  must(petra_op_download(backend, sets->gradients.tensor[i], gradient.values, PETRA_HOST_F64));
  check_tensor(n, weight, &gradient, values, result);
  petra_free(gradient.values);
  petra_free(values);
}

/* The gradients of the first stage of an open network with local learning, its auxiliary head included. */
static void check_local(network *n, const char *what) {
  const int32_t labels = BATCH * petra_model_labels(&n->run.plan->model);
  petra_message out, down, none = {0};
  petra_loss loss;
  tally result = {0};
  n->stage = n->run.network->stage[0];
  must(training_batch(&n->run, 0, &n->images, n->labels));
  must(petra_stage_forward(n->stage, 0, &n->images, n->labels, labels, &out, &loss));
  ck_assert_ptr_nonnull(out.streams.tensor[0]);
  must(petra_stage_backward(n->stage, 0, &none, &down));
  n->before = petra_streams_retain(&n->images.streams);
  ck_assert_double_eq(loss_of(n), loss.loss);
  for (int b = 0; b < n->stage->blocks; b++) {
    n->first = b;
    for (int i = 0; i < n->stage->sets[b].parameters.count; i++)
      check_set_tensor(n, b, i, &result);
    if (b < n->stage->blocks - 1)
      pass_block(n, b, &n->before);
  }
  petra_streams_release(&n->before);
  printf("%s: %d entries, worst %.3e (%s), %d passed over at kinks\n", what, result.checked, result.worst,
         result.worst_name, result.kinks);
  petra_message_release(&out);
  petra_message_release(&down);
  petra_message_release(&n->images);
}

#define LOCAL                                                                                                          \
  "stages.partition=list", "method.name=dgl", "data.batch=3", "device.backend=ref", "device.precision=fp64",           \
      "device.threads=1"

#define TEN "stages.blocks=[10]"
#define EIGHTEEN "stages.blocks=[18]"

START_TEST(revnet18) {
  check_network("model.family=revnet", "model.depth=18", "model.width=2", "model.stem=cifar", TEN, 0);
}
END_TEST
START_TEST(revnet18_imagenet_stem) {
  check_network("model.family=revnet", "model.depth=18", "model.width=2", "model.stem=imagenet", TEN, 0);
}
END_TEST
START_TEST(revnet18_invertible) {
  check_network("model.downsample=invertible", "model.depth=18", "model.width=2", "model.stem=cifar", TEN, 0);
}
END_TEST
START_TEST(revnet34) {
  check_network("model.family=revnet", "model.depth=34", "model.width=1", "model.stem=cifar", EIGHTEEN, 0);
}
END_TEST
START_TEST(revnet50) {
  check_network("model.family=revnet", "model.depth=50", "model.width=1", "model.stem=cifar", EIGHTEEN, 0);
}
END_TEST
START_TEST(revnet50_variant) {
  check_network("model.bottleneck=variant", "model.depth=50", "model.width=1", "model.stem=cifar", EIGHTEEN, 0);
}
END_TEST
START_TEST(revnet_constant) {
  check_network("model.shape=constant", "model.depth=8", "model.width=2", "model.stem=cifar", TEN, 0);
}
END_TEST
/* In batch 0 an activation lies within 1e-7 of its kink, which every entry of the stem moves across. */
START_TEST(resnet18) {
  check_network("model.family=resnet", "model.depth=18", "model.width=2", "model.stem=cifar", TEN, 1);
}
END_TEST
START_TEST(resnet18_imagenet_stem) {
  check_network("model.family=resnet", "model.depth=18", "model.width=2", "model.stem=imagenet", TEN, 0);
}
END_TEST
START_TEST(resnet50) {
  check_network("model.family=resnet", "model.depth=50", "model.width=1", "model.stem=cifar", EIGHTEEN, 0);
}
END_TEST

START_TEST(auxiliary_heads) {
  static const char *const of_images[][4] = {
      {"model.family=revnet", "model.depth=18", "model.width=2", "stages.blocks=[4, 6]"},
      {"model.family=revnet", "model.depth=50", "model.width=4", "stages.blocks=[2, 16]"},
      {"model.family=resnet", "model.depth=18", "model.width=2", "stages.blocks=[1, 9]"}};
  static const char *const of_layers[][3] = {{"model.family=revgpt", "data.set=grammar", "model.context=5"},
                                             {"model.family=gpt", "data.set=grammar", "model.context=5"},
                                             {"model.family=vit", "data.set=cifar10", "model.patch=16"}};
  for (int i = 0; i < HARNESS_COUNT(of_images); i++) {
    network n = {0};
    must(TRAINING_OPEN(&n.run, of_images[i][0], of_images[i][1], of_images[i][2], of_images[i][3], LOCAL));
    check_local(&n, of_images[i][3]);
    training_close(&n.run);
  }
  for (int i = 0; i < HARNESS_COUNT(of_layers); i++) {
    network n = {0};
    must(TRAINING_OPEN(&n.run, of_layers[i][0], of_layers[i][1], of_layers[i][2], "model.depth=2", "model.width=6",
                       "model.heads=3", "stages.blocks=[3, 3]", LOCAL));
    draw_weights(&n.run);
    check_local(&n, of_layers[i][0]);
    training_close(&n.run);
  }
}
END_TEST

START_TEST(transformers) {
  static const char *const of_tokens[][2] = {
      {"model.family=gpt", "model.coupling=additive"},    {"model.family=revgpt", "model.coupling=additive"},
      {"model.family=revgpt", "model.coupling=leapfrog"}, {"model.family=llama", "model.kv_heads=3"},
      {"model.family=llama", "model.kv_heads=1"},         {"model.family=revllama", "model.coupling=leapfrog"}};
  static const char *const of_images[][2] = {{"model.family=vit", "model.coupling=additive"},
                                             {"model.family=revvit", "model.coupling=additive"},
                                             {"model.family=revvit", "model.coupling=leapfrog"}};
  for (int i = 0; i < HARNESS_COUNT(of_tokens); i++)
    check_transformer(of_tokens[i][0], "data.set=grammar", of_tokens[i][1]);
  for (int i = 0; i < HARNESS_COUNT(of_images); i++)
    check_transformer(of_images[i][0], "data.set=cifar10", of_images[i][1]);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {revnet18,
                                revnet18_imagenet_stem,
                                revnet18_invertible,
                                revnet34,
                                revnet50,
                                revnet50_variant,
                                revnet_constant,
                                resnet18,
                                resnet18_imagenet_stem,
                                resnet50,
                                transformers,
                                auxiliary_heads};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("gradients", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
