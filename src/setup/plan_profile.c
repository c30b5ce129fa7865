/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model `profile`: costs from a file of `petra profile`, which must describe this network. */
#include "base/log.h"
#include "setup/plan.h"
#include "io/profile_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)PETRA_PROFILE_PARTS == PETRA_COST_PARTS, "the parts of a profile are those of a cost");

static const char key[] = "cluster.cost.profile";

void petra_plan_describe_profile(const petra_plan *plan, petra_profile *out) {
  const petra_config *config = plan->config;
  const petra_model *model = &plan->model;
  const bool tokens = model->input.kind == PETRA_TENSOR_SEQUENCE;
  snprintf(out->family, sizeof out->family, "%s", petra_config_choice_name("model.family", (int)config->model.family));
  snprintf(out->downsample, sizeof out->downsample, "%s",
           petra_config_choice_name("model.downsample", (int)config->model.downsample));
  snprintf(out->shape, sizeof out->shape, "%s", petra_config_choice_name("model.shape", (int)config->model.shape));
  snprintf(out->bottleneck, sizeof out->bottleneck, "%s",
           petra_config_choice_name("model.bottleneck", (int)config->model.bottleneck));
  snprintf(out->coupling, sizeof out->coupling, "%s",
           petra_config_choice_name("model.coupling", (int)config->model.coupling));
  snprintf(out->stem, sizeof out->stem, "%s", petra_config_choice_name("model.stem", (int)config->model.stem));
  snprintf(out->precision, sizeof out->precision, "%s",
           petra_config_choice_name("device.precision", (int)config->device.precision));
  out->depth = model->depth;
  out->width = model->width;
  out->classes = model->classes;
  out->image_height = tokens ? 0 : model->input.height;
  out->image_width = tokens ? 0 : model->input.width;
  out->context = tokens ? model->input.positions : 0;
  out->heads = model->heads;
  out->kv_heads = model->kv_heads;
  out->hidden = model->hidden;
  out->patch = model->patch;
  out->batch = (int32_t)config->data.batch;
}

/* Checks that the network that was timed is the network of the plan. */
static petra_status check_network(const petra_plan *plan) {
  const petra_config *config = plan->config;
  const petra_profile *profile = plan->profile;
  petra_profile own = {0};
  int64_t blocks = 0;
  petra_plan_describe_profile(plan, &own);
  const struct {
    const char *what, *found, *expected; /* texts; NULL: numbers */
    int32_t found_number, expected_number;
  } all[] = {{"model.family", profile->family, own.family, 0, 0},
             {"model.depth", NULL, NULL, profile->depth, own.depth},
             {"model.width", NULL, NULL, profile->width, own.width},
             {"model.stem", profile->stem, own.stem, 0, 0},
             {"model.shape", profile->shape, own.shape, 0, 0},
             {"model.bottleneck", profile->bottleneck, own.bottleneck, 0, 0},
             {"model.downsample", profile->downsample, own.downsample, 0, 0},
             {"model.classes", NULL, NULL, profile->classes, own.classes},
             {"model.context", NULL, NULL, profile->context, own.context},
             {"model.heads", NULL, NULL, profile->heads, own.heads},
             {"model.kv_heads", NULL, NULL, profile->kv_heads, own.kv_heads},
             {"model.hidden", NULL, NULL, profile->hidden, own.hidden},
             {"model.coupling", profile->coupling, own.coupling, 0, 0},
             {"model.patch", NULL, NULL, profile->patch, own.patch},
             {"image height", NULL, NULL, profile->image_height, own.image_height},
             {"image width", NULL, NULL, profile->image_width, own.image_width},
             {"data.batch", NULL, NULL, profile->batch, own.batch},
             {"device.precision", profile->precision, own.precision, 0, 0}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    const char *what = all[i].what;
    if (all[i].found && strcmp(all[i].found, all[i].expected) != 0)
      return petra_config_fail(config, key, "%s: a profile with %s: %s; expected one with %s: %s",
                               config->cluster.cost.profile, what, all[i].found, what, all[i].expected);
    if (all[i].found_number != all[i].expected_number)
      return petra_config_fail(config, key, "%s: a profile with %s: %d; expected one with %s: %d",
                               config->cluster.cost.profile, what, all[i].found_number, what, all[i].expected_number);
  }
  for (int32_t j = 0; j < profile->stages; j++)
    blocks += profile->stage[j].blocks;
  if (blocks != plan->model.block_count)
    return petra_fail(PETRA_DATA, "%s: /stages/blocks: %lld blocks together; expected %d, those of the network",
                      config->cluster.cost.profile, (long long)blocks, plan->model.block_count);
  return PETRA_OK;
}

