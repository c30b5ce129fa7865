/* What kinds of blocks share that are made of units: passes, parameters, statistics. */
#include "backend/ops.h"
#include "nn/blocks.h"

#include <stdio.h>

/* Tensors of a unit: weight, scale, shift; running mean, running variance. */
enum { PARAMETERS = 3, STATISTICS = 2 };

petra_status petra_pass_unit(const petra_pass *pass, int index, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_tensor **y) {
  const petra_unit *unit = &pass->block->units[index];
  petra_tensor *const *parameters = pass->parameters + PARAMETERS * index;
  if (pass->statistics)
    return petra_convbn_evaluate(pass->compute, unit, parameters, pass->statistics + STATISTICS * index, x, join,
                                 addend, y);
  return petra_convbn_forward(pass->compute, unit, parameters, x, join, addend,
                              pass->graph ? &pass->graph->units[index] : NULL, y);
}

petra_status petra_pass_path(const petra_pass *pass, petra_tensor *x, petra_join join, const petra_tensor *addend,
                             petra_tensor **first, petra_tensor **y) {
  int last = pass->block->path_count - 1;
  petra_tensor *h = petra_tensor_retain(x), *kept = NULL;
  petra_status status = PETRA_OK;
  for (int u = 0; u <= last; u++) {
    petra_tensor *next = NULL;
    PETRA_TRY_GOTO(status,
                   petra_pass_unit(pass, u, h, u == last ? join : PETRA_JOIN_NONE, u == last ? addend : NULL, &next),
                   done);
    petra_tensor_release(&h);
    h = next;
    if (u == 0 && first)
      kept = petra_tensor_retain(h);
  }
  *y = h;
  h = NULL;
  if (first) {
    *first = kept;
    kept = NULL;
  }
done:
  petra_tensor_release(&h);
  petra_tensor_release(&kept);
  return status;
}

petra_status petra_unit_backward(const petra_pass *pass, int index, bool relu, const petra_tensor *dy,
                                 petra_tensor *const *gradients, petra_tensor **dx) {
  return petra_convbn_backward(pass->compute, &pass->block->units[index], relu, pass->graph->defer,
                               pass->parameters + PARAMETERS * index, &pass->graph->units[index], dy,
                               gradients + PARAMETERS * index, dx);
}

petra_status petra_path_backward(const petra_pass *pass, const petra_tensor *dy, bool last_relu,
                                 const petra_tensor *dfirst, petra_tensor *const *gradients, petra_tensor **dx) {
  petra_tensor *d = NULL;
  petra_status status = PETRA_OK;
  int last = pass->block->path_count - 1;
  for (int u = last; u >= 0; u--) {
    petra_tensor *next = NULL;
    bool relu = pass->block->units[u].relu && (u < last || last_relu);
    PETRA_TRY_GOTO(status, petra_unit_backward(pass, u, relu, u == last ? dy : d, gradients, &next), done);
    petra_tensor_release(&d);
    d = next;
    if (u == 1 && dfirst)
      PETRA_TRY_GOTO(status, petra_op_add(pass->compute->backend, d, dfirst, d), done);
  }
  *dx = d;
  d = NULL;
done:
  petra_tensor_release(&d);
  return status;
}

petra_status petra_units_weight_gradients(const petra_pass *pass, petra_tensor *const *gradients) {
  for (int u = 0; u < pass->block->unit_count; u++)
    PETRA_TRY(petra_convbn_filter_gradient(pass->compute, &pass->block->units[u], &pass->graph->units[u],
                                           gradients[PARAMETERS * u]));
  return PETRA_OK;
}

petra_status petra_units_update_statistics(const petra_pass *pass, petra_tensor *const *statistics) {
  for (int u = 0; u < pass->block->unit_count; u++)
    PETRA_TRY(petra_convbn_update_statistics(pass->compute, &pass->graph->units[u], statistics + STATISTICS * u));
  return PETRA_OK;
}

int petra_units_parameter_count(const petra_block *block) {
  return PARAMETERS * block->unit_count;
}

int petra_units_statistic_count(const petra_block *block) {
  return STATISTICS * block->unit_count;
}

void petra_vector_spec(petra_tensor_spec *out, petra_tensor_role role, const char *part, const char *name, int32_t size,
                       double initial) {
  *out = (petra_tensor_spec){
      .kind = PETRA_TENSOR_VECTOR, .role = role, .shape = {size, 1, 1, 1}, .rank = 1, .initial = initial};
  snprintf(out->name, sizeof out->name, "%s/%s", part, name);
}

void petra_units_parameter(const petra_model *model, const petra_block *block, int index, petra_tensor_spec *out) {
  int u = index / PARAMETERS;
  const petra_unit *unit = &block->units[u];
  switch (index % PARAMETERS) {
  case 0:
    *out = (petra_tensor_spec){.kind = PETRA_TENSOR_FILTER,
                               .role = PETRA_ROLE_WEIGHT,
                               .shape = {unit->out, unit->in, unit->kernel, unit->kernel},
                               .rank = 4,
                               .deferred = true,
                               .fan_in = unit->in * unit->kernel * unit->kernel,
                               .decay = true};
    snprintf(out->name, sizeof out->name, "%s/weight", unit->conv);
    break;
  case 1:
    petra_vector_spec(out, PETRA_ROLE_SCALE, unit->norm, "scale", unit->out,
                      model->zero_init_residual && u == block->path_count - 1 ? 0 : 1);
    break;
  default:
    petra_vector_spec(out, PETRA_ROLE_SHIFT, unit->norm, "shift", unit->out, 0);
  }
  out->unit = u;
}

void petra_units_statistic(const petra_block *block, int index, petra_tensor_spec *out) {
  int u = index / STATISTICS;
  const petra_unit *unit = &block->units[u];
  if (index % STATISTICS == 0)
    petra_vector_spec(out, PETRA_ROLE_MEAN, unit->norm, "running_mean", unit->out, 0);
  else
    petra_vector_spec(out, PETRA_ROLE_VARIANCE, unit->norm, "running_var", unit->out, 1);
  out->unit = u;
}
