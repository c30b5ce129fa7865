/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/onednn.h"
#include "backend/cpu/product.h"

#include "base/log.h"
#include "base/mem.h"

#include "backend/cpu/onednn_version.h"

#include <oneapi/dnnl/dnnl_debug.h>

#include <stdio.h>
#include <string.h>

/* The memories of a convolution, and of its reorder: the filter as the primitive wants it, and another scratchpad. */
enum { X, Y, STORED_W, SCRATCHPAD, W, REORDER_SCRATCHPAD, MEMORIES };

struct cpu_onednn {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_attr_t attributes; /* scratchpads are given by the caller */
};

struct cpu_onednn_conv {
  cpu_conv_operation operation;
  dnnl_primitive_desc_t description, reorder_description;
  dnnl_primitive_t primitive;
  dnnl_primitive_t reorder; /* between the filter as stored and as the primitive wants it; NULL: the same */
  dnnl_memory_t memory[MEMORIES];
  size_t bytes[MEMORIES]; /* of those that lie in scratch memory, from SCRATCHPAD on; 0: not there */
};

static petra_status library_error(dnnl_status_t status, const char *what) {
  if (status == dnnl_out_of_memory)
    return petra_fail(PETRA_NO_MEMORY, "out of memory: oneDNN, %s", what);
  return petra_fail(PETRA_BACKEND, "oneDNN failed: %s: %s", what, dnnl_status2str(status));
}

/* --- machine --- */

static bool has(unsigned isa) {
  return ((unsigned)dnnl_get_effective_cpu_isa() & isa) == isa;
}

int cpu_onednn_block(void) {
  return has(dnnl_cpu_isa_avx512_core) ? 16 : 8;
}

bool cpu_onednn_has_bf16(void) {
  return has(dnnl_cpu_isa_avx512_core_bf16);
}

void cpu_onednn_describe(char *text, size_t size) {
  const dnnl_version_t *version = dnnl_version();
  const char *isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  const char prefix[] = "cpu_isa_";
  if (strncmp(isa, prefix, sizeof prefix - 1) == 0)
    isa += sizeof prefix - 1;
  snprintf(text, size, "oneDNN %d.%d.%d, ISA %s", version->major, version->minor, version->patch, isa);
}

/* --- library --- */

static dnnl_status_t make_engine(cpu_onednn *c) {
  TRY(dnnl_engine_create(&c->engine, dnnl_cpu, 0));
  TRY(dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags));
  TRY(dnnl_primitive_attr_create(&c->attributes));
  return dnnl_primitive_attr_set_scratchpad_mode(c->attributes, dnnl_scratchpad_mode_user);
}

petra_status cpu_onednn_create(cpu_onednn **out) {
  cpu_onednn *c;
  PETRA_TRY(petra_allocate(&c, 1, sizeof *c));
  dnnl_status_t status = make_engine(c);
  if (status != dnnl_success) {
    cpu_onednn_destroy(c);
    return library_error(status, "no CPU engine");
  }
  *out = c;
  return PETRA_OK;
}

void cpu_onednn_destroy(cpu_onednn *c) {
  if (!c)
    return;
  if (c->attributes)
    dnnl_primitive_attr_destroy(c->attributes);
  if (c->stream)
    dnnl_stream_destroy(c->stream);
  if (c->engine)
    dnnl_engine_destroy(c->engine);
  petra_free(c);
}

/* --- products --- */

petra_status cpu_onednn_product(const cpu_product *p) {
  const dnnl_status_t status = dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k,
                                          p->alpha, p->a, p->step_a, p->b, p->step_b, p->beta, p->c, p->step_c);
  return status == dnnl_success ? PETRA_OK : library_error(status, "a product of matrices");
}

/* --- making a convolution --- */

/* x, w and y as oneDNN is told of them; in the order of the operation's arguments. */
typedef struct described {
  onednn_description x, w, y;
} described;

