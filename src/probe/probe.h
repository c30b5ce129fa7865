/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of gradient fidelity: for chosen update windows the gradient that a stage's update takes is compared
 * with two exact ones (docs/semantics/gradient-fidelity.md). The worker tells the probe what it does; the probe
 * keeps copies of weights and images in an account of its own and changes nothing of the training: results are
 * bit-identical. */
#ifndef PETRA_PROBE_PROBE_H
#define PETRA_PROBE_PROBE_H

#include "backend/tensor_archive.h"
#include "probe/probe_source.h"
#include "exec/stage_observer.h"
#include "nn/partition.h"
#include "schedule/program.h"
#include "probe/gradient_cosine.h"
#include "stage/probed_stage.h"

/* What one probe found. J stages, P parameter tensors in the order of blocks and petra_block_parameter; NaN
 * where a measure is not defined (a gradient of 0) or nothing is reconstructed. */
typedef struct petra_probe_row {
  int64_t microbatch; /* the first of the update window's k */
  int32_t stages, parameters;
  const double *stage;                                /* [measure][pair][J]: means over the stage's tensors */
  const double *concatenated;                         /* [pair][J]: cosine of all the stage's tensors as one vector */
  const double *reconstruction;                       /* [J]: ||x~ - x|| / ||x||, mean over the k microbatches */
  const double *parameter;                            /* [measure][pair][P] */
  const petra_tensor_set *gradients[PETRA_GRADIENTS]; /* per block; NULL unless they were asked for */
} petra_probe_row;

typedef struct petra_probe_options {
  petra_backend *backend;
  const petra_model *model;
  const petra_partition *partition; /* the blocks of the stages */
  int replicas;                     /* of every stage, 1 or more: a microbatch has as many parts */
  petra_probe_source *source;       /* of all stages, of replica 0 where there are several */
  const petra_program_ops *program;
  const petra_program_options *program_options;
  int64_t per_epoch; /* probes an epoch, evenly spaced; windows of k microbatches do not overlap, so that
                        there may be fewer */
  bool gradients;    /* rows carry the gradients themselves */
  void *context;
  /* A probe is complete; in the order of microbatches. A failure returned ends the run. */
  petra_status (*row)(void *context, const petra_probe_row *row);
} petra_probe_options;

typedef struct petra_probe petra_probe;

/* Everything in `options` is borrowed and outlives the probe. */
petra_status petra_probe_create(const petra_probe_options *options, petra_probe **out);
/* Probes that are not complete are dropped; NULL is allowed. */
void petra_probe_destroy(petra_probe *probe);

/* To be told by the worker of a replica, from 0. A group of actions is told (begins to done) of all replicas, in their order, before
 * the next; weights and gradients are looked at when replica 0 tells, the gradients of an update being then the mean over the
 * replicas. Of the others' actions what differs between replicas counts: what was read, and inputs, true and reconstructed. */
petra_stage_observer *petra_probe_observer(petra_probe *probe, int replica);

/* All of it in a checkpoint, under an account that the archive knows; one that is read into must be new, and its source know
 * the versions of the stages or take them over. NULL: no probe. */
petra_status petra_probe_archive(petra_probe *probe, petra_tensor_archive *tensors);

/* Whether a window is being gathered. */
bool petra_probe_is_open(const petra_probe *probe);

/* What the probe holds. */
petra_account *petra_probe_account(petra_probe *probe);

/* Whether the update window that begins with `microbatch` (a multiple of k) is probed: it holds one of the
 * microbatches in the middle of each of `per_epoch` equal parts of an epoch. */
bool petra_probe_is_due(const petra_program_options *program, int64_t per_epoch, int64_t microbatch);

/* After the last action of the run; NULL: no probe. */
petra_status petra_probe_finish(petra_probe *probe);

#endif
