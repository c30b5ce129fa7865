/* SPDX-License-Identifier: Apache-2.0 */
#include "training_rig.h"

#include "base/log.h"
#include "sim/executor_virtual.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pixels from a multiplicative hash of record and place; they tell records apart, which is all that is asked
 * of them. */
static petra_status read_record(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  for (int i = 0; i < 3 * set->height * set->width; i++) {
    uint32_t hash = ((uint32_t)index * 2654435761u + (uint32_t)i) * 2246822519u;
    pixels[i] = (uint8_t)((hash ^ hash >> 15) * 3266489917u >> 24);
  }
  *label = (int32_t)(index % set->classes);
  return PETRA_OK;
}

static petra_dataset make_set(int64_t count, int32_t image) {
  static const petra_dataset_ops ops = {.read = read_record};
  return (petra_dataset){.ops = &ops,
                         .count = count,
                         .height = image,
                         .width = image,
                         .classes = 10,
                         .mean = {0.5f, 0.5f, 0.5f},
                         .deviation = {0.25f, 0.25f, 0.25f}};
}

petra_status rig_executor(rig_cost cost, const petra_cost_rule *rule, int engines, petra_executor **out) {
  const petra_stage_cost all = {.forward_ns = cost.forward_ns,
                                .backward_ns = cost.backward_ns,
                                .reconstruct_ns = cost.reconstruct_ns,
                                .update_ns = cost.update_ns};
  const petra_executor_virtual_options options = {.engines = engines, .rule = *rule, .costs = &all, .cost_count = 1};
  return petra_executor_virtual_create(&options, out);
}

/* What a setting says, "" if it is not there. */
static const char *setting(const rig_options *options, const char *key) {
  for (int i = 0; i < options->set_count; i++)
    if (strncmp(options->sets[i], key, strlen(key)) == 0)
      return options->sets[i] + strlen(key);
  return "";
}

enum { MAX_SETS = 40, TEXT = 64 };

/* The settings of the options behind those of the test; `text` keeps what they say. */
static petra_status load_config(rig *r, const rig_options *options) {
  const bool imagenet = strcmp(setting(options, "model.stem="), "imagenet") == 0;
  const char *batch = setting(options, "data.batch=");
  char text[6][TEXT];
  const char *all[MAX_SETS] = {"data.set=imagefolder",
                               "data.shuffle=false",
                               "data.augment=[]",
                               "data.workers=1",
                               "run.seed=1",
                               "cluster.cost.model=constant", /* coprime */
                               "cluster.cost.forward_s=3e-9",
                               "cluster.cost.backward_s=7e-9",
                               "cluster.cost.weight_gradient_s=3e-9",
                               "cluster.cost.reconstruct_s=5e-9",
                               "cluster.cost.update_s=2e-9"};
  int n = 11;
  snprintf(text[0], TEXT, "data.image_size=%d", imagenet ? RIG_IMAGE_LARGE_STEM : RIG_IMAGE);
  snprintf(text[1], TEXT, "run.epochs=%lld", (long long)(options->microbatches / options->batches + 1));
  snprintf(text[2], TEXT, "run.max_microbatches=%lld", (long long)options->microbatches);
  snprintf(text[3], TEXT, "run.eval_every=%lld", (long long)options->eval_every);
  snprintf(text[4], TEXT, "run.drain=%s", options->drain ? "true" : "auto");
  snprintf(text[5], TEXT, "cluster.engines=%d", options->engines ? options->engines : 1);
  for (int i = 0; i < 6; i++)
    all[n++] = text[i];
  if (n + options->set_count > MAX_SETS)
    return petra_fail(PETRA_INTERNAL, "%d settings of a test; expected at most %d", n + options->set_count, MAX_SETS);
  for (int i = 0; i < options->set_count; i++)
    all[n++] = options->sets[i];
  r->train = make_set(options->batches * atoi(batch), imagenet ? RIG_IMAGE_LARGE_STEM : RIG_IMAGE);
  r->evaluation = make_set(options->eval_images, r->train.height);
  return petra_config_load(NULL, all, n, &r->config);
}

petra_status rig_open(rig *r, const rig_options *options) {
  memset(r, 0, sizeof *r);
  PETRA_TRY(load_config(r, options));
  const petra_run_options run = {.progress = PETRA_PROGRESS_QUIET, .train = &r->train, .evaluation = &r->evaluation};
  PETRA_TRY(petra_run_open(r->config, &run, &r->run));
  r->plan = petra_run_plan(r->run);
  r->network = petra_run_network(r->run);
  r->program = r->plan->program;
  if (options->observer)
    petra_run_observe_stages(r->run, options->observer);
  return PETRA_OK;
}

petra_status rig_run(rig *r, petra_trace_sink report, void *context) {
  petra_run_observe(r->run, sink_of(&r->reported, report, context));
  return petra_run_go(r->run);
}

void rig_close(rig *r) {
  petra_run_destroy(r->run);
  petra_config_destroy(r->config);
  memset(r, 0, sizeof *r);
}

petra_status rig_evaluate(rig *r, petra_evaluation *out) {
  return petra_network_evaluate(r->network, &r->evaluation, &r->train, out);
}
