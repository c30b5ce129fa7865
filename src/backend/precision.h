/* SPDX-License-Identifier: Apache-2.0 */
/* What each backend computes in, and how large the elements of its tensors are: the one table of precisions
 * (precision.c), for all who ask. */
#ifndef PETRA_BACKEND_PRECISION_H
#define PETRA_BACKEND_PRECISION_H

#include "backend/backend.h"

/* Bytes of an element of each kind of tensor; NULL where the backend cannot compute in this precision. AUTO: those of
 * the backends that can, which agree but for inner tensors. */
const size_t *petra_precision_find(petra_backend_kind backend, petra_precision precision);

/* Whether its convolutions read streams as they are and round them themselves, where inner tensors have smaller elements: the
 * network then makes no rounded copy (nn/units.c). */
bool petra_precision_rounds_streams(petra_backend_kind backend, petra_precision precision);

/* The same as petra_precision_find of one kind of tensor, for a backend that can. */
int64_t petra_element_bytes(petra_backend_kind backend, petra_precision precision, petra_tensor_kind kind);

/* Whether the backend can compute in this precision. If not, `text` says "PRECISION with device.backend: NAME, which
 * computes in ...; expected device.backend: ...". */
bool petra_precision_check(petra_backend_kind backend, petra_precision precision, char *text, size_t size);

/* "fp32, fp64": all that the backend computes in. */
void petra_precision_list(petra_backend_kind backend, char *text, size_t size);

#endif
