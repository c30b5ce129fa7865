/* SPDX-License-Identifier: Apache-2.0 */
/* Mitigations of delay, step by step: each rule against the sums of its paper, written out over the whole history of one weight
 * (stage/delay_mitigation.h), and the delays that it goes by. Whole runs: test_mitigation_runs.c. */
#include "mitigation.h"

#include "backend/backend.h"
#include "schedule/method.h"
#include "stage/stage_private.h"

#include <math.h>

/* --- the rules on given gradients --- */

enum { STEPS = 7, DISTANCE = 3, DELAY = 6 }; /* of stage 1 of 4 in lockstep */

static const double momentum = 0.9, weight_decay = 0.01;

static double gradient_at(int t, int64_t e) {
  return sin(1.7 * t + 0.3 * (double)e) + 0.2;
}

static double rate_at(int t) {
  return t < 4 ? 0.05 : 0.02;
}

/* The history of one weight: w[t] and g[t] before the t-th step, g with weight decay. */
typedef struct history {
  double w[STEPS + 1], g[STEPS];
} history;

/* Sum of m^(t - s) g[s] over s <= t. */
static double velocity(const history *h, int t, double m) {
  double sum = 0;
  for (int s = 0; s <= t; s++)
    sum += pow(m, t - s) * h->g[s];
  return sum;
}

/* What a rule says: the next weight, and what F and B read then. */
typedef struct rule {
  const char *settings[5];
  double shrink;
  double (*next)(const history *h, int t);
  double (*forward)(const history *h, int t);
  double (*backward)(const history *h, int t);
} rule;

static double nesterov(const history *h, int t) {
  return h->w[t] - rate_at(t) * (h->g[t] + momentum * velocity(h, t, momentum));
}

static double heavy_ball(const history *h, int t) {
  return h->w[t] - rate_at(t) * velocity(h, t, momentum);
}

static double spike(const history *h, int t, int delay) {
  double sum = 0; /* (1 - m^D) / (1 - m) */
  for (int i = 0; i < delay; i++)
    sum += pow(momentum, i);
  return h->w[t] - rate_at(t) * (pow(momentum, delay) * velocity(h, t, momentum) + sum * h->g[t]);
}

static double spike_heavy_ball(const history *h, int t) {
  return spike(h, t, DELAY);
}

static double spike_nesterov(const history *h, int t) {
  return spike(h, t, DELAY + 1);
}

/* K = 5 */
static double rescheduled_rate(int t) {
  static const double exponent[STEPS] = {1, 0.8, 0.6, 0.4, 0.2, 0, 0};
  return rate_at(t) / pow(DELAY, exponent[t]);
}

static double rescheduled(const history *h, int t) {
  return h->w[t] - rescheduled_rate(t) * (h->g[t] + momentum * velocity(h, t, momentum));
}

/* The weights after the step; what is read is that. */
static double latest(const history *h, int t) {
  return h->w[t + 1];
}

static double by_velocity(const history *h, int t) {
  return h->w[t + 1] - rate_at(t) * DELAY * velocity(h, t, momentum);
}

static double by_rescheduled_velocity(const history *h, int t) {
  return h->w[t + 1] - 1.5 * rescheduled_rate(t) * DELAY * velocity(h, t, momentum);
}

static double by_difference(const history *h, int t) {
  return h->w[t + 1] + DELAY * (h->w[t + 1] - h->w[t]);
}

/* Of the third stage: a delay of 2 updates, and two ticks until the first stage is through. */
static double spectrain_forward(const history *h, int t) {
  return h->w[t + 1] - rate_at(t) * (2 + 2) * velocity(h, t, momentum);
}

static double spectrain_backward(const history *h, int t) {
  return h->w[t + 1] - rate_at(t) * 2 * velocity(h, t, momentum);
}

/* Of the last one, which has no delay. */
static double spectrain_head(const history *h, int t) {
  return h->w[t + 1] - 0.5 * rate_at(t) * 3 * velocity(h, t, momentum);
}

/* Decay 0.2 over a delay. */
static double back(const history *h, int t) {
  double gamma = pow(0.2, 1.0 / DELAY), trend = 0;
  for (int s = 0; s <= t; s++)
    trend += (1 - gamma) * pow(gamma, t - s) * (h->w[s + 1] - h->w[s]);
  return h->w[t + 1] - DELAY * trend;
}

