/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives of oneDNN 2 or 3, convolutions and linear maps (inner products): describe, make, run. onednn*.c alone include oneDNN. */
#ifndef PETRA_BACKEND_CPU_ONEDNN_H
#define PETRA_BACKEND_CPU_ONEDNN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cpu_pass { CPU_FORWARD, CPU_BACKWARD_DATA, CPU_BACKWARD_WEIGHTS } cpu_pass;

/* What oneDNN is told of x, the stored weights and y: extents with the zero lanes, so that for it there is no padding, and
 * the layout that they lie in. Weights are stored in float. */
typedef enum cpu_onednn_layout {
  CPU_ONEDNN_NCHW,
  CPU_ONEDNN_NHWC,
  CPU_ONEDNN_NCHW8C,
  CPU_ONEDNN_NCHW16C,
  CPU_ONEDNN_OIHW,
  CPU_ONEDNN_OIHW8I8O,
  CPU_ONEDNN_OHWI8O,
  CPU_ONEDNN_OIHW8O, /* the input blocked alone */
  CPU_ONEDNN_OIHW16I16O,
  CPU_ONEDNN_OHWI16O,
  CPU_ONEDNN_OIHW16O,
  CPU_ONEDNN_ROWS, /* two extents: of x, y and the weights of a linear map */
} cpu_onednn_layout;

typedef struct cpu_onednn_memory {
  int64_t extent[4];
  cpu_onednn_layout layout;
  bool narrow; /* bf16 */
} cpu_onednn_memory;

typedef struct cpu_onednn_shape {
  cpu_pass pass;
  int stride, pad;   /* of a convolution */
  bool adds, biased; /* forward of a linear map: it is added to y, of floats; it has a bias */
  cpu_onednn_memory x, w, y;
} cpu_onednn_shape;

typedef struct cpu_onednn cpu_onednn;
typedef struct cpu_primitive cpu_primitive;

/* NULL is allowed in what destroys. PETRA_BACKEND, PETRA_NO_MEMORY, logged. */
petra_status cpu_onednn_create(cpu_onednn **out);
void cpu_onednn_destroy(cpu_onednn *library);

/* The block of channels that oneDNN's kernels for float want on this machine: 16 or 8; 1, plain NCHW, where it has none for all passes in
 * blocks (x86 below AVX2), for which it multiplies matrices. PETRA_NO_MEMORY: it could not be asked. */
petra_status cpu_onednn_block(cpu_onednn *library, int *out);

/* A primitive for the number of threads of the caller. `what` is what a failure's line says that there is none of. In bf16 oneDNN is
 * given the weights rounded, and their gradient comes in float: a convolution is where y is, a linear map always. */
petra_status cpu_primitive_create(cpu_onednn *library, const cpu_onednn_shape *shape, const char *what,
                                  cpu_primitive **out);
void cpu_primitive_destroy(cpu_primitive *primitive);

/* Bytes of scratch memory, aligned to 64 bytes, that a run needs. */
size_t cpu_primitive_scratch(const cpu_primitive *primitive);

/* Bytes of the weights as the primitive wants them; 0: as they are stored. */
size_t cpu_primitive_wanted(const cpu_primitive *primitive);

/* Whether two primitives want the weights in the same layout. */
bool cpu_primitive_want_same(const cpu_primitive *a, const cpu_primitive *b);

/* Makes `wanted` of the weights as stored; not for what computes their gradient. */
petra_status cpu_primitive_prepare(cpu_onednn *library, const cpu_primitive *primitive, void *w, void *wanted,
                                   void *scratch);

/* Where the operands of a run lie. */
typedef struct cpu_primitive_data {
  void *x, *w, *y; /* w: as stored */
  void *b;         /* float; NULL: none */
  void *wanted;    /* the weights as prepared; NULL: that is done here */
  void *scratch;
} cpu_primitive_data;

/* Computes one of x, w (as stored) and y from the two others. */
petra_status cpu_primitive_run(cpu_onednn *library, const cpu_primitive *primitive, const cpu_primitive_data *data);

/* Whether it has instructions for bf16 here: AVX512-BF16, or AMX with it. */
bool cpu_onednn_has_bf16(void);

/* "oneDNN 2.6.3, ISA avx512_core". */
void cpu_onednn_describe(char *text, size_t size);

#endif
