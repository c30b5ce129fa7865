/* Arrays that grow: a pointer, a capacity, and whatever the owner counts by. */
#ifndef PETRA_BASE_ARRAY_H
#define PETRA_BASE_ARRAY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Makes room for `need` elements of `size` bytes. `array` is the address of any object pointer, NULL where *capacity is
 * 0; what is in it moves, at least doubled in size, into zeroed memory of petra_allocate. On failure logs, leaves both
 * as they were and returns PETRA_NO_MEMORY. */
petra_status petra_array_reserve(void *array, int64_t *capacity, int64_t need, size_t size);

#endif
