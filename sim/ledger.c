/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/ledger.h"

#include "base/log.h"

#include <string.h>

static const char *const names[PETRA_ACCOUNTINGS] = {"paper", "strict"};

const char *petra_accounting_name(petra_accounting accounting) {
  return names[accounting];
}

petra_status petra_accounting_parse(const char *what, const char *text, petra_accounting *out) {
  for (int i = 0; i < PETRA_ACCOUNTINGS; i++)
    if (strcmp(text, names[i]) == 0) {
      *out = (petra_accounting)i;
      return PETRA_OK;
    }
  return petra_fail(PETRA_USAGE, "%s: unknown accounting '%s'; expected paper or strict", what, text);
}

static petra_status too_large(void) {
  return petra_fail(PETRA_CONFIG,
                    "memory ledger: the number of bytes exceeds 63 bits; expected smaller images, batch or delay");
}

static petra_status check(const petra_ledger_rule *rule, const petra_ledger_block *block) {
  const struct {
    const char *name;
    int64_t value, least;
  } counts[] = {{"batch", rule->batch, 1},
                {"microbatches per update", rule->accumulate, 1},
                {"bytes of an element", rule->element_bytes, 1},
                {"bytes of a parameter", rule->parameter_bytes, 1},
                {"parameters", block->parameters, 0},
                {"statistics", block->statistics, 0},
                {"elements of a stream", block->stream_elements, 0},
                {"bytes of a waiting stream", block->waiting_stream_bytes, 0},
                {"streams", block->streams, 1},
                {"delay", block->delay, 0}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (counts[i].value < counts[i].least)
      return petra_fail(PETRA_CONFIG, "memory ledger: %s is %lld; expected at least %lld", counts[i].name,
                        (long long)counts[i].value, (long long)counts[i].least);
  return PETRA_OK;
}

static petra_status multiply(int64_t a, int64_t b, int64_t *out) {
  return __builtin_mul_overflow(a, b, out) ? too_large() : PETRA_OK;
}

static int32_t streams_counted(petra_accounting accounting, const petra_ledger_block *block) {
  if (accounting == PETRA_ACCOUNTING_STRICT)
    return block->streams;
  return block->reversible || block->reads_data || block->is_loss ? 1 : block->streams;
}

static bool buffers_inputs(const petra_ledger_rule *rule, const petra_ledger_block *block) {
  if (block->reads_data)
    return rule->accounting == PETRA_ACCOUNTING_PAPER && rule->inputs_kept;
  return rule->inputs_kept || !block->reversible;
}

petra_status petra_ledger_block_bytes(const petra_ledger_rule *rule, const petra_ledger_block *block,
                                      petra_ledger_bytes *out) {
  petra_ledger_bytes bytes = {0}, sum = {0};
  PETRA_TRY(check(rule, block));
  int64_t updates = block->delay / rule->accumulate + (block->delay % rule->accumulate != 0);
  PETRA_TRY(multiply(block->parameters, rule->parameter_bytes, &bytes.parameters));
  PETRA_TRY(multiply(block->statistics, rule->parameter_bytes, &bytes.statistics));
  PETRA_TRY(multiply(block->stream_elements, streams_counted(rule->accounting, block), &bytes.input));
  PETRA_TRY(multiply(bytes.input, rule->batch, &bytes.input));
  PETRA_TRY(multiply(bytes.input, rule->element_bytes, &bytes.input));
  int64_t waiting = bytes.input;
  if (block->waiting_stream_bytes > 0)
    PETRA_TRY(multiply(block->waiting_stream_bytes, rule->batch * streams_counted(rule->accounting, block), &waiting));
  if (buffers_inputs(rule, block))
    PETRA_TRY(multiply(waiting, block->delay, &bytes.input_buffer));
  if (rule->weights_kept)
    PETRA_TRY(multiply(bytes.parameters, updates, &bytes.weight_buffer));
  PETRA_TRY(petra_ledger_add(&sum, &bytes)); /* so that the total fits as well */
  *out = sum;
  return PETRA_OK;
}

petra_status petra_ledger_add(petra_ledger_bytes *sum, const petra_ledger_bytes *more) {
  const int64_t from[] = {more->parameters, more->statistics, more->input, more->input_buffer, more->weight_buffer};
  int64_t *const to[] = {&sum->parameters, &sum->statistics, &sum->input, &sum->input_buffer, &sum->weight_buffer};
  int64_t total = 0;
  bool over = false;
  for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
    over = __builtin_add_overflow(*to[i], from[i], to[i]) || over;
    over = __builtin_add_overflow(total, *to[i], &total) || over;
  }
  return over ? too_large() : PETRA_OK;
}

int64_t petra_ledger_total(const petra_ledger_bytes *bytes) {
  return bytes->parameters + bytes->statistics + bytes->input + bytes->input_buffer + bytes->weight_buffer;
}
