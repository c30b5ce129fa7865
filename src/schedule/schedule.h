/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as data: for every device the list of its actions, written out. The text has one line per device:
 *
 *   # two devices, two microbatches
 *   1: 1F0 1F1 1B0 1B1 1U1
 *   2: 2F0 2B0 2F1 2B1 2U1
 *
 * # begins a comment. | ends a round of the device (schedule/program.h); || ends a round of the whole network: nothing
 * after a device's n-th || starts until everything before the n-th || of every device has ended. A schedule uses only
 * one of the two. + joins actions into one step, "1F3+4B0". A stage is on the device that has its actions.
 *
 * The second form is the CSV of PyTorch's pipelining runtime (torch_csv.c), which has the order of one flush. */
#pragma once

#include "schedule/program.h"

#include <stdio.h>

typedef struct petra_schedule_entry {
  petra_action action;
  int64_t round;
  bool joined; /* the entry is in one step with the next entry */
} petra_schedule_entry;

struct petra_schedule {
  int32_t devices, stages;
  int64_t microbatches;            /* M: one more than the largest microbatch number of a pass */
  bool split_head, split_backward; /* the last stage has F; the schedule has W */
  /* the schedule was recorded from a local program, so no B needs the B of the stage above */
  bool local;
  bool locked; /* its rounds end with || */
  bool flush;  /* the schedule is the order of one flush, without U and E */
  /* the schedule comes from the CSV of PyTorch; messages name actions in the form of this CSV */
  bool torch;
  /* number of passes of the last stage that compute a loss: its F or, if it has no F, its B */
  int64_t losses;
  int32_t *device_of; /* device of each stage, from 1 */
  /* index in `entries` of the first entry of each device (from 0); has devices + 1 elements */
  int64_t *first;
  petra_schedule_entry *entries;
  /* Runs the schedule, with the options of petra_schedule_options. Its moment is NONE until petra_schedule_find_moment
   * is called. */
  petra_program_ops program;
};

/* Returns true if the text is a schedule: its first line that is not blank or a comment begins with a number and ':',
 * or is a line of the CSV of PyTorch. */
bool petra_schedule_recognise(const char *text, size_t size);

/* Parses a schedule; `name` stands for the file in error lines. Errors: PETRA_SCHEDULE, logged as "NAME:LINE: ...". */
petra_status petra_schedule_parse(const char *name, const char *text, size_t size, petra_schedule **out);

/* Checks that a schedule can run by following its orders without time, each device as far as its messages allow.
 * Detects an action whose input nobody produces, a duplicate action, a stage on the wrong device, B before its F, W
 * before its B or missing, E that other stages lack, U that covers no microbatch or other microbatches than it states,
 * and a deadlock, also by rounds of the whole network. Errors: PETRA_SCHEDULE, logged as "NAME: device 2, action 3
 * (2B0): reason". */
petra_status petra_schedule_check(const petra_schedule *schedule, const char *name);

/* Writes out the orders of a program. Errors: PETRA_UNSUPPORTED, logged, for a program without orders (`arrival`). */
petra_status petra_schedule_record(const petra_program_ops *program, const petra_program_options *options,
                                   petra_schedule **out);

/* Prints one line per device. Errors: PETRA_IO if `out` cannot be written. */
petra_status petra_schedule_print(const petra_schedule *schedule, FILE *out);

/* A schedule under construction: its devices in order, with their entries. Initialise it with zeros, except for members
 * that the entries do not determine, such as `flush`, and end with petra_schedule_finish. */
typedef struct petra_schedule_builder {
  petra_schedule schedule;
  int64_t entries, entries_max, devices_max;
} petra_schedule_builder;

petra_status petra_schedule_add_device(petra_schedule_builder *builder);
petra_status petra_schedule_add(petra_schedule_builder *builder, petra_schedule_entry entry);
/* Sets the members that follow from the entries, unless `status` says that an entry could not be added. Returns the
 * first failure. *out is the schedule, or NULL after an error: PETRA_SCHEDULE, logged, for numbers with gaps. `name`
 * stands for the file in error lines and is the name of the program. */
