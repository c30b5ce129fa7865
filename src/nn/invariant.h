/* Parameters that the network's output does not depend on. */
#ifndef PETRA_NN_INVARIANT_H
#define PETRA_NN_INVARIANT_H

#include "nn/model.h"

/* Whether parameter `index` of the block (petra_block_parameter) has gradient 0 in exact arithmetic, so that
 * what is computed of it is rounding. These are the shifts of a bottleneck's shortcuts: such a shift adds a
 * constant to every channel of a stream; as far as the next downsampling block every path F begins with a 1x1
 * convolution without padding, which makes constants of constants, and a batch norm, which takes them away;
 * and there the shortcuts do the same to the stream itself. Behind the last downsampling block the stream
 * reaches the head, and nothing is 0. Decided by the structure alone. */
bool petra_block_parameter_is_invariant(const petra_model *model, const petra_block *block, int index);

#endif
