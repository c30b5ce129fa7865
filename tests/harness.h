/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a Check program: one suite of one test case, run without forking, with the log captured. */
#pragma once

#ifdef PETRA_NO_CHECK
#error "configure found no Check, the unit-test library (Debian: check); install it and configure again"
#endif

#include "base/log.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At every check that holds, Check writes to a file where it was, for tests that crash in a process of their own.
 * Ours do not fork, and some check millions of numbers. */
#define _mark_point(file, line) ((void)0)

/* The last line that the program logged, for tests of messages. */
static char harness_line[2048];
static int harness_lines;

static inline void harness_capture(void *context, petra_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(harness_line, sizeof harness_line, "%s", line);
  harness_lines++;
}

/* Forgets what was captured. */
static inline void harness_clear(void) {
  harness_line[0] = 0;
  harness_lines = 0;
}

/* The last logged line must contain `text`. */
#define ck_assert_logged(text)                                                                                         \
  ck_assert_msg(strstr(harness_line, (text)), "log line: '%s', expected: '%s'", harness_line, (text))

/* The call fails with PETRA_<status> and one line that holds `text`. */
#define ck_assert_refused(status, text, call)                                                                          \
  do {                                                                                                                 \
    harness_clear();                                                                                                   \
    ck_assert_int_eq((call), PETRA_##status);                                                                          \
    ck_assert_int_eq(harness_lines, 1);                                                                                \
    ck_assert_logged(text);                                                                                            \
  } while (0)

/* Runs the tests of a case, alone in a suite called `name`; returns main's exit code. */
static inline int harness_run_case(const char *name, TCase *tcase) {
  Suite *suite = suite_create(name);
  suite_add_tcase(suite, tcase);
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* what was printed before a time limit is seen */
  SRunner *runner = srunner_create(suite);
  srunner_set_fork_status(runner, CK_NOFORK);
  petra_log_set_sink(harness_capture, NULL);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The same of an array of TTest of `count`. */
static inline int harness_run(const char *name, const TTest *const *tests, int count) {
  TCase *tcase = tcase_create(name);
  for (int i = 0; i < count; i++)
    tcase_add_test(tcase, tests[i]);
  return harness_run_case(name, tcase);
}

#define HARNESS_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
