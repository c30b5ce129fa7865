/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm. */
#include "backend/cuda/segment.h"
#include "base/log.h"

#include <string.h>

/* Reads come before writes: y may be addend. */
static petra_status apply(cuda_backend *cuda, const petra_norm_forward *norm) {
  CUDA_ARGUMENTS(cuda_norm_apply_args, a);
  a.x = cuda_read(cuda, norm->x);
  a.narrow = cuda_is_narrow(norm->x);
  a.scale = cuda_read(cuda, norm->scale);
  a.shift = cuda_read(cuda, norm->shift);
  a.mean = cuda_read(cuda, norm->mean);
  a.variance = cuda_read(cuda, norm->variance);
  a.addend = norm->join == PETRA_JOIN_NONE ? NULL : cuda_read(cuda, norm->addend);
  a.y = cuda_write(cuda, norm->y);
  a.narrow_y = cuda_is_narrow(norm->y);
  a.rounded = cuda_write_rounded(cuda, norm->y);
  a.c_first = norm->y->shape[1];
  if (norm->second) {
    a.second = cuda_write(cuda, norm->second);
    a.rounded_second = cuda_write_rounded(cuda, norm->second);
  }
  a.pixels = cuda_pixels(norm->x);
  a.c = norm->x->shape[1];
  a.join = (int32_t)norm->join;
  a.relu = norm->relu;
  return cuda_add_command(cuda, cuda_norm_apply_launch, &a, sizeof a);
}

/* Scratch for the sums, whose blocks are counted for each few channels. */
static petra_status reserve(cuda_backend *cuda, const petra_tensor *x) {
  if (x->shape[1] > CUDA_NORM_CHANNELS)
    return petra_fail(PETRA_UNSUPPORTED, "cuda: a batch norm over %d channels; expected at most %d", x->shape[1],
                      (int)CUDA_NORM_CHANNELS);
  return cuda_reserve(cuda, cuda_norm_scratch(cuda_pixels(x), x->shape[1]));
}

petra_status cuda_norm_forward(petra_backend *backend, const petra_norm_forward *norm) {
  cuda_backend *cuda = cuda_of(backend);
  PETRA_TRY(reserve(cuda, norm->x));
  CUDA_ARGUMENTS(cuda_norm_statistics_args, a);
  a.x = cuda_read(cuda, norm->x);
  a.narrow = cuda_is_narrow(norm->x);
  a.mean = cuda_write(cuda, norm->mean);
  a.variance = cuda_write(cuda, norm->variance);
  a.pixels = cuda_pixels(norm->x);
  a.c = norm->x->shape[1];
  PETRA_TRY(cuda_add_command(cuda, cuda_norm_statistics_launch, &a, sizeof a));
  return norm->y ? apply(cuda, norm) : PETRA_OK;
}

petra_status cuda_norm_evaluate(petra_backend *backend, const petra_norm_forward *norm) {
  return apply(cuda_of(backend), norm);
}

petra_status cuda_norm_backward(petra_backend *backend, const petra_norm_backward *norm) {
  cuda_backend *cuda = cuda_of(backend);
  PETRA_TRY(reserve(cuda, norm->x));
  CUDA_ARGUMENTS(cuda_norm_backward_args, a);
  a.x = cuda_read(cuda, norm->x);
  a.narrow = cuda_is_narrow(norm->x);
  a.scale = cuda_read(cuda, norm->scale);
  a.shift = cuda_read(cuda, norm->shift);
  a.mean = cuda_read(cuda, norm->mean);
  a.variance = cuda_read(cuda, norm->variance);
  a.dy = a.narrow && !norm->dsecond ? cuda_read_either(cuda, norm->dy, &a.narrow_dy) : cuda_read(cuda, norm->dy);
  a.c_first = norm->dy->shape[1];
  if (norm->dsecond)
    a.dsecond = cuda_read(cuda, norm->dsecond);

  a.dx = cuda_write(cuda, norm->dx);
  a.dscale = cuda_write(cuda, norm->dscale);
  a.dshift = cuda_write(cuda, norm->dshift);
  a.pixels = cuda_pixels(norm->x);
  a.c = norm->x->shape[1];
  a.relu = norm->relu;
  return cuda_add_command(cuda, cuda_norm_backward_launch, &a, sizeof a);
}

/* Returns true if the other norms in the launch, which run in no order, do not touch what the norm writes, and the
 * reverse. */
static bool apart(const cuda_norm_running_args *a, const cuda_norm_running *norm) {
  for (int i = 0; i < a->norms; i++) {
    const void *const others[] = {a->norm[i].running_mean, a->norm[i].running_variance, a->norm[i].mean,
                                  a->norm[i].variance};
    for (int k = 0; k < 4; k++)
      if (others[k] == norm->running_mean || others[k] == norm->running_variance ||
          (k < 2 && (others[k] == norm->mean || others[k] == norm->variance)))
        return false;
  }
  return true;
}

/* Norms one after another are one launch: each is a few hundred numbers. */
petra_status cuda_norm_update_running(petra_backend *backend, const petra_tensor *mean, const petra_tensor *variance,
                                      int64_t samples, double momentum, petra_tensor *running_mean,
                                      petra_tensor *running_variance) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_norm_running, norm);
  norm.mean = cuda_read(cuda, mean);
  norm.variance = cuda_read(cuda, variance);
  norm.running_mean = cuda_write(cuda, running_mean);
  norm.running_variance = cuda_write(cuda, running_variance);
  norm.samples = samples;
  norm.c = mean->shape[0];
  cuda_norm_running_args *before = cuda_last_command(cuda, cuda_norm_running_launch);
  if (before && before->momentum == momentum && before->norms < CUDA_NORM_RUNNING && apart(before, &norm)) {
    before->norm[before->norms++] = norm;
    return cuda_extend_command(cuda);
  }
  CUDA_ARGUMENTS(cuda_norm_running_args, a);
  a.norm[0] = norm;
  a.norms = 1;
  a.momentum = momentum;
  return cuda_add_command(cuda, cuda_norm_running_launch, &a, sizeof a);
}
