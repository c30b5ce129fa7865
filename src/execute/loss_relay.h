/* SPDX-License-Identifier: Apache-2.0 */
/* What the last stage of an executed run has to tell, on its way to the log of rank 0: losses and evaluations. */
#ifndef PETRA_EXECUTE_LOSS_RELAY_H
#define PETRA_EXECUTE_LOSS_RELAY_H

#include "exec/stage_observer.h"
#include "group/ranks.h"

typedef struct petra_news {
  petra_stage_observer base; /* at the rank of the last stage */
  int rank;
  petra_way *way;            /* to rank 0; NULL: rank 0 has the last stage, or this is another rank */
  int64_t told, settled;     /* news sent, or heard; marks that came, less those that were waited for */
  petra_stage_observer *log; /* of rank 0 */
} petra_news;

/* Opens the way `id` from rank `last`, which has the last stage. Nothing is to be undone. */
petra_status petra_news_init(petra_news *news, petra_ranks *ranks, int last, int id);

/* The observer for the worker of the stages that are here, `log` being that of rank 0. Borrowed. */
petra_stage_observer *petra_news_observer(petra_news *news, petra_stage_observer *log);

/* Rank 0 tells its log what has come so far; on others nothing. */
petra_status petra_news_hear(petra_news *news);

/* All ranks come here at the same place of the schedule: rank 0 has told its log all that was sent before. */
petra_status petra_news_settle(petra_news *news);

#endif
