/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of oneDNN 2 or 3: describe, make, run. onednn*.c alone include oneDNN. */
#ifndef PETRA_BACKEND_CPU_ONEDNN_H
#define PETRA_BACKEND_CPU_ONEDNN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cpu_conv_operation {
  CPU_CONV_FORWARD,
  CPU_CONV_BACKWARD_DATA,
  CPU_CONV_BACKWARD_FILTER
} cpu_conv_operation;

/* What oneDNN is told of x, the stored filter and y: extents with the zero lanes, so that for it there is no padding, and
 * the layout that they lie in. The filter is stored in float. */
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
} cpu_onednn_layout;

typedef struct cpu_onednn_memory {
  int64_t extent[4];
  cpu_onednn_layout layout;
  bool narrow; /* bf16 */
} cpu_onednn_memory;

typedef struct cpu_onednn_shape {
  cpu_conv_operation operation;
  int stride, pad;
  cpu_onednn_memory x, w, y;
} cpu_onednn_shape;

typedef struct cpu_onednn cpu_onednn;
typedef struct cpu_onednn_conv cpu_onednn_conv;

/* NULL is allowed in what destroys. PETRA_BACKEND, PETRA_NO_MEMORY, logged. */
petra_status cpu_onednn_create(cpu_onednn **out);
void cpu_onednn_destroy(cpu_onednn *library);

/* A convolution for the number of threads of the caller. `what` is what a failure's line says that there is none of. Inputs are
 * in bf16 where y is; then oneDNN is given the filter rounded to bf16, and its gradient comes in float. */
petra_status cpu_onednn_conv_create(cpu_onednn *library, const cpu_onednn_shape *shape, const char *what,
                                    cpu_onednn_conv **out);
void cpu_onednn_conv_destroy(cpu_onednn_conv *conv);

/* Bytes of scratch memory, aligned to 64 bytes, that a run needs. */
size_t cpu_onednn_conv_scratch(const cpu_onednn_conv *conv);

/* Bytes of the filter as the convolution wants it; 0: as it is stored. */
size_t cpu_onednn_conv_wanted(const cpu_onednn_conv *conv);

/* Whether two convolutions want the filter in the same layout. */
bool cpu_onednn_conv_want_same(const cpu_onednn_conv *a, const cpu_onednn_conv *b);

/* Makes `wanted` of the filter as stored; not for what computes its gradient. */
petra_status cpu_onednn_conv_prepare(cpu_onednn *library, const cpu_onednn_conv *conv, void *w, void *wanted,
                                     void *scratch);

/* Computes one of x, w (as stored) and y from the two others. wanted: the filter as prepared; NULL: that is done here. */
petra_status cpu_onednn_conv_run(cpu_onednn *library, const cpu_onednn_conv *conv, void *x, void *w, void *wanted,
                                 void *y, void *scratch);

/* The block of channels that oneDNN's kernels for float want on this machine. */
int cpu_onednn_block(void);

/* Whether it has instructions for bf16 here: AVX512-BF16, or AMX with it. */
bool cpu_onednn_has_bf16(void);

/* "oneDNN 2.6.3, ISA avx512_core". */
void cpu_onednn_describe(char *text, size_t size);

#endif
