/* SPDX-License-Identifier: Apache-2.0 */
/* Segments as CUDA graphs. A segment that occurs a second time, with the same launches and arguments to the byte, is
 * captured, and from then on launched as one graph. Values that change (rates, labels) lie in device memory at fixed
 * places (transfer.h), and the tensor pool assigns storage such that addresses repeat (backend/pool.c). */
#pragma once

#include "backend/cuda/cuda.h"

/* Creates the graphs. `insist`: a capture that fails is an error; otherwise the segment is launched directly from then
 * on. */
petra_status cuda_graphs_create(bool insist, cuda_graphs **out);
void cuda_graphs_destroy(cuda_graphs *graphs);

/* Runs a segment on a lane, as a graph if there is one. */
petra_status cuda_graphs_launch(cuda_graphs *graphs, int number, const cuda_lane *lane, const unsigned char *commands,
                                size_t bytes);

/* Gets how many graphs there are, and how many segments were launched as a graph and one by one. */
void cuda_graphs_count(const cuda_graphs *graphs, int64_t *captured, int64_t *launched, int64_t *single);
