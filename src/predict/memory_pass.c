/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/memory_pass.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/worker_stage.h"
#include "predict/memory_kept.h"
#include "plan/network.h"

#include <string.h>

/* The variants of a pass up and down. */
typedef enum passing {
  ONCE,
  AGED, /* with updates between F and B, and mitigations of delay begun */
  HELD  /* only up and down: finds who keeps which tensors until their W */
} passing;

/* One microbatch on its way through dry stages. */
typedef struct passage {
  passing how;
  petra_network network;   /* dry */
  const int32_t *rank_of;  /* of each stage; NULL: one process has all */
  petra_kept_tensors held; /* of HELD */
  const petra_program_options *program;
  petra_memory_stage *out;
  petra_account *before;             /* one per stage, from 0 */
  petra_message *forward, *backward; /* likewise */
  int32_t *labels, label_count;
} passage;

static petra_account *account_of(passage *p, int stage) {
  return petra_stage_account(p->network.stage[stage]);
}

/* Stores the accounts, and restarts their peaks. */
static void begin(passage *p) {
  for (int j = 0; j < p->program->stages; j++) {
    petra_account *account = account_of(p, j);
    memcpy(account->peak_bytes, account->bytes, sizeof account->bytes);
    account->total_peak_bytes = account->total_bytes;
    p->before[j] = *account;
  }
}

/* Stores the changes by the action that began with `begin`. Older weights are computed by counts. */
static petra_status end(passage *p, int stage, petra_action_kind kind) {
  for (int j = 0; j < p->program->stages; j++) {
    const petra_account *account = account_of(p, j), *before = &p->before[j];
    petra_memory_change change = {.total_peak = account->total_peak_bytes - before->total_bytes};
    bool any = change.total_peak != 0;
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++) {
      change.bytes[c] = account->bytes[c] - before->bytes[c];
      change.peak[c] = account->peak_bytes[c] - before->bytes[c];
      if (c == PETRA_MEMORY_WEIGHT_BUFFER)
        change.bytes[c] = change.peak[c] = 0;
      any = any || change.bytes[c] || change.peak[c];
    }
    if (j >= stage - 1 && j <= stage + 1)
      p->out[stage].change[PETRA_MEMORY_FIRST][kind][j - stage + 1] = change;
    else if (any)
      return petra_fail(PETRA_INTERNAL, "an action of stage %d changes what stage %d holds", stage + 1, j + 1);
  }
  return PETRA_OK;
}

/* Between processes a message is written to a buffer, which is computed by counts, and read into the receiver's own
 * tensors. */
static petra_status cross(passage *p, int receiver, petra_streams *streams) {
  for (int i = 0; i < 2; i++) {
    petra_tensor *sent = streams->tensor[i];
    if (!sent)
      continue;
    PETRA_TRY(petra_tensor_create(p->network.backend, sent->kind, sent->shape, account_of(p, receiver),
                                  PETRA_MEMORY_MESSAGES, &streams->tensor[i]));
    petra_tensor_release(&sent);
  }
  return PETRA_OK;
}

/* As the worker posts: a message counts at the receiver. */
static petra_status post(passage *p, int stage, int receiver, petra_message *box, petra_message *message) {
  *box = *message;
  *message = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
  if (p->rank_of && p->rank_of[stage] != p->rank_of[receiver]) {
    PETRA_TRY(cross(p, receiver, &box->streams));
    return cross(p, receiver, &box->gradients);
  }
  petra_streams_charge(&box->streams, account_of(p, receiver), PETRA_MEMORY_MESSAGES);
  petra_streams_charge(&box->gradients, account_of(p, receiver), PETRA_MEMORY_MESSAGES);
  return PETRA_OK;
}

static petra_status take_samples(passage *p, petra_message *out) {
  int32_t shape[4];
  const petra_block *first = &p->network.plan->model.blocks[0];
  petra_block_input_shape(first, (int32_t)p->network.plan->config->data.batch, shape);
  *out = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
  PETRA_TRY(petra_tensor_create(p->network.backend, first->shape_in.kind, shape, account_of(p, 0),
                                PETRA_MEMORY_MESSAGES, &out->streams.tensor[0]));
  p->out[0].taken_bytes = account_of(p, 0)->bytes[PETRA_MEMORY_MESSAGES] - p->before[0].bytes[PETRA_MEMORY_MESSAGES];
  return PETRA_OK;
}

