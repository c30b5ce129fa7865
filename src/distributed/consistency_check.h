/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what must be the same on all ranks of an executed run: program, backend, data, files that they read, the
 * whole config. */
#pragma once

#include "data/dataset.h"
#include "setup/virtual_cluster.h"
#include "exec/network.h"

typedef struct petra_consistency {
  const petra_network *network;
  const petra_cluster *cluster;            /* its costs determine the order */
  const petra_dataset *train, *evaluation; /* evaluation NULL: none */
  bool resumes, traces;                    /* --resume, --trace: all ranks act on them together */
} petra_consistency;

/* Prints the lines of text to compare, as a petra_text_printer of a petra_consistency: files and images by a hash.
 * Fails if one cannot be read. */
petra_status petra_consistency_print(const void *digest, FILE *out);
