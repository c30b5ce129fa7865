/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: measures how long a rank takes to pack tensors into messages and to unpack them. */
#pragma once

#include "backend/backend.h"

/* Measures the seconds of each repetition for tensors of `bytes` bytes in the host's order. Each repetition uses other
 * tensors and messages, so many that they leave the same caches as in a run. */
petra_status petra_profile_measure_copies(petra_backend *backend, int64_t bytes, int warmup, int repetitions,
                                          double *pack_s, double *unpack_s);
