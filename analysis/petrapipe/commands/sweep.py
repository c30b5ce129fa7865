# SPDX-License-Identifier: Apache-2.0
"""petra sweep: a grid of runs, each a process of its own in a folder of its own."""

from __future__ import annotations

from types import SimpleNamespace

from ..command import Command, Option


def run(arguments: SimpleNamespace) -> None:
    """Runs the open cells and prints the summary."""
    from ..sweep.sweep import run as sweep

    sweep(arguments)


COMMAND = Command(
    name="sweep",
    summary="runs a grid of configs with several seeds and summarises it; can be resumed",
    arguments="GRID.yaml [--set KEY=VALUE]... [--output DIR] [--jobs N] [--slurm] [--cell N] "
    "[--json] [--quiet]",
    help="""\
Runs every cell of a grid with petra train or petra simulate, each as a separate process in DIR/CELL.
Writes DIR/summary.csv and DIR/summary.json: mean, deviation and 95 % confidence interval over the seeds
of each combination. Both files are updated while cells run. A grid:
  base: config.yaml              (or config: {...}; a relative path is relative to the grid)
  command: train                 (or simulate)
  axes: {method.name: [petra, backprop], method.accumulate: [1, 4]}
  rows: [{name: small, set: {model.width: 8}}, ...]
  seeds: [1, 2, 3]
petra checks all cells before it runs any. Complete cells are not run again. Other cells are run, from
their checkpoint if they have one. A complete cell with another config is an error. --set overrides a
key of every cell.""",
    takes_config=True,
    options=(
        Option(
            "output",
            "DIR",
            "where files go; must be a folder for the sweep alone (default: a folder in run.output "
            "of the "
            "base, named after the grid; with config: {...} run.output/run.name)",
        ),
        Option(
            "jobs",
            "N",
            "runs N cells at once (default 1); 0 runs none and summarises the complete cells, with "
            "the "
            "--set arguments of the last sweep in DIR. This also works while --cell commands run. "
            "While a "
            "sweep runs, 0 only prints the summary and writes no files",
        ),
        Option("slurm", None, "runs nothing; prints a script for sbatch that runs the open cells"),
        Option("cell", "N", "runs only cell N (numbered from 1) and writes no summary"),
    ),
    needs=("yaml",),
    wished=("numpy", "scipy", "h5py"),
    writes=True,
    lasting=True,
    run=run,
)
