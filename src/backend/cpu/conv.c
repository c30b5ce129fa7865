/* Convolutions by oneDNN's C API (2.x). Primitives are made once per operation, shape and geometry and kept
 * in the handle. This file alone includes oneDNN. */
#include "backend/cpu/cpu.h"

#include "base/log.h"
#include "base/mem.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { BUCKETS = 256 };

typedef enum conv_operation { FORWARD, BACKWARD_DATA, BACKWARD_FILTER } conv_operation;

static const char *const operation_names[] = {"conv_forward", "conv_backward_data", "conv_backward_filter"};

typedef struct conv_key {
  int32_t operation, stride, pad;
  int32_t x[4], w[4], y[4]; /* logical shapes; the layouts follow from them */
} conv_key;

/* The memories of an entry, and of its reorder: the filter as the primitive wants it, and another scratchpad. */
enum { X, Y, STORED_W, SCRATCHPAD, W, REORDER_SCRATCHPAD, MEMORIES };

typedef struct conv_entry {
  conv_key key;
  dnnl_primitive_desc_t description, reorder_description;
  dnnl_primitive_t primitive;
  dnnl_primitive_t reorder; /* between the filter as stored and as the primitive wants it; NULL: the same */
  dnnl_memory_t memory[MEMORIES];
  size_t bytes[MEMORIES]; /* of those that lie in scratch memory, from SCRATCHPAD on; 0: not there */
  struct conv_entry *next;
} conv_entry;

struct cpu_convolutions {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_attr_t attributes; /* scratchpads are given by the caller */
  conv_entry *entries[BUCKETS];
};

static petra_status library_error(dnnl_status_t status, const char *what) {
  if (status == dnnl_out_of_memory)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: oneDNN, %s", what);
  return petra_fail(PETRA_BACKEND, "oneDNN failed: %s: %s", what, dnnl_status2str(status));
}

/* Passes a failure of oneDNN on, within functions that return its status. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    dnnl_status_t try_status_ = (expression);                                                                          \
    if (try_status_ != dnnl_success)                                                                                   \
      return try_status_;                                                                                              \
  } while (0)

/* --- machine --- */

int cpu_preferred_block(void) {
  const unsigned wide = dnnl_cpu_isa_avx512_core;
  return ((unsigned)dnnl_get_effective_cpu_isa() & wide) == wide ? 16 : 8;
}

void cpu_convolutions_describe(char *text, size_t size) {
  const dnnl_version_t *version = dnnl_version();
  const char *isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  const char prefix[] = "cpu_isa_";
  if (strncmp(isa, prefix, sizeof prefix - 1) == 0)
    isa += sizeof prefix - 1;
  snprintf(text, size, "oneDNN %d.%d.%d, ISA %s", version->major, version->minor, version->patch, isa);
}

/* --- handle --- */

static dnnl_status_t make_engine(cpu_convolutions *c) {
  TRY(dnnl_engine_create(&c->engine, dnnl_cpu, 0));
  TRY(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags));
  TRY(dnnl_primitive_attr_create(&c->attributes));
  return dnnl_primitive_attr_set_scratchpad_mode(c->attributes, dnnl_scratchpad_mode_user);
}

petra_status cpu_convolutions_create(cpu_convolutions **out) {
  cpu_convolutions *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  dnnl_status_t status = make_engine(c);
  if (status != dnnl_success) {
    cpu_convolutions_destroy(c);
    return library_error(status, "no CPU engine");
  }
  *out = c;
  return PETRA_OK;
}

static void destroy_entry(conv_entry *entry) {
  const dnnl_primitive_t primitives[] = {entry->primitive, entry->reorder};
  const dnnl_primitive_desc_t descriptions[] = {entry->description, entry->reorder_description};
  for (int i = 0; i < 2; i++) {
    if (primitives[i])
      dnnl_primitive_destroy(primitives[i]);
    if (descriptions[i])
      dnnl_primitive_desc_destroy(descriptions[i]);
  }
  for (int m = 0; m < MEMORIES; m++)
    if (entry->memory[m])
      dnnl_memory_destroy(entry->memory[m]);
  petra_free(entry);
}

