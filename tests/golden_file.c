/* SPDX-License-Identifier: Apache-2.0 */
#include "golden_file.h"

#include "base/log.h"
#include "io/hdf5_file.h"

#include <hdf5.h>
#include <stdio.h>
#include <string.h>

/* Reads an attribute as `type`; strings into `size` bytes. */
static petra_status read_attribute(hid_t file, const char *path, const char *name, hid_t type, void *out) {
  hid_t attribute = H5Aexists(file, name) > 0 ? H5Aopen(file, name, H5P_DEFAULT) : -1;
  int result = attribute >= 0 ? H5Aread(attribute, type, out) : -1;
  if (attribute >= 0)
    H5Aclose(attribute);
  return result >= 0 ? PETRA_OK : petra_fail(PETRA_DATA, "%s: no attribute %s of the expected type", path, name);
}

static petra_status read_text(hid_t file, const char *path, const char *name, size_t size, char *out) {
  hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, size);
  petra_status status = read_attribute(file, path, name, type, out);
  H5Tclose(type);
  return status;
}

static petra_status read_column(hid_t file, const char *path, const char *name, hid_t type, void *out, int64_t *count) {
  hsize_t extent = 0;
  hid_t set = H5Dopen2(file, name, H5P_DEFAULT);
  hid_t space = set >= 0 ? H5Dget_space(set) : -1;
  bool fits = space >= 0 && H5Sget_simple_extent_ndims(space) == 1 &&
              H5Sget_simple_extent_dims(space, &extent, NULL) == 1 && extent <= GOLDEN_FILE_LOSSES;
  int result = fits ? H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) : -1;
  if (space >= 0)
    H5Sclose(space);
  if (set >= 0)
    H5Dclose(set);
  *count = (int64_t)extent;
  return result >= 0 ? PETRA_OK
                     : petra_fail(PETRA_DATA, "%s: %s is not a column of at most %d", path, name, GOLDEN_FILE_LOSSES);
}

static petra_status read_all(hid_t file, const char *path, golden_file *out) {
  const struct {
    const char *name;
    int64_t *value;
  } integers[] = {{"depth", &out->depth},
                  {"width", &out->width},
                  {"classes", &out->classes},
                  {"accumulate", &out->accumulate},
                  {"microbatches", &out->microbatches},
                  {"batch", &out->batch},
                  {"nesterov", &out->nesterov},
                  {"records", &out->records},
                  {"stages", &out->stages}},
    optional[] = {{"extra_delay", &out->extra_delay}, {"heads", &out->heads},
                  {"context", &out->context},         {"patch", &out->patch},
                  {"kv_heads", &out->kv_heads},       {"hidden", &out->hidden},
                  {"rotary_base", &out->rotary_base}};
  const struct {
    const char *name;
    double *value;
  } reals[] = {
      {"lr", &out->lr}, {"momentum", &out->momentum}, {"weight_decay", &out->weight_decay}, {"drift", &out->drift}};
  const struct {
    const char *name, *otherwise;
    char *value; /* of the size of `downsample` */
  } texts[] = {{"downsample", "conv", out->downsample},       {"shape", "pyramid", out->shape},
               {"bottleneck", "standard", out->bottleneck},   {"message_up", "native", out->message_up},
               {"message_down", "native", out->message_down}, {"keep_precision", "native", out->keep_precision},
               {"coupling", "additive", out->coupling}};
  int64_t rows;
  for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
    PETRA_TRY(read_attribute(file, path, integers[i].name, H5T_NATIVE_INT64, integers[i].value));
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
    PETRA_TRY(read_attribute(file, path, reals[i].name, H5T_NATIVE_DOUBLE, reals[i].value));
  PETRA_TRY(read_attribute(file, path, "data_fnv1a", H5T_NATIVE_UINT64, &out->data_fnv1a));
  PETRA_TRY(read_text(file, path, "family", sizeof out->family, out->family));
  PETRA_TRY(read_text(file, path, "method", sizeof out->method, out->method));
  PETRA_TRY(read_text(file, path, "init", sizeof out->init, out->init));
  PETRA_TRY(read_text(file, path, "precision", sizeof out->precision, out->precision));
  PETRA_TRY(read_text(file, path, "stem", sizeof out->stem, out->stem));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    snprintf(texts[i].value, sizeof out->downsample, "%s", texts[i].otherwise);
    if (H5Aexists(file, texts[i].name) > 0)
      PETRA_TRY(read_text(file, path, texts[i].name, sizeof out->downsample, texts[i].value));
  }
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
    if (H5Aexists(file, optional[i].name) > 0)
      PETRA_TRY(read_attribute(file, path, optional[i].name, H5T_NATIVE_INT64, optional[i].value));
  PETRA_TRY(read_column(file, path, "/losses/microbatch", H5T_NATIVE_INT64, out->microbatch, &rows));
  PETRA_TRY(read_column(file, path, "/losses/loss", H5T_NATIVE_DOUBLE, out->loss, &out->losses));
  return rows == out->losses ? PETRA_OK : petra_fail(PETRA_DATA, "%s: the columns of /losses differ in length", path);
}

petra_status golden_file_read(const char *path, golden_file *out) {
  petra_hdf5_file file = {.path = path};
  memset(out, 0, sizeof *out);
  petra_hdf5_errors *errors = petra_hdf5_begin(&file.errors);
  petra_status status = petra_hdf5_open(&file);
  if (status == PETRA_OK) {
    status = read_all(file.id, path, out);
    H5Fclose(file.id);
  }
  petra_hdf5_end(&errors);
  return status;
}
