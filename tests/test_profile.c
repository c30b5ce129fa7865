/* SPDX-License-Identifier: Apache-2.0 */
/* Cost profiles: profile.h5 written and read back, what is refused; costs on a device of another speed; a partition
 * balanced by given costs. */
#include "base/seal.h"
#include "harness.h"
#include "io/profile_file.h"
#include "nn/model.h"
#include "profile/profile.h"
#include "sim/cost.h"

#include <hdf5.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "test_profile.h5"

enum { STAGES = 3 };

static const petra_profile_about ABOUT = {.command = "petra profile x.yaml",
                                          .backend = "ref",
                                          .libraries = "none",
                                          .method = "petra",
                                          .threads = 2,
                                          .accumulate = 3,
                                          .warmup = 1,
                                          .repetitions = 5};

/* Every value differs from every other; no time is a sum of powers of two. */
static petra_profile make_profile(petra_profile_stage stage[STAGES]) {
  for (int j = 0; j < STAGES; j++) {
    stage[j] =
        (petra_profile_stage){.blocks = 2 * j + 1, .forward_bytes = 1000 + j, .backward_bytes = INT64_C(1) << (40 + j)};
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      double median = 1e-3 * (j + 1) / (p + 3.0);
      stage[j].part[p] = (petra_spread){median / 3, median / 2, median, median * 2, median * 3, median * 1.5};
    }
  }
  return (petra_profile){.family = "revnet",
                         .stem = "cifar",
                         .precision = "fp32",
                         .depth = 18,
                         .width = 7,
                         .classes = 11,
                         .image_height = 32,
                         .image_width = 33,
                         .batch = 5,
                         .stages = STAGES,
                         .stage = stage};
}

START_TEST(round_trip) {
  petra_profile_stage stage[STAGES];
  petra_profile written = make_profile(stage), *read = NULL;
  ck_assert_int_eq(petra_profile_write(FILE_NAME, &written, &ABOUT), PETRA_OK);
  ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_OK);
  ck_assert_str_eq(read->family, "revnet");
  ck_assert_str_eq(read->stem, "cifar");
  ck_assert_str_eq(read->precision, "fp32");
  ck_assert(read->depth == 18 && read->width == 7 && read->classes == 11 && read->image_height == 32 &&
            read->image_width == 33 && read->batch == 5 && read->stages == STAGES);
  for (int j = 0; j < STAGES; j++) {
    ck_assert(read->stage[j].blocks == stage[j].blocks && read->stage[j].forward_bytes == stage[j].forward_bytes &&
              read->stage[j].backward_bytes == stage[j].backward_bytes);
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++)
      ck_assert(read->stage[j].part[p].median == stage[j].part[p].median &&
                read->stage[j].part[p].mean == stage[j].part[p].mean &&
                read->stage[j].part[p].quartile1 == stage[j].part[p].quartile1 &&
                read->stage[j].part[p].quartile3 == stage[j].part[p].quartile3);
  }
  ck_assert(read->has_spread && read->ranks == 1 && read->messages == 0);
  petra_profile_destroy(read);
  unlink(FILE_NAME);
}
END_TEST

START_TEST(link_round_trip) {
  petra_profile_stage stage[STAGES];
  petra_profile written = make_profile(stage), *read = NULL;
  written.ranks = 3;
  written.has_alone = true;
  for (int j = 0; j < STAGES; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++)
      stage[j].alone_s[p] = 1e-5 * (10 * j + p);
  written.messages = PETRA_PROFILE_MESSAGES;
  for (int i = 0; i < PETRA_PROFILE_MESSAGES; i++)
    written.message[i] = (petra_profile_message){.bytes = (INT64_C(3) << i) + 1,
                                                 .time = {1e-6 * i, 2e-6 * i, 3e-6 * i, 4e-6 * i, 5e-6 * i, 8e-6 * i},
                                                 .alone = {9e-7 * i, 8e-7 * i, 7e-7 * i, 6e-7 * i, 5e-7 * i, 4e-7 * i},
                                                 .pack_s = 6e-6 * i,
                                                 .unpack_s = 7e-6 * i,
                                                 .carry_s = 11e-6 * i};
  ck_assert_int_eq(petra_profile_write(FILE_NAME, &written, &ABOUT), PETRA_OK);
  ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_OK);
  ck_assert(read->ranks == 3 && read->messages == PETRA_PROFILE_MESSAGES);
  for (int i = 0; i < PETRA_PROFILE_MESSAGES; i++) {
    const petra_profile_message *a = &written.message[i], *b = &read->message[i];
    ck_assert(a->bytes == b->bytes && a->pack_s == b->pack_s && a->unpack_s == b->unpack_s &&
              a->carry_s == b->carry_s && a->time.min == b->time.min && a->time.quartile1 == b->time.quartile1 &&
              a->time.median == b->time.median && a->time.quartile3 == b->time.quartile3 &&
              a->time.max == b->time.max && a->time.mean == b->time.mean && a->alone.min == b->alone.min &&
              a->alone.quartile3 == b->alone.quartile3 && a->alone.mean == b->alone.mean);
  }
  ck_assert(read->has_alone);
  for (int j = 0; j < STAGES; j++)
    ck_assert(memcmp(read->stage[j].alone_s, stage[j].alone_s, sizeof stage[j].alone_s) == 0);
  petra_profile_destroy(read);
  written.has_alone = false; /* of a petra that did not measure it */
  ck_assert_int_eq(petra_profile_write(FILE_NAME, &written, &ABOUT), PETRA_OK);
  ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_OK);
  ck_assert(!read->has_alone && read->messages == PETRA_PROFILE_MESSAGES);
  petra_profile_destroy(read);
  unlink(FILE_NAME);
}
END_TEST

