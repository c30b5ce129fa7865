/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel launches: closures of device.h, queued on the fake runtime's streams. */
#include <cuda_host/device.h>

#include "cuda_host/control.h"

static void run(void *arguments) {
  petra_cuda_host_run(arguments);
}

void petra_cuda_host_launch(cuda_stream stream, const petra_cuda_host_closure *closure) {
  const petra_cuda_host_told reported = {.name = closure->name, .arguments = closure->arguments};
  if (!petra_cuda_host_is_told(&reported))
    petra_cuda_host_enqueue_kernel(stream, run, closure, sizeof *closure);
}
