/* SPDX-License-Identifier: Apache-2.0 */
/* Handles libraries that end or stop the program when memory runs out: oneDNN, C++ behind a C interface, lets
 * std::bad_alloc escape, which would abort the program; HDF5 calls exit if it runs out of memory in an unfortunate
 * place; OpenBLAS retries for ever. */
#pragma once

/* Call this once, at the start of main. `argv` is main's; the program may restart itself with it. From then on the
 * program ends with one line and exit status 1 if `new` in a C++ library runs out of memory, or if a library calls exit
 * with a status that petra does not use. */
void petra_last_words(char **argv);
