/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/stage.h"

#include "backend/backend.h"
#include "base/mem.h"
#include "stage/stage_private.h"

#include <assert.h>

void petra_message_release(petra_message *message) {
  petra_streams_release(&message->streams);
  petra_streams_release(&message->gradients);
}

static petra_status create_past(petra_stage *stage, int b) {
  const int steps = petra_mitigation_feedback(&stage->options.mitigation);
  petra_stage_sets *sets = &stage->sets[b];
  if (steps == 0)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&sets->past, (size_t)steps, sizeof *sets->past));
  for (int t = 0; t < steps; t++)
    PETRA_TRY(petra_tensor_set_create(&stage->compute, stage->options.model, petra_stage_block(stage, b), false,
                                      PETRA_MEMORY_MOMENTUM, &sets->past[t]));
  return PETRA_OK;
}

static petra_status create_sets(petra_stage *stage, int b) {
  const petra_stage_mitigation *mitigation = &stage->options.mitigation;
  const bool predicts = petra_mitigation_predicts(mitigation), corrects = petra_mitigation_corrects(mitigation),
             averages = petra_mitigation_averages(mitigation);
  petra_stage_sets *sets = &stage->sets[b];
  const struct {
    petra_tensor_set *set;
    petra_memory_category category;
    bool wanted;
  } all[] = {{&sets->parameters, PETRA_MEMORY_PARAMETERS, true},
             {&sets->statistics, PETRA_MEMORY_STATISTICS, true},
             {&sets->gradients, PETRA_MEMORY_GRADIENTS, true},
             {&sets->accumulated, PETRA_MEMORY_GRADIENTS, petra_stage_sums(stage)},
             {&sets->predicted, PETRA_MEMORY_WEIGHT_BUFFER, predicts},
             {&sets->trend, PETRA_MEMORY_MOMENTUM, averages},
             {&sets->corrected, PETRA_MEMORY_WEIGHT_BUFFER, corrects}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].wanted)
      PETRA_TRY(petra_tensor_set_create(&stage->compute, stage->options.model, petra_stage_block(stage, b),
                                        all[i].set == &sets->statistics, all[i].category, all[i].set));
  for (int s = 0; s < PETRA_OPTIMISER_STATES; s++)
    PETRA_TRY(petra_optim_state_create(&stage->options.optim, &stage->compute, stage->options.model,
                                       petra_stage_block(stage, b), s, &sets->states[s]));
  return create_past(stage, b);
}

petra_status petra_stage_create(const petra_stage_options *options, petra_stage **out) {
  petra_stage *stage;
  petra_status status;
  int blocks = options->end - options->first + (options->auxiliary > 0);
  PETRA_TRY(petra_allocate(&stage, 1, sizeof *stage + (size_t)blocks * sizeof *stage->sets));
  stage->options = *options;
  stage->blocks = blocks;
  stage->compute =
      (petra_compute){.backend = options->backend, .account = &stage->account, .losses_later = options->auxiliary == 0};
  stage->records.blocks = stage->versions.blocks = blocks;
  if (options->rule.sync_period > 0)
    petra_versions_hold(&stage->versions, 0, 0); /* F's copy */
  if (options->formats.keep != PETRA_FORMAT_NATIVE)
    PETRA_TRY_GOTO(status, petra_allocate(&stage->graph_forms, (size_t)blocks, sizeof *stage->graph_forms), fail);
  for (int b = 0; b < blocks; b++)
    PETRA_TRY_GOTO(status, create_sets(stage, b), fail);
  *out = stage;
  return PETRA_OK;
fail:
  petra_stage_destroy(stage);
  return status;
}