/* Step s of Nesterov's momentum, taken from the weights; and the next weights where a step also makes good what the one `delay`
 * before lacked. */
static double own_step(const history *h, int s) {
  return -rate_at(s) * (h->g[s] + momentum * velocity(h, s, momentum));
}

static double fed_back(const history *h, int t, int delay) {
  const double own = own_step(h, t);
  return h->w[t] + own + (t < delay ? 0 : own - own_step(h, t - delay));
}

static double feedback_first(const history *h, int t) {
  return fed_back(h, t, DELAY);
}

static double feedback_third(const history *h, int t) {
  return fed_back(h, t, 2);
}

static const rule rules[] = {
    {{NULL}, 1, nesterov, latest, latest},
    {{"optim.nesterov=false", NULL}, 1, heavy_ball, latest, latest},
    {{MITIGATION("lr_rescheduling=5"), NULL}, 1, rescheduled, latest, latest},
    {{MITIGATION("spike_compensation=true"), NULL}, 1, spike_nesterov, latest, latest},
    {{MITIGATION("spike_compensation=true"), "optim.nesterov=false", NULL}, 1, spike_heavy_ball, latest, latest},
    {{MITIGATION("gradient_shrinking=0.5"), NULL}, 0.125, nesterov, latest, latest},
    {{MITIGATION("weight_prediction=velocity"), NULL}, 1, nesterov, by_velocity, latest},
    {{MITIGATION("weight_prediction=difference"), NULL}, 1, nesterov, by_difference, latest},
    {{MITIGATION("weight_prediction=spectrain"), NULL}, 1, nesterov, by_velocity, latest},
    {{MITIGATION("discrepancy_correction=0.2"), NULL}, 1, nesterov, latest, back},
    {{MITIGATION("error_feedback=true"), NULL}, 1, feedback_first, latest, latest},
    {{MITIGATION("error_feedback=true"), MITIGATION("discrepancy_correction=0.2"), NULL},
     1,
     feedback_first,
     latest,
     back},
    {{MITIGATION("spike_compensation=true"), MITIGATION("weight_prediction=difference"),
      MITIGATION("gradient_shrinking=0.5"), NULL},
     0.125,
     spike_nesterov,
     by_difference,
     latest},
    {{MITIGATION("lr_rescheduling=5"), MITIGATION("weight_prediction=velocity"), MITIGATION("prediction_horizon=1.5"),
      NULL},
     1,
     rescheduled,
     by_rescheduled_velocity,
     latest},
    {{MITIGATION("lr_rescheduling=5"), MITIGATION("discrepancy_correction=0.2"), NULL}, 1, rescheduled, latest, back}};

/* Of the third stage, of the last one and of the third again. */
static const rule later_rules[] = {
    {{MITIGATION("weight_prediction=spectrain"), NULL}, 1, nesterov, spectrain_forward, spectrain_backward},
    {{MITIGATION("weight_prediction=spectrain"), MITIGATION("prediction_horizon=0.5"), NULL},
     1,
     nesterov,
     spectrain_head,
     spectrain_head},
    {{MITIGATION("error_feedback=true"), NULL}, 1, feedback_third, latest, latest}};
static const int later_stages[] = {2, 3, 2};

static double *values_of(const training *run, const petra_tensor *tensor) {
  double *values = malloc((size_t)tensor->elements * sizeof *values);
  must(petra_op_download(run->network->backend, tensor, values, PETRA_HOST_F64));
  return values;
}

/* U of the stage with gradient_at(t) as the gradient of all its weights. */
static void update(const training *run, petra_stage *stage, int t, double lr) {
  petra_tensor_set *gradients = &stage->sets[0].gradients;
  for (int i = 0; i < gradients->count; i++) {
    double *values = values_of(run, gradients->tensor[i]);
    for (int64_t e = 0; e < gradients->tensor[i]->elements; e++)
      values[e] = gradient_at(t, e);
    must(petra_op_upload(run->network->backend, gradients->tensor[i], values, PETRA_HOST_F64));
    free(values);
  }
  stage->begun = stage->counted = 1;
  must(petra_stage_update(stage, lr));
}

/* Largest distance of tensor `i` as `weights` has it from what `expected` says after step t of every element's
 * history. */
