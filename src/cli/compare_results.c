/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/compare_results.h"

#include <math.h>

enum {
  EPOCHS,
  MICROBATCHES,
  LOSSES, /* fewer than microbatches where the pipeline is not drained */
  TRAIN_LOSS,
  TRAIN_TOP1,
  EVAL_LOSS,
  EVAL_TOP1,
  BEST_LOSS,
  BEST_TOP1,
  EVAL_TOP5,
  IMAGES_PER_S,
  TOKENS_PER_S,
  VIRTUAL_S,
  WALL_S,
  MICROBATCH_S,
  MAKESPAN_S,
  PEAK_BYTES
};

const petra_result petra_results[PETRA_RESULTS] = {
    [EPOCHS] = {"epochs", "epochs", 1, 0},
    [MICROBATCHES] = {"microbatches", "microbatches", 1, 0},
    [LOSSES] = {"losses", "microbatches with a loss", 1, 0},
    [TRAIN_LOSS] = {"train_loss", "train loss, last epoch", 1, 4},
    [TRAIN_TOP1] = {"train_top1", "train top-1 %, last epoch", 100, 2},
    [EVAL_LOSS] = {"eval_loss", "eval loss, last", 1, 4},
    [EVAL_TOP1] = {"eval_top1", "eval top-1 %, last", 100, 2},
    [BEST_LOSS] = {"eval_loss_best", "eval loss, lowest", 1, 4},
    [BEST_TOP1] = {"eval_top1_best", "eval top-1 %, best", 100, 2},
    [EVAL_TOP5] = {"eval_top5", "eval top-5 %, last", 100, 2},
    [IMAGES_PER_S] = {"images_per_s", "images/s, last epoch", 1, 0},
    [TOKENS_PER_S] = {"tokens_per_s", "tokens/s, last epoch", 1, 0},
    [VIRTUAL_S] = {"virtual_s", "virtual time s", 1, 3},
    [WALL_S] = {"wall_s", "wall time s", 1, 1},
    [MICROBATCH_S] = {"time_per_microbatch_s", "simulated ms a microbatch", 1e3, 4},
    [MAKESPAN_S] = {"makespan_s", "simulated time s", 1, 3},
    [PEAK_BYTES] = {"peak_bytes", "peak MB, sum of stages", 1e-6, 3},
};

static void take_epochs(const petra_run_facts *facts, double *values) {
  const petra_runlog_summary *summary = facts->summary;
  const petra_runlog_epoch *trained = petra_run_last_trained(facts), *evaluated = petra_run_last_evaluated(facts);
  if (trained) {
    values[TRAIN_LOSS] = trained->train_loss;
    values[TRAIN_TOP1] = trained->train_top1;
  }
  if (evaluated) {
    values[EVAL_LOSS] = evaluated->eval_loss;
    values[EVAL_TOP1] = evaluated->eval_top1;
    values[EVAL_TOP5] = evaluated->eval_top5;
  }
  for (int64_t e = 0; e < summary->epochs; e++) { /* of a number and NaN: the number */
    values[BEST_LOSS] = fmin(values[BEST_LOSS], summary->epoch[e].eval_loss);
    values[BEST_TOP1] = fmax(values[BEST_TOP1], summary->epoch[e].eval_top1);
  }
  if (summary->microbatches > 0) {
    values[VIRTUAL_S] = summary->last_train.virtual_s;
    values[WALL_S] = summary->last_train.wall_s;
  }
  if (summary->epochs > 0) {
    values[summary->samples == PETRA_SAMPLE_TOKENS ? TOKENS_PER_S : IMAGES_PER_S] =
        summary->epoch[summary->epochs - 1].rate;
    values[WALL_S] = fmax(values[WALL_S], summary->epoch[summary->epochs - 1].wall_s);
  }
}

void petra_results_of(const petra_run_facts *facts, double values[PETRA_RESULTS]) {
  const petra_runlog_summary *summary = facts->summary;
  for (int i = 0; i < PETRA_RESULTS; i++)
    values[i] = NAN;
  if (summary->simulated) {
    values[MICROBATCHES] = (double)*summary->simulated;
    values[MICROBATCH_S] = *summary->time_per_microbatch_s;
    values[MAKESPAN_S] = *summary->makespan_s;
  } else if (!petra_run_is_simulated(facts)) {
    values[EPOCHS] = (double)summary->epochs;
    values[LOSSES] = (double)summary->microbatches;
    take_epochs(facts, values);
  }
  if (summary->memory_stages > 0)
    values[PEAK_BYTES] = 0;
  for (int32_t j = 0; j < summary->memory_stages; j++)
    values[PEAK_BYTES] += (double)summary->total_peak_bytes[j];
}
