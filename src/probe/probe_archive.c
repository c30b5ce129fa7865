/* SPDX-License-Identifier: Apache-2.0 */
/* Stores the probe in a checkpoint. The state that all processes have in common is a separate part. The data of a stage
 * (weights, gradients, inputs) are in the part of that stage, and the process that has the stage resumes from them. */
#include "base/mem.h"
#include "probe/probe_private.h"
#include "stage/stage_archive.h"

#include <stdio.h>
#include <string.h>

/* --- the state that all processes have in common --- */

/* The maximum of `count` is the number of stages. */
static petra_status archive_flags(petra_probe *probe, petra_archive *archive, const char *name, bool *flags,
                                  int32_t count) {
  int64_t *values = probe->scratch;
  for (int32_t i = 0; i < count; i++)
    values[i] = flags[i];
  PETRA_TRY(petra_archive_integers(archive, name, values, count));
  for (int32_t i = 0; i < count; i++) {
    PETRA_TRY(petra_archive_within(archive, name, "a flag", values[i], 0, 1));
    flags[i] = values[i] != 0;
  }
  return PETRA_OK;
}

static petra_status archive_slot(petra_probe *probe, petra_archive *archive, petra_probe_slot *slot) {
  const int32_t stages = probe->stages;
  PETRA_TRY(petra_archive_integers(archive, "forward", slot->forward, stages));
  PETRA_TRY(petra_archive_integers(archive, "begun", slot->begun, stages));
  for (int32_t j = 0; j < stages; j++) {
    PETRA_TRY(petra_archive_within(archive, "forward", "version", slot->forward[j], -1, probe->versions[j]));
    PETRA_TRY(petra_archive_within(archive, "begun", "version", slot->begun[j], -1, probe->versions[j]));
  }
  PETRA_TRY(archive_flags(probe, archive, "delayed", &slot->delayed, 1));
  return archive_flags(probe, archive, "end_to_end", slot->end_to_end, stages);
}

static petra_status archive_window(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_window *window) {
  petra_archive *archive = tensors->archive;
  PETRA_TRY(archive_flags(probe, archive, "updated", window->updated, probe->stages));
  PETRA_TRY(archive_flags(probe, archive, "compared", window->compared, probe->stages));
  for (int64_t s = 0; s < probe->accumulate; s++) {
    PETRA_TRY(petra_archive_enter(archive, "slot-%lld", (long long)s));
    PETRA_TRY(petra_archive_leave(archive, archive_slot(probe, archive, &window->slots[s])));
    if (archive->reading)
      window->slots[s].read = window->first + s < tensors->read;
  }
  for (int32_t j = 0; j < probe->stages; j++)
    if (window->compared[j] && !petra_probe_is_complete(probe, window, j))
      return petra_archive_refuse(archive, "compared", "stage %d was compared before its gradients were there", j + 1);
  return PETRA_OK;
}

static petra_status archive_windows(petra_probe *probe, petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  petra_probe_window *window = probe->windows;
  int64_t count = 0;
  for (petra_probe_window *w = window; w; w = w->next)
    count++;
  PETRA_TRY(petra_archive_integer(archive, "windows", "windows", &count, 0, tensors->read));
  PETRA_TRY(petra_archive_integer(archive, "now_ns", "a time", &probe->now_ns, 0, INT64_MAX));
  for (int64_t i = 0; i < count; i++, window = window->next) {
    int64_t first = archive->reading ? 0 : window->first;
    char name[40];
    snprintf(name, sizeof name, "window-%lld-first", (long long)i);
    PETRA_TRY(petra_archive_integer(archive, name, "microbatch", &first, 0, tensors->read - 1));
    if (archive->reading && (petra_probe_find(probe, first) || first % probe->accumulate != 0))
      return petra_archive_refuse(archive, name, "no window begins at microbatch %lld, or another is there",
                                  (long long)first);
    if (archive->reading) {
      PETRA_TRY(petra_probe_open(probe, first, &window));
      petra_probe_release_sums(window, 0, probe->model->block_count); /* these are in the parts of the stages */
    }
    PETRA_TRY(petra_archive_enter(archive, "window-%lld", (long long)i));
    PETRA_TRY(petra_archive_leave(archive, archive_window(probe, tensors, window)));
  }
  return PETRA_OK;
}

