/* petra: the command line. One file per subcommand; this one finds it and reads the options. */
#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"
#include "cli/command.h"

#include <fcntl.h>
#include <getopt.h>
#include <gsl/gsl_errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const petra_command *const commands[] = {
    &petra_command_train,    &petra_command_init,    &petra_command_evaluate, &petra_command_inspect,
    &petra_command_simulate, &petra_command_profile, &petra_command_schedule, &petra_command_sweep,
    &petra_command_methods,  &petra_command_data,    &petra_command_info};
enum { COMMANDS = sizeof commands / sizeof *commands };
#define SUBCOMMANDS "train, init, evaluate, inspect, simulate, profile, schedule, sweep, methods, data or info"

static void print_usage(void) {
  printf(
      "petra %s: training reversible networks cut into stages, with delayed gradients\n\n"
      "usage: petra SUBCOMMAND [CONFIG.yaml] [--set KEY=VALUE]... [--output DIR] [--trace FILE] [--json] [--quiet]\n\n",
      petra_version());
  for (int i = 0; i < COMMANDS; i++)
    printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
  printf("\n`petra SUBCOMMAND --help` tells more; `petra train --help-config` prints every key of a config.\n"
         "Exit codes: 0 done, 1 failed while running, 2 wrong usage or config.\n");
}

static void print_help(const petra_command *command) {
  printf("usage: petra %s%s%s\n\n%s\n", command->name, *command->arguments ? " " : "", command->arguments,
         command->help);
  printf("options:\n");
  if (command->takes_config)
    printf("  --set KEY=VALUE  overrides a key of the config, such as --set optim.lr=0.05; VALUE is YAML; repeatable\n"
           "                   (a list or a text with blanks in quotes: --set 'lr.milestones=[10, 15]')\n");
  if (command->writes && !command->writes_file)
    printf(command->simulates
               ? "  --output DIR     writes run.h5 and config.yaml into DIR (default: nothing is written)\n"
               : "  --output DIR     where files go (default: run.output/run.name of the config)\n");
  if (command->writes_file && *command->writes_file)
    printf("  --output FILE    the file to write (default: %s in run.output/run.name of the config)\n",
           command->writes_file);
  else if (command->writes_file)
    printf("  --output FILE    the file to write, in place of what is there\n");
  if (command->takes_gantt)
    printf("  --gantt          a chart over time\n");
  if (command->traces)
    printf("  --trace FILE     writes a trace of every action for Chrome's or Perfetto's viewer\n");
  if (command->resumes)
    printf(
        "  --resume         goes on from checkpoint.h5 in DIR, to the bit; from the beginning where there is none\n");
  if (command->simulates)
    printf("  --critical-path  tells which actions and messages the makespan is made of; keeps every action in memory\n"
           "  --memory A       accounting of the stages' memory: measured (default), paper or strict\n");
  if (command->tables)
    printf("  --memory A       of a config: adds the memory of the stages, with A paper or strict accounting\n"
           "  --image-size N   of a config: the tables for images of N x N in place of the data set's\n");
  if (command->sweeps)
    printf("  --jobs N         so many cells at once (default 1); 0: runs none and sums up what is there\n"
           "  --slurm          prints a script for sbatch that runs the open cells, in place of running them\n"
           "  --cell N         runs the cell with this number, from 1, and sums nothing up\n");
  printf("  --json           prints one JSON object on standard output and nothing else there\n"
         "  --quiet          %s\n",
         command->writes || command->writes_file
             ? "nothing on standard output (but --json), no progress, no warnings: errors only"
             : "no warnings");
  if (command->takes_config)
    printf("  --help-config    prints every key of a config: type, default, range, meaning\n");
  printf("  --help           this text\n");
}

/* "petra train a.yaml --set x=1": arguments with blanks or quotes are put in quotes. */
static petra_status join_command_line(int argc, char **argv, char **out) {
  size_t size = 1;
  for (int i = 0; i < argc; i++)
    size += strlen(argv[i]) + 3;
  char *text;
  PETRA_TRY(petra_allocate(&text, size, 1));
  for (int i = 0; i < argc; i++) {
    const char *quote = strpbrk(argv[i], " \t\"$*[]{}") ? "'" : "";
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s%s%s", i ? " " : "", quote, argv[i], quote);
  }
  *out = text;
  return PETRA_OK;
}

