/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the order of one flush, device by device, for programs with two stages a device: chunk 0, on the way down a V,
 * and chunk 1, on the way up. The microbatches of a chunk come in their order. Those from `limit` on are left out. */
#pragma once

#include "schedule/schedule.h"

typedef struct petra_flush_writer {
  petra_schedule_builder builder;
  int64_t limit;
  int32_t stage[2];
  int64_t forwards[2], backwards[2]; /* of the device's chunks, so far */
  petra_action *owed;                /* W of the split B */
  int64_t owed_first, owed_count;
} petra_flush_writer;

/* Writes one device of a V: `above` devices are between it and the top; it has `microbatches`, at least 2 D. */
typedef petra_status (*petra_v_device)(petra_flush_writer *writer, int64_t microbatches, int32_t devices,
                                       int32_t above);

/* Writes the devices of a V, one after the other. Microbatches from options->accumulate on are left
 * out. */
petra_status petra_write_v(const petra_program_options *options, petra_v_device write_device, const char *name,
                           petra_schedule **out);

petra_status petra_write_forward(petra_flush_writer *writer, int chunk);
/* A backward that is not split: B and W in one step. */
petra_status petra_write_backward(petra_flush_writer *writer, int chunk);
/* F of one chunk and the backward of the other, in one step. */
petra_status petra_write_overlapped(petra_flush_writer *writer, int forward_chunk, int backward_chunk);
/* B alone. */
petra_status petra_write_split_backward(petra_flush_writer *writer, int chunk);
/* W of the first split B whose W was not written; does nothing if there is none. */
petra_status petra_write_weight_gradient(petra_flush_writer *writer);
/* W of all of them. */
petra_status petra_write_weight_gradients(petra_flush_writer *writer);
