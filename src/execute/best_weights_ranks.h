/* SPDX-License-Identifier: Apache-2.0 */
/* run.keep: best in an executed run. At each evaluation every rank copies the weights of its stages to the host, before anybody knows
 * what came out; the rank of the last stage tells the others, which wait for nothing meanwhile, and each keeps or drops its copy by
 * the same rule. Where all ranks meet (checkpoints and the end) those of the best evaluation go to rank 0, which writes best.h5. */
#ifndef PETRA_EXECUTE_BEST_WEIGHTS_RANKS_H
#define PETRA_EXECUTE_BEST_WEIGHTS_RANKS_H

#include "execute/best_weights.h"

typedef struct petra_best_ranks petra_best_ranks;

/* Of a network with its placement; `best` is rank 0's, NULL on the others. `way`: the number of the ways from the rank of the last
 * stage (group/progress_thread.h). Borrowed. Replicas other than 0 do not evaluate, and have nothing to keep. */
petra_status petra_best_ranks_create(const petra_network *network, petra_best *best, int way, petra_best_ranks **out);
void petra_best_ranks_destroy(petra_best_ranks *ranks); /* NULL is allowed */

/* For the worker of the stages that are here. */
petra_stage_observer *petra_best_ranks_observer(petra_best_ranks *ranks);

/* In a run that goes on, at all ranks, before the first action: what rank 0's files have. */
petra_status petra_best_ranks_resume(petra_best_ranks *ranks);

/* Takes what the rank of the last stage has told; between actions. */
petra_status petra_best_ranks_hear(petra_best_ranks *ranks);

/* At all ranks, at the same place of the schedule: best.h5 has the weights of the best evaluation so far. */
petra_status petra_best_ranks_save(petra_best_ranks *ranks);

#endif
