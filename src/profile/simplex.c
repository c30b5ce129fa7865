/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/simplex.h"

#include "base/log.h"

#include <gsl/gsl_math.h>
#include <gsl/gsl_multimin.h>
#include <stddef.h>

typedef struct search {
  petra_simplex_function f;
  void *context;
  int left; /* evaluations */
  petra_status status;
} search;

/* GSL ends a search at a value that is not finite. */
static double evaluate(const gsl_vector *x, void *context) {
  search *s = context;
  double value;
  s->left--;
  if (s->status == PETRA_OK)
    s->status = s->f(s->context, gsl_vector_const_ptr(x, 0), &value);
  return s->status == PETRA_OK ? value : GSL_NAN;
}

static petra_status descend(search *s, gsl_multimin_fminimizer *minimiser, gsl_vector *x, double step,
                            double tolerance) {
  gsl_multimin_function function = {evaluate, x->size, s};
  gsl_vector *sides = gsl_vector_alloc(x->size);
  if (!sides)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: GSL");
  gsl_vector_set_all(sides, step);
  int failed = gsl_multimin_fminimizer_set(minimiser, &function, x, sides);
  while (!failed && s->left > 0 && gsl_multimin_fminimizer_size(minimiser) > tolerance)
    failed = gsl_multimin_fminimizer_iterate(minimiser);
  gsl_vector_free(sides);
  PETRA_TRY(s->status);
  if (failed)
    return petra_fail(PETRA_INTERNAL, "a search for a minimum met a value that is not finite");
  gsl_vector_memcpy(x, gsl_multimin_fminimizer_x(minimiser));
  return PETRA_OK;
}

petra_status petra_simplex_minimise(petra_simplex_function f, void *context, int count, double step, double tolerance,
                                    int maximum, double *x, double *value) {
  search s = {.f = f, .context = context, .left = maximum};
  gsl_vector_view at = gsl_vector_view_array(x, (size_t)count);
  gsl_multimin_fminimizer *minimiser = gsl_multimin_fminimizer_alloc(gsl_multimin_fminimizer_nmsimplex2, (size_t)count);
  if (!minimiser)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: GSL");
  petra_status status = descend(&s, minimiser, &at.vector, step, tolerance);
  if (status == PETRA_OK)
    status = descend(&s, minimiser, &at.vector, step / 4, tolerance);
  if (status == PETRA_OK)
    *value = minimiser->fval;
  gsl_multimin_fminimizer_free(minimiser);
  return status;
}
