/* Networks as tables: RevNet and ResNet, depths 18, 34, 50, any width, CIFAR or ImageNet stem. A model is a list of
 * blocks from the stem (number 1) to the head; a block is a list of units (convolution, batch norm, perhaps ReLU).
 * Nothing here holds tensors. Source: docs/semantics.md, "Networks". */
#ifndef PETRA_NN_MODEL_H
#define PETRA_NN_MODEL_H

#include "backend/backend.h"

enum {
  PETRA_BLOCK_UNITS = 5,                       /* most units of a block: three of the bottleneck and two shortcuts */
  PETRA_BLOCK_TENSORS = 3 * PETRA_BLOCK_UNITS, /* most parameter tensors of a block */
  PETRA_BLOCK_STATISTICS = 2 * PETRA_BLOCK_UNITS,
  PETRA_MODEL_BLOCKS = 18 /* most blocks of a model: stem, 16, head */
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

typedef enum petra_block_kind {
  PETRA_BLOCK_STEM,       /* unit 0, perhaps max-pool, then (RevNet) a split into two streams */
  PETRA_BLOCK_REVERSIBLE, /* y1 = x2 + F(x1), y2 = x1 */
  PETRA_BLOCK_DOWNSAMPLE, /* RevNet, not reversible: y1 = shortcut2(x2) + F(x1), y2 = F's first unit or shortcut1(x1) */
  PETRA_BLOCK_SHUFFLE,    /* RevNet, reversible: y1 = S(x2) + F(x1), y2 = S(x1), S being space to depth */
  PETRA_BLOCK_RESIDUAL,   /* ResNet: y = ReLU(F(x) + x or shortcut(x)) */
  PETRA_BLOCK_HEAD        /* concat, global average pool, fully connected, softmax cross-entropy */
} petra_block_kind;

/* Shape of one stream of one image. */
typedef struct petra_image_shape {
  int32_t channels, height, width;
} petra_image_shape;

typedef struct petra_block {
  petra_block_kind kind;
  int32_t number; /* from 1 */
  char name[24];  /* "stem", "group1.block2", "head" */
  bool reversible;
  int streams_in, streams_out;           /* 1 or 2; the head has no output streams */
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
  petra_block blocks[PETRA_MODEL_BLOCKS];
} petra_model;

/* Builds the table for images of the given size. PETRA_CONFIG if the images are too small for the strides. */
petra_status petra_model_init(petra_model *model, const petra_config *config, int32_t image_height,
                              int32_t image_width);

/* One parameter or statistics tensor of a block. */
typedef struct petra_tensor_spec {
  char name[40]; /* "conv1/weight", "shortcut/bn/running_mean" */
  petra_tensor_kind kind;
  int32_t shape[4];
  int rank;       /* significant entries of shape */
  int32_t fan_in; /* inputs per output of a weight and its bias; 0 for batch-norm tensors */
  bool decay;     /* weight decay applies (not to batch-norm parameters and biases) */
  double initial; /* batch-norm tensors: their value at the start */
} petra_tensor_spec;

/* Parameters: per unit weight, scale, shift; the head weight, bias. Statistics: per unit running mean, running
 * variance. */
int petra_block_parameter_count(const petra_block *block);
void petra_block_parameter(const petra_model *model, const petra_block *block, int index, petra_tensor_spec *out);
int petra_block_statistic_count(const petra_block *block);
void petra_block_statistic(const petra_block *block, int index, petra_tensor_spec *out);

/* Scalars in all parameters of the block. */
int64_t petra_block_parameters(const petra_model *model, const petra_block *block);

/* Multiply-adds of the convolutions and the fully connected layer times two, for the forward pass of one image. */
int64_t petra_block_flops(const petra_block *block);

/* Elements of all streams between two blocks, of one image. */
int64_t petra_block_output_elements(const petra_block *block);
int64_t petra_block_input_elements(const petra_block *block);

#endif
