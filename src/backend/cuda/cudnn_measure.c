/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how long convolutions of one shape take on the device, on memory of their own, and keeps the choices in a
 * file. Many runs are in one graph, so that the time of the host that launches does not count. Each run uses other
 * memory than the run before, as in a tick. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/cudnn_private.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  RUNS = 20, /* runs in a graph */
  TIMES = 3,
  CACHES = 3, /* the sets of arrays together fill the cache this many times, or there are as many sets as runs */
  SPIN_LAUNCHES = 100,
  FILLING = 0x3f /* every byte: 0.75 in f32 and bf16. Zeros would cost less power, and so have higher clocks */
};
static const double SPIN_MS = 20; /* of work, until an idle device has reached its clocks */

typedef struct bench {
  void *set[RUNS];
  int sets;
  size_t offset[CUDA_CONV_ARRAYS], set_bytes;
  void *scratch;
  cudaEvent_t start, end;
  cuda_lane lane;
  bool spun;
} bench;

static void close_bench(bench *b) {
  for (int i = 0; i < b->sets; i++)
    cudaFree(b->set[i]);
  if (b->scratch)
    cudaFree(b->scratch);
  if (b->start)
    cudaEventDestroy(b->start);
  if (b->end)
    cudaEventDestroy(b->end);
  if (b->lane.stream)
    cudaStreamDestroy(b->lane.stream);
}

/* --- memory --- */

/* Sets *room to false if the device has no room, which is not an error. */
static petra_status allocate(size_t bytes, void **out, bool *room) {
  cudaError_t error = cudaMalloc(out, bytes);
  *room = error != cudaErrorMemoryAllocation;
  if (*room)
    return cuda_check(error, "memory for measuring plans");
  cudaGetLastError();
  *out = NULL;
  return PETRA_OK;
}

/* Sets the offsets of the arrays in a set, and the size of a set. */
static void lay_out(const cuda_conv_shape *s, bench *b) {
  const size_t narrow = s->precision == PETRA_PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
  for (int i = 0; i < CUDA_CONV_ARRAYS; i++) {
    const bool wide = i == cuda_conv_output(s->kind) ? s->wide_out != 0 : i == CUDA_CONV_X && s->wide_in;
    b->offset[i] = b->set_bytes;
    b->set_bytes += ((size_t)cuda_conv_elements(s, i) * (wide ? sizeof(float) : narrow) + 255) / 256 * 256;
  }
}

