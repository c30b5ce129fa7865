/* SPDX-License-Identifier: Apache-2.0 */
/* petra: the command line. There is one file per subcommand; this one finds the subcommand and reads its options. */
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/release.h"
#include "cli/command.h"
#include "record/run_h5_columns.h"
#include "group/ranks.h"

#include <assert.h>
#include <fcntl.h>
#include <getopt.h>
#include <gsl/gsl_errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND_ADDRESS(name) &petra_command_##name,
static const petra_command *const commands[] = {PETRA_COMMAND_LIST(COMMAND_ADDRESS)};
enum { COMMANDS = sizeof commands / sizeof *commands };
static void print_usage(void) {
  printf(
      "petra %s: trains networks that are split into stages, with exact or delayed gradients\n\n"
      "usage: petra SUBCOMMAND [CONFIG.yaml] [--set KEY=VALUE]... [--output DIR] [--trace FILE] [--json] [--quiet]\n\n",
      petra_version());
  for (int i = 0; i < COMMANDS; i++)
    printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
  printf("\n`petra help SUBCOMMAND` explains a subcommand; `petra train --help-config` prints every key of a config.\n"
         "Exit status: 0 success, 1 failure (also: a file is missing or damaged), 2 wrong command line or config.\n");
}

/* Options of every subcommand, and options of the subcommands that take a config. */
static const petra_option set_option = PETRA_OPTION(
    "set", "KEY=VALUE", sets,
    "overrides a key of the config, such as --set optim.lr=0.05; may be repeated; VALUE is YAML: quote a list "
    "or a text with spaces (--set 'lr.milestones=[10, 15]'), and quote a text with ' #' or ': ' twice (--set "
    "'data.path=\"/data/my #1 set\"')");
static const petra_option json_option =
    PETRA_OPTION("json", NULL, json, "prints one JSON object to standard output, and nothing else");
static const petra_option quiet_option = PETRA_OPTION("quiet", NULL, quiet, "prints no warnings");
static const petra_option quiet_writer_option =
    PETRA_OPTION("quiet", NULL, quiet,
                 "prints only errors, the object of --json and, of petra simulate without --output, the result");
static const petra_option help_config_option = {
    .name = "help-config", .help = "prints every key of a config with its type, default, range and meaning"};
static const petra_option help_markdown_option = {.name = "help-config-markdown"}; /* prints text for docs/config.md */
static const petra_option help_log_option = {.name = "help-log-markdown"}; /* prints text for docs/hdf5-schema.md */
static const petra_option help_option = {.name = "help", .help = "prints this text"};

enum { SHARED = 8, FIRST = 256 }; /* FIRST: getopt's number of the first option, above any character */

/* Collects all options of a subcommand in the order of the help; returns their number. */
static int options_of(const petra_command *command, const petra_option *out[PETRA_OPTIONS_MAX]) {
  int count = 0;
  bool writes = false;
  if (command->takes_config)
    out[count++] = &set_option;
  for (const petra_option *own = command->options; own && own->name; own++) {
    assert(count + SHARED < PETRA_OPTIONS_MAX);
    writes |= strcmp(own->name, "output") == 0;
    out[count++] = own;
  }
  out[count++] = &json_option;
  out[count++] = writes ? &quiet_writer_option : &quiet_option;
  if (command->takes_config) {
    out[count++] = &help_config_option;
    out[count++] = &help_markdown_option;
    out[count++] = &help_log_option;
  }
  out[count++] = &help_option;
  return count;
}

/* Prints the words that scripts/completion completes. */
static void print_completion(void) {
  static char name[] = "--help-completion";
  char *const words[] = {name, NULL};
  petra_log_kept unsaid = {.line = ""};
  for (int c = 0; c < COMMANDS; c++) {
    const petra_option *options[PETRA_OPTIONS_MAX];
    petra_completion_print(commands[c], options, commands[c]->run ? options_of(commands[c], options) : 0);
  }
  petra_completion_print_keys();
  fflush(stdout);
  petra_log_keep(&unsaid);
  petra_python_start(words); /* prints the words of the subcommands in Python; they are missing if there is no Python */
  petra_log_keep_end(&unsaid);
}

/* Returns true if an argument is the option, which may be abbreviated to `least` letters. */
static bool is_option(const char *argument, const char *option, size_t least) {
  return strlen(argument) >= least && strncmp(argument, option, strlen(argument)) == 0;
}

/* Formats the command line, such as "petra train a.yaml --set 'x=[1, 2]'". With `resume`, it formats the command that
 * resumes the run. */
