/* SPDX-License-Identifier: Apache-2.0 */
/* Configs and networks for tests of src/nn. A network that is made is the caller's to give back (petra_model_fini). */
#pragma once

#include "harness.h"
#include "nn/model.h"

#include <string.h>

static inline petra_config *load(const char *const *sets, int count) {
  petra_config *config = NULL;
  ck_assert_int_eq(petra_config_load(NULL, sets, count, &config), PETRA_OK);
  return config;
}

static inline petra_model make_model(const char *family, int depth, int width, const char *stem, int classes,
                                     int image) {
  char text[5][64];
  const char *const sets[] = {text[0], text[1], text[2], text[3], text[4]};
  petra_model model;
  snprintf(text[0], 64, "model.family=%s", family);
  snprintf(text[1], 64, "model.depth=%d", depth);
  snprintf(text[2], 64, "model.width=%d", width);
  snprintf(text[3], 64, "model.stem=%s", stem);
  snprintf(text[4], 64, "model.classes=%d", classes);
  petra_config *config = load(sets, 5);
  const petra_stream_shape input = petra_image_stream(image, image);
  ck_assert_int_eq(petra_model_init(&model, config, &input, 0), PETRA_OK);
  petra_config_destroy(config);
  return model;
}

/* A RevNet with one more setting, which make_model does not take. */
static inline petra_model make_revnet(int depth, int width, const char *stem, int classes, int image,
                                      const char *setting) {
  char text[4][64];
  const char *const sets[] = {text[0], text[1], text[2], text[3], setting};
  petra_model model;
  snprintf(text[0], 64, "model.depth=%d", depth);
  snprintf(text[1], 64, "model.width=%d", width);
  snprintf(text[2], 64, "model.stem=%s", stem);
  snprintf(text[3], 64, "model.classes=%d", classes);
  petra_config *config = load(sets, 5);
  const petra_stream_shape input = petra_image_stream(image, image);
  ck_assert_int_eq(petra_model_init(&model, config, &input, 0), PETRA_OK);
  petra_config_destroy(config);
  return model;
}

/* The same with model.downsample: invertible. */
static inline petra_model make_invertible(int depth, int width, const char *stem, int classes, int image) {
  return make_revnet(depth, width, stem, classes, image, "model.downsample=invertible");
}

/* The same with model.bottleneck: variant, and with model.shape: constant. */
static inline petra_model make_variant(int depth, int width, const char *stem, int classes, int image) {
  return make_revnet(depth, width, stem, classes, image, "model.bottleneck=variant");
}
static inline petra_model make_constant(int depth, int width, const char *stem, int classes, int image) {
  return make_revnet(depth, width, stem, classes, image, "model.shape=constant");
}

/* Returns whether a family of transformers reads tokens. */
static inline bool family_reads_tokens(const char *family) {
  return strstr(family, "gpt") || strstr(family, "llama");
}

/* A transformer of 2 blocks, width 6, 3 heads: windows of 5 tokens with a vocabulary of 11, or images of 4 x 6 pixels in
 * patches of 2 x 2. The heads of a Llama share keys and values, and its MLPs have 7 hidden features. */
enum { TRANSFORMER_CONTEXT = 5, TRANSFORMER_VOCABULARY = 11 };
static inline petra_model make_coupled(const char *family, const char *coupling) {
  char text[2][64];
  const bool tokens = family_reads_tokens(family);
  const char *const sets[] = {text[0],
                              text[1],
                              "model.depth=2",
                              "model.width=6",
                              "model.heads=3",
                              tokens ? "model.context=5" : "model.patch=2",
                              "model.kv_heads=1",
                              "model.hidden=7"};
  const petra_stream_shape input = tokens ? petra_token_stream(TRANSFORMER_CONTEXT) : petra_image_stream(4, 6);
  petra_model model;
  snprintf(text[0], sizeof text[0], "model.family=%s", family);
  snprintf(text[1], sizeof text[1], "model.coupling=%s", coupling);
  petra_config *config = load(sets, strstr(family, "llama") ? 8 : 6);
  ck_assert_int_eq(petra_model_init(&model, config, &input, tokens ? TRANSFORMER_VOCABULARY : 0), PETRA_OK);
  petra_config_destroy(config);
  return model;
}

static inline petra_model make_transformer(const char *family) {
  return make_coupled(family, "additive");
}
