/* SPDX-License-Identifier: Apache-2.0 */
/* A whole training run inside a test program: from config settings to the weights, on the generated records
 * of golden_data.h and without any file of a run. What can be downloaded is compared as in
 * tests/reference/compare.py. */
#pragma once

#include "run/run.h"
#include "sink.h"

enum {
  TRAINING_BLOCKS = 18 /* of the deepest networks */,
  TRAINING_TENSORS = TRAINING_BLOCKS * (PETRA_BLOCK_TENSORS + PETRA_BLOCK_STATISTICS)
};

/* Tensors of a network as arrays on the host, block by block. */
typedef struct training_tensor {
  char name[64]; /* "02/conv1/weight" */
  bool statistic;
  int rank;
  int32_t shape[4];
  int64_t elements;
  double *values;
} training_tensor;

typedef struct training_tensors {
  int count;
  training_tensor tensor[TRAINING_TENSORS];
} training_tensors;

void training_tensors_fini(training_tensors *tensors);

typedef struct training {
  petra_config *config;
  petra_dataset *set; /* for training and evaluation alike */
  petra_run *run;
  const petra_plan *plan;
  petra_network *network;
  petra_program_options program; /* the plan's */
  double *losses;                /* per microbatch; NaN where none was computed */
  int64_t loss_count;
  petra_evaluation evaluation; /* the last one */
  /* Below: what a test may set before the run. */
  petra_status (*probe_row)(void *context, const petra_probe_row *row); /* with probe.per_epoch > 0; may be NULL */
  petra_trace_sink sink;
  timed_duration duration; /* durations other than the costs */
  void *context;           /* of these */
  /* Below: the run's. */
  const petra_program_ops *replaced;
  petra_ranks *ranks;
  petra_stage_observer observer;
  struct training *self; /* where it was opened: it must not move */
  sink reported;
  timed timed;
} training;

/* Writes the generated records to a file of this process, and removes it. */
petra_status training_data_create(void);
void training_data_remove(void);

/* Config, stages with their weights, data; `run` must stay where it is. The settings come after those that switch everything off that a
 * run by hand has not: shuffling, augmentation, scaling, warm-up and milestones of the rate, evaluation. */
petra_status training_open(training *run, const char *const *sets, int count);
void training_close(training *run);
#define TRAINING_OPEN(run, ...)                                                                                        \
  training_open((run), (const char *const[]){__VA_ARGS__},                                                             \
                (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

/* The same as one rank of an executed run, which is borrowed: all ranks open it at once. What is asked of it afterwards is
 * of the stages that are here. */
petra_status training_open_rank(training *run, petra_ranks *ranks, const char *const *sets, int count);

/* The same with a program in place of the method's. */
petra_status training_open_program(training *run, const petra_program_ops *program, const char *const *sets, int count);

/* Trains run.max_microbatches microbatches. */
petra_status training_run(training *run);

/* A new run, with initial weights, on the same backend, whose pool then holds used tensors. */
petra_status training_restart(training *run);

/* Batch `microbatch` of the data as a message for stage 1. The labels have data.batch entries. */
petra_status training_batch(const training *run, int64_t microbatch, petra_message *images, int32_t *labels);

/* Of the stages that are here. Parameters and running statistics; gradients of the last microbatch, or (`mean`, k > 1) their mean so far.
 */
petra_status training_weights(const training *run, training_tensors *out);
petra_status training_gradients(const training *run, bool mean, training_tensors *out);

/* The tensors of a golden file, which must be exactly the network's. */
petra_status training_read(const training *run, const char *path, training_tensors *out);

/* Distances ||a - b|| / ||a - init|| per tensor. Left out: tensors that moved by rounding alone, that is by
 * less than `rounding` times what the median tensor of `a` moved, in both. `init` NULL: distances are
 * relative to ||a||. */
typedef struct training_distance {
  double worst, median;
  const char *worst_name; /* in `a` */
  int compared, left_out;
} training_distance;
petra_status training_compare(const training_tensors *a, const training_tensors *b, const training_tensors *init,
                              double rounding, training_distance *out);

/* Equal bit for bit. */
bool training_same(const training_tensors *a, const training_tensors *b);
