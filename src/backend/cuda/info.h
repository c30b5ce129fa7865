/* SPDX-License-Identifier: Apache-2.0 */
/* What `petra info` tells of CUDA. info.c in a build with CUDA, info_none.c in one without. Nothing here is
 * logged or fails: a machine without a device or a driver is a thing to tell. */
#ifndef PETRA_BACKEND_CUDA_INFO_H
#define PETRA_BACKEND_CUDA_INFO_H

#include <stddef.h>

/* "CUDA run time 13.0, cuDNN 9.19.0, cuBLAS 13.1.0, kernels for sm_80 sm_90", the libraries' versions being
 * those that are loaded now; or that this build has none. */
void petra_cuda_describe_build(char *text, size_t size);

/* The number of devices; where it is 0, `text` says why: "no CUDA device: no driver (error 35)". Otherwise it
 * is empty. */
int petra_cuda_devices(char *text, size_t size);

/* Of a device in [0, petra_cuda_devices()): "NVIDIA H200, compute capability 9.0, 139.8 GiB". */
void petra_cuda_describe_device(int device, char *text, size_t size);

#endif
