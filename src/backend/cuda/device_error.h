/* What a launch came to; for the kernels' files, which do not know the handle. error.c */
#ifndef PETRA_BACKEND_CUDA_DEVICE_ERROR_H
#define PETRA_BACKEND_CUDA_DEVICE_ERROR_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif
petra_status cuda_launched(const char *name);
#ifdef __cplusplus
}
#endif

#endif