static petra_status join_command_line(int argc, char **argv, bool resume, char **out) {
  size_t size = sizeof " --resume";
  for (int i = 0; i < argc; i++)
    size += 4 * strlen(argv[i]) + 3;
  char *text;
  PETRA_TRY(petra_allocate(&text, size, 1));
  for (int i = 0; i < argc; i++) {
    if (resume && (is_option(argv[i], "--overwrite", 4) || is_option(argv[i], "--resume", 3)))
      continue;
    if (i > 0)
      strcat(text, " ");
    petra_shell_append(text, argv[i]);
  }
  if (resume)
    strcat(text, " --resume");
  *out = text;
  return PETRA_OK;
}

static petra_status take_set(const char *value, petra_arguments *arguments) {
  if (arguments->set_count == PETRA_MAX_SETS)
    return petra_fail(PETRA_USAGE, "more than %d --set options", PETRA_MAX_SETS);
  arguments->sets[arguments->set_count++] = value;
  return PETRA_OK;
}

static petra_status take_option(const petra_option *option, const char *value, petra_arguments *arguments) {
  char *member = (char *)arguments + option->member;
  if (!option->value) {
    *(bool *)member = true;
    return PETRA_OK;
  }
  if (!*value && (strcmp(option->value, "DIR") == 0 || strcmp(option->value, "FILE") == 0))
    return petra_fail(PETRA_USAGE, "--%s: expected a %s, got an empty name", option->name,
                      strcmp(option->value, "DIR") == 0 ? "folder" : "file");
  if (option == &set_option)
    return take_set(value, arguments);
  *(const char **)(void *)member = value;
  return PETRA_OK;
}

/* Returns true if the subcommand has the option of an argument "--NAME" or "--NAME=VALUE", and then sets *out. */
static bool find_option(const petra_command *command, const char *text, const petra_option **out) {
  const petra_option *options[PETRA_OPTIONS_MAX];
  size_t length = strcspn(text, "=");
  for (int i = options_of(command, options) - 1; i >= 0; i--)
    if (length == strlen(options[i]->name) + 2 && strncmp(text + 2, options[i]->name, length - 2) == 0) {
      *out = options[i];
      return true;
    }
  return false;
}

/* Gets the NAME of an argument "--NAME" or "--NAME=VALUE", as far as it fits. Returns `out`. */
static const char *option_word(const char *text, char out[PETRA_NEAREST_LONGEST + 1]) {
  text += strspn(text, "-");
  snprintf(out, PETRA_NEAREST_LONGEST + 1, "%.*s", (int)strcspn(text, "="), text);
  return out;
}

static petra_status fail_unknown_option(const petra_command *command, const char *text) {
  const petra_option *options[PETRA_OPTIONS_MAX];
  const char *names[PETRA_OPTIONS_MAX + 1] = {NULL};
  char word[PETRA_NEAREST_LONGEST + 1], near[PETRA_NEAREST_LONGEST + 1];
  for (int i = options_of(command, options) - 1, count = 0; i >= 0; i--)
    if (options[i]->help)
      names[count++] = options[i]->name;
  return petra_fail(PETRA_USAGE, "unknown option %s; see petra %s --help%s", text, command->name,
                    petra_nearest_hint(near, sizeof near, "--", option_word(text, word), names));
}

/* Reports a wrong option: the subcommand has it but it takes no value, only another subcommand has it, or it does not
 * exist. */
static petra_status fail_option(const petra_command *command, const char *text) {
  const petra_option *option;
  if (find_option(command, text, &option))
    return petra_fail(PETRA_USAGE, "%s: --%s takes no value; see petra %s --help", text, option->name, command->name);
  for (int c = 0; c < COMMANDS; c++)
    if (find_option(commands[c], text, &option))
      return petra_fail(PETRA_USAGE, "petra %s takes no --%s; see petra %s --help", command->name, option->name,
                        command->name);
  return fail_unknown_option(command, text);
}

/* Reads the arguments after the options: an action and a file. */
static petra_status read_operands(const petra_command *command, int count, char **operands,
                                  petra_arguments *arguments) {
  if (command->actions && count == 0)
    return petra_fail(PETRA_USAGE, "petra %s: no action; expected %s; see petra %s --help", command->name,
                      command->actions, command->name);
  if (command->actions) {
    arguments->action = *operands++;
    count--;
  }
  if (!command->takes_config && count > 0)
    return petra_fail(PETRA_USAGE, "petra %s takes no config; see petra %s --help", command->name, command->name);
  if (count > 1)
    return petra_fail(PETRA_USAGE, "expected one file, got '%s' and '%s'", operands[0], operands[1]);
  arguments->input = count > 0 ? operands[0] : NULL;
  return PETRA_OK;
}

static void print_keys(bool markdown) {
  (markdown ? petra_config_help_markdown : petra_config_help)(stdout);
  petra_presets_print(markdown, stdout);
}

