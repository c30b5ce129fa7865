/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe_source.h"

static petra_stage *stage_of(const petra_probe_source *source, int32_t stage) {
  return petra_stages_get(&((const petra_probe_stages *)source)->stages, stage);
}

static int64_t version(const petra_probe_source *source, int32_t stage) {
  return petra_stage_version(stage_of(source, stage));
}

static int64_t version_forward(const petra_probe_source *source, int32_t stage) {
  return petra_stage_version_forward(stage_of(source, stage));
}

static petra_status weights(const petra_probe_source *source, int32_t stage, petra_weights_key key, int block,
                            const petra_tensor_set **out) {
  return petra_stage_version_tensors(stage_of(source, stage), key, block, out);
}

static bool predicts(const petra_probe_source *source, int32_t stage) {
  return petra_stage_predicts(stage_of(source, stage));
}

static const petra_tensor_set *gradients(const petra_probe_source *source, int32_t stage, int block) {
  return petra_stage_mean_gradients(stage_of(source, stage), block);
}

static bool reconstructs(const petra_probe_source *source, int32_t stage) {
  return petra_stage_reconstructs(stage_of(source, stage));
}

static bool resumes(petra_probe_source *source, int32_t stage, int64_t number) {
  return version(source, stage) == number;
}

petra_probe_stages petra_probe_stages_of(const petra_stages *stages) {
  static const petra_probe_source_ops ops = {.version = version,
                                             .version_forward = version_forward,
                                             .weights = weights,
                                             .predicts = predicts,
                                             .gradients = gradients,
                                             .reconstructs = reconstructs,
                                             .resumes = resumes};
  return (petra_probe_stages){{&ops}, *stages};
}
