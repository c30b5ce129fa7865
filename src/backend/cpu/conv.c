/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: those of oneDNN (onednn.h), made once per operation, shape and geometry and kept in the handle. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/onednn.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { BUCKETS = 256 };

typedef struct conv_key {
  int32_t operation, stride, pad;
  int32_t x_narrow;         /* backward_data gives either */
  int32_t x[4], w[4], y[4]; /* logical shapes; the layouts follow from them */
} conv_key;

typedef struct conv_entry {
  conv_key key;
  cpu_onednn_conv *conv;
  struct conv_entry *next;
} conv_entry;

struct cpu_convolutions {
  cpu_onednn *library;
  conv_entry *entries[BUCKETS];
};

petra_status cpu_convolutions_create(cpu_convolutions **out) {
  cpu_convolutions *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  petra_status status = cpu_onednn_create(&c->library);
  if (status != PETRA_OK) {
    petra_free(c);
    return status;
  }
  *out = c;
  return PETRA_OK;
}

void cpu_convolutions_destroy(cpu_convolutions *c) {
  for (int b = 0; b < BUCKETS; b++)
    while (c->entries[b]) {
      conv_entry *entry = c->entries[b];
      c->entries[b] = entry->next;
      cpu_onednn_conv_destroy(entry->conv);
      petra_free(entry);
    }
  cpu_onednn_destroy(c->library);
  petra_free(c);
}

/* --- finding one --- */

static cpu_onednn_memory describe_activation(const cpu_backend *cpu, const petra_tensor *t) {
  const cpu_layout *l = cpu_layout_of(t);
  cpu_onednn_memory m = {.extent = {t->shape[0], (int64_t)l->channel_blocks * l->block, t->shape[2], t->shape[3]},
                         .layout = CPU_ONEDNN_NCHW,
                         .narrow = l->narrow};
  if (cpu->channels_last)
    m.layout = CPU_ONEDNN_NHWC;
  else if (l->block > 1)
    m.layout = l->block == 16 ? CPU_ONEDNN_NCHW16C : CPU_ONEDNN_NCHW8C;
  return m;
}

static cpu_onednn_memory describe_filter(const petra_tensor *t) {
  const cpu_layout *l = cpu_layout_of(t);
  cpu_onednn_memory m = {
      .extent = {(int64_t)l->out_blocks * l->block_out, (int64_t)l->in_blocks * l->block_in, t->shape[2], t->shape[3]},
      .layout = CPU_ONEDNN_OIHW};
  if (l->block_out == 16)
    m.layout = l->block_in == 16 ? CPU_ONEDNN_OIHW16I16O : CPU_ONEDNN_OHWI16O;
  else if (l->block_out == 8)
    m.layout = l->block_in == 8 ? CPU_ONEDNN_OIHW8I8O : CPU_ONEDNN_OHWI8O;
  else if (l->block_in > 1)
    m.layout = l->block_in == 16 ? CPU_ONEDNN_OIHW16O : CPU_ONEDNN_OIHW8O;
  return m;
}

static unsigned hash_key(const conv_key *key) {
  const unsigned char *bytes = (const unsigned char *)key;
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < sizeof *key; i++)
    hash = (hash ^ bytes[i]) * 16777619u;
  return (hash ^ hash >> 16) % BUCKETS;
}

static petra_status make_conv(petra_backend *backend, const conv_key *key, const petra_tensor *x, const petra_tensor *w,
                              const petra_tensor *y, cpu_onednn_conv **out) {
  static const char *const names[] = {"conv_forward", "conv_backward_data", "conv_backward_filter"};
  const cpu_backend *cpu = cpu_of(backend);
  const cpu_onednn_shape shape = {.operation = (cpu_conv_operation)key->operation,
                                  .stride = key->stride,
                                  .pad = key->pad,
                                  .x = describe_activation(cpu, x),
                                  .w = describe_filter(w),
                                  .y = describe_activation(cpu, y)};
  char what[160];
  snprintf(what, sizeof what, "no %s for x (%d, %d, %d, %d), filter (%d, %d, %d, %d), stride %d, pad %d",
           names[key->operation], key->x[0], key->x[1], key->x[2], key->x[3], key->w[0], key->w[1], key->w[2],
           key->w[3], key->stride, key->pad);
  return cpu_onednn_conv_create(cpu_lane_of(backend)->convolutions->library, &shape, what, out);
}