static petra_status pass_forward(passage *p, int stage) {
  petra_message out;
  begin(p);
  if (stage == 0)
    PETRA_TRY(take_samples(p, &p->forward[0]));
  bool head = stage == p->program->stages - 1;
  petra_loss loss;
  petra_status status =
      head ? petra_stage_forward_loss(p->network.stage[stage], 0, &p->forward[stage], p->labels, p->label_count, &loss)
           : petra_stage_forward(p->network.stage[stage], 0, &p->forward[stage], &out);
  petra_message_release(&p->forward[stage]);
  PETRA_TRY(status);
  if (!head)
    PETRA_TRY(post(p, stage, stage + 1, &p->forward[stage + 1], &out));
  return end(p, stage, PETRA_ACTION_FORWARD);
}

static petra_status pass_backward(passage *p, int stage) {
  bool head = petra_program_fused(p->program, stage + 1);
  petra_message *in = head ? &p->forward[stage] : &p->backward[stage], out;
  petra_status status;
  begin(p);
  if (head && stage == 0)
    PETRA_TRY(take_samples(p, in));
  if (head) {
    petra_loss loss;
    status = petra_stage_loss(p->network.stage[stage], 0, in, p->labels, &out, &loss);
  } else {
    status = petra_stage_backward(p->network.stage[stage], 0, in, &out);
  }
  petra_message_release(in);
  PETRA_TRY(status);
  if (stage > 0)
    PETRA_TRY(post(p, stage, stage - 1, &p->backward[stage - 1], &out));
  else
    petra_message_release(&out);
  return end(p, stage, PETRA_ACTION_BACKWARD);
}

static petra_status pass_weight_gradient(passage *p, int stage) {
  begin(p);
  PETRA_TRY(petra_stage_weight_gradient(p->network.stage[stage], 0));
  return end(p, stage, PETRA_ACTION_WEIGHT_GRADIENT);
}

/* The versions that U creates are computed by counts. */
static petra_status pass_update(passage *p, int stage) {
  begin(p);
  PETRA_TRY(petra_stage_step_alone(p->network.stage[stage], 0));
  return end(p, stage, PETRA_ACTION_UPDATE);
}

static petra_status note_held(passage *p, petra_memory_until until) {
  for (int j = 0; j < p->program->stages && p->how == HELD; j++)
    PETRA_TRY(petra_kept_tensors_note(&p->held, p->network.stage[j], j, until));
  return PETRA_OK;
}

static petra_status pass(passage *p) {
  int stages = p->program->stages;
  const bool split = p->network.plan->method.program->split_backward;
  PETRA_TRY(petra_allocate(&p->before, (size_t)stages, sizeof *p->before));
  PETRA_TRY(petra_allocate(&p->forward, (size_t)stages, sizeof *p->forward));
  PETRA_TRY(petra_allocate(&p->backward, (size_t)stages, sizeof *p->backward));
  p->label_count = (int32_t)p->network.plan->config->data.batch * petra_model_labels(&p->network.plan->model);
  PETRA_TRY(petra_allocate(&p->labels, (size_t)p->label_count, sizeof *p->labels));
  for (int j = 0; j < stages; j++)
    memcpy(p->out[j].base, account_of(p, j)->bytes, sizeof p->out[j].base);
  for (int j = 0; j < stages - !p->program->split_head; j++)
    PETRA_TRY(pass_forward(p, j));
  PETRA_TRY(note_held(p, PETRA_MEMORY_UNTIL_BACKWARD));
  for (int j = 0; j < stages && p->how == AGED; j++)
    PETRA_TRY(petra_stage_age(p->network.stage[j]));
  for (int j = stages - 1; j >= 0; j--) {
    PETRA_TRY(pass_backward(p, j));
    if (split && p->how != HELD)
      PETRA_TRY(pass_weight_gradient(p, j));
  }
  if (p->how == HELD) {
    PETRA_TRY(note_held(p, PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT));
    return petra_kept_tensors_share(&p->held, p->network.stage, stages, p->out);
  }
  for (int j = 0; j < stages; j++)
    PETRA_TRY(pass_update(p, j));
  return PETRA_OK;
}

