/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters and statistics of a block (of its units, of its layers, and of the block itself): shapes, initial
 * values. */
#include "nn/blocks.h"
#include "nn/model.h"

#include "base/rng.h"

#include <math.h>

enum { UNIT = PETRA_UNIT_PARAMETERS, STATISTICS = PETRA_UNIT_STATISTICS };

int petra_layer_norm_parameters(const petra_layer *layer) {
  return !*layer->norm ? 0 : layer->rms ? 1 : 2;
}

/* Returns the number of parameters of a layer: parameters of its norm, weight, bias. */
static int layer_parameters(const petra_layer *layer) {
  return petra_layer_norm_parameters(layer) + 1 + layer->bias;
}

int petra_layer_first(const petra_block *block, int layer) {
  int first = UNIT * block->unit_count;
  for (int l = 0; l < layer; l++)
    first += layer_parameters(&block->layers[l]);
  return first;
}

int petra_block_parameter_count(const petra_block *block) {
  return petra_layer_first(block, block->layer_count) + block->ops->own_parameters;
}

int petra_block_statistic_count(const petra_block *block) {
  return STATISTICS * block->unit_count;
}

/* Names a parameter "PART/NAME", as far as it fits. Formatting would take most of the time that petra plan needs to
 * predict the memory of a stage. */
static void name_parameter(petra_tensor_spec *out, const char *part, const char *name) {
  const char *const words[] = {part, "/", name};
  char *at = out->name, *const end = out->name + sizeof out->name - 1;
  for (int w = 0; w < 3; w++)
    for (const char *c = words[w]; *c && at < end; c++)
      *at++ = *c;
  *at = 0;
}

/* Sets up a vector of `size` entries with the value `initial`; the rest of the spec is 0. */
static void vector_spec(petra_tensor_spec *out, petra_tensor_role role, const char *part, const char *name,
                        int32_t size, double initial) {
  *out = (petra_tensor_spec){
      .kind = PETRA_TENSOR_VECTOR, .role = role, .shape = {size, 1, 1, 1}, .rank = 1, .initial = initial};
  name_parameter(out, part, name);
}

void petra_matrix_spec(petra_tensor_spec *out, petra_tensor_role role, const char *part, int32_t rows, int32_t columns,
                       double deviation) {
  *out = (petra_tensor_spec){.kind = PETRA_TENSOR_MATRIX,
                             .role = role,
                             .shape = {rows, columns, 1, 1},
                             .rank = 2,
                             .decay = true,
                             .deviation = deviation};
  name_parameter(out, part, "weight");
}

static void unit_parameter(const petra_model *model, const petra_block *block, int index, petra_tensor_spec *out) {
  const int u = index / UNIT;
  const petra_unit *unit = &block->units[u];
  switch (index % UNIT) {
  case 0:
    *out = (petra_tensor_spec){.kind = PETRA_TENSOR_FILTER,
                               .role = PETRA_ROLE_WEIGHT,
                               .shape = {unit->out, unit->in, unit->kernel, unit->kernel},
                               .rank = 4,
                               .deferred = true,
                               .fan_in = unit->in * unit->kernel * unit->kernel,
                               .decay = true};
    name_parameter(out, unit->conv, "weight");
    break;
  case 1:
    vector_spec(out, PETRA_ROLE_SCALE, unit->norm, "scale", unit->out,
                model->zero_init_residual && u == block->path_count - 1 ? 0 : 1);
    break;
  default:
    vector_spec(out, PETRA_ROLE_SHIFT, unit->norm, "shift", unit->out, 0);
  }
  out->unit = u;
}

