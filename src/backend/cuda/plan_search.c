/* SPDX-License-Identifier: Apache-2.0 */
/* From the heuristics' engine configurations, best first, to the first that has the wanted notes, finalizes
 * and fits, or to the one after that. */
#include "backend/cuda/plan_private.h"

#include "base/log.h"
#include "base/mem.h"

#include <cudnn_graph.h>

#include <stdio.h>

static const cudnnBackendHeurMode_t modes[CUDA_PLAN_MODES] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                              CUDNN_HEUR_MODE_FALLBACK};

/* --- notes --- */

static unsigned own_note(cudnnBackendNumericalNote_t note) {
  switch (note) {
  case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    return CUDA_PLAN_NOTE_TENSOR_CORES;
  case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    return CUDA_PLAN_NOTE_NONDETERMINISTIC;
  case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    return CUDA_PLAN_NOTE_DOWN_CONVERTS;
  case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    return CUDA_PLAN_NOTE_REDUCED_SUMS;
  case CUDNN_NUMERICAL_NOTE_FFT:
    return CUDA_PLAN_NOTE_FFT;
  case CUDNN_NUMERICAL_NOTE_WINOGRAD:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
    return CUDA_PLAN_NOTE_WINOGRAD;
  default:
    return 0;
  }
}

/* Sums are f32 in every precision, and inputs are rounded to no less than the precision's name says, so that both notes
 * are unwanted always. Winograd and Fourier transforms are as well: their rounding errors are relative to the largest
 * element of a tile or an image instead of each output's own terms, and the streams that reversible blocks invert
 * through many layers accumulate them; what tensor cores do is the whole difference that tf32 and bf16 stand for. */
static unsigned unwanted_notes(int precision, bool deterministic) {
  unsigned notes =
      CUDA_PLAN_NOTE_DOWN_CONVERTS | CUDA_PLAN_NOTE_REDUCED_SUMS | CUDA_PLAN_NOTE_WINOGRAD | CUDA_PLAN_NOTE_FFT;
  if (precision != PETRA_PRECISION_TF32 && precision != PETRA_PRECISION_BF16)
    notes |= CUDA_PLAN_NOTE_TENSOR_CORES;
  if (deterministic)
    notes |= CUDA_PLAN_NOTE_NONDETERMINISTIC;
  return notes;
}

static int engine_notes(void *engine, int64_t *number, unsigned *notes, bool *compiled) {
  cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  int64_t count = 0;
  *notes = 0;
  *compiled = false;
  int status = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number);
  if (status != CUDNN_STATUS_SUCCESS)
    return status;
  status = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, numerical);
  if (status != CUDNN_STATUS_SUCCESS)
    return status;
  for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
    *notes |= own_note(numerical[i]);
  status = cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                    CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behavior);
  if (status != CUDNN_STATUS_SUCCESS)
    return status;
  for (int64_t i = 0; i < count && i < CUDNN_BEHAVIOR_NOTE_TYPE_COUNT; i++)
    *compiled = *compiled || behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  return status;
}

int cuda_config_notes(void *config, int64_t *engine, unsigned *notes, bool *compiled) {
  void *descriptor = NULL;
  int64_t count = 0;
  int status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &descriptor);
  if (status != CUDNN_STATUS_SUCCESS)
    return status;
  status = cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                    &descriptor);
  if (status == CUDNN_STATUS_SUCCESS)
    status = engine_notes(descriptor, engine, notes, compiled);
  cudnnBackendDestroyDescriptor(descriptor);
  return status;
}

/* --- one configuration --- */

static int make_plan(const cuda_plan_wanted *wanted, void *config, void **plan) {
  cuda_attribute attributes[] = {
      {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config},
      {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &wanted->deviceprop}};
  if (wanted->handle != NULL)
    attributes[1] = (cuda_attribute){CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &wanted->handle};
  return cuda_descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes, 2, plan);
}

