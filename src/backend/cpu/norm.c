/* Batch norm with its activation and join in one pass over memory.
 *
 * A block of channels is cut into pieces of about PIECE_PIXELS pixels, which stay in the first-level cache.
 * Each piece gives partial sums in float; they are put together in double in the order of the pieces, so that
 * the result does not depend on the number of threads. The sign of z is computed again in the backward
 * instead of being kept: x is read there anyway, so that the mask stays unused. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"

#include <math.h>
#include <omp.h>

enum { PIECE_PIXELS = 256 };

/* How an activation is cut. Either a piece covers several images or an image has several pieces. */
typedef struct cut {
  const cpu_layout *layout;
  int64_t images;
  int64_t images_per_piece, pieces_per_plane;
  int64_t groups; /* of images */
  int64_t pieces; /* of one block of channels */
} cut;

static cut cut_of(const petra_tensor *x) {
  const cpu_layout *l = cpu_layout_of(x);
  cut c = {.layout = l, .images = x->shape[0], .images_per_piece = 1, .pieces_per_plane = 1};
  if (l->plane > PIECE_PIXELS)
    c.pieces_per_plane = (l->plane + PIECE_PIXELS - 1) / PIECE_PIXELS;
  else
    c.images_per_piece = PIECE_PIXELS / l->plane;
  c.groups = (c.images + c.images_per_piece - 1) / c.images_per_piece;
  c.pieces = c.groups * c.pieces_per_plane;
  return c;
}

/* Piece number `index` of channel block `block`; returns the offset of its first float. */
static int64_t piece_of(const cut *c, int64_t index, int64_t block, cpu_piece *piece) {
  const cpu_layout *l = c->layout;
  int64_t image = index / c->pieces_per_plane * c->images_per_piece;
  int64_t part = index % c->pieces_per_plane;
  int64_t first = l->plane * part / c->pieces_per_plane, last = l->plane * (part + 1) / c->pieces_per_plane;
  piece->block = l->block;
  piece->rows = cpu_minimum(c->images_per_piece, c->images - image);
  piece->pixels = last - first;
  piece->row_step = l->channel_blocks * l->plane * l->block;
  return ((image * l->channel_blocks + block) * l->plane + first) * l->block;
}

/* Scratch of one call: per-channel coefficients, then per piece and block two arrays of `block` partial sums.
 */
typedef struct workspace {
  float *factor, *offset, *slope;
  float *partials;
} workspace;

static petra_status workspace_of(petra_backend *backend, const cut *c, workspace *w) {
  size_t channels = (size_t)(c->layout->channel_blocks * c->layout->block + CPU_BLOCK_MAX - 1) /
                    CPU_BLOCK_MAX * CPU_BLOCK_MAX; /* keeps the arrays aligned */
  size_t partials = (size_t)c->pieces * (size_t)c->layout->channel_blocks * 2 * (size_t)c->layout->block;
  void *memory;
  PETRA_TRY(cpu_scratch(backend, (3 * channels + partials) * sizeof(float), &memory));
  w->factor = memory;
  w->offset = w->factor + channels;
  w->slope = w->offset + channels;
  w->partials = w->slope + channels;
  return PETRA_OK;
}

static float *partials_of(const cut *c, const workspace *w, int64_t index, int64_t block) {
  return w->partials + (block * c->pieces + index) * 2 * c->layout->block;
}

/* Mean and biased variance of one channel from the pieces' (Chan, Golub and LeVeque's update, in double). */
static void join_statistics(const cut *c, const workspace *w, int64_t channel, float *mean, float *variance) {
  int block = c->layout->block;
  const float *first = partials_of(c, w, 0, channel / block) + channel % block;
  double total = (double)c->images * (double)c->layout->plane, sum = 0, square = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t i = 0; i < c->pieces; i++) {
      cpu_piece piece;
      piece_of(c, i, 0, &piece);
      double count = (double)(piece.rows * piece.pixels);
      double part = (double)first[i * 2 * block];
      if (pass == 0)
        sum += count * part;
      else
        square += (double)first[i * 2 * block + block] + count * (part - sum / total) * (part - sum / total);
    }
  *mean = (float)(sum / total);
  *variance = (float)(square / total);
}

/* factor = scale / sqrt(variance + eps) for all lanes; 0 in the lanes of the padding. */
static void set_factors(const petra_tensor *scale, const petra_tensor *variance, float *factor,
                        int64_t lanes) {
  for (int64_t c = 0; c < lanes; c++)
    factor[c] =
        c < scale->shape[0]
            ? (float)((double)cpu_read(scale)[c] / sqrt((double)cpu_read(variance)[c] + PETRA_NORM_EPSILON))
            : 0;
}

static cpu_norm_channels channels_of(const petra_tensor *mean, const petra_tensor *shift, const float *factor,
                                     int64_t first) {
  return (cpu_norm_channels){cpu_read(mean) + first, factor + first, cpu_read(shift) + first};
}

static void apply(petra_backend *backend, const cut *c, const workspace *w, const petra_norm_forward *a) {
  const cpu_layout *l = c->layout;
  const float *addend = a->join == PETRA_JOIN_NONE ? cpu_read(a->x) : cpu_read(a->addend);
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, l->count))
  for (int64_t i = 0; i < c->pieces; i++)
    for (int64_t block = 0; block < l->channel_blocks; block++) {
      cpu_piece piece;
      int64_t at = piece_of(c, i, block, &piece);
      cpu_norm_channels channels = channels_of(a->mean, a->shift, w->factor, block * l->block);
      cpu_kernel_norm_apply(&piece, &channels, a->relu, a->join, cpu_read(a->x) + at, addend + at,
                            cpu_data(a->y) + at);
    }
}

