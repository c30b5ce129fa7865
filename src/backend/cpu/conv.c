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

typedef struct conv_entry {
  conv_key key;
  dnnl_primitive_t primitive;
  dnnl_primitive_t reorder; /* between the filter as stored and as the primitive wants it; NULL: the same */
  dnnl_memory_t x, y, w, stored_w, scratchpad, reorder_scratchpad;
  size_t w_bytes, scratchpad_bytes, reorder_scratchpad_bytes; /* all in scratch memory; w_bytes 0: used in place */
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

petra_status cpu_convolutions_create(cpu_convolutions **out) {
  cpu_convolutions *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  dnnl_status_t status = dnnl_engine_create(&c->engine, dnnl_cpu, 0);
  if (status == dnnl_success)
    status = dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags);
  if (status == dnnl_success)
    status = dnnl_primitive_attr_create(&c->attributes);
  if (status == dnnl_success)
    status = dnnl_primitive_attr_set_scratchpad_mode(c->attributes, dnnl_scratchpad_mode_user);
  if (status != dnnl_success) {
    cpu_convolutions_destroy(c);
    return library_error(status, "no CPU engine");
  }
  *out = c;
  return PETRA_OK;
}

static void destroy_memory(dnnl_memory_t memory) {
  if (memory)
    dnnl_memory_destroy(memory);
}