static petra_status pass_dry(const petra_plan *plan, const int32_t *rank_of, passing how, petra_memory_stage *out) {
  const petra_config *config = plan->config;
  passage p = {.how = how, .rank_of = rank_of, .program = &plan->program, .out = out};
  petra_backend *dry;
  memset(out, 0, (size_t)plan->stages * sizeof *out);
  PETRA_TRY(petra_backend_create_dry(config->device.backend, config->device.precision, &dry));
  petra_status status;
  PETRA_TRY_GOTO(status, petra_network_open(&p.network, plan, NULL, dry), done);
  status = pass(&p);
done:
  for (int j = 0; p.forward && j < plan->stages; j++)
    petra_message_release(&p.forward[j]);
  for (int j = 0; p.backward && j < plan->stages; j++)
    petra_message_release(&p.backward[j]);
  petra_free(p.before);
  petra_free(p.forward);
  petra_free(p.backward);
  petra_free(p.labels);
  petra_kept_tensors_fini(&p.held);
  petra_network_fini(&p.network);
  return status;
}

/* A tensor that several stages keep is released by the last of them, and not at the end of the last action here. */
static void take_shared(const petra_memory_stage *held, petra_memory_stage *out, int j) {
  memcpy(out[j].shared, held[j].shared, sizeof out[j].shared);
  out[j].shared_count = held[j].shared_count;
  for (int i = 0; i < out[j].shared_count; i++) {
    const petra_memory_shared *shared = &out[j].shared[i];
    int place = 0; /* the lowest stage is the last */
    while (shared->until[place] == PETRA_MEMORY_NOT_KEPT)
      place++;
    const petra_action_kind last =
        shared->until[place] == PETRA_MEMORY_UNTIL_BACKWARD ? PETRA_ACTION_BACKWARD : PETRA_ACTION_WEIGHT_GRADIENT;
    for (int w = 0; w < PETRA_MEMORY_WHENS; w++) {
      petra_memory_changes *change = &out[j + PETRA_MEMORY_KEPT_FROM + place].change[w][last];
      (*change)[PETRA_MEMORY_OWN - PETRA_MEMORY_KEPT_FROM - place].bytes[shared->category] += shared->bytes;
    }
  }
}

/* Stores what actions do later in the run. The head's one action begins and ends with the same weights. */
static void take_later(const petra_plan *plan, int j, const petra_memory_stage *aged, petra_memory_stage *out) {
  const petra_stage_mitigation mitigation =
      petra_method_stage_mitigation(&plan->method, plan->stages, plan->program.warmup, j + 1);
  petra_memory_changes *first = out->change[PETRA_MEMORY_FIRST], *later = out->change[PETRA_MEMORY_LATER];
  memcpy(later, aged->change[PETRA_MEMORY_FIRST], sizeof out->change[PETRA_MEMORY_LATER]);
  if (petra_program_fused(&plan->program, j + 1))
    memcpy(later[PETRA_ACTION_BACKWARD], first[PETRA_ACTION_BACKWARD], sizeof *first);
  const bool extrapolates = petra_mitigation_predicts(&mitigation) || petra_mitigation_corrects(&mitigation);
  out->extrapolates_after = extrapolates ? mitigation.start : INT64_MAX;
  out->mitigates_after = mitigation.start;
}

petra_status petra_predict_memory_pass(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out) {
  const bool split = plan->method.program->split_backward;
  petra_memory_stage *again;
  petra_status status;
  PETRA_TRY(pass_dry(plan, rank_of, ONCE, out));
  PETRA_TRY(petra_allocate(&again, (size_t)plan->stages, sizeof *again));
  PETRA_TRY_GOTO(status, pass_dry(plan, rank_of, AGED, again), done);
  for (int j = 0; j < plan->stages; j++)
    take_later(plan, j, &again[j], &out[j]);
  if (split)
    PETRA_TRY_GOTO(status, pass_dry(plan, rank_of, HELD, again), done);
  for (int j = 0; j < plan->stages && split; j++)
    take_shared(again, out, j);
done:
  petra_free(again);
  return status;
}