void cpu_convolutions_destroy(cpu_convolutions *c) {
  for (int b = 0; b < BUCKETS; b++)
    while (c->entries[b]) {
      conv_entry *entry = c->entries[b];
      c->entries[b] = entry->next;
      destroy_entry(entry);
    }
  if (c->attributes)
    dnnl_primitive_attr_destroy(c->attributes);
  if (c->stream)
    dnnl_stream_destroy(c->stream);
  if (c->engine)
    dnnl_engine_destroy(c->engine);
  petra_free(c);
}

/* --- making a primitive --- */

/* What oneDNN is told of an activation: channels with the zero lanes, so that for it there is no padding. */
static dnnl_status_t describe_activation(const petra_tensor *t, dnnl_memory_desc_t *out) {
  const cpu_layout *l = cpu_layout_of(t);
  dnnl_dims_t dims = {t->shape[0], (dnnl_dim_t)l->channel_blocks * l->block, t->shape[2], t->shape[3]};
  dnnl_format_tag_t tag = l->block == 16 ? dnnl_nChw16c : l->block == 8 ? dnnl_nChw8c : dnnl_nchw;
  return dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, tag);
}

static dnnl_status_t describe_filter(const petra_tensor *t, bool any, dnnl_memory_desc_t *out) {
  const cpu_layout *l = cpu_layout_of(t);
  dnnl_dims_t dims = {(dnnl_dim_t)l->out_blocks * l->block_out, (dnnl_dim_t)l->in_blocks * l->block_in, t->shape[2],
                      t->shape[3]};
  dnnl_format_tag_t tag = dnnl_oihw;
  if (any)
    tag = dnnl_format_tag_any;
  else if (l->block_out == 16)
    tag = l->block_in == 16 ? dnnl_OIhw16i16o : dnnl_Ohwi16o;
  else if (l->block_out == 8)
    tag = l->block_in == 8 ? dnnl_OIhw8i8o : dnnl_Ohwi8o;
  else if (l->block_in > 1)
    tag = l->block_in == 16 ? dnnl_aBcd16b : dnnl_aBcd8b;
  return dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, tag);
}

