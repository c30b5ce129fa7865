/* Networks, partitions, learning rates and initial values as tables and functions: no stage runs here, but
 * for the blocks' inversion. */
#include "backend/ops.h"
#include "base/mem.h"
#include "base/rng.h"
#include "harness.h"
#include "nn/block.h"
#include "nn/lr.h"
#include "nn/partition.h"
#include "nn/tensors.h"

#include <math.h>

static petra_config *load(const char *const *sets, int count) {
  petra_config *config = NULL;
  ck_assert_int_eq(petra_config_load(NULL, sets, count, &config), PETRA_OK);
  return config;
}

static petra_model make_model(const char *family, int depth, int width, const char *stem, int classes, int image) {
  char text[5][64];
  const char *const sets[] = {text[0], text[1], text[2], text[3], text[4]};
  petra_model model;
  snprintf(text[0], 64, "model.family=%s", family);
  snprintf(text[1], 64, "model.depth=%d", depth);
  snprintf(text[2], 64, "model.width=%d", width);
  snprintf(text[3], 64, "model.stem=%s", stem);
  snprintf(text[4], 64, "model.classes=%d", classes);
  petra_config *config = load(sets, 5);
  ck_assert_int_eq(petra_model_init(&model, config, image, image), PETRA_OK);
  petra_config_destroy(config);
  return model;
}

/* The same with model.downsample: invertible. */
static petra_model make_invertible(int depth, int width, const char *stem, int classes, int image) {
  char text[4][64];
  const char *const sets[] = {text[0], text[1], text[2], text[3], "model.downsample=invertible"};
  petra_model model;
  snprintf(text[0], 64, "model.depth=%d", depth);
  snprintf(text[1], 64, "model.width=%d", width);
  snprintf(text[2], 64, "model.stem=%s", stem);
  snprintf(text[3], 64, "model.classes=%d", classes);
  petra_config *config = load(sets, 5);
  ck_assert_int_eq(petra_model_init(&model, config, image, image), PETRA_OK);
  petra_config_destroy(config);
  return model;
}

static int64_t all_parameters(const petra_model *model) {
  int64_t sum = 0;
  for (int b = 0; b < model->block_count; b++)
    sum += petra_block_parameters(model, &model->blocks[b]);
  return sum;
}

/* docs/semantics.md, section 1; ResNet: the counts that torchvision documents for its weights. */
START_TEST(parameter_counts) {
  const int64_t stages[] = {3712, 73984, 73984, 230144, 295424, 919040, 1180672, 3673088, 4720640, 10250};
  petra_model model = make_model("revnet", 18, 64, "cifar", 10, 32);
  ck_assert_int_eq(model.block_count, 10);
  for (int b = 0; b < 10; b++)
    ck_assert_int_eq(petra_block_parameters(&model, &model.blocks[b]), stages[b]);
  const struct {
    const char *family, *stem;
    int depth, classes, blocks;
    int64_t parameters;
  } totals[] = {{"revnet", "cifar", 18, 10, 10, 11180938},      {"revnet", "imagenet", 18, 1000, 10, 12211048},
                {"revnet", "imagenet", 50, 1000, 18, 30391144}, {"resnet", "imagenet", 18, 1000, 10, 11689512},
                {"resnet", "imagenet", 34, 1000, 18, 21797672}, {"resnet", "imagenet", 50, 1000, 18, 25557032}};
  for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
    model = make_model(totals[i].family, totals[i].depth, 64, totals[i].stem, totals[i].classes, 224);
    ck_assert_int_eq(model.block_count, totals[i].blocks);
    ck_assert_int_eq(all_parameters(&model), totals[i].parameters);
  }
}
END_TEST

/* The names of a block's tensors, one after the other. */
static void expect_names(const petra_model *model, int b, const char *parameters, const char *statistics) {
  const petra_block *block = &model->blocks[b];
  char found[2][600] = {"", ""};
  petra_tensor_spec spec;
  for (int s = 0; s < 2; s++)
    for (int i = 0; i < (s ? petra_block_statistic_count(block) : petra_block_parameter_count(block)); i++) {
      if (s)
        petra_block_statistic(block, i, &spec);
      else
        petra_block_parameter(model, block, i, &spec);
      strcat(strcat(found[s], i ? " " : ""), spec.name);
      bool weight = strstr(spec.name, "/weight") != NULL;
      ck_assert_int_eq(spec.decay, weight);
      ck_assert_int_eq(spec.fan_in > 0, weight || strcmp(spec.name, "fc/bias") == 0);
      ck_assert_int_eq(spec.rank, weight ? (block->kind == PETRA_BLOCK_HEAD ? 2 : 4) : 1);
    }
  ck_assert_str_eq(found[0], parameters);
  ck_assert_str_eq(found[1], statistics);
}

