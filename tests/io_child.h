/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of what happens at the end of a process: runs this test program again with other arguments, so
 * that its exit handlers run as they do in a real run, and tells its exit status. */
#pragma once

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* What a child answers by its exit code; 1 and what sanitizers use (23) mean that it broke down. */
enum { CHILD_DONE = 40, CHILD_FAILED_WELL = 41, CHILD_FAILED_AT_CREATION = 42, CHILD_WRONG = 43 };

/* Exit code of this program run with these arguments; -1 if it was killed by a signal or could not be
 * started. */
static inline int run_child(const char *mode, const char *path, long limit) {
  char number[32];
  snprintf(number, sizeof number, "%ld", limit);
  char *arguments[] = {(char *)"/proc/self/exe", (char *)mode, (char *)path, number, NULL};
  pid_t child;
  int status;
  if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
    return -1;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
    return -1;
  return WEXITSTATUS(status);
}

/* In a child: no file may grow beyond `bytes`; growing one fails with EFBIG. */
static inline void limit_file_size(long bytes) {
  struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &limit);
}

/* Bytes of a file, or -1. */
static inline long file_size(const char *path) {
  struct stat about;
  return stat(path, &about) == 0 ? (long)about.st_size : -1;
}

/* Copies the first `size` bytes of a file. */
static inline void copy_head(const char *from, const char *to, long size) {
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  for (int byte; in && out && size-- > 0 && (byte = getc(in)) != EOF;)
    putc(byte, out);
  if (in)
    fclose(in);
  if (out)
    fclose(out);
}
