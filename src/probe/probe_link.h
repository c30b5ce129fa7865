/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the probes of the processes of a run, on channels of the progress thread that nothing else uses.
 * They go through the hosts, even if training messages go from device to device. Buffers count as messages of the
 * probe's account. */
#pragma once

#include "config/config.h"
#include "nn/model.h"
#include "nn/block.h"
#include "group/progress_thread.h"

typedef enum petra_probe_message {
  PETRA_PROBE_UP,    /* streams and labels from the stage below; by receiving stage, from 0 */
  PETRA_PROBE_DOWN,  /* gradients of its outputs from the stage above; by receiving stage, from 0 */
  PETRA_PROBE_MEAN,  /* gradients from replica r to replica 0, at the same place; by r */
  PETRA_PROBE_FOUND, /* results of a window, to rank 0; by sending rank */
  PETRA_PROBE_MESSAGES
} petra_probe_message;

/* The place of this process in the run; borrowed. */
typedef struct petra_probe_ranks {
  petra_progress_thread *progress; /* NULL: this process is alone, and has all replicas */
  int rank;                        /* of this process */
  int replica;                     /* the replica whose stages this process has */
  int places;                      /* ranks per replica: rank q is at place q % places of replica q / places */
  const int32_t *rank_of;          /* of each stage of this replica */
  int first_channel;               /* number of the first channel of the probes; theirs are the last ones */
} petra_probe_ranks;

/* All is borrowed. */
typedef struct petra_probe_link_options {
  petra_probe_ranks ranks;
  int replicas; /* of every stage */
  const petra_config *config;
  const petra_backend *backend;
  const petra_model *model;
  const petra_partition *partition;
  size_t found_bytes;     /* size of the results of a window */
  petra_account *account; /* counts the buffers */
} petra_probe_link_options;

typedef struct petra_probe_link petra_probe_link;

/* Opens the channels of this process. PETRA_CONFIG if a message is too large. */
petra_status petra_probe_link_create(const petra_probe_link_options *options, petra_probe_link **out);
void petra_probe_link_destroy(petra_probe_link *link); /* NULL is allowed */

/* Return a buffer for the next message of a kind, and send `bytes` bytes of it. Upwards a sender is at most two
 * messages ahead of its receiver; on the other channels it only waits for one of its two buffers. */
petra_status petra_probe_link_room(petra_probe_link *link, petra_probe_message kind, int key, void **buffer);
petra_status petra_probe_link_send(petra_probe_link *link, petra_probe_message kind, int key, size_t bytes);

/* Returns the next message of a kind, which stays until petra_probe_link_done. Without `wait`, *data is NULL if none
 * has arrived. */
petra_status petra_probe_link_peek(petra_probe_link *link, petra_probe_message kind, int key, bool wait,
                                   const void **data, size_t *size);
petra_status petra_probe_link_done(petra_probe_link *link, petra_probe_message kind, int key);

/* Sends one tensor as a message: its elements, in their order. */
petra_status petra_probe_link_send_tensor(petra_probe_link *link, petra_probe_message kind, int key,
                                          const petra_tensor *tensor);
/* Waits for the message, and overwrites the tensor. */
petra_status petra_probe_link_take_tensor(petra_probe_link *link, petra_probe_message kind, int key,
                                          petra_tensor *tensor);

/* Sends streams, followed by labels. */
petra_status petra_probe_link_send_streams(petra_probe_link *link, petra_probe_message kind, int key,
                                           const petra_streams *streams, const int32_t *labels, int32_t count);
/* Receives streams. Creates the tensors in the workspace of `compute`. *came is false, and nothing else is set, if no
 * message has arrived. The labels are copied to the heap, for petra_free; NULL: not requested. */
petra_status petra_probe_link_take_streams(petra_probe_link *link, petra_probe_message kind, int key, bool wait,
                                           const petra_compute *compute, bool *came, petra_streams *out,
                                           int32_t **labels, int32_t *count);