/* Reads the options of a subcommand. *stop is true if nothing is left to do (help was printed). */
static petra_status read_options(const petra_command *command, int argc, char **argv, petra_arguments *arguments,
                                 bool *stop) {
  const petra_option *options[PETRA_OPTIONS_MAX];
  struct option names[PETRA_OPTIONS_MAX + 1] = {{0}};
  int count = options_of(command, options), found;
  for (int i = 0; i < count; i++)
    names[i] = (struct option){options[i]->name, options[i]->value ? required_argument : no_argument, NULL, FIRST + i};
  opterr = 0;
  while ((found = getopt_long(argc, argv, ":ho:", names, NULL)) != -1) {
    const petra_option *option = found == 'h' ? &help_option : found < FIRST ? NULL : options[found - FIRST];
    if (found == 'o' && !find_option(command, "--output", &option))
      return petra_fail(PETRA_USAGE, "petra %s takes no -o; see petra %s --help", command->name, command->name);
    *stop = option == &help_option || option == &help_config_option || option == &help_markdown_option ||
            option == &help_log_option;
    if (found == ':')
      return petra_fail(PETRA_USAGE, "%s needs a value; see petra %s --help", argv[optind - 1], command->name);
    if (!option)
      return fail_option(command, argv[optind - 1]);
    if (option == &help_option)
      petra_help_print(command, options, count);
    else if (option == &help_log_option)
      petra_run_h5_print_tables(stdout);
    else if (*stop)
      print_keys(option == &help_markdown_option);
    else
      PETRA_TRY(take_option(option, optarg, arguments));
    if (*stop)
      return PETRA_OK;
  }
  return read_operands(command, argc - optind, argv + optind, arguments);
}

/* Refuses an output file that would replace a file that the command reads, or a file of a run. */
static petra_status fit_to_replace(const char *option, const char *path, const petra_arguments *arguments) {
  static const char *const of_runs[] = {"run.h5", "checkpoint.h5", "weights.h5"};
  const char *slash = strrchr(path, '/');
  struct stat target, input;
  if (stat(path, &target) != 0 || !S_ISREG(target.st_mode))
    return PETRA_OK;
  if (arguments->input && stat(arguments->input, &input) == 0 && target.st_dev == input.st_dev &&
      target.st_ino == input.st_ino)
    return petra_fail(PETRA_USAGE, "--%s: %s is also an input; expected another name", option, path);
  for (size_t i = 0; i < sizeof of_runs / sizeof *of_runs; i++)
    if (strcmp(slash ? slash + 1 : path, of_runs[i]) == 0)
      return petra_fail(PETRA_USAGE, "--%s: %s exists and has the name of a file of a run; expected another name",
                        option, path);
  return PETRA_OK;
}

static petra_status check_outputs(const petra_command *command, const petra_arguments *arguments) {
  const petra_option *option;
  if (arguments->output && find_option(command, "--output", &option) && strncmp(option->value, "FILE", 4) == 0)
    PETRA_TRY(fit_to_replace("output", arguments->output, arguments));
  return arguments->trace ? fit_to_replace("trace", arguments->trace, arguments) : PETRA_OK;
}

petra_status petra_arguments_config(const petra_arguments *arguments, const char *command, petra_config **out) {
  if (!arguments->input)
    return petra_fail(PETRA_USAGE, "petra %s needs a config file ('-' for standard input); see petra %s --help",
                      command, command);
  PETRA_TRY(petra_config_load(arguments->input, arguments->sets, arguments->set_count, out));
  return strcmp(command, "profile") == 0 ? PETRA_OK : petra_config_warn_idle(*out); /* it fits all costs */
}

/* Refuses a command that would write and supports only one process. */
static petra_status check_launch(const petra_command *command, const petra_arguments *arguments) {
  const bool writes = command->writes || arguments->output || arguments->trace || arguments->chakra;
  if (command->ranks || !writes)
    return PETRA_OK;
  petra_ranks_hold_lines();
  const petra_status status = petra_ranks_alone(command->name, "one process");
  petra_ranks_release_lines();
  return status;
}

static petra_status run_command(const petra_command *command, int argc, char **argv) {
  PETRA_FREED char *command_line = NULL, *resume_command = NULL;
  bool stop = false;
  PETRA_TRY(join_command_line(argc, argv, false, &command_line));
  PETRA_TRY(join_command_line(argc, argv, true, &resume_command));
  petra_arguments arguments = {.words = argv + 1, .command_line = command_line, .resume_command = resume_command};
  /* getopt starts after the subcommand, and reorders the arguments */
  PETRA_TRY(read_options(command, argc - 1, argv + 1, &arguments, &stop));
  if (stop)
    return PETRA_OK;
  PETRA_TRY(check_outputs(command, &arguments));
  PETRA_TRY(check_launch(command, &arguments));
  if (arguments.quiet)
    petra_log_set_level(PETRA_LOG_ERROR);
  return command->run(&arguments);
}

