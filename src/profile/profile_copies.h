/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: what a rank takes to make messages of tensors, and tensors of messages. */
#pragma once

#include "backend/backend.h"

/* Seconds of each repetition for tensors of `bytes` bytes in the host's order. Tensors and messages are others each time, so
 * many that in between they leave the caches that they leave in a run. */
petra_status petra_profile_measure_copies(petra_backend *backend, int64_t bytes, int warmup, int repetitions,
                                          double *pack_s, double *unpack_s);
