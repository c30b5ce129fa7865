/* From a config to the objects of a run: the plan (network, partition, method), then backend and stages with
 * weights. */
#ifndef PETRA_CLI_SETUP_H
#define PETRA_CLI_SETUP_H

#include "data/dataset.h"
#include "io/profile.h"
#include "nn/partition.h"
#include "schedule/method.h"
#include "sim/cost.h"
#include "stage/stage.h"

typedef struct petra_setup_order petra_setup_order; /* of method.schedule; setup_schedule.c */

typedef struct petra_setup {
  const petra_config *config; /* borrowed */
  petra_model model;
  petra_partition partition;
  petra_method method;
  petra_setup_order *order; /* NULL: the method's own */
  bool inverts; /* backward messages carry streams: the method inverts and the network has reversible blocks */
  petra_profile *profile; /* by petra_setup_load_profile */
  petra_backend *backend; /* from here on by petra_setup_stages */
  petra_stage *stage[PETRA_MODEL_BLOCKS];
} petra_setup;

/* Network, partition and method, checked against each other and the data set's classes where they are known before it
 * is opened (petra_dataset_shape_of). */
petra_status petra_setup_plan(petra_setup *setup, const petra_config *config);

/* Reads and checks the file of method.schedule, if there is one; the program of `method` is then the file's. PETRA_IO,
 * PETRA_SCHEDULE, PETRA_CONFIG where file and config do not agree. */
petra_status petra_setup_read_schedule(petra_setup *setup, int32_t stages);
void petra_setup_order_destroy(petra_setup_order *order);

/* NULL: no method.schedule. */
const struct petra_schedule *petra_setup_schedule(const petra_setup *setup);

/* The delays and lags of the file's stages, for petra_setup_stage_summary. */
petra_status petra_setup_measure_schedule(petra_setup *setup);
/* Of stage `stage` from 0, if they have been measured. */
bool petra_setup_schedule_distance(const petra_setup *setup, int stage, int64_t *delay, int64_t *lag);

/* Whether the trainer can run the file, if there is one, in a run of `microbatches` (that many at most), `batches`
 * an epoch. Measures it. PETRA_SCHEDULE, PETRA_CONFIG. */
petra_status petra_setup_check_training(petra_setup *setup, int64_t microbatches, int64_t batches);
/* Checks an open data set against the plan: classes and size of the images. PETRA_CONFIG. */
petra_status petra_setup_check_data(const petra_setup *setup, const petra_dataset *set);

/* Backend and stages, with the weights of model.weights or, where that is empty, initial ones. */
petra_status petra_setup_stages(petra_setup *setup);

/* The stages alone, on setup->backend, their weights 0. */
petra_status petra_setup_create_stages(petra_setup *setup);

void petra_setup_fini(petra_setup *setup);

/* Costs of one stage by cluster.cost: unit or constant. */
petra_stage_cost petra_setup_cost(const petra_config *config);

/* Durations of stage `stage` from 0 by cluster.cost: roofline; `out`'s message sizes stay as they are. Needs the
 * plan only. PETRA_CONFIG if the device has no peak for the arithmetic. */
petra_status petra_setup_roofline(const petra_setup *setup, int stage, petra_stage_cost *out);

/* Reads cluster.cost.profile, unless it was read before, and checks that it is a profile of this network. Needs the
 * model only. PETRA_CONFIG, PETRA_IO or PETRA_DATA: what differs, and what was expected. */
petra_status petra_setup_load_profile(petra_setup *setup);

/* Durations of stage `stage` from 0 by the profile, which was loaded; `out`'s message sizes stay as they are.
 * PETRA_CONFIG if the profile has neither one block a stage nor the partition of the plan. */
petra_status petra_setup_profile_cost(const petra_setup *setup, int stage, petra_stage_cost *out);

/* What the profile says a microbatch takes at each block, F and B together; false if it has not one block a stage. */
bool petra_setup_block_times(const petra_setup *setup, int64_t nanoseconds[PETRA_MODEL_BLOCKS]);

/* What the config says of the backend. */
petra_backend_options petra_setup_backend(const petra_config *config);

/* Threads of device.threads: its value, or the cores that this process may use. */
int petra_setup_threads(const petra_config *config);

/* The folder of the run: --output, else run.output/run.name. Made where it is missing. Free with petra_free. */
petra_status petra_setup_output(const petra_config *config, const char *output, char **out);

/* DIR/name. Free with petra_free. */
petra_status petra_join_path(const char *directory, const char *name, char **out);

/* A row of the stage table. */
typedef struct petra_stage_summary {
  char name[64];             /* "stem", "group1.block1", "group1.block1 .. group2.block1" */
  bool reversible;           /* every block of it is */
  petra_image_shape in, out; /* of one stream; the head's out is (classes, 1, 1) */
  int streams_in, streams_out;
  int64_t parameters;
  int64_t forward_flops;                 /* per image */
  int64_t forward_bytes, backward_bytes; /* of the messages that it sends up and down, per microbatch */
  int64_t delay;                         /* petra_method_distance; of a file, its largest */
  int64_t lag;                           /* most updates between the two */
} petra_stage_summary;

/* Of stage `stage` from 0; needs the plan only. */
void petra_setup_stage_summary(const petra_setup *setup, int stage, petra_stage_summary *out);

/* All parameters and statistics of the stages to and from a weights file. */
petra_status petra_setup_write_weights(const petra_setup *setup, const char *path);
petra_status petra_setup_read_weights(petra_setup *setup, const char *path);

#endif
