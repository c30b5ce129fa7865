/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries that compute: cuDNN and cuBLAS.
 *
 * Convolutions use cuDNN's backend (graph) API: a convolution is made once for each shape and kept. Only
 * cudnn_convolution.c and cudnn_graph.c include cuDNN's headers. A shape uses the configuration that cuDNN's heuristics
 * name first, or the measured configuration (cuda_convs_measure). */
#pragma once

#include "backend/cuda/cuda_kernels.h"
#include "base/status.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum cuda_conv_kind {
  CUDA_CONV_FORWARD, /* y from x, w */
  CUDA_CONV_DATA,    /* x (that is dx) from y (dy), w */
  CUDA_CONV_FILTER,  /* w (that is dw) from x, y (dy) */
} cuda_conv_kind;

/* The arrays of a convolution in the forward pass, or their gradients, and the array that a kind writes. */
enum { CUDA_CONV_X, CUDA_CONV_W, CUDA_CONV_Y, CUDA_CONV_ARRAYS };

static inline int cuda_conv_output(int kind) {
  return kind == CUDA_CONV_FORWARD ? CUDA_CONV_Y : kind == CUDA_CONV_DATA ? CUDA_CONV_X : CUDA_CONV_W;
}

/* x (n, h, w, c), filter (o, kh, kw, c), y (n, oh, ow, o): dense, channels last. Precision fp32 (strict), tf32:
 * tensors of f32. In bf16 all three are bf16 except those for which a `wide_` member is set; the products always
 * multiply bf16, and sums are f32. Bytes that are not set here must be 0, because shapes are compared byte by byte. */
typedef struct cuda_conv_shape {
  int32_t kind;      /* cuda_conv_kind */
  int32_t precision; /* petra_precision */
  int32_t n, c, h, w, o, kh, kw, stride, pad, oh, ow;
  int32_t wide_in;  /* bf16, not in a data gradient: x is f32, and rounded to bf16 (to nearest even) as it is read */
  int32_t wide_out; /* bf16: the output is f32 */
} cuda_conv_shape;

typedef struct cuda_convs cuda_convs; /* all convolutions of a backend */
typedef struct cuda_conv cuda_conv;

/* cuDNN's notes about an engine's arithmetic, as bits. */
enum {
  CUDA_ENGINE_NOTE_TENSOR_CORES = 1,
  CUDA_ENGINE_NOTE_NONDETERMINISTIC = 2,
  CUDA_ENGINE_NOTE_DOWN_CONVERTS = 4, /* inputs are converted to a smaller type than the precision's */
  CUDA_ENGINE_NOTE_REDUCED_SUMS = 8,  /* sums in less than f32 */
  CUDA_ENGINE_NOTE_WINOGRAD = 16,
  CUDA_ENGINE_NOTE_FFT = 32
};

/* A wide shape can be run in two ways. In the first, one cuDNN graph does everything, with an engine that is compiled
 * for it when the convolution is made (0.3 to 2 s on one core); the sum is then written without rounding. If cuDNN has
 * no such engine, kernels of our own convert before and after a plain bf16 convolution: its output is rounded to bf16
 * once and then widened. cuDNN 9.19, queried without a device, has no such engine for a filter gradient that rounds x,
 * nor for 3 channels (except for their forward pass with a wide output); if the process finds no `libcuda`, it has none
 * at all. */

/* Creates the convolutions with a handle of the current device or, if `deviceprop` (a device's properties as cuDNN
 * writes them in JSON) is not NULL, for that device, without a GPU: such convolutions can be made and queried, not run.
 * cuDNN's workspaces have at most `workspace_max` bytes; converted data need additional memory. `deterministic`:
 * excludes convolutions that cuDNN notes as nondeterministic. Always excludes convolutions that convert inputs down,
 * sum in less than f32, or transform (Winograd, FFT); in fp32 also those that use tensor cores. Errors: PETRA_BACKEND
 * without a device and with `deviceprop` NULL. */
