/* SPDX-License-Identifier: Apache-2.0 */
#include "search/compare_methods.h"

#include <math.h>

/* A method without a time comes last. */
static bool comes_before(const petra_method_figures *a, const petra_method_figures *b) {
  const double a_s = a->found.time_per_microbatch_s, b_s = b->found.time_per_microbatch_s;
  return isnan(a_s) || isnan(b_s) ? isnan(b_s) && !isnan(a_s) : a_s < b_s;
}

/* Methods that are equally fast stay in the order of the presets. */
static void sort(petra_method_figures *rows, int count) {
  for (int i = 1; i < count; i++) {
    const petra_method_figures row = rows[i];
    int j = i;
    for (; j > 0 && comes_before(&row, &rows[j - 1]); j--)
      rows[j] = rows[j - 1];
    rows[j] = row;
  }
}

static petra_status fill(const petra_candidates *c, const petra_method *method, petra_method_figures *out) {
  const int32_t devices = petra_candidates_devices(c);
  const petra_candidate candidate = {
      .method = *method, .stages = petra_candidates_chunks(c, method) * devices, .keep = PETRA_KEEP_PRESET};
  *out = (petra_method_figures){.method = *method,
                                .stages = candidate.stages,
                                .devices = devices,
                                .exact = method->program->moment == PETRA_MOMENT_WINDOW && !method->program->local};
  return petra_candidate_simulate(c, &candidate, &out->found, NULL);
}

petra_status petra_compare_methods(const petra_config *config, petra_method_figures *out, int32_t *devices,
                                   int32_t *stages) {
  petra_candidates *c;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_candidates_create(config, 0, &c));
  for (int i = 0; status == PETRA_OK && i < petra_method_count(); i++) {
    const petra_method method = petra_method_get(i);
    status = fill(c, &method, &out[i]);
  }
  if (status == PETRA_OK)
    sort(out, petra_method_count());
  *devices = petra_candidates_devices(c);
  *stages = petra_candidates_stages(c);
  petra_candidates_destroy(c);
  return status;
}
