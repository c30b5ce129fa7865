/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that the network's output does not depend on. */
#include "nn/blocks.h"
#include "nn/model.h"

/* A convolution that makes constants of constants; its batch norm then takes them away. */
static bool forgets_constants(const petra_unit *unit) {
  return unit->kernel == 1 && unit->geometry.pad == 0;
}

/* Whether nothing behind `block` sees a constant added to a channel of one of its output streams. */
static bool constants_are_lost(const petra_model *model, const petra_block *block) {
  for (const petra_block *next = block + 1; next < model->blocks + model->block_count; next++) {
    if ((next->ops != &petra_revblock_ops && next->ops != &petra_downsample_ops) || !forgets_constants(&next->units[0]))
      return false;
    if (next->ops == &petra_downsample_ops)
      return (next->shortcut1 < 0 || forgets_constants(&next->units[next->shortcut1])) &&
             (next->shortcut2 < 0 || forgets_constants(&next->units[next->shortcut2]));
  }
  return false;
}

bool petra_block_parameter_is_invariant(const petra_model *model, const petra_block *block, int index) {
  petra_tensor_spec spec;
  petra_block_parameter(model, block, index, &spec);
  if (block->ops != &petra_downsample_ops || spec.role != PETRA_ROLE_SHIFT ||
      (spec.unit != block->shortcut1 && spec.unit != block->shortcut2))
    return false;
  return constants_are_lost(model, block);
}
