/* SPDX-License-Identifier: Apache-2.0 */
/* Older versions of a stage's weights, kept as long as they have holders: microbatches in flight whose backward will
 * read the weights of their forward, the double buffer, F's own copy. Version v is the weights after v updates. The
 * latest version lives in the stage itself; it is copied when an update is about to change it and it has a holder. */
#pragma once

#include "nn/graph.h"

typedef struct petra_version {
  int64_t number;
  int holders;
  petra_tensor_set *sets; /* per block */
} petra_version;

typedef struct petra_versions {
  int blocks;
  int latest_holders; /* of the latest version */
  petra_version *old; /* in no order */
  int count;
  int count_max; /* maximum number of old versions at once */
  int64_t capacity;
} petra_versions; /* all zeros except `blocks`: none */

void petra_versions_fini(petra_versions *versions);

/* Adds, or removes, a holder of `number`, which is `latest` or an old version that has holders. */
void petra_versions_hold(petra_versions *versions, int64_t number, int64_t latest);
void petra_versions_release(petra_versions *versions, int64_t number, int64_t latest);

/* Before an update changes the latest version, `number`: copies `sets` (one per block) if it has a holder. */
petra_status petra_versions_keep(petra_versions *versions, const petra_compute *compute, int64_t number,
                                 const petra_tensor_set *const *sets);

/* Adds an old version with empty sets at the end of the list, for a checkpoint to fill. */
petra_status petra_versions_add(petra_versions *versions, int64_t number, int holders);

/* Returns the sets of an old version, one per block; NULL if it is not kept. */
const petra_tensor_set *petra_versions_find(const petra_versions *versions, int64_t number);
