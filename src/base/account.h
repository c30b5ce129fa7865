/* SPDX-License-Identifier: Apache-2.0 */
/* A memory account: bytes held now and at the peak, by category. One per stage; every tensor names the account and
 * the category that it counts under. Logged as /memory/peak_bytes. */
#ifndef PETRA_BASE_ACCOUNT_H
#define PETRA_BASE_ACCOUNT_H

#include <stdint.h>

/* X(NAME, name in files) */
#define PETRA_MEMORY_LIST(X)                                                                                           \
  X(PARAMETERS, "parameters")                                                                                          \
  X(GRADIENTS, "gradients")                                                                                            \
  X(MOMENTUM, "momentum")                                                                                              \
  X(STATISTICS, "statistics")                                                                                          \
  X(INPUT_BUFFER, "input_buffer")                                                                                      \
  X(WEIGHT_BUFFER, "weight_buffer")                                                                                    \
  X(GRAPH, "graph")                                                                                                    \
  X(MESSAGES, "messages")                                                                                              \
  X(WORKSPACE, "workspace")

typedef enum petra_memory_category {
#define PETRA_MEMORY_ENUM(name, text) PETRA_MEMORY_##name,
  PETRA_MEMORY_LIST(PETRA_MEMORY_ENUM)
#undef PETRA_MEMORY_ENUM
      PETRA_MEMORY_CATEGORIES
} petra_memory_category;

typedef struct petra_account {
  int64_t bytes[PETRA_MEMORY_CATEGORIES];      /* held now */
  int64_t peak_bytes[PETRA_MEMORY_CATEGORIES]; /* most ever held in the category */
  int64_t total_bytes;                         /* sum over the categories, now */
  int64_t total_peak_bytes;                    /* most ever held in all categories together */
} petra_account;

/* Name of a category in files: "parameters", ... */
const char *petra_memory_category_name(petra_memory_category category);

/* Adds `bytes` (negative: gives back). `account` may be NULL: nothing is counted. */
void petra_account_add(petra_account *account, petra_memory_category category, int64_t bytes);

#endif
