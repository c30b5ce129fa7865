/* SPDX-License-Identifier: Apache-2.0 */
/* The optimisers: one step of a block, and the tensors that an optimiser keeps for the block's parameters. Table:
 * config/optimiser.h. With g the gradient, w a parameter, eta the rate, d the weight decay, t the number of the step
 * from 1:
 *
 *  sgd     g += d w; v = m v + g (t = 1: v = g); w -= eta (g + m v with Nesterov momentum, v without). PyTorch's form.
 *  adamw   m = b1 m + (1 - b1) g; s = b2 s + (1 - b2) g^2;
 *          w = (1 - eta d) w - eta / (1 - b1^t) m / (sqrt(s / (1 - b2^t)) + eps).
 *          Loshchilov and Hutter, Decoupled Weight Decay Regularization (arXiv 1711.05101), in PyTorch's form.
 *  nadamw  the same averages; with mu_t = b1 (1 - 0.96^(t psi) / 2) and M_t = mu_1 ... mu_t
 *          w = (1 - eta d) w
 *              - eta ((1 - mu_t) / (1 - M_t) g + mu_(t+1) / (1 - M_(t+1)) m) / (sqrt(s / (1 - b2^t)) + eps).
 *          Dozat, Incorporating Nesterov Momentum into Adam (2016), as PyTorch's NAdam with decoupled_weight_decay.
 *  lion    w = (1 - eta d) w - eta sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g.
 *          Chen et al., Symbolic Discovery of Optimization Algorithms (arXiv 2302.06675), algorithm 2.
 *  muon    of a matrix (petra_optim_takes_matrix) of R rows and C columns: v = m v + g; u = g + m v (Nesterov) or v;
 *          w = (1 - eta d) w - eta f NS(u), NS being petra_orthogonalize, f = max(1, R / C)^0.5 (shape) or
 *          0.2 max(R, C)^0.5 (rms). All other parameters use adamw with rate eta adam_lr_share.
 *          Jordan et al., Muon: an optimizer for hidden layers in neural networks (2024,
 *          kellerjordan.github.io/posts/muon); rms: Liu et al., Muon is Scalable for LLM Training (arXiv 2502.16982).
 *
 *  basis-rotation
 *          for a weight matrix (petra_optim_takes_matrix) of R rows and C columns with gradient G:
 *          A = b2 A + (1 - b2) G G^T and B = b2 B + (1 - b2) G^T G. P and Q are orthonormal. At t = 1 they are the
 *          eigenvectors of A and B, largest eigenvalue first. For eigenvalues of 0 (up to 1e-13 of the largest), the
 *          basis is completed one vector at a time: with the coordinate axis whose part in the span of the vectors so
 *          far is smallest, made orthogonal to them. If `rotation_every` divides t, the columns of P are sorted by the
 *          diagonal of P^T A P, largest first, and the rows of s are permuted in the same way; then P becomes the Q
 *          factor of A P (one step of orthogonal iteration). Q is updated likewise, with the columns of s. Then
 *          m = b1 m + (1 - b1) G; s = b2 s + (1 - b2) (P^T G Q)^2;
 *          w = (1 - eta d) w - eta / (1 - b1^t) P [P^T m Q / (sqrt(s / (1 - b2^t)) + eps)] Q^T.
 *          rotation_sides: smaller has P = 1 (R >= C) or Q = 1 (R < C). All other parameters use adamw. Products,
 *          eigenvectors and Q-factors are computed in double on the host. Jung, Shin and Lee, Mitigating Staleness in
 *          Asynchronous Pipeline Parallelism via Basis Rotation (arXiv 2602.03515), as its authors' program does it
 *          with second-order sources.
 *
 *  lars    of each tensor: if |w| and |g| are not 0, a = min(1, trust_coefficient |w| / (|g| + d |w| + eps) / eta) and
 *          g = a (g + d w); then the step of sgd with this g and without decay. |.| is the root of the sum of squares.
 *          You, Gitman and Ginsburg, Large Batch Training of Convolutional Networks (arXiv 1708.03888), with the
 *          minimum of LARC, as in the release of PETRA's authors (async_torch/optim/optimizer.py).
 *  adam    g += d w; then the step of adamw without decay. Kingma and Ba, Adam: A Method for Stochastic Optimization
 *          (arXiv 1412.6980), in PyTorch's form, which that release calls.
 *
 * The formulas of adamw, nadamw, muon and adam come from PyTorch 2.15's programs, which
 * tests/reference/make_optimisers.py runs; the formula of lars was read in the release. The papers of lion, of the rms
 * factor and of lars were not available. */
#pragma once

#include "base/status.h"
#include "config/config.h"
#include "config/optimiser.h"
#include "nn/block.h"

typedef struct petra_optim {
  petra_optimiser_kind kind;
  /* The keys of the config, as a mitigation has changed them: beta1, beta2, epsilon, momentum_decay are b1, b2, eps,
   * psi. */
  struct petra_optim_keys keys;
  double beta1_before;  /* adamw, nadamw: b1 of the first `steps_before` steps, which are factors of b1^t and M_t */
  int64_t steps_before; /* 0: none */
} petra_optim;

/* Returns PETRA_CONFIG, logged, if a key that the chosen optimiser does not have is not at its default. */
petra_status petra_optim_check(const petra_config *config);

