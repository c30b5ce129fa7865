/* SPDX-License-Identifier: Apache-2.0 */
/* The optimiser step of a stage as its mitigation modifies it (delay_mitigation.h), from existing operations. */
#include "backend/backend.h"
#include "stage/stage_private.h"

#include <math.h>

/* The step of one block. */
typedef struct block_step {
  petra_stage *stage;
  const petra_block *block;
  petra_stage_sets *sets;
  const petra_tensor_set *gradients;
  petra_stage_mitigation mitigation; /* at this update */
  double lr;                         /* as modified by the mitigation */
} block_step;

/* Returns the mitigation at an update (from 0): none in the warm-up. */
static petra_stage_mitigation mitigation_at(const petra_stage_mitigation *mitigation, int64_t update) {
  petra_stage_mitigation found = *mitigation;
  if (update < mitigation->start)
    found.delay = found.descent = 0;
  return found;
}

/* Returns the optimiser's momentum (beta1) as modified by the mitigation. */
static double momentum_of(const petra_stage_mitigation *mitigation, double momentum) {
  const double maximum = mitigation->choice.stage_momentum;
  if (mitigation->delay == 0 || maximum == 0)
    return momentum;
  return momentum + (maximum - momentum) * mitigation->distance / mitigation->stages;
}

/* Returns (1 - m_j) / (1 - m) of stage_momentum; 1 if the optimiser discounts its gradient itself. The factor
 * multiplies the rate, not the gradient: the stored velocity is then the method's velocity divided by this factor, and
 * the product of rate and velocity is the same. */
static double discount_of(const petra_stage_mitigation *mitigation, const petra_optim *optim) {
  if (mitigation->delay == 0 || mitigation->choice.stage_momentum == 0 || optim->kind != PETRA_OPTIMISER_SGD)
    return 1;
  return (1 - momentum_of(mitigation, optim->keys.momentum)) / (1 - optim->keys.momentum);
}

static petra_status zeros_like(petra_stage *stage, const petra_tensor *tensor, petra_tensor **out) {
  PETRA_TRY(petra_tensor_create(stage->compute.backend, tensor->kind, tensor->shape, &stage->account,
                                PETRA_MEMORY_WORKSPACE, out));
  return petra_op_fill(stage->compute.backend, *out, 0);
}

/* Does the optimiser's own step, with `gradients` and with or without weight decay. */
static petra_status plain_step(const block_step *step, const petra_tensor_set *gradients, petra_optim optim,
                               double lr) {
  petra_stage *stage = step->stage;
  return petra_optim_step(&optim, &stage->compute, stage->options.model, step->block, lr, stage->updates,
                          &step->sets->parameters, step->sets->states, gradients);
}

/* Computes out = shrink * gradients + decay * parameters, tensor by tensor. */
static petra_status effective_gradients(const block_step *step, petra_tensor_set *out) {
  petra_stage *stage = step->stage;
  petra_backend *backend = stage->compute.backend;
  const petra_stage_mitigation *mitigation = &step->mitigation;
  const double shrink = pow(mitigation->choice.gradient_shrinking, mitigation->distance); /* beta^(J - j) */
  *out = (petra_tensor_set){.count = step->gradients->count};
  for (int i = 0; i < out->count; i++) {
    double decay = petra_optim_decay(&stage->options.optim, stage->options.model, step->block, i);
    PETRA_TRY(zeros_like(stage, step->gradients->tensor[i], &out->tensor[i]));
    PETRA_TRY(petra_op_axpy(backend, shrink, step->gradients->tensor[i], out->tensor[i]));
    if (decay != 0)
      PETRA_TRY(petra_op_axpy(backend, decay, step->sets->parameters.tensor[i], out->tensor[i]));
  }
  return PETRA_OK;
}

