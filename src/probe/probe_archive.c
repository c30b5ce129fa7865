/* SPDX-License-Identifier: Apache-2.0 */
/* The probe in a checkpoint: the windows whose gradients are being gathered, and the weights kept for them. */
#include "base/log.h"
#include "base/mem.h"
#include "probe/probe_private.h"
#include "stage/archive.h"

#include <stdio.h>

/* Tensors of a set like the parameters of a block, or none where it is `released`; what the set holds before it is read is
 * let go. */
static petra_status archive_set(const petra_probe *probe, petra_tensor_archive *tensors, const char *name, int b,
                                bool released, petra_tensor_set *set) {
  const petra_block *block = &probe->model->blocks[b];
  int64_t count = set->count, expected = released ? 0 : petra_block_parameter_count(block);
  char item[96];
  snprintf(item, sizeof item, "%s-count", name);
  PETRA_TRY(petra_archive_integer(tensors->archive, item, "tensors", &count, expected, expected));
  if (tensors->archive->reading)
    petra_tensor_set_release(set);
  return count > 0 ? petra_block_set_archive(tensors, name, probe->model, block, set) : PETRA_OK;
}

/* `count` is at most the number of stages. */
static petra_status archive_flags(petra_probe *probe, petra_archive *archive, const char *name, bool *flags,
                                  int32_t count) {
  int64_t *values = probe->versions;
  for (int32_t i = 0; i < count; i++)
    values[i] = flags[i];
  PETRA_TRY(petra_archive_integers(archive, name, values, count));
  for (int32_t i = 0; i < count; i++) {
    PETRA_TRY(petra_archive_within(archive, name, "a flag", values[i], 0, 1));
    flags[i] = values[i] != 0;
  }
  return PETRA_OK;
}

static petra_status archive_labels(petra_archive *archive, const petra_model *model, petra_probe_part *part) {
  int64_t count = part->label_count;
  if (!part->images)
    return PETRA_OK;
  const int64_t expected = (int64_t)part->images->shape[0] * petra_model_labels(model);
  PETRA_TRY(petra_archive_integer(archive, "label_count", "labels", &count, expected, expected));
  part->label_count = (int32_t)count;
  return petra_labels_archive(archive, "labels", model->classes, count, &part->labels);
}

/* What a part that is read may hold: its inputs both or none. */
static petra_status check_part(const petra_probe *probe, petra_tensor_archive *tensors, petra_probe_part *part,
                               petra_tensor **const *places) {
  petra_tensor_form *forms, images[2];
  int32_t stages = probe->stages;
  PETRA_TRY(petra_allocate(&forms, 1 + 2 * (size_t)stages, sizeof *forms));
  petra_streams_forms(1, &probe->model->blocks[0].shape_in, PETRA_OPTIONAL, images);
  forms[0] = images[0];
  for (int32_t j = 0; j < stages; j++) {
    const petra_block *block = &probe->model->blocks[petra_probe_first(probe, j)];
    petra_streams_forms(block->streams_in, &block->shape_in,
                        part->inputs[j].tensor[0] || part->inputs[j].tensor[1] ? PETRA_PRESENT : PETRA_ABSENT,
                        &forms[1 + 2 * j]);
  }
  petra_status status = petra_tensor_archive_check(tensors, "tensors", places, forms, 1 + 2 * stages);
  petra_free(forms);
  return status;
}

static petra_status archive_part(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_part *part) {
  int32_t stages = probe->stages;
  petra_tensor ***places;
  PETRA_TRY(petra_allocate(&places, 1 + 2 * (size_t)stages, sizeof *places));
  places[0] = &part->images;
  for (int32_t j = 0; j < stages; j++) {
    places[1 + 2 * j] = &part->inputs[j].tensor[0];
    places[2 + 2 * j] = &part->inputs[j].tensor[1];
  }
  petra_status status = petra_tensor_archive_references(tensors, "tensors", places, 1 + 2 * stages);
  if (status == PETRA_OK)
    status = check_part(probe, tensors, part, places);
  petra_free(places);
  PETRA_TRY(status);
  return archive_labels(tensors->archive, probe->model, part);
}

