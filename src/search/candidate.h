/* SPDX-License-Identifier: Apache-2.0 */
/* Candidates for a config: another method, number of stages, cut, microbatches per update or recomputation, on the
 * network, costs, links and length of the config. Each is a config of its own, which is simulated in this process.
 *
 * A candidate with as many stages as the config has these stages, unless it has a cut. For any other number a network is
 * cut by stages.partition: balanced; equal costs (cluster.stages, and cost models unit and constant) and
 * cluster.message.gradient_bytes are multiplied by the ratio of the numbers of stages, so that the work of the whole
 * network stays the same.
 *
 * Of the section `method`, candidates use only accumulate, chunks and credit. A method by arrival without a credit gets
 * 2 J - 1 for J stages: as many microbatches as a method in lockstep has in flight at its first stage. */
#pragma once

#include "config/config.h"
#include "schedule/method.h"

/* What all candidates share. */
typedef struct petra_candidates {
  const petra_config *config; /* borrowed */
  int32_t stages, devices;    /* stages of the config; devices of every candidate */
  int blocks;                 /* of the network; 0: there is none */
  bool reversible;            /* the network has reversible blocks */
  petra_config *plain;        /* the config without its method */
  char *text;                 /* the expanded config */
  struct petra_memory_cache *memory;
} petra_candidates;

/* `devices` is the number of devices of every candidate; 0: that of the config. Errors: those of a simulation of the
 * config as it is, which is opened. The config is borrowed. */
petra_status petra_candidates_create(const petra_config *config, int32_t devices, petra_candidates **out);
void petra_candidates_destroy(petra_candidates *c);

typedef struct petra_candidate {
  petra_method method; /* a preset */
  int32_t stages;      /* a multiple of the number of devices */
  petra_keep keep;     /* PETRA_KEEP_PRESET: what the method keeps */
  bool early_recompute;
  int64_t accumulate, batch; /* 0: those of the config */
  const int64_t *blocks;     /* number of blocks of each stage; NULL: see above */
} petra_candidate;

/* Returns the number of stages per device of a preset: 1, or 2 in a V, or in a loop method.chunks, or else 2. */
int32_t petra_candidates_chunks(const petra_candidates *c, const petra_method *method);

typedef struct petra_candidate_figures {
  char reason[512];             /* "KEY: why it cannot run with this config"; "": it can */
  double time_per_microbatch_s; /* NaN: too few microbatches for a steady state */
  double bubble_fraction;
  int64_t lag_max;        /* of all stages, in updates */
  int64_t peak_bytes;     /* of the device with the largest peak; -1 without a model */
  int64_t kept_max;       /* maximum number of microbatches that a device keeps at one moment, over its stages */
  double device_kept_max; /* the same in microbatches of the whole device: divided by its stages */
  petra_keep keep;        /* what is kept between F and B: inputs if there is no block to invert */
  int64_t microbatches;
  int64_t in_flight_max; /* microbatches between F and B at stage 1 */
} petra_candidate_figures;

/* Makes the config of a candidate. Errors: PETRA_NO_MEMORY. */
petra_status petra_candidate_make(const petra_candidates *c, const petra_candidate *candidate, petra_config **out);

/* Simulates a candidate. If it cannot run with the config, returns PETRA_OK with the reason. `kept`, if it is not NULL,
 * receives the maximum number of microbatches that each stage keeps. */
petra_status petra_candidate_simulate(const petra_candidates *c, const petra_candidate *candidate,
                                      petra_candidate_figures *out, int64_t *kept);

/* Calls `report` with "KEY=VALUE" for each setting with which `petra simulate` of the config is the candidate. Stops if
 * `report` does not return PETRA_OK, and returns its status. */
petra_status petra_candidate_settings(const petra_candidates *c, const petra_candidate *candidate,
                                      petra_status (*report)(void *context, const char *setting), void *context);

/* Every method as a candidate for one config. All methods have the devices of the config's own method, and the stages
 * per device that they need: one, or two in a loop or a V (in a loop method.chunks, if it is set). */
typedef struct petra_method_figures {
  petra_method method;
  int32_t stages, devices;
  bool exact; /* its gradients are those of the whole network; else they are delayed, or local */
  petra_candidate_figures found;
} petra_method_figures;

/* Fills `out`, one entry for each preset (petra_method_count), by increasing time per microbatch; those that cannot run
 * are last. *devices and *stages are those of the config. Errors: those of petra_candidates_create. */
petra_status petra_compare_methods(const petra_config *config, petra_method_figures *out, int32_t *devices,
                                   int32_t *stages);
