/* SPDX-License-Identifier: Apache-2.0 */
#include "search/point_set.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void petra_point_set_fini(petra_point_set *set) {
  for (int64_t i = 0; i < set->count; i++)
    petra_free(set->point[i].blocks);
  petra_free(set->point);
  *set = (petra_point_set){0};
}

bool petra_point_set_covers(const petra_point_set *set, double seconds, int64_t bytes, int64_t lag) {
  for (int64_t i = 0; i < set->count; i++) {
    const petra_point *p = &set->point[i];
    if (p->seconds <= seconds && p->found.peak_bytes <= bytes && p->found.lag_max <= lag)
      return true;
  }
  return false;
}

static void remove_covered(petra_point_set *set, const petra_point *by) {
  const petra_point_set one = {.point = (petra_point *)by, .count = 1};
  int64_t left = 0;
  for (int64_t i = 0; i < set->count; i++) {
    const petra_point *p = &set->point[i];
    if (petra_point_set_covers(&one, p->seconds, p->found.peak_bytes, p->found.lag_max))
      petra_free(p->blocks);
    else
      set->point[left++] = *p;
  }
  set->count = left;
}

petra_status petra_point_set_insert(petra_point_set *set, const petra_point *point) {
  const size_t stages = (size_t)point->candidate.stages;
  int64_t *blocks = NULL;
  if (petra_point_set_covers(set, point->seconds, point->found.peak_bytes, point->found.lag_max))
    return PETRA_OK;
  PETRA_TRY(petra_array_reserve(&set->point, &set->capacity, set->count + 1, sizeof *set->point));
  if (point->candidate.blocks) {
    PETRA_TRY(petra_allocate(&blocks, stages, sizeof *blocks));
    memcpy(blocks, point->candidate.blocks, stages * sizeof *blocks);
  }
  remove_covered(set, point);
  petra_point *p = &set->point[set->count++];
  *p = *point;
  p->blocks = blocks;
  p->candidate.blocks = blocks;
  return PETRA_OK;
}

static int compare(const void *a, const void *b) {
  const petra_point *p = a, *q = b;
  if (p->seconds != q->seconds)
    return p->seconds < q->seconds ? -1 : 1;
  return (p->found.peak_bytes > q->found.peak_bytes) - (p->found.peak_bytes < q->found.peak_bytes);
}

void petra_point_set_sort(petra_point_set *set) {
  if (set->count > 1)
    qsort(set->point, (size_t)set->count, sizeof *set->point, compare);
}
