/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a run that a config requests, before anything is computed: network, partition, method, order of the
 * actions, options of the program. A plan is created in up to three steps (init; read_order; program) and does not
 * change afterwards. It has no backend: exec/network.h adds one. */
#pragma once

#include "data/dataset.h"
#include "io/profile_file.h"
#include "nn/model.h"
#include "schedule/schedule.h"
#include "schedule/method.h"
#include "sim/cost.h"

typedef struct petra_plan {
  const petra_config *config; /* borrowed */
  petra_dataset_shape data;   /* shape of the network's data; zeros with cluster.stages instead of a model */
  petra_model model;          /* without blocks in a simulation of cluster.stages instead of a model */
  petra_partition partition;
  int32_t stages; /* J */
  petra_method method;
  petra_schedule *schedule; /* schedule of method.schedule; NULL: the method's own order */
  petra_schedule *flush;    /* the order of one flush if it is written out, else NULL */
  /* device of each stage, from 1, if the stages are not in a loop; valid after petra_plan_program */
  int32_t *device_of;
  petra_schedule_distance *distance; /* distances of its stages; NULL until petra_plan_measure_order */
  bool by_arrival;                   /* the schedule replaces a program without an order */
  bool inverts; /* backward messages carry streams: the method inverts and the network has reversible blocks */
  petra_profile *profile;        /* NULL if no cost comes from a profile */
  petra_program_options program; /* valid after petra_plan_program */
} petra_plan;

/* Returns the index in the model of the auxiliary head of stage `stage` (from 0); 0 if the stage has none. */
static inline int petra_plan_auxiliary(const petra_plan *plan, int stage) {
  return stage < plan->model.auxiliary_count ? plan->model.block_count + stage : 0;
}

/* The first function returns the number of blocks of a stage, including its auxiliary head. The second function returns
 * the index in the model of block number `place` (from 0) of the stage. The auxiliary head is the last block. */
static inline int petra_plan_stage_blocks(const petra_plan *plan, int stage) {
  return plan->partition.first[stage + 1] - plan->partition.first[stage] + (petra_plan_auxiliary(plan, stage) > 0);
}

static inline int petra_plan_stage_block(const petra_plan *plan, int stage, int place) {
  const int block = plan->partition.first[stage] + place;
  return block < plan->partition.first[stage + 1] ? block : petra_plan_auxiliary(plan, stage);
}

/* Returns PETRA_CONFIG if number formats are set for stages without tensors (cluster.stages), or bytes of messages for
 * stages with tensors. */
petra_status petra_plan_check_messages(const petra_config *config);

/* Creates network, partition and method. Checks them against each other and, if they are known before the data set is
 * opened (petra_dataset_shape_of), against its classes. Call petra_plan_fini even on failure. */
petra_status petra_plan_init(petra_plan *plan, const petra_config *config);

/* Does the same if the config has a model. With cluster.stages it creates the method on equal stages without a model. */
petra_status petra_plan_init_any(petra_plan *plan, const petra_config *config);
void petra_plan_fini(petra_plan *plan);

/* Reads and checks the file of method.schedule, if there is one; the program of `method` is then the program of the
 * file. A CSV becomes `flush`, any other file `schedule`. PETRA_IO; PETRA_SCHEDULE; PETRA_CONFIG if file and config do
 * not agree. */
petra_status petra_plan_read_order(petra_plan *plan);

/* Files with a schedule are distinguished from configs by their contents. The log of a run (run.h5) that recorded its
 * actions is also a schedule: the order in which each stage did its actions. */

/* A file, pipe or ("-") standard input that may contain a schedule or a config. */
typedef struct petra_schedule_text {
  char *text; /* free with petra_free; NULL if the file cannot be opened */
  size_t size;
  bool is_schedule; /* result of petra_schedule_recognise */
} petra_schedule_text;

