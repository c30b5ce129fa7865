/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/optim.h"

#include "backend/backend.h"

#include <math.h>
#include <string.h>

/* Refuses the keys of `other` that `kind` does not have. */
static petra_status check_keys(const petra_config *config, petra_optimiser_kind kind, const petra_optimiser *other) {
  for (const petra_optimiser_key *key = other->keys; key->path; key++) {
    bool common, changed;
    char names[64];
    if (petra_optimiser_default(kind, key->path, &common))
      continue;
    PETRA_TRY(petra_config_changed(config, key->path, &changed));
    if (changed)
      return petra_config_fail(config, key->path, "not a key of optim.name: %s, but of %s; expected its default",
                               config->optim.name, petra_optimiser_owners(key->path, names, sizeof names));
  }
  return PETRA_OK;
}

petra_status petra_optim_check(const petra_config *config) {
  const petra_optimiser_kind kind = petra_optimiser_find(config->optim.name);
  for (int i = 0; petra_optimiser_names[i]; i++)
    PETRA_TRY(check_keys(config, kind, petra_optimiser_of((petra_optimiser_kind)i)));
  return PETRA_OK;
}

petra_optim petra_optim_from_config(const petra_config *config) {
  return (petra_optim){.kind = petra_optimiser_find(config->optim.name), .keys = config->optim};
}

double petra_optim_decay(const petra_optim *optim, const petra_model *model, const petra_block *block, int index) {
  petra_tensor_spec spec;
  petra_block_parameter(model, block, index, &spec);
  return spec.decay || optim->keys.decay_norm_and_bias ? optim->keys.weight_decay : 0;
}

bool petra_optim_takes_matrix(const petra_optim *optim, const petra_block *block, const petra_tensor_spec *spec) {
  return (spec->kind == PETRA_TENSOR_FILTER && optim->kind != PETRA_OPTIMISER_BASIS_ROTATION) ||
         (spec->kind == PETRA_TENSOR_MATRIX && !block->is_loss && !block->reads_data);
}

/* Returns true if the optimiser keeps tensor `state` of the parameter, and gets that tensor's shape (4 numbers). State
 * 0 is the average of gradients, or the velocity; 1: the average of squares, both with the parameter's shape; 2, 3: A
 * and B of basis rotation; 4, 5: its P and Q. */
static bool keeps_state(const petra_optim *optim, const petra_block *block, const petra_tensor_spec *spec, int state,
                        int32_t shape[4]) {
  const petra_optimiser *optimiser = petra_optimiser_of(optim->kind);
  memcpy(shape, spec->shape, sizeof spec->shape);
  if (state >= (petra_optim_takes_matrix(optim, block, spec) ? optimiser->matrix_states : optimiser->states))
    return false;
  if (state < PETRA_ROTATION_AVERAGES)
    return true;
  const int side = state % 2;
  shape[0] = shape[1] = spec->shape[side];
  return petra_rotation_has(optim, spec->shape[0], spec->shape[1], side);
}

petra_status petra_optim_state_create(const petra_optim *optim, const petra_compute *compute, const petra_model *model,
                                      const petra_block *block, int state, petra_tensor_set *out) {
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set set = {.count = petra_block_parameter_count(block)};
  bool any = false;
  for (int i = 0; i < set.count; i++) {
    petra_tensor_spec spec;
    int32_t shape[4];
    petra_block_parameter(model, block, i, &spec);
    if (!keeps_state(optim, block, &spec, state, shape))
      continue;
    any = true;
    PETRA_TRY(petra_compute_tensor(compute, spec.kind, shape, PETRA_MEMORY_MOMENTUM, &set.tensor[i]));
    PETRA_TRY(petra_op_fill(compute->backend, set.tensor[i], 0));
  }
  *out = any ? set : (petra_tensor_set){0};
  set.count = 0;
  return PETRA_OK;
}

/* --- the steps of all tensors at once --- */

static petra_status sgd_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *t,
                             double lr, int64_t steps) {
  const petra_sgd_step step = {.count = t->count,
                               .parameters = t->parameters,
                               .velocities = t->states[0],
                               .gradients = t->gradients,
                               .weight_decay = t->decay,
                               .lr = lr,
                               .momentum = optim->keys.momentum,
                               .nesterov = optim->keys.nesterov,
                               .first = steps == 0};
  return petra_op_sgd_step(compute->backend, &step);
}

static double nadam_momentum(const petra_optim *optim, int64_t t) {
  return (t > optim->steps_before ? optim->keys.beta1 : optim->beta1_before) *
         (1 - 0.5 * pow(0.96, (double)t * optim->keys.momentum_decay));
}

/* Returns the product of the momenta up to `t`; 0 if 1 minus the product rounds to 1. */
static double nadam_product(const petra_optim *optim, int64_t t) {
  double product = 1;
  for (int64_t i = 1; i <= t && product != 0; i++) {
    product *= nadam_momentum(optim, i);
    if (product < 0x1p-60)
      product = 0;
  }
  return product;
}

