/* The analytic memory of a plan, for `petra inspect --memory`: sim/ledger.h filled from the network. */
#ifndef PETRA_CLI_MEMORY_H
#define PETRA_CLI_MEMORY_H

#include "run/footprint.h"
#include "sim/ledger.h"

struct json_t; /* jansson's */

/* One of the four rows of table 3. */
typedef struct petra_memory_row {
  bool inputs_kept, weights_kept;
  petra_ledger_bytes *stage; /* one a stage */
  int64_t total_bytes;
  double saving; /* against the first row, 0 .. 1 */
} petra_memory_row;

enum { PETRA_MEMORY_ROWS = 4 };

/* All rows in the order of table 3: inputs and weights kept, inputs, weights, neither. petra_memory_rows_fini must
 * follow, also after a failure. */
petra_status petra_memory_rows(const petra_plan *plan, petra_accounting accounting,
                               petra_memory_row rows[PETRA_MEMORY_ROWS]);
void petra_memory_rows_fini(petra_memory_row rows[PETRA_MEMORY_ROWS]);

/* The object `memory` of `petra inspect --json`, and the table of the same as text. */
petra_status petra_memory_json(const petra_plan *plan, petra_accounting accounting, struct json_t *root);
petra_status petra_memory_print(const petra_plan *plan, petra_accounting accounting);

#endif
