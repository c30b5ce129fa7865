/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe_replay.h"

#include "base/log.h"
#include "base/mem.h"
#include "probe/probe_replay_private.h"
#include "exec/worker_stage.h"

#include <string.h>

/* --- the source --- */

static const petra_probe_replay *of_source(const petra_probe_source *source) {
  return (const petra_probe_replay *)(const void *)((const char *)source - offsetof(petra_probe_replay, source));
}

static int64_t version(const petra_probe_source *source, int32_t stage) {
  return of_source(source)->versions[stage - 1];
}

static int64_t version_forward(const petra_probe_source *source, int32_t stage) {
  return of_source(source)->forwards[stage - 1];
}

static petra_status weights(const petra_probe_source *source, int32_t stage, petra_weights_key key, int block,
                            const petra_tensor_set **out) {
  const petra_probe_replay *replay = of_source(source);
  const petra_probe_stored *stored = petra_probe_store_find(&replay->stores[stage - 1], key);
  if (!stored || stored->blocks < replay->stores[stage - 1].blocks)
    return petra_fail(PETRA_INTERNAL, "the probe has no weights of stage %d after %lld updates", stage,
                      (long long)key.version);
  *out = &stored->sets[block - replay->options.partition->first[stage - 1]];
  return PETRA_OK;
}

static bool predicts(const petra_probe_source *source, int32_t stage) {
  const petra_probe_replay_options *options = &of_source(source)->options;
  const petra_stage_mitigation mitigation = petra_method_stage_mitigation(
      options->method, options->program_options->stages, options->program_options->warmup, stage);
  return petra_mitigation_predicts(&mitigation);
}

static const petra_tensor_set *gradients(const petra_probe_source *source, int32_t stage, int block) {
  (void)stage;
  return &of_source(source)->gradients[block];
}

static bool reconstructs(const petra_probe_source *source, int32_t stage) {
  const petra_probe_replay_options *options = &of_source(source)->options;
  return petra_rule_reconstructs(&options->rule, &options->model->blocks[options->partition->first[stage - 1]]);
}

static bool resumes(petra_probe_source *source, int32_t stage, int64_t number) {
  of_source(source)->versions[stage - 1] = number;
  return true;
}

/* --- steps --- */

bool petra_probe_replay_waits(const petra_probe_replay *replay) {
  return replay->first < replay->end;
}

static petra_status push_at(petra_probe_replay *replay, petra_replay_step_kind kind, int replica, int32_t stage,
                            int64_t number) {
  if (replay->first == replay->end)
    replay->first = replay->end = 0;
  if (replay->end == replay->capacity && replay->first > replay->capacity / 2) {
    memmove(replay->steps, replay->steps + replay->first,
            (size_t)(replay->end - replay->first) * sizeof *replay->steps);
    replay->end -= replay->first;
    replay->first = 0;
  }
  PETRA_TRY(petra_array_reserve(&replay->steps, &replay->capacity, replay->end + 1, sizeof *replay->steps));
  replay->steps[replay->end++] =
      (petra_replay_step){.kind = kind, .replica = replica, .stage = stage, .number = number};
  return PETRA_OK;
}

/* At replica 0. */
static petra_status push(petra_probe_replay *replay, petra_replay_step_kind kind, int32_t stage, int64_t number) {
  return push_at(replay, kind, 0, stage, number);
}

/* At replicas `first` and above, in their order. */
static petra_status push_from(petra_probe_replay *replay, petra_replay_step_kind kind, int first, int32_t stage,
                              int64_t number) {
  for (int i = first; i < replay->options.replicas; i++)
    PETRA_TRY(push_at(replay, kind, i, stage, number));
  return PETRA_OK;
}

/* The prediction of weights that F reads. */
static petra_status push_predicted(petra_probe_replay *replay, int32_t stage, int64_t version) {
  PETRA_TRY(push(replay, PETRA_STEP_WEIGHTS, stage, version));
  replay->steps[replay->end - 1].predicted = true;
  return PETRA_OK;
}

/* The taps decide by the same that they send. */
static petra_status push_wanted(petra_probe_replay *replay, int32_t stage) {
  const int64_t latest = replay->demand.versions[stage - 1];
  return petra_probe_demand_wants(&replay->demand, stage, latest) ? push(replay, PETRA_STEP_WEIGHTS, stage, latest)
                                                                  : PETRA_OK;
}

bool petra_probe_replay_takes_input(const petra_probe_replay *replay, int32_t stage) {
  return stage > 1 && !petra_program_fused(replay->options.program_options, stage) &&
         reconstructs(&replay->source, stage);
}

