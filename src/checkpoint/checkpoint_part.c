/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a checkpoint: their names, and the removal of those that no checkpoint needs any more. */
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "io/file.h"
#include "checkpoint/checkpoint_file.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

petra_status petra_checkpoint_part_path(const char *stem, uint64_t digest, char **out) {
  const size_t size = strlen(stem) + sizeof "-0123456789abcdef.h5";
  PETRA_TRY(petra_allocate(out, size, 1));
  snprintf(*out, size, "%s-%016" PRIx64 ".h5", stem, digest);
  return PETRA_OK;
}

/* The name ends like that of a part, so that an unfinished part is removed with those that are not needed. */
petra_status petra_checkpoint_part_temporary(const char *stem, char **out) {
  const size_t size = strlen(stem) + sizeof ".h5";
  char *path;
  PETRA_TRY(petra_allocate(&path, size, 1));
  snprintf(path, size, "%s.h5", stem);
  petra_status status = petra_file_temporary_name(path, out);
  petra_free(path);
  return status;
}

petra_status petra_checkpoint_open_part(const char *stem, uint64_t digest, petra_archive **out) {
  char *path;
  uint64_t found;
  PETRA_TRY(petra_checkpoint_part_path(stem, digest, &path));
  petra_status status = petra_checkpoint_open(path, out);
  if (status == PETRA_OK) {
    status = petra_seal_get_digest(path, &found);
    if (status == PETRA_OK && found != digest)
      status = petra_fail(PETRA_DATA, "%s: its digest is %016" PRIx64 "; expected the file that petra gave this name",
                          path, found);
    if (status != PETRA_OK)
      petra_checkpoint_destroy(*out);
  }
  petra_free(path);
  return status;
}

static bool is_named(const char *path, char *const *stems, const uint64_t *digests, int count) {
  bool named = false;
  for (int i = 0; i < count && !named; i++) {
    char *part;
    if (!digests[i] || strncmp(path, stems[i], strlen(stems[i])) != 0)
      continue;
    if (petra_checkpoint_part_path(stems[i], digests[i], &part) != PETRA_OK)
      return true;
    named = strcmp(path, part) == 0;
    petra_free(part);
  }
  return named;
}

static bool ends_in(const char *name, const char *ending) {
  const size_t length = strlen(name), last = strlen(ending);
  return length > last && strcmp(name + length - last, ending) == 0;
}

bool petra_checkpoint_is_part(const char *name) {
  return ends_in(name, ".h5") || ends_in(name, ".h5.tmp");
}

void petra_checkpoint_remove_parts(const char *folder, char *const *stems, const uint64_t *digests, int count) {
  char path[4096];
  DIR *opened = opendir(folder);
  if (!opened)
    return;
  for (struct dirent *entry = readdir(opened); entry; entry = readdir(opened)) {
    if (petra_checkpoint_is_part(entry->d_name) &&
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path &&
        !is_named(path, stems, digests, count))
      unlink(path);
  }
  closedir(opened);
}
