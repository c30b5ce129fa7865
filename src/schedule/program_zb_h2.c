/* SPDX-License-Identifier: Apache-2.0 */
/* zb-h2: one stage a device, W split from B. A device keeps up to 2 D - 1 microbatches, so that the first B come while it
 * still has F to do, and W fill the end (Qi et al., "Zero bubble pipeline parallelism"). */
#include "schedule/order_search.h"
#include "schedule/program_order.h"

static petra_status write(const petra_program_options *options, const petra_order_costs *costs, petra_schedule **out) {
  static const petra_order_rule rule = {.down = 2, .up = 2, .slack = -1};
  const petra_order_search_options search = {
      .options = options, .limit = 2 * (int64_t)options->stages - 1, .rules = &rule, .rule_count = 1};
  return petra_order_find(&search, costs, "zb-h2", out);
}

const petra_program_ops petra_program_zb_h2 = {.name = "zb-h2",
                                               .repeats = true,
                                               .moment = PETRA_MOMENT_WINDOW,
                                               .split_head = true,
                                               .split_backward = true,
                                               .layout = PETRA_LAYOUT_SINGLE,
                                               .next = petra_flush_list_next,
                                               .write = write,
                                               .check = petra_flush_check};
