/* SPDX-License-Identifier: Apache-2.0 */
/* The generated set. An image is one figure (its class) over a cloudy coloured ground with some clutter and
 * noise. Position, size, angle, colours and the sign of the contrast vary, so that no fixed pixel reveals the
 * class, but edges do.
 *
 * The geometry is computed in double, then coverage is rounded to 1/256 and all colours are mixed in
 * integers, so that the last bits of sin and cos do not affect the bytes and every machine generates the same
 * images. */
#include "data/data_sets.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

enum {
  SIDE = 32,
  PLANE = SIDE * SIDE,
  CELL = 8,                /* pixels between the nodes of the ground's grid */
  NODES = SIDE / CELL + 1, /* nodes of the grid, each way */
  CLUTTER_MAX = 8,         /* specks on the ground */
  MARGIN = 10,             /* base levels have at least this distance from black and white */
  CONTRAST_MIN = 35,       /* figure against ground, mean of the channels, before tint and cloud */
  CONTRAST_MAX = 110,
  TINT = 25,  /* largest change of one channel of a colour */
  CLOUD = 35, /* largest change of the ground at a node of its grid */
  SPECK = 60, /* largest difference of a speck to the ground */
  NOISE = 50  /* largest noise of a pixel; triangular distribution */
};

static const double RADIUS_MIN = 6.0, RADIUS_MAX = 10.5; /* of the figure, pixels */
static const double PLACE = 4.0;                         /* largest offset of its centre, each way, pixels */
static const double TURN = M_PI / 7;                     /* largest turn of the figure, radians */
static const double BRIGHTER = 0.8;                      /* probability of a figure brighter than its ground */
static const double SPECK_RADIUS_MIN = 0.7, SPECK_RADIUS_MAX = 2.0; /* pixels */
static const uint64_t SEED = 0x7065747261ULL;                       /* fixed: the images are the same in every run */

/* Returns the signed distance in pixels (negative inside; exact near straight edges, as anti-aliasing needs) of the
 * point (x, y) to a figure of outer radius r around the origin. */
static double disc(double x, double y, double r) {
  return sqrt(x * x + y * y) - 0.85 * r;
}

static double box(double x, double y, double half_width, double half_height) {
  return fmax(fabs(x) - half_width, fabs(y) - half_height);
}

static double square(double x, double y, double r) {
  return box(x, y, 0.75 * r, 0.75 * r);
}

static double triangle(double x, double y, double r) {
  const double sin60 = 0.86602540378443865, cos60 = 0.5;
  return fmax(y, sin60 * fabs(x) - cos60 * y) - 0.5 * r; /* three sides at r/2 from the centre, base below */
}

static double ring(double x, double y, double r) {
  return fabs(sqrt(x * x + y * y) - 0.78 * r) - 0.18 * r;
}

static double frame(double x, double y, double r) {
  return fabs(fmax(fabs(x), fabs(y)) - 0.65 * r) - 0.16 * r;
}

static double cross(double x, double y, double r) {
  return fmin(box(x, y, r, 0.25 * r), box(x, y, 0.25 * r, r));
}

/* Mirrors the point into the half plane below the line through the origin at the angle (cosine, sine). */
static void fold(double *x, double *y, double cosine, double sine) {
  double above = fmax(0, *y * cosine - *x * sine);
  *x += 2 * above * sine;
  *y -= 2 * above * cosine;
}

/* A star of five points: folded into the sector from 0 to 36 degrees, it is one straight edge from the outer corner (r,
 * 0) to the inner corner at 36 degrees. */
static double star(double x, double y, double r) {
  const double sin36 = 0.58778525229247313, cos36 = 0.80901699437494742;
  const double sin72 = 0.95105651629515357, cos72 = 0.30901699437494742;
  const double inner = 0.42;
  double u = -y, v = fabs(x); /* one point of the star points up */
  fold(&u, &v, cos72, sin72);
  v = fabs(v);
  fold(&u, &v, cos36, sin36);
  double edge_x = inner * cos36 - 1, edge_y = inner * sin36;
  return (edge_y * (u - 1.1 * r) - edge_x * v) / sqrt(edge_x * edge_x + edge_y * edge_y);
}

