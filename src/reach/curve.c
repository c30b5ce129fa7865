/* SPDX-License-Identifier: Apache-2.0 */
#include "reach/curve.h"

#include "base/mem.h"

#include <math.h>

static bool reaches(const petra_reach_target *target, double value) {
  return target->quantity == PETRA_REACH_TOP1 ? value >= target->value : value <= target->value;
}

static void add_point(const petra_reach_target *target, int64_t row, double value, petra_reach_curve *curve) {
  const double lowest = curve->points[curve->lowest].value;
  curve->points[curve->count] = (petra_reach_point){row, value};
  if (curve->count > 0 && (target->quantity == PETRA_REACH_TOP1 ? value > lowest : value < lowest))
    curve->lowest = curve->count;
  curve->count++;
  if (curve->crossing < 0 && reaches(target, value))
    curve->crossing = row;
}

/* Sums each window anew, so that no rounding error accumulates over the run. */
static petra_status smooth(const petra_reach_target *target, const petra_run_h5_train *rows, int64_t count, int64_t k,
                           petra_reach_curve *curve) {
  const int64_t width = target->window > count / k ? count + 1 : target->window * k;
  PETRA_TRY(petra_allocate(&curve->points, (size_t)(width > count ? 0 : count - width + 1), sizeof *curve->points));
  for (int64_t row = width - 1; row < count; row++) {
    double sum = 0;
    for (int64_t i = row - width + 1; i <= row; i++)
      sum += target->quantity == PETRA_REACH_TOP1 ? rows[i].top1 : rows[i].loss;
    add_point(target, row, sum / (double)width, curve);
  }
  return PETRA_OK;
}

/* Returns the last row of an epoch, or of an earlier one if none of its losses came back; -1: there is none. */
static int64_t last_row_of(const petra_run_h5_train *rows, int64_t count, int32_t epoch) {
  int64_t low = -1, high = count;
  while (high - low > 1) { /* epochs of rows never decrease */
    const int64_t middle = low + (high - low) / 2;
    *(rows[middle].epoch <= epoch ? &low : &high) = middle;
  }
  return low;
}

static petra_status take_evaluations(const petra_reach_target *target, const petra_run_h5_summary *summary,
                                     const petra_run_h5_train *rows, int64_t count, petra_reach_curve *curve) {
  PETRA_TRY(petra_allocate(&curve->points, (size_t)summary->epochs, sizeof *curve->points));
  for (int64_t e = 0; e < summary->epochs; e++) {
    const petra_run_h5_epoch *epoch = &summary->epoch[e];
    const double value = target->quantity == PETRA_REACH_TOP1 ? epoch->eval_top1 : epoch->eval_loss;
    const int64_t row = last_row_of(rows, count, epoch->epoch);
    if (isfinite(value) && row >= 0)
      add_point(target, row, value, curve);
  }
  return PETRA_OK;
}

petra_status petra_reach_curve_init(const petra_reach_target *target, const petra_run_h5_summary *summary,
                                    const petra_run_h5_train *rows, int64_t count, int64_t k, petra_reach_curve *out) {
  *out = (petra_reach_curve){.crossing = -1};
  return target->metric == PETRA_REACH_EVAL ? take_evaluations(target, summary, rows, count, out)
                                            : smooth(target, rows, count, k, out);
}
