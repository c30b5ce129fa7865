/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the probes in run.h5. */
#include "run/run_private.h"

#include "backend/backend.h"
#include "base/mem.h"

#include <stdio.h>

#define NAME(name, text, ...) text,
static const char *const gradient_names[] = {PETRA_GRADIENT_LIST(NAME)};
static const char *const pair_names[] = {PETRA_PAIR_LIST(NAME)};
static const char *const measure_names[] = {PETRA_MEASURE_LIST(NAME)};
#undef NAME

static petra_run_h5_parameter describe(const petra_plan *plan, const petra_block *block, int stage, int index) {
  static const char *const dimensions[5][4] = {{0}, {"channel"}, {"out", "in"}, {0}, {"out", "in", "kh", "kw"}};
  petra_tensor_spec spec;
  petra_block_parameter(&plan->model, block, index, &spec);
  petra_run_h5_parameter out = {
      .stage = stage, .zero = petra_block_parameter_is_invariant(&plan->model, block, index), .rank = spec.rank};
  snprintf(out.name, sizeof out.name, "%02d/%s", block->number, spec.name);
  for (int d = 0; d < spec.rank; d++) {
    out.shape[d] = spec.shape[d];
    out.dimensions[d] = dimensions[spec.rank][d];
  }
  return out;
}

static int32_t count_parameters(const petra_model *model) {
  int32_t count = 0;
  for (int b = 0; b < model->block_count; b++)
    count += petra_block_parameter_count(&model->blocks[b]);
  return count;
}

static petra_status fetch(void *context, int gradient, int32_t parameter, double *values) {
  const petra_probe_log *log = context;
  const petra_tensor *tensor = log->tensors[gradient * log->row->parameters + parameter];
  return petra_op_download(log->network->backend, tensor, values, PETRA_HOST_F64);
}

petra_status petra_probe_log_row(void *context, const petra_probe_row *row) {
  petra_probe_log *log = context;
  const petra_run_h5_probe_row out = {.microbatch = row->microbatch,
                                      .epoch = (int32_t)(row->microbatch / log->network->plan->program.batches),
                                      .stage = row->stage,
                                      .concatenated = row->concatenated,
                                      .reconstruction = row->reconstruction,
                                      .parameter = row->parameter,
                                      .fetch = fetch,
                                      .context = log};
  log->row = row;
  for (int g = 0; g < PETRA_GRADIENTS && row->gradients[g]; g++) {
    const petra_tensor **at = log->tensors + g * row->parameters;
    for (int b = 0; b < log->network->plan->model.block_count; b++)
      for (int i = 0; i < row->gradients[g][b].count; i++)
        *at++ = row->gradients[g][b].tensor[i];
  }
  return petra_run_h5_probe_append(log->log, &out);
}

petra_status petra_probe_log_init(petra_probe_log *log, const petra_network *network, petra_run_h5 *run_h5,
                                  bool resumed) {
  const petra_plan *plan = network->plan;
  const petra_config *config = plan->config;
  const int32_t count = count_parameters(&plan->model);
  *log = (petra_probe_log){.network = network};
  PETRA_TRY(petra_allocate(&log->parameters, (size_t)count, sizeof *log->parameters));
  PETRA_TRY(petra_allocate(&log->tensors, PETRA_GRADIENTS * (size_t)count, sizeof *log->tensors));
  petra_run_h5_parameter *at = log->parameters;
  for (int j = 0; j < plan->partition.stages; j++)
    for (int b = plan->partition.first[j]; b < plan->partition.first[j + 1]; b++)
      for (int i = 0; i < petra_block_parameter_count(&plan->model.blocks[b]); i++)
        *at++ = describe(plan, &plan->model.blocks[b], j + 1, i);
  const petra_run_h5_probe_options options = {.stages = plan->partition.stages,
                                              .parameters = count,
                                              .parameter = log->parameters,
                                              .measures = measure_names,
                                              .measure_count = PETRA_MEASURES,
                                              .pairs = pair_names,
                                              .pair_count = PETRA_PAIRS,
                                              .gradients = gradient_names,
                                              .gradient_count = config->probe.gradients ? PETRA_GRADIENTS : 0,
                                              .single = petra_plan_element_bytes(plan, PETRA_TENSOR_FILTER) <=
                                                        (int64_t)sizeof(float),
                                              .resumed = resumed};
  return petra_run_h5_probe_create(run_h5, &options, &log->log);
}

void petra_probe_log_fini(petra_probe_log *log) {
  petra_run_h5_probe_destroy(log->log);
  petra_free(log->parameters);
  petra_free(log->tensors);
  *log = (petra_probe_log){0};
}
