/* SPDX-License-Identifier: Apache-2.0 */
/* GPT, Llama and ViT, ordinary (the norm before F) or reversible (Reformer's two streams). They consist of an
 * embedding, halves of transformer blocks, which contain attention and an MLP in turn, and a head. */
#include "base/mem.h"
#include "nn/blocks.h"

#include <math.h>
#include <stdio.h>

enum {
  EXPANSION = 4,       /* features inside an MLP per feature of a stream */
  HIDDEN_MULTIPLE = 32 /* the default number of features inside a gated MLP is a multiple of this */
};

static bool is_reversible(const petra_model *model) {
  return model->family == PETRA_FAMILY_REVGPT || model->family == PETRA_FAMILY_REVVIT ||
         model->family == PETRA_FAMILY_REVLLAMA;
}

bool petra_family_is_llama(petra_family family) {
  return family == PETRA_FAMILY_LLAMA || family == PETRA_FAMILY_REVLLAMA;
}

static bool is_llama(const petra_model *model) {
  return petra_family_is_llama(model->family);
}

static bool reads_tokens(const petra_model *model) {
  return model->input.kind == PETRA_TENSOR_SEQUENCE;
}

/* Returns the stream of a network whose samples have `positions` positions. */
static petra_stream_shape stream_of(const petra_model *model, int32_t positions) {
  return (petra_stream_shape){
      .positions = positions, .features = model->width, .one = 1, .kind = PETRA_TENSOR_SEQUENCE};
}

/* A layer of a Llama has an RMS norm and no bias. */
static petra_layer *add_layer(const petra_model *model, petra_block *block, const char *norm, const char *linear,
                              int32_t in, int32_t out, double deviation) {
  petra_layer *layer = &block->layers[block->layer_count++];
  *layer = (petra_layer){.rms = is_llama(model),
                         .in = in,
                         .out = out,
                         .rows = block->shape_in.positions,
                         .bias = !is_llama(model),
                         .deferred = true,
                         .deviation = deviation};
  snprintf(layer->norm, sizeof layer->norm, "%s", norm);
  snprintf(layer->linear, sizeof layer->linear, "%s", linear);
  return layer;
}

static petra_stream_shape make_embedding(petra_model *model, int32_t vocabulary) {
  petra_block *block = petra_model_next_block(model);
  const int32_t patch = model->patch;
  const bool tokens = reads_tokens(model);
  petra_block_set_kind(block, is_llama(model) ? &petra_token_embedding_ops
                              : tokens        ? &petra_embedding_ops
                                              : &petra_patches_ops);
  snprintf(block->name, sizeof block->name, "embedding");
  block->streams_in = 1;
  block->streams_out = is_reversible(model) ? 2 : 1;
  block->shape_in = model->input;
  block->rows = vocabulary;
  block->shape_out =
      stream_of(model, tokens ? model->input.positions : (model->input.height / patch) * (model->input.width / patch));
  if (!tokens) {
    block->patch = patch;
    add_layer(model, block, "", "patch", 3 * patch * patch, model->width, PETRA_DEVIATION)->rows =
        block->shape_out.positions;
  }
  return block->shape_out;
}

/* Returns the deviation of the initial weights of the second layer of F. They are smaller than other weights, because
 * the network adds up the outputs of its n functions F (GPT-2). With the leapfrog coupling the last stream contains the
 * output of function j, from 0, n - j times. */
static double second_deviation(const petra_model *model) {
  const double n = 2.0 * model->depth;
  const double squares = model->coupling == PETRA_COUPLING_LEAPFROG ? n * (n + 1) * (2 * n + 1) / 6 : n;
  return PETRA_DEVIATION / sqrt(squares);
}

/* Makes F: `first` has `out` features, and `second` reads `in`. */
static void make_layers(const petra_model *model, petra_block *block, const petra_middle_ops *middle, const char *first,
                        int32_t out, const char *second, int32_t in) {
  block->middle = middle;
  add_layer(model, block, is_llama(model) ? "norm" : "ln", first, model->width, out, PETRA_DEVIATION);
  add_layer(model, block, "", second, in, model->width, second_deviation(model));
}