/* Reads the file once. It reads a schedule to its end, and any other file up to one byte more than the maximum size of
 * a config. The reader of configs reports a file that cannot be opened. PETRA_IO if reading fails, PETRA_SCHEDULE for a
 * schedule of more than 2^30 bytes. */
petra_status petra_schedule_file_peek(const char *path, petra_schedule_text *out);

/* Returns the name of the file for error messages. */
const char *petra_schedule_file_name(const char *path);

/* Returns the length of a training: run.epochs epochs of `batches`, or run.max_microbatches if it is smaller and not
 * 0. */
int64_t petra_plan_microbatches(const petra_config *config, int64_t batches);

/* Sets the options of the program for a run of `microbatches` microbatches (with method.schedule: of the microbatches
 * of the file), with `batches` per epoch, and checks the options against the method. If the method writes its order by
 * the costs of the stages, this reads the profile (petra_plan_load_profile). */
petra_status petra_plan_program(petra_plan *plan, int64_t microbatches, int64_t batches);

/* Warns if the run ends before any stage has done an update, for example if k exceeds its microbatches. Does not warn
 * without a model, or if no loss comes back, which is visible anyway. Call it after petra_plan_program. */
void petra_plan_warn_idle(const petra_plan *plan);

/* Returns the samples of a microbatch: data.batch per replica. */
static inline int64_t petra_plan_microbatch_samples(const petra_config *config) {
  return config->cluster.replicas * config->data.batch;
}

/* The devices of a run, and the samples of an update. Runs that differ in devices or samples are not comparable: the
 * ratio of their times or updates means little. */
typedef struct petra_plan_size {
  int64_t devices;        /* devices of all replicas; 0: not known, and then no member is known */
  int64_t update_samples; /* samples per update, of all replicas */
  int64_t update_labels;  /* labels per update: images or tokens */
  int64_t parameters;     /* 0 with cluster.stages instead of a model */
  int32_t vocabulary;     /* vocabulary of a network for tokens; 0: the samples are images */
} petra_plan_size;

/* Returns the size of a run. It reads method.schedule, but no data and no profile. */
petra_plan_size petra_plan_size_of(const petra_config *config);

/* Does all three steps for a run that is simulated, on the network of the config or on cluster.stages equal stages. Its
 * length is run.max_microbatches. If run.max_microbatches is 0, the length is slightly more than the number of
 * microbatches that fill the pipeline `fillings` times. If `fillings` is 0 too, the length is 16 microbatches per stage
 * and 8 for each tick of method.extra_delay, rounded up to whole updates, at least two. Epochs have
 * petra_dataset_nominal_count samples; if this number is not known, there are no evaluations. */
petra_status petra_plan_simulated(petra_plan *plan, const petra_config *config, int fillings);

/* Does all three steps for a training, with the length and the epochs of the training. It opens no data except images
 * in files. cluster.stages may replace the model; data.limit is then the number of samples. */
petra_status petra_plan_trained(petra_plan *plan, const petra_config *config);

/* Measures the delays and lags of the stages in the file of method.schedule, for petra_plan_stage_summary; does nothing
 * without a file. */
petra_status petra_plan_measure_order(petra_plan *plan);

/* Checks that the trainer can run the plan, and its file if there is one, with at most `microbatches` microbatches.
 * Measures the file. PETRA_SCHEDULE, PETRA_CONFIG. */
petra_status petra_plan_check_training(petra_plan *plan, int64_t microbatches);

/* Checks that every batch norm has more than one value per channel in each microbatch, if the network is trained or its
 * running statistics are estimated anew. PETRA_CONFIG. */
petra_status petra_plan_check_norms(const petra_plan *plan);

/* Checks an open split for a network that takes `input` and has `outputs` outputs: its classes, and the size of images.
 * PETRA_CONFIG. */
petra_status petra_plan_check_split(const petra_config *config, const petra_stream_shape *input, int32_t outputs,
                                    const petra_dataset *set);

/* Does the same for the network of the plan. */
petra_status petra_plan_check_data(const petra_plan *plan, const petra_dataset *set);

