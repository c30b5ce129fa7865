/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver that has no device, but takes the kernels that are compiled for one: with it cuDNN makes plans whose
 * engines are compiled, on a machine without a driver. It is the part of libcuda that cuDNN 9.19 looks up; of the others
 * it answers what CUDA's stub library does. Linked into a program, whose symbols it has to export. */
#include <stddef.h>

enum { SUCCESS = 0, STUB_LIBRARY = 34 };

static int kernel; /* what all handles point to */

#define ANSWER(name, value)                                                                                            \
  int name(void);                                                                                                      \
  int name(void) {                                                                                                     \
    return value;                                                                                                      \
  }
#define GIVES(name)                                                                                                    \
  int name(void **out);                                                                                                \
  int name(void **out) {                                                                                               \
    *out = &kernel;                                                                                                    \
    return SUCCESS;                                                                                                    \
  }

GIVES(cuLibraryLoadData)
GIVES(cuLibraryGetKernel)
GIVES(cuModuleLoadData)
GIVES(cuModuleLoadDataEx)
GIVES(cuModuleGetFunction)
ANSWER(cuLibraryUnload, SUCCESS)
ANSWER(cuModuleUnload, SUCCESS)
ANSWER(cuKernelSetAttribute, SUCCESS)
ANSWER(cuFuncSetAttribute, SUCCESS)
ANSWER(cuCtxGetCurrent, STUB_LIBRARY)
ANSWER(cuCtxGetDevice, STUB_LIBRARY)
ANSWER(cuCtxGetLimit, STUB_LIBRARY)
ANSWER(cuCtxPopCurrent, STUB_LIBRARY)
ANSWER(cuCtxPushCurrent, STUB_LIBRARY)
ANSWER(cuDeviceGet, STUB_LIBRARY)
ANSWER(cuDeviceGetAttribute, STUB_LIBRARY)
ANSWER(cuDeviceGetCount, STUB_LIBRARY)
ANSWER(cuDevicePrimaryCtxRelease, STUB_LIBRARY)
ANSWER(cuDevicePrimaryCtxReset, STUB_LIBRARY)
ANSWER(cuDevicePrimaryCtxRetain, STUB_LIBRARY)
ANSWER(cuDriverGetVersion, STUB_LIBRARY)
ANSWER(cuFuncGetAttribute, STUB_LIBRARY)
ANSWER(cuGetErrorName, STUB_LIBRARY)
ANSWER(cuGetErrorString, STUB_LIBRARY)
ANSWER(cuGetProcAddress_v2, STUB_LIBRARY)
ANSWER(cuInit, STUB_LIBRARY)
ANSWER(cuKernelGetAttribute, STUB_LIBRARY)
ANSWER(cuLaunchCooperativeKernel, STUB_LIBRARY)
ANSWER(cuLaunchKernel, STUB_LIBRARY)
ANSWER(cuLaunchKernelEx, STUB_LIBRARY)
ANSWER(cuLibraryLoadFromFile, STUB_LIBRARY)
ANSWER(cuLinkAddData, STUB_LIBRARY)
ANSWER(cuLinkAddData_v2, STUB_LIBRARY)
ANSWER(cuLinkAddFile_v2, STUB_LIBRARY)
ANSWER(cuLinkComplete, STUB_LIBRARY)
ANSWER(cuLinkCreate, STUB_LIBRARY)
ANSWER(cuLinkCreate_v2, STUB_LIBRARY)
ANSWER(cuLinkDestroy, STUB_LIBRARY)
ANSWER(cuMemcpyDtoH_v2, STUB_LIBRARY)
ANSWER(cuModuleGetGlobal_v2, STUB_LIBRARY)
ANSWER(cuModuleLoadFatBinary, STUB_LIBRARY)
ANSWER(cuOccupancyMaxActiveBlocksPerMultiprocessor, STUB_LIBRARY)
ANSWER(cuOccupancyMaxPotentialClusterSize, STUB_LIBRARY)
ANSWER(cuStreamGetCtx, STUB_LIBRARY)
ANSWER(cuStreamSynchronize, STUB_LIBRARY)
ANSWER(cuTensorMapEncodeTiled, STUB_LIBRARY)