static void layer_parameter(const petra_layer *layer, int index, petra_tensor_spec *out) {
  const int of_norm = petra_layer_norm_parameters(layer);
  if (index < of_norm) {
    vector_spec(out, index ? PETRA_ROLE_SHIFT : PETRA_ROLE_SCALE, layer->norm, index ? "shift" : "scale", layer->in,
                index ? 0 : 1);
    return;
  }
  if (index == of_norm)
    petra_matrix_spec(out, PETRA_ROLE_WEIGHT, layer->linear, layer->out, layer->in, layer->deviation);
  else
    vector_spec(out, PETRA_ROLE_BIAS, layer->linear, "bias", layer->out, 0);
  out->deferred = layer->deferred;
  out->fan_in = layer->deviation > 0 ? 0 : layer->in;
}

void petra_block_parameter(const petra_model *model, const petra_block *block, int index, petra_tensor_spec *out) {
  int layer = 0, first = UNIT * block->unit_count;
  if (index < first) {
    unit_parameter(model, block, index, out);
    return;
  }
  index -= first;
  while (layer < block->layer_count && index >= layer_parameters(&block->layers[layer]))
    index -= layer_parameters(&block->layers[layer++]);
  if (layer < block->layer_count)
    layer_parameter(&block->layers[layer], index, out);
  else
    block->ops->own_parameter(block, index, out);
  out->unit = block->unit_count + layer;
}

void petra_block_statistic(const petra_block *block, int index, petra_tensor_spec *out) {
  int u = index / STATISTICS;
  const petra_unit *unit = &block->units[u];
  if (index % STATISTICS == 0)
    vector_spec(out, PETRA_ROLE_MEAN, unit->norm, "running_mean", unit->out, 0);
  else
    vector_spec(out, PETRA_ROLE_VARIANCE, unit->norm, "running_var", unit->out, 1);
  out->unit = u;
}

void petra_initial_values(const petra_tensor_spec *spec, uint64_t seed, const petra_block *block, int index,
                          double *values) {
  int64_t elements = (int64_t)spec->shape[0] * spec->shape[1] * spec->shape[2] * spec->shape[3];
  petra_rng rng;
  petra_rng_init(&rng, seed, PETRA_RNG_INIT, 0, (uint64_t)block->number * 256 + (uint64_t)index);
  double bound = spec->fan_in > 0 ? 1 / sqrt(spec->fan_in) : 0;
  for (int64_t i = 0; i < elements; i++)
    values[i] = spec->deviation > 0 ? (float)(spec->deviation * petra_rng_normal(&rng))
                : spec->fan_in > 0  ? (float)(bound * (2 * petra_rng_uniform(&rng) - 1))
                                    : spec->initial;
}

/* --- parameters that the network's output does not depend on --- */

/* Returns true for a convolution that turns constants into constants, which its batch norm then removes. */
static bool forgets_constants(const petra_unit *unit) {
  return unit->kernel == 1 && unit->geometry.pad == 0;
}

/* Returns true for a block of a RevNet whose shortcuts change the width or the image. */
static bool has_shortcuts(const petra_block *block) {
  return block->ops == &petra_downsample_ops || block->ops == &petra_variant_ops;
}

/* Returns true if nothing after `block` depends on a constant added to a channel of one of its output streams. */
static bool constants_are_lost(const petra_model *model, const petra_block *block) {
  for (const petra_block *next = block + 1; next < model->blocks + model->block_count; next++) {
    if ((next->ops != &petra_revblock_ops && !has_shortcuts(next)) || !forgets_constants(&next->units[0]))
      return false;
    if (has_shortcuts(next))
      return (next->shortcut1 < 0 || forgets_constants(&next->units[next->shortcut1])) &&
             (next->shortcut2 < 0 || forgets_constants(&next->units[next->shortcut2]));
  }
  return false;
}

bool petra_block_parameter_is_invariant(const petra_model *model, const petra_block *block, int index) {
  petra_tensor_spec spec;
  petra_block_parameter(model, block, index, &spec);
  if (!has_shortcuts(block) || spec.role != PETRA_ROLE_SHIFT ||
      (spec.unit != block->shortcut1 && spec.unit != block->shortcut2))
    return false;
  return constants_are_lost(model, block);
}