/* Checks that there is a network for images of this size, in batches of the config. PETRA_CONFIG. */
petra_status petra_plan_check_network(const petra_config *config, const petra_stream_shape *input, int32_t classes);

/* Checks that a training split has a batch. PETRA_CONFIG. */
petra_status petra_plan_check_batch(const petra_config *config, const petra_dataset *train);

/* A warning about outputs without a class. */
#define PETRA_PLAN_OUTPUTS "model.classes: %d outputs for the %d classes of the data set; the others are never right"
void petra_plan_warn_outputs(const petra_plan *plan, const petra_dataset *train);

/* Reads cluster.cost.profile, unless it was read before or no cost comes from it, and checks that it is a profile of
 * this network. Call it before petra_cluster_init. PETRA_CONFIG, PETRA_IO or PETRA_DATA; the message has the difference
 * and the expected value. */
petra_status petra_plan_load_profile(petra_plan *plan);

/* Fills in the description of the plan's network that a profile contains: texts and numbers, no stages. */
void petra_plan_describe_profile(const petra_plan *plan, petra_profile *out);

/* A quartile on the wrong side of the mean is replaced by the mean. For a stage, the quartiles of its parts are added
 * up: the sum is its duration if all parts are fast, or slow, at the same time. */
typedef enum {
  PETRA_PROFILE_MEAN,
  PETRA_PROFILE_QUARTILE1,
  PETRA_PROFILE_QUARTILE3,
  PETRA_PROFILE_ALONE /* the mean while the other ranks waited, if the profile has_alone; at most the mean */
} petra_profile_statistic;

/* Returns the mean or a quartile of measured times. */
double petra_spread_at(const petra_spread *spread, petra_profile_statistic statistic);

/* Sets the durations of stage `stage` (from 0) from the profile, which must be loaded; the message sizes in `out` stay.
 * PETRA_CONFIG if the profile has neither one block per stage nor the partition of the plan. */
petra_status petra_plan_profile_cost(const petra_plan *plan, int stage, petra_profile_statistic statistic,
                                     petra_stage_cost *out);

/* Gets the time of a microbatch at each block from the profile, F and B together; returns false unless the profile has
 * one block per stage. */
bool petra_plan_block_times(const petra_plan *plan, int64_t *nanoseconds);

/* Returns the size of an element of such a tensor, on the backend and in the precision of the config. */
int64_t petra_plan_element_bytes(const petra_plan *plan, petra_tensor_kind kind);

/* Lists the kernels of block `block` (from 0), for one microbatch; the kernels that quantise the messages of a stage
 * belong to its first and its last block. */
void petra_plan_kernels(const petra_plan *plan, int block, petra_kernel_list *out);

/* A row of the table of stages. */
typedef struct petra_stage_summary {
  int32_t stage;              /* from 1 */
  char name[80];              /* "stem", "group1.block1", "group1.block1 .. group2.block1" */
  int32_t reversible;         /* 1 if all its blocks are reversible, else 0 */
  petra_stream_shape in, out; /* shapes of one stream; `out` of a head is the shape of its logits */
  int streams_in, streams_out;
  int64_t parameters;
  int64_t forward_flops;                 /* per sample */
  int64_t forward_bytes, backward_bytes; /* sizes of the messages that it sends up and down, per microbatch */
  /* size of the largest message up: a message of an evaluation is never quantised (cluster.message.up) */
  int64_t forward_capacity;
  int64_t gradient_bytes; /* bytes that its replicas average before an update: gradients and running statistics */
  int32_t delay;          /* petra_method_distance; with a file of method.schedule, the largest distance */
  int64_t lag;            /* largest number of updates between a microbatch's forward and its backward */
} petra_stage_summary;

/* Fills the row of stage `stage` (from 0). */
void petra_plan_stage_summary(const petra_plan *plan, int stage, petra_stage_summary *out);
