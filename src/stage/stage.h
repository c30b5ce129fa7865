/* One stage of Algorithm 1 on real tensors: forward, backward, update, and the buffers between them. A stage holds
 * consecutive blocks of the network and knows no time, no transport and no other stage. Microbatches are named by number;
 * the backward of a microbatch must come in the order of the forwards, and is refused otherwise (PETRA_INTERNAL).
 * Rules: docs/semantics.md. */
#ifndef PETRA_STAGE_STAGE_H
#define PETRA_STAGE_STAGE_H

#include "nn/block.h"
#include "nn/optim.h"
#include "nn/tensors.h"

/* What is kept between a microbatch's forward and its backward. */
typedef enum petra_keep {
  PETRA_KEEP_GRAPH,  /* the graph: nothing is computed again */
  PETRA_KEEP_INPUT,  /* every block's input: the graph is computed again from it */
  PETRA_KEEP_NOTHING /* reversible blocks: nothing, the input is reconstructed; others: their input */
} petra_keep;

typedef struct petra_stage_options {
  const petra_model *model; /* outlives the stage */
  int number;               /* from 1 */
  int first, end;           /* its blocks, from 0, end excluded */
  petra_backend *backend;   /* outlives the stage */
  petra_keep keep;
  bool invert;    /* backward messages carry the streams beside the gradients */
  int accumulate; /* k: microbatches per update */
  petra_optim optim;
} petra_stage_options;

typedef struct petra_stage petra_stage;

/* A message between neighbouring stages. Forward: streams; backward: gradients and, where the method inverts, the
 * reconstructed streams. Tensors in it are references that belong to the message. */
typedef struct petra_message {
  petra_streams streams;
  petra_streams gradients;
} petra_message;

void petra_message_release(petra_message *message);

/* Parameters, velocities and gradients are 0 until petra_stage_set_tensor or petra_stage_initialise. */
petra_status petra_stage_create(const petra_stage_options *options, petra_stage **out);
void petra_stage_destroy(petra_stage *stage);

/* Initial weights (petra_initial_values) and running statistics 0 and 1. */
petra_status petra_stage_initialise(petra_stage *stage, uint64_t seed);

bool petra_stage_has_head(const petra_stage *stage);
const petra_account *petra_stage_account(const petra_stage *stage);

/* Updates made so far: the version of its weights. */
int64_t petra_stage_version(const petra_stage *stage);

/* Microbatches forwarded and not yet backwarded, now and at most so far. */
int petra_stage_in_flight(const petra_stage *stage);
int petra_stage_in_flight_max(const petra_stage *stage);

/* The parameter (or statistics) tensor `index` of block `block` (from 0, one of the stage's), to be read or written by
 * upload and download only. */
petra_tensor *petra_stage_tensor(petra_stage *stage, int block, bool statistics, int index);

/* F: out->streams = blocks(in->streams), batch statistics, running statistics untouched. `in` stays the caller's. Not for
 * the stage that has the head. */
petra_status petra_stage_forward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out);

/* B: from in->gradients (and in->streams where the method inverts) the gradients of the stage's parameters, counted
 * towards the next update, and out for the stage below (empty for the first stage). Running statistics move, once. */
petra_status petra_stage_backward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out);

/* F, loss and B of the stage that has the head, in one action. */
petra_status petra_stage_loss(petra_stage *stage, int64_t microbatch, const petra_message *in, const int32_t *labels,
                              petra_message *out, petra_loss *loss);

/* U: one optimiser step with the mean of the gradients counted since the last one. PETRA_INTERNAL unless there were k. */
petra_status petra_stage_update(petra_stage *stage, double lr);

/* The stage's weights and running statistics as they are now, for an evaluation that is computed later. */
typedef struct petra_snapshot petra_snapshot;
petra_status petra_stage_snapshot(petra_stage *stage, petra_snapshot **out);
void petra_snapshot_destroy(petra_snapshot *snapshot);

/* E: forward with the snapshot's weights and running statistics. The stage with the head gives the loss, the others out. */
petra_status petra_stage_evaluate(petra_stage *stage, const petra_snapshot *snapshot, const petra_streams *in,
                                  const int32_t *labels, petra_streams *out, petra_loss *loss);

#endif
