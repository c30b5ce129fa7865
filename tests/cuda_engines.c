/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_NEXT */
/* The engines of the convolutions of every network, made without a GPU for an A100, an H100 and a B200
 * (tests/cuda_host/deviceprop-sm*.json): a convolution is found, has the notes that it must have, and fits. Each convolution
 * is asked for in one of the seven ways to read or write f32 in bf16, with conversions of ours; of graphs that convert,
 * which take a second each to be compiled, there are a few.
 * PETRA_CUDA_ENGINES=sample: some of the shapes, as a sanitizer's build does where nothing is said, and any for the B200;
 * PETRA_CUDA_ENGINES=all: every shape in every way, and more graphs; PETRA_CUDA_ENGINES=table: as all, and a table of what
 * was chosen. */
#include "backend/cuda/cuda_libraries.h"
#include "base/mem.h"
#include "cuda_conv_text.h"
#include "harness.h"
#include "nn/model.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

/* cuDNN finds the driver by its name. While `is_driver`, this program is the driver, on every machine
 * (tests/cuda_host/driver.c). */
static bool is_driver;
void *dlopen(const char *name, int flags);
void *dlopen(const char *name, int flags) {
  static void *(*real)(const char *, int);
  if (real == NULL)
    *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
  return real(is_driver && name != NULL && strstr(name, "libcuda.so") != NULL ? NULL : name, flags);
}

/* cuDNN loads and unloads NVRTC, its compiler, which keeps memory; while it stays loaded, leak detectors see
 * whose that is. */
int dlclose(void *handle);
int dlclose(void *handle) {
  (void)handle;
  return 0;
}

enum {
  SHAPES = 8192,
  SAMPLE = 31, /* prime to the ten or sixteen of each convolution */
  WIDE = 7,    /* ways to read or write f32 */
  WORKSPACE_MAX = 256 << 20
};

typedef struct shape_list {
  cuda_conv_shape shapes[SHAPES];
  int count, convolutions;
} shape_list;

static const int precisions[] = {PETRA_PRECISION_FP32, PETRA_PRECISION_TF32, PETRA_PRECISION_BF16};

static bool asked_for(const char *what) {
  const char *value = getenv("PETRA_CUDA_ENGINES");
  return value != NULL && strcmp(value, what) == 0;
}

static bool every_way(void) {
  return asked_for("all") || asked_for("table");
}

static bool all_shapes(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return every_way();
#else
  return !asked_for("sample");
#endif
}

/* --- the shapes --- */

/* Whether it is new. */
static bool add_shape(shape_list *list, const cuda_conv_shape *shape) {
  for (int i = 0; i < list->count; i++)
    if (memcmp(&list->shapes[i], shape, sizeof *shape) == 0)
      return false;
  ck_assert_int_lt(list->count, SHAPES);
  list->shapes[list->count++] = *shape;
  return true;
}

/* The convolution in the ways in which bf16 reads or writes f32, or in one of them. */
static void add_wide(shape_list *list, cuda_conv_shape shape) {
  static const struct {
    int kind, in, out;
  } ways[WIDE] = {{CUDA_CONV_FORWARD, 1, 0}, {CUDA_CONV_FORWARD, 0, 1}, {CUDA_CONV_FORWARD, 1, 1},
                  {CUDA_CONV_DATA, 0, 1},    {CUDA_CONV_FILTER, 1, 0},  {CUDA_CONV_FILTER, 0, 1},
                  {CUDA_CONV_FILTER, 1, 1}};
  const int only = list->convolutions++ % WIDE;
  for (int i = 0; i < WIDE; i++) {
    shape.kind = ways[i].kind, shape.wide_in = ways[i].in, shape.wide_out = ways[i].out;
    if (i == only || every_way())
      add_shape(list, &shape);
  }
}

