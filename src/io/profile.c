#include "io/profile.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"
#include "config.h"
#include "io/atomic_file.h"
#include "io/hdf5_image.h"

#include <hdf5.h>

#include <stdio.h>

enum { SCHEMA_VERSION = 1, SPREAD = 4 };

static const char *const stage_dimension[] = {"stage"};
static const char *const spread_dimensions[] = {"stage", "statistic"};

const char *petra_profile_part_name(petra_profile_part part) {
  static const char *const names[] = {"forward", "backward", "reconstruct", "weight_gradient", "update"};
  return names[part];
}

void petra_profile_destroy(petra_profile *profile) {
  if (!profile)
    return;
  petra_free(profile->stage);
  petra_free(profile);
}

static int put_texts(hid_t file, const petra_profile *profile, const petra_profile_about *about) {
  const char *const texts[][2] = {
      {"petra_version", PACKAGE_VERSION},
      {"git_commit", petra_version_git_commit()},
      {"command", about->command},
      {"backend", about->backend},
      {"libraries", about->libraries},
      {"method", about->method},
      {"family", profile->family},
      {"stem", profile->stem},
      {"downsample", profile->downsample},
      {"precision", profile->precision},
      {"clock", "CLOCK_MONOTONIC"},
      {"forward", "F of the method's stage; last stage: forward and loss, with what its backward needs"},
      {"backward", "B of a stage that keeps its graph; last stage: F, loss and B in one action, less forward"},
      {"reconstruct",
       "B of a stage that keeps no graph (reversible blocks are inverted, others computed again), less backward; "
       "last stage: 0"},
      {"weight_gradient",
       "the backend's operations for the gradients of convolution filters and of the fully connected layer, "
       "timed by themselves; at most backward"}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (petra_hdf5_put_text(file, texts[i][0], texts[i][1]) < 0)
      return -1;
  return 0;
}

static int put_numbers(hid_t file, const petra_profile *profile, const petra_profile_about *about) {
  const struct {
    const char *name;
    int32_t value;
  } numbers[] = {{"schema_version", SCHEMA_VERSION},
                 {"depth", profile->depth},
                 {"width", profile->width},
                 {"classes", profile->classes},
                 {"image_height", profile->image_height},
                 {"image_width", profile->image_width},
                 {"batch", profile->batch},
                 {"threads", about->threads},
                 {"accumulate", about->accumulate},
                 {"warmup", about->warmup},
                 {"repetitions", about->repetitions}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (petra_hdf5_put_i32(file, numbers[i].name, numbers[i].value) < 0)
      return -1;
  return 0;
}

/* A data set of one row a stage and `columns` numbers a row (0: it has one dimension). */
static hid_t create(hid_t file, const char *name, hid_t type, int32_t stages, int columns, const char *units) {
  const hsize_t extent[2] = {(hsize_t)stages, (hsize_t)columns};
  int rank = columns ? 2 : 1;
  return petra_hdf5_create_set(file, name, type, H5Screate_simple(rank, extent, NULL),
                               petra_hdf5_untimed(H5P_DATASET_CREATE), units,
                               columns ? spread_dimensions : stage_dimension, rank);
}

static int write_and_close(hid_t set, hid_t memory_type, const void *values) {
  if (set < 0)
    return -1;
  int result = H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  return H5Dclose(set) < 0 ? -1 : result;
}

static int put_integers(hid_t file, const petra_profile *profile, int64_t *row) {
  int32_t stages = profile->stages;
  for (int32_t j = 0; j < stages; j++)
    row[j] = profile->stage[j].blocks;
  if (write_and_close(create(file, "stages/blocks", H5T_STD_I32LE, stages, 0, "count"), H5T_NATIVE_INT64, row) < 0)
    return -1;
  for (int32_t j = 0; j < stages; j++)
    row[j] = profile->stage[j].forward_bytes;
  if (write_and_close(create(file, "stages/forward_bytes", H5T_STD_I64LE, stages, 0, "byte"), H5T_NATIVE_INT64, row) <
      0)
    return -1;
  for (int32_t j = 0; j < stages; j++)
    row[j] = profile->stage[j].backward_bytes;
  return write_and_close(create(file, "stages/backward_bytes", H5T_STD_I64LE, stages, 0, "byte"), H5T_NATIVE_INT64,
                         row);
}

/* The medians under /stages, what they are the medians of under /spread. */
static int put_part(hid_t file, const petra_profile *profile, petra_profile_part part, double *values) {
  static const char *const columns[] = {"minimum", "first quartile", "third quartile", "maximum"};
  char name[64];
  int32_t stages = profile->stages;
  for (int32_t j = 0; j < stages; j++)
    values[j] = profile->stage[j].part[part].median;
  snprintf(name, sizeof name, "stages/%s", petra_profile_part_name(part));
  if (write_and_close(create(file, name, H5T_IEEE_F64LE, stages, 0, "s"), H5T_NATIVE_DOUBLE, values) < 0)
    return -1;
  for (int32_t j = 0; j < stages; j++) {
    const petra_spread *spread = &profile->stage[j].part[part];
    const double row[SPREAD] = {spread->min, spread->quartile1, spread->quartile3, spread->max};
    for (int i = 0; i < SPREAD; i++)
      values[SPREAD * j + i] = row[i];
  }
  snprintf(name, sizeof name, "spread/%s", petra_profile_part_name(part));
  hid_t set = create(file, name, H5T_IEEE_F64LE, stages, SPREAD, "s");
  if (set >= 0 && petra_hdf5_put_texts(set, "columns", columns, SPREAD) < 0) {
    H5Dclose(set);
    return -1;
  }
  return write_and_close(set, H5T_NATIVE_DOUBLE, values);
}

static int put_all(hid_t file, const petra_profile *profile, const petra_profile_about *about, int64_t *integers,
                   double *reals) {
  if (put_numbers(file, profile, about) < 0 || put_texts(file, profile, about) < 0)
    return -1;
  static const char *const groups[] = {"stages", "spread"};
  for (int i = 0; i < 2; i++) {
    hid_t group = petra_hdf5_create_group(file, groups[i]);
    if (group < 0 || H5Gclose(group) < 0)
      return -1;
  }
  if (put_integers(file, profile, integers) < 0)
    return -1;
  for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
    if (put_part(file, profile, (petra_profile_part)part, reals) < 0)
      return -1;
  return H5Fflush(file, H5F_SCOPE_LOCAL);
}

static petra_status make_image(const char *path, const petra_profile *profile, const petra_profile_about *about,
                               char **image, size_t *size) {
  petra_hdf5_errors errors;
  int64_t *integers = NULL;
  double *reals = NULL;
  petra_status status = PETRA_OK;
  petra_hdf5_begin(&errors);
  hid_t file = petra_hdf5_image_create();
  PETRA_TRY_GOTO(status, petra_allocate(&integers, (size_t)profile->stages, sizeof *integers), done);
  PETRA_TRY_GOTO(status, petra_allocate(&reals, SPREAD * (size_t)profile->stages, sizeof *reals), done);
  if (file < 0 || put_all(file, profile, about, integers, reals) < 0)
    status = petra_fail(PETRA_IO, "%s: cannot write: %s", path, petra_hdf5_reason(&errors));
  else
    status = petra_hdf5_image_copy(file, path, &errors, image, size);
done:
  if (file >= 0)
    H5Fclose(file); /* it is in memory: nothing is written */
  petra_hdf5_end();
  petra_free(reals);
  petra_free(integers);
  return status;
}

petra_status petra_profile_write(const char *path, const petra_profile *profile, const petra_profile_about *about) {
  char *image = NULL;
  size_t size = 0;
  PETRA_TRY(petra_reserve(0));
  PETRA_TRY(make_image(path, profile, about, &image, &size));
  petra_status status = petra_file_write_atomically(path, image, size);
  petra_free(image);
  return status;
}
