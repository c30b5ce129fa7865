/* SPDX-License-Identifier: Apache-2.0 */

#include "backend/cuda/cuda.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

enum {
  SEEN = 1 << 14, /* sets of hashes of segments that occurred once; a new hash replaces the oldest of its set */
  WAYS = 4,
  TABLE = 1 << 14,   /* entries for graphs, a power of two */
  GRAPHS_MAX = 8192, /* beyond these, segments are launched one by one */
};

typedef struct captured {
  uint64_t hash;
  unsigned char *commands; /* NULL: a free entry */
  size_t bytes;
  int lane;
  cudaGraphExec_t exec; /* NULL: could not be captured */
} captured;

struct cuda_graphs {
  bool insist;
  bool reported; /* a failed capture was reported: once is enough */
  uint64_t seen[SEEN][WAYS];
  captured table[TABLE];
  int count;
  int64_t launched, single;
};

petra_status cuda_graphs_create(bool insist, cuda_graphs **out) {
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->insist = insist;
  return PETRA_OK;
}

void cuda_graphs_destroy(cuda_graphs *graphs) {
  if (!graphs)
    return;
  for (int i = 0; i < TABLE; i++) {
    if (graphs->table[i].exec)
      cudaGraphExecDestroy(graphs->table[i].exec);
    petra_free(graphs->table[i].commands);
  }
  petra_free(graphs);
}

/* Hashes eight bytes at a time; the result is never 0. */
static uint64_t hash_of(int lane, const unsigned char *commands, size_t bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15u ^ (uint64_t)lane;
  for (size_t i = 0; i < bytes; i += sizeof hash) {
    uint64_t word;
    memcpy(&word, commands + i, sizeof word);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash ? hash : 1;
}

/* Returns the entry of a segment or, if it has none, the free entry for it. */
static captured *place_of(cuda_graphs *graphs, uint64_t hash, int lane, const unsigned char *commands, size_t bytes) {
  for (uint64_t i = hash;; i++) {
    captured *place = &graphs->table[i % TABLE];
    if (!place->commands || (place->hash == hash && place->lane == lane && place->bytes == bytes &&
                             memcmp(place->commands, commands, bytes) == 0))
      return place;
  }
}

/* Returns true if a segment is known to have occurred before; records it. */
static bool came_before(cuda_graphs *graphs, uint64_t hash) {
  uint64_t *set = graphs->seen[hash % SEEN];
  for (int i = 0; i < WAYS; i++)
    if (set[i] == hash)
      return true;
  memmove(set + 1, set, (WAYS - 1) * sizeof *set);
  set[0] = hash;
  return false;
}

/* Records the launches instead of running them. *failed names the call that failed, and *launched is the status of a
 * launch, logged. */
static cudaError_t capture(const cuda_lane *lane, const unsigned char *commands, size_t bytes, cudaGraphExec_t *out,
                           const char **failed, petra_status *launched) {
  cudaGraph_t graph = NULL;
  *failed = "the begin of a graph's capture";
  *launched = PETRA_OK;
  cudaError_t error = cudaStreamBeginCapture(lane->stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess)
    return error;
  *launched = cuda_launch_commands(lane, commands, bytes);
  *failed = "the end of a graph's capture";
  error = cudaStreamEndCapture(lane->stream, &graph);
  if (error == cudaSuccess && *launched == PETRA_OK) {
    *failed = "cudaGraphInstantiate";
    error = cudaGraphInstantiate(out, graph, 0);
  }
  if (graph)
    cudaGraphDestroy(graph);
  return error;
}

/* Adds a segment. If its graph cannot be made, this is not tried a second time. */
static petra_status add(cuda_graphs *graphs, captured *place, uint64_t hash, int number, const cuda_lane *lane,
                        const unsigned char *commands, size_t bytes) {
  const char *failed;
  petra_status launched;
  PETRA_TRY(petra_allocate_raw(&place->commands, bytes, 1));
  memcpy(place->commands, commands, bytes);
  place->hash = hash;
  place->bytes = bytes;
  place->lane = number;
  graphs->count++;
  cudaError_t error = capture(lane, commands, bytes, &place->exec, &failed, &launched);
  if (graphs->insist && launched != PETRA_OK)
    return launched;
  if (graphs->insist || (error == cudaSuccess && launched == PETRA_OK))
    return cuda_check(error, failed);
  place->exec = NULL;
  cudaGetLastError(); /* clears the error, which was handled */
  if (graphs->reported)
    return PETRA_OK;
  graphs->reported = true;
  petra_log(PETRA_LOG_WARNING,
            "cuda: %s: %s: %s; from now on the kernels of such actions are launched one by one (device.graph: off "
            "disables graphs)",
            failed, launched == PETRA_OK ? cudaGetErrorName(error) : "a launch failed",
            launched == PETRA_OK ? cudaGetErrorString(error) : "above");
  return PETRA_OK;
}

petra_status cuda_graphs_launch(cuda_graphs *graphs, int number, const cuda_lane *lane, const unsigned char *commands,
                                size_t bytes) {
  const uint64_t hash = hash_of(number, commands, bytes);
  captured *place = place_of(graphs, hash, number, commands, bytes);
  if (!place->commands && graphs->count < GRAPHS_MAX && came_before(graphs, hash))
    PETRA_TRY(add(graphs, place, hash, number, lane, commands, bytes));
  if (place->exec) {
    graphs->launched++;
    return cuda_check(cudaGraphLaunch(place->exec, lane->stream), "cudaGraphLaunch");
  }
  graphs->single++;
  return cuda_launch_commands(lane, commands, bytes);
}

void cuda_graphs_count(const cuda_graphs *graphs, int64_t *captured_count, int64_t *launched, int64_t *single) {
  *captured_count = graphs->count;
  *launched = graphs->launched;
  *single = graphs->single;
}