enum {
  OPTION_SET = 256,
  OPTION_OUTPUT,
  OPTION_TRACE,
  OPTION_MEMORY,
  OPTION_CRITICAL_PATH,
  OPTION_RESUME,
  OPTION_IMAGE_SIZE,
  OPTION_JOBS,
  OPTION_SLURM,
  OPTION_CELL,
  OPTION_JSON,
  OPTION_QUIET,
  OPTION_GANTT,
  OPTION_HELP,
  OPTION_HELP_CONFIG,
  OPTION_HELP_MARKDOWN
};

static const struct option long_options[] = {{"set", required_argument, NULL, OPTION_SET},
                                             {"output", required_argument, NULL, OPTION_OUTPUT},
                                             {"trace", required_argument, NULL, OPTION_TRACE},
                                             {"memory", required_argument, NULL, OPTION_MEMORY},
                                             {"resume", no_argument, NULL, OPTION_RESUME},
                                             {"critical-path", no_argument, NULL, OPTION_CRITICAL_PATH},
                                             {"image-size", required_argument, NULL, OPTION_IMAGE_SIZE},
                                             {"jobs", required_argument, NULL, OPTION_JOBS},
                                             {"slurm", no_argument, NULL, OPTION_SLURM},
                                             {"cell", required_argument, NULL, OPTION_CELL},
                                             {"json", no_argument, NULL, OPTION_JSON},
                                             {"quiet", no_argument, NULL, OPTION_QUIET},
                                             {"gantt", no_argument, NULL, OPTION_GANTT},
                                             {"help", no_argument, NULL, OPTION_HELP},
                                             {"help-config", no_argument, NULL, OPTION_HELP_CONFIG},
                                             {"help-config-markdown", no_argument, NULL, OPTION_HELP_MARKDOWN},
                                             {0}};

/* Reads the options of a subcommand. *stop: nothing is left to do (help was printed). */
static petra_status read_options(const petra_command *command, int argc, char **argv, petra_arguments *arguments,
                                 bool *stop) {
  int option;
  opterr = 0;
  while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1)
    switch (option) {
    case OPTION_SET:
      if (arguments->set_count == PETRA_MAX_SETS)
        return petra_fail(PETRA_USAGE, "more than %d --set options", PETRA_MAX_SETS);
      arguments->sets[arguments->set_count++] = optarg;
      break;
    case OPTION_OUTPUT:
      if (!*optarg)
        return petra_fail(PETRA_USAGE, "--output: expected a %s, got an empty name",
                          command->writes_file ? "file" : "folder");
      arguments->output = optarg;
      break;
    case OPTION_TRACE:
      if (!*optarg)
        return petra_fail(PETRA_USAGE, "--trace: expected a file, got an empty name");
      arguments->trace = optarg;
      break;
    case OPTION_MEMORY:
      arguments->memory = optarg;
      break;
    case OPTION_RESUME:
      arguments->resume = true;
      break;
    case OPTION_CRITICAL_PATH:
      if (!command->simulates)
        return petra_fail(PETRA_USAGE, "%s takes no --critical-path; see petra %s --help", command->name,
                          command->name);
      arguments->critical_path = true;
      break;
    case OPTION_IMAGE_SIZE:
      arguments->image_size = optarg;
      break;
    case OPTION_JOBS:
      arguments->jobs = optarg;
      break;
    case OPTION_SLURM:
      arguments->slurm = true;
      break;
    case OPTION_CELL:
      arguments->cell = optarg;
      break;
    case OPTION_JSON:
      arguments->json = true;
      break;
    case OPTION_QUIET:
      arguments->quiet = true;
      break;
    case OPTION_GANTT:
      if (!command->takes_gantt)
        return petra_fail(PETRA_USAGE, "petra %s draws no chart and takes no --gantt; see petra %s --help",
                          command->name, command->name);
      arguments->gantt = true;
      break;
    case 'h':
    case OPTION_HELP:
      print_help(command);
      *stop = true;
      return PETRA_OK;
    case OPTION_HELP_CONFIG:
      petra_config_help(stdout);
      *stop = true;
      return PETRA_OK;
    case OPTION_HELP_MARKDOWN:
      petra_config_help_markdown(stdout);
      *stop = true;
      return PETRA_OK;
    case ':':
      return petra_fail(PETRA_USAGE, "%s needs a value; see petra %s --help", argv[optind - 1], command->name);
    default:
      return petra_fail(PETRA_USAGE, "unknown option %s; see petra %s --help", argv[optind - 1], command->name);
    }
  if (!command->takes_config && (arguments->set_count || arguments->output || optind < argc))
    return petra_fail(PETRA_USAGE, "petra %s takes no config, --set or --output; see petra %s --help", command->name,
                      command->name);
  if (!command->writes && !command->writes_file && arguments->output)
    return petra_fail(PETRA_USAGE, "%s writes no files and takes no --output; see petra %s --help", command->name,
                      command->name);
  if (!command->resumes && arguments->resume)
    return petra_fail(PETRA_USAGE, "%s takes no --resume; see petra %s --help", command->name, command->name);
  if (!command->traces && arguments->trace)
    return petra_fail(PETRA_USAGE, "%s takes no --trace; see petra %s --help", command->name, command->name);
  if (!command->tables && (arguments->image_size || (arguments->memory && !command->simulates)))
    return petra_fail(PETRA_USAGE, "%s takes no --memory or --image-size; see petra %s --help", command->name,
                      command->name);
  if (!command->sweeps && (arguments->jobs || arguments->slurm || arguments->cell))
    return petra_fail(PETRA_USAGE, "%s runs no grid and takes no --jobs, --slurm or --cell; see petra %s --help",
                      command->name, command->name);
  if (command->actions && optind == argc)
    return petra_fail(PETRA_USAGE, "petra %s: no action; expected %s; see petra %s --help", command->name,
                      command->actions, command->name);
  if (command->actions)
    arguments->action = argv[optind++];
  if (argc - optind > 1)
    return petra_fail(PETRA_USAGE, "one file is expected, got '%s' and '%s'", argv[optind], argv[optind + 1]);
  arguments->input = optind < argc ? argv[optind] : NULL;
  return PETRA_OK;
}