static petra_status archive_common(petra_probe *probe, petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  PETRA_TRY(petra_archive_integers(archive, "versions", probe->versions, probe->stages));
  PETRA_TRY(petra_archive_integers(archive, "copies", probe->copies, probe->stages));
  for (int32_t j = 0; j < probe->stages; j++) {
    PETRA_TRY(petra_archive_within(archive, "versions", "updates", probe->versions[j], 0, INT64_MAX));
    PETRA_TRY(petra_archive_within(archive, "copies", "version", probe->copies[j], 0, probe->versions[j]));
  }
  return archive_windows(probe, tensors);
}

petra_status petra_probe_archive(petra_probe *probe, petra_tensor_archive *tensors) {
  PETRA_TRY(petra_archive_enter(tensors->archive, "probe"));
  return petra_archive_leave(tensors->archive, archive_common(probe, tensors));
}

/* --- the data of a stage --- */

/* A stage of a replica that is here. */
typedef struct stage_part {
  petra_probe *probe;
  petra_tensor_archive *tensors;
  petra_archive *archive;
  int replica;
  int32_t stage; /* from 0 */
} stage_part;

/* Reads or writes a set of tensors with the shapes of a block's parameters, or an empty set if it is `released`.
 * Reading releases the previous tensors of the set. */
static petra_status archive_set(const stage_part *part, const char *name, int b, bool released, petra_tensor_set *set) {
  const petra_block *block = &part->probe->model->blocks[b];
  int64_t count = set->count, expected = released ? 0 : petra_block_parameter_count(block);
  char item[96];
  snprintf(item, sizeof item, "%s-count", name);
  PETRA_TRY(petra_archive_integer(part->archive, item, "tensors", &count, expected, expected));
  if (part->archive->reading)
    petra_tensor_set_release(set);
  return count > 0 ? petra_block_set_archive(part->tensors, name, part->probe->model, block, set) : PETRA_OK;
}

static petra_status archive_labels(const stage_part *part, petra_probe_part *of) {
  int64_t count = of->label_count;
  if (!of->images)
    return PETRA_OK;
  const int64_t expected = (int64_t)of->images->shape[0] * petra_model_labels(part->probe->model);
  PETRA_TRY(petra_archive_integer(part->archive, "label_count", "labels", &count, expected, expected));
  of->label_count = (int32_t)count;
  return petra_labels_archive(part->archive, "labels", part->probe->model->classes, count, &of->labels);
}

/* Reads or writes the input streams of F of a microbatch: either all of them exist or none. At stage 1, also reads or
 * writes the images, which exist from the time when they were read until all references were begun. */
static petra_status archive_inputs(const stage_part *part, petra_probe_slot *slot) {
  const petra_probe *probe = part->probe;
  const petra_block *block = &probe->model->blocks[petra_probe_first(probe, part->stage)];
  petra_probe_part *of = &slot->parts[part->replica - probe->first];
  petra_streams *inputs = &of->inputs[part->stage];
  petra_tensor **members[] = {&inputs->tensor[0], &inputs->tensor[1], &of->images};
  petra_tensor_form forms[4];
  const int count = part->stage == 0 ? 3 : 2;
  const bool held = slot->read && !petra_probe_slot_is_complete(probe, slot);
  PETRA_TRY(petra_tensor_archive_references(part->tensors, "tensors", members, count));
  petra_streams_forms(block->streams_in, &block->shape_in,
                      inputs->tensor[0] || inputs->tensor[1] ? PETRA_PRESENT : PETRA_ABSENT, forms);
  petra_streams_forms(1, &probe->model->blocks[0].shape_in, held ? PETRA_PRESENT : PETRA_ABSENT, forms + 2);
  PETRA_TRY(petra_tensor_archive_check(part->tensors, "tensors", members, forms, count));
  return part->stage == 0 ? archive_labels(part, of) : PETRA_OK;
}

