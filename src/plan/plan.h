/* SPDX-License-Identifier: Apache-2.0 */
/* What a config asks for, before anything is computed: network, partition, method, order of the actions, options of the
 * program. A plan is made in up to three steps (init; read_order; program) and is read only from then on. It has no
 * backend: plan/network.h puts it on one. */
#pragma once

#include "data/dataset.h"
#include "io/profile_file.h"
#include "nn/partition.h"
#include "schedule/schedule.h"
#include "schedule/method.h"
#include "sim/cost.h"

typedef struct petra_plan {
  const petra_config *config; /* borrowed */
  petra_dataset_shape data;   /* what the network is built for; zeros with cluster.stages in place of a model */
  petra_model model;          /* without blocks where a simulation has cluster.stages in place of a model */
  petra_partition partition;
  int32_t stages; /* J */
  petra_method method;
  petra_schedule *schedule;          /* of method.schedule; NULL: the method's own order */
  petra_schedule_distance *distance; /* of its stages; NULL until petra_plan_measure_order */
  bool by_arrival;                   /* it stands in place of a program without an order */
  bool inverts; /* backward messages carry streams: the method inverts and the network has reversible blocks */
  petra_profile *profile;        /* NULL where no cost comes from one */
  petra_program_options program; /* from petra_plan_program on */
} petra_plan;

/* Network, partition and method, checked against each other and the data set's classes where they are known before it
 * is opened (petra_dataset_shape_of). petra_plan_fini is due whatever comes back. */
petra_status petra_plan_init(petra_plan *plan, const petra_config *config);
void petra_plan_fini(petra_plan *plan);

/* Reads and checks the file of method.schedule, if there is one; the program of `method` is then the file's. PETRA_IO,
 * PETRA_SCHEDULE, PETRA_CONFIG where file and config do not agree. */
petra_status petra_plan_read_order(petra_plan *plan);

/* Of a training: run.epochs epochs of `batches`, or run.max_microbatches where that is less and not 0. */
int64_t petra_plan_microbatches(const petra_config *config, int64_t batches);

/* The options of the program for a run of `microbatches` (with method.schedule those of the file), `batches` an epoch,
 * checked against the method. */
petra_status petra_plan_program(petra_plan *plan, int64_t microbatches, int64_t batches);

/* A warning where the run ends before any stage has made an update, as with k above its microbatches; not where it ends before a
 * loss has come back, which shows, and not without a model. After petra_plan_program. */
void petra_plan_warn_idle(const petra_plan *plan);

/* Samples of a microbatch: data.batch of each replica. */
static inline int64_t petra_plan_microbatch_samples(const petra_config *config) {
  return config->cluster.replicas * config->data.batch;
}

/* All three steps for a run that is simulated, on the network of the config or on cluster.stages equal stages:
 * run.max_microbatches microbatches; where it is 0, as many as fill the pipeline `fillings` times and some more; where that is
 * 0, 16 a stage and 8 for each tick of method.extra_delay, up to whole updates, and two of these at least. Epochs have petra_dataset_nominal_count samples; where that is not known
 * nothing is evaluated. */
petra_status petra_plan_simulated(petra_plan *plan, const petra_config *config, int fillings);

/* The delays and lags of the file's stages, for petra_plan_stage_summary; nothing without a file. */
petra_status petra_plan_measure_order(petra_plan *plan);

/* Whether the trainer can run the plan, and its file if there is one, in a run of `microbatches` (that many at most).
 * Measures the file. PETRA_SCHEDULE, PETRA_CONFIG. */
petra_status petra_plan_check_training(petra_plan *plan, int64_t microbatches);

/* What is trained, or has its running statistics estimated anew, needs more than one value for each channel of every batch norm, in each
 * microbatch. PETRA_CONFIG. */
petra_status petra_plan_check_norms(const petra_plan *plan);

/* What a run asks of an open split beyond its opening, for a network that takes `input` and has `outputs` outputs: classes,
 * and the size of images. PETRA_CONFIG. */
petra_status petra_plan_check_split(const petra_config *config, const petra_stream_shape *input, int32_t outputs,
                                    const petra_dataset *set);

/* The same for the network of the plan. */
petra_status petra_plan_check_data(const petra_plan *plan, const petra_dataset *set);

/* Whether there is a network for images of this size, in batches as the config has them. PETRA_CONFIG. */
petra_status petra_plan_check_network(const petra_config *config, const petra_stream_shape *input, int32_t classes);

/* Whether a training split has a batch. PETRA_CONFIG. */
petra_status petra_plan_check_batch(const petra_config *config, const petra_dataset *train);

/* Warns of outputs that no class has. */
#define PETRA_PLAN_OUTPUTS "model.classes: %d outputs for the %d classes of the data set; the others are never right"
void petra_plan_warn_outputs(const petra_plan *plan, const petra_dataset *train);

/* Reads cluster.cost.profile, unless it was read before or no cost comes from one, and checks that it is a profile of this
 * network. Before petra_cluster_init. PETRA_CONFIG, PETRA_IO or PETRA_DATA: what differs, and what was expected. */
petra_status petra_plan_load_profile(petra_plan *plan);

/* What a profile says of the network that was timed, for that of the plan: its texts and numbers, no stages. */
void petra_plan_describe_profile(const petra_plan *plan, petra_profile *out);

/* Durations of stage `stage` from 0 by the profile, which was loaded; `out`'s message sizes stay as they are.
 * PETRA_CONFIG if the profile has neither one block a stage nor the partition of the plan. */
petra_status petra_plan_profile_cost(const petra_plan *plan, int stage, petra_stage_cost *out);

/* The same of a quartile, the mean where it lies on the wrong side of it. Sums of quartiles: what a stage takes when all of
 * it is as fast, or as slow. */
typedef enum {
  PETRA_PROFILE_MEAN,
  PETRA_PROFILE_QUARTILE1,
  PETRA_PROFILE_QUARTILE3,
  PETRA_PROFILE_ALONE /* while the other ranks waited: the profile has_alone; the mean where that is less */
} petra_profile_statistic;
petra_status petra_plan_profile_statistic(const petra_plan *plan, int stage, petra_profile_statistic statistic,
                                          petra_stage_cost *out);

/* What the profile says a microbatch takes at each block, F and B together; false if it has not one block a stage. */
bool petra_plan_block_times(const petra_plan *plan, int64_t *nanoseconds);

/* Of a tensor of this kind, on the backend and in the precision of the config. */
int64_t petra_plan_element_bytes(const petra_plan *plan, petra_tensor_kind kind);

/* The kernels of block `block` from 0, for one microbatch. */
void petra_plan_kernels(const petra_plan *plan, int block, petra_kernel_list *out);

/* A row of the stage table. */
typedef struct petra_stage_summary {
  char name[80];              /* "stem", "group1.block1", "group1.block1 .. group2.block1" */
  bool reversible;            /* every block of it is */
  petra_stream_shape in, out; /* of one stream; a head's out is its logits */
  int streams_in, streams_out;
  int64_t parameters;
  int64_t forward_flops;                 /* per sample */
  int64_t forward_bytes, backward_bytes; /* of the messages that it sends up and down, per microbatch */
  int64_t gradient_bytes; /* what its replicas average before an update: its gradients and running statistics */
  int64_t delay;          /* petra_method_distance; of a file, its largest */
  int64_t lag;            /* most updates between the two */
} petra_stage_summary;

/* Of stage `stage` from 0. */
void petra_plan_stage_summary(const petra_plan *plan, int stage, petra_stage_summary *out);
