/* SPDX-License-Identifier: Apache-2.0 */
/* The two parts of petra inspect. */
#pragma once

#include "cli/command.h"

/* For a config: prints the table of stages and the resources of a run (inspect_config.c). */
petra_status petra_inspect_config(const petra_arguments *arguments);

/* For a run, given by its folder or its log: prints its facts, its epochs and its peak memory (inspect_run.c). */
petra_status petra_inspect_run(const petra_arguments *arguments);