petra_status cpu_norm_forward(petra_backend *backend, const petra_norm_forward *a) {
  cut c = cut_of(a->x);
  const cpu_layout *l = c.layout;
  workspace w;
  PETRA_TRY(workspace_of(backend, &c, &w));
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, l->count))
  for (int64_t i = 0; i < c.pieces; i++)
    for (int64_t block = 0; block < l->channel_blocks; block++) {
      cpu_piece piece;
      int64_t at = piece_of(&c, i, block, &piece);
      float *partials = partials_of(&c, &w, i, block);
      cpu_kernel_norm_statistics(&piece, cpu_read(a->x) + at, partials, partials + l->block);
    }
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, c.pieces * a->x->shape[1]))
  for (int64_t channel = 0; channel < a->x->shape[1]; channel++)
    join_statistics(&c, &w, channel, cpu_data(a->mean) + channel, cpu_data(a->variance) + channel);
  set_factors(a->scale, a->variance, w.factor, (int64_t)l->channel_blocks * l->block);
  apply(backend, &c, &w, a);
  return PETRA_OK;
}

petra_status cpu_norm_evaluate(petra_backend *backend, const petra_norm_forward *a) {
  cut c = cut_of(a->x);
  workspace w;
  PETRA_TRY(workspace_of(backend, &c, &w));
  set_factors(a->scale, a->variance, w.factor, (int64_t)c.layout->channel_blocks * c.layout->block);
  apply(backend, &c, &w, a);
  return PETRA_OK;
}

/* dshift = sum of g, dscale = sum of g * (x - mean) / deviation, and from them the coefficients of dx:
 * dx = factor * (g - dshift / n - (x - mean) * dscale / (deviation * n)). */
static void join_gradients(const cut *c, const workspace *w, const petra_norm_backward *a, int64_t channel) {
  int block = c->layout->block;
  const float *first = partials_of(c, w, 0, channel / block) + channel % block;
  double total = (double)c->images * (double)c->layout->plane, sum = 0, product = 0;
  for (int64_t i = 0; i < c->pieces; i++) {
    sum += (double)first[i * 2 * block];
    product += (double)first[i * 2 * block + block];
  }
  double inverse = 1 / sqrt((double)cpu_read(a->variance)[channel] + PETRA_NORM_EPSILON);
  cpu_data(a->dshift)[channel] = (float)sum;
  cpu_data(a->dscale)[channel] = (float)(product * inverse);
  w->offset[channel] = (float)(sum / total);
  w->slope[channel] = (float)(product * inverse * inverse / total);
}

petra_status cpu_norm_backward(petra_backend *backend, const petra_norm_backward *a) {
  cut c = cut_of(a->x);
  const cpu_layout *l = c.layout;
  int64_t lanes = (int64_t)l->channel_blocks * l->block;
  workspace w;
  PETRA_TRY(workspace_of(backend, &c, &w));
  set_factors(a->scale, a->variance, w.factor, lanes);
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, l->count))
  for (int64_t i = 0; i < c.pieces; i++)
    for (int64_t block = 0; block < l->channel_blocks; block++) {
      cpu_piece piece;
      int64_t at = piece_of(&c, i, block, &piece);
      float *partials = partials_of(&c, &w, i, block);
      cpu_norm_channels channels = channels_of(a->mean, a->shift, w.factor, block * l->block);
      cpu_kernel_norm_sums(&piece, &channels, a->relu, cpu_read(a->x) + at, cpu_read(a->dy) + at, partials,
                           partials + l->block);
    }
  for (int64_t channel = 0; channel < lanes; channel++)
    if (channel < a->x->shape[1])
      join_gradients(&c, &w, a, channel);
    else
      w.offset[channel] = w.slope[channel] = 0;
#pragma omp parallel for collapse(2) schedule(static) num_threads(cpu_threads(backend, l->count))
  for (int64_t i = 0; i < c.pieces; i++)
    for (int64_t block = 0; block < l->channel_blocks; block++) {
      cpu_piece piece;
      int64_t at = piece_of(&c, i, block, &piece), lane = block * l->block;
      cpu_norm_channels channels = channels_of(a->mean, a->shift, w.factor, lane);
      cpu_kernel_norm_backward(&piece, &channels, a->relu, w.offset + lane, w.slope + lane,
                               cpu_read(a->x) + at, cpu_read(a->dy) + at, cpu_data(a->dx) + at);
    }
  return PETRA_OK;
}

petra_status cpu_norm_update_running(petra_backend *backend, const petra_tensor *mean,
                                     const petra_tensor *variance, int64_t samples, double momentum,
                                     petra_tensor *running_mean, petra_tensor *running_variance) {
  (void)backend;
  double unbiased = samples > 1 ? (double)samples / (double)(samples - 1) : 1;
  for (int64_t c = 0; c < mean->elements; c++) {
    float *m = cpu_data(running_mean) + c, *v = cpu_data(running_variance) + c;
    *m = (float)((1 - momentum) * (double)*m + momentum * (double)cpu_read(mean)[c]);
    *v = (float)((1 - momentum) * (double)*v + momentum * unbiased * (double)cpu_read(variance)[c]);
  }
  return PETRA_OK;
}
