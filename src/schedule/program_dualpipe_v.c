/* SPDX-License-Identifier: Apache-2.0 */
/* dualpipe-v: two stages a device in a V. In the middle of a flush a device overlaps the F of one of its stages with the
 * backward of the other: they are one step. Towards the end W is split from B and fills the time in which the device
 * would wait (DeepSeek-AI, DualPipe, "cut in half"). The order is that of at least 2 D microbatches; those that a
 * smaller flush lacks are left out. */
#include "base/mem.h"
#include "schedule/program_order.h"
#include "schedule/schedule.h"

/* The order of a device under construction. Its chunks are 0, on the way down the V, and 1, on the way up. */
typedef struct writer {
  petra_schedule_builder *builder;
  int32_t stage[2];
  int64_t forwards[2], backwards[2]; /* of the chunks, so far */
  petra_action *owed;                /* W of the split B */
  int64_t owed_first, owed_count;
} writer;

static petra_status add(writer *w, petra_action action, bool joined) {
  return petra_schedule_add(w->builder, (petra_schedule_entry){.action = action, .joined = joined});
}

static petra_status forward(writer *w, int chunk, bool joined) {
  return add(w, (petra_action){w->stage[chunk], PETRA_ACTION_FORWARD, w->forwards[chunk]++}, joined);
}

/* A backward that is not split: B and W in one step. */
static petra_status backward(writer *w, int chunk) {
  const int64_t microbatch = w->backwards[chunk]++;
  PETRA_TRY(add(w, (petra_action){w->stage[chunk], PETRA_ACTION_BACKWARD, microbatch}, true));
  return add(w, (petra_action){w->stage[chunk], PETRA_ACTION_WEIGHT_GRADIENT, microbatch}, false);
}

static petra_status split_backward(writer *w, int chunk) {
  const int64_t microbatch = w->backwards[chunk]++;
  w->owed[w->owed_count++] = (petra_action){w->stage[chunk], PETRA_ACTION_WEIGHT_GRADIENT, microbatch};
  return add(w, (petra_action){w->stage[chunk], PETRA_ACTION_BACKWARD, microbatch}, false);
}

static petra_status weight_gradient(writer *w) {
  return add(w, w->owed[w->owed_first++], false);
}

static petra_status overlapped(writer *w, int forward_chunk, int backward_chunk) {
  PETRA_TRY(forward(w, forward_chunk, true));
  return backward(w, backward_chunk);
}

/* Writes the order of a device that is `away` devices from the bottom of the V and `above` ones from the top. */
static petra_status write_device(writer *w, int64_t microbatches, int32_t above, int32_t away) {
  const int64_t devices = (int64_t)above + away + 1;
  for (int64_t i = 0; i < 2 * away; i++)
    PETRA_TRY(forward(w, 0, false));
  for (int64_t i = 0; i <= above; i++) {
    PETRA_TRY(forward(w, 0, false));
    PETRA_TRY(forward(w, 1, false));
  }
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(split_backward(w, 1));
    PETRA_TRY(weight_gradient(w));
    PETRA_TRY(forward(w, 1, false));
  }
  for (int64_t i = 0; i < microbatches - 2 * devices + above + 1; i++) {
    if (i == 0 && away == 0) { /* its own F comes first: the two cannot overlap */
      PETRA_TRY(forward(w, 0, false));
      PETRA_TRY(backward(w, 1));
    } else {
      PETRA_TRY(overlapped(w, 0, 1));
    }
    PETRA_TRY(overlapped(w, 1, 0));
  }
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(backward(w, 1));
    PETRA_TRY(overlapped(w, 1, 0));
  }
  for (int64_t i = 0; i < 2 * ((int64_t)above + 1); i++)
    PETRA_TRY(i <= above ? backward(w, 1 - i % 2) : split_backward(w, 1 - i % 2));
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(weight_gradient(w));
    PETRA_TRY(split_backward(w, 0));
  }
  while (w->owed_first < w->owed_count)
    PETRA_TRY(weight_gradient(w));
  return PETRA_OK;
}

static petra_status write(const petra_program_options *options, const int64_t (*duration)[PETRA_ACTION_KINDS],
                          petra_schedule **out) {
  const int32_t devices = petra_program_devices(options);
  const int64_t microbatches = options->accumulate > 2 * devices ? options->accumulate : 2 * devices;
  petra_schedule_builder builder;
  petra_action *owed = NULL;
  petra_status status;
  (void)duration;
  PETRA_TRY(petra_schedule_builder_init(&builder));
  builder.schedule->flush = true;
  PETRA_TRY_GOTO(status, petra_allocate(&owed, 2 * (size_t)microbatches, sizeof *owed), done);
  for (int32_t d = 1; d <= devices; d++) {
    writer w = {.builder = &builder, .stage = {d, 2 * devices + 1 - d}, .owed = owed};
    PETRA_TRY_GOTO(status, petra_schedule_add_device(&builder), done);
    PETRA_TRY_GOTO(status, write_device(&w, microbatches, d - 1, devices - d), done);
  }
  status = petra_schedule_finish(&builder, "dualpipe-v", out);
done:
  petra_free(owed);
  petra_schedule_builder_fini(&builder);
  return status;
}

const petra_program_ops petra_program_dualpipe_v = {.name = "dualpipe-v",
                                                    .moment = PETRA_MOMENT_WINDOW,
                                                    .split_head = true,
                                                    .split_backward = true,
                                                    .layout = PETRA_LAYOUT_V,
                                                    .next = petra_flush_list_next,
                                                    .write = write,
                                                    .check = petra_flush_check};
