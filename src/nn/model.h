/* SPDX-License-Identifier: Apache-2.0 */
/* Networks as tables: RevNet and ResNet (model_resnet.c), GPT, Llama and ViT, reversible or not (model_transformer.c).
 * A model is a list of blocks from the stem or embedding (number 1) to the head. A block of images is a list of units
 * (convolution, batch norm, perhaps ReLU), a block of sequences a list of layers (perhaps a norm, linear map). Nothing
 * here holds tensors. Source: docs/semantics/networks.md. */
#pragma once

#include "backend/backend.h"
#include "base/kernel.h"

#include <stdio.h>

enum {
  /* Maximum number of units of a block: three of the bottleneck and two shortcuts. */
  PETRA_BLOCK_UNITS = 5,
  PETRA_BLOCK_LAYERS = 2,                      /* maximum number of layers of a block */
  PETRA_BLOCK_TENSORS = 3 * PETRA_BLOCK_UNITS, /* maximum number of parameter tensors of a block */
  PETRA_BLOCK_STATISTICS = 2 * PETRA_BLOCK_UNITS,
  /* Maximum number of kernels of a block: five per unit, addition and pool both ways, update (two); 12 of messages. */
  PETRA_BLOCK_KERNELS = 44
};

/* A convolution without bias, a batch norm, and a ReLU if `relu` is set. */
typedef struct petra_unit {
  char conv[20], norm[20]; /* names of the parts: "conv1", "bn1", "shortcut/conv", "shortcut/bn" */
  int32_t in, out;         /* channels */
  int32_t kernel;
  petra_conv_geometry geometry;
  int32_t height_in, width_in, height_out, width_out;
  bool relu;
} petra_unit;

/* A linear map, with a norm of its input unless `norm` is empty. */
typedef struct petra_layer {
  char norm[20], linear[20]; /* names of the parts: "ln", "qkv" */
  bool rms;                  /* the norm is an RMS norm, which has no shift; otherwise it is a layer norm */
  int32_t in, out;           /* features */
  int32_t rows;              /* rows of one sample: its positions, or 1 */
  bool bias;
  bool deferred; /* W computes the gradients of its weight and bias if it is split from B */
  /* Initial weights are N(0, deviation^2), the bias is 0; 0: petra_initial_values sets both as for units. */
  double deviation;
} petra_layer;

/* The kind of a block: its computation and its facts (nn/block.h). */
typedef struct petra_block_ops petra_block_ops;

/* The function between the two layers of a function F (nn/blocks.h): attention, GELU or SwiGLU. */
typedef struct petra_middle_ops petra_middle_ops;

/* The shape of one stream of one sample and the kind of its tensors: (channels, height, width) of activations,
 * (positions, features, 1) of sequences. */
typedef struct petra_stream_shape {
  union {
    struct {
      int32_t channels, height, width;
    };
    struct {
      int32_t positions, features, one;
    };
    int32_t extent[3]; /* extents of a tensor after the samples */
  };
  petra_tensor_kind kind; /* PETRA_TENSOR_ACTIVATION or PETRA_TENSOR_SEQUENCE */
} petra_stream_shape;

/* Return the shape of an image with three channels, and of `positions` tokens, as a data set delivers them. */
petra_stream_shape petra_image_stream(int32_t height, int32_t width);
petra_stream_shape petra_token_stream(int32_t positions);

/* Return the shape of a tensor of `samples` samples of a stream, and the number of elements of one sample. */
void petra_stream_tensor_shape(const petra_stream_shape *stream, int32_t samples, int32_t shape[4]);
int64_t petra_stream_elements(const petra_stream_shape *stream);

typedef struct petra_block {
  const petra_block_ops *ops;
  bool reversible, reads_data, is_loss; /* facts of its kind: rebuilds its input from its output, ... */
  bool auxiliary; /* a head of a stage below the last: its output streams are its input streams, unchanged */
  int32_t number; /* from 1 */
  char name[32];  /* "stem", "group1.block2", "block3.attention", "head" */
  int streams_in, streams_out;            /* 1 or 2; a block with a loss has 0 output streams */
  petra_stream_shape shape_in, shape_out; /* of each stream */
  int unit_count, path_count;             /* the first path_count units are F, in order */
  petra_unit units[PETRA_BLOCK_UNITS];
  int shortcut1, shortcut2; /* index of the unit that acts on stream 1 / stream 2 (ResNet: on x), or -1 */
  bool pooled;              /* stem: max-pool after the unit */
  petra_pool_geometry pool;
  int32_t features, classes; /* head: features of a row of its linear map; logits of that row */
  int32_t labels;            /* head: rows of one sample */
  int layer_count;           /* units and layers together: at most PETRA_BLOCK_UNITS */
  petra_layer layers[PETRA_BLOCK_LAYERS];
  const petra_middle_ops *middle; /* F is layer 0, this, layer 1; NULL: the block has no F of layers */
  int32_t heads, kv_heads;        /* attention: number of heads; number of heads of keys and values */
  double rotary_base;             /* attention: base of rotary positions; 0: no rotary positions */
  bool causal;                    /* attention: a position reads only itself and earlier positions */
  petra_gelu gelu;                /* GELU: its form */
  petra_coupling coupling;        /* reversible block of sequences */
  bool averages;                  /* head of sequences: its linear map reads the mean over the positions */
  int32_t rows, patch;            /* embedding: rows of its table; of images: side of a patch, pixels */
} petra_block;

