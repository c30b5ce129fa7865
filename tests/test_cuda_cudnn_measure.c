/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions by measuring: which is taken, and the file of the choices. */
#include "test_cuda_cudnn.h"

#include "base/mem.h"

#include <sys/stat.h>
#include <unistd.h>

#define TAKES(us_of_each)                                                                                              \
  { us_of_each, us_of_each, us_of_each, us_of_each }
#define SETTING "petra plans 1\nlibrary: %s\ndevice: %s\ndeterministic: %s\n"

enum { EACH = 21 }; /* times that a convolution is run or captured: once before, then in a graph */

static char file[64];

static void name_file(void) {
  snprintf(file, sizeof file, "measured-%ld.plans", (long)getpid());
  remove(file);
}

static cuda_conv_shape shape_of(petra_precision precision) {
  return convs_shape(CUDA_CONV_FORWARD, precision, 1, 3, 5, 4, 2, 3, 3, 1, 1);
}

static void set_engines(const cudnn_fake_engine *engines, int count) {
  static const cudnn_fake_engine none;
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, engines, count);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_B, &none, 0);
  petra_cudnn_fake_engines(CUDNN_HEUR_MODE_FALLBACK, &none, 0);
}

/* Convolutions with the file. */
static cuda_convs *open_convs(void) {
  cuda_convs *convs = NULL;
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_msg(cuda_convs_measure(convs, file) == PETRA_OK, "%s", harness_line);
  return convs;
}

/* What the shape's convolution is, and how often convolutions were run for it. */
static const char *found(cuda_convs *convs, const cuda_conv_shape *shape, int64_t *runs) {
  static char text[128];
  const cuda_conv *conv = NULL;
  const int64_t before = petra_cudnn_fake_runs();
  ck_assert_msg(cuda_convs_find(convs, shape, &conv) == PETRA_OK, "%s", harness_line);
  *runs = petra_cudnn_fake_runs() - before;
  cuda_conv_describe(conv, text, sizeof text);
  return text;
}

static char *read_file(void) {
  static char text[4096];
  FILE *in = fopen(file, "r");
  text[0] = 0;
  if (in) {
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
  }
  return text;
}

static void write_file(const char *text) {
  FILE *out = fopen(file, "w");
  ck_assert(out && fputs(text, out) >= 0 && fclose(out) == 0);
}

/* What a file of the present setting begins with. */
static const char *setting(void) {
  static char text[256];
  char library[64];
  cuda_cudnn_describe(library, sizeof library);
  snprintf(text, sizeof text, SETTING, library, "host device", "true");
  return text;
}

#define SHAPE "forward, x 1x5x4x3, filter 2x3x3x3, stride 1, pad 1, fp32"

/* --- which is taken --- */

/* Measured by a first life, read by a second: both take `expected`. The line of the file, without the shape. */
static void check_lives(const cudnn_fake_engine *engines, int count, const cuda_conv_shape *shape, double kernel_us,
                        int64_t expected_runs, const char *expected, const char *line) {
  name_file();
  for (int life = 0; life < 2; life++) {
    int64_t runs;
    convs_begin((uint64_t)life + 1);
    petra_cuda_host_make_up_time(kernel_us);
    set_engines(engines, count);
    cuda_convs *convs = open_convs();
    ck_assert_str_eq(found(convs, shape, &runs), expected);
    ck_assert_int_eq(runs, life == 0 ? expected_runs : 0);
    ck_assert_int_eq(convs_check_run(convs, shape), PETRA_OK);
    ck_assert_msg(harness_lines == 0, "%s", harness_line);
    cuda_convs_destroy(convs);
    ck_assert_int_eq(petra_cuda_host_count().events, 0);
    convs_end();
    ck_assert_msg(strstr(read_file(), line) != NULL, "%s: %s", line, read_file());
    ck_assert_int_eq(strncmp(read_file(), setting(), strlen(setting())), 0);
  }
  remove(file);
}

