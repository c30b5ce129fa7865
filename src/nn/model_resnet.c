/* SPDX-License-Identifier: Apache-2.0 */
/* RevNet and ResNet: depths 18, 34, 50, 101, any width, CIFAR or ImageNet stem; RevNets of constant shape and any
 * number of blocks. */
#include "base/mem.h"
#include "nn/blocks.h"

#include <stdio.h>

typedef struct depth_table {
  int32_t depth;
  bool bottleneck;
  int blocks[4]; /* blocks per group; He et al., "Deep residual learning for image recognition", table 1 */
} depth_table;

static const depth_table depths[] = {
    {18, false, {2, 2, 2, 2}},
    {34, false, {3, 4, 6, 3}},
    {50, true, {3, 4, 6, 3}},
    {101, true, {3, 4, 23, 3}},
};

/* Returns the extent of the output of a window that slides over the images. */
static petra_stream_shape slide(petra_stream_shape in, int32_t channels, int window, int stride, int pad) {
  return (petra_stream_shape){.channels = channels,
                              .height = (in.height + 2 * pad - window) / stride + 1,
                              .width = (in.width + 2 * pad - window) / stride + 1};
}

/* Adds a unit and returns the shape of its output. The padding keeps the size of the images at stride 1. */
static petra_stream_shape add_unit(petra_block *block, const char *conv, const char *norm, petra_stream_shape in,
                                   int32_t channels, int32_t kernel, int stride, bool relu) {
  petra_unit *unit = &block->units[block->unit_count++];
  const int pad = kernel / 2;
  const petra_stream_shape out = slide(in, channels, kernel, stride, pad);
  *unit = (petra_unit){.in = in.channels,
                       .out = channels,
                       .kernel = kernel,
                       .geometry = {stride, pad},
                       .height_in = in.height,
                       .width_in = in.width,
                       .height_out = out.height,
                       .width_out = out.width,
                       .relu = relu};
  snprintf(unit->conv, sizeof unit->conv, "%s", conv);
  snprintf(unit->norm, sizeof unit->norm, "%s", norm);
  return out;
}

static void make_stem(const petra_model *model, petra_block *block) {
  int streams = model->family == PETRA_FAMILY_REVNET ? 2 : 1;
  bool large = model->stem == PETRA_STEM_IMAGENET;
  petra_block_set_kind(block, &petra_stem_ops);
  snprintf(block->name, sizeof block->name, "stem");
  block->streams_in = 1;
  block->streams_out = streams;
  block->shape_in = model->input;
  block->shape_out =
      add_unit(block, "conv", "bn", model->input, streams * model->width, large ? 7 : 3, large ? 2 : 1, true);
  if (large) {
    block->pooled = true;
    block->pool = streams == 2 ? (petra_pool_geometry){2, 2, 0} : (petra_pool_geometry){3, 2, 1};
    block->shape_out = slide(block->shape_out, 0, block->pool.window, block->pool.stride, block->pool.pad);
  }
  block->shape_out.channels = model->width;
}

/* F of a block, which reads a stream of this shape: two 3x3 convolutions, or 1x1, 3x3, 1x1 with the stride on the 3x3;
 * `planes` channels inside. */
static void make_path(petra_block *block, petra_stream_shape shape, bool bottleneck, int32_t planes, int32_t out,
                      int stride) {
  if (bottleneck) {
    shape = add_unit(block, "conv1", "bn1", shape, planes, 1, 1, true);
    shape = add_unit(block, "conv2", "bn2", shape, planes, 3, stride, true);
    block->shape_out = add_unit(block, "conv3", "bn3", shape, out, 1, 1, true);
  } else {
    shape = add_unit(block, "conv1", "bn1", shape, planes, 3, stride, true);
    block->shape_out = add_unit(block, "conv2", "bn2", shape, out, 3, 1, true);
  }
  block->path_count = block->unit_count;
}

static int add_shortcut(petra_block *block, const char *conv, const char *norm, int stride) {
  add_unit(block, conv, norm, block->shape_in, block->shape_out.channels, 1, stride, false);
  return block->unit_count - 1;
}

/* Adds a block of a network with model.downsample: invertible. It has width * 4^group channels per stream, model.width
 * within F, and no ReLU at the end of F: nothing normalises a stream from the stem to the head, where sums of values
 * that are never negative would make every feature large. */
