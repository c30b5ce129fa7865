/* SPDX-License-Identifier: Apache-2.0 */
/* petra init: writes initial weights. */
#include "base/json.h"
#include "io/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "run/folder.h"
#include "exec/network.h"

#include <jansson.h>

static petra_status report(const petra_arguments *arguments, const petra_plan *plan, const char *path) {
  int64_t parameters = 0;
  for (int b = 0; b < plan->model.block_count + plan->model.auxiliary_count; b++)
    parameters += petra_block_parameters(&plan->model, &plan->model.blocks[b]);
  if (!arguments->json) {
    if (!arguments->quiet)
      petra_utf8_print(stdout, "%s: %lld parameters, seed %lld\n", path, (long long)parameters,
                       (long long)plan->config->run.seed);
    return PETRA_OK;
  }
  return petra_json_print_new(json_pack("{s:o, s:I, s:I}", "weights", petra_json_string(path), "parameters",
                                        (json_int_t)parameters, "seed", (json_int_t)plan->config->run.seed));
}

static petra_status run(const petra_arguments *arguments) {
  PETRA_DESTROYED(petra_config_destroy) petra_config *config = NULL;
  PETRA_FINISHED(petra_plan_fini) petra_plan plan = {0};
  PETRA_FINISHED(petra_network_fini) petra_network network = {0};
  PETRA_FREED char *directory = NULL, *path = NULL;
  PETRA_TRY(petra_arguments_config(arguments, "init", &config));
  PETRA_TRY(petra_plan_init(&plan, config));
  PETRA_TRY(petra_network_open(&network, &plan, NULL, 0, NULL));
  PETRA_TRY(petra_network_initialise(&network));
  PETRA_TRY(petra_folder_of(config, arguments->output, &directory));
  PETRA_TRY(petra_folder_spare_run(directory, "weights.h5"));
  PETRA_TRY(petra_join_path(directory, "weights.h5", &path));
  PETRA_TRY(petra_network_write_weights(&network, NULL, NULL, path));
  return report(arguments, &plan, path);
}

const petra_command petra_command_init = {
    .name = "init",
    .summary = "writes initial weights (weights.h5)",
    .arguments = "CONFIG.yaml [--set KEY=VALUE]... [--output DIR] [--json] [--quiet]",
    .help = "Writes DIR/weights.h5: the weights that `petra train` starts with for the same config (run.seed, model).\n"
            "Use the file as model.weights of a run. If model.weights is set, petra reads and checks these weights\n"
            "and writes them again. A folder that contains a run is left as it is.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output, "where files go (default: run.output/run.name of the config)"), {0}},
    .writes = true,
    .run = run};