static petra_status archive_slots(const stage_part *part, petra_probe_window *window) {
  for (int64_t s = 0; s < part->probe->accumulate; s++) {
    PETRA_TRY(petra_archive_enter(part->archive, "slot-%lld", (long long)s));
    PETRA_TRY(petra_archive_leave(part->archive, archive_inputs(part, &window->slots[s])));
  }
  return PETRA_OK;
}

/* Reads or writes the stage's columns of a matrix of `rows` rows and `columns` columns: `count` columns from column
 * `first` on. */
static petra_status archive_columns(petra_archive *archive, const char *name, double *numbers, int rows,
                                    int32_t columns, int32_t first, int32_t count) {
  PETRA_FREED double *values = NULL;
  PETRA_TRY(petra_allocate(&values, (size_t)(rows * count), sizeof *values));
  for (int i = 0; i < rows; i++)
    memcpy(values + i * count, numbers + i * columns + first, (size_t)count * sizeof *values);
  PETRA_TRY(petra_archive_reals(archive, name, values, (int64_t)rows * count));
  for (int i = 0; i < rows; i++)
    memcpy(numbers + i * columns + first, values + i * count, (size_t)count * sizeof *values);
  return PETRA_OK;
}

/* Reads or writes the figures and the sums of gradients, which only replica 0 has. */
static petra_status archive_found(const stage_part *part, petra_probe_window *window) {
  petra_probe *probe = part->probe;
  const int32_t j = part->stage, first = probe->offset[petra_probe_first(probe, j)];
  const int32_t count = probe->offset[petra_probe_end(probe, j)] - first;
  const int measures = PETRA_MEASURES * PETRA_PAIRS;
  PETRA_TRY(archive_columns(part->archive, "stage", window->stage, measures, probe->stages, j, 1));
  PETRA_TRY(archive_columns(part->archive, "concatenated", window->concatenated, PETRA_PAIRS, probe->stages, j, 1));
  PETRA_TRY(archive_columns(part->archive, "parameter", window->parameter, measures, probe->parameters, first, count));
  const bool released = window->compared[j] && !probe->plan->config->probe.gradients;
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++) {
      char name[48];
      snprintf(name, sizeof name, "sums-%d-%02d", g, b + 1);
      PETRA_TRY(archive_set(part, name, b, released, &window->sums[g][b]));
    }
  return PETRA_OK;
}

static petra_status archive_stage_window(const stage_part *part, petra_probe_window *window) {
  const petra_probe *probe = part->probe;
  const int64_t at = part->replica * probe->stages + part->stage, k = probe->accumulate;
  PETRA_TRY(petra_archive_integer(part->archive, "error_count", "errors", &window->error_count[at], 0, k));
  PETRA_TRY(petra_archive_reals(part->archive, "errors", window->errors + at * k, window->error_count[at]));
  PETRA_TRY(archive_slots(part, window));
  return part->replica == 0 ? archive_found(part, window) : PETRA_OK;
}

static petra_status archive_stage_windows(const stage_part *part) {
  int64_t i = 0;
  for (petra_probe_window *window = part->probe->windows; window; window = window->next) {
    PETRA_TRY(petra_archive_enter(part->archive, "window-%lld", (long long)i++));
    PETRA_TRY(petra_archive_leave(part->archive, archive_stage_window(part, window)));
  }
  return PETRA_OK;
}

