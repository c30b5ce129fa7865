/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/delay_mitigation.h"

#include <math.h>

static bool is_on(const petra_stage_mitigation *mitigation) {
  return mitigation->delay > 0;
}

petra_stage_mitigation petra_mitigation_at(const petra_stage_mitigation *mitigation, int64_t update) {
  petra_stage_mitigation found = *mitigation;
  if (update < mitigation->start)
    found.delay = found.descent = 0;
  return found;
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

double petra_mitigation_ahead_forward(const petra_stage_mitigation *mitigation) {
  return mitigation->choice.prediction_horizon * (mitigation->delay + mitigation->descent);
}

double petra_mitigation_ahead_backward(const petra_stage_mitigation *mitigation) {
  return mitigation->choice.prediction_horizon * mitigation->descent;
}

double petra_mitigation_momentum(const petra_stage_mitigation *mitigation, double momentum) {
  double maximum = mitigation->choice.stage_momentum;
  if (!is_on(mitigation) || maximum == 0)
    return momentum;
  return momentum + (maximum - momentum) * mitigation->distance / mitigation->stages;
}

double petra_mitigation_rate(const petra_stage_mitigation *mitigation, double lr, int64_t update) {
  int64_t annealing = mitigation->choice.lr_rescheduling;
  if (!is_on(mitigation))
    return lr;
  if (annealing > 0 && update < annealing)
    lr /= pow(fmax(mitigation->delay, 1), 1 - (double)update / (double)annealing);
  return lr;
}

double petra_mitigation_discount(const petra_stage_mitigation *mitigation, const petra_optim *optim) {
  if (!is_on(mitigation) || mitigation->choice.stage_momentum == 0 || optim->kind != PETRA_OPTIMISER_SGD)
    return 1;
  return (1 - petra_mitigation_momentum(mitigation, optim->momentum)) / (1 - optim->momentum);
}

double petra_mitigation_shrink(const petra_stage_mitigation *mitigation) {
  return is_on(mitigation) ? pow(mitigation->choice.gradient_shrinking, mitigation->distance) : 1;
}

double petra_mitigation_decay(const petra_stage_mitigation *mitigation) {
  return pow(mitigation->choice.discrepancy_correction, 1 / mitigation->delay);
}

void petra_mitigation_spike(const petra_stage_mitigation *mitigation, double momentum, bool nesterov, double *a,
                            double *b) {
  *a = pow(momentum, mitigation->delay + nesterov);
  *b = (1 - *a) / (1 - momentum);
}
