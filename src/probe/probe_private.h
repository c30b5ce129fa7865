/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of a probe, shared by the files probe*.c. Stages are counted from 0 here. */
#pragma once

#include "probe/probe.h"

/* The data of a microbatch for a replica that is here. */
typedef struct petra_probe_part {
  petra_tensor *images; /* NULL: not read yet, not needed any more, or stage 1 is elsewhere */
  int32_t *labels;
  int32_t label_count;
  petra_streams *inputs; /* per stage: the input of its F, if B will reconstruct it */
} petra_probe_part;

/* A microbatch of a window. All members but `parts` are the same in every process. */
typedef struct petra_probe_slot {
  petra_probe_part *parts; /* per replica that is here */
  int64_t *forward;        /* per stage: the version that F read, on all replicas; -1: no F yet */
  bool read;               /* stage 1 has read the microbatch */
  bool delayed;            /* the delayed gradient was begun */
  bool *end_to_end;        /* per stage: the end-to-end gradient was begun */
  /* Per stage, with PETRA_MOMENT_CLOCK: version at the start of B; -1: no B yet; allocated with `forward`. */
  int64_t *begun;
} petra_probe_slot;

/* An update window that is probed. */
typedef struct petra_probe_window {
  int64_t first;
  petra_probe_slot *slots; /* k */
  /* Per block of the stages here, on replica 0: sums of gradients, which are the means over the window once it is
   * complete. */
  petra_tensor_set *sums[PETRA_GRADIENTS];
  bool *updated; /* per stage: the stage has done the update of the window */
  /* Per stage: its gradients are complete and, if the stage is here, compared; allocated with `updated`. */
  bool *compared;
  double *stage, *concatenated, *reconstruction, *parameter; /* as in the row; one allocation */
  double *errors;       /* [replica][stage][k]: errors of reconstruction, in the order of the B's */
  int64_t *error_count; /* [replica][stage]: number of errors */
  struct petra_probe_window *next;
} petra_probe_window;

/* A copy of a stage's weights. */
typedef struct petra_probe_kept {
  int32_t stage;
  petra_weights_key key;
  petra_tensor_set *sets; /* per block of the stage */
} petra_probe_kept;

/* A reference in progress: one pass of a replica's part of a microbatch through the whole network, forward and back.
 * This process computes the stages that it has. */
typedef struct petra_probe_wave {
  petra_probe_window *window;
  bool forwarded;            /* the network has the weights that F read, predictions included */
  bool delayed;              /* it yields the delayed gradient of all stages */
  bool *wanted;              /* per stage: it yields the end-to-end gradient */
  int64_t *versions;         /* per stage: version in the network */
  int32_t lowest;            /* last stage of the backward pass */
  int32_t back;              /* the backward of the stages here from this stage on is done */
  int replica;               /* replica in another process whose gradients are added next */
  int32_t added;             /* gradients of the stages here from this stage on are added, for that replica */
  petra_streams gradients;   /* gradients of the outputs of stage back - 1, if stage `back` is here */
  petra_block_graph *graphs; /* per block */
  struct petra_probe_wave *next;
} petra_probe_wave;

/* The observer of a replica. */
typedef struct petra_probe_input {
  petra_stage_observer base;
  petra_probe *probe;
  int index; /* of the replica, among those here */
} petra_probe_input;

struct petra_probe {
  petra_probe_input groups; /* observes the actions of all stages, with a progress thread */
  petra_probe_row_writer row;
  void *context;
  const petra_network *network; /* with the stages that are here, of replica `first` */
  const petra_plan *plan;
  petra_stages stages_here;
  int replicas;                          /* of every stage: a microbatch has one part per replica */
  struct petra_probe_exchange *exchange; /* to the probes of other processes; NULL: none */
  int rank;
  int first, here;                                        /* first replica here; number of replicas here */
  petra_probe_input *inputs;                              /* per replica here */
  const petra_probe_input *begin_reporter, *end_reporter; /* of the groups of actions of all stages */
  petra_account account;
  petra_compute compute;
  const petra_model *model;
  int32_t stages; /* J */
  int64_t accumulate;
  petra_program_moment moment; /* of the end-to-end networks */
  int64_t now_ns;              /* start of the last group of actions */
  const petra_action *actions; /* of the current group */
  int action_count;
  int64_t *versions; /* per stage: number of its updates */
  int64_t *copies;   /* per stage: version of F's own copy (petra_forward_version) */
  int64_t *scratch;  /* per stage */
  bool *flags;       /* per stage: more scratch */
  bool *predicts;    /* per stage: its F reads a prediction of its weights */
  int32_t parameters;
  int32_t *offset;             /* per block: index of its first tensor among all parameters; last: their number */
  petra_probe_window *windows; /* oldest first */
  petra_probe_wave *waves;     /* begun and not ended, oldest first */
  int wave_count;
  petra_probe_kept *kept;
  int kept_count;
  int64_t kept_capacity;
};

