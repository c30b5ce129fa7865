#include "io/checkpoint.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/version.h"
#include "io/atomic_file.h"
#include "io/hdf5_file.h"
#include "io/hdf5_image.h"

#include <hdf5.h>

#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 1, MOST_GROUPS = 8, MOST_RANK = 4 };

typedef struct checkpoint {
  petra_archive base;
  char *path;
  char *config; /* of one that is read */
  hid_t file;
  hid_t group[MOST_GROUPS]; /* the innermost is the last */
  int groups;
} checkpoint;

static hid_t innermost(const checkpoint *c) {
  return c->groups ? c->group[c->groups - 1] : c->file;
}

static petra_status fail_write(const checkpoint *c, const petra_hdf5_errors *errors) {
  return petra_fail(PETRA_IO, "%s: cannot write: %s", c->path, petra_hdf5_reason(errors));
}

static petra_status enter(petra_archive *base, const char *name) {
  checkpoint *c = (checkpoint *)base;
  petra_hdf5_errors errors;
  petra_status status = PETRA_OK;
  petra_hdf5_begin(&errors);
  bool there = H5Lexists(innermost(c), name, H5P_DEFAULT) > 0;
  hid_t group = -1;
  if (c->groups < MOST_GROUPS && there)
    group = H5Gopen2(innermost(c), name, H5P_DEFAULT);
  else if (c->groups < MOST_GROUPS && !base->reading)
    group = petra_hdf5_create_group(innermost(c), name);
  if (group < 0)
    status = base->reading ? petra_archive_refuse(base, name, "is missing") : fail_write(c, &errors);
  else
    c->group[c->groups++] = group;
  petra_hdf5_end();
  return status;
}

static void leave(petra_archive *base) {
  checkpoint *c = (checkpoint *)base;
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  H5Gclose(c->group[--c->groups]);
  petra_hdf5_end();
}

static hid_t file_type(petra_archive_type type) {
  const hid_t types[] = {[PETRA_ARCHIVE_U8] = H5T_STD_U8LE,
                         [PETRA_ARCHIVE_I64] = H5T_STD_I64LE,
                         [PETRA_ARCHIVE_F32] = H5T_IEEE_F32LE,
                         [PETRA_ARCHIVE_F64] = H5T_IEEE_F64LE};
  return types[type];
}

static hid_t memory_type(petra_archive_type type) {
  const hid_t types[] = {[PETRA_ARCHIVE_U8] = H5T_NATIVE_UINT8,
                         [PETRA_ARCHIVE_I64] = H5T_NATIVE_INT64,
                         [PETRA_ARCHIVE_F32] = H5T_NATIVE_FLOAT,
                         [PETRA_ARCHIVE_F64] = H5T_NATIVE_DOUBLE};
  return types[type];
}

