/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sched_setaffinity */
/* status, log, memory, account, random streams, threads. */
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/threads.h"
#include "harness.h"

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(exit_codes_are_0_1_2) {
  ck_assert_int_eq(petra_status_exit_code(PETRA_OK), 0);
  ck_assert_int_eq(petra_status_exit_code(PETRA_IO), 1);
  ck_assert_int_eq(petra_status_exit_code(PETRA_CONFIG), 2);
  ck_assert_int_eq(petra_status_exit_code((petra_status)99), 1);
}
END_TEST

/* A library's last words come at any time: while lines are kept, twice over, and while a lane has room for its failure. */
START_TEST(last_line_is_written_whoever_keeps_lines) {
  petra_log_kept outer = {.line = ""}, inner = {.line = ""};
  char failure[PETRA_LANE_LINE] = "";
  petra_log_keep(&outer);
  petra_log_keep(&inner);
  petra_log(PETRA_LOG_ERROR, "kept");
  ck_assert_str_eq(inner.line, "kept");
  petra_lane_here()->failure = failure;
  petra_log_keep_no_more();
  petra_log(PETRA_LOG_ERROR, "the last line");
  ck_assert_logged("the last line");
  ck_assert_str_eq(outer.line, "");
  ck_assert_str_eq(failure, "");
}
END_TEST

static bool fail_above(void *context, size_t bytes) {
  return bytes > *(size_t *)context;
}

START_TEST(allocation_is_zeroed_aligned_and_can_fail) {
  unsigned char *p = NULL;
  ck_assert_int_eq(petra_allocate(&p, 100, 3), PETRA_OK);
  ck_assert_uint_eq((uintptr_t)p % 64, 0);
  for (int i = 0; i < 300; i++)
    ck_assert_uint_eq(p[i], 0);
  petra_free(p);
  const size_t large = 2 * (size_t)PETRA_HUGE_BYTES + 100; /* a whole huge page and rests */
  ck_assert_int_eq(petra_allocate(&p, large, 1), PETRA_OK);
  ck_assert(p[0] == 0 && memcmp(p, p + 1, large - 1) == 0);
  petra_free(p);
  size_t limit = 1000;
  unsigned char *untouched = (unsigned char *)&limit;
  petra_mem_set_hook(fail_above, &limit);
  ck_assert_int_eq(petra_allocate(&untouched, 1001, 1), PETRA_NO_MEMORY);
  petra_mem_set_hook(NULL, NULL);
  ck_assert_ptr_eq(untouched, (unsigned char *)&limit);
  ck_assert_logged("out of memory");
  ck_assert_int_eq(petra_allocate(&untouched, SIZE_MAX / 2, 3), PETRA_NO_MEMORY);
}
END_TEST

/* The pages of address space that the process has; 0 where it cannot be told. */
static long address_space(void) {
  long pages = 0;
#ifndef __SANITIZE_ADDRESS__ /* which keeps memory of its own around each allocation */
  FILE *file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%ld", &pages) != 1)
    pages = 0;
  if (file)
    fclose(file);
#endif
  return pages;
}

/* As large as a huge page: no second one for the alignment of the first. */
START_TEST(large_memory_takes_no_more_addresses_than_it_has_bytes) {
  enum { COUNT = 32 };
  void *p[COUNT];
  const long before = address_space();
  for (int i = 0; i < COUNT; i++)
    ck_assert_int_eq(petra_allocate(&p[i], PETRA_HUGE_BYTES, 1), PETRA_OK);
  const double taken = (double)(address_space() - before) * (double)sysconf(_SC_PAGESIZE);
  ck_assert_double_le(taken, 1.25 * COUNT * PETRA_HUGE_BYTES); /* pages of up to 64 KiB beside each: 1.03 */
  for (int i = 0; i < COUNT; i++)
    petra_free(p[i]);
}
END_TEST

START_TEST(array_grows_zeroed_and_keeps_what_it_holds) {
  int32_t *values = NULL, *before;
  int64_t capacity = 0, kept;
  for (int32_t i = 0; i < 1000; i++) {
    ck_assert_int_eq(petra_array_reserve(&values, &capacity, i + 1, sizeof *values), PETRA_OK);
    ck_assert_int_gt(capacity, i);
    ck_assert_int_eq(values[i], 0);
    values[i] = i + 1;
  }
  for (int32_t i = 0; i < 1000; i++)
    ck_assert_int_eq(values[i], i + 1);
  ck_assert_int_eq(petra_array_reserve(&values, &capacity, 5000, sizeof *values), PETRA_OK);
  ck_assert_int_ge(capacity, 5000);
  ck_assert_int_eq(values[999], 1000);
  before = values;
  kept = capacity;
  ck_assert_int_eq(petra_array_reserve(&values, &capacity, INT64_MAX, sizeof *values), PETRA_NO_MEMORY);
  ck_assert_logged("out of memory");
  ck_assert_ptr_eq(values, before);
  ck_assert_int_eq(capacity, kept);
  petra_free(values);
}
END_TEST

START_TEST(account_keeps_peaks) {
  petra_account account = {0};
  petra_account_add(&account, PETRA_MEMORY_GRAPH, 100);
  petra_account_add(&account, PETRA_MEMORY_GRAPH, -60);
  petra_account_add(&account, PETRA_MEMORY_MESSAGES, 50);
  ck_assert_int_eq(account.peak_bytes[PETRA_MEMORY_GRAPH], 100);
  ck_assert_int_eq(account.total_peak_bytes, 100);
  ck_assert_int_eq(account.total_bytes, 90);
}
END_TEST

