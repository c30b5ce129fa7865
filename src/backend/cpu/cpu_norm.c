/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm with its activation and join in one pass over memory.
 *
 * A block of channels is cut into pieces of about PIECE_PIXELS pixels, which stay in the first-level cache.
 * Each piece gives partial sums in float; these are added in double in the order of the pieces, so that the
 * result does not depend on the number of threads. The backward recomputes the sign of z, because it reads x
 * anyway; so the forward need not keep the sign. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_kernels.h"
#include "backend/element.h"

#include <math.h>

enum {
  PIECE_PIXELS = 256,
  CACHE_BYTES = 1 << 22, /* a thread's share of the last-level cache; measured, bench/NOTES.md */
};

/* The division of an activation into pieces. Either a piece covers several images or an image has several pieces. */
typedef struct cut {
  const cpu_layout *layout;
  /* Channels of a block of the division: the block of the layout, or several if the layout has all channels in one
   * block. */
  int width;
  int64_t columns; /* blocks of the division in an image */
  int64_t images;
  int64_t images_per_piece, pieces_per_plane;
  int64_t groups; /* number of groups of images */
  int64_t pieces; /* number of pieces of one block of channels */
} cut;

/* Returns the number of channels that a kernel processes at once, which divides the number of the layout. */
static int width_of(const cpu_layout *l) {
  if (!l->narrow || l->lanes < CPU_BLOCK_MAX)
    return l->lanes;
  int width = CPU_NARROW_MAX;
  while (l->block % width != 0)
    width /= 2;
  return width;
}

static cut cut_of(const petra_tensor *x) {
  const cpu_layout *l = cpu_layout_of(x);
  cut c = {.layout = l, .images = x->shape[0], .images_per_piece = 1, .pieces_per_plane = 1};
  c.width = width_of(l);
  c.columns = (int64_t)l->channel_blocks * l->block / c.width;
  if (l->plane > PIECE_PIXELS)
    c.pieces_per_plane = (l->plane + PIECE_PIXELS - 1) / PIECE_PIXELS;
  else
    c.images_per_piece = PIECE_PIXELS / l->plane;
  c.groups = (c.images + c.images_per_piece - 1) / c.images_per_piece;
  c.pieces = c.groups * c.pieces_per_plane;
  return c;
}

/* Gets piece number `index` of block `block` of the division; returns the offset of its first element. */
static int64_t piece_of(const cut *c, int64_t index, int64_t block, cpu_piece *piece) {
  const cpu_layout *l = c->layout;
  int64_t image = index / c->pieces_per_plane * c->images_per_piece;
  int64_t part = index % c->pieces_per_plane;
  int64_t first = l->plane * part / c->pieces_per_plane, last = l->plane * (part + 1) / c->pieces_per_plane;
  piece->block = c->width;
  piece->pixel_step = l->block;
  piece->rows = cpu_minimum(c->images_per_piece, c->images - image);
  piece->pixels = last - first;
  piece->row_step = l->channel_blocks * l->plane * l->block;
  return cpu_channel_offset(l, image, block * c->width) + first * l->block;
}

/* The scratch memory of a call: per-channel coefficients, then per piece and block two arrays of `block` partial
 * sums. */
typedef struct workspace {
  float *factor, *offset, *slope;
  float *partials;
} workspace;

static petra_status workspace_of(petra_backend *backend, const cut *c, workspace *w) {
  size_t channels = (size_t)(c->layout->channel_blocks * c->layout->block + CPU_BLOCK_MAX - 1) / CPU_BLOCK_MAX *
                    CPU_BLOCK_MAX; /* keeps the arrays aligned */
  size_t partials = (size_t)c->pieces * (size_t)c->columns * 2 * (size_t)c->width;
  void *memory;
  PETRA_TRY(cpu_scratch(backend, (3 * channels + partials) * sizeof(float), &memory));
  w->factor = memory;
  w->offset = w->factor + channels;
  w->slope = w->offset + channels;
  w->partials = w->slope + channels;
  return PETRA_OK;
}

static float *partials_of(const cut *c, const workspace *w, int64_t index, int64_t block) {
  return w->partials + (block * c->pieces + index) * 2 * c->width;
}

/* Returns how many blocks of channels are processed together: as many as stay in the last-level cache of the threads
 * between the first and the second pass over them; `arrays` activations are read. */
static int64_t group_of(const cut *c, int threads, int arrays) {
  const size_t element = c->layout->narrow ? sizeof(uint16_t) : sizeof(float);
  int64_t block_bytes = c->images * c->layout->plane * c->width * (int64_t)element * arrays;
  int64_t group = CACHE_BYTES * threads / block_bytes;
  return group < 1 ? 1 : group;
}

/* Computes mean and biased variance of one block of channels from its pieces (Chan, Golub and LeVeque's update, in
 * double). */
