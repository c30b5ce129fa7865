#include "nn/invariant.h"

/* A convolution that makes constants of constants; its batch norm then takes them away. */
static bool forgets_constants(const petra_unit *unit) {
  return unit->kernel == 1 && unit->geometry.pad == 0;
}

/* Whether nothing behind `block` sees a constant added to a channel of one of its output streams. */
static bool constants_are_lost(const petra_model *model, const petra_block *block) {
  for (const petra_block *next = block + 1; next < model->blocks + model->block_count; next++) {
    if ((next->kind != PETRA_BLOCK_REVERSIBLE && next->kind != PETRA_BLOCK_DOWNSAMPLE) ||
        !forgets_constants(&next->units[0]))
      return false;
    if (next->kind == PETRA_BLOCK_DOWNSAMPLE)
      return (next->shortcut1 < 0 || forgets_constants(&next->units[next->shortcut1])) &&
             (next->shortcut2 < 0 || forgets_constants(&next->units[next->shortcut2]));
  }
  return false;
}

bool petra_block_parameter_is_invariant(const petra_model *model, const petra_block *block, int index) {
  int unit = index / 3;
  bool shift = index % 3 == 2;
  if (block->kind != PETRA_BLOCK_DOWNSAMPLE || !shift || (unit != block->shortcut1 && unit != block->shortcut2))
    return false;
  return constants_are_lost(model, block);
}