START_TEST(streams_are_independent_and_reproducible) {
  petra_rng a, b, c;
  petra_rng_init(&a, 7, PETRA_RNG_AUGMENT, 3, 12345);
  petra_rng_init(&b, 7, PETRA_RNG_AUGMENT, 3, 12345);
  petra_rng_init(&c, 7, PETRA_RNG_AUGMENT, 4, 12345);
  int same = 0;
  for (int i = 0; i < 1000; i++) {
    uint32_t x = petra_rng_u32(&a);
    ck_assert_uint_eq(x, petra_rng_u32(&b));
    same += x == petra_rng_u32(&c);
  }
  ck_assert_int_le(same, 1);
}
END_TEST

/* Philox4x32-10 known answer: counter and key 0 (Random123's kat_vectors). */
START_TEST(philox_known_answer) {
  petra_rng rng = {.used = 4};
  static const uint32_t expected[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; i++)
    ck_assert_uint_eq(petra_rng_u32(&rng), expected[i]);
}
END_TEST

START_TEST(moments_and_permutation) {
  petra_rng rng;
  petra_rng_init(&rng, 1, PETRA_RNG_TEST, 0, 0);
  double sum = 0, square = 0;
  enum { N = 100000 };
  for (int i = 0; i < N; i++) {
    double x = petra_rng_normal(&rng);
    sum += x, square += x * x;
  }
  ck_assert_double_eq_tol(sum / N, 0, 0.02); /* 6 standard errors */
  ck_assert_double_eq_tol(square / N, 1, 0.03);
  uint32_t order[257];
  bool seen[257] = {false};
  petra_rng_permutation(&rng, order, 257);
  for (int i = 0; i < 257; i++)
    seen[order[i]] = true;
  for (int i = 0; i < 257; i++)
    ck_assert(seen[i]);
}
END_TEST

/* Writes a file below `root` and the folders that it lies in. */
static void put(const char *root, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", root, name);
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0777);
    *slash = '/';
  }
  FILE *out = fopen(path, "w");
  ck_assert_ptr_nonnull(out);
  fputs(text, out);
  fclose(out);
}

/* Trees as the kernel shows them: of version 2, version 1, and a container that sees the path of its host but its own group alone. */
START_TEST(processor_time_of_control_groups) {
  static const struct {
    const char *group, *name[3], *text[3];
    double quota;
  } trees[] = {
      {"0::/a/b\n", {"a/b/cpu.max"}, {"150000 100000\n"}, 1.5},
      {"0::/a/b\n", {"a/b/cpu.max", "a/cpu.max"}, {"300000 100000\n", "50000 25000\n"}, 2},
      {"0::/a/b\n", {"a/b/cpu.max", "a/cpu.max"}, {"max 100000\n", "max 100000\n"}, 0},
      {"0::/\n", {"cpu.max"}, {"250000 100000\n"}, 2.5},
      {"0::/host/of/it\n", {"cpu.max"}, {"100000 50000\n"}, 2},
      {"0::/a\n", {"a/memory.max"}, {"1\n"}, 0},
      {"7:cpuset:/s\n4:cpuacct,cpu:/a\n0::/a\n",
       {"cpu/a/cpu.cfs_quota_us", "cpu/a/cpu.cfs_period_us"},
       {"400000\n", "100000\n"},
       4},
      {"4:cpu,cpuacct:/docker/x\n", {"cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"}, {"70000\n", "100000\n"}, 0.7},
      {"1:cpu:/\n", {"cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"}, {"-1\n", "100000\n"}, 0},
      {"no groups\n", {"cpu.max"}, {"100000 100000\n"}, 0}};
  for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
    char root[] = "test_base_XXXXXX", name[128], command[64];
    ck_assert_ptr_nonnull(mkdtemp(root));
    put(root, "proc/self/cgroup", trees[i].group);
    for (int k = 0; k < 3 && trees[i].name[k]; k++) {
      snprintf(name, sizeof name, "sys/fs/cgroup/%s", trees[i].name[k]);
      put(root, name, trees[i].text[k]);
    }
    ck_assert_msg(petra_threads_quota(root) == trees[i].quota, "tree %zu: %g", i, petra_threads_quota(root));
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
  }
  ck_assert_double_eq(petra_threads_quota("there is no such folder"), 0);
}
END_TEST

START_TEST(cores_are_those_of_the_process) {
  cpu_set_t before, one;
  ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
  ck_assert_int_le(petra_threads_cores(), CPU_COUNT(&before));
  int core = 0;
  while (!CPU_ISSET(core, &before))
    core++;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
  ck_assert_int_eq(petra_threads_cores(), 1);
  ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
  ck_assert_int_eq(petra_threads_given(1), 1);
}
END_TEST

int main(void) {
  const TTest *tests[] = {exit_codes_are_0_1_2,
                          last_line_is_written_whoever_keeps_lines,
                          allocation_is_zeroed_aligned_and_can_fail,
                          large_memory_takes_no_more_addresses_than_it_has_bytes,
                          array_grows_zeroed_and_keeps_what_it_holds,
                          account_keeps_peaks,
                          streams_are_independent_and_reproducible,
                          philox_known_answer,
                          moments_and_permutation,
                          processor_time_of_control_groups,
                          cores_are_those_of_the_process};
  return harness_run("base", tests, HARNESS_COUNT(tests));
}
