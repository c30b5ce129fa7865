/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/backend/cuda, compiled as C for the host. */
#define PETRA_CUDA_HOST
#include "backend/cuda/device.h"

#include "backend/cuda/elementwise.cu"
#include "backend/cuda/quantise.cu"
#include "backend/cuda/shuffle.cu"
#include "backend/cuda/norm.cu"
#include "backend/cuda/norm_backward.cu"
#include "backend/cuda/pool.cu"
#include "backend/cuda/linear.cu"
#include "backend/cuda/loss.cu"
#include "backend/cuda/layer_norm.cu"
#include "backend/cuda/attention.cu"
#include "backend/cuda/embedding.cu"
#include "backend/cuda/optim.cu"