static void add_unit(shape_list *list, const petra_unit *unit, int batch) {
  for (int kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_FILTER; kind++)
    for (int p = 0; p < HARNESS_COUNT(precisions); p++) {
      cuda_conv_shape shape;
      memset(&shape, 0, sizeof shape);
      shape.kind = kind, shape.precision = precisions[p];
      shape.n = batch, shape.c = unit->in, shape.h = unit->height_in, shape.w = unit->width_in;
      shape.o = unit->out, shape.kh = unit->kernel, shape.kw = unit->kernel;
      shape.stride = unit->geometry.stride, shape.pad = unit->geometry.pad;
      shape.oh = unit->height_out, shape.ow = unit->width_out;
      if (add_shape(list, &shape) && kind == CUDA_CONV_FORWARD && shape.precision == PETRA_PRECISION_BF16)
        add_wide(list, shape);
    }
}

static void add_network(shape_list *list, const char *family, int depth, int width, const char *downsample,
                        bool imagenet, int batch) {
  char text[6][64];
  const char *const sets[] = {text[0], text[1], text[2], text[3], text[4], text[5]};
  petra_config *config = NULL;
  petra_model model;
  snprintf(text[0], 64, "model.family=%s", family);
  snprintf(text[1], 64, "model.depth=%d", depth);
  snprintf(text[2], 64, "model.width=%d", width);
  snprintf(text[3], 64, "model.stem=%s", imagenet ? "imagenet" : "cifar");
  snprintf(text[4], 64, "model.classes=%d", imagenet ? 1000 : 10);
  snprintf(text[5], 64, "model.downsample=%s", downsample);
  ck_assert_int_eq(petra_config_load(NULL, sets, strcmp(family, "revnet") == 0 ? 6 : 5, &config), PETRA_OK);
  const petra_stream_shape input = petra_image_stream(imagenet ? 224 : 32, imagenet ? 224 : 32);
  ck_assert_int_eq(petra_model_init(&model, config, &input, 0), PETRA_OK);
  for (int b = 0; b < model.block_count; b++)
    for (int u = 0; u < model.blocks[b].unit_count; u++)
      add_unit(list, &model.blocks[b].units[u], batch);
  petra_model_fini(&model);
  petra_config_destroy(config);
}

static void add_networks(shape_list *list, const char *family, const char *downsample) {
  static const int depths[] = {18, 34, 50}, widths[] = {64, 16, 4, 2};
  static const int batches[] = {64, 256, 128, 16}; /* 16: what 10 000 test images leave for the last batch */
  for (int d = 0; d < (strcmp(downsample, "invertible") == 0 ? 2 : 3); d++) { /* no bottleneck is invertible */
    for (int w = 0; w < HARNESS_COUNT(widths); w++)
      for (int b = 0; b < (depths[d] == 18 ? HARNESS_COUNT(batches) : 2); b++)
        add_network(list, family, depths[d], widths[w], downsample, false, batches[b]);
    add_network(list, family, depths[d], 64, downsample, true, 32);
  }
}

/* --- the device --- */

static char *read_text(const char *device) {
  static char text[2048];
  char path[1024];
  const char *srcdir = getenv("srcdir");
  snprintf(path, sizeof path, "%s/tests/cuda_host/deviceprop-%s.json", srcdir != NULL ? srcdir : ".", device);
  FILE *file = fopen(path, "r");
  ck_assert_msg(file != NULL, "%s cannot be opened", path);
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = 0;
  return text;
}

static cuda_convs *make_convs(const char *device, bool deterministic, size_t workspace_max) {
  cuda_convs *convs = NULL;
  ck_assert_msg(cuda_convs_create(read_text(device), deterministic, workspace_max, &convs) == PETRA_OK, "%s",
                harness_line);
  return convs;
}

static const char *row_name(const cuda_conv_shape *s) {
  static const char *const kinds[] = {"forward", "data", "filter"}, *const names[] = {"fp32", "fp64", "tf32", "bf16"};
  static char name[128];
  snprintf(name, sizeof name, "%-4s %-7s %3dx%dx%dx%d -> %d, %dx%d/%d%s%s", names[s->precision], kinds[s->kind], s->n,
           s->h, s->w, s->c, s->o, s->kh, s->kw, s->stride, s->wide_in ? ", x f32" : "",
           s->wide_out ? ", output f32" : "");
  return name;
}

/* --- the tests --- */

