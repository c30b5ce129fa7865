/* SPDX-License-Identifier: Apache-2.0 */
/* The seal of files and the child process that reads those without: base/seal.h, base/hdf5.h. */
#include "base/hdf5.h"
#include "base/mem.h"
#include "base/seal.h"
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_NAME "test_seal.file"

enum { CONTENT = 3000, SIZE = PETRA_SEAL_BYTES + CONTENT };

static void fill(unsigned char *bytes) {
  for (int i = 0; i < SIZE; i++)
    bytes[i] = (unsigned char)(i * 7 + i / 251);
}

static int open_new(const unsigned char *bytes) {
  int fd = open(FILE_NAME, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, bytes, SIZE), SIZE);
  return fd;
}

static void refused(petra_status status, petra_status expected) {
  ck_assert_int_eq(status, expected);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged(FILE_NAME);
  harness_clear();
}

/* Every bit and every cut of a sealed file, on the disk and in memory. */
START_TEST(every_change_shows) {
  unsigned char bytes[SIZE];
  petra_seal seal;
  fill(bytes);
  petra_seal_image(bytes, SIZE);
  int fd = open_new(bytes);
  ck_assert_int_eq(petra_seal_check(FILE_NAME, &seal), PETRA_OK);
  ck_assert_int_eq(seal, PETRA_SEAL_WHOLE);
  ck_assert(!petra_seal_is_damaged(FILE_NAME) && !petra_seal_is_damaged("no-such-file"));
  ck_assert_int_eq(petra_seal_check_image(FILE_NAME, bytes, SIZE), PETRA_OK);
  harness_clear();
  for (int i = 0; i < 8 * SIZE; i += i < 8 * PETRA_SEAL_BYTES ? 1 : 11) {
    unsigned char changed = bytes[i / 8] ^ (unsigned char)(1 << i % 8);
    ck_assert_int_eq(pwrite(fd, &changed, 1, i / 8), 1);
    refused(petra_seal_check(FILE_NAME, &seal), PETRA_DATA);
    ck_assert(petra_seal_is_damaged(FILE_NAME));
    ck_assert_int_eq(pwrite(fd, &bytes[i / 8], 1, i / 8), 1);
    bytes[i / 8] = changed;
    refused(petra_seal_check_image(FILE_NAME, bytes, SIZE), PETRA_DATA);
    bytes[i / 8] ^= (unsigned char)(1 << i % 8);
  }
  ck_assert_int_eq(ftruncate(fd, SIZE + 1), 0);
  refused(petra_seal_check(FILE_NAME, &seal), PETRA_DATA);
  for (int size = SIZE - 1; size >= 8; size -= size > 600 ? 97 : 1) {
    ck_assert_int_eq(ftruncate(fd, size), 0);
    refused(petra_seal_check(FILE_NAME, &seal), PETRA_DATA);
  }
  close(fd);
  unlink(FILE_NAME);
  refused(petra_seal_check(FILE_NAME, &seal), PETRA_IO);
}
END_TEST

START_TEST(open_and_parts) {
  static const petra_seal_part parts[] = {{PETRA_SEAL_BYTES + 100, 700}, {PETRA_SEAL_BYTES + 800, 1200}};
  static const unsigned char other = 1;
  unsigned char bytes[SIZE];
  petra_seal seal;
  fill(bytes);
  int fd = open_new(bytes);
  ck_assert_int_eq(petra_seal_check(FILE_NAME, &seal), PETRA_OK);
  ck_assert_int_eq(seal, PETRA_SEAL_NONE);
  ck_assert(petra_seal_is_damaged(FILE_NAME)); /* petra writes none without */
  ck_assert_int_eq(petra_seal_begin(fd), 0);
  ck_assert_int_eq(petra_seal_check(FILE_NAME, &seal), PETRA_OK);
  ck_assert_int_eq(seal, PETRA_SEAL_OPEN);
  ck_assert(!petra_seal_is_damaged(FILE_NAME));
  for (int count = 0; count <= 2; count++) {
    fill(bytes);
    ck_assert_int_eq(pwrite(fd, bytes + PETRA_SEAL_BYTES, CONTENT, PETRA_SEAL_BYTES), CONTENT);
    ck_assert_int_eq(petra_seal_finish(fd, parts, count), 0);
    ck_assert_int_eq(petra_seal_check(FILE_NAME, &seal), PETRA_OK);
    ck_assert_int_eq(seal, PETRA_SEAL_WHOLE);
    ck_assert_int_eq(petra_seal_check_parts(FILE_NAME), PETRA_OK);
    for (int at = 0; at < CONTENT; at += 97) {
      bool in_part = (count > 0 && at >= 100 && at < 800) || (count > 1 && at >= 800 && at < 2000);
      unsigned char kept = bytes[PETRA_SEAL_BYTES + at], changed = kept ^ other;
      harness_clear();
      ck_assert_int_eq(pwrite(fd, &changed, 1, PETRA_SEAL_BYTES + at), 1);
      ck_assert_int_eq(petra_seal_check(FILE_NAME, &seal), in_part ? PETRA_OK : PETRA_DATA);
      ck_assert_int_eq(petra_seal_check_parts(FILE_NAME), in_part ? PETRA_DATA : PETRA_OK);
      ck_assert_int_eq(harness_lines, 1);
      ck_assert_int_eq(pwrite(fd, &kept, 1, PETRA_SEAL_BYTES + at), 1);
    }
  }
  close(fd);
  unlink(FILE_NAME);
}
END_TEST

