# SPDX-License-Identifier: Apache-2.0
"""Shared by the experiments that train: a sweep of the grid beside the script, with its cells as
rows."""

import json
import os
import subprocess
import sys

import simulations as sim

import petrapipe  # simulations knows its folder

WORDS = dict(
    argument[2:].split("=", 1)
    for argument in sys.argv[1:]
    if argument.startswith("--") and "=" in argument
)
JOBS = WORDS.get("jobs", "1")  # 0: runs nothing and reads the existing runs


def diverged(cell):
    """Returns whether a cell diverged: just now, or in an earlier run, according to the last line
    of its log."""
    if cell["state"] == "failed":
        return "has diverged" in cell["reason"]
    path = os.path.join(cell["output"], "log.txt")
    if cell["state"] != "open" or not os.path.exists(path):
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    return bool(lines) and "has diverged" in lines[-1]


def cells(grid, output):
    """Yields each completed cell of a grid (its path): (the keys that the grid sets, as texts; the
    cell in the output of petra sweep). A cell that diverged has the state "diverged". Complete
    cells in `output` are not repeated; a failure of another kind ends the script."""
    command = [sim.PETRA, "sweep", grid, "--jobs", JOBS, "--output", output, "--json", "--quiet"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if not done.stdout.startswith("{"):
        sys.exit(f"{os.path.basename(sys.argv[0])}: {' '.join(command)}: {done.stderr}")
    found = json.loads(done.stdout)
    seeds = len(found["cells"]) // len(found["combinations"])
    for number, cell in enumerate(found["cells"]):
        if diverged(cell):
            cell["state"] = "diverged"
        elif cell["state"] == "failed":
            sys.exit(f"{os.path.basename(sys.argv[0])}: {cell['name']}: {cell['reason']}")
        if cell["state"] in ("complete", "diverged"):
            yield found["combinations"][number // seeds]["overrides"], cell


FIGURES = [
    "train_loss",
    "eval_loss",
    "eval_top1",
    "eval_loss_recalibrated",
    "eval_top1_recalibrated",
]


def last_epoch(cell, figures=FIGURES):
    """Returns the last columns of a table for a completed cell: state, number of the last epoch,
    its figures, seconds of wall time; empty if the cell diverged."""
    if cell["state"] != "complete":
        return {"state": cell["state"], "epoch": "", **dict.fromkeys(figures, ""), "wall_s": ""}
    columns = petrapipe.Run(cell["output"]).columns("epoch")
    return {
        "state": cell["state"],
        "epoch": int(columns["epoch"][-1]) + 1,
        **{name: float(columns[name][-1]) for name in figures},
        "wall_s": round(float(columns["wall_s"][-1])),
    }


def update_table(path, rows, keys):
    """Writes `rows`, and those of other runs that the table had before; ends the script if there
    are no rows."""
    rows = with_earlier(path, rows, keys)
    if not rows:
        sys.exit(f"{os.path.basename(sys.argv[0])}: no cell is complete")
    sim.write_table(path, rows)


def table_and_figure(path, collect, keys, tables, draw=None):
    """Is the main part of such a script: makes the table of the rows that `collect` yields, prints
    it by `tables`, and draws it by `draw` if there is a figure."""
    tables_and_figure({path: keys}, lambda: [list(collect())], tables, draw)


def tables_and_figure(keys_of, collect, tables, draw=None):
    """Does the same for several tables: `keys_of` has the keys of each path, and `collect` returns
    a list of rows for each."""
    if not sim.DRAW_ONLY:
        for (path, keys), rows in zip(keys_of.items(), collect()):
            update_table(path, rows, keys)
    found = [sim.read_table(path) for path in keys_of]
    tables(*found)
    if draw and not sim.TABLES_ONLY:
        draw(*found)


def with_earlier(path, rows, keys):
    """Returns `rows`, and the rows of other runs in an earlier table (distinguished by the columns
    `keys`), because runs may have been made elsewhere."""

    def key(row):
        return tuple(str(row[name]) for name in keys)

    found = {key(row) for row in rows}
    earlier = (
        [row for row in sim.read_table(path) if key(row) not in found]
        if os.path.exists(path)
        else []
    )
    return sorted(earlier + rows, key=lambda row: [row[name] for name in keys])
