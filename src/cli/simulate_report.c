/* The report of petra simulate: a table for people, JSON for programs. */
#include "base/json.h"
#include "base/table.h"
#include "cli/simulate.h"

#include <jansson.h>
#include <math.h>

/* Of more stages than this the table shows the first and the last few. */
enum { MOST_ROWS = 40, END_ROWS = 10 };

static petra_status memory_json(const petra_account *account, json_t *object) {
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    PETRA_TRY(petra_json_set(object, petra_memory_category_name((petra_memory_category)c),
                             json_integer(account->peak_bytes[c])));
  return petra_json_set(object, "total", json_integer(account->total_peak_bytes));
}

static petra_status critical_json(const petra_simulated *result, json_t *root) {
  if (!result->critical)
    return petra_json_set(root, "critical_path", json_null());
  json_t *object = json_object(), *parts = json_object();
  PETRA_TRY(petra_json_set(root, "critical_path", object));
  PETRA_TRY(petra_json_set(object, "ns", parts));
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    PETRA_TRY(petra_json_set(parts, petra_critical_name((petra_critical_kind)k), json_integer(result->path.ns[k])));
  PETRA_TRY(petra_json_set(object, "actions", json_integer(result->path.actions)));
  return petra_json_set(object, "messages", json_integer(result->path.messages));
}

static petra_status stage_json(const petra_simulated *result, int32_t j, json_t *object) {
  const petra_simulated_stage *stage = &result->stage[j];
  PETRA_TRY(petra_json_set(object, "stage", json_integer(j + 1)));
  PETRA_TRY(petra_json_set(object, "utilization", petra_json_real(stage->utilization)));
  PETRA_TRY(petra_json_set(object, "lag_mean", petra_json_real(stage->lag_mean)));
  PETRA_TRY(petra_json_set(object, "lag_max", json_integer(stage->lag_max)));
  PETRA_TRY(petra_json_set(object, "in_flight_max", json_integer(stage->in_flight_max)));
  PETRA_TRY(petra_json_set(object, "kept_max", json_integer(stage->kept_max)));
  PETRA_TRY(petra_json_set(object, "bytes_up", json_integer(stage->bytes_up)));
  PETRA_TRY(petra_json_set(object, "bytes_down", json_integer(stage->bytes_down)));
  if (result->critical)
    PETRA_TRY(petra_json_set(object, "critical_ns", json_integer(result->critical_stage_ns[j])));
  json_t *memory = json_object();
  PETRA_TRY(petra_json_set(object, "peak_bytes", memory));
  return result->accounts ? memory_json(&result->accounts[j], memory) : PETRA_OK;
}

static petra_status run_json(const petra_simulated *result, json_t *root) {
  PETRA_TRY(petra_json_set(root, "method", json_string(result->plan->method.name)));
  PETRA_TRY(petra_json_set(root, "program", json_string(result->plan->method.program->name)));
  PETRA_TRY(petra_json_set(root, "engines", json_integer(result->plan->config->cluster.engines)));
  PETRA_TRY(petra_json_set(root, "microbatches", json_integer(result->plan->program.microbatches)));
  PETRA_TRY(petra_json_set(root, "makespan_s", petra_json_real(1e-9 * (double)result->makespan_ns)));
  PETRA_TRY(petra_json_set(root, "makespan_ns", json_integer(result->makespan_ns)));
  PETRA_TRY(petra_json_set(root, "time_per_microbatch_s", petra_json_real(result->time_per_microbatch_s)));
  PETRA_TRY(petra_json_set(root, "bubble_fraction", petra_json_real(result->bubble_fraction)));
  PETRA_TRY(petra_json_set(root, "actions", json_integer(result->actions)));
  PETRA_TRY(petra_json_set(root, "runaway", json_boolean(result->runaway >= 0)));
  PETRA_TRY(
      petra_json_set(root, "runaway_microbatch", result->runaway < 0 ? json_null() : json_integer(result->runaway)));
  PETRA_TRY(critical_json(result, root));
  PETRA_TRY(petra_json_set(root, "accounting", result->accounts ? json_string(result->accounting) : json_null()));
  return petra_json_set(root, "wall_s", petra_json_real(result->wall_s));
}

petra_status petra_simulated_print_json(const petra_simulated *result) {
  json_t *root = json_object(), *list = json_array();
  petra_status status;
  PETRA_TRY_GOTO(status, run_json(result, root), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "stages", json_incref(list)), done);
  for (int32_t j = 0; j < result->plan->program.stages; j++) {
    json_t *object = json_object();
    json_array_append_new(list, object);
    PETRA_TRY_GOTO(status, stage_json(result, j, object), done);
  }
  status = petra_json_print(root, stdout);
