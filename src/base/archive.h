/* An archive: state that is written to a checkpoint or read back from it by one walk over it, so that what is
 * written and what is read cannot fall apart. Items are named, in groups; a name is used once a group. Errors:
 * PETRA_IO or PETRA_DATA (an item is missing, of another type or of another size: file, item, found, expected),
 * logged. */
#ifndef PETRA_BASE_ARCHIVE_H
#define PETRA_BASE_ARCHIVE_H

#include "base/status.h"

#include <stdbool.h>
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
  /* An array of `rank` dimensions, dense; read into `values` where the archive is read. */
  petra_status (*values)(petra_archive *archive, const char *name, petra_archive_type type, int rank,
                         const int64_t *extent, void *values);
} petra_archive_ops;

struct petra_archive {
  const petra_archive_ops *ops;
  bool reading;
};

static inline petra_status petra_archive_enter(petra_archive *archive, const char *name) {
  return archive->ops->enter(archive, name);
}

static inline void petra_archive_leave(petra_archive *archive) {
  archive->ops->leave(archive);
}

static inline petra_status petra_archive_values(petra_archive *archive, const char *name, petra_archive_type type,
                                                int64_t count, void *values) {
  return count > 0 ? archive->ops->values(archive, name, type, 1, &count, values) : PETRA_OK;
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
