/* SPDX-License-Identifier: Apache-2.0 */
/* A chart of a schedule under unit costs: a row a device (two with two engines), a column a unit of time. */
#ifndef PETRA_CLI_GANTT_H
#define PETRA_CLI_GANTT_H

#include "schedule/schedule.h"

/* PETRA_USAGE, logged, for a chart that no screen holds: more than 100,000 cells. */
petra_status petra_gantt_check(int64_t rows, int64_t units);

/* Runs the schedule on the virtual executor and draws it, in pieces of at most 120 characters a line; refuses as petra_gantt_check does,
 * before it runs where the number of actions tells. */
petra_status petra_gantt_print(const petra_schedule *schedule, bool recomputes, int engines, FILE *out);

#endif