#define UNIT(conv, norm) conv "/weight " norm "/scale " norm "/shift"
#define MOVES(norm) norm "/running_mean " norm "/running_var"

START_TEST(tensor_names) {
  petra_model model = make_model("revnet", 18, 4, "cifar", 10, 32);
  expect_names(&model, 0, UNIT("conv", "bn"), MOVES("bn"));
  expect_names(&model, 1, UNIT("conv1", "bn1") " " UNIT("conv2", "bn2"), MOVES("bn1") " " MOVES("bn2"));
  expect_names(&model, 3, UNIT("conv1", "bn1") " " UNIT("conv2", "bn2") " " UNIT("shortcut/conv", "shortcut/bn"),
               MOVES("bn1") " " MOVES("bn2") " " MOVES("shortcut/bn"));
  expect_names(&model, 9, "fc/weight fc/bias", "");
  model = make_model("revnet", 50, 4, "cifar", 10, 32);
  expect_names(&model, 1,
               UNIT("conv1", "bn1") " " UNIT("conv2", "bn2") " " UNIT("conv3", "bn3") " " UNIT(
                   "shortcut1/conv", "shortcut1/bn") " " UNIT("shortcut2/conv", "shortcut2/bn"),
               MOVES("bn1") " " MOVES("bn2") " " MOVES("bn3") " " MOVES("shortcut1/bn") " " MOVES("shortcut2/bn"));
  expect_names(&model, 2, UNIT("conv1", "bn1") " " UNIT("conv2", "bn2") " " UNIT("conv3", "bn3"),
               MOVES("bn1") " " MOVES("bn2") " " MOVES("bn3"));
  model = make_model("resnet", 50, 4, "cifar", 10, 32);
  expect_names(
      &model, 1,
      UNIT("conv1", "bn1") " " UNIT("conv2", "bn2") " " UNIT("conv3", "bn3") " " UNIT("shortcut/conv", "shortcut/bn"),
      MOVES("bn1") " " MOVES("bn2") " " MOVES("bn3") " " MOVES("shortcut/bn"));
  ck_assert_str_eq(model.blocks[0].name, "stem");
  ck_assert_str_eq(model.blocks[1].name, "group1.block1");
  ck_assert_str_eq(model.blocks[16].name, "group4.block3");
  ck_assert_str_eq(model.blocks[17].name, "head");
  for (int b = 0; b < 18; b++)
    ck_assert_int_eq(model.blocks[b].number, b + 1);
}
END_TEST

/* Shapes of one stream and which blocks are reversible, group by group. */
static void expect_shapes(const char *family, int depth, const char *stem, int image, int first_side) {
  petra_model model = make_model(family, depth, 64, stem, 10, image);
  const int counts[2][4] = {{2, 2, 2, 2}, {3, 4, 6, 3}};
  bool revnet = strcmp(family, "revnet") == 0;
  int expansion = depth == 50 ? 4 : 1, b = 0;
  ck_assert_int_eq(model.blocks[0].shape_in.channels, 3);
  ck_assert_int_eq(model.blocks[0].shape_in.height, image);
  for (int group = -1; group < 4; group++)
    for (int i = 0; i < (group < 0 ? 1 : counts[depth != 18][group]); i++, b++) {
      const petra_block *block = &model.blocks[b];
      int side = group < 0 ? first_side : first_side >> group;
      int channels = group < 0 ? 64 : (64 << group) * expansion;
      bool changes = group >= 0 && i == 0 && (group > 0 || expansion > 1);
      ck_assert_int_eq(block->shape_out.channels, channels);
      ck_assert_int_eq(block->shape_out.height, side);
      ck_assert_int_eq(block->shape_out.width, side);
      ck_assert_int_eq(block->streams_out, revnet ? 2 : 1);
      ck_assert_int_eq(block->reversible, revnet && group >= 0 && !changes);
      ck_assert_int_eq(petra_block_output_elements(block), (revnet ? 2 : 1) * channels * side * side);
      ck_assert_int_eq(petra_block_output_elements(block), petra_block_input_elements(&model.blocks[b + 1]));
      ck_assert_int_eq(block[1].shape_in.channels, channels);
      ck_assert_int_eq(block[1].shape_in.height, side);
    }
  ck_assert_int_eq(model.blocks[b].kind, PETRA_BLOCK_HEAD);
  ck_assert_int_eq(model.blocks[b].features, (revnet ? 2 : 1) * 512 * expansion);
  ck_assert_int_eq(model.block_count, b + 1);
}

