/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the process where a library does not come back: MPI_Init waits for processes that may hang, MPI_Finalize for such that
 * may be gone. */
#ifndef PETRA_BASE_WATCHDOG_H
#define PETRA_BASE_WATCHDOG_H

/* In `seconds` (at least 1) the process ends with exit status 1 and this line, a literal with its newline, or "" for none.
 * One at a time. */
void petra_watchdog_start(double seconds, const char *line);
void petra_watchdog_end(void);

#endif
