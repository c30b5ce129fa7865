/* SPDX-License-Identifier: Apache-2.0 */
/* /probe of run.h5: the measured differences between gradients. Schema: docs/hdf5-schema.md. */
#pragma once

#include "exec/network.h"
#include "exec/probe_row.h"
#include "record/run_h5.h"

typedef struct petra_probe_log petra_probe_log;

/* Creates the group with its empty data sets, and the table of the network's parameters; `resumed` means that the log
 * is resumed and already has the group. The network is borrowed. Errors as in run_h5.h. */
petra_status petra_probe_log_create(petra_run_h5 *log, const petra_network *network, bool resumed,
                                    petra_probe_log **out);

/* Appends a row, and flushes; `context` is the log of probes. */
petra_status petra_probe_log_row(void *context, const petra_probe_row *row);

/* Returns the number of rows in the file. */
int64_t petra_probe_log_rows(const petra_probe_log *probe);

/* Writes /probe/peak_bytes (category), the maximum memory of the probes. Call it once. */
petra_status petra_probe_log_memory(petra_probe_log *probe, const petra_account *account);

/* Frees the memory; the data sets are closed with the file. NULL is allowed. */
void petra_probe_log_destroy(petra_probe_log *probe);
