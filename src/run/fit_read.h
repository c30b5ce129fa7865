/* What a fit is given: measurements from a file, and the keys to be varied. */
#ifndef PETRA_RUN_FIT_READ_H
#define PETRA_RUN_FIT_READ_H

#include "run/fit.h"

/* Fills the measurements and the factors of `fit`, which was zeros, as petra_fit_find says; whatever comes back,
 * petra_fit_destroy frees them. */
petra_status petra_fit_read(petra_fit *fit, const petra_config *config, const char *path, const char *vary);

#endif
