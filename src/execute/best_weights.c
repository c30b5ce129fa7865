/* SPDX-License-Identifier: Apache-2.0 */
#include "execute/best_weights.h"

#include "base/log.h"
#include "base/mem.h"
#include "run/folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct petra_best {
  petra_stage_observer base;
  const petra_network *network;
  char *path, *weights_path;
  petra_weights_moment moment; /* of what best.h5 has; epoch 0: nothing yet */
  bool in_weights;             /* weights.h5 has it, and there is no best.h5 */
};

static petra_status on_weights(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation,
                               petra_snapshot *const *snapshots) {
  petra_best *best = (petra_best *)base;
  const petra_weights_moment moment = petra_best_moment_of(best->network->plan, microbatch, evaluation);
  if (!petra_best_beats(&moment, &best->moment))
    return PETRA_OK;
  PETRA_TRY(petra_network_write_snapshots(best->network, snapshots, &moment, best->path));
  petra_best_written(best, &moment);
  return PETRA_OK;
}

petra_weights_moment petra_best_moment_of(const petra_plan *plan, int64_t microbatch,
                                          const petra_evaluation *evaluation) {
  const bool by_loss = petra_best_by_loss(petra_samples_of(plan->config));
  return (petra_weights_moment){.epoch = (int32_t)(microbatch / plan->program.batches) + 1,
                                .by_loss = by_loss,
                                .value = !evaluation ? 0
                                         : by_loss   ? evaluation->loss
                                                     : evaluation->top1};
}

petra_weights_moment petra_best_moment(const petra_best *best) {
  return best->moment;
}

const char *petra_best_path(const petra_best *best) {
  return best->path;
}

void petra_best_written(petra_best *best, const petra_weights_moment *moment) {
  best->moment = *moment;
  best->in_weights = false;
}

petra_status petra_best_check(const petra_config *config, int64_t epochs) {
  const int64_t every = config->run.eval_every;
  if (config->run.keep != PETRA_KEEP_BEST)
    return PETRA_OK;
  if (every == 0 || epochs < every)
    return petra_config_fail(config, "run.keep",
                             "best in a run without an evaluation (%lld whole epochs, run.eval_every: %lld); expected "
                             "last, or an evaluation",
                             (long long)epochs, (long long)every);
  return PETRA_OK;
}

/* What best.h5 has at the beginning or, of a run that had come to its end, weights.h5, which stays where it is. Weights of a later
 * epoch than the checkpoint's are found again on the way there. */
static petra_status find(petra_best *best, const petra_plan *plan, int64_t logged) {
  const int64_t epochs = plan->program.microbatches / plan->program.batches;
  best->in_weights = access(best->path, F_OK) != 0;
  const char *path = best->in_weights ? best->weights_path : best->path;
  if (access(path, F_OK) != 0)
    return logged < plan->config->run.eval_every
               ? PETRA_OK
               : petra_fail(PETRA_DATA,
                            "%s: is not there, nor is %s, and %lld epochs of the run are done; expected one of them, "
                            "with the weights of the best evaluation, or a run from the beginning (--overwrite)",
                            best->path, best->weights_path, (long long)logged);
  PETRA_TRY(petra_weights_read_moment(path, &best->moment));
  if (best->moment.epoch > epochs)
    return petra_config_fail(plan->config, "run.keep",
                             "best: %s has the weights of epoch %d, and the run is to have %lld; expected as many "
                             "(run.epochs, run.max_microbatches)",
                             path, best->moment.epoch, (long long)epochs);
  return PETRA_OK;
}

petra_status petra_best_create(const petra_network *network, const char *folder, int64_t logged, petra_best **out) {
  static const petra_stage_observer_ops ops = {.evaluated_weights = on_weights};
  petra_best *best;
  petra_status status;
  PETRA_TRY(petra_allocate(&best, 1, sizeof *best));
  best->base.ops = &ops;
  best->network = network;
  PETRA_TRY_GOTO(status, petra_join_path(folder, PETRA_BEST_FILE, &best->path), fail);
  PETRA_TRY_GOTO(status, petra_join_path(folder, "weights.h5", &best->weights_path), fail);
  if (logged >= 0)
    PETRA_TRY_GOTO(status, find(best, network->plan, logged), fail);
  *out = best;
  return PETRA_OK;
fail:
  petra_best_destroy(best);
  return status;
}

void petra_best_destroy(petra_best *best) {
  if (!best)
    return;
  petra_free(best->path);
  petra_free(best->weights_path);
  petra_free(best);
}

petra_stage_observer *petra_best_observer(petra_best *best) {
  return &best->base;
}

static petra_weights_moment moment_of_row(const petra_runlog_epoch *row, petra_sample_kind samples) {
  const bool by_loss = petra_best_by_loss(samples);
  return (petra_weights_moment){
      .epoch = row->epoch + 1, .by_loss = by_loss, .value = by_loss ? row->eval_loss : row->eval_top1};
}

int64_t petra_best_of(const petra_runlog_epoch *rows, int64_t count, petra_sample_kind samples) {
  petra_weights_moment best = {0};
  int64_t found = -1;
  for (int64_t e = 0; e < count; e++) {
    const petra_weights_moment moment = moment_of_row(&rows[e], samples);
    if (isnan(moment.value) || !petra_best_beats(&moment, &best))
      continue;
    best = moment;
    found = e;
  }
  return found;
}

petra_status petra_best_finish(petra_best *best, const petra_runlog_epoch *rows, int64_t count) {
  const petra_sample_kind samples = petra_samples_of(best->network->plan->config);
  const int64_t row = petra_best_of(rows, count, samples);
  const petra_weights_moment logged = row < 0 ? (petra_weights_moment){0} : moment_of_row(&rows[row], samples);
  if (row < 0 || best->moment.epoch != logged.epoch || best->moment.value != logged.value)
    return petra_fail(PETRA_DATA,
                      "%s: has the weights of epoch %d, and the best evaluation of this run is that of epoch %d; "
                      "expected a folder that nothing else wrote into, and a run that goes on bit for bit "
                      "(device.threads)",
                      best->path, best->moment.epoch, logged.epoch);
  if (best->in_weights)
    return PETRA_OK;
  return rename(best->path, best->weights_path) == 0
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s: cannot be renamed to %s: %s", best->path, best->weights_path, strerror(errno));
}
