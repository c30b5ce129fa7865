/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: zeroed, aligned to 64 bytes (a cache line, an AVX-512 vector), in huge pages where it holds whole ones and the
 * kernel gives them; with a hook that lets tests make an allocation fail. */
#ifndef PETRA_BASE_MEM_H
#define PETRA_BASE_MEM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PETRA_HUGE_BYTES = 1 << 21 }; /* a huge page of x86, and of ARM with pages of 4 KiB */

/* Allocates count * size zeroed bytes and stores the address in *out, where out is the address of any object pointer
 * (`petra_allocate(&p, n, sizeof *p)`). count * size = 0 gives a unique address. On failure logs, leaves *out as it
 * was and returns PETRA_NO_MEMORY. Free with petra_free. */
petra_status petra_allocate(void *out, size_t count, size_t size);

/* The same without zeroing, for large buffers that are overwritten at once. */
petra_status petra_allocate_raw(void *out, size_t count, size_t size);

/* A copy of a string or of the first `length` bytes of it. */
petra_status petra_duplicate_string(char **out, const char *text);

/* Libraries crash where memory runs out within them: PETRA_NO_MEMORY, logged, unless there is as much as their functions
 * take for themselves, and `bytes` more. To be asked before they are called. */
enum { PETRA_RESERVE_BYTES = 32 << 20 };
petra_status petra_reserve(size_t bytes);

/* Makes room for `need` elements of `size` bytes in an array that grows. `array` is the address of any object pointer, NULL
 * where *capacity is 0; what is in it moves, at least doubled in size, into zeroed memory. On failure logs, leaves both as
 * they were and returns PETRA_NO_MEMORY. */
petra_status petra_array_reserve(void *array, int64_t *capacity, int64_t need, size_t size);

/* Frees what the functions above gave; NULL is allowed. */
void petra_free(void *memory);

/* For tests: `hook` is asked before every allocation; it answers true to make it fail. NULL removes it. */
typedef bool (*petra_mem_hook)(void *context, size_t bytes);
void petra_mem_set_hook(petra_mem_hook hook, void *context);

/* A memory account: bytes held now and at the peak, by category. One per stage; every tensor names the account and
 * the category that it counts under. Logged as /memory/peak_bytes. */

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
