/* SPDX-License-Identifier: Apache-2.0 */
/* The analytic memory ledger against table 3 of the paper and by hand; the roofline by hand. */
#include "networks.h"
#include "nn/blocks.h"
#include "nn/optim.h"
#include "sim/ledger.h"
#include "sim/cost.h"

#include <math.h>

enum { RELEASE_BIASES = 1 }; /* a bias for every convolution, as in the network that the paper counts */

static petra_model revnet50(void) {
  return make_model("revnet", 50, 64, "imagenet", 1000, 224);
}

/* One block a stage. */
static petra_ledger_block ledger_block(const petra_model *model, int index, bool biases) {
  const petra_block *b = &model->blocks[index];
  petra_ledger_block out = {.parameters = petra_block_parameters(model, b),
                            .stream_elements = (int64_t)b->shape_in.channels * b->shape_in.height * b->shape_in.width,
                            .streams = b->streams_in,
                            .reversible = b->reversible,
                            .reads_data = b->reads_data,
                            .is_loss = b->is_loss,
                            .delay = 2 * (model->block_count - 1 - index)};
  for (int u = 0; u < b->unit_count; u++) {
    out.parameters += biases ? b->units[u].out : 0;
    out.statistics += 2 * b->units[u].out;
  }
  return out;
}

static petra_ledger_bytes sum_of(const petra_model *model, petra_accounting accounting, int row, bool biases,
                                 int64_t k) {
  const petra_ledger_rule rule = {.accounting = accounting,
                                  .inputs_kept = row < 2,
                                  .weights_kept = row % 2 == 0,
                                  .batch = 64,
                                  .accumulate = k,
                                  .element_bytes = 4,
                                  .parameter_bytes = 4};
  petra_ledger_bytes sum = {0};
  for (int b = 0; b < model->block_count; b++) {
    petra_ledger_block block = ledger_block(model, b, biases);
    petra_ledger_bytes bytes;
    ck_assert_int_eq(petra_ledger_block_bytes(&rule, &block, &bytes), PETRA_OK);
    ck_assert_int_eq(petra_ledger_add(&sum, &bytes), PETRA_OK);
  }
  return sum;
}

/* docs/semantics/memory.md: inputs and weights kept, inputs, weights, neither; in 10^7 bytes. */
static const int64_t table_3[PETRA_ACCOUNTINGS][4] = {{4445, 4358, 2120, 2033}, {6614, 6526, 2226, 2138}};

START_TEST(table_3_to_its_last_digit) {
  petra_model model = revnet50();
  ck_assert_int_eq(model.block_count, 18);
  for (int accounting = 0; accounting < PETRA_ACCOUNTINGS; accounting++)
    for (int row = 0; row < 4; row++) {
      petra_ledger_bytes sum = sum_of(&model, (petra_accounting)accounting, row, RELEASE_BIASES, 1);
      ck_assert_int_eq((petra_ledger_total(&sum) + 5000000) / 10000000, table_3[accounting][row]);
      /* Our network, without biases: they are 30,464 x 4 bytes, held at most 1 + 34 times, under 0.005 x
       * 10^9. */
      sum = sum_of(&model, (petra_accounting)accounting, row, !RELEASE_BIASES, 1);
      ck_assert_int_lt(llabs(petra_ledger_total(&sum) - 10000000 * table_3[accounting][row]), 10000000);
    }
  petra_model_fini(&model);
}
END_TEST

START_TEST(table_3_savings) {
  const double savings[PETRA_ACCOUNTINGS][2] = {{2.0, 54.3}, {1.3, 67.7}}; /* per cent: row 2, row 4 */
  petra_model model = revnet50();
  for (int accounting = 0; accounting < PETRA_ACCOUNTINGS; accounting++) {
    petra_ledger_bytes sum = sum_of(&model, (petra_accounting)accounting, 0, RELEASE_BIASES, 1);
    double all = (double)petra_ledger_total(&sum);
    for (int i = 0; i < 2; i++) {
      sum = sum_of(&model, (petra_accounting)accounting, 1 + 2 * i, RELEASE_BIASES, 1);
      /* half of the last digit that is given */
      ck_assert_double_eq_tol(100 * (1 - (double)petra_ledger_total(&sum) / all), savings[accounting][i], 0.05);
    }
  }
  petra_model_fini(&model);
}
END_TEST

