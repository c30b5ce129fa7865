/* A batch of the loader as an activation. */
#ifndef PETRA_EXEC_IMAGES_H
#define PETRA_EXEC_IMAGES_H

#include "backend/backend.h"
#include "data/loader.h"

/* images (count, 3, H, W) = the batch's; a batch of bytes asks for a backend that takes images. Errors: those of the
 * backend. */
petra_status petra_images_upload(petra_backend *backend, const petra_batch *batch, petra_tensor *images);

#endif
