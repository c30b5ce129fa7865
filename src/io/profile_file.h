/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h5: the durations of the parts of each stage's work on a device (docs/hdf5-schema.md). The file is written
 * completely or not at all, like weights.h5: it is built in memory, written to a temporary file, synced and renamed. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The parts of a stage's work for one microbatch, as in petra_stage_cost. */
typedef enum petra_profile_part {
  PETRA_PROFILE_FORWARD,         /* F */
  PETRA_PROFILE_BACKWARD,        /* B without reconstruction or recomputation */
  PETRA_PROFILE_RECONSTRUCT,     /* the additional time of B with reconstruction or recomputation */
  PETRA_PROFILE_WEIGHT_GRADIENT, /* the part of B that becomes W if a program splits it off */
  PETRA_PROFILE_UPDATE,          /* U */
  PETRA_PROFILE_PARTS
} petra_profile_part;

/* Returns the name of a part, which is also the name of its data set: "forward". */
const char *petra_profile_part_name(petra_profile_part part);

/* Statistics of the repetitions, in seconds. */
typedef struct petra_spread {
  double min, quartile1, median, quartile3, max;
  double mean; /* mean without outliers; costs and sums of durations use it */
} petra_spread;

typedef struct petra_profile_stage {
  int64_t blocks;                        /* number of blocks of the network in the stage, >= 1 */
  int64_t forward_bytes, backward_bytes; /* sizes of the messages that it sends up and down */
  petra_spread part[PETRA_PROFILE_PARTS];
  double alone_s[PETRA_PROFILE_PARTS]; /* means while the other ranks waited; valid if petra_profile.has_alone */
} petra_profile_stage;

/* The link between two ranks, for messages of one size. */
typedef struct petra_profile_message {
  int64_t bytes;           /* >= 1 */
  petra_spread time;       /* time from one end to the other, while a message of the same size goes the other way */
  petra_spread alone;      /* the same without a message the other way; valid if petra_profile.has_alone */
  double pack_s, unpack_s; /* means: the time a rank needs to pack tensors into a message, and to unpack them */
  double carry_s; /* mean: computing time that moving the message costs the rank at each end while all ranks compute */
} petra_profile_message;

enum { PETRA_PROFILE_MESSAGES = 32 };

typedef struct petra_profile {
  /* Names as in the config. */
  char family[16], stem[16], shape[16], bottleneck[16], downsample[16], coupling[16], precision[16];
  int32_t depth, width, classes, batch;
  int32_t image_height, image_width; /* 0 for tokens */
  /* for transformers: context for tokens, patch for images, kv_heads and hidden for Llamas; otherwise 0, and not in the
   * file */
  int32_t context, heads, kv_heads, hidden, patch;
  int32_t stages;
  petra_profile_stage *stage; /* `stages` of them; owned */
  bool has_spread;            /* the quartiles of the stages are known */
  int32_t ranks;              /* number of ranks that measured, at the same time; 1: there is no link */
  int32_t hosts;              /* number of hosts of these ranks; 0: the file does not contain it */
  bool has_alone;   /* with several ranks: the times of stages and messages while the other ranks wait are known */
  int32_t messages; /* number of sizes that were measured, rising; 0: none */
  petra_profile_message message[PETRA_PROFILE_MESSAGES];
} petra_profile;

/* Facts for readers of the file; petra does not read them back. */
typedef struct petra_profile_about {
  const char *command, *backend, *libraries, *method;
  int32_t threads, accumulate, warmup, repetitions;
} petra_profile_about;

/* PETRA_IO, with the path and the reason; an existing file at `path` is then unchanged. */
petra_status petra_profile_write(const char *path, const petra_profile *profile, const petra_profile_about *about);

/* Reads attributes, blocks, message sizes and means. If the file contains them, it also reads spreads, the link and the
 * times of ranks that work alone. PETRA_IO: the file cannot be opened. PETRA_DATA: it is not an HDF5 file, is damaged,
 * has another schema, lacks an item, or has an item of another shape, a time that is negative or not finite, or a stage
 * without blocks. The line in the log has the path, the value that was found and the expected one. Destroy with
 * petra_profile_destroy. */
petra_status petra_profile_read(const char *path, petra_profile **out);

void petra_profile_destroy(petra_profile *profile);