START_TEST(categories) {
  petra_model model = revnet50();
  petra_ledger_bytes all = sum_of(&model, PETRA_ACCOUNTING_STRICT, 0, !RELEASE_BIASES, 1);
  petra_ledger_bytes none = sum_of(&model, PETRA_ACCOUNTING_STRICT, 3, !RELEASE_BIASES, 1);
  ck_assert_int_eq(all.parameters, 4 * INT64_C(30391144));
  ck_assert_int_eq(all.parameters, none.parameters);
  ck_assert_int_eq(all.statistics, none.statistics);
  ck_assert_int_eq(all.statistics, 4 * 2 * INT64_C(30464)); /* a mean and a variance where the release has one bias */
  ck_assert_int_eq(all.input, none.input);
  ck_assert_int_eq(none.weight_buffer, 0);
  /* Buffers of the four downsampling blocks, by hand: images x bytes x (both streams x tau) of stages 2, 5,
   * 9, 15. */
  ck_assert_int_eq(none.input_buffer, INT64_C(64) * 4 *
                                          (2 * 64 * 56 * 56 * 32 + 2 * 256 * 56 * 56 * 26 + 2 * 512 * 28 * 28 * 18 +
                                           2 * 1024 * 14 * 14 * 6));
  petra_model_fini(&model);
}
END_TEST

/* With invertible downsampling nothing waits but the stem's batches, which `strict` does not count and
 * `paper` counts where inputs are kept alone. */
START_TEST(nothing_waits_in_an_invertible_network) {
  for (int invertible = 0; invertible < 2; invertible++) {
    petra_model model =
        invertible ? make_invertible(18, 64, "cifar", 10, 32) : make_model("revnet", 18, 64, "cifar", 10, 32);
    for (int accounting = 0; accounting < PETRA_ACCOUNTINGS; accounting++) {
      petra_ledger_bytes petra = sum_of(&model, (petra_accounting)accounting, 3, !RELEASE_BIASES, 1);
      petra_ledger_bytes dsp = sum_of(&model, (petra_accounting)accounting, 1, !RELEASE_BIASES, 1);
      if (invertible)
        ck_assert_int_eq(petra.input_buffer, 0);
      else
        ck_assert_int_gt(petra.input_buffer, 0);
      ck_assert_int_gt(dsp.input_buffer, 0);
    }
    /* By hand: one stream, or both, of 64 x 32 x 32 numbers a block, whatever the group. */
    petra_ledger_bytes strict = sum_of(&model, PETRA_ACCOUNTING_STRICT, 1, !RELEASE_BIASES, 1);
    if (invertible)
      ck_assert_int_eq(strict.input_buffer, INT64_C(64) * 4 * 2 * 64 * 32 * 32 * (16 + 14 + 12 + 10 + 8 + 6 + 4 + 2));
    petra_model_fini(&model);
  }
}
END_TEST

/* A block with numbers that show which factor went in. */
static const petra_ledger_block reversible = {
    .parameters = 1000, .statistics = 10, .stream_elements = 7, .streams = 2, .reversible = true, .delay = 5};

static petra_ledger_bytes bytes_of(petra_accounting accounting, bool inputs, bool weights, int64_t k,
                                   petra_ledger_block block) {
  const petra_ledger_rule rule = {accounting,          inputs, weights, .batch = 3, .accumulate = k, .element_bytes = 4,
                                  .parameter_bytes = 4};
  petra_ledger_bytes out;
  ck_assert_int_eq(petra_ledger_block_bytes(&rule, &block, &out), PETRA_OK);
  return out;
}

