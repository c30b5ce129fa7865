/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON objects of petra schedule --json (docs/plan-format.md). */
#pragma once

#include "record/replay.h"

/* Prints the plan of a training. `schedule` has the orders of its devices; NULL: the program has none, and a device does
 * its actions in the order in which they start. */
petra_status petra_plan_print_json(const petra_replay *replay, const petra_schedule *schedule, FILE *out);

/* Prints what a schedule without a config has of it. */
petra_status petra_schedule_print_json(const petra_schedule *schedule, FILE *out);
