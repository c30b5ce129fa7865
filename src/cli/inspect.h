/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of petra inspect. */
#ifndef PETRA_CLI_INSPECT_H
#define PETRA_CLI_INSPECT_H

#include "cli/command.h"

/* Of a config: the table of stages and what a run takes. inspect_config.c */
petra_status petra_inspect_config(const petra_arguments *arguments);

/* Of a run, its folder or its log: what it is, its epochs, its peak memory. inspect_run.c */
petra_status petra_inspect_run(const petra_arguments *arguments);

#endif