START_TEST(shapes) {
  const char *const families[] = {"revnet", "resnet"};
  const int depths[] = {18, 34, 50};
  for (int f = 0; f < 2; f++)
    for (int d = 0; d < 3; d++) {
      expect_shapes(families[f], depths[d], "cifar", 32, 32);
      expect_shapes(families[f], depths[d], "cifar", 224, 224);
      expect_shapes(families[f], depths[d], "imagenet", 224, 56);
      expect_shapes(families[f], depths[d], "imagenet", 32, 8);
    }
}
END_TEST

START_TEST(images_too_small) {
  const char *const sets[] = {"model.stem=imagenet"};
  petra_config *config = load(sets, 1);
  petra_model model;
  ck_assert_int_eq(petra_model_init(&model, config, 32, 32), PETRA_OK);
  harness_clear();
  ck_assert_int_eq(petra_model_init(&model, config, 31, 32), PETRA_CONFIG);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("model.stem");
  ck_assert_logged(": images of 32 x 31 are too small for this stem; expected at least 32 x 32");
  petra_config_destroy(config);
}
END_TEST

/* Two for a multiply-add, times outputs, times inputs of each. */
START_TEST(flops_by_hand) {
  petra_model model = make_model("revnet", 18, 64, "cifar", 10, 32);
  ck_assert_int_eq(petra_block_flops(&model.blocks[0]), 2LL * 128 * 32 * 32 * 3 * 9);
  ck_assert_int_eq(petra_block_flops(&model.blocks[1]), 2 * (2LL * 64 * 32 * 32 * 64 * 9));
  ck_assert_int_eq(petra_block_flops(&model.blocks[3]),
                   2LL * 128 * 16 * 16 * 64 * 9 + 2LL * 128 * 16 * 16 * 128 * 9 + 2LL * 128 * 16 * 16 * 64);
  ck_assert_int_eq(petra_block_flops(&model.blocks[9]), 2LL * 10 * 1024);
  model = make_model("revnet", 50, 64, "imagenet", 1000, 224);
  ck_assert_int_eq(petra_block_flops(&model.blocks[0]), 2LL * 128 * 112 * 112 * 3 * 49);
  /* The first block of group 2: 256 -> 128 at 56, 3x3 to 28, 128 -> 512; two shortcuts 256 -> 512 at 28. */
  ck_assert_int_eq(petra_block_flops(&model.blocks[4]), 2LL * 128 * 56 * 56 * 256 + 2LL * 128 * 28 * 28 * 128 * 9 +
                                                            2LL * 512 * 28 * 28 * 128 +
                                                            2 * (2LL * 512 * 28 * 28 * 256));
  ck_assert_int_eq(petra_block_flops(&model.blocks[17]), 2LL * 1000 * 4096);
}
END_TEST

/* docs/semantics.md: with q = 4^g, a block of group g has 18 q w^2 + 2 w (1 + q) parameters, the first of a
 * further group 9 q w^2 / 4 + 9 q w^2 + 2 w (1 + q); its convolutions do as many multiply-adds as they have
 * weights, times the pixels that they make. */
