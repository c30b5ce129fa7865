/* SPDX-License-Identifier: Apache-2.0 */
/* The operations as the network code calls them. petra_op_<name> of every operation of backend.h checks that its
 * tensors exist, belong to the backend, have the kinds and shapes in the list and alias only as allowed, and then calls
 * the backend. Parameters and meaning are those of the list.
 *
 * Failures found here, each one line that starts with the operation's name: PETRA_SHAPE (kind, shape or geometry),
 * PETRA_DATA (a label out of range), PETRA_INTERNAL (a tensor that is missing, of another backend, or that aliases an
 * output). Outputs are then untouched. */
#pragma once

#include "backend/backend.h"

PETRA_OPERATIONS(PETRA_OPERATION_DECLARE, petra_op_)

/* Uploads images. Errors: PETRA_INTERNAL if the backend does not support it (petra_backend_takes_images). */
petra_status petra_op_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x);