typedef struct petra_model {
  petra_family family;
  int32_t depth, width;
  int32_t classes; /* logits per label: model.classes; of tokens the vocabulary */
  petra_stem stem;
  petra_downsample downsample;
  petra_bottleneck bottleneck;
  petra_model_shape shape;
  bool zero_init_residual;
  int32_t heads, patch;     /* transformers; patch: images; else 0 */
  int32_t kv_heads, hidden; /* Llama; else 0 */
  double rotary_base;       /* the same */
  petra_coupling coupling;  /* reversible transformers */
  petra_stream_shape input; /* shape of a sample of the data set */
  bool reversible;          /* it has reversible blocks */
  int block_count;          /* blocks of the network */
  int auxiliary_count;      /* auxiliary heads; they come after the blocks of the network */
  petra_block *blocks;
} petra_model;

/* Builds the table for samples of the given shape. `vocabulary` is the size of the vocabulary of a token set and is
 * ignored for images. Errors: PETRA_CONFIG: images that are too small for the strides or not a whole number of patches,
 * samples of a kind that the family does not read, a key that the family does not have; PETRA_UNSUPPORTED: an
 * unavailable precision; PETRA_NO_MEMORY. After a failure nothing has to be released. */
petra_status petra_model_init(petra_model *model, const petra_config *config, const petra_stream_shape *input,
                              int32_t vocabulary);
void petra_model_fini(petra_model *model);

/* Adds the auxiliary heads of local learning: blocks[block_count + j] reads the output streams of the last block of
 * stage j, from 0, for every stage except the last. `first` belongs to a partition into `stages` stages
 * (petra_partition). Pointers to blocks become invalid. A head of images has a convolution (3x3, stride 2, as many
 * outputs as the stage's last block has channels within F), a batch norm and a ReLU for each stream, then average pool
 * and linear map; a head of sequences is a copy of the network's head. Errors: PETRA_NO_MEMORY. */
petra_status petra_model_add_auxiliary(petra_model *model, int stages, const int *first);

/* Describes the network of a config: "RevNet-18, width 64, cifar stem", "GPT of 4 blocks, width 128, 4 heads, context
 * 128". */
void petra_model_describe(const petra_config *config, FILE *out);
enum { PETRA_MODEL_LABEL = 256 /* bytes in which every label fits */ };
/* Describes the network of a weights file: "revnet-18 width 64, cifar stem, 10 classes". */
void petra_model_label(const petra_model *model, const petra_config *config, char *out, size_t size);
/* Returns the name of the family: "RevNet". */
const char *petra_family_title(petra_family family);

typedef enum petra_tensor_role {
  PETRA_ROLE_WEIGHT,
  PETRA_ROLE_EMBEDDING, /* a table with rows for tokens or positions */
  PETRA_ROLE_BIAS,
  PETRA_ROLE_SCALE, /* scale or shift of a normalisation */
  PETRA_ROLE_SHIFT,
  PETRA_ROLE_MEAN, /* running statistics */
  PETRA_ROLE_VARIANCE
} petra_tensor_role;

typedef struct petra_optim petra_optim; /* nn/optim.h */

/* A parameter or statistics tensor of a block. */
typedef struct petra_tensor_spec {
  char name[40]; /* "conv1/weight", "shortcut/bn/running_mean" */
  petra_tensor_kind kind;
  petra_tensor_role role;
  int unit; /* unit of the block, if the tensor belongs to a unit; unit_count + i: layer i */
  int32_t shape[4];
  int rank;      /* significant entries of shape */
  bool deferred; /* W computes its gradient if it is split from B */
  /* Inputs per output of a weight and its bias, from which petra_initial_values computes bounds; else 0. */
  int32_t fan_in;
  bool decay;       /* weight decay applies; it does not apply to parameters of norms and biases */
  double deviation; /* above 0: initial values are N(0, deviation^2) */
  double initial;   /* without fan_in and deviation: the initial value */
} petra_tensor_spec;

