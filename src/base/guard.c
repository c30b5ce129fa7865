/* SPDX-License-Identifier: Apache-2.0 */
#include "base/guard.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child may take, besides what the process has: a small file needs little of either. */
enum { MEMORY_BYTES = 256 << 20, MEMORY_PER_BYTE = 16, SECONDS = 5, BYTES_PER_SECOND = 20000000 };

/* A child's first line goes to its parent. */
static void send_line(void *context, petra_log_level level, const char *line) {
  if (level == PETRA_LOG_ERROR && write(*(int *)context, line, strlen(line)) < 0)
    _exit(PETRA_IO);
}

/* Bytes of address space of this process; 0 where the system does not tell. */
static uint64_t address_space(void) {
  long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%lld", &pages) != 1)
    pages = 0;
  if (file)
    fclose(file);
  return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit(int resource, uint64_t maximum) {
  struct rlimit now;
  if (getrlimit(resource, &now) != 0)
    return;
  if (now.rlim_cur == RLIM_INFINITY || now.rlim_cur > maximum)
    now.rlim_cur = maximum;
  setrlimit(resource, &now);
}

/* The child: crashes stay silent, whatever reports them. */
static void run_child(const char *path, petra_status (*read)(void *context), void *context, int lines) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  struct stat about;
  uint64_t bytes = stat(path, &about) == 0 ? (uint64_t)about.st_size : 0, space = address_space();
  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
    signal(fatal[i], SIG_DFL);
  if (null >= 0) {
    dup2(null, 1);
    dup2(null, 2);
  }
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, SECONDS + bytes / BYTES_PER_SECOND);
  if (space > 0)
    limit(RLIMIT_AS, space + MEMORY_BYTES + MEMORY_PER_BYTE * bytes);
  petra_log_set_sink(send_line, &lines);
  _exit((int)read(context));
}

/* The child's line, to its end, and its end; -1 where that could not be learnt. */
static int wait_for(pid_t child, int lines, char *line, size_t size) {
  size_t length = 0;
  int status;
  for (ssize_t got = 1; got != 0 && length + 1 < size;) {
    got = read(lines, line + length, size - 1 - length);
    if (got < 0 && errno != EINTR)
      break;
    if (got > 0)
      length += (size_t)got;
  }
  line[length] = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return -1;
  return status;
}

petra_status petra_guard(const char *path, petra_status (*read)(void *context), void *context) {
  int lines[2];
  char line[1024];
  petra_seal seal;
  PETRA_TRY(petra_seal_check(path, &seal));
  PETRA_TRY(petra_reserve(0));
  if (seal == PETRA_SEAL_WHOLE)
    return read(context);
  if (pipe(lines) != 0)
    return petra_fail(PETRA_IO, "%s: cannot be read in a separate process: %s", path, strerror(errno));
  pid_t child = fork();
  if (child == 0) {
    close(lines[0]);
    run_child(path, read, context, lines[1]);
  }
  int reason = errno;
  close(lines[1]);
  int status = child < 0 ? -1 : wait_for(child, lines[0], line, sizeof line);
  close(lines[0]);
  if (status < 0)
    return petra_fail(PETRA_IO, "%s: cannot be read in a separate process: %s", path, strerror(reason));
  if (WIFEXITED(status) && WEXITSTATUS(status) == PETRA_OK)
    return read(context);
  if (WIFEXITED(status) && line[0])
    return petra_fail((petra_status)WEXITSTATUS(status), "%s", line);
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL))
    return petra_fail(PETRA_DATA, "%s: damaged file: reading it takes too long for its size", path);
  return petra_fail(PETRA_DATA, "%s: damaged file: HDF5 crashes or runs out of memory on it", path);
}