/* Returns the product of beta1 over the steps up to `t`. */
static double adam_product(const petra_optim *optim, int64_t t) {
  const int64_t before = t < optim->steps_before ? t : optim->steps_before;
  return before > 0 ? pow(optim->beta1_before, (double)before) * pow(optim->keys.beta1, (double)(t - before))
                    : pow(optim->keys.beta1, (double)t);
}

static petra_status adam_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *t,
                              double lr, int64_t steps) {
  const double number = (double)(steps + 1);
  petra_adam_step step = {.count = t->count,
                          .parameters = t->parameters,
                          .means = t->states[0],
                          .squares = optim->kind == PETRA_OPTIMISER_LION ? NULL : t->states[1],
                          .gradients = t->gradients,
                          .weight_decay = t->decay,
                          .beta1 = optim->keys.beta1,
                          .beta2 = optim->keys.beta2,
                          .epsilon = optim->keys.epsilon,
                          .lr = lr,
                          .mean_rate = lr / (1 - adam_product(optim, steps + 1)),
                          .square_correction = 1 - pow(optim->keys.beta2, number)};
  if (optim->kind == PETRA_OPTIMISER_NADAMW) {
    const double now = nadam_momentum(optim, steps + 1), next = nadam_momentum(optim, steps + 2);
    const double product = nadam_product(optim, steps + 1);
    step.gradient_rate = lr * (1 - now) / (1 - product);
    step.mean_rate = lr * next / (1 - product * next);
  }
  return petra_op_adam_step(compute->backend, &step);
}

/* Creates a copy of gradient `i` to which the weight is added, times its decay. The caller releases it, also after a
 * failure. */
static petra_status decayed_gradient(const petra_compute *compute, const petra_optim_tensors *t, int i,
                                     petra_tensor **out) {
  PETRA_TRY(petra_compute_copy(compute, t->gradients[i], PETRA_MEMORY_WORKSPACE, out));
  return t->decay[i] != 0 ? petra_op_axpy(compute->backend, t->decay[i], t->parameters[i], *out) : PETRA_OK;
}

/* --- LARS: from the norms of each tensor and the step of SGD --- */

/* Gets `a` of the formula, or 0 if it is not defined because one of the norms is 0. */
static petra_status find_ratio(const petra_optim *optim, petra_backend *backend, const petra_optim_tensors *t, int i,
                               double lr, double *out) {
  double weight, gradient;
  PETRA_TRY(petra_op_dot(backend, t->parameters[i], t->parameters[i], &weight));
  PETRA_TRY(petra_op_dot(backend, t->gradients[i], t->gradients[i], &gradient));
  weight = sqrt(weight);
  gradient = sqrt(gradient);
  const double rate = optim->keys.trust_coefficient * weight / (gradient + t->decay[i] * weight + optim->keys.epsilon);
  *out = weight == 0 || gradient == 0 ? 0 : fmin(rate / lr, 1);
  return PETRA_OK;
}

static petra_status lars_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *t,
                              double lr, int64_t steps) {
  for (int i = 0; i < t->count; i++) {
    PETRA_RELEASED petra_tensor *scaled = NULL; /* gradient and decay, times the ratio */
    double ratio;
    PETRA_TRY(decayed_gradient(compute, t, i, &scaled));
    PETRA_TRY(find_ratio(optim, compute->backend, t, i, lr, &ratio));
    if (ratio == 0)
      PETRA_TRY(petra_op_copy(compute->backend, t->gradients[i], scaled)); /* without decay, as in the release */
    else
      PETRA_TRY(petra_op_scale(compute->backend, ratio, scaled));
    const petra_optim_tensors one = {
        .count = 1, .parameters = {t->parameters[i]}, .gradients = {scaled}, .states = {{t->states[0][i]}}};
    PETRA_TRY(sgd_step(optim, compute, &one, lr, steps));
  }
  return PETRA_OK;
}

/* Adam with weight decay as a part of the gradient: the step of AdamW, without decay, with such gradients. */
static petra_status coupled_adam_step(const petra_optim *optim, const petra_compute *compute,
                                      const petra_optim_tensors *t, double lr, int64_t steps) {
  petra_optim_tensors coupled = *t;
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set decayed = {.count = t->count};
  for (int i = 0; i < t->count; i++) {
    if (t->decay[i] == 0)
      continue;
    PETRA_TRY(decayed_gradient(compute, t, i, &decayed.tensor[i]));
    coupled.gradients[i] = decayed.tensor[i];
    coupled.decay[i] = 0;
  }
  return adam_step(optim, compute, &coupled, lr, steps);
}

