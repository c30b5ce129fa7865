/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors: their kinds, shapes, creation and release. backend.h has the operations on them. */
#pragma once

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct petra_backend petra_backend;

/* The kind of a tensor, and the meaning of shape[0..3]. */
typedef enum petra_tensor_kind {
  PETRA_TENSOR_ACTIVATION, /* (N, C, H, W): images, feature maps and their gradients */
  PETRA_TENSOR_FILTER,     /* (O, I, KH, KW): convolution weights and their gradients */
  PETRA_TENSOR_MATRIX,     /* (rows, columns, 1, 1): pooled features (N, C), logits (N, classes), head weight (O, I) */
  PETRA_TENSOR_VECTOR,     /* (n, 1, 1, 1): batch-norm parameters and statistics, head bias */
  /* Shape (N, C, H, W) of the activation to which it belongs. The content is private to the backend: the data that
   * max_pool_forward keeps for its backward. */
  PETRA_TENSOR_MASK,
  /* (N, C, H, W): tensors within a block: inputs and outputs of convolutions, tensors between units, and the gradients
   * of these. If the backend's precision has smaller elements for these than for activations, operations
   * distinguish the two; otherwise each may replace the other. */
  PETRA_TENSOR_INNER,
  /* (N, T, C, 1): samples, positions, features: the tensors of transformers. On every backend dense, N * T rows of C
   * features, with the elements of activations. Tokens have C = 1 and whole numbers >= 0. */
  PETRA_TENSOR_SEQUENCE,
  /* (N, T, C, 1): relates to a sequence as an inner tensor to an activation: inputs and outputs of linear layers within
   * a block, and their gradients. */
  PETRA_TENSOR_INNER_SEQUENCE,
  /* (N, bytes, 1, 1): the samples of another tensor as the bytes of a number format (quantise.h). On every backend
   * they are dense, and the bytes are the same. */
  PETRA_TENSOR_QUANTISED,
} petra_tensor_kind;
enum { PETRA_TENSOR_KINDS = PETRA_TENSOR_QUANTISED + 1 };

static inline bool petra_kind_is_sequence(petra_tensor_kind kind) {
  return kind == PETRA_TENSOR_SEQUENCE || kind == PETRA_TENSOR_INNER_SEQUENCE;
}

static inline bool petra_kind_is_inner(petra_tensor_kind kind) {
  return kind == PETRA_TENSOR_INNER || kind == PETRA_TENSOR_INNER_SEQUENCE;
}

/* Returns the kind of the streams for an inner kind; other kinds unchanged. */
static inline petra_tensor_kind petra_kind_of_stream(petra_tensor_kind kind) {
  return !petra_kind_is_inner(kind)   ? kind
         : kind == PETRA_TENSOR_INNER ? PETRA_TENSOR_ACTIVATION
                                      : PETRA_TENSOR_SEQUENCE;
}

typedef struct petra_tensor {
  petra_backend *backend;
  petra_tensor_kind kind;
  int32_t shape[4];
  int64_t elements; /* logical: product of shape */
  size_t bytes;     /* physical, as allocated */
  void *data;       /* physical; private to the backend */
  void *layout;     /* private to the backend */
  /* The members below belong to tensor.c and tensor_pool.c. */
  int references; /* several threads may change it (journals, below) */
  int64_t maker;  /* number of the concurrent action that made it; 0: none did */
  petra_account *account;
  petra_memory_category category;
  int32_t home;   /* tensor_pool.c: stage whose action made the storage; 0: outside of all */
  bool in_ring;   /* tensor_pool.c: it belongs to a position in an action */
  int64_t number; /* tensor_pool.c: number of the storage in the order of creation */
  struct petra_tensor *next_free;
} petra_tensor;

/* A matrix or a sequence as contiguous rows of numbers: their count and their length. */
static inline int64_t petra_tensor_rows(const petra_tensor *tensor) {
  return petra_kind_is_sequence(tensor->kind) ? (int64_t)tensor->shape[0] * tensor->shape[1] : tensor->shape[0];
}

static inline int32_t petra_tensor_columns(const petra_tensor *tensor) {
  return tensor->shape[petra_kind_is_sequence(tensor->kind) ? 2 : 1];
}

