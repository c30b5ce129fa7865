/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that petra train prints before it begins: what is trained, how, and where the results go. */
#pragma once

#include "nn/optim.h"
#include "setup/plan.h"

#include <stdio.h>

/* Prints the banner of a run whose first `done` microbatches are done, with the run's expected cost (run/estimate.h).
 * The last line is empty. Errors are those of the estimate. */
petra_status petra_banner_print(const petra_plan *plan, const petra_lr *lr, int64_t done, const char *folder,
                                FILE *out);