static void make_invertible_block(const petra_model *model, petra_block *block, int group, int stride) {
  make_path(block, block->shape_in, false, model->width, model->width << 2 * group, stride);
  block->units[1].relu = false;
  petra_block_set_kind(block, stride != 1 ? &petra_shuffle_ops : &petra_revblock_ops);
}

static void make_group_block(const petra_model *model, petra_block *block, petra_stream_shape in, bool bottleneck,
                             int group, int index) {
  int32_t planes = model->width << group, channels = bottleneck ? 4 * planes : planes;
  int stride = index == 0 && group > 0 ? 2 : 1;
  bool revnet = model->family == PETRA_FAMILY_REVNET;
  snprintf(block->name, sizeof block->name, "group%d.block%d", group + 1, index + 1);
  block->streams_in = block->streams_out = revnet ? 2 : 1;
  block->shape_in = in;
  if (model->downsample == PETRA_DOWNSAMPLE_INVERTIBLE) {
    make_invertible_block(model, block, group, stride);
    return;
  }
  bool changes = stride != 1 || channels != in.channels;
  bool variant = changes && model->bottleneck == PETRA_BOTTLENECK_VARIANT;
  if (variant) /* F reads the output of a shortcut. */
    make_path(block, slide(in, channels, 1, stride, 0), bottleneck, planes, channels, 1);
  else
    make_path(block, in, bottleneck, planes, channels, stride);
  petra_block_set_kind(block, !revnet   ? &petra_resblock_ops
                              : variant ? &petra_variant_ops
                              : changes ? &petra_downsample_ops
                                        : &petra_revblock_ops);
  if (!changes)
    return;
  if (revnet && bottleneck) {
    block->shortcut1 = add_shortcut(block, "shortcut1/conv", "shortcut1/bn", stride);
    block->shortcut2 = add_shortcut(block, "shortcut2/conv", "shortcut2/bn", stride);
  } else {
    block->shortcut2 = add_shortcut(block, "shortcut/conv", "shortcut/bn", stride);
  }
}

/* Makes a head whose linear map reads `channels` channels of each stream. */
static void make_head(const petra_model *model, petra_block *block, petra_stream_shape in, int32_t channels) {
  petra_block_set_kind(block, &petra_head_ops);
  snprintf(block->name, sizeof block->name, "head");
  block->streams_in = model->family == PETRA_FAMILY_REVNET ? 2 : 1;
  block->shape_in = in;
  block->shape_out = (petra_stream_shape){.channels = model->classes, .height = 1, .width = 1};
  block->features = block->streams_in * channels;
  block->classes = model->classes;
  block->labels = 1;
  block->layer_count = 1;
  block->layers[0] = (petra_layer){
      .linear = "fc", .in = block->features, .out = model->classes, .rows = 1, .bias = true, .deferred = false};
}

void petra_resnet_make_auxiliary(const petra_model *model, petra_block *block, const petra_block *last) {
  static const char *const conv[] = {"conv1", "conv2"}, *const norm[] = {"bn1", "bn2"};
  const int32_t inside = last->units[0].out, channels = last->shape_out.channels;
  const int32_t planes = inside < channels ? inside : channels;
  make_head(model, block, last->shape_out, planes);
  for (int i = 0; i < block->streams_in; i++)
    add_unit(block, conv[i], norm[i], block->shape_in, planes, 3, 2, true);
}

/* Returns the factor by which the sides of images are divided on the way to the head. */
static int smallest_image(const petra_model *model) {
  return (model->stem == PETRA_STEM_IMAGENET ? 4 : 1) * (model->shape == PETRA_SHAPE_CONSTANT ? 1 : 8);
}

/* Checks the requirements of model.downsample: invertible, such as images that can be halved evenly at every
 * downsampling. */
