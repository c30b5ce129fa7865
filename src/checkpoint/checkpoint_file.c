/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/manifest.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/release.h"
#include "io/file.h"
#include "io/hdf5_file.h"

#include <hdf5.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <dirent.h>
#include <inttypes.h>

enum { SCHEMA_VERSION = 5, ITEM_BYTES = 256, PATH_BYTES = 4096 };

typedef struct checkpoint {
  petra_archive base;
  petra_hdf5_file file;
  char *path;      /* path in messages (file.path); for a part that is being written: its stem */
  char *temporary; /* for a part that is being written: its temporary file; NULL once that file is renamed */
  bool lost;       /* HDF5 failed to write to a file on the disk */
  char *config;    /* the config, if the archive is being read */
} checkpoint;

static void part_path(const char *stem, uint64_t digest, char path[PATH_BYTES]) {
  snprintf(path, PATH_BYTES, "%s-%016" PRIx64 ".h5", stem, digest);
}

/* The name ends like the name of a part, so that an unfinished part is removed together with the parts that are no
 * longer needed. */
static petra_status part_temporary(const char *stem, char **out) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s.h5", stem);
  return petra_file_temporary_name(path, out);
}

/* Returns the status for a failed write of HDF5. */
static petra_status fail_write(checkpoint *c) {
  c->lost = true;
  return petra_hdf5_fail_write(c->file.path, &c->file.errors);
}

/* Gets the path of an item of the current group in the file. */
static void path_of(const petra_archive *base, const char *name, char path[ITEM_BYTES]) {
  snprintf(path, ITEM_BYTES, "%s/%s", base->group, name);
}

static petra_status enter(petra_archive *base, const char *name) {
  checkpoint *c = (checkpoint *)base;
  char path[ITEM_BYTES];
  path_of(base, name, path);
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&c->file.errors);
  PETRA_HDF5_CLOSED hid_t group = -1;
  if (H5Lexists(c->file.id, path, H5P_DEFAULT) > 0)
    group = H5Gopen2(c->file.id, path, H5P_DEFAULT);
  else if (!base->reading)
    group = petra_hdf5_create_group(c->file.id, path);
  if (group >= 0)
    return PETRA_OK;
  return base->reading ? petra_archive_refuse(base, name, "is missing") : fail_write(c);
}

static petra_status read_values(const checkpoint *c, const char *name, const petra_hdf5_set *item, void *values) {
  int64_t found[PETRA_HDF5_RANK];
  PETRA_HDF5_CLOSED hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(c->path, c->file.id, item->name, true, &set));
  if (set < 0)
    return petra_archive_refuse(&c->base, name, "is missing");
  PETRA_HDF5_CLOSED hid_t type = H5Dget_type(set);
  if (!petra_hdf5_extent(set, H5Tget_class(item->type), item->rank, found) || H5Tequal(type, item->type) <= 0 ||
      memcmp(found, item->extent, (size_t)item->rank * sizeof *found) != 0 || !petra_hdf5_can_hold(set))
    return petra_archive_refuse(&c->base, name, "has another type or size than this run's");
  if (values && H5Dread(set, item->memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
    return petra_fail(PETRA_IO, "%s: item %s cannot be read: %s", c->path, name, petra_hdf5_reason(&c->file.errors));
  return PETRA_OK;
}

static petra_status values(petra_archive *base, const char *name, petra_archive_type type, int rank,
                           const int64_t *extent, void *host) {
  const hid_t types[][2] = {[PETRA_ARCHIVE_U8] = {H5T_STD_U8LE, H5T_NATIVE_UINT8},
                            [PETRA_ARCHIVE_I64] = {H5T_STD_I64LE, H5T_NATIVE_INT64},
                            [PETRA_ARCHIVE_F32] = {H5T_IEEE_F32LE, H5T_NATIVE_FLOAT},
                            [PETRA_ARCHIVE_F64] = {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE}};
  checkpoint *c = (checkpoint *)base;
  char path[ITEM_BYTES];
  petra_hdf5_set item = {.name = path, .type = types[type][0], .memory = types[type][1], .rank = rank, .values = host};
  size_t bytes = sizeof(double);
  path_of(base, name, path);
  for (int d = 0; d < rank; d++)
    bytes *= (size_t)(item.extent[d] = extent[d]);
  if (!base->reading)
    PETRA_TRY(petra_reserve(c->temporary ? 0 : bytes)); /* the amount by which the image grows */
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&c->file.errors);
  if (base->reading)
    return read_values(c, name, &item, host);
  return petra_hdf5_put_set(c->file.id, &item) ? PETRA_OK : fail_write(c);
}

static petra_status allocate(const char *path, bool reading, checkpoint **out) {
  static const petra_archive_ops ops = {.enter = enter, .values = values};
  PETRA_FREED char *copy = NULL;
  checkpoint *c;
  PETRA_TRY(petra_duplicate_string(&copy, path));
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  c->base = (petra_archive){.ops = &ops, .reading = reading};
  c->file.id = -1;
  c->path = petra_take(&copy);
  c->base.path = c->file.path = c->path;
  *out = c;
  return PETRA_OK;
}