static void forget(described *d) {
  onednn_forget(d->x);
  onednn_forget(d->w);
  onednn_forget(d->y);
}

static dnnl_status_t describe(const cpu_onednn_memory *m, bool any, bool narrow, onednn_description *out) {
  static const dnnl_format_tag_t tags[] = {[CPU_ONEDNN_NCHW] = dnnl_nchw,
                                           [CPU_ONEDNN_NHWC] = dnnl_nhwc,
                                           [CPU_ONEDNN_NCHW8C] = dnnl_nChw8c,
                                           [CPU_ONEDNN_NCHW16C] = dnnl_nChw16c,
                                           [CPU_ONEDNN_OIHW] = dnnl_oihw,
                                           [CPU_ONEDNN_OIHW8I8O] = dnnl_OIhw8i8o,
                                           [CPU_ONEDNN_OHWI8O] = dnnl_Ohwi8o,
                                           [CPU_ONEDNN_OIHW8O] = dnnl_aBcd8b,
                                           [CPU_ONEDNN_OIHW16I16O] = dnnl_OIhw16i16o,
                                           [CPU_ONEDNN_OHWI16O] = dnnl_Ohwi16o,
                                           [CPU_ONEDNN_OIHW16O] = dnnl_aBcd16b};
  const dnnl_dims_t dims = {m->extent[0], m->extent[1], m->extent[2], m->extent[3]};
  return onednn_describe(dims, narrow ? dnnl_bf16 : dnnl_f32, any ? dnnl_format_tag_any : tags[m->layout], out);
}

static dnnl_status_t make_memory(cpu_onednn *c, onednn_description description, int memory, cpu_onednn_conv *conv) {
  conv->bytes[memory] = memory >= SCRATCHPAD ? dnnl_memory_desc_get_size(description) : 0;
  return dnnl_memory_create(&conv->memory[memory], description, c->engine, DNNL_MEMORY_NONE);
}

/* The description of the convolution; after a failure what was made is in `d` as well. */
static dnnl_status_t describe_conv(cpu_onednn *c, const cpu_onednn_shape *shape, cpu_conv_operation operation,
                                   dnnl_primitive_desc_t hint, described *d, dnnl_primitive_desc_t *out) {
  const bool narrow = shape->y.narrow, forward = operation == CPU_CONV_FORWARD;
  TRY(describe(&shape->x, false, forward ? narrow : shape->x.narrow, &d->x));
  TRY(describe(&shape->w, true, narrow && operation != CPU_CONV_BACKWARD_FILTER, &d->w));
  TRY(describe(&shape->y, false, narrow, &d->y));
  const onednn_conv conv = {operation, shape->stride, shape->pad, d->x, d->w, d->y, hint};
  return onednn_describe_conv(c->engine, c->attributes, &conv, out);
}

static dnnl_status_t describe_operation(cpu_onednn *c, const cpu_onednn_shape *shape, cpu_conv_operation operation,
                                        dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
  described d = {0};
  dnnl_status_t status = describe_conv(c, shape, operation, hint, &d, out);
  forget(&d);
  return status;
}

/* With the description of a forward pass those of the two others are made. */
static dnnl_status_t make_description(cpu_onednn *c, const cpu_onednn_shape *shape, dnnl_primitive_desc_t *out) {
  dnnl_primitive_desc_t hint;
  if (shape->operation == CPU_CONV_FORWARD)
    return describe_operation(c, shape, CPU_CONV_FORWARD, NULL, out);
  TRY(describe_operation(c, shape, CPU_CONV_FORWARD, NULL, &hint));
  dnnl_status_t status = describe_operation(c, shape, shape->operation, hint, out);
  dnnl_primitive_desc_destroy(hint);
  return status;
}

