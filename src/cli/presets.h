/* SPDX-License-Identifier: Apache-2.0 */
/* The devices and links that a config may name, with the sources of their figures, for --help-config. */
#ifndef PETRA_CLI_PRESETS_H
#define PETRA_CLI_PRESETS_H

#include <stdbool.h>
#include <stdio.h>

/* Two tables with `|` between columns; `markdown`: under a heading of docs/config.md. */
void petra_presets_print(bool markdown, FILE *out);

#endif
