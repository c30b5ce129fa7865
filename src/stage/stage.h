/* SPDX-License-Identifier: Apache-2.0 */
/* One stage of Algorithm 1 on real tensors: forward, backward, update, and the buffers between them. A stage holds
 * consecutive blocks of the network and knows nothing of time, transport and other stages. Microbatches are identified
 * by number; the backward of a microbatch that is not in flight fails (PETRA_INTERNAL). Rules:
 * docs/semantics/methods.md. */
#pragma once

#include "nn/block.h"
#include "stage/delay_mitigation.h"

/* The rule of a method for a stage. Versions count updates; schedule/method.h defines which version a choice of weights
 * selects. */
typedef struct petra_stage_rule {
  petra_weights forward_weights;  /* LATEST or DOUBLE_BUFFER */
  petra_weights backward_weights; /* LATEST, STASHED or DOUBLE_BUFFER (both passes or none) */
  petra_weights invert_weights;   /* weights of the reconstruction, if keep is NOTHING */
  /* GRAPH: nothing is recomputed. INPUT: every block's input is kept, from which the graph is recomputed. NOTHING:
   * reversible blocks keep nothing, and their input is reconstructed; other blocks keep their input. */
  petra_keep keep;
  bool invert;         /* backward messages carry the streams in addition to the gradients */
  bool split_backward; /* the weight gradients of convolutions wait for petra_stage_weight_gradient */
  int accumulate;      /* k: microbatches per update */
  /* p: for F, LATEST means a copy that is refreshed before every microbatch whose number p divides; 0: no copy. */
  int64_t sync_period;
} petra_stage_rule;

/* Number formats of a stage's messages and of the inputs that it keeps, as petra_format_in returns them; zeros: all
 * native. */
typedef struct petra_stage_formats {
  petra_format up, down, keep;
  uint64_t seed;        /* of the draws of random formats */
  int64_t first_sample; /* of this replica within a microbatch */
} petra_stage_formats;

typedef struct petra_stage_options {
  const petra_model *model; /* outlives the stage */
  int number;               /* from 1 */
  int first, end;           /* its blocks, from 0, excluding `end` */
  int auxiliary;            /* its auxiliary head, which comes after these blocks; 0: none */
  petra_backend *backend;   /* outlives the stage */
  petra_stage_rule rule;
  petra_stage_formats formats;
  petra_optim optim;
  petra_stage_mitigation mitigation; /* zeros: none */
} petra_stage_options;

typedef struct petra_stage petra_stage;

/* A message between neighbouring stages. Forward: streams; backward: gradients and, if the method inverts, the
 * reconstructed streams. The message owns references to its tensors, which are quantised between petra_stage_send and
 * petra_stage_receive unless their format is native. */
typedef struct petra_message {
  petra_streams streams;
  petra_streams gradients;
} petra_message;

void petra_message_release(petra_message *message);

/* Releases the streams `to`, then moves the streams `from` to them; `from` is empty afterwards. */
static inline void petra_streams_move(petra_streams *from, petra_streams *to) {
  petra_streams_release(to);
  *to = *from;
  *from = (petra_streams){{NULL, NULL}};
}

/* Gets pointers to the members of a message that hold its tensors: streams, then gradients. */
enum { PETRA_MESSAGE_PARTS = 4 };
void petra_message_parts(petra_message *message, petra_tensor **parts[PETRA_MESSAGE_PARTS]);

/* Creates a stage. Parameters, the optimiser's state and gradients are 0 until petra_stage_initialise, or an upload to
 * petra_stage_tensor. */
petra_status petra_stage_create(const petra_stage_options *options, petra_stage **out);
void petra_stage_destroy(petra_stage *stage);

/* Releases all tensors that are kept of microbatches and of old versions. A tensor of one stage may count in the
 * account of another stage: if several stages end together, empty all of them before the first is destroyed. NULL is
 * allowed. */
void petra_stage_empty(petra_stage *stage);

/* Sets the initial weights (petra_initial_values), and running statistics 0 and 1. */
petra_status petra_stage_initialise(petra_stage *stage, uint64_t seed);

/* Returns the account that counts the tensors of the stage. The owner of messages that wait for the stage adds them to
 * this account. */
petra_account *petra_stage_account(petra_stage *stage);

/* Returns the number of updates so far, which is the version of its weights. */
int64_t petra_stage_version(const petra_stage *stage);

/* Returns the version that the last F or B read. */
int64_t petra_stage_version_read(const petra_stage *stage);

/* Returns the parameter (or statistics) tensor `index` of block `block` (from 0, within the stage), to be read or
 * written only by upload and download. */
petra_tensor *petra_stage_tensor(petra_stage *stage, int block, bool statistics, int index);

/* F: out->streams = blocks(in->streams), with batch statistics; running statistics do not change. The caller keeps
 * `in`. If the stage has a head (auxiliary, or the network's) and its B is a separate action, `labels` are all labels
 * of the microbatch, and the loss is computed; for other stages `labels` is NULL. `out` is empty at the network's
 * head. */
petra_status petra_stage_forward(petra_stage *stage, int64_t microbatch, const petra_message *in, const int32_t *labels,
                                 int32_t label_count, petra_message *out, petra_loss *loss);

/* B: computes the gradients of the stage's parameters, which count towards the next update, and the message `out` for
 * the stage below (empty for the first stage). Its input is in->gradients and, if the method inverts, in->streams; for
 * a stage that has a head, `in` is empty. Updates the running statistics once. */
petra_status petra_stage_backward(petra_stage *stage, int64_t microbatch, const petra_message *in, petra_message *out);

