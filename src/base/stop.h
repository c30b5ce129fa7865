/* SPDX-License-Identifier: Apache-2.0 */
/* The end that a user, or a batch system, asks for by a signal: Ctrl-C (SIGINT), SIGTERM, and SIGUSR1, by which Slurm can announce
 * the end of a job (--signal). The line is written at once, as whoever sent the signal may not wait; the run ends where it
 * next looks, or after a checkpoint (petra_stop_defer). A second signal of the kind ends the process. */
#ifndef PETRA_BASE_STOP_H
#define PETRA_BASE_STOP_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* From now on; signals that are ignored (nohup) stay so. */
void petra_stop_catch(void);

/* The line, without a newline, in place of the one before. None is written before the first. At most PETRA_STOP_LINE - 1 bytes. */
enum { PETRA_STOP_LINE = 2048 };
void petra_stop_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of a process that others watch, at least every second: it is alive. If it then stands still for `silent_ns`, they write the line of
 * its end, and it writes none. 0: nobody watches. */
void petra_stop_alive(int64_t silent_ns);

/* Writes it, unless a signal has done so. */
void petra_stop_tell(void);

/* There is no line any more. */
void petra_stop_forget(void);

/* Neither is there one, and signals end the process again. */
void petra_stop_release(void);

/* Whether a signal came. */
bool petra_stop_signalled(void);

/* While `deferred`, the caller looks at petra_stop_signalled and ends the run itself, and nobody else does. */
void petra_stop_defer(bool deferred);

/* PETRA_STOPPED after a signal that is not deferred, else PETRA_OK. */
petra_status petra_stop_asked(void);

/* The run ends now, whichever process the signal came to: no longer deferred, and the line (petra_stop_say) is a new one, which
 * petra_stop_tell writes although a signal has had another one written. */
void petra_stop_end(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the process where a library does not come back: MPI_Init waits for processes that may hang, MPI_Finalize for such that
 * may be gone. */

/* In `seconds` (at least 1) the process ends with exit status 1 and this line, a literal with its newline, or "" for none.
 * One at a time. */
void petra_watchdog_start(double seconds, const char *line);
void petra_watchdog_end(void);

#endif