/* Of what is converted, with what it is rounded up by. */
static size_t converted(const cuda_conv_shape *s) {
  const size_t x = (size_t)s->n * s->h * s->w * s->c, w = (size_t)s->o * s->kh * s->kw * s->c,
               y = (size_t)s->n * s->oh * s->ow * s->o;
  const size_t out = s->kind == CUDA_CONV_FORWARD ? y : s->kind == CUDA_CONV_DATA ? x : w;
  return (s->wide_in ? 2 * x + 255 : 0) + (s->wide_out ? 2 * out + 255 : 0);
}

/* Answers the number of conversions around it. */
static int check_conv(cuda_convs *convs, const cuda_conv_shape *shape, const char *device) {
  const unsigned never = CUDA_ENGINE_NOTE_NONDETERMINISTIC | CUDA_ENGINE_NOTE_DOWN_CONVERTS |
                         CUDA_ENGINE_NOTE_REDUCED_SUMS | CUDA_ENGINE_NOTE_WINOGRAD | CUDA_ENGINE_NOTE_FFT;
  const unsigned unwanted = shape->precision == PETRA_PRECISION_FP32 ? never | CUDA_ENGINE_NOTE_TENSOR_CORES : never;
  const cuda_conv *conv = NULL;
  unsigned notes = ~0U;
  char text[128];
  harness_clear();
  ck_assert_msg(cuda_convs_find(convs, shape, &conv) == PETRA_OK, "%s, %s: %s", device, row_name(shape), harness_line);
  ck_assert_int_eq(harness_lines, 0);
  ck_assert_int_eq(cuda_conv_notes(conv, &notes), 0);
  ck_assert_msg((notes & unwanted) == 0, "%s, %s: notes %x", device, row_name(shape), notes);
  ck_assert_uint_le(cuda_conv_workspace(conv), WORKSPACE_MAX + converted(shape));
  cuda_conv_describe(conv, text, sizeof text);
  ck_assert(strncmp(text, "engine ", 7) == 0 &&
            (strstr(text, "tensor cores") != NULL) == ((notes & CUDA_ENGINE_NOTE_TENSOR_CORES) != 0));
  if (asked_for("table"))
    printf("%s %-46s %s\n", device, row_name(shape), text);
  return cuda_conv_conversions(conv);
}

static void check_networks(const char *device, bool all) {
  shape_list *list = NULL;
  ck_assert_int_eq(petra_allocate(&list, 1, sizeof *list), PETRA_OK);
  add_networks(list, "revnet", "conv");
  add_networks(list, "revnet", "invertible");
  add_networks(list, "resnet", "conv");
  ck_assert_int_gt(list->count, 1000);
  int step = all ? 1 : SAMPLE;
  cuda_convs *convs = make_convs(device, true, WORKSPACE_MAX);
  cuda_convs_fuse(convs, 0);
  for (int i = 0; i < list->count; i += step) {
    const cuda_conv_shape *shape = &list->shapes[i];
    ck_assert_int_eq(check_conv(convs, shape, device), shape->wide_in + shape->wide_out);
  }
  printf("test_cuda_engines: %s: %d of %d shapes\n", device, (list->count + step - 1) / step, list->count);
  cuda_convs_destroy(convs);
  petra_free(list);
}

START_TEST(every_network_has_convs_on_an_a100) {
  check_networks("sm80", all_shapes());
}
END_TEST

START_TEST(every_network_has_convs_on_an_h100) {
  check_networks("sm90", all_shapes());
}
END_TEST

START_TEST(networks_have_convs_on_a_b200) {
  check_networks("sm100", every_way());
}
END_TEST

/* 64 images of 8 x 8, 16 channels to 16, 3 x 3. */
static cuda_conv_shape small_shape(int kind, int precision) {
  cuda_conv_shape shape;
  memset(&shape, 0, sizeof shape);
  shape.kind = kind, shape.precision = precision;
  shape.n = 64, shape.c = 16, shape.h = 8, shape.w = 8, shape.o = 16;
  shape.kh = 3, shape.kw = 3, shape.stride = 1, shape.pad = 1, shape.oh = 8, shape.ow = 8;
  return shape;
}

