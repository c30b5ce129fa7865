/* petra simulate: the cost of a method on the modelled cluster; no tensor is touched. */
#include "cli/simulate.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli/command.h"

#include <stdio.h>

static petra_status report(const petra_arguments *arguments, const petra_simulation *simulation) {
  const petra_simulated *result = petra_simulation_result(simulation);
  const char *directory = petra_simulation_directory(simulation);
  if (result->runaway >= 0)
    petra_log(PETRA_LOG_WARNING,
              "forward runs away from backward: with microbatch %lld more than %lld are in flight; "
              "method.credit bounds them",
              (long long)result->runaway, 2 * (2 * (long long)result->plan->stages - 1));
  if (arguments->json)
    return petra_simulated_print_json(result);
  if (arguments->quiet)
    return PETRA_OK;
  PETRA_TRY(petra_simulated_print_table(result));
  if (directory)
    petra_utf8_print(stdout, "written: %s/{config.yaml,run.h5}\n", directory);
  return PETRA_OK;
}

static petra_status run(const petra_arguments *arguments) {
  const petra_simulation_options options = {.output = arguments->output,
                                            .trace = arguments->trace,
                                            .memory = arguments->memory,
                                            .command_line = arguments->command_line,
                                            .critical_path = arguments->critical_path};
  petra_config *config;
  petra_simulation *simulation = NULL;
  petra_status status;
  PETRA_TRY(petra_arguments_config(arguments, "simulate", &config));
  PETRA_TRY_GOTO(status, petra_simulation_open(config, &options, &simulation), done);
  PETRA_TRY_GOTO(status, petra_simulation_go(simulation), done);
  PETRA_TRY_GOTO(status, petra_simulation_close(simulation), done);
  status = report(arguments, simulation);
done:
  petra_simulation_destroy(simulation);
  petra_config_destroy(config);
  return status;
}

const petra_command petra_command_simulate = {
    .name = "simulate",
    .summary = "simulates what a method costs on a modelled cluster, without computing anything",
    .arguments = "CONFIG.yaml [--set KEY=VALUE]... [--output DIR] [--trace FILE] [--critical-path] [--memory A] "
                 "[--json] [--quiet]",
    .help = "Runs the actions of the config's method on the modelled cluster (cluster.*) under a virtual clock and\n"
            "prints the time per microbatch, idle time, lags, messages and memory. No tensor is computed, and no file\n"
            "is written but what --output and --trace ask for. The stages are the model's, or, where cluster.stages\n"
            "is given, so many equal ones. run.max_microbatches microbatches are run; where it is 0, 16 per stage.\n"
            "With run.drain: auto the pipeline ends as in `petra train`.\n",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output,
                         "writes run.h5 and config.yaml into DIR (default: nothing is written)"),
            PETRA_OPTION("trace", "FILE", trace, "writes a trace of every action for Chrome's or Perfetto's viewer"),
            PETRA_OPTION("critical-path", NULL, critical_path,
                         "tells which actions and messages the makespan is made of; keeps every action in memory"),
            PETRA_OPTION("memory", "A", memory,
                         "accounting of the stages' memory: measured (default), paper or strict"),
            {0}},
    .run = run};
