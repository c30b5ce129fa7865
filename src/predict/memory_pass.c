/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one microbatch up and down through the real stages on a backend without content, and records what each action
 * changes in their accounts. */
#include "predict/memory.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/network.h"
#include "stage/stage.h"

#include <string.h>

/* --- if W is split from B: the tensors that several stages hold, each until its B or its W --- */

typedef struct holder {
  petra_tensor *tensor; /* a reference of its own */
  int stage;            /* from 0 */
  petra_memory_until until;
} holder;

typedef struct kept_tensors {
  holder *holders;
  int64_t count, capacity;
  holder noting; /* the stage whose tensors petra_stage_each_kept visits */
} kept_tensors;

static void release_kept(kept_tensors *held) {
  for (int64_t i = 0; i < held->count; i++)
    petra_tensor_release(&held->holders[i].tensor);
  petra_free(held->holders);
  *held = (kept_tensors){0};
}

static petra_status add(void *context, petra_tensor *tensor) {
  kept_tensors *held = context;
  PETRA_TRY(petra_array_reserve(&held->holders, &held->capacity, held->count + 1, sizeof *held->holders));
  held->noting.tensor = petra_tensor_retain(tensor);
  held->holders[held->count++] = held->noting;
  return PETRA_OK;
}

/* Returns the stage in whose account the tensor is; -1: none. */
static int owner_of(const petra_tensor *tensor, petra_stage *const *stages, int count) {
  for (int j = 0; j < count; j++)
    if (petra_stage_account(stages[j]) == tensor->account)
      return j;
  return -1;
}

/* Finds until when each stage keeps the tensor, from the stage below its owner on. The message that brought it to its
 * owner keeps it until the owner's B. */
static petra_status find_holders(const kept_tensors *held, const petra_tensor *tensor, int owner,
                                 petra_memory_shared *out) {
  *out = (petra_memory_shared){.bytes = (int64_t)tensor->bytes, .category = tensor->category};
  for (int64_t i = 0; i < held->count; i++) {
    const holder *one = &held->holders[i];
    const int place = one->stage - owner - PETRA_MEMORY_KEPT_FROM;
    if (one->tensor != tensor)
      continue;
    if (place < 0 || place >= PETRA_MEMORY_KEPT_STAGES)
      return petra_fail(PETRA_INTERNAL, "stage %d holds what counts at stage %d", one->stage + 1, owner + 1);
    if (out->until[place] < one->until)
      out->until[place] = one->until;
  }
  petra_memory_until *own = &out->until[-PETRA_MEMORY_KEPT_FROM];
  if (*own == PETRA_MEMORY_NOT_KEPT)
    *own = PETRA_MEMORY_UNTIL_BACKWARD;
  return PETRA_OK;
}

/* Adds the bytes to the entry with the same category and the same actions, or adds such an entry. */
static petra_status share(const petra_memory_shared *found, int owner, petra_memory_stage *out) {
  int i = 0;
  while (i < out->shared_count && (out->shared[i].category != found->category ||
                                   memcmp(out->shared[i].until, found->until, sizeof found->until) != 0))
    i++;
  if (i == PETRA_MEMORY_SHARED_MAX)
    return petra_fail(PETRA_INTERNAL, "what counts at stage %d is held in more than %d ways", owner + 1, i);
  if (i == out->shared_count)
    out->shared[out->shared_count++] = (petra_memory_shared){.category = found->category};
  memcpy(out->shared[i].until, found->until, sizeof found->until);
  out->shared[i].bytes += found->bytes;
  return PETRA_OK;
}

/* Returns true if no holder before this one keeps the same tensor until its W. */
static bool is_first(const kept_tensors *held, int64_t index) {
  for (int64_t i = 0; i < index; i++)
    if (held->holders[i].tensor == held->holders[index].tensor &&
        held->holders[i].until == PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT)
      return false;
  return true;
}

/* Puts every tensor that is held until a W, and also until another action, into `shared` of the stage in whose account
 * it counts. PETRA_INTERNAL if the account belongs to none of these stages, or if a holder is too far from the
 * owner. */
