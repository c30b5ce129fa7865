/* SPDX-License-Identifier: Apache-2.0 */
/* What petra train says before it begins: what is trained, how, and where it goes. */
#pragma once

#include "nn/rate.h"
#include "plan/plan.h"

#include <stdio.h>

/* Of a run of which the first `done` microbatches are done. Lines, the last of them empty, with what the run is expected to take (run/estimate.h). Errors: those of the estimate. */
petra_status petra_header_print(const petra_plan *plan, const petra_lr *lr, int64_t done, const char *folder,
                                FILE *out);