static void destroy_entry(conv_entry *entry) {
  if (entry->primitive)
    dnnl_primitive_destroy(entry->primitive);
  if (entry->reorder)
    dnnl_primitive_destroy(entry->reorder);
  destroy_memory(entry->x);
  destroy_memory(entry->y);
  destroy_memory(entry->w);
  destroy_memory(entry->stored_w);
  destroy_memory(entry->scratchpad);
  destroy_memory(entry->reorder_scratchpad);
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

static dnnl_status_t make_memory(cpu_convolutions *c, const_dnnl_primitive_desc_t description, dnnl_query_t what,
                                 dnnl_memory_t *out, size_t *bytes) {
  const dnnl_memory_desc_t *memory = dnnl_primitive_desc_query_md(description, what, 0);
  if (bytes)
    *bytes = dnnl_memory_desc_get_size(memory);
  return dnnl_memory_create(out, memory, c->engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_descriptor(cpu_convolutions *c, const conv_key *key, const dnnl_memory_desc_t *x,
                                     const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *y,
                                     dnnl_primitive_desc_t *out) {
  const dnnl_dims_t strides = {key->stride, key->stride}, pads = {key->pad, key->pad};
  dnnl_convolution_desc_t forward, operation;
  dnnl_status_t status = dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training, dnnl_convolution_direct, x,
                                                            w, NULL, y, strides, pads, pads);
  if (status != dnnl_success)
    return status;
  if (key->operation == FORWARD)
    return dnnl_primitive_desc_create(out, &forward, c->attributes, c->engine, NULL);
  if (key->operation == BACKWARD_DATA)
    status =
        dnnl_convolution_backward_data_desc_init(&operation, dnnl_convolution_direct, x, w, y, strides, pads, pads);
  else
    status = dnnl_convolution_backward_weights_desc_init(&operation, dnnl_convolution_direct, x, w, NULL, y, strides,
                                                         pads, pads);
  dnnl_primitive_desc_t hint;
  if (status == dnnl_success)
    status = dnnl_primitive_desc_create(&hint, &forward, c->attributes, c->engine, NULL);
  if (status != dnnl_success)
    return status;
  status = dnnl_primitive_desc_create(out, &operation, c->attributes, c->engine, hint);
  dnnl_primitive_desc_destroy(hint);
  return status;
}

/* A reorder of the filter, when the primitive wants it otherwise than it is stored. */
static dnnl_status_t make_reorder(cpu_convolutions *c, const dnnl_memory_desc_t *stored,
                                  const dnnl_memory_desc_t *wanted, conv_entry *entry) {
  dnnl_status_t status = dnnl_memory_create(&entry->stored_w, stored, c->engine, DNNL_MEMORY_NONE);
  if (status != dnnl_success || dnnl_memory_desc_equal(stored, wanted))
    return status;
  bool gradient = entry->key.operation == BACKWARD_FILTER;
  dnnl_primitive_desc_t description;
  status = dnnl_reorder_primitive_desc_create(&description, gradient ? wanted : stored, c->engine,
                                              gradient ? stored : wanted, c->engine, c->attributes);
  if (status != dnnl_success)
    return status;
  status = dnnl_primitive_create(&entry->reorder, description);
  if (status == dnnl_success)
    status = make_memory(c, description, dnnl_query_scratchpad_md, &entry->reorder_scratchpad,
                         &entry->reorder_scratchpad_bytes);
  dnnl_primitive_desc_destroy(description);
  if (status == dnnl_success)
    status = dnnl_memory_create(&entry->w, wanted, c->engine, DNNL_MEMORY_NONE);
  entry->w_bytes = dnnl_memory_desc_get_size(wanted);
  return status;
}

static dnnl_status_t make_entry(cpu_convolutions *c, const petra_tensor *x, const petra_tensor *w,
                                const petra_tensor *y, conv_entry *entry) {
  dnnl_memory_desc_t x_desc, y_desc, stored, any;
  dnnl_primitive_desc_t description;
  dnnl_status_t status = describe_activation(x, &x_desc);
  if (status == dnnl_success)
    status = describe_activation(y, &y_desc);
  if (status == dnnl_success)
    status = describe_filter(w, false, &stored);
  if (status == dnnl_success)
    status = describe_filter(w, true, &any);
  if (status == dnnl_success)
    status = make_descriptor(c, &entry->key, &x_desc, &any, &y_desc, &description);
  if (status != dnnl_success)
    return status;
  bool gradient = entry->key.operation == BACKWARD_FILTER;
  const dnnl_memory_desc_t *wanted =
      dnnl_primitive_desc_query_md(description, gradient ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  status = dnnl_primitive_create(&entry->primitive, description);
  if (status == dnnl_success)
    status = dnnl_memory_create(&entry->x, &x_desc, c->engine, DNNL_MEMORY_NONE);
  if (status == dnnl_success)
    status = dnnl_memory_create(&entry->y, &y_desc, c->engine, DNNL_MEMORY_NONE);
  if (status == dnnl_success)
    status = make_memory(c, description, dnnl_query_scratchpad_md, &entry->scratchpad, &entry->scratchpad_bytes);
  if (status == dnnl_success)
    status = make_reorder(c, &stored, wanted, entry);
  dnnl_primitive_desc_destroy(description);
  return status;
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
  bool gradient = entry->key.operation == BACKWARD_FILTER;
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, gradient ? entry->w : entry->stored_w},
                                       {DNNL_ARG_TO, gradient ? entry->stored_w : entry->w},
                                       {DNNL_ARG_SCRATCHPAD, entry->reorder_scratchpad}};
  return dnnl_primitive_execute(entry->reorder, c->stream, 3, arguments);
}

static dnnl_status_t run_primitive(cpu_convolutions *c, const conv_entry *entry) {
  static const int names[][3] = {[FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                 [BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                 [BACKWARD_FILTER] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  const int *name = names[entry->key.operation];
  const dnnl_exec_arg_t arguments[] = {{name[0], entry->x},
                                       {name[1], entry->reorder ? entry->w : entry->stored_w},
                                       {name[2], entry->y},
                                       {DNNL_ARG_SCRATCHPAD, entry->scratchpad}};
  return dnnl_primitive_execute(entry->primitive, c->stream, 4, arguments);
}

static petra_status run(petra_backend *backend, conv_operation operation, const petra_conv_geometry *geometry,
                        const petra_tensor *x, const petra_tensor *w, const petra_tensor *y) {
  cpu_convolutions *c = cpu_of(backend)->convolutions;
  /* The number of threads belongs to the calling thread; primitives are made for it and must be run with it.
   */
  if (omp_get_max_threads() != backend->threads)
    omp_set_num_threads(backend->threads);
  conv_entry *entry = NULL;
  PETRA_TRY(find_entry(c, operation, geometry, x, w, y, &entry));
  size_t pads = rounded(entry->scratchpad_bytes), reorder_pads = rounded(entry->reorder_scratchpad_bytes);
  void *memory;
  PETRA_TRY(cpu_scratch(backend, pads + reorder_pads + rounded(entry->w_bytes) + 64, &memory));
  char *scratch = memory;
  dnnl_status_t status = dnnl_memory_set_data_handle(entry->x, x->data);
  if (status == dnnl_success)
    status = dnnl_memory_set_data_handle(entry->y, y->data);
  if (status == dnnl_success)
    status = dnnl_memory_set_data_handle(entry->stored_w, w->data);
  if (status == dnnl_success)
    status = dnnl_memory_set_data_handle(entry->scratchpad, scratch);
  if (status == dnnl_success && entry->reorder) {
    status = dnnl_memory_set_data_handle(entry->reorder_scratchpad, scratch + pads);
    if (status == dnnl_success)
      status = dnnl_memory_set_data_handle(entry->w, scratch + pads + reorder_pads);
    if (status == dnnl_success && operation != BACKWARD_FILTER)
      status = run_reorder(c, entry);
  }
  if (status == dnnl_success)
    status = run_primitive(c, entry);
  if (status == dnnl_success && entry->reorder && operation == BACKWARD_FILTER)
    status = run_reorder(c, entry);
  if (status == dnnl_success)
    status = dnnl_stream_wait(c->stream);
  return status == dnnl_success ? PETRA_OK : library_error(status, operation_names[operation]);
}

petra_status cpu_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                              const petra_tensor *w, petra_tensor *y) {
  PETRA_TRY(run(backend, FORWARD, geometry, x, w, y));
  cpu_clear_padding(y);
  return PETRA_OK;
}

petra_status cpu_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *w, petra_tensor *dx) {
  PETRA_TRY(run(backend, BACKWARD_DATA, geometry, dx, w, dy));
  cpu_clear_padding(dx);
  return PETRA_OK;
}

petra_status cpu_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                      const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  PETRA_TRY(run(backend, BACKWARD_FILTER, geometry, x, dw, dy));
  cpu_clear_padding(dw);
  return PETRA_OK;
}
