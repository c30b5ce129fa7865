# SPDX-License-Identifier: Apache-2.0
"""What the experiments that train share: a sweep of the grid beside the script, its cells as rows."""

import json
import os
import subprocess
import sys

import simulations as sim

WORDS = dict(argument[2:].split("=", 1) for argument in sys.argv[1:] if argument.startswith("--") and "=" in argument)
JOBS = WORDS.get("jobs", "1")  # 0: nothing is run, what is there is read


def diverged(cell):
    """Whether a cell ended so: just now, or when it was run before, which the last line of its log says."""
    if cell["state"] == "failed":
        return "has diverged" in cell["reason"]
    path = os.path.join(cell["output"], "log.txt")
    if cell["state"] != "open" or not os.path.exists(path):
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    return bool(lines) and "has diverged" in lines[-1]


def cells(grid, output):
    """Each cell of a grid (its path) that has ended: (the keys that the grid sets, as texts; what petra sweep says of the cell). One that
    diverged has the state "diverged". Cells that are complete in `output` are not run again; a failure of another kind ends the script."""
    command = [sim.PETRA, "sweep", grid, "--jobs", JOBS, "--output", output, "--json", "--quiet"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, check=False)
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


FIGURES = ["train_loss", "eval_loss", "eval_top1", "eval_loss_recalibrated", "eval_top1_recalibrated"]


def last_epoch(cell, figures=FIGURES):
    """Of a cell that has ended, the columns that a table of such cells ends with: state, number of the last epoch, its figures, seconds of
    wall time; empty where the cell diverged."""
    if cell["state"] != "complete":
        return {"state": cell["state"], "epoch": "", **dict.fromkeys(figures, ""), "wall_s": ""}
    columns = sim.common.runs().Run(cell["output"]).columns("epoch")
    return {"state": cell["state"], "epoch": int(columns["epoch"][-1]) + 1, **{name: float(columns[name][-1]) for name in figures},
            "wall_s": round(float(columns["wall_s"][-1]))}


def update_table(path, rows, keys):
    """Writes `rows` and those of other runs that were in the table before; ends the script where there is none of either."""
    rows = with_earlier(path, rows, keys)
    if not rows:
        sys.exit(f"{os.path.basename(sys.argv[0])}: no cell is complete")
    sim.write_table(path, rows)


def table_and_figure(path, collect, keys, tables, draw=None):
    """What such a script does: the table of the rows that `collect` yields, those printed by `tables`, and drawn by `draw` where there is a figure."""
    if not sim.DRAW_ONLY:
        update_table(path, list(collect()), keys)
    rows = sim.read_table(path)
    tables(rows)
    if draw and not sim.TABLES_ONLY:
        draw(rows)


def with_earlier(path, rows, keys):
    """`rows`, and of a table written before those that are of other runs (told by the columns `keys`): runs may have been made elsewhere."""
    def key(row):
        return tuple(str(row[name]) for name in keys)

    found = {key(row) for row in rows}
    earlier = [row for row in sim.read_table(path) if key(row) not in found] if os.path.exists(path) else []
    return sorted(earlier + rows, key=lambda row: [row[name] for name in keys])
