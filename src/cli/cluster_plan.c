#include "cli/cluster_plan.h"

#include "cli/cluster.h"
#include "data/shapes.h"

/* More actions than this take hours; whoever wants them says how many microbatches. */
static const int64_t many_actions = INT64_C(10000000000);

/* Microbatches of an epoch. CIFAR's training set and the generated one have the same number of images. */
static int64_t nominal_batches(const petra_config *config) {
  int64_t images = PETRA_SHAPES_TRAIN_COUNT;
  if (config->data.limit > 0 && config->data.limit < images)
    images = config->data.limit;
  int64_t batches = images / config->data.batch;
  return batches > 0 ? batches : 1;
}

static petra_status plan_stages(petra_setup *setup, const petra_config *config, int32_t *stages) {
  if (config->cluster.stages == 0) {
    PETRA_TRY(petra_setup_plan(setup, config));
    *stages = setup->partition.stages;
  } else {
    *setup = (petra_setup){.config = config};
    PETRA_TRY(petra_method_from_config(config, &setup->method));
    *stages = (int32_t)config->cluster.stages;
    petra_method_fit(&setup->method, *stages);
  }
  return petra_setup_read_schedule(setup, *stages);
}

petra_status petra_cluster_plan(petra_setup *setup, const petra_config *config, int64_t microbatches,
                                petra_program_options *out) {
  int32_t stages;
  *setup = (petra_setup){0};
  PETRA_TRY(plan_stages(setup, config, &stages));
  if (config->run.max_microbatches > 0)
    microbatches = config->run.max_microbatches;
  else if (microbatches == 0)
    microbatches = 16 * (int64_t)stages;
  if (microbatches > many_actions / (2 * stages))
    return petra_config_fail(config, "run.max_microbatches",
                             "%lld microbatches on %d stages are more than %lld actions; expected fewer microbatches",
                             (long long)microbatches, stages, (long long)many_actions);
  PETRA_TRY(petra_cluster_program(setup, stages, microbatches, nominal_batches(config), out));
  if (config->cluster.stages > 0)
    out->eval_every = 0; /* no model, nothing to evaluate */
  return PETRA_OK;
}