petra_optim petra_optim_from_config(const petra_config *config);

/* Returns the weight decay of the block's parameter `index`. */
double petra_optim_decay(const petra_optim *optim, const petra_model *model, const petra_block *block, int index);

/* Returns true if Muon or basis rotation updates this parameter of the block as a matrix. These are all matrices except
 * the matrices of a block that ends in the loss or reads the data, which are the head's weight and tables of
 * embeddings; with Muon also all filters (O rows). */
bool petra_optim_takes_matrix(const petra_optim *optim, const petra_block *block, const petra_tensor_spec *spec);

/* Creates tensor set `state` of a block, with zeros. Tensors that are not kept are NULL; the set is empty if none is
 * kept. */
petra_status petra_optim_state_create(const petra_optim *optim, const petra_compute *compute, const petra_model *model,
                                      const petra_block *block, int state, petra_tensor_set *out);

/* Makes one step of a block with rate `lr`, after `steps` others. Parameters and state change; gradients do not. */
petra_status petra_optim_step(const petra_optim *optim, const petra_compute *compute, const petra_model *model,
                              const petra_block *block, double lr, int64_t steps, const petra_tensor_set *parameters,
                              const petra_tensor_set states[PETRA_OPTIMISER_STATES], const petra_tensor_set *gradients);

/* Adds the kernels of a step of the block to its list (model.h). */
void petra_optim_kernels(const petra_optim *optim, const petra_model *model, const petra_block *block,
                         petra_kernel_list *kernels);

/* --- for optim.c, muon.c and rotation.c --- */

/* The first of the optimiser's states that do not have the parameter's shape: averages of G G^T and G^T G, then the
 * bases. */
enum { PETRA_ROTATION_AVERAGES = 2, PETRA_ROTATION_BASES = 4 };

/* The tensors of one step, parameter by parameter. Tensors that an optimiser does not keep are NULL. */
typedef struct petra_optim_tensors {
  int count;
  petra_tensor *parameters[PETRA_BLOCK_TENSORS], *gradients[PETRA_BLOCK_TENSORS];
  petra_tensor *states[PETRA_OPTIMISER_STATES][PETRA_BLOCK_TENSORS];
  double decay[PETRA_BLOCK_TENSORS];
} petra_optim_tensors;

/* Updates a weight that Muon treats as a matrix (index `i` of the tensors) with its rate. */
petra_status petra_muon_step(const petra_optim *optim, const petra_compute *compute, const petra_optim_tensors *tensors,
                             int i, double lr);

/* Updates a weight that basis rotation treats as a matrix, after `steps` steps. */
petra_status petra_rotation_step(const petra_optim *optim, const petra_compute *compute,
                                 const petra_optim_tensors *tensors, int i, double lr, int64_t steps);

/* Returns true if basis rotation rotates a side of a matrix: 0, the side of its rows, or 1, the side of its columns. */
bool petra_rotation_has(const petra_optim *optim, int64_t rows, int64_t columns, int side);

/* Adds the cost of a step of basis rotation: FLOPs of products, and elements that the products read and write. */
void petra_rotation_cost(const petra_optim *optim, const petra_tensor_spec *spec, double *flops, double *passes);

/* Adds the cost of Muon's step: FLOPs of its products, and elements that the products read and write. Its other passes
 * (18 over the matrix) count as the number of elements for which AdamW, with 7 passes, would take as long. */
void petra_muon_cost(const petra_tensor_spec *spec, double *flops, double *passes, double *elements);

/* --- learning_rate.c --- */

/* The learning rate as a function of an index: the global tick in lockstep programs, the microbatch in others. */
typedef struct petra_lr {
  double base;                /* after scaling */
  int64_t batches;            /* microbatches per epoch */
  int64_t warmup;             /* indices of the linear warm-up: warmup_epochs * batches */
  const petra_config *config; /* borrowed */
  /* Cosine, wsd: number of indices of the whole schedule; number of indices at its end during which the rate falls. */
  int64_t end, decay;
} petra_lr;

/* Returns PETRA_CONFIG, logged, if keys of `lr` contradict each other or do not belong to its schedule. */
petra_status petra_lr_check(const petra_config *config);

/* Gets the rate from the config. The base rate is lr, times r * batch * k / 256 (r replicas) with lr_scaling: goyal
 * (Goyal et al. 2017). */
petra_lr petra_lr_from_config(const petra_config *config, int64_t batches_per_epoch);

/* Returns base * (index + 1) / warmup while index < warmup, else base, multiplied according to the schedule:
 *  step    times factor for every milestone that the epoch floor(index / batches) has reached;
 *  cosine, wsd  times final + (1 - final) f(x), where x = (index - (end - decay)) / decay, limited to 0 .. 1:
 *          cosine f = (1 + cos(pi x)) / 2, decay being all that follows the warm-up (Loshchilov and Hutter, SGDR, arXiv
 *          1608.03983, without restarts); wsd f = 1 - sqrt(x) (Haegele et al., Scaling Laws and Compute-Optimal
 *          Training Beyond Fixed Training Durations, arXiv 2405.18392, whose text was not available). */
double petra_lr_at(const petra_lr *lr, int64_t index);
