/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include "base/log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT_BYTES = 64, ARRAY_LEAST = 16 };

static petra_mem_hook mem_hook; /* set by tests only */
static void *mem_hook_context;

void petra_mem_set_hook(petra_mem_hook hook, void *context) {
  mem_hook = hook;
  mem_hook_context = context;
}

/* With small pages, passes over large tensors wait for the translation of addresses (bench/NOTES.md). Only huge pages
 * that lie within the memory are requested. Memory that began at a huge page would leave a gap of up to a huge page
 * before the next block. The gap would cost address space, and also resident memory if the kernel makes every possible
 * page huge, because the allocator writes into the gap. */
static void request_huge_pages(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const size_t before = (size_t)(-(uintptr_t)memory % PETRA_HUGE_BYTES);
  if (before < bytes && bytes - before >= PETRA_HUGE_BYTES)
    madvise((char *)memory + before, (bytes - before) / PETRA_HUGE_BYTES * PETRA_HUGE_BYTES,
            MADV_HUGEPAGE); /* may fail */
#else
  (void)memory, (void)bytes;
#endif
}

petra_status petra_allocate_raw(void *out, size_t count, size_t size) {
  void *memory = NULL;
  size_t bytes = count * size;
  bool overflow = size != 0 && count > (SIZE_MAX - ALIGNMENT_BYTES) / size;
  if (!overflow) {
    size_t rounded = (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    if (rounded == 0)
      rounded = ALIGNMENT_BYTES;
    if (!mem_hook || !mem_hook(mem_hook_context, bytes))
      memory = aligned_alloc(ALIGNMENT_BYTES, rounded);
  }
  if (!memory)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: %zu x %zu bytes could not be allocated", count, size);
  request_huge_pages(memory, bytes);
  memcpy(out, &memory, sizeof memory);
  return PETRA_OK;
}

petra_status petra_allocate(void *out, size_t count, size_t size) {
  void *memory = NULL;
  PETRA_TRY(petra_allocate_raw(&memory, count, size));
  memset(memory, 0, count * size);
  memcpy(out, &memory, sizeof memory);
  return PETRA_OK;
}

/* Reserves address space instead of heap memory: code that is compiled at run time (oneDNN) cannot use the heap. */
petra_status petra_reserve(size_t bytes) {
  size_t size = bytes < SIZE_MAX - PETRA_RESERVE_BYTES ? bytes + PETRA_RESERVE_BYTES : SIZE_MAX;
  void *room = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: could not reserve %zu bytes for a library", size);
  munmap(room, size);
  return PETRA_OK;
}

void petra_free_local(void *pointer) {
  void *memory;
  memcpy(&memory, pointer, sizeof memory);
  petra_free(memory);
}

void *petra_take(void *pointer) {
  void *memory, *none = NULL;
  memcpy(&memory, pointer, sizeof memory);
  memcpy(pointer, &none, sizeof none);
  return memory;
}

petra_status petra_duplicate_string(char **out, const char *text) {
  size_t length = strlen(text) + 1;
  PETRA_TRY(petra_allocate_raw(out, length, 1));
  memcpy(*out, text, length);
  return PETRA_OK;
}

void petra_free(void *memory) {
  free(memory);
}

void petra_free_list(void *const *memory, size_t count) {
  for (size_t i = 0; i < count; i++)
    petra_free(memory[i]);
}

petra_status petra_array_reserve(void *array, int64_t *capacity, int64_t need, size_t size) {
  void *old, *larger;
  int64_t doubled = *capacity > INT64_MAX / 2 ? INT64_MAX : 2 * *capacity;
  int64_t wanted = doubled > ARRAY_LEAST ? doubled : ARRAY_LEAST;
  if (need <= *capacity)
    return PETRA_OK;
  wanted = need > wanted ? need : wanted;
  PETRA_TRY(petra_allocate(&larger, (size_t)wanted, size));
  memcpy(&old, array, sizeof old);
  if (old)
    memcpy(larger, old, (size_t)*capacity * size);
  petra_free(old);
  memcpy(array, &larger, sizeof larger);
  *capacity = wanted;
  return PETRA_OK;
}

const char *petra_memory_category_name(petra_memory_category category) {
  static const char *const names[] = {
#define PETRA_MEMORY_NAME(name, text) text,
      PETRA_MEMORY_LIST(PETRA_MEMORY_NAME)
#undef PETRA_MEMORY_NAME
  };
  return category >= 0 && category < PETRA_MEMORY_CATEGORIES ? names[category] : "?";
}

void petra_account_add(petra_account *account, petra_memory_category category, int64_t bytes) {
  if (!account)
    return;
  account->bytes[category] += bytes;
  account->total_bytes += bytes;
  assert(account->bytes[category] >= 0);
  if (account->bytes[category] > account->peak_bytes[category])
    account->peak_bytes[category] = account->bytes[category];
  if (account->total_bytes > account->total_peak_bytes)
    account->total_peak_bytes = account->total_bytes;
}
