/* What `petra simulate` prints. */
#ifndef PETRA_CLI_SIMULATE_H
#define PETRA_CLI_SIMULATE_H

#include "run/simulation.h"

petra_status petra_simulated_print_json(const petra_simulated *result);
petra_status petra_simulated_print_table(const petra_simulated *result);

#endif
