/* Labels of the microbatches between their reading at stage 1 and their loss at the last stage. */
#ifndef PETRA_EXEC_LABELS_H
#define PETRA_EXEC_LABELS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct petra_label_row {
  int64_t microbatch; /* -1: free */
  int32_t count, capacity;
  int32_t *labels;
} petra_label_row;

typedef struct petra_labels {
  petra_label_row *rows;
  int64_t capacity;
} petra_labels;

void petra_labels_fini(petra_labels *labels);

/* A copy of `count` labels. */
petra_status petra_labels_put(petra_labels *labels, int64_t microbatch, const int32_t *values, int32_t count);

/* The labels of a microbatch, which stay until they are dropped; PETRA_INTERNAL, logged, if they are not there. */
petra_status petra_labels_find(const petra_labels *labels, int64_t microbatch, const petra_label_row **out);
bool petra_labels_have(const petra_labels *labels, int64_t microbatch);
void petra_labels_drop(petra_labels *labels, int64_t microbatch);

#endif