static inline int petra_probe_first(const petra_probe *probe, int32_t stage) {
  return probe->plan->partition.first[stage];
}

static inline int petra_probe_end(const petra_probe *probe, int32_t stage) {
  return probe->plan->partition.first[stage + 1];
}

/* Returns true if the stage is in this process. */
static inline bool petra_probe_has(const petra_probe *probe, int32_t stage) {
  return petra_stages_has(&probe->stages_here, stage + 1);
}

/* Returns true if this process compares gradients: it has stages of replica 0. */
static inline bool petra_probe_compares(const petra_probe *probe) {
  return probe->first == 0;
}

static inline petra_probe_slot *petra_probe_slot_of(const petra_probe_window *window, int64_t microbatch) {
  return &window->slots[microbatch - window->first];
}

/* Returns how many numbers a window has: `stage` and the arrays after it. */
static inline size_t petra_probe_numbers(const petra_probe *probe) {
  const size_t stages = (size_t)probe->stages, measures = PETRA_MEASURES * PETRA_PAIRS;
  return (measures + PETRA_PAIRS + 1) * stages + measures * (size_t)probe->parameters;
}

/* --- probe_window.c --- */

/* Returns the window of `microbatch`; NULL if the microbatch is not probed, or if its window is closed. */
petra_probe_window *petra_probe_find(const petra_probe *probe, int64_t microbatch);
/* Returns true if all references of the microbatch were begun. */
bool petra_probe_slot_is_complete(const petra_probe *probe, const petra_probe_slot *slot);
/* Returns true if all gradients of a stage in the window were begun, and the stage has done its update. */
bool petra_probe_is_complete(const petra_probe *probe, const petra_probe_window *window, int32_t stage);
petra_status petra_probe_open(petra_probe *probe, int64_t first, petra_probe_window **out);

/* Releases the sums of gradients of blocks of a window and keeps their arrays. When a window is read from a checkpoint,
 * its remaining sums come from the parts of its stages, so a resumed run needs no more memory than the run before. */
void petra_probe_release_sums(petra_probe_window *window, int first, int end);
void petra_probe_close(petra_probe *probe, petra_probe_window *window);
/* Releases the data that only the references of a microbatch need. */
void petra_probe_slot_release(const petra_probe *probe, petra_probe_slot *slot);

/* --- gradient_cosine.c --- */

/* Compares the gradients of a stage here. Tensors whose gradient is only rounding error are measured, but excluded from
 * the stage's sums. */
petra_status petra_probe_compare_stage(petra_probe *probe, petra_probe_window *window, int32_t stage);

/* Computes ||found - truth|| / ||truth|| over both streams. */
petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out);

/* --- probe_results.c --- */

/* Compares the stages whose gradients are complete. The results of complete windows go to rank 0, which delivers their
 * rows in order. With `wait`, rank 0 waits for the results of other processes. */
petra_status petra_probe_finish_due(petra_probe *probe, bool wait);

/* --- probe_reference.c --- */

/* Returns true if the end-to-end versions follow from the number of the microbatch and the numbers of the stages. With
 * one stage they always do. */
static inline bool petra_probe_is_fixed(const petra_probe *probe) {
  return probe->moment != PETRA_MOMENT_CLOCK || probe->stages == 1;
}

/* Returns the copy of a version of a stage's weights; NULL: none. */
petra_probe_kept *petra_probe_find_kept(const petra_probe *probe, int32_t stage, petra_weights_key key);
/* Copies a version of the weights unless a copy exists. The stage must have the version. */
petra_status petra_probe_keep(petra_probe *probe, int32_t stage, petra_weights_key key);
/* Creates a copy with empty sets, for a checkpoint to fill. */
petra_status petra_probe_keep_empty(petra_probe *probe, int32_t stage, petra_weights_key key);
/* Copies the latest version of a stage if some reference will need it. */
petra_status petra_probe_keep_wanted(petra_probe *probe, int32_t stage);
/* Releases copies that no reference needs any more. */
void petra_probe_forget(petra_probe *probe);
/* Gets the parameters of a block (from 0 over the whole network) of a stage, in a version that must be available. */
petra_status petra_probe_parameters(const petra_probe *probe, int32_t stage, petra_weights_key key, int block,
                                    const petra_tensor_set **out);