/* Conversions within cuDNN's graph: which it has, and that it compiles them. */
START_TEST(graphs_that_convert) {
  enum { EACH = 7, H100 = 2, B200 = 4, BY_ALL = 8 /* with PETRA_CUDA_ENGINES=all alone */ };
  static const char *const devices[] = {"sm80", "sm90", "sm100"};
  static const struct {
    int where, kind, c, in, out, conversions;
  } rows[] = {{EACH, CUDA_CONV_FORWARD, 64, 1, 1, 0},
              {EACH | BY_ALL, CUDA_CONV_FORWARD, 64, 1, 0, 0},
              {EACH | BY_ALL, CUDA_CONV_FORWARD, 64, 0, 1, 0},
              {H100 | B200, CUDA_CONV_DATA, 64, 0, 1, 0},
              {EACH | BY_ALL, CUDA_CONV_DATA, 64, 0, 1, 0},
              {B200, CUDA_CONV_FILTER, 64, 1, 1, 1},
              {EACH | BY_ALL, CUDA_CONV_FILTER, 64, 0, 1, 0},
              /* images */
              {EACH | BY_ALL, CUDA_CONV_FORWARD, 3, 1, 1, 1},
              {EACH, CUDA_CONV_FORWARD, 3, 1, 0, 1},
              {EACH, CUDA_CONV_DATA, 3, 0, 1, 1},
              {EACH, CUDA_CONV_FILTER, 3, 1, 1, 2}};
  is_driver = true;
  for (int d = 0; d < HARNESS_COUNT(devices); d++) {
    cuda_convs *convs = make_convs(devices[d], true, WORKSPACE_MAX);
    cuda_convs_fuse(convs, ~0U);
    for (int i = 0; i < HARNESS_COUNT(rows); i++) {
      cuda_conv_shape shape = small_shape(rows[i].kind, PETRA_PRECISION_BF16);
      shape.c = rows[i].c, shape.o = 64, shape.wide_in = rows[i].in, shape.wide_out = rows[i].out;
      if ((rows[i].where & 1 << d) != 0 && ((rows[i].where & BY_ALL) == 0 || every_way()))
        ck_assert_msg(check_conv(convs, &shape, devices[d]) == rows[i].conversions, "%s, %s", devices[d],
                      row_name(&shape));
    }
    cuda_convs_destroy(convs);
  }
  is_driver = false;
}
END_TEST

START_TEST(convs_are_kept) {
  cuda_convs *convs = make_convs("sm90", true, WORKSPACE_MAX);
  cuda_conv_shape one = small_shape(CUDA_CONV_FORWARD, PETRA_PRECISION_TF32);
  cuda_conv_shape other = small_shape(CUDA_CONV_FILTER, PETRA_PRECISION_TF32);
  const cuda_conv *first = NULL, *second = NULL, *again = NULL;
  ck_assert_int_eq(cuda_convs_find(convs, &one, &first), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &other, &second), PETRA_OK);
  ck_assert_int_eq(cuda_convs_find(convs, &one, &again), PETRA_OK);
  ck_assert(first == again && first != second);
  cuda_convs_destroy(convs);
}
END_TEST

START_TEST(a_workspace_is_never_larger_than_allowed) {
  cuda_convs *convs = make_convs("sm80", true, 0);
  for (int kind = CUDA_CONV_FORWARD; kind <= CUDA_CONV_FILTER; kind++) {
    cuda_conv_shape shape = small_shape(kind, PETRA_PRECISION_TF32);
    const cuda_conv *conv = NULL;
    petra_status status = cuda_convs_find(convs, &shape, &conv);
    ck_assert(status == PETRA_UNSUPPORTED || (status == PETRA_OK && cuda_conv_workspace(conv) == 0));
    if (status == PETRA_UNSUPPORTED)
      ck_assert_logged("more than 0 bytes of workspace");
  }
  cuda_convs_destroy(convs);
}
END_TEST

