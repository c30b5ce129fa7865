/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/onednn.h"

#include "base/log.h"
#include "base/mem.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Passes on a failure of oneDNN within functions that return its status. */
#define TRY(expression)                                                                                                \
  do {                                                                                                                 \
    dnnl_status_t try_status_ = (expression);                                                                          \
    if (try_status_ != dnnl_success)                                                                                   \
      return try_status_;                                                                                              \
  } while (0)

/* --- the differences between oneDNN 2 and 3 --- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_description; /* the library owns the descriptor */
#else
typedef const dnnl_memory_desc_t *onednn_description; /* to be released with onednn_forget, which allows NULL */
#endif

typedef struct onednn_made_of {
  cpu_pass pass;
  bool linear;
  int stride, pad;
  onednn_description x, w, y, b; /* or their gradients; b: forward of a linear map, or NULL */
  dnnl_primitive_desc_t hint;    /* of a forward pass; NULL for a forward pass itself */
} onednn_made_of;

#if DNNL_VERSION_MAJOR >= 3

static dnnl_status_t onednn_describe(int count, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                                     onednn_description *out) {
  dnnl_memory_desc_t made;
  TRY(dnnl_memory_desc_create_with_tag(&made, count, dims, type, tag));
  *out = made;
  return dnnl_success;
}

static void onednn_forget(onednn_description description) {
  if (description)
    dnnl_memory_desc_destroy((dnnl_memory_desc_t)(uintptr_t)description);
}

static dnnl_status_t describe_convolution(dnnl_engine_t engine, dnnl_primitive_attr_t attributes,
                                          const onednn_made_of *of, dnnl_primitive_desc_t *out) {
  const dnnl_alg_kind_t direct = dnnl_convolution_direct;
  const dnnl_dims_t strides = {of->stride, of->stride}, pads = {of->pad, of->pad}, dense = {0, 0};
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_convolution_forward_primitive_desc_create(out, engine, dnnl_forward_training, direct, of->x, of->w,
                                                          NULL, of->y, strides, dense, pads, pads, attributes);
  case CPU_BACKWARD_DATA:
    return dnnl_convolution_backward_data_primitive_desc_create(out, engine, direct, of->x, of->w, of->y, strides,
                                                                dense, pads, pads, of->hint, attributes);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_convolution_backward_weights_primitive_desc_create(out, engine, direct, of->x, of->w, NULL, of->y,
                                                                 strides, dense, pads, pads, of->hint, attributes);
}

static dnnl_status_t onednn_describe_primitive(dnnl_engine_t engine, dnnl_primitive_attr_t attributes,
                                               const onednn_made_of *of, dnnl_primitive_desc_t *out) {
  if (!of->linear)
    return describe_convolution(engine, attributes, of, out);
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_inner_product_forward_primitive_desc_create(out, engine, dnnl_forward_training, of->x, of->w, of->b,
                                                            of->y, attributes);
  case CPU_BACKWARD_DATA:
    return dnnl_inner_product_backward_data_primitive_desc_create(out, engine, of->x, of->w, of->y, of->hint,
                                                                  attributes);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_inner_product_backward_weights_primitive_desc_create(out, engine, of->x, of->w, NULL, of->y, of->hint,
                                                                   attributes);
}

static dnnl_status_t onednn_append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1, 0, dnnl_data_type_undef);
}

#else

static dnnl_status_t onednn_describe(int count, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag,
                                     onednn_description *out) {
  dnnl_memory_desc_t *made = malloc(sizeof *made); /* the caller logs the failure */
  if (!made)
    return dnnl_out_of_memory;
  *out = made;
  return dnnl_memory_desc_init_by_tag(made, count, dims, type, tag);
}

static void onednn_forget(onednn_description description) {
  free((void *)(uintptr_t)description);
}