/* Reports a missing subcommand. `name` is the word that was found instead; NULL: there was no word. */
static petra_status fail_command(const char *name) {
  static const char *const options[] = {"help", "version", NULL};
  const char *list[COMMANDS + 2] = {[COMMANDS] = "help"};
  char names[256] = "", word[PETRA_NEAREST_LONGEST + 1], near[PETRA_NEAREST_LONGEST + 1] = "";
  for (int i = 0; i < COMMANDS; i++) {
    size_t used = strlen(names);
    list[i] = commands[i]->name;
    snprintf(names + used, sizeof names - used, "%s%s",
             i == 0              ? ""
             : i == COMMANDS - 1 ? " or "
                                 : ", ",
             commands[i]->name);
  }
  if (name && *name == '-')
    petra_nearest_hint(near, sizeof near, "--", option_word(name, word), options);
  else if (name)
    petra_nearest_hint(near, sizeof near, "", name, list);
  return petra_fail(PETRA_USAGE, "no subcommand%s%s%s; expected %s (see petra --help)%s", name ? " '" : "",
                    name ? name : "", name ? "'" : "", names, near);
}

static const petra_command *find_command(const char *name) {
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(name, commands[i]->name) == 0)
      return commands[i];
  return NULL;
}

/* Runs `petra help`. For a subcommand it prints the same text as --help. */
static petra_status print_help(const char *name) {
  const petra_command *command = name ? find_command(name) : NULL;
  const petra_option *options[PETRA_OPTIONS_MAX];
  if (command && !command->run)
    return petra_python_start((char *const[]){(char *)(uintptr_t)name, (char[]){"--help"}, NULL});
  if (command)
    petra_help_print(command, options, options_of(command, options));
  else if (name && strcmp(name, "help") != 0)
    return fail_command(name);
  else
    print_usage();
  return PETRA_OK;
}

/* Returns true if the reader of standard output has read enough, as in `petra ... | head`. */
static bool reader_has_gone(void) {
  struct pollfd output = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

/* Checks standard output, since results may have gone to a full disk or a closed pipe. If the reader has gone, the
 * program ends like others, without a line; a command that continued has done its work, as its files show. */
static petra_status close_stdout(petra_status status, bool lasting) {
  if (fflush(stdout) == 0 && !ferror(stdout))
    return status;
  if (status == PETRA_OK && lasting && reader_has_gone()) {
    petra_log(PETRA_LOG_WARNING, "the reader closed standard output; the command continued to its end");
    return status;
  }
  if (status == PETRA_OK && reader_has_gone()) {
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
  }
  return status == PETRA_OK ? petra_fail(PETRA_IO, "standard output could not be written") : status;
}

/* Opens substitutes for closed standard streams: a file that is opened while one of the descriptors 0, 1, 2 is free
 * would become standard input, output or error. The substitutes cannot be written to, so a result for a closed standard
 * output is still an error. */
static void occupy_standard_streams(void) {
  int descriptor;
  do
    descriptor = open("/dev/null", O_RDONLY);
  while (descriptor >= 0 && descriptor <= 2);
  if (descriptor > 2)
    close(descriptor);
}

int main(int argc, char **argv) {
  occupy_standard_streams();
  /* A write beyond RLIMIT_FSIZE is then an error that petra reports, instead of a fatal signal. */
  signal(SIGXFSZ, SIG_IGN);
  gsl_set_error_handler_off();
  petra_last_words(argv);
  /* This must come before HDF5 starts. The variable overrides the program's choice for each file, and a lock on the log
   * of a run in progress would exclude its readers. */
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
  if (argc < 2)
    return petra_status_exit_code(fail_command(NULL));
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
    return petra_status_exit_code(close_stdout(print_help(argc > 2 ? argv[2] : NULL), false));
  if (strcmp(argv[1], "--help-completion") == 0) {
    print_completion();
    return petra_status_exit_code(close_stdout(PETRA_OK, false));
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("petra %s\n", petra_version());
    return petra_status_exit_code(close_stdout(PETRA_OK, false));
  }
  const petra_command *command = find_command(argv[1]);
  if (!command)
    return petra_status_exit_code(fail_command(argv[1]));
  if (!command->run)
    return petra_status_exit_code(petra_python_start(argv + 1));
  if (command->lasting) /* a write into a closed pipe must not be fatal */
    signal(SIGPIPE, SIG_IGN);
  return petra_status_exit_code(close_stdout(run_command(command, argc, argv), command->lasting));
}
