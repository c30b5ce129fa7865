/* SPDX-License-Identifier: Apache-2.0 */
/* Networks as tables: shapes, counts, names, FLOPs. */
#include "networks.h"
#include "nn/block.h"

#include <math.h>

static int64_t all_parameters(const petra_model *model) {
  int64_t sum = 0;
  for (int b = 0; b < model->block_count; b++)
    sum += petra_block_parameters(model, &model->blocks[b]);
  return sum;
}

/* docs/semantics/networks.md; ResNet: the counts that torchvision documents for its weights. */
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
                {"resnet", "imagenet", 34, 1000, 18, 21797672}, {"resnet", "imagenet", 50, 1000, 18, 25557032},
                {"resnet", "imagenet", 101, 1000, 35, 44549160}};
  for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
    petra_model_fini(&model);
    model = make_model(totals[i].family, totals[i].depth, 64, totals[i].stem, totals[i].classes, 224);
    ck_assert_int_eq(model.block_count, totals[i].blocks);
    ck_assert_int_eq(all_parameters(&model), totals[i].parameters);
  }
  petra_model_fini(&model);
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
      ck_assert_int_eq(spec.rank, weight ? (block->is_loss ? 2 : 4) : 1);
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
  petra_model_fini(&model);
  model = make_model("revnet", 50, 4, "cifar", 10, 32);
  expect_names(&model, 1,
               UNIT("conv1", "bn1") " " UNIT("conv2", "bn2") " " UNIT("conv3", "bn3") " " UNIT(
                   "shortcut1/conv", "shortcut1/bn") " " UNIT("shortcut2/conv", "shortcut2/bn"),
               MOVES("bn1") " " MOVES("bn2") " " MOVES("bn3") " " MOVES("shortcut1/bn") " " MOVES("shortcut2/bn"));
  expect_names(&model, 2, UNIT("conv1", "bn1") " " UNIT("conv2", "bn2") " " UNIT("conv3", "bn3"),
               MOVES("bn1") " " MOVES("bn2") " " MOVES("bn3"));
  petra_model_fini(&model);
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
  petra_model_fini(&model);
}
END_TEST

/* The variant: in each of four groups one block, whose first convolution reads as many channels as it would in any other
 * block of the group; all other tensors are those of the standard bottleneck. */
START_TEST(variant_bottlenecks) {
  const int depths[] = {50, 101}, groups[2][4] = {{3, 4, 6, 3}, {3, 4, 23, 3}};
  for (int d = 0; d < 2; d++) {
    petra_model model = make_variant(depths[d], 4, "cifar", 10, 32),
                standard = make_model("revnet", depths[d], 4, "cifar", 10, 32);
    int64_t wider = 0;
    int b = 1;
    ck_assert_int_eq(model.block_count, standard.block_count);
    for (int group = 0; group < 4; group++)
      for (int i = 0; i < groups[d][group]; i++, b++) {
        const petra_block *block = &model.blocks[b], *other = &standard.blocks[b];
        const int side = 32 >> group, planes = 4 << group;
        ck_assert_str_eq(block->ops->name, i == 0 ? "variant" : "revblock");
        ck_assert_int_eq(block->reversible, i > 0);
        ck_assert_int_eq(block->shape_out.channels, 4 * planes);
        ck_assert_int_eq(block->shape_out.height, side);
        ck_assert_int_eq(block->shape_in.height, other->shape_in.height);
        for (int u = 0; u < 3; u++) /* all of F works on the halved image */
          ck_assert(block->units[u].height_in == side && block->units[u].geometry.stride == 1);
        const int64_t more = i == 0 ? planes * (4 * planes - block->shape_in.channels) : 0;
        ck_assert_int_eq(petra_block_parameters(&model, block), petra_block_parameters(&standard, other) + more);
        const int64_t convolutions = 4 * planes * planes + 9 * planes * planes + 4 * planes * planes,
                      shortcuts = i == 0 ? 2 * block->shape_in.channels * 4 * planes : 0;
        ck_assert_int_eq(petra_block_flops(block), 2 * (convolutions + shortcuts) * side * side);
        wider += more;
      }
    ck_assert_int_eq(b, model.block_count - 1);
    ck_assert_int_eq(wider, 4 * (16 - 4) + 8 * (32 - 16) + 16 * (64 - 32) + 32 * (128 - 64));
    ck_assert_int_eq(all_parameters(&model), all_parameters(&standard) + wider);
    expect_names(&model, 1,
                 UNIT("conv1", "bn1") " " UNIT("conv2", "bn2") " " UNIT("conv3", "bn3") " " UNIT(
                     "shortcut1/conv", "shortcut1/bn") " " UNIT("shortcut2/conv", "shortcut2/bn"),
                 MOVES("bn1") " " MOVES("bn2") " " MOVES("bn3") " " MOVES("shortcut1/bn") " " MOVES("shortcut2/bn"));
    petra_model_fini(&model);
    petra_model_fini(&standard);
  }
}
END_TEST

