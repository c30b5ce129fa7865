/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/fit_print.h"

#include "base/json.h"
#include "base/table.h"
#include "base/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

static void join(const petra_fit_measurement *one, char *text, size_t size) {
  size_t used = 0;
  text[0] = 0;
  for (int i = 0; i < one->count && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", one->settings[i]);
}

petra_status petra_fit_print(const petra_fit *fit) {
  static const petra_table_column columns[] = {{"measurement", PETRA_TABLE_LEFT},
                                               {"measured ms", PETRA_TABLE_RIGHT},
                                               {"simulated ms", PETRA_TABLE_RIGHT},
                                               {"ratio", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, sizeof columns / sizeof *columns, &table));
  for (int i = 0; i < fit->measurements; i++) {
    const petra_fit_measurement *one = &fit->measurement[i];
    char text[512];
    join(one, text, sizeof text);
    petra_table_cell(table, "%s", text);
    petra_table_cell(table, "%.4g", 1e3 * one->measured_s);
    petra_table_cell(table, "%.4g", 1e3 * one->simulated_s);
    petra_table_cell(table, "%.4f", one->simulated_s / one->measured_s);
  }
  PETRA_TRY(petra_table_print(table, stdout));
  putchar('\n');
  for (int i = 0; i < fit->factors; i++) {
    const petra_fit_factor *factor = &fit->factor[i];
    for (int k = 0; k < factor->count; k++)
      petra_utf8_print(stdout, "%s: %.6g (%.6g times %.6g)\n", factor->keys[k], factor->start[k] * factor->factor,
                       factor->start[k], factor->factor);
    if (factor->undetermined)
      printf("  the measurements do not determine it: half the value and twice the value fit as well\n");
  }
  printf("%d factor%s fitted to %d measurement%s: times are %.1f %% off (root mean square), %.1f %% at most\n",
         fit->factors, fit->factors == 1 ? "" : "s", fit->measurements, fit->measurements == 1 ? "" : "s",
         100 * expm1(fit->rms), 100 * expm1(fit->worst));
  if (fit->factors >= fit->measurements)
    printf("there are no more measurements than factors, so a good fit is no evidence\n");
  return PETRA_OK;
}

static json_t *factor_json(const petra_fit_factor *factor) {
  json_t *values = json_object();
  for (int k = 0; k < factor->count; k++)
    petra_json_set(&values, factor->keys[k], petra_json_real(factor->start[k] * factor->factor));
  return json_pack("{s:o, s:o, s:b}", "factor", petra_json_real(factor->factor), "values", values, "undetermined",
                   factor->undetermined);
}

petra_status petra_fit_print_json(const petra_fit *fit) {
  json_t *factors = json_array(), *measurements = json_array();
  for (int i = 0; i < fit->factors; i++)
    petra_json_append(&factors, factor_json(&fit->factor[i]));
  for (int i = 0; i < fit->measurements; i++) {
    const petra_fit_measurement *one = &fit->measurement[i];
    json_t *settings = json_array();
    for (int k = 0; k < one->count; k++)
      petra_json_append(&settings, petra_json_string(one->settings[k]));
    petra_json_append(&measurements,
                      json_pack("{s:o, s:o, s:o}", "settings", settings, "measured_s", petra_json_real(one->measured_s),
                                "simulated_s", petra_json_real(one->simulated_s)));
  }
  return petra_json_print_new(json_pack("{s:o, s:o, s:o, s:o}", "factors", factors, "measurements", measurements,
                                        "rms_log", petra_json_real(fit->rms), "worst_log",
                                        petra_json_real(fit->worst)));
}
