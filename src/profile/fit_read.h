/* SPDX-License-Identifier: Apache-2.0 */
/* A fit, and what it is given: measurements from a file, and the keys to be varied. */
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

/* Fills the measurements and the factors of `fit`, which was zeros, as petra_fit_find (profile/fit.h) says; whatever comes back,
 * petra_fit_destroy frees them. */
petra_status petra_fit_read(petra_fit *fit, const petra_config *config, const char *path, const char *vary);

/* NULL is fine. */
void petra_fit_destroy(petra_fit *fit);
