/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives of oneDNN for convolutions and, in bf16, for linear maps of sequences. They are made once per pass, shape
 * and geometry and kept in the handle, one set per lane. */
#pragma once

#include "backend/cpu/cpu.h"
#include "backend/cpu/onednn.h"

/* A convolution of activations (x, y) by a filter w, or a linear map of rows (sequences x and y) by a matrix w. The
 * pass decides which of the three is computed. */
typedef struct cpu_primitive_task {
  cpu_pass pass;
  petra_conv_geometry geometry; /* of a convolution */
  bool adds;                    /* forward of a linear map whose y has floats: adds to y */
  const petra_tensor *x, *w, *y;
  const petra_tensor *b; /* forward of a linear map: bias, or NULL */
} cpu_primitive_task;

/* Computes `out`, the one of x, w and y that the pass computes. Errors: PETRA_BACKEND, PETRA_NO_MEMORY, logged. */
petra_status cpu_primitive_do(petra_backend *backend, const cpu_primitive_task *task, petra_tensor *out);
