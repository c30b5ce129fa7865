/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/memory.h"

#include "base/mem.h"
#include "exec/transport.h"
#include "exec/worker_replicas.h"

#include <string.h>

/* Returns true if the method holds one version in addition to the latest, regardless of microbatches in flight: the
 * version of a double buffer, or of F's copy. */
static bool holds_a_copy(const petra_method *method) {
  return method->forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER || method->sync_period > 0;
}

/* For one rank: adds the copies of the values that its stages share and, at the stage that shares most, the buffers of
 * its exchanges. */
static void add_exchange(const petra_plan *plan, const int32_t *rank_of, int32_t rank, petra_memory_stage *stages) {
  const int replicas = (int)plan->config->cluster.replicas;
  int32_t largest = 0;
  int64_t maximum = 0;
  int count = 0;
  for (int32_t j = 0; j < plan->stages; j++) {
    petra_stage_summary summary;
    if (rank_of[j] != rank)
      continue;
    petra_plan_stage_summary(plan, j, &summary);
    stages[j].base[PETRA_MEMORY_MESSAGES] += summary.gradient_bytes;
    count++;
    if (summary.gradient_bytes > maximum) {
      maximum = summary.gradient_bytes;
      largest = j;
    }
  }
  if (count > 0)
    stages[largest].base[PETRA_MEMORY_MESSAGES] += petra_worker_replicas_bytes(replicas, count, maximum);
}

static void add_buffers(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *stages) {
  for (int32_t j = 0; j + 1 < plan->stages; j++) {
    petra_stage_summary low, high;
    if (rank_of[j] == rank_of[j + 1])
      continue;
    petra_plan_stage_summary(plan, j, &low);
    petra_plan_stage_summary(plan, j + 1, &high);
    stages[j].base[PETRA_MEMORY_MESSAGES] +=
        petra_transport_bytes_out(low.forward_capacity) + petra_transport_bytes_in(high.backward_bytes);
    stages[j + 1].base[PETRA_MEMORY_MESSAGES] +=
        petra_transport_bytes_in(low.forward_capacity) + petra_transport_bytes_out(high.backward_bytes);
  }
  for (int32_t rank = 0; rank < plan->stages && plan->config->cluster.replicas > 1; rank++)
    add_exchange(plan, rank_of, rank, stages);
}

petra_status petra_predict_memory_measured(const petra_plan *plan, const int32_t *rank_of, petra_memory_stage *out) {
  const int stages = plan->stages;
  PETRA_TRY(petra_predict_memory_pass(plan, rank_of, out));
  for (int j = 0; j < stages; j++) {
    int64_t parameters = out[j].base[PETRA_MEMORY_PARAMETERS];
    if (petra_method_stashes(&plan->method))
      out[j].version_bytes = parameters;
    if (holds_a_copy(&plan->method))
      out[j].copy_bytes = parameters;
  }
  if (rank_of)
    add_buffers(plan, rank_of, out);
  return PETRA_OK;
}

/* --- paper, strict --- */

petra_ledger_rule petra_ledger_rule_of(const petra_plan *plan, petra_accounting accounting) {
  return (petra_ledger_rule){.accounting = accounting,
                             .batch = plan->config->data.batch,
                             .accumulate = plan->config->method.accumulate,
                             .element_bytes = petra_plan_element_bytes(plan, PETRA_TENSOR_ACTIVATION),
                             .parameter_bytes = petra_plan_element_bytes(plan, PETRA_TENSOR_FILTER)};
}

void petra_ledger_block_of(const petra_plan *plan, int block, int64_t delay, petra_ledger_block *out) {
  const petra_block *b = &plan->model.blocks[block];
  petra_tensor_spec spec;
  *out = (petra_ledger_block){.parameters = petra_block_parameters(&plan->model, b),
                              .stream_elements = petra_block_input_elements(b) / b->streams_in,
                              .streams = b->streams_in,
                              .reversible = b->reversible,
                              .reads_data = b->reads_data,
                              .is_loss = b->is_loss,
                              .delay = delay};
  const petra_format format = petra_format_in(plan->config->method.keep_precision, plan->config->device.precision);
  if (format != PETRA_FORMAT_NATIVE && !b->reads_data)
    out->waiting_stream_bytes = petra_quantised_bytes(format, out->stream_elements);
  for (int i = 0; i < petra_block_parameter_count(b); i++) {
    petra_block_parameter(&plan->model, b, i, &spec);
    out->parameters += spec.kind == PETRA_TENSOR_FILTER ? spec.shape[0] : 0; /* the bias */
  }
  for (int i = 0; i < petra_block_statistic_count(b); i++) {
    petra_block_statistic(b, i, &spec);
    out->statistics += spec.shape[0];
  }
}

/* Adds the bytes of a block to its stage. input_bytes and version_bytes are the sizes of one waiting input and one
 * waiting version, which a delay of one microbatch, with one update per microbatch, adds. */
