/* The convolution plans of every network, made without a GPU for an A100 and an H100 (tests/cuda_host/deviceprop-sm*.json):
 * a plan is found, has the notes that it must have, and fits. PETRA_CUDA_PLANS=all: every shape, not a sample;
 * PETRA_CUDA_PLANS=table: every shape, and a table of what was chosen. */
#include "backend/cuda/convolution.h"
#include "backend/cuda/matrix.h"
#include "base/mem.h"
#include "harness.h"
#include "nn/model.h"

enum { SHAPES = 4096, SAMPLE = 7, WORKSPACE_MAX = 256 << 20 };

typedef struct shape_list {
  cuda_conv_shape shapes[SHAPES];
  int count;
} shape_list;

static const int precisions[] = {PETRA_PRECISION_FP32, PETRA_PRECISION_TF32, PETRA_PRECISION_BF16};
static const char *const devices[] = {"sm80", "sm90"};

static bool asked_for(const char *what) {
  const char *value = getenv("PETRA_CUDA_PLANS");
  return value != NULL && strcmp(value, what) == 0;
}

/* --- the shapes --- */

static void add_shape(shape_list *list, const cuda_conv_shape *shape) {
  for (int i = 0; i < list->count; i++)
    if (memcmp(&list->shapes[i], shape, sizeof *shape) == 0)
      return;
  ck_assert_int_lt(list->count, SHAPES);
  list->shapes[list->count++] = *shape;
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
      add_shape(list, &shape);
    }
}

static void add_network(shape_list *list, const char *family, int depth, int width, const char *downsample, bool imagenet,
                        int batch) {
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
  ck_assert_int_eq(petra_model_init(&model, config, imagenet ? 224 : 32, imagenet ? 224 : 32), PETRA_OK);
  for (int b = 0; b < model.block_count; b++)
    for (int u = 0; u < model.blocks[b].unit_count; u++)
      add_unit(list, &model.blocks[b].units[u], batch);
  petra_config_destroy(config);
}

static void add_networks(shape_list *list, const char *family, const char *downsample) {
  static const int depths[] = {18, 34, 50}, widths[] = {64, 16, 4, 2}, batches[] = {64, 256};
  for (int d = 0; d < 3; d++) {
    for (int w = 0; w < HARNESS_COUNT(widths); w++)
      for (int b = 0; b < HARNESS_COUNT(batches); b++)
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

static cuda_plans *make_plans(const char *device, bool deterministic) {
  cuda_plans *plans = NULL;
  ck_assert_msg(cuda_plans_create(read_text(device), deterministic, WORKSPACE_MAX, &plans) == PETRA_OK, "%s", harness_line);
  return plans;
}

static const char *row_name(const cuda_conv_shape *s) {
  static const char *const kinds[] = {"forward", "data", "filter"}, *const names[] = {"fp32", "fp64", "tf32", "bf16"};
  static char name[128];
  snprintf(name, sizeof name, "%-4s %-7s %3dx%dx%dx%d -> %d, %dx%d/%d", names[s->precision], kinds[s->kind], s->n, s->h, s->w,
           s->c, s->o, s->kh, s->kw, s->stride);
  return name;
}

/* --- the tests --- */

static void check_plan(cuda_plans *plans, const cuda_conv_shape *shape, const char *device) {
  const unsigned never = CUDA_PLAN_NOTE_NONDETERMINISTIC | CUDA_PLAN_NOTE_DOWN_CONVERTS | CUDA_PLAN_NOTE_REDUCED_SUMS |
                         CUDA_PLAN_NOTE_WINOGRAD | CUDA_PLAN_NOTE_FFT;
  const cuda_plan *plan = NULL;
  unsigned notes = ~0U;
  char text[128];
  harness_clear();
  petra_status found = cuda_plans_find(plans, shape, &plan);
  if (asked_for("table") && found != PETRA_OK)
    printf("%s %-46s NONE %s\n", device, row_name(shape), harness_line);
  else
  ck_assert_msg(found == PETRA_OK, "%s, %s: %s", device, row_name(shape), harness_line);
  if (found != PETRA_OK) return;
  ck_assert_int_eq(cuda_plan_notes(plan, &notes), PETRA_OK);
  ck_assert_msg((notes & never) == 0, "%s, %s: notes %x", device, row_name(shape), notes);
  ck_assert_msg(shape->precision != PETRA_PRECISION_FP32 || (notes & CUDA_PLAN_NOTE_TENSOR_CORES) == 0, "%s, %s: notes %x",
                device, row_name(shape), notes);
  ck_assert_uint_le(cuda_plan_workspace(plan), WORKSPACE_MAX);
  cuda_plan_describe(plan, text, sizeof text);
  ck_assert_ptr_nonnull(strstr(text, "engine "));
  if (asked_for("table"))
    printf("%s %-46s %s\n", device, row_name(shape), text);
}

START_TEST(every_network_has_plans) {
  shape_list *list = NULL;
  ck_assert_int_eq(petra_allocate(&list, 1, sizeof *list), PETRA_OK);
  add_networks(list, "revnet", "standard");
  add_networks(list, "revnet", "invertible");
  add_networks(list, "resnet", "");
  ck_assert_int_gt(list->count, 300);
  int step = asked_for("all") || asked_for("table") ? 1 : SAMPLE;
  cuda_plans *plans = make_plans(devices[_i], true);
  for (int i = 0; i < list->count; i += step)
    check_plan(plans, &list->shapes[i], devices[_i]);
  printf("test_cuda_plans: %s: %d of %d shapes\n", devices[_i], (list->count + step - 1) / step, list->count);
  cuda_plans_destroy(plans);
  petra_free(list);
}
END_TEST

int main(void) {
  printf("start\n"); fflush(stdout);
  Suite *s = suite_create("p"); TCase *t = tcase_create("t"); tcase_set_timeout(t, 0);
  tcase_add_loop_test(t, every_network_has_plans, 0, 2); suite_add_tcase(s, t);
  SRunner *r = srunner_create(s); srunner_set_fork_status(r, CK_NOFORK);   petra_log_set_sink(harness_capture, NULL);
  srunner_run_all(r, CK_NORMAL);
  return srunner_ntests_failed(r);
}