START_TEST(the_fastest_is_taken) {
  static const cudnn_fake_engine fourth[] = {{.index = 1, .us = TAKES(40)},
                                             {.index = 2, .us = TAKES(30), .finalizes = CUDNN_STATUS_NOT_SUPPORTED},
                                             {.index = 3, .us = TAKES(20), .workspace = 512},
                                             {.index = 4, .us = TAKES(25)},
                                             {.index = 5, .us = TAKES(12.5), .workspace = 256}},
                                 equal[] = {{.index = 1, .us = TAKES(20)},
                                            {.index = 2, .us = TAKES(10)},
                                            {.index = 3, .us = TAKES(10)}},
                                 first[] = {{.index = 1, .us = {900, 9, 11, 10}}, {.index = 2, .us = {1, 10, 12, 11}}};
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  check_lives(fourth, 5, &shape, 0, 4 * EACH, "engine 5, 0.0 MiB workspace",
              SHAPE ": rounds 0, widens 0, heuristics a, rank 4, engine 5, 12.500 us\n");
  check_lives(equal, 3, &shape, 0, 3 * EACH, "engine 2, 0.0 MiB workspace", "rank 1, engine 2, 10.000 us\n");
  check_lives(first, 2, &shape, 0, 2 * EACH, "engine 1, 0.0 MiB workspace", "rank 0, engine 1, 10.000 us\n");
}
END_TEST

/* The ninth is not looked at, nor one that may not be taken. */
START_TEST(the_first_eight) {
  static cudnn_fake_engine many[10];
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  for (int i = 0; i < 10; i++)
    many[i] = (cudnn_fake_engine){.index = i, .us = TAKES(100.0 - i)};
  many[2].note_count = 1, many[2].notes[0] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  check_lives(many, 10, &shape, 0, 8 * EACH, "engine 8, 0.0 MiB workspace", "rank 8, engine 8, 92.000 us\n");
}
END_TEST

/* What the host takes for each launch is not the convolution's: 40 us a call, with a kernel before and after it. */
START_TEST(the_host_is_left_out) {
  static const cudnn_fake_engine engines[] = {{.index = 1, .us = TAKES(20), .takes = CUDNN_FAKE_WIDENS},
                                              {.index = 2, .us = TAKES(8)}};
  cuda_conv_shape shape = convs_shape(CUDA_CONV_DATA, PETRA_PRECISION_BF16, 1, 3, 5, 4, 2, 3, 3, 1, 1);
  shape.wide_out = 1;
  for (int latency = 0; latency <= 40; latency += 40) {
    char line[64];
    int64_t runs;
    name_file();
    convs_begin(1);
    petra_cuda_host_make_up_time(3);
    petra_cuda_host_make_up_latency(latency);
    set_engines(engines, 2);
    cuda_convs *convs = open_convs();
    ck_assert_str_eq(found(convs, &shape, &runs), "engine 2, 0.0 MiB workspace, widened after");
    cuda_convs_destroy(convs);
    convs_end();
    snprintf(line, sizeof line, "engine 2, %.3f us\n", 8 + 3 + latency / 20.0); /* once for all runs of a graph */
    ck_assert_msg(strstr(read_file(), line) != NULL, "%s: %s", line, read_file());
  }
  remove(file);
}
END_TEST

/* Runs take turns on memory that the cache (1 MiB) does not hold: three times as much, or a set of arrays for each run. */
START_TEST(memory_is_cold) {
  static const cudnn_fake_engine engine = {.index = 1, .us = TAKES(1000)};
  static const struct {
    int size;
    size_t least, most;
  } rows[] = {{4, 20 * 3 * 256, 20 * 3 * 256}, {128, 3 << 20, (3 << 20) + (1 << 19)}};
  for (int i = 0; i < HARNESS_COUNT(rows); i++) {
    const cuda_conv_shape shape =
        convs_shape(CUDA_CONV_FORWARD, PETRA_PRECISION_FP32, 1, 3, rows[i].size, rows[i].size, 1, 1, 1, 1, 0);
    int64_t runs;
    name_file();
    convs_begin(1);
    petra_cuda_host_make_up_time(0);
    set_engines(&engine, 1);
    cuda_convs *convs = open_convs();
    found(convs, &shape, &runs);
    const size_t bytes = petra_cuda_host_count().device_bytes_max;
    ck_assert_msg(bytes >= rows[i].least && bytes <= rows[i].most, "%zu bytes", bytes);
    cuda_convs_destroy(convs);
    convs_end();
  }
  remove(file);
}
END_TEST

