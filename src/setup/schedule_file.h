/* SPDX-License-Identifier: Apache-2.0 */
/* Files with a schedule: distinguished from configs by their contents, read, checked. The log of a run (run.h5) that
 * recorded its actions is one, too: the order in which each stage did them. */
#pragma once

#include "schedule/schedule.h"

/* A file, pipe or ("-") standard input that may contain a schedule or a config. */
typedef struct petra_schedule_text {
  char *text; /* free with petra_free; NULL if the file cannot be opened */
  size_t size;
  bool is_schedule; /* result of petra_schedule_recognise */
} petra_schedule_text;

/* Reads the file once. It reads a schedule to its end, and of anything else at most one byte more than a config may
 * have. The reader of configs reports a file that cannot be opened. PETRA_IO if reading fails, PETRA_SCHEDULE for a
 * schedule of more than 2^30 bytes. */
petra_status petra_schedule_file_peek(const char *path, petra_schedule_text *out);

/* Returns the name of the file for error messages. */
const char *petra_schedule_file_name(const char *path);
