/* SPDX-License-Identifier: Apache-2.0 */
/* run.keep: best. Keeps the weights of the evaluation with the highest top-1 accuracy or, of tokens, with the lowest
 * mean loss, the first of equals. They are in best.h5 of the run's folder until the run is complete, then in
 * weights.h5.
 *
 * One process writes them as soon as the evaluation is done. In an executed run every process copies the weights of its
 * stages to the host at each evaluation, before it knows the result. When the result arrives it keeps or drops
 * its copy by the same rule; nobody waits for it. At a checkpoint, and at the end, all ranks send the copies of the best
 * evaluation to rank 0, which writes best.h5. Replicas other than 0 do not evaluate, and
 * keep nothing. */
#pragma once

#include "config/config.h"
#include "exec/stage_observer.h"
#include "exec/network.h"

typedef struct petra_best petra_best;

#define PETRA_BEST_FILE "best.h5"

/* Call this on all ranks of the network. `folder` is the folder of the run in the process that writes it, else NULL;
 * it is not changed yet. A resumed run has `logged` epochs and starts from its best.h5, or from weights.h5 if a complete run
 * becomes longer; -1: a run begins. PETRA_CONFIG if the file contains the weights of an epoch that the run does not
 * reach. PETRA_DATA if neither file exists, but there was an evaluation. All arguments are borrowed. */
petra_status petra_best_create(const petra_network *network, const char *folder, int64_t logged, petra_best **out);
void petra_best_destroy(petra_best *best); /* NULL is allowed */

/* Receives the evaluations of the run, and their weights. */
petra_stage_observer *petra_best_observer(petra_best *best);

/* Call this in a resumed run, on all ranks, before the first action: distributes what rank 0 found in the files. */
petra_status petra_best_resume(petra_best *best);

/* Call this on all ranks, at the same position of the schedule, when all know the results so far. Afterwards best.h5
 * contains the weights of the best evaluation. */
petra_status petra_best_save(petra_best *best);

/* Ends the run: best.h5, if it exists, becomes weights.h5. PETRA_DATA if it does not contain the weights of the best
 * evaluation in the log of this run (epoch 0: none). */
petra_status petra_best_finish(petra_best *best, const petra_weights_moment *logged);

/* Returns PETRA_CONFIG if a run with this config and `epochs` whole epochs has no evaluation. */
petra_status petra_best_check(const petra_config *config, int64_t epochs);