/* Those with tensor cores first, wherever the heuristics have them; the rest are others. */
START_TEST(tensor_cores_are_looked_at_first) {
  static cudnn_fake_engine many[12];
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_BF16);
  for (int i = 0; i < 12; i++)
    many[i] = (cudnn_fake_engine){.index = i, .us = TAKES(100.0 - i)};
  many[10].note_count = 1, many[10].notes[0] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  check_lives(many, 12, &shape, 0, 8 * EACH, "engine 10, 0.0 MiB workspace, tensor cores",
              "rank 10, engine 10, 90.000 us\n");
  many[6].us[0] = many[6].us[1] = many[6].us[2] = many[6].us[3] = 50; /* the last that there is room for */
  check_lives(many, 12, &shape, 0, 8 * EACH, "engine 6, 0.0 MiB workspace", "rank 6, engine 6, 50.000 us\n");
}
END_TEST

/* Those of the modes in their order. */
START_TEST(of_all_modes) {
  static const cudnn_fake_engine a = {.index = 1, .us = TAKES(3)}, b = {.index = 2, .us = TAKES(2)},
                                 fallback = {.index = 3, .us = TAKES(4)};
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  name_file();
  for (int life = 0; life < 2; life++) {
    int64_t runs;
    convs_begin(1);
    petra_cuda_host_make_up_time(0);
    petra_cudnn_fake_engines(CUDNN_HEUR_MODE_A, &a, 1);
    petra_cudnn_fake_engines(CUDNN_HEUR_MODE_B, &b, 1);
    petra_cudnn_fake_engines(CUDNN_HEUR_MODE_FALLBACK, &fallback, 1);
    cuda_convs *convs = open_convs();
    ck_assert_str_eq(found(convs, &shape, &runs), "engine 2, 0.0 MiB workspace, by heuristics B");
    ck_assert_int_eq(runs, life == 0 ? 3 * EACH : 0);
    cuda_convs_destroy(convs);
    convs_end();
    ck_assert_ptr_nonnull(strstr(read_file(), "heuristics b, rank 0, engine 2, 2.000 us\n"));
  }
  remove(file);
}
END_TEST

START_TEST(forms_of_wide_shapes) {
  enum { BOTH = CUDNN_FAKE_ROUNDS | CUDNN_FAKE_WIDENS };
  cudnn_fake_engine engines[] = {{.index = 1, .us = TAKES(10)},
                                 {.index = 2, .us = TAKES(8)},
                                 {.index = 3, .us = TAKES(15), .takes = BOTH},
                                 {.index = 4, .us = TAKES(13), .takes = BOTH}};
  cuda_conv_shape shape = convs_shape(CUDA_CONV_DATA, PETRA_PRECISION_BF16, 1, 3, 5, 4, 2, 3, 3, 1, 1);
  shape.wide_out = 1;
  check_lives(engines, 4, &shape, 6, 4 * EACH, "engine 4, 0.0 MiB workspace",
              "bf16, output f32: rounds 0, widens 1, heuristics a, rank 1, engine 4, 13.000 us\n");
  check_lives(engines, 4, &shape, 4, 4 * EACH, "engine 2, 0.0 MiB workspace, widened after",
              "bf16, output f32: rounds 0, widens 0, heuristics a, rank 1, engine 2, 12.000 us\n");
  shape = shape_of(PETRA_PRECISION_BF16); /* three forms: of the first two, of the others three at most */
  shape.wide_in = shape.wide_out = 1;
  check_lives(engines, 4, &shape, 7, 6 * EACH, "engine 4, 0.0 MiB workspace",
              "bf16, x f32, output f32: rounds 1, widens 1, heuristics a, rank 1, engine 4, 13.000 us\n");
  check_lives(engines, 4, &shape, 1, 6 * EACH, "engine 2, 0.0 MiB workspace, rounded before, widened after",
              "bf16, x f32, output f32: rounds 0, widens 0, heuristics a, rank 1, engine 2, 10.000 us\n");
}
END_TEST

