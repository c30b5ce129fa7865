/* SPDX-License-Identifier: Apache-2.0 */
/* One stage of Algorithm 1 on real tensors: forward, backward, update, and the buffers between them. A stage holds
 * consecutive blocks of the network and knows no time, no transport and no other stage. Microbatches are named by
 * number; a backward of one that is not in flight is refused (PETRA_INTERNAL). Rules: docs/semantics/methods.md. */
#ifndef PETRA_STAGE_STAGE_H
#define PETRA_STAGE_STAGE_H

#include "nn/block.h"
#include "nn/optim.h"
#include "nn/tensors.h"
#include "stage/mitigation.h"

/* What a method has a stage do. Versions count updates; which version a choice of weights means: schedule/method.h. */
typedef struct petra_stage_rule {
  petra_weights forward_weights;  /* LATEST or DOUBLE_BUFFER */
  petra_weights backward_weights; /* LATEST, STASHED or DOUBLE_BUFFER (both or none of the two) */
  petra_weights invert_weights;   /* of the reconstruction; keep is NOTHING */
  petra_keep
      keep;    /* GRAPH: nothing is computed again. INPUT: every block's input, from which the graph is computed again.
                      NOTHING: reversible blocks keep nothing, their input is reconstructed; others keep their input */
  bool invert; /* backward messages carry the streams beside the gradients */
  bool split_backward; /* the convolutions' weight gradients wait for petra_stage_weight_gradient */
  int accumulate;      /* k: microbatches per update */
  int64_t sync_period; /* p: LATEST of F is a copy, made anew before every microbatch that p divides; 0: no copy */
} petra_stage_rule;

typedef struct petra_stage_options {
  const petra_model *model; /* outlives the stage */
  int number;               /* from 1 */
  int first, end;           /* its blocks, from 0, end excluded */
  petra_backend *backend;   /* outlives the stage */
  petra_stage_rule rule;
  petra_optim optim;
  petra_stage_mitigation mitigation; /* zeros: none */
} petra_stage_options;

typedef struct petra_stage petra_stage;

/* A message between neighbouring stages. Forward: streams; backward: gradients and, where the method inverts, the
 * reconstructed streams. Tensors in it are references that belong to the message. */
typedef struct petra_message {
  petra_streams streams;
  petra_streams gradients;
} petra_message;

void petra_message_release(petra_message *message);

/* Parameters, the optimiser's state and gradients are 0 until petra_stage_initialise, or an upload to petra_stage_tensor. */
petra_status petra_stage_create(const petra_stage_options *options, petra_stage **out);
void petra_stage_destroy(petra_stage *stage);

/* Lets go of what is kept of microbatches and of old versions. A tensor of one stage may be counted under another's
 * account: where several stages end together, all of them are emptied before the first is destroyed. NULL is allowed. */
void petra_stage_empty(petra_stage *stage);

/* Initial weights (petra_initial_values) and running statistics 0 and 1. */
petra_status petra_stage_initialise(petra_stage *stage, uint64_t seed);

bool petra_stage_has_loss(const petra_stage *stage);

/* Counts what the stage holds. Messages that wait for it are added by whoever keeps them. */
petra_account *petra_stage_account(petra_stage *stage);

/* Updates made so far: the version of its weights. */
int64_t petra_stage_version(const petra_stage *stage);

/* The version that the last F or B read. */
int64_t petra_stage_version_read(const petra_stage *stage);

/* Older versions of the weights held, at most so far. */
int petra_stage_stash_max(const petra_stage *stage);

/* Microbatches forwarded whose backward (split: whose weight gradient) is not done, now and at most so far. */
int petra_stage_in_flight(const petra_stage *stage);
int petra_stage_in_flight_max(const petra_stage *stage);

/* The parameter (or statistics) tensor `index` of block `block` (from 0, one of the stage's), to be read or written by
 * upload and download only. */
petra_tensor *petra_stage_tensor(petra_stage *stage, int block, bool statistics, int index);

/* F: out->streams = blocks(in->streams), batch statistics, running statistics untouched. `in` stays the caller's.
 * Not for the stage that has the head. */
petra_status petra_stage_forward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out);

/* F of the stage that has the head, where its B is another action; `labels` of the microbatch, all of them. */
petra_status petra_stage_forward_loss(petra_stage *stage, int64_t microbatch, const petra_message *in,
                                      const int32_t *labels, int32_t label_count, petra_loss *loss);

/* B: from in->gradients (and in->streams where the method inverts; an empty message for the stage that has the head)
 * the gradients of the stage's parameters, counted towards the next update, and out for the stage below (empty for
 * the first stage). Running statistics move, once. */
petra_status petra_stage_backward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out);

/* W: the convolutions' weight gradients of a microbatch whose B was done; with split_backward only. The gradients of
 * batch norms and of the head, which B needs most of the work for, are B's. */
petra_status petra_stage_weight_gradient(petra_stage *stage, int64_t microbatch);

/* F, loss and B of the stage that has the head, in one action. */
petra_status petra_stage_loss(petra_stage *stage, int64_t microbatch, const petra_message *in, const int32_t *labels,
                              petra_message *out, petra_loss *loss);

/* U: one optimiser step of the latest weights with the mean of the gradients counted since the last one. PETRA_INTERNAL
 * unless there were k. */
petra_status petra_stage_update(petra_stage *stage, double lr);

/* For counting memory: every tensor that is kept of the microbatch, if it is in flight here; some may come more than once. */
petra_status petra_stage_each_kept(const petra_stage *stage, int64_t microbatch,
                                   petra_status (*each)(void *context, petra_tensor *tensor), void *context);

/* For counting the memory that is taken on the way. The step of U alone, with the gradients as they are: no version is kept, none is
 * made. And as many updates as begin the mitigation of delay and one more, with the weights as they are: what is kept of the version
 * before them is. */
petra_status petra_stage_step_alone(petra_stage *stage, double lr);
petra_status petra_stage_age(petra_stage *stage);

/* The stage's weights and running statistics as they are now, for an evaluation that is computed later. */
typedef struct petra_snapshot petra_snapshot;
petra_status petra_stage_snapshot(petra_stage *stage, petra_snapshot **out);
void petra_snapshot_destroy(petra_snapshot *snapshot);

/* As petra_stage_tensor, of a snapshot of the stage. */
petra_tensor *petra_snapshot_tensor(const petra_stage *stage, const petra_snapshot *snapshot, int block,
                                    bool statistics, int index);

/* E: forward with the snapshot's weights and running statistics. The stage with the head gives the loss, the others
 * out. */
petra_status petra_stage_evaluate(petra_stage *stage, const petra_snapshot *snapshot, const petra_streams *in,
                                  const int32_t *labels, petra_streams *out, petra_loss *loss);

/* Estimates the snapshot's statistics anew from batches, number 0, 1, ... of them in turn: forward with the snapshot's weights and
 * the statistics of the batch. After batch number i those of the snapshot are the means over batches 0 ... i of the batch's
 * mean and of its unbiased variance (summed as a running mean, in the element type); what they were before is lost. The
 * stage with the head gives nothing (its head is not computed), the others out. */
petra_status petra_stage_estimate(petra_stage *stage, petra_snapshot *snapshot, int64_t number, const petra_streams *in,
                                  petra_streams *out);

#endif
