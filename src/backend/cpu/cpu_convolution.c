/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions, and the primitives of oneDNN that compute them and, in bf16, linear maps. */
#include "backend/cpu/onednn.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct primitive_key {
  int32_t pass, stride, pad, adds, biased, w_kind;
  int32_t x_narrow, y_narrow; /* backward data may return either type, and so may the forward of a linear map */
  int32_t x[4], w[4], y[4];   /* logical shapes; the layouts follow from them */
} primitive_key;

struct cpu_primitive_entry {
  primitive_key key;
  cpu_primitive *primitive;
  cpu_primitive_entry *next;
};

void cpu_primitives_destroy(cpu_lane *lane) {
  for (cpu_primitive_entry *entry = lane->primitives, *next; entry; entry = next) {
    next = entry->next;
    cpu_primitive_destroy(entry->primitive);
    petra_free(entry);
  }
}

/* --- finding a primitive --- */

/* x or y */
static cpu_onednn_memory describe_data(const cpu_backend *cpu, const petra_tensor *t) {
  const cpu_layout *l = cpu_layout_of(t);
  if (petra_kind_is_sequence(t->kind))
    return (cpu_onednn_memory){
        .extent = {petra_tensor_rows(t), petra_tensor_columns(t)}, .layout = dnnl_ab, .narrow = l->narrow};
  cpu_onednn_memory m = {.extent = {t->shape[0], (int64_t)l->channel_blocks * l->block, t->shape[2], t->shape[3]},
                         .layout = dnnl_nchw,
                         .narrow = l->narrow};
  if (cpu->channels_last)
    m.layout = dnnl_nhwc;
  else if (l->block > 1)
    m.layout = l->block == 16 ? dnnl_nChw16c : dnnl_nChw8c;
  return m;
}

static cpu_onednn_memory describe_weights(const petra_tensor *t) {
  const cpu_layout *l = cpu_layout_of(t);
  if (t->kind == PETRA_TENSOR_MATRIX)
    return (cpu_onednn_memory){.extent = {t->shape[0], t->shape[1]}, .layout = dnnl_ab};
  cpu_onednn_memory m = {
      .extent = {(int64_t)l->out_blocks * l->block_out, (int64_t)l->in_blocks * l->block_in, t->shape[2], t->shape[3]},
      .layout = dnnl_oihw};
  if (l->block_out == 16)
    m.layout = l->block_in == 16 ? dnnl_OIhw16i16o : dnnl_Ohwi16o;
  else if (l->block_out == 8)
    m.layout = l->block_in == 8 ? dnnl_OIhw8i8o : dnnl_Ohwi8o;
  else if (l->block_in > 1) /* only the input channels are blocked */
    m.layout = l->block_in == 16 ? dnnl_aBcd16b : dnnl_aBcd8b;
  return m;
}

static petra_status make(petra_backend *backend, const cpu_primitive_task *task, cpu_primitive **out) {
  static const char *const convolutions[] = {"conv_forward", "conv_backward_data", "conv_backward_filter"};
  static const char *const linear[] = {"linear_forward", "linear_backward_data", "linear_backward_weights"};
  const cpu_backend *cpu = cpu_of(backend);
  const int32_t *x = task->x->shape, *w = task->w->shape;
  const cpu_onednn_shape shape = {.pass = task->pass,
                                  .stride = task->geometry.stride,
                                  .pad = task->geometry.pad,
                                  .adds = task->adds,
                                  .biased = task->b != NULL,
                                  .x = describe_data(cpu, task->x),
                                  .w = describe_weights(task->w),
                                  .y = describe_data(cpu, task->y)};
  char what[160];
  if (task->w->kind == PETRA_TENSOR_MATRIX)
    snprintf(what, sizeof what, "no %s for x (%d, %d, %d), weights (%d, %d)", linear[task->pass], x[0], x[1], x[2],
             w[0], w[1]);
  else
    snprintf(what, sizeof what, "no %s for x (%d, %d, %d, %d), filter (%d, %d, %d, %d), stride %d, pad %d",
             convolutions[task->pass], x[0], x[1], x[2], x[3], w[0], w[1], w[2], w[3], task->geometry.stride,
             task->geometry.pad);
  return cpu_primitive_create(cpu_lane_of(backend)->library, &shape, what, out);
}

