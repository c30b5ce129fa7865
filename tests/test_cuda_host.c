/* SPDX-License-Identifier: Apache-2.0 */
/* The host that runs kernels in tests (tests/cuda_host) finds what it is there to find. */
#include "cuda_rig.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 64 };

typedef struct probe_args {
  int32_t *y;
} probe_args;

/* Each thread hands its number to its neighbour. */
PETRA_KERNEL(with_barrier, const probe_args a) {
  PETRA_SHARED int32_t shared[THREADS];
  shared[PETRA_THREAD] = PETRA_THREAD;
  PETRA_SYNC();
  a.y[PETRA_BLOCK * THREADS + PETRA_THREAD] = shared[(PETRA_THREAD + 1) % THREADS];
}

PETRA_KERNEL(without_barrier, const probe_args a) {
  PETRA_SHARED int32_t shared[THREADS];
  shared[PETRA_THREAD] = PETRA_THREAD;
  a.y[PETRA_BLOCK * THREADS + PETRA_THREAD] = shared[(PETRA_THREAD + 1) % THREADS];
}

/* Each block adds to what the block before it left: an order that no device promises. */
PETRA_KERNEL(across_blocks, const probe_args a) {
  a.y[PETRA_BLOCK] = PETRA_BLOCK > 0 ? a.y[PETRA_BLOCK - 1] + 1 : 0;
}

PETRA_KERNEL(divergent, const probe_args a) {
  a.y[PETRA_THREAD] = 0;
  if (PETRA_THREAD < THREADS / 2)
    PETRA_SYNC();
}

/* What nobody wrote. */
PETRA_KERNEL(unwritten, const probe_args a) {
  PETRA_SHARED int32_t shared[THREADS];
  a.y[PETRA_BLOCK * THREADS + PETRA_THREAD] = shared[PETRA_THREAD];
  PETRA_SYNC();
  shared[PETRA_THREAD] = 1;
}

#define LAUNCHER(name, KIND, blocks, threads)                                                                          \
  static petra_status name##_launch(const cuda_lane *lane, const void *arguments) {                                    \
    PETRA_LAUNCH_##KIND(lane, name, blocks, threads, *(const probe_args *)arguments);                                  \
    return cuda_launched(#name);                                                                                       \
  }
LAUNCHER(with_barrier, BLOCK, 3, THREADS)
LAUNCHER(without_barrier, BLOCK, 3, THREADS)
LAUNCHER(across_blocks, FLAT, THREADS, 1)
LAUNCHER(divergent, BLOCK, 1, THREADS)
LAUNCHER(unwritten, BLOCK, 2, THREADS)

static petra_status flat_with_barrier_launch(const cuda_lane *lane, const void *arguments) {
  PETRA_LAUNCH_FLAT(lane, with_barrier, 1, THREADS, *(const probe_args *)arguments);
  return PETRA_OK;
}

START_TEST(barriers_wait) {
  int32_t y[3 * THREADS] = {0};
  const probe_args a = {y};
  ck_assert(rig_same(with_barrier_launch, &a, 0, 1, &(rig_output){y, sizeof y}));
  for (int i = 0; i < 3 * THREADS; i++)
    ck_assert_int_eq(y[i], (i + 1) % THREADS);
}
END_TEST

START_TEST(missing_barrier_and_block_order_show) {
  int32_t y[3 * THREADS] = {0};
  const probe_args a = {y};
  ck_assert(!rig_same(without_barrier_launch, &a, 0, 1, &(rig_output){y, sizeof y}));
  memset(y, 0, sizeof y);
  ck_assert(!rig_same(across_blocks_launch, &a, 0, 1, &(rig_output){y, sizeof y}));
}
END_TEST

START_TEST(shared_memory_is_poisoned_before_every_block) {
  int32_t y[2 * THREADS] = {0};
  rig_launch_once(unwritten_launch, &(probe_args){y}, 0);
  for (int i = 0; i < 2 * THREADS; i++)
    ck_assert_int_eq(y[i], -1); /* all bits set: a NaN as a float and as a double */
}
END_TEST

/* Runs the launch in a child, which must be aborted after a line with `text`. */
static void must_abort(cuda_launch launch, const char *text) {
  int32_t y[THREADS] = {0};
  int ends[2], state;
  char line[512] = "";
  ck_assert_int_eq(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    rig_launch_once(launch, &(probe_args){y}, 0);
    _exit(0);
  }
  close(ends[1]);
  ssize_t got = read(ends[0], line, sizeof line - 1);
  close(ends[0]);
  ck_assert_int_eq(waitpid(child, &state, 0), child);
  ck_assert_msg(WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT, "it was not aborted");
  ck_assert_msg(got > 0 && strstr(line, text), "message: '%s', expected: '%s'", line, text);
}

START_TEST(wrong_barriers_end_the_program) {
  must_abort(flat_with_barrier_launch,
             "with_barrier, block 0, thread 0: PETRA_SYNC in a kernel that was launched as flat");
  must_abort(divergent_launch, "divergent barrier");
}
END_TEST

int main(void) {
  const TTest *tests[] = {barriers_wait, missing_barrier_and_block_order_show,
                          shared_memory_is_poisoned_before_every_block, wrong_barriers_end_the_program};
  return harness_run("cuda_host", tests, HARNESS_COUNT(tests));
}
