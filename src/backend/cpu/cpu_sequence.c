/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of transformers except linear layers and attention. One thread sums over the rows of each column, in
 * the order of the rows, so that the result does not depend on the number of threads. Numbers in bf16 are converted in
 * arrays of a few thousand floats, which stay in the cache. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_kernels.h"
#include "backend/element.h"
#include "backend/registry.h"
#include "base/threads.h"

enum { ROWS = 32 }; /* elements of one chunk of work */

/* Returns `count` elements from `first` on as floats: the elements themselves or, for a tensor in bf16, a copy in
 * `room`. */
static const float *floats_of(const petra_tensor *x, int64_t first, int64_t count, float *room) {
  if (!cpu_layout_of(x)->narrow)
    return cpu_read(x) + first;
  cpu_kernel_from_bf16(cpu_element(x, first), room, count);
  return room;
}

/* Returns the memory in which `count` elements from `first` on are computed: the elements themselves or, for a tensor
 * in bf16, `room`, whose content store_floats rounds. */
static float *floats_for(petra_tensor *y, int64_t first, float *room) {
  return cpu_layout_of(y)->narrow ? room : cpu_data(y) + first;
}

static void store_floats(petra_tensor *y, int64_t first, int64_t count, const float *room) {
  if (cpu_layout_of(y)->narrow)
    cpu_kernel_to_bf16(room, cpu_write(y, first), count);
}

/* --- layer norm --- */

/* Computes rows [first, first + count); `room`: memory for these rows in floats, used if y is in bf16. */
static void normalise_rows(const petra_layer_norm_forward *a, int64_t first, int64_t count, float *room) {
  const int64_t features = petra_tensor_columns(a->x);
  const float *scale = a->y ? cpu_read(a->scale) : NULL, *shift = a->y && a->mean ? cpu_read(a->shift) : NULL;
  cpu_kernel_layer_norm(cpu_read(a->x) + first * features, scale, shift, count, features,
                        a->mean ? cpu_data(a->mean) + first : NULL, cpu_data(a->deviation) + first,
                        room   ? room
                        : a->y ? cpu_data(a->y) + first * features
                               : NULL);
  if (room)
    cpu_kernel_to_bf16(room, cpu_write(a->y, first * features), count * features);
}

petra_status cpu_layer_norm_forward(petra_backend *backend, const petra_layer_norm_forward *a) {
  const int64_t rows = petra_tensor_rows(a->x), room = ROWS * petra_tensor_columns(a->x);
  void *scratch = NULL;
  if (a->y && cpu_layout_of(a->y)->narrow)
    PETRA_TRY(cpu_scratch(backend, (size_t)(backend->threads * room) * sizeof(float), &scratch));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, a->x->elements))
  for (int64_t first = 0; first < rows; first += ROWS)
    normalise_rows(a, first, cpu_minimum(ROWS, rows - first),
                   scratch ? (float *)scratch + petra_threads_number() * room : NULL);
  return PETRA_OK;
}

/* dscale and dshift come first, since dx may be dy. */
petra_status cpu_layer_norm_backward(petra_backend *backend, const petra_layer_norm_backward *a) {
  const int64_t rows = petra_tensor_rows(a->x), features = petra_tensor_columns(a->x);
  const float *mean = a->mean ? cpu_read(a->mean) : NULL;
#pragma omp parallel num_threads(cpu_threads(backend, a->x->elements))
  {
#pragma omp for schedule(static)
    for (int64_t first = 0; first < features; first += CPU_COLUMNS) {
      double dscale[CPU_COLUMNS], dshift[CPU_COLUMNS];
      const int64_t columns = cpu_minimum(CPU_COLUMNS, features - first);
      cpu_kernel_layer_norm_sums(cpu_read(a->x) + first, cpu_read(a->dy) + first, mean, cpu_read(a->deviation), rows,
                                 features, columns, dscale, dshift);
      for (int64_t c = 0; c < columns; c++) {
        cpu_data(a->dscale)[first + c] = (float)dscale[c];
        if (a->dshift)
          cpu_data(a->dshift)[first + c] = (float)dshift[c];
      }
    }
#pragma omp for schedule(static)
    for (int64_t first = 0; first < rows; first += ROWS)
      cpu_kernel_layer_norm_backward(cpu_read(a->x) + first * features, cpu_read(a->scale), mean ? mean + first : NULL,
                                     cpu_read(a->deviation) + first, cpu_read(a->dy) + first * features,
                                     cpu_minimum(ROWS, rows - first), features, cpu_data(a->dx) + first * features);
  }
  return PETRA_OK;
}

