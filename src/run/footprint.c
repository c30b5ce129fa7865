/* SPDX-License-Identifier: Apache-2.0 */
#include "run/footprint.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/transport_ranks.h"
#include "exec/worker_stage.h"
#include "run/network.h"
#include "run/replica_exchange.h"

#include <string.h>

/* --- measured --- */

/* How a microbatch goes up and down. */
typedef enum passing {
  ONCE,
  APART, /* no W before all B, and then from below: the other order in which neighbours may let go of a tensor */
  AGED   /* with updates between F and B, the mitigations of delay begun */
} passing;

/* One microbatch on its way through dry stages. */
typedef struct passage {
  passing how;
  petra_network network; /* dry */
  const petra_program_options *program;
  petra_memory_stage *out;
  petra_account *before;             /* for each stage, from 0 */
  petra_message *forward, *backward; /* the same */
  int32_t *labels, label_count;
} passage;

static petra_account *account_of(passage *p, int stage) {
  return petra_stage_account(p->network.stage[stage]);
}

/* Notes the accounts, and lets their peaks begin here. */
static void begin(passage *p) {
  for (int j = 0; j < p->program->stages; j++) {
    petra_account *account = account_of(p, j);
    memcpy(account->peak_bytes, account->bytes, sizeof account->bytes);
    account->total_peak_bytes = account->total_bytes;
    p->before[j] = *account;
  }
}

/* Notes what the action that began with `begin` did. Older weights go by counts. */
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

/* As the worker posts: what is sent counts at the receiver. */
static void post(passage *p, petra_message *box, int receiver, petra_message *message) {
  petra_streams_charge(&message->streams, account_of(p, receiver), PETRA_MEMORY_MESSAGES);
  petra_streams_charge(&message->gradients, account_of(p, receiver), PETRA_MEMORY_MESSAGES);
  *box = *message;
  *message = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
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
    post(p, &p->forward[stage + 1], stage + 1, &out);
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
    post(p, &p->backward[stage - 1], stage - 1, &out);
  else
    petra_message_release(&out);
  return end(p, stage, PETRA_ACTION_BACKWARD);
}

static petra_status pass_weight_gradient(passage *p, int stage) {
  begin(p);
  PETRA_TRY(petra_stage_weight_gradient(p->network.stage[stage], 0));
  return end(p, stage, PETRA_ACTION_WEIGHT_GRADIENT);
}

/* The versions that U makes go by counts. */
static petra_status pass_update(passage *p, int stage) {
  begin(p);
  PETRA_TRY(petra_stage_step_alone(p->network.stage[stage], 0));
  return end(p, stage, PETRA_ACTION_UPDATE);
}

static petra_status pass(passage *p) {
  int stages = p->program->stages;
  const bool split = p->network.plan->method.program->split_backward, apart = p->how == APART;
  PETRA_TRY(petra_allocate(&p->before, (size_t)stages, sizeof *p->before));
  PETRA_TRY(petra_allocate(&p->forward, (size_t)stages, sizeof *p->forward));
  PETRA_TRY(petra_allocate(&p->backward, (size_t)stages, sizeof *p->backward));
  p->label_count = (int32_t)p->network.plan->config->data.batch * petra_model_labels(&p->network.plan->model);
  PETRA_TRY(petra_allocate(&p->labels, (size_t)p->label_count, sizeof *p->labels));
  for (int j = 0; j < stages; j++)
    memcpy(p->out[j].base, account_of(p, j)->bytes, sizeof p->out[j].base);
  for (int j = 0; j < stages - !p->program->split_head; j++)
    PETRA_TRY(pass_forward(p, j));
  for (int j = 0; j < stages && p->how == AGED; j++)
    PETRA_TRY(petra_stage_age(p->network.stage[j]));
  for (int j = stages - 1; j >= 0; j--) {
    PETRA_TRY(pass_backward(p, j));
    if (split && !apart)
      PETRA_TRY(pass_weight_gradient(p, j));
  }
  for (int j = 0; split && apart && j < stages; j++)
    PETRA_TRY(pass_weight_gradient(p, j));
  for (int j = 0; j < stages; j++)
    PETRA_TRY(pass_update(p, j));
  return PETRA_OK;
}

static petra_status pass_dry(const petra_plan *plan, passing how, petra_memory_stage *out) {
  const petra_config *config = plan->config;
  passage p = {.how = how, .program = &plan->program, .out = out};
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
  petra_network_fini(&p.network);
  return status;
}

