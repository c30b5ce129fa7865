/* SPDX-License-Identifier: Apache-2.0 */
/* petra inspect: the stage table of a config. The summary of a run is written in Python. */
#include "base/log.h"
#include "base/seal.h"
#include "cli/command.h"
#include "cli/requests.h"

#include <stdio.h>
#include <sys/stat.h>

/* Returns true if `path` is a folder or begins with HDF5's signature. */
static bool is_run_file(const char *path) {
  struct stat info;
  char start[PETRA_SEAL_BEGIN_BYTES];
  if (stat(path, &info) != 0)
    return false;
  if (!S_ISREG(info.st_mode)) /* a pipe must not lose its first bytes */
    return S_ISDIR(info.st_mode);
  FILE *file = fopen(path, "rb");
  if (!file)
    return false;
  bool found = petra_seal_begins_hdf5(start, fread(start, 1, sizeof start, file));
  fclose(file);
  return found;
}

static petra_status run(const petra_arguments *arguments) {
  if (arguments->requests)
    return petra_requests_inspect(arguments);
  bool is_run = arguments->input && is_run_file(arguments->input);
  if (is_run && (arguments->memory || arguments->image_size))
    return petra_fail(PETRA_USAGE, "%s is a run: --memory and --image-size are for a config", arguments->input);
  if (is_run && arguments->set_count)
    return petra_fail(PETRA_USAGE, "--set goes with a config; %s is a run", arguments->input);
  return is_run ? petra_python_start(arguments->words) : petra_inspect_config(arguments);
}

const petra_command petra_command_inspect = {
    .name = "inspect",
    .summary = "prints the stages of a config, or the summary of a run",
    .arguments = "CONFIG.yaml|RUN.h5|DIR [--set KEY=VALUE]... [--memory paper|strict] [--image-size N] [--json]",
    .help = "For a config: prints the table of stages with shapes, parameters, FLOPs, message sizes and delays, and\n"
            "estimates the time (if there is a profile), the memory and the disk space of a run. No data are read.\n"
            "\n"
            "For a run (its folder or its run.h5, also during the run): prints its settings, its epochs and its peak\n"
            "memory.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("memory", "paper|strict", memory,
                         "config only: adds the memory of the stages. This is the memory that delayed training needs, "
                         "by stage and category, computed from the shapes. It is given several times: with and without "
                         "the memory of stored inputs and of stored old weights. paper counts as table 3 of the paper "
                         "does; strict counts every stream."),
            PETRA_OPTION("image-size", "N", image_size,
                         "config only: prints the tables for images of N x N instead of those of the data set"),
            PETRA_OPTION("requests", "FILE", requests,
                         "answers the requests of another program, one JSON object a line (docs/requests.md), instead "
                         "of a config; - reads them from standard input"),
            {0}},
    .run = run};