START_TEST(by_hand) {
  petra_ledger_bytes b = bytes_of(PETRA_ACCOUNTING_PAPER, true, true, 1, reversible);
  ck_assert_int_eq(b.parameters, 4000);
  ck_assert_int_eq(b.statistics, 40);
  ck_assert_int_eq(b.input, 3 * 7 * 4);
  ck_assert_int_eq(b.input_buffer, 5 * 3 * 7 * 4);
  ck_assert_int_eq(b.weight_buffer, 5 * 4000);
  ck_assert_int_eq(petra_ledger_total(&b), 4000 + 40 + 6 * 84 + 20000);
  const petra_ledger_rule narrow = {PETRA_ACCOUNTING_PAPER, true, true, .batch = 3, .accumulate = 1, .element_bytes = 2,
                                    .parameter_bytes = 4};
  ck_assert_int_eq(petra_ledger_block_bytes(&narrow, &reversible, &b), PETRA_OK);
  ck_assert_int_eq(petra_ledger_total(&b), 4000 + 40 + 6 * 42 + 20000);
  b = bytes_of(PETRA_ACCOUNTING_STRICT, true, true, 2, reversible);
  ck_assert_int_eq(b.input, 2 * 84);
  ck_assert_int_eq(b.input_buffer, 5 * 2 * 84);
  ck_assert_int_eq(b.weight_buffer, 3 * 4000); /* ceil(5 / 2) updates */
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_STRICT, false, true, 8, reversible).weight_buffer, 4000);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_STRICT, false, true, 1, reversible).input_buffer, 0);
  petra_ledger_block down = reversible, stem = reversible, head = reversible;
  down.reversible = stem.reversible = head.reversible = false;
  stem.reads_data = head.is_loss = true;
  stem.streams = 1;
  head.delay = 0;
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_PAPER, false, false, 1, down).input_buffer, 5 * 2 * 84);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_PAPER, true, false, 1, stem).input_buffer, 5 * 84);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_PAPER, false, false, 1, stem).input_buffer, 0);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_STRICT, true, false, 1, stem).input_buffer, 0);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_STRICT, true, false, 1, stem).input, 84);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_PAPER, true, false, 1, head).input, 84);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_STRICT, true, true, 1, head).input, 2 * 84);
  ck_assert_int_eq(bytes_of(PETRA_ACCOUNTING_STRICT, true, true, 1, head).weight_buffer, 0);
}
END_TEST

START_TEST(ledger_errors) {
  petra_ledger_rule rule = {PETRA_ACCOUNTING_STRICT, true, true, .batch = 3, .accumulate = 1, .element_bytes = 4,
                            .parameter_bytes = 4};
  petra_ledger_block block = reversible;
  petra_ledger_bytes out = {.input = -7};
  petra_accounting accounting;
  harness_clear();
  block.delay = -1;
  ck_assert_int_eq(petra_ledger_block_bytes(&rule, &block, &out), PETRA_CONFIG);
  ck_assert_logged("delay is -1");
  block = reversible;
  block.stream_elements = INT64_MAX / 12; /* x 2 streams x 3 images x 4 bytes does not fit */
  ck_assert_int_eq(petra_ledger_block_bytes(&rule, &block, &out), PETRA_CONFIG);
  ck_assert_logged("63 bits");
  block.stream_elements = INT64_MAX / 24 / 3; /* one input fits, 1 + 5 do not */
  ck_assert_int_eq(petra_ledger_block_bytes(&rule, &block, &out), PETRA_CONFIG);
  rule.accumulate = 0;
  ck_assert_int_eq(petra_ledger_block_bytes(&rule, &reversible, &out), PETRA_CONFIG);
  ck_assert_logged("microbatches per update is 0");
  ck_assert_int_eq(out.input, -7);
  ck_assert_int_eq(petra_accounting_parse("--memory", "papr", &accounting), PETRA_USAGE);
  ck_assert_logged("--memory: unknown accounting 'papr'");
  ck_assert_int_eq(harness_lines, 5);
  for (int i = 0; i < PETRA_ACCOUNTINGS; i++) {
    ck_assert_int_eq(petra_accounting_parse("x", petra_accounting_name((petra_accounting)i), &accounting), PETRA_OK);
    ck_assert_int_eq(accounting, i);
  }
}
END_TEST

/* Rounding of a few sums of doubles of order 1. */
#define ck_assert_seconds(found, expected) ck_assert_double_eq_tol((found), (expected), 1e-12)

static const petra_device_peaks toy = {"toy", {1e3, 1e6, 0}, 1e3, 1e3, 0, "none"};

