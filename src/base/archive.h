/* SPDX-License-Identifier: Apache-2.0 */
/* An archive: state that is written to a checkpoint or read back from it by one walk over it, so that what is
 * written and what is read cannot fall apart. Items are named, in groups; a name is used once a group. Errors:
 * PETRA_IO or PETRA_DATA (an item is missing, of another type or of another size: file, item, found, expected),
 * logged. What is read is checked by who reads it, before it is used: nothing in a file is believed. */
#ifndef PETRA_BASE_ARCHIVE_H
#define PETRA_BASE_ARCHIVE_H

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
  void (*leave)(petra_archive *archive);
  /* An array of `rank` dimensions, dense; read into `values` where the archive is read, and where `values` is NULL only
   * looked for: its type and extent are checked, before room is made for it. */
  petra_status (*values)(petra_archive *archive, const char *name, petra_archive_type type, int rank,
                         const int64_t *extent, void *values);
} petra_archive_ops;

struct petra_archive {
  const petra_archive_ops *ops;
  bool reading;
  const char *path; /* of the file, for messages */
  char group[96];   /* where the walk is: "/stage-03" */
};

petra_status petra_archive_enter(petra_archive *archive, const char *name);
void petra_archive_leave(petra_archive *archive);

/* PETRA_DATA: what is wrong with an item of the present group. */
petra_status petra_archive_refuse(const petra_archive *archive, const char *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Where the archive is read: the same unless low <= value <= high; `what` of the item the value is. */
petra_status petra_archive_within(const petra_archive *archive, const char *item, const char *what, int64_t value,
                                  int64_t low, int64_t high);

static inline petra_status petra_archive_values(petra_archive *archive, const char *name, petra_archive_type type,
                                                int64_t count, void *values) {
  return count > 0 ? archive->ops->values(archive, name, type, 1, &count, values) : PETRA_OK;
}

/* Where an archive is read: that an item of `count` values is there. */
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

#endif
