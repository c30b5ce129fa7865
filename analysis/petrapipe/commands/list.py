# SPDX-License-Identifier: Apache-2.0
"""petra list: the runs below a folder, one per line."""

from __future__ import annotations

from types import SimpleNamespace

from ..command import Command
from ..table import print_json, records, table_text
from ..text import shown

# The members of the object of a run that cannot be read.
UNREADABLE = ("run", "state", "reason")


def run(arguments: SimpleNamespace) -> None:
    """Prints the table, or an object."""
    from ..run_list import COLUMNS, rows_of

    folder = arguments.input or "runs"
    rows = rows_of(folder)
    if arguments.json:
        objects = [
            {name: row[name] for name in UNREADABLE} if "reason" in row else record
            for row, record in zip(rows, records(COLUMNS, rows))
        ]
        print_json({"folder": folder, "runs": objects})
    elif rows:
        for row in rows:
            row["created"] = row.get("reason", row["created"])
        print(table_text(COLUMNS, rows), end="")
    else:
        print(shown(f"{folder}: no run.h5 in it or below"))


COMMAND = Command(
    name="list",
    summary="lists the runs below a folder: method, stages, state, optimiser, data, evaluation, date",
    arguments="[FOLDER] [--json]",
    help="""\
Prints one line for each folder in or below FOLDER (default: runs) that contains a run.h5: the method
and the keys of method that differ from its preset, J (stages), mode, state, optimiser, data set, loss
and top-1 accuracy of the last evaluation, and the start of the run (UTC). The state is one of:
  complete
  running at N    a process of this machine holds the lock of the folder; N microbatches are done
  stopped at N    the run was killed, has failed, or is running on another machine
Links to folders are not followed.""",
    inputs=(0, 1),
    needs=("h5py", "numpy", "xxhash"),
    run=run,
)
