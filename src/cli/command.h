/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands, and the values of the command line. */
#pragma once

#include "config/config.h"

#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>

enum { PETRA_MAX_SETS = 256 };

typedef struct petra_arguments {
  const char *action;               /* for a command with several actions, such as "verify"; else NULL */
  const char *input;                /* CONFIG.yaml, "-" or a run; NULL if no input was given */
  const char *sets[PETRA_MAX_SETS]; /* --set, in order */
  int set_count;
  const char *output; /* --output; NULL if not given */
  const char *format; /* --format; NULL if not given */
  const char *trace;  /* --trace; NULL if not given */
  const char *chakra; /* --chakra; NULL if not given */
  bool json, quiet, gantt;
  const char *memory;                /* --memory; NULL if not given */
  const char *devices, *lag_at_most; /* --devices, --lag-at-most; NULL if not given */
  bool exact, all;
  const char *fit, *vary; /* --fit, --vary; NULL if not given */
  const char *image_size; /* --image-size; NULL if not given */
  const char *requests;   /* --requests; NULL if not given */
  bool critical_path, resume, overwrite;
  char *const *words;         /* the name of the subcommand and all arguments after it; ends with NULL */
  const char *command_line;   /* the whole command line, for the log */
  const char *resume_command; /* the same command line with --resume */
} petra_arguments;

/* An option of a subcommand. */
typedef struct petra_option {
  const char *name;  /* "output" */
  const char *value; /* placeholder of its value in the help: "DIR", "FILE", "a|b" for one of these; NULL: no value */
  size_t member;     /* offset in petra_arguments of a const char * or, without a value, of a bool */
  const char *help;
} petra_option;

typedef struct petra_command {
  const char *name;
  const char *summary;   /* one line */
  const char *arguments; /* such as "CONFIG.yaml" */
  const char *help;      /* paragraphs for --help */
  bool takes_config;     /* accepts a config or another file, with --set and --help-config */
  /* the possible actions (first argument), such as "a, b or c"; NULL: there are no actions */
  const char *actions;
  /* its own options in the order of the help; the last one has no name; NULL: there are none */
  const petra_option *options;
  bool writes;  /* the subcommand writes files even without --output, --trace or --chakra */
  bool ranks;   /* supports several processes that a launcher has started */
  bool lasting; /* continues if nobody reads its standard output any more */
  petra_status (*run)(const petra_arguments *arguments); /* NULL: the subcommand is written in Python (python.c) */
} petra_command;

/* The members of an option, as an initialiser of petra_option. */
#define PETRA_OPTION(name_text, value_text, member_name, help_text)                                                    \
  { (name_text), (value_text), offsetof(petra_arguments, member_name), (help_text) }

/* X(name): petra_command_NAME of command_NAME.c, in the order in which they are listed. */
/* clang-format off */
#define PETRA_COMMAND_LIST(X) \
  X(train) X(init) X(evaluate) X(inspect) X(list) X(compare) X(reach) X(export) X(report) X(simulate) X(profile) X(schedule) \
  X(sweep) X(methods) X(plan) X(data) X(info)
/* clang-format on */
#define PETRA_COMMAND_DECLARE(name) extern const petra_command petra_command_##name;
PETRA_COMMAND_LIST(PETRA_COMMAND_DECLARE)
#undef PETRA_COMMAND_DECLARE

/* The member `schema` of the objects that --json prints (`version` of a plan): the version of the format. It is
 * incremented if the meaning, the unit or the name of a member changes (docs/json.md). */
enum { PETRA_SCHEMA_METHODS = 1, PETRA_SCHEMA_PLAN = 1, PETRA_SCHEMA_SCHEDULE = 1, PETRA_SCHEMA_SIMULATE = 1 };

/* Loads the config of the arguments. Errors: PETRA_USAGE if none was given. Destroy the config even after a failure. */
petra_status petra_arguments_config(const petra_arguments *arguments, const char *command, petra_config **out);

/* Runs a subcommand that is written in Python in place of this process: `arguments` are its name and its arguments, and
 * end with NULL. The function returns only if this fails: PETRA_IO if the script or Python is missing. */
petra_status petra_python_start(char *const *arguments);

/* Starts a part that is written in Python as a child, which reads the data that is written to *out. petra_python_end
 * closes the stream, waits for the end of the child and returns its status; the child has logged its error. */
petra_status petra_python_open(char *const *arguments, FILE **out);
petra_status petra_python_end(void);

/* --- help.c: output from the tables of subcommands and options --- */

/* The maximum number of options of a subcommand, including shared ones. */
enum { PETRA_OPTIONS_MAX = 20 };

/* Prints the text of `petra SUBCOMMAND --help`. `options` are all options that the subcommand accepts. Options without
 * help are for scripts; this function and the next one omit them. */
void petra_help_print(const petra_command *command, const petra_option *const *options, int count);

/* Prints lines of words for scripts/completion: "command NAME SUMMARY", then "option NAME COMMAND [VALUE]" and "action
 * NAME COMMAND" for its own options and actions. */
void petra_completion_print(const petra_command *command, const petra_option *const *options, int count);

/* Prints the keys of a config, as petra_config_help_words does. */
void petra_completion_print_keys(void);

/* Prints the devices and links that a config may name, with the sources of their figures, as tables with `|` between
 * columns. With `markdown`, the tables have headings for docs/config.md. */
void petra_presets_print(bool markdown, FILE *out);

/* --- petra inspect --requests and petra simulate --requests: requests.c --- */

/* Answer the questions of another program about many configs (docs/requests.md). Each line of the input is a request, a
 * JSON object; each line of the output is its answer. */
petra_status petra_requests_inspect(const petra_arguments *arguments);
petra_status petra_requests_simulate(const petra_arguments *arguments);

/* --- the object of petra simulate --json, which is also an answer to a request: command_simulate.c --- */

struct json_t; /* declared by jansson */
struct petra_run;
struct petra_run_options;

/* Runs a simulation and prints warnings about the result. Destroy the run even after a failure. */
petra_status petra_simulate(const petra_config *config, const struct petra_run_options *options,
                            struct petra_run **out);

/* Returns the result of a simulation that has run; NULL if memory runs out. */
struct json_t *petra_simulate_json(const struct petra_run *simulation);
