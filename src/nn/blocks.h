/* The kinds of blocks behind nn/block.h, for block.c alone; one file each. Their forward passes take a `petra_pass`,
 * which says where the statistics come from, so that training and evaluation share the wiring. */
#ifndef PETRA_NN_BLOCKS_H
#define PETRA_NN_BLOCKS_H

#include "nn/block.h"
#include "nn/convbn.h"

typedef struct petra_pass {
  const petra_compute *compute;
  const petra_block *block;
  petra_tensor *const *parameters;
  petra_tensor *const *statistics; /* evaluation: running statistics; NULL: those of the batch */
  petra_block_graph *graph;        /* NULL: none is kept */
} petra_pass;

/* y = join(addend, unit `index` of the block (x)) under the pass. */
petra_status petra_pass_unit(const petra_pass *pass, int index, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_tensor **y);

/* The block's path F from x: all units but the last plainly, the last one with `join`. `first` (NULL: not wanted)
 * gets a reference to the output of unit 0. */
petra_status petra_pass_path(const petra_pass *pass, petra_tensor *x, petra_join join, const petra_tensor *addend,
                             petra_tensor **first, petra_tensor **y);

/* Backward of unit `index`; dx NULL: not wanted. */
petra_status petra_unit_backward(const petra_pass *pass, int index, bool relu, const petra_tensor *dy,
                                 petra_tensor *const *gradients, petra_tensor **dx);

/* Backward through F: dy is the gradient of F's output (behind its last ReLU unless last_relu is false); dfirst (NULL:
 * none) is added to the gradient of unit 0's output. */
petra_status petra_path_backward(const petra_pass *pass, const petra_tensor *dy, bool last_relu,
                                 const petra_tensor *dfirst, petra_tensor *const *gradients, petra_tensor **dx);

petra_status petra_stem_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out);
petra_status petra_stem_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients);

petra_status petra_revblock_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out);
petra_status petra_revblock_invert(const petra_pass *pass, const petra_streams *out, petra_streams *in);
petra_status petra_revblock_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                     petra_streams *din);

petra_status petra_downsample_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out);
petra_status petra_downsample_backward(const petra_pass *pass, const petra_streams *dout,
                                       petra_tensor *const *gradients, petra_streams *din);

petra_status petra_shuffle_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out);
petra_status petra_shuffle_invert(const petra_pass *pass, const petra_streams *out, petra_streams *in);
petra_status petra_shuffle_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                    petra_streams *din);

petra_status petra_resblock_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out);
petra_status petra_resblock_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                     petra_streams *din);

petra_status petra_head_backward(const petra_pass *pass, petra_tensor *const *gradients, petra_streams *din);

#endif