/* Creates the folders of `name`, and the data set; times are left out. */
static bool write_values(checkpoint *c, const char *name, petra_archive_type type, int rank, const hsize_t *extent,
                         const void *values) {
  hid_t links = H5Pcreate(H5P_LINK_CREATE), properties = petra_hdf5_untimed(H5P_DATASET_CREATE);
  hid_t space = H5Screate_simple(rank, extent, NULL), set = -1;
  if (links >= 0 && properties >= 0 && space >= 0 && H5Pset_create_intermediate_group(links, 1) >= 0)
    set = H5Dcreate2(innermost(c), name, file_type(type), space, links, properties, H5P_DEFAULT);
  bool done = set >= 0 && H5Dwrite(set, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
  if (set >= 0)
    done = H5Dclose(set) >= 0 && done;
  if (space >= 0)
    H5Sclose(space);
  if (properties >= 0)
    H5Pclose(properties);
  if (links >= 0)
    H5Pclose(links);
  return done;
}

/* Fails unless the data set has the type and extent that is asked for. */
static petra_status check_set(const checkpoint *c, const char *name, hid_t set, petra_archive_type type, int rank,
                              const hsize_t *extent) {
  hsize_t found[H5S_MAX_RANK];
  hid_t space = H5Dget_space(set), in_file = H5Dget_type(set);
  int found_rank = space >= 0 ? H5Sget_simple_extent_dims(space, found, NULL) : -1;
  bool same = found_rank == rank && in_file >= 0 && H5Tequal(in_file, file_type(type)) > 0;
  for (int d = 0; d < rank && same; d++)
    same = found[d] == extent[d];
  same = same && petra_hdf5_can_hold(set);
  if (space >= 0)
    H5Sclose(space);
  if (in_file >= 0)
    H5Tclose(in_file);
  if (same)
    return PETRA_OK;
  return petra_archive_refuse(&c->base, name, "has another type or size than this run's");
}

static petra_status read_values(checkpoint *c, const char *name, petra_archive_type type, int rank,
                                const hsize_t *extent, void *values, const petra_hdf5_errors *errors) {
  hid_t set = H5Dopen2(innermost(c), name, H5P_DEFAULT);
  if (set < 0)
    return petra_archive_refuse(&c->base, name, "is missing");
  petra_status status = check_set(c, name, set, type, rank, extent);
  if (status == PETRA_OK && values && H5Dread(set, memory_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
    status = petra_fail(PETRA_IO, "%s: item %s cannot be read: %s", c->path, name, petra_hdf5_reason(errors));
  H5Dclose(set);
  return status;
}

static petra_status values(petra_archive *base, const char *name, petra_archive_type type, int rank,
                           const int64_t *extent, void *host) {
  checkpoint *c = (checkpoint *)base;
  hsize_t size[MOST_RANK];
  petra_hdf5_errors errors;
  petra_status status = PETRA_OK;
  for (int d = 0; d < rank; d++)
    size[d] = (hsize_t)extent[d];
  petra_hdf5_begin(&errors);
  if (base->reading)
    status = read_values(c, name, type, rank, size, host, &errors);
  else if (!write_values(c, name, type, rank, size, host))
    status = fail_write(c, &errors);
  petra_hdf5_end();
  return status;
}

static petra_status allocate(const char *path, bool reading, checkpoint **out) {
  static const petra_archive_ops ops = {.enter = enter, .leave = leave, .values = values};
  checkpoint *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  c->base = (petra_archive){.ops = &ops, .reading = reading};
  c->file = -1;
  petra_status status = petra_duplicate_string(&c->path, path);
  if (status != PETRA_OK) {
    petra_checkpoint_destroy(&c->base);
    return status;
  }
  c->base.path = c->path;
  *out = c;
  return PETRA_OK;
}

petra_status petra_checkpoint_create(const char *path, const char *config, petra_archive **out) {
  checkpoint *c;
  petra_hdf5_errors errors;
  petra_status status = PETRA_OK;
  PETRA_TRY(allocate(path, false, &c));
  petra_hdf5_begin(&errors);
  c->file = petra_hdf5_image_create();
  if (c->file < 0 || petra_hdf5_put_i32(c->file, "schema_version", SCHEMA_VERSION) < 0 ||
      petra_hdf5_put_text(c->file, "petra_version", petra_version()) < 0 ||
      petra_hdf5_put_text(c->file, "git_commit", petra_version_git_commit()) < 0 ||
      petra_hdf5_put_text(c->file, "config", config) < 0)
    status = fail_write(c, &errors);
  petra_hdf5_end();
  if (status != PETRA_OK)
    petra_checkpoint_destroy(&c->base);
  else
    *out = &c->base;
  return status;
}

petra_status petra_checkpoint_write(petra_archive *base) {
  checkpoint *c = (checkpoint *)base;
  char *image = NULL;
  size_t size = 0;
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = H5Fflush(c->file, H5F_SCOPE_LOCAL) < 0
                            ? fail_write(c, &errors)
                            : petra_hdf5_image_copy(c->file, c->path, &errors, &image, &size);
  petra_hdf5_end();
  if (status == PETRA_OK)
    status = petra_file_write_atomically(c->path, image, size);
  petra_free(image);
  return status;
}

static petra_status check_file(checkpoint *c) {
  int32_t version;
  PETRA_TRY(petra_hdf5_get_i32(c->file, c->path, "schema_version", &version));
  if (version != SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema version %d; expected a checkpoint of version %d", c->path, (int)version,
                      SCHEMA_VERSION);
  return petra_hdf5_get_text(c->file, c->path, "config", &c->config);
}

petra_status petra_checkpoint_open(const char *path, petra_archive **out) {
  checkpoint *c;
  int64_t file = -1;
  petra_hdf5_errors errors;
  petra_seal seal;
  PETRA_TRY(petra_seal_check(path, &seal));
  if (seal != PETRA_SEAL_WHOLE)
    return petra_fail(PETRA_DATA, "%s: no checkpoint, or one of an earlier petra: it has no seal", path);
  PETRA_TRY(allocate(path, true, &c));
  petra_hdf5_begin(&errors);
  petra_status status = petra_hdf5_open(path, &errors, &file);
  c->file = file;
  if (status == PETRA_OK)
    status = check_file(c);
  petra_hdf5_end();
  if (status != PETRA_OK)
    petra_checkpoint_destroy(&c->base);
  else
    *out = &c->base;
  return status;
}

const char *petra_checkpoint_config(const petra_archive *archive) {
  return ((const checkpoint *)archive)->config;
}

void petra_checkpoint_destroy(petra_archive *base) {
  checkpoint *c = (checkpoint *)base;
  petra_hdf5_errors errors;
  if (!c)
    return;
  petra_hdf5_begin(&errors);
  while (c->groups)
    H5Gclose(c->group[--c->groups]);
  if (c->file >= 0)
    H5Fclose(c->file);
  petra_hdf5_end();
  petra_free(c->config);
  petra_free(c->path);
  petra_free(c);
}
