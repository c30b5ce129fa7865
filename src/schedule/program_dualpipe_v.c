/* SPDX-License-Identifier: Apache-2.0 */
/* dualpipe-v: two stages a device in a V. In the middle of a flush a device overlaps the F of one of its stages with the
 * backward of the other: they are one step. Towards the end W is split from B and fills the time in which the device
 * would wait (DeepSeek-AI, DualPipe, "cut in half"). The order is that of at least 2 D microbatches; those that a
 * smaller flush lacks are left out. */
#include "schedule/flush_writer.h"
#include "schedule/program_order.h"

static petra_status write_device(petra_flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  const int64_t away = devices - 1 - above; /* number of devices between this one and the bottom of the V */
  for (int64_t i = 0; i < 2 * away; i++)
    PETRA_TRY(petra_write_forward(w, 0));
  for (int64_t i = 0; i <= above; i++) {
    PETRA_TRY(petra_write_forward(w, 0));
    PETRA_TRY(petra_write_forward(w, 1));
  }
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(petra_write_split_backward(w, 1));
    PETRA_TRY(petra_write_weight_gradient(w));
    PETRA_TRY(petra_write_forward(w, 1));
  }
  for (int64_t i = 0; i < microbatches - 2 * (int64_t)devices + above + 1; i++) {
    if (i == 0 && away == 0) { /* its own F comes first: the two cannot overlap */
      PETRA_TRY(petra_write_forward(w, 0));
      PETRA_TRY(petra_write_backward(w, 1));
    } else {
      PETRA_TRY(petra_write_overlapped(w, 0, 1));
    }
    PETRA_TRY(petra_write_overlapped(w, 1, 0));
  }
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(petra_write_backward(w, 1));
    PETRA_TRY(petra_write_overlapped(w, 1, 0));
  }
  for (int64_t i = 0; i < 2 * ((int64_t)above + 1); i++)
    PETRA_TRY(i <= above ? petra_write_backward(w, 1 - i % 2) : petra_write_split_backward(w, 1 - i % 2));
  for (int64_t i = 0; i < away; i++) {
    PETRA_TRY(petra_write_weight_gradient(w));
    PETRA_TRY(petra_write_split_backward(w, 0));
  }
  return petra_write_weight_gradients(w);
}

static petra_status write(const petra_program_options *options, const petra_order_costs *costs, petra_schedule **out) {
  (void)costs;
  return petra_write_v(options, write_device, "dualpipe-v", out);
}

const petra_program_ops petra_program_dualpipe_v = {.name = "dualpipe-v",
                                                    .repeats = true,
                                                    .moment = PETRA_MOMENT_WINDOW,
                                                    .split_head = true,
                                                    .split_backward = true,
                                                    .layout = PETRA_LAYOUT_V,
                                                    .next = petra_flush_list_next,
                                                    .write = write,
                                                    .check = petra_flush_check};