/* Fills the plan and answers true where `config` serves; the plan then owns it. */
static bool take(const cuda_plan_wanted *wanted, void *config, cuda_plan *plan, cuda_plan_refusals *why) {
  int64_t workspace = 0, count = 0;
  why->requested++;
  int status = cuda_config_notes(config, &plan->engine, &plan->notes, &plan->compiled);
  if (status == CUDNN_STATUS_SUCCESS &&
      (plan->notes & unwanted_notes(plan->shape.precision, wanted->deterministic)) != 0) {
    why->notes++;
    return false;
  }
  if (status == CUDNN_STATUS_SUCCESS)
    status = make_plan(wanted, config, &plan->plan);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                      &workspace);
  if (status == CUDNN_STATUS_SUCCESS && workspace >= 0 && (uint64_t)workspace <= wanted->workspace_max) {
    plan->workspace = (size_t)workspace;
    plan->config = config;
    return true;
  }
  cuda_descriptor_drop(&plan->plan);
  if (status == CUDNN_STATUS_SUCCESS)
    why->workspace++;
  else {
    why->unfinished++;
    why->last = status;
  }
  return false;
}

/* --- one mode of the heuristics --- */

/* Asks the heuristics' result, into `count` new configurations; `*filled` of them were. */
static int read_results(void *heuristics, void **configs, int64_t count, int64_t *filled) {
  for (int64_t i = 0; i < count; i++) {
    int status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]);
    if (status != CUDNN_STATUS_SUCCESS)
      return status;
  }
  return cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                  filled, configs);
}

/* From the configuration at `rank` on. Heuristics that cannot answer in this mode count as one that does not finalize. */
static petra_status try_mode(const cuda_plan_wanted *wanted, int mode, int rank, cuda_plan *plan,
                             cuda_plan_refusals *why) {
  const cuda_attribute attributes[] = {
      {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &plan->graph.graph},
      {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &modes[mode]},
      {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &wanted->deviceprop}};
  void *heuristics = NULL, **configs = NULL;
  int64_t count = 0, filled = 0;
  const int reported = wanted->deviceprop != NULL ? 3 : 2; /* otherwise the graph's handle decides */
  int status = cuda_descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, attributes, reported, &heuristics);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                      &count, NULL);
  petra_status result = petra_allocate(&configs, (size_t)count, sizeof *configs);
  if (result == PETRA_OK && status == CUDNN_STATUS_SUCCESS)
    status = read_results(heuristics, configs, count, &filled);
  if (status != CUDNN_STATUS_SUCCESS) {
    why->unfinished++;
    why->last = status;
  }
  for (int64_t i = rank; i < filled && plan->plan == NULL; i++)
    if (take(wanted, configs[i], plan, why)) {
      configs[i] = NULL;
      plan->place = (cuda_plan_place){mode, (int)i};
    }
  for (int64_t i = 0; configs != NULL && i < count; i++)
    cuda_descriptor_drop(&configs[i]);
  petra_free(configs);
  cuda_descriptor_drop(&heuristics);
  return result;
}

petra_status cuda_plan_search(const cuda_plan_wanted *wanted, cuda_plan_place first, cuda_plan *plan,
                              cuda_plan_refusals *why) {
  *why = (cuda_plan_refusals){0};
  for (int mode = first.mode; mode < CUDA_PLAN_MODES && plan->plan == NULL; mode++)
    PETRA_TRY(try_mode(wanted, mode, mode == first.mode ? first.rank : 0, plan, why));
  return PETRA_OK;
}

petra_status cuda_plan_none(const cuda_plan_wanted *wanted, const cuda_plan *plan, const cuda_plan_refusals *why) {
  char last[96] = "";
  if (why->unfinished > 0)
    snprintf(last, sizeof last, " (last: %s)", cudnnGetErrorString((cudnnStatus_t)why->last));
  return petra_fail(PETRA_UNSUPPORTED,
                    "cuDNN has no plan for the convolution %s%s: of %d engine configurations %d have "
                    "unwanted notes, %d need "
                    "more than %zu bytes of workspace, %d do not finalize%s",
                    cuda_shape_describe(&plan->shape).text, wanted->deterministic ? ", deterministic" : "",
                    why->requested, why->notes, why->workspace, wanted->workspace_max, why->unfinished, last);
}