/* What B or W of a stage lets go of when W of the stage above came before, and does not when it comes after, is
 * shared with it. Such tensors were sent up, and count there. */
static void find_shared(petra_memory_stage *stage, const petra_memory_stage *apart) {
  static const petra_action_kind kinds[PETRA_MEMORY_HOLDERS] = {PETRA_ACTION_BACKWARD, PETRA_ACTION_WEIGHT_GRADIENT};
  for (int h = 0; h < PETRA_MEMORY_HOLDERS; h++)
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++) {
      const int64_t bytes = stage->change[PETRA_MEMORY_FIRST][kinds[h]][PETRA_MEMORY_ABOVE].bytes[c];
      const int64_t without = apart->change[PETRA_MEMORY_FIRST][kinds[h]][PETRA_MEMORY_ABOVE].bytes[c];
      stage->shared[h][c] = without - bytes;
      for (int w = 0; w < PETRA_MEMORY_WHENS; w++)
        stage->change[w][kinds[h]][PETRA_MEMORY_ABOVE].bytes[c] += without - bytes;
    }
}

/* What actions do later in the run. The head's one action begins and ends with the same weights. */
static void take_later(const petra_plan *plan, int j, const petra_memory_stage *aged, petra_memory_stage *out) {
  const petra_stage_mitigation mitigation = petra_method_stage_mitigation(&plan->method, &plan->program, j + 1);
  petra_memory_changes *first = out->change[PETRA_MEMORY_FIRST], *later = out->change[PETRA_MEMORY_LATER];
  memcpy(later, aged->change[PETRA_MEMORY_FIRST], sizeof out->change[PETRA_MEMORY_LATER]);
  if (petra_program_fused(&plan->program, j + 1))
    memcpy(later[PETRA_ACTION_BACKWARD], first[PETRA_ACTION_BACKWARD], sizeof *first);
  const bool extrapolates = petra_mitigation_predicts(&mitigation) || petra_mitigation_corrects(&mitigation);
  out->extrapolates_after = extrapolates ? mitigation.start : INT64_MAX;
  out->mitigates_after = mitigation.start;
}

static petra_status pass_again(const petra_plan *plan, petra_memory_stage *out) {
  const bool split = plan->method.program->split_backward;
  petra_memory_stage *again;
  petra_status status;
  PETRA_TRY(petra_allocate(&again, (size_t)plan->stages, sizeof *again));
  PETRA_TRY_GOTO(status, pass_dry(plan, AGED, again), done);
  for (int j = 0; j < plan->stages; j++)
    take_later(plan, j, &again[j], &out[j]);
  if (split)
    PETRA_TRY_GOTO(status, pass_dry(plan, APART, again), done);
  for (int j = 0; j < plan->stages && split; j++)
    find_shared(&out[j], &again[j]);
done:
  petra_free(again);
  return status;
}

/* One version beside the latest, whatever is in flight: a double buffer's, or that of F's copy. */
static bool holds_a_copy(const petra_method *method) {
  return method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER || method->sync_period > 1;
}

petra_status petra_footprint_measured(const petra_plan *plan, petra_memory_stage *out) {
  const int stages = plan->stages;
  PETRA_TRY(pass_dry(plan, ONCE, out));
  PETRA_TRY(pass_again(plan, out));
  for (int j = 0; j < stages; j++) {
    int64_t parameters = out[j].base[PETRA_MEMORY_PARAMETERS];
    if (petra_method_stashes(&plan->method))
      out[j].version_bytes = parameters;
    if (holds_a_copy(&plan->method))
      out[j].copy_bytes = parameters;
  }
  return PETRA_OK;
}

/* --- paper, strict --- */

petra_ledger_rule petra_footprint_rule(const petra_plan *plan, petra_accounting accounting) {
  return (petra_ledger_rule){.accounting = accounting,
                             .batch = plan->config->data.batch,
                             .accumulate = plan->config->method.accumulate,
                             .element_bytes = petra_plan_element_bytes(plan, PETRA_TENSOR_ACTIVATION),
                             .parameter_bytes = petra_plan_element_bytes(plan, PETRA_TENSOR_FILTER)};
}

