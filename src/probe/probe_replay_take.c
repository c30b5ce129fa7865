/* SPDX-License-Identifier: Apache-2.0 */
/* The parcels of the taps: what they bring, and which step they belong to. */
#include "probe/probe_replay_private.h"

#include "base/log.h"

/* A parcel that does not belong to the step: the two ends do not go by the same order. */
static petra_status refuse(const petra_parcel *parcel, const petra_replay_step *at) {
  return petra_fail(PETRA_INTERNAL,
                    "a probe's parcel (kind %d, stage %d, number %lld) in the place of another (%d, %d, %lld)",
                    parcel->kind, parcel->stage, (long long)parcel->number, at->kind, at->stage, (long long)at->number);
}

static petra_status take_weights(petra_probe_replay *replay, const petra_parcel *parcel, const void *data) {
  petra_probe_store *store = &replay->stores[parcel->stage - 1];
  const petra_weights_key key = {parcel->number, parcel->predicted != 0};
  petra_probe_stored *stored = petra_probe_store_find(store, key);
  const int block = parcel->block - replay->options.partition->first[parcel->stage - 1];
  if (!stored)
    PETRA_TRY(petra_probe_store_add(store, key, true, &stored));
  if (block != stored->blocks || block >= store->blocks)
    return petra_fail(PETRA_INTERNAL, "block %d of a probe's weights of stage %d in the place of another",
                      parcel->block, parcel->stage);
  stored->sets[block].count = parcel->count;
  PETRA_TRY(
      petra_parcel_tensors(parcel, &replay->compute, PETRA_MEMORY_WEIGHT_BUFFER, data, stored->sets[block].tensor));
  stored->blocks++;
  return PETRA_OK;
}

static petra_status take_gradients(petra_probe_replay *replay, const petra_parcel *parcel, const void *data) {
  const petra_partition *partition = replay->options.partition;
  if (parcel->block != partition->first[parcel->stage - 1] + replay->gradients_in ||
      parcel->block >= partition->first[parcel->stage])
    return petra_fail(PETRA_INTERNAL, "block %d of a probe's gradients of stage %d in the place of another",
                      parcel->block, parcel->stage);
  replay->gradients_in++;
  petra_tensor_set *set = &replay->gradients[parcel->block];
  set->count = parcel->count;
  return petra_parcel_tensors(parcel, &replay->compute, PETRA_MEMORY_GRADIENTS, data, set->tensor);
}

static petra_status take_images(petra_probe_replay *replay, const petra_replay_step *at, const petra_parcel *parcel,
                                const void *data) {
  petra_stage_observer *reported = petra_probe_observer(replay->probe, at->replica);
  petra_tensor *images[PETRA_BLOCK_TENSORS] = {NULL};
  petra_status status = petra_parcel_tensors(parcel, &replay->compute, PETRA_MEMORY_INPUT_BUFFER, data, images);
  if (status == PETRA_OK)
    status = reported->ops->read(reported, parcel->number, images[0],
                                 petra_parcel_labels(parcel, replay->options.backend, data), parcel->labels);
  petra_tensor_release(&images[0]);
  return status;
}

static petra_status take_streams(petra_probe_replay *replay, const petra_replay_step *at, const petra_parcel *parcel,
                                 const void *data) {
  petra_stage_observer *reported = petra_probe_observer(replay->probe, at->replica);
  petra_streams streams = {{NULL, NULL}};
  if (parcel->count > 2)
    return petra_fail(PETRA_INTERNAL, "a probe's parcel has %d streams", parcel->count);
  petra_status status = petra_parcel_tensors(parcel, &replay->compute, PETRA_MEMORY_INPUT_BUFFER, data, streams.tensor);
  if (status == PETRA_OK)
    replay->input_in = at->kind == PETRA_STEP_FORWARD;
  if (status == PETRA_OK)
    status = (parcel->kind == PETRA_PARCEL_INPUT ? reported->ops->input : reported->ops->reconstructed)(
        reported, parcel->stage, parcel->number, &streams);
  petra_streams_release(&streams);
  return status;
}

static petra_status take_forwarded(petra_probe_replay *replay, const petra_parcel *parcel) {
  petra_stage_observer *reported = petra_probe_observer(replay->probe, 0);
  const int32_t j = parcel->stage - 1;
  const petra_weights_key key = {parcel->version, replay->source.ops->predicts(&replay->source, parcel->stage)};
  const petra_tensor_set *read;
  if (replay->input_in != petra_probe_replay_takes_input(replay, parcel->stage))
    return petra_fail(PETRA_INTERNAL, "the probe has no input of stage %d", parcel->stage);
  replay->input_in = false;
  PETRA_TRY(
      replay->source.ops->weights(&replay->source, parcel->stage, key, replay->options.partition->first[j], &read));
  replay->forwards[j] = parcel->version;
  PETRA_TRY(reported->ops->forwarded(reported, parcel->stage, parcel->number));
  petra_probe_store_forwarded(&replay->stores[j], parcel->version, replay->versions[j]);
  return PETRA_OK;
}

/* Before a step ends, other parcels may come that belong to it. */
petra_status petra_probe_replay_take(petra_probe_replay *replay, const petra_replay_step *at,
                                     const petra_parcel *parcel, const void *data) {
  const bool same = parcel->number == at->number;
  if (parcel->stage != at->stage)
    return refuse(parcel, at);
  if (parcel->kind == PETRA_PARCEL_WEIGHTS &&
      (at->kind == PETRA_STEP_FORWARD || (at->kind == PETRA_STEP_WEIGHTS && same)))
    return take_weights(replay, parcel, data);
  if (parcel->kind == PETRA_PARCEL_INPUT && at->kind == PETRA_STEP_FORWARD && same)
    return take_streams(replay, at, parcel, data);
  if (parcel->kind == PETRA_PARCEL_GRADIENTS && at->kind == PETRA_STEP_UPDATE && same)
    return take_gradients(replay, parcel, data);
  replay->closed = true;
  if (parcel->kind == PETRA_PARCEL_READ && at->kind == PETRA_STEP_READ && same)
    return take_images(replay, at, parcel, data);
  if (parcel->kind == PETRA_PARCEL_FORWARDED && at->kind == PETRA_STEP_FORWARD && same)
    return take_forwarded(replay, parcel);
  if (parcel->kind == PETRA_PARCEL_INPUT && at->kind == PETRA_STEP_INPUT && same)
    return take_streams(replay, at, parcel, data);
  if (parcel->kind == PETRA_PARCEL_FOUND && at->kind == PETRA_STEP_FOUND && same)
    return take_streams(replay, at, parcel, data);
  return refuse(parcel, at);
}