static petra_status count_block(const petra_plan *plan, petra_accounting accounting, int block,
                                petra_memory_stage *out) {
  petra_ledger_rule rule = petra_ledger_rule_of(plan, accounting);
  rule.inputs_kept = plan->method.keep != PETRA_KEEP_NOTHING;
  rule.weights_kept = petra_method_stashes(&plan->method);
  rule.accumulate = 1;
  petra_ledger_block about;
  petra_ledger_bytes bytes;
  petra_ledger_block_of(plan, block, 1, &about);
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

petra_status petra_predict_memory_counted(const petra_plan *plan, petra_accounting accounting,
                                          petra_memory_stage *out) {
  memset(out, 0, (size_t)plan->partition.stages * sizeof *out);
  for (int j = 0; j < plan->partition.stages; j++)
    for (int i = 0; i < petra_plan_stage_blocks(plan, j); i++)
      PETRA_TRY(count_block(plan, accounting, petra_plan_stage_block(plan, j, i), &out[j]));
  return PETRA_OK;
}

/* --- predictions of many plans --- */

/* A key begins with the facts of a plan that a prediction depends on. They are followed by the number of blocks of each
 * stage. */
enum { FACTS = 14, STAGES = 1, ENTRIES = 4096 };
static const size_t BYTES_MAX = (size_t)64 << 20;

typedef struct entry {
  int64_t *key; /* NULL: unused */
  petra_memory_stage *stages;
} entry;

struct petra_memory_cache {
  entry entry[ENTRIES]; /* a ring: the oldest are replaced */
  int next, oldest;
  size_t bytes; /* of the stages */
};

petra_status petra_memory_cache_create(petra_memory_cache **out) {
  return petra_allocate(out, 1, sizeof **out);
}

static size_t key_bytes(const int64_t *key) {
  return (FACTS + (size_t)key[STAGES]) * sizeof *key;
}

static size_t stages_bytes(const int64_t *key) {
  return (size_t)key[STAGES] * sizeof(petra_memory_stage);
}

static void drop(petra_memory_cache *cache, entry *e) {
  cache->bytes -= e->key ? stages_bytes(e->key) : 0;
  PETRA_FREE_ALL(e->key, e->stages);
  *e = (entry){0};
}

void petra_memory_cache_destroy(petra_memory_cache *cache) {
  for (int i = 0; cache && i < ENTRIES; i++)
    drop(cache, &cache->entry[i]);
  petra_free(cache);
}

static petra_status make_key(const petra_plan *plan, int64_t **out) {
  const petra_method *m = &plan->method;
  const int64_t facts[FACTS] = {plan->config->data.batch,
                                [STAGES] = plan->stages,
                                m->forward_weights,
                                m->backward_weights,
                                m->invert_weights,
                                m->keep,
                                plan->inverts,
                                m->sync_period,
                                plan->program.split_head,
                                plan->program.local,
                                m->program->split_backward,
                                plan->config->cluster.message.up,
                                plan->config->cluster.message.down,
                                plan->config->method.keep_precision};
  PETRA_TRY(petra_allocate(out, FACTS + (size_t)plan->stages, sizeof **out));
  memcpy(*out, facts, sizeof facts);
  for (int j = 0; j < plan->stages; j++)
    (*out)[FACTS + j] = plan->partition.first[j + 1] - plan->partition.first[j];
  return PETRA_OK;
}

static const entry *find(const petra_memory_cache *cache, const int64_t *key) {
  for (int i = 0; i < ENTRIES; i++) {
    const entry *e = &cache->entry[i];
    if (e->key && e->key[STAGES] == key[STAGES] && memcmp(e->key, key, key_bytes(key)) == 0)
      return e;
  }
  return NULL;
}

/* Predicts, and stores the prediction; on success the cache takes over the key. */
static petra_status predict(petra_memory_cache *cache, const petra_plan *plan, int64_t *key, petra_memory_stage *out) {
  const size_t bytes = stages_bytes(key);
  petra_memory_stage *copy;
  entry *e = &cache->entry[cache->next];
  PETRA_TRY(petra_predict_memory_measured(plan, NULL, out));
  PETRA_TRY(petra_allocate(&copy, bytes, 1));
  memcpy(copy, out, bytes);
  drop(cache, e);
  for (; cache->bytes > 0 && cache->bytes + bytes > BYTES_MAX; cache->oldest = (cache->oldest + 1) % ENTRIES)
    drop(cache, &cache->entry[cache->oldest]);
  *e = (entry){key, copy};
  cache->bytes += bytes;
  cache->next = (cache->next + 1) % ENTRIES;
  return PETRA_OK;
}

petra_status petra_memory_cache_measured(petra_memory_cache *cache, const petra_plan *plan, petra_memory_stage *out) {
  PETRA_FREED int64_t *key = NULL;
  if (petra_mitigation_key(&plan->method.mitigation)) /* its delays depend on the order */
    return petra_predict_memory_measured(plan, NULL, out);
  PETRA_TRY(make_key(plan, &key));
  const entry *known = find(cache, key);
  if (known) {
    memcpy(out, known->stages, stages_bytes(key));
    return PETRA_OK;
  }
  PETRA_TRY(predict(cache, plan, key, out));
  key = NULL; /* the cache has it */
  return PETRA_OK;
}