/* Get the parameters and statistics in the order of files and logs. */
int petra_block_parameter_count(const petra_block *block);
void petra_block_parameter(const petra_model *model, const petra_block *block, int index, petra_tensor_spec *out);
int petra_block_statistic_count(const petra_block *block);
void petra_block_statistic(const petra_block *block, int index, petra_tensor_spec *out);

/* The initial value of a parameter (statistics: of a statistic): U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and the
 * head's bias (Kaiming-uniform with a = sqrt 5); N(0, deviation^2) if the spec has a deviation; else the constant of
 * the spec. `values` has spec.elements entries, each representable as a float. A function of (seed, block, index)
 * alone. */
void petra_initial_values(const petra_tensor_spec *spec, uint64_t seed, const petra_block *block, int index,
                          double *values);

/* Returns the number of scalars in all parameters of the block. */
int64_t petra_block_parameters(const petra_model *model, const petra_block *block);

/* The kernels of a block for one microbatch. */
typedef struct petra_kernel_list {
  int64_t samples, element_bytes; /* samples of a microbatch; bytes of an element of every tensor */
  bool rebuilt;                   /* rebuilding the graph repeats the whole forward, which is counted */
  int count;
  petra_kernel kernel[PETRA_BLOCK_KERNELS];
} petra_kernel_list;

/* Counts the work of a block for `samples` samples, N below (a tensor is read or written whole, once per pass):
 *   convolution forward    2 N out in k^2 pixels FLOPs on the matrix units; reads x and w, writes y
 *     data gradient        the same FLOPs; reads dy and w, writes dx     (none for the stem: an image has no gradient)
 *     weight gradient      the same FLOPs; reads x and dy, writes dw
 *   batch norm and ReLU    forward 2 reads (statistics, then the result), 1 write; 7 FLOPs an element
 *                          backward 4 reads (x and dy for the sums, both again), 1 write; 11 FLOPs an element
 *   addition of streams    2 reads, 1 write, 1 FLOP an element: forward, reconstruction (a subtraction) and backward
 *   leapfrog coupling      in addition: 2 x1 - x2 as two sums, 4 reads, 2 writes, 3 FLOPs an element; backward the
 *                          addition of 2 dy1 and -dy1, 4 reads, 3 writes, 3 FLOPs
 *   max-pool               forward reads its input, writes its output; backward the reverse; window^2 FLOPs an output
 *   head                   average pool, then a matrix product as a convolution of one pixel; an auxiliary head of
 *                          images does its convolutions, batch norms and ReLUs before
 *   linear map             as a convolution of one pixel; a sample has one pixel per row
 *   layer norm             forward 1 read, 1 write, 8 FLOPs an element; backward 2 reads, 1 write, 12 FLOPs
 *   RMS norm               the same with 4 and 8 FLOPs
 *   GELU                   forward 1 read, 1 write, 10 FLOPs an element; backward 2 reads, 1 write, 16 FLOPs
 *   SwiGLU                 forward 2 reads, 1 write, 6 FLOPs for each feature of its output; backward 3 reads,
 *                          2 writes, 12 FLOPs
 *   rotary positions       1 read, 1 write, 3 FLOPs for each element of the queries and keys, both ways
 *   attention              forward 4 P C FLOPs on the matrix units for P pairs of positions (causal: T (T + 1) / 2,
 *                          else T^2) and C features, 5 FLOPs of the softmax for each pair and head; reads q, k, v,
 *                          writes y. k and v have fewer features than q if they have fewer heads.
 *                          Backward 10 P C (scores again, and one product for each of dv, dp, dq, dk); reads q, k, v,
 *                          y, dy, writes dq, dk, dv
 *   embedding              forward 2 reads (rows of both tables), 1 write, 1 FLOP an element; backward 2 reads of the
 *                          sequence, writes both tables, 2 FLOPs an element. Without positions: one table, a read and a
 *                          FLOP less. Of images: a linear map, and the addition of positions both ways
 *   head of a transformer  mean of two streams: as their addition, of 2 FLOPs an element; layer norm, linear map; mean
 *                          over positions
 *   update                 kernels of the optimiser (nn/optim.c); SGD: reads w, dw, v, writes w, v; 6 FLOPs
 *                          a parameter */
void petra_block_kernels(const petra_model *model, const petra_block *block, const petra_optim *optim, int64_t samples,
                         int64_t element_bytes, petra_kernel_list *out);