static double apart(const training *run, petra_stage *stage, petra_weights weights, int i, int t,
                    const history *histories, double (*expected)(const history *, int)) {
  const petra_tensor_set *tensors;
  double worst = 0;
  must(petra_stage_weights(stage, weights, stage->updates, 0, &tensors));
  double *values = values_of(run, tensors->tensor[i]);
  for (int64_t e = 0; e < tensors->tensor[i]->elements; e++) {
    double wrong = fabs(values[e] - expected(&histories[e], t));
    if (!(wrong <= worst))
      worst = wrong;
  }
  free(values);
  return worst;
}

/* The step of every element's history. */
static void extend(const rule *r, history *histories, int64_t count, int t, double decay) {
  for (int64_t e = 0; e < count; e++) {
    history *h = &histories[e];
    h->g[t] = r->shrink * gradient_at(t, e) + decay * h->w[t];
    h->w[t + 1] = r->next(h, t);
  }
}

/* At a stage, from 0. */
static void check_rule(const rule *r, int number) {
  training run;
  open_stages(&run, r->settings);
  petra_stage *stage = run.network->stage[number];
  history *histories[3]; /* of the first block's filter, scale and shift; of the head's weight and bias */
  const int tensors = number == STAGES - 1 ? 2 : 3;
  double worst = 0;
  for (int i = 0; i < tensors; i++) {
    const petra_tensor *tensor = stage->sets[0].parameters.tensor[i];
    double *values = values_of(&run, tensor);
    histories[i] = calloc((size_t)tensor->elements, sizeof *histories[i]);
    for (int64_t e = 0; e < tensor->elements; e++)
      histories[i][e].w[0] = values[e];
    free(values);
  }
  for (int t = 0; t < STEPS; t++) {
    update(&run, stage, t, rate_at(t));
    for (int i = 0; i < tensors; i++) {
      extend(r, histories[i], stage->sets[0].parameters.tensor[i]->elements, t, i == 0 ? weight_decay : 0);
      worst = fmax(worst, apart(&run, stage, PETRA_WEIGHTS_STASHED, i, t, histories[i], r->forward));
      worst = fmax(worst, apart(&run, stage, PETRA_WEIGHTS_LATEST, i, t, histories[i], r->backward));
    }
  }
  within(r->settings[0] ? r->settings[0] : "none", worst, TOLERANCE_MITIGATION);
  for (int i = 0; i < tensors; i++)
    free(histories[i]);
  training_close(&run);
}

START_TEST(steps_are_those_of_the_papers) {
  for (int r = 0; r < HARNESS_COUNT(rules); r++)
    check_rule(&rules[r], 0);
  for (int r = 0; r < HARNESS_COUNT(later_rules); r++)
    check_rule(&later_rules[r], later_stages[r]);
}
END_TEST

/* A gradient of 1 at the first step and none after: what it brings when it arrives, and then. */
static void check_impulse(const petra_stage_mitigation *mitigation, bool nesterov_momentum, int terms) {
  double a, b, arrived = 0;
  petra_mitigation_spike(mitigation, momentum, nesterov_momentum, &a, &b);
  for (int i = 0; i <= terms; i++)
    arrived += pow(momentum, i);
  within("spike compensation at arrival", fabs(a + b - arrived), 1e-13);
  for (int t = 1; t < 4; t++) /* as if it had come without delay */
    within("spike compensation after arrival", fabs(a * pow(momentum, t) - pow(momentum, terms + t)), 1e-13);
}

START_TEST(spike_compensation_brings_what_the_delay_held_back) {
  petra_stage_mitigation mitigation = {.choice = {.spike_compensation = true}};
  for (int delay = 1; delay < 20; delay += 3) {
    mitigation.delay = delay;
    check_impulse(&mitigation, false, delay);
    check_impulse(&mitigation, true, delay + 1);
  }
  /* Nesterov's momentum is spike compensation of a delay of 1. */
  double a, b;
  mitigation.delay = 1;
  petra_mitigation_spike(&mitigation, momentum, false, &a, &b);
  within("delay 1 against Nesterov", fabs(a - momentum) + fabs(b - 1), 1e-15);
}
END_TEST

/* The step of the paper in its own form, on the look-ahead point y: x' = y - r (1 - m_j) g(y), y' = x' + m_j (x' -
 * x). */
