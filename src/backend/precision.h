/* SPDX-License-Identifier: Apache-2.0 */
/* The precisions of each backend and the sizes of elements: the one table of precisions (precision.c), for all
 * users. */
#pragma once

#include "backend/backend.h"

/* Returns the bytes of an element of each kind of tensor; NULL if the backend does not have this precision. AUTO: the
 * sizes of the backends that have it, which differ only for inner tensors. */
const size_t *petra_precision_find(petra_backend_kind backend, petra_precision precision);

/* Returns true if convolutions read streams as they are and round them themselves although inner tensors have smaller
 * elements: the network then makes no rounded copy (nn/units.c). */
bool petra_precision_rounds_streams(petra_backend_kind backend, petra_precision precision);

/* Like petra_precision_find for one kind of tensor, if the backend has the precision. */
int64_t petra_element_bytes(petra_backend_kind backend, petra_precision precision, petra_tensor_kind kind);

/* Returns true if the backend has this precision. If not, `text` says "PRECISION with device.backend: NAME, which
 * computes in ...; expected device.backend: ...". */
bool petra_precision_check(petra_backend_kind backend, petra_precision precision, char *text, size_t size);

/* Lists the precisions of the backend: "fp32, fp64". */
void petra_precision_list(petra_backend_kind backend, char *text, size_t size);
