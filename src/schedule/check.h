/* Whether a schedule can run: its orders are followed without time, each device as far as its messages allow.
 */
#ifndef PETRA_SCHEDULE_CHECK_H
#define PETRA_SCHEDULE_CHECK_H

#include "schedule/schedule.h"

/* The first action that is wrong. */
typedef struct petra_schedule_fault {
  int32_t device;   /* from 1 */
  int64_t position; /* from 1, in the device's list */
  petra_action action;
  char reason[200];
} petra_schedule_fault;

/* Finds an action whose input nobody produces, one that is there twice, a stage on the wrong device, B before its F,
 * W before its B or missing, E that other stages lack, U that covers nothing or something else than it says, and a
 * deadlock, be it by rounds of the whole network. PETRA_SCHEDULE, logged as "NAME: device 2, action 3 (2B0): reason",
 * with *fault (may be NULL). */
petra_status petra_schedule_check(const petra_schedule *schedule, const char *name, petra_schedule_fault *fault);

#endif