START_TEST(stage_momentum_is_nesterov_with_a_discount) {
  const char *const settings[] = {MITIGATION("stage_momentum=0.98"), "optim.weight_decay=0", NULL};
  training run;
  open_stages(&run, settings);
  petra_stage *stage = run.network->stage[0];
  const double m = 0.9 + 0.08 * DISTANCE / STAGES, rate = 0.05 / (1 - 0.9);
  double *before = values_of(&run, stage->sets[0].parameters.tensor[0]), worst = 0;
  int64_t count = stage->sets[0].parameters.tensor[0]->elements;
  for (int t = 0; t < STEPS; t++)
    update(&run, stage, t, 0.05);
  double *after = values_of(&run, stage->sets[0].parameters.tensor[0]);
  for (int64_t e = 0; e < count; e++) {
    double x = before[e], y = before[e];
    for (int t = 0; t < STEPS; t++) {
      double next = y - rate * (1 - m) * gradient_at(t, e);
      y = next + m * (next - x);
      x = next;
    }
    worst = fmax(worst, fabs(y - after[e]));
  }
  within("stage momentum", worst, TOLERANCE_MITIGATION);
  free(before);
  free(after);
  training_close(&run);
}
END_TEST

/* SGD behind a warm-up: the velocity is the warm-up's, only gradients from there on are discounted. By hand of the first step, and by the
 * rule's own form of all: g is multiplied, the rate is not. Of the second stage of 4: momentum 0.9 + 0.07 / 2, D = 4. */
START_TEST(stage_momentum_takes_the_velocity_of_a_warm_up_as_it_is) {
  enum { WARM = 3, STAGE = 1 };
  const char *const settings[] = {MITIGATION("stage_momentum=0.97"), MITIGATION("weight_prediction=velocity"), NULL};
  training run;
  open_stages(&run, settings);
  petra_stage *stage = run.network->stage[STAGE];
  stage->options.mitigation.start = WARM;
  const int64_t count = stage->sets[0].parameters.tensor[0]->elements;
  double *seen[STEPS + 1], worst = 0, worst_by_hand = 0, worst_ahead = 0;
  for (int t = 0; t <= STEPS; t++) {
    seen[t] = values_of(&run, stage->sets[0].parameters.tensor[0]);
    if (t < STEPS)
      update(&run, stage, t, rate_at(t));
  }
  const petra_tensor_set *predicted;
  must(petra_stage_weights(stage, PETRA_WEIGHTS_STASHED, stage->updates, 0, &predicted));
  double *ahead = values_of(&run, predicted->tensor[0]);
  for (int64_t e = 0; e < count; e++) {
    double w = seen[0][e], v = 0;
    for (int t = 0; t < STEPS; t++) {
      const double m = t < WARM ? 0.9 : 0.935, plain = gradient_at(t, e) + weight_decay * w, warm = v;
      const double g = t < WARM ? plain : 0.65 * plain;
      v = m * v + g;
      w -= rate_at(t) * (g + m * v);
      worst = fmax(worst, fabs(w - seen[t + 1][e]));
      if (t == WARM) {
        const double by_hand = seen[t][e] - 0.05 * (0.874225 * warm + 1.25775 * plain);
        worst_by_hand = fmax(worst_by_hand, fabs(by_hand - seen[t + 1][e]));
      }
    }
    worst_ahead = fmax(worst_ahead, fabs(w - rate_at(STEPS - 1) * 4 * v - ahead[e]));
  }
  within("first step behind a warm-up", worst_by_hand, TOLERANCE_MITIGATION);
  within("stage momentum of SGD after a warm-up", worst, TOLERANCE_MITIGATION);
  within("what is predicted from it", worst_ahead, TOLERANCE_MITIGATION);
  for (int t = 0; t <= STEPS; t++)
    free(seen[t]);
  free(ahead);
  training_close(&run);
}
END_TEST

