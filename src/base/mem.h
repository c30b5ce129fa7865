/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory, zeroed and aligned to 64 bytes (a cache line, an AVX-512 vector). Large blocks use huge pages if the
 * kernel provides them. A hook lets tests make an allocation fail. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PETRA_HUGE_BYTES = 1 << 21 }; /* a huge page of x86, and of ARM with pages of 4 KiB */

/* Allocates count * size zeroed bytes and stores the address in *out; `out` is the address of any object pointer
 * (`petra_allocate(&p, n, sizeof *p)`). count * size = 0 gives a unique address. On failure logs, leaves *out unchanged
 * and returns PETRA_NO_MEMORY. Free with petra_free. */
petra_status petra_allocate(void *out, size_t count, size_t size);

/* Like petra_allocate without zeroing, for large buffers that are overwritten immediately. */
petra_status petra_allocate_raw(void *out, size_t count, size_t size);

/* Put this before a local pointer that is initialised: it frees the memory at the end of its block. */
#define PETRA_FREED __attribute__((cleanup(petra_free_local)))
void petra_free_local(void *pointer);

/* Returns the value of the local pointer at this address and sets it to NULL, so that the end of its block frees
 * nothing. */
void *petra_take(void *pointer);

/* Copies a string. */
petra_status petra_duplicate_string(char **out, const char *text);

/* Returns PETRA_NO_MEMORY, logged, unless `bytes` more than the working memory of a library's functions are available.
 * Call it before such functions: libraries crash if they run out of memory. */
enum { PETRA_RESERVE_BYTES = 32 << 20 };
petra_status petra_reserve(size_t bytes);

/* Makes room for `need` elements of `size` bytes in a growing array. `array` is the address of any object pointer, NULL
 * if *capacity is 0. The contents move into zeroed memory of at least twice the size. On failure logs, leaves both
 * unchanged and returns PETRA_NO_MEMORY. */
petra_status petra_array_reserve(void *array, int64_t *capacity, int64_t need, size_t size);

/* Frees memory from the functions above; NULL is allowed. */
void petra_free(void *memory);

/* Frees each of its arguments, in their order. */
#define PETRA_FREE_ALL(...)                                                                                            \
  petra_free_list((void *const[]){__VA_ARGS__}, sizeof((void *const[]){__VA_ARGS__}) / sizeof(void *))
void petra_free_list(void *const *memory, size_t count);

/* For tests: calls `hook` before every allocation, which fails if the hook returns true. NULL removes the hook. */
typedef bool (*petra_mem_hook)(void *context, size_t bytes);
void petra_mem_set_hook(petra_mem_hook hook, void *context);

/* A memory account: the current and the peak number of bytes by category. There is one per stage; every tensor names
 * the account and the category to which it belongs. Logged as /memory/peak_bytes. */

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
  int64_t bytes[PETRA_MEMORY_CATEGORIES];      /* current */
  int64_t peak_bytes[PETRA_MEMORY_CATEGORIES]; /* maximum of the category */
  int64_t total_bytes;                         /* current sum over the categories */
  int64_t total_peak_bytes;                    /* maximum of the sum over the categories */
} petra_account;

/* Returns the name of a category in files: "parameters", ... */
const char *petra_memory_category_name(petra_memory_category category);

/* Adds `bytes`, which are negative when memory is released. If `account` is NULL, nothing is counted. */
void petra_account_add(petra_account *account, petra_memory_category category, int64_t bytes);
