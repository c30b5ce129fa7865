/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of an executed run have to have alike: program, backend, data, files that they read, the whole config. */
#pragma once

#include "data/dataset.h"
#include "plan/virtual_cluster.h"
#include "plan/network.h"

typedef struct petra_consistency {
  const petra_network *network;
  const petra_cluster *cluster;            /* whose costs decide the order */
  const petra_dataset *train, *evaluation; /* evaluation NULL: none */
  bool resumes, traces;                    /* --resume, --trace: all ranks do together what they ask for */
} petra_consistency;

/* As lines of text, a petra_text_printer of a petra_consistency: files and images by a hash. Fails where one cannot be read. */
petra_status petra_consistency_print(const void *digest, FILE *out);
