/* A small training for tests: small generated images, `ref`, a network cut into stages, the virtual executor.
 */
#ifndef PETRA_TESTS_TRAINING_RIG_H
#define PETRA_TESTS_TRAINING_RIG_H

#include "sim/cost.h"
#include "exec/executor.h"
#include "exec/worker_stage.h"
#include "nn/partition.h"
#include "schedule/method.h"

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
  int engines;
  int64_t eval_images; /* of the evaluation set */
  petra_worker_events events;
} rig_options;

enum { RIG_STAGES = 18 }; /* of the deepest networks */

typedef struct rig {
  petra_config *config;
  petra_model model;
  petra_partition partition;
  petra_method method;
  petra_backend *backend;
  petra_stage *stage[RIG_STAGES];
  petra_dataset train, evaluation;
  petra_loader *loader;
  petra_program_options program;
  petra_lr lr;
  petra_probe *probe; /* NULL without probe.per_epoch */
  petra_worker *worker;
  petra_executor *executor;
} rig;

/* Pixels a side: the least that the networks take with the CIFAR and the ImageNet stem. */
enum { RIG_IMAGE = 8, RIG_IMAGE_LARGE_STEM = 32 };

/* Everything up to the stages' initial weights. rig_close must follow, also after a failure. */
petra_status rig_open(rig *r, const rig_options *options);

/* The run. `sink` may be NULL. */
petra_status rig_run(rig *r, petra_trace_sink sink, void *context);

/* Drops the worker with the messages that wait in it; the stages stay. */
void rig_drop_worker(rig *r);

/* Destroys everything; the backend's own check finds tensors that are still held. */
void rig_close(rig *r);

/* An evaluation with the stages' present weights. */
petra_status rig_evaluate(rig *r, petra_evaluation *out);

#endif