static void expect_invertible(int depth, int64_t w, const char *stem, int64_t classes, int image, int side) {
  petra_model model = make_invertible(depth, (int)w, stem, (int)classes, image);
  const int counts[2][4] = {{2, 2, 2, 2}, {3, 4, 6, 3}};
  int b = 1;
  int64_t kernel = strcmp(stem, "imagenet") == 0 ? 49 : 9, q = 1;
  ck_assert(!model.blocks[0].reversible);
  ck_assert_int_eq(petra_block_parameters(&model, &model.blocks[0]), 3 * kernel * 2 * w + 2 * 2 * w);
  for (int group = 0; group < 4; group++, q *= 4)
    for (int i = 0; i < counts[depth != 18][group]; i++, b++) {
      const petra_block *block = &model.blocks[b];
      bool shuffles = group > 0 && i == 0;
      int64_t first = shuffles ? 9 * q / 4 * w * w : 9 * q * w * w, second = 9 * w * q * w, now = side >> group;
      ck_assert_int_eq(block->kind, shuffles ? PETRA_BLOCK_SHUFFLE : PETRA_BLOCK_REVERSIBLE);
      ck_assert(block->reversible);
      ck_assert_int_eq(block->unit_count, 2);
      ck_assert(block->units[0].relu && !block->units[1].relu);
      ck_assert_int_eq(block->shape_out.channels, w * q);
      ck_assert_int_eq(block->shape_out.height, now);
      ck_assert_int_eq(block->shape_out.width, now);
      ck_assert_int_eq(petra_block_parameters(&model, block), first + second + 2 * w * (1 + q));
      ck_assert_int_eq(petra_block_flops(block), 2 * (first + second) * now * now);
      /* Nothing is lost on the way: all boundaries carry as much. */
      ck_assert_int_eq(petra_block_output_elements(block), petra_block_input_elements(block));
      ck_assert_int_eq(petra_block_output_elements(block), 2 * w * side * side);
    }
  ck_assert_int_eq(model.block_count, b + 1);
  ck_assert(!model.blocks[b].reversible);
  ck_assert_int_eq(model.blocks[b].features, 2 * 64 * w);
  ck_assert_int_eq(petra_block_parameters(&model, &model.blocks[b]), (2 * 64 * w + 1) * classes);
}

START_TEST(invertible_networks) {
  expect_invertible(18, 64, "cifar", 10, 32, 32);
  expect_invertible(34, 64, "cifar", 100, 32, 32);
  expect_invertible(18, 3, "cifar", 10, 24, 24);
  expect_invertible(34, 16, "imagenet", 1000, 224, 56);
  /* The numbers of docs/semantics.md. */
  petra_model model = make_invertible(18, 64, "cifar", 10, 32);
  ck_assert_int_eq(all_parameters(&model), 10319754);
  expect_names(&model, 3, UNIT("conv1", "bn1") " " UNIT("conv2", "bn2"), MOVES("bn1") " " MOVES("bn2"));
  /* Nothing changes without it. */
  model = make_model("revnet", 18, 64, "cifar", 10, 32);
  for (int b = 0; b < model.block_count; b++)
    ck_assert(model.blocks[b].kind != PETRA_BLOCK_SHUFFLE);
}
END_TEST

