/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of the stages, and the orders of programs that write them, without a plan. */
#pragma once

#include "harness.h"
#include "schedule/schedule.h"

enum { LAID_OUT_MAX = 256 }; /* stages */

/* Sets the devices and, if the program has them, the written orders of the options; they last until the next call. */
static inline void lay_out(const petra_program_ops *program, petra_program_options *options) {
  static int32_t device_of[LAID_OUT_MAX];
  static int64_t duration[LAID_OUT_MAX][PETRA_ACTION_KINDS];
  static petra_schedule *written;
  ck_assert_int_le(options->stages, LAID_OUT_MAX);
  const int32_t chunks = options->chunks > 0 ? options->chunks : 2;
  options->devices = program->layout == PETRA_LAYOUT_SINGLE ? options->stages : options->stages / chunks;
  options->device_of = device_of;
  for (int32_t j = 0; j < options->stages; j++) {
    device_of[j] = petra_layout_device(program->layout, options->devices, j + 1);
    duration[j][PETRA_ACTION_FORWARD] = duration[j][PETRA_ACTION_BACKWARD] = duration[j][PETRA_ACTION_WEIGHT_GRADIENT] =
        1;
  }
  if (!program->write)
    return;
  petra_schedule_destroy(written);
  const petra_order_costs costs = {.duration = (const int64_t(*)[PETRA_ACTION_KINDS])duration};
  ck_assert_int_eq(program->write(options, &costs, &written), PETRA_OK);
  options->data = written;
}