/* --- GELU --- */

static void gelu_chunk(petra_gelu form, const petra_tensor *x, petra_tensor *y, int64_t first, int64_t count) {
  float room[CPU_CHUNK];
  cpu_kernel_gelu(form, floats_of(x, first, count, room), floats_for(y, first, room), count);
  store_floats(y, first, count, room);
}

petra_status cpu_gelu_forward(petra_backend *backend, petra_gelu form, const petra_tensor *x, petra_tensor *y) {
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, x->elements))
  for (int64_t first = 0; first < x->elements; first += CPU_CHUNK)
    gelu_chunk(form, x, y, first, cpu_minimum(CPU_CHUNK, x->elements - first));
  return PETRA_OK;
}

static void gelu_backward_chunk(petra_gelu form, const petra_tensor *x, const petra_tensor *dy, petra_tensor *dx,
                                int64_t first, int64_t count) {
  float values[CPU_CHUNK], gradients[CPU_CHUNK];
  cpu_kernel_gelu_backward(form, floats_of(x, first, count, values), floats_of(dy, first, count, gradients),
                           floats_for(dx, first, gradients), count);
  store_floats(dx, first, count, gradients);
}

petra_status cpu_gelu_backward(petra_backend *backend, petra_gelu form, const petra_tensor *x, const petra_tensor *dy,
                               petra_tensor *dx) {
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, x->elements))
  for (int64_t first = 0; first < x->elements; first += CPU_CHUNK)
    gelu_backward_chunk(form, x, dy, dx, first, cpu_minimum(CPU_CHUNK, x->elements - first));
  return PETRA_OK;
}

/* --- SwiGLU --- */

/* Computes columns [first, first + count) of a row of y. */
static void swiglu_piece(const petra_tensor *x, petra_tensor *y, int64_t row, int64_t first, int64_t count) {
  const int64_t features = petra_tensor_columns(y), gate = 2 * row * features + first, to = row * features + first;
  float gates[CPU_CHUNK], ups[CPU_CHUNK];
  cpu_kernel_swiglu(floats_of(x, gate, count, gates), floats_of(x, gate + features, count, ups),
                    floats_for(y, to, gates), count);
  store_floats(y, to, count, gates);
}

petra_status cpu_swiglu_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  const int64_t features = petra_tensor_columns(y);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, y->elements))
  for (int64_t row = 0; row < petra_tensor_rows(y); row++)
    for (int64_t first = 0; first < features; first += CPU_CHUNK)
      swiglu_piece(x, y, row, first, cpu_minimum(CPU_CHUNK, features - first));
  return PETRA_OK;
}

static void swiglu_backward_piece(const petra_tensor *x, const petra_tensor *dy, petra_tensor *dx, int64_t row,
                                  int64_t first, int64_t count) {
  const int64_t features = petra_tensor_columns(dy), gate = 2 * row * features + first, up = gate + features;
  float gates[CPU_CHUNK], ups[CPU_CHUNK], gradients[CPU_CHUNK];
  cpu_kernel_swiglu_backward(floats_of(x, gate, count, gates), floats_of(x, up, count, ups),
                             floats_of(dy, row * features + first, count, gradients), floats_for(dx, gate, gates),
                             floats_for(dx, up, ups), count);
  store_floats(dx, gate, count, gates);
  store_floats(dx, up, count, ups);
}

