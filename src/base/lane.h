/* SPDX-License-Identifier: Apache-2.0 */
/* The context of the calling thread when several threads work side by side: its number, and buffers for effects that
 * other threads must not see yet. It is thread-local, like OpenMP's number of threads, and the only state of the
 * program that is not passed by argument. */
#pragma once

struct petra_journal;

enum { PETRA_LANE_LINE = 2048 };

typedef struct petra_lane {
  int number; /* from 0, which is also the number of every thread outside a pool */
  struct petra_journal
      *journal; /* journal of the current action (backend/journal.h); NULL: changes take effect immediately */
  /* Buffer of PETRA_LANE_LINE bytes for the line of the first failure; NULL: it is written immediately. */
  char *failure;
} petra_lane;

/* Returns the lane of the calling thread, which the caller may change. */
petra_lane *petra_lane_here(void);