static double crescent(double x, double y, double r) {
  double other = x - 0.5 * r;
  return fmax(sqrt(x * x + y * y) - r, 0.78 * r - sqrt(other * other + y * y));
}

static double bar(double x, double y, double r) {
  return box(x, y, 1.1 * r, 0.28 * r);
}

static double pair(double x, double y, double r) {
  double side = fabs(x) - 0.62 * r;
  return sqrt(side * side + y * y) - 0.42 * r;
}

typedef struct figure {
  const char *name;
  double (*distance)(double x, double y, double r);
} figure;

static const figure figures[] = {{"disc", disc},   {"square", square}, {"triangle", triangle}, {"ring", ring},
                                 {"frame", frame}, {"cross", cross},   {"star", star},         {"crescent", crescent},
                                 {"bar", bar},     {"pair", pair}};

enum { CLASSES = sizeof figures / sizeof *figures };

static int between(petra_rng *rng, int low, int high) {
  return low + (int)petra_rng_below(rng, (uint32_t)(high - low + 1));
}

static double between_real(petra_rng *rng, double low, double high) {
  return low + (high - low) * petra_rng_uniform(rng);
}

static int clamp_byte(int value) {
  return value < 0 ? 0 : value > 255 ? 255 : value;
}

static void draw_colour(petra_rng *rng, int level, int change, int colour[3]) {
  for (int c = 0; c < 3; c++)
    colour[c] = clamp_byte(level + between(rng, -change, change));
}

/* The ground: levels at the nodes of a coarse grid, bilinear between them. */
static void draw_ground(petra_rng *rng, const int colour[3], uint8_t *pixels) {
  for (int c = 0; c < 3; c++) {
    int node[NODES][NODES];
    for (int i = 0; i < NODES * NODES; i++)
      node[i / NODES][i % NODES] = clamp_byte(colour[c] + between(rng, -CLOUD, CLOUD));
    for (int y = 0; y < SIDE; y++)
      for (int x = 0; x < SIDE; x++) {
        const int *above = node[y / CELL], *below = node[y / CELL + 1];
        int i = x / CELL, right = x % CELL, down = y % CELL;
        int top = above[i] * (CELL - right) + above[i + 1] * right;
        int bottom = below[i] * (CELL - right) + below[i + 1] * right;
        pixels[c * PLANE + y * SIDE + x] = (uint8_t)((top * (CELL - down) + bottom * down) / (CELL * CELL));
      }
  }
}

/* The position of a figure: its centre in pixels, its radius, and the cosine and sine of its rotation. */
typedef struct pose {
  double x, y, radius, cosine, sine;
} pose;

/* Paints the figure with anti-aliased edges: the distance of a pixel's centre to the edge decides how much of the pixel
 * is covered, over the width of one pixel. */
static void paint(double (*distance)(double, double, double), const pose *at, const int colour[3], uint8_t *pixels) {
  double reach = 1.2 * at->radius + 1; /* no figure reaches further */
  int left = (int)fmax(0, at->x - reach), right = (int)fmin(SIDE - 1, at->x + reach);
  int top = (int)fmax(0, at->y - reach), bottom = (int)fmin(SIDE - 1, at->y + reach);
  for (int y = top; y <= bottom; y++)
    for (int x = left; x <= right; x++) {
      double dx = x - at->x, dy = y - at->y;
      double d = distance(dx * at->cosine + dy * at->sine, dy * at->cosine - dx * at->sine, at->radius);
      if (d >= 0.5)
        continue;
      int cover = d <= -0.5 ? 256 : (int)((0.5 - d) * 256);
      for (int c = 0; c < 3; c++) {
        uint8_t *p = &pixels[c * PLANE + y * SIDE + x];
        *p = (uint8_t)((*p * (256 - cover) + colour[c] * cover) / 256);
      }
    }
}

