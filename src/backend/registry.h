/* SPDX-License-Identifier: Apache-2.0 */
/* The constructors of the backends, for registry.c. Each makes the handle with its table of operations, for a precision
 * that the backend has; petra_backend_complete sets what all handles have in common. Also errors that several backends
 * report. */
#pragma once

#include "backend/backend.h"

petra_status petra_ref_create(const petra_backend_options *options, petra_backend **out);
petra_status petra_cpu_create(const petra_backend_options *options, petra_backend **out);

/* For any backend: CBLAS on the host (for the bases of basis rotation, through GSL) uses one thread from now on. With
 * one thread per core, its results would depend, in the last bits, on the number of cores. */
void petra_cpu_blas_alone(void);

/* In builds with CUDA (PETRA_HAVE_CUDA). */
petra_status petra_cuda_create(const petra_backend_options *options, petra_backend **out);
bool petra_cuda_present(void); /* returns true if there is a device */

/* Returns the kind itself, or the one that AUTO chooses here. */
petra_backend_kind petra_backend_choose(petra_backend_kind kind, petra_precision precision);

/* Sets precision, threads, sizes of elements and the pool of a handle of options->kind, which is not AUTO. Destroys the
 * handle on failure. Errors: PETRA_NO_MEMORY. */
petra_status petra_backend_complete(petra_backend *backend, const petra_backend_options *options);

/* Returns PETRA_UNSUPPORTED, logged, if the backend does not have the precision. */
petra_status petra_backend_check_precision(petra_backend_kind kind, petra_precision precision);

/* Returns PETRA_BACKEND, logged: element `index` of `tokens` (N, T, 1), `token`, is not a row of a table of `rows`. */
petra_status petra_token_refuse(const char *operation, const petra_tensor *tokens, int64_t index, double token,
                                int32_t rows);
