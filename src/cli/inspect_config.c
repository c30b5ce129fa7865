/* SPDX-License-Identifier: Apache-2.0 */
/* petra inspect for a config: its stage table, and the resources of a run. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/command.h"
#include "setup/describe.h"
#include "run/banner.h"
#include "predict/memory.h"
#include "sim/ledger.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the analytic memory of a plan, for `petra inspect --memory`: sim/ledger.h filled from the network --- */

/* One of the four rows of table 3. */
typedef struct memory_row {
  bool inputs_kept, weights_kept;
  petra_ledger_bytes *stage; /* one per stage */
  int64_t total_bytes;
  double saving; /* against the first row, 0 .. 1 */
} memory_row;

/* The order of table 3: inputs and weights kept, inputs, weights, neither. */
enum { ROWS = 4 };

static petra_status fill_row(const petra_plan *plan, const petra_ledger_rule *rule, memory_row *row) {
  petra_ledger_bytes sum = {0};
  row->inputs_kept = rule->inputs_kept;
  row->weights_kept = rule->weights_kept;
  PETRA_TRY(petra_allocate(&row->stage, (size_t)plan->partition.stages, sizeof *row->stage));
  for (int j = 0; j < plan->partition.stages; j++) {
    petra_stage_summary stage;
    petra_plan_stage_summary(plan, j, &stage);
    for (int i = 0; i < petra_plan_stage_blocks(plan, j); i++) {
      petra_ledger_block block;
      petra_ledger_bytes bytes;
      petra_ledger_block_of(plan, petra_plan_stage_block(plan, j, i), stage.delay, &block);
      PETRA_TRY(petra_ledger_block_bytes(rule, &block, &bytes));
      PETRA_TRY(petra_ledger_add(&row->stage[j], &bytes));
    }
    PETRA_TRY(petra_ledger_add(&sum, &row->stage[j]));
  }
  row->total_bytes = petra_ledger_total(&sum);
  return PETRA_OK;
}

/* Fills the rows. Call free_rows even after a failure. */
static petra_status fill_rows(const petra_plan *plan, petra_accounting accounting, memory_row rows[ROWS]) {
  memset(rows, 0, ROWS * sizeof *rows);
  for (int i = 0; i < ROWS; i++) {
    petra_ledger_rule rule = petra_ledger_rule_of(plan, accounting);
    rule.inputs_kept = i < 2;
    rule.weights_kept = i % 2 == 0;
    PETRA_TRY(fill_row(plan, &rule, &rows[i]));
    rows[i].saving = 1 - (double)rows[i].total_bytes / (double)rows[0].total_bytes;
  }
  return PETRA_OK;
}

static void free_rows(memory_row rows[ROWS]) {
  for (int i = 0; i < ROWS; i++)
    petra_free(rows[i].stage);
}

static json_t *row_json(const memory_row *row, int stages) {
  json_t *list = json_array();
  for (int j = 0; j < stages; j++) {
    const petra_ledger_bytes *b = &row->stage[j];
    petra_json_append(&list,
                      json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", j + 1, "parameters",
                                (json_int_t)b->parameters, "statistics", (json_int_t)b->statistics, "input",
                                (json_int_t)b->input, "input_buffer", (json_int_t)b->input_buffer, "weight_buffer",
                                (json_int_t)b->weight_buffer, "total", (json_int_t)petra_ledger_total(b)));
  }
  return json_pack("{s:b, s:b, s:I, s:o, s:o}", "inputs_kept", row->inputs_kept, "weights_kept", row->weights_kept,
                   "total_bytes", (json_int_t)row->total_bytes, "saving", petra_json_real(row->saving), "stages_bytes",
                   list);
}

/* The member `memory` of `petra inspect --json` (*out is NULL if JSON ran out of memory), and the table of the same. */
static petra_status memory_json(const petra_plan *plan, petra_accounting accounting, json_t **out) {
  memory_row rows[ROWS];
  petra_status status = fill_rows(plan, accounting, rows);
  if (status == PETRA_OK) {
    json_t *list = json_array();
    for (int i = 0; i < ROWS; i++)
      petra_json_append(&list, row_json(&rows[i], plan->partition.stages));
    const bool tokens = plan->model.input.kind == PETRA_TENSOR_SEQUENCE;
    *out =
        json_pack("{s:s, s:i, s:o}", "accounting", petra_accounting_name(accounting), tokens ? "context" : "image_size",
                  tokens ? plan->model.input.positions : plan->model.input.height, "rows", list);
  }
  free_rows(rows);
  return status;
}

static void megabytes(petra_table *table, int64_t bytes) {
  petra_table_cell(table, "%.2f", (double)bytes * 1e-6);
}

