/* SPDX-License-Identifier: Apache-2.0 */
/* The language of the kernels: CUDA C++ under nvcc; plain C in tests, where tests/cuda_host runs blocks and threads on
 * the host. A kernel file uses only what is valid in both.
 *
 *   PETRA_KERNEL(name, const cuda_fill_args a) { ... }   a kernel with one argument structure by value
 *   PETRA_KERNEL_FILLING(blocks, name, const ... a)      the same, with its registers limited so that `blocks` blocks
 *                                                        of 256 threads fit on a multiprocessor
 *   PETRA_LAUNCH_FLAT(lane, name, blocks, threads, a)    of a kernel whose threads never wait for each other
 *   PETRA_LAUNCH_BLOCK(lane, name, blocks, threads, a)   of one that uses PETRA_SYNC or PETRA_SHARED
 *
 * If the last of several blocks continues with what all of them have stored: one thread of each calls
 * PETRA_COUNT(&counter) between two PETRA_SYNC, which increments a counter in device memory and returns its old value;
 * what a block has stored before it is there for those that count later, which read it with PETRA_FRESH(&value).
 *
 * PETRA_RSQRT(x) is 1 / sqrt(x) in float, to two units in the last place.
 *
 * PETRA_KEEP(x) has a double that was converted from a float kept, where the compiler would convert it again at each use.
 *
 * A launch function ends with `return cuda_launched("name");`. PETRA_THREAD, PETRA_BLOCK, PETRA_THREADS and
 * PETRA_BLOCKS are threadIdx.x, blockIdx.x, blockDim.x and gridDim.x: everything is one-dimensional. PETRA_UNROLL goes
 * before loops with a small, constant number of iterations, PETRA_UNROLL_SOME before loops with many. A kernel's
 * argument is called `a` and has at most 4 KiB. */
#pragma once

#include "backend/cuda/kernels.h"

#ifdef PETRA_CUDA_HOST
#include <cuda_host/device.h>
#else

#include <cuda_runtime.h>

#define PETRA_DEVICE static __device__ __forceinline__
#define PETRA_ELEMENT_FUNCTION static __device__ __forceinline__
#define PETRA_KERNEL(name, ...) static __global__ void name(__VA_ARGS__)
#define PETRA_KERNEL_FILLING(blocks, name, ...) static __global__ void __launch_bounds__(256, blocks) name(__VA_ARGS__)
#define PETRA_LAUNCH_FLAT(lane, name, blocks, threads, ...)                                                            \
  name<<<(unsigned)(blocks), (unsigned)(threads), 0, (lane)->stream>>>(__VA_ARGS__)
#define PETRA_LAUNCH_BLOCK PETRA_LAUNCH_FLAT
#define PETRA_SHARED __shared__
#define PETRA_SYNC() __syncthreads()
/* Releases and acquires; atomicAdd between two __threadfence() would order all memory twice, and sequentially consistent. */
PETRA_DEVICE unsigned petra_count(unsigned *counter) {
  unsigned old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return old;
}
#define PETRA_COUNT(counter) petra_count(counter)
#define PETRA_FRESH(value) __ldcg(value)
#define PETRA_RSQRT(x) rsqrtf(x)
#define PETRA_KEEP(x) asm("" : "+d"(x))
#define PETRA_THREAD ((int)threadIdx.x)
#define PETRA_BLOCK ((int64_t)blockIdx.x)
#define PETRA_THREADS ((int)blockDim.x)
#define PETRA_BLOCKS ((int64_t)gridDim.x)
#define PETRA_UNROLL _Pragma("unroll")
#define PETRA_UNROLL_SOME _Pragma("unroll 4")

#endif
