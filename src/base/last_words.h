/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries without memory: C++ behind a C interface (oneDNN) lets std::bad_alloc through, which would be an abort; HDF5
 * calls exit where it runs out in an unfortunate place; OpenBLAS never stops trying. */
#pragma once

/* To be called once, at the start of main; `argv` is the one of main, with which the program may start anew. From then on
 * the program ends with one line and exit status 1 where `new` of a C++ library has no memory, or where a library calls
 * exit with a status that is none of ours. */
void petra_last_words(char **argv);