/* AdamW and NAdamW whose beta1 changes after a warm-up: the mean is divided by the sum of the weights that its gradients have. */
START_TEST(stage_momentum_after_a_warm_up_divides_by_what_was_averaged) {
  enum { WARM = 3 };
  const double b2 = 0.999;
  for (int nesterov = 0; nesterov < 2; nesterov++) {
    const char *const settings[] = {MITIGATION("stage_momentum=0.98"), "optim.weight_decay=0",
                                    nesterov ? "optim.name=nadamw" : "optim.name=adamw", NULL};
    training run;
    open_stages(&run, settings);
    petra_stage *stage = run.network->stage[0];
    stage->options.mitigation.start = WARM;
    double *before = values_of(&run, stage->sets[0].parameters.tensor[0]), worst = 0;
    int64_t count = stage->sets[0].parameters.tensor[0]->elements;
    for (int t = 0; t < STEPS; t++)
      update(&run, stage, t, 0.05);
    double *after = values_of(&run, stage->sets[0].parameters.tensor[0]);
    for (int64_t e = 0; e < count; e++) {
      double w = before[e], mean = 0, weights = 0, square = 0, product = 1;
      for (int t = 0; t < STEPS; t++) {
        const double b1 = t < WARM ? 0.9 : 0.9 + 0.08 * DISTANCE / STAGES, g = gradient_at(t, e);
        const double mu = b1 * (1 - 0.5 * pow(0.96, 0.004 * (t + 1))),
                     next = b1 * (1 - 0.5 * pow(0.96, 0.004 * (t + 2)));
        mean = b1 * mean + (1 - b1) * g;
        weights = b1 * weights + (1 - b1);
        square = b2 * square + (1 - b2) * g * g;
        product *= mu;
        w -= 0.05 * (nesterov ? (1 - mu) / (1 - product) * g + next / (1 - product * next) * mean : mean / weights) /
             (sqrt(square / (1 - pow(b2, t + 1))) + 1e-8);
      }
      worst = fmax(worst, fabs(w - after[e]));
    }
    within("stage momentum after a warm-up", worst, TOLERANCE_MITIGATION);
    free(before);
    free(after);
    training_close(&run);
  }
}
END_TEST

/* The same of NAdam: its averages and products of momenta with beta1 of the stage, from their sums over all steps. */
START_TEST(stage_momentum_is_beta1_of_nadamw) {
  const char *const settings[] = {MITIGATION("stage_momentum=0.98"), "optim.weight_decay=0", "optim.name=nadamw", NULL};
  training run;
  open_stages(&run, settings);
  petra_stage *stage = run.network->stage[0];
  const double b1 = 0.9 + 0.08 * DISTANCE / STAGES, b2 = 0.999;
  double *before = values_of(&run, stage->sets[0].parameters.tensor[0]), worst = 0;
  int64_t count = stage->sets[0].parameters.tensor[0]->elements;
  for (int t = 0; t < STEPS; t++)
    update(&run, stage, t, 0.05);
  double *after = values_of(&run, stage->sets[0].parameters.tensor[0]);
  for (int64_t e = 0; e < count; e++) {
    double w = before[e], product = 1;
    for (int t = 0; t < STEPS; t++) {
      const double mu = b1 * (1 - 0.5 * pow(0.96, 0.004 * (t + 1))), next = b1 * (1 - 0.5 * pow(0.96, 0.004 * (t + 2)));
      double mean = 0, square = 0;
      for (int s = 0; s <= t; s++) {
        mean += (1 - b1) * pow(b1, t - s) * gradient_at(s, e);
        square += (1 - b2) * pow(b2, t - s) * pow(gradient_at(s, e), 2);
      }
      product *= mu;
      w -= 0.05 * ((1 - mu) / (1 - product) * gradient_at(t, e) + next / (1 - product * next) * mean) /
           (sqrt(square / (1 - pow(b2, t + 1))) + 1e-8);
    }
    worst = fmax(worst, fabs(w - after[e]));
  }
  within("stage momentum of nadamw", worst, TOLERANCE_MITIGATION);
  free(before);
  free(after);
  training_close(&run);
}
END_TEST

/* Weights of the first filter of the third stage (D = 2) before every update of a sequence and after the last. */
static void walk(const char *const *settings, int start, double *weights[STEPS + 1], int64_t *count) {
  training run;
  open_stages(&run, settings);
  petra_stage *stage = run.network->stage[2];
  const petra_tensor *tensor = stage->sets[0].parameters.tensor[0];
  *count = tensor->elements;
  stage->options.mitigation.start = start;
  for (int t = 0; t <= STEPS; t++) {
    weights[t] = values_of(&run, tensor);
    if (t < STEPS)
      update(&run, stage, t, rate_at(t));
  }
  training_close(&run);
}

/* Of any optimiser whose steps do not depend on the weights: those of plain steps, ahead by the last two, behind by the first two (since
 * a warm-up). */
