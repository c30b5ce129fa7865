/* SPDX-License-Identifier: Apache-2.0 */
/* Max pooling and global average pooling over the blocked layout. */
#include "backend/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* One column of one image (cpu_columns): `lanes` channels; the next pixel is `step` floats further. */
typedef struct plane_pair {
  int lanes, step, h, w, out_h, out_w;
} plane_pair;

static plane_pair planes_of(const petra_tensor *x, const petra_tensor *y) {
  const cpu_layout *l = cpu_layout_of(x);
  return (plane_pair){l->lanes, l->block, x->shape[2], x->shape[3], y->shape[2], y->shape[3]};
}

/* Returns the offset at which column number `index` of all images starts. */
static int64_t start_of(const cpu_layout *l, int64_t index) {
  return cpu_column_offset(l, index / cpu_columns(l), index % cpu_columns(l));
}

/* The mask has one byte for the position of the winner. The first of equal values wins; NaN wins over everything.
 * `winner` may be NULL. */
static void pool_point(const petra_pool_geometry *g, const plane_pair *s, const float *x, int oy, int ox, float *y,
                       uint8_t *winner) {
  float best[CPU_BLOCK_MAX];
  uint8_t place[CPU_BLOCK_MAX] = {0};
  for (int l = 0; l < CPU_BLOCK_MAX; l++)
    best[l] = -INFINITY;
  bool any = false;
  for (int k = 0; k < g->window * g->window; k++) {
    int iy = oy * g->stride - g->pad + k / g->window, ix = ox * g->stride - g->pad + k % g->window;
    if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w)
      continue;
    const float *at = x + ((int64_t)iy * s->w + ix) * s->step;
    for (int l = 0; l < s->lanes; l++)
      if (!any || at[l] > best[l] || (at[l] != at[l] && best[l] == best[l])) {
        best[l] = at[l];
        place[l] = (uint8_t)k;
      }
    any = true;
  }
  memcpy(y, best, (size_t)s->lanes * sizeof *y);
  if (winner)
    memcpy(winner, place, (size_t)s->lanes);
}

petra_status cpu_max_pool_forward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *x,
                                  petra_tensor *y, petra_tensor *mask) {
  const plane_pair s = planes_of(x, y);
  const int64_t planes = x->shape[0] * cpu_columns(cpu_layout_of(x));
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, cpu_layout_of(x)->count))
  for (int64_t plane = 0; plane < planes; plane++)
    for (int oy = 0; oy < s.out_h; oy++) {
      const float *from = cpu_read(x) + start_of(cpu_layout_of(x), plane);
      for (int ox = 0; ox < s.out_w; ox++) {
        int64_t at = start_of(cpu_layout_of(y), plane) + ((int64_t)oy * s.out_w + ox) * s.step;
        pool_point(geometry, &s, from, oy, ox, cpu_data(y) + at, mask ? (uint8_t *)mask->data + at : NULL);
      }
    }
  return PETRA_OK;
}

static void unpool_plane(const petra_pool_geometry *g, const plane_pair *s, const float *dy, const uint8_t *winner,
                         float *dx) {
  for (int64_t p = 0; p < (int64_t)s->h * s->w; p++)
    memset(dx + p * s->step, 0, (size_t)s->lanes * sizeof *dx);
  for (int oy = 0; oy < s->out_h; oy++)
    for (int ox = 0; ox < s->out_w; ox++) {
      int64_t at = ((int64_t)oy * s->out_w + ox) * s->step;
      for (int l = 0; l < s->lanes; l++) {
        int k = winner[at + l];
        int iy = oy * g->stride - g->pad + k / g->window, ix = ox * g->stride - g->pad + k % g->window;
        /* A zero lane's mask may point anywhere in the window; its gradient is 0. */
        if (iy >= 0 && iy < s->h && ix >= 0 && ix < s->w)
          dx[((int64_t)iy * s->w + ix) * s->step + l] += dy[at + l];
      }
    }
}

petra_status cpu_max_pool_backward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *dy,
                                   const petra_tensor *mask, petra_tensor *dx) {
  const plane_pair s = planes_of(dx, dy);
  const int64_t planes = dx->shape[0] * cpu_columns(cpu_layout_of(dx));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, cpu_layout_of(dx)->count))
  for (int64_t plane = 0; plane < planes; plane++) {
    const int64_t out = start_of(cpu_layout_of(dy), plane), in = start_of(cpu_layout_of(dx), plane);
    unpool_plane(geometry, &s, cpu_read(dy) + out, (const uint8_t *)mask->data + out, cpu_data(dx) + in);
  }
  return PETRA_OK;
}

petra_status cpu_average_pool_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y,
                                      int first_column) {
  const cpu_layout *l = cpu_layout_of(x);
  const int channels = x->shape[1];
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, l->count))
  for (int64_t n = 0; n < x->shape[0]; n++)
    for (int64_t column = 0; column < cpu_columns(l); column++) {
      int first = (int)column * l->lanes, lanes = (int)cpu_minimum(l->lanes, channels - first);
      const float *from = cpu_read(x) + cpu_channel_offset(l, n, first);
      float *to = cpu_data(y) + n * y->shape[1] + first_column + first;
      double sum[CPU_BLOCK_MAX] = {0};
      for (int64_t p = 0; p < l->plane; p++)
        for (int lane = 0; lane < l->lanes; lane++)
          sum[lane] += (double)from[p * l->block + lane];
      for (int lane = 0; lane < lanes; lane++)
        to[lane] = (float)(sum[lane] / (double)l->plane);
    }
  return PETRA_OK;
}

petra_status cpu_average_pool_backward(petra_backend *backend, const petra_tensor *dy, int first_column,
                                       petra_tensor *dx) {
  const cpu_layout *l = cpu_layout_of(dx);
  const int channels = dx->shape[1];
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, l->count))
  for (int64_t n = 0; n < dx->shape[0]; n++)
    for (int64_t column = 0; column < cpu_columns(l); column++) {
      int first = (int)column * l->lanes, lanes = (int)cpu_minimum(l->lanes, channels - first);
      const float *from = cpu_read(dy) + n * dy->shape[1] + first_column + first;
      float *to = cpu_data(dx) + cpu_channel_offset(l, n, first);
      float value[CPU_BLOCK_MAX] = {0}; /* zero lanes get 0 */
      for (int lane = 0; lane < lanes; lane++)
        value[lane] = from[lane] / (float)l->plane;
      for (int64_t p = 0; p < l->plane; p++)
        for (int lane = 0; lane < l->lanes; lane++)
          to[p * l->block + lane] = value[lane];
    }
  return PETRA_OK;
}
