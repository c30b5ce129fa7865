/* SPDX-License-Identifier: Apache-2.0 */
/* Networks as tables: RevNet and ResNet, depths 18, 34, 50, any width, CIFAR or ImageNet stem. A model is a list of
 * blocks from the stem (number 1) to the head; a block is a list of units (convolution, batch norm, perhaps ReLU).
 * Nothing here holds tensors. Source: docs/semantics.md, "Networks". */
#ifndef PETRA_NN_MODEL_H
#define PETRA_NN_MODEL_H

#include "backend/backend.h"
#include "base/kernel.h"

enum {
  PETRA_BLOCK_UNITS = 5,                       /* most units of a block: three of the bottleneck and two shortcuts */
  PETRA_BLOCK_TENSORS = 3 * PETRA_BLOCK_UNITS, /* most parameter tensors of a block */
  PETRA_BLOCK_STATISTICS = 2 * PETRA_BLOCK_UNITS,
  PETRA_BLOCK_KERNELS = 32 /* most kernels of a block: five a unit, addition and pool both ways, update (two) */
};

/* A convolution without bias, a batch norm, and ReLU where `relu`. */
typedef struct petra_unit {
  char conv[20], norm[20]; /* names of the parts: "conv1", "bn1", "shortcut/conv", "shortcut/bn" */
  int32_t in, out;         /* channels */
  int32_t kernel;
  petra_conv_geometry geometry;
  int32_t height_in, width_in, height_out, width_out;
  bool relu;
} petra_unit;

/* The kind of a block: what it computes, and its facts (nn/block.h). */
typedef struct petra_block_ops petra_block_ops;

/* Shape of one stream of one image. */
typedef struct petra_image_shape {
  int32_t channels, height, width;
} petra_image_shape;

typedef struct petra_block {
  const petra_block_ops *ops;
  bool reversible, reads_data, is_loss;  /* as its kind says: rebuilds its input from its output, ... */
  int32_t number;                        /* from 1 */
  char name[24];                         /* "stem", "group1.block2", "head" */
  int streams_in, streams_out;           /* 1 or 2; 0 streams come out of a loss */
  petra_image_shape shape_in, shape_out; /* of each stream */
  int unit_count, path_count;            /* the first path_count units are F, in order */
  petra_unit units[PETRA_BLOCK_UNITS];
  int shortcut1, shortcut2; /* index of the unit that acts on stream 1 / stream 2 (ResNet: on x), or -1 */
  bool pooled;              /* stem: max-pool after the unit */
  petra_pool_geometry pool;
  int32_t features, classes; /* head */
} petra_block;

typedef struct petra_model {
  petra_family family;
  int32_t depth, width, classes;
  petra_stem stem;
  petra_downsample downsample;
  bool zero_init_residual;
  int32_t image_height, image_width;
  int block_count;
  petra_block *blocks;
} petra_model;

/* Builds the table for images of the given size. PETRA_CONFIG if the images are too small for the strides;
 * PETRA_NO_MEMORY. After a failure there is nothing to give back. */
petra_status petra_model_init(petra_model *model, const petra_config *config, int32_t image_height,
                              int32_t image_width);
void petra_model_fini(petra_model *model);

typedef enum petra_tensor_role {
  PETRA_ROLE_WEIGHT,
  PETRA_ROLE_BIAS,
  PETRA_ROLE_SCALE, /* of a normalisation */
  PETRA_ROLE_SHIFT,
  PETRA_ROLE_MEAN, /* running statistics */
  PETRA_ROLE_VARIANCE
} petra_tensor_role;

typedef struct petra_optim petra_optim; /* nn/optim.h */

/* One parameter or statistics tensor of a block. */
typedef struct petra_tensor_spec {
  char name[40]; /* "conv1/weight", "shortcut/bn/running_mean" */
  petra_tensor_kind kind;
  petra_tensor_role role;
  int unit; /* of the block, where units have it */
  int32_t shape[4];
  int rank;       /* significant entries of shape */
  bool deferred;  /* W computes its gradient where that is split from B */
  int32_t fan_in; /* inputs per output of a weight and its bias; 0 for batch-norm tensors */
  bool decay;     /* weight decay applies (not to batch-norm parameters and biases) */
  double initial; /* batch-norm tensors: their value at the start */
} petra_tensor_spec;

/* Parameters and statistics, in the order of files and logs. */
int petra_block_parameter_count(const petra_block *block);
void petra_block_parameter(const petra_model *model, const petra_block *block, int index, petra_tensor_spec *out);
int petra_block_statistic_count(const petra_block *block);
void petra_block_statistic(const petra_block *block, int index, petra_tensor_spec *out);

/* Scalars in all parameters of the block. */
int64_t petra_block_parameters(const petra_model *model, const petra_block *block);

/* The kernels of one microbatch of a block. */
typedef struct petra_kernel_list {
  int64_t samples, element_bytes; /* of a microbatch; of every tensor */
  bool again;                     /* the forward is done once more where its graph is rebuilt: counted whole */
  int count;
  petra_kernel kernel[PETRA_BLOCK_KERNELS];
} petra_kernel_list;

/* What a block does to `samples` images, for N of them (a tensor is read or written whole, once per pass):
 *   convolution forward    2 N out in k^2 pixels FLOPs on the matrix units; reads x and w, writes y
 *     data gradient        the same FLOPs; reads dy and w, writes dx     (none for the stem: an image has no gradient)
 *     weight gradient      the same FLOPs; reads x and dy, writes dw
 *   batch norm and ReLU    forward 2 reads (statistics, then the result), 1 write; 7 FLOPs an element
 *                          backward 4 reads (x and dy for the sums, both again), 1 write; 11 FLOPs an element
 *   addition of streams    2 reads, 1 write, 1 FLOP an element: forward, reconstruction (a subtraction) and backward
 *   max-pool               forward reads its input, writes its output; backward the reverse; window^2 FLOPs an output
 *   head                   average pool, then a matrix product as a convolution of one pixel
 *   update                 the optimiser's (nn/optim.c); SGD: reads w, dw, v, writes w, v; 6 FLOPs a parameter */
void petra_block_kernels(const petra_model *model, const petra_block *block, const petra_optim *optim, int64_t samples,
                         int64_t element_bytes, petra_kernel_list *out);

/* FLOPs of the convolutions and matrix products in the forward pass of one image, two for a multiply-add. */
int64_t petra_block_flops(const petra_block *block);

/* Shape of the tensor of one input stream of `samples` images. */
void petra_block_input_shape(const petra_block *block, int32_t samples, int32_t shape[4]);

/* Elements of all streams between two blocks, of one image. */
int64_t petra_block_output_elements(const petra_block *block);
int64_t petra_block_input_elements(const petra_block *block);

/* Whether parameter `index` of the block (petra_block_parameter) has gradient 0 in exact arithmetic, so that
 * what is computed of it is rounding. These are the shifts of a bottleneck's shortcuts: such a shift adds a
 * constant to every channel of a stream; as far as the next downsampling block every path F begins with a 1x1
 * convolution without padding, which makes constants of constants, and a batch norm, which takes them away;
 * and there the shortcuts do the same to the stream itself. Behind the last downsampling block the stream
 * reaches the head, and nothing is 0. Decided by the structure alone. */
bool petra_block_parameter_is_invariant(const petra_model *model, const petra_block *block, int index);

#endif
