/* SPDX-License-Identifier: Apache-2.0 */
/* The mean over the replicas of what a stage shares with them (stage/replica.h), on the host, in the element type of
 * exec/tensor_bytes.h: (g_0 + g_1 + ... + g_{r-1}) / r, summed and divided in that type, in the order of replicas. Whoever computes a part of
 * it, in one process or in several, gets the same bits. */
#ifndef PETRA_EXEC_REPLICA_MEAN_H
#define PETRA_EXEC_REPLICA_MEAN_H

#include "stage/replica.h"

/* How much a stage shares. */
typedef struct petra_shared_size {
  int64_t elements;
  size_t element_bytes; /* 4: float; 8: double */
} petra_shared_size;

static inline size_t petra_shared_bytes(const petra_shared_size *size) {
  return (size_t)size->elements * size->element_bytes;
}

petra_status petra_shared_size_of(petra_stage *stage, petra_shared_size *out);

/* All of it to, and from, petra_shared_bytes bytes, in the order of petra_stage_visit_shared. */
petra_status petra_shared_pack(petra_stage *stage, void *to);
petra_status petra_shared_unpack(petra_stage *stage, const void *from);

/* out[e] = (parts[0][e] + ... + parts[replicas - 1][e]) / replicas; `out` may be one of the parts. All aligned to their
 * elements. */
void petra_replica_mean(const void *const *parts, int replicas, const petra_shared_size *size, void *out);

#endif
