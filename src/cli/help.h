/* SPDX-License-Identifier: Apache-2.0 */
/* What the tables of a subcommand and of its options say: to the reader of --help, to man, to the completion of shells. */
#ifndef PETRA_CLI_HELP_H
#define PETRA_CLI_HELP_H

#include "cli/command.h"

#include <stdbool.h>
#include <stdio.h>

/* Options that a subcommand has at most, shared ones counted. */
enum { PETRA_OPTIONS_MAX = 20 };

/* The text of `petra SUBCOMMAND --help`. `options` are all that the subcommand takes; those without help are for scripts and
 * are left out, here and below. */
void petra_help_print(const petra_command *command, const petra_option *const *options, int count);

/* The manual page petra-SUBCOMMAND(1), in man(7)'s macros. */
void petra_manual_print(const petra_command *command, const petra_option *const *options, int count);

/* Lines of words for scripts/completion: "command NAME SUMMARY", then of its own "option NAME COMMAND [VALUE]" and "action NAME
 * COMMAND". */
void petra_completion_print(const petra_command *command, const petra_option *const *options, int count);

/* The keys of a config, as petra_config_help_words prints them. */
void petra_completion_print_keys(void);

/* The devices and links that a config may name, with the sources of their figures, for --help-config. */

/* Two tables with `|` between columns; `markdown`: under a heading of docs/config.md. */
void petra_presets_print(bool markdown, FILE *out);

#endif
