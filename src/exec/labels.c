#include "exec/labels.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

void petra_labels_fini(petra_labels *labels) {
  for (int64_t i = 0; i < labels->capacity; i++)
    petra_free(labels->rows[i].labels);
  petra_free(labels->rows);
  *labels = (petra_labels){0};
}

static petra_label_row *find(const petra_labels *labels, int64_t microbatch) {
  for (int64_t i = 0; i < labels->capacity; i++)
    if (labels->rows[i].microbatch == microbatch)
      return &labels->rows[i];
  return NULL;
}

static petra_status grow(petra_labels *labels) {
  int64_t before = labels->capacity;
  PETRA_TRY(petra_array_reserve(&labels->rows, &labels->capacity, before + 1, sizeof *labels->rows));
  for (int64_t i = before; i < labels->capacity; i++)
    labels->rows[i].microbatch = -1;
  return PETRA_OK;
}

petra_status petra_labels_put(petra_labels *labels, int64_t microbatch, const int32_t *values, int32_t count) {
  petra_label_row *row = find(labels, -1);
  if (!row) {
    PETRA_TRY(grow(labels));
    row = find(labels, -1);
  }
  if (row->capacity < count) {
    petra_free(row->labels);
    row->labels = NULL;
    row->capacity = 0;
    PETRA_TRY(petra_allocate(&row->labels, (size_t)count, sizeof *row->labels));
    row->capacity = count;
  }
  memcpy(row->labels, values, (size_t)count * sizeof *values);
  row->count = count;
  row->microbatch = microbatch;
  return PETRA_OK;
}

petra_status petra_labels_find(const petra_labels *labels, int64_t microbatch, const petra_label_row **out) {
  const petra_label_row *row = find(labels, microbatch);
  if (!row)
    return petra_fail(PETRA_INTERNAL, "the labels of microbatch %lld are not there", (long long)microbatch);
  *out = row;
  return PETRA_OK;
}

bool petra_labels_have(const petra_labels *labels, int64_t microbatch) {
  return find(labels, microbatch) != NULL;
}

void petra_labels_drop(petra_labels *labels, int64_t microbatch) {
  petra_label_row *row = find(labels, microbatch);
  if (row)
    row->microbatch = -1;
}
