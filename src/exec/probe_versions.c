/* Which weights the references of a probe need, and copies of those that the stages will not have any more. A
 * version of a stage is the number of its updates. */
#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/probe_private.h"

int64_t petra_probe_version(const petra_probe *probe, int64_t microbatch, int32_t stage, int32_t of) {
  return petra_program_reference(probe->options.program, probe->options.program_options, microbatch, stage + 1, of + 1);
}

static petra_probe_kept *find(const petra_probe *probe, int32_t stage, int64_t version) {
  for (int i = 0; i < probe->kept_count; i++)
    if (probe->kept[i].stage == stage && probe->kept[i].version == version)
      return &probe->kept[i];
  return NULL;
}

static int blocks_of(const petra_probe *probe, int32_t stage) {
  const petra_stage *s = petra_probe_stage(probe, stage);
  return petra_stage_end(s) - petra_stage_first(s);
}

static void release(const petra_probe *probe, petra_probe_kept *kept) {
  for (int b = 0; b < blocks_of(probe, kept->stage); b++)
    petra_tensor_set_release(&kept->sets[b]);
  petra_free(kept->sets);
}

static petra_status make_room(petra_probe *probe) {
  return petra_array_reserve(&probe->kept, &probe->kept_capacity, (int64_t)probe->kept_count + 1, sizeof *probe->kept);
}

petra_status petra_probe_keep(petra_probe *probe, int32_t stage, int64_t version) {
  const petra_stage *source = petra_probe_stage(probe, stage);
  petra_probe_kept kept = {.stage = stage, .version = version};
  petra_status status = PETRA_OK;
  if (find(probe, stage, version))
    return PETRA_OK;
  PETRA_TRY(make_room(probe));
  PETRA_TRY(petra_allocate(&kept.sets, (size_t)blocks_of(probe, stage), sizeof *kept.sets));
  for (int b = 0; b < blocks_of(probe, stage); b++) {
    int block = petra_stage_first(source) + b;
    petra_tensor_set parameters = {.count = petra_block_parameter_count(&probe->model->blocks[block])};
    petra_tensor *const *tensors;
    PETRA_TRY_GOTO(status, petra_stage_version_tensors(source, version, block, &tensors), fail);
    for (int i = 0; i < parameters.count; i++)
      parameters.tensor[i] = tensors[i];
    PETRA_TRY_GOTO(
        status, petra_tensor_set_clone(&probe->compute, &parameters, PETRA_MEMORY_WEIGHT_BUFFER, &kept.sets[b]), fail);
  }
  probe->kept[probe->kept_count++] = kept;
  return PETRA_OK;
fail:
  release(probe, &kept);
  return status;
}

petra_status petra_probe_keep_empty(petra_probe *probe, int32_t stage, int64_t version) {
  petra_probe_kept kept = {.stage = stage, .version = version};
  PETRA_TRY(make_room(probe));
  PETRA_TRY(petra_allocate(&kept.sets, (size_t)blocks_of(probe, stage), sizeof *kept.sets));
  probe->kept[probe->kept_count++] = kept;
  return PETRA_OK;
}

static bool slot_wants(const petra_probe *probe, const petra_probe_slot *slot, int64_t microbatch, int32_t stage,
                       int64_t version) {
  if (!slot->delayed && slot->forward[stage] == version)
    return true;
  if (!petra_probe_is_fixed(probe))
    return !slot->end_to_end[stage] && slot->begun[stage] == version;
  for (int32_t j = 0; j < probe->options.stages.count; j++)
    if (!slot->end_to_end[j] && petra_probe_version(probe, microbatch, j, stage) == version)
      return true;
  return false;
}

static bool is_wanted(const petra_probe *probe, int32_t stage, int64_t version) {
  for (const petra_probe_window *window = probe->windows; window; window = window->next)
    for (int64_t s = 0; s < probe->accumulate; s++)
      if (slot_wants(probe, &window->slots[s], window->first + s, stage, version))
        return true;
  return false;
}

petra_status petra_probe_keep_wanted(petra_probe *probe, int32_t stage) {
  int64_t latest = petra_stage_version(petra_probe_stage(probe, stage));
  return is_wanted(probe, stage, latest) ? petra_probe_keep(probe, stage, latest) : PETRA_OK;
}

void petra_probe_forget(petra_probe *probe) {
  for (int i = probe->kept_count - 1; i >= 0; i--)
    if (!is_wanted(probe, probe->kept[i].stage, probe->kept[i].version)) {
      release(probe, &probe->kept[i]);
      probe->kept[i] = probe->kept[--probe->kept_count];
    }
}

/* The copy first: it is there for as long as the reference needs it. */
static petra_status block_parameters(const petra_probe *probe, int32_t stage, int64_t version, int b,
                                     petra_tensor *const **out) {
  const petra_stage *s = petra_probe_stage(probe, stage);
  const petra_probe_kept *kept = find(probe, stage, version);
  if (kept) {
    *out = kept->sets[b - petra_stage_first(s)].tensor;
    return PETRA_OK;
  }
  return petra_stage_version_tensors(s, version, b, out);
}

petra_status petra_probe_parameters(const petra_probe *probe, const int64_t *versions, petra_probe_block *out) {
  for (int32_t j = 0; j < probe->options.stages.count; j++) {
    const petra_stage *stage = petra_probe_stage(probe, j);
    for (int b = petra_stage_first(stage); b < petra_stage_end(stage); b++)
      PETRA_TRY(block_parameters(probe, j, versions[j], b, &out[b].parameters));
  }
  return PETRA_OK;
}