void petra_footprint_block(const petra_plan *plan, int block, int64_t delay, petra_ledger_block *out) {
  const petra_block *b = &plan->model.blocks[block];
  petra_tensor_spec spec;
  *out = (petra_ledger_block){.parameters = petra_block_parameters(&plan->model, b),
                              .stream_elements = petra_block_input_elements(b) / b->streams_in,
                              .streams = b->streams_in,
                              .reversible = b->reversible,
                              .reads_data = b->reads_data,
                              .is_loss = b->is_loss,
                              .delay = delay};
  for (int i = 0; i < petra_block_parameter_count(b); i++) {
    petra_block_parameter(&plan->model, b, i, &spec);
    out->parameters += spec.kind == PETRA_TENSOR_FILTER ? spec.shape[0] : 0; /* the bias */
  }
  for (int i = 0; i < petra_block_statistic_count(b); i++) {
    petra_block_statistic(b, i, &spec);
    out->statistics += spec.shape[0];
  }
}

/* Bytes of one waiting input and one waiting version: what a delay of one microbatch, with an update each, adds. */
static petra_status count_block(const petra_plan *plan, petra_accounting accounting, int block,
                                petra_memory_stage *out) {
  petra_ledger_rule rule = petra_footprint_rule(plan, accounting);
  rule.inputs_kept = plan->method.keep != PETRA_KEEP_NOTHING;
  rule.weights_kept = petra_method_stashes(&plan->method);
  rule.accumulate = 1;
  petra_ledger_block about;
  petra_ledger_bytes bytes;
  petra_footprint_block(plan, block, 1, &about);
  PETRA_TRY(petra_ledger_block_bytes(&rule, &about, &bytes));
  out->base[PETRA_MEMORY_PARAMETERS] += bytes.parameters;
  out->base[PETRA_MEMORY_STATISTICS] += bytes.statistics;
  out->base[PETRA_MEMORY_INPUT_BUFFER] += bytes.input;
  if (holds_a_copy(&plan->method))
    out->copy_bytes += bytes.parameters;
  out->input_bytes += bytes.input_buffer;
  out->version_bytes += bytes.weight_buffer;
  return PETRA_OK;
}

petra_status petra_footprint_counted(const petra_plan *plan, petra_accounting accounting, petra_memory_stage *out) {
  memset(out, 0, (size_t)plan->partition.stages * sizeof *out);
  for (int j = 0; j < plan->partition.stages; j++)
    for (int b = plan->partition.first[j]; b < plan->partition.first[j + 1]; b++)
      PETRA_TRY(count_block(plan, accounting, b, &out[j]));
  return PETRA_OK;
}

/* Of a rank: its stages' copies of what they share, and the buffers of its exchanges at the stage that shares most. */
static void add_exchange(const petra_plan *plan, const int32_t *rank_of, int32_t rank, petra_memory_stage *stages) {
  const int replicas = (int)plan->config->cluster.replicas;
  int32_t largest = 0;
  int64_t most = 0;
  int count = 0;
  for (int32_t j = 0; j < plan->stages; j++) {
    petra_stage_summary summary;
    if (rank_of[j] != rank)
      continue;
    petra_plan_stage_summary(plan, j, &summary);
    stages[j].base[PETRA_MEMORY_MESSAGES] += summary.gradient_bytes;
    count++;
    if (summary.gradient_bytes > most) {
      most = summary.gradient_bytes;
      largest = j;
    }
  }
  if (count > 0)
    stages[largest].base[PETRA_MEMORY_MESSAGES] += petra_replica_exchange_bytes(replicas, count, most);
}

void petra_footprint_buffers(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *stages) {
  for (int32_t j = 0; j + 1 < plan->stages; j++) {
    petra_stage_summary low, high;
    if (rank_of[j] == rank_of[j + 1])
      continue;
    petra_plan_stage_summary(plan, j, &low);
    petra_plan_stage_summary(plan, j + 1, &high);
    stages[j].base[PETRA_MEMORY_MESSAGES] +=
        petra_transport_ranks_bytes_out(low.forward_bytes) + petra_transport_ranks_bytes_in(high.backward_bytes);
    stages[j + 1].base[PETRA_MEMORY_MESSAGES] +=
        petra_transport_ranks_bytes_in(low.forward_bytes) + petra_transport_ranks_bytes_out(high.backward_bytes);
  }
  for (int32_t rank = 0; rank < plan->stages && plan->config->cluster.replicas > 1; rank++)
    add_exchange(plan, rank_of, rank, stages);
}
