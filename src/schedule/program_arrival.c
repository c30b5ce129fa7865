/* arrival: no order is fixed; the executor takes what has arrived (sim/executor_arrival.c). The rate is that of the
 * microbatch whose B triggers U. */
#include "schedule/program.h"

static int64_t rate_index(const petra_program_options *options, int32_t stage, int64_t microbatch) {
  (void)options;
  (void)stage;
  return microbatch;
}

static int64_t loss_epoch(const petra_program_options *options, int64_t microbatch) {
  return microbatch / options->batches;
}

const petra_program_ops petra_program_arrival = {
    .name = "arrival", .arrival = true, .rate_index = rate_index, .loss_epoch = loss_epoch};