/* Writes the attributes of every file of a checkpoint. */
static bool put_head(const checkpoint *c, const char *config) {
  const char *const texts[][2] = {
      {"petra_version", petra_version()}, {"git_commit", petra_version_git_commit()}, {"config", config}};
  return petra_hdf5_put_i32(c->file.id, "schema_version", SCHEMA_VERSION) >= 0 &&
         petra_hdf5_put_all(c->file.id, texts, sizeof texts / sizeof *texts) >= 0;
}

petra_status petra_checkpoint_create(const char *path, bool part, const char *config, petra_archive **out) {
  checkpoint *c;
  PETRA_TRY(petra_reserve(0));
  PETRA_TRY(allocate(path, false, &c));
  PETRA_DESTROYED(petra_checkpoint_destroy) petra_archive *archive = &c->base;
  if (part) {
    PETRA_TRY(part_temporary(path, &c->temporary));
    c->base.path = c->file.path = c->temporary;
  }
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&c->file.errors);
  c->file.id = part ? petra_hdf5_create_file(c->temporary) : petra_hdf5_image_create();
  if (c->file.id < 0 || !put_head(c, config))
    return fail_write(c);
  *out = petra_take(&archive);
  return PETRA_OK;
}

petra_status petra_checkpoint_write(petra_archive *base) {
  checkpoint *c = (checkpoint *)base;
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&c->file.errors);
  return petra_hdf5_image_put(&c->file);
}

/* Seals the file, which HDF5 has closed. */
static petra_status seal_part(const checkpoint *c) {
  int fd = open(c->temporary, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  int failure = fd < 0 ? errno : petra_seal_finish(fd, NULL, 0);
  if (fd >= 0 && close(fd) != 0 && !failure)
    failure = errno;
  return failure ? petra_fail(PETRA_IO, "%s: cannot write: %s", c->temporary, strerror(failure)) : PETRA_OK;
}

static petra_status name_part(checkpoint *c, uint64_t digest) {
  char path[PATH_BYTES];
  part_path(c->path, digest, path);
  PETRA_TRY(petra_file_replace(path, c->temporary));
  petra_free(c->temporary);
  c->temporary = NULL;
  return PETRA_OK;
}

petra_status petra_checkpoint_write_part(petra_archive *base, uint64_t *digest) {
  checkpoint *c = (checkpoint *)base;
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&c->file.errors);
  if (H5Fflush(c->file.id, H5F_SCOPE_LOCAL) < 0 || H5Fclose(c->file.id) < 0)
    return fail_write(c);
  c->file.id = -1;
  PETRA_TRY(seal_part(c));
  PETRA_TRY(petra_seal_get_digest(c->temporary, digest));
  return name_part(c, *digest);
}

static petra_status check_file(checkpoint *c) {
  int32_t version;
  PETRA_TRY(petra_hdf5_get_i32(&c->file, "schema_version", &version));
  if (version != SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema version %d; expected a checkpoint of version %d", c->path, (int)version,
                      SCHEMA_VERSION);
  return petra_hdf5_get_text(&c->file, "config", &c->config);
}

petra_status petra_checkpoint_open(const char *path, petra_archive **out) {
  checkpoint *c;
  petra_seal seal;
  PETRA_TRY(petra_seal_check(path, &seal));
  if (seal != PETRA_SEAL_WHOLE)
    return petra_fail(PETRA_DATA, "%s: not a checkpoint, or one that an earlier version of petra wrote: it has no seal",
                      path);
  PETRA_TRY(allocate(path, true, &c));
  PETRA_DESTROYED(petra_checkpoint_destroy) petra_archive *archive = &c->base;
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&c->file.errors);
  PETRA_TRY(petra_hdf5_open(&c->file));
  PETRA_TRY(check_file(c));
  *out = petra_take(&archive);
  return PETRA_OK;
}

const char *petra_checkpoint_config(const petra_archive *archive) {
  return ((const checkpoint *)archive)->config;
}

void petra_checkpoint_destroy(petra_archive *base) {
  checkpoint *c = (checkpoint *)base;
  if (!c)
    return;
  petra_hdf5_errors *errors = petra_hdf5_begin(&c->file.errors);
  if (c->file.id >= 0 && !(c->lost && c->temporary)) /* otherwise HDF5 would try to write again */
    H5Fclose(c->file.id);
  petra_hdf5_end(&errors);
  if (c->temporary)
    unlink(c->temporary);
  PETRA_FREE_ALL(c->temporary, c->config, c->path, c);
}

/* --- parts --- */

petra_status petra_checkpoint_open_part(const char *stem, uint64_t digest, petra_archive **out) {
  PETRA_DESTROYED(petra_checkpoint_destroy) petra_archive *archive = NULL;
  char path[PATH_BYTES];
  uint64_t found;
  part_path(stem, digest, path);
  PETRA_TRY(petra_checkpoint_open(path, &archive));
  PETRA_TRY(petra_seal_get_digest(path, &found));
  if (found != digest)
    return petra_fail(PETRA_DATA, "%s: its digest is %016" PRIx64 "; expected the file that petra gave this name", path,
                      found);
  *out = petra_take(&archive);
  return PETRA_OK;
}

static bool is_named(const char *path, char *const *stems, const uint64_t *digests, int count) {
  char part[PATH_BYTES];
  bool named = false;
  for (int i = 0; i < count && !named; i++) {
    if (!digests[i] || strncmp(path, stems[i], strlen(stems[i])) != 0)
      continue;
    part_path(stems[i], digests[i], part);
    named = strcmp(path, part) == 0;
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
  char path[PATH_BYTES];
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
