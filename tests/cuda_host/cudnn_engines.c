/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuDNN's engines: what heuristics and engines answer. */
#include "cuda_host/cudnn_fake.h"

#define NOTE(name) CUDNN_NUMERICAL_NOTE_##name
#define REFUSED(number, note)                                                                                          \
  {                                                                                                                    \
    .index = number, .workspace = 64, .note_count = 1, .notes = { NOTE(note) }                                         \
  }

/* One for each reason to be refused, each worse than it looks; then two good ones. */
static const cudnn_fake_engine mode_a[] = {
    REFUSED(11, NONDETERMINISTIC),
    REFUSED(12, DOWN_CONVERT_INPUTS),
    REFUSED(13, REDUCED_PRECISION_REDUCTION),
    REFUSED(14, FFT),
    REFUSED(15, WINOGRAD),
    REFUSED(16, WINOGRAD_TILE_6x6),
    {.index = 17, .workspace = (int64_t)1 << 40},
    {.index = 18, .finalizes = CUDNN_STATUS_NOT_SUPPORTED},
    {.index = 19, .workspace = 1000, .per_channel = 24, .note_count = 1, .notes = {NOTE(TENSOR_CORE)}},
    {.index = 20, .per_channel = 40, .compiled = true, .note_count = 1, .notes = {NOTE(STRICT_NAN_PROP)}},
    {.index = 41, .takes = CUDNN_FAKE_ROUNDS | CUDNN_FAKE_WIDENS, .finalizes = CUDNN_STATUS_NOT_SUPPORTED},
    {.index = 42,
     .takes = CUDNN_FAKE_ROUNDS | CUDNN_FAKE_WIDENS,
     .workspace = 500,
     .per_channel = 8,
     .compiled = true,
     .note_count = 1,
     .notes = {NOTE(TENSOR_CORE)}}};
static const cudnn_fake_engine mode_b[] = {{.index = 21, .workspace = 512}};
static const cudnn_fake_engine fallback[] = {{.index = 31}};

static struct {
  const cudnn_fake_engine *engines;
  int count;
} given[CUDNN_HEUR_MODES_COUNT];

void petra_cudnn_fake_engines(cudnnBackendHeurMode_t mode, const cudnn_fake_engine *engines, int count) {
  given[mode].engines = engines;
  given[mode].count = count;
}

static const cudnn_fake_engine *engines_of(int mode, int *count) {
  if (given[mode].engines) {
    *count = given[mode].count;
    return given[mode].engines;
  }
  *count = mode == CUDNN_HEUR_MODE_A ? (int)(sizeof mode_a / sizeof *mode_a) : 1;
  return mode == CUDNN_HEUR_MODE_A ? mode_a : mode == CUDNN_HEUR_MODE_B ? mode_b : fallback;
}

bool cudnn_fake_noted(const cudnn_fake_engine *engine, cudnnBackendNumericalNote_t note) {
  for (int i = 0; i < engine->note_count; i++)
    if (engine->notes[i] == note)
      return true;
  return false;
}

int64_t cudnn_fake_workspace(const cudnn_fake_descriptor *plan) {
  cudnn_fake_operation operation;
  cudnn_fake_read_graph(plan->graph, &operation);
  return plan->engine->workspace + plan->engine->per_channel * operation.x.dims[1];
}

/* Fills a descriptor that the caller made for it. */
static cudnnStatus_t fill(void *descriptor, int type, const cudnn_fake_engine *engine,
                          const cudnn_fake_descriptor *graph, const cudnn_fake_descriptor *deviceprop) {
  cudnn_fake_descriptor *out = cudnn_fake_find(descriptor, type);
  if (!out || out->finalized)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "nothing to be filled, or full already");
  out->engine = engine;
  out->graph = graph;
  out->deviceprop = deviceprop;
  out->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

static bool takes(const cudnn_fake_engine *engine, const cudnn_fake_descriptor *graph) {
  cudnn_fake_operation operation;
  cudnn_fake_read_graph(graph, &operation);
  if (operation.kind == CUDNN_FAKE_FILTER && (operation.extras & CUDNN_FAKE_ROUNDS) != 0)
    return false;
  return (engine->takes != 0) == (operation.extras != 0) && (operation.extras & ~engine->takes) == 0;
}

static cudnnStatus_t results(const cudnn_fake_descriptor *d, int64_t wanted, int64_t *count, void *out) {
  int available;
  const cudnn_fake_engine *engines = engines_of((int)cudnn_fake_number(d, CUDNN_ATTR_ENGINEHEUR_MODE, 0), &available);
  const cudnn_fake_descriptor *graph = cudnn_fake_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  *count = 0;
  for (int i = 0; i < available; i++) {
    if (!takes(&engines[i], graph))
      continue;
    const int64_t at = (*count)++;
    if (at >= wanted)
      continue;
    cudnnStatus_t status = fill(((void **)out)[at], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &engines[i], graph,
                                cudnn_fake_part(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP));
    if (status != CUDNN_STATUS_SUCCESS)
      return status;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnn_fake_answer(const cudnn_fake_descriptor *d, int name, int64_t wanted, int64_t *count, void *out) {
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    return results(d, wanted, count, out);
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    *count = d->engine->note_count;
    for (int i = 0; i < d->engine->note_count && i < wanted; i++)
      ((cudnnBackendNumericalNote_t *)out)[i] = d->engine->notes[i];
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) {
    *count = d->engine->compiled ? 1 : 0;
    if (d->engine->compiled && wanted > 0)
      *(cudnnBackendBehaviorNote_t *)out = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return CUDNN_STATUS_SUCCESS;
  }
  if (wanted != 1)
    return cudnn_fake_refuse(CUDNN_STATUS_BAD_PARAM, "there is one value");
  *count = 1;
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
    return fill(*(void **)out, CUDNN_BACKEND_ENGINE_DESCRIPTOR, d->engine, d->graph, d->deviceprop);
  *(int64_t *)out = name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX ? d->engine->index : cudnn_fake_workspace(d);
  return CUDNN_STATUS_SUCCESS;
}