/* As the heuristics have it, with nothing run. */
START_TEST(nothing_is_measured_without_a_file) {
  static const cudnn_fake_engine engines[] = {{.index = 1, .us = TAKES(40)}, {.index = 2, .us = TAKES(30)}};
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  cuda_convs *convs = NULL;
  int64_t runs;
  convs_begin(1);
  petra_cuda_host_make_up_time(0);
  set_engines(engines, 2);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_str_eq(found(convs, &shape, &runs), "engine 1, 0.0 MiB workspace");
  ck_assert_int_eq(runs, 0);
  ck_assert_int_eq(petra_cuda_host_count().device_bytes_max, 0);
  cuda_convs_destroy(convs);
  convs_end();
}
END_TEST

START_TEST(none_serves) {
  static const cudnn_fake_engine engine = {.index = 1, .finalizes = CUDNN_STATUS_NOT_SUPPORTED};
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  const cuda_conv *conv = NULL;
  name_file();
  convs_begin(1);
  set_engines(&engine, 1);
  cuda_convs *convs = open_convs();
  ck_assert_int_eq(cuda_convs_find(convs, &shape, &conv), PETRA_UNSUPPORTED);
  ck_assert_logged(
      "of 1 engine configurations 0 have unwanted notes, 0 need more than 1048576 bytes of workspace, 1 do");
  ck_assert_int_eq(harness_lines, 1);
  cuda_convs_destroy(convs);
  ck_assert_int_ne(access(file, F_OK), 0); /* nothing was measured */
  convs_end();
}
END_TEST

/* One that cuDNN does not run, or not in a capture, is passed over. */
START_TEST(runs_that_fail) {
  static const cudnn_fake_engine engines[] = {
      {.index = 1, .us = TAKES(10)}, {.index = 2, .us = TAKES(20)}, {.index = 3, .us = TAKES(30)}};
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  for (int nth = 1; nth <= 4; nth++) {
    int64_t runs;
    name_file();
    convs_begin((uint64_t)nth);
    petra_cuda_host_make_up_time(0);
    set_engines(engines, 3);
    cuda_convs *convs = open_convs();
    petra_cuda_host_fail("cudnnBackendExecute", nth, (cudaError_t)CUDNN_STATUS_EXECUTION_FAILED);
    ck_assert_str_eq(found(convs, &shape, &runs), "engine 2, 0.0 MiB workspace");
    ck_assert(petra_cuda_host_failed() && harness_lines == 0);
    cuda_convs_destroy(convs);
    convs_end();
  }
  remove(file);
}
END_TEST

START_TEST(calls_that_fail) {
  static const char *const functions[] = {
      "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaMemsetAsync",      "cudaDeviceSynchronize",
      "cudaGetDeviceProperties",   "cudaStreamBeginCapture",   "cudaGraphInstantiate", "cudaGraphLaunch",
      "cudaEventRecord",           "cudaEventSynchronize",     "cudaEventElapsedTime"};
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  for (int f = 0; f < HARNESS_COUNT(functions); f++)
    for (int nth = 1; nth <= 2; nth++) {
      const cuda_conv *conv = NULL;
      name_file();
      convs_begin(1);
      cuda_convs *convs = open_convs();
      petra_cuda_host_fail(functions[f], nth, cudaErrorInvalidValue);
      const petra_status status = cuda_convs_find(convs, &shape, &conv);
      ck_assert_int_eq(status, petra_cuda_host_failed() ? PETRA_BACKEND : PETRA_OK);
      ck_assert(nth > 1 || petra_cuda_host_failed());
      ck_assert_int_eq(harness_lines, petra_cuda_host_failed());
      petra_cuda_host_fail(NULL, 0, cudaSuccess);
      cuda_convs_destroy(convs);
      ck_assert_int_eq(petra_cuda_host_count().events, 0);
      ck_cuda(cudaDeviceSynchronize());
      convs_end();
    }
  remove(file);
}
END_TEST