START_TEST(invertible_refused) {
  const struct {
    const char *set;
    int height, width;
    const char *line;
  } bad[] = {
      {"model.family=resnet", 32, 32, ": invertible is for model.family: revnet"},
      {"model.depth=50", 32, 32, ": invertible needs model.depth 18 or 34: the first block of depth 50"},
      {"model.stem=cifar", 28, 32,
       ": images of 32 x 28 cannot be halved evenly for invertible; expected multiples of 8"},
      {"model.stem=imagenet", 224, 232,
       ": images of 232 x 224 cannot be halved evenly for invertible; expected multiples of 32"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *const sets[] = {"model.downsample=invertible", bad[i].set};
    petra_config *config = load(sets, 2);
    petra_model model;
    harness_clear();
    ck_assert_int_eq(petra_model_init(&model, config, bad[i].height, bad[i].width), PETRA_CONFIG);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged("model.downsample");
    ck_assert_logged(bad[i].line);
    petra_config_destroy(config);
  }
}
END_TEST

static petra_status cut(const petra_model *model, const char *first, const char *second, petra_partition *out) {
  const char *const sets[] = {first, second};
  petra_config *config = load(sets, second ? 2 : 1);
  harness_clear();
  petra_status status = petra_partition_init(out, config, model);
  petra_config_destroy(config);
  return status;
}

/* The least maximum of `stages` parts of blocks first .. end - 1, by trying every place of the first cut. */
static int64_t brute_force(const petra_model *model, int first, int stages) {
  int64_t best = INT64_MAX, sum = 0;
  for (int end = first + 1; end <= model->block_count - (stages - 1); end++) {
    sum += petra_block_flops(&model->blocks[end - 1]);
    if (stages == 1)
      continue;
    int64_t rest = brute_force(model, end, stages - 1), most = sum > rest ? sum : rest;
    best = most < best ? most : best;
  }
  return stages == 1 ? sum : best;
}

START_TEST(partitions) {
  const int depths[] = {18, 34, 50};
  for (int d = 0; d < 3; d++) {
    petra_model model = make_model("revnet", depths[d], 16, "cifar", 10, 32);
    petra_partition partition;
    ck_assert_int_eq(cut(&model, "stages.partition=block", NULL, &partition), PETRA_OK);
    ck_assert_int_eq(partition.stages, model.block_count);
    for (int j = 0; j <= model.block_count; j++)
      ck_assert_int_eq(partition.first[j], j);
    for (int stages = 1; stages <= model.block_count; stages++) {
      char count[40];
      int64_t most = 0;
      snprintf(count, sizeof count, "stages.count=%d", stages);
      ck_assert_int_eq(cut(&model, "stages.partition=balanced", count, &partition), PETRA_OK);
      ck_assert_int_eq(partition.stages, stages);
      ck_assert_int_eq(partition.first[0], 0);
      ck_assert_int_eq(partition.first[stages], model.block_count);
      for (int j = 0; j < stages; j++) {
        int64_t sum = 0;
        ck_assert_int_lt(partition.first[j], partition.first[j + 1]);
        for (int b = partition.first[j]; b < partition.first[j + 1]; b++)
          sum += petra_block_flops(&model.blocks[b]);
        most = sum > most ? sum : most;
      }
      ck_assert_int_eq(most, brute_force(&model, 0, stages));
    }
  }
  petra_model model = make_model("revnet", 18, 4, "cifar", 10, 32);
  petra_partition partition;
  ck_assert_int_eq(cut(&model, "stages.partition=list", "stages.blocks=[2, 3, 5]", &partition), PETRA_OK);
  ck_assert_int_eq(partition.stages, 3);
  const int first[] = {0, 2, 5, 10};
  for (int j = 0; j < 4; j++)
    ck_assert_int_eq(partition.first[j], first[j]);
}
END_TEST

START_TEST(bad_partitions) {
  const struct {
    const char *first, *second, *key, *line;
  } bad[] = {
      {"stages.partition=block", "stages.count=9", "stages.count",
       ": stages.partition: block gives 10 stages, one a block; expected 0 or 10"},
      {"stages.partition=block", "stages.count=11", "stages.count", ": stages.partition: block gives 10 stages"},
      {"stages.partition=balanced", NULL, "stages.count",
       ": stages.partition: balanced needs the number of stages; expected 1 to 10"},
      {"stages.partition=balanced", "stages.count=0", "stages.count",
       ": stages.partition: balanced needs the number of stages"},
      {"stages.partition=balanced", "stages.count=11", "stages.count", ": 11 stages for a network of 10 blocks"},
      {"stages.partition=balanced", "stages.count=100000", "stages.count",
       ": 100000 stages for a network of 10 blocks"},
      {"stages.partition=list", NULL, "stages.blocks",
       ": stages.partition: list needs the number of blocks of every stage"},
      {"stages.partition=list", "stages.blocks=[2, 3, 4]", "stages.blocks",
       ": the stages hold 9 blocks together; the network has 10"},
      {"stages.partition=list", "stages.blocks=[2, 3, 6]", "stages.blocks",
       ": the stages hold 11 blocks together; the network has 10"},
      {"stages.partition=list", "stages.blocks=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", "stages.blocks",
       ": 11 stages for a network of 10 blocks"},
      {"stages.partition=list", "stages.blocks=[11]", "stages.blocks", ": a stage of 11 blocks; the network has 10"},
  };
  petra_model model = make_model("revnet", 18, 4, "cifar", 10, 32);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    petra_partition partition;
    ck_assert_msg(cut(&model, bad[i].first, bad[i].second, &partition) == PETRA_CONFIG, "%s %s was taken", bad[i].first,
                  bad[i].second);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(bad[i].key);
    ck_assert_logged(bad[i].line);
  }
  /* A stage without blocks is refused when the config is read. */
  const char *const empty[] = {"stages.partition=list", "stages.blocks=[0, 10]"};
  petra_config *config = NULL;
  harness_clear();
  ck_assert_int_eq(petra_config_load(NULL, empty, 2, &config), PETRA_CONFIG);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("stages.blocks");
}
END_TEST

