/* SPDX-License-Identifier: Apache-2.0 */
/* The analytic memory of a plan, for `petra inspect --memory`. */
#include "cli/memory.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/table.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* One of the four rows of table 3. */
typedef struct memory_row {
  bool inputs_kept, weights_kept;
  petra_ledger_bytes *stage; /* one a stage */
  int64_t total_bytes;
  double saving; /* against the first row, 0 .. 1 */
} memory_row;

/* In the order of table 3: inputs and weights kept, inputs, weights, neither. */
enum { ROWS = 4 };

static petra_status fill_row(const petra_plan *plan, const petra_ledger_rule *rule, memory_row *row) {
  petra_ledger_bytes sum = {0};
  row->inputs_kept = rule->inputs_kept;
  row->weights_kept = rule->weights_kept;
  PETRA_TRY(petra_allocate(&row->stage, (size_t)plan->partition.stages, sizeof *row->stage));
  for (int j = 0; j < plan->partition.stages; j++) {
    petra_stage_summary stage;
    petra_plan_stage_summary(plan, j, &stage);
    for (int b = plan->partition.first[j]; b < plan->partition.first[j + 1]; b++) {
      petra_ledger_block block;
      petra_ledger_bytes bytes;
      petra_footprint_block(plan, b, stage.delay, &block);
      PETRA_TRY(petra_ledger_block_bytes(rule, &block, &bytes));
      PETRA_TRY(petra_ledger_add(&row->stage[j], &bytes));
    }
    PETRA_TRY(petra_ledger_add(&sum, &row->stage[j]));
  }
  row->total_bytes = petra_ledger_total(&sum);
  return PETRA_OK;
}

/* free_rows must follow, also after a failure. */
static petra_status fill_rows(const petra_plan *plan, petra_accounting accounting, memory_row rows[ROWS]) {
  memset(rows, 0, ROWS * sizeof *rows);
  for (int i = 0; i < ROWS; i++) {
    petra_ledger_rule rule = petra_footprint_rule(plan, accounting);
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

petra_status petra_memory_json(const petra_plan *plan, petra_accounting accounting, json_t **out) {
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

/* Row 4 holds what is there in any case; keeping inputs and weights adds what row 1 holds beyond it. */
static void add_stage(petra_table *table, const memory_row *rows, int stage, const char *name) {
  const petra_ledger_bytes *most = &rows[0].stage[stage], *least = &rows[ROWS - 1].stage[stage];
  petra_table_cell(table, "%d", stage + 1);
  petra_table_cell(table, "%s", name);
  megabytes(table, least->parameters);
  megabytes(table, least->statistics);
  megabytes(table, least->input);
  megabytes(table, least->input_buffer);
  megabytes(table, petra_ledger_total(least));
  megabytes(table, most->input_buffer - least->input_buffer);
  megabytes(table, most->weight_buffer);
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

petra_status petra_memory_print(const petra_plan *plan, petra_accounting accounting) {
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
