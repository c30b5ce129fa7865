/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and threads on the host: see device.h. */
#include "cuda_host/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { THREADS_MAX = 1024, STACK_BYTES = 32 << 10 };

typedef enum fibre_state { FIBRE_READY, FIBRE_WAITING, FIBRE_DONE } fibre_state;

/* A place to come back to, on a stack of its own. swapcontext asks the system for the signal mask each time, and the
 * sanitizer's clears a stack besides, which takes longer than most of what lies between two barriers; so a context only
 * starts a fibre. After that it is a jump of the compiler's: the library's is refused between stacks by _FORTIFY_SOURCE,
 * and under the sanitizer it, too, clears a stack. */
typedef struct place {
  ucontext_t context;
  void *jump[5];
  bool started; /* `jump` is set */
} place;

/* One thread of a block. Fibres are made when they are first needed and kept: between two blocks they are just about to
 * take up the next. */
typedef struct fibre {
  place place;
  void *stack;
  void *fake_stack; /* the sanitizer's */
  fibre_state state;
} fibre;

petra_cuda_host_index petra_cuda_host_now;

/* All under `running`: one launch at a time. */
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;
static bool reversed;
static fibre fibres[THREADS_MAX];
static fibre *current; /* NULL: no fibre runs */
static const petra_cuda_host_closure *work;
static place scheduler;
static void *scheduler_fake_stack;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;

extern unsigned char __start_petra_shared[] __attribute__((weak));
extern unsigned char __stop_petra_shared[] __attribute__((weak));

static void stop(const char *what) {
  fprintf(stderr, "cuda_host: %s, block %" PRId64 ", thread %d: %s\n", work ? work->name : "?",
          petra_cuda_host_now.block, petra_cuda_host_now.thread, what);
  abort();
}

static void leave_stack(void **fake_stack, const void *to, size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake_stack, to, bytes);
#else
  (void)fake_stack, (void)to, (void)bytes;
#endif
}

static void enter_stack(void *fake_stack, const void **from, size_t *bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
#else
  (void)fake_stack, (void)from, (void)bytes;
#endif
}

/* Not in the function of __builtin_setjmp, and not looked at by the sanitizer, which would clear the stack that is left. */
static void __attribute__((noinline, noreturn, no_sanitize_address)) jump(place *to) {
  if (to->started)
    __builtin_longjmp(to->jump, 1);
  setcontext(&to->context);
  abort();
}

static void __attribute__((noinline, no_sanitize_address)) go(place *from, place *to) {
  from->started = true;
  if (!__builtin_setjmp(from->jump))
    jump(to);
}

/* From a fibre back to the scheduler, until it resumes the fibre. */
static void pause_fibre(fibre *self, fibre_state state) {
  self->state = state;
  leave_stack(&self->fake_stack, scheduler_stack, scheduler_stack_bytes);
  go(&self->place, &scheduler);
  enter_stack(self->fake_stack, &scheduler_stack, &scheduler_stack_bytes);
}

static void fibre_main(void) {
  enter_stack(NULL, &scheduler_stack, &scheduler_stack_bytes);
  for (;;) {
    work->call(work->arguments);
    pause_fibre(current, FIBRE_DONE);
  }
}

static void prepare_fibre(fibre *self) {
  if (!self->stack) {
    self->stack = malloc(STACK_BYTES);
    if (!self->stack || getcontext(&self->place.context))
      stop("no memory for a fibre");
    self->place.context.uc_stack.ss_sp = self->stack;
    self->place.context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&self->place.context, fibre_main, 0);
  }
  self->state = FIBRE_READY;
}

static void resume_fibre(fibre *self, int thread) {
  petra_cuda_host_now.thread = thread;
  current = self;
  leave_stack(&scheduler_fake_stack, self->stack, STACK_BYTES);
  go(&scheduler, &self->place);
  enter_stack(scheduler_fake_stack, NULL, NULL);
  current = NULL;
}

void petra_cuda_host_sync(void) {
  if (!current)
    stop("PETRA_SYNC in a kernel that was launched as flat");
  pause_fibre(current, FIBRE_WAITING);
}

/* Runs every fibre up to its next barrier or its end; true while they wait. */
static bool run_to_barrier(int threads) {
  int waiting = 0;
  for (int i = 0; i < threads; i++) {
    int thread = reversed ? threads - 1 - i : i;
    resume_fibre(&fibres[thread], thread);
    waiting += fibres[thread].state == FIBRE_WAITING;
  }
  if (waiting != 0 && waiting != threads)
    stop("divergent barrier: some threads wait at PETRA_SYNC, others have returned");
  return waiting != 0;
}

static void run_block(const petra_cuda_host_closure *closure) {
  if (!closure->waits) {
    for (int i = 0; i < closure->threads; i++) {
      petra_cuda_host_now.thread = reversed ? closure->threads - 1 - i : i;
      closure->call(closure->arguments);
    }
    return;
  }
  if (__start_petra_shared)
    memset(__start_petra_shared, 0xff, (size_t)(__stop_petra_shared - __start_petra_shared));
  for (int i = 0; i < closure->threads; i++)
    prepare_fibre(&fibres[i]);
  while (run_to_barrier(closure->threads))
    ;
}

void petra_cuda_host_run(const petra_cuda_host_closure *closure) {
  pthread_mutex_lock(&running);
  work = closure;
  petra_cuda_host_now.blocks = closure->blocks;
  petra_cuda_host_now.threads = closure->threads;
  for (int64_t i = 0; i < closure->blocks; i++) {
    petra_cuda_host_now.block = reversed ? closure->blocks - 1 - i : i;
    run_block(closure);
  }
  work = NULL;
  pthread_mutex_unlock(&running);
}

void petra_cuda_host_reverse(bool reverse) {
  pthread_mutex_lock(&running);
  reversed = reverse;
  pthread_mutex_unlock(&running);
}

void petra_cuda_host_enqueue(cuda_stream stream, void (*call)(const void *), const char *name, int64_t blocks,
                             int64_t threads, bool waits, const void *arguments, size_t size) {
  petra_cuda_host_closure closure = {
      .call = call, .name = name, .blocks = blocks, .threads = (int)threads, .waits = waits, .size = size};
  if (blocks < 1 || blocks > INT32_MAX || threads < 1 || threads > THREADS_MAX || size > sizeof closure.arguments) {
    fprintf(stderr,
            "cuda_host: %s: a launch of %" PRId64 " blocks of %" PRId64
            " threads with %zu bytes of arguments is not possible\n",
            name, blocks, threads, size);
    abort();
  }
  memcpy(closure.arguments, arguments, size);
  petra_cuda_host_launch(stream, &closure);
}
