/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hdf5_image.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "io/file.h"

#include <hdf5.h>

enum { IMAGE_INCREMENT_BYTES = 1 << 20 };

int64_t petra_hdf5_image_create(void) {
  hid_t access = petra_hdf5_access(), creation = petra_hdf5_creation(), file = -1;
  if (creation >= 0 && H5Pset_fapl_core(access, IMAGE_INCREMENT_BYTES, 0) >= 0)
    file = H5Fcreate("image.h5", H5F_ACC_TRUNC, creation, access); /* a name on no disk */
  H5Pclose(access);
  H5Pclose(creation);
  return file;
}

petra_status petra_hdf5_image_copy(int64_t file, const char *path, const petra_hdf5_errors *errors, char **out,
                                   size_t *size) {
  ssize_t bytes = H5Fget_file_image(file, NULL, 0);
  if (bytes < 0)
    return petra_hdf5_fail_write(path, errors);
  char *image = NULL;
  PETRA_TRY(petra_allocate_raw(&image, PETRA_SEAL_BYTES + (size_t)bytes, 1));
  if (H5Fget_file_image(file, image + PETRA_SEAL_BYTES, (size_t)bytes) != bytes) { /* without the user block */
    petra_free(image);
    return petra_hdf5_fail_write(path, errors);
  }
  *out = image;
  *size = PETRA_SEAL_BYTES + (size_t)bytes;
  petra_seal_image(image, *size);
  return PETRA_OK;
}

petra_status petra_hdf5_image_put(const petra_hdf5_file *file) {
  char *image = NULL;
  size_t size = 0;
  if (H5Fflush(file->id, H5F_SCOPE_LOCAL) < 0)
    return petra_hdf5_fail_write(file->path, &file->errors);
  PETRA_TRY(petra_hdf5_image_copy(file->id, file->path, &file->errors, &image, &size));
  petra_status status = petra_file_write_atomically(file->path, image, size);
  petra_free(image);
  return status;
}

petra_status petra_hdf5_image_write(const char *path,
                                    petra_status (*write)(const petra_hdf5_file *file, const void *what),
                                    const void *what, size_t bytes) {
  petra_hdf5_file file = {.path = path};
  PETRA_TRY(petra_reserve(bytes));
  petra_hdf5_begin(&file.errors);
  file.id = petra_hdf5_image_create();
  petra_status status = file.id >= 0 ? write(&file, what) : petra_hdf5_fail_write(path, &file.errors);
  if (status == PETRA_OK)
    status = petra_hdf5_image_put(&file);
  H5Fclose(file.id); /* it is in memory: nothing is written */
  petra_hdf5_end();
  return status;
}