/* Every rate is computed again from the words of docs/semantics.md; both sides do the same few products, so
 * that only the order of the rounding may differ: 4 units in the last place. */
START_TEST(learning_rates) {
  const char *const sets[] = {"optim.lr=0.1",        "optim.lr_scaling=goyal", "data.batch=64",
                              "method.accumulate=4", "lr.warmup_epochs=5",     "lr.milestones=[30, 60, 80]",
                              "lr.factor=0.1"};
  petra_config *config = load(sets, 7);
  const int64_t batches = 13;
  petra_lr lr = petra_lr_from_config(config, batches);
  for (int64_t i = 0; i < 90 * batches; i++) {
    double expected = 0.1 * 64 * 4 / 256;
    if (i < 5 * batches)
      expected *= (double)(i + 1) / (double)(5 * batches);
    int64_t epoch = i / batches;
    for (int drops = (epoch >= 30) + (epoch >= 60) + (epoch >= 80); drops > 0; drops--)
      expected *= 0.1;
    ck_assert_double_eq_tol(petra_lr_at(&lr, i), expected, 4 * 2.3e-16 * expected);
  }
  petra_config_destroy(config);
  /* Without scaling, warm-up and milestones the rate is the config's. */
  const char *const plain[] = {"optim.lr=0.3", "optim.lr_scaling=none", "lr.warmup_epochs=0", "lr.milestones=[]"};
  config = load(plain, 4);
  lr = petra_lr_from_config(config, 7);
  for (int64_t i = 0; i < 1000; i += 37)
    ck_assert(petra_lr_at(&lr, i) == 0.3);
  petra_config_destroy(config);
}
END_TEST

START_TEST(initial_values) {
  petra_model model = make_model("revnet", 18, 64, "cifar", 10, 32);
  double first = 0;
  for (int b = 0; b < model.block_count; b++)
    for (int i = 0; i < petra_block_parameter_count(&model.blocks[b]); i++) {
      petra_tensor_spec spec;
      double *values, *again, sum = 0, squares = 0;
      petra_block_parameter(&model, &model.blocks[b], i, &spec);
      int64_t count = (int64_t)spec.shape[0] * spec.shape[1] * spec.shape[2] * spec.shape[3];
      ck_assert_int_eq(petra_allocate(&values, (size_t)count, sizeof *values), PETRA_OK);
      ck_assert_int_eq(petra_allocate(&again, (size_t)count, sizeof *again), PETRA_OK);
      petra_initial_values(&spec, 5, &model.blocks[b], i, values);
      petra_initial_values(&spec, 5, &model.blocks[b], i, again);
      ck_assert_int_eq(memcmp(values, again, (size_t)count * sizeof *values), 0);
      bool norm = spec.fan_in == 0;
      double bound = norm ? 1 : 1 / sqrt(spec.fan_in), most = 0;
      for (int64_t e = 0; e < count; e++) {
        if (values[e] != (double)(float)values[e] || (norm && values[e] != (strstr(spec.name, "/scale") ? 1 : 0)))
          ck_abort_msg("%s[%lld] = %.17g", spec.name, (long long)e, values[e]);
        most = fabs(values[e]) > most ? fabs(values[e]) : most;
        sum += values[e];
        squares += values[e] * values[e];
      }
      if (!norm) {
        /* Rounding to float may reach just beyond the bound: by 2^-24 of it. */
        ck_assert_double_le(most, bound * (1 + 6e-8));
        /* Five standard deviations: bound / sqrt(3 n) of the mean, bound^2 sqrt(4 / (45 n)) of the mean
         * square. */
        ck_assert_double_le(fabs(sum / (double)count), 5 * bound / sqrt(3.0 * (double)count));
        ck_assert_double_le(fabs(squares / (double)count - bound * bound / 3),
                            5 * bound * bound * sqrt(4.0 / (45.0 * (double)count)));
        /* Other blocks and other seeds have values of their own. */
        ck_assert(values[0] != first);
        first = values[0];
        petra_initial_values(&spec, 6, &model.blocks[b], i, again);
        ck_assert(values[0] != again[0]);
      }
      petra_free(values);
      petra_free(again);
    }
}
END_TEST

