/* SPDX-License-Identifier: Apache-2.0 */
#include "run/overlap.h"

#include "base/mem.h"

/* Uninterrupted time in actions. */
typedef struct span {
  int64_t start_ns, end_ns;
} span;

/* The spans of a rank, in order: it does one action at a time. */
typedef struct spans {
  span *spans;
  int64_t count, capacity;
} spans;

struct petra_overlap {
  petra_observer base;
  const int32_t *rank_of;
  int32_t ranks;
  spans of[];
};

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  petra_overlap *overlap = (petra_overlap *)base;
  spans *own = &overlap->of[overlap->rank_of[row->action.stage - 1]];
  if (row->end_ns == row->start_ns)
    return PETRA_OK;
  if (own->count > 0 && own->spans[own->count - 1].end_ns == row->start_ns) {
    own->spans[own->count - 1].end_ns = row->end_ns;
    return PETRA_OK;
  }
  PETRA_TRY(petra_array_reserve(&own->spans, &own->capacity, own->count + 1, sizeof *own->spans));
  own->spans[own->count++] = (span){row->start_ns, row->end_ns};
  return PETRA_OK;
}

petra_status petra_overlap_create(const int32_t *rank_of, int32_t ranks, petra_overlap **out) {
  static const petra_observer_ops ops = {.ended = ended};
  petra_overlap *overlap;
  PETRA_TRY(petra_allocate(&overlap, 1, sizeof *overlap + (size_t)ranks * sizeof *overlap->of));
  overlap->base.ops = &ops;
  overlap->rank_of = rank_of;
  overlap->ranks = ranks;
  *out = overlap;
  return PETRA_OK;
}

void petra_overlap_destroy(petra_overlap *overlap) {
  if (!overlap)
    return;
  for (int32_t r = 0; r < overlap->ranks; r++)
    petra_free(overlap->of[r].spans);
  petra_free(overlap);
}

petra_observer *petra_overlap_observer(petra_overlap *overlap) {
  return &overlap->base;
}

static double busy_ns(const spans *own) {
  double sum = 0;
  for (int64_t i = 0; i < own->count; i++)
    sum += (double)(own->spans[i].end_ns - own->spans[i].start_ns);
  return sum;
}

/* Returns the time in which both are in actions. */
static double both_ns(const spans *one, const spans *other) {
  double sum = 0;
  for (int64_t i = 0, k = 0; i < one->count && k < other->count;) {
    const span *a = &one->spans[i], *b = &other->spans[k];
    const int64_t start_ns = a->start_ns > b->start_ns ? a->start_ns : b->start_ns;
    const int64_t end_ns = a->end_ns < b->end_ns ? a->end_ns : b->end_ns;
    if (end_ns > start_ns)
      sum += (double)(end_ns - start_ns);
    if (a->end_ns < b->end_ns)
      i++;
    else
      k++;
  }
  return sum;
}

void petra_overlap_shares(const petra_overlap *overlap, double *shares) {
  for (int32_t r = 0; r < overlap->ranks; r++) {
    const double own_ns = busy_ns(&overlap->of[r]);
    double sum_ns = 0;
    for (int32_t o = 0; o < overlap->ranks; o++)
      if (o != r)
        sum_ns += both_ns(&overlap->of[r], &overlap->of[o]);
    shares[r] = own_ns > 0 && overlap->ranks > 1 ? sum_ns / (own_ns * (overlap->ranks - 1)) : 0;
  }
}
