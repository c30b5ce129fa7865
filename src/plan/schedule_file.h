/* SPDX-License-Identifier: Apache-2.0 */
/* Files with a schedule: told from configs by what they hold, read, checked. The log of a run (run.h5) that recorded
 * its actions is one too: the order in which each stage did them. */
#pragma once

#include "schedule/schedule.h"

/* A file, pipe or ("-") standard input that may be a schedule or a config. */
typedef struct petra_schedule_text {
  char *text; /* free with petra_free; NULL if the file cannot be opened */
  size_t size;
  bool is_schedule; /* petra_schedule_recognise */
} petra_schedule_text;

/* Reads the file once, to its end if it is a schedule; of anything else up to one byte more than a config may have.
 * A file that cannot be opened is left to whoever reads configs. PETRA_IO if reading fails, PETRA_SCHEDULE for a
 * schedule of more than 2^30 bytes. */
petra_status petra_schedule_file_peek(const char *path, petra_schedule_text *out);

/* What stands for the file in error lines. */
const char *petra_schedule_file_name(const char *path);

/* Reads and checks a schedule. PETRA_IO; PETRA_SCHEDULE, naming line or action. */
petra_status petra_schedule_file_read(const char *path, petra_schedule **out);
