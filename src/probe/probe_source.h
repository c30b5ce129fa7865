/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe reads of the stages while it is told what they do. Of stages in this process: petra_probe_stages; of those of
 * other processes: probe/probe_replay.h. Stages are counted from 1, blocks from 0 and over the whole network. */
#ifndef PETRA_PROBE_PROBE_SOURCE_H
#define PETRA_PROBE_PROBE_SOURCE_H

#include "exec/stages.h"
#include "nn/tensors.h"
#include "stage/probed_stage.h"

typedef struct petra_probe_source petra_probe_source;

typedef struct petra_probe_source_ops {
  /* Updates that the stage has made: the version of its weights. */
  int64_t (*version)(const petra_probe_source *source, int32_t stage);
  /* The version that its last F read. */
  int64_t (*version_forward)(const petra_probe_source *source, int32_t stage);
  /* The parameters of a block in a version that the stage has (petra_stage_version_tensors); PETRA_INTERNAL, logged, if
   * they are not there. */
  petra_status (*weights)(const petra_probe_source *source, int32_t stage, petra_weights_key key, int block,
                          const petra_tensor_set **out);
  /* Whether its F reads a prediction of its weights, which is then a version of its own (petra_weights_key). */
  bool (*predicts)(const petra_probe_source *source, int32_t stage);
  /* While the stage is about to update: the gradients of a block that the update takes. */
  const petra_tensor_set *(*gradients)(const petra_probe_source *source, int32_t stage, int block);
  /* Whether its B, as an action of its own, reconstructs the input of its F. */
  bool (*reconstructs)(const petra_probe_source *source, int32_t stage);
  /* A checkpoint says that the stage has made `version` updates. False: it has not; a source that does not see the stage
   * takes it over. */
  bool (*resumes)(petra_probe_source *source, int32_t stage, int64_t version);
} petra_probe_source_ops;

struct petra_probe_source {
  const petra_probe_source_ops *ops;
};

/* The stages themselves, all of them. */
typedef struct petra_probe_stages {
  petra_probe_source base;
  petra_stages stages;
} petra_probe_stages;

petra_probe_stages petra_probe_stages_of(const petra_stages *stages);

#endif
