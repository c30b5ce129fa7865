#include "exec/images.h"

#include "backend/ops.h"

petra_status petra_images_upload(petra_backend *backend, const petra_batch *batch, petra_tensor *images) {
  const petra_images bytes = {batch->pixels, batch->choices, batch->mean, batch->deviation};
  if (batch->pixels)
    return petra_op_upload_images(backend, &bytes, images);
  return petra_op_upload(backend, images, batch->images, PETRA_HOST_F64);
}
