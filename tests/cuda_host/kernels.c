/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/backend/cuda, compiled as C for the host. */
#define PETRA_CUDA_HOST
#include "backend/cuda/cuda_device.h"

#include "backend/cuda/cuda_elementwise.cu"
#include "backend/cuda/cuda_quantise.cu"
#include "backend/cuda/cuda_shuffle.cu"
#include "backend/cuda/cuda_norm.cu"
#include "backend/cuda/cuda_pool.cu"
#include "backend/cuda/cuda_layer_norm.cu"
#include "backend/cuda/cuda_loss.cu"
#include "backend/cuda/cuda_attention.cu"
#include "backend/cuda/cuda_embedding.cu"
#include "backend/cuda/cuda_optim.cu"
