/* What a run of a setup holds in memory, as plain numbers for the ledger over time (sim/observer_memory.h).
 * Three accountings:
 *  - measured: what the accounts of an emulation count, to the byte: one microbatch goes up and down through
 * the real stages on a backend without content (petra_backend_create_dry), and what each action does to the
 * accounts is noted. Older weights that a method keeps count as copies of the parameters, as many as microbatches
 * in flight were forwarded with.
 *  - paper, strict: those of sim/ledger.h, with what is in flight at each moment in place of the largest
 * delay. input_buffer counts the input that is worked on as well; gradients, momentum, graphs and messages
 * are not in them. */
#ifndef PETRA_CLI_FOOTPRINT_H
#define PETRA_CLI_FOOTPRINT_H

#include "cli/setup.h"
#include "sim/ledger.h"
#include "sim/observer_memory.h"

/* Fills `out`, one a stage. `setup` needs its plan only. */
petra_status petra_footprint_measured(const petra_setup *setup, const petra_program_options *program,
                                      petra_memory_stage *out);
petra_status petra_footprint_counted(const petra_setup *setup, petra_accounting accounting, petra_memory_stage *out);

#endif
