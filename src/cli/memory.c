/* The analytic memory of a plan, for `petra inspect --memory`. */
#include "cli/memory.h"

#include "backend/precision.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/table.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static petra_status fill_row(const petra_plan *plan, const petra_ledger_rule *rule, petra_memory_row *row) {
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

petra_status petra_memory_rows(const petra_plan *plan, petra_accounting accounting,
                               petra_memory_row rows[PETRA_MEMORY_ROWS]) {
  const petra_config *config = plan->config;
  memset(rows, 0, PETRA_MEMORY_ROWS * sizeof *rows);
  for (int i = 0; i < PETRA_MEMORY_ROWS; i++) {
    const petra_ledger_rule rule = {
        .accounting = accounting,
        .inputs_kept = i < 2,
        .weights_kept = i % 2 == 0,
        .batch = config->data.batch,
        .accumulate = config->method.accumulate,
        .element_bytes = petra_element_bytes(config->device.backend, config->device.precision, PETRA_TENSOR_ACTIVATION),
        .parameter_bytes = petra_element_bytes(config->device.backend, config->device.precision, PETRA_TENSOR_FILTER)};
    PETRA_TRY(fill_row(plan, &rule, &rows[i]));
    rows[i].saving = 1 - (double)rows[i].total_bytes / (double)rows[0].total_bytes;
  }
  return PETRA_OK;
}

void petra_memory_rows_fini(petra_memory_row rows[PETRA_MEMORY_ROWS]) {
  for (int i = 0; i < PETRA_MEMORY_ROWS; i++)
    petra_free(rows[i].stage);
}

static petra_status stages_json(const petra_memory_row *row, int stages, json_t *list) {
  for (int j = 0; j < stages; j++) {
    const petra_ledger_bytes *b = &row->stage[j];
    json_t *object = json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "stage", j + 1, "parameters",
                               (json_int_t)b->parameters, "statistics", (json_int_t)b->statistics, "input",
                               (json_int_t)b->input, "input_buffer", (json_int_t)b->input_buffer, "weight_buffer",
                               (json_int_t)b->weight_buffer, "total", (json_int_t)petra_ledger_total(b));
    if (!object || json_array_append_new(list, object) != 0)
      return petra_json_set(NULL, "stages", NULL); /* says that memory is out */
  }
  return PETRA_OK;
}

static petra_status row_json(const petra_memory_row *row, int stages, json_t *object) {
  json_t *list = json_array();
  petra_status status;
  PETRA_TRY_GOTO(status, petra_json_set(object, "inputs_kept", json_boolean(row->inputs_kept)), done);
  PETRA_TRY_GOTO(status, petra_json_set(object, "weights_kept", json_boolean(row->weights_kept)), done);
  PETRA_TRY_GOTO(status, petra_json_set(object, "total_bytes", json_integer(row->total_bytes)), done);
  PETRA_TRY_GOTO(status, petra_json_set(object, "saving", petra_json_real(row->saving)), done);
  PETRA_TRY_GOTO(status, stages_json(row, stages, list), done);
  status = petra_json_set(object, "stages_bytes", json_incref(list));
done:
  json_decref(list);
  return status;
}

petra_status petra_memory_json(const petra_plan *plan, petra_accounting accounting, json_t *root) {
  petra_memory_row rows[PETRA_MEMORY_ROWS];
  json_t *memory, *list;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_memory_rows(plan, accounting, rows), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "memory", json_object()), done);
  memory = json_object_get(root, "memory");
  PETRA_TRY_GOTO(status, petra_json_set(memory, "accounting", json_string(petra_accounting_name(accounting))), done);
  PETRA_TRY_GOTO(status, petra_json_set(memory, "image_size", json_integer(plan->model.image_height)), done);
  PETRA_TRY_GOTO(status, petra_json_set(memory, "rows", json_array()), done);
  list = json_object_get(memory, "rows");
  for (int i = 0; i < PETRA_MEMORY_ROWS; i++) {
    json_t *object = json_object();
    if (json_array_append_new(list, object) != 0)
      PETRA_TRY_GOTO(status, petra_json_set(NULL, "rows", NULL), done);
    PETRA_TRY_GOTO(status, row_json(&rows[i], plan->partition.stages, object), done);
  }
