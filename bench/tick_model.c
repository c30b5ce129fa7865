/* SPDX-License-Identifier: Apache-2.0 */
/* tick_model [CONFIG.yaml] [--set KEY=VALUE]... [OPTION]...: launches, bytes and FLOPs of one tick of a method on a GPU (F, B and U
 * of all stages in the steady state), counted from the segments that the `cuda` backend records, and priced. No device is needed and
 * nothing is computed: it is linked over the stand-ins of tests/cuda_host, which tell the work in place of doing it.
 *
 *   --precisions LIST, --batches LIST   each with each, as tf32,bf16 or 64,256; else the config's
 *   --warmup N                          microbatches before the tick that is counted (60)
 *   --rate NAME=VALUE                   in place of an assumed rate; which there are, the lines rate/NAME say
 *   --rates FILE                        lines NAME=VALUE, and of bench_device's output the lines ceiling/: rates that were measured
 *   --pytorch FILE                      lines pytorch-count/ (bench/peer_pytorch_tick.py --count), to be told beside
 *   --kernels                           a line for each kernel as well
 *
 * A line begins with what it is about: device, rate/NAME, model/KEY/KIND (bench/tick_count.h), sum/KEY, elementwise/KEY,
 * kernel/KEY/NAME, pytorch/KEY, failed/KEY; KEY is that of bench_device, and the rest name=value; a MB is 10^6 bytes.
 *
 * Counted: a launch is a kernel of our own, a convolution or product (whatever its library launches for it) or a copy on the device. A
 * kernel reads and writes what its command says (cuda.h): the tensors, each once; of the launches of one command each reads all, but
 * those that sum up scratch. Convolutions, products and conversions move the arrays of their shapes, each once. Not counted: scratch,
 * workspaces, caches. Priced: a launch takes its launch time and the longer of bytes / bandwidth and FLOPs / rate, one launch after
 * another; lanes side by side are not modelled, nor is a layer that does not fill the device. Transfers between host and
 * device are told and left out of the sum: they run beside the rest. elementwise/KEY is all but convolutions and products.
 * What fails is said and left out; the exit status is then 1. Defaults: petra, RevNet-18, width 64, k = 1. */
#include "base/log.h"
#include "bench/tick_count.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 64, LINE_MAX_BYTES = 1024, NAMES_MAX = 128 };

/* --- rates --- */

typedef enum rate_name { COPY, HOST_COPY, FP32, TF32, BF16, LAUNCH, GRAPH_LAUNCH, RATES } rate_name;
typedef struct rate {
  const char *name;
  double value;
  const char *source;
} rate;

/* An H200 SXM; its data sheet: 4.8 TB/s of HBM3e, 67 TFLOP/s in fp32, 494.7 in tf32 and 989.4 in bf16 (dense). What part of these a
 * tick gets was not measured. */
static const rate assumed[RATES] = {
    [COPY] = {"copy_bytes_per_s", 4.3e12, "assumed: 90 % of 4.8e12 B/s"},
    [HOST_COPY] = {"host_copy_bytes_per_s", 50e9, "assumed: PCIe 5.0 x16, 80 % of 63e9 B/s"},
    [FP32] = {"fp32_flops_per_s", 40.2e12, "assumed: 60 % of 67e12 FLOP/s"},
    [TF32] = {"tf32_flops_per_s", 297e12, "assumed: 60 % of 494.7e12 FLOP/s"},
    [BF16] = {"bf16_flops_per_s", 594e12, "assumed: 60 % of 989.4e12 FLOP/s"},
    [LAUNCH] = {"launch_s", 2e-6, "assumed: a kernel launched alone"},
    [GRAPH_LAUNCH] = {"graph_launch_s", 1e-6, "assumed: a node of a CUDA graph"}};

static bool set_rate(rate *rates, const char *text, const char *source) {
  for (int i = 0; i < RATES; i++) {
    const size_t length = strlen(rates[i].name);
    char *end;
    if (strncmp(text, rates[i].name, length) != 0 || text[length] != '=')
      continue;
    const double value = strtod(text + length + 1, &end);
    if (end == text + length + 1 || *end || !(value > 0))
      return false;
    rates[i].value = value;
    rates[i].source = source;
    return true;
  }
  return false;
}

/* name=VALUE in a line of bench_device; 0: it is not there. */
static double value_in(const char *line, const char *name) {
  const char *at = strstr(line, name);
  return at ? strtod(at + strlen(name), NULL) : 0;
}

/* "ceiling/cuda/tf32/b64/graph-on/conv ... tflop_per_s=..." */
static void take_ceiling(rate *rates, const char *line) {
  const double copy = value_in(line, " gb_per_s="), flops = value_in(line, " tflop_per_s=");
  const int precision = strstr(line, "/tf32/") ? TF32 : strstr(line, "/bf16/") ? BF16 : FP32;
  const int which = strstr(line, "/copy ") ? COPY : precision;
  const double value = which == COPY ? 1e9 * copy : 1e12 * flops;
  if (value > 0) {
    rates[which].value = value;
    rates[which].source = "measured: bench_device";
  }
}