/* Gets the seconds of one kernel. */
static petra_status seconds_at(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                               const petra_kernel_rates *rates, const petra_kernel *kernel, double *seconds) {
  petra_roofline_seconds sum = {0};
  PETRA_TRY(petra_roofline_add(device, arithmetic, rates, kernel, 1, &sum));
  *seconds = sum.forward;
  return PETRA_OK;
}

static petra_status bound_at(const petra_device_peaks *device, petra_cost_arithmetic arithmetic,
                             const petra_kernel *kernel, double *seconds) {
  return seconds_at(device, arithmetic, &PETRA_KERNEL_RATES_BOUND, kernel, seconds);
}

START_TEST(kernels) {
  const petra_device_peaks *a100 = petra_device_peaks_at(PETRA_COST_A100),
                           *h200 = petra_device_peaks_at(PETRA_COST_H200),
                           *b200 = petra_device_peaks_at(PETRA_COST_B200),
                           *gaudi3 = petra_device_peaks_at(PETRA_COST_GAUDI3);
  double seconds;
  const struct {
    const petra_device_peaks *device;
    petra_cost_arithmetic arithmetic;
    petra_kernel kernel;
    double seconds;
  } cases[] = {{a100, PETRA_COST_FP32, {.matrix = true, .flops = 19.5e9, .bytes = 1e3}, 1e-3},
               {a100, PETRA_COST_TF32, {.matrix = true, .flops = 156e9, .bytes = 1e3}, 1e-3},
               {a100, PETRA_COST_BF16, {.matrix = true, .flops = 312e9, .bytes = 1e3}, 1e-3},
               {a100, PETRA_COST_TF32, {.matrix = true, .flops = 1e3, .bytes = 2.039e9}, 1e-3},
               {a100, PETRA_COST_BF16, {.matrix = false, .flops = 19.5e9, .bytes = 1e3}, 1e-3},
               {h200, PETRA_COST_BF16, {.matrix = true, .flops = 989.4e9, .bytes = 4.8e9}, 1e-3},
               {h200, PETRA_COST_TF32, {.matrix = true, .flops = 494.7e9, .bytes = 9.6e9}, 2e-3},
               {b200, PETRA_COST_BF16, {.matrix = true, .flops = 2250e9, .bytes = 1e3}, 1e-3},
               {gaudi3, PETRA_COST_TF32, {.matrix = true, .flops = 1e3, .bytes = 3.7e9}, 1e-3},
               {a100, PETRA_COST_TF32, {.matrix = true, .flops = 0, .bytes = 0}, 0}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    ck_assert_int_eq(bound_at(cases[i].device, cases[i].arithmetic, &cases[i].kernel, &seconds), PETRA_OK);
    ck_assert_seconds(seconds, cases[i].seconds);
  }
}
END_TEST

/* launch + max(FLOPs / (share peak), bytes / (share bandwidth)), by kind of kernel; the bound is the roofline to the bit. */
START_TEST(kernels_below_the_peaks) {
  static const petra_device_peaks device = {"toy", {100, 0, 0}, 50, 10, 0, ""};
  static const petra_kernel product = {.matrix = true, .flops = 600, .bytes = 30}, sum = {.flops = 50, .bytes = 70};
  const petra_kernel_rates rates = {
      .launch_s = 0.25, .matrix_flops = 0.5, .matrix_bytes = 0.125, .elementwise_bytes = 0.5};
  double seconds;
  ck_assert_int_eq(seconds_at(&device, PETRA_COST_FP32, &rates, &product, &seconds), PETRA_OK);
  ck_assert(seconds == 0.25 + 30 / 10.0 / 0.125); /* of bytes; 12 s of FLOPs */
  ck_assert_int_eq(seconds_at(&device, PETRA_COST_FP32, &rates, &sum, &seconds), PETRA_OK);
  ck_assert(seconds == 0.25 + 14);
  ck_assert_int_eq(bound_at(&device, PETRA_COST_FP32, &product, &seconds), PETRA_OK);
  ck_assert(seconds == 6);
}
END_TEST

