/* The worker of a run that goes on from a checkpoint: the actions that the checkpoint has done are counted and nothing
 * else, up to where it was written; from there on another worker does them. The virtual clock, messages under way and
 * all random draws are then as they were, and nothing of the executor is in the file. */
#ifndef PETRA_RUN_REPLAY_H
#define PETRA_RUN_REPLAY_H

#include "sim/worker_cost.h"

typedef struct petra_replay_options {
  petra_worker *worker; /* does the actions after the checkpoint; borrowed */
  petra_worker_cost_options counting;
  int64_t actions;            /* those that the checkpoint has done */
  const int64_t *measured_ns; /* how long each of them took, where durations are measured; else NULL. Borrowed */
  const char *path;           /* of the checkpoint, for the line of an error. Borrowed */
} petra_replay_options;

petra_status petra_replay_create(const petra_replay_options *options, petra_worker **out);
void petra_replay_destroy(petra_worker *worker);

#endif
