/* SPDX-License-Identifier: Apache-2.0 */
/* A fake of NCCL for tests, between processes of one host or within one, over the fake of CUDA's runtime beside it.
 *
 * - A send on a stream is done only when the matching receive has come to be the next operation of its own stream, and a receive
 *   only when all has come: nothing is buffered. What of the two comes first waits a few looks longer, by the seed. Operations of
 *   a communicator go in order. So orders that a real device might survive by luck, hang here.
 * - Where a process has died, the other end's operation hangs, as that of a real one may.
 * - Only what petra uses: communicators of two ranks that do not block (config.blocking 0), each used on one stream and in one
 *   direction, from rank 0 to rank 1. What goes beyond answers ncclInvalidUsage, as do two ranks with one device.
 * - The end of a group is often still under way when ncclGroupEnd returns (ncclInProgress): the operations are on their streams
 *   only when ncclCommGetAsyncError has said so.
 * - From the first communicator on, the streams of the process run by themselves. */
#pragma once

#include <nccl.h>
#include <stdint.h>

/* The n-th operation from now on of this process (0: none) is never done, and its communicator has the asynchronous error
 * ncclSystemError. At first the number in the environment variable PETRA_NCCL_HOST_BREAK. */
void petra_nccl_host_break(int64_t n);

typedef struct petra_nccl_host_counts {
  int64_t groups, operations, communicators; /* groups that had operations; communicators that there are now */
} petra_nccl_host_counts;
petra_nccl_host_counts petra_nccl_host_count(void);
