/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/backend/cuda, compiled as C for the host. */
#define PETRA_CUDA_HOST
#include "backend/cuda/device.h"

#include "backend/cuda/elementwise.cu"
#include "backend/cuda/shuffle.cu"
#include "backend/cuda/norm.cu"
#include "backend/cuda/pool.cu"
#include "backend/cuda/head.cu"
#include "backend/cuda/sgd.cu"
#include "backend/cuda/adam.cu"
#include "backend/cuda/orthogonal.cu"
#include "backend/cuda/augment.cu"