/* Adds a kernel that reads and writes this many elements. */
void petra_kernels_add(petra_kernel_list *kernels, petra_kernel_part part, bool matrix, double flops, double elements);

/* Returns the FLOPs of the convolutions and matrix products in the forward pass of one sample, two per multiply-add; a
 * causal attention has products for T (T + 1) / 2 pairs of positions. */
int64_t petra_block_flops(const petra_block *block);

/* Returns the work by which blocks are compared when they are divided (partitions, placements, groups): these FLOPs
 * and, since it takes time as well, the FLOPs of attention's softmax. *flops, unless it is NULL, is the work without
 * them. */
int64_t petra_block_work(const petra_block *block, int64_t *flops);

/* Returns the number of labels of one sample. */
int32_t petra_model_labels(const petra_model *model);

/* Returns the number of elements of all streams between two blocks, for one sample. */
int64_t petra_block_output_elements(const petra_block *block);
int64_t petra_block_input_elements(const petra_block *block);

/* Returns true if parameter `index` of the block (petra_block_parameter) has gradient 0 in exact arithmetic, so that
 * the computed gradient is rounding error. Such parameters are the shifts of a bottleneck's shortcuts: a shift adds a
 * constant to every channel of a stream. Up to the next downsampling block every path F begins with a 1x1 convolution
 * without padding, which turns constants into constants, and a batch norm, which removes them. At the downsampling
 * block the shortcuts do the same to the stream itself. After the last downsampling block the stream reaches the head,
 * and nothing is 0. The structure alone decides. */
bool petra_block_parameter_is_invariant(const petra_model *model, const petra_block *block, int index);

/* The partition of blocks into stages: one block per stage, an explicit list, or balanced by FLOPs. */

typedef struct petra_partition {
  int stages;
  int *first; /* stages + 1: stage j (from 0) holds blocks first[j] .. first[j + 1] - 1 (from 0) */
} petra_partition;

/* Makes the partition. `balanced` minimises the FLOPs (petra_block_work) of the most expensive stage over all
 * contiguous partitions into stages.count stages (dynamic programming; among equal partitions it takes the partition
 * whose later stages have the most work). Errors: PETRA_CONFIG, with the key: more stages than blocks, a list whose sum
 * is not the number of blocks, ...; PETRA_NO_MEMORY. After a failure nothing has to be released. */
petra_status petra_partition_init(petra_partition *partition, const petra_config *config, const petra_model *model);
void petra_partition_fini(petra_partition *partition);

/* Makes the partition `balanced` with `costs` (0 or more, one per block, their sum far below 2^63) instead of FLOPs;
 * NULL: FLOPs. */
petra_status petra_partition_balance(petra_partition *partition, const petra_config *config, const petra_model *model,
                                     const int64_t *costs);

/* Cuts a sequence of `count` items into `parts` parts of at least one item, so that the largest sum of costs (0 or
 * more, their sum far below 2^63) is minimal: part p has items first[p] .. first[p + 1] - 1. Among equal cuts it
 * chooses the cut whose later parts have the largest sums. Errors: PETRA_NO_MEMORY. */
petra_status petra_balanced_cut(const int64_t *costs, int count, int parts, int *first);

/* --- for model*.c alone: the families of models, one file each, and their common parts --- */

/* Make the blocks of a model whose family, depth, width and input are set. Errors: the errors of petra_model_init; the
 * caller releases blocks that exist after a failure. */
petra_status petra_resnet_make(petra_model *model, const petra_config *config);
petra_status petra_transformer_make(petra_model *model, const petra_config *config, int32_t vocabulary);

/* Returns true for llama and revllama. */
bool petra_family_is_llama(petra_family family);

/* Sets the members of a Llama's model that follow from the config: kv_heads, hidden, rotary_base. */
void petra_llama_set(petra_model *model, const petra_config *config);

/* Make the auxiliary head that reads the output of `last`; number and name are set. */
void petra_resnet_make_auxiliary(const petra_model *model, petra_block *block, const petra_block *last);
void petra_transformer_make_auxiliary(const petra_model *model, petra_block *block, const petra_block *last);

/* Returns the next block of the table, which has room for it. */
petra_block *petra_model_next_block(petra_model *model);

void petra_block_set_kind(petra_block *block, const petra_block_ops *ops);

/* Returns PETRA_CONFIG for the first of `keys` (ended by NULL) that does not have its default: the family does not use
 * it. */
petra_status petra_model_refuse_keys(const petra_config *config, const char *const *keys);