static void join_statistics(const cut *c, const workspace *w, int64_t block, int lanes, float *mean, float *variance) {
  int width = c->width;
  const float *partials = partials_of(c, w, 0, block);
  double total = (double)c->images * (double)c->layout->plane, sum[CPU_NARROW_MAX] = {0}, square[CPU_NARROW_MAX] = {0};
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t i = 0; i < c->pieces; i++) {
      cpu_piece piece;
      piece_of(c, i, 0, &piece);
      const float *part = partials + i * 2 * width;
      double count = (double)(piece.rows * piece.pixels);
      for (int l = 0; l < width; l++)
        if (pass == 0)
          sum[l] += count * (double)part[l];
        else
          square[l] += (double)part[width + l] + count * ((double)part[l] - sum[l]) * ((double)part[l] - sum[l]);
    }
    for (int l = 0; l < width && pass == 0; l++)
      sum[l] /= total;
  }
  for (int l = 0; l < lanes; l++) {
    mean[l] = (float)sum[l];
    variance[l] = (float)(square[l] / total);
  }
}

/* Returns the number of lanes of a block that are channels; the others are padding. */
static int lanes_of(const cut *c, const petra_tensor *x, int64_t block) {
  return (int)cpu_minimum(c->width, x->shape[1] - block * c->width);
}

/* factor = scale / sqrt(variance + eps); 0 in padding lanes. */
static void set_factors(const cut *c, const workspace *w, int64_t block, int lanes, const petra_tensor *scale,
                        const petra_tensor *variance) {
  int64_t first = block * c->width;
  for (int l = 0; l < c->width; l++)
    w->factor[first + l] = l < lanes ? (float)((double)cpu_read(scale)[first + l] /
                                               sqrt((double)cpu_read(variance)[first + l] + PETRA_NORM_EPSILON))
                                     : 0;
}

static cpu_norm_channels channels_of(const petra_tensor *mean, const petra_tensor *shift, const workspace *w,
                                     int64_t first) {
  return (cpu_norm_channels){cpu_read(mean) + first, w->factor + first, cpu_read(shift) + first};
}

static void apply_piece(const cut *c, const workspace *w, const petra_norm_forward *a, int64_t i, int64_t block) {
  cpu_piece piece;
  int64_t at = piece_of(c, i, block, &piece);
  cpu_norm_channels channels = channels_of(a->mean, a->shift, w, block * c->width);
  const void *x = cpu_element(a->x, at), *addend = a->join == PETRA_JOIN_NONE ? x : cpu_element(a->addend, at);
  if (c->layout->narrow)
    cpu_kernel_narrow_apply(&piece, &channels, a->relu, a->join, !cpu_layout_of(a->y)->narrow, x, addend,
                            cpu_write(a->y, at));
  else
    cpu_kernel_norm_apply(&piece, &channels, a->relu, a->join, x, addend, cpu_write(a->y, at));
}

petra_status cpu_norm_forward(petra_backend *backend, const petra_norm_forward *a) {
  const cut c = cut_of(a->x);
  workspace w;
  PETRA_TRY(workspace_of(backend, &c, &w));
  const int threads = cpu_threads(backend, c.layout->count), width = c.width;
  const int64_t blocks = c.columns, group = group_of(&c, threads, 1), apply_pieces = a->y ? c.pieces : 0;
#pragma omp parallel num_threads(threads)
  for (int64_t first = 0; first < blocks; first += group) {
    const int64_t last = cpu_minimum(first + group, blocks);
#pragma omp for collapse(2) schedule(static)
    for (int64_t i = 0; i < c.pieces; i++)
      for (int64_t block = first; block < last; block++) {
        cpu_piece piece;
        int64_t at = piece_of(&c, i, block, &piece);
        float *partials = partials_of(&c, &w, i, block);
        if (c.layout->narrow)
          cpu_kernel_narrow_statistics(&piece, cpu_element(a->x, at), partials, partials + width);
        else
          cpu_kernel_norm_statistics(&piece, cpu_element(a->x, at), partials, partials + width);
      }
#pragma omp for schedule(static)
    for (int64_t block = first; block < last; block++) {
      int lanes = lanes_of(&c, a->x, block);
      join_statistics(&c, &w, block, lanes, cpu_data(a->mean) + block * width, cpu_data(a->variance) + block * width);
      set_factors(&c, &w, block, lanes, a->scale, a->variance);
    }
#pragma omp for collapse(2) schedule(static) nowait
    for (int64_t i = 0; i < apply_pieces; i++)
      for (int64_t block = first; block < last; block++)
        apply_piece(&c, &w, a, i, block);
  }
  return PETRA_OK;
}

petra_status cpu_norm_evaluate(petra_backend *backend, const petra_norm_forward *a) {
  const cut c = cut_of(a->x);
  workspace w;
  PETRA_TRY(workspace_of(backend, &c, &w));
  for (int64_t block = 0; block < c.columns; block++)
    set_factors(&c, &w, block, lanes_of(&c, a->x, block), a->scale, a->variance);
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, c.layout->count))
  for (int64_t i = 0; i < c.pieces; i++)
    for (int64_t block = 0; block < c.columns; block++)
      apply_piece(&c, &w, a, i, block);
  return PETRA_OK;
}