void petra_stage_destroy(petra_stage *stage) {
  if (!stage)
    return;
  for (int b = 0; b < stage->blocks; b++) {
    petra_tensor_set_release(&stage->sets[b].parameters);
    petra_tensor_set_release(&stage->sets[b].statistics);
    for (int s = 0; s < PETRA_OPTIMISER_STATES; s++)
      petra_tensor_set_release(&stage->sets[b].states[s]);
    petra_tensor_set_release(&stage->sets[b].gradients);
    petra_tensor_set_release(&stage->sets[b].accumulated);
    petra_tensor_set_release(&stage->sets[b].predicted);
    petra_tensor_set_release(&stage->sets[b].trend);
    petra_tensor_set_release(&stage->sets[b].corrected);
    for (int t = 0; stage->sets[b].past && t < petra_mitigation_feedback(&stage->options.mitigation); t++)
      petra_tensor_set_release(&stage->sets[b].past[t]);
    petra_free(stage->sets[b].past);
  }
  petra_stage_empty(stage);
  petra_free(stage->graph_forms);
  /* A tensor that is still referenced elsewhere would return its bytes to freed memory. */
  assert(stage->account.total_bytes == 0);
  petra_free(stage);
}

static petra_status initialise_set(petra_stage *stage, int b, const petra_tensor_set *set, uint64_t seed) {
  const petra_block *block = petra_stage_block(stage, b);
  for (int i = 0; i < set->count; i++) {
    PETRA_FREED double *values = NULL;
    petra_tensor_spec spec;
    if (set == &stage->sets[b].statistics)
      petra_block_statistic(block, i, &spec);
    else
      petra_block_parameter(stage->options.model, block, i, &spec);
    PETRA_TRY(petra_allocate(&values, (size_t)set->tensor[i]->elements, sizeof *values));
    petra_initial_values(&spec, seed, block, i, values);
    PETRA_TRY(petra_op_upload(stage->compute.backend, set->tensor[i], values, PETRA_HOST_F64));
  }
  return PETRA_OK;
}

petra_status petra_stage_initialise(petra_stage *stage, uint64_t seed) {
  for (int b = 0; b < stage->blocks; b++) {
    PETRA_TRY(initialise_set(stage, b, &stage->sets[b].parameters, seed));
    PETRA_TRY(initialise_set(stage, b, &stage->sets[b].statistics, seed));
  }
  return PETRA_OK;
}

const petra_block *petra_stage_block(const petra_stage *stage, int b) {
  const petra_stage_options *options = &stage->options;
  return &options->model->blocks[options->first + b < options->end ? options->first + b : options->auxiliary];
}

petra_account *petra_stage_account(petra_stage *stage) {
  return &stage->account;
}

int64_t petra_stage_version(const petra_stage *stage) {
  return stage->updates;
}

int64_t petra_stage_version_read(const petra_stage *stage) {
  return stage->version_read;
}

petra_status petra_stage_each_kept(const petra_stage *stage, int64_t microbatch,
                                   petra_status (*each)(void *context, petra_tensor *tensor), void *context) {
  petra_record *record = petra_records_at(&stage->records, microbatch);
  for (int b = 0; record && b < stage->blocks; b++) {
    petra_tensor **members[PETRA_RECORD_TENSORS];
    petra_record_members(record, b, members);
    for (int i = 0; i < PETRA_RECORD_TENSORS; i++)
      if (*members[i])
        PETRA_TRY(each(context, *members[i]));
  }
  return PETRA_OK;
}

petra_tensor *petra_stage_tensor(petra_stage *stage, int block, bool statistics, int index) {
  petra_stage_sets *sets = &stage->sets[petra_stage_place(stage, block)];
  return statistics ? sets->statistics.tensor[index] : sets->parameters.tensor[index];
}

bool petra_stage_gradient_complete(const petra_stage *stage) {
  const int accumulate = stage->options.rule.accumulate;
  return stage->begun == accumulate && stage->counted == accumulate;
}

petra_status petra_stage_visit_shared(petra_stage *stage, petra_status (*visit)(void *context, petra_tensor *tensor),
                                      void *context) {
  for (int b = 0; b < stage->blocks; b++) {
    const petra_tensor_set *shared[] = {petra_stage_gradients(stage, b), &stage->sets[b].statistics};
    for (int s = 0; s < 2; s++)
      for (int i = 0; i < shared[s]->count; i++)
        PETRA_TRY(visit(context, shared[s]->tensor[i]));
  }
  return PETRA_OK;
}
