/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/profile.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"

/* A stage, its waiting messages, and the numbers of its next microbatches. */
typedef struct petra_profile_place {
  petra_stage *stage;
  petra_message up, down; /* from the stage below, from the one above; empty: none */
  int64_t forward, backward;
} place;

/* Returns the time when the device has done its work; a failure shows with the next operation. */
static double clock_s(const petra_profile_pipeline *p) {
  (void)petra_backend_synchronize(p->backend);
  return petra_clock_s();
}

static bool waits(const petra_message *message) {
  return message->streams.tensor[0] || message->gradients.tensor[0];
}

/* --- actions --- */

/* The first stage reads as in a run. */
static petra_status upload_samples(petra_profile_pipeline *p, petra_message *out) {
  int32_t shape[4];
  petra_tensor *samples;
  const petra_block *first = &p->plan->model.blocks[0];
  petra_block_input_shape(first, (int32_t)p->plan->config->data.batch, shape);
  PETRA_TRY(petra_tensor_create(p->backend, first->shape_in.kind, shape, NULL, PETRA_MEMORY_MESSAGES, &samples));
  *out = (petra_message){{{samples, NULL}}, {{NULL, NULL}}};
  return petra_op_upload(p->backend, samples, p->values, PETRA_HOST_F64);
}

static petra_status forward(petra_profile_pipeline *p, int j) {
  place *here = &p->places[j];
  const double start_s = clock_s(p);
  if (j == 0)
    PETRA_TRY(upload_samples(p, &here->up));
  if (!waits(&here->up))
    return PETRA_OK;
  PETRA_TRY(petra_stage_receive(here->stage, true, &here->up));
  PETRA_TRY(petra_stage_forward(here->stage, here->forward, &here->up, NULL, 0, &p->places[j + 1].up, NULL));
  PETRA_TRY(petra_stage_send(here->stage, true, here->forward++, &p->places[j + 1].up));
  p->times[j].forward = clock_s(p) - start_s;
  petra_message_release(&here->up);
  return PETRA_OK;
}

/* Runs the blocks one by one. */
static petra_status time_head(petra_profile_pipeline *p, const petra_message *in) {
  const petra_plan *plan = p->plan;
  const petra_compute compute = {.backend = p->backend};
  petra_stage *stage = p->places[p->last].stage;
  petra_streams streams = petra_streams_retain(&in->streams), next;
  petra_loss loss;
  const petra_target target = {p->labels, &loss};
  petra_status status = PETRA_OK;
  int head = plan->model.block_count - 1;
  double start_s = clock_s(p);
  p->body_s = 0;
  for (int b = plan->partition.first[p->last]; b <= head; b++) {
    const petra_block *block = &plan->model.blocks[b];
    petra_tensor *parameters[PETRA_BLOCK_TENSORS];
    for (int i = 0; i < petra_block_parameter_count(block); i++)
      parameters[i] = petra_stage_tensor(stage, b, false, i);
    if (b == head)
      p->body_s = clock_s(p) - start_s;
    PETRA_TRY_GOTO(status, petra_block_forward(&compute, block, parameters, &streams, &target, &p->graphs[b], &next),
                   done);
    petra_streams_release(&streams);
    streams = next;
  }
  p->head_s = clock_s(p) - start_s;
done:
  for (int b = 0; b <= head; b++)
    petra_block_graph_release(&p->graphs[b]);
  petra_streams_release(&streams);
  return status;
}

static petra_status update(petra_profile_pipeline *p, int j) {
  if (p->places[j].backward % p->accumulate != 0)
    return PETRA_OK;
  const double start_s = clock_s(p);
  PETRA_TRY(petra_stage_update(p->places[j].stage, 0));
  p->times[j].update = clock_s(p) - start_s;
  return PETRA_OK;
}

/* Its message waits at the stage below. */
static petra_status go_down(petra_profile_pipeline *p, int j, petra_message *in, double start_s, petra_message *out) {
  const petra_status status = petra_stage_send(p->places[j].stage, false, p->places[j].backward, out);
  p->times[j].backward = clock_s(p) - start_s;
  p->places[j].backward++;
  petra_message_release(in);
  if (j > 0)
    p->places[j - 1].down = *out;
  else
    petra_message_release(out);
  return status != PETRA_OK ? status : update(p, j);
}