static dnnl_status_t describe_convolution(const onednn_made_of *of, dnnl_convolution_desc_t *out) {
  const dnnl_alg_kind_t direct = dnnl_convolution_direct;
  const dnnl_dims_t strides = {of->stride, of->stride}, pads = {of->pad, of->pad};
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_convolution_forward_desc_init(out, dnnl_forward_training, direct, of->x, of->w, NULL, of->y, strides,
                                              pads, pads);
  case CPU_BACKWARD_DATA:
    return dnnl_convolution_backward_data_desc_init(out, direct, of->x, of->w, of->y, strides, pads, pads);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_convolution_backward_weights_desc_init(out, direct, of->x, of->w, NULL, of->y, strides, pads, pads);
}

static dnnl_status_t describe_linear(const onednn_made_of *of, dnnl_inner_product_desc_t *out) {
  switch (of->pass) {
  case CPU_FORWARD:
    return dnnl_inner_product_forward_desc_init(out, dnnl_forward_training, of->x, of->w, of->b, of->y);
  case CPU_BACKWARD_DATA:
    return dnnl_inner_product_backward_data_desc_init(out, of->x, of->w, of->y);
  case CPU_BACKWARD_WEIGHTS:
    break;
  }
  return dnnl_inner_product_backward_weights_desc_init(out, of->x, of->w, NULL, of->y);
}

static dnnl_status_t onednn_describe_primitive(dnnl_engine_t engine, dnnl_primitive_attr_t attributes,
                                               const onednn_made_of *of, dnnl_primitive_desc_t *out) {
  dnnl_convolution_desc_t convolution;
  dnnl_inner_product_desc_t linear;
  TRY(of->linear ? describe_linear(of, &linear) : describe_convolution(of, &convolution));
  return dnnl_primitive_desc_create(out, of->linear ? (const void *)&linear : &convolution, attributes, engine,
                                    of->hint);
}

static dnnl_status_t onednn_append_sum(dnnl_post_ops_t operations) {
  return dnnl_post_ops_append_sum(operations, 1);
}

#endif

/* The memories of a primitive, and of its reorder: the weights as the primitive requires them, and another
 * scratchpad. */
enum { X, Y, STORED_W, BIAS, SCRATCHPAD, W, REORDER_SCRATCHPAD, MEMORIES };

struct cpu_onednn {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_attr_t attributes; /* the caller provides scratchpads */
};

struct cpu_primitive {
  cpu_pass pass;
  dnnl_primitive_desc_t description, reorder_description;
  dnnl_primitive_t primitive;
  /* Converts the stored weights to the weights that the primitive requires, or back; NULL: they are the same. */
  dnnl_primitive_t reorder;
  dnnl_memory_t memory[MEMORIES];
  size_t bytes[MEMORIES]; /* offsets of those in scratch memory, from SCRATCHPAD on; 0: unused */
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
  const dnnl_status_t status =
      dnnl_sgemm(p->a.transposed ? 'T' : 'N', p->b.transposed ? 'T' : 'N', p->m, p->n, p->k, p->alpha, p->a.at,
                 p->a.step, p->b.at, p->b.step, p->beta, p->c.at, p->c.step);
  return status == dnnl_success ? PETRA_OK : library_error(status, "a product of matrices");
}

/* --- making a primitive --- */

/* Describes x, w, y and the bias to oneDNN. A local description is forgotten at the end of its block. */
typedef struct described {
  onednn_description x, w, y, b;
  dnnl_primitive_attr_t attributes; /* NULL: none */
} described;

static void forget(described *d) {
  onednn_forget(d->x);
  onednn_forget(d->w);
  onednn_forget(d->y);
  onednn_forget(d->b);
  if (d->attributes)
    dnnl_primitive_attr_destroy(d->attributes);
}

static dnnl_status_t describe(const cpu_onednn_memory *m, bool any, bool narrow, onednn_description *out) {
  const dnnl_dims_t dims = {m->extent[0], m->extent[1], m->extent[2], m->extent[3]};
  return onednn_describe(m->layout == dnnl_ab ? 2 : 4, dims, narrow ? dnnl_bf16 : dnnl_f32,
                         any ? dnnl_format_tag_any : m->layout, out);
}

