/* SPDX-License-Identifier: Apache-2.0 */
/* zb-v: two stages a device in a V, W split from B. A device keeps as many microbatches as the first device of 1f1b, and
 * waits only at the start of a flush or at its end if F, B and W take the same time (Qi et al., "Zero bubble pipeline
 * parallelism"). */
#include "schedule/flush_writer.h"
#include "schedule/order_search.h"
#include "schedule/program_order.h"

/* Writes a device of the order for equal costs; `above` devices are between it and the top of the V. */
static petra_status write_device(petra_flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  for (int64_t i = 0; i < 2 * ((int64_t)devices - above) - 1; i++)
    PETRA_TRY(petra_write_forward(w, 0));
  for (int64_t i = 0; i < above; i++) {
    PETRA_TRY(petra_write_forward(w, 1));
    PETRA_TRY(petra_write_forward(w, 0));
  }
  for (int64_t i = 0; i < devices - above; i++) {
    PETRA_TRY(petra_write_forward(w, 1));
    PETRA_TRY(petra_write_split_backward(w, 1));
    PETRA_TRY(petra_write_weight_gradient(w));
  }
  while (w->forwards[1] < microbatches) {
    if (w->forwards[0] < microbatches)
      PETRA_TRY(petra_write_forward(w, 0));
    PETRA_TRY(petra_write_split_backward(w, 0));
    PETRA_TRY(petra_write_weight_gradient(w));
    PETRA_TRY(petra_write_forward(w, 1));
    PETRA_TRY(petra_write_split_backward(w, 1));
    PETRA_TRY(petra_write_weight_gradient(w));
  }
  while (w->backwards[0] < microbatches) { /* B first; W if B cannot follow at once */
    PETRA_TRY(petra_write_split_backward(w, 0));
    if (w->backwards[1] < microbatches)
      PETRA_TRY(petra_write_split_backward(w, 1));
    else
      PETRA_TRY(petra_write_weight_gradient(w));
  }
  return petra_write_weight_gradients(w);
}

static petra_status write(const petra_program_options *options, const petra_order_costs *costs, petra_schedule **out) {
  static const petra_order_rule rule = {.down = 3, .up = 3, .slack = -1};
  return petra_order_find_v(options, costs, write_device, 2 * (int64_t)petra_program_devices(options), &rule, 1, "zb-v",
                            out);
}

const petra_program_ops petra_program_zb_v = {.name = "zb-v",
                                              .repeats = true,
                                              .moment = PETRA_MOMENT_WINDOW,
                                              .split_head = true,
                                              .split_backward = true,
                                              .layout = PETRA_LAYOUT_V,
                                              .next = petra_flush_list_next,
                                              .write = write,
                                              .check = petra_flush_check};
