/* SPDX-License-Identifier: Apache-2.0 */
/* Names and versions of the libraries, for `petra info` and the log. */
#ifndef PETRA_RUN_LIBRARIES_H
#define PETRA_RUN_LIBRARIES_H

#include <stddef.h>

/* "HDF5 1.10.8, libyaml 0.2.5, ..." */
void petra_libraries_describe(char *text, size_t size);

#endif
