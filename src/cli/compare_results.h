/* SPDX-License-Identifier: Apache-2.0 */
/* The figures that petra compare shows of runs side by side. */
#ifndef PETRA_CLI_COMPARE_RESULTS_H
#define PETRA_CLI_COMPARE_RESULTS_H

#include "cli/run_facts.h"

typedef struct petra_result {
  const char *name;  /* in JSON, with its unit unless that is 1 */
  const char *title; /* in the table, with its unit */
  double scale;      /* from the unit of JSON to that of the table */
  int decimals;      /* in the table */
} petra_result;

enum { PETRA_RESULTS = 17 };
extern const petra_result petra_results[PETRA_RESULTS];

/* All figures of a run; NaN: it has none. */
void petra_results_of(const petra_run_facts *facts, double values[PETRA_RESULTS]);

#endif
