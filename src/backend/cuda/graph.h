/* SPDX-License-Identifier: Apache-2.0 */
/* Segments as CUDA graphs. A segment that comes a second time, with the same launches and arguments to the byte, is
 * captured, and from then on launched as one graph. What changes from time to time (rates, labels) lies in device
 * memory at fixed places (transfer.h), and the tensor pool gives out storage such that addresses come again
 * (backend/pool.c). */
#ifndef PETRA_BACKEND_CUDA_GRAPH_H
#define PETRA_BACKEND_CUDA_GRAPH_H

#include "backend/cuda/cuda.h"

/* `insist`: a capture that fails is an error; otherwise the segment is launched as it is from then on. */
petra_status cuda_graphs_create(bool insist, cuda_graphs **out);
void cuda_graphs_destroy(cuda_graphs *graphs);

/* Runs a segment on a lane, as a graph where there is one. */
petra_status cuda_graphs_launch(cuda_graphs *graphs, int number, const cuda_lane *lane, const unsigned char *commands,
                                size_t bytes);

/* How many graphs there are, and how many segments were launched as a graph and one by one. */
void cuda_graphs_count(const cuda_graphs *graphs, int64_t *captured, int64_t *launched, int64_t *single);

#endif
