/* SPDX-License-Identifier: Apache-2.0 */
/* The optimisers by name (optim.name). One table contains the state that each optimiser keeps and the config keys that
 * it uses. nn/optim.h describes the computations; see also docs/semantics/optimiser.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef enum petra_optimiser_kind {
  PETRA_OPTIMISER_SGD,
  PETRA_OPTIMISER_ADAMW,
  PETRA_OPTIMISER_NADAMW,
  PETRA_OPTIMISER_LION,
  PETRA_OPTIMISER_MUON,
  PETRA_OPTIMISER_BASIS_ROTATION,
  PETRA_OPTIMISER_LARS,
  PETRA_OPTIMISER_ADAM
} petra_optimiser_kind;

enum {
  PETRA_OPTIMISER_STATES = 6, /* maximum number of tensors that an optimiser keeps per parameter */
  PETRA_OPTIMISER_KEYS = 10   /* maximum number of keys of an optimiser, including the final NULL */
};

typedef struct petra_optimiser_key {
  const char *path;          /* path of the config key */
  const char *default_value; /* as YAML */
} petra_optimiser_key;

typedef struct petra_optimiser {
  const char *name;
  int states; /* number of tensors that are kept per parameter */
  /* number of tensors for a weight that the optimiser treats as a matrix (petra_optim_takes_matrix) */
  int matrix_states;
  /* The keys of the optimiser in addition to the keys that every optimiser has; ended by NULL. */
  petra_optimiser_key keys[PETRA_OPTIMISER_KEYS];
} petra_optimiser;

/* Returns the row of a kind. */
const petra_optimiser *petra_optimiser_of(petra_optimiser_kind kind);

/* Returns the kind with this name, which is one of petra_optimiser_names. */
petra_optimiser_kind petra_optimiser_find(const char *name);

/* The names, ended by NULL: the choices of optim.name. */
extern const char *const petra_optimiser_names[];

/* Returns the default of the key with optimiser `kind`; NULL if that optimiser has no such key. Sets *known to true if
 * any optimiser has the key. */
const char *petra_optimiser_default(petra_optimiser_kind kind, const char *path, bool *known);

/* Lists the optimisers that have the key: "sgd, muon". Returns `out`. */
const char *petra_optimiser_owners(const char *path, char *out, size_t size);
