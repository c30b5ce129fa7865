/* SPDX-License-Identifier: Apache-2.0 */
/* A small training for tests: a run on small generated images, `ref`, a network cut into stages, coprime costs. */
#pragma once

#include "run/run.h"
#include "sim/cost.h"
#include "sink.h"

/* Costs of the four parts of a stage's work. */
typedef struct rig_cost {
  int64_t forward_ns, backward_ns, reconstruct_ns, update_ns;
} rig_cost;

/* The virtual executor with these costs. */
petra_status rig_executor(rig_cost cost, const petra_cost_rule *rule, int engines, petra_executor **out);

typedef struct rig_options {
  const char *const *sets; /* the config, as --set takes it */
  int set_count;
  int64_t batches;      /* N: microbatches per epoch */
  int64_t microbatches; /* M */
  int64_t eval_every;
  bool drain;
  int engines;                    /* 0: 1 */
  int64_t eval_images;            /* of the evaluation set */
  petra_stage_observer *observer; /* NULL: none */
} rig_options;

enum { RIG_STAGES = 18 }; /* of the deepest networks */

typedef struct rig {
  petra_config *config;
  petra_dataset train, evaluation;
  petra_run *run;
  const petra_plan *plan;
  petra_network *network;
  petra_program_options program; /* the plan's */
  sink reported;
} rig;

/* Pixels a side: the least that the networks take with the CIFAR and the ImageNet stem. */
enum { RIG_IMAGE = 8, RIG_IMAGE_LARGE_STEM = 32 };

/* Everything up to the stages' initial weights. rig_close must follow, also after a failure. */
petra_status rig_open(rig *r, const rig_options *options);

/* The run. `tell` may be NULL. */
petra_status rig_run(rig *r, petra_trace_sink report, void *context);

/* Destroys everything; the backend's own check finds tensors that are still held. */
void rig_close(rig *r);

/* An evaluation with the stages' present weights. */
petra_status rig_evaluate(rig *r, petra_evaluation *out);
