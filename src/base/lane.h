/* SPDX-License-Identifier: Apache-2.0 */
/* What the calling thread does its present piece of work with, where several threads do pieces side by side: its number,
 * and where it puts what others must not see yet. Bound to the thread, as the number of OpenMP's threads is; the only
 * state of the program that is not passed by argument. */
#ifndef PETRA_BASE_LANE_H
#define PETRA_BASE_LANE_H

struct petra_journal;

enum { PETRA_LANE_LINE = 2048 };

typedef struct petra_lane {
  int number; /* from 0, which is that of every thread that is in no crew */
  struct petra_journal
      *journal;  /* of the action that is being done (backend/journal.h); NULL: changes are seen at once */
  char *failure; /* room of PETRA_LANE_LINE bytes for the line of the first failure; NULL: it is written at once */
} petra_lane;

/* Of the calling thread; the caller may change it. */
petra_lane *petra_lane_here(void);

#endif