/* A number for each kernel, in the parts of a stage. */
START_TEST(kernels_are_counted_by_part) {
  static const petra_kernel some[] = {{.part = PETRA_KERNEL_FORWARD, .rebuilt = true},
                                      {.part = PETRA_KERNEL_FORWARD},
                                      {.part = PETRA_KERNEL_BACKWARD},
                                      {.part = PETRA_KERNEL_WEIGHT_GRADIENT},
                                      {.part = PETRA_KERNEL_UPDATE}};
  petra_roofline_seconds sum = {.update = 1};
  const petra_kernel_rates rates = {.launch_s = 0.5};
  ck_assert_int_eq(petra_roofline_add(NULL, PETRA_COST_FP32, &rates, some, 5, &sum), PETRA_OK);
  ck_assert(sum.forward == 1 && sum.backward == 1 && sum.reconstruct == 0.5 && sum.weight_gradient == 0.5 &&
            sum.update == 1.5);
}
END_TEST

/* The seconds of a block of 5 images on `toy`. */
static petra_roofline_seconds seconds_of(const petra_block *block, petra_cost_arithmetic arithmetic) {
  const petra_model model = {0};
  petra_kernel_list list;
  petra_roofline_seconds s = {0};
  petra_block_kernels(&model, block, &(petra_optim){0}, 5, 4, &list);
  ck_assert_int_eq(petra_roofline_add(&toy, arithmetic, &PETRA_KERNEL_RATES_BOUND, list.kernel, list.count, &s),
                   PETRA_OK);
  return s;
}

START_TEST(block_of_units) {
  /* 5 images: x 160, y 80, w 72 elements; 2880 FLOPs, 1248 bytes; norm 960 and 1600 bytes; see petra_block_kernels.
   * F's output of 80 elements is added to a stream: 960 bytes. */
  const petra_unit unit = {
      .in = 2, .out = 4, .kernel = 3, .height_in = 4, .width_in = 4, .height_out = 2, .width_out = 2};
  petra_block block = {.ops = &petra_revblock_ops,
                       .units = {unit},
                       .unit_count = 1,
                       .path_count = 1,
                       .streams_out = 2,
                       .shape_out = {.channels = 4, .height = 2, .width = 2}};
  petra_roofline_seconds s = seconds_of(&block, PETRA_COST_FP32);
  ck_assert_seconds(s.forward, 2.88 + 0.96 + 0.96);
  ck_assert_seconds(s.reconstruct, 2.88 + 0.96 + 0.96);
  ck_assert_seconds(s.backward, 2.88 + 2.88 + 1.6 + 0.96);
  ck_assert_seconds(s.weight_gradient, 2.88);
  ck_assert_seconds(s.update, 1.6);        /* 5 x (72 + 2 x 4) x 4 bytes */
  s = seconds_of(&block, PETRA_COST_TF32); /* the convolution's bytes decide */
  ck_assert_seconds(s.forward, 1.248 + 0.96 + 0.96);
  block.ops = &petra_stem_ops; /* no gradient of an image, no addition, but a pool: (16 + 8) x 5 x 4 = 480 bytes */
  block.reads_data = true;
  block.pooled = true;
  block.pool.window = 2;
  block.shape_out = (petra_stream_shape){.channels = 4, .height = 1, .width = 1};
  s = seconds_of(&block, PETRA_COST_TF32);
  ck_assert_seconds(s.forward, 1.248 + 0.96 + 0.48);
  ck_assert_seconds(s.reconstruct, 1.248 + 0.96 + 0.48);
  ck_assert_seconds(s.backward, 1.248 + 1.6 + 0.48);
  petra_stage_cost cost = {.forward_bytes = 11};
  petra_roofline_cost(&s, &cost);
  ck_assert_int_eq(cost.forward_ns, 2688000000);
  ck_assert_int_eq(cost.weight_gradient_ns, 1248000000);
  ck_assert_int_eq(cost.forward_bytes, 11);
}
END_TEST