typedef struct reading {
  int calls;
  int what;
} reading;

enum { GOOD, REFUSES, CRASHES, EXITS, LOOPS, FLOODS, READINGS };

static petra_status read_something(void *context) {
  reading *r = context;
  volatile unsigned long turns = 0;
  r->calls++;
  switch (r->what) {
  case REFUSES:
    return petra_fail(PETRA_CONFIG, FILE_NAME ": has what 100%% is wrong");
  case CRASHES:
    raise(SIGSEGV);
    break;
  case EXITS:
    _exit(255);
  case LOOPS:
    for (;;)
      turns++;
  case FLOODS:
    for (int i = 0; i < 100000; i++) {
      void *piece;
      PETRA_TRY(petra_allocate(&piece, 1 << 20, 1));
    }
    break;
  default:
    break;
  }
  return PETRA_OK;
}

/* The address sanitizer ends the process where malloc would return NULL. */
#ifdef __SANITIZE_ADDRESS__
enum { FLOODED = PETRA_DATA };
#else
enum { FLOODED = PETRA_NO_MEMORY };
#endif

/* What a child does stays a child's. */
START_TEST(guarded) {
  static const struct {
    petra_status status;
    const char *line;
    int calls;
  } expected[READINGS] = {[GOOD] = {PETRA_OK, "", 1},
                          [REFUSES] = {PETRA_CONFIG, ": has what 100% is wrong", 0},
                          [CRASHES] = {PETRA_DATA, "damaged file: HDF5 crashes", 0},
                          [EXITS] = {PETRA_DATA, "damaged file: HDF5 crashes", 0},
                          [LOOPS] = {PETRA_DATA, "takes too long", 0},
                          [FLOODS] = {(petra_status)FLOODED, "out of memory", 0}};
  FILE *file = fopen(FILE_NAME, "w");
  ck_assert_int_ge(fputs("a file without a seal", file), 0);
  fclose(file);
  for (int what = 0; what < READINGS; what++) {
    reading r = {.what = what};
    harness_clear();
    petra_status status = petra_guard(FILE_NAME, read_something, &r);
    ck_assert_msg(status == expected[what].status, "%d: status %d: %s", what, (int)status, harness_line);
    ck_assert_int_eq(r.calls, expected[what].calls);
    ck_assert_int_eq(harness_lines, status != PETRA_OK);
    ck_assert_logged(expected[what].line);
  }
  remove(FILE_NAME);
}
END_TEST

/* A child that waits for a lock which nobody releases. `children`, shared by all of them, counts. */
typedef struct waiting {
  int *children, last; /* the last child that waits */
} waiting;

static petra_status wait_in_child(void *context) {
  const waiting *w = context;
  if (++*w->children <= w->last)
    for (;;)
      pause();
  return PETRA_OK;
}

START_TEST(children_that_wait) {
  int *children = mmap(NULL, sizeof *children, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FILE *file = fopen(FILE_NAME, "w");
  ck_assert(children != MAP_FAILED);
  ck_assert_int_ge(fputs("a file without a seal", file), 0);
  fclose(file);
  petra_guard_set_wait(1);
  for (int last = 1; last <= 3; last += 2) {
    waiting w = {children, last};
    *children = 0;
    harness_clear();
    ck_assert_int_eq(petra_guard(FILE_NAME, wait_in_child, &w), last < 3 ? PETRA_OK : PETRA_IO);
    ck_assert_int_eq(*children, last < 3 ? last + 2 : 3); /* one that does not wait, and then this process */
  }
  ck_assert_logged("3 processes waited for 1 s and longer without an end");
  remove(FILE_NAME);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {every_change_shows, open_and_parts, guarded, children_that_wait};
  return harness_run("seal", tests, HARNESS_COUNT(tests));
}
