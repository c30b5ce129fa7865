/* SPDX-License-Identifier: Apache-2.0 */
/* v-half and v-min: two stages a device in a V, W split from B, with about a half and a third of the activations that the
 * first device of 1f1b keeps (Qi et al., "Pipeline parallelism with controllable memory"). The order repeats a building
 * block: the times of one microbatch, in units of F = B = W, every 6 units. W goes where the block leaves room. */
#include "schedule/flush_writer.h"
#include "schedule/order_search.h"
#include "schedule/program_order.h"

enum { PERIOD = 6 };

/* The times of F at chunks 0 and 1, then of B at chunks 1 and 0. */
typedef struct block {
  int64_t at[4];
} block;

static petra_status write_blocks(petra_flush_writer *w, int64_t microbatches, int32_t devices, const block *times) {
  for (int64_t t = 0; t < PERIOD * (microbatches + devices + 1); t++) {
    int pass = 0;
    while (pass < 4 && !(t >= times->at[pass] && (t - times->at[pass]) % PERIOD == 0 &&
                         (t - times->at[pass]) / PERIOD < microbatches))
      pass++;
    if (pass == 4)
      PETRA_TRY(petra_write_weight_gradient(w));
    else if (pass < 2)
      PETRA_TRY(petra_write_forward(w, pass));
    else
      PETRA_TRY(petra_write_split_backward(w, 3 - pass));
  }
  return petra_write_weight_gradients(w);
}

static petra_status write_half_device(petra_flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  const int64_t d = devices, i = above, gap = d % 2 == 0 ? 3 : 0;
  return write_blocks(w, microbatches, devices,
                      &(block){{2 * i, 3 * d - 2 - i, 3 * d - 1 + gap + 2 * i, 6 * d - 2 + gap - i}});
}

static petra_status write_min_device(petra_flush_writer *w, int64_t microbatches, int32_t devices, int32_t above) {
  const int64_t d = devices, i = above, gap = d % 3 == 0 ? 2 : 0;
  return write_blocks(w, microbatches, devices, &(block){{i, 2 * d - 1 - i, 2 * d + gap + i, 4 * d + gap - 1 - i}});
}

static petra_status write_half(const petra_program_options *options, const petra_order_costs *costs,
                               petra_schedule **out) {
  static const petra_order_rule rules[] = {{4, 2, false, 1}, {2, 3, false, 1}, {2, 2, false, 1}};
  return petra_order_find_v(options, costs, write_half_device, 2 * (((int64_t)petra_program_devices(options) + 2) / 2),
                            rules, 3, "v-half", out);
}

static petra_status write_min(const petra_program_options *options, const petra_order_costs *costs,
                              petra_schedule **out) {
  static const petra_order_rule rules[] = {{2, 2, false, 1}, {2, 2, true, 1}, {2, 2, false, 0}};
  return petra_order_find_v(options, costs, write_min_device, 2 * (((int64_t)petra_program_devices(options) + 4) / 3),
                            rules, 3, "v-min", out);
}

const petra_program_ops petra_program_v_half = {.name = "v-half",
                                                .repeats = true,
                                                .moment = PETRA_MOMENT_WINDOW,
                                                .split_head = true,
                                                .split_backward = true,
                                                .layout = PETRA_LAYOUT_V,
                                                .next = petra_flush_list_next,
                                                .write = write_half,
                                                .check = petra_flush_check};

const petra_program_ops petra_program_v_min = {.name = "v-min",
                                               .repeats = true,
                                               .moment = PETRA_MOMENT_WINDOW,
                                               .split_head = true,
                                               .split_backward = true,
                                               .layout = PETRA_LAYOUT_V,
                                               .next = petra_flush_list_next,
                                               .write = write_min,
                                               .check = petra_flush_check};
