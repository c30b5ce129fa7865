/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates for a config: another method, number of stages, cut, microbatches per update or recomputation, on the
 * network, costs, links and length of the config. Each candidate is a separate config, which is simulated in this
 * process.
 *
 * A candidate with as many stages as the config has the same stages, unless it has its own cut. For any other number of
 * stages, a network is cut by stages.partition: balanced; equal costs (cluster.stages, and cost models unit and
 * constant) and cluster.message.gradient_bytes are multiplied by the ratio of the numbers of stages, so that the work
 * of the whole network stays the same.
 *
 * Of the section `method`, candidates use only accumulate, chunks and credit. A method by arrival without a credit gets
 * 2 J - 1 for J stages: as many microbatches as a method in lockstep has in flight at its first stage. */
#pragma once

#include "config/config.h"
#include "schedule/method.h"

/* The data that all candidates share. */
typedef struct petra_candidates {
  const petra_config *config; /* borrowed */
  int32_t stages, devices;    /* stages of the config; devices of every candidate */
  int blocks;                 /* number of blocks of the network; 0: there is no network */
  bool reversible;            /* the network has reversible blocks */
  petra_config *plain;        /* the config without its method */
  char *text;                 /* the expanded config */
  struct petra_memory_cache *memory;
} petra_candidates;

/* `devices` is the number of devices of every candidate; if it is 0, the number in the config is used. Opens a
 * simulation of the config as it is, and returns its errors. The config is borrowed. */
petra_status petra_candidates_create(const petra_config *config, int32_t devices, petra_candidates **out);
void petra_candidates_destroy(petra_candidates *c);

typedef struct petra_candidate {
  petra_method method; /* a preset */
  int32_t stages;      /* a multiple of the number of devices */
  petra_keep keep;     /* PETRA_KEEP_PRESET: the choice of the method */
  bool early_recompute;
  int64_t accumulate, batch; /* 0: the values of the config */
  const int64_t *blocks;     /* number of blocks of each stage; NULL: the stages are chosen as described above */
} petra_candidate;

/* Returns the number of stages per device of a preset: 1; 2 in a V; in a loop method.chunks if it is set, else 2. */
int32_t petra_candidates_chunks(const petra_candidates *c, const petra_method *method);

typedef struct petra_candidate_figures {
  char reason[512];             /* "KEY: why it cannot run with this config"; "": it can */
  double time_per_microbatch_s; /* NaN: too few microbatches for a steady state */
  double bubble_fraction;
  int64_t lag_max;        /* largest lag of all stages, in updates */
  int64_t peak_bytes;     /* memory peak of the device with the largest peak; -1 without a model */
  int64_t kept_max;       /* maximum number of microbatches that a device keeps at one moment, over its stages */
  double device_kept_max; /* kept_max divided by the stages of the device */
  petra_keep keep;        /* the tensors that are kept between F and B: inputs if there is no block to invert */
  int64_t microbatches;
  int64_t in_flight_max; /* microbatches between F and B at stage 1 */
} petra_candidate_figures;

/* Makes the config of a candidate. Errors: PETRA_NO_MEMORY. */
petra_status petra_candidate_make(const petra_candidates *c, const petra_candidate *candidate, petra_config **out);

/* Simulates a candidate. If it cannot run with the config, returns PETRA_OK with the reason. `kept`, if it is not NULL,
 * receives the maximum number of microbatches that each stage keeps. */
petra_status petra_candidate_simulate(const petra_candidates *c, const petra_candidate *candidate,
                                      petra_candidate_figures *out, int64_t *kept);

/* Calls `report` with "KEY=VALUE" for each setting that `petra simulate` of the config needs to simulate the candidate.
 * Stops if `report` does not return PETRA_OK, and returns its status. */
petra_status petra_candidate_settings(const petra_candidates *c, const petra_candidate *candidate,
                                      petra_status (*report)(void *context, const char *setting), void *context);

/* Every method as a candidate for one config. All methods have the devices of the config's own method, and the stages
 * per device that they need: one, or two in a loop or a V (in a loop method.chunks, if it is set). */
typedef struct petra_method_figures {
  petra_method method;
  int32_t stages, devices;
  bool exact; /* its gradients are the gradients of the whole network; else they are delayed or local */
  petra_candidate_figures found;
} petra_method_figures;

/* Fills `out`, one entry for each preset (petra_method_count), by increasing time per microbatch; methods that cannot
 * run are last. *devices and *stages are the numbers of the config. Errors: the errors of petra_candidates_create. */
petra_status petra_compare_methods(const petra_config *config, petra_method_figures *out, int32_t *devices,
                                   int32_t *stages);
