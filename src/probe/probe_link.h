/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the probes of the processes of a run, over channels of the progress thread that nothing else uses. They go through
 * the hosts, also where training messages go from device to device. Buffers count as messages of the probe's account. */
#pragma once

#include "config/config.h"
#include "nn/partition.h"
#include "nn/tensors.h"
#include "group/progress_thread.h"

typedef enum petra_probe_message {
  PETRA_PROBE_UP,    /* streams and labels from the stage below; by receiving stage, from 0 */
  PETRA_PROBE_DOWN,  /* gradients of its outputs from the stage above; by receiving stage, from 0 */
  PETRA_PROBE_MEAN,  /* gradients from replica r to replica 0, at the same place; by r */
  PETRA_PROBE_FOUND, /* what was found in a window, to rank 0; by sending rank */
  PETRA_PROBE_MESSAGES
} petra_probe_message;

/* Where the processes of a run are; borrowed. */
typedef struct petra_probe_ranks {
  petra_progress_thread *progress; /* NULL: this process is alone, and has all replicas */
  int rank;                        /* of this process */
  int replica;                     /* that this process has stages of */
  int places;                      /* ranks of each replica: rank q is at place q % places of replica q / places */
  const int32_t *rank_of;          /* of each stage of this replica */
  int first_channel; /* the first of the numbers of channels that the probes use; they are the last ones */
} petra_probe_ranks;

/* Everything is borrowed. */
typedef struct petra_probe_link_options {
  petra_probe_ranks ranks;
  int replicas; /* of every stage */
  const petra_config *config;
  const petra_backend *backend;
  const petra_model *model;
  const petra_partition *partition;
  size_t found_bytes;     /* of what is found in a window */
  petra_account *account; /* that buffers are counted in */
} petra_probe_link_options;

typedef struct petra_probe_link petra_probe_link;

/* Opens the channels of this process. PETRA_CONFIG if a message is larger than one can be. */
petra_status petra_probe_link_create(const petra_probe_link_options *options, petra_probe_link **out);
void petra_probe_link_destroy(petra_probe_link *link); /* NULL is allowed */

/* A place for the next message of a kind of message; sends so many bytes of it. Upwards a sender is at most two messages ahead of
 * its receiver; on the other channels it waits for nothing but one of its two buffers. */
petra_status petra_probe_link_room(petra_probe_link *link, petra_probe_message kind, int key, void **buffer);
petra_status petra_probe_link_send(petra_probe_link *link, petra_probe_message kind, int key, size_t bytes);

/* The next message of a kind of message, which stays until petra_probe_link_done. *data is NULL if none has come or, with `wait`, it
 * is waited for. */
petra_status petra_probe_link_peek(petra_probe_link *link, petra_probe_message kind, int key, bool wait,
                                   const void **data, size_t *size);
petra_status petra_probe_link_done(petra_probe_link *link, petra_probe_message kind, int key);

/* One tensor as a message: its elements, in their order. */
petra_status petra_probe_link_send_tensor(petra_probe_link *link, petra_probe_message kind, int key,
                                          const petra_tensor *tensor);
/* Waits for it, and overwrites the tensor. */
petra_status petra_probe_link_take_tensor(petra_probe_link *link, petra_probe_message kind, int key,
                                          petra_tensor *tensor);

/* Streams, and labels behind them. `labels` of what is received are in the message. */
petra_status petra_probe_link_send_streams(petra_probe_link *link, petra_probe_message kind, int key,
                                           const petra_streams *streams, const int32_t *labels, int32_t count);
/* Makes the tensors in the workspace of `compute`. *came is false, and nothing is set, if no message has come. The labels
 * are copied to the heap, for petra_free; NULL: they are not wanted. */
petra_status petra_probe_link_take_streams(petra_probe_link *link, petra_probe_message kind, int key, bool wait,
                                           const petra_compute *compute, bool *came, petra_streams *out,
                                           int32_t **labels, int32_t *count);
