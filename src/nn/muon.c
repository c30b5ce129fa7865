/* SPDX-License-Identifier: Apache-2.0 */
/* Muon's step of one matrix (optim.h). */
#include "backend/backend.h"
#include "nn/optim.h"

#include <math.h>

/* Room for one matrix, and the step for which it was made. */
typedef struct muon_room {
  petra_tensor *direction, *orthogonal, *work[2], *gram[2];
} muon_room;

static void release_room(muon_room *room) {
  petra_tensor_release(&room->direction);
  petra_tensor_release(&room->orthogonal);
  for (int i = 0; i < 2; i++) {
    petra_tensor_release(&room->work[i]);
    petra_tensor_release(&room->gram[i]);
  }
}

static petra_status make_room(const petra_compute *compute, const petra_tensor *parameter, muon_room *room) {
  const int32_t rows = parameter->shape[0], columns = (int32_t)(parameter->elements / rows);
  const int32_t least = rows < columns ? rows : columns;
  const int32_t whole[4] = {rows, columns, 1, 1}, square[4] = {least, least, 1, 1};
  PETRA_TRY(petra_compute_like(compute, parameter, PETRA_MEMORY_WORKSPACE, &room->direction));
  PETRA_TRY(petra_compute_like(compute, parameter, PETRA_MEMORY_WORKSPACE, &room->orthogonal));
  for (int i = 0; i < 2; i++) {
    PETRA_TRY(petra_compute_tensor(compute, PETRA_TENSOR_MATRIX, whole, PETRA_MEMORY_WORKSPACE, &room->work[i]));
    PETRA_TRY(petra_compute_tensor(compute, PETRA_TENSOR_MATRIX, square, PETRA_MEMORY_WORKSPACE, &room->gram[i]));
  }
  return PETRA_OK;
}

static double factor_of(const petra_optim *optim, const petra_tensor *parameter) {
  const double rows = parameter->shape[0], columns = (double)parameter->elements / rows;
  return optim->muon_scale == PETRA_MUON_RMS ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

/* v = m v + g; u = g + m v, or v. */
static petra_status make_direction(const petra_optim *optim, petra_backend *backend, const petra_tensor *gradient,
                                   petra_tensor *velocity, petra_tensor *direction) {
  PETRA_TRY(petra_op_scale(backend, optim->momentum, velocity));
  PETRA_TRY(petra_op_axpy(backend, 1, gradient, velocity));
  if (!optim->nesterov)
    return petra_op_copy(backend, velocity, direction);
  PETRA_TRY(petra_op_copy(backend, gradient, direction));
  return petra_op_axpy(backend, optim->momentum, velocity, direction);
}

static petra_status step_in(const petra_optim *optim, petra_backend *backend, const petra_optim_tensors *tensors, int i,
                            double lr, const muon_room *room) {
  petra_tensor *w = tensors->parameters[i];
  const petra_orthogonalize orthogonalize = {.x = room->direction,
                                             .y = room->orthogonal,
                                             .work = {room->work[0], room->work[1]},
                                             .gram = {room->gram[0], room->gram[1]}};
  PETRA_TRY(make_direction(optim, backend, tensors->gradients[i], tensors->states[0][i], room->direction));
  PETRA_TRY(petra_op_orthogonalize(backend, &orthogonalize));
  if (tensors->decay[i] != 0)
    PETRA_TRY(petra_op_scale(backend, 1 - lr * tensors->decay[i], w));
  PETRA_TRY(petra_op_scale(backend, lr * factor_of(optim, w), room->orthogonal));
  return petra_op_axpy(backend, -1, room->orthogonal, w);
}

petra_status petra_muon_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *tensors,
                             int i, double lr) {
  __attribute__((cleanup(release_room))) muon_room room = {NULL};
  PETRA_TRY(make_room(compute, tensors->parameters[i], &room));
  return step_in(optim, compute->backend, tensors, i, lr, &room);
}

void petra_muon_cost(const petra_tensor_spec *spec, double *flops, double *passes, double *elements) {
  const double rows = spec->shape[0], columns = (double)spec->shape[1] * spec->shape[2] * spec->shape[3];
  const double least = fmin(rows, columns), all = rows * columns, square = least * least;
  *flops += PETRA_ORTHOGONALIZE_STEPS * (4 * all * least + 2 * square * least);
  *passes += PETRA_ORTHOGONALIZE_STEPS * (3 * all + 7 * square);
  *elements += 18.0 / 7 * all;
}
