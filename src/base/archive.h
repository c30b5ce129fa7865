/* SPDX-License-Identifier: Apache-2.0 */
/* An archive reads or writes the state of a run: the same walk over the state writes a checkpoint or reads it back, so
 * that writing and reading cannot differ. Items have names, in groups; a name occurs once in a group. Errors: PETRA_IO
 * or PETRA_DATA (an item is missing, of another type or of another size: file, item, found, expected), logged. The
 * reader checks every value before it uses it: nothing in a file is trusted. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum petra_archive_type {
  PETRA_ARCHIVE_U8,
  PETRA_ARCHIVE_I64,
  PETRA_ARCHIVE_F32,
  PETRA_ARCHIVE_F64
} petra_archive_type;

typedef struct petra_archive petra_archive;

typedef struct petra_archive_ops {
  petra_status (*enter)(petra_archive *archive, const char *name);
  /* Transfers a dense array of `rank` dimensions. If the archive is being read and `values` is NULL, only the type and
   * the extent of the item are checked, so that the caller can do so before it allocates memory. */
  petra_status (*values)(petra_archive *archive, const char *name, petra_archive_type type, int rank,
                         const int64_t *extent, void *values);
} petra_archive_ops;

struct petra_archive {
  const petra_archive_ops *ops;
  bool reading;
  const char *path; /* path of the file, for messages */
  char group[96];   /* position of the walk: "/stage-03" */
};

/* The first function enters the group with the formatted name. The second function leaves the group and returns
 * `status`, the status of reading or writing there. */
petra_status petra_archive_enter(petra_archive *archive, const char *format, ...) __attribute__((format(printf, 2, 3)));
petra_status petra_archive_leave(petra_archive *archive, petra_status status);

/* Logs what is wrong with an item of the current group and returns PETRA_DATA. */
petra_status petra_archive_refuse(const petra_archive *archive, const char *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* When reading, fails like petra_archive_refuse unless low <= value <= high. `what` names the value within the item. */
petra_status petra_archive_within(const petra_archive *archive, const char *item, const char *what, int64_t value,
                                  int64_t low, int64_t high);

static inline petra_status petra_archive_values(petra_archive *archive, const char *name, petra_archive_type type,
                                                int64_t count, void *values) {
  return count > 0 ? archive->ops->values(archive, name, type, 1, &count, values) : PETRA_OK;
}

/* When reading, checks that there is an item of `count` values. */
static inline petra_status petra_archive_require(petra_archive *archive, const char *name, petra_archive_type type,
                                                 int64_t count) {
  return archive->reading ? petra_archive_values(archive, name, type, count, NULL) : PETRA_OK;
}

static inline petra_status petra_archive_integers(petra_archive *archive, const char *name, int64_t *values,
                                                  int64_t count) {
  return petra_archive_values(archive, name, PETRA_ARCHIVE_I64, count, values);
}

static inline petra_status petra_archive_reals(petra_archive *archive, const char *name, double *values,
                                               int64_t count) {
  return petra_archive_values(archive, name, PETRA_ARCHIVE_F64, count, values);
}