static dnnl_status_t make_memory(cpu_onednn *c, onednn_description description, int memory, cpu_primitive *p) {
  p->bytes[memory] = memory >= SCRATCHPAD ? dnnl_memory_desc_get_size(description) : 0;
  return dnnl_memory_create(&p->memory[memory], description, c->engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t make_attributes(cpu_onednn *c, bool adds, dnnl_primitive_attr_t *out) {
  dnnl_post_ops_t operations;
  TRY(dnnl_primitive_attr_clone(out, c->attributes));
  if (!adds)
    return dnnl_success;
  TRY(dnnl_post_ops_create(&operations));
  dnnl_status_t status = onednn_append_sum(operations);
  if (status == dnnl_success)
    status = dnnl_primitive_attr_set_post_ops(*out, operations);
  dnnl_post_ops_destroy(operations);
  return status;
}

static dnnl_status_t describe_pass(cpu_onednn *c, const cpu_onednn_shape *shape, cpu_pass pass,
                                   dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
  const bool linear = shape->w.layout == dnnl_ab, forward = pass == CPU_FORWARD;
  const bool narrow = shape->x.narrow || shape->y.narrow;
  PETRA_FINISHED(forget) described d = {0};
  TRY(describe(&shape->x, false, forward ? narrow : shape->x.narrow, &d.x));
  TRY(describe(&shape->w, true, narrow && pass != CPU_BACKWARD_WEIGHTS, &d.w));
  TRY(describe(&shape->y, false, shape->y.narrow, &d.y));
  if (shape->biased)
    TRY(onednn_describe(1, (const dnnl_dims_t){shape->y.extent[1]}, dnnl_f32, dnnl_a, &d.b));
  TRY(make_attributes(c, shape->adds, &d.attributes));
  const onednn_made_of of = {pass, linear, shape->stride, shape->pad, d.x, d.w, d.y, d.b, hint};
  return onednn_describe_primitive(c->engine, d.attributes, &of, out);
}

/* The description of a backward pass is made with the description of a forward pass. */
static dnnl_status_t make_description(cpu_onednn *c, const cpu_onednn_shape *shape, dnnl_primitive_desc_t *out) {
  dnnl_primitive_desc_t hint;
  if (shape->pass == CPU_FORWARD)
    return describe_pass(c, shape, CPU_FORWARD, NULL, out);
  TRY(describe_pass(c, shape, CPU_FORWARD, NULL, &hint));
  dnnl_status_t status = describe_pass(c, shape, shape->pass, hint, out);
  dnnl_primitive_desc_destroy(hint);
  return status;
}

/* Gets whether blocked convolutions have kernels in all three passes; oneDNN's plain loops are a hundred times slower.
 * If memory runs out, the function fails: a wrong answer would change the layout, and therefore the rounding, of this
 * run alone. */
static dnnl_status_t find_kernels(cpu_onednn *c, int block, bool *found) {
  static const cpu_pass passes[] = {CPU_FORWARD, CPU_BACKWARD_DATA, CPU_BACKWARD_WEIGHTS};
  const cpu_onednn_memory x = {{1, block, 8, 8}, block == 16 ? dnnl_nChw16c : dnnl_nChw8c, false};
  const cpu_onednn_memory w = {{block, block, 3, 3}, block == 16 ? dnnl_OIhw16i16o : dnnl_OIhw8i8o, false};
  bool all = true;
  for (int i = 0; i < 3 && all; i++) {
    const cpu_onednn_shape shape = {.pass = passes[i], .stride = 1, .pad = 1, .x = x, .w = w, .y = x};
    const char *name = NULL;
    dnnl_primitive_desc_t made;
    const dnnl_status_t status = make_description(c, &shape, &made);
    if (status == dnnl_out_of_memory)
      return status;
    if (status != dnnl_success) {
      all = false;
      break;
    }
    all = dnnl_primitive_desc_query(made, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name ||
          strncmp(name, "ref", 3) != 0;
    dnnl_primitive_desc_destroy(made);
  }
  *found = all;
  return dnnl_success;
}

petra_status cpu_onednn_block(cpu_onednn *c, int *out) {
  const int block = has(dnnl_cpu_isa_avx512_core) ? 16 : 8;
  bool found;
  const dnnl_status_t status = find_kernels(c, block, &found);
  if (status != dnnl_success)
    return library_error(status, "the layout of convolutions");
  *out = found ? block : 1;
  return PETRA_OK;
}

static onednn_description wanted_by(const cpu_primitive *p) {
  return dnnl_primitive_desc_query_md(
      p->description, p->pass == CPU_BACKWARD_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
}

static dnnl_status_t make_reorder(cpu_onednn *c, onednn_description stored, onednn_description wanted,
                                  cpu_primitive *p) {
  const bool gradient = p->pass == CPU_BACKWARD_WEIGHTS;
  TRY(dnnl_reorder_primitive_desc_create(&p->reorder_description, gradient ? wanted : stored, c->engine,
                                         gradient ? stored : wanted, c->engine, c->attributes));
  TRY(dnnl_primitive_create(&p->reorder, p->reorder_description));
  TRY(make_memory(c, dnnl_primitive_desc_query_md(p->reorder_description, dnnl_query_scratchpad_md, 0),
                  REORDER_SCRATCHPAD, p));
  return make_memory(c, wanted, W, p);
}

/* After a failure `p` holds the parts that were made. */
static dnnl_status_t make(cpu_onednn *c, const cpu_onednn_shape *shape, cpu_primitive *p) {
  PETRA_FINISHED(forget) described stored = {0};
  p->pass = shape->pass;
  TRY(describe(&shape->x, false, shape->x.narrow, &stored.x));
  TRY(describe(&shape->y, false, shape->y.narrow, &stored.y));
  TRY(describe(&shape->w, false, false, &stored.w));
  TRY(make_description(c, shape, &p->description));
  TRY(dnnl_primitive_create(&p->primitive, p->description));
  TRY(make_memory(c, stored.x, X, p));
  TRY(make_memory(c, stored.y, Y, p));
  TRY(make_memory(c, stored.w, STORED_W, p));
  if (shape->biased) {
    TRY(onednn_describe(1, (const dnnl_dims_t){shape->y.extent[1]}, dnnl_f32, dnnl_a, &stored.b));
    TRY(make_memory(c, stored.b, BIAS, p));
  }
  TRY(make_memory(c, dnnl_primitive_desc_query_md(p->description, dnnl_query_scratchpad_md, 0), SCRATCHPAD, p));
  onednn_description wanted = wanted_by(p);
  return dnnl_memory_desc_equal(stored.w, wanted) ? dnnl_success : make_reorder(c, stored.w, wanted, p);
}

petra_status cpu_primitive_create(cpu_onednn *library, const cpu_onednn_shape *shape, const char *what,
                                  cpu_primitive **out) {
  cpu_primitive *p;
  PETRA_TRY(petra_allocate(&p, 1, sizeof *p));
  dnnl_status_t status = make(library, shape, p);
  if (status != dnnl_success) {
    cpu_primitive_destroy(p);
    return library_error(status, what);
  }
  *out = p;
  return PETRA_OK;
}

void cpu_primitive_destroy(cpu_primitive *p) {
  if (!p)
    return;
  const dnnl_primitive_t primitives[] = {p->primitive, p->reorder};
  const dnnl_primitive_desc_t descriptions[] = {p->description, p->reorder_description};
  for (int i = 0; i < 2; i++) {
    if (primitives[i])
      dnnl_primitive_destroy(primitives[i]);
    if (descriptions[i])
      dnnl_primitive_desc_destroy(descriptions[i]);
  }
  for (int m = 0; m < MEMORIES; m++)
    if (p->memory[m])
      dnnl_memory_destroy(p->memory[m]);
  petra_free(p);
}

/* --- running it --- */

static size_t rounded(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

size_t cpu_primitive_scratch(const cpu_primitive *p) {
  size_t total = 64;
  for (int m = SCRATCHPAD; m < MEMORIES; m++)
    total += rounded(p->bytes[m]);
  return total;
}

static dnnl_status_t run_reorder(cpu_onednn *c, const cpu_primitive *p) {
  const bool gradient = p->pass == CPU_BACKWARD_WEIGHTS;
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, p->memory[gradient ? W : STORED_W]},
                                       {DNNL_ARG_TO, p->memory[gradient ? STORED_W : W]},
                                       {DNNL_ARG_SCRATCHPAD, p->memory[REORDER_SCRATCHPAD]}};
  return dnnl_primitive_execute(p->reorder, c->stream, 3, arguments);
}

static dnnl_status_t run_primitive(cpu_onednn *c, const cpu_primitive *p) {
  static const int names[][3] = {[CPU_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                 [CPU_BACKWARD_DATA] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                 [CPU_BACKWARD_WEIGHTS] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  const int *name = names[p->pass];
  const dnnl_exec_arg_t arguments[] = {{name[0], p->memory[X]},
                                       {name[1], p->memory[p->reorder ? W : STORED_W]},
                                       {name[2], p->memory[Y]},
                                       {DNNL_ARG_SCRATCHPAD, p->memory[SCRATCHPAD]},
                                       {DNNL_ARG_BIAS, p->memory[BIAS]}};
  return dnnl_primitive_execute(p->primitive, c->stream, p->memory[BIAS] ? 5 : 4, arguments);
}

static dnnl_status_t set_data(const cpu_primitive *p, void *const data[MEMORIES]) {
  for (int m = 0; m < MEMORIES; m++)
    if (p->memory[m])
      TRY(dnnl_memory_set_data_handle(p->memory[m], data[m]));
  return dnnl_success;
}

/* `data`: addresses of the memories, in their order. */
static dnnl_status_t run(cpu_onednn *c, const cpu_primitive *p, bool prepared, void *const data[MEMORIES]) {
  const bool gradient = p->pass == CPU_BACKWARD_WEIGHTS;
  TRY(set_data(p, data));
  if (p->reorder && !gradient && !prepared)
    TRY(run_reorder(c, p));
  TRY(run_primitive(c, p));
  if (p->reorder && gradient)
    TRY(run_reorder(c, p));
  return dnnl_stream_wait(c->stream);
}

static dnnl_status_t prepare(cpu_onednn *c, const cpu_primitive *p, void *const data[MEMORIES]) {
  TRY(set_data(p, data));
  TRY(run_reorder(c, p));
  return dnnl_stream_wait(c->stream);
}

/* Sets the addresses of the memories that lie in scratch memory. */
static void share_out(const cpu_primitive *p, void *scratch, void *data[MEMORIES]) {
  for (int m = SCRATCHPAD; m < MEMORIES; m++) {
    data[m] = scratch;
    scratch = (char *)scratch + rounded(p->bytes[m]);
  }
}

static petra_status finish(dnnl_status_t status) {
  return status == dnnl_success ? PETRA_OK : library_error(status, "a convolution or a linear map");
}

bool cpu_primitive_want_same(const cpu_primitive *a, const cpu_primitive *b) {
  return a == b || dnnl_memory_desc_equal(wanted_by(a), wanted_by(b));
}

size_t cpu_primitive_wanted(const cpu_primitive *p) {
  return p->bytes[W];
}

petra_status cpu_primitive_prepare(cpu_onednn *library, const cpu_primitive *p, void *w, void *wanted, void *scratch) {
  void *data[MEMORIES] = {[STORED_W] = w};
  share_out(p, scratch, data);
  data[W] = wanted;
  return finish(prepare(library, p, data));
}

petra_status cpu_primitive_run(cpu_onednn *library, const cpu_primitive *p, const cpu_primitive_data *given) {
  void *data[MEMORIES] = {[X] = given->x, [Y] = given->y, [STORED_W] = given->w, [BIAS] = given->b};
  share_out(p, given->scratch, data);
  if (given->wanted)
    data[W] = given->wanted;
  return finish(run(library, p, given->wanted != NULL, data));
}