static onednn_description wanted_by(const cpu_onednn_conv *conv) {
  return dnnl_primitive_desc_query_md(
      conv->description,
      conv->operation == CPU_CONV_BACKWARD_FILTER ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
}

static dnnl_status_t make_reorder(cpu_onednn *c, onednn_description stored, onednn_description wanted,
                                  cpu_onednn_conv *conv) {
  const bool gradient = conv->operation == CPU_CONV_BACKWARD_FILTER;
  TRY(dnnl_reorder_primitive_desc_create(&conv->reorder_description, gradient ? wanted : stored, c->engine,
                                         gradient ? stored : wanted, c->engine, c->attributes));
  TRY(dnnl_primitive_create(&conv->reorder, conv->reorder_description));
  TRY(make_memory(c, dnnl_primitive_desc_query_md(conv->reorder_description, dnnl_query_scratchpad_md, 0),
                  REORDER_SCRATCHPAD, conv));
  return make_memory(c, wanted, W, conv);
}

/* After a failure what was made is in `conv` and `d` as well. `d`: as the tensors are stored. */
static dnnl_status_t make_of(cpu_onednn *c, const cpu_onednn_shape *shape, described *d, cpu_onednn_conv *conv) {
  conv->operation = shape->operation;
  TRY(describe(&shape->x, false, shape->x.narrow, &d->x));
  TRY(describe(&shape->y, false, shape->y.narrow, &d->y));
  TRY(describe(&shape->w, false, false, &d->w));
  TRY(make_description(c, shape, &conv->description));
  TRY(dnnl_primitive_create(&conv->primitive, conv->description));
  TRY(make_memory(c, d->x, X, conv));
  TRY(make_memory(c, d->y, Y, conv));
  TRY(make_memory(c, d->w, STORED_W, conv));
  TRY(make_memory(c, dnnl_primitive_desc_query_md(conv->description, dnnl_query_scratchpad_md, 0), SCRATCHPAD, conv));
  onednn_description wanted = wanted_by(conv);
  return dnnl_memory_desc_equal(d->w, wanted) ? dnnl_success : make_reorder(c, d->w, wanted, conv);
}

static dnnl_status_t make(cpu_onednn *c, const cpu_onednn_shape *shape, cpu_onednn_conv *conv) {
  described d = {0};
  dnnl_status_t status = make_of(c, shape, &d, conv);
  forget(&d);
  return status;
}

petra_status cpu_onednn_conv_create(cpu_onednn *library, const cpu_onednn_shape *shape, const char *what,
                                    cpu_onednn_conv **out) {
  cpu_onednn_conv *conv;
  PETRA_TRY(petra_allocate(&conv, 1, sizeof *conv));
  dnnl_status_t status = make(library, shape, conv);
  if (status != dnnl_success) {
    cpu_onednn_conv_destroy(conv);
    return library_error(status, what);
  }
  *out = conv;
  return PETRA_OK;
}

void cpu_onednn_conv_destroy(cpu_onednn_conv *conv) {
  if (!conv)
    return;
  const dnnl_primitive_t primitives[] = {conv->primitive, conv->reorder};
  const dnnl_primitive_desc_t descriptions[] = {conv->description, conv->reorder_description};
  for (int i = 0; i < 2; i++) {
    if (primitives[i])
      dnnl_primitive_destroy(primitives[i]);
    if (descriptions[i])
      dnnl_primitive_desc_destroy(descriptions[i]);
  }
  for (int m = 0; m < MEMORIES; m++)
    if (conv->memory[m])
      dnnl_memory_destroy(conv->memory[m]);
  petra_free(conv);
}

/* --- running it --- */

static size_t rounded(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

size_t cpu_onednn_conv_scratch(const cpu_onednn_conv *conv) {
  size_t total = 64;
  for (int m = SCRATCHPAD; m < MEMORIES; m++)
    total += rounded(conv->bytes[m]);
  return total;
}

static dnnl_status_t run_reorder(cpu_onednn *c, const cpu_onednn_conv *conv) {
  const bool gradient = conv->operation == CPU_CONV_BACKWARD_FILTER;
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, conv->memory[gradient ? W : STORED_W]},
                                       {DNNL_ARG_TO, conv->memory[gradient ? STORED_W : W]},
                                       {DNNL_ARG_SCRATCHPAD, conv->memory[REORDER_SCRATCHPAD]}};
  return dnnl_primitive_execute(conv->reorder, c->stream, 3, arguments);
}

