/* SPDX-License-Identifier: Apache-2.0 */
/* petra report: a page of figures, drawn by analysis/petra_report.py, which replaces this process. */
#include "base/log.h"
#include "cli/command.h"

static petra_status run(const petra_arguments *arguments) {
  if (!arguments->output)
    return petra_fail(PETRA_USAGE, "petra report needs --output FILE.html (or -o); see petra report --help");
  return petra_script_start("petra_report.py", arguments, "--output", arguments->output);
}

const petra_command petra_command_report = {
    .name = "report",
    .summary = "draws runs and sweeps on one page for a browser",
    .arguments = "RUN... [SWEEP]... [REACH.json]... --output FILE.html [--json] [--quiet]",
    .help =
        "Draws runs (folders or their run.h5), sweeps (folders with a summary.csv) and what petra reach --json\n"
        "has printed (files that end in .json) on one page that needs no other file. The page shows: the runs and\n"
        "how their configs differ, loss and accuracy, fidelity of gradients, lags, memory, the timeline, predicted\n"
        "and measured times, the means of sweeps with their 95 % confidence intervals, and the loss against the\n"
        "seconds of each cluster. If the runs have no data for a section, the page leaves it out and says so.\n"
        "-o is short for --output.\n"
        "\n"
        "This needs Python with h5py, numpy and plotly (Debian: python3-h5py python3-plotly). petra uses the\n"
        "Python that ./configure found, or another that has them; the environment variable PETRA_PYTHON (or\n"
        "PYTHON) overrides it.",
    .inputs_min = 1,
    .inputs_max = PETRA_MAX_INPUTS,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "FILE", output, "the page to write; an existing file is replaced"), {0}},
    .run = run};
