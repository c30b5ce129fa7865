/* SPDX-License-Identifier: Apache-2.0 */
/* In place of the MPI library's own: whether it reads the memory of devices. It can where these are stand-ins, whose memory is
 * the host's; it says so with the environment variable PETRA_MPI_HOST_CUDA. */
#include <stdlib.h>

int MPIX_Query_cuda_support(void);

int MPIX_Query_cuda_support(void) {
  return getenv("PETRA_MPI_HOST_CUDA") != NULL;
}
