/* SPDX-License-Identifier: Apache-2.0 */
/* The optimisers by name (optim.name): the one table of what each keeps and which keys of the config it has. What each
 * computes: nn/optim.h; docs/semantics/optimiser.md. */
#ifndef PETRA_CONFIG_OPTIMISER_H
#define PETRA_CONFIG_OPTIMISER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum petra_optimiser_kind {
  PETRA_OPTIMISER_SGD,
  PETRA_OPTIMISER_ADAMW,
  PETRA_OPTIMISER_NADAMW,
  PETRA_OPTIMISER_LION,
  PETRA_OPTIMISER_MUON,
  PETRA_OPTIMISER_BASIS_ROTATION
} petra_optimiser_kind;

enum {
  PETRA_OPTIMISER_STATES = 6, /* most tensors that an optimiser keeps of a parameter */
  PETRA_OPTIMISER_KEYS = 10   /* most keys of one, the NULL behind them included */
};

typedef struct petra_optimiser_key {
  const char *path;          /* of the config */
  const char *default_value; /* as YAML */
} petra_optimiser_key;

typedef struct petra_optimiser {
  const char *name;
  int states;        /* tensors that are kept of a parameter: 0 .. states - 1 */
  int matrix_states; /* the same of a weight that the optimiser takes as a matrix (petra_optim_takes_matrix) */
  petra_optimiser_key keys[PETRA_OPTIMISER_KEYS]; /* that it has beside those of every optimiser; ended by NULL */
} petra_optimiser;

/* The row of a kind. */
const petra_optimiser *petra_optimiser_of(petra_optimiser_kind kind);

/* That of a name, which is one of petra_optimiser_names. */
petra_optimiser_kind petra_optimiser_find(const char *name);

/* The names, ended by NULL: the choices of optim.name. */
extern const char *const petra_optimiser_names[];

/* The default of the key with optimiser `kind`: NULL where that optimiser has no such key. *some: whether any has. */
const char *petra_optimiser_default(petra_optimiser_kind kind, const char *path, bool *some);

/* "sgd, muon": the names of those that have the key. Returns `out`. */
const char *petra_optimiser_owners(const char *path, char *out, size_t size);

#endif
