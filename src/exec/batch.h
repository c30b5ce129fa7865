/* A batch of the loader as a tensor: the only place above src/data that knows what is in one. */
#ifndef PETRA_EXEC_BATCH_H
#define PETRA_EXEC_BATCH_H

#include "backend/backend.h"
#include "data/loader.h"

/* A new tensor with the batch's samples, of the batch's shape; a batch of bytes asks for a backend that takes images.
 * `account` may be NULL. Errors: those of the backend. */
petra_status petra_batch_upload(petra_backend *backend, const petra_batch *batch, petra_account *account,
                                petra_memory_category category, petra_tensor **out);

#endif