static petra_status find(petra_backend *backend, const cpu_primitive_task *task, cpu_primitive **out) {
  primitive_key key = {.pass = (int32_t)task->pass,
                       .stride = task->geometry.stride,
                       .pad = task->geometry.pad,
                       .adds = task->adds,
                       .biased = task->b != NULL,
                       .w_kind = (int32_t)task->w->kind,
                       .x_narrow = cpu_layout_of(task->x)->narrow,
                       .y_narrow = cpu_layout_of(task->y)->narrow};
  memcpy(key.x, task->x->shape, sizeof key.x);
  memcpy(key.w, task->w->shape, sizeof key.w);
  memcpy(key.y, task->y->shape, sizeof key.y);
  cpu_lane *lane = cpu_lane_of(backend);
  for (cpu_primitive_entry *entry = lane->primitives; entry; entry = entry->next)
    if (memcmp(&entry->key, &key, sizeof key) == 0) {
      *out = entry->primitive;
      return PETRA_OK;
    }
  PETRA_FREED cpu_primitive_entry *entry = NULL;
  PETRA_TRY(petra_reserve(0));
  PETRA_TRY(petra_allocate(&entry, 1, sizeof *entry));
  entry->key = key;
  PETRA_TRY(make(backend, task, &entry->primitive));
  *out = entry->primitive;
  entry->next = lane->primitives;
  lane->primitives = entry;
  entry = NULL;
  return PETRA_OK;
}

/* --- using a primitive --- */

/* Makes the shadow, or finds it. If *out is NULL, there is a shadow for a primitive that requires another layout, and
 * this shadow may be in use. */
static petra_status make_shadow(petra_backend *backend, const cpu_primitive *primitive, const petra_tensor *w,
                                cpu_shadow *shadow, void *scratch, void **out) {
  cpu_layout *layout = w->layout;
  const size_t bytes = cpu_primitive_wanted(primitive);
  if (!layout->shadowed)
    layout->shadow[0].owner = layout->shadow[1].owner = NULL;
  if (shadow->owner) {
    *out = cpu_primitive_want_same(shadow->owner, primitive) ? shadow->data : NULL;
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
  PETRA_TRY(cpu_primitive_prepare(cpu_lane_of(backend)->library, primitive, w->data, shadow->data, scratch));
  shadow->owner = primitive;
  layout->shadowed = true;
  *out = shadow->data;
  return PETRA_OK;
}

/* Gets the weights in the form that the primitive requires; they are converted anew if they were written since. If *out
 * is NULL, each use converts them; this is so in fp32, because most convolutions take filters as they are stored.
 * Several lanes may read the weights at the same time, as in an evaluation; no lane reads them while they are
 * written. */
static petra_status find_shadow(petra_backend *backend, cpu_pass pass, const cpu_primitive *primitive,
                                const petra_tensor *w, void *scratch, void **out) {
  cpu_backend *cpu = cpu_of(backend);
  cpu_layout *layout = w->layout;
  *out = NULL;
  if (pass == CPU_BACKWARD_WEIGHTS || !cpu->channels_last || cpu_primitive_wanted(primitive) == 0)
    return PETRA_OK;
  pthread_mutex_lock(&cpu->shadows);
  petra_status status = make_shadow(backend, primitive, w, &layout->shadow[pass == CPU_FORWARD ? 0 : 1], scratch, out);
  pthread_mutex_unlock(&cpu->shadows);
  return status;
}

petra_status cpu_primitive_do(petra_backend *backend, const cpu_primitive_task *task, petra_tensor *out) {
  cpu_use_threads(backend); /* primitives are made for this number and must run with it */
  cpu_primitive *primitive = NULL;
  void *scratch, *wanted;
  PETRA_TRY(find(backend, task, &primitive));
  PETRA_TRY(cpu_scratch(backend, cpu_primitive_scratch(primitive), &scratch));
  PETRA_TRY(find_shadow(backend, task->pass, primitive, task->w, scratch, &wanted));
  cpu_touch(out);
  const cpu_primitive_data data = {.x = task->x->data,
                                   .w = task->w->data,
                                   .y = task->y->data,
                                   .b = task->b ? task->b->data : NULL,
                                   .wanted = wanted,
                                   .scratch = scratch};
  PETRA_TRY(cpu_primitive_run(cpu_lane_of(backend)->library, primitive, &data));
  cpu_clear_padding(out);
  return PETRA_OK;
}

/* --- the operations of convolutions --- */

petra_status cpu_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                              const petra_tensor *w, petra_tensor *y) {
  return cpu_primitive_do(backend,
                          &(cpu_primitive_task){.pass = CPU_FORWARD, .geometry = *geometry, .x = x, .w = w, .y = y}, y);
}

petra_status cpu_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *w, const petra_tensor *addend, petra_tensor *dx) {
  PETRA_TRY(cpu_primitive_do(
      backend, &(cpu_primitive_task){.pass = CPU_BACKWARD_DATA, .geometry = *geometry, .x = dx, .w = w, .y = dy}, dx));
  return addend ? cpu_add(backend, dx, addend, dx) : PETRA_OK;
}

petra_status cpu_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                      const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  return cpu_primitive_do(
      backend, &(cpu_primitive_task){.pass = CPU_BACKWARD_WEIGHTS, .geometry = *geometry, .x = x, .w = dw, .y = dy},
      dw);
}
