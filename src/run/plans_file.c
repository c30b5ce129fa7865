/* SPDX-License-Identifier: Apache-2.0 */
#include "run/plans_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "run/folder.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static bool is_read(const petra_config *config, const char *path) {
  struct stat one, other;
  return *config->device.plans && stat(config->device.plans, &one) == 0 && stat(path, &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static petra_status print(const void *context, FILE *out) {
  const petra_backend *backend = context;
  backend->ops->print_engines(backend, out);
  return PETRA_OK;
}

static petra_status write_to(const petra_backend *backend, const char *path) {
  char *text;
  size_t size;
  PETRA_TRY(petra_text_print(print, backend, "the text of plans.txt", &text, &size));
  petra_status status = size > 0 ? petra_file_write_atomically(path, text, size) : PETRA_OK;
  petra_free(text);
  return status;
}

petra_status petra_plans_file_write(const petra_config *config, const petra_backend *backend, const char *folder) {
  char *path;
  if (!backend->ops->print_engines)
    return PETRA_OK;
  PETRA_TRY(petra_join_path(folder, PETRA_PLANS_FILE, &path));
  petra_status status = is_read(config, path) ? PETRA_OK : write_to(backend, path);
  petra_free(path);
  return status;
}

bool petra_plans_file_is_read(const petra_config *config, const char *folder) {
  char path[PATH_MAX];
  return snprintf(path, sizeof path, "%s/%s", folder, PETRA_PLANS_FILE) < (int)sizeof path && is_read(config, path);
}
