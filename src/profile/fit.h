/* SPDX-License-Identifier: Apache-2.0 */
/* Fits numbers of a config to measured times, so that simulations reproduce them. */
#pragma once

#include "config/config.h"

enum { PETRA_FIT_FACTORS = 16, PETRA_FIT_MEASUREMENTS = 256, PETRA_FIT_KEYS = 16 };

/* Keys with numbers that one factor multiplies. */
typedef struct petra_fit_factor {
  char *keys[PETRA_FIT_KEYS];
  double start[PETRA_FIT_KEYS]; /* values in the config; above 0 */
  int count;
  double factor;
  bool undetermined; /* half and twice the factor fit as well */
} petra_fit_factor;

typedef struct petra_fit_measurement {
  char *settings[PETRA_FIT_KEYS]; /* "method.name=petra", for the config */
  int count;
  char *where;                    /* FILE:LINE */
  double measured_s, simulated_s; /* per microbatch */
} petra_fit_measurement;

typedef struct petra_fit {
  petra_fit_factor factor[PETRA_FIT_FACTORS];
  petra_fit_measurement measurement[PETRA_FIT_MEASUREMENTS];
  int factors, measurements;
  double rms, worst; /* of ln(simulated / measured): root mean square; largest magnitude */
} petra_fit;

/* Reads measurements: lines of comma-separated values. The first line has the names of config keys and, last,
 * `seconds`; empty lines and those that begin with # are ignored. `vary` lists keys, separated by a comma between
 * factors and by a + between keys that share one. Finds the factors, starting from 1, with the least mean square of
 * ln(simulated / measured); simulated is the time per microbatch of petra_simulation on `config` with the settings of a
 * line. petra_fit_destroy frees the result. PETRA_CONFIG, PETRA_IO, logged: FILE:LINE, what is wrong, what was
 * expected. */
petra_status petra_fit_find(const petra_config *config, const char *path, const char *vary, petra_fit **out);

/* NULL is allowed. */
void petra_fit_destroy(petra_fit *fit);