/* Those of replica 0 are where those of a run without replicas are. */
static petra_status archive_parts(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_slot *slot) {
  PETRA_TRY(archive_part(probe, tensors, &slot->parts[0]));
  for (int i = 1; i < probe->options.replicas; i++) {
    char name[32];
    snprintf(name, sizeof name, "replica-%d", i);
    PETRA_TRY(petra_archive_enter(tensors->archive, name));
    petra_status status = archive_part(probe, tensors, &slot->parts[i]);
    petra_archive_leave(tensors->archive);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

static petra_status archive_slot(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_slot *slot) {
  int32_t stages = probe->stages;
  PETRA_TRY(archive_parts(probe, tensors, slot));
  PETRA_TRY(petra_archive_integers(tensors->archive, "forward", slot->forward, stages));
  PETRA_TRY(petra_archive_integers(tensors->archive, "begun", slot->begun, stages));
  for (int32_t j = 0; j < stages; j++) {
    int64_t latest = petra_probe_version(probe, j);
    PETRA_TRY(petra_archive_within(tensors->archive, "forward", "version", slot->forward[j], -1, latest));
    PETRA_TRY(petra_archive_within(tensors->archive, "begun", "version", slot->begun[j], -1, latest));
  }
  PETRA_TRY(archive_flags(probe, tensors->archive, "delayed", &slot->delayed, 1));
  return archive_flags(probe, tensors->archive, "end_to_end", slot->end_to_end, stages);
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
    for (int32_t j = 0; j < probe->stages; j++) {
      const bool released = window->compared[j] && !probe->options.gradients;
      for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++) {
        char name[48];
        snprintf(name, sizeof name, "sums-%d-%02d", g, b + 1);
        PETRA_TRY(archive_set(probe, tensors, name, b, released, &window->sums[g][b]));
      }
    }
  return PETRA_OK;
}

/* What is counted of the slots and flags of a window, which were read before. A microbatch that was read has its images
 * until all its references are there, one that was not has none. */
static petra_status archive_counts(const petra_probe *probe, const petra_tensor_archive *tensors,
                                   const petra_probe_window *window) {
  petra_archive *archive = tensors->archive;
  const int32_t stages = probe->stages;
  const int64_t delayed = petra_probe_delayed_left(probe, window);
  int64_t *left = probe->versions, compared = 0;
  for (int32_t j = 0; j < stages; j++) {
    left[j] = petra_probe_end_to_end_left(probe, window, j);
    compared += window->compared[j];
    if (window->compared[j] && !(window->updated[j] && delayed == 0 && left[j] == 0))
      return petra_archive_refuse(archive, "compared", "stage %d was compared before its gradients were there", j + 1);
  }
  for (int64_t s = 0; s < probe->accumulate; s++) {
    const petra_probe_slot *slot = &window->slots[s];
    bool complete = slot->delayed;
    for (int32_t j = 0; j < stages; j++)
      complete = complete && slot->end_to_end[j];
    for (int i = 0; i < probe->options.replicas && archive->reading; i++)
      if ((slot->parts[i].images != NULL) != (!complete && window->first + s < tensors->read))
        return petra_archive_refuse(archive, "tensors", "microbatch %lld has %s images", (long long)(window->first + s),
                                    slot->parts[i].images ? "its" : "no");
  }
  int64_t counts[2] = {delayed, compared};
  PETRA_TRY(petra_archive_integers(archive, "counts", counts, 2));
  PETRA_TRY(petra_archive_within(archive, "counts", "delayed gradients to come", counts[0], delayed, delayed));
  PETRA_TRY(petra_archive_within(archive, "counts", "stages compared", counts[1], compared, compared));
  PETRA_TRY(petra_archive_integers(archive, "end_to_end_left", left, stages));
  for (int32_t j = 0; j < stages; j++) {
    const int64_t expected = petra_probe_end_to_end_left(probe, window, j);
    PETRA_TRY(petra_archive_within(archive, "end_to_end_left", "gradients to come", left[j], expected, expected));
  }
  return PETRA_OK;
}

static petra_status archive_window(petra_probe *probe, petra_tensor_archive *tensors, petra_probe_window *window) {
  petra_archive *archive = tensors->archive;
  int32_t stages = probe->stages;
  const int64_t measures = PETRA_MEASURES * PETRA_PAIRS;
  PETRA_TRY(archive_flags(probe, archive, "updated", window->updated, stages));
  PETRA_TRY(archive_flags(probe, archive, "compared", window->compared, stages));
  PETRA_TRY(petra_archive_reals(archive, "stage", window->stage, measures * stages));
  PETRA_TRY(petra_archive_reals(archive, "concatenated", window->concatenated, (int64_t)PETRA_PAIRS * stages));
  PETRA_TRY(petra_archive_reals(archive, "reconstruction", window->reconstruction, stages));
  PETRA_TRY(petra_archive_reals(archive, "parameter", window->parameter, measures * probe->parameters));
  PETRA_TRY(archive_slots(probe, tensors, window));
  PETRA_TRY(archive_counts(probe, tensors, window));
  return archive_sums(probe, tensors, window);
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
  PETRA_TRY(petra_archive_integer(archive, "kept", "versions", &count, 0, INT32_MAX));
  for (int64_t i = 0; i < count; i++) {
    const bool reading = archive->reading;
    int64_t about[2] = {reading ? 0 : probe->kept[i].stage, reading ? 0 : probe->kept[i].key.version};
    char name[48];
    snprintf(name, sizeof name, "kept-%lld", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    PETRA_TRY(petra_archive_within(archive, name, "stage", about[0], 0, probe->stages - 1));
    PETRA_TRY(
        petra_archive_within(archive, name, "version", about[1], 0, petra_probe_version(probe, (int32_t)about[0])));
    int64_t predicted = reading ? 0 : probe->kept[i].key.predicted;
    if (petra_probe_predicts(probe, (int32_t)about[0])) {
      snprintf(name, sizeof name, "kept-%lld-predicted", (long long)i);
      PETRA_TRY(petra_archive_integer(archive, name, "a flag", &predicted, 0, 1));
    }
    const petra_weights_key key = {about[1], predicted != 0};
    for (int64_t k = 0; k < i; k++)
      if (probe->kept[k].stage == about[0] && petra_weights_key_equal(probe->kept[k].key, key))
        return petra_archive_refuse(archive, name, "version %lld is there twice", (long long)about[1]);
    if (reading)
      PETRA_TRY(petra_probe_keep_empty(probe, (int32_t)about[0], key));
    const int first = petra_probe_first(probe, probe->kept[i].stage);
    for (int b = 0; first + b < petra_probe_end(probe, probe->kept[i].stage); b++) {
      snprintf(name, sizeof name, "kept-%lld-%02d", (long long)i, b + 1);
      PETRA_TRY(archive_set(probe, tensors, name, first + b, false, &probe->kept[i].sets[b]));
    }
  }
  return PETRA_OK;
}

/* How many updates the stages have made: who reads may not have the stages. */
static petra_status archive_versions(petra_probe *probe, petra_archive *archive) {
  petra_probe_source *source = probe->options.source;
  int64_t *versions = probe->versions;
  for (int32_t j = 0; j < probe->stages && !archive->reading; j++)
    versions[j] = petra_probe_version(probe, j);
  PETRA_TRY(petra_archive_integers(archive, "versions", versions, probe->stages));
  for (int32_t j = 0; j < probe->stages && archive->reading; j++) {
    PETRA_TRY(petra_archive_within(archive, "versions", "updates", versions[j], 0, INT64_MAX));
    if (!source->ops->resumes(source, j + 1, versions[j]))
      return petra_archive_refuse(archive, "versions", "stage %d has made %lld updates, not %lld", j + 1,
                                  (long long)petra_probe_version(probe, j), (long long)versions[j]);
  }
  return PETRA_OK;
}

petra_status petra_probe_archive(petra_probe *probe, petra_tensor_archive *tensors) {
  if (!probe)
    return PETRA_OK;
  PETRA_TRY(petra_archive_enter(tensors->archive, "probe"));
  petra_status status = archive_versions(probe, tensors->archive);
  if (status == PETRA_OK)
    status = archive_windows(probe, tensors);
  if (status == PETRA_OK)
    status = archive_kept(probe, tensors);
  if (status == PETRA_OK)
    status = petra_account_archive(tensors->archive, &probe->account);
  petra_archive_leave(tensors->archive);
  return status;
}