/* Writes `profile`, which must then be refused, with a line that names the file and `reason`. */
static void refuse(const petra_profile *profile, const char *reason) {
  petra_profile *read = NULL;
  ck_assert_int_eq(petra_profile_write(FILE_NAME, profile, &ABOUT), PETRA_OK);
  harness_clear();
  ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_DATA);
  ck_assert_ptr_null(read);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_int_eq(strncmp(harness_line, FILE_NAME ": ", sizeof FILE_NAME + 1), 0);
  ck_assert_logged(reason);
  unlink(FILE_NAME);
}

START_TEST(impossible_values) {
  const double times[] = {NAN, INFINITY, -INFINITY, -1e-9, 2e6};
  petra_profile_stage stage[STAGES];
  petra_profile profile = make_profile(stage);
  for (int i = 0; i < HARNESS_COUNT(times); i++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      char reason[64];
      double kept = stage[1].part[p].mean;
      snprintf(reason, sizeof reason, "/stages/%s: %g s for stage 2; expected 0 .. ",
               petra_profile_part_name((petra_profile_part)p), times[i]);
      stage[1].part[p].mean = times[i];
      refuse(&profile, reason);
      stage[1].part[p].mean = kept;
    }
  stage[2].part[PETRA_PROFILE_WEIGHT_GRADIENT].mean = 2 * stage[2].part[PETRA_PROFILE_BACKWARD].mean;
  refuse(&profile, "/stages/weight_gradient: ");
  profile = make_profile(stage);
  stage[0].blocks = 0;
  refuse(&profile, "/stages/blocks: 0 for stage 1; expected 1 .. ");
  profile = make_profile(stage);
  stage[0].forward_bytes = -1;
  refuse(&profile, "/stages/forward_bytes: -1 for stage 1");
}
END_TEST

/* The first `bytes` of `from` as FILE_NAME. */
static void copy_head(const char *from, long bytes) {
  FILE *in = fopen(from, "rb"), *out = fopen(FILE_NAME, "wb");
  ck_assert(in && out);
  for (int c; bytes > 0 && (c = getc(in)) != EOF; bytes--)
    putc(c, out);
  fclose(in);
  fclose(out);
}

START_TEST(broken_files) {
  petra_profile_stage stage[STAGES];
  petra_profile profile = make_profile(stage), *read = NULL;
  ck_assert_int_eq(petra_profile_write(FILE_NAME ".whole", &profile, &ABOUT), PETRA_OK);
  FILE *file = fopen(FILE_NAME ".whole", "rb");
  ck_assert(file && fseek(file, 0, SEEK_END) == 0);
  long size = ftell(file);
  fclose(file);
  for (long bytes = 0; bytes < size; bytes += size / 23) {
    copy_head(FILE_NAME ".whole", bytes);
    harness_clear();
    ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_DATA);
    ck_assert_int_eq(harness_lines, 1);
  }
  unlink(FILE_NAME);
  ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_IO);
  ck_assert_logged(FILE_NAME ": cannot open: No such file");
  ck_assert_int_eq(petra_profile_read(".", &read), PETRA_IO);
  ck_assert_int_eq(petra_profile_write("nowhere/x.h5", &profile, &ABOUT), PETRA_IO);
  ck_assert_logged("nowhere/x.h5");
  unlink(FILE_NAME ".whole");
}
END_TEST

/* Overwrites the seal: what is read now is a file that others made. */
static void unseal(void) {
  static const char zeros[PETRA_SEAL_BYTES];
  FILE *file = fopen(FILE_NAME, "r+b");
  ck_assert(file && fwrite(zeros, 1, sizeof zeros, file) == sizeof zeros);
  fclose(file);
}

