/* SPDX-License-Identifier: Apache-2.0 */
/* The least value of a function of a few variables, by the simplex of Nelder and Mead (Computer Journal 7, 1965): no
 * derivatives, so that it may have kinks. */
#ifndef PETRA_BASE_SIMPLEX_H
#define PETRA_BASE_SIMPLEX_H

#include "base/status.h"

enum { PETRA_SIMPLEX_MAX = 16 }; /* variables */

/* *value = f(x). A failure ends the search and comes back. */
typedef petra_status (*petra_simplex_function)(void *context, const double *x, double *value);

/* Moves x (`count` variables, 1 .. PETRA_SIMPLEX_MOST) to a local minimum near where it starts, *value being the function
 * there: the search begins with a simplex of sides `step`, and once more with one of a quarter of them where it ended. It
 * ends when all corners are within `tolerance` in every variable, or after `most` evaluations. */
petra_status petra_simplex_minimise(petra_simplex_function f, void *context, int count, double step, double tolerance,
                                    int maximum, double *x, double *value);

#endif
