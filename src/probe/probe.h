/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of gradient fidelity: for chosen update windows the gradient that a stage's update takes is compared
 * with two exact ones (docs/semantics/gradient-fidelity.md). The worker notifies the probe of what it does; the probe
 * keeps copies of weights and images in an account of its own and changes nothing of the training: results are
 * bit-identical.
 *
 * Every process of a run has a probe, which computes the part of its own stages. All of them decide from the order of the
 * actions of all stages which references they compute next and with which versions, so that they decide alike
 * (docs/adr/0025). A process that has all stages is the case of one. */
#pragma once

#include "backend/tensor_archive.h"
#include "exec/stage_observer.h"
#include "schedule/method.h"
#include "probe/gradient_cosine.h"
#include "probe/probe_link.h"
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
  const petra_config
      *config; /* probe.per_epoch: probes an epoch, evenly spaced; windows of k microbatches do not overlap,
                                 so that there may be fewer. probe.gradients: rows carry the gradients themselves */
  petra_backend *backend;
  const petra_model *model;
  const petra_partition *partition; /* the blocks of the stages */
  const petra_method *method;
  const petra_program_ops *program;
  const petra_program_options *program_options;
  int replicas;            /* of every stage, 1 or more: a microbatch has as many parts */
  petra_stages stages;     /* that are here, of replica ranks.replica */
  petra_probe_ranks ranks; /* the processes of the run; zeros: all stages of all replicas are here */
  void *context;
  /* A probe is complete; in the order of microbatches, at rank 0. A failure returned ends the run. */
  petra_status (*row)(void *context, const petra_probe_row *row);
} petra_probe_options;

typedef struct petra_probe petra_probe;

/* Everything in `options` is borrowed and outlives the probe. */
petra_status petra_probe_create(const petra_probe_options *options, petra_probe **out);
/* Probes that are not complete are dropped; NULL is allowed. */
void petra_probe_destroy(petra_probe *probe);

/* For the worker of a replica that is here, by its number from 0. A group of actions is told (begins to done) of all replicas,
 * in their order, before the next; weights and gradients are looked at when the first replica here tells, the gradients of an
 * update being then the mean over the replicas. Of the others' actions what differs between replicas counts: what was read,
 * and inputs, true and reconstructed. */
petra_stage_observer *petra_probe_observer(petra_probe *probe, int replica);

/* With a progress thread: for who goes through the actions of all stages, whose groups begin and are done (begins, done). */
petra_stage_observer *petra_probe_groups(petra_probe *probe);

/* What all processes of a run know alike, in a part of a checkpoint. One that is read into must be new. */
petra_status petra_probe_archive(petra_probe *probe, petra_tensor_archive *tensors);

/* What the probe keeps of a stage (from 1) of a replica that is here, in its part of a checkpoint, which petra_probe_drain
 * comes before. Tensors count under an account that the archive knows. Where it is read: after the stage and
 * petra_probe_archive. */
petra_status petra_probe_archive_stage(petra_probe *probe, int replica, int32_t stage, petra_tensor_archive *tensors);

/* Every process comes here at the same place of the order: all references that were begun are computed, and rank 0 has handed
 * out the rows of all windows that are complete. NULL: no probe. */
petra_status petra_probe_drain(petra_probe *probe);

/* What the probe of this process holds. */
petra_account *petra_probe_account(petra_probe *probe);

/* Whether the update window that begins with `microbatch` (a multiple of k) is probed: it holds one of the
 * microbatches in the middle of each of `per_epoch` equal parts of an epoch. */
bool petra_probe_is_due(const petra_program_options *program, int64_t per_epoch, int64_t microbatch);

/* After the last action of the run; NULL: no probe. */
petra_status petra_probe_finish(petra_probe *probe);
