/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as bytes for another process: the logical elements in their order, f32, or f64 where the backend has kinds of 8
 * bytes, so that ranks need not have the same layouts. Nothing is rounded on the way. */
#pragma once

#include "backend/backend.h"

/* Bytes of so many elements of a kind. */
size_t petra_packed_bytes(const petra_backend *backend, petra_tensor_kind kind, int64_t elements);

/* Writes all elements of the tensor. Errors: those of petra_op_download. */
petra_status petra_pack(const petra_tensor *tensor, void *to);

/* Overwrites all elements of the tensor with what petra_pack wrote of one of its kind and shape. */
petra_status petra_unpack(petra_tensor *tensor, const void *from);
