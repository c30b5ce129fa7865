/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/delay_mitigation.h"

#include <math.h>

static bool is_on(const petra_stage_mitigation *mitigation) {
  return mitigation->delay > 0;
}

bool petra_mitigation_predicts(const petra_stage_mitigation *mitigation) {
  return mitigation->choice.weight_prediction != PETRA_PREDICTION_NONE && mitigation->delay + mitigation->descent > 0;
}

bool petra_mitigation_averages(const petra_stage_mitigation *mitigation) {
  return is_on(mitigation) && mitigation->choice.discrepancy_correction > 0;
}

bool petra_mitigation_corrects(const petra_stage_mitigation *mitigation) {
  return petra_mitigation_averages(mitigation) || mitigation->descent > 0;
}

int petra_mitigation_feedback(const petra_stage_mitigation *mitigation) {
  return mitigation->choice.error_feedback ? (int)mitigation->delay : 0;
}

double petra_mitigation_rate(const petra_stage_mitigation *mitigation, double lr, int64_t update) {
  int64_t annealing = mitigation->choice.lr_rescheduling;
  if (!is_on(mitigation))
    return lr;
  if (annealing > 0 && update < annealing)
    lr /= pow(fmax(mitigation->delay, 1), 1 - (double)update / (double)annealing);
  return lr;
}

void petra_mitigation_spike(const petra_stage_mitigation *mitigation, double momentum, bool nesterov, double *a,
                            double *b) {
  *a = pow(momentum, mitigation->delay + nesterov);
  *b = (1 - *a) / (1 - momentum);
}
