/* SPDX-License-Identifier: Apache-2.0 */
/* petra report: a page of figures, drawn by analysis/petra_report.py, which takes the place of this process. */
#include "base/log.h"
#include "cli/command.h"

static petra_status run(const petra_arguments *arguments) {
  if (!arguments->output)
    return petra_fail(PETRA_USAGE, "petra report needs --output FILE.html (or -o); see petra report --help");
  return petra_script_start("petra_report.py", arguments, "--output", arguments->output);
}

const petra_command petra_command_report = {
    .name = "report",
    .summary = "one page of figures of runs and of a sweep, for a browser",
    .arguments = "RUN... [SWEEP]... --output FILE.html [--json] [--quiet]",
    .help =
        "Draws runs (folders or their run.h5) and sweeps (folders with a summary.csv) on one page that needs nothing "
        "else: what was\n"
        "run and how the configs differ, loss and accuracy, fidelity of gradients, lags, memory, the timeline, "
        "predicted beside\n"
        "measured, and means of sweeps with their 95 % intervals. What runs have no data for is left out, and said "
        "so. -o is short\n"
        "for --output. Needs Python with h5py, numpy and plotly (Debian: python3-h5py python3-plotly): the one that "
        "./configure found,\n"
        "or python3; the environment variable PETRA_PYTHON (or PYTHON) names another.\n",
    .inputs_least = 1,
    .inputs_max = PETRA_MAX_INPUTS,
    .options = (const petra_option[]){PETRA_OPTION("output", "FILE", output,
                                                   "the page to write, in place of what is "
                                                   "there"),
                                      {0}},
    .run = run};
