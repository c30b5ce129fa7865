/* SPDX-License-Identifier: Apache-2.0 */
/* Muon's step of one matrix (optim.h). */
#include "backend/backend.h"
#include "nn/optim.h"

#include <math.h>

/* The tensors that a step makes: the direction, the orthogonalised direction, and scratch tensors of
 * petra_orthogonalize. */
enum { DIRECTION, ORTHOGONAL, WORK, GRAM = WORK + 2, TENSORS = GRAM + 2 };

static petra_status make_room(const petra_compute *compute, const petra_tensor *parameter, petra_tensor_set *room) {
  const int32_t rows = parameter->shape[0], columns = (int32_t)(parameter->elements / rows);
  const int32_t least = rows < columns ? rows : columns;
  const int32_t whole[4] = {rows, columns, 1, 1}, square[4] = {least, least, 1, 1};
  room->count = TENSORS;
  for (int i = 0; i < WORK; i++)
    PETRA_TRY(petra_compute_like(compute, parameter, PETRA_MEMORY_WORKSPACE, &room->tensor[i]));
  for (int i = WORK; i < TENSORS; i++)
    PETRA_TRY(petra_compute_tensor(compute, PETRA_TENSOR_MATRIX, i < GRAM ? whole : square, PETRA_MEMORY_WORKSPACE,
                                   &room->tensor[i]));
  return PETRA_OK;
}

static double factor_of(const petra_optim *optim, const petra_tensor *parameter) {
  const double rows = parameter->shape[0], columns = (double)parameter->elements / rows;
  return optim->keys.muon_scale == PETRA_MUON_RMS ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

/* v = m v + g; u = g + m v, or v. */
static petra_status make_direction(const petra_optim *optim, petra_backend *backend, const petra_tensor *gradient,
                                   petra_tensor *velocity, petra_tensor *direction) {
  PETRA_TRY(petra_op_scale(backend, optim->keys.momentum, velocity));
  PETRA_TRY(petra_op_axpy(backend, 1, gradient, velocity));
  if (!optim->keys.nesterov)
    return petra_op_copy(backend, velocity, direction);
  PETRA_TRY(petra_op_copy(backend, gradient, direction));
  return petra_op_axpy(backend, optim->keys.momentum, velocity, direction);
}

petra_status petra_muon_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *tensors,
                             int i, double lr) {
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set room = {0};
  petra_backend *backend = compute->backend;
  petra_tensor *w = tensors->parameters[i], **made = room.tensor;
  PETRA_TRY(make_room(compute, w, &room));
  const petra_orthogonalize orthogonalize = {.x = made[DIRECTION],
                                             .y = made[ORTHOGONAL],
                                             .work = {made[WORK], made[WORK + 1]},
                                             .gram = {made[GRAM], made[GRAM + 1]}};
  PETRA_TRY(make_direction(optim, backend, tensors->gradients[i], tensors->states[0][i], made[DIRECTION]));
  PETRA_TRY(petra_op_orthogonalize(backend, &orthogonalize));
  if (tensors->decay[i] != 0)
    PETRA_TRY(petra_op_scale(backend, 1 - lr * tensors->decay[i], w));
  PETRA_TRY(petra_op_scale(backend, lr * factor_of(optim, w), made[ORTHOGONAL]));
  return petra_op_axpy(backend, -1, made[ORTHOGONAL], w);
}

void petra_muon_cost(const petra_tensor_spec *spec, double *flops, double *passes, double *elements) {
  const double rows = spec->shape[0], columns = (double)spec->shape[1] * spec->shape[2] * spec->shape[3];
  const double least = fmin(rows, columns), all = rows * columns, square = least * least;
  *flops += PETRA_ORTHOGONALIZE_STEPS * (4 * all * least + 2 * square * least);
  *passes += PETRA_ORTHOGONALIZE_STEPS * (3 * all + 7 * square);
  *elements += 18.0 / 7 * all;
}
