/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a tick goes: the operations of a backend, each timed as a whole. */
#pragma once

#include "backend/backend.h"

/* From now on the backend's operations are timed, while that is switched on (bench_operations_time); before it computes. One
 * backend, with one lane, and until it is destroyed. */
void bench_operations_watch(petra_backend *backend);

/* Switches the clock on and off. What lies between on and off is the time that operations are parts of. */
void bench_operations_time(bool on);

/* A row an operation that was called: calls, ms by the wall clock and ms of core time (of all threads of the process, waiting
 * without sleep included), each over `ticks`; then what is between operations. */
void bench_operations_print(int ticks);
