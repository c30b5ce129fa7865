/* SPDX-License-Identifier: Apache-2.0 */
/* src/backend/cuda/cuda_device.h for the host: a launch builds a closure, hands it to petra_cuda_host_launch, and who has
 * that function runs it, at once or later, with petra_cuda_host_run.
 *
 * A flat kernel's threads are calls in a loop. A block kernel's threads are fibres: each runs up to its next
 * PETRA_SYNC, then the next does; so a missing barrier shows as a result that depends on the order of threads, and
 * shared memory, NaN bytes before every block, as one that depends on who wrote it. A barrier that some threads do
 * not reach ends the program with a message, and so does one in a flat kernel. */
#pragma once

#include "backend/cuda/cuda_kernels.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PETRA_CUDA_HOST_ARGUMENTS = 4096 }; /* bytes, CUDA's own limit */

typedef struct petra_cuda_host_closure {
  void (*call)(const void *arguments); /* the work of one thread */
  const char *name;
  int64_t blocks;
  int threads;
  bool waits; /* a block kernel */
  size_t size;
  _Alignas(16) unsigned char arguments[PETRA_CUDA_HOST_ARGUMENTS];
} petra_cuda_host_closure;

/* Given by the test: called by every launch. What is kept of the closure must be copied. */
void petra_cuda_host_launch(cuda_stream stream, const petra_cuda_host_closure *closure);

/* Runs all blocks, one after another. Launches from several threads wait for each other. */
void petra_cuda_host_run(const petra_cuda_host_closure *closure);

/* The order of blocks, and of threads between two barriers, of what is run from now on: from the last to the first,
 * or (as at the start) from the first to the last. */
void petra_cuda_host_reverse(bool reverse);

/* --- what the macros need --- */

/* The thread that runs. */
typedef struct petra_cuda_host_index {
  int64_t block, blocks;
  int thread, threads;
} petra_cuda_host_index;
extern petra_cuda_host_index petra_cuda_host_now;

void petra_cuda_host_sync(void);
void petra_cuda_host_enqueue(cuda_stream stream, void (*call)(const void *), const char *name, int64_t blocks,
                             int64_t threads, bool waits, const void *arguments, size_t size);

#define PETRA_DEVICE static inline
#define PETRA_ELEMENT_FUNCTION static inline

/* The structure makes the argument's declaration something whose value can be found in bytes; the argument is called
 * `a`. */
#define PETRA_KERNEL(name, ...)                                                                                        \
  struct name##_frame {                                                                                                \
    __VA_ARGS__;                                                                                                       \
  };                                                                                                                   \
  static void name(__VA_ARGS__);                                                                                       \
  static void name##_call(const void *frame) {                                                                         \
    name(((const struct name##_frame *)frame)->a);                                                                     \
  }                                                                                                                    \
  static void name(__VA_ARGS__)

#define PETRA_KERNEL_FILLING(blocks, name, ...) PETRA_KERNEL(name, __VA_ARGS__)

#define PETRA_LAUNCH_FLAT(lane, name, blocks, threads, ...)                                                            \
  petra_cuda_host_enqueue((lane)->stream, name##_call, #name, (blocks), (threads), false, &(__VA_ARGS__),              \
                          sizeof(__VA_ARGS__))
#define PETRA_LAUNCH_BLOCK(lane, name, blocks, threads, ...)                                                           \
  petra_cuda_host_enqueue((lane)->stream, name##_call, #name, (blocks), (threads), true, &(__VA_ARGS__),               \
                          sizeof(__VA_ARGS__))

/* All in one section, so that it can be filled before a block without being named. */
#define PETRA_SHARED static __attribute__((section("petra_shared")))
#define PETRA_SYNC() petra_cuda_host_sync()
/* Blocks run one after another. */
#define PETRA_COUNT(counter) ((*(counter))++)
#define PETRA_FRESH(value) (*(value))
#define PETRA_RSQRT(x) (1 / sqrtf(x))
#define PETRA_KEEP(x) ((void)(x))
#define PETRA_THREAD (petra_cuda_host_now.thread)
#define PETRA_BLOCK (petra_cuda_host_now.block)
#define PETRA_THREADS (petra_cuda_host_now.threads)
#define PETRA_BLOCKS (petra_cuda_host_now.blocks)
#define PETRA_UNROLL
#define PETRA_UNROLL_SOME
