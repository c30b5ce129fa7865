/* SPDX-License-Identifier: Apache-2.0 */
/* Minimises a function of a few variables by the simplex of Nelder and Mead, GSL's nmsimplex2. It needs no derivatives,
 * so the function may have kinks. */
#pragma once

#include "base/status.h"

/* Computes *value = f(x). A failure ends the search and is returned. */
typedef petra_status (*petra_simplex_function)(void *context, const double *x, double *value);

/* Moves x (`count` variables, at least 1) to a local minimum near its start; *value is the function there. The search
 * begins with a simplex of side `step`; it is then restarted once, at the point where it ended, with a quarter of that
 * side. It ends when the root mean square distance of the corners from their centre is at most `tolerance`, or after
 * about `maximum` evaluations. PETRA_NO_MEMORY; PETRA_INTERNAL if a value is not finite. */
petra_status petra_simplex_minimise(petra_simplex_function f, void *context, int count, double step, double tolerance,
                                    int maximum, double *x, double *value);