static petra_status find_conv(petra_backend *backend, cpu_conv_operation operation, const petra_conv_geometry *geometry,
                              const petra_tensor *x, const petra_tensor *w, const petra_tensor *y,
                              cpu_onednn_conv **out) {
  conv_key key = {.operation = (int32_t)operation,
                  .stride = geometry->stride,
                  .pad = geometry->pad,
                  .x_narrow = cpu_layout_of(x)->narrow};
  memcpy(key.x, x->shape, sizeof key.x);
  memcpy(key.w, w->shape, sizeof key.w);
  memcpy(key.y, y->shape, sizeof key.y);
  conv_entry **head = &cpu_lane_of(backend)->convolutions->entries[hash_key(&key)];
  for (conv_entry *entry = *head; entry; entry = entry->next)
    if (memcmp(&entry->key, &key, sizeof key) == 0) {
      *out = entry->conv;
      return PETRA_OK;
    }
  conv_entry *entry;
  PETRA_TRY(petra_reserve(0));
  PETRA_TRY(petra_allocate(&entry, 1, sizeof *entry));
  entry->key = key;
  petra_status status = make_conv(backend, &key, x, w, y, &entry->conv);
  if (status != PETRA_OK) {
    petra_free(entry);
    return status;
  }
  entry->next = *head;
  *head = entry;
  *out = entry->conv;
  return PETRA_OK;
}

/* --- the operations --- */

/* Makes the shadow, or finds that it is there; *out NULL: what is there is for a convolution that wants another layout, and may
 * be in use. */
static petra_status make_shadow(petra_backend *backend, const cpu_onednn_conv *conv, const petra_tensor *w,
                                cpu_shadow *shadow, void *scratch, void **out) {
  const cpu_convolutions *convolutions = cpu_lane_of(backend)->convolutions;
  cpu_layout *layout = w->layout;
  const size_t bytes = cpu_onednn_conv_wanted(conv);
  if (!layout->shadowed)
    layout->shadow[0].owner = layout->shadow[1].owner = NULL;
  if (shadow->owner) {
    *out = cpu_onednn_conv_want_same(shadow->owner, conv) ? shadow->data : NULL;
    return PETRA_OK;
  }
  if (shadow->bytes != bytes) {
    petra_free(shadow->data);
    cpu_of(backend)->shadow_bytes -= (int64_t)shadow->bytes;
    *shadow = (cpu_shadow){0};
    PETRA_TRY(petra_allocate_raw(&shadow->data, bytes, 1));
    shadow->bytes = bytes;
    cpu_of(backend)->shadow_bytes += (int64_t)bytes;
  }
  PETRA_TRY(cpu_onednn_conv_prepare(convolutions->library, conv, w->data, shadow->data, scratch));
  shadow->owner = conv;
  layout->shadowed = true;
  *out = shadow->data;
  return PETRA_OK;
}

/* The filter as the convolution wants it, made again where it was written since; *out NULL: it is made at each use. That is
 * so in fp32, where most convolutions take filters as they are stored. Several lanes may read a filter at the same time, as
 * those of an evaluation do; none does while it is written. */
static petra_status find_shadow(petra_backend *backend, cpu_conv_operation operation, const cpu_onednn_conv *conv,
                                const petra_tensor *w, void *scratch, void **out) {
  cpu_backend *cpu = cpu_of(backend);
  cpu_layout *layout = w->layout;
  *out = NULL;
  if (operation == CPU_CONV_BACKWARD_FILTER || !cpu->channels_last || cpu_onednn_conv_wanted(conv) == 0)
    return PETRA_OK;
  pthread_mutex_lock(&cpu->shadows);
  petra_status status =
      make_shadow(backend, conv, w, &layout->shadow[operation == CPU_CONV_FORWARD ? 0 : 1], scratch, out);
  pthread_mutex_unlock(&cpu->shadows);
  return status;
}

/* `out` is the one of x, w and y that the operation computes. */
static petra_status run(petra_backend *backend, cpu_conv_operation operation, const petra_conv_geometry *geometry,
                        const petra_tensor *x, const petra_tensor *w, const petra_tensor *y, petra_tensor *out) {
  const cpu_convolutions *convolutions = cpu_lane_of(backend)->convolutions;
  cpu_use_threads(backend); /* primitives are made for it and must be run with it */
  cpu_onednn_conv *conv = NULL;
  void *scratch, *wanted;
  PETRA_TRY(find_conv(backend, operation, geometry, x, w, y, &conv));
  PETRA_TRY(cpu_scratch(backend, cpu_onednn_conv_scratch(conv), &scratch));
  PETRA_TRY(find_shadow(backend, operation, conv, w, scratch, &wanted));
  cpu_touch(out);
  PETRA_TRY(cpu_onednn_conv_run(convolutions->library, conv, x->data, w->data, wanted, y->data, scratch));
  cpu_clear_padding(out);
  return PETRA_OK;
}

petra_status cpu_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                              const petra_tensor *w, petra_tensor *y) {
  return run(backend, CPU_CONV_FORWARD, geometry, x, w, y, y);
}

petra_status cpu_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *w, petra_tensor *dx) {
  return run(backend, CPU_CONV_BACKWARD_DATA, geometry, dx, w, dy, dx);
}

petra_status cpu_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                      const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  return run(backend, CPU_CONV_BACKWARD_FILTER, geometry, x, dw, dy, dw);
}
