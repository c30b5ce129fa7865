/* SPDX-License-Identifier: Apache-2.0 */
/* Products of tensors as commands of a segment. */
#ifndef PETRA_BACKEND_CUDA_PRODUCT_H
#define PETRA_BACKEND_CUDA_PRODUCT_H

#include "backend/cuda/segment.h"

/* c = alpha op(a) op(b) + beta c, of the rows of matrices or sequences; op transposes where that is said. */
petra_status cuda_multiply(cuda_backend *cuda, float alpha, const petra_tensor *a, bool transpose_a,
                           const petra_tensor *b, bool transpose_b, float beta, const petra_tensor *c);

#endif
