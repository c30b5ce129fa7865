/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a plan on a backend: its stages with their weights. */
#pragma once

#include "data/loader.h"
#include "exec/stages.h"
#include "setup/placement.h"
#include "io/weights.h"

typedef struct petra_network {
  const petra_plan *plan;           /* borrowed */
  const petra_placement *placement; /* borrowed; NULL: all stages are here */
  petra_backend *backend;
  petra_stage **stage; /* plan->stages pointers; NULL: elsewhere */
  int replica;         /* of cluster.replicas, from 0: it uses this part of each microbatch */
  bool borrows_backend;
} petra_network;

/* Creates the stages that `placement` assigns to this process (NULL: all stages), with weights 0, on `backend`, which
 * the network then owns. If `backend` is NULL, creates the backend of the config. Call petra_network_fini even on
 * failure. */
petra_status petra_network_open(petra_network *network, const petra_plan *plan, const petra_placement *placement,
                                int replica, petra_backend *backend);

/* Returns the number formats of the stages of a replica, from 0. */
petra_stage_formats petra_network_formats(const petra_config *config, int replica);

/* Returns the mitigation of delay at stage `stage` of `stages` (from 1), after `warmup` microbatches of a synchronous
 * warm-up; empty if the method has none. */
petra_stage_mitigation petra_method_stage_mitigation(const petra_method *method, int32_t stages, int64_t warmup,
                                                     int32_t stage);

/* Sets the weights of the file model.weights (with model.new_head, except the head) or, if that key is empty, initial
 * weights. */
petra_status petra_network_initialise(petra_network *network);
void petra_network_fini(petra_network *network);

/* Returns the stages of the network; the pointers of stages elsewhere are NULL. */
petra_stages petra_network_stages(const petra_network *network);

/* Returns the options to read the training data according to the config: data.batch, data.workers, shuffling and
 * augmentation, only whole batches, the part of this replica, microbatches [first, end). */
petra_loader_options petra_network_loader(const petra_network *network, int64_t first, int64_t end);

/* Creates a tensor with the batch's samples, of the batch's shape: an activation of images, a sequence of tokens. A
 * batch of bytes needs a backend that takes images. `account` may be NULL. Fails as the backend does. */
petra_status petra_batch_upload(petra_backend *backend, const petra_batch *batch, petra_account *account,
                                petra_memory_category category, petra_tensor **out);

/* Creates the backend of the plan's config, with one lane per group of threads (setup/placement.h). `ranks` are the
 * processes of the run; NULL: only this one. */
petra_status petra_network_backend(const petra_plan *plan, const petra_ranks *ranks, petra_backend **out);

/* Collects on rank 0 an element of `size` bytes per stage of each of the first `replicas` replicas, from the rank that
 * has the stage. All ranks call this. */
petra_status petra_network_gather(const petra_network *network, int replicas, void *elements, size_t size);

/* The first function writes all parameters and statistics of the stages to a weights file: the values in `snapshots`
 * (one per stage) or, if that is NULL, the present values. `moment` may be NULL. The second function reads such a file.
 * If the stages are on several ranks, all ranks call these functions: each rank reads, and rank 0 writes. */
petra_status petra_network_write_weights(const petra_network *network, petra_snapshot *const *snapshots,
                                         const petra_weights_moment *moment, const char *path);
petra_status petra_network_read_weights(petra_network *network, const char *path);
/* Gets an upper bound of the size of that file, in bytes. */
petra_status petra_network_weights_bytes(const petra_network *network, int64_t *out);
/* The first function copies the weights in the snapshots of the stages that are here: *count values in the order of the
 * file. Free them with petra_free. The second function writes the file from the copies of all ranks. All ranks call it,
 * and rank 0 writes with its `moment` and `path`. */
petra_status petra_network_copy_weights(const petra_network *network, petra_snapshot *const *snapshots, double **out,
                                        int64_t *count);
petra_status petra_network_write_copies(const petra_network *network, const double *values, int64_t count,
                                        const petra_weights_moment *moment, const char *path);
