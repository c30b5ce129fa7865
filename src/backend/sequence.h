/* SPDX-License-Identifier: Apache-2.0 */
/* Argument structures of the operations of transformers (backend.h), except linear layers. */
#pragma once

#include "backend/tensors.h"

/* Layer norm (Ba et al., arXiv:1607.06450): y = scale * (x - mean) / deviation + shift, with mean and deviation over
 * the features of a row. y may be NULL: only mean and deviation are wanted, and scale and shift are ignored. */
typedef struct petra_layer_norm_forward {
  const petra_tensor *x;             /* (N, T, C) */
  const petra_tensor *scale, *shift; /* (C) */
  petra_tensor *y;                   /* (N, T, C), a stream like x, or inner; never x */
  petra_tensor *mean;                /* (N, T, 1) out */
  petra_tensor *deviation;           /* (N, T, 1) out: sqrt(biased variance + PETRA_NORM_EPSILON) */
} petra_layer_norm_forward;

typedef struct petra_layer_norm_backward {
  const petra_tensor *x, *scale, *mean, *deviation; /* as given to and by layer_norm_forward */
  const petra_tensor *dy;                           /* (N, T, C) */
  petra_tensor *dx;                                 /* (N, T, C); may alias dy, never x */
  petra_tensor *dscale, *dshift;                    /* (C), overwritten */
} petra_layer_norm_backward;

/* Hendrycks and Gimpel (arXiv:1606.08415): x times the normal distribution function of x, exact or approximated. */
typedef enum petra_gelu {
  PETRA_GELU_TANH, /* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): GPT-2's */
  PETRA_GELU_ERF,  /* x / 2 (1 + erf(x / sqrt 2)): ViT's */
} petra_gelu;

/* Attention of several heads (Vaswani et al., arXiv:1706.03762). A row of qkv holds q, k and v side by side, C features
 * each; those of head h are h d .. (h + 1) d - 1 of each, d = C / heads. For each head, with the scores s = q k^T /
 * sqrt(d): y = softmax(s) v over all positions of the sample or, if causal, over those up to the query's. */
typedef struct petra_attention {
  const petra_tensor *qkv; /* (N, T, 3 C); y and gradients are inner if it is, log_sum never */
  int heads;               /* a divisor of C */
  bool causal;
  petra_tensor *y;       /* (N, T, C) */
  petra_tensor *log_sum; /* (N, T, heads) out: log of the sum of exp(s) of each query, for the backward */
} petra_attention;

typedef struct petra_attention_backward {
  const petra_tensor *qkv, *y, *log_sum; /* as given to and by attention_forward */
  int heads;
  bool causal;
  const petra_tensor *dy; /* (N, T, C) */
  petra_tensor *dqkv;     /* (N, T, 3 C), overwritten */
} petra_attention_backward;
