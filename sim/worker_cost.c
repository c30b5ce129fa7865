#include "sim/worker_cost.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* Versions that the microbatches in flight were forwarded with: a ring by microbatch number. */
typedef struct versions {
  int64_t *ring;
  int64_t capacity; /* a power of two */
  int64_t oldest;   /* no microbatch before this one is in flight */
  int64_t copy;     /* the version of F's copy, with a sync period */
} versions;

typedef struct worker_cost {
  petra_worker base;
  petra_worker_cost_options options;
  petra_stage_counts *counts;
  versions *kept;
} worker_cost;

/* Room for `microbatch` beside the oldest one in flight. */
static petra_status make_room(versions *v, int64_t microbatch) {
  int64_t capacity = v->capacity ? v->capacity : 4;
  while (microbatch - v->oldest >= capacity)
    capacity *= 2;
  if (capacity == v->capacity)
    return PETRA_OK;
  int64_t *ring;
  PETRA_TRY(petra_allocate_raw(&ring, (size_t)capacity, sizeof *ring));
  for (int64_t i = 0; i < capacity; i++)
    ring[i] = -1;
  for (int64_t m = v->oldest; m < v->oldest + v->capacity; m++)
    ring[m & (capacity - 1)] = v->ring[m & (v->capacity - 1)];
  petra_free(v->ring);
  v->ring = ring;
  v->capacity = capacity;
  return PETRA_OK;
}

/* A double buffer's: that of the update before last of the microbatch's window of k. */
static int64_t buffered_version(const petra_worker_cost_options *options, int64_t microbatch) {
  int64_t window = microbatch / (options->accumulate > 1 ? options->accumulate : 1);
  return window > 0 ? window - 1 : 0;
}

/* The version of a neighbour in flight; -1: it is not in flight. */
static int64_t version_of(const versions *v, int64_t microbatch) {
  if (microbatch < v->oldest || microbatch - v->oldest >= v->capacity)
    return -1;
  return v->ring[microbatch & (v->capacity - 1)];
}

/* The version that F of a microbatch reads. */
static int64_t forward_version(const petra_worker_cost_options *options, const petra_stage_counts *c, versions *v,
                               int64_t microbatch) {
  if (options->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER)
    return buffered_version(options, microbatch);
  if (options->sync_period == 0)
    return c->updates;
  if (microbatch % options->sync_period == 0)
    v->copy = c->updates;
  return v->copy;
}

static petra_status forward(petra_stage_counts *c, versions *v, int64_t microbatch, int64_t version) {
  PETRA_TRY(make_room(v, microbatch));
  /* An old version that no neighbour holds comes back into use. */
  if (version != c->updates && version_of(v, microbatch - 1) != version && ++c->stash > c->stash_max)
    c->stash_max = c->stash;
  v->ring[microbatch & (v->capacity - 1)] = version;
  c->forwards++;
  if (++c->kept > c->kept_max)
    c->kept_max = c->kept;
  return PETRA_OK;
}

/* The version that B of a microbatch reads. */
static int64_t backward_version(const petra_worker_cost_options *options, const petra_stage_counts *c, const versions *v,
                                int64_t microbatch) {
  if (options->backward_weights == PETRA_WEIGHTS_STASHED)
    return version_of(v, microbatch);
  return options->backward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER ? buffered_version(options, microbatch) : c->updates;
}

static void give_up(petra_stage_counts *c, versions *v, int64_t microbatch) {
  int64_t version = version_of(v, microbatch);
  /* Microbatches come back in order: whoever shares the version is a neighbour. */
  if (version >= 0 && version != c->updates && version_of(v, microbatch - 1) != version && version_of(v, microbatch + 1) != version)
    c->stash--;
  v->ring[microbatch & (v->capacity - 1)] = -1;
  for (c->kept--; v->oldest <= microbatch && c->kept > 0 && version_of(v, v->oldest) < 0; v->oldest++)
    ;
  if (c->kept == 0)
    v->oldest = microbatch + 1;
}

static void note_lag(petra_stage_counts *c, int64_t version) {
  int64_t lag = c->updates - version;
  c->backwards++;
  c->lag_sum += lag;
  if (lag > c->lag_max)
    c->lag_max = lag;
}

/* The present version becomes an old one; it is stashed if a microbatch in flight was forwarded with it: the newest one. */
static void update(petra_stage_counts *c, const versions *v, int64_t newest) {
  bool used = c->kept > 0 && version_of(v, newest) == c->updates;
  c->updates++;
  if (used && ++c->stash > c->stash_max)
    c->stash_max = c->stash;
}

static petra_status perform_one(worker_cost *worker, const petra_action *action, petra_action_result *result) {
  petra_stage_counts *c = &worker->counts[action->stage - 1];
  versions *v = &worker->kept[action->stage - 1];
  bool fused = action->stage == worker->options.stages && !worker->options.split_head;
  *result = (petra_action_result){c->updates, -1};
  switch (action->kind) {
  case PETRA_ACTION_FORWARD:
    result->version_read = forward_version(&worker->options, c, v, action->microbatch);
    return forward(c, v, action->microbatch, result->version_read);
  case PETRA_ACTION_BACKWARD:
    if (fused) {
      int64_t version = forward_version(&worker->options, c, v, action->microbatch);
      if (worker->options.backward_weights != PETRA_WEIGHTS_PRESET && worker->options.backward_weights != PETRA_WEIGHTS_LATEST)
        result->version_read = version;
      note_lag(c, version);
      c->forwards++;
      if (c->kept_max == 0)
        c->kept_max = 1;
      return PETRA_OK;
    }
    result->version_read = backward_version(&worker->options, c, v, action->microbatch);
    note_lag(c, version_of(v, action->microbatch));
    if (!worker->options.split_backward)
      give_up(c, v, action->microbatch);
    return PETRA_OK;
  case PETRA_ACTION_WEIGHT_GRADIENT:
    if (!fused)
      give_up(c, v, action->microbatch);
    return PETRA_OK;
  case PETRA_ACTION_UPDATE:
    update(c, v, c->forwards - 1);
    result->version_written = c->updates;
    return PETRA_OK;
  case PETRA_ACTION_EVALUATE:
  case PETRA_ACTION_KINDS:
    break;
  }
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  (void)virtual_ns;
  for (int i = 0; i < count; i++)
    PETRA_TRY(perform_one((worker_cost *)base, &actions[i], &results[i]));
  return PETRA_OK;
}

petra_status petra_worker_cost_create(const petra_worker_cost_options *options, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform};
  worker_cost *worker;
  petra_status status;
  PETRA_TRY(petra_allocate(&worker, 1, sizeof *worker));
  worker->base.ops = &ops;
  worker->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&worker->counts, (size_t)options->stages, sizeof *worker->counts), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&worker->kept, (size_t)options->stages, sizeof *worker->kept), fail);
  *out = &worker->base;
  return PETRA_OK;
fail:
  petra_worker_cost_destroy(&worker->base);
  return status;
}

void petra_worker_cost_destroy(petra_worker *base) {
  worker_cost *worker = (worker_cost *)base;
  if (!worker)
    return;
  for (int32_t s = 0; worker->kept && s < worker->options.stages; s++)
    petra_free(worker->kept[s].ring);
  petra_free(worker->kept);
  petra_free(worker->counts);
  petra_free(worker);
}

const petra_stage_counts *petra_worker_cost_counts(const petra_worker *worker) {
  return ((const worker_cost *)worker)->counts;
}