/* Computes w -= lr (a v + b g); the optimiser computes the term of the velocity. */
static petra_status compensated_step(const block_step *step, const petra_tensor_set *gradients, petra_optim optim) {
  double a, b;
  petra_mitigation_spike(&step->mitigation, optim.keys.momentum, optim.keys.nesterov, &a, &b);
  optim.keys.nesterov = false;
  PETRA_TRY(plain_step(step, gradients, optim, step->lr * a));
  for (int i = 0; i < gradients->count; i++)
    PETRA_TRY(petra_op_axpy(step->stage->compute.backend, -step->lr * b, gradients->tensor[i],
                            step->sets->parameters.tensor[i]));
  return PETRA_OK;
}

static petra_status move_parameters(const block_step *step) {
  const petra_stage_mitigation *mitigation = &step->mitigation;
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set gradients = {0};
  petra_optim optim = step->stage->options.optim;
  optim.keys.momentum = momentum_of(mitigation, optim.keys.momentum);
  optim.beta1_before = optim.keys.beta1;
  optim.keys.beta1 = momentum_of(mitigation, optim.keys.beta1);
  if (optim.keys.beta1 != optim.beta1_before)
    optim.steps_before = mitigation->start;
  if (mitigation->delay == 0 || (!mitigation->choice.spike_compensation && mitigation->choice.gradient_shrinking == 1))
    return plain_step(step, step->gradients, optim, step->lr);
  PETRA_TRY(effective_gradients(step, &gradients));
  optim.keys.weight_decay = 0; /* it is in the gradients */
  return mitigation->choice.spike_compensation ? compensated_step(step, &gradients, optim)
                                               : plain_step(step, &gradients, optim, step->lr);
}

/* Adds to the step of parameter `i` the residual of the step one delay earlier. `before` is the negative of the weights
 * before the step. */
static petra_status feed_back(const block_step *step, int i, const petra_tensor *before) {
  petra_stage *stage = step->stage;
  petra_backend *backend = stage->compute.backend;
  const int delay = petra_mitigation_feedback(&step->mitigation);
  const int64_t number = stage->updates - step->mitigation.start;
  petra_tensor *weights = step->sets->parameters.tensor[i], *past = step->sets->past[number % delay].tensor[i];
  PETRA_RELEASED petra_tensor *own = NULL;
  PETRA_TRY(zeros_like(stage, weights, &own));
  PETRA_TRY(petra_op_axpy(backend, 1, before, own));
  PETRA_TRY(petra_op_axpy(backend, 1, weights, own));
  if (number >= delay) {
    PETRA_TRY(petra_op_axpy(backend, 1, own, weights));
    PETRA_TRY(petra_op_axpy(backend, -1, past, weights));
  }
  return petra_op_copy(backend, own, past);
}

/* Computes out = weights - rate * ahead * velocity. */
static petra_status along_velocity(const block_step *step, int i, double ahead, petra_tensor *out) {
  petra_backend *backend = step->stage->compute.backend;
  PETRA_TRY(petra_op_copy(backend, step->sets->parameters.tensor[i], out));
  return petra_op_axpy(backend, -step->lr * ahead, step->sets->states[0].tensor[i], out);
}

/* Computes the weights that F will read: the parameters, extrapolated by a multiple of the last update (from the
 * velocity, or from `moved`). */
static petra_status predict(const block_step *step, int i, const petra_tensor *moved) {
  const petra_stage_mitigation *mitigation = &step->mitigation;
  petra_backend *backend = step->stage->compute.backend;
  petra_tensor *predicted = step->sets->predicted.tensor[i];
  const double ahead = mitigation->choice.prediction_horizon * (mitigation->delay + mitigation->descent);
  if (mitigation->choice.weight_prediction != PETRA_PREDICTION_DIFFERENCE)
    return along_velocity(step, i, ahead, predicted);
  PETRA_TRY(petra_op_copy(backend, step->sets->parameters.tensor[i], predicted));
  return petra_op_axpy(backend, ahead, moved, predicted);
}

/* Computes the weights that B will read: the parameters minus the average update times the delay (overwrites `moved`)
 * or, with SpecTrain, extrapolated parameters. */