static petra_status share_kept(const kept_tensors *held, petra_stage *const *stages, int count,
                               petra_memory_stage *out) {
  for (int64_t i = 0; i < held->count; i++) {
    const holder *one = &held->holders[i];
    petra_memory_shared found;
    int holders = 0;
    if (one->until != PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT || !is_first(held, i))
      continue;
    const int owner = owner_of(one->tensor, stages, count);
    if (owner < 0)
      return petra_fail(PETRA_INTERNAL, "stage %d holds what counts at no stage", one->stage + 1);
    PETRA_TRY(find_holders(held, one->tensor, owner, &found));
    for (int place = 0; place < PETRA_MEMORY_KEPT_STAGES; place++)
      holders += found.until[place] != PETRA_MEMORY_NOT_KEPT;
    if (holders > 1)
      PETRA_TRY(share(&found, owner, &out[owner]));
  }
  return PETRA_OK;
}

/* --- the pass --- */

/* The variants of a pass up and down. */
typedef enum passing {
  ONCE,
  AGED, /* with updates between F and B, and mitigations of delay begun */
  HELD  /* only up and down: finds which stages keep which tensors until their W */
} passing;

/* One microbatch on its way through dry stages. */
typedef struct passage {
  passing how;
  petra_network network;  /* dry */
  const int32_t *rank_of; /* of each stage; NULL: one process has all */
  kept_tensors held;      /* of HELD */
  const petra_program_options *program;
  petra_memory_stage *out;
  petra_account *before;             /* one per stage, from 0 */
  petra_message *forward, *backward; /* one of each per stage, from 0 */
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

/* Stores the changes by the action that began with `begin`. Older weights are left out, because they are computed from
 * counts. */
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

/* Between processes a message is written to a buffer, which is computed from counts, and read into the receiver's own
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

/* Posts a message as the worker does: it counts at the receiver. */
static petra_status post(passage *p, int stage, int receiver, petra_message *box, petra_message *message) {
  const petra_status status = petra_stage_send(p->network.stage[stage], receiver > stage, 0, message);
  *box = *message;
  *message = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
  PETRA_TRY(status);
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
  petra_stream_tensor_shape(&first->shape_in, (int32_t)p->network.plan->config->data.batch, shape);
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
  PETRA_TRY(petra_stage_receive(p->network.stage[stage], true, &p->forward[stage]));
  const bool head = petra_program_has_loss(p->program, stage + 1), last = stage == p->program->stages - 1;
  petra_loss loss;
  petra_status status = petra_stage_forward(p->network.stage[stage], 0, &p->forward[stage], head ? p->labels : NULL,
                                            p->label_count, &out, &loss);
  petra_message_release(&p->forward[stage]);
  PETRA_TRY(status);
  if (!last)
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
  PETRA_TRY(petra_stage_receive(p->network.stage[stage], head, in));
  if (head) {
    petra_loss loss;
    status = petra_stage_loss(p->network.stage[stage], 0, in, p->labels, &out, &loss);
  } else {
    status = petra_stage_backward(p->network.stage[stage], 0, in, &out);
  }
  petra_message_release(in);
  PETRA_TRY(status);
  if (petra_program_sends_down(p->program, stage + 1))
    PETRA_TRY(post(p, stage, stage - 1, &p->backward[stage - 1], &out));
  else
    petra_message_release(&out);
  return end(p, stage, PETRA_ACTION_BACKWARD);
}

/* Does W or U. The versions that U creates are computed from counts. */
static petra_status pass_alone(passage *p, int stage, petra_action_kind kind) {
  petra_stage *own = p->network.stage[stage];
  begin(p);
  PETRA_TRY(kind == PETRA_ACTION_UPDATE ? petra_stage_step_alone(own, 0) : petra_stage_weight_gradient(own, 0));
  return end(p, stage, kind);
}

/* Notes all that the stages keep of microbatch 0: between the last F and the first B (until their B, as far as is known
 * then), and a second time after the last B, before any W (until their W). */
static petra_status note_held(passage *p, petra_memory_until until) {
  for (int j = 0; j < p->program->stages && p->how == HELD; j++) {
    p->held.noting = (holder){.stage = j, .until = until};
    PETRA_TRY(petra_stage_each_kept(p->network.stage[j], 0, add, &p->held));
  }
  return PETRA_OK;
}

/* Does F and B of all stages in the order of a synchronous flush. */
static petra_status pass_whole(passage *p) {
  const int stages = p->program->stages;
  const bool split = p->network.plan->method.program->split_backward;
  for (int j = 0; j < stages - !p->program->split_head; j++)
    PETRA_TRY(pass_forward(p, j));
  PETRA_TRY(note_held(p, PETRA_MEMORY_UNTIL_BACKWARD));
  for (int j = 0; j < stages && p->how == AGED; j++)
    PETRA_TRY(petra_stage_age(p->network.stage[j]));
  for (int j = stages - 1; j >= 0; j--) {
    PETRA_TRY(pass_backward(p, j));
    if (split && p->how != HELD)
      PETRA_TRY(pass_alone(p, j, PETRA_ACTION_WEIGHT_GRADIENT));
  }
  return PETRA_OK;
}

/* In a local program B of a stage comes before F of the stage above. */
static petra_status pass_local(passage *p) {
  for (int j = 0; j < p->program->stages; j++) {
    if (!petra_program_fused(p->program, j + 1))
      PETRA_TRY(pass_forward(p, j));
    if (p->how == AGED)
      PETRA_TRY(petra_stage_age(p->network.stage[j]));
    PETRA_TRY(pass_backward(p, j));
  }
  return PETRA_OK;
}

static petra_status pass(passage *p) {
  int stages = p->program->stages;
  PETRA_TRY(petra_allocate(&p->before, (size_t)stages, sizeof *p->before));
  PETRA_TRY(petra_allocate(&p->forward, (size_t)stages, sizeof *p->forward));
  PETRA_TRY(petra_allocate(&p->backward, (size_t)stages, sizeof *p->backward));
  p->label_count = (int32_t)p->network.plan->config->data.batch * petra_model_labels(&p->network.plan->model);
  PETRA_TRY(petra_allocate(&p->labels, (size_t)p->label_count, sizeof *p->labels));
  for (int j = 0; j < stages; j++)
    memcpy(p->out[j].base, account_of(p, j)->bytes, sizeof p->out[j].base);
  PETRA_TRY(p->program->local ? pass_local(p) : pass_whole(p));
  if (p->how == HELD) {
    PETRA_TRY(note_held(p, PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT));
    return share_kept(&p->held, p->network.stage, stages, p->out);
  }
  for (int j = 0; j < stages; j++)
    PETRA_TRY(pass_alone(p, j, PETRA_ACTION_UPDATE));
  return PETRA_OK;
}

static petra_status pass_dry(const petra_plan *plan, const int32_t *rank_of, passing how, petra_memory_stage *out) {
  const petra_config *config = plan->config;
  passage p = {.how = how, .rank_of = rank_of, .program = &plan->program, .out = out};
  petra_backend *dry;
  memset(out, 0, (size_t)plan->stages * sizeof *out);
  PETRA_TRY(petra_backend_create_dry(config->device.backend, config->device.precision, &dry));
  petra_status status;
  PETRA_TRY_GOTO(status, petra_network_open(&p.network, plan, NULL, 0, dry), done);
  status = pass(&p);
done:
  for (int j = 0; p.forward && j < plan->stages; j++)
    petra_message_release(&p.forward[j]);
  for (int j = 0; p.backward && j < plan->stages; j++)
    petra_message_release(&p.backward[j]);
  PETRA_FREE_ALL(p.before, p.forward, p.backward, p.labels);
  release_kept(&p.held);
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

/* Stores the changes by actions later in the run. The fused action of the head begins and ends with the same
 * weights. */
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
  PETRA_FREED petra_memory_stage *second = NULL;
  PETRA_TRY(pass_dry(plan, rank_of, ONCE, out));
  PETRA_TRY(petra_allocate(&second, (size_t)plan->stages, sizeof *second));
  PETRA_TRY(pass_dry(plan, rank_of, AGED, second));
  for (int j = 0; j < plan->stages; j++)
    take_later(plan, j, &second[j], &out[j]);
  if (split)
    PETRA_TRY(pass_dry(plan, rank_of, HELD, second));
  for (int j = 0; j < plan->stages && split; j++)
    take_shared(second, out, j);
  return PETRA_OK;
}