START_TEST(missing_parts) {
  static const char *const sets[] = {"/stages", "/stages/blocks", "/stages/forward", "/stages/update",
                                     "/stages/backward_bytes"};
  static const char *const attributes[] = {"schema_version", "family", "stem",    "precision",
                                           "depth",          "width",  "classes", "batch"};
  petra_profile_stage stage[STAGES];
  petra_profile profile = make_profile(stage), *read = NULL;
  for (int i = 0; i < HARNESS_COUNT(sets) + HARNESS_COUNT(attributes); i++) {
    const char *name = i < HARNESS_COUNT(sets) ? sets[i] : attributes[i - HARNESS_COUNT(sets)];
    ck_assert_int_eq(petra_profile_write(FILE_NAME, &profile, &ABOUT), PETRA_OK);
    hid_t file = H5Fopen(FILE_NAME, H5F_ACC_RDWR, H5P_DEFAULT);
    ck_assert_int_ge(i < HARNESS_COUNT(sets) ? H5Ldelete(file, name, H5P_DEFAULT) : H5Adelete(file, name), 0);
    H5Fclose(file);
    harness_clear();
    ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_DATA);
    ck_assert_logged("damaged or truncated");
    unseal();
    harness_clear();
    ck_assert_int_eq(petra_profile_read(FILE_NAME, &read), PETRA_DATA);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(name);
  }
  unlink(FILE_NAME);
}
END_TEST

START_TEST(speeds) {
  const petra_stage_cost cost = {.forward_ns = 1000,
                                 .backward_ns = 3000,
                                 .reconstruct_ns = 2000,
                                 .weight_gradient_ns = 1001,
                                 .update_ns = 7,
                                 .forward_bytes = 11,
                                 .backward_bytes = 13,
                                 .gradient_bytes = 17};
  petra_stage_cost scaled = cost;
  ck_assert_int_eq(petra_cost_scale(&scaled, 0.5), PETRA_OK);
  ck_assert(scaled.forward_ns == 2000 && scaled.backward_ns == 6000 && scaled.reconstruct_ns == 4000 &&
            scaled.weight_gradient_ns == 2002 && scaled.update_ns == 14 && scaled.forward_bytes == 11 &&
            scaled.backward_bytes == 13 && scaled.gradient_bytes == 17);
  scaled = cost;
  ck_assert_int_eq(petra_cost_scale(&scaled, 4), PETRA_OK);
  ck_assert(scaled.forward_ns == 250 && scaled.weight_gradient_ns == 250 && scaled.update_ns == 2); /* 250.25, 1.75 */
  scaled = (petra_stage_cost){.update_ns = INT64_C(1000000000000000)};
  ck_assert_int_eq(petra_cost_scale(&scaled, 1e-6), PETRA_CONFIG);
  ck_assert_logged("cluster.speeds: an action of 1e+06 s at speed 1e-06 takes 1e+12 s");
}
END_TEST

/* The least maximum of `stages` parts of costs first .. count - 1, by trying every place of the first cut. */
static int64_t brute_force(const int64_t *costs, int first, int count, int stages) {
  int64_t best = INT64_MAX, sum = 0;
  for (int end = first + 1; end <= count - (stages - 1); end++) {
    sum += costs[end - 1];
    if (stages == 1)
      continue;
    int64_t rest = brute_force(costs, end, count, stages - 1), maximum = sum > rest ? sum : rest;
    best = maximum < best ? maximum : best;
  }
  return stages == 1 ? sum : best;
}

START_TEST(balance_by_costs) {
  const int64_t costs[10] = {900, 1, 70, 70, 0, 300, 5, 5, 250, 1000};
  for (int stages = 1; stages <= 10; stages++) {
    char count[40];
    const char *const sets[] = {"stages.partition=balanced", count};
    const petra_stream_shape input = petra_image_stream(32, 32);
    petra_config *config;
    petra_model model;
    petra_partition partition;
    snprintf(count, sizeof count, "stages.count=%d", stages);
    ck_assert_int_eq(petra_config_load(NULL, sets, 2, &config), PETRA_OK);
    ck_assert_int_eq(petra_model_init(&model, config, &input, 0), PETRA_OK);
    ck_assert_int_eq(model.block_count, 10);
    ck_assert_int_eq(petra_partition_balance(&partition, config, &model, costs), PETRA_OK);
    ck_assert(partition.stages == stages && partition.first[0] == 0 && partition.first[stages] == 10);
    int64_t maximum = 0;
    for (int j = 0; j < stages; j++) {
      int64_t sum = 0;
      for (int b = partition.first[j]; b < partition.first[j + 1]; b++)
        sum += costs[b];
      maximum = sum > maximum ? sum : maximum;
    }
    ck_assert_int_eq(maximum, brute_force(costs, 0, 10, stages));
    petra_partition_fini(&partition);
    petra_model_fini(&model);
    petra_config_destroy(config);
  }
}
END_TEST

