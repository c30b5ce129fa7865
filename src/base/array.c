#include "base/array.h"

#include "base/mem.h"

#include <string.h>

enum { LEAST = 16 };

petra_status petra_array_reserve(void *array, int64_t *capacity, int64_t need, size_t size) {
  void *old, *larger;
  int64_t doubled = *capacity > INT64_MAX / 2 ? INT64_MAX : 2 * *capacity;
  int64_t wanted = doubled > LEAST ? doubled : LEAST;
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
