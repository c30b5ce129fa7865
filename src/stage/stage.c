#include "stage/stage.h"

#include "backend/ops.h"
#include "base/log.h"
#include "base/mem.h"
#include "stage/record.h"
#include "stage/stage_private.h"

#include <assert.h>

void petra_message_release(petra_message *message) {
  petra_streams_release(&message->streams);
  petra_streams_release(&message->gradients);
}

/* The sets of block `b` that mitigations need. */
static petra_status create_mitigation(petra_stage *stage, int b) {
  const petra_stage_mitigation *mitigation = &stage->options.mitigation;
  const petra_block *block = petra_stage_block(stage, b);
  const petra_model *model = stage->options.model;
  petra_stage_sets *sets = &stage->sets[b];
  if (petra_mitigation_predicts(mitigation))
    PETRA_TRY(
        petra_tensor_set_create(&stage->compute, model, block, false, PETRA_MEMORY_WEIGHT_BUFFER, &sets->predicted));
  if (!petra_mitigation_corrects(mitigation))
    return PETRA_OK;
  PETRA_TRY(petra_tensor_set_create(&stage->compute, model, block, false, PETRA_MEMORY_MOMENTUM, &sets->trend));
  return petra_tensor_set_create(&stage->compute, model, block, false, PETRA_MEMORY_WEIGHT_BUFFER, &sets->corrected);
}

petra_status petra_stage_create(const petra_stage_options *options, petra_stage **out) {
  petra_stage *stage;
  petra_status status;
  int blocks = options->end - options->first;
  PETRA_TRY(petra_allocate(&stage, 1, sizeof *stage));
  stage->options = *options;
  stage->blocks = blocks;
  stage->compute = (petra_compute){.backend = options->backend, .account = &stage->account, .losses_later = true};
  petra_records_init(&stage->records, blocks);
  petra_versions_init(&stage->versions, blocks);
  if (options->rule.sync_period > 0)
    petra_versions_hold(&stage->versions, 0, 0); /* F's copy */
  PETRA_TRY_GOTO(status, petra_allocate(&stage->sets, (size_t)blocks, sizeof *stage->sets), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&stage->present, (size_t)blocks, sizeof *stage->present), fail);
  for (int b = 0; b < blocks; b++) {
    const petra_block *block = petra_stage_block(stage, b);
    const petra_model *model = options->model;
    petra_stage_sets *sets = &stage->sets[b];
    const petra_compute *compute = &stage->compute;
    PETRA_TRY_GOTO(status,
                   petra_tensor_set_create(compute, model, block, false, PETRA_MEMORY_PARAMETERS, &sets->parameters),
                   fail);
    PETRA_TRY_GOTO(
        status, petra_tensor_set_create(compute, model, block, true, PETRA_MEMORY_STATISTICS, &sets->statistics), fail);
    PETRA_TRY_GOTO(
        status, petra_tensor_set_create(compute, model, block, false, PETRA_MEMORY_MOMENTUM, &sets->velocities), fail);
    PETRA_TRY_GOTO(
        status, petra_tensor_set_create(compute, model, block, false, PETRA_MEMORY_GRADIENTS, &sets->gradients), fail);
    PETRA_TRY_GOTO(status, create_mitigation(stage, b), fail);
    if (petra_stage_sums(stage))
      PETRA_TRY_GOTO(status,
                     petra_tensor_set_create(compute, model, block, false, PETRA_MEMORY_GRADIENTS, &sets->accumulated),
                     fail);
  }
  *out = stage;
  return PETRA_OK;
fail:
  petra_stage_destroy(stage);
  return status;
}

void petra_stage_empty(petra_stage *stage) {
  if (!stage)
    return;
  petra_records_fini(&stage->records);
  petra_versions_fini(&stage->versions);
}

void petra_stage_destroy(petra_stage *stage) {
  if (!stage)
    return;
  for (int b = 0; stage->sets && b < stage->blocks; b++) {
    petra_tensor_set_release(&stage->sets[b].parameters);
    petra_tensor_set_release(&stage->sets[b].statistics);
    petra_tensor_set_release(&stage->sets[b].velocities);
    petra_tensor_set_release(&stage->sets[b].gradients);
    petra_tensor_set_release(&stage->sets[b].accumulated);
    petra_tensor_set_release(&stage->sets[b].predicted);
    petra_tensor_set_release(&stage->sets[b].trend);
    petra_tensor_set_release(&stage->sets[b].corrected);
  }
  petra_stage_empty(stage);
  petra_free(stage->present);
  petra_free(stage->sets);
  assert(stage->account.total_bytes == 0); /* a tensor still held elsewhere would give its bytes back to freed memory */
  petra_free(stage);
}

static petra_status initialise_tensor(petra_stage *stage, int b, bool statistics, int index, uint64_t seed) {
  const petra_block *block = petra_stage_block(stage, b);
  petra_tensor_spec spec;
  if (statistics)
    petra_block_statistic(block, index, &spec);
  else
    petra_block_parameter(stage->options.model, block, index, &spec);
  petra_tensor_set *set = statistics ? &stage->sets[b].statistics : &stage->sets[b].parameters;
  double *values;
  PETRA_TRY(petra_allocate(&values, (size_t)set->tensor[index]->elements, sizeof *values));
  petra_initial_values(&spec, seed, block, index, values);
  petra_status status = petra_op_upload(stage->compute.backend, set->tensor[index], values, PETRA_HOST_F64);
  petra_free(values);
  return status;
}

petra_status petra_stage_initialise(petra_stage *stage, uint64_t seed) {
  for (int b = 0; b < stage->blocks; b++) {
    for (int i = 0; i < stage->sets[b].parameters.count; i++)
      PETRA_TRY(initialise_tensor(stage, b, false, i, seed));
    for (int i = 0; i < stage->sets[b].statistics.count; i++)
      PETRA_TRY(initialise_tensor(stage, b, true, i, seed));
  }
  return PETRA_OK;
}

const petra_block *petra_stage_block(const petra_stage *stage, int b) {
  return &stage->options.model->blocks[stage->options.first + b];
}

bool petra_stage_has_loss(const petra_stage *stage) {
  return petra_stage_block(stage, stage->blocks - 1)->is_loss;
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

int petra_stage_stash_max(const petra_stage *stage) {
  return stage->versions.count_max;
}

int petra_stage_in_flight(const petra_stage *stage) {
  return stage->records.count;
}

int petra_stage_in_flight_max(const petra_stage *stage) {
  return stage->records.count_max;
}

petra_tensor *petra_stage_tensor(petra_stage *stage, int block, bool statistics, int index) {
  petra_stage_sets *sets = &stage->sets[block - stage->options.first];
  return statistics ? sets->statistics.tensor[index] : sets->parameters.tensor[index];
}
