/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoints.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The weights of the stages that are here, at an evaluation. */
typedef struct copy {
  struct copy *next;
  int32_t epoch;
  double *values;
  int64_t count;
} copy;

struct petra_best {
  petra_stage_observer base;
  const petra_network *network;
  petra_ranks *ranks;
  char *path, *weights_path;   /* in the process that writes these files: their paths; else NULL */
  petra_weights_moment moment; /* the moment of the best evaluation so far; epoch 0: none */
  bool in_weights;             /* weights.h5 has the weights of that evaluation, and there is no best.h5 */
  bool changed;                /* the best evaluation has changed since the file was written */
  /* the best weights of the stages that are here; NULL: they are in a file, or there are none */
  copy *kept;
  copy *first, **last; /* copies of the evaluations whose result is not known yet, in their order */
};

static void destroy_copy(copy *c) {
  if (c)
    petra_free(c->values);
  petra_free(c);
}

static int32_t epoch_of(const petra_best *best, int64_t microbatch) {
  return (int32_t)(microbatch / best->network->plan->program.batches) + 1;
}

static petra_weights_moment moment_of(const petra_best *best, int64_t microbatch, const petra_evaluation *evaluation) {
  const bool by_loss = petra_weights_by_loss(petra_sample_kind_of(best->network->plan->config));
  return (petra_weights_moment){
      .epoch = epoch_of(best, microbatch), .by_loss = by_loss, .value = by_loss ? evaluation->loss : evaluation->top1};
}

/* Writes better weights at once, in one process. */
static petra_status write_better(petra_best *best, const petra_weights_moment *moment,
                                 petra_snapshot *const *snapshots) {
  if (!petra_weights_moment_beats(moment, &best->moment))
    return PETRA_OK;
  PETRA_TRY(petra_network_write_weights(best->network, snapshots, moment, best->path));
  best->moment = *moment;
  best->in_weights = false;
  return PETRA_OK;
}

static petra_status on_weights(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation,
                               petra_snapshot *const *snapshots) {
  petra_best *best = (petra_best *)base;
  copy *c;
  if (best->ranks->count == 1) {
    const petra_weights_moment moment = moment_of(best, microbatch, evaluation);
    return write_better(best, &moment, snapshots);
  }
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  *best->last = c;
  best->last = &c->next;
  c->epoch = epoch_of(best, microbatch);
  return petra_network_copy_weights(best->network, snapshots, &c->values, &c->count);
}

/* The result belongs to the first evaluation that waits for one. */
static petra_status on_evaluation(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation) {
  petra_best *best = (petra_best *)base;
  const petra_weights_moment moment = moment_of(best, microbatch, evaluation);
  copy *c = best->first;
  if (best->ranks->count == 1)
    return PETRA_OK;
  if (!c || c->epoch != moment.epoch)
    return petra_fail(PETRA_INTERNAL, "the result of the evaluation of epoch %d has come, and %s waits here",
                      moment.epoch, c ? "another one" : "none");
  best->first = c->next;
  if (!best->first)
    best->last = &best->first;
  if (!petra_weights_moment_beats(&moment, &best->moment)) {
    destroy_copy(c);
    return PETRA_OK;
  }
  destroy_copy(best->kept);
  best->kept = c;
  best->moment = moment;
  best->changed = true;
  return PETRA_OK;
}

petra_status petra_best_resume(petra_best *best) {
  return petra_ranks_share(best->ranks, &best->moment, sizeof best->moment);
}

petra_status petra_best_save(petra_best *best) {
  bool changed = best->changed;
  PETRA_TRY(petra_ranks_share(best->ranks, &changed, sizeof changed)); /* the other replicas do not know the value */
  if (!changed)
    return PETRA_OK;
  PETRA_TRY(petra_network_write_copies(best->network, best->kept ? best->kept->values : NULL,
                                       best->kept ? best->kept->count : 0, &best->moment, best->path));
  best->in_weights = best->changed = false;
  return PETRA_OK;
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

/* Finds at the beginning the moment of best.h5 or, if the run was complete, of weights.h5, which stays. The file may
 * have the weights of an epoch after the checkpoint; the resumed run finds the same weights again when it reaches that
 * epoch. */
static petra_status find(petra_best *best, const petra_plan *plan, int64_t logged) {
  const int64_t epochs = plan->program.microbatches / plan->program.batches;
  best->in_weights = access(best->path, F_OK) != 0;
  const char *path = best->in_weights ? best->weights_path : best->path;
  if (access(path, F_OK) != 0)
    return logged < plan->config->run.eval_every
               ? PETRA_OK
               : petra_fail(PETRA_DATA,
                            "%s: neither this file nor %s exists, but %lld epochs of the run are done; expected one of "
                            "them, with the weights of the best evaluation, or a run from the beginning (--overwrite)",
                            best->path, best->weights_path, (long long)logged);
  PETRA_TRY(petra_weights_read_moment(path, &best->moment));
  if (best->moment.epoch > epochs)
    return petra_config_fail(plan->config, "run.keep",
                             "best: %s has the weights of epoch %d, but the run ends after epoch %lld; expected at "
                             "least as many epochs (run.epochs, run.max_microbatches)",
                             path, best->moment.epoch, (long long)epochs);
  return PETRA_OK;
}

PETRA_DESTROYS(petra_best_destroy, petra_best)

petra_status petra_best_create(const petra_network *network, const char *folder, int64_t logged, petra_best **out) {
  static const petra_stage_observer_ops ops = {.evaluated = on_evaluation, .evaluated_weights = on_weights};
  PETRA_DESTROYED(petra_best_destroy) petra_best *best = NULL;
  PETRA_TRY(petra_allocate(&best, 1, sizeof *best));
  best->base.ops = &ops;
  best->network = network;
  best->ranks = network->placement->ranks;
  best->last = &best->first;
  if (folder) {
    PETRA_TRY(petra_join_path(folder, PETRA_BEST_FILE, &best->path));
    PETRA_TRY(petra_join_path(folder, "weights.h5", &best->weights_path));
  }
  if (logged >= 0)
    PETRA_TRY(find(best, network->plan, logged));
  *out = petra_take(&best);
  return PETRA_OK;
}

void petra_best_destroy(petra_best *best) {
  if (!best)
    return;
  while (best->first) {
    copy *c = best->first;
    best->first = c->next;
    destroy_copy(c);
  }
  destroy_copy(best->kept);
  PETRA_FREE_ALL(best->path, best->weights_path, best);
}

petra_stage_observer *petra_best_observer(petra_best *best) {
  return &best->base;
}

petra_status petra_best_finish(petra_best *best, const petra_weights_moment *logged) {
  if (!best->path)
    return PETRA_OK;
  if (logged->epoch == 0 || best->moment.epoch != logged->epoch || best->moment.value != logged->value)
    return petra_fail(
        PETRA_DATA,
        "%s: has the weights of epoch %d, but the best evaluation of this run is that of epoch %d; expected a folder "
        "that nothing else wrote to, and a run that resumes with the same bits (device.threads)",
        best->path, best->moment.epoch, logged->epoch);
  if (best->in_weights)
    return PETRA_OK;
  return rename(best->path, best->weights_path) == 0
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s: cannot be renamed to %s: %s", best->path, best->weights_path, strerror(errno));
}
