/* SPDX-License-Identifier: Apache-2.0 */
/* run.keep: best. The weights of the evaluation with the highest top-1 accuracy or, of tokens, with the lowest mean loss, the first of
 * equals: in best.h5 of the run's folder while the run goes on, in weights.h5 when it is complete. An observer of real stages, all of which are here; of an executed
 * run the files at rank 0 alone (execute/best_weights_ranks.h). */
#ifndef PETRA_EXECUTE_BEST_WEIGHTS_H
#define PETRA_EXECUTE_BEST_WEIGHTS_H

#include "config/sample_kind.h"
#include "exec/stage_observer.h"
#include "plan/network.h"
#include "record/run_h5.h"

typedef struct petra_best petra_best;

#define PETRA_BEST_FILE "best.h5"

/* Of the run in `folder`, which is not changed yet. It goes on with so many `logged` epochs and with what best.h5 there says, or
 * weights.h5 of a run that becomes longer; -1: a run begins. PETRA_CONFIG where that has the weights of an epoch that the run is not to
 * come to, PETRA_DATA where neither file is there, and an evaluation was. What is given is borrowed. */
petra_status petra_best_create(const petra_network *network, const char *folder, int64_t logged, petra_best **out);
void petra_best_destroy(petra_best *best); /* NULL is fine */

petra_stage_observer *petra_best_observer(petra_best *best);

/* By what evaluations are compared: loss, else accuracy. */
static inline bool petra_best_by_loss(petra_sample_kind samples) {
  return samples == PETRA_SAMPLE_TOKENS;
}

/* The evaluation at a microbatch; NULL: its value, 0 here, is not known. */
petra_weights_moment petra_best_moment_of(const petra_plan *plan, int64_t microbatch,
                                          const petra_evaluation *evaluation);

/* Whether `moment` is to be kept in the place of `best`, which came before it; epoch 0: there is none yet. */
static inline bool petra_best_beats(const petra_weights_moment *moment, const petra_weights_moment *best) {
  return best->epoch == 0 || (moment->by_loss ? moment->value < best->value : moment->value > best->value);
}

/* What the files have; best.h5; and that somebody else has written it. */
petra_weights_moment petra_best_moment(const petra_best *best);
const char *petra_best_path(const petra_best *best);
void petra_best_written(petra_best *best, const petra_weights_moment *moment);

/* The run is over: best.h5 becomes weights.h5, if there is one. PETRA_DATA where it has not the weights of this run's best evaluation, of
 * those in `rows` (its log). */
petra_status petra_best_finish(petra_best *best, const petra_runlog_epoch *rows, int64_t count);

/* Which row of a log is that of the best evaluation: its index, -1 where none was evaluated. */
int64_t petra_best_of(const petra_runlog_epoch *rows, int64_t count, petra_sample_kind samples);

/* PETRA_CONFIG where a run with this config and `epochs` whole epochs has no evaluation. */
petra_status petra_best_check(const petra_config *config, int64_t epochs);

#endif
