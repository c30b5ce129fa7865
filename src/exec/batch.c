#include "exec/batch.h"

#include "backend/ops.h"

petra_status petra_batch_upload(petra_backend *backend, const petra_batch *batch, petra_account *account,
                                petra_memory_category category, petra_tensor **out) {
  const petra_images bytes = {batch->pixels, batch->choices, batch->mean, batch->deviation};
  petra_tensor *tensor;
  PETRA_TRY(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, batch->shape, account, category, &tensor));
  petra_status status = batch->pixels ? petra_op_upload_images(backend, &bytes, tensor)
                                      : petra_op_upload(backend, tensor, batch->images, PETRA_HOST_F64);
  if (status != PETRA_OK)
    petra_tensor_release(&tensor);
  else
    *out = tensor;
  return status;
}
