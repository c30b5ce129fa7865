/* SPDX-License-Identifier: Apache-2.0 */
/* The common parts of models of all families. */
#include "nn/model.h"

#include "base/mem.h"
#include "nn/block.h" /* circle: a model is a table of blocks */

#include <string.h>

/* The families: the name of a network, and whether it reads tokens or consists of layers. */
static const struct {
  const char *title;
  bool tokens, transformer;
} families[] = {[PETRA_FAMILY_REVNET] = {"RevNet", false, false}, [PETRA_FAMILY_RESNET] = {"ResNet", false, false},
                [PETRA_FAMILY_GPT] = {"GPT", true, true},         [PETRA_FAMILY_REVGPT] = {"RevGPT", true, true},
                [PETRA_FAMILY_VIT] = {"ViT", false, true},        [PETRA_FAMILY_REVVIT] = {"RevViT", false, true},
                [PETRA_FAMILY_LLAMA] = {"Llama", true, true},     [PETRA_FAMILY_REVLLAMA] = {"RevLlama", true, true}};

const char *petra_family_title(petra_family family) {
  return families[family].title;
}

/* Returns the kind of samples that a family reads: PETRA_TENSOR_ACTIVATION (images) or PETRA_TENSOR_SEQUENCE
 * (tokens). */
static petra_tensor_kind family_reads(petra_family family) {
  return families[family].tokens ? PETRA_TENSOR_SEQUENCE : PETRA_TENSOR_ACTIVATION;
}

/* Describes the attention of a transformer: "4 heads"; for a Llama also "(2 of keys and values), hidden 352, rotary
 * base 10000". `plural`: also writes "1 heads", which files contain. */
static void describe_attention(const petra_config *config, bool plural, char *text, size_t size) {
  const petra_family family = config->model.family;
  petra_model llama = {0};
  const long long heads = (long long)config->model.heads;
  const char *s = heads == 1 && !plural ? "" : "s";
  petra_llama_set(&llama, config);
  if (petra_family_is_llama(family))
    snprintf(text, size, "%lld head%s (%d of keys and values), hidden %d, rotary base %.15g", heads, s, llama.kv_heads,
             llama.hidden, llama.rotary_base);
  else
    snprintf(text, size, "%lld head%s", heads, s);
}

/* Describes the properties of a family in addition to depth and width: "cifar stem", "4 heads, context 128". */
static char *details(const petra_config *config, bool plural, char *text, size_t size) {
  const petra_family family = config->model.family;
  const long long patch = (long long)config->model.patch;
  const char *coupling = config->model.coupling == PETRA_COUPLING_LEAPFROG ? ", leapfrog coupling" : "";
  char attention[96];
  describe_attention(config, plural, attention, sizeof attention);
  if (!families[family].transformer)
    snprintf(text, size, "%s stem%s%s", petra_config_choice_name("model.stem", (int)config->model.stem),
             config->model.shape == PETRA_SHAPE_CONSTANT ? ", constant shape" : "",
             config->model.bottleneck == PETRA_BOTTLENECK_VARIANT ? ", variant bottleneck" : "");
  else if (families[family].tokens)
    snprintf(text, size, "%s, context %lld%s", attention, (long long)config->model.context, coupling);
  else
    snprintf(text, size, "%s, patches of %lld x %lld%s", attention, patch, patch, coupling);
  return text;
}

void petra_model_describe(const petra_config *config, FILE *out) {
  const petra_family family = config->model.family;
  const bool blocks = families[family].transformer || config->model.shape == PETRA_SHAPE_CONSTANT;
  char text[192];
  const long long depth = config->model.depth, width = config->model.width;
  if (blocks)
    fprintf(out, "%s of %lld block%s", families[family].title, depth, depth == 1 ? "" : "s");
  else
    fprintf(out, "%s-%lld", families[family].title, depth);
  fprintf(out, ", width %lld, %s", width, details(config, false, text, sizeof text));
}

void petra_model_label(const petra_model *model, const petra_config *config, char *out, size_t size) {
  char text[192];
  snprintf(out, size, "%s-%d width %d, %s, %d classes", petra_config_choice_name("model.family", (int)model->family),
           model->depth, model->width, details(config, true, text, sizeof text), model->classes);
}

petra_stream_shape petra_image_stream(int32_t height, int32_t width) {
  return (petra_stream_shape){.channels = 3, .height = height, .width = width, .kind = PETRA_TENSOR_ACTIVATION};
}

