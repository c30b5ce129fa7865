/* SPDX-License-Identifier: Apache-2.0 */
/* Fits numbers of a config to measured times: what its simulations have to assume so that they take what was measured. */
#pragma once

#include "config/config.h"

enum { PETRA_FIT_FACTORS = 16, PETRA_FIT_MEASUREMENTS = 256, PETRA_FIT_KEYS = 16 };

/* Keys of numbers that are all multiplied by one factor. */
typedef struct petra_fit_factor {
  char *keys[PETRA_FIT_KEYS];
  double start[PETRA_FIT_KEYS]; /* of the config; above 0 */
  int count;
  double factor;
  bool undetermined; /* half of it and twice it fit as well */
} petra_fit_factor;

typedef struct petra_fit_measurement {
  char *settings[PETRA_FIT_KEYS]; /* "method.name=petra", for the config */
  int count;
  char *where;                    /* FILE:LINE */
  double measured_s, simulated_s; /* a microbatch */
} petra_fit_measurement;

typedef struct petra_fit {
  petra_fit_factor factor[PETRA_FIT_FACTORS];
  petra_fit_measurement measurement[PETRA_FIT_MEASUREMENTS];
  int factors, measurements;
  double rms, worst; /* of ln(simulated / measured): the root of its mean square; the largest, without its sign */
} petra_fit;

/* Reads measurements: lines of comma-separated values, the first being the names of config keys and, last, `seconds`; empty
 * lines and those that begin with # do not count. `vary`: keys with a comma between factors and a + between keys that share
 * one. Finds the factors, from 1, with the least mean square of ln(simulated / measured), where simulated is the time per
 * microbatch of petra_simulation on `config` with the settings of a line. petra_fit_destroy frees the result.
 * PETRA_CONFIG, PETRA_IO, logged: FILE:LINE, what is wrong, what was expected. */
petra_status petra_fit_find(const petra_config *config, const char *path, const char *vary, petra_fit **out);

/* NULL is allowed. */
void petra_fit_destroy(petra_fit *fit);