START_TEST(block_of_head) {
  /* 5 images: pool 150 elements; product 63 elements and 180 FLOPs; 18 + 3 parameters. */
  const petra_block head = {.ops = &petra_head_ops,
                            .is_loss = true,
                            .features = 6,
                            .classes = 3,
                            .streams_in = 1,
                            .shape_in = {.channels = 6, .height = 2, .width = 2},
                            .layer_count = 1,
                            .layers = {{.linear = "fc", .in = 6, .out = 3, .rows = 1, .bias = true}}};
  petra_roofline_seconds s = seconds_of(&head, PETRA_COST_FP32);
  ck_assert_seconds(s.forward, 0.6 + 0.252);
  ck_assert_seconds(s.backward, 0.6 + 2 * 0.252);
  ck_assert_seconds(s.weight_gradient, 0.252);
  ck_assert_seconds(s.reconstruct, 0);
  ck_assert_seconds(s.update, 0.42);
}
END_TEST

START_TEST(roofline_errors) {
  const petra_device_peaks *device = NULL;
  petra_device_peaks still = toy;
  petra_kernel kernel = {.matrix = true, .flops = 1, .bytes = 1};
  double seconds = -7;
  still.bandwidth_Bps = 0;
  harness_clear();
  for (int d = 0; d <= PETRA_COST_CPU_CORE; d++) { /* the table has every choice of the key, with its source */
    device = petra_device_peaks_at(d);
    ck_assert_str_eq(device->name, petra_config_choice_name("cluster.cost.device", d));
    ck_assert(*device->source);
    /* A narrower arithmetic is not slower; only the assumed CPU core has no size of memory. */
    const double *peak = device->matrix_flops;
    ck_assert(peak[PETRA_COST_FP32] > 0 && device->vector_flops > 0 && device->bandwidth_Bps > 0);
    ck_assert(peak[PETRA_COST_TF32] == 0 || peak[PETRA_COST_TF32] >= peak[PETRA_COST_FP32]);
    ck_assert(peak[PETRA_COST_BF16] == 0 || peak[PETRA_COST_BF16] >= 2 * peak[PETRA_COST_TF32] * 0.98);
    ck_assert((d == PETRA_COST_CPU_CORE) == (device->memory_bytes == 0));
    ck_assert(device->memory_bytes == 0 || (device->memory_bytes >= 16e9 && device->memory_bytes <= 288e9));
  }
  ck_assert_ptr_null(petra_device_peaks_at(PETRA_COST_CPU_CORE + 1));
  ck_assert_int_eq(bound_at(&toy, PETRA_COST_BF16, &kernel, &seconds), PETRA_CONFIG);
  ck_assert_logged("no peak for bf16");
  device = petra_device_peaks_at(PETRA_COST_MI355X);
  ck_assert_int_eq(bound_at(device, PETRA_COST_TF32, &kernel, &seconds), PETRA_CONFIG);
  ck_assert_logged("device mi355x has no peak for tf32");
  ck_assert_int_eq(bound_at(&still, PETRA_COST_FP32, &kernel, &seconds), PETRA_CONFIG);
  ck_assert_logged("bandwidth of 0 B/s");
  kernel.flops = NAN;
  ck_assert_int_eq(bound_at(&toy, PETRA_COST_FP32, &kernel, &seconds), PETRA_CONFIG);
  kernel.flops = -1;
  ck_assert_int_eq(bound_at(&toy, PETRA_COST_FP32, &kernel, &seconds), PETRA_CONFIG);
  ck_assert_logged("finite");
  petra_roofline_seconds sum = {.forward = 3};
  const petra_kernel pair[] = {{.flops = 1, .bytes = 1}, kernel};
  ck_assert_int_eq(petra_roofline_add(&toy, PETRA_COST_FP32, &PETRA_KERNEL_RATES_BOUND, pair, 2, &sum), PETRA_CONFIG);
  ck_assert_double_eq(sum.forward, 3);
  ck_assert_double_eq(seconds, -7);
  ck_assert_int_eq(harness_lines, 6);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {kernels_below_the_peaks,
                                kernels_are_counted_by_part,
                                table_3_to_its_last_digit,
                                table_3_savings,
                                categories,
                                nothing_waits_in_an_invertible_network,
                                by_hand,
                                ledger_errors,
                                kernels,
                                block_of_units,
                                block_of_head,
                                roofline_errors};
  return harness_run("ledger", tests, HARNESS_COUNT(tests));
}
