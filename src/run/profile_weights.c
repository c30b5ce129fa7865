/* petra profile: the gradients of the weights, timed by themselves. */
#include "backend/ops.h"
#include "base/clock.h"
#include "run/profile.h"

static petra_status create(petra_backend *backend, petra_tensor_kind kind, int32_t a, int32_t b, int32_t c, int32_t d,
                           petra_tensor **out) {
  const int32_t shape[4] = {a, b, c, d};
  PETRA_TRY(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, out));
  return petra_op_fill(backend, *out, 0.5);
}

static petra_status time_unit(petra_backend *backend, int32_t batch, const petra_unit *unit, double *seconds) {
  petra_tensor *x = NULL, *dy = NULL, *dw = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_ACTIVATION, batch, unit->in, unit->height_in, unit->width_in, &x),
                 done);
  PETRA_TRY_GOTO(
      status, create(backend, PETRA_TENSOR_ACTIVATION, batch, unit->out, unit->height_out, unit->width_out, &dy), done);
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_FILTER, unit->out, unit->in, unit->kernel, unit->kernel, &dw),
                 done);
  double start_s = petra_clock_s();
  status = petra_op_conv_backward_filter(backend, &unit->geometry, x, dy, dw);
  *seconds += petra_clock_s() - start_s;
done:
  petra_tensor_release(&x);
  petra_tensor_release(&dy);
  petra_tensor_release(&dw);
  return status;
}

static petra_status time_linear(petra_backend *backend, int32_t batch, int32_t features, int32_t classes,
                                double *seconds) {
  petra_tensor *x = NULL, *w = NULL, *dy = NULL, *dx = NULL, *dw = NULL, *db = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_MATRIX, batch, features, 1, 1, &x), done);
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_MATRIX, classes, features, 1, 1, &w), done);
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_MATRIX, batch, classes, 1, 1, &dy), done);
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_MATRIX, batch, features, 1, 1, &dx), done);
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_MATRIX, classes, features, 1, 1, &dw), done);
  PETRA_TRY_GOTO(status, create(backend, PETRA_TENSOR_VECTOR, classes, 1, 1, 1, &db), done);
  double start_s = petra_clock_s();
  status = petra_op_linear_backward(backend, x, w, dy, dx, dw, db);
  *seconds += 0.5 * (petra_clock_s() - start_s);
done:
  petra_tensor_release(&x);
  petra_tensor_release(&w);
  petra_tensor_release(&dy);
  petra_tensor_release(&dx);
  petra_tensor_release(&dw);
  petra_tensor_release(&db);
  return status;
}

petra_status petra_profile_time_weights(const petra_plan *plan, petra_backend *backend, int stage, double *seconds) {
  int32_t batch = (int32_t)plan->config->data.batch;
  *seconds = 0;
  for (int b = plan->partition.first[stage]; b < plan->partition.first[stage + 1]; b++) {
    const petra_block *block = &plan->model.blocks[b];
    for (int i = 0; i < petra_block_parameter_count(block); i++) {
      petra_tensor_spec spec;
      petra_block_parameter(&plan->model, block, i, &spec);
      if (spec.kind == PETRA_TENSOR_FILTER)
        PETRA_TRY(time_unit(backend, batch, &block->units[spec.unit], seconds));
      if (spec.kind == PETRA_TENSOR_MATRIX)
        PETRA_TRY(time_linear(backend, batch, spec.shape[1], spec.shape[0], seconds));
    }
  }
  return PETRA_OK;
}
