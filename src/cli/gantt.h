/* A chart of a schedule under unit costs: a row a device (two with two engines), a column a unit of time. */
#ifndef PETRA_CLI_GANTT_H
#define PETRA_CLI_GANTT_H

#include "schedule/schedule.h"

/* Runs the schedule on the virtual executor and draws it, in pieces of at most 120 characters a line. */
petra_status petra_gantt_print(const petra_schedule *schedule, bool recomputes, int engines, FILE *out);

#endif
