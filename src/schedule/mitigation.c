/* SPDX-License-Identifier: Apache-2.0 */
#include "config/optimiser.h"
#include "schedule/method.h"

#include <math.h>
#include <stddef.h>

#define KEY(name) "method.mitigation." name

const char *petra_mitigation_key(const petra_mitigation *m) {
  return m->lr_rescheduling > 0                          ? KEY("lr_rescheduling")
         : m->discrepancy_correction > 0                 ? KEY("discrepancy_correction")
         : m->spike_compensation                         ? KEY("spike_compensation")
         : m->weight_prediction != PETRA_PREDICTION_NONE ? KEY("weight_prediction")
         : m->gradient_shrinking < 1                     ? KEY("gradient_shrinking")
         : m->stage_momentum > 0                         ? KEY("stage_momentum")
         : m->sync_warmup_epochs > 0                     ? KEY("sync_warmup_epochs")
         : m->error_feedback                             ? KEY("error_feedback")
                                                         : NULL;
}

/* Checks that the method has a fixed delay. */
static petra_status check_delay(const petra_config *config, const petra_method *method, const char *key) {
  const petra_program_ops *program = method->program;
  if (*config->method.schedule)
    return petra_config_fail(config, key,
                             "method.schedule: %s, whose delays are not known; expected the method's own order, or "
                             "none of method.mitigation",
                             config->method.schedule);
  if (program->arrival)
    return petra_config_fail(
        config, key, "method %s, whose program %s fixes no delay; expected a program with an order, such as lockstep",
        method->name, program->name);
  if (!program->delay)
    return petra_config_fail(
        config, key,
        "method %s, whose program %s has no delay to mitigate; expected a delayed method, or none of method.mitigation",
        method->name, program->name);
  if (method->sync_period > 0)
    return petra_config_fail(config, key,
                             "method.sync_period: %lld, with which the delay is not fixed; expected sync_period: 0, or "
                             "none of method.mitigation",
                             (long long)method->sync_period);
  return PETRA_OK;
}

/* Checks the weights that forward and backward read. */
static petra_status check_weights(const petra_config *config, const petra_method *method, const petra_mitigation *m) {
  const bool latest = method->backward_weights == PETRA_WEIGHTS_LATEST;
  if (m->discrepancy_correction > 0 && !latest)
    return petra_config_fail(config, KEY("discrepancy_correction"),
                             "backward reads the weights of its forward (%s), so there is no discrepancy; expected 0, "
                             "or method.backward_weights: latest",
                             petra_weights_name(method->backward_weights));
  if (m->discrepancy_correction > 0 && m->weight_prediction != PETRA_PREDICTION_NONE)
    return petra_config_fail(config, KEY("discrepancy_correction"),
                             "with weight_prediction: forward would aim at the weights of backward and backward at "
                             "those of forward; expected one of the two");
  if (m->weight_prediction == PETRA_PREDICTION_SPECTRAIN && !latest)
    return petra_config_fail(config, KEY("weight_prediction"),
                             "spectrain, which predicts new weights for backward, but backward reads those of its "
                             "forward (%s); expected method.backward_weights: latest, or weight_prediction: velocity",
                             petra_weights_name(method->backward_weights));
  if (m->sync_warmup_epochs > 0 && method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER)
    return petra_config_fail(config, KEY("sync_warmup_epochs"),
                             "%lld with method %s, whose double buffer has forward read older weights in any order; "
                             "expected 0, or weights that are not double-buffered",
                             (long long)m->sync_warmup_epochs, method->name);
  return PETRA_OK;
}

/* Refuses mitigations that are defined by the velocity of SGD, or that are meaningless for a step that does not grow
 * with its gradient. */
