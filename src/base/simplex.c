/* SPDX-License-Identifier: Apache-2.0 */
#include "base/simplex.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct corner {
  double x[PETRA_SIMPLEX_MAX], value;
} corner;

typedef struct search {
  petra_simplex_function f;
  void *context;
  int count, left; /* variables; evaluations */
  corner corners[PETRA_SIMPLEX_MAX + 1];
} search;

static petra_status evaluate(search *s, corner *c) {
  s->left--;
  return s->f(s->context, c->x, &c->value);
}

/* Best first. */
static void sort(search *s) {
  for (int i = 1; i <= s->count; i++) {
    const corner moving = s->corners[i];
    int at = i;
    for (; at > 0 && s->corners[at - 1].value > moving.value; at--)
      s->corners[at] = s->corners[at - 1];
    s->corners[at] = moving;
  }
}

static double width(const search *s) {
  double maximum = 0;
  for (int i = 1; i <= s->count; i++)
    for (int k = 0; k < s->count; k++)
      maximum = fmax(maximum, fabs(s->corners[i].x[k] - s->corners[0].x[k]));
  return maximum;
}

/* The worst corner's image: the centre of the others and `along` times the way from it to the worst one. */
static petra_status image(search *s, double along, corner *out) {
  const corner *worst = &s->corners[s->count];
  for (int k = 0; k < s->count; k++) {
    double centre = 0;
    for (int i = 0; i < s->count; i++)
      centre += s->corners[i].x[k] / s->count;
    out->x[k] = centre + along * (worst->x[k] - centre);
  }
  return evaluate(s, out);
}

static petra_status shrink(search *s) {
  for (int i = 1; i <= s->count; i++) {
    for (int k = 0; k < s->count; k++)
      s->corners[i].x[k] = (s->corners[i].x[k] + s->corners[0].x[k]) / 2;
    PETRA_TRY(evaluate(s, &s->corners[i]));
  }
  return PETRA_OK;
}

/* One step: reflection; then expansion, or contraction, or all corners towards the best. */
static petra_status step_on(search *s) {
  corner *worst = &s->corners[s->count], reflected, other;
  PETRA_TRY(image(s, -1, &reflected));
  if (reflected.value < s->corners[0].value) {
    PETRA_TRY(image(s, -2, &other));
    *worst = other.value < reflected.value ? other : reflected;
  } else if (reflected.value < s->corners[s->count - 1].value) {
    *worst = reflected;
  } else {
    PETRA_TRY(image(s, reflected.value < worst->value ? -0.5 : 0.5, &other));
    if (other.value >= fmin(worst->value, reflected.value))
      return shrink(s);
    *worst = other;
  }
  return PETRA_OK;
}

static petra_status descend(search *s, double step, double tolerance) {
  for (int i = 0; i <= s->count; i++) {
    if (i > 0)
      memcpy(s->corners[i].x, s->corners[0].x, sizeof s->corners[0].x);
    if (i > 0)
      s->corners[i].x[i - 1] += step;
    PETRA_TRY(evaluate(s, &s->corners[i]));
  }
  sort(s);
  while (width(s) > tolerance && s->left > 0) {
    PETRA_TRY(step_on(s));
    sort(s);
  }
  return PETRA_OK;
}

petra_status petra_simplex_minimise(petra_simplex_function f, void *context, int count, double step, double tolerance,
                                    int maximum, double *x, double *value) {
  search s = {.f = f, .context = context, .count = count, .left = maximum};
  assert(count >= 1 && count <= PETRA_SIMPLEX_MAX);
  memcpy(s.corners[0].x, x, (size_t)count * sizeof *x);
  PETRA_TRY(descend(&s, step, tolerance));
  PETRA_TRY(descend(&s, step / 4, tolerance));
  memcpy(x, s.corners[0].x, (size_t)count * sizeof *x);
  *value = s.corners[0].value;
  return PETRA_OK;
}
