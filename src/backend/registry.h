/* SPDX-License-Identifier: Apache-2.0 */
/* The constructors of the backends, for registry.c: each makes the handle with its table of operations, for a precision
 * that the backend has; petra_backend_complete sets what all handles have in common. The header also declares
 * errors that several backends report. */
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

/* Returns the kind itself or, for AUTO, the kind that it chooses on this machine. */
petra_backend_kind petra_backend_choose(petra_backend_kind kind, petra_precision precision);

/* Sets precision, threads, sizes of elements and the pool of a handle of options->kind, which is not AUTO. Destroys the
 * handle on failure. Errors: PETRA_NO_MEMORY. */
petra_status petra_backend_complete(petra_backend *backend, const petra_backend_options *options);

/* Returns PETRA_UNSUPPORTED, logged, if the backend does not have the precision. */
petra_status petra_backend_check_precision(petra_backend_kind kind, petra_precision precision);

/* Returns PETRA_BACKEND, logged: element `index` of `tokens` (N, T, 1), `token`, is not a row of a table of `rows`. */
petra_status petra_token_refuse(const char *operation, const petra_tensor *tokens, int64_t index, double token,
                                int32_t rows);

/* --- precision.c: the precisions of each backend and the sizes of elements --- */

/* Returns the bytes of an element of each kind of tensor; NULL if the backend does not have this precision. AUTO: the
 * sizes of the backends that have it, which differ only for inner tensors. */
const size_t *petra_precision_find(petra_backend_kind backend, petra_precision precision);

/* Returns true if convolutions read streams as they are and round them themselves although inner tensors have smaller
 * elements: the network then makes no rounded copy (nn/units.c). */
bool petra_precision_rounds_streams(petra_backend_kind backend, petra_precision precision);

/* Does the same as petra_precision_find for one kind of tensor, if the backend has the precision. */
int64_t petra_element_bytes(petra_backend_kind backend, petra_precision precision, petra_tensor_kind kind);

/* Returns true if the backend has this precision. If not, `text` says "PRECISION with device.backend: NAME, which
 * computes in ...; expected device.backend: ...". */
bool petra_precision_check(petra_backend_kind backend, petra_precision precision, char *text, size_t size);

/* Lists the precisions of the backend: "fp32, fp64". */
void petra_precision_list(petra_backend_kind backend, char *text, size_t size);

/* --- cuda/cuda_info.c: the facts about CUDA for `petra info`. These functions do not fail and log nothing: they
 * also report a build without CUDA and a machine without a device or a driver. --- */

/* Describes the build: "CUDA run time 13.0, cuDNN 9.19.0, cuBLAS 13.1.0, kernels for sm_80 sm_90", with the versions of
 * the libraries that are loaded now; or says that this build has no CUDA. */
void petra_cuda_describe_build(char *text, size_t size);

/* Returns the number of devices. If it is 0, `text` has the reason: "no CUDA device: no driver (error 35)". Otherwise
 * it is empty. */
int petra_cuda_devices(char *text, size_t size);

/* Describes a device in [0, petra_cuda_devices()): "NVIDIA H200, compute capability 9.0, 139.8 GiB". */
void petra_cuda_describe_device(int device, char *text, size_t size);
