/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend: the parts that its element types share. */
#pragma once

#include "backend/backend.h"

/* One table per element type, from the same source (ref_real.inc). */
extern const petra_backend_ops petra_ref_ops_f32;
extern const petra_backend_ops petra_ref_ops_f64;

/* A mask has one byte per element: for a max-pool the position of the winner in its window (row-major). Norms store
 * nothing in it: the sign of their output is recomputed. */
typedef uint8_t petra_ref_mask;

void petra_ref_destroy(petra_backend *backend);
void petra_ref_describe(const petra_backend *backend, char *text, size_t size);
petra_status petra_ref_storage_create(petra_backend *backend, petra_tensor *tensor);
void petra_ref_storage_destroy(petra_backend *backend, petra_tensor *tensor);