done:
  json_decref(list);
  json_decref(root);
  return status;
}

static petra_status add_row(petra_table *table, int32_t j, const petra_simulated *result) {
  const petra_simulated_stage *stage = &result->stage[j];
  PETRA_TRY(petra_table_cell(table, "%d", j + 1));
  PETRA_TRY(petra_table_cell(table, "%.4f", stage->utilization));
  PETRA_TRY(petra_table_cell(table, "%.4f", stage->lag_mean));
  PETRA_TRY(petra_table_cell(table, "%lld", (long long)stage->lag_max));
  PETRA_TRY(petra_table_cell(table, "%lld", (long long)stage->in_flight_max));
  PETRA_TRY(petra_table_cell(table, "%lld", (long long)stage->kept_max));
  PETRA_TRY(petra_table_cell(table, "%.3f", 1e-6 * (double)stage->bytes_up));
  PETRA_TRY(petra_table_cell(table, "%.3f", 1e-6 * (double)stage->bytes_down));
  if (result->accounts)
    return petra_table_cell(table, "%.3f", 1e-6 * (double)result->accounts[j].total_peak_bytes);
  return PETRA_OK;
}

static petra_status add_gap(petra_table *table, int columns) {
  for (int c = 0; c < columns; c++)
    PETRA_TRY(petra_table_cell(table, "..."));
  return PETRA_OK;
}

static petra_status print_stages(const petra_simulated *result) {
  static const petra_table_column columns[] = {
      {"stage", PETRA_TABLE_RIGHT},   {"busy", PETRA_TABLE_RIGHT},      {"lag mean", PETRA_TABLE_RIGHT},
      {"lag max", PETRA_TABLE_RIGHT}, {"in flight", PETRA_TABLE_RIGHT}, {"kept", PETRA_TABLE_RIGHT},
      {"up MB", PETRA_TABLE_RIGHT},   {"down MB", PETRA_TABLE_RIGHT},   {"peak MB", PETRA_TABLE_RIGHT}};
  int count = result->accounts ? 9 : 8;
  int32_t stages = result->plan->program.stages;
  petra_table *table;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_table_create(columns, count, &table));
  for (int32_t j = 0; j < stages && status == PETRA_OK; j++) {
    if (stages > MOST_ROWS && j == END_ROWS) {
      status = add_gap(table, count);
      j = stages - END_ROWS - 1;
    } else {
      status = add_row(table, j, result);
    }
  }
  if (status == PETRA_OK)
    status = petra_table_print(table, stdout);
  petra_table_destroy(table);
  return status;
}

/* The parts that are not 0. */
static void print_critical(const petra_simulated *result) {
  const char *between = "";
  printf("critical path: ");
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    if (result->path.ns[k] > 0) {
      printf("%s%s %.9g s (%.1f %%)", between, petra_critical_name((petra_critical_kind)k),
             1e-9 * (double)result->path.ns[k], 100 * (double)result->path.ns[k] / (double)result->makespan_ns);
      between = ", ";
    }
  printf("%s; %lld actions, %lld messages that take time\n", *between ? "" : "no time", (long long)result->path.actions,
         (long long)result->path.messages);
}

petra_status petra_simulated_print_table(const petra_simulated *result) {
  const petra_program_options *program = &result->plan->program;
  const petra_config *config = result->plan->config;
  printf("%s (program %s) on %d stage%s, %lld microbatches, %lld engine%s a device\n\n", result->plan->method.name,
         result->plan->method.program->name, program->stages, program->stages == 1 ? "" : "s",
         (long long)program->microbatches, (long long)config->cluster.engines, config->cluster.engines == 1 ? "" : "s");
  PETRA_TRY(print_stages(result));
  printf("\nmakespan %.9g s", 1e-9 * (double)result->makespan_ns);
  if (isfinite(result->time_per_microbatch_s))
    printf(", %.9g s per microbatch", result->time_per_microbatch_s);
  else
    printf(", too few microbatches for a steady state");
  printf(", bubble %.4f; %lld actions in %.3g s\n", result->bubble_fraction, (long long)result->actions,
         result->wall_s);
  if (result->critical)
    print_critical(result);
  printf("in flight: most microbatches between F and B; kept: most whose graph or input is held, until B, or W where "
         "it is "
         "split from B\n");
  if (result->accounts)
    printf("peak MB: the most that a stage holds, in 10^6 bytes, accounting %s\n", result->accounting);
  return PETRA_OK;
}