/* Quantises a message that the stage sends up, or down, if its format is not native. A stage with an auxiliary head
 * sends copies. */
petra_status petra_stage_send(petra_stage *stage, bool up, int64_t microbatch, petra_message *message);

/* Dequantises the quantised tensors of a message to the stage; other tensors stay as they are. */
petra_status petra_stage_receive(petra_stage *stage, bool from_below, petra_message *message);

/* W: computes the weight gradients of the convolutions for a microbatch whose B is done; only with split_backward. B
 * computes the gradients of batch norms and of the head, because it needs most of that work itself. */
petra_status petra_stage_weight_gradient(petra_stage *stage, int64_t microbatch);

/* F, loss and B of the stage that has the network's head, in one action. */
petra_status petra_stage_loss(petra_stage *stage, int64_t microbatch, const petra_message *in, const int32_t *labels,
                              petra_message *out, petra_loss *loss);

/* U: one optimiser step of the latest weights with the mean of the gradients counted since the last step. Errors:
 * PETRA_INTERNAL unless the gradients of k microbatches were counted. */
petra_status petra_stage_update(petra_stage *stage, double lr);

/* For memory counts: visits every tensor that the stage keeps of the microbatch, if the microbatch is in flight here. A
 * tensor may be visited more than once. */
petra_status petra_stage_each_kept(const petra_stage *stage, int64_t microbatch,
                                   petra_status (*each)(void *context, petra_tensor *tensor), void *context);

/* For counts of temporary memory. petra_stage_step_alone does only the step of U, with the present gradients; it
 * neither keeps nor creates a version. petra_stage_age counts as many updates as it takes for the mitigation of delay
 * to begin, and one more, without changing the weights; everything that is kept of the version before these updates
 * stays. */
petra_status petra_stage_step_alone(petra_stage *stage, double lr);
petra_status petra_stage_age(petra_stage *stage);

/* Copies the stage's weights and running statistics for an evaluation that is computed later. */
typedef struct petra_snapshot petra_snapshot;
petra_status petra_stage_snapshot(petra_stage *stage, petra_snapshot **out);
void petra_snapshot_destroy(petra_snapshot *snapshot);

/* Like petra_stage_tensor, for a snapshot of the stage. */
petra_tensor *petra_snapshot_tensor(const petra_stage *stage, const petra_snapshot *snapshot, int block,
                                    bool statistics, int index);

/* E: forward with the snapshot's weights and running statistics. The stage with the network's head computes the loss,
 * the others `out`. Auxiliary heads are no part of the network that is evaluated. */
petra_status petra_stage_evaluate(petra_stage *stage, const petra_snapshot *snapshot, const petra_streams *in,
                                  const int32_t *labels, petra_streams *out, petra_loss *loss);

/* Estimates the snapshot's statistics from batches. Call it for batches number 0, 1, ... in turn. Each call is a
 * forward with the snapshot's weights and the statistics of the batch. After batch number i the statistics of the
 * snapshot are the means, over batches 0 ... i, of the mean and of the unbiased variance of a batch (summed as a
 * running mean, in the element type); the previous statistics are lost. The stage with the head produces no output,
 * because its head is not computed; the other stages set `out`. */
petra_status petra_stage_estimate(petra_stage *stage, petra_snapshot *snapshot, int64_t number, const petra_streams *in,
                                  petra_streams *out);

/* The tensors that a stage shares with its replicas, the same stages of other pipelines, which train on different parts
 * of every microbatch. Rules: docs/semantics/replicas.md. */

/* Returns true if all gradients of the next update are complete. From then until that update, the stage does nothing
 * that changes these gradients or the running statistics (petra_stage_update would refuse it). */
bool petra_stage_gradient_complete(const petra_stage *stage);

/* Visits, block by block, the gradients that an update would use now (the mean over the k microbatches), then the
 * running statistics. The replicas of a stage replace these tensors by their mean over the replicas before each update.
 * They are always the same tensors in the same order, with the same shapes in every replica, and may be written by
 * upload. Returns the first failure of `visit`. */
petra_status petra_stage_visit_shared(petra_stage *stage, petra_status (*visit)(void *context, petra_tensor *tensor),
                                      void *context);

/* --- for probes of gradient fidelity ---
 * A probe uses the weights that stages read, and the gradient that an update uses. These functions do not change a
 * stage. Rules: docs/semantics/gradient-fidelity.md. */

/* Selects weights of a stage: the weights after `version` updates or, if the stage predicts and `predicted` is set, the
 * prediction that its F reads instead. */
typedef struct petra_weights_key {
  int64_t version;
  bool predicted; /* false if the stage does not predict */
} petra_weights_key;

static inline bool petra_weights_key_equal(petra_weights_key a, petra_weights_key b) {
  return a.version == b.version && a.predicted == b.predicted;
}

/* Gets the parameters of block `block` (from 0, within the stage) in a version that the stage has: the latest version,
 * or an older version that one of its passes will read. The stage owns the parameters; they are valid until its next
 * action. Of the weights themselves, a stage that predicts has only the latest version. Errors: PETRA_INTERNAL, logged,
 * if the stage no longer has the version. */
petra_status petra_stage_version_tensors(const petra_stage *stage, petra_weights_key key, int block,
                                         const petra_tensor_set **out);

/* Gets the gradients of block `block` that an update would use now: the mean over the k microbatches. */
const petra_tensor_set *petra_stage_mean_gradients(const petra_stage *stage, int block);

/* Returns true if B of the stage, as a separate action, reconstructs the input of F from the output of F. */
bool petra_stage_reconstructs(const petra_stage *stage);
