/* Whether a schedule can run: its orders are followed without time, each device as far as its messages allow. */
#ifndef PETRA_SCHEDULE_CHECK_H
#define PETRA_SCHEDULE_CHECK_H

#include "schedule/schedule.h"

/* Finds an action whose input nobody produces, one that is there twice, a stage on the wrong device, B before its F,
 * W before its B or missing, E that other stages lack, U that covers nothing or something else than it says, and a
 * deadlock, be it by rounds of the whole network. PETRA_SCHEDULE, logged as "NAME: device 2, action 3 (2B0): reason". */
petra_status petra_schedule_check(const petra_schedule *schedule, const char *name);

#endif
