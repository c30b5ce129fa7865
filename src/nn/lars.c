/* SPDX-License-Identifier: Apache-2.0 */
/* The step of LARS (optim.h), from the norms of each tensor and the step of SGD. */
#include "backend/ops.h"
#include "nn/optim_private.h"

#include <math.h>

/* Gets `a` of the formula, or 0 if it is not defined because one of the norms is 0. */
static petra_status find_ratio(const petra_optim *optim, petra_backend *backend, const petra_optim_tensors *t, int i,
                               double lr, double *out) {
  double weight, gradient;
  PETRA_TRY(petra_op_dot(backend, t->parameters[i], t->parameters[i], &weight));
  PETRA_TRY(petra_op_dot(backend, t->gradients[i], t->gradients[i], &gradient));
  weight = sqrt(weight);
  gradient = sqrt(gradient);
  const double rate = optim->trust_coefficient * weight / (gradient + t->decay[i] * weight + optim->epsilon);
  *out = weight == 0 || gradient == 0 ? 0 : fmin(rate / lr, 1);
  return PETRA_OK;
}

/* Updates tensor `i`. `scaled`: its gradient and decay, to be multiplied by the ratio. */
static petra_status step_of_tensor(const petra_optim *optim, petra_backend *backend, const petra_optim_tensors *t,
                                   int i, petra_tensor *scaled, double lr, int64_t steps) {
  double ratio;
  PETRA_TRY(find_ratio(optim, backend, t, i, lr, &ratio));
  if (ratio == 0)
    PETRA_TRY(petra_op_copy(backend, t->gradients[i], scaled)); /* without decay, as in the release */
  else
    PETRA_TRY(petra_op_scale(backend, ratio, scaled));
  petra_tensor *const parameter[] = {t->parameters[i]}, *const velocity[] = {t->states[0][i]},
                      *const gradient[] = {scaled};
  const double no_decay[] = {0};
  const petra_sgd_step step = {.count = 1,
                               .parameters = parameter,
                               .velocities = velocity,
                               .gradients = gradient,
                               .weight_decay = no_decay,
                               .lr = lr,
                               .momentum = optim->momentum,
                               .nesterov = optim->nesterov,
                               .first = steps == 0};
  return petra_op_sgd_step(backend, &step);
}

petra_status petra_lars_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *tensors,
                             double lr, int64_t steps) {
  petra_status status = PETRA_OK;
  for (int i = 0; i < tensors->count && status == PETRA_OK; i++) {
    petra_tensor *scaled;
    PETRA_TRY(petra_optim_decayed(compute, tensors, i, &scaled));
    status = step_of_tensor(optim, compute->backend, tensors, i, scaled, lr, steps);
    petra_tensor_release(&scaled);
  }
  return status;
}