static petra_status check_invertible(const petra_config *config, const petra_model *model, bool bottleneck) {
  if (model->family != PETRA_FAMILY_REVNET)
    return petra_config_fail(config, "model.downsample",
                             "invertible is for model.family: revnet; a resnet has no second stream to invert with");
  if (bottleneck)
    return petra_config_fail(config, "model.downsample",
                             "invertible needs model.depth 18 or 34: the first block of depth %d changes its width at "
                             "stride 1, which no space to depth can do",
                             model->depth);
  int shrink = smallest_image(model);
  if (model->input.height % shrink || model->input.width % shrink)
    return petra_config_fail(config, "model.downsample",
                             "images of %d x %d cannot be halved evenly for invertible; expected multiples of %d",
                             model->input.width, model->input.height, shrink);
  return PETRA_OK;
}

/* Checks the requirements of model.shape: constant. */
static petra_status check_constant(const petra_config *config, const petra_model *model) {
  if (model->family != PETRA_FAMILY_REVNET)
    return petra_config_fail(config, "model.shape", "constant is for model.family: revnet; expected pyramid");
  if (model->downsample != PETRA_DOWNSAMPLE_CONV)
    return petra_config_fail(config, "model.downsample",
                             "invertible, but model.shape: constant never halves its images; expected conv");
  return PETRA_OK;
}

/* Checks the requirements of model.bottleneck: variant. */
static petra_status check_variant(const petra_config *config, const petra_model *model, bool bottleneck) {
  if (model->family != PETRA_FAMILY_REVNET)
    return petra_config_fail(config, "model.bottleneck", "variant is for model.family: revnet; expected standard");
  if (model->shape == PETRA_SHAPE_CONSTANT)
    return petra_config_fail(config, "model.bottleneck",
                             "variant, but model.shape: constant has no bottlenecks; expected standard");
  if (!bottleneck)
    return petra_config_fail(config, "model.bottleneck",
                             "variant needs model.depth 50 or 101: a network of depth %d has no bottlenecks",
                             model->depth);
  return PETRA_OK;
}

/* Gets the blocks of each group. */
static petra_status find_depth(const petra_config *config, const petra_model *model, depth_table *out) {
  if (model->shape == PETRA_SHAPE_CONSTANT) {
    *out = (depth_table){model->depth, false, {model->depth}};
    return check_constant(config, model);
  }
  for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
    if (depths[i].depth == model->depth) {
      *out = depths[i];
      return PETRA_OK;
    }
  return petra_config_fail(config, "model.depth", "no network of depth %d; expected 18, 34, 50 or 101", model->depth);
}

petra_status petra_resnet_make(petra_model *model, const petra_config *config) {
  static const char *const others[] = {"model.heads",  "model.context",     "model.patch",    "model.kv_heads",
                                       "model.hidden", "model.rotary_base", "model.coupling", NULL};
  depth_table table;
  model->shape = config->model.shape;
  model->bottleneck = config->model.bottleneck;
  model->downsample = config->model.downsample;
  PETRA_TRY(find_depth(config, model, &table));
  PETRA_TRY(petra_model_refuse_keys(config, others));
  model->classes = (int32_t)config->model.classes;
  model->stem = config->model.stem;
  model->zero_init_residual = config->model.zero_init_residual;
  int shrink = smallest_image(model);
  if (model->input.height < shrink || model->input.width < shrink)
    return petra_config_fail(config, "model.stem",
                             "images of %d x %d are too small for this stem; expected at least %d x %d",
                             model->input.width, model->input.height, shrink, shrink);
  if (model->downsample == PETRA_DOWNSAMPLE_INVERTIBLE)
    PETRA_TRY(check_invertible(config, model, table.bottleneck));
  if (model->bottleneck == PETRA_BOTTLENECK_VARIANT)
    PETRA_TRY(check_variant(config, model, table.bottleneck));
  const int *blocks = table.blocks;
  PETRA_TRY(petra_allocate(&model->blocks, (size_t)(blocks[0] + blocks[1] + blocks[2] + blocks[3] + 2),
                           sizeof *model->blocks));
  petra_block *block = petra_model_next_block(model);
  make_stem(model, block);
  petra_stream_shape shape = block->shape_out;
  for (int group = 0; group < 4; group++)
    for (int index = 0; index < table.blocks[group]; index++) {
      block = petra_model_next_block(model);
      make_group_block(model, block, shape, table.bottleneck, group, index);
      shape = block->shape_out;
    }
  make_head(model, petra_model_next_block(model), shape, shape.channels);
  return PETRA_OK;
}
