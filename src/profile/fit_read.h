/* SPDX-License-Identifier: Apache-2.0 */
/* A fit, and its input: measurements from a file, and the keys to vary. */
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

/* Fills the measurements and the factors of `fit`, which must be zeros, as petra_fit_find (profile/fit.h) says. Call
 * petra_fit_destroy even on failure. */
petra_status petra_fit_read(petra_fit *fit, const petra_config *config, const char *path, const char *vary);

/* NULL is allowed. */
void petra_fit_destroy(petra_fit *fit);
