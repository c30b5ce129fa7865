/* SPDX-License-Identifier: Apache-2.0 */
/* Fits numbers of a config to measured times, so that simulations reproduce them. */
#pragma once

#include "profile/fit_read.h"

/* Reads measurements: lines of comma-separated values. The first line has the names of config keys and, last,
 * `seconds`; empty lines and those that begin with # are ignored. `vary` lists keys, separated by a comma between
 * factors and by a + between keys that share one. Finds the factors, starting from 1, with the least mean square of
 * ln(simulated / measured); simulated is the time per microbatch of petra_simulation on `config` with the settings of a
 * line. petra_fit_destroy frees the result. PETRA_CONFIG, PETRA_IO, logged: FILE:LINE, what is wrong, what was
 * expected. */
petra_status petra_fit_find(const petra_config *config, const char *path, const char *vary, petra_fit **out);