static petra_status loss(petra_profile_pipeline *p) {
  place *here = &p->places[p->last];
  petra_message out = {0};
  petra_loss loss;
  if (p->last == 0)
    PETRA_TRY(upload_samples(p, &here->up));
  if (!waits(&here->up))
    return PETRA_OK;
  const double received_s = clock_s(p);
  PETRA_TRY(petra_stage_receive(here->stage, true, &here->up));
  const double receiving_s = clock_s(p) - received_s;
  if (!p->graph)
    PETRA_TRY(time_head(p, &here->up));
  const double start_s = clock_s(p) - receiving_s;
  PETRA_TRY(petra_stage_loss(here->stage, here->forward++, &here->up, p->labels, &out, &loss));
  return go_down(p, p->last, &here->up, start_s, &out);
}

static petra_status backward(petra_profile_pipeline *p, int j) {
  place *here = &p->places[j];
  petra_message out = {0};
  if (!waits(&here->down))
    return PETRA_OK;
  const double start_s = clock_s(p);
  PETRA_TRY(petra_stage_receive(here->stage, false, &here->down));
  PETRA_TRY(petra_stage_backward(here->stage, here->backward, &here->down, &out));
  return go_down(p, j, &here->down, start_s, &out);
}

/* Runs the actions of a microbatch in their order: up, the loss, down. In the opposite order each action takes what the
 * one before it left in the last tick. */
petra_status petra_profile_pipeline_tick(petra_profile_pipeline *p) {
  for (int i = 0; i <= 2 * p->last; i++) {
    const int k = p->flows ? 2 * p->last - i : i;
    PETRA_TRY(k < p->last ? forward(p, k) : k == p->last ? loss(p) : backward(p, 2 * p->last - k));
  }
  return PETRA_OK;
}

int petra_profile_pipeline_filling(const petra_profile_pipeline *p) {
  return p->flows ? 2 * p->last : 0;
}

/* --- creation --- */

static petra_status create_stage(petra_profile_pipeline *p, int j) {
  const petra_plan *plan = p->plan;
  const petra_stage_options options = {.model = &plan->model,
                                       .number = j + 1,
                                       .first = plan->partition.first[j],
                                       .end = plan->partition.first[j + 1],
                                       .backend = p->backend,
                                       .rule = {.forward_weights = PETRA_WEIGHTS_LATEST,
                                                .backward_weights = PETRA_WEIGHTS_LATEST,
                                                .invert_weights = PETRA_WEIGHTS_LATEST,
                                                .keep = p->graph ? PETRA_KEEP_GRAPH : PETRA_KEEP_NOTHING,
                                                .invert = !p->graph && plan->model.reversible,
                                                .accumulate = p->accumulate},
                                       .formats = petra_network_formats(plan->config, 0),
                                       .optim = petra_optim_from_config(plan->config)};
  PETRA_TRY(petra_stage_create(&options, &p->places[j].stage));
  return petra_stage_initialise(p->places[j].stage, (uint64_t)plan->config->run.seed);
}

petra_status petra_profile_pipeline_init(petra_profile_pipeline *p) {
  const size_t stages = (size_t)p->plan->partition.stages;
  p->last = p->plan->partition.stages - 1;
  PETRA_TRY(petra_allocate(&p->places, stages, sizeof *p->places));
  PETRA_TRY(petra_allocate(&p->times, stages, sizeof *p->times));
  PETRA_TRY(petra_allocate(&p->graphs, (size_t)p->plan->model.block_count, sizeof *p->graphs));
  for (int j = 0; j <= p->last; j++)
    PETRA_TRY(create_stage(p, j));
  return PETRA_OK;
}

void petra_profile_pipeline_fini(petra_profile_pipeline *p) {
  for (int j = 0; p->places && j <= p->last; j++) {
    petra_message_release(&p->places[j].up);
    petra_message_release(&p->places[j].down);
    petra_stage_empty(p->places[j].stage); /* empties all of them first (stage/stage.h) */
  }
  for (int j = 0; p->places && j <= p->last; j++)
    petra_stage_destroy(p->places[j].stage);
  PETRA_FREE_ALL(p->places, p->times, p->graphs);
}