static petra_status push_pass(petra_probe_replay *replay, const petra_action *action) {
  const int32_t stage = action->stage;
  const int64_t m = action->microbatch;
  const bool forward = petra_probe_demand_forwards(&replay->demand, action);
  if (!petra_probe_demand_probed(&replay->demand, m))
    return PETRA_OK;
  if (forward && stage == 1)
    PETRA_TRY(push_from(replay, PETRA_STEP_READ, 0, stage, m));
  if (forward)
    PETRA_TRY(push(replay, PETRA_STEP_FORWARD, stage, m));
  if (!petra_probe_replay_takes_input(replay, stage))
    return PETRA_OK;
  if (forward)
    return push_from(replay, PETRA_STEP_INPUT, 1, stage, m);
  return action->kind == PETRA_ACTION_BACKWARD ? push_from(replay, PETRA_STEP_FOUND, 0, stage, m) : PETRA_OK;
}

/* After a checkpoint: where a window is open all latest weights come again. */
static petra_status go_on(petra_probe_replay *replay) {
  replay->passed = false;
  for (int32_t j = 1; j <= replay->options.partition->stages; j++) {
    const int64_t made = replay->demand.versions[j - 1];
    if (replay->versions[j - 1] != made)
      return petra_fail(PETRA_DATA,
                        "the checkpoint's probes say that stage %d has made %lld updates, its actions %lld; expected "
                        "a checkpoint of this run",
                        j, (long long)replay->versions[j - 1], (long long)made);
    if (replay->demand.count > 0)
      PETRA_TRY(push(replay, PETRA_STEP_WEIGHTS, j, made));
    if (replay->demand.count > 0 && predicts(&replay->source, j))
      PETRA_TRY(push_predicted(replay, j, made));
  }
  return PETRA_OK;
}

static petra_status begins(petra_stage_observer *observer, int64_t virtual_ns, const petra_action *actions, int count) {
  petra_probe_replay *replay = (petra_probe_replay *)observer;
  bool opened;
  (void)virtual_ns; /* no reference goes by the clock */
  replay->actions = actions;
  replay->count = count;
  PETRA_TRY(petra_probe_demand_begins(&replay->demand, actions, count, &opened));
  for (int32_t j = 1; opened && j <= replay->options.partition->stages; j++)
    PETRA_TRY(push_wanted(replay, j));
  return replay->passed ? go_on(replay) : PETRA_OK;
}

petra_status petra_probe_replay_pass(petra_probe_replay *replay, const petra_action *actions, int count) {
  replay->passed = true;
  return petra_probe_demand_pass(&replay->demand, actions, count);
}

static void count_update(petra_probe_replay *replay, int32_t stage) {
  petra_probe_store_updated(&replay->stores[stage - 1], ++replay->versions[stage - 1]);
}

static petra_status done(petra_stage_observer *observer) {
  petra_probe_replay *replay = (petra_probe_replay *)observer;
  /* Otherwise the probe is where the schedule is, and waits for nothing. */
  const bool reported =
      petra_probe_replay_waits(replay) || replay->demand.count > 0 || petra_probe_is_open(replay->probe);
  const int64_t before = replay->end - replay->first;
  for (int i = 0; i < replay->count; i++) {
    const petra_action *action = &replay->actions[i];
    if (action->kind != PETRA_ACTION_UPDATE)
      PETRA_TRY(push_pass(replay, action));
    else if (reported)
      PETRA_TRY(push(replay, PETRA_STEP_UPDATE, action->stage, action->microbatch));
    else
      count_update(replay, action->stage);
  }
  for (int i = 0; i < replay->count; i++)
    if (replay->actions[i].kind == PETRA_ACTION_UPDATE) {
      petra_probe_demand_updated(&replay->demand, &replay->actions[i]);
      PETRA_TRY(push_wanted(replay, replay->actions[i].stage));
    }
  petra_probe_demand_done(&replay->demand);
  return replay->end - replay->first > before ? push(replay, PETRA_STEP_DONE, 0, 0) : PETRA_OK;
}

/* --- going on --- */

static bool is_ready(const petra_probe_replay *replay, const petra_replay_step *at) {
  const petra_probe_store *store = at->stage > 0 ? &replay->stores[at->stage - 1] : NULL;
  const petra_probe_stored *stored;
  switch ((petra_replay_step_kind)at->kind) {
  case PETRA_STEP_WEIGHTS:
    stored = petra_probe_store_find(store, (petra_weights_key){at->number, at->predicted});
    return stored && stored->blocks == store->blocks;
  case PETRA_STEP_UPDATE:
    return replay->gradients_in == store->blocks || !petra_probe_demand_probed(&replay->demand, at->number);
  case PETRA_STEP_READ:
  case PETRA_STEP_FORWARD:
  case PETRA_STEP_INPUT:
  case PETRA_STEP_FOUND:
    return replay->closed;
  case PETRA_STEP_DONE:
    break;
  }
  return true;
}