/* Times that some rates give are fitted by these rates; where no kernel is limited by its FLOPs, that is said, and the share is a
 * number that a config takes. */
static void find_rates(bool limited) {
  const petra_kernel_rates truth = {2e-5, limited ? 0.4 : 5e3, 0.3, 0.15};
  const petra_device_peaks *peaks = petra_device_peaks_at(PETRA_COST_CPU_CORE);
  petra_config *config;
  petra_plan plan;
  petra_profile_stage stages[10];
  petra_kernel_fit fit;
  const char *const sets[] = {"model.width=16", "data.batch=4", "device.backend=cpu"};
  ck_assert_int_eq(petra_config_load(NULL, sets, 3, &config), PETRA_OK);
  ck_assert_int_eq(petra_plan_init(&plan, config), PETRA_OK);
  memset(stages, 0, sizeof stages);
  for (int j = 0; j < 10; j++) {
    petra_roofline_seconds s = {0};
    petra_kernel_list list;
    petra_plan_kernels(&plan, j, &list);
    ck_assert_int_eq(petra_roofline_add(peaks, PETRA_COST_FP32, &truth, list.kernel, list.count, &s), PETRA_OK);
    const double seconds[PETRA_PROFILE_PARTS] = {s.forward, s.backward, s.reconstruct, s.weight_gradient, s.update};
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++)
      stages[j].part[p].mean = seconds[p];
  }
  ck_assert_int_eq(petra_profile_fit(&plan, &(petra_profile){.stages = 10, .stage = stages}, &fit), PETRA_OK);
  ck_assert_str_eq(fit.device, "cpu-core");
  ck_assert_int_eq(fit.times, 49); /* the head reconstructs nothing */
  ck_assert(fit.worst < 0.02 && fit.rms <= fit.worst);
  ck_assert(fabs(log(fit.rates.launch_s / truth.launch_s)) < 0.05);
  ck_assert(fabs(log(fit.rates.elementwise_bytes / truth.elementwise_bytes)) < 0.05);
  if (limited)
    ck_assert(fabs(log(fit.rates.matrix_flops / truth.matrix_flops)) < 0.05);
  ck_assert(fit.rates.matrix_flops <= PETRA_FIT_MAX_SHARE);
  for (int i = 0; i < PETRA_FIT_RATES; i++)
    ck_assert_int_eq(fit.unlimited[i], i == PETRA_FIT_MATRIX_FLOPS && !limited);
  petra_plan_fini(&plan);
  petra_config_destroy(config);
}

START_TEST(rates_are_found_again) {
  find_rates(true);
  find_rates(false);
}
END_TEST

/* A part counts whose quartiles are further apart than half the median, unless the stage hardly takes longer for it. */
START_TEST(unsure_parts) {
  petra_profile_stage stage[STAGES];
  const petra_profile profile = {.stages = STAGES, .stage = stage};
  const petra_spread sure = {0.5, 0.9, 1, 1.4, 3, 1.1}, wide = {0.5, 0.8, 1, 1.31, 3, 1.1},
                     wider = {0.5, 0.5, 1, 1.6, 3, 1.1}, little = {0, 0.01, 0.02, 0.09, 1, 0.03},
                     below = {-1, -0.5, -0.1, 0.1, 1, 0};
  for (int j = 0; j < STAGES; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++)
      stage[j].part[p] = sure;
  ck_assert_int_eq(petra_profile_find_unsure(&profile).count, 0);
  stage[0].part[PETRA_PROFILE_UPDATE] = little; /* 0.08 of 3 */
  ck_assert_int_eq(petra_profile_find_unsure(&profile).count, 0);
  stage[0].part[PETRA_PROFILE_FORWARD] = wide;
  stage[1].part[PETRA_PROFILE_BACKWARD] = wider;
  petra_profile_unsure found = petra_profile_find_unsure(&profile);
  ck_assert(found.count == 2 && found.stage == 1 && found.part == PETRA_PROFILE_BACKWARD);
  stage[0].part[PETRA_PROFILE_RECONSTRUCT] = below; /* a difference of two times: less apart, over less */
  found = petra_profile_find_unsure(&profile);
  ck_assert(found.count == 3 && found.stage == 1 && found.part == PETRA_PROFILE_BACKWARD);
  stage[1].part[PETRA_PROFILE_BACKWARD].median = 1.9;
  found = petra_profile_find_unsure(&profile);
  ck_assert(found.count == 3 && found.stage == 0 && found.part == PETRA_PROFILE_RECONSTRUCT);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {round_trip, link_round_trip,  impossible_values, broken_files,         missing_parts,
                                speeds,     balance_by_costs, unsure_parts,      rates_are_found_again};
  return harness_run("profile", tests, HARNESS_COUNT(tests));
}
