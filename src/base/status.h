/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, which functions that can fail return. 0 is OK. Source: docs/design.md, "Errors". */
#pragma once

/* X(NAME, exit code of the program, meaning) */
#define PETRA_STATUS_LIST(X)                                                                                           \
  X(OK, 0, "done")                                                                                                     \
  X(USAGE, 2, "wrong usage of the command line")                                                                       \
  X(CONFIG, 2, "wrong config")                                                                                         \
  X(UNSUPPORTED, 2, "a combination that this build or backend cannot do")                                              \
  X(SCHEDULE, 2, "a schedule that cannot run")                                                                         \
  X(IO, 1, "a file could not be read or written")                                                                      \
  X(DATA, 1, "a file whose content is wrong")                                                                          \
  X(SHAPE, 1, "shapes that do not fit together")                                                                       \
  X(NOT_FINITE, 1, "a value that is not finite")                                                                       \
  X(NO_MEMORY, 1, "out of memory")                                                                                     \
  X(BACKEND, 1, "a compute library or device reported an error")                                                       \
  X(CHILD, 1, "a run that was started failed or was stopped")                                                          \
  X(COMPLETE, 0, "there is nothing left to do")                                                                        \
  X(STOPPED, 1, "the user asked for the end")                                                                          \
  X(INTERNAL, 1, "an invariant of the program does not hold")

typedef enum petra_status {
#define PETRA_STATUS_ENUM(name, code, meaning) PETRA_##name,
  PETRA_STATUS_LIST(PETRA_STATUS_ENUM)
#undef PETRA_STATUS_ENUM
} petra_status;

/* Returns the exit code of the program for this status: 0, 1 or 2; 1 for a value outside the list. */
static inline int petra_status_exit_code(petra_status status) {
  switch (status) {
#define PETRA_STATUS_CODE(name, code, meaning)                                                                         \
  case PETRA_##name:                                                                                                   \
    return code;
    PETRA_STATUS_LIST(PETRA_STATUS_CODE)
#undef PETRA_STATUS_CODE
  }
  return 1;
}

/* Passes a failure on to the caller. The first function that detects a failure logs it (petra_fail); the others only
 * pass it on. */
#define PETRA_TRY(expression)                                                                                          \
  do {                                                                                                                 \
    petra_status petra_try_status_ = (expression);                                                                     \
    if (petra_try_status_ != PETRA_OK)                                                                                 \
      return petra_try_status_;                                                                                        \
  } while (0)

/* Passes a failure on after unwinding: sets `status` and jumps to `label`. */
#define PETRA_TRY_GOTO(status, expression, label)                                                                      \
  do {                                                                                                                 \
    (status) = (expression);                                                                                           \
    if ((status) != PETRA_OK)                                                                                          \
      goto label;                                                                                                      \
  } while (0)

/* Put this before a local structure that is initialised: it calls `fini` with the address of the structure at the end
 * of its block, also after PETRA_TRY. */
#define PETRA_FINISHED(fini) __attribute__((cleanup(fini)))

/* Put this before a local pointer that is initialised: it calls `destroy` with the pointer at the end of its block. It
 * needs PETRA_DESTROYS(petra_x_destroy, petra_x) once, in the header of the object or in the file. */
#define PETRA_DESTROYED(destroy) __attribute__((cleanup(destroy##_local)))
#define PETRA_DESTROYS(destroy, type)                                                                                  \
  static inline void destroy##_local(type **object) {                                                                  \
    destroy(*object);                                                                                                  \
  }