static petra_status archive_one_kept(const stage_part *part, int64_t i, petra_probe_kept *written) {
  petra_probe *probe = part->probe;
  petra_archive *archive = part->archive;
  int64_t about[2] = {written ? written->key.version : 0, written ? written->key.predicted : 0};
  char name[48];
  snprintf(name, sizeof name, "kept-%lld", (long long)i);
  PETRA_TRY(petra_archive_integers(archive, name, about, 2));
  PETRA_TRY(petra_archive_within(archive, name, "version", about[0], 0, probe->versions[part->stage]));
  PETRA_TRY(petra_archive_within(archive, name, "a flag", about[1], 0, probe->predicts[part->stage]));
  const petra_weights_key key = {about[0], about[1] != 0};
  if (!written) {
    if (petra_probe_find_kept(probe, part->stage, key))
      return petra_archive_refuse(archive, name, "version %lld is there twice", (long long)about[0]);
    PETRA_TRY(petra_probe_keep_empty(probe, part->stage, key));
    written = &probe->kept[probe->kept_count - 1];
  }
  const int first = petra_probe_first(probe, part->stage);
  for (int b = 0; first + b < petra_probe_end(probe, part->stage); b++) {
    snprintf(name, sizeof name, "kept-%lld-%02d", (long long)i, b + 1);
    PETRA_TRY(archive_set(part, name, first + b, false, &written->sets[b]));
  }
  return PETRA_OK;
}

/* Reads or writes the copies of weights, which are the same on all replicas: a process with several replicas reads only
 * the copies of its first replica. They are at the end of the part. */
static petra_status archive_kept(const stage_part *part) {
  petra_probe *probe = part->probe;
  int64_t count = 0, written = 0;
  if (part->archive->reading && part->replica != probe->first)
    return PETRA_OK;
  for (int i = 0; i < probe->kept_count; i++)
    count += probe->kept[i].stage == part->stage;
  PETRA_TRY(petra_archive_integer(part->archive, "kept", "versions", &count, 0, INT32_MAX));
  for (int64_t i = 0; i < count && part->archive->reading; i++)
    PETRA_TRY(archive_one_kept(part, i, NULL));
  for (int i = 0; i < probe->kept_count && !part->archive->reading; i++)
    if (probe->kept[i].stage == part->stage)
      PETRA_TRY(archive_one_kept(part, written++, &probe->kept[i]));
  return PETRA_OK;
}

/* Reads or writes the peaks of the process that wrote the part. A process resumes with the largest peaks of its
 * stages. */
static petra_status archive_peaks(const stage_part *part) {
  petra_account *account = &part->probe->account, peaks = *account;
  PETRA_TRY(petra_account_archive(part->archive, &peaks));
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    if (peaks.peak_bytes[c] > account->peak_bytes[c])
      account->peak_bytes[c] = peaks.peak_bytes[c];
  if (peaks.total_peak_bytes > account->total_peak_bytes)
    account->total_peak_bytes = peaks.total_peak_bytes;
  return PETRA_OK;
}

static petra_status check_version(const stage_part *part) {
  const int64_t made = petra_stage_version(petra_stages_get(&part->probe->stages_here, part->stage + 1));
  const int64_t said = part->probe->versions[part->stage];
  return made == said ? PETRA_OK
                      : petra_archive_refuse(part->archive, "versions", "stage %d has made %lld updates, not %lld",
                                             part->stage + 1, (long long)made, (long long)said);
}

petra_status petra_probe_archive_stage(petra_probe *probe, int replica, int32_t stage, petra_tensor_archive *tensors) {
  const stage_part part = {probe, tensors, tensors->archive, replica, stage - 1};
  PETRA_TRY(check_version(&part));
  PETRA_TRY(petra_archive_enter(tensors->archive, "probe"));
  petra_status status = archive_peaks(&part);
  if (status == PETRA_OK)
    status = archive_stage_windows(&part);
  if (status == PETRA_OK)
    status = archive_kept(&part);
  return petra_archive_leave(tensors->archive, status);
}
