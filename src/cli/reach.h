/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the text and the JSON of petra reach. */
#pragma once

#include "reach/reach.h"

enum { PETRA_REACH_SENTENCE = 1024 };

/* Names a cluster by its file without folder and ending, or "own". */
void petra_reach_name(const petra_reach_cluster *cluster, char out[PETRA_REACH_SENTENCE]);

/* "training loss at most 2.9 nats". */
void petra_reach_target_text(const petra_reach *reach, char out[PETRA_REACH_SENTENCE]);

/* States the rule by which losses are smoothed. */
void petra_reach_rule_text(const petra_reach *reach, char out[PETRA_REACH_SENTENCE]);

/* "petra needs 24 % more updates than 1f1b and takes 58 % less time"; "" if a group has no reference. */
void petra_reach_delay_text(const petra_reach *reach, const petra_reach_cluster *cluster, int group,
                            char out[PETRA_REACH_SENTENCE]);

/* A group on a cluster, and what is said about it: its network, costs and links; about all groups, in what they are not
 * alike ("": they are). Free the text with petra_free. */
typedef struct petra_reach_view {
  const petra_reach *reach;
  const petra_reach_cluster *cluster;
  int group;
} petra_reach_view;
typedef enum petra_reach_words {
  PETRA_REACH_NETWORK,
  PETRA_REACH_COSTS,
  PETRA_REACH_LINKS,
  PETRA_REACH_UNLIKE
} petra_reach_words;
petra_status petra_reach_view_text(const petra_reach_view *view, petra_reach_words which, char **out);

/* Explains intervals; --as. */
extern const char petra_reach_interval_text[], petra_reach_as_text[];

/* Prints all results as one JSON object. */
petra_status petra_reach_print_json(const petra_reach *reach);
