/* petra profile: what was measured, as a table for people and as JSON for programs. */
#include "base/json.h"
#include "base/table.h"
#include "base/utf8.h"
#include "cli/profile.h"

#include <jansson.h>

static json_t *spread_json(const petra_spread *spread) {
  return json_pack("{s:o, s:o, s:o, s:o, s:o}", "median_s", petra_json_real(spread->median), "min_s",
                   petra_json_real(spread->min), "quartile1_s", petra_json_real(spread->quartile1), "quartile3_s",
                   petra_json_real(spread->quartile3), "max_s", petra_json_real(spread->max));
}

static json_t *stage_json(const petra_profile_report *report, int j) {
  const petra_profile_stage *stage = &report->profile->stage[j];
  petra_stage_summary summary;
  petra_plan_stage_summary(report->plan, j, &summary);
  json_t *object =
      json_pack("{s:i, s:s, s:i, s:I, s:I}", "stage", j + 1, "name", summary.name, "blocks", (int)stage->blocks,
                "forward_bytes", (json_int_t)stage->forward_bytes, "backward_bytes", (json_int_t)stage->backward_bytes);
  for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
    petra_json_set(&object, petra_profile_part_name((petra_profile_part)part), spread_json(&stage->part[part]));
  return object;
}

petra_status petra_profile_print_json(const petra_profile_report *report) {
  const petra_profile_about *about = report->about;
  json_t *stages = json_array();
  for (int j = 0; j < report->profile->stages; j++)
    petra_json_append(&stages, stage_json(report, j));
  return petra_json_print_new(json_pack("{s:o, s:o, s:s, s:s, s:i, s:i, s:i, s:i, s:o}", "profile",
                                        petra_json_string(report->path), "backend", petra_json_string(about->backend),
                                        "precision", report->profile->precision, "method", about->method, "threads",
                                        (int)about->threads, "batch", (int)report->profile->batch, "warmup",
                                        (int)about->warmup, "repetitions", (int)about->repetitions, "stages", stages));
}

/* The interquartile range over the median, in percent; 0 where nothing was measured. */
static double spread_percent(const petra_spread *spread) {
  return spread->median > 0 ? 100 * (spread->quartile3 - spread->quartile1) / spread->median : 0;
}

static void add_rows(const petra_profile_report *report, petra_table *table) {
  for (int j = 0; j < report->profile->stages; j++) {
    const petra_spread *parts = report->profile->stage[j].part;
    petra_stage_summary summary;
    petra_plan_stage_summary(report->plan, j, &summary);
    petra_table_cell(table, "%d", j + 1);
    petra_table_cell(table, "%s", summary.name);
    for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
      petra_table_cell(table, "%.3f", 1e3 * parts[part].median);
    petra_table_cell(table, "%.1f%%", spread_percent(&parts[PETRA_PROFILE_FORWARD]));
    petra_table_cell(table, "%.1f%%", spread_percent(&parts[PETRA_PROFILE_BACKWARD]));
  }
}

petra_status petra_profile_print_table(const petra_profile_report *report) {
  static const petra_table_column columns[] = {
      {"stage", PETRA_TABLE_RIGHT},    {"name", PETRA_TABLE_LEFT},         {"forward", PETRA_TABLE_RIGHT},
      {"backward", PETRA_TABLE_RIGHT}, {"reconstruct", PETRA_TABLE_RIGHT}, {"weight gradient", PETRA_TABLE_RIGHT},
      {"update", PETRA_TABLE_RIGHT},   {"spread F", PETRA_TABLE_RIGHT},    {"spread B", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, sizeof columns / sizeof *columns, &table));
  add_rows(report, table);
  PETRA_TRY(petra_table_print(table, stdout));
  petra_utf8_print(
      stdout,
      "\nMilliseconds a microbatch of %d images: medians of %d repetitions; spread: interquartile range over median.\n"
      "Weight gradient is a part of backward. %s; %s\nwritten: %s\n",
      (int)report->profile->batch, (int)report->about->repetitions, report->about->backend, report->profile->precision,
      report->path);
  return PETRA_OK;
}
