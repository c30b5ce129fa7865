/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe_tap.h"

#include "base/mem.h"
#include "probe/probe_demand.h"
#include "probe/probe_store.h"
#include "stage/probed_stage.h"

typedef struct groups_observer {
  petra_stage_observer base;
  petra_probe_tap *tap;
} groups_observer;

struct petra_probe_tap {
  petra_stage_observer base;
  groups_observer groups;
  petra_probe_tap_options options;
  petra_probe_demand demand;
  petra_probe_store *sent;     /* per stage: what the probe has of it */
  const petra_action *actions; /* of the group that is being done */
  int count;
  bool passed; /* what was done before is in a checkpoint: the probe has none of the latest weights */
};

static petra_status send(petra_probe_tap *tap, petra_parcel *parcel, petra_tensor *const *tensors, int count,
                         const int32_t *labels) {
  const petra_parcel_outlet *outlet = &tap->options.outlet;
  void *buffer;
  petra_parcel_describe(parcel, tensors, count);
  const size_t bytes = petra_parcel_bytes(parcel, tap->options.backend);
  PETRA_TRY(outlet->room(outlet->context, bytes, &buffer));
  PETRA_TRY(petra_parcel_pack(parcel, tensors, count, labels, buffer));
  return outlet->send(outlet->context, bytes);
}

/* Weights and gradients of an update are the same at all replicas. */
static bool sends_weights(const petra_probe_tap *tap, int32_t stage) {
  return tap->options.replica == 0 && petra_stages_has(&tap->options.stages, stage);
}

/* A version that the stage has, unless it was sent. */
static petra_status send_weights(petra_probe_tap *tap, int32_t stage, petra_weights_key key) {
  petra_probe_store *sent = &tap->sent[stage - 1];
  petra_probe_stored *stored;
  if (petra_probe_store_find(sent, key))
    return PETRA_OK;
  PETRA_TRY(petra_probe_store_add(sent, key, false, &stored));
  for (int b = tap->options.partition->first[stage - 1]; b < tap->options.partition->first[stage]; b++) {
    petra_parcel parcel = {
        .kind = PETRA_PARCEL_WEIGHTS, .stage = stage, .number = key.version, .block = b, .predicted = key.predicted};
    const petra_tensor_set *set;
    PETRA_TRY(petra_stage_version_tensors(petra_stages_get(&tap->options.stages, stage), key, b, &set));
    PETRA_TRY(send(tap, &parcel, set->tensor, set->count, NULL));
  }
  return PETRA_OK;
}

/* The latest weights, where a reference has them. */
static petra_status send_wanted(petra_probe_tap *tap, int32_t stage) {
  const int64_t latest = tap->demand.versions[stage - 1];
  return sends_weights(tap, stage) && petra_probe_demand_wants(&tap->demand, stage, latest)
             ? send_weights(tap, stage, (petra_weights_key){latest, false})
             : PETRA_OK;
}

/* Whatever has them. */
static petra_status send_latest(petra_probe_tap *tap, int32_t stage) {
  const int64_t latest = tap->demand.versions[stage - 1];
  PETRA_TRY(send_weights(tap, stage, (petra_weights_key){latest, false}));
  return petra_stage_predicts(petra_stages_get(&tap->options.stages, stage))
             ? send_weights(tap, stage, (petra_weights_key){latest, true})
             : PETRA_OK;
}

/* --- of all stages --- */

static petra_status begins(petra_stage_observer *observer, int64_t virtual_ns, const petra_action *actions, int count) {
  petra_probe_tap *tap = ((groups_observer *)observer)->tap;
  bool opened;
  (void)virtual_ns;
  tap->actions = actions;
  tap->count = count;
  PETRA_TRY(petra_probe_demand_begins(&tap->demand, actions, count, &opened));
  for (int32_t j = 1; opened && j <= tap->options.stages.count; j++)
    PETRA_TRY(send_wanted(tap, j));
  for (int32_t j = 1; tap->passed && tap->demand.count > 0 && j <= tap->options.stages.count; j++)
    if (sends_weights(tap, j))
      PETRA_TRY(send_latest(tap, j));
  tap->passed = false;
  return PETRA_OK;
}

static petra_status done(petra_stage_observer *observer) {
  petra_probe_tap *tap = ((groups_observer *)observer)->tap;
  for (int i = 0; i < tap->count; i++) {
    const int32_t stage = tap->actions[i].stage;
    if (tap->actions[i].kind != PETRA_ACTION_UPDATE)
      continue;
    petra_probe_demand_updated(&tap->demand, &tap->actions[i]);
    petra_probe_store_updated(&tap->sent[stage - 1], tap->demand.versions[stage - 1]);
    PETRA_TRY(send_wanted(tap, stage));
  }
  petra_probe_demand_done(&tap->demand);
  return PETRA_OK;
}

/* --- of the stages that are here --- */

static bool is_reported(const petra_probe_tap *tap, int32_t stage, int64_t microbatch) {
  return petra_stages_has(&tap->options.stages, stage) && petra_probe_demand_probed(&tap->demand, microbatch);
}

