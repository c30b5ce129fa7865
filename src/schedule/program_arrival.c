/* SPDX-License-Identifier: Apache-2.0 */
/* arrival: no order is fixed; the executor takes what has arrived (sim/executor_arrival.c). The rate is that of the
 * microbatch whose B triggers U. */
#include "schedule/program.h"

static int64_t delay(const petra_program_options *options, int32_t stage) {
  (void)options;
  (void)stage;
  return -1;
}

const petra_program_ops petra_program_arrival = {.name = "arrival",
                                                 .repeats = true,
                                                 .moment = PETRA_MOMENT_CLOCK,
                                                 .time = PETRA_TIME_STEADY,
                                                 .arrival = true,
                                                 .delay = delay};
