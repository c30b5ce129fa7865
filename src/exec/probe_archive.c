/* The probe in a checkpoint: the windows whose gradients are being gathered, and the weights kept for them. */
#include "base/log.h"
#include "base/mem.h"
#include "exec/probe_private.h"

#include <stdio.h>

/* Tensors of a set, of which the file knows how many; what the set holds before it is read is let go. */
static petra_status archive_set(petra_tensor_archive *tensors, const char *name, petra_tensor_set *set) {
  petra_tensor **places[PETRA_BLOCK_TENSORS];
  int64_t count = set->count;
  char item[96];
  snprintf(item, sizeof item, "%s-count", name);
  PETRA_TRY(petra_archive_integers(tensors->archive, item, &count, 1));
  if (tensors->archive->reading) {
    petra_tensor_set_release(set);
    set->count = (int)count;
  }
  for (int i = 0; i < set->count; i++)
    places[i] = &set->tensor[i];
  return count > 0 ? petra_tensor_archive_references(tensors, name, places, (int)count) : PETRA_OK;
}

static petra_status archive_flags(petra_archive *archive, const char *name, bool *flags, int32_t count) {
  int64_t *values;
  PETRA_TRY(petra_allocate(&values, (size_t)count, sizeof *values));
  for (int32_t i = 0; i < count; i++)
    values[i] = flags[i];
  petra_status status = petra_archive_integers(archive, name, values, count);
  for (int32_t i = 0; i < count && status == PETRA_OK; i++)
    flags[i] = values[i] != 0;
  petra_free(values);
  return status;
}

static petra_status archive_labels(petra_archive *archive, petra_probe_slot *slot) {
  int64_t *values, count = slot->label_count;
  petra_status status;
  if (!slot->images)
    return PETRA_OK;
  PETRA_TRY(petra_archive_integers(archive, "label_count", &count, 1));
  if (count < 1 || count > slot->images->elements)
    return petra_fail(PETRA_DATA, "probe: %lld labels of a microbatch; expected 1 to %lld", (long long)count,
                      (long long)slot->images->elements);
  slot->label_count = (int32_t)count;
  PETRA_TRY(petra_allocate(&values, (size_t)count, sizeof *values));
  for (int64_t i = 0; i < count && !archive->reading; i++)
    values[i] = slot->labels[i];
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, "labels", values, count), done);
  if (archive->reading)
    PETRA_TRY_GOTO(status, petra_allocate(&slot->labels, (size_t)count, sizeof *slot->labels), done);
  for (int64_t i = 0; i < count; i++)
    slot->labels[i] = (int32_t)values[i];
done:
  petra_free(values);
  return status;
}

static petra_status archive_slot(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_slot *slot) {
  int32_t stages = probe->options.stages;
  petra_tensor ***places;
  PETRA_TRY(petra_allocate(&places, 1 + 2 * (size_t)stages, sizeof *places));
  places[0] = &slot->images;
  for (int32_t j = 0; j < stages; j++) {
    places[1 + 2 * j] = &slot->inputs[j].tensor[0];
    places[2 + 2 * j] = &slot->inputs[j].tensor[1];
  }
  petra_status status = petra_tensor_archive_references(tensors, "tensors", places, 1 + 2 * stages);
  petra_free(places);
  PETRA_TRY(status);
  PETRA_TRY(archive_labels(tensors->archive, slot));
  PETRA_TRY(petra_archive_integers(tensors->archive, "forward", slot->forward, stages));
  PETRA_TRY(petra_archive_integers(tensors->archive, "begun", slot->begun, stages));
  PETRA_TRY(archive_flags(tensors->archive, "delayed", &slot->delayed, 1));
  return archive_flags(tensors->archive, "end_to_end", slot->end_to_end, stages);
}

static petra_status archive_slots(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_window *window) {
  for (int64_t s = 0; s < probe->accumulate; s++) {
    char name[32];
    snprintf(name, sizeof name, "slot-%lld", (long long)s);
    PETRA_TRY(petra_archive_enter(tensors->archive, name));
    petra_status status = archive_slot(probe, tensors, &window->slots[s]);
    petra_archive_leave(tensors->archive);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

static petra_status archive_sums(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_window *window) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = 0; b < probe->model->block_count; b++) {
      char name[48];
      snprintf(name, sizeof name, "sums-%d-%02d", g, b + 1);
      PETRA_TRY(archive_set(tensors, name, &window->sums[g][b]));
    }
  return PETRA_OK;
}

