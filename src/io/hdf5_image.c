#include "io/hdf5_image.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"

#include <hdf5.h>

enum { IMAGE_INCREMENT_BYTES = 1 << 20 };

int64_t petra_hdf5_image_create(void) {
  hid_t access = petra_hdf5_access(), creation = petra_hdf5_creation(), file = -1;
  if (access >= 0 && creation >= 0 && H5Pset_fapl_core(access, IMAGE_INCREMENT_BYTES, 0) >= 0)
    file = H5Fcreate("image.h5", H5F_ACC_TRUNC, creation, access); /* a name on no disk */
  if (access >= 0)
    H5Pclose(access);
  if (creation >= 0)
    H5Pclose(creation);
  return file;
}

petra_status petra_hdf5_image_copy(int64_t file, const char *path, const petra_hdf5_errors *errors, char **out,
                                   size_t *size) {
  ssize_t bytes = H5Fget_file_image(file, NULL, 0);
  if (bytes < 0)
    return petra_fail(PETRA_IO, "%s: cannot write: %s", path, petra_hdf5_reason(errors));
  char *image = NULL;
  PETRA_TRY(petra_allocate_raw(&image, PETRA_SEAL_BYTES + (size_t)bytes, 1));
  if (H5Fget_file_image(file, image + PETRA_SEAL_BYTES, (size_t)bytes) != bytes) { /* without the user block */
    petra_free(image);
    return petra_fail(PETRA_IO, "%s: cannot write: %s", path, petra_hdf5_reason(errors));
  }
  *out = image;
  *size = PETRA_SEAL_BYTES + (size_t)bytes;
  petra_seal_image(image, *size);
  return PETRA_OK;
}
