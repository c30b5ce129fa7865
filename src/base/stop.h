/* SPDX-License-Identifier: Apache-2.0 */
/* The end that a user asks for: Ctrl-C (SIGINT) and SIGTERM. The line that says how to go on is written at once, as whoever sent
 * the signal may not wait; the run ends where it next looks. A second signal ends the process. */
#ifndef PETRA_BASE_STOP_H
#define PETRA_BASE_STOP_H

#include "base/status.h"

#include <stdint.h>

/* From now on; signals that are ignored (nohup) stay so. */
void petra_stop_catch(void);

/* The line, without a newline, in place of the one before. None is written before the first. At most PETRA_STOP_LINE - 1 bytes. */
enum { PETRA_STOP_LINE = 256 };
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

/* PETRA_STOPPED after a signal, else PETRA_OK. */
petra_status petra_stop_asked(void);

#endif