/* The elements of a host array. U8 is for quantised tensors and masks alone: all `bytes` of the tensor; the bytes of
 * a mask are as the backend stores them. */
typedef enum petra_host_type { PETRA_HOST_F32, PETRA_HOST_F64, PETRA_HOST_U8 } petra_host_type;

/* Tensors are reference-counted over a pool, so that a steady state allocates nothing (tensor.c). */

/* Creates a tensor of the given kind and shape with one reference. Its content is undefined if it comes from the pool.
 * Its bytes count in `account` under `category` until the last reference is released (account may be NULL). */
petra_status petra_tensor_create(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                 petra_account *account, petra_memory_category category, petra_tensor **out);

/* Adds a reference and returns the tensor. NULL is allowed. */
petra_tensor *petra_tensor_retain(petra_tensor *tensor);

/* Removes a reference; the last one returns the storage to the pool. *tensor becomes NULL. NULLs are allowed. */
void petra_tensor_release(petra_tensor **tensor);

/* Declares local variables whose tensors are released at the end of their block, also after PETRA_TRY. NULLs are
 * allowed. */
#define PETRA_RELEASED __attribute__((cleanup(petra_tensor_release)))

/* Returns the kind of tensors within a block whose streams are of kind `stream`, ACTIVATION or SEQUENCE: INNER or
 * INNER_SEQUENCE if the backend's elements of that kind differ from the elements of the streams, else the kind of the
 * streams. Other kinds are unchanged. */
petra_tensor_kind petra_tensor_inner_kind(const petra_backend *backend, petra_tensor_kind stream);

/* Counts the tensor under another account and category from now on. */
void petra_tensor_charge(petra_tensor *tensor, petra_account *account, petra_memory_category category);

/* Argument structures of the operations of transformers (backend.h), except linear layers. */

/* Layer norm (Ba et al., arXiv:1607.06450): y = scale * (x - mean) / deviation + shift, with mean and deviation over
 * the features of a row. y may be NULL: only mean and deviation are wanted, and scale and shift are ignored.
 * Without a mean it is the RMS norm (Zhang, Sennrich, arXiv:1910.07467): y = scale * x / deviation, deviation =
 * sqrt(mean of x^2 + PETRA_NORM_EPSILON); mean, shift and dshift are then NULL. */
