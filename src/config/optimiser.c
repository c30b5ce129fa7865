/* SPDX-License-Identifier: Apache-2.0 */
#include "config/optimiser.h"

#include <string.h>

/* clang-format off */
static const petra_optimiser optimisers[] = {
    [PETRA_OPTIMISER_SGD] = {"sgd", 1, 1, {
        {"optim.lr_scaling", "goyal"}, {"optim.momentum", "0.9"}, {"optim.nesterov", "true"}, {"optim.weight_decay", "5.0e-4"}}},
    [PETRA_OPTIMISER_ADAMW] = {"adamw", 2, 2, {
        {"optim.lr_scaling", "none"}, {"optim.beta1", "0.9"}, {"optim.beta2", "0.999"}, {"optim.epsilon", "1.0e-8"},
        {"optim.weight_decay", "0.01"}}},
    [PETRA_OPTIMISER_NADAMW] = {"nadamw", 2, 2, {
        {"optim.lr_scaling", "none"}, {"optim.beta1", "0.9"}, {"optim.beta2", "0.999"}, {"optim.epsilon", "1.0e-8"},
        {"optim.momentum_decay", "0.004"}, {"optim.weight_decay", "0.01"}}},
    [PETRA_OPTIMISER_LION] = {"lion", 1, 1, {
        {"optim.lr_scaling", "none"}, {"optim.beta1", "0.9"}, {"optim.beta2", "0.99"}, {"optim.weight_decay", "0"}}},
    [PETRA_OPTIMISER_MUON] = {"muon", 2, 1, {
        {"optim.lr_scaling", "none"}, {"optim.momentum", "0.95"}, {"optim.nesterov", "true"}, {"optim.muon_scale", "shape"},
        {"optim.beta1", "0.9"}, {"optim.beta2", "0.999"}, {"optim.epsilon", "1.0e-8"}, {"optim.adam_lr_share", "1"},
        {"optim.weight_decay", "0.1"}}},
    [PETRA_OPTIMISER_BASIS_ROTATION] = {"basis-rotation", 2, 6, {
        {"optim.lr_scaling", "none"}, {"optim.beta1", "0.9"}, {"optim.beta2", "0.999"}, {"optim.epsilon", "1.0e-8"},
        {"optim.rotation_sides", "both"}, {"optim.rotation_every", "10"}, {"optim.weight_decay", "0.01"}}},
    [PETRA_OPTIMISER_LARS] = {"lars", 1, 1, {
        {"optim.lr_scaling", "none"}, {"optim.momentum", "0.9"}, {"optim.nesterov", "false"}, {"optim.trust_coefficient", "0.02"},
        {"optim.epsilon", "1.0e-8"}, {"optim.weight_decay", "0"}}},
    [PETRA_OPTIMISER_ADAM] = {"adam", 2, 2, {
        {"optim.lr_scaling", "none"}, {"optim.beta1", "0.9"}, {"optim.beta2", "0.999"}, {"optim.epsilon", "1.0e-8"},
        {"optim.weight_decay", "0"}}},
};
/* clang-format on */
enum { OPTIMISERS = sizeof optimisers / sizeof *optimisers };

const char *const petra_optimiser_names[] = {"sgd",  "adamw", "nadamw", "lion", "muon", "basis-rotation",
                                             "lars", "adam",  NULL};

const petra_optimiser *petra_optimiser_of(petra_optimiser_kind kind) {
  return &optimisers[kind];
}

petra_optimiser_kind petra_optimiser_find(const char *name) {
  int kind = OPTIMISERS - 1;
  while (kind > 0 && strcmp(optimisers[kind].name, name) != 0)
    kind--;
  return (petra_optimiser_kind)kind;
}

static const char *default_of(const petra_optimiser *optimiser, const char *path) {
  for (const petra_optimiser_key *key = optimiser->keys; key->path; key++)
    if (strcmp(key->path, path) == 0)
      return key->default_value;
  return NULL;
}

const char *petra_optimiser_default(petra_optimiser_kind kind, const char *path, bool *known) {
  *known = false;
  for (int i = 0; i < OPTIMISERS && !*known; i++)
    *known = default_of(&optimisers[i], path) != NULL;
  return default_of(&optimisers[kind], path);
}

const char *petra_optimiser_owners(const char *path, char *out, size_t size) {
  *out = 0;
  for (int i = 0; i < OPTIMISERS; i++)
    if (default_of(&optimisers[i], path)) {
      strncat(out, *out ? ", " : "", size - strlen(out) - 1);
      strncat(out, optimisers[i].name, size - strlen(out) - 1);
    }
  return out;
}