/* Heuristics choose, a line says so once, nothing is kept. */
START_TEST(no_room_on_the_device) {
  static const cudnn_fake_engine engines[] = {{.index = 1, .us = TAKES(40), .workspace = 4096},
                                              {.index = 2, .us = TAKES(30)}};
  const cuda_conv_shape shapes[] = {shape_of(PETRA_PRECISION_FP32), shape_of(PETRA_PRECISION_TF32)};
  name_file();
  convs_begin(1);
  petra_cuda_host_make_up_time(0);
  set_engines(engines, 2);
  cuda_convs *convs = open_convs();
  for (size_t limit = 0; limit < 2; limit++) { /* for nothing; for x, w and y */
    int64_t runs;
    petra_cuda_host_memory(limit * 4096);
    ck_assert_str_eq(found(convs, &shapes[limit], &runs), "engine 1, 0.0 MiB workspace");
    ck_assert(runs == 0 && petra_cuda_host_count().device_bytes == 0);
    ck_assert_logged("device.plans: convolution " SHAPE ": not measured, because the device has too little memory");
    ck_assert_int_eq(harness_lines, 1);
    ck_cuda(cudaGetLastError());
  }
  cuda_convs_destroy(convs);
  ck_assert_int_ne(access(file, F_OK), 0);
  convs_end();
}
END_TEST

/* --- the file --- */

/* A shape more: what the file held of others is kept, and so is what others have added meanwhile. */
START_TEST(files_grow) {
  static const cudnn_fake_engine engines[] = {{.index = 1, .us = TAKES(4)}, {.index = 2, .us = TAKES(3)}};
  const cuda_conv_shape shapes[] = {shape_of(PETRA_PRECISION_FP32), shape_of(PETRA_PRECISION_TF32),
                                    shape_of(PETRA_PRECISION_BF16)};
  char printed[4096];
  int64_t runs;
  name_file();
  convs_begin(1);
  petra_cuda_host_make_up_time(0);
  set_engines(engines, 2);
  cuda_convs *convs = open_convs();
  found(convs, &shapes[0], &runs);
  cuda_convs_destroy(convs);
  convs = open_convs();
  cuda_convs *other = open_convs();
  found(other, &shapes[1], &runs);
  found(convs, &shapes[2], &runs);
  cuda_convs_destroy(other);
  FILE *out = fmemopen(printed, sizeof printed, "w");
  cuda_convs_print(convs, out);
  fclose(out);
  cuda_convs_destroy(convs);
  ck_assert(strstr(printed, "bf16: ") != NULL && strstr(printed, "fp32: ") == NULL); /* what was used alone */
  convs = open_convs();
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(strncmp(found(convs, &shapes[i], &runs), "engine 2,", 9), 0);
    ck_assert_int_eq(runs, 0);
  }
  ck_assert_int_eq(harness_lines, 0);
  ck_assert_int_eq(chmod(file, 0444), 0); /* as nothing is added */
  struct stat was, is;
  stat(file, &was);
  cuda_convs_destroy(convs);
  stat(file, &is);
  ck_assert(was.st_ino == is.st_ino);
  convs_end();
  remove(file);
}
END_TEST

/* Another engine in that place, none in that place, or a form that the shape has not. */
START_TEST(choices_that_do_not_fit) {
  static const cudnn_fake_engine engines[] = {{.index = 1, .us = TAKES(4)}, {.index = 2, .us = TAKES(3)}};
  static const char *const choices[] = {"rounds 0, widens 0, heuristics a, rank 1, engine 7, 1.000 us",
                                        "rounds 0, widens 0, heuristics a, rank 2, engine 2, 1.000 us",
                                        "rounds 0, widens 0, heuristics b, rank 0, engine 2, 1.000 us",
                                        "rounds 0, widens 1, heuristics a, rank 1, engine 2, 1.000 us"};
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  for (int i = 0; i < HARNESS_COUNT(choices); i++) {
    char text[512];
    int64_t runs;
    name_file();
    convs_begin(1);
    petra_cuda_host_make_up_time(0);
    set_engines(engines, 2);
    snprintf(text, sizeof text, "%s" SHAPE ": %s\n", setting(), choices[i]);
    write_file(text);
    cuda_convs *convs = open_convs();
    ck_assert_str_eq(found(convs, &shape, &runs), "engine 2, 0.0 MiB workspace");
    ck_assert_int_eq(runs, 2 * EACH);
    ck_assert_logged("is not the one that cuDNN has at this rank; measured again");
    ck_assert_int_eq(harness_lines, 1);
    cuda_convs_destroy(convs);
    ck_assert_ptr_nonnull(
        strstr(read_file(), SHAPE ": rounds 0, widens 0, heuristics a, rank 1, engine 2, 3.000 us\n"));
    convs_end();
  }
  remove(file);
}
END_TEST