/* Constant shape: every block between stem and head has 2 * 9 w^2 weights and 4 w scales and shifts. */
START_TEST(constant_shape) {
  const int depths[] = {1, 20, 101};
  for (int d = 0; d < 3; d++) {
    petra_model model = make_constant(depths[d], 128, "cifar", 10, 32);
    ck_assert_int_eq(model.block_count, depths[d] + 2);
    for (int b = 1; b <= depths[d]; b++) {
      const petra_block *block = &model.blocks[b];
      ck_assert_str_eq(block->ops->name, "revblock");
      ck_assert(block->shape_in.channels == 128 && block->shape_out.channels == 128);
      ck_assert(block->shape_in.height == 32 && block->shape_out.width == 32);
      ck_assert_int_eq(petra_block_parameters(&model, block), 18 * 128 * 128 + 4 * 128);
      ck_assert_int_eq(petra_block_flops(block), 2LL * 18 * 128 * 128 * 32 * 32);
    }
    ck_assert_int_eq(all_parameters(&model),
                     27 * 256 + 2 * 256 + depths[d] * (18 * 128 * 128 + 4 * 128) + 256 * 10 + 10);
    expect_names(&model, depths[d], UNIT("conv1", "bn1") " " UNIT("conv2", "bn2"), MOVES("bn1") " " MOVES("bn2"));
    ck_assert_str_eq(model.blocks[1].name, "group1.block1");
    petra_model_fini(&model);
  }
  /* The ImageNet stem divides the image by 4, the blocks do not. */
  petra_model model = make_constant(3, 2, "imagenet", 10, 4);
  ck_assert_int_eq(model.blocks[4].shape_in.height, 1);
  petra_model_fini(&model);
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
  ck_assert(model.blocks[b].is_loss);
  ck_assert_int_eq(model.blocks[b].features, (revnet ? 2 : 1) * 512 * expansion);
  ck_assert_int_eq(model.block_count, b + 1);
  petra_model_fini(&model);
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

static petra_status init(petra_model *model, const petra_config *config, int height, int width) {
  const petra_stream_shape input = petra_image_stream(height, width);
  return petra_model_init(model, config, &input, 0);
}

START_TEST(images_too_small) {
  const char *const sets[] = {"model.stem=imagenet"};
  petra_config *config = load(sets, 1);
  petra_model model;
  ck_assert_int_eq(init(&model, config, 32, 32), PETRA_OK);
  petra_model_fini(&model);
  harness_clear();
  ck_assert_int_eq(init(&model, config, 31, 32), PETRA_CONFIG);
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
  petra_model_fini(&model);
  model = make_model("revnet", 50, 64, "imagenet", 1000, 224);
  ck_assert_int_eq(petra_block_flops(&model.blocks[0]), 2LL * 128 * 112 * 112 * 3 * 49);
  /* The first block of group 2: 256 -> 128 at 56, 3x3 to 28, 128 -> 512; two shortcuts 256 -> 512 at 28. */
  ck_assert_int_eq(petra_block_flops(&model.blocks[4]), 2LL * 128 * 56 * 56 * 256 + 2LL * 128 * 28 * 28 * 128 * 9 +
                                                            2LL * 512 * 28 * 28 * 128 +
                                                            2 * (2LL * 512 * 28 * 28 * 256));
  ck_assert_int_eq(petra_block_flops(&model.blocks[17]), 2LL * 1000 * 4096);
  petra_model_fini(&model);
}
END_TEST

/* docs/semantics/networks.md: with q = 4^g, a block of group g has 18 q w^2 + 2 w (1 + q) parameters, the first of a
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
      ck_assert_str_eq(block->ops->name, shuffles ? "shuffle" : "revblock");
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
  petra_model_fini(&model);
}

START_TEST(invertible_networks) {
  expect_invertible(18, 64, "cifar", 10, 32, 32);
  expect_invertible(34, 64, "cifar", 100, 32, 32);
  expect_invertible(18, 3, "cifar", 10, 24, 24);
  expect_invertible(34, 16, "imagenet", 1000, 224, 56);
  /* The numbers of docs/semantics/networks.md. */
  petra_model model = make_invertible(18, 64, "cifar", 10, 32);
  ck_assert_int_eq(all_parameters(&model), 10319754);
  expect_names(&model, 3, UNIT("conv1", "bn1") " " UNIT("conv2", "bn2"), MOVES("bn1") " " MOVES("bn2"));
  /* Nothing changes without it. */
  petra_model_fini(&model);
  model = make_model("revnet", 18, 64, "cifar", 10, 32);
  for (int b = 0; b < model.block_count; b++)
    ck_assert_str_ne(model.blocks[b].ops->name, "shuffle");
  petra_model_fini(&model);
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
    ck_assert_int_eq(init(&model, config, bad[i].height, bad[i].width), PETRA_CONFIG);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged("model.downsample");
    ck_assert_logged(bad[i].line);
    petra_config_destroy(config);
  }
}
END_TEST