static void check_ahead(const char *optimiser, int start) {
  const char *const settings[] = {optimiser, "optim.weight_decay=0", MITIGATION("error_feedback=true"), NULL};
  const char *const without[] = {optimiser, "optim.weight_decay=0", NULL};
  double *plain[STEPS + 1], *ahead[STEPS + 1], worst = 0;
  int64_t count;
  walk(without, 0, plain, &count);
  walk(settings, start, ahead, &count);
  for (int t = 0; t <= STEPS; t++)
    for (int64_t e = 0; e < count; e++) {
      double expected = plain[t][e];
      if (t > start + 2)
        expected += plain[t][e] - plain[t - 2][e] - (plain[start + 2][e] - plain[start][e]);
      worst = fmax(worst, fabs(ahead[t][e] - expected));
    }
  within(optimiser, worst, TOLERANCE_MITIGATION);
  ck_assert_double_gt(fabs(ahead[STEPS][0] - plain[STEPS][0]), 1e-6);
  for (int t = 0; t <= STEPS; t++) {
    free(plain[t]);
    free(ahead[t]);
  }
}

START_TEST(error_feedback_is_ahead_of_plain_steps_by_the_last_ones) {
  check_ahead("optim.name=sgd", 0);
  check_ahead("optim.name=sgd", 3);
  check_ahead("optim.name=adamw", 0);
  check_ahead("optim.name=nadamw", 3);
  check_ahead("optim.name=lion", 0);
  check_ahead("optim.name=muon", 0);
}
END_TEST

/* F reads the weights and two more of the last step (D = 2), whatever the optimiser; the steps are those without prediction. */
static void check_along(const char *optimiser) {
  const char *const settings[] = {optimiser, MITIGATION("weight_prediction=difference"), NULL};
  const char *const without[] = {optimiser, NULL};
  training run;
  double *plain[STEPS + 1], *before[STEPS + 1], worst = 0;
  int64_t count;
  walk(without, 0, plain, &count);
  walk(settings, 0, before, &count);
  open_stages(&run, settings);
  petra_stage *stage = run.network->stage[2];
  for (int t = 0; t < STEPS; t++) {
    const petra_tensor_set *read;
    update(&run, stage, t, rate_at(t));
    must(petra_stage_weights(stage, PETRA_WEIGHTS_STASHED, stage->updates, 0, &read));
    double *ahead = values_of(&run, read->tensor[0]);
    for (int64_t e = 0; e < count; e++) {
      ck_assert_double_eq(before[t][e], plain[t][e]);
      worst = fmax(worst, fabs(ahead[e] - (plain[t + 1][e] + 2 * (plain[t + 1][e] - plain[t][e]))));
    }
    ck_assert_double_gt(fabs(ahead[0] - plain[t + 1][0]), 1e-6);
    free(ahead);
  }
  within(optimiser, worst, TOLERANCE_MITIGATION);
  for (int t = 0; t <= STEPS; t++) {
    free(plain[t]);
    free(before[t]);
  }
  training_close(&run);
}

START_TEST(prediction_is_along_the_step_of_every_optimiser) {
  check_along("optim.name=sgd");
  check_along("optim.name=adamw");
  check_along("optim.name=nadamw");
  check_along("optim.name=lion");
  check_along("optim.name=muon");
  check_along("optim.name=basis-rotation");
  check_along("optim.name=lars");
  check_along("optim.name=adam");
}
END_TEST

/* A gradient above the bound is scaled to it, over all parameters of the stage and for the step alone. */
START_TEST(clipping_is_by_the_norm_of_the_stage) {
  const char *const settings[] = {"optim.clip=0.5", "optim.weight_decay=0", NULL};
  training run;
  open_stages(&run, settings);
  petra_stage *stage = run.network->stage[0];
  const petra_stage_sets *sets = &stage->sets[0];
  double norm = 0, worst = 0, *before[3];
  for (int i = 0; i < 3; i++) {
    before[i] = values_of(&run, sets->parameters.tensor[i]);
    for (int64_t e = 0; e < sets->parameters.tensor[i]->elements; e++)
      norm += pow(gradient_at(0, e), 2);
  }
  ck_assert_double_gt(sqrt(norm), 1);
  update(&run, stage, 0, 0.05);
  for (int i = 0; i < 3; i++) {
    double *after = values_of(&run, sets->parameters.tensor[i]), *gradient = values_of(&run, sets->gradients.tensor[i]);
    for (int64_t e = 0; e < sets->parameters.tensor[i]->elements; e++) {
      const double step = 0.05 * 1.9 * gradient_at(0, e) * 0.5 / (sqrt(norm) + 1e-6); /* Nesterov's first */
      worst = fmax(worst, fabs(before[i][e] - after[e] - step));
      ck_assert_double_eq(gradient[e], gradient_at(0, e));
    }
    free(before[i]);
    free(after);
    free(gradient);
  }
  within("clipped step", worst, TOLERANCE_MITIGATION);
  training_close(&run);
}
END_TEST