/* One line, the status, and the file as it was. */
static void check_refused(const char *text, petra_status expected, const char *line) {
  cuda_convs *convs = NULL;
  convs_begin(1);
  write_file(text);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_measure(convs, file), expected);
  ck_assert_logged(line);
  ck_assert_logged(file);
  ck_assert_int_eq(harness_lines, 1);
  cuda_convs_destroy(convs);
  ck_assert_str_eq(read_file(), text);
  convs_end();
}

START_TEST(files_that_are_refused) {
  static const char *const good = SHAPE ": rounds 0, widens 0, heuristics a, rank 1, engine 2, 3.000 us";
  static const char *const damaged[] = {
      "",
      "forward",
      SHAPE,
      SHAPE ": rounds 0",
      SHAPE ": rounds 0, widens 0, heuristics a, rank 1, engine 2, 3.000 u",
      SHAPE ": rounds 0, widens 0, heuristics a, rank 1, engine 2, 3.000 us ",
      SHAPE ": rounds 0, widens 0, heuristics c, rank 1, engine 2, 3.000 us",
      SHAPE ": rounds 2, widens 0, heuristics a, rank 1, engine 2, 3.000 us",
      SHAPE ": rounds 0, widens 0, heuristics a, rank -1, engine 2, 3.000 us",
      SHAPE ": rounds 0, widens 0, heuristics a, rank 1, engine 2, nan us",
      "backward, x 1x5x4x3, filter 2x3x3x3, stride 1, pad 1, fp32: rounds 0, widens 0, heuristics a, rank 1, engine 2, "
      "3.000 us",
      "forward, x 1x5x4x3, filter 2x3x3x4, stride 1, pad 1, fp32: rounds 0, widens 0, heuristics a, rank 1, engine 2, "
      "3.000 us",
      "forward, x 1x5x4x3, filter 2x3x3x3, stride 0, pad 1, fp64: rounds 0, widens 0, heuristics a, rank 1, engine 2, "
      "3.000 us"};
  char text[1024], library[64];
  name_file();
  cuda_cudnn_describe(library, sizeof library);
  check_refused("", PETRA_DATA, ", line 1: damaged: expected \"petra plans 1\"");
  check_refused("petra plans 2\n", PETRA_DATA, ", line 1: damaged");
  check_refused("petra plans 1\n", PETRA_DATA, ", line 2: damaged: expected more lines");
  check_refused("petra plans 1\nlib", PETRA_DATA, ", line 2: damaged: expected \"library: ...\"");
  snprintf(text, sizeof text, SETTING "%s\n", "cuDNN 9.8.0", "host device", "true", good);
  check_refused(text, PETRA_CONFIG, "was measured with library cuDNN 9.8.0, but this is cuDNN 9.");
  snprintf(text, sizeof text, SETTING "%s\n", library, "NVIDIA B200", "true", good);
  check_refused(text, PETRA_CONFIG, "was measured with device NVIDIA B200, but this is host device; expected ");
  snprintf(text, sizeof text, SETTING "%s\n", library, "host device", "false", good);
  check_refused(text, PETRA_CONFIG, "was measured with deterministic false, but this is true; expected ");
  for (int i = 0; i < HARNESS_COUNT(damaged); i++) {
    snprintf(text, sizeof text, "%s%s\n", setting(), damaged[i]);
    check_refused(text, PETRA_DATA, ", line 5: damaged: expected a shape and its choice");
  }
  snprintf(text, sizeof text, "%s%s\n%s\n", setting(), good, good);
  check_refused(text, PETRA_DATA, ", line 6: damaged: expected a shape that no earlier line has");
  remove(file);
}
END_TEST