static void draw_clutter(petra_rng *rng, int level, uint8_t *pixels) {
  int count = between(rng, 0, CLUTTER_MAX);
  for (int i = 0; i < count; i++) {
    int colour[3];
    pose at = {.cosine = 1};
    at.x = between_real(rng, 0, SIDE);
    at.y = between_real(rng, 0, SIDE);
    at.radius = between_real(rng, SPECK_RADIUS_MIN, SPECK_RADIUS_MAX);
    draw_colour(rng, level, SPECK, colour);
    paint(disc, &at, colour, pixels);
  }
}

static void draw_figure(petra_rng *rng, int32_t label, const int colour[3], uint8_t *pixels) {
  pose at;
  double turn = between_real(rng, -TURN, TURN);
  at.x = (SIDE - 1) / 2.0 + between_real(rng, -PLACE, PLACE);
  at.y = (SIDE - 1) / 2.0 + between_real(rng, -PLACE, PLACE);
  at.radius = between_real(rng, RADIUS_MIN, RADIUS_MAX);
  at.cosine = cos(turn);
  at.sine = sin(turn);
  paint(figures[label].distance, &at, colour, pixels);
}

/* Adds two bytes of the stream per value: their sum has a triangular distribution. */
static void add_noise(petra_rng *rng, uint8_t *pixels) {
  for (int i = 0; i < 3 * PLANE; i += 2) {
    uint32_t word = petra_rng_u32(rng);
    for (int j = 0; j < 2; j++, word >>= 16) {
      int sum = (int)(word & 255) + (int)(word >> 8 & 255) - 255;
      pixels[i + j] = (uint8_t)clamp_byte(pixels[i + j] + sum * NOISE / 255);
    }
  }
}

/* The first of the draws of a record. */
static int32_t draw_label(petra_split split, int64_t index, petra_rng *rng) {
  petra_rng_init(rng, SEED, PETRA_RNG_SHAPES, split == PETRA_SPLIT_TRAIN ? 0 : 1, (uint64_t)index);
  return (int32_t)petra_rng_below(rng, CLASSES);
}

static void draw(petra_split split, int64_t index, uint8_t *pixels, int32_t *label) {
  petra_rng rng;
  int ground_colour[3], figure_colour[3];
  *label = draw_label(split, index, &rng);
  int contrast = between(&rng, CONTRAST_MIN, CONTRAST_MAX);
  int dark = between(&rng, MARGIN, 255 - MARGIN - contrast);
  bool brighter = petra_rng_uniform(&rng) < BRIGHTER;
  int ground_level = brighter ? dark : dark + contrast, figure_level = brighter ? dark + contrast : dark;
  draw_colour(&rng, ground_level, TINT, ground_colour);
  draw_colour(&rng, figure_level, TINT, figure_colour);
  draw_ground(&rng, ground_colour, pixels);
  draw_clutter(&rng, ground_level, pixels);
  draw_figure(&rng, *label, figure_colour, pixels);
  add_noise(&rng, pixels);
}

typedef struct shapes {
  petra_dataset base;
  petra_split split;
} shapes;

static void shapes_destroy(petra_dataset *set) {
  petra_free(set);
}

static petra_status shapes_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  draw(((const shapes *)set)->split, index, pixels, label);
  return PETRA_OK;
}

static int32_t shapes_label(const petra_dataset *set, int64_t index) {
  petra_rng rng;
  return draw_label(((const shapes *)set)->split, index, &rng);
}

static const char *shapes_class_name(const petra_dataset *set, int32_t label) {
  (void)set;
  return figures[label].name;
}

static const petra_dataset_ops shapes_ops = {
    .destroy = shapes_destroy, .read = shapes_read, .label = shapes_label, .class_name = shapes_class_name};

petra_status petra_shapes_open(petra_split split, petra_dataset **out) {
  shapes *self = NULL;
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->split = split;
  self->base = (petra_dataset){.ops = &shapes_ops,
                               .count = split == PETRA_SPLIT_TRAIN ? PETRA_SHAPES_TRAIN_COUNT : PETRA_SHAPES_EVAL_COUNT,
                               .height = SIDE,
                               .width = SIDE,
                               .classes = CLASSES,
                               .mean = {0.4914, 0.4822, 0.4465},
                               .deviation = {0.2023, 0.1994, 0.2010}};
  *out = &self->base;
  return PETRA_OK;
}