petra_status petra_arguments_config(const petra_arguments *arguments, const char *command, petra_config **out) {
  if (!arguments->input)
    return petra_fail(PETRA_USAGE, "petra %s needs a config file ('-' for standard input); see petra %s --help",
                      command, command);
  return petra_config_load(arguments->input, arguments->sets, arguments->set_count, out);
}

static petra_status run_command(const petra_command *command, int argc, char **argv) {
  petra_arguments arguments = {0};
  bool stop = false;
  PETRA_TRY(join_command_line(argc, argv, &arguments.command_line));
  /* getopt starts behind the subcommand. */
  petra_status status = read_options(command, argc - 1, argv + 1, &arguments, &stop);
  if (status == PETRA_OK && !stop) {
    if (arguments.quiet)
      petra_log_set_level(PETRA_LOG_ERROR);
    status = command->run(&arguments);
  }
  petra_free(arguments.command_line);
  return status;
}

/* Results may have gone to a full disk or a closed pipe. */
static petra_status close_stdout(petra_status status) {
  if (fflush(stdout) == 0 && !ferror(stdout))
    return status;
  return status == PETRA_OK ? petra_fail(PETRA_IO, "standard output could not be written") : status;
}

/* A file that is opened while one of 0, 1, 2 is free would become standard input, output or error, and be written to.
 * What stands in cannot be written, so that a result for a closed standard output is an error as well. */
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
  /* A write beyond RLIMIT_FSIZE or into a closed pipe is then an error to report, not a signal to die of. */
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  gsl_set_error_handler_off();
  if (argc < 2)
    return petra_status_exit_code(
        petra_fail(PETRA_USAGE, "no subcommand; expected " SUBCOMMANDS " (see petra --help)"));
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
    print_usage();
    return petra_status_exit_code(close_stdout(PETRA_OK));
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("petra %s\n", petra_version());
    return petra_status_exit_code(close_stdout(PETRA_OK));
  }
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(argv[1], commands[i]->name) == 0)
      return petra_status_exit_code(close_stdout(run_command(commands[i], argc, argv)));
  return petra_status_exit_code(
      petra_fail(PETRA_USAGE, "no subcommand '%s'; expected " SUBCOMMANDS " (see petra --help)", argv[1]));
}
