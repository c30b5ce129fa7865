/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded (LD_PRELOAD): allocation number PETRA_REFUSE of the program and all its libraries, counted from the start of
 * main, fails once; the stack goes to PETRA_REFUSE_TRACE. Where a library of PETRA_REFUSE_PASS ("libone:libtwo") is on the
 * stack, it is the next allocation without one that fails; C++'s own `new` fails in any case. At the end the number of
 * allocations is written to PETRA_REFUSE_COUNT. glibc. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic long count;
static long refused = -1;
static int running, trace = -1;

enum { RANGES = 256, FRAMES = 64, CALLER = 2 };
static struct {
  uintptr_t begin, end;
  int cplusplus;
} passed[RANGES];
static int ranges;

/* Keeps the code of the libraries that are passed over, and of C++'s. */
static int keep_range(struct dl_phdr_info *info, size_t size, void *names) {
  char name[64];
  (void)size;
  int cplusplus = strstr(info->dlpi_name, "libstdc++") != NULL, wanted = cplusplus;
  for (const char *at = names; at && *at && !wanted; at += strspn(at, ":")) {
    size_t length = strcspn(at, ":");
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    wanted = strstr(info->dlpi_name, name) != NULL;
    at += length;
  }
  for (int i = 0; i < info->dlpi_phnum && wanted && ranges < RANGES; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
      continue;
    passed[ranges].begin = info->dlpi_addr + part->p_vaddr;
    passed[ranges].end = passed[ranges].begin + part->p_memsz;
    passed[ranges++].cplusplus = cplusplus;
  }
  return 0;
}

/* Whether the stack may fail here. */
static int eligible(void *const *frames, int depth) {
  int over = 0;
  for (int f = CALLER; f < depth; f++)
    for (int r = 0; r < ranges; r++)
      if ((uintptr_t)frames[f] >= passed[r].begin && (uintptr_t)frames[f] < passed[r].end) {
        if (passed[r].cplusplus && f == CALLER)
          return 1;
        over = over || !passed[r].cplusplus;
      }
  return !over;
}

/* Whether this allocation fails. */
static __attribute__((noinline)) int refuse(void) {
  void *frames[FRAMES];
  if (!running || atomic_fetch_add(&count, 1) < refused || refused < 0)
    return 0;
  running = 0;
  int depth = backtrace(frames, FRAMES);
  if (!eligible(frames, depth)) {
    running = 1;
    return 0;
  }
  if (trace >= 0)
    backtrace_symbols_fd(frames, depth, trace);
  refused = -1;
  running = 1;
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t size) {
  return refuse() ? NULL : __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
  return refuse() ? NULL : __libc_calloc(number, size);
}

void *realloc(void *old, size_t size) {
  return refuse() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
  return refuse() ? NULL : __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size) {
  return refuse() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
  if (refuse())
    return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

static int (*real_main)(int, char **, char **);

static int wrapped_main(int argc, char **argv, char **environment) {
  const char *number = getenv("PETRA_REFUSE"), *file = getenv("PETRA_REFUSE_COUNT"),
             *trace_file = getenv("PETRA_REFUSE_TRACE");
  void *frame;
  backtrace(&frame, 1); /* loads what it needs */
  dl_iterate_phdr(keep_range, getenv("PETRA_REFUSE_PASS"));
  refused = number ? atol(number) : -1;
  if (trace_file)
    trace = open(trace_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  running = 1;
  int code = real_main(argc, argv, environment);
  running = 0;
  if (file) {
    FILE *out = fopen(file, "w");
    if (out) {
      fprintf(out, "%ld\n", atomic_load(&count));
      fclose(out);
    }
  }
  return code;
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, int (*init)(int, char **, char **),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
  int (*next)(int (*)(int, char **, char **), int, char **, int (*)(int, char **, char **), void (*)(void),
              void (*)(void), void *);
  void *found = dlsym(RTLD_NEXT, "__libc_start_main");
  memcpy(&next, &found, sizeof next);
  real_main = main;
  return next(wrapped_main, argc, argv, init, fini, rtld_fini, stack_end);
}
