/* SPDX-License-Identifier: Apache-2.0 */
/* The constructors of the backends, for registry.c: each makes the handle with its table of operations, for a precision
 * that the backend has; what all handles have in common is set by petra_backend_complete. */
#ifndef PETRA_BACKEND_REGISTRY_H
#define PETRA_BACKEND_REGISTRY_H

#include "backend/backend.h"

petra_status petra_ref_create(const petra_backend_options *options, petra_backend **out);
petra_status petra_cpu_create(const petra_backend_options *options, petra_backend **out);

/* For any backend: what the host does by CBLAS (the bases of basis rotation, by way of GSL) is done by one thread from now on. By as many threads as there are
 * cores its bits would depend on these. */
void petra_cpu_blas_alone(void);

/* In builds with CUDA (PETRA_HAVE_CUDA). */
petra_status petra_cuda_create(const petra_backend_options *options, petra_backend **out);
bool petra_cuda_present(void); /* there is a device */

/* The kind itself, or what AUTO takes here. */
petra_backend_kind petra_backend_choose(petra_backend_kind kind, petra_precision precision);

/* Precision, threads, sizes of elements and the pool of a handle of options->kind, which is not AUTO. Destroys it on
 * failure. PETRA_NO_MEMORY. */
petra_status petra_backend_complete(petra_backend *backend, const petra_backend_options *options);

/* PETRA_UNSUPPORTED, logged, where the backend does not have the precision. */
petra_status petra_backend_check_precision(petra_backend_kind kind, petra_precision precision);

/* What backends say of a token that is none. */

/* PETRA_BACKEND, logged: element `index` of `tokens` (N, T, 1), `token`, is no row of a table of `rows`. */
petra_status petra_token_refuse(const char *operation, const petra_tensor *tokens, int64_t index, double token,
                                int32_t rows);

#endif