static petra_status archive_window(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_window *window) {
  petra_archive *archive = tensors->archive;
  int32_t stages = probe->options.stages;
  const int64_t measures = PETRA_MEASURES * PETRA_PAIRS;
  int64_t counts[2] = {window->delayed_left, window->compared_count};
  PETRA_TRY(petra_archive_integers(archive, "counts", counts, 2));
  window->delayed_left = counts[0];
  window->compared_count = (int32_t)counts[1];
  PETRA_TRY(petra_archive_integers(archive, "end_to_end_left", window->end_to_end_left, stages));
  PETRA_TRY(archive_flags(archive, "updated", window->updated, stages));
  PETRA_TRY(archive_flags(archive, "compared", window->compared, stages));
  PETRA_TRY(petra_archive_reals(archive, "stage", window->stage, measures * stages));
  PETRA_TRY(petra_archive_reals(archive, "concatenated", window->concatenated, (int64_t)PETRA_PAIRS * stages));
  PETRA_TRY(petra_archive_reals(archive, "reconstruction", window->reconstruction, stages));
  PETRA_TRY(petra_archive_reals(archive, "parameter", window->parameter, measures * probe->parameters));
  PETRA_TRY(archive_slots(probe, tensors, window));
  return archive_sums(probe, tensors, window);
}

static petra_status archive_windows(petra_probe *probe, petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  petra_probe_window *window = probe->windows;
  int64_t count = 0;
  for (petra_probe_window *w = window; w; w = w->next)
    count++;
  PETRA_TRY(petra_archive_integers(archive, "windows", &count, 1));
  PETRA_TRY(petra_archive_integers(archive, "now_ns", &probe->now_ns, 1));
  for (int64_t i = 0; i < count; i++, window = window->next) {
    int64_t first = archive->reading ? 0 : window->first;
    char name[40];
    snprintf(name, sizeof name, "window-%lld-first", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, &first, 1));
    if (archive->reading)
      PETRA_TRY(petra_probe_open(probe, first, &window));
    snprintf(name, sizeof name, "window-%lld", (long long)i);
    PETRA_TRY(petra_archive_enter(archive, name));
    petra_status status = archive_window(probe, tensors, window);
    petra_archive_leave(archive);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

static petra_status archive_kept(petra_probe *probe, petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  int64_t count = probe->kept_count;
  PETRA_TRY(petra_archive_integers(archive, "kept", &count, 1));
  for (int64_t i = 0; i < count; i++) {
    int64_t about[2] = {0, 0};
    char name[48];
    if (!archive->reading) {
      about[0] = probe->kept[i].stage;
      about[1] = probe->kept[i].version;
    }
    snprintf(name, sizeof name, "kept-%lld", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    if (archive->reading)
      PETRA_TRY(petra_probe_keep_empty(probe, (int32_t)about[0], about[1]));
    const petra_stage *s = probe->options.stage[probe->kept[i].stage];
    for (int b = 0; b < petra_stage_end(s) - petra_stage_first(s); b++) {
      snprintf(name, sizeof name, "kept-%lld-%02d", (long long)i, b + 1);
      PETRA_TRY(archive_set(tensors, name, &probe->kept[i].sets[b]));
    }
  }
  return PETRA_OK;
}

petra_status petra_probe_archive(petra_probe *probe, petra_tensor_archive *tensors) {
  if (!probe)
    return PETRA_OK;
  PETRA_TRY(petra_archive_enter(tensors->archive, "probe"));
  petra_status status = archive_windows(probe, tensors);
  if (status == PETRA_OK)
    status = archive_kept(probe, tensors);
  int64_t peaks[PETRA_MEMORY_CATEGORIES + 1];
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    peaks[c] = probe->account.peak_bytes[c];
  peaks[PETRA_MEMORY_CATEGORIES] = probe->account.total_peak_bytes;
  if (status == PETRA_OK)
    status = petra_archive_integers(tensors->archive, "peak_bytes", peaks, PETRA_MEMORY_CATEGORIES + 1);
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES && status == PETRA_OK; c++)
    probe->account.peak_bytes[c] = peaks[c];
  if (status == PETRA_OK)
    probe->account.total_peak_bytes = peaks[PETRA_MEMORY_CATEGORIES];
  petra_archive_leave(tensors->archive);
  return status;
}
