/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about CUDA for `petra info`: info.c in a build with CUDA, info_none.c in one without. Nothing here fails or
 * is logged: a machine without a device or a driver is reported. */
#pragma once

#include <stddef.h>

/* Describes the build: "CUDA run time 13.0, cuDNN 9.19.0, cuBLAS 13.1.0, kernels for sm_80 sm_90", with the versions of
 * the libraries that are loaded now; or says that this build has no CUDA. */
void petra_cuda_describe_build(char *text, size_t size);

/* Returns the number of devices. If it is 0, `text` has the reason: "no CUDA device: no driver (error 35)". Otherwise
 * it is empty. */
int petra_cuda_devices(char *text, size_t size);

/* Describes a device in [0, petra_cuda_devices()): "NVIDIA H200, compute capability 9.0, 139.8 GiB". */
void petra_cuda_describe_device(int device, char *text, size_t size);
