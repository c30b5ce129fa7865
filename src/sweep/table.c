/* The summary for people: one line a combination; and for spreadsheets. */
#include "base/interval.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/table.h"
#include "base/utf8.h"
#include "sweep/sweep.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const double LEVEL = 0.95;

/* With n = 1 there is a mean and no interval. */
static petra_status metric_cell(petra_table *table, petra_interval interval) {
  if (interval.count == 0)
    return petra_table_cell(table, "-");
  if (interval.count == 1)
    return petra_table_cell(table, "%.5g +- -", interval.mean);
  return petra_table_cell(table, "%.5g +- %.2g", interval.mean, interval.half);
}

static petra_status fill(const petra_sweep *sweep, petra_table *table, double *values) {
  const petra_sweep_metrics *metrics = petra_sweep_metrics_of(petra_grid_runs(sweep->grid));
  int seeds = petra_grid_seeds(sweep->grid);
  for (int c = 0; c < sweep->cells / seeds; c++) {
    char name[PETRA_GRID_NAME];
    int complete = 0;
    for (int i = c * seeds; i < (c + 1) * seeds; i++)
      complete += sweep->cell[i].state == PETRA_CELL_COMPLETE;
    petra_grid_name(sweep->grid, c * seeds, false, name);
    PETRA_TRY(petra_table_cell(table, "%s", name));
    PETRA_TRY(petra_table_cell(table, "%d/%d", complete, seeds));
    for (int m = 0; m < metrics->count; m++)
      if (metrics->shown[m])
        PETRA_TRY(metric_cell(table, petra_interval_of(values, petra_sweep_values(sweep, c, m, values), LEVEL)));
  }
  return PETRA_OK;
}

petra_status petra_sweep_print_table(const petra_sweep *sweep) {
  const petra_sweep_metrics *metrics = petra_sweep_metrics_of(petra_grid_runs(sweep->grid));
  petra_table_column columns[PETRA_SWEEP_METRICS + 2] = {{"combination", PETRA_TABLE_LEFT},
                                                         {"complete", PETRA_TABLE_RIGHT}};
  int count = 2;
  double *values = NULL;
  petra_table *table = NULL;
  petra_status status;
  for (int m = 0; m < metrics->count; m++)
    if (metrics->shown[m])
      columns[count++] = (petra_table_column){metrics->name[m], PETRA_TABLE_RIGHT};
  PETRA_TRY(petra_allocate(&values, (size_t)petra_grid_seeds(sweep->grid), sizeof *values));
  PETRA_TRY_GOTO(status, petra_table_create(columns, count, &table), done);
  PETRA_TRY_GOTO(status, fill(sweep, table, values), done);
  status = petra_table_print(table, stdout);
  if (status == PETRA_OK)
    petra_utf8_print(stdout,
                     "mean +- 95 %% interval (Student's t) over the seeds that are complete; all in "
                     "%s/summary.{csv,json}\n",
                     sweep->directory);
done:
  petra_table_destroy(table);
  petra_free(values);
  return status;
}

/* A field in quotes, its own doubled. */
static void put_quoted(FILE *out, const char *text) {
  for (; *text; text += strcspn(text, "\"")) {
    if (*text == '"') {
      fputs("\"\"", out);
      text++;
    }
    petra_utf8_print(out, "%.*s", (int)strcspn(text, "\""), text);
  }
}

/* Nothing where there is no number. */
static void put_number(FILE *out, double value) {
  if (isfinite(value))
    fprintf(out, ",%.17g", value);
  else
    putc(',', out);
}

petra_status petra_sweep_print_csv(const petra_sweep *sweep, FILE *out) {
  const petra_sweep_metrics *metrics = petra_sweep_metrics_of(petra_grid_runs(sweep->grid));
  int seeds = petra_grid_seeds(sweep->grid);
  double *values = NULL;
  PETRA_TRY(petra_allocate(&values, (size_t)seeds, sizeof *values));
  fputs("combination,overrides,cells,complete", out);
  for (int m = 0; m < metrics->count; m++)
    fprintf(out, ",%s_mean,%s_interval95", metrics->name[m], metrics->name[m]);
  putc('\n', out);
  for (int c = 0; c < sweep->cells / seeds; c++) {
    char name[PETRA_GRID_NAME];
    const char *key, *value;
    int complete = 0;
    petra_grid_name(sweep->grid, c * seeds, false, name);
    petra_utf8_print(out, "%s,\"", name);
    for (int i = 0; petra_grid_override(sweep->grid, c, i, &key, &value); i++) {
      fprintf(out, "%s%s=", i ? "; " : "", key);
      put_quoted(out, value);
    }
    for (int i = c * seeds; i < (c + 1) * seeds; i++)
      complete += sweep->cell[i].state == PETRA_CELL_COMPLETE;
    fprintf(out, "\",%d,%d", seeds, complete);
    for (int m = 0; m < metrics->count; m++) {
      petra_interval interval = petra_interval_of(values, petra_sweep_values(sweep, c, m, values), LEVEL);
      put_number(out, interval.mean);
      put_number(out, interval.half);
    }
    putc('\n', out);
  }
  petra_free(values);
  return fflush(out) == 0 && !ferror(out)
             ? PETRA_OK
             : petra_fail(PETRA_IO, "the summary could not be written: %s", strerror(errno));
}