static petra_status correct(const block_step *step, int i, petra_tensor *moved) {
  const petra_stage_mitigation *mitigation = &step->mitigation;
  petra_backend *backend = step->stage->compute.backend;
  petra_tensor *trend = step->sets->trend.tensor[i], *corrected = step->sets->corrected.tensor[i];
  if (!petra_mitigation_averages(mitigation))
    return along_velocity(step, i, mitigation->choice.prediction_horizon * mitigation->descent, corrected);
  const double gamma = pow(mitigation->choice.discrepancy_correction, 1 / mitigation->delay);
  PETRA_TRY(petra_op_axpy(backend, -1, trend, moved));
  PETRA_TRY(petra_op_axpy(backend, 1 - gamma, moved, trend));
  PETRA_TRY(petra_op_copy(backend, step->sets->parameters.tensor[i], corrected));
  return petra_op_axpy(backend, -mitigation->delay, trend, corrected);
}

/* stage_momentum multiplies the rate instead of the gradients, so the stored velocity is the method's velocity divided
 * by the same factor. The gradients of a warm-up had no factor, so the velocity is divided by the factor at the first
 * update after the warm-up. */
static petra_status carry_velocity(const block_step *step) {
  const petra_stage *stage = step->stage;
  const petra_tensor_set *velocity = &step->sets->states[0];
  const double discount = discount_of(&step->mitigation, &stage->options.optim);
  if (stage->updates == 0 || stage->updates != step->mitigation.start || discount == 1)
    return PETRA_OK;
  for (int i = 0; i < velocity->count; i++)
    PETRA_TRY(petra_op_scale(stage->compute.backend, 1 / discount, velocity->tensor[i]));
  return PETRA_OK;
}

/* Does the step. Before it, `moved` is the negative of the weights; afterwards it is the update. */
static petra_status step_and_extrapolate(const block_step *step, const petra_tensor_set *moved) {
  const petra_stage_mitigation *mitigation = &step->mitigation;
  const petra_tensor_set *parameters = &step->sets->parameters;
  PETRA_TRY(carry_velocity(step));
  PETRA_TRY(move_parameters(step));
  for (int i = 0; i < parameters->count; i++) {
    if (petra_mitigation_feedback(mitigation) > 0)
      PETRA_TRY(feed_back(step, i, moved->tensor[i]));
    if (moved->count > 0)
      PETRA_TRY(petra_op_axpy(step->stage->compute.backend, 1, parameters->tensor[i], moved->tensor[i]));
    if (petra_mitigation_predicts(mitigation))
      PETRA_TRY(predict(step, i, moved->tensor[i]));
    if (petra_mitigation_corrects(mitigation))
      PETRA_TRY(correct(step, i, moved->tensor[i]));
  }
  return PETRA_OK;
}

/* Returns true if the change of the weights by the update is needed. */
static bool wants_difference(const petra_stage_mitigation *mitigation) {
  return petra_mitigation_averages(mitigation) || petra_mitigation_feedback(mitigation) > 0 ||
         (petra_mitigation_predicts(mitigation) && mitigation->choice.weight_prediction == PETRA_PREDICTION_DIFFERENCE);
}

static petra_status minus_parameters(const block_step *step, petra_tensor_set *out) {
  const petra_tensor_set *parameters = &step->sets->parameters;
  out->count = parameters->count;
  for (int i = 0; i < out->count; i++) {
    PETRA_TRY(zeros_like(step->stage, parameters->tensor[i], &out->tensor[i]));
    PETRA_TRY(petra_op_axpy(step->stage->compute.backend, -1, parameters->tensor[i], out->tensor[i]));
  }
  return PETRA_OK;
}

petra_status petra_stage_step(petra_stage *stage, int b, const petra_tensor_set *gradients, double lr) {
  block_step step = {.stage = stage,
                     .block = petra_stage_block(stage, b),
                     .sets = &stage->sets[b],
                     .gradients = gradients,
                     .mitigation = mitigation_at(&stage->options.mitigation, stage->updates)};
  step.lr = petra_mitigation_rate(&step.mitigation, lr, stage->updates - step.mitigation.start) *
            discount_of(&step.mitigation, &stage->options.optim);
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set moved = {0};
  if (wants_difference(&step.mitigation))
    PETRA_TRY(minus_parameters(&step, &moved));
  return step_and_extrapolate(&step, &moved);
}
