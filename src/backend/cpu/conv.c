/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions. */
#include "backend/cpu/primitives.h"

petra_status cpu_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                              const petra_tensor *w, petra_tensor *y) {
  return cpu_primitive_do(backend,
                          &(cpu_primitive_task){.pass = CPU_FORWARD, .geometry = *geometry, .x = x, .w = w, .y = y}, y);
}

petra_status cpu_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *w, const petra_tensor *addend, petra_tensor *dx) {
  PETRA_TRY(cpu_primitive_do(
      backend, &(cpu_primitive_task){.pass = CPU_BACKWARD_DATA, .geometry = *geometry, .x = dx, .w = w, .y = dy}, dx));
  return addend ? cpu_add(backend, dx, addend, dx) : PETRA_OK;
}

petra_status cpu_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                      const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  return cpu_primitive_do(
      backend, &(cpu_primitive_task){.pass = CPU_BACKWARD_WEIGHTS, .geometry = *geometry, .x = x, .w = dw, .y = dy},
      dw);
}