static petra_status read(petra_stage_observer *observer, int64_t microbatch, const petra_tensor *images,
                         const int32_t *labels, int32_t count) {
  petra_probe_tap *tap = (petra_probe_tap *)observer;
  petra_parcel parcel = {.kind = PETRA_PARCEL_READ, .stage = 1, .number = microbatch, .labels = count};
  petra_tensor *tensors[] = {(petra_tensor *)images}; /* which is only read */
  return is_reported(tap, 1, microbatch) ? send(tap, &parcel, tensors, 1, labels) : PETRA_OK;
}

/* Streams of a stage whose B, as an action of its own, reconstructs its input. */
static petra_status send_streams(petra_probe_tap *tap, petra_parcel_kind kind, int32_t stage, int64_t microbatch,
                                 const petra_streams *streams) {
  petra_parcel parcel = {.kind = kind, .stage = stage, .number = microbatch};
  if (stage == 1 || !is_reported(tap, stage, microbatch) || petra_program_fused(tap->options.program_options, stage) ||
      !petra_stage_reconstructs(petra_stages_get(&tap->options.stages, stage)))
    return PETRA_OK;
  return send(tap, &parcel, streams->tensor, 2, NULL);
}

static petra_status input(petra_stage_observer *observer, int32_t stage, int64_t microbatch, const petra_streams *in) {
  return send_streams((petra_probe_tap *)observer, PETRA_PARCEL_INPUT, stage, microbatch, in);
}

static petra_status reconstructed(petra_stage_observer *observer, int32_t stage, int64_t microbatch,
                                  const petra_streams *found) {
  return send_streams((petra_probe_tap *)observer, PETRA_PARCEL_FOUND, stage, microbatch, found);
}

static petra_status forwarded(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  petra_probe_tap *tap = (petra_probe_tap *)observer;
  if (!is_reported(tap, stage, microbatch) || !sends_weights(tap, stage))
    return PETRA_OK;
  const petra_stage *s = petra_stages_get(&tap->options.stages, stage);
  petra_parcel parcel = {
      .kind = PETRA_PARCEL_FORWARDED, .stage = stage, .number = microbatch, .version = petra_stage_version_forward(s)};
  PETRA_TRY(send_weights(tap, stage, (petra_weights_key){parcel.version, petra_stage_predicts(s)}));
  petra_probe_store_forwarded(&tap->sent[stage - 1], parcel.version, petra_stage_version(s));
  return send(tap, &parcel, NULL, 0, NULL);
}

static petra_status updating(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  petra_probe_tap *tap = (petra_probe_tap *)observer;
  if (!is_reported(tap, stage, microbatch) || !sends_weights(tap, stage))
    return PETRA_OK;
  for (int b = tap->options.partition->first[stage - 1]; b < tap->options.partition->first[stage]; b++) {
    petra_parcel parcel = {.kind = PETRA_PARCEL_GRADIENTS, .stage = stage, .number = microbatch, .block = b};
    const petra_tensor_set *set = petra_stage_mean_gradients(petra_stages_get(&tap->options.stages, stage), b);
    PETRA_TRY(send(tap, &parcel, set->tensor, set->count, NULL));
  }
  return PETRA_OK;
}

petra_status petra_probe_tap_create(const petra_probe_tap_options *options, petra_probe_tap **out) {
  static const petra_stage_observer_ops ops = {
      .read = read, .input = input, .forwarded = forwarded, .reconstructed = reconstructed, .updating = updating};
  static const petra_stage_observer_ops groups = {.begins = begins, .done = done};
  petra_probe_tap *tap;
  petra_status status;
  PETRA_TRY(petra_allocate(&tap, 1, sizeof *tap));
  tap->base.ops = &ops;
  tap->groups = (groups_observer){{&groups, NULL}, tap};
  tap->options = *options;
  PETRA_TRY_GOTO(status, petra_allocate(&tap->sent, (size_t)options->stages.count, sizeof *tap->sent), fail);
  PETRA_TRY_GOTO(status,
                 petra_probe_demand_init(&tap->demand, options->program, options->program_options, options->per_epoch),
                 fail);
  *out = tap;
  return PETRA_OK;
fail:
  petra_probe_tap_destroy(tap);
  return status;
}

void petra_probe_tap_destroy(petra_probe_tap *tap) {
  if (!tap)
    return;
  for (int32_t j = 0; tap->sent && j < tap->options.stages.count; j++)
    petra_probe_store_fini(&tap->sent[j]);
  petra_free(tap->sent);
  petra_probe_demand_fini(&tap->demand);
  petra_free(tap);
}

petra_status petra_probe_tap_pass(petra_probe_tap *tap, const petra_action *actions, int count) {
  tap->passed = true;
  return petra_probe_demand_pass(&tap->demand, actions, count);
}

petra_stage_observer *petra_probe_tap_observer(petra_probe_tap *tap) {
  return &tap->base;
}

petra_stage_observer *petra_probe_tap_groups(petra_probe_tap *tap) {
  return &tap->groups.base;
}