/* Row 4 is the memory that is needed in any case; inputs and weights add the excess of row 1. */
static void add_stage(petra_table *table, const memory_row *rows, int stage, const char *name) {
  const petra_ledger_bytes *maximum = &rows[0].stage[stage], *least = &rows[ROWS - 1].stage[stage];
  petra_table_cell(table, "%d", stage + 1);
  petra_table_cell(table, "%s", name);
  megabytes(table, least->parameters);
  megabytes(table, least->statistics);
  megabytes(table, least->input);
  megabytes(table, least->input_buffer);
  megabytes(table, petra_ledger_total(least));
  megabytes(table, maximum->input_buffer - least->input_buffer);
  megabytes(table, maximum->weight_buffer);
}

static petra_status print_stages(const petra_plan *plan, const memory_row *rows) {
  static const petra_table_column columns[] = {
      {"stage", PETRA_TABLE_RIGHT},      {"blocks", PETRA_TABLE_LEFT},         {"parameters", PETRA_TABLE_RIGHT},
      {"statistics", PETRA_TABLE_RIGHT}, {"input", PETRA_TABLE_RIGHT},         {"input buffer", PETRA_TABLE_RIGHT},
      {"together", PETRA_TABLE_RIGHT},   {"+ inputs kept", PETRA_TABLE_RIGHT}, {"+ weights kept", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int j = 0; j < plan->partition.stages; j++) {
    petra_stage_summary stage;
    petra_plan_stage_summary(plan, j, &stage);
    add_stage(table, rows, j, stage.name);
  }
  return petra_table_print(table, stdout);
}

static petra_status print_rows(const memory_row *rows) {
  static const petra_table_column columns[] = {{"inputs kept", PETRA_TABLE_LEFT},
                                               {"weights kept", PETRA_TABLE_LEFT},
                                               {"GB", PETRA_TABLE_RIGHT},
                                               {"saving %", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int i = 0; i < ROWS; i++) {
    petra_table_cell(table, "%s", rows[i].inputs_kept ? "yes" : "no");
    petra_table_cell(table, "%s", rows[i].weights_kept ? "yes" : "no");
    petra_table_cell(table, "%.2f", (double)rows[i].total_bytes * 1e-9);
    petra_table_cell(table, "%.1f", 100 * rows[i].saving);
  }
  return petra_table_print(table, stdout);
}

static petra_status memory_print(const petra_plan *plan, petra_accounting accounting) {
  memory_row rows[ROWS];
  petra_status status;
  PETRA_TRY_GOTO(status, fill_rows(plan, accounting, rows), done);
  const petra_stream_shape *input = &plan->model.input;
  printf("\nmemory in MB, accounting %s, ", petra_accounting_name(accounting));
  if (input->kind == PETRA_TENSOR_SEQUENCE)
    printf("windows of %d tokens:\n\n", input->positions);
  else
    printf("images of %dx%d:\n\n", input->height, input->width);
  PETRA_TRY_GOTO(status, print_stages(plan, rows), done);
  printf("\n");
  PETRA_TRY_GOTO(status, print_rows(rows), done);
  if (plan->model.blocks[0].shape_out.kind == PETRA_TENSOR_SEQUENCE) /* no convolutions */
    puts("\nMB: 10^6 bytes, GB: 10^9; input buffer: inputs that wait for their backward, even if the method stores no "
         "inputs");
  else
    puts("\nMB: 10^6 bytes, GB: 10^9; parameters with a bias for each convolution, as in the paper's network; input "
         "buffer: inputs\nthat wait for their backward, even if the method stores no inputs");
done:
  free_rows(rows);
  return status;
}

static const long largest_image = 4096; /* pixels per side: far above any data set, and counts stay within 63 bits */

static json_t *shape_json(const petra_stream_shape *shape, int streams) {
  if (shape->kind == PETRA_TENSOR_SEQUENCE)
    return json_pack("{s:i, s:i, s:i}", "streams", streams, "positions", shape->positions, "features", shape->features);
  return json_pack("{s:i, s:i, s:i, s:i}", "streams", streams, "channels", shape->channels, "height", shape->height,
                   "width", shape->width);
}

static json_t *stage_json(const petra_plan *plan, int stage) {
  petra_stage_summary s;
  petra_plan_stage_summary(plan, stage, &s);
  return json_pack("{s:i, s:s, s:b, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", stage + 1, "name", s.name,
                   "reversible", s.reversible, "input", shape_json(&s.in, s.streams_in), "output",
                   shape_json(&s.out, s.streams_out), "parameters", (json_int_t)s.parameters, "forward_flops",
                   (json_int_t)s.forward_flops, "forward_bytes", (json_int_t)s.forward_bytes, "backward_bytes",
                   (json_int_t)s.backward_bytes, "delay", (json_int_t)s.delay, "lag", (json_int_t)s.lag);
}

/* `accounting`: that of the member memory; NULL: without it. */
static petra_status print_json(const petra_plan *plan, int64_t parameters, int64_t flops,
                               const petra_accounting *accounting) {
  const petra_config *config = plan->config;
  json_t *memory = NULL;
  char format[PETRA_DESCRIBE_MESSAGES];
  if (accounting)
    PETRA_TRY(memory_json(plan, *accounting, &memory));
  json_t *stages = json_array();
  for (int j = 0; j < plan->partition.stages; j++)
    petra_json_append(&stages, stage_json(plan, j));
  json_t *root = json_pack("{s:s, s:i, s:i, s:s, s:I, s:I, s:I, s:I, s:s?, s:o}", "family",
                           petra_config_choice_name("model.family", (int)config->model.family), "depth",
                           (int)plan->model.depth, "width", (int)plan->model.width, "method", plan->method.name,
                           "accumulate", (json_int_t)config->method.accumulate, "batch", (json_int_t)config->data.batch,
                           "parameters", (json_int_t)parameters, "forward_flops", (json_int_t)flops,
                           "message_precision", petra_describe_message_precision(config, format), "stages", stages);
  if (accounting)
    petra_json_set(&root, "memory", memory);
  return petra_json_print_new(root);
}

/* Prints channels, height, width; for a sequence positions, features. */
static void shape_cell(petra_table *table, const petra_stream_shape *shape, int streams) {
  const char *both = streams == 2 ? "2 x " : "";
  if (shape->kind == PETRA_TENSOR_SEQUENCE)
    petra_table_cell(table, "%s%dx%d", both, shape->positions, shape->features);
  else
    petra_table_cell(table, "%s%dx%dx%d", both, shape->channels, shape->height, shape->width);
}

static void add_row(petra_table *table, const petra_plan *plan, int stage) {
  petra_stage_summary s;
  petra_plan_stage_summary(plan, stage, &s);
  petra_table_cell(table, "%d", stage + 1);
  petra_table_cell(table, "%s", s.name);
  petra_table_cell(table, "%s", s.reversible ? "yes" : "no");
  shape_cell(table, &s.in, s.streams_in);
  shape_cell(table, &s.out, s.streams_out);
  petra_table_cell(table, "%lld", (long long)s.parameters);
  petra_table_cell(table, "%.3f", (double)s.forward_flops * 1e-6);
  petra_table_cell(table, "%.3f", (double)s.forward_bytes * 1e-6);
  petra_table_cell(table, "%.3f", (double)s.backward_bytes * 1e-6);
  petra_table_cell(table, "%lld", (long long)s.delay);
  petra_table_cell(table, "%lld", (long long)s.lag);
}

/* Explains the words of the table. */
static void print_legend(const petra_plan *plan, bool sequences) {
  if (!sequences)
    puts("FLOP: 2 per multiply-add of the convolutions and the fully connected layer; MB up, MB down: 10^6 bytes per\n"
         "microbatch sent to the stage above and below; delay: microbatches between forward and backward;\n"
         "lag: maximum number of updates between forward and backward");
  else
    printf(
        "%s;\n"
        "FLOP: 2 per multiply-add of the matrix products; MB up, MB down: 10^6 bytes per microbatch sent to the stage\n"
        "above and below; delay: microbatches between forward and backward;\n"
        "lag: maximum number of updates between forward and backward\n",
        plan->model.input.kind == PETRA_TENSOR_SEQUENCE
            ? "TxC: positions x features (output of the head: positions x vocabulary)"
            : "TxC: positions x features (output of the head: positions x classes); images are CxHxW");
}

static petra_status print_table(const petra_plan *plan, int64_t parameters, int64_t flops_sum) {
  const petra_sample_words *words = petra_sample_words_of(petra_sample_kind_of(plan->config));
  const bool sequences = plan->model.blocks[0].shape_out.kind == PETRA_TENSOR_SEQUENCE;
  const char *in = sequences ? "input TxC" : "input CxHxW", *out = sequences ? "output TxC" : "output CxHxW";
  char flops[32];
  snprintf(flops, sizeof flops, "MFLOP/%s", words->sample);
  const petra_table_column columns[] = {
      {"stage", PETRA_TABLE_RIGHT}, {"blocks", PETRA_TABLE_LEFT}, {"reversible", PETRA_TABLE_LEFT},
      {in, PETRA_TABLE_RIGHT},      {out, PETRA_TABLE_RIGHT},     {"parameters", PETRA_TABLE_RIGHT},
      {flops, PETRA_TABLE_RIGHT},   {"MB up", PETRA_TABLE_RIGHT}, {"MB down", PETRA_TABLE_RIGHT},
      {"delay", PETRA_TABLE_RIGHT}, {"lag", PETRA_TABLE_RIGHT}};
  const petra_config *config = plan->config;
  char format[PETRA_DESCRIBE_MESSAGES];
  petra_table *table;
  petra_model_describe(config, stdout);
  printf(", %d classes; method %s, k = %lld, microbatches of ", plan->model.classes, plan->method.name,
         (long long)config->method.accumulate);
  if (config->cluster.replicas > 1)
    printf("%lld x ", (long long)config->cluster.replicas);
  printf("%lld %s\n\n", (long long)config->data.batch, words->samples);
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int j = 0; j < plan->partition.stages; j++)
    add_row(table, plan, j);
  PETRA_TRY(petra_table_print(table, stdout));
  printf("\n%d stages, %lld parameters, %.3f MFLOP forward per %s\n", plan->partition.stages, (long long)parameters,
         (double)flops_sum * 1e-6, words->sample);
  print_legend(plan, sequences);
  const char *messages = petra_describe_messages(config, format);
  if (messages)
    printf("MB up, MB down: messages %s\n", messages);
  if (plan->data.best_loss > 0)
    printf("lowest possible mean loss with model.context %d: %.4f nats per token\n", plan->data.context,
           plan->data.best_loss);
  return PETRA_OK;
}

/* Prints the resources of a run. Only the data set knows the number of microbatches, and it is not read. */
static petra_status print_estimate(petra_plan *plan) {
  petra_estimate estimate;
  PETRA_TRY(petra_plan_load_profile(plan));
  PETRA_TRY(petra_estimate_of(plan, plan->config->run.max_microbatches, &estimate));
  puts("\nestimate for petra train:");
  petra_estimate_print(plan, &estimate, 0, 0, stdout);
  return PETRA_OK;
}

/* Makes the network of the plan again for images of --image-size. */
static petra_status resize(petra_plan *plan, const char *text) {
  char *end;
  long size = strtol(text, &end, 10);
  if (*end || end == text || size < 1 || size > largest_image)
    return petra_fail(PETRA_USAGE, "--image-size: '%s' is not an image size; expected 1 to %ld pixels", text,
                      largest_image);
  if (plan->model.input.kind != PETRA_TENSOR_ACTIVATION)
    return petra_fail(PETRA_USAGE, "--image-size: %s reads tokens, not images", petra_family_title(plan->model.family));
  const petra_stream_shape input = petra_image_stream((int32_t)size, (int32_t)size);
  petra_partition_fini(&plan->partition);
  petra_model_fini(&plan->model);
  PETRA_TRY(petra_model_init(&plan->model, plan->config, &input, 0));
  PETRA_TRY(petra_partition_init(&plan->partition, plan->config, &plan->model));
  return plan->method.program->local ? petra_model_add_auxiliary(&plan->model, plan->stages, plan->partition.first)
                                     : PETRA_OK;
}

/* Returns true if its memory can be counted. */
static petra_status check_memory(const petra_plan *plan) {
  if (*plan->config->method.schedule)
    return petra_config_fail(plan->config, "method.schedule",
                             "--memory counts from the delays of the method's own order; expected no method.schedule");
  if (plan->method.program->arrival)
    return petra_config_fail(
        plan->config, "method.name",
        "%s with --memory, which needs fixed delays; expected a method with a fixed order, or petra simulate",
        plan->method.name);
  return petra_plan_check_norms(plan);
}

petra_status petra_inspect_config(const petra_arguments *arguments) {
  petra_config *config;
  petra_plan plan = {0};
  petra_accounting accounting;
  petra_status status;
  if (arguments->memory)
    PETRA_TRY(petra_accounting_parse("--memory", arguments->memory, &accounting));
  const petra_accounting *memory = arguments->memory ? &accounting : NULL;
  PETRA_TRY(petra_arguments_config(arguments, "inspect", &config));
  PETRA_TRY_GOTO(status, petra_plan_init(&plan, config), done);
  PETRA_TRY_GOTO(status, petra_plan_read_order(&plan), done);
  PETRA_TRY_GOTO(status, petra_plan_measure_order(&plan), done);
  if (memory)
    PETRA_TRY_GOTO(status, check_memory(&plan), done);
  if (arguments->image_size)
    PETRA_TRY_GOTO(status, resize(&plan, arguments->image_size), done);
  int64_t parameters = 0, flops = 0;
  for (int b = 0; b < plan.model.block_count + plan.model.auxiliary_count; b++) {
    parameters += petra_block_parameters(&plan.model, &plan.model.blocks[b]);
    flops += petra_block_flops(&plan.model.blocks[b]);
  }
  status = arguments->json ? print_json(&plan, parameters, flops, memory) : print_table(&plan, parameters, flops);
  if (status == PETRA_OK && memory && !arguments->json)
    status = memory_print(&plan, *memory);
  if (status == PETRA_OK && !arguments->json && !arguments->image_size)
    status = print_estimate(&plan);
done:
  petra_plan_fini(&plan);
  petra_config_destroy(config);
  return status;
}
