/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/flush_writer.h"

#include "base/mem.h"

static petra_status init_writer(petra_flush_writer *writer, int64_t limit, int64_t microbatches) {
  *writer = (petra_flush_writer){.limit = limit};
  PETRA_TRY(petra_schedule_builder_init(&writer->builder));
  writer->builder.schedule->flush = true;
  return petra_allocate(&writer->owed, 2 * (size_t)microbatches, sizeof *writer->owed);
}

static void fini_writer(petra_flush_writer *writer) {
  petra_free(writer->owed);
  petra_schedule_builder_fini(&writer->builder);
}

static petra_status begin_device(petra_flush_writer *writer, int32_t stage_down, int32_t stage_up) {
  for (int chunk = 0; chunk < 2; chunk++)
    writer->forwards[chunk] = writer->backwards[chunk] = 0;
  writer->stage[0] = stage_down;
  writer->stage[1] = stage_up;
  writer->owed_first = writer->owed_count = 0;
  return petra_schedule_add_device(&writer->builder);
}

static petra_status add(petra_flush_writer *writer, petra_action action, bool joined) {
  if (action.microbatch >= writer->limit)
    return PETRA_OK;
  return petra_schedule_add(&writer->builder, (petra_schedule_entry){.action = action, .joined = joined});
}

static petra_status forward(petra_flush_writer *writer, int chunk, bool joined) {
  return add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_FORWARD, writer->forwards[chunk]++}, joined);
}

petra_status petra_write_forward(petra_flush_writer *writer, int chunk) {
  return forward(writer, chunk, false);
}

petra_status petra_write_backward(petra_flush_writer *writer, int chunk) {
  const int64_t microbatch = writer->backwards[chunk]++;
  PETRA_TRY(add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_BACKWARD, microbatch}, true));
  return add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_WEIGHT_GRADIENT, microbatch}, false);
}

petra_status petra_write_overlapped(petra_flush_writer *writer, int forward_chunk, int backward_chunk) {
  PETRA_TRY(forward(writer, forward_chunk, writer->backwards[backward_chunk] < writer->limit));
  return petra_write_backward(writer, backward_chunk);
}

petra_status petra_write_split_backward(petra_flush_writer *writer, int chunk) {
  const int64_t microbatch = writer->backwards[chunk]++;
  writer->owed[writer->owed_count++] = (petra_action){writer->stage[chunk], PETRA_ACTION_WEIGHT_GRADIENT, microbatch};
  return add(writer, (petra_action){writer->stage[chunk], PETRA_ACTION_BACKWARD, microbatch}, false);
}

petra_status petra_write_weight_gradient(petra_flush_writer *writer) {
  return writer->owed_first < writer->owed_count ? add(writer, writer->owed[writer->owed_first++], false) : PETRA_OK;
}

petra_status petra_write_weight_gradients(petra_flush_writer *writer) {
  while (writer->owed_first < writer->owed_count)
    PETRA_TRY(petra_write_weight_gradient(writer));
  return PETRA_OK;
}

petra_status petra_write_v(const petra_program_options *options, petra_v_device write_device, const char *name,
                           petra_schedule **out) {
  const int32_t devices = petra_program_devices(options);
  const int64_t microbatches = options->accumulate > 2 * devices ? options->accumulate : 2 * devices;
  petra_flush_writer w;
  petra_status status = init_writer(&w, options->accumulate, microbatches);
  for (int32_t d = 0; d < devices && status == PETRA_OK; d++) {
    status = begin_device(&w, d + 1, 2 * devices - d);
    if (status == PETRA_OK)
      status = write_device(&w, microbatches, devices, d);
  }
  if (status == PETRA_OK)
    status = petra_schedule_finish(&w.builder, name, out);
  fini_writer(&w);
  return status;
}
