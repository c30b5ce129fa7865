/* SPDX-License-Identifier: Apache-2.0 */
/* The entry functions of the fuzzers: each takes any bytes, and aborts where the program breaks a promise. Run by
 * libFuzzer (make fuzz) and, over the files of corpus/, by tests/test_fuzz_corpus. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A schedule as text: read, checked, printed and read again; a checked one of at most 4096 actions also runs on the
 * virtual executor with the worker that counts, and what came of it is held against the rules. Returns 0. */
int petra_fuzz_schedule(const uint8_t *data, size_t size);

/* A config: the YAML text, and after each byte 0x1e (which no text may hold) a --set argument. What loads is printed
 * and loaded again. Returns 0. */
int petra_fuzz_config(const uint8_t *data, size_t size);

/* Says what is wrong on stderr and aborts. */
_Noreturn void petra_fuzz_fail(const char *what);

/* The log goes nowhere but into a count of its lines, each of which must be one line of printable text. */
void petra_fuzz_listen(void);
int petra_fuzz_lines(void); /* since the last petra_fuzz_listen */