petra_status petra_schedule_finish(petra_schedule_builder *builder, petra_status status, const char *name,
                                   petra_schedule **out);

/* The CSV of PyTorch, in torch_csv.c. A line is a rank. A cell is an action such as 0F0, 0I0, 0W0 or 0B0, or a pair
 * (0F0;1B1)OVERLAP_F_B; empty cells and communication are skipped. Stages and ranks count from 0. */
bool petra_torch_csv_recognise(const char *text, size_t size);
petra_status petra_torch_csv_parse(const char *name, const char *text, size_t size, petra_schedule **out);

/* Prints the schedule's F, B and W in the form of this CSV. Errors: PETRA_SCHEDULE, logged, if the schedule is not
 * synchronous, with all updates at its end; PETRA_IO. */
petra_status petra_torch_csv_print(const petra_schedule *schedule, FILE *out);

/* `next` of a program whose options->data has the order of one flush of accumulate microbatches. A smaller last flush
 * omits the microbatches that it does not have. After the last action of a flush come U and E of each stage of the
 * device; any other E follows the step of its B. */
bool petra_flush_list_next(const petra_program_options *options, int32_t device, petra_cursor *cursor,
                           petra_action *out, int64_t *round);

/* Logs what is wrong with an entry, "NAME: device 2, action 3 (2B0): reason", for a CSV "NAME:2: 1B0: reason", and
 * returns PETRA_SCHEDULE. */
petra_status petra_schedule_refuse(const petra_schedule *schedule, const char *name, int64_t entry, const char *format,
                                   ...) __attribute__((format(printf, 4, 5)));

/* Writes the action in the form of the file from which the schedule comes; 40 bytes are enough. Returns `text`. */
const char *petra_schedule_action_text(const petra_schedule *schedule, const petra_action *action, char *text,
                                       size_t size);

/* Returns the device, from 1, that has the entry. */
int32_t petra_schedule_device(const petra_schedule *schedule, int64_t entry);

/* Returns the options with which schedule->program runs the schedule; the options refer to the schedule. */
petra_program_options petra_schedule_options(const petra_schedule *schedule);

void petra_schedule_destroy(petra_schedule *schedule);
PETRA_DESTROYS(petra_schedule_destroy, petra_schedule)

/* The requirements of a schedule that passed petra_schedule_check on its executor (examine.c). */

/* The largest counts between the forward and the backward of a microbatch at a stage, over its microbatches. */
typedef struct petra_schedule_distance {
  int64_t lag;   /* number of updates of the stage */
  int64_t delay; /* number of later forwards of the stage */
} petra_schedule_distance;

/* Computes the distances of every stage (schedule->stages of them, from 0). A fused last stage has 0 and 0. */
petra_status petra_schedule_distances(const petra_schedule *schedule, petra_schedule_distance *out);

/* Determines the moment "when a backward runs" (schedule/program.h) and stores it in schedule->program.moment. It is
 * the moment of `own`, the program that the schedule replaces, if the schedule has its order; else WINDOW if every pass
 * of microbatch m comes after floor(m / accumulate) updates of its stage; else the moment of another program with this
 * order; else NONE. Two orders are the same if every device does the same F, B, W and U one after the other, drained or
 * not; rounds and E may differ. CLOCK becomes NONE, because the schedule does not have the times of its actions. */
petra_status petra_schedule_find_moment(petra_schedule *schedule, const petra_program_ops *own, int64_t accumulate);

/* Checks that real stages can run the schedule with these options: stage 1 reads the microbatches in the order of their numbers, from 0;
 * every U covers k of them, and no U is missing; with a double buffer F reads the latest weights or the weights before
 * the latest update; there is an E at the end of each epoch with an evaluation, and no other E. Errors: PETRA_SCHEDULE,
 * logged as "NAME: device 2, action 3 (2B0): reason". */
petra_status petra_schedule_check_training(const petra_schedule *schedule, const char *name,
                                           const petra_program_options *options, bool double_buffer);
