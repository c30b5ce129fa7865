/* SPDX-License-Identifier: Apache-2.0 */
/* Data on its way between host and device, through pinned memory.
 *
 * Tensors go up ahead on a stream of their own; the segment that unpacks them waits for the copy. Small values that
 * change while launches stay the same (rates, labels) have fixed places on the device, by lane, kind of action and
 * order in it, and are copied before a segment if they differ from what lies there. */
#pragma once

#include "backend/cuda/cuda.h"

enum { CUDA_VALUES_BYTES = 1 << 18 }; /* room for the values of a segment: labels of 65,536 tokens */

petra_status cuda_transfer_create(cuda_transfer **out);
void cuda_transfer_destroy(cuda_transfer *transfer);

/* Memory for `bytes` that go up: the caller fills *pinned, then calls cuda_send, and describes the command that
 * reads *device. */
petra_status cuda_stage(cuda_backend *cuda, size_t bytes, void **pinned, void **device);
petra_status cuda_send(cuda_backend *cuda, size_t bytes);

/* Gets where the segment's launches will find this value on the device. */
petra_status cuda_value(cuda_backend *cuda, const void *value, size_t bytes, const void **device);

/* Called at the start of every segment, on its lane: transfers what the segment needs. */
petra_status cuda_transfer_before(cuda_backend *cuda);

/* Device memory of the lane for a result of at most 64 bytes, until the next result; and what is to come down. */
petra_status cuda_result(cuda_backend *cuda, void **device);
petra_status cuda_receive(cuda_backend *cuda, size_t bytes, void **device);

/* Device memory of the lane for a result that is copied down after the segment and waited for later; once the
 * command that writes it was added, cuda_late_ticket gives the ticket for cuda_collect_result (64 bytes). A ticket
 * is good until three others were given. */
petra_status cuda_late_result(cuda_backend *cuda, void **device);
int64_t cuda_late_ticket(cuda_backend *cuda);
petra_status cuda_collect_result(cuda_backend *cuda, int64_t ticket, const void **host);

/* After the launches of every segment, on its lane. */
petra_status cuda_transfer_after(cuda_backend *cuda);

/* Submits what was described so far and gives `bytes` from the device to the host once they are there. *host is valid
 * until the next call. */
petra_status cuda_fetch(cuda_backend *cuda, const void *device, size_t bytes, const void **host);