petra_status petra_plan_load_profile(petra_plan *plan) {
  const petra_config *config = plan->config;
  if (plan->profile || config->cluster.cost.model != PETRA_COST_PROFILE)
    return PETRA_OK;
  if (config->cluster.stages > 0)
    return petra_config_fail(config, "cluster.cost.model",
                             "profile with cluster.stages, which have no model to look up; expected unit or constant");
  if (!*config->cluster.cost.profile)
    return petra_config_fail(config, key,
                             "empty with cluster.cost.model: profile; expected a file that `petra profile` wrote");
  PETRA_TRY(petra_profile_read(config->cluster.cost.profile, &plan->profile));
  return check_network(plan);
}

bool petra_plan_block_times(const petra_plan *plan, int64_t *nanoseconds) {
  const petra_profile *profile = plan->profile;
  if (profile->stages != plan->model.block_count)
    return false;
  for (int b = 0; b < profile->stages; b++) {
    const petra_spread *part = profile->stage[b].part;
    bool rebuilt = plan->method.recomputes && b < profile->stages - 1; /* all stages recompute except the fused head */
    nanoseconds[b] = petra_nanoseconds(part[PETRA_PROFILE_FORWARD].mean + part[PETRA_PROFILE_BACKWARD].mean +
                                       (rebuilt ? part[PETRA_PROFILE_RECONSTRUCT].mean : 0));
  }
  return true;
}

/* Finds the rows of the profile for stage `stage`: [*first, *end). */
static petra_status find_rows(const petra_plan *plan, int stage, int *first, int *end) {
  const petra_profile *profile = plan->profile;
  const petra_partition *partition = &plan->partition;
  *first = partition->first[stage];
  *end = partition->first[stage + 1];
  if (profile->stages == plan->model.block_count) /* one block per stage */
    return PETRA_OK;
  if (profile->stages != partition->stages)
    return petra_config_fail(
        plan->config, key, "%s: a profile of %d stages; expected one of %d, or one with one block per stage (%d)",
        plan->config->cluster.cost.profile, (int)profile->stages, partition->stages, plan->model.block_count);
  if (profile->stage[stage].blocks != *end - *first)
    return petra_config_fail(
        plan->config, key,
        "%s: a profile whose stage %d has %d blocks; expected one whose stage has %d, or one with one block per stage",
        plan->config->cluster.cost.profile, stage + 1, (int)profile->stage[stage].blocks, *end - *first);
  *first = stage;
  *end = stage + 1;
  return PETRA_OK;
}

double petra_spread_at(const petra_spread *spread, petra_profile_statistic statistic) {
  if (statistic == PETRA_PROFILE_QUARTILE1)
    return spread->quartile1 < spread->mean ? fmax(spread->quartile1, 0) : spread->mean;
  return statistic == PETRA_PROFILE_QUARTILE3 ? fmax(spread->quartile3, spread->mean) : spread->mean;
}

static double value_of(const petra_profile_stage *stage, int part, petra_profile_statistic statistic) {
  const double value = petra_spread_at(&stage->part[part], statistic);
  return statistic == PETRA_PROFILE_ALONE ? fmin(stage->alone_s[part], value) : value;
}

petra_status petra_plan_profile_cost(const petra_plan *plan, int stage, petra_profile_statistic statistic,
                                     petra_stage_cost *out) {
  int first, end;
  double sum[PETRA_PROFILE_PARTS] = {0};
  PETRA_TRY(find_rows(plan, stage, &first, &end));
  for (int row = first; row < end; row++)
    for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
      sum[part] += value_of(&plan->profile->stage[row], part, statistic);
  sum[PETRA_PROFILE_WEIGHT_GRADIENT] = fmin(sum[PETRA_PROFILE_WEIGHT_GRADIENT], sum[PETRA_PROFILE_BACKWARD]);
  for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
    out->ns[part] = petra_nanoseconds(sum[part]);
  return PETRA_OK;
}
