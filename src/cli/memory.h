/* SPDX-License-Identifier: Apache-2.0 */
/* The analytic memory of a plan, for `petra inspect --memory`: sim/ledger.h filled from the network. */
#ifndef PETRA_CLI_MEMORY_H
#define PETRA_CLI_MEMORY_H

#include "predict/memory.h"
#include "sim/ledger.h"

struct json_t; /* jansson's */

/* The object `memory` of `petra inspect --json` (*out is NULL where JSON had no memory), and the table of the same. */
petra_status petra_memory_json(const petra_plan *plan, petra_accounting accounting, struct json_t **out);
petra_status petra_memory_print(const petra_plan *plan, petra_accounting accounting);

#endif
