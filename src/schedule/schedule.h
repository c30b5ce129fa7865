/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as data: for every device the list of its actions, written out. As text one line a device,
 *
 *   # two devices, two microbatches
 *   1: 1F0 1F1 1B0 1B1 1U1
 *   2: 2F0 2B0 2F1 2B1 2U1
 *
 * where # begins a comment and | ends a round (schedule/program.h), || one of the whole network: nothing behind a
 * device's n-th || starts before everything before the n-th || of every device has ended. There is one kind of them in
 * a schedule. Stage s is on device (s - 1) mod D + 1. */
#pragma once

#include "schedule/program.h"

#include <stdio.h>

typedef struct petra_schedule_entry {
  petra_action action;
  int64_t round;
} petra_schedule_entry;

typedef struct petra_schedule {
  int32_t devices, stages;
  int64_t microbatches;            /* M: one more than the largest number of a pass */
  bool split_head, split_backward; /* the last stage has F; there are W */
  bool locked;                     /* its rounds end with || */
  int64_t losses;                  /* passes of the last stage that compute a loss: its F or, without it, its B */
  int64_t *first;                  /* of the devices, from 0, in `entries`; devices + 1 of them */
  petra_schedule_entry *entries;
  /* Runs it; petra_schedule_options gives the options. Its moment is NONE until petra_schedule_find_moment
   * (schedule/examine.h). */
  petra_program_ops program;
} petra_schedule;

/* Returns true if the text is a schedule: its first line that is not blank or a comment begins with a number and
 * ':'. */
bool petra_schedule_recognise(const char *text, size_t size);

/* Parses a schedule; `name` stands for the file in error lines. Errors: PETRA_SCHEDULE, logged as "NAME:LINE: ...". */
petra_status petra_schedule_parse(const char *name, const char *text, size_t size, petra_schedule **out);

/* Checks that a schedule can run by following its orders without time, each device as far as its messages allow.
 * Detects an action whose input nobody produces, a duplicate action, a stage on the wrong device, B before its F, W
 * before its B or missing, E that other stages lack, U that covers nothing or not what it says, and a deadlock, also by
 * rounds of the whole network. Errors: PETRA_SCHEDULE, logged as "NAME: device 2, action 3 (2B0): reason". */
petra_status petra_schedule_check(const petra_schedule *schedule, const char *name);

/* Writes out the orders of a program. Errors: PETRA_UNSUPPORTED, logged, for a program without orders (`arrival`). */
petra_status petra_schedule_record(const petra_program_ops *program, const petra_program_options *options,
                                   petra_schedule **out);

/* Prints one line per device. Errors: PETRA_IO if `out` cannot be written. */
petra_status petra_schedule_print(const petra_schedule *schedule, FILE *out);

/* Logs what is wrong with an entry, "NAME: device 2, action 3 (2B0): reason", and returns PETRA_SCHEDULE. */
petra_status petra_schedule_refuse(const petra_schedule *schedule, const char *name, int64_t entry, const char *format,
                                   ...) __attribute__((format(printf, 4, 5)));

/* Returns the device, from 1, that has the entry. */
int32_t petra_schedule_device(const petra_schedule *schedule, int64_t entry);

/* Returns the options with which schedule->program runs the schedule; they refer to it. */
petra_program_options petra_schedule_options(const petra_schedule *schedule);

void petra_schedule_destroy(petra_schedule *schedule);