done:
  petra_memory_rows_fini(rows);
  return status;
}

static petra_status megabytes(petra_table *table, int64_t bytes) {
  return petra_table_cell(table, "%.2f", (double)bytes * 1e-6);
}

/* Row 4 holds what is there in any case; keeping inputs and weights adds what row 1 holds beyond it. */
static petra_status add_stage(petra_table *table, const petra_memory_row *rows, int stage, const char *name) {
  const petra_ledger_bytes *most = &rows[0].stage[stage], *least = &rows[PETRA_MEMORY_ROWS - 1].stage[stage];
  PETRA_TRY(petra_table_cell(table, "%d", stage + 1));
  PETRA_TRY(petra_table_cell(table, "%s", name));
  PETRA_TRY(megabytes(table, least->parameters));
  PETRA_TRY(megabytes(table, least->statistics));
  PETRA_TRY(megabytes(table, least->input));
  PETRA_TRY(megabytes(table, least->input_buffer));
  PETRA_TRY(megabytes(table, petra_ledger_total(least)));
  PETRA_TRY(megabytes(table, most->input_buffer - least->input_buffer));
  return megabytes(table, most->weight_buffer);
}

static petra_status print_stages(const petra_plan *plan, const petra_memory_row *rows) {
  static const petra_table_column columns[] = {
      {"stage", PETRA_TABLE_RIGHT},      {"blocks", PETRA_TABLE_LEFT},         {"parameters", PETRA_TABLE_RIGHT},
      {"statistics", PETRA_TABLE_RIGHT}, {"input", PETRA_TABLE_RIGHT},         {"input buffer", PETRA_TABLE_RIGHT},
      {"together", PETRA_TABLE_RIGHT},   {"+ inputs kept", PETRA_TABLE_RIGHT}, {"+ weights kept", PETRA_TABLE_RIGHT}};
  petra_table *table;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int j = 0; j < plan->partition.stages && status == PETRA_OK; j++) {
    petra_stage_summary stage;
    petra_plan_stage_summary(plan, j, &stage);
    status = add_stage(table, rows, j, stage.name);
  }
  if (status == PETRA_OK)
    status = petra_table_print(table, stdout);
  petra_table_destroy(table);
  return status;
}

static petra_status print_rows(const petra_memory_row *rows) {
  static const petra_table_column columns[] = {{"inputs kept", PETRA_TABLE_LEFT},
                                               {"weights kept", PETRA_TABLE_LEFT},
                                               {"GB", PETRA_TABLE_RIGHT},
                                               {"saving %", PETRA_TABLE_RIGHT}};
  petra_table *table;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int i = 0; i < PETRA_MEMORY_ROWS; i++) {
    PETRA_TRY_GOTO(status, petra_table_cell(table, "%s", rows[i].inputs_kept ? "yes" : "no"), done);
    PETRA_TRY_GOTO(status, petra_table_cell(table, "%s", rows[i].weights_kept ? "yes" : "no"), done);
    PETRA_TRY_GOTO(status, petra_table_cell(table, "%.2f", (double)rows[i].total_bytes * 1e-9), done);
    PETRA_TRY_GOTO(status, petra_table_cell(table, "%.1f", 100 * rows[i].saving), done);
  }
  status = petra_table_print(table, stdout);
done:
  petra_table_destroy(table);
  return status;
}

petra_status petra_memory_print(const petra_plan *plan, petra_accounting accounting) {
  petra_memory_row rows[PETRA_MEMORY_ROWS];
  petra_status status;
  PETRA_TRY_GOTO(status, petra_memory_rows(plan, accounting, rows), done);
  printf("\nmemory in MB, accounting %s, images of %dx%d:\n\n", petra_accounting_name(accounting),
         plan->model.image_height, plan->model.image_width);
  PETRA_TRY_GOTO(status, print_stages(plan, rows), done);
  printf("\n");
  PETRA_TRY_GOTO(status, print_rows(rows), done);
  printf("\nMB: 10^6 bytes, GB: 10^9; parameters with a bias for each convolution, as in the paper's "
         "network; input buffer: inputs\n"
         "that wait for their backward even where inputs are not kept\n");
done:
  petra_memory_rows_fini(rows);
  return status;
}
