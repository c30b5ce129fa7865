/* SPDX-License-Identifier: Apache-2.0 */
#include "base/archive.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

petra_status petra_archive_enter(petra_archive *archive, const char *format, ...) {
  size_t length = strlen(archive->group);
  char name[64];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  PETRA_TRY(archive->ops->enter(archive, name));
  snprintf(archive->group + length, sizeof archive->group - length, "/%s", name);
  return PETRA_OK;
}

petra_status petra_archive_leave(petra_archive *archive, petra_status status) {
  char *last = strrchr(archive->group, '/');
  if (last)
    *last = 0;
  return status;
}

petra_status petra_archive_refuse(const petra_archive *archive, const char *item, const char *format, ...) {
  char text[160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return petra_fail(PETRA_DATA, "%s: item %s/%s: %s; expected a checkpoint of this run", archive->path, archive->group,
                    item, text);
}

petra_status petra_archive_within(const petra_archive *archive, const char *item, const char *what, int64_t value,
                                  int64_t low, int64_t high) {
  if (!archive->reading || (value >= low && value <= high))
    return PETRA_OK;
  return petra_archive_refuse(archive, item, "%s: %lld, not %lld to %lld", what, (long long)value, (long long)low,
                              (long long)high);
}
