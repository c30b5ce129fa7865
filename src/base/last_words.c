/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* RTLD_DEFAULT, on_exit */
#include "base/last_words.h"

#include "base/log.h"

#include <dlfcn.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MAX_STATUS = 2 };

/* std::set_new_handler, as the common C++ ABI of Linux names it; where no library brings C++ along it is not there. */
static const char set_new_handler[] = "_ZSt15set_new_handlerPFvvE";
typedef void (*new_handler)(void);

static void end_without_memory(void) {
  petra_log_keep_no_more();
  petra_log(PETRA_LOG_ERROR, "out of memory: a library could not allocate");
  _exit(petra_status_exit_code(PETRA_NO_MEMORY));
}

#ifdef __GLIBC__
static void end_for_library(int status, void *unused) {
  (void)unused;
  if (status >= 0 && status <= MAX_STATUS)
    return;
  petra_log_keep_no_more();
  petra_log(PETRA_LOG_ERROR, "a library ended the program (exit status %d), perhaps because it was out of memory",
            status);
  _exit(petra_status_exit_code(PETRA_BACKEND));
}
#endif

/* Within a limit of address space (ulimit -v): a thread of OpenBLAS that finds no memory as the library is loaded tries
 * for ever, takes on and off the 128 MiB of an arena that others then miss, and is waited for at the end. petra uses one
 * thread of it: where nothing is said of their number, the program starts once more and says it. Its own threads share
 * one arena. */
static void live_within_limits(char **argv) {
  static const char threads[] = "OPENBLAS_NUM_THREADS";
  struct rlimit space;
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
    return;
  if (!getenv(threads) && setenv(threads, "1", 1) == 0)
    execv("/proc/self/exe", argv);
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);
#endif
}

void petra_last_words(char **argv) {
  new_handler (*set)(new_handler) = NULL;
  void *found = dlsym(RTLD_DEFAULT, set_new_handler);
  memcpy(&set, &found, sizeof set);
  if (set)
    set(end_without_memory);
  live_within_limits(argv);
#ifdef __GLIBC__
  on_exit(end_for_library, NULL);
#endif
}
