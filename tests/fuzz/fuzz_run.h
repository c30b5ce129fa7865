/* SPDX-License-Identifier: Apache-2.0 */
/* A checked schedule on the virtual executor. */
#pragma once

#include "schedule/schedule.h"

#include <stddef.h>

/* Runs it with one and with two engines a device, with durations and a network drawn from the bytes, and aborts
 * unless it ends, every action ran once and waited for what it must wait for (schedule/program.h), and the worker
 * counted what a plain count of microbatches in flight gives. Quadratic in the number of actions. */
void petra_fuzz_run(const petra_schedule *schedule, const uint8_t *data, size_t size);