static void check_place(const char *place, const char *line) {
  cuda_convs *convs = NULL;
  convs_begin(1);
  ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_measure(convs, place), PETRA_IO);
  ck_assert_logged(line);
  ck_assert_int_eq(harness_lines, 1);
  cuda_convs_destroy(convs);
  convs_end();
}

START_TEST(places_that_are_refused) {
  char inside[80];
  name_file();
  check_place(".", "device.plans: .: cannot read: Is a directory");
  snprintf(inside, sizeof inside, "%s/x", file);
  check_place(inside, "cannot be written: No such file or directory");
  write_file("x");
  check_place(inside, "cannot open: Not a directory");
  remove(file);
}
END_TEST

/* What has become of the file meanwhile is left as it is: a choice that cannot be kept is none, for the run could not be repeated. */
START_TEST(files_that_cannot_be_written) {
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_FP32);
  const cuda_conv *conv;
  name_file();
  for (int damaged = 0; damaged < 2; damaged++) {
    convs_begin(1);
    cuda_convs *convs = open_convs();
    if (damaged)
      write_file("x");
    else
      ck_assert_int_eq(mkdir(file, 0777), 0);
    ck_assert_int_ne(cuda_convs_find(convs, &shape, &conv), PETRA_OK);
    cuda_convs_destroy(convs);
    ck_assert_logged(damaged ? "line 1: damaged" : "cannot read: Is a directory");
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_str_eq(read_file(), damaged ? "x" : "");
    ck_assert_int_eq(remove(file), 0);
    convs_end();
  }
}
END_TEST

START_TEST(not_without_a_device) {
  cuda_convs *convs = NULL;
  convs_begin(1);
  ck_assert_int_eq(cuda_convs_create("{}", true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
  ck_assert_int_eq(cuda_convs_measure(convs, "x.plans"), PETRA_INTERNAL);
  cuda_convs_destroy(convs);
  convs_end();
}
END_TEST

static bool refuse_nth(void *context, size_t bytes) {
  (void)bytes;
  return --*(int *)context == 0;
}

START_TEST(memory_that_runs_out) {
  const cuda_conv_shape shape = shape_of(PETRA_PRECISION_TF32);
  for (int nth = 1, left = 0; left <= 0; nth++) {
    cuda_convs *convs = NULL;
    const cuda_conv *conv = NULL;
    name_file();
    convs_begin(1);
    ck_assert_int_eq(cuda_convs_create(NULL, true, PLANS_WORKSPACE_MAX, &convs), PETRA_OK);
    left = nth;
    petra_mem_set_hook(refuse_nth, &left);
    petra_status status = cuda_convs_measure(convs, file);
    if (status == PETRA_OK)
      status = cuda_convs_find(convs, &shape, &conv);
    const bool before = left <= 0;
    cuda_convs_destroy(convs);
    petra_mem_set_hook(NULL, NULL);
    ck_assert_int_eq(status, before ? PETRA_NO_MEMORY : PETRA_OK);
    ck_assert((harness_lines > 0) == (left <= 0)); /* two of the text of a file */
    convs_end();
  }
  ck_assert_int_eq(access(file, F_OK), 0);
  remove(file);
}
END_TEST

int measure_tests(const TTest **tests) {
  int count = 0;
  tests[count++] = the_fastest_is_taken;
  tests[count++] = the_first_eight;
  tests[count++] = the_host_is_left_out;
  tests[count++] = memory_is_cold;
  tests[count++] = tensor_cores_are_looked_at_first;
  tests[count++] = of_all_modes;
  tests[count++] = forms_of_wide_shapes;
  tests[count++] = nothing_is_measured_without_a_file;
  tests[count++] = none_serves;
  tests[count++] = runs_that_fail;
  tests[count++] = calls_that_fail;
  tests[count++] = no_room_on_the_device;
  tests[count++] = files_grow;
  tests[count++] = choices_that_do_not_fit;
  tests[count++] = files_that_are_refused;
  tests[count++] = places_that_are_refused;
  tests[count++] = files_that_cannot_be_written;
  tests[count++] = not_without_a_device;
  tests[count++] = memory_that_runs_out;
  return count;
}
