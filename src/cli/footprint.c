#include "cli/footprint.h"

#include "base/log.h"
#include "base/mem.h"
#include "cli/memory.h"

#include <string.h>

/* --- measured --- */

/* One microbatch on its way through dry stages. */
typedef struct passage {
  petra_setup setup; /* with the plan of the real one, and dry stages */
  const petra_program_options *program;
  petra_memory_stage *out;
  petra_account before[PETRA_MODEL_BLOCKS];
  petra_message forward[PETRA_MODEL_BLOCKS], backward[PETRA_MODEL_BLOCKS]; /* for each stage, from 0 */
  int32_t *labels;
} passage;

/* The accounts of dry stages are ours to set. */
static petra_account *account_of(passage *p, int stage) {
  return petra_stage_account(p->setup.stage[stage]);
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

/* Notes what the action that began with `begin` did. */
static petra_status end(passage *p, int stage, petra_action_kind kind) {
  for (int j = 0; j < p->program->stages; j++) {
    const petra_account *account = account_of(p, j), *before = &p->before[j];
    petra_memory_change change = {.total_peak = account->total_peak_bytes - before->total_bytes};
    bool any = change.total_peak != 0;
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++) {
      change.bytes[c] = account->bytes[c] - before->bytes[c];
      change.peak[c] = account->peak_bytes[c] - before->bytes[c];
      any = any || change.bytes[c] || change.peak[c];
    }
    if (j >= stage - 1 && j <= stage + 1)
      p->out[stage].change[kind][j - stage + 1] = change;
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

static petra_status take_images(passage *p, petra_message *out) {
  const petra_model *model = &p->setup.model;
  const int32_t shape[4] = {(int32_t)p->setup.config->data.batch, 3, model->image_height, model->image_width};
  *out = (petra_message){{{NULL, NULL}}, {{NULL, NULL}}};
  return petra_tensor_create(p->setup.backend, PETRA_TENSOR_ACTIVATION, shape, account_of(p, 0), PETRA_MEMORY_MESSAGES,
                             &out->streams.tensor[0]);
}

static petra_status pass_forward(passage *p, int stage) {
  petra_message out;
  begin(p);
  if (stage == 0)
    PETRA_TRY(take_images(p, &p->forward[0]));
  bool head = stage == p->program->stages - 1;
  petra_loss loss;
  petra_status status = head ? petra_stage_forward_loss(p->setup.stage[stage], 0, &p->forward[stage], p->labels, &loss)
                             : petra_stage_forward(p->setup.stage[stage], 0, &p->forward[stage], &out);
  petra_message_release(&p->forward[stage]);
  PETRA_TRY(status);
  if (!head)
    post(p, &p->forward[stage + 1], stage + 1, &out);
  return end(p, stage, PETRA_ACTION_FORWARD);
}

static petra_status pass_backward(passage *p, int stage) {
  bool head = stage == p->program->stages - 1 && !p->program->split_head; /* fused */
  petra_message *in = head ? &p->forward[stage] : &p->backward[stage], out;
  petra_status status;
  begin(p);
  if (head && stage == 0)
    PETRA_TRY(take_images(p, in));
  if (head) {
    petra_loss loss;
    status = petra_stage_loss(p->setup.stage[stage], 0, in, p->labels, &out, &loss);
  } else {
    status = petra_stage_backward(p->setup.stage[stage], 0, in, &out);
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
  PETRA_TRY(petra_stage_weight_gradient(p->setup.stage[stage], 0));
  return end(p, stage, PETRA_ACTION_WEIGHT_GRADIENT);
}

/* `apart`: no W before all B, and then from below: the other order in which neighbours may let go of a tensor. */
static petra_status pass(passage *p, bool apart) {
  int stages = p->program->stages;
  const bool split = p->setup.method.program->split_backward;
  PETRA_TRY(petra_allocate(&p->labels, (size_t)p->setup.config->data.batch, sizeof *p->labels));
  PETRA_TRY(
      petra_backend_create_dry(p->setup.config->device.backend, p->setup.config->device.precision, &p->setup.backend));
  PETRA_TRY(petra_setup_create_stages(&p->setup));
  for (int j = 0; j < stages; j++)
    memcpy(p->out[j].base, account_of(p, j)->bytes, sizeof p->out[j].base);
  for (int j = 0; j < stages - !p->program->split_head; j++)
    PETRA_TRY(pass_forward(p, j));
  for (int j = stages - 1; j >= 0; j--) {
    PETRA_TRY(pass_backward(p, j));
    if (split && !apart)
      PETRA_TRY(pass_weight_gradient(p, j));
  }
  for (int j = 0; split && apart && j < stages; j++)
    PETRA_TRY(pass_weight_gradient(p, j));
  return PETRA_OK;
}

static petra_status pass_once(const petra_setup *setup, const petra_program_options *program, bool apart,
                              petra_memory_stage *out) {
  passage p = {.setup = *setup, .program = program, .out = out};
  int stages = program->stages;
  p.setup.backend = NULL;
  p.setup.order = NULL; /* these belong to the real one */
  p.setup.profile = NULL;
  memset(p.setup.stage, 0, sizeof p.setup.stage);
  memset(out, 0, (size_t)stages * sizeof *out);
  petra_status status = pass(&p, apart);
  for (int j = 0; j < stages; j++) {
    petra_message_release(&p.forward[j]);
    petra_message_release(&p.backward[j]);
  }
  petra_free(p.labels);
  petra_setup_fini(&p.setup);
  return status;
}

/* What B or W of a stage lets go of when W of the stage above came before, and does not when it comes after, is
 * shared with it. Such tensors were sent up, and count there. */
static void find_shared(petra_memory_stage *stage, const petra_memory_stage *apart) {
  static const petra_action_kind kinds[PETRA_MEMORY_HOLDERS] = {PETRA_ACTION_BACKWARD, PETRA_ACTION_WEIGHT_GRADIENT};
  for (int h = 0; h < PETRA_MEMORY_HOLDERS; h++)
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++) {
      int64_t *bytes = &stage->change[kinds[h]][PETRA_MEMORY_ABOVE].bytes[c];
      const int64_t without = apart->change[kinds[h]][PETRA_MEMORY_ABOVE].bytes[c];
      stage->shared[h][c] = without - *bytes;
      *bytes = without;
    }
}

static petra_status pass_apart(const petra_setup *setup, const petra_program_options *program,
                               petra_memory_stage *out) {
  petra_memory_stage *apart;
  PETRA_TRY(petra_allocate(&apart, (size_t)program->stages, sizeof *apart));
  petra_status status = pass_once(setup, program, true, apart);
  for (int j = 0; j < program->stages && status == PETRA_OK; j++)
    find_shared(&out[j], &apart[j]);
  petra_free(apart);
  return status;
}

/* One version beside the latest, whatever is in flight: a double buffer's, or that of F's copy. */
static bool holds_a_copy(const petra_method *method) {
  return method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER || method->sync_period > 1;
}

petra_status petra_footprint_measured(const petra_setup *setup, const petra_program_options *program,
                                      petra_memory_stage *out) {
  const int stages = program->stages;
  PETRA_TRY(pass_once(setup, program, false, out));
  if (setup->method.program->split_backward)
    PETRA_TRY(pass_apart(setup, program, out));
  for (int j = 0; j < stages; j++) {
    int64_t parameters = out[j].base[PETRA_MEMORY_PARAMETERS];
    if (petra_method_stashes(&setup->method))
      out[j].version_bytes = parameters;
    if (holds_a_copy(&setup->method))
      out[j].copy_bytes = parameters;
  }
  return PETRA_OK;
}

/* --- paper, strict --- */

/* Bytes of one waiting input and one waiting version: what a delay of one microbatch, with an update each,
 * adds. */
static petra_status count_block(const petra_setup *setup, petra_accounting accounting, int block,
                                petra_memory_stage *out) {
  const petra_config *config = setup->config;
  const petra_ledger_rule rule = {.accounting = accounting,
                                  .inputs_kept = setup->method.keep != PETRA_KEEP_NOTHING,
                                  .weights_kept = petra_method_stashes(&setup->method),
                                  .batch = config->data.batch,
                                  .accumulate = 1,
                                  .element_bytes = config->device.precision == PETRA_PRECISION_FP64 ? 8 : 4};
  petra_ledger_block about;
  petra_ledger_bytes bytes;
  petra_memory_block(setup, block, 1, &about);
  PETRA_TRY(petra_ledger_block_bytes(&rule, &about, &bytes));
  out->base[PETRA_MEMORY_PARAMETERS] += bytes.parameters;
  out->base[PETRA_MEMORY_STATISTICS] += bytes.statistics;
  out->base[PETRA_MEMORY_INPUT_BUFFER] += bytes.input;
  if (holds_a_copy(&setup->method))
    out->copy_bytes += bytes.parameters;
  out->input_bytes += bytes.input_buffer;
  out->version_bytes += bytes.weight_buffer;
  return PETRA_OK;
}

petra_status petra_footprint_counted(const petra_setup *setup, petra_accounting accounting, petra_memory_stage *out) {
  memset(out, 0, (size_t)setup->partition.stages * sizeof *out);
  for (int j = 0; j < setup->partition.stages; j++)
    for (int b = setup->partition.first[j]; b < setup->partition.first[j + 1]; b++)
      PETRA_TRY(count_block(setup, accounting, b, &out[j]));
  return PETRA_OK;
}
