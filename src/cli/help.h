/* SPDX-License-Identifier: Apache-2.0 */
/* Output from the tables of subcommands and options: --help, manual pages, completion of shells; and the tables of
 * --help-config. */
#pragma once

#include "cli/command.h"

#include <stdbool.h>
#include <stdio.h>

/* The maximum number of options of a subcommand, including shared ones. */
enum { PETRA_OPTIONS_MAX = 20 };

/* Prints the text of `petra SUBCOMMAND --help`. `options` are all that the subcommand accepts; those without help are
 * for scripts and are omitted, here and below. */
void petra_help_print(const petra_command *command, const petra_option *const *options, int count);

/* Prints the manual page petra-SUBCOMMAND(1), in man(7)'s macros. */
void petra_manual_print(const petra_command *command, const petra_option *const *options, int count);

/* Prints lines of words for scripts/completion: "command NAME SUMMARY", then for its own options and actions "option
 * NAME COMMAND [VALUE]" and "action NAME COMMAND". */
void petra_completion_print(const petra_command *command, const petra_option *const *options, int count);

/* Prints the keys of a config, as petra_config_help_words does. */
void petra_completion_print_keys(void);

/* Prints the devices and links that a config may name, with the sources of their figures, as tables with `|` between
 * columns; `markdown`: under a heading of docs/config.md. */
void petra_presets_print(bool markdown, FILE *out);
