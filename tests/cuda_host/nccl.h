/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NCCL's API that src/backend/cuda/cuda_peers.c calls: names, types and signatures of NCCL 2.28, implemented by
 * nccl_host.c. What the fake promises and what it does not: nccl_control.h. */
#pragma once

#include <cuda_runtime_api.h>
#include <limits.h>
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;

typedef struct {
  char internal[128];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
} ncclResult_t;

typedef enum { ncclInt8 = 0, ncclFloat32 = 7 } ncclDataType_t;

typedef struct ncclConfig {
  size_t size;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                                        \
  { sizeof(ncclConfig_t), INT_MIN, INT_MIN, INT_MIN, INT_MIN }

const char *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
