/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a file that a library may crash on: HDF5 trusts the addresses and sizes in a file, and one that others made,
 * or that a crash left, may hold any. A file with a seal (base/seal.h) is what petra wrote; any other is read in a child
 * process first, with little memory and time. */
#pragma once

#include "base/status.h"

/* Checks the seal and that libraries have memory (petra_reserve). Calls read(context): for a file without a seal first
 * in a forked child and, where that came to a good end, here. What the child logged is logged, with its status, where
 * it failed; PETRA_DATA where it crashed, or took more memory or time than a file of this size can ask for. `read`
 * calls no OpenMP region and waits for no other thread. */
petra_status petra_guard(const char *path, petra_status (*read)(void *context), void *context);