petra_status cpu_swiglu_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *dy,
                                 petra_tensor *dx) {
  const int64_t features = petra_tensor_columns(dy);
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, dy->elements))
  for (int64_t row = 0; row < petra_tensor_rows(dy); row++)
    for (int64_t first = 0; first < features; first += CPU_CHUNK)
      swiglu_backward_piece(x, dy, dx, row, first, cpu_minimum(CPU_CHUNK, features - first));
  return PETRA_OK;
}

/* --- rotary positions --- */

/* Gets column `pair` of the rotations of all positions: a row has the cosines of all pairs and, after them, the
 * sines. */
static void find_turns(const petra_rotary *a, int pair, float *turns) {
  const double step = petra_element_turn(pair, a->width, a->base);
  for (int64_t t = 0; t < a->x->shape[1]; t++, turns += a->width) {
    const double angle = (double)t * step;
    turns[pair] = (float)cos(angle);
    turns[pair + a->width / 2] = (float)(a->back ? -sin(angle) : sin(angle));
  }
}

/* Computes a row of y; `room`: memory for the rotated columns in floats, used if y is in bf16. */
static void turn_row(const petra_rotary *a, int64_t row, const float *turn, float *room) {
  const int64_t columns = petra_tensor_columns(a->x), begin = row * columns, turned = (int64_t)a->heads * a->width;
  const int64_t bytes = cpu_layout_of(a->x)->narrow ? sizeof(uint16_t) : sizeof(float);
  cpu_kernel_rotate(floats_of(a->x, begin, turned, room), turn, a->heads, a->width / 2, floats_for(a->y, begin, room));
  store_floats(a->y, begin, turned, room);
  if (a->x != a->y)
    memcpy(cpu_write(a->y, begin + turned), cpu_element(a->x, begin + turned), (size_t)((columns - turned) * bytes));
}

petra_status cpu_rotary(petra_backend *backend, const petra_rotary *a) {
  const int64_t positions = a->x->shape[1], rows = petra_tensor_rows(a->x);
  const int64_t room = cpu_layout_of(a->x)->narrow ? (int64_t)a->heads * a->width : 0;
  void *scratch;
  PETRA_TRY(cpu_scratch(backend, (size_t)(positions * a->width + backend->threads * room) * sizeof(float), &scratch));
  float *turns = scratch, *rooms = turns + positions * a->width;
#pragma omp parallel num_threads(cpu_threads(backend, a->x->elements))
  {
#pragma omp for schedule(static)
    for (int pair = 0; pair < a->width / 2; pair++)
      find_turns(a, pair, turns);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; row++)
      turn_row(a, row, turns + row % positions * a->width, room ? rooms + petra_threads_number() * room : NULL);
  }
  return PETRA_OK;
}

/* --- embeddings --- */

static petra_status check_tokens(const char *operation, const petra_tensor *tokens, int32_t rows) {
  for (int64_t i = 0; i < tokens->elements; i++)
    if (!petra_element_is_token((double)cpu_read(tokens)[i], rows))
      return petra_token_refuse(operation, tokens, i, (double)cpu_read(tokens)[i], rows);
  return PETRA_OK;
}

petra_status cpu_embed_forward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *table,
                               const petra_tensor *positions, petra_tensor *y) {
  const int64_t features = table->shape[1], length = tokens->shape[1];
  PETRA_TRY(check_tokens("embed_forward", tokens, table->shape[0]));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, y->elements))
  for (int64_t row = 0; row < tokens->elements; row++) {
    const float *of_token = cpu_read(table) + (int64_t)cpu_read(tokens)[row] * features;
    if (positions)
      cpu_kernel_add(of_token, cpu_read(positions) + row % length * features, cpu_data(y) + row * features, features);
    else
      memcpy(cpu_data(y) + row * features, of_token, (size_t)features * sizeof(float));
  }
  return PETRA_OK;
}