static dnnl_status_t run_primitive(cpu_onednn *c, const cpu_onednn_conv *conv) {
  static const int names[][3] = {[CPU_CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                 [CPU_CONV_BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                 [CPU_CONV_BACKWARD_FILTER] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  const int *name = names[conv->operation];
  const dnnl_exec_arg_t arguments[] = {{name[0], conv->memory[X]},
                                       {name[1], conv->memory[conv->reorder ? W : STORED_W]},
                                       {name[2], conv->memory[Y]},
                                       {DNNL_ARG_SCRATCHPAD, conv->memory[SCRATCHPAD]}};
  return dnnl_primitive_execute(conv->primitive, c->stream, 4, arguments);
}

static dnnl_status_t set_data(const cpu_onednn_conv *conv, void *const data[MEMORIES]) {
  for (int m = 0; m < MEMORIES; m++)
    if (conv->memory[m])
      TRY(dnnl_memory_set_data_handle(conv->memory[m], data[m]));
  return dnnl_success;
}

/* `data`: of the memories, in their order. */
static dnnl_status_t run(cpu_onednn *c, const cpu_onednn_conv *conv, bool prepared, void *const data[MEMORIES]) {
  const bool gradient = conv->operation == CPU_CONV_BACKWARD_FILTER;
  TRY(set_data(conv, data));
  if (conv->reorder && !gradient && !prepared)
    TRY(run_reorder(c, conv));
  TRY(run_primitive(c, conv));
  if (conv->reorder && gradient)
    TRY(run_reorder(c, conv));
  return dnnl_stream_wait(c->stream);
}

static dnnl_status_t prepare(cpu_onednn *c, const cpu_onednn_conv *conv, void *const data[MEMORIES]) {
  TRY(set_data(conv, data));
  TRY(run_reorder(c, conv));
  return dnnl_stream_wait(c->stream);
}

/* Those of the memories that lie in scratch memory. */
static void share_out(const cpu_onednn_conv *conv, void *scratch, void *data[MEMORIES]) {
  for (int m = SCRATCHPAD; m < MEMORIES; m++) {
    data[m] = scratch;
    scratch = (char *)scratch + rounded(conv->bytes[m]);
  }
}

static petra_status finish(const cpu_onednn_conv *conv, dnnl_status_t status) {
  static const char *const names[] = {"conv_forward", "conv_backward_data", "conv_backward_filter"};
  return status == dnnl_success ? PETRA_OK : library_error(status, names[conv->operation]);
}

bool cpu_onednn_conv_want_same(const cpu_onednn_conv *a, const cpu_onednn_conv *b) {
  return a == b || dnnl_memory_desc_equal(wanted_by(a), wanted_by(b));
}

size_t cpu_onednn_conv_wanted(const cpu_onednn_conv *conv) {
  return conv->bytes[W];
}

petra_status cpu_onednn_conv_prepare(cpu_onednn *library, const cpu_onednn_conv *conv, void *w, void *wanted,
                                     void *scratch) {
  void *data[MEMORIES] = {[STORED_W] = w};
  share_out(conv, scratch, data);
  data[W] = wanted;
  return finish(conv, prepare(library, conv, data));
}

petra_status cpu_onednn_conv_run(cpu_onednn *library, const cpu_onednn_conv *conv, void *x, void *w, void *wanted,
                                 void *y, void *scratch) {
  void *data[MEMORIES] = {[X] = x, [Y] = y, [STORED_W] = w};
  share_out(conv, scratch, data);
  if (wanted)
    data[W] = wanted;
  return finish(conv, run(library, conv, wanted != NULL, data));
}
