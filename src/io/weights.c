#include "io/weights.h"

#include "base/log.h"
#include "base/mem.h"
#include "config.h"
#include "io/atomic_file.h"
#include "io/hdf5_image.h"

#include <hdf5.h>

#include <assert.h>
#include <stdio.h>

enum { SCHEMA_VERSION = 1 };

/* The names of the dimensions of a tensor of this rank (1 .. 4). */
static const char *const *dimension_names(int rank) {
  static const char *const vector[] = {"channel"};
  static const char *const matrix[] = {"out", "in"};
  static const char *const cube[] = {"out", "in", "k"};
  static const char *const convolution[] = {"out", "in", "kh", "kw"};
  static const char *const *const names[] = {vector, matrix, cube, convolution};
  return names[rank - 1];
}

static int put_tensor(hid_t file, const petra_weight *weight, hid_t type) {
  char name[sizeof weight->name + sizeof "parameters/"];
  snprintf(name, sizeof name, "parameters/%s", weight->name);
  hsize_t extent[4];
  for (int i = 0; i < weight->rank; i++)
    extent[i] = (hsize_t)weight->shape[i];
  hid_t set =
      petra_hdf5_create_set(file, name, type, H5Screate_simple(weight->rank, extent, NULL),
                            petra_hdf5_untimed(H5P_DATASET_CREATE), "1", dimension_names(weight->rank), weight->rank);
  if (set < 0)
    return -1;
  int result = H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, weight->values);
  return H5Dclose(set) < 0 ? -1 : result;
}

static int put_all(hid_t file, const petra_weights_about *about, const petra_weight *weights, int count, hid_t type) {
  if (petra_hdf5_put_i32(file, "schema_version", SCHEMA_VERSION) < 0 ||
      petra_hdf5_put_text(file, "petra_version", PACKAGE_VERSION) < 0 ||
      petra_hdf5_put_text(file, "model", about->model) < 0)
    return -1;
  hid_t group = petra_hdf5_create_group(file, "parameters");
  if (group < 0 || H5Gclose(group) < 0)
    return -1;
  for (int i = 0; i < count; i++) {
    if (put_tensor(file, &weights[i], type) < 0)
      return -1;
  }
  return H5Fflush(file, H5F_SCOPE_LOCAL);
}

petra_status petra_weights_write(const char *path, const petra_weights_about *about, const petra_weight *weights,
                                 int count, bool as_f64) {
  petra_hdf5_errors errors;
  size_t bytes = 0;
  for (int i = 0; i < count; i++)
    bytes += (size_t)weights[i].elements * sizeof(double);
  PETRA_TRY(petra_reserve(bytes));
  petra_hdf5_begin(&errors);
  char *image = NULL;
  size_t size = 0;
  petra_status status = PETRA_OK;
  hid_t file = petra_hdf5_image_create();
  if (file < 0 || put_all(file, about, weights, count, as_f64 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE) < 0)
    status = petra_fail(PETRA_IO, "%s: cannot write: %s", path, petra_hdf5_reason(&errors));
  else
    status = petra_hdf5_image_copy(file, path, &errors, &image, &size);
  if (file >= 0)
    H5Fclose(file); /* it is in memory: nothing is written */
  petra_hdf5_end();
  if (status == PETRA_OK)
    status = petra_file_write_atomically(path, image, size);
  petra_free(image);
  return status;
}