START_TEST(failures_are_one_clear_line) {
  cuda_convs *convs = NULL;
  const cuda_conv *conv = NULL;
  harness_clear();
  ck_assert_int_eq(cuda_convs_create("{\"warpSize\": 32}", true, WORKSPACE_MAX, &convs), PETRA_BACKEND);
  ck_assert_logged("cuDNN: reading a device's properties from JSON: CUDNN_STATUS_");
  ck_assert(harness_lines == 1 && convs == NULL);

  convs = make_convs("sm90", true, WORKSPACE_MAX);
  cuda_conv_shape wrong = small_shape(CUDA_CONV_FORWARD, PETRA_PRECISION_FP32);
  wrong.oh = 7;
  harness_clear();
  ck_assert_int_eq(cuda_convs_find(convs, &wrong, &conv), PETRA_BACKEND);
  ck_assert_logged("convolution forward, x 64x8x8x16, filter 16x3x3x16, stride 1, pad 1, fp32: CUDNN_STATUS_");
  ck_assert(harness_lines == 1 && conv == NULL);

  /* Such convolutions do not run. */
  cuda_conv_shape shape = small_shape(CUDA_CONV_DATA, PETRA_PRECISION_BF16);
  const cuda_lane lane = {NULL, NULL, 0, NULL};
  ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
  harness_clear();
  ck_assert_int_eq(cuda_conv_run(conv, &lane, NULL, NULL, NULL, NULL), PETRA_INTERNAL);
  ck_assert_logged("made without a device cannot run: convolution data gradient, x 64x8x8x16");
  ck_assert_int_eq(harness_lines, 1);
  cuda_convs_destroy(convs);
}
END_TEST

static bool refuse_nth(void *context, size_t bytes) {
  (void)bytes;
  return --*(int *)context == 0;
}

START_TEST(memory_that_runs_out) {
  cuda_conv_shape shape = small_shape(CUDA_CONV_FORWARD, PETRA_PRECISION_FP32);
  const char *json = read_text("sm80");
  int refused = 0;
  for (int nth = 1; nth <= 16; nth++) {
    int left = nth;
    cuda_convs *convs = NULL;
    const cuda_conv *conv = NULL;
    petra_mem_set_hook(refuse_nth, &left);
    petra_status status = cuda_convs_create(json, true, WORKSPACE_MAX, &convs);
    if (status == PETRA_OK)
      status = cuda_convs_find(convs, &shape, &conv);
    petra_mem_set_hook(NULL, NULL);
    cuda_convs_destroy(convs);
    ck_assert_int_eq(status, left <= 0 ? PETRA_NO_MEMORY : PETRA_OK);
    refused += status == PETRA_NO_MEMORY;
    if (left > 0)
      break;
  }
  ck_assert_int_ge(refused, 3); /* the handle, the convolution, the heuristics' results */
}
END_TEST

/* Where there is a device these succeed, which other tests need. */
START_TEST(no_device) {
  cuda_convs *convs = NULL;
  cuda_blas *blas = NULL;
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
    return;
  harness_clear();
  ck_assert_int_eq(cuda_convs_create(NULL, true, WORKSPACE_MAX, &convs), PETRA_BACKEND);
  ck_assert_logged("cuDNN: cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED (1001)");
  ck_assert(harness_lines == 1 && convs == NULL);
  harness_clear();
  ck_assert_int_eq(cuda_blas_create(PETRA_PRECISION_FP32, &blas), PETRA_BACKEND);
  ck_assert_logged("cuBLAS: cublasCreate: ");
  ck_assert(harness_lines == 1 && blas == NULL);
}
END_TEST

START_TEST(versions) {
  char text[32];
  int major = 0, minor = 0, patch = 0;
  cuda_cudnn_describe(text, sizeof text);
  ck_assert_msg(sscanf(text, "cuDNN %d.%d.%d", &major, &minor, &patch) == 3 && major >= 9, "%s", text);
  cuda_blas_describe(text, sizeof text);
  ck_assert_msg(sscanf(text, "cuBLAS %d.%d.%d", &major, &minor, &patch) == 3 && major >= 11, "%s", text);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {every_network_has_convs_on_an_a100,
                                every_network_has_convs_on_an_h100,
                                networks_have_convs_on_a_b200,
                                graphs_that_convert,
                                convs_are_kept,
                                a_workspace_is_never_larger_than_allowed,
                                failures_are_one_clear_line,
                                memory_that_runs_out,
                                no_device,
                                versions};
  return harness_run("cuda_engines", tests, HARNESS_COUNT(tests));
}
