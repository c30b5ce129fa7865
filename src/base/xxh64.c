/* SPDX-License-Identifier: Apache-2.0 */
#include "base/xxh64.h"

#include "base/log.h"

#include <xxhash.h>

petra_status petra_xxh64_create(XXH64_state_t **out) {
  XXH64_state_t *state = XXH64_createState();
  if (!state)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: xxHash");
  XXH64_reset(state, 0);
  *out = state;
  return PETRA_OK;
}