static void make_attention(const petra_model *model, petra_block *block) {
  block->heads = model->heads;
  block->kv_heads = is_llama(model) ? model->kv_heads : model->heads;
  block->rotary_base = model->rotary_base;
  block->causal = reads_tokens(model);
  make_layers(model, block, &petra_attention_middle, "qkv",
              model->width + 2 * block->kv_heads * (model->width / model->heads), "proj", model->width);
}

static void make_half(petra_model *model, const petra_stream_shape *stream, int number, bool attention) {
  petra_block *block = petra_model_next_block(model);
  const int32_t width = model->width;
  petra_block_set_kind(block, is_reversible(model) ? &petra_revblock_ops : &petra_residual_ops);
  snprintf(block->name, sizeof block->name, "block%d.%s", number, attention ? "attention" : "mlp");
  block->streams_in = block->streams_out = is_reversible(model) ? 2 : 1;
  block->shape_in = block->shape_out = *stream;
  block->coupling = model->coupling;
  if (attention)
    make_attention(model, block);
  else if (is_llama(model))
    make_layers(model, block, &petra_swiglu_middle, "gate_up", 2 * model->hidden, "down", model->hidden);
  else
    make_layers(model, block, &petra_gelu_middle, "fc", EXPANSION * width, "proj", EXPANSION * width);
  block->gelu = reads_tokens(model) ? PETRA_GELU_TANH : PETRA_GELU_ERF;
}

static void make_head(const petra_model *model, petra_block *block, const petra_stream_shape *stream) {
  petra_block_set_kind(block, &petra_sequence_head_ops);
  snprintf(block->name, sizeof block->name, "head");
  block->streams_in = is_reversible(model) ? 2 : 1;
  block->shape_in = *stream;
  block->averages = !reads_tokens(model);
  block->labels = block->averages ? 1 : stream->positions;
  block->shape_out = (petra_stream_shape){
      .positions = block->labels, .features = model->classes, .one = 1, .kind = PETRA_TENSOR_SEQUENCE};
  block->features = model->width;
  block->classes = model->classes;
  petra_layer *layer =
      add_layer(model, block, is_llama(model) ? "norm" : "ln", "fc", model->width, model->classes, PETRA_DEVIATION);
  layer->bias = block->averages; /* next tokens: no bias, as in GPT-2 */
  layer->rows = block->labels;
}

static petra_status check_patches(const petra_config *config, const petra_model *model) {
  const int32_t patch = (int32_t)config->model.patch;
  if (model->input.height % patch || model->input.width % patch)
    return petra_config_fail(
        config, "model.patch",
        "images of %d x %d do not contain a whole number of patches of %d x %d; expected a divisor of both",
        model->input.width, model->input.height, patch, patch);
  return PETRA_OK;
}

/* The rounding of linear maps to tf32 or bf16 on a GPU is not tested, and therefore not offered; `auto` might choose
 * such a rounding. */
static petra_status check_precision(const petra_config *config, const petra_model *model) {
  const petra_precision precision = config->device.precision;
  if (precision == PETRA_PRECISION_FP32 || precision == PETRA_PRECISION_FP64 ||
      (precision == PETRA_PRECISION_BF16 && config->device.backend == PETRA_BACKEND_CPU))
    return PETRA_OK;
  return petra_config_fail(config, "device.precision",
                           "%s with model.family: %s and device.backend: %s; expected fp32, fp64 or, with "
                           "device.backend: cpu, bf16",
                           petra_config_choice_name("device.precision", (int)precision),
                           petra_config_choice_name("model.family", (int)model->family),
                           petra_config_choice_name("device.backend", (int)config->device.backend));
}