START_TEST(variant_and_constant_refused) {
  const struct {
    int side;
    const char *key, *sets[2], *line;
  } bad[] = {
      {32,
       "model.bottleneck",
       {"model.bottleneck=variant", "model.depth=18"},
       "needs model.depth 50 or 101: a network of depth 18"},
      {32,
       "model.bottleneck",
       {"model.bottleneck=variant", "model.depth=34"},
       "needs model.depth 50 or 101: a network of depth 34"},
      {32,
       "model.bottleneck",
       {"model.bottleneck=variant", "model.family=resnet"},
       "for model.family: revnet; expected standard"},
      {32, "model.bottleneck", {"model.bottleneck=variant", "model.family=vit"}, "model.family: vit does not use it"},
      {32,
       "model.bottleneck",
       {"model.bottleneck=variant", "model.shape=constant"},
       "constant has no bottlenecks; expected standard"},
      {32,
       "model.shape",
       {"model.shape=constant", "model.family=resnet"},
       "for model.family: revnet; expected pyramid"},
      {32, "model.shape", {"model.shape=constant", "model.family=vit"}, "model.family: vit does not use it"},
      {32,
       "model.downsample",
       {"model.shape=constant", "model.downsample=invertible"},
       "never halves its images; expected conv"},
      {3, "model.stem", {"model.shape=constant", "model.stem=imagenet"}, "images of 3 x 3 are too small"},
      {32,
       "model.depth",
       {"model.shape=pyramid", "model.depth=20"},
       "no network of depth 20; expected 18, 34, 50 or 101"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    petra_config *config = load(bad[i].sets, 2);
    petra_model model;
    harness_clear();
    ck_assert_int_eq(init(&model, config, bad[i].side, bad[i].side), PETRA_CONFIG);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(bad[i].key);
    ck_assert_logged(bad[i].line);
    petra_config_destroy(config);
  }
}
END_TEST

/* The network in words, for people and for weights files. */
START_TEST(described) {
  const struct {
    const char *sets[2], *described, *label;
  } all[] = {
      {{"model.depth=18", "model.width=4"},
       "RevNet-18, width 4, cifar stem",
       "revnet-18 width 4, cifar stem, 10 classes"},
      {{"model.depth=101", "model.bottleneck=variant"},
       "RevNet-101, width 64, cifar stem, variant bottleneck",
       "revnet-101 width 64, cifar stem, variant bottleneck, 10 classes"},
      {{"model.depth=20", "model.shape=constant"},
       "RevNet of 20 blocks, width 64, cifar stem, constant shape",
       "revnet-20 width 64, cifar stem, constant shape, 10 classes"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    petra_config *config = load(all[i].sets, 2);
    petra_model model;
    char *text = NULL, label[128];
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    petra_model_describe(config, stream);
    fclose(stream);
    ck_assert_str_eq(text, all[i].described);
    ck_assert_int_eq(init(&model, config, 32, 32), PETRA_OK);
    petra_model_label(&model, config, label, sizeof label);
    ck_assert_str_eq(label, all[i].label);
    free(text);
    petra_model_fini(&model);
    petra_config_destroy(config);
  }
}
END_TEST

/* The tensors of a Llama by hand: 3 heads of 4 features, one of keys and values, 32 hidden features (8/3 of 12). */
START_TEST(llama) {
  static const char *const sets[] = {"model.family=llama", "model.depth=2",    "model.width=12",
                                     "model.heads=3",      "model.kv_heads=1", "model.context=7"};
  static const struct {
    const char *sets[3], *key, *expected;
  } refused[] = {
      {{"model.heads=6", "model.kv_heads=4", "model.hidden=0"}, "model.kv_heads", "expected a divisor of model.heads"},
      {{"model.width=9", "model.kv_heads=3", "model.hidden=0"},
       "model.heads",
       "3 heads of width 3; rotary positions need"},
      {{"model.family=gpt", "model.kv_heads=1", "model.hidden=0"}, "model.kv_heads", "gpt does not use it"},
      {{"model.family=revgpt", "model.kv_heads=0", "model.hidden=8"}, "model.hidden", "revgpt does not use it"},
      {{"model.family=gpt", "model.kv_heads=0", "model.rotary_base=9"}, "model.rotary_base", "gpt does not use it"},
      {{"model.coupling=leapfrog", "model.kv_heads=1", "model.hidden=0"},
       "model.coupling",
       "llama, which is not reversible"}};
  const int64_t parameters[] = {11 * 12, 12 + (12 + 8) * 12 + 144, 12 + 3 * 32 * 12, 12 + 11 * 12};
  const petra_stream_shape input = petra_token_stream(7);
  petra_config *config = load(sets, 6);
  petra_model model;
  char label[192];
  ck_assert_int_eq(petra_model_init(&model, config, &input, 11), PETRA_OK);
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(petra_block_parameters(&model, &model.blocks[i == 3 ? 5 : i]), parameters[i]);
  petra_model_label(&model, config, label, sizeof label);
  ck_assert_str_eq(label, "llama-2 width 12, 3 heads (1 of keys and values), hidden 32, rotary base 10000, context 7, "
                          "11 classes");
  petra_model_fini(&model);
  petra_config_destroy(config);
  for (int i = 0; i < HARNESS_COUNT(refused); i++) {
    const char *const *more = refused[i].sets;
    const char *const all[] = {sets[0], sets[1], sets[2], sets[3], sets[4], sets[5], more[0], more[1], more[2]};
    config = load(all, 9);
    harness_clear();
    ck_assert_int_eq(petra_model_init(&model, config, &input, 11), PETRA_CONFIG);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(refused[i].key);
    ck_assert_logged(refused[i].expected);
    petra_config_destroy(config);
  }
}
END_TEST

/* docs/semantics/transformers.md, "Initial values": the second layers of 2 blocks are added up 4 times, with the factors 4, 3, 2, 1 by
 * the leapfrog coupling. */
START_TEST(initial_values_of_transformers) {
  static const struct {
    const char *family, *coupling, *second[2];
    double squares;
  } networks[] = {{"gpt", "additive", {"proj/weight", "proj/weight"}, 4},
                  {"revvit", "additive", {"proj/weight", "proj/weight"}, 4},
                  {"revgpt", "leapfrog", {"proj/weight", "proj/weight"}, 16 + 9 + 4 + 1},
                  {"llama", "additive", {"proj/weight", "down/weight"}, 4},
                  {"revllama", "leapfrog", {"proj/weight", "down/weight"}, 16 + 9 + 4 + 1}};
  for (int n = 0; n < HARNESS_COUNT(networks); n++) {
    petra_model model = make_coupled(networks[n].family, networks[n].coupling);
    for (int b = 0; b < model.block_count; b++)
      for (int i = 0; i < petra_block_parameter_count(&model.blocks[b]); i++) {
        petra_tensor_spec spec;
        petra_block_parameter(&model, &model.blocks[b], i, &spec);
        const bool second = strcmp(spec.name, networks[n].second[(b + 1) % 2]) == 0;
        if (spec.rank == 1)
          ck_assert(spec.deviation == 0 && spec.initial == (spec.role == PETRA_ROLE_SCALE));
        else
          ck_assert_double_eq_tol(spec.deviation, second ? 0.02 / sqrt(networks[n].squares) : 0.02, 1e-17);
      }
    petra_model_fini(&model);
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
      petra_model_fini(&model);
    }
}
END_TEST

/* Two for each multiply-add, position by position: of q, k, v and the matrix behind attention, and of the products of a position with those
 * that it reads. Softmax, GELU and layer norms are no products. */
START_TEST(flops_of_transformers) {
  static const struct {
    const char *family;
    int width, heads, positions, patch;
    int64_t attention, mlp;
    int kv_heads; /* Llama */
  } networks[] = {{"llama", 12, 3, 7, 0, 6720, 16128, 1},     {"revllama", 12, 3, 7, 0, 9408, 16128, 3},
                  {"gpt", 12, 3, 7, 0, 9408, 16128, 0},       {"revgpt", 12, 3, 7, 0, 9408, 16128, 0},
                  {"gpt", 12, 1, 7, 0, 9408, 16128, 0},       {"vit", 12, 3, 6, 2, 8640, 13824, 0},
                  {"revvit", 8, 4, 4, 3, 2560, 4096, 0},      {"gpt", 2, 1, 1, 0, 40, 64, 0},
                  {"gpt", 64, 4, 128, 0, 6307840, 8388608, 0}};
  for (int i = 0; i < HARNESS_COUNT(networks); i++) {
    const int width = networks[i].width, positions = networks[i].positions, patch = networks[i].patch;
    const bool tokens = patch == 0;
    const int kv_width = networks[i].kv_heads ? networks[i].kv_heads * width / networks[i].heads : width;
    char text[6][64];
    const char *const sets[] = {text[0], text[1], text[2], text[3], text[4], text[5]};
    snprintf(text[0], 64, "model.family=%s", networks[i].family);
    snprintf(text[1], 64, "model.depth=1");
    snprintf(text[2], 64, "model.width=%d", width);
    snprintf(text[3], 64, "model.heads=%d", networks[i].heads);
    snprintf(text[4], 64, tokens ? "model.context=%d" : "model.patch=%d", tokens ? positions : patch);
    snprintf(text[5], 64, "model.kv_heads=%d", networks[i].kv_heads);
    int64_t products = 0;
    for (int q = 0; q < positions; q++) {
      products += 2 * (width + kv_width) * width;
      for (int k = 0; k < positions; k++)
        products += tokens && k > q ? 0 : 2 * width; /* q k, and its share of v */
    }
    ck_assert_int_eq(2 * products, networks[i].attention);
    petra_config *config = load(sets, 6);
    const petra_stream_shape input =
        tokens ? petra_token_stream(positions) : petra_image_stream(2 * patch, positions / 2 * patch);
    petra_model model;
    ck_assert_int_eq(petra_model_init(&model, config, &input, 11), PETRA_OK);
    petra_config_destroy(config);
    ck_assert_int_eq(petra_block_flops(&model.blocks[1]), networks[i].attention);
    ck_assert_int_eq(petra_block_flops(&model.blocks[2]), networks[i].mlp);
    ck_assert_int_eq(petra_block_flops(&model.blocks[0]), tokens ? 0 : 2LL * positions * 3 * patch * patch * width);
    petra_model_fini(&model);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {parameter_counts,
                                tensor_names,
                                shapes,
                                images_too_small,
                                flops_by_hand,
                                flops_of_transformers,
                                llama,
                                initial_values_of_transformers,
                                invertible_networks,
                                invertible_refused,
                                zero_init_residual,
                                variant_bottlenecks,
                                constant_shape,
                                variant_and_constant_refused,
                                described};
  return harness_run("model", tests, HARNESS_COUNT(tests));
}