/* Muon and basis rotation: updates each matrix alone, and the other parameters with AdamW. */
static petra_status matrix_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *t,
                                double lr, int64_t steps) {
  petra_optim_tensors others = {0};
  for (int i = 0; i < t->count; i++) {
    if (!t->states[1][i]) {
      PETRA_TRY(petra_muon_step(optim, compute, t, i, lr));
      continue;
    }
    if (t->states[PETRA_ROTATION_AVERAGES][i] || t->states[PETRA_ROTATION_AVERAGES + 1][i]) {
      PETRA_TRY(petra_rotation_step(optim, compute, t, i, lr, steps));
      continue;
    }
    others.parameters[others.count] = t->parameters[i];
    others.gradients[others.count] = t->gradients[i];
    others.states[0][others.count] = t->states[0][i];
    others.states[1][others.count] = t->states[1][i];
    others.decay[others.count++] = t->decay[i];
  }
  return adam_step(optim, compute, &others, optim->kind == PETRA_OPTIMISER_MUON ? lr * optim->keys.adam_lr_share : lr,
                   steps);
}

petra_status petra_optim_step(const petra_optim *optim, const petra_compute *compute, const petra_model *model,
                              const petra_block *block, double lr, int64_t steps, const petra_tensor_set *parameters,
                              const petra_tensor_set states[PETRA_OPTIMISER_STATES],
                              const petra_tensor_set *gradients) {
  petra_optim_tensors t = {.count = parameters->count};
  for (int i = 0; i < t.count; i++) {
    t.parameters[i] = parameters->tensor[i];
    t.gradients[i] = gradients->tensor[i];
    t.decay[i] = petra_optim_decay(optim, model, block, i);
    for (int s = 0; s < PETRA_OPTIMISER_STATES; s++)
      t.states[s][i] = states[s].tensor[i];
  }
  switch (optim->kind) {
  case PETRA_OPTIMISER_SGD:
    return sgd_step(optim, compute, &t, lr, steps);
  case PETRA_OPTIMISER_ADAMW:
  case PETRA_OPTIMISER_NADAMW:
  case PETRA_OPTIMISER_LION:
    return adam_step(optim, compute, &t, lr, steps);
  case PETRA_OPTIMISER_LARS:
    return lars_step(optim, compute, &t, lr, steps);
  case PETRA_OPTIMISER_ADAM:
    return coupled_adam_step(optim, compute, &t, lr, steps);
  case PETRA_OPTIMISER_MUON:
  case PETRA_OPTIMISER_BASIS_ROTATION:
    break;
  }
  return matrix_step(optim, compute, &t, lr, steps);
}

/* --- costs of the optimisers --- */

/* The FLOPs and the passes over the tensor (reads and writes) for one parameter. */
typedef struct element_cost {
  double flops, passes;
} element_cost;

static const element_cost costs[] = {
    [PETRA_OPTIMISER_SGD] = {6, 5},     /* reads w, g, v; writes w, v */
    [PETRA_OPTIMISER_ADAMW] = {15, 7},  /* reads w, g, m, s; writes w, m, s */
    [PETRA_OPTIMISER_NADAMW] = {15, 7}, /* the same */
    [PETRA_OPTIMISER_LION] = {9, 5},    /* as sgd */
    [PETRA_OPTIMISER_MUON] = {15, 7},   /* for the parameters that AdamW updates */
    [PETRA_OPTIMISER_BASIS_ROTATION] = {15, 7},
    [PETRA_OPTIMISER_LARS] =
        {13, 14}, /* sgd; before it two norms, and a copy of g to which w is added and which is scaled */
    [PETRA_OPTIMISER_ADAM] = {17, 12}, /* adamw; before it a copy of g to which w is added */
};

void petra_optim_kernels(const petra_optim *optim, const petra_model *model, const petra_block *block,
                         petra_kernel_list *kernels) {
  double elements = 0, flops = 0, passes = 0;
  for (int i = 0; i < petra_block_parameter_count(block); i++) {
    petra_tensor_spec spec;
    petra_block_parameter(model, block, i, &spec);
    const bool matrix = petra_optim_takes_matrix(optim, block, &spec);
    if (matrix && optim->kind == PETRA_OPTIMISER_BASIS_ROTATION)
      petra_rotation_cost(optim, &spec, &flops, &passes);
    if (matrix && optim->kind == PETRA_OPTIMISER_MUON)
      petra_muon_cost(&spec, &flops, &passes, &elements);
    else
      elements += (double)spec.shape[0] * spec.shape[1] * spec.shape[2] * spec.shape[3];
  }
  if (flops > 0)
    petra_kernels_add(kernels, PETRA_KERNEL_UPDATE, true, flops, passes);
  petra_kernels_add(kernels, PETRA_KERNEL_UPDATE, false, costs[optim->kind].flops * elements,
                    costs[optim->kind].passes * elements);
}
