/* SPDX-License-Identifier: Apache-2.0 */
/* run.keep: best. The weights of the evaluation with the highest top-1 accuracy or, of tokens, with the lowest mean loss, the first of
 * equals: in best.h5 of the run's folder while the run goes on, in weights.h5 when it is complete.
 *
 * In one process they are written as soon as the evaluation is done. In an executed run every process copies the weights of its stages to
 * the host at each evaluation, before it knows the result, and keeps or drops its copy by the same rule when the result comes
 * (distributed/loss_relay.h); nobody waits for it. Where all ranks meet (checkpoints and the end) the copies of the best evaluation go to rank 0,
 * which writes best.h5. Replicas other than 0 do not evaluate, and have nothing to keep. */
#pragma once

#include "config/config.h"
#include "exec/stage_observer.h"
#include "plan/network.h"
#include "record/run_h5.h"

typedef struct petra_best petra_best;

#define PETRA_BEST_FILE "best.h5"

/* At all ranks of the network. `folder` is that of the run at the process that writes it, else NULL; it is not changed yet. The run is
 * resumed with so many `logged` epochs and with what best.h5 there says, or weights.h5 of a run that becomes longer; -1: a run begins.
 * PETRA_CONFIG if that has the weights of an epoch that the run is not to come to, PETRA_DATA if neither file is there, and an evaluation
 * was. What is given is borrowed. */
petra_status petra_best_create(const petra_network *network, const char *folder, int64_t logged, petra_best **out);
void petra_best_destroy(petra_best *best); /* NULL is fine */

/* For the evaluations of the run, and their weights. */
petra_stage_observer *petra_best_observer(petra_best *best);

/* In a resumed run, at all ranks, before the first action: what the files of rank 0 have. */
petra_status petra_best_resume(petra_best *best);

/* At all ranks, at the same place of the schedule, when all know the results so far: best.h5 has the weights of the best evaluation. */
petra_status petra_best_save(petra_best *best);

/* The run is over: best.h5 becomes weights.h5, if there is one. PETRA_DATA if it does not have the weights of the best evaluation of this
 * run, of those in `rows` (its log). */
petra_status petra_best_finish(petra_best *best, const petra_runlog_epoch *rows, int64_t count);

/* By what evaluations are compared: loss, else accuracy. */
static inline bool petra_best_by_loss(petra_sample_kind samples) {
  return samples == PETRA_SAMPLE_TOKENS;
}

/* Which row of a log is that of the best evaluation: its index, -1 if none was evaluated. */
int64_t petra_best_of(const petra_runlog_epoch *rows, int64_t count, petra_sample_kind samples);

/* PETRA_CONFIG if a run with this config and `epochs` whole epochs has no evaluation. */
petra_status petra_best_check(const petra_config *config, int64_t epochs);
