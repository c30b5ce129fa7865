/* SPDX-License-Identifier: Apache-2.0 */
/* Mitigations of a stage against its delay: they change its optimiser step, the weights that F reads (`predicted`) and
 * the weights that B reads (`corrected`). D is the delay in updates (schedule/method.h), J - j the number of stages
 * above, w the weights, v the velocity, m the momentum, g the gradient with weight decay, eta the rate:
 *
 *  lr_rescheduling         eta_k = eta / max(D, 1)^p, p = 1 - min(k / K, 1), at the stage's k-th update (from 0) after
 *                          a synchronous warm-up. Yang et al., PipeMare (arXiv 1910.05124), T1.
 *  discrepancy_correction  B reads w - D delta; delta <- gamma delta + (1 - gamma) (w_new - w_old), gamma =
 *                          decay^(1/D). PipeMare, T2.
 *  spike_compensation      w -= eta (a v + b g), a = m^D, b = (1 - m^D) / (1 - m). Nesterov momentum is the same step
 *                          for D = 1; with Nesterov momentum, D + 1 replaces D. A gradient's effect when it arrives is
 *                          the sum of m^i over i = 0 .. D. Kosson et al., Pipelined Backpropagation at Scale (arXiv
 *                          2003.11666), SC_D.
 *  weight_prediction       F reads w - eta T v (velocity: LWPv) or w + T (w_new - w_old) (difference: LWPw), T =
 *                          horizon D; eta, v and the difference belong to the last update. Kosson et al., LWP.
 *                          spectrain: F reads w - eta (D + E) v and B reads w - eta E v (D + E and E multiplied by
 *                          horizon). E is the number of updates that the stage makes from its B of a microbatch to the
 *                          B of stage 1 (schedule/program.h, descent). Both predict the weights at the time when the
 *                          microbatch leaves the pipeline. Chen, Yang, Cheng, Efficient and Robust Parallel DNN
 *                          Training through Model Parallelism on Multi-GPU Platform (arXiv 1809.02839).
 *  gradient_shrinking      g, except for weight decay, is multiplied by beta^(J - j). Zhuang et al., Fully Decoupled
 *                          Neural Network Learning Using Delayed Gradients (arXiv 1906.09108), who scale the gradients
 *                          that come from above.
 *  stage_momentum          The momentum is m_j = m + (m_max - m) (J - j) / J, and g, including weight decay, is
 *                          multiplied by (1 - m_j) / (1 - m). Ajanthan et al., Nesterov Method for Asynchronous
 *                          Pipeline Parallel Optimization (arXiv 2505.01099), whose step has (1 - m_j) g; their rate is
 *                          eta / (1 - m). With adamw and nadamw, beta1 replaces m and nothing else changes: both
 *                          average gradients with weight 1 - beta1. The authors' program (AsyncPP, --adaptive_momentum)
 *                          does the same, and uses nadamw for their method.
 *  error_feedback          w += u_t + (u_t - u_(t-D)) for t >= D, else w += u_t: u_t is the change that the optimiser's
 *                          step number t (from 0, after a warm-up) adds to the weights, including weight decay; D is
 *                          whole. The gradient of step t was computed with the weights before step t - D, which added
 *                          u_(t-D); the difference u_t - u_(t-D) is the part that step t - D lacked. So w = y + (the
 *                          sum of the last D of the u) - (the sum of the first D), if y is the plain sum of all u: F
 *                          reads weights D steps ahead of the weights of plain delayed steps. After the error feedback
 *                          of Zmushko et al., One-Step Gradient Delay is Not a Barrier for Large-Scale Asynchronous
 *                          Pipeline Parallel LLM Pretraining (arXiv 2606.30634), whose formula was not at hand.
 *
 * At D = 0 (spectrain: D + E = 0) none of this is computed: the step is the step of nn/optim.h, bit for bit.
 * docs/semantics/mitigation.md lists which of these formulas were checked, and against which source. */
#pragma once

#include "config/config.h"
#include "nn/optim.h"

typedef struct petra_stage_mitigation {
  petra_mitigation choice;
  double delay;   /* D; 0: no mitigation except SpecTrain has an effect */
  double descent; /* E, with SpecTrain; else 0 */
  int distance;   /* J - j */
  int stages;     /* J */
  int64_t start;  /* updates of a synchronous warm-up, in which there is no mitigation */
} petra_stage_mitigation;

/* The first two functions return true if F, or B, reads weights other than the parameters. The third returns true if
 * the weights that B reads follow from the average of updates. */
bool petra_mitigation_predicts(const petra_stage_mitigation *mitigation);
bool petra_mitigation_corrects(const petra_stage_mitigation *mitigation);
bool petra_mitigation_averages(const petra_stage_mitigation *mitigation);

/* Returns how many past steps error feedback keeps: D; 0 if it is off. */
int petra_mitigation_feedback(const petra_stage_mitigation *mitigation);

/* Returns the learning rate of update number `update`, counted from 0 at `start`, as modified by the mitigation. */
double petra_mitigation_rate(const petra_stage_mitigation *mitigation, double lr, int64_t update);

/* Gets a and b of spike compensation. */
void petra_mitigation_spike(const petra_stage_mitigation *mitigation, double momentum, bool nesterov, double *a,
                            double *b);