static petra_status sets_wanted(const bench *b, int *out) {
  struct cudaDeviceProp properties;
  int device;
  CUDA_TRY(cudaGetDevice(&device), "cudaGetDevice");
  CUDA_TRY(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const size_t sets = CACHES * (size_t)properties.l2CacheSize / b->set_bytes + 1;
  *out = sets < RUNS ? (int)sets : (int)RUNS;
  return PETRA_OK;
}

/* If there is no room for all sets, the sets that fit serve, without the last one: graphs and kernels need memory
 * too. */
static petra_status allocate_all(const cuda_conv_shape *shape, size_t workspace, bench *b, bool *room) {
  int wanted;
  bool more = true;
  lay_out(shape, b);
  PETRA_TRY(sets_wanted(b, &wanted));
  PETRA_TRY(allocate(workspace, &b->scratch, room));
  b->lane.scratch = b->scratch;
  b->lane.scratch_bytes = workspace;
  while (*room && more && b->sets < wanted) {
    PETRA_TRY(allocate(b->set_bytes, &b->set[b->sets], &more));
    if (more)
      CUDA_TRY(cudaMemsetAsync(b->set[b->sets++], FILLING, b->set_bytes, b->lane.stream), "memory for measuring plans");
  }
  if (!more && b->sets > 1)
    cudaFree(b->set[--b->sets]);
  *room = b->sets > 0;
  return PETRA_OK;
}

/* --- runs --- */

static petra_status run(const cuda_conv *conv, const bench *b, int number, bool *ran) {
  char *set = b->set[number % b->sets];
  return cuda_conv_run(conv, &b->lane, set + b->offset[0], set + b->offset[1], set + b->offset[2], ran);
}

/* *out is NULL if cuDNN does not run the convolution in a capture. */
static petra_status capture(const cuda_conv *conv, const bench *b, cudaGraphExec_t *out) {
  cudaGraph_t graph = NULL;
  bool ran = true;
  petra_status status = PETRA_OK;
  *out = NULL;
  CUDA_TRY(cudaStreamBeginCapture(b->lane.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < RUNS && ran && status == PETRA_OK; i++)
    status = run(conv, b, i, &ran);
  const cudaError_t error = cudaStreamEndCapture(b->lane.stream, &graph);
  if (status == PETRA_OK && ran && error == cudaSuccess)
    status = cuda_check(cudaGraphInstantiate(out, graph, 0), "cudaGraphInstantiate");
  else
    cudaGetLastError(); /* clears the error, which was handled or logged */
  if (graph)
    cudaGraphDestroy(graph);
  return status;
}

/* One launch between the events: waits for its end. */
static petra_status time_once(cudaGraphExec_t exec, const bench *b, float *ms) {
  CUDA_TRY(cudaEventRecord(b->start, b->lane.stream), "cudaEventRecord");
  CUDA_TRY(cudaGraphLaunch(exec, b->lane.stream), "cudaGraphLaunch");
  CUDA_TRY(cudaEventRecord(b->end, b->lane.stream), "cudaEventRecord");
  CUDA_TRY(cudaEventSynchronize(b->end), "measuring plans");
  return cuda_check(cudaEventElapsedTime(ms, b->start, b->end), "cudaEventElapsedTime");
}

/* The first launch uploads the graph. */
static petra_status warm_up(cudaGraphExec_t exec, bench *b) {
  float ms, all = 0;
  for (int i = 0; i < (b->spun ? 1 : SPIN_LAUNCHES) && all < SPIN_MS; i++) {
    PETRA_TRY(time_once(exec, b, &ms));
    all += ms;
  }
  b->spun = true;
  return PETRA_OK;
}

static double median(const float t[TIMES]) {
  const float low = t[0] < t[1] ? t[0] : t[1], high = t[0] < t[1] ? t[1] : t[0];
  return t[2] < low ? low : t[2] > high ? high : t[2];
}

static petra_status time_graph(cudaGraphExec_t exec, bench *b, double *us) {
  float ms[TIMES];
  PETRA_TRY(warm_up(exec, b));
  for (int i = 0; i < TIMES; i++)
    PETRA_TRY(time_once(exec, b, &ms[i]));
  *us = median(ms) * 1e3 / RUNS;
  return PETRA_OK;
}

/* *us is negative if cuDNN does not run the convolution. */
static petra_status time_conv(const cuda_conv *conv, bench *b, double *us) {
  cudaGraphExec_t exec = NULL;
  bool ran;
  *us = -1;
  PETRA_TRY(run(conv, b, 0, &ran)); /* loads its kernels, which a capture might refuse */
  if (ran)
    PETRA_TRY(capture(conv, b, &exec));
  if (!exec)
    return PETRA_OK;
  const petra_status status = time_graph(exec, b, us);
  cudaGraphExecDestroy(exec);
  return status;
}

static petra_status time_all(cuda_conv *const *convs, int count, bench *b, int *fastest, double *us) {
  size_t workspace = 0;
  bool room = true;
  for (int i = 0; i < count; i++)
    if (cuda_conv_workspace(convs[i]) > workspace)
      workspace = cuda_conv_workspace(convs[i]);
  CUDA_TRY(cudaStreamCreateWithFlags(&b->lane.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  CUDA_TRY(cudaEventCreate(&b->start), "cudaEventCreate");
  CUDA_TRY(cudaEventCreate(&b->end), "cudaEventCreate");
  PETRA_TRY(allocate_all(&convs[0]->shape, workspace, b, &room));
  if (!room)
    return PETRA_OK;
  CUDA_TRY(cudaDeviceSynchronize(), "the work before measuring plans"); /* nothing else may run at the same time */
  for (int i = 0; i < count; i++) {
    double each;
    PETRA_TRY(time_conv(convs[i], b, &each));
    if (each >= 0 && (*fastest < 0 || each < *us)) {
      *fastest = i;
      *us = each;
    }
  }
  return PETRA_OK;
}

petra_status cuda_engines_time(cuda_conv *const *convs, int count, int *fastest, double *us) {
  bench b = {.start = NULL};
  *fastest = -1;
  petra_status status = time_all(convs, count, &b, fastest, us);
  if (b.lane.stream)
    cudaStreamSynchronize(b.lane.stream);
  close_bench(&b);
  return status;
}

/* --- the file of measured engines --- */

#define FIRST_LINE "petra plans 1"

typedef struct row {
  cuda_conv_shape shape;
  cuda_engine_choice choice;
} row;

struct cuda_engine_table {
  char *path;
  cuda_engine_setting setting;
  row *rows;
  int64_t count, capacity;
  bool changed;
};

/* --- a shape and its choice as text --- */

static const char *const kinds[] = {"forward", "data gradient", "filter gradient"};
static const char *const modes[CUDA_HEURISTICS] = {"a", "b", "fallback"};
static const struct {
  const char *name;
  petra_precision precision;
} precisions[] = {{"fp32", PETRA_PRECISION_FP32}, {"tf32", PETRA_PRECISION_TF32}, {"bf16", PETRA_PRECISION_BF16}};
enum { KINDS = 3, PRECISIONS = 3, LINE = 512 };

cuda_shape_text cuda_shape_describe(const cuda_conv_shape *shape) {
  const char *precision = precisions[0].name;
  cuda_shape_text out;
  for (int i = 0; i < PRECISIONS; i++)
    if ((int32_t)precisions[i].precision == shape->precision)
      precision = precisions[i].name;
  snprintf(out.text, sizeof out.text, "%s, x %dx%dx%dx%d, filter %dx%dx%dx%d, stride %d, pad %d, %s%s%s",
           kinds[shape->kind], shape->n, shape->h, shape->w, shape->c, shape->o, shape->kh, shape->kw, shape->c,
           shape->stride, shape->pad, precision, shape->wide_in ? ", x f32" : "",
           shape->wide_out ? ", output f32" : "");
  return out;
}

static void print_row(const row *r, char text[LINE]) {
  const cuda_engine_choice *c = &r->choice;
  snprintf(text, LINE, "%s: rounds %d, widens %d, heuristics %s, rank %d, engine %lld, %.3f us",
           cuda_shape_describe(&r->shape).text, c->form.rounds, c->form.widens, modes[c->position.mode],
           c->position.rank, (long long)c->engine, c->us);
}

/* Returns the number of a word in a list; -1: it is not in the list. */
static int number_of(const char *const *words, int count, const char *word) {
  for (int i = 0; i < count; i++)
    if (strcmp(words[i], word) == 0)
      return i;
  return -1;
}

static bool read_shape(const char *line, cuda_conv_shape *s) {
  char kind[32], precision[8];
  int channels;
  memset(s, 0, sizeof *s);
  if (sscanf(line, "%31[a-z ], x %dx%dx%dx%d, filter %dx%dx%dx%d, stride %d, pad %d, %7[a-z0-9]", kind, &s->n, &s->h,
             &s->w, &s->c, &s->o, &s->kh, &s->kw, &channels, &s->stride, &s->pad, precision) != 12)
    return false;
  const char *const names[PRECISIONS] = {precisions[0].name, precisions[1].name, precisions[2].name};
  const int p = number_of(names, PRECISIONS, precision);
  s->kind = number_of(kinds, KINDS, kind);
  if (s->kind < 0 || p < 0 || s->stride <= 0)
    return false;
  s->precision = (int32_t)precisions[p].precision;
  s->oh = (int32_t)(((int64_t)s->h + 2 * (int64_t)s->pad - s->kh) / s->stride + 1);
  s->ow = (int32_t)(((int64_t)s->w + 2 * (int64_t)s->pad - s->kw) / s->stride + 1);
  s->wide_in = strstr(line, ", x f32") != NULL;
  s->wide_out = strstr(line, ", output f32") != NULL;
  return true;
}

static bool read_choice(const char *text, cuda_engine_choice *c) {
  int rounds, widens;
  long long engine;
  char mode[16];
  *c = (cuda_engine_choice){0};
  if (sscanf(text, ": rounds %d, widens %d, heuristics %15[a-z], rank %d, engine %lld, %lf us", &rounds, &widens, mode,
             &c->position.rank, &engine, &c->us) != 6)
    return false;
  c->form = (cuda_conv_form){rounds != 0, widens != 0};
  c->position.mode = number_of(modes, CUDA_HEURISTICS, mode);
  c->engine = engine;
  return c->position.mode >= 0 && c->position.rank >= 0 && c->us >= 0 && c->us < 1e12;
}

/* Returns true if it is a line that print_row would print. */
static bool read_row(const char *line, row *r) {
  char written[LINE];
  const char *colon = strchr(line, ':');
  if (!colon || !read_shape(line, &r->shape) || !read_choice(colon, &r->choice))
    return false;
  print_row(r, written);
  return strcmp(written, line) == 0;
}

/* --- the table --- */

const char *cuda_engine_table_path(const cuda_engine_table *table) {
  return table->path;
}

cuda_engine_choice *cuda_engine_table_find(cuda_engine_table *table, const cuda_conv_shape *shape) {
  for (int64_t i = 0; i < table->count; i++)
    if (memcmp(&table->rows[i].shape, shape, sizeof *shape) == 0)
      return &table->rows[i].choice;
  return NULL;
}

static petra_status add(cuda_engine_table *table, const row *r) {
  PETRA_TRY(petra_array_reserve(&table->rows, &table->capacity, table->count + 1, sizeof *table->rows));
  table->rows[table->count++] = *r;
  return PETRA_OK;
}

petra_status cuda_engine_table_put(cuda_engine_table *table, const cuda_conv_shape *shape,
                                   const cuda_engine_choice *choice) {
  cuda_engine_choice *found = cuda_engine_table_find(table, shape);
  if (found)
    *found = *choice;
  else
    PETRA_TRY(add(table, &(row){*shape, *choice}));
  table->changed = true;
  return PETRA_OK;
}

void cuda_engine_table_destroy(cuda_engine_table *table) {
  if (!table)
    return;
  PETRA_FREE_ALL(table->path, table->rows, table);
}

/* --- the file --- */

enum { HEAD = 3 };
typedef struct head {
  const char *name, *value;
} head;

static void head_of(const cuda_engine_setting *setting, head out[HEAD]) {
  out[0] = (head){"library", setting->library};
  out[1] = (head){"device", setting->device};
  out[2] = (head){"deterministic", setting->deterministic ? "true" : "false"};
}

void cuda_engine_table_print(const cuda_engine_table *table, bool all, FILE *out) {
  head lines[HEAD];
  char text[LINE];
  head_of(&table->setting, lines);
  fputs(FIRST_LINE "\n", out);
  for (int i = 0; i < HEAD; i++)
    fprintf(out, "%s: %s\n", lines[i].name, lines[i].value);
  for (int64_t i = 0; i < table->count; i++)
    if (all || table->rows[i].choice.used) {
      print_row(&table->rows[i], text);
      fprintf(out, "%s\n", text);
    }
}

static petra_status damaged(const cuda_engine_table *table, int64_t number, const char *expected) {
  return petra_fail(
      PETRA_DATA, "%s, line %lld: damaged: expected %s; without this file (device.plans) the shapes are measured again",
      table->path, (long long)number, expected);
}

static petra_status read_head(const cuda_engine_table *table, int64_t number, const char *line) {
  head lines[HEAD];
  char expected[64];
  head_of(&table->setting, lines);
  const head *at = &lines[number - 2];
  const size_t length = strlen(at->name);
  if (strncmp(line, at->name, length) != 0 || strncmp(line + length, ": ", 2) != 0) {
    snprintf(expected, sizeof expected, "\"%s: ...\"", at->name);
    return damaged(table, number, expected);
  }
  if (strcmp(line + length + 2, at->value) == 0)
    return PETRA_OK;
  return petra_fail(PETRA_CONFIG,
                    "device.plans: %s: was measured with %s %s, but this is %s; expected a file that was measured with "
                    "it, or the name of a new file",
                    table->path, at->name, line + length + 2, at->value);
}

/* Reads line `number`, from 1. `merge`: ignores shapes that the table already has. */
static petra_status read_line(cuda_engine_table *table, bool merge, int64_t number, const char *line, bool whole) {
  row r;
  if (number == 1)
    return whole && strcmp(line, FIRST_LINE) == 0 ? PETRA_OK : damaged(table, number, "\"" FIRST_LINE "\"");
  if (number <= 1 + HEAD)
    return read_head(table, number, line);
  if (!whole || !read_row(line, &r))
    return damaged(table, number, "a shape and its choice");
  if (!cuda_engine_table_find(table, &r.shape))
    return add(table, &r);
  return merge ? PETRA_OK : damaged(table, number, "a shape that no earlier line has");
}

static petra_status read_lines(cuda_engine_table *table, bool merge, FILE *file) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  int64_t number = 0;
  petra_status status = PETRA_OK;
  errno = 0;
  while (status == PETRA_OK && (length = getline(&line, &capacity, file)) >= 0) {
    if (length > 0 && line[length - 1] == '\n')
      line[--length] = 0;
    status = read_line(table, merge, ++number, line, strlen(line) == (size_t)length);
  }
  if (status == PETRA_OK && !feof(file))
    status = petra_fail(errno == ENOMEM ? PETRA_NO_MEMORY : PETRA_IO, "device.plans: %s: cannot read: %s", table->path,
                        strerror(errno));
  else if (status == PETRA_OK && number < 1 + HEAD)
    status = damaged(table, number + 1, number == 0 ? "\"" FIRST_LINE "\"" : "more lines");
  free(line);
  return status;
}

/* Checks before hours of work that a missing file can be created. */
static petra_status check_folder(const char *path) {
  PETRA_FREED char *folder = NULL;
  PETRA_TRY(petra_duplicate_string(&folder, strchr(path, '/') ? path : "."));
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[1] = 0;
  if (access(folder, W_OK | X_OK) == 0)
    return PETRA_OK;
  return petra_fail(PETRA_IO, "device.plans: %s: cannot be written: %s", path, strerror(errno));
}

static petra_status read_file(cuda_engine_table *table, bool merge) {
  FILE *file = fopen(table->path, "r");
  if (!file)
    return errno == ENOENT ? check_folder(table->path)
                           : petra_fail(PETRA_IO, "device.plans: %s: cannot open: %s", table->path, strerror(errno));
  petra_status status = read_lines(table, merge, file);
  fclose(file);
  return status;
}

petra_status cuda_engine_table_open(const char *path, const cuda_engine_setting *setting, cuda_engine_table **out) {
  cuda_engine_table *table;
  PETRA_TRY(petra_allocate(&table, 1, sizeof *table));
  table->setting = *setting;
  petra_status status = petra_duplicate_string(&table->path, path);
  if (status == PETRA_OK)
    status = read_file(table, false);
  if (status == PETRA_OK)
    *out = table;
  else
    cuda_engine_table_destroy(table);
  return status;
}

/* --- writing: io is above this folder, so this file has writing functions of its own --- */

/* Writes `text` to `temporary`, synced, which then takes the name `path`. 0 or an errno value. */
static int replace(const char *path, const char *temporary, const char *text, size_t size) {
  FILE *file = fopen(temporary, "w");
  if (!file)
    return errno;
  bool written = fwrite(text, 1, size, file) == size && fflush(file) == 0 && fsync(fileno(file)) == 0;
  int failure = written ? 0 : errno;
  if (fclose(file) != 0 && failure == 0)
    failure = errno;
  if (failure == 0 && rename(temporary, path) != 0)
    failure = errno;
  if (failure != 0)
    unlink(temporary);
  return failure;
}

static petra_status print_all(const void *context, FILE *out) {
  cuda_engine_table_print(context, true, out);
  return PETRA_OK;
}

/* Several processes may write at the same time: each writes a file with another name and renames it. */
static petra_status write_text(const char *path, const char *text, size_t size) {
  PETRA_FREED char *temporary = NULL;
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const size_t room = strlen(path) + 32;
  PETRA_TRY(petra_allocate(&temporary, room, 1));
  snprintf(temporary, room, "%.*s.%s.%ld.tmp", (int)(name - path), path, name, (long)getpid());
  const int failure = replace(path, temporary, text, size);
  if (failure == 0)
    return PETRA_OK;
  return petra_fail(PETRA_IO, "device.plans: %s: cannot write the measurements: %s", path, strerror(failure));
}

petra_status cuda_engine_table_write(cuda_engine_table *table) {
  PETRA_FREED char *text = NULL;
  size_t size;
  if (!table->changed)
    return PETRA_OK;
  PETRA_TRY(read_file(table, true));
  PETRA_TRY(petra_text_print(print_all, table, "the choices of plans", &text, &size));
  PETRA_TRY(write_text(table->path, text, size));
  table->changed = false;
  return PETRA_OK;
}
