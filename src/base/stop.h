/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the signals by which a user or a batch system ends a run: Ctrl-C (SIGINT), SIGTERM, and SIGUSR1, with which
 * Slurm can announce the end of a job (--signal). The handler writes a line immediately, as the sender of the signal
 * may not wait. The run ends when it next checks, or after a checkpoint (petra_stop_defer). A second signal of the same
 * kind ends the process. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Installs the handlers. Signals that are ignored (nohup) stay ignored. */
void petra_stop_catch(void);

/* Replaces the line, which has no newline and at most PETRA_STOP_LINE - 1 bytes. Before the first call there is no
 * line. */
enum { PETRA_STOP_LINE = 2048 };
void petra_stop_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reports that this process is alive, to be called at least every second if other processes watch it. If this process
 * then stands still for `silent_ns`, the other processes write the line of its end and this process writes no line. 0:
 * no process watches. */
void petra_stop_alive(int64_t silent_ns);

/* Writes the line unless a signal has written it. */
void petra_stop_report(void);

/* Removes the line. */
void petra_stop_forget(void);

/* Removes the line and restores the default handlers. */
void petra_stop_release(void);

/* Returns true if a signal has arrived. */
bool petra_stop_signalled(void);

/* If `deferred`, the caller alone checks petra_stop_signalled and ends the run. */
void petra_stop_defer(bool deferred);

/* Returns PETRA_STOPPED after a signal that is not deferred, else PETRA_OK. */
petra_status petra_stop_requested(void);

/* Ends the run in this process, whichever process received the signal: the end is no longer deferred, and
 * petra_stop_report writes this new line even if a signal has written another line, unless that line is the beginning
 * of the new line. */
void petra_stop_end(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A watchdog ends the process if a library does not return: MPI_Init waits for processes that may hang, MPI_Finalize
 * for processes that may have ended. */

/* After `seconds` (at least 1) ends the process with exit status 1 and this line, a literal with its newline, or "" for
 * none. Only one watchdog can run at a time. */
void petra_watchdog_start(double seconds, const char *line);
void petra_watchdog_end(void);