static dnnl_status_t make_memory(cpu_convolutions *c, const dnnl_memory_desc_t *description, int memory,
                                 conv_entry *entry) {
  entry->bytes[memory] = memory >= SCRATCHPAD ? dnnl_memory_desc_get_size(description) : 0;
  return dnnl_memory_create(&entry->memory[memory], description, c->engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_description(cpu_convolutions *c, const conv_key *key, const dnnl_memory_desc_t *x,
                                      const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *y,
                                      dnnl_primitive_desc_t *out) {
  const dnnl_alg_kind_t direct = dnnl_convolution_direct;
  const dnnl_dims_t strides = {key->stride, key->stride}, pads = {key->pad, key->pad};
  dnnl_convolution_desc_t forward, operation;
  TRY(dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training, direct, x, w, NULL, y, strides, pads, pads));
  if (key->operation == FORWARD)
    return dnnl_primitive_desc_create(out, &forward, c->attributes, c->engine, NULL);
  if (key->operation == BACKWARD_DATA)
    TRY(dnnl_convolution_backward_data_desc_init(&operation, direct, x, w, y, strides, pads, pads));
  else
    TRY(dnnl_convolution_backward_weights_desc_init(&operation, direct, x, w, NULL, y, strides, pads, pads));
  dnnl_primitive_desc_t hint;
  TRY(dnnl_primitive_desc_create(&hint, &forward, c->attributes, c->engine, NULL));
  dnnl_status_t status = dnnl_primitive_desc_create(out, &operation, c->attributes, c->engine, hint);
  dnnl_primitive_desc_destroy(hint);
  return status;
}

static dnnl_status_t make_reorder(cpu_convolutions *c, const dnnl_memory_desc_t *stored,
                                  const dnnl_memory_desc_t *wanted, conv_entry *entry) {
  const bool gradient = entry->key.operation == BACKWARD_FILTER;
  TRY(dnnl_reorder_primitive_desc_create(&entry->reorder_description, gradient ? wanted : stored, c->engine,
                                         gradient ? stored : wanted, c->engine, c->attributes));
  TRY(dnnl_primitive_create(&entry->reorder, entry->reorder_description));
  TRY(make_memory(c, dnnl_primitive_desc_query_md(entry->reorder_description, dnnl_query_scratchpad_md, 0),
                  REORDER_SCRATCHPAD, entry));
  return make_memory(c, wanted, W, entry);
}

/* After a failure what was made is in the entry as well. */
static dnnl_status_t make_entry(cpu_convolutions *c, const petra_tensor *x, const petra_tensor *w,
                                const petra_tensor *y, conv_entry *entry) {
  dnnl_memory_desc_t x_desc, y_desc, stored, any;
  TRY(describe_activation(x, &x_desc));
  TRY(describe_activation(y, &y_desc));
  TRY(describe_filter(w, false, &stored));
  TRY(describe_filter(w, true, &any));
  TRY(make_description(c, &entry->key, &x_desc, &any, &y_desc, &entry->description));
  TRY(dnnl_primitive_create(&entry->primitive, entry->description));
  TRY(make_memory(c, &x_desc, X, entry));
  TRY(make_memory(c, &y_desc, Y, entry));
  TRY(make_memory(c, &stored, STORED_W, entry));
  TRY(make_memory(c, dnnl_primitive_desc_query_md(entry->description, dnnl_query_scratchpad_md, 0), SCRATCHPAD, entry));
  const dnnl_query_t filter =
      entry->key.operation == BACKWARD_FILTER ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
  const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(entry->description, filter, 0);
  return dnnl_memory_desc_equal(&stored, wanted) ? dnnl_success : make_reorder(c, &stored, wanted, entry);
}

static unsigned hash_key(const conv_key *key) {
  const unsigned char *bytes = (const unsigned char *)key;
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < sizeof *key; i++)
    hash = (hash ^ bytes[i]) * 16777619u;
  return (hash ^ hash >> 16) % BUCKETS;
}

static petra_status find_entry(cpu_convolutions *c, conv_operation operation, const petra_conv_geometry *geometry,
                               const petra_tensor *x, const petra_tensor *w, const petra_tensor *y, conv_entry **out) {
  conv_key key = {.operation = operation, .stride = geometry->stride, .pad = geometry->pad};
  memcpy(key.x, x->shape, sizeof key.x);
  memcpy(key.w, w->shape, sizeof key.w);
  memcpy(key.y, y->shape, sizeof key.y);
  conv_entry **head = &c->entries[hash_key(&key)];
  for (conv_entry *entry = *head; entry; entry = entry->next)
    if (memcmp(&entry->key, &key, sizeof key) == 0) {
      *out = entry;
      return PETRA_OK;
    }
  conv_entry *entry;
  PETRA_TRY(petra_reserve(0));
  PETRA_TRY(petra_allocate(&entry, 1, sizeof *entry));
  entry->key = key;
  dnnl_status_t status = make_entry(c, x, w, y, entry);
  if (status != dnnl_success) {
    destroy_entry(entry);
    char what[160];
    snprintf(what, sizeof what, "no %s for x (%d, %d, %d, %d), filter (%d, %d, %d, %d), stride %d, pad %d",
             operation_names[operation], key.x[0], key.x[1], key.x[2], key.x[3], key.w[0], key.w[1], key.w[2], key.w[3],
             key.stride, key.pad);
    return library_error(status, what);
  }
  entry->next = *head;
  *head = entry;
  *out = entry;
  return PETRA_OK;
}