static petra_status update(petra_probe_replay *replay, const petra_replay_step *at) {
  const petra_partition *partition = replay->options.partition;
  petra_stage_observer *reported = petra_probe_observer(replay->probe, 0);
  PETRA_TRY(reported->ops->updating(reported, at->stage, at->number));
  for (int b = partition->first[at->stage - 1]; b < partition->first[at->stage]; b++)
    petra_tensor_set_release(&replay->gradients[b]);
  replay->gradients_in = 0;
  count_update(replay, at->stage);
  return PETRA_OK;
}

static petra_status report_done(petra_probe_replay *replay) {
  petra_stage_observer *last = petra_probe_observer(replay->probe, replay->options.replicas - 1);
  return last->ops->done(last);
}

petra_status petra_probe_replay_advance(petra_probe_replay *replay, bool wait) {
  const petra_parcel_inlet *inlet = &replay->options.inlet;
  while (petra_probe_replay_waits(replay)) {
    const petra_replay_step at = replay->steps[replay->first];
    if (is_ready(replay, &at)) {
      replay->first++;
      replay->closed = false;
      if (at.kind == PETRA_STEP_UPDATE)
        PETRA_TRY(update(replay, &at));
      else if (at.kind == PETRA_STEP_DONE)
        PETRA_TRY(report_done(replay));
      continue;
    }
    const int rank = replay->options.rank_of[at.replica * replay->options.partition->stages + at.stage - 1];
    petra_parcel parcel;
    const void *data;
    size_t size;
    PETRA_TRY(inlet->peek(inlet->context, rank, wait, &data, &size));
    if (!data)
      return PETRA_OK;
    PETRA_TRY(petra_parcel_open(&parcel, replay->options.backend, data, size));
    PETRA_TRY(petra_probe_replay_take(replay, &at, &parcel, data));
    PETRA_TRY(inlet->done(inlet->context, rank));
  }
  return PETRA_OK;
}

/* --- creation --- */

petra_status petra_probe_replay_create(const petra_probe_replay_options *options, petra_probe_replay **out) {
  static const petra_stage_observer_ops ops = {.begins = begins, .done = done};
  static const petra_probe_source_ops source = {.version = version,
                                                .version_forward = version_forward,
                                                .weights = weights,
                                                .predicts = predicts,
                                                .gradients = gradients,
                                                .reconstructs = reconstructs,
                                                .resumes = resumes};
  const size_t stages = (size_t)options->partition->stages;
  petra_probe_replay *replay;
  petra_status status;
  PETRA_TRY(petra_allocate(&replay, 1, sizeof *replay));
  replay->base.ops = &ops;
  replay->source.ops = &source;
  replay->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&replay->versions, 2 * stages, sizeof *replay->versions), fail);
  replay->forwards = replay->versions + stages;
  PETRA_TRY_GOTO(status, petra_allocate(&replay->stores, stages, sizeof *replay->stores), fail);
  PETRA_TRY_GOTO(
      status, petra_allocate(&replay->gradients, (size_t)options->model->block_count, sizeof *replay->gradients), fail);
  PETRA_TRY_GOTO(
      status, petra_probe_demand_init(&replay->demand, options->program, options->program_options, options->per_epoch),
      fail);
  for (size_t j = 0; j < stages; j++)
    replay->stores[j].blocks = options->partition->first[j + 1] - options->partition->first[j];
  *out = replay;
  return PETRA_OK;
fail:
  petra_probe_replay_destroy(replay);
  return status;
}

void petra_probe_replay_destroy(petra_probe_replay *replay) {
  if (!replay)
    return;
  for (int32_t j = 0; replay->stores && j < replay->options.partition->stages; j++)
    petra_probe_store_fini(&replay->stores[j]);
  for (int b = 0; replay->gradients && b < replay->options.model->block_count; b++)
    petra_tensor_set_release(&replay->gradients[b]);
  petra_free(replay->stores);
  petra_free(replay->gradients);
  petra_free(replay->versions);
  petra_free(replay->steps);
  petra_probe_demand_fini(&replay->demand);
  petra_free(replay);
}

petra_probe_source *petra_probe_replay_source(petra_probe_replay *replay) {
  return &replay->source;
}

void petra_probe_replay_set_probe(petra_probe_replay *replay, petra_probe *probe) {
  replay->probe = probe;
  replay->compute = (petra_compute){.backend = replay->options.backend, .account = petra_probe_account(probe)};
}

petra_stage_observer *petra_probe_replay_groups(petra_probe_replay *replay) {
  return &replay->base;
}