typedef struct petra_layer_norm_forward {
  const petra_tensor *x;             /* (N, T, C) */
  const petra_tensor *scale, *shift; /* (C) */
  petra_tensor *y;                   /* (N, T, C), a stream like x, or inner; never x */
  petra_tensor *mean;                /* (N, T, 1) out; NULL: RMS norm */
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

/* Attention of several heads (Vaswani et al., arXiv:1706.03762). A row of qkv holds q, k and v side by side: `heads`
 * heads of q with d = C / heads features each, `kv_heads` heads of k and as many of v. The query head h reads the head
 * floor(h kv_heads / heads) of k and v (Ainslie et al., arXiv:2305.13245). For each head, with the scores s = q k^T /
 * sqrt(d): y = softmax(s) v over all positions of the sample or, if causal, over those up to the query's. */
typedef struct petra_attention {
  const petra_tensor *qkv; /* (N, T, (heads + 2 kv_heads) d); y and gradients are inner if it is, log_sum never */
  int heads;               /* a divisor of C */
  int kv_heads;            /* a divisor of heads */
  bool causal;
  /* Outputs of the forward, which the backward only reads. */
  petra_tensor *y;       /* (N, T, C) */
  petra_tensor *log_sum; /* (N, T, heads): log of the sum of exp(s) of each query */
  /* The forward ignores them. */
  const petra_tensor *dy; /* (N, T, C) */
  petra_tensor *dqkv;     /* like qkv, overwritten */
} petra_attention;

/* Rotary positions (Su et al., arXiv:2104.09864). The first heads * width columns of a row are heads of `width`
 * features. At position t, with the angle a = t base^(-2 i / width), i < width / 2:
 * y_i = x_i cos a - x_{i + width / 2} sin a, y_{i + width / 2} = x_{i + width / 2} cos a + x_i sin a.
 * The other columns are copied. With `back` the angles are negative, which is the inverse and the backward. */
typedef struct petra_rotary {
  const petra_tensor *x; /* (N, T, columns), a stream or inner */
  int heads, width;      /* width: even */
  double base;           /* above 0 */
  bool back;
  petra_tensor *y; /* like x; may be x */
} petra_rotary;

/* --- tensor_pool.c: the tensor pool of a backend; used by registry.c, dry.c and tensor.c. Released storage waits, by
 * kind and shape, for the next tensor of this kind and shape. If a backend keeps sequences of launches (begin and end
 * of backend.h), an action should find its tensors at the same addresses as before. So tensors that an action makes and
 * releases come from lists of its stage, oldest storage first, which gives it the same storage every time. Tensors that
 * outlive an action (messages, kept inputs) come from a ring of their position in the action, so that addresses depend
 * only on the number of the action. --- */

typedef struct petra_tensor_pool petra_tensor_pool;

petra_status petra_tensor_pool_create(petra_backend *backend);
void petra_tensor_pool_destroy(petra_backend *backend);

/* Until petra_tensor_pool_leave, tensors are made by an action of this kind (below PETRA_BACKEND_ACTIONS) of a stage
 * (from 1). */
petra_status petra_tensor_pool_enter(petra_backend *backend, int32_t stage, int32_t kind);
petra_status petra_tensor_pool_leave(petra_backend *backend);

/* petra_tensor_pool_take takes a tensor of this kind and shape, without references, from the pool;
 * petra_tensor_pool_give returns it. */
petra_status petra_tensor_pool_take(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                    petra_tensor **out);
void petra_tensor_pool_give(petra_tensor *tensor);

/* Several threads may take and return tensors. While a thread holds the lock (which is recursive), no other thread
 * does. */
void petra_tensor_pool_lock(petra_backend *backend);
void petra_tensor_pool_unlock(petra_backend *backend);

/* Returns a number that did not occur before, from 1. */
int64_t petra_tensor_pool_number(petra_backend *backend);

/* Returns the bytes of all tensors made so far, in use or not. */
int64_t petra_tensor_pool_bytes(petra_backend *backend);

/* Returns the bytes in which the backend stores a tensor of this kind and shape. */
size_t petra_tensor_storage_bytes(petra_backend *backend, const petra_tensor *tensor);

/* --- journals. Concurrent actions share tensors (a stream that passes through several stages is one tensor) and
 * accounts (a message counts under its receiver's account). An action writes its changes to both into its journal. When
 * all actions are done, the journals are applied one after the other: accounts, with their peaks, and references are
 * then as if the actions had been done in that order. Until then a tensor that other actions may hold loses no
 * reference. A tensor that the action made, or that it alone holds, is released immediately, so that the action can
 * reuse its storage. Whether an action is the only holder of a tensor does not depend on the progress of other actions:
 * references are only added to tensors that have a holder, and no reference is removed. --- */

typedef struct petra_journal petra_journal;

/* A piece of work that a thread pool does at the same time as other pieces, while the results are used in order. Its
 * changes to accounts and references, and the line of its failure, are deferred until its turn comes. */
typedef struct petra_deferred_work {
  petra_journal *journal;
  petra_status status;
  char failure[PETRA_LANE_LINE];
} petra_deferred_work;

petra_status petra_deferred_work_init(petra_deferred_work *deferred);

/* The deferred changes must have been made. */
void petra_deferred_work_fini(petra_deferred_work *deferred);

/* Begins another piece, after the changes of the previous piece have been made. */
void petra_deferred_work_begin(petra_deferred_work *deferred, petra_backend *backend);

/* The changes of the calling thread go into the journal between these two calls. With `lines` the lines of failures are
 * kept. */
void petra_deferred_work_enter(petra_deferred_work *deferred, bool lines);
void petra_deferred_work_leave(petra_deferred_work *deferred);

/* Makes the deferred changes in their order, in the piece's turn; no thread may be between enter and leave. `before` is
 * the status of the pieces before it; if that is PETRA_OK, the failure of this piece is logged and returned. Errors
 * also: PETRA_NO_MEMORY, logged before: a change could not be recorded, and was made in another order. */
petra_status petra_deferred_work_end(petra_deferred_work *deferred, petra_status before);