/* Returns the key of the weights of a stage here in the network of a wave. */
petra_weights_key petra_probe_wave_key(const petra_probe *probe, const petra_probe_wave *wave, int32_t stage);
/* Begins every reference whose weights are available. */
petra_status petra_probe_compute_due(petra_probe *probe);
/* If end-to-end references follow the clock: begins the references of all backwards that have begun, with the latest
 * weights of the other stages. */
petra_status petra_probe_compute_begun(petra_probe *probe);

/* --- probe_wave.c --- */

/* Returns true if the wave yields a gradient of stage j. */
static inline bool petra_probe_wave_wants(const petra_probe_wave *wave, int32_t j) {
  return wave->delayed || wave->wanted[j];
}

/* Adds a gradient, tensor `i` of block `b` of stage j, to the sums that need it, each microbatch and replica with the
 * same weight. */
petra_status petra_probe_wave_add(const petra_probe *probe, const petra_probe_wave *wave, int32_t j, int b, int i,
                                  const petra_tensor *gradient);

/* Returns the highest stage here below `above` that the wave goes back to; -1: none. */
int32_t petra_probe_wave_next(const petra_probe *probe, const petra_probe_wave *wave, int32_t above);

/* Begins the wave of one replica's `part`: goes forward through the stages here. `like` defines its network and the
 * gradients that it must yield. */
petra_status petra_probe_wave_begin(petra_probe *probe, const petra_probe_wave *like, petra_probe_part *part);
/* Computes the backward passes of the waves that were begun, in their order, as far as gradients have arrived from
 * other processes. With `wait` it waits until at most `left` waves remain. */
petra_status petra_probe_waves_advance(petra_probe *probe, bool wait, int left);
/* Returns true if a wave for the window has not ended. */
bool petra_probe_waves_have(const petra_probe *probe, const petra_probe_window *window);
void petra_probe_waves_destroy(petra_probe *probe);

/* --- probe_exchange.c: messages to and from the probes of other processes --- */

/* Opens the channels of this process. PETRA_CONFIG if a message is too large. */
petra_status petra_probe_exchange_open(petra_probe *probe);
void petra_probe_exchange_close(petra_probe *probe);

/* The kinds of messages, each with its key. */
typedef enum petra_probe_message {
  PETRA_PROBE_UP,    /* streams and labels from the stage below; by receiving stage, from 0 */
  PETRA_PROBE_DOWN,  /* gradients of its outputs from the stage above; by receiving stage, from 0 */
  PETRA_PROBE_MEAN,  /* gradients from replica r to the rank of replica 0 with the same stages; by r */
  PETRA_PROBE_FOUND, /* results of a window, to rank 0; by sending rank */
  PETRA_PROBE_MESSAGES
} petra_probe_message;

/* Sends streams, followed by labels, to a stage that is elsewhere. */
petra_status petra_probe_send_streams(petra_probe *probe, petra_probe_message kind, int32_t key,
                                      const petra_streams *streams, const int32_t *labels, int32_t count);

/* Receives streams from a stage that is elsewhere. Creates the tensors in the workspace of the probe. Without `wait`,
 * *came is false, and nothing else is set, if no message has arrived. The labels are copied to the heap, for
 * petra_free; NULL: not requested. */
petra_status petra_probe_take_streams(petra_probe *probe, petra_probe_message kind, int32_t key, bool wait, bool *came,
                                      petra_streams *out, int32_t **labels, int32_t *count);

/* Sends a gradient to the process with the same stages of replica 0. That process adds the gradients of the other
 * replicas, in the order of replicas, as far as they have arrived; with `wait` all. */
petra_status petra_probe_send_to_replica_0(petra_probe *probe, petra_tensor *gradient);
petra_status petra_probe_add_replicas(petra_probe *probe, petra_probe_wave *wave, bool wait);

/* Sends the results of a window to rank 0. Rank 0 adds the results of all other processes to the oldest window; without
 * `wait`, *came is false if some have not arrived. */
petra_status petra_probe_send_found(petra_probe *probe, petra_probe_window *window);
petra_status petra_probe_gather(petra_probe *probe, bool wait, bool *came);
