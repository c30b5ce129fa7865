/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image_sets.h"

#include "base/log.h"
#include "base/mem.h"
#include "data/file_bytes.h"
#include "data/hdf5_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

typedef struct hdf5_set {
  petra_dataset base;
  char *path;
  int fd;
  bool planes;
  int64_t offset;
  int64_t *records; /* record numbers in the file; NULL: 0, 1, ... */
  int64_t *labels;  /* of the records */
} hdf5_set;

static void hdf5_set_destroy(petra_dataset *set) {
  hdf5_set *self = (hdf5_set *)set;
  if (self->fd >= 0)
    close(self->fd);
  petra_free(self->records);
  petra_free(self->labels);
  petra_free(self->path);
  petra_free(self);
}

static void to_planes(const uint8_t *interleaved, int64_t plane, uint8_t *out) {
  for (int64_t i = 0; i < plane; i++)
    for (int c = 0; c < 3; c++)
      out[c * plane + i] = interleaved[3 * i + c];
}

static petra_status hdf5_set_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  const hdf5_set *self = (const hdf5_set *)set;
  int64_t plane = (int64_t)set->height * set->width;
  int64_t at = self->offset + (self->records ? self->records[index] : index) * 3 * plane;
  *label = (int32_t)self->labels[index];
  if (self->planes)
    return petra_file_read_at(self->fd, self->path, at, pixels, (size_t)(3 * plane));
  uint8_t *interleaved = NULL;
  PETRA_TRY(petra_allocate_raw(&interleaved, (size_t)plane, 3));
  petra_status status = petra_file_read_at(self->fd, self->path, at, interleaved, (size_t)(3 * plane));
  if (status == PETRA_OK)
    to_planes(interleaved, plane, pixels);
  petra_free(interleaved);
  return status;
}

static int32_t hdf5_set_label(const petra_dataset *set, int64_t index) {
  return (int32_t)((const hdf5_set *)set)->labels[index];
}

static const petra_dataset_ops hdf5_set_ops = {
    .destroy = hdf5_set_destroy, .read = hdf5_set_read, .label = hdf5_set_label};

/* Moves labels within range to the front, with their record numbers; *count becomes their number. */
static petra_status check_labels(hdf5_set *self, petra_split split, int64_t *problems, int64_t *count) {
  int64_t kept = 0;
  if (problems)
    PETRA_TRY(petra_allocate_raw(&self->records, (size_t)*count, sizeof *self->records));
  for (int64_t i = 0; i < *count; i++) {
    if (self->labels[i] < 0 || self->labels[i] >= self->base.classes) {
      PETRA_TRY(petra_dataset_problem(problems, petra_fail(PETRA_DATA,
                                                           "%s: /%s/labels: record %" PRId64
                                                           " (from 0) has the label %" PRId64 ", expected 0 to %d",
                                                           self->path, split == PETRA_SPLIT_TRAIN ? "train" : "eval", i,
                                                           self->labels[i], self->base.classes - 1)));
      continue;
    }
    if (self->records)
      self->records[kept] = i;
    self->labels[kept++] = self->labels[i];
  }
  *count = kept;
  return PETRA_OK;
}

static petra_status fill(hdf5_set *self, const char *path, petra_split split, int64_t limit, int64_t *problems) {
  petra_hdf5_layout layout = {0};
  PETRA_TRY(petra_hdf5_layout_read(path, split, &layout));
  self->labels = layout.labels;
  self->planes = layout.planes;
  self->offset = layout.offset;
  self->base =
      (petra_dataset){.ops = &hdf5_set_ops, .height = layout.height, .width = layout.width, .classes = layout.classes};
  memcpy(self->base.mean, layout.mean, sizeof layout.mean);
  memcpy(self->base.deviation, layout.deviation, sizeof layout.deviation);
  PETRA_TRY(petra_duplicate_string(&self->path, path));
  PETRA_TRY(check_labels(self, split, problems, &layout.count));
  self->base.count = limit > 0 && limit < layout.count ? limit : layout.count;
  self->fd = open(path, O_RDONLY | O_CLOEXEC);
  return self->fd < 0 ? petra_fail(PETRA_IO, "%s: cannot be opened: %s", path, strerror(errno)) : PETRA_OK;
}

petra_status petra_hdf5_set_open(const char *path, petra_split split, int64_t limit, int64_t *problems,
                                 petra_dataset **out) {
  hdf5_set *self = NULL;
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->fd = -1;
  petra_status status = fill(self, path, split, limit, problems);
  if (status != PETRA_OK) {
    hdf5_set_destroy(&self->base);
    return status;
  }
  *out = &self->base;
  return PETRA_OK;
}

petra_status petra_hdf5_set_shape(const char *path, petra_dataset_shape *out) {
  petra_hdf5_layout layout = {0};
  PETRA_TRY(petra_hdf5_layout_read(path, PETRA_SPLIT_TRAIN, &layout));
  *out = (petra_dataset_shape){.height = layout.height, .width = layout.width, .classes = layout.classes};
  petra_free(layout.labels);
  return PETRA_OK;
}