static bool read_rates(rate *rates, const char *path) {
  char line[LINE_MAX_BYTES];
  bool right = true;
  FILE *file = fopen(path, "r");
  if (!file)
    return false;
  while (right && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\r\n")] = 0;
    if (strncmp(line, "ceiling/", 8) == 0)
      take_ceiling(rates, line);
    else if (line[0] && line[0] != '#' && !strchr(line, '/'))
      right = set_rate(rates, line, "given");
  }
  fclose(file);
  return right;
}

/* --- a tick --- */

typedef struct row {
  double launches, flops, read_bytes, written_bytes, seconds;
} row;

typedef struct arguments {
  const char *path, *sets[SETS_MAX + 2], *pytorch;
  int set_count, warmup;
  char *precisions, *batches;
  bool kernels;
  rate rates[RATES];
} arguments;

/* What is known of tf32 at a batch, to compare with. */
typedef struct reference {
  int64_t batch;
  double bytes;
} reference;

static bool is_matrix(tick_kind kind) {
  return kind <= TICK_PRODUCT;
}

static double price(const arguments *a, const petra_config *config, const tick_launch *launch) {
  const rate *rates = a->rates;
  const double bytes = launch->read_bytes + launch->written_bytes;
  const petra_precision p = config->device.precision;
  if (launch->kind == TICK_TRANSFER)
    return bytes / rates[HOST_COPY].value;
  const double moved = bytes / rates[COPY].value;
  const double computed = launch->flops / rates[p == PETRA_PRECISION_TF32   ? TF32
                                                : p == PETRA_PRECISION_BF16 ? BF16
                                                                            : FP32]
                                              .value;
  return rates[config->device.graph == PETRA_GRAPH_OFF ? LAUNCH : GRAPH_LAUNCH].value +
         (moved > computed ? moved : computed);
}

static void add(row *sum, const row *part) {
  sum->launches += part->launches;
  sum->flops += part->flops;
  sum->read_bytes += part->read_bytes;
  sum->written_bytes += part->written_bytes;
  sum->seconds += part->seconds;
}

static void print_row(const char *what, const bench_key *key, const char *name, const row *r) {
  char start[160];
  snprintf(start, sizeof start, "%s/%s%s%s", what, key->text, *name ? "/" : "", name);
  printf("%-46s launches=%-5.10g read_mb=%-12.6f written_mb=%-12.6f gflop=%-10.4f ms=%.4f", start, r->launches,
         1e-6 * r->read_bytes, 1e-6 * r->written_bytes, 1e-9 * r->flops, 1e3 * r->seconds);
}

static void print_kernels(const arguments *a, const petra_config *config, const tick_count *count) {
  const char *names[NAMES_MAX];
  row rows[NAMES_MAX] = {{0}};
  int found = 0;
  for (int64_t i = 0; i < count->count; i++) {
    const tick_launch *l = &count->launches[i];
    int n = 0;
    while (n < found && strcmp(names[n], l->name) != 0)
      n++;
    if (n == NAMES_MAX)
      continue;
    if (n == found)
      names[found++] = l->name;
    const double ticks = count->ticks;
    add(&rows[n], &(row){1 / ticks, l->flops / ticks, l->read_bytes / ticks, l->written_bytes / ticks,
                         price(a, config, l) / ticks});
  }
  for (int n = 0; n < found; n++) {
    print_row("kernel", &count->key, names[n], &rows[n]);
    printf("\n");
  }
}

/* The lines of PyTorch's count with this precision and batch. */
static void print_pytorch(const arguments *a, const petra_config *config, const tick_count *count, const row *sum) {
  static const char *const precisions[] = {"fp32", "fp64", "tf32", "bf16"};
  char line[LINE_MAX_BYTES], start[64];
  FILE *file = a->pytorch ? fopen(a->pytorch, "r") : NULL;
  snprintf(start, sizeof start, "pytorch-count/%s/b%lld ", precisions[config->device.precision],
           (long long)config->data.batch);
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, start, strlen(start)) != 0)
      continue;
    line[strcspn(line, "\r\n")] = 0;
    const double width = value_in(line, " width="), depth = value_in(line, " depth=");
    if ((width > 0 && width != config->model.width) || (depth > 0 && depth != config->model.depth)) {
      printf("pytorch/%s left out: of another network: %s\n", count->key.text, line + strlen(start));
      continue;
    }
    const double launches = value_in(line, " launches="),
                 mb = value_in(line, " read_mb=") + value_in(line, " written_mb=");
    printf("pytorch/%s %s launches_over_ours=%.3f mb_over_ours=%.3f\n", count->key.text, line + strlen(start),
           launches / sum->launches, 1e6 * mb / (sum->read_bytes + sum->written_bytes));
  }
  if (file)
    fclose(file);
}