/* --- running it --- */

static size_t rounded(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

static dnnl_status_t run_reorder(cpu_convolutions *c, const conv_entry *entry) {
  const bool gradient = entry->key.operation == BACKWARD_FILTER;
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, entry->memory[gradient ? W : STORED_W]},
                                       {DNNL_ARG_TO, entry->memory[gradient ? STORED_W : W]},
                                       {DNNL_ARG_SCRATCHPAD, entry->memory[REORDER_SCRATCHPAD]}};
  return dnnl_primitive_execute(entry->reorder, c->stream, 3, arguments);
}

static dnnl_status_t run_primitive(cpu_convolutions *c, const conv_entry *entry) {
  static const int names[][3] = {[FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                 [BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                 [BACKWARD_FILTER] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  const int *name = names[entry->key.operation];
  const dnnl_exec_arg_t arguments[] = {{name[0], entry->memory[X]},
                                       {name[1], entry->memory[entry->reorder ? W : STORED_W]},
                                       {name[2], entry->memory[Y]},
                                       {DNNL_ARG_SCRATCHPAD, entry->memory[SCRATCHPAD]}};
  return dnnl_primitive_execute(entry->primitive, c->stream, 4, arguments);
}

/* `data`: of the memories, in their order. */
static dnnl_status_t run_entry(cpu_convolutions *c, const conv_entry *entry, void *const data[MEMORIES]) {
  for (int m = 0; m < MEMORIES; m++)
    if (entry->memory[m])
      TRY(dnnl_memory_set_data_handle(entry->memory[m], data[m]));
  if (entry->reorder && entry->key.operation != BACKWARD_FILTER)
    TRY(run_reorder(c, entry));
  TRY(run_primitive(c, entry));
  if (entry->reorder && entry->key.operation == BACKWARD_FILTER)
    TRY(run_reorder(c, entry));
  return dnnl_stream_wait(c->stream);
}

/* `out` is the one of x, w and y that the operation computes. */
static petra_status run(petra_backend *backend, conv_operation operation, const petra_conv_geometry *geometry,
                        const petra_tensor *x, const petra_tensor *w, const petra_tensor *y, petra_tensor *out) {
  cpu_convolutions *c = cpu_lane_of(backend)->convolutions;
  /* The number of threads belongs to the calling thread; primitives are made for it and must be run with it. */
  if (omp_get_max_threads() != backend->threads)
    omp_set_num_threads(backend->threads);
  conv_entry *entry = NULL;
  PETRA_TRY(find_entry(c, operation, geometry, x, w, y, &entry));
  void *scratch, *data[MEMORIES] = {[X] = x->data, [Y] = y->data, [STORED_W] = w->data};
  size_t total = 64;
  for (int m = SCRATCHPAD; m < MEMORIES; m++)
    total += rounded(entry->bytes[m]);
  PETRA_TRY(cpu_scratch(backend, total, &scratch));
  for (int m = SCRATCHPAD; m < MEMORIES; m++) {
    data[m] = scratch;
    scratch = (char *)scratch + rounded(entry->bytes[m]);
  }
  dnnl_status_t status = run_entry(c, entry, data);
  if (status != dnnl_success)
    return library_error(status, operation_names[operation]);
  cpu_clear_padding(out);
  return PETRA_OK;
}

petra_status cpu_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                              const petra_tensor *w, petra_tensor *y) {
  return run(backend, FORWARD, geometry, x, w, y, y);
}

petra_status cpu_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *w, petra_tensor *dx) {
  return run(backend, BACKWARD_DATA, geometry, dx, w, dy, dx);
}

petra_status cpu_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                      const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  return run(backend, BACKWARD_FILTER, geometry, x, dw, dy, dw);
}