static petra_status check_optimiser(const petra_config *config, const petra_mitigation *m) {
  const petra_optimiser_kind kind = petra_optimiser_find(config->optim.name);
  const struct {
    const char *key, *reason;
    bool set, others; /* true if adamw and nadamw support the mitigation */
  } all[] = {
      {KEY("spike_compensation"), "is defined by the velocity of SGD", m->spike_compensation, false},
      {KEY("weight_prediction"),
       "velocity and spectrain extrapolate along the velocity of SGD; the difference serves every optimiser",
       m->weight_prediction == PETRA_PREDICTION_VELOCITY || m->weight_prediction == PETRA_PREDICTION_SPECTRAIN, false},
      {KEY("gradient_shrinking"), "is for a step that grows with its gradient", m->gradient_shrinking < 1, false},
      {KEY("stage_momentum"), "is defined for sgd, adamw and nadamw", m->stage_momentum > 0, true},
  };
  const bool adam = kind == PETRA_OPTIMISER_ADAMW || kind == PETRA_OPTIMISER_NADAMW;
  for (size_t i = 0; i < sizeof all / sizeof *all && kind != PETRA_OPTIMISER_SGD; i++)
    if (all[i].set && !(all[i].others && adam))
      return petra_config_fail(config, all[i].key, "%s; with optim.name: %s expected its default", all[i].reason,
                               config->optim.name);
  return PETRA_OK;
}

static petra_status check_momentum(const petra_config *config, const petra_mitigation *m) {
  if (m->stage_momentum == 0)
    return PETRA_OK;
  if (petra_optimiser_find(config->optim.name) != PETRA_OPTIMISER_SGD)
    return m->stage_momentum >= config->optim.beta1
               ? PETRA_OK
               : petra_config_fail(config, KEY("stage_momentum"),
                                   "%g is below optim.beta1: %g, from which it grows; expected 0 or at least that",
                                   m->stage_momentum, config->optim.beta1);
  if (m->spike_compensation)
    return petra_config_fail(config, KEY("stage_momentum"),
                             "with spike_compensation: both replace the momentum step; expected one of the two");
  if (!config->optim.nesterov)
    return petra_config_fail(config, KEY("stage_momentum"),
                             "with optim.nesterov: false; its look-ahead is Nesterov's: expected optim.nesterov: true");
  if (m->stage_momentum < config->optim.momentum)
    return petra_config_fail(config, KEY("stage_momentum"),
                             "%g is below optim.momentum: %g, from which it grows; expected 0 or at least that",
                             m->stage_momentum, config->optim.momentum);
  return PETRA_OK;
}

petra_status petra_mitigation_check(const petra_config *config, const petra_method *method) {
  const petra_mitigation *m = &config->method.mitigation;
  const char *key = petra_mitigation_key(m);
  if (m->prediction_horizon != 1 && m->weight_prediction == PETRA_PREDICTION_NONE)
    return petra_config_fail(config, KEY("prediction_horizon"),
                             "%g with weight_prediction: none; expected 1, or a prediction", m->prediction_horizon);
  if (!key)
    return PETRA_OK;
  PETRA_TRY(check_delay(config, method, key));
  PETRA_TRY(check_optimiser(config, m));
  PETRA_TRY(check_weights(config, method, m));
  const bool spike = m->spike_compensation;
  if (m->error_feedback && (spike || m->weight_prediction != PETRA_PREDICTION_NONE))
    return petra_config_fail(config, KEY("error_feedback"),
                             "with %s: both make up for the same delay; expected one of the two",
                             spike ? "spike_compensation" : "weight_prediction");
  return check_momentum(config, m);
}

petra_status petra_mitigation_check_delays(const petra_config *config, const petra_method *method, int32_t stages) {
  for (int32_t stage = 1; stage <= stages && method->mitigation.error_feedback; stage++) {
    const double delay = petra_method_delay(method, stages, stage);
    if (delay != floor(delay))
      return petra_config_fail(config, KEY("error_feedback"),
                               "stage %d of %d has a delay of %g updates, so no step lies exactly one delay earlier; "
                               "expected a whole number at every stage, as with method.accumulate: 1",
                               stage, stages, delay);
  }
  return PETRA_OK;
}

double petra_method_delay(const petra_method *method, int32_t stages, int32_t stage) {
  if (method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER)
    return 1;
  return (double)petra_method_distance(method, stages, stage) / (double)method->accumulate;
}

double petra_method_descent(const petra_method *method, int32_t stages, int32_t stage) {
  const petra_program_options options = petra_method_options(method, stages);
  return (double)petra_program_descent(method->program, &options, stage) / (double)method->accumulate;
}
