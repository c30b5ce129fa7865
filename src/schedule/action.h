/* SPDX-License-Identifier: Apache-2.0 */
/* An action: an operation of one stage on one microbatch. It is printed and parsed as "2F0": stage (from 1), kind,
 * microbatch (from 0). */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, letter, meaning) */
#define PETRA_ACTION_LIST(X)                                                                                           \
  X(FORWARD, 'F', "forward")                                                                                           \
  X(BACKWARD, 'B',                                                                                                     \
    "backward, with reconstruction or recomputation; at the last stage the forward and the loss as well")              \
  X(WEIGHT_GRADIENT, 'W', "the weight gradient, where the program splits it from B")                                   \
  X(UPDATE, 'U', "update; carries the last microbatch that it covers")                                                 \
  X(EVALUATE, 'E', "the stage's weights are those to evaluate; carries the last microbatch of the epoch")

typedef enum petra_action_kind {
#define PETRA_ACTION_ENUM(name, letter, meaning) PETRA_ACTION_##name,
  PETRA_ACTION_LIST(PETRA_ACTION_ENUM)
#undef PETRA_ACTION_ENUM
      PETRA_ACTION_KINDS
} petra_action_kind;

typedef struct petra_action {
  int32_t stage; /* from 1 */
  petra_action_kind kind;
  int64_t microbatch; /* from 0 */
} petra_action;

/* The address of a message between stages, or between the replicas of a stage, from the receiver's point of view. */
typedef struct petra_packet {
  int32_t stage; /* the receiving stage, from 1 */
  bool backward; /* the message comes from the stage above */
  /* The message belongs to the exchange of a stage with its replicas, and comes neither from above nor from below. */
  bool exchange;
  int64_t microbatch;
} petra_packet;

char petra_action_letter(petra_action_kind kind);

/* Writes "2F0" and the terminator to text; 40 bytes are enough. */
void petra_action_print(const petra_action *action, char *text, size_t size);

/* Parses the text that petra_action_print writes. Returns NULL, or a description of what was expected. */
const char *petra_action_read(const char *text, petra_action *out);

/* Checks numbers from a file: stages up to 100000 and microbatches below 10^12 (cluster.stages and run.max_microbatches
 * keep runs far below these limits). Returns NULL, or a description of what was expected. */
const char *petra_action_check(int64_t stage, int64_t kind, int64_t microbatch);
