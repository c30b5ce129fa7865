/* SPDX-License-Identifier: Apache-2.0 */
/* The states of digests by XXH64 (library xxHash), with seed 0. */
#pragma once

#include "base/status.h"

struct XXH64_state_s;

/* Creates a state that has seen no bytes; XXH64_freeState destroys it. PETRA_NO_MEMORY, logged. */
petra_status petra_xxh64_create(struct XXH64_state_s **out);
