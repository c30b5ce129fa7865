/* petra profile: what was measured, as a table for people and as JSON for programs. */
#include "base/json.h"
#include "base/table.h"
#include "base/utf8.h"
#include "cli/profile.h"

#include <jansson.h>

static petra_status spread_json(const petra_spread *spread, json_t *object) {
  PETRA_TRY(petra_json_set(object, "median_s", petra_json_real(spread->median)));
  PETRA_TRY(petra_json_set(object, "min_s", petra_json_real(spread->min)));
  PETRA_TRY(petra_json_set(object, "quartile1_s", petra_json_real(spread->quartile1)));
  PETRA_TRY(petra_json_set(object, "quartile3_s", petra_json_real(spread->quartile3)));
  return petra_json_set(object, "max_s", petra_json_real(spread->max));
}

static petra_status stage_json(const petra_profile_report *report, int j, json_t *object) {
  const petra_profile_stage *stage = &report->profile->stage[j];
  petra_stage_summary summary;
  petra_plan_stage_summary(report->plan, j, &summary);
  PETRA_TRY(petra_json_set(object, "stage", json_integer(j + 1)));
  PETRA_TRY(petra_json_set(object, "name", petra_json_string(summary.name)));
  PETRA_TRY(petra_json_set(object, "blocks", json_integer(stage->blocks)));
  PETRA_TRY(petra_json_set(object, "forward_bytes", json_integer(stage->forward_bytes)));
  PETRA_TRY(petra_json_set(object, "backward_bytes", json_integer(stage->backward_bytes)));
  for (int part = 0; part < PETRA_PROFILE_PARTS; part++) {
    json_t *spread = json_object();
    PETRA_TRY(petra_json_set(object, petra_profile_part_name((petra_profile_part)part), spread));
    PETRA_TRY(spread_json(&stage->part[part], spread));
  }
  return PETRA_OK;
}

static petra_status about_json(const petra_profile_report *report, json_t *root) {
  const petra_profile_about *about = report->about;
  PETRA_TRY(petra_json_set(root, "profile", petra_json_string(report->path)));
  PETRA_TRY(petra_json_set(root, "backend", petra_json_string(about->backend)));
  PETRA_TRY(petra_json_set(root, "precision", json_string(report->profile->precision)));
  PETRA_TRY(petra_json_set(root, "method", json_string(about->method)));
  PETRA_TRY(petra_json_set(root, "threads", json_integer(about->threads)));
  PETRA_TRY(petra_json_set(root, "batch", json_integer(report->profile->batch)));
  PETRA_TRY(petra_json_set(root, "warmup", json_integer(about->warmup)));
  return petra_json_set(root, "repetitions", json_integer(about->repetitions));
}

petra_status petra_profile_print_json(const petra_profile_report *report) {
  json_t *root = json_object(), *list = json_array();
  petra_status status;
  PETRA_TRY_GOTO(status, about_json(report, root), done);
  PETRA_TRY_GOTO(status, petra_json_set(root, "stages", json_incref(list)), done);
  for (int j = 0; j < report->profile->stages; j++) {
    json_t *object = json_object();
    json_array_append_new(list, object);
    PETRA_TRY_GOTO(status, stage_json(report, j, object), done);
  }
  status = petra_json_print(root, stdout);
done:
  json_decref(list);
  json_decref(root);
  return status;
}

/* The interquartile range over the median, in percent; 0 where nothing was measured. */
static double spread_percent(const petra_spread *spread) {
  return spread->median > 0 ? 100 * (spread->quartile3 - spread->quartile1) / spread->median : 0;
}

static petra_status add_rows(const petra_profile_report *report, petra_table *table) {
  for (int j = 0; j < report->profile->stages; j++) {
    const petra_spread *parts = report->profile->stage[j].part;
    petra_stage_summary summary;
    petra_plan_stage_summary(report->plan, j, &summary);
    PETRA_TRY(petra_table_cell(table, "%d", j + 1));
    PETRA_TRY(petra_table_cell(table, "%s", summary.name));
    for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
      PETRA_TRY(petra_table_cell(table, "%.3f", 1e3 * parts[part].median));
    PETRA_TRY(petra_table_cell(table, "%.1f%%", spread_percent(&parts[PETRA_PROFILE_FORWARD])));
    PETRA_TRY(petra_table_cell(table, "%.1f%%", spread_percent(&parts[PETRA_PROFILE_BACKWARD])));
  }
  return PETRA_OK;
}

petra_status petra_profile_print_table(const petra_profile_report *report) {
  static const petra_table_column columns[] = {
      {"stage", PETRA_TABLE_RIGHT},    {"name", PETRA_TABLE_LEFT},         {"forward", PETRA_TABLE_RIGHT},
      {"backward", PETRA_TABLE_RIGHT}, {"reconstruct", PETRA_TABLE_RIGHT}, {"weight gradient", PETRA_TABLE_RIGHT},
      {"update", PETRA_TABLE_RIGHT},   {"spread F", PETRA_TABLE_RIGHT},    {"spread B", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, sizeof columns / sizeof *columns, &table));
  petra_status status = add_rows(report, table);
  if (status == PETRA_OK)
    status = petra_table_print(table, stdout);
  petra_table_destroy(table);
  PETRA_TRY(status);
  petra_utf8_print(
      stdout,
      "\nMilliseconds a microbatch of %d images: medians of %d repetitions; spread: interquartile range over median.\n"
      "Weight gradient is a part of backward. %s; %s\nwritten: %s\n",
      (int)report->profile->batch, (int)report->about->repetitions, report->about->backend, report->profile->precision,
      report->path);
  return PETRA_OK;
}