petra_stream_shape petra_token_stream(int32_t positions) {
  return (petra_stream_shape){.positions = positions, .features = 1, .one = 1, .kind = PETRA_TENSOR_SEQUENCE};
}

void petra_stream_tensor_shape(const petra_stream_shape *stream, int32_t samples, int32_t shape[4]) {
  shape[0] = samples;
  for (int i = 0; i < 3; i++)
    shape[i + 1] = stream->extent[i];
}

int64_t petra_stream_elements(const petra_stream_shape *stream) {
  return (int64_t)stream->extent[0] * stream->extent[1] * stream->extent[2];
}

petra_block *petra_model_next_block(petra_model *model) {
  petra_block *block = &model->blocks[model->block_count++];
  block->number = model->block_count;
  block->shortcut1 = block->shortcut2 = -1;
  return block;
}

void petra_block_set_kind(petra_block *block, const petra_block_ops *ops) {
  block->ops = ops;
  block->reversible = ops->invert != NULL;
  block->reads_data = ops->reads_data;
  block->is_loss = ops->is_loss;
}

petra_status petra_model_refuse_keys(const petra_config *config, const char *const *keys) {
  for (; *keys; keys++) {
    bool changed;
    PETRA_TRY(petra_config_changed(config, *keys, &changed));
    if (changed)
      return petra_config_fail(config, *keys, "model.family: %s does not use it; expected its default",
                               petra_config_choice_name("model.family", (int)config->model.family));
  }
  return PETRA_OK;
}

petra_status petra_model_init(petra_model *model, const petra_config *config, const petra_stream_shape *input,
                              int32_t vocabulary) {
  const petra_family family = config->model.family;
  *model = (petra_model){
      .family = family, .depth = (int32_t)config->model.depth, .width = (int32_t)config->model.width, .input = *input};
  if (input->kind != family_reads(family))
    return petra_config_fail(
        config, "data.set", "%s has %s, but model.family: %s is a network for %s",
        petra_config_choice_name("data.set", (int)config->data.set), families[family].tokens ? "images" : "tokens",
        petra_config_choice_name("model.family", (int)family), families[family].tokens ? "tokens" : "images");
  petra_status status = families[family].transformer ? petra_transformer_make(model, config, vocabulary)
                                                     : petra_resnet_make(model, config);
  if (status != PETRA_OK)
    petra_model_fini(model);
  for (int b = 0; b < model->block_count; b++)
    model->reversible = model->reversible || model->blocks[b].reversible;
  return status;
}

petra_status petra_model_add_auxiliary(petra_model *model, int stages, const int *first) {
  const int own = model->block_count;
  petra_block *blocks;
  PETRA_TRY(petra_allocate(&blocks, (size_t)(own + stages - 1), sizeof *blocks));
  memcpy(blocks, model->blocks, (size_t)own * sizeof *blocks);
  petra_free(model->blocks);
  model->blocks = blocks;
  model->auxiliary_count = stages - 1;
  for (int j = 0; j + 1 < stages; j++) {
    const petra_block *last = &blocks[first[j + 1] - 1];
    petra_block *block = &blocks[own + j];
    *block = (petra_block){.number = own + j + 1, .auxiliary = true, .shortcut1 = -1, .shortcut2 = -1};
    if (families[model->family].transformer)
      petra_transformer_make_auxiliary(model, block, last);
    else
      petra_resnet_make_auxiliary(model, block, last);
    snprintf(block->name, sizeof block->name, "auxiliary%d", j + 1);
    block->streams_out = block->streams_in;
    block->shape_out = block->shape_in;
  }
  return PETRA_OK;
}

void petra_model_fini(petra_model *model) {
  petra_free(model->blocks);
  *model = (petra_model){0};
}

int64_t petra_block_parameters(const petra_model *model, const petra_block *block) {
  int64_t sum = 0;
  for (int i = 0; i < petra_block_parameter_count(block); i++) {
    petra_tensor_spec spec;
    petra_block_parameter(model, block, i, &spec);
    sum += (int64_t)spec.shape[0] * spec.shape[1] * spec.shape[2] * spec.shape[3];
  }
  return sum;
}

int64_t petra_block_output_elements(const petra_block *block) {
  return block->streams_out * petra_stream_elements(&block->shape_out);
}

int64_t petra_block_input_elements(const petra_block *block) {
  return block->streams_in * petra_stream_elements(&block->shape_in);
}

int32_t petra_model_labels(const petra_model *model) {
  return model->blocks[model->block_count - 1].labels;
}