START_TEST(zero_init_residual) {
  const int depths[] = {18, 50};
  for (int d = 0; d < 2; d++)
    for (int zero = 0; zero < 2; zero++) {
      petra_model model = make_model(d ? "revnet" : "resnet", depths[d], 4, "cifar", 10, 32);
      model.zero_init_residual = zero;
      for (int b = 0; b < model.block_count; b++)
        for (int i = 0; i < petra_block_parameter_count(&model.blocks[b]); i++) {
          petra_tensor_spec spec;
          petra_block_parameter(&model, &model.blocks[b], i, &spec);
          bool last = strcmp(spec.name, depths[d] == 50 ? "bn3/scale" : "bn2/scale") == 0;
          if (strstr(spec.name, "/scale"))
            ck_assert_double_eq(spec.initial, zero && last ? 0 : 1);
        }
    }
}
END_TEST

static petra_tensor *random_tensor(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                   petra_rng *rng) {
  petra_tensor *tensor = NULL;
  double *values;
  ck_assert_int_eq(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &tensor), PETRA_OK);
  ck_assert_int_eq(petra_allocate(&values, (size_t)tensor->elements, sizeof *values), PETRA_OK);
  for (int64_t i = 0; i < tensor->elements; i++)
    values[i] = petra_rng_normal(rng);
  ck_assert_int_eq(petra_op_upload(backend, tensor, values, PETRA_HOST_F64), PETRA_OK);
  petra_free(values);
  return tensor;
}

/* The largest difference, and the largest value of `a`. */
static double distance(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *largest) {
  double *x, *y, most = 0;
  ck_assert_int_eq(petra_allocate(&x, (size_t)a->elements, sizeof *x), PETRA_OK);
  ck_assert_int_eq(petra_allocate(&y, (size_t)a->elements, sizeof *y), PETRA_OK);
  ck_assert_int_eq(petra_op_download(backend, a, x, PETRA_HOST_F64), PETRA_OK);
  ck_assert_int_eq(petra_op_download(backend, b, y, PETRA_HOST_F64), PETRA_OK);
  for (int64_t i = 0; i < a->elements; i++) {
    most = fabs(x[i] - y[i]) > most ? fabs(x[i] - y[i]) : most;
    *largest = fabs(x[i]) > *largest ? fabs(x[i]) : *largest;
  }
  petra_free(x);
  petra_free(y);
  return most;
}

/* y2 holds the pixels of x1 as channels, and y1 differs from those of x2: F is not nothing. */
static void check_shuffled(const petra_compute *compute, const petra_block *block, const petra_streams *in,
                           const petra_streams *out) {
  petra_tensor *deep = NULL;
  double unused = 0;
  ck_assert_int_eq(block->kind, PETRA_BLOCK_SHUFFLE);
  ck_assert_int_eq(petra_tensor_create(compute->backend, PETRA_TENSOR_ACTIVATION, out->tensor[0]->shape, NULL,
                                       PETRA_MEMORY_WORKSPACE, &deep),
                   PETRA_OK);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(petra_op_space_to_depth(compute->backend, in->tensor[i], deep), PETRA_OK);
    double apart = distance(compute->backend, deep, out->tensor[1 - i], &unused);
    ck_assert(i == 0 ? apart == 0 : apart > 0.1);
  }
  petra_tensor_release(&deep);
}