static void print_tick(const arguments *a, const petra_config *config, const tick_count *count, reference *tf32) {
  row rows[TICK_KIND_COUNT] = {{0}}, sum = {0}, elementwise = {0};
  const double ticks = count->ticks;
  for (int64_t i = 0; i < count->count; i++) {
    const tick_launch *l = &count->launches[i];
    add(&rows[l->kind], &(row){1 / ticks, l->flops / ticks, l->read_bytes / ticks, l->written_bytes / ticks,
                               price(a, config, l) / ticks});
  }
  for (int k = 0; k < TICK_KIND_COUNT; k++) {
    print_row("model", &count->key, tick_kind_name((tick_kind)k), &rows[k]);
    printf("\n");
    if (k == TICK_TRANSFER)
      continue;
    add(&sum, &rows[k]);
    if (!is_matrix((tick_kind)k))
      add(&elementwise, &rows[k]);
  }
  const double bytes = elementwise.read_bytes + elementwise.written_bytes;
  if (config->device.precision == PETRA_PRECISION_TF32)
    *tf32 = (reference){config->data.batch, bytes};
  print_row("elementwise", &count->key, "", &elementwise);
  if (tf32->batch == config->data.batch)
    printf(" of_tf32=%.4f", bytes / tf32->bytes);
  printf("\n");
  print_row("sum", &count->key, "", &sum);
  printf(" segments=%.10g commands=%.10g command_mb=%.6f\n", (double)count->segments / ticks,
         (double)count->commands / ticks, 1e-6 * count->command_bytes / ticks);
  if (a->kernels)
    print_kernels(a, config, count);
  print_pytorch(a, config, count, &sum);
}

static petra_status measure(const arguments *a, const char *const *extra, int extra_count, reference *tf32) {
  const char *sets[SETS_MAX + 2];
  int count = a->set_count;
  petra_config *config;
  tick_count found;
  memcpy(sets, a->sets, (size_t)count * sizeof *sets);
  for (int i = 0; i < extra_count; i++)
    sets[count++] = extra[i];
  petra_status status = petra_config_load(a->path, sets, count, &config);
  if (status == PETRA_OK) {
    status = tick_count_run(config, a->warmup, &found);
    if (status == PETRA_OK) {
      print_tick(a, config, &found, tf32);
      tick_count_fini(&found);
    }
    petra_config_destroy(config);
  }
  if (status != PETRA_OK)
    printf("failed/%s,%s status=%d\n", extra_count > 0 ? extra[0] : "", extra_count > 1 ? extra[1] : "",
           petra_status_exit_code(status));
  fflush(stdout);
  return status;
}

/* --- the command line --- */

static bool is_readable(const char *path) {
  FILE *file = fopen(path, "r");
  if (file)
    fclose(file);
  return file != NULL;
}

static bool take(arguments *a, const char *name, char *value) {
  char *end;
  if (strcmp(name, "--set") == 0 && a->set_count < SETS_MAX)
    return a->sets[a->set_count++] = value, true;
  if (strcmp(name, "--precisions") == 0)
    return a->precisions = value, true;
  if (strcmp(name, "--batches") == 0)
    return a->batches = value, true;
  if (strcmp(name, "--pytorch") == 0)
    return is_readable(a->pytorch = value);
  if (strcmp(name, "--rate") == 0)
    return set_rate(a->rates, value, "given");
  if (strcmp(name, "--rates") == 0)
    return read_rates(a->rates, value);
  a->warmup = (int)strtol(value, &end, 10);
  return strcmp(name, "--warmup") == 0 && *value && !*end && a->warmup >= 1 && a->warmup <= 1000000;
}

static bool parse(arguments *a, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--kernels") == 0) {
      a->kernels = true;
    } else if (strncmp(argv[i], "--", 2) != 0) {
      a->path = argv[i];
    } else if (i + 1 >= argc || !take(a, argv[i], argv[i + 1])) {
      fprintf(stderr, "tick_model: %s %s: see the head of bench/tick_model.c\n", argv[i],
              i + 1 < argc ? argv[i + 1] : "");
      return false;
    } else {
      i++;
    }
  return true;
}

int main(int argc, char **argv) {
  arguments a = {.sets = {"data.set=shapes", "method.name=petra", "device.backend=cuda"}, .set_count = 3, .warmup = 60};
  char precisions[BENCH_LIST_MAX][64], batches[BENCH_LIST_MAX][64];
  reference tf32[BENCH_LIST_MAX] = {{0}};
  bool failed = false;
  memcpy(a.rates, assumed, sizeof assumed);
  if (!parse(&a, argc, argv))
    return 2;
  const int precision_count = bench_split("device.precision", a.precisions, precisions),
            batch_count = bench_split("data.batch", a.batches, batches);
  for (int i = 0; i < RATES; i++)
    printf("rate/%s value=%g source: %s\n", a.rates[i].name, a.rates[i].value, a.rates[i].source);
  for (int p = 0; p < precision_count; p++)
    for (int b = 0; b < batch_count; b++) {
      const char *extra[2];
      int count = 0;
      if (*precisions[p])
        extra[count++] = precisions[p];
      if (*batches[b])
        extra[count++] = batches[b];
      failed |= measure(&a, extra, count, &tf32[b]) != PETRA_OK;
    }
  return failed;
}
