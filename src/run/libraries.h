/* SPDX-License-Identifier: Apache-2.0 */
/* Names and versions of the libraries, for `petra info` and the log. */
#pragma once

#include <stddef.h>

/* "HDF5 1.10.8, libyaml 0.2.5, ..." */
void petra_libraries_describe(char *text, size_t size);
