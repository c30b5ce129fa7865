/* What is planned without data, by petra simulate and petra schedule alike: so that an order which the one prints is
 * the one that the other runs. */
#ifndef PETRA_CLI_CLUSTER_PLAN_H
#define PETRA_CLI_CLUSTER_PLAN_H

#include "cli/setup.h"

/* Stages and method of the config, and the options of its program. The stages are the model's or, with
 * cluster.stages, so many and no model; the microbatches run.max_microbatches or, where that is 0, `microbatches`
 * (0: 16 a stage), or those of method.schedule. Epochs are those of the whole training set. Free with
 * petra_setup_fini, also after a failure. */
petra_status petra_cluster_plan(petra_setup *setup, const petra_config *config, int64_t microbatches,
                                petra_program_options *out);

#endif
