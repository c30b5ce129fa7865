/* SPDX-License-Identifier: Apache-2.0 */
/* In place of peers.c where petra is built without NCCL. */
#include "backend/cuda/cuda.h"

const petra_peer_ops *cuda_peer_ops(void) {
  return NULL;
}

const char *cuda_peers_version(void) {
  return NULL;
}

void cuda_peers_destroy(cuda_backend *cuda) {
  (void)cuda;
}

petra_status cuda_peers_alive(const cuda_backend *cuda) {
  (void)cuda;
  return PETRA_OK;
}