petra_status cuda_convs_create(const char *deviceprop, bool deterministic, size_t workspace_max, cuda_convs **out);
void cuda_convs_destroy(cuda_convs *convs);

/* Sets the kinds (bits 1 << cuda_conv_kind) whose wide shapes may become one graph, for shapes found from now on;
 * initially the forward pass and the data gradient. For a filter gradient one graph would save a launch over a small
 * output, but on an H100 it could not use the engine made for that device, only a general one. This has not been
 * measured. */
void cuda_convs_fuse(cuda_convs *convs, unsigned kinds);

/* From now on shapes that `file` contains use its configurations (cudnn_private.h), and other shapes are measured. The
 * first 8 configurations that work (over all forms of a wide shape) each run once and then three more times, on
 * temporarily allocated device memory; the one with the smallest median (the first of equals) is chosen and added to
 * the file. Measuring waits for everything that the device does. cuda_convs_find does it when operations are described,
 * never within the capture of a CUDA graph. If cuDNN now has another configuration at the position that the file
 * records, a line says so and the shape is measured anew. If the device has too little memory for measuring, a line
 * says so once, and the heuristics choose. Errors: the errors of cuda_engine_table_open. Call it once, before any
 * convolution is found. */
petra_status cuda_convs_measure(cuda_convs *convs, const char *file);

/* Writes the choices for all shapes found so far, whether measured now or read from the file, in the format of
 * cuda_convs_measure's file; writes nothing if that was not called. */
void cuda_convs_print(const cuda_convs *convs, FILE *out);

/* Finds the convolution for a shape. The first call for a shape makes the convolution, by measuring (see above) or by
 * cuDNN's heuristics. The heuristics take the first engine configuration that finalizes, has the wanted notes and fits;
 * for a wide shape, a configuration with as many conversions in the graph as possible. The convolution lives as long as
 * `convs`. Errors: PETRA_UNSUPPORTED, logged with the shape, if there is no such configuration. */
petra_status cuda_convs_find(cuda_convs *convs, const cuda_conv_shape *shape, const cuda_conv **out);

size_t cuda_conv_workspace(const cuda_conv *conv);

/* Runs the convolution on the lane, including conversions. The workspace is the lane's scratch, of at least
 * cuda_conv_workspace bytes. x, w, y are as in the shape, each aligned to 16 bytes; the kind determines which of them
 * is the output. Waits for nothing, allocates no device memory, and may be captured into a CUDA graph. *ran: set to
 * false, without a line, if cuDNN does not run the convolution; NULL: that is a failure. */
petra_status cuda_conv_run(const cuda_conv *conv, const cuda_lane *lane, const void *x, const void *w, const void *y,
                           bool *ran);

/* Describes the library: "cuDNN 9.19.0". */
void cuda_cudnn_describe(char *text, size_t size);

/* Matrix products by cuBLAS. cublas.c is the only file that includes its header; it opens the library at the first
 * use. */

typedef struct cuda_blas cuda_blas;

/* Creates a handle that computes on the current device in the given precision: fp32, tf32 or bf16. Data are f32 in all
 * three; in bf16 the product rounds its inputs. `CUDA_BLAS_SCRATCH` bytes of the lane's scratch are used as
 * workspace. */
enum { CUDA_BLAS_SCRATCH = 32 << 20 };
petra_status cuda_blas_create(petra_precision precision, cuda_blas **out);
void cuda_blas_destroy(cuda_blas *blas);

/* Row-major: c (m, n) = alpha op(a) op(b) + beta c, where op(a) is (m, k) and op(b) is (k, n). If transposed, a is
 * stored as (k, m), b as (n, k). */
typedef struct cuda_product {
  const float *a, *b;
  float *c;
  int32_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
} cuda_product;
petra_status cuda_blas_product(cuda_blas *blas, const cuda_lane *lane, const cuda_product *product);

/* Describes the library: "cuBLAS 13.0.2", or says that it was not found. */
void cuda_blas_describe(char *text, size_t size);