/* x1 comes back to the bit, x2 up to `epsilon`, the unit of rounding of the element type. */
static void invert_block(const petra_compute *compute, const petra_model *model, const petra_block *block,
                         double epsilon, petra_rng *rng) {
  const int32_t shape[4] = {2, block->shape_in.channels, block->shape_in.height, block->shape_in.width};
  petra_backend *backend = compute->backend;
  petra_tensor_set parameters = {.count = petra_block_parameter_count(block)};
  for (int i = 0; i < parameters.count; i++) {
    petra_tensor_spec spec;
    petra_block_parameter(model, block, i, &spec);
    parameters.tensor[i] = random_tensor(backend, spec.kind, spec.shape, rng);
  }
  petra_streams in = {{random_tensor(backend, PETRA_TENSOR_ACTIVATION, shape, rng),
                       random_tensor(backend, PETRA_TENSOR_ACTIVATION, shape, rng)}};
  petra_streams out = {{NULL, NULL}}, back = {{NULL, NULL}};
  petra_block_graph graph = {0};
  double largest = 0, unused = 0;
  ck_assert_int_eq(petra_block_forward(compute, block, parameters.tensor, &in, NULL, &out), PETRA_OK);
  ck_assert_int_eq(petra_block_invert(compute, block, parameters.tensor, &out, &graph, &back), PETRA_OK);
  distance(backend, out.tensor[0], out.tensor[0], &largest);
  ck_assert_double_eq(distance(backend, in.tensor[0], back.tensor[0], &unused), 0); /* y2 is x1 itself */
  /* F is computed again to the bit; x2 + F and its difference round once each: by half a unit of |y1| or
   * |x2|. */
  unused = 0;
  double apart = distance(backend, in.tensor[1], back.tensor[1], &unused);
  ck_assert_double_le(apart, 1.01 * epsilon * (largest > unused ? largest : unused));
  if (block->kind == PETRA_BLOCK_REVERSIBLE) {
    double moved = distance(backend, in.tensor[1], out.tensor[0], &unused);
    ck_assert_double_gt(moved, 0.1); /* F is not nothing */
  } else {
    check_shuffled(compute, block, &in, &out);
  }
  petra_block_graph_release(&graph);
  petra_streams_release(&in);
  petra_streams_release(&out);
  petra_streams_release(&back);
  petra_tensor_set_release(&parameters);
}

START_TEST(reversible_blocks_invert) {
  const int depths[] = {18, 50}, expected[] = {5, 12};
  petra_rng rng;
  petra_rng_init(&rng, 11, PETRA_RNG_TEST, 0, 0);
  for (int d = 0; d < 2; d++) {
    petra_backend *backend;
    int count = 0;
    ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 2, true, &backend), PETRA_OK);
    const petra_compute compute = {.backend = backend};
    petra_model model = make_model("revnet", depths[d], 3, "cifar", 10, 16);
    for (int b = 0; b < model.block_count; b++)
      if (model.blocks[b].reversible) {
        invert_block(&compute, &model, &model.blocks[b], 0x1p-52, &rng);
        count++;
      }
    ck_assert_int_eq(count, expected[d]);
    petra_backend_destroy(backend); /* checks that nothing is held */
  }
}
END_TEST

START_TEST(invertible_blocks_invert) {
  const int depths[] = {18, 34, 18, 34};
  petra_rng rng;
  petra_rng_init(&rng, 12, PETRA_RNG_TEST, 0, 0);
  for (int d = 0; d < 4; d++) {
    petra_backend *backend;
    bool single = d >= 2;
    ck_assert_int_eq(petra_backend_create(single ? PETRA_BACKEND_CPU : PETRA_BACKEND_REF,
                                          single ? PETRA_PRECISION_FP32 : PETRA_PRECISION_FP64, 2, true, &backend),
                     PETRA_OK);
    const petra_compute compute = {.backend = backend};
    petra_model model = make_invertible(depths[d], 3, "cifar", 10, 16);
    for (int b = 1; b < model.block_count - 1; b++)
      invert_block(&compute, &model, &model.blocks[b], single ? 0x1p-23 : 0x1p-52, &rng);
    petra_backend_destroy(backend); /* checks that nothing is held */
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {parameter_counts,
                                tensor_names,
                                shapes,
                                images_too_small,
                                flops_by_hand,
                                partitions,
                                bad_partitions,
                                learning_rates,
                                initial_values,
                                zero_init_residual,
                                reversible_blocks_invert,
                                invertible_networks,
                                invertible_refused,
                                invertible_blocks_invert};
  return harness_run("nn", tests, HARNESS_COUNT(tests));
}