static petra_status check_llama(const petra_config *config, const petra_model *model) {
  const int64_t heads = config->model.heads, kv_heads = config->model.kv_heads, width = model->width / heads;
  if (width % 2)
    return petra_config_fail(
        config, "model.heads",
        "%lld heads of width %lld; rotary positions need an even width (model.width / model.heads)", (long long)heads,
        (long long)width);
  if (kv_heads > 0 && heads % kv_heads)
    return petra_config_fail(config, "model.kv_heads",
                             "%lld heads of keys and values for %lld heads; expected a divisor of model.heads",
                             (long long)kv_heads, (long long)heads);
  return PETRA_OK;
}

static petra_status check(const petra_config *config, const petra_model *model, int32_t vocabulary) {
  static const char *const others[] = {
      "model.stem", "model.shape", "model.bottleneck", "model.downsample", "model.zero_init_residual", NULL};
  static const char *const of_tokens[] = {"model.classes", "model.patch", NULL}, *const of_images[] = {"model.context",
                                                                                                       NULL};
  static const char *const of_llama[] = {"model.kv_heads", "model.hidden", "model.rotary_base", NULL};
  PETRA_TRY(petra_model_refuse_keys(config, others));
  PETRA_TRY(petra_model_refuse_keys(config, reads_tokens(model) ? of_tokens : of_images));
  if (config->model.width % config->model.heads)
    return petra_config_fail(config, "model.heads", "%d heads for %d features; expected a divisor of model.width",
                             (int)config->model.heads, model->width);
  if (!is_llama(model))
    PETRA_TRY(petra_model_refuse_keys(config, of_llama));
  else
    PETRA_TRY(check_llama(config, model));
  if (config->model.coupling != PETRA_COUPLING_ADDITIVE && !is_reversible(model))
    return petra_config_fail(config, "model.coupling", "leapfrog with model.family: %s, which is not reversible",
                             petra_config_choice_name("model.family", (int)config->model.family));
  if (model->width < 2)
    return petra_config_fail(config, "model.width",
                             "%d feature: a layer norm of one feature gives the same output for every input, so "
                             "nothing before it can learn; expected at least 2",
                             model->width);
  PETRA_TRY(check_precision(config, model));
  if (reads_tokens(model) && vocabulary < 2)
    return petra_config_fail(config, "data.set", "a vocabulary of %d tokens; expected at least 2", vocabulary);
  return reads_tokens(model) ? PETRA_OK : check_patches(config, model);
}

void petra_llama_set(petra_model *model, const petra_config *config) {
  const int32_t by_width = ((int32_t)config->model.width * 8 + 2) / 3; /* 8/3 of the width, rounded up */
  const int64_t kv_heads = config->model.kv_heads, hidden = config->model.hidden;
  model->kv_heads = (int32_t)(kv_heads > 0 ? kv_heads : config->model.heads);
  model->hidden = hidden > 0 ? (int32_t)hidden : (by_width + HIDDEN_MULTIPLE - 1) / HIDDEN_MULTIPLE * HIDDEN_MULTIPLE;
  model->rotary_base = config->model.rotary_base;
}

petra_status petra_transformer_make(petra_model *model, const petra_config *config, int32_t vocabulary) {
  PETRA_TRY(check(config, model, vocabulary));
  model->classes = reads_tokens(model) ? vocabulary : (int32_t)config->model.classes;
  model->heads = (int32_t)config->model.heads;
  model->patch = reads_tokens(model) ? 0 : (int32_t)config->model.patch;
  model->coupling = config->model.coupling;
  if (is_llama(model))
    petra_llama_set(model, config);
  PETRA_TRY(petra_allocate(&model->blocks, (size_t)(2 * model->depth + 2), sizeof *model->blocks));
  const petra_stream_shape stream = make_embedding(model, vocabulary);
  for (int number = 1; number <= model->depth; number++)
    for (int half = 0; half < 2; half++)
      make_half(model, &stream, number, half == 0);
  make_head(model, petra_model_next_block(model), &stream);
  return PETRA_OK;
}

void petra_transformer_make_auxiliary(const petra_model *model, petra_block *block, const petra_block *last) {
  make_head(model, block, &last->shape_out);
}
