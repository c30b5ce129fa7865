/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives of oneDNN 2 or 3 for convolutions and linear maps (inner products): describe, make, run. */
#pragma once

#include "backend/cpu/cpu.h"
#include "base/status.h"

#include <oneapi/dnnl/dnnl_types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cpu_pass { CPU_FORWARD, CPU_BACKWARD_DATA, CPU_BACKWARD_WEIGHTS } cpu_pass;

/* The description of x, the stored weights and y for oneDNN: extents including the zero lanes, so that oneDNN sees no
 * padding, and the layout. Weights are stored in float. */
typedef struct cpu_onednn_memory {
  int64_t extent[4];
  dnnl_format_tag_t layout; /* dnnl_ab: of a linear map, which has two extents for x, y and the weights */
  bool narrow;              /* bf16 */
} cpu_onednn_memory;

typedef struct cpu_onednn_shape {
  cpu_pass pass;
  int stride, pad;   /* of a convolution */
  bool adds, biased; /* forward of a linear map: adds to y, which has floats; has a bias */
  cpu_onednn_memory x, w, y;
} cpu_onednn_shape;

typedef struct cpu_primitive cpu_primitive;

/* Functions that destroy accept NULL. Errors: PETRA_BACKEND, PETRA_NO_MEMORY, logged. */
petra_status cpu_onednn_create(cpu_onednn **out);
void cpu_onednn_destroy(cpu_onednn *library);

/* cpu_convolution.c: destroys the primitives of a lane. */
void cpu_primitives_destroy(cpu_lane *lane);

/* Gets the block of channels that oneDNN's kernels for float require on this machine: 16 or 8; 1, plain NCHW, if oneDNN
 * does not have blocked kernels for all passes (x86 below AVX2); it then multiplies matrices. Errors: PETRA_NO_MEMORY:
 * the block could not be determined. */
petra_status cpu_onednn_block(cpu_onednn *library, int *out);

/* Makes a primitive for the caller's number of threads. `what` names the primitive in the line of a failure. In bf16
 * oneDNN receives rounded weights and returns their gradient in float: a convolution does so if y is bf16, a linear map
 * always. */
petra_status cpu_primitive_create(cpu_onednn *library, const cpu_onednn_shape *shape, const char *what,
                                  cpu_primitive **out);
void cpu_primitive_destroy(cpu_primitive *primitive);

/* Returns the bytes of scratch memory, aligned to 64 bytes, that a run needs. */
size_t cpu_primitive_scratch(const cpu_primitive *primitive);

/* Returns the bytes of the weights in the form that the primitive requires; 0: the form in which they are stored. */
size_t cpu_primitive_wanted(const cpu_primitive *primitive);

/* Returns true if two primitives require the weights in the same layout. */
bool cpu_primitive_want_same(const cpu_primitive *a, const cpu_primitive *b);

/* Converts the stored weights into `wanted`, the layout and type that the primitive requires; not for a primitive that
 * computes the weights' gradient. */
petra_status cpu_primitive_prepare(cpu_onednn *library, const cpu_primitive *primitive, void *w, void *wanted,
                                   void *scratch);

/* The operands of a run. */
typedef struct cpu_primitive_data {
  void *x, *w, *y; /* w: as stored */
  void *b;         /* float; NULL: none */
  void *wanted;    /* the prepared weights; NULL: the run prepares them */
  void *scratch;
} cpu_primitive_data;

/* Computes one of x, w (as stored) and y from the two others. */
petra_status cpu_primitive_run(cpu_onednn *library, const cpu_primitive *primitive, const cpu_primitive_data *data);

/* Returns true if this machine has instructions for bf16: AVX512-BF16, or AMX with bf16. */
bool cpu_onednn_has_bf16(void);

/* Describes the library: "oneDNN 2.6.3, ISA avx512_core". */
void cpu_onednn_describe(char *text, size_t size);

/* --- cpu_convolution.c: primitives for convolutions and, in bf16, for linear maps of sequences. They are made once per
 * pass, shape and geometry and kept by the lane. --- */

/* A convolution of activations (x, y) by a filter w, or a linear map of rows (sequences x and y) by a matrix w. The
 * pass determines which of the three is computed. */
typedef struct cpu_primitive_task {
  cpu_pass pass;
  petra_conv_geometry geometry; /* of a convolution */
  bool adds;                    /* forward of a linear map whose y has floats: adds to y */
  const petra_tensor *x, *w, *y;
  const petra_tensor *b; /* forward of a linear map: bias, or NULL */
} cpu_primitive_task;

/* Computes `out`, which is the tensor among x, w and y that the pass computes. Errors: PETRA_BACKEND, PETRA_NO_MEMORY,
 * logged. */
petra_status cpu_primitive_do(petra_backend *backend, const cpu_primitive_task *task, petra_tensor *out);
