/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a plan on a backend: its stages with their weights. */
#pragma once

#include "exec/evaluate.h"
#include "exec/stages.h"
#include "plan/placement.h"
#include "io/weights.h"

typedef struct petra_network {
  const petra_plan *plan;           /* borrowed */
  const petra_placement *placement; /* borrowed; NULL: all stages are here */
  petra_backend *backend;
  petra_stage **stage; /* plan->stages of them; NULL: elsewhere */
  int replica;         /* of cluster.replicas, from 0: which part of each microbatch is its */
  bool borrows_backend;
} petra_network;

/* The stages that `placement` has here (NULL: all), their weights 0, on `backend`, which is the network's from then on;
 * NULL: one as the config says. petra_network_fini is due whatever comes back. */
petra_status petra_network_open(petra_network *network, const petra_plan *plan, const petra_placement *placement,
                                petra_backend *backend);

/* The weights of model.weights (but for the head with model.new_head) or, where that is empty, initial ones. */
petra_status petra_network_initialise(petra_network *network);
void petra_network_fini(petra_network *network);

/* All of them, or those that are here. */
petra_stages petra_network_stages(const petra_network *network);

/* How the config has batches of `set` read: data.batch, data.workers, shuffling and augmentation of the training data,
 * whole batches alone, the part of its replica. Microbatches [first, end). */
petra_loader_options petra_network_loader(const petra_network *network, int64_t first, int64_t end);

/* Loss and accuracy on a data set with the present weights; with data.recalibrate also with statistics from `train`, which is else
 * not read and may be NULL. */
petra_status petra_network_evaluate(const petra_network *network, const petra_dataset *set, const petra_dataset *train,
                                    petra_evaluation *out);

/* The backend of the plan's config, with a lane for each group of its threads (plan/thread_groups.h). `ranks`: the processes of
 * the run; NULL: this one alone. */
petra_status petra_network_backend(const petra_plan *plan, const petra_ranks *ranks, petra_backend **out);

/* All parameters and statistics of the stages to and from a weights file. Where the stages are on several ranks, all ranks
 * come here: each reads, and rank 0 writes. */
petra_status petra_network_write_weights(const petra_network *network, const char *path);
/* Those of snapshots, one a stage, of a network whose stages are all here. */
petra_status petra_network_write_snapshots(const petra_network *network, petra_snapshot *const *snapshots,
                                           const petra_weights_moment *moment, const char *path);
/* The values of the stages that are here, of their snapshots, *count of them, in the order of the file; to be freed. And the file from
 * what every rank copied: all come here, and rank 0 writes (`moment` and `path` are its). */
petra_status petra_network_copy_weights(const petra_network *network, petra_snapshot *const *snapshots, double **out,
                                        int64_t *count);
petra_status petra_network_write_copies(const petra_network *network, const double *values, int64_t count,
                                        const petra_weights_moment *moment, const char *path);
petra_status petra_network_read_weights(petra_network *network, const char *path);