/* Computes columns [first, first + columns) of a table whose rows are the sums of the rows of dy by token or, if tokens
 * is NULL, by position. */
static void sum_rows(const petra_tensor *dy, const float *tokens, petra_tensor *table, int64_t first, int64_t columns) {
  const int64_t features = table->shape[1], length = dy->shape[1];
  for (int64_t row = 0; row < table->shape[0]; row++)
    memset(cpu_data(table) + row * features + first, 0, (size_t)columns * sizeof(float));
  for (int64_t row = 0; row < petra_tensor_rows(dy); row++) {
    float *sum = cpu_data(table) + (tokens ? (int64_t)tokens[row] : row % length) * features + first;
    cpu_kernel_add(sum, cpu_read(dy) + row * features + first, sum, columns);
  }
}

petra_status cpu_embed_backward(petra_backend *backend, const petra_tensor *tokens, const petra_tensor *dy,
                                petra_tensor *dtable, petra_tensor *dpositions) {
  const int64_t features = dtable->shape[1];
  PETRA_TRY(check_tokens("embed_backward", tokens, dtable->shape[0]));
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, dy->elements))
  for (int64_t first = 0; first < features; first += CPU_COLUMNS) {
    const int64_t columns = cpu_minimum(CPU_COLUMNS, features - first);
    sum_rows(dy, cpu_read(tokens), dtable, first, columns);
    if (dpositions)
      sum_rows(dy, NULL, dpositions, first, columns);
  }
  return PETRA_OK;
}

/* --- patches, mean over positions --- */

static void take_patch(const petra_tensor *images, int64_t image, int64_t position, int64_t size, float *to) {
  const cpu_layout *l = cpu_layout_of(images);
  const int64_t width = images->shape[3], across = width / size;
  const int64_t corner = position / across * size * width + position % across * size;
  for (int64_t channel = 0; channel < 3; channel++) {
    const float *from = cpu_read(images) + cpu_channel_offset(l, image, channel);
    for (int64_t i = 0; i < size * size; i++)
      *to++ = from[(corner + i / size * width + i % size) * l->block];
  }
}

petra_status cpu_patches(petra_backend *backend, const petra_tensor *images, int size, petra_tensor *y) {
  const int64_t positions = y->shape[1], features = y->shape[2];
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, y->elements))
  for (int64_t row = 0; row < petra_tensor_rows(y); row++)
    take_patch(images, row / positions, row % positions, size, cpu_data(y) + row * features);
  return PETRA_OK;
}

petra_status cpu_mean_positions_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column) {
  const int64_t positions = x->shape[1], features = x->shape[2];
#pragma omp parallel for schedule(static) collapse(2) num_threads(cpu_threads(backend, x->elements))
  for (int64_t n = 0; n < x->shape[0]; n++)
    for (int64_t first = 0; first < features; first += CPU_COLUMNS) {
      double sum[CPU_COLUMNS];
      const int64_t columns = cpu_minimum(CPU_COLUMNS, features - first);
      cpu_kernel_sum_columns(cpu_read(x) + n * positions * features + first, positions, features, columns, sum);
      for (int64_t c = 0; c < columns; c++)
        cpu_data(y)[n * y->shape[1] + column + first + c] = (float)(sum[c] / (double)positions);
    }
  return PETRA_OK;
}

petra_status cpu_mean_positions_backward(petra_backend *backend, const petra_tensor *dy, int column, petra_tensor *dx) {
  const int64_t positions = dx->shape[1], features = dx->shape[2];
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, dx->elements))
  for (int64_t row = 0; row < petra_tensor_rows(dx); row++) {
    const float *from = cpu_read(dy) + row / positions * dy->shape[1] + column;
    for (int64_t c = 0; c < features; c++)
      cpu_data(dx)[row * features + c] = from[c] / (float)positions;
  }
  return PETRA_OK;
}
