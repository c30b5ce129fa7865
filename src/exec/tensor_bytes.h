/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as bytes for another process: the logical elements in their order, as f32, or as f64 if the backend has kinds
 * of 8 bytes; quantised tensors as their bytes. So ranks need not have the same layouts. No value is rounded. */
#pragma once

#include "backend/backend.h"

/* Returns the size of `elements` elements of a kind. */
size_t petra_packed_bytes(const petra_backend *backend, petra_tensor_kind kind, int64_t elements);

/* Writes all elements of the tensor. Errors are those of petra_op_download. */
petra_status petra_pack(const petra_tensor *tensor, void *to);

/* Overwrites all elements of the tensor with what petra_pack wrote of a tensor with the same kind and shape. */
petra_status petra_unpack(petra_tensor *tensor, const void *from);