START_TEST(rates_are_annealed_to_the_full_one) {
  const petra_stage_mitigation late = {.choice = {.lr_rescheduling = 4, .gradient_shrinking = 1}, .delay = 9};
  const petra_stage_mitigation early = {.choice = {.lr_rescheduling = 4, .gradient_shrinking = 1}, .delay = 0.5};
  static const double divisors[] = {9, 5.196152422706632, 3, 1.7320508075688772, 1, 1};
  for (int t = 0; t < HARNESS_COUNT(divisors); t++) {
    within("rate", fabs(petra_mitigation_rate(&late, 0.9, t) - 0.9 / divisors[t]), 1e-15);
    ck_assert_double_eq(petra_mitigation_rate(&early, 0.9, t), 0.9); /* less than one update counts as one */
  }
}
END_TEST

/* --- delays --- */

static void check_delay(const char *name, int64_t k, bool split, int32_t stage, double delay) {
  petra_method method = {.name = ""};
  for (int i = 0; i < petra_method_count() && strcmp(method.name, name) != 0; i++)
    method = petra_method_get(i);
  ck_assert_str_eq(method.name, name);
  method.accumulate = k;
  method.split_head = method.split_head || split;
  ck_assert_double_eq(petra_method_delay(&method, 10, stage), delay);
}

static void check_descent(const char *name, int64_t k, int64_t *extra, int32_t stage, double descent) {
  petra_method method = {.name = ""};
  for (int i = 0; i < petra_method_count() && strcmp(method.name, name) != 0; i++)
    method = petra_method_get(i);
  ck_assert_str_eq(method.name, name);
  method.accumulate = k;
  method.extra_delay = (petra_int_list){.values = extra, .count = extra ? 10 : 0};
  ck_assert_double_eq(petra_method_descent(&method, 10, stage), descent);
}

START_TEST(delays_are_counted_in_updates) {
  check_delay("petra", 1, false, 1, 18);
  check_delay("petra", 4, false, 1, 4.5);
  check_delay("delayed", 1, false, 10, 0);
  check_delay("delayed", 1, true, 10, 1);
  check_delay("pipedream", 1, false, 1, 9);
  check_delay("pipedream", 2, false, 9, 0.5);
  check_delay("pipedream", 1, false, 10, 0);
  check_delay("pipedream-2bw", 10, false, 1, 1);
  check_delay("pipedream-2bw", 10, false, 10, 1);
  check_delay("gpipe", 10, false, 1, 0);
  check_descent("petra", 1, NULL, 10, 9);
  check_descent("petra", 2, NULL, 4, 1.5);
  check_descent("petra", 1, (int64_t[]){7, 5, 5, 5, 5, 5, 5, 5, 5, 0}, 10, 16);
  check_descent("fr", 1, NULL, 10, 9);
  check_descent("pipedream", 1, NULL, 1, 0);
  check_descent("pipedream", 1, NULL, 10, 4);
  check_descent("pipedream", 1, (int64_t[]){6, 6, 6, 2, 2, 2, 2, 2, 2, 2}, 9, 8);
  check_descent("gpipe", 10, NULL, 10, 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {steps_are_those_of_the_papers,
                                spike_compensation_brings_what_the_delay_held_back,
                                stage_momentum_is_nesterov_with_a_discount,
                                stage_momentum_is_beta1_of_nadamw,
                                stage_momentum_takes_the_velocity_of_a_warm_up_as_it_is,
                                stage_momentum_after_a_warm_up_divides_by_what_was_averaged,
                                error_feedback_is_ahead_of_plain_steps_by_the_last_ones,
                                prediction_is_along_the_step_of_every_optimiser,
                                clipping_is_by_the_norm_of_the_stage,
                                rates_are_annealed_to_the_full_one,
                                delays_are_counted_in_updates};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int code = harness_run("mitigation", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return code;
}