/* dshift = sum of g, dscale = sum of g * (x - mean) / deviation, and from them the coefficients of dx: dx = factor * (g
 * - dshift / n - (x - mean) * dscale / (deviation * n)). */
static void join_gradients(const cut *c, const workspace *w, const petra_norm_backward *a, int64_t block, int lanes) {
  int width = c->width;
  const float *partials = partials_of(c, w, 0, block);
  double total = (double)c->images * (double)c->layout->plane, sum[CPU_NARROW_MAX] = {0}, product[CPU_NARROW_MAX] = {0};
  for (int64_t i = 0; i < c->pieces; i++)
    for (int l = 0; l < width; l++) {
      sum[l] += (double)partials[i * 2 * width + l];
      product[l] += (double)partials[i * 2 * width + width + l];
    }
  for (int l = 0; l < width; l++) {
    int64_t channel = block * width + l;
    w->offset[channel] = w->slope[channel] = 0;
    if (l >= lanes)
      continue;
    double inverse = 1 / sqrt((double)cpu_read(a->variance)[channel] + PETRA_NORM_EPSILON);
    cpu_data(a->dshift)[channel] = (float)sum[l];
    cpu_data(a->dscale)[channel] = (float)(product[l] * inverse);
    w->offset[channel] = (float)(sum[l] / total);
    w->slope[channel] = (float)(product[l] * inverse * inverse / total);
  }
}

static void sum_piece(const cut *c, const workspace *w, const petra_norm_backward *a, int64_t i, int64_t block) {
  cpu_piece piece;
  int64_t at = piece_of(c, i, block, &piece);
  float *partials = partials_of(c, w, i, block);
  cpu_norm_channels channels = channels_of(a->mean, a->shift, w, block * c->width);
  const void *x = cpu_element(a->x, at), *dy = cpu_element(a->dy, at);
  if (c->layout->narrow)
    cpu_kernel_narrow_sums(&piece, &channels, a->relu, !cpu_layout_of(a->dy)->narrow, x, dy, partials,
                           partials + c->width);
  else
    cpu_kernel_norm_sums(&piece, &channels, a->relu, x, dy, partials, partials + c->width);
}

static void backward_piece(const cut *c, const workspace *w, const petra_norm_backward *a, int64_t i, int64_t block) {
  cpu_piece piece;
  int64_t at = piece_of(c, i, block, &piece), lane = block * c->width;
  cpu_norm_channels channels = channels_of(a->mean, a->shift, w, lane);
  const void *x = cpu_element(a->x, at), *dy = cpu_element(a->dy, at);
  const float *offset = w->offset + lane, *slope = w->slope + lane;
  if (c->layout->narrow)
    cpu_kernel_narrow_backward(&piece, &channels, a->relu, !cpu_layout_of(a->dy)->narrow, offset, slope, x, dy,
                               cpu_write(a->dx, at));
  else
    cpu_kernel_norm_backward(&piece, &channels, a->relu, offset, slope, x, dy, cpu_write(a->dx, at));
}

petra_status cpu_norm_backward(petra_backend *backend, const petra_norm_backward *a) {
  const cut c = cut_of(a->x);
  workspace w;
  PETRA_TRY(workspace_of(backend, &c, &w));
  const int threads = cpu_threads(backend, c.layout->count);
  const int64_t blocks = c.columns, group = group_of(&c, threads, 2);
  for (int64_t block = 0; block < blocks; block++)
    set_factors(&c, &w, block, lanes_of(&c, a->x, block), a->scale, a->variance);
#pragma omp parallel num_threads(threads)
  for (int64_t first = 0; first < blocks; first += group) {
    const int64_t last = cpu_minimum(first + group, blocks);
#pragma omp for collapse(2) schedule(static)
    for (int64_t i = 0; i < c.pieces; i++)
      for (int64_t block = first; block < last; block++)
        sum_piece(&c, &w, a, i, block);
#pragma omp for schedule(static)
    for (int64_t block = first; block < last; block++)
      join_gradients(&c, &w, a, block, lanes_of(&c, a->x, block));
#pragma omp for collapse(2) schedule(static) nowait
    for (int64_t i = 0; i < c.pieces; i++)
      for (int64_t block = first; block < last; block++)
        backward_piece(&c, &w, a, i, block);
  }
  return PETRA_OK;
}

petra_status cpu_norm_update_running(petra_backend *backend, const petra_tensor *mean, const petra_tensor *variance,
                                     int64_t samples, double momentum, petra_tensor *running_mean,
                                     petra_tensor *running_variance) {
  (void)backend;
  const double unbiased = petra_element_unbias(samples);
  for (int64_t c = 0; c < mean->elements; c++) {
    float *m = cpu_data(running_mean) + c, *v = cpu_data(running_variance) + c;
    *m = (float)((1 - momentum) * (double)*m + momentum * (double)cpu_read(mean)[c]);
    *v = (float)((1 - momentum) * (double)*v + momentum * unbiased * (double)cpu_read(variance)[c]);
  }
  return PETRA_OK;
}
