# SPDX-License-Identifier: Apache-2.0
"""petra export: writes the tables of a run's log as CSV files."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from types import SimpleNamespace

from ..command import Command, Option, Usage, execute
from ..errors import Unwritable
from ..table import print_json
from ..text import shown


def run(arguments: SimpleNamespace) -> None:
    """Refuses a damaged log and a file that is no log, then writes the files."""
    if not arguments.csv:
        raise Usage("petra export needs --csv DIR; see petra export --help")
    from ..log_summary import read
    from ..run_facts import log_of

    log = log_of(arguments.input)
    make_folder(arguments.csv)
    read(log)
    write(arguments)


def write(arguments: SimpleNamespace) -> None:
    """Writes the files and prints the name and the number of rows of each."""
    from ..export import export
    from ..run_facts import log_of

    make_folder(arguments.csv)
    log = log_of(arguments.input)
    files = []
    for name, rows in export(arguments.input, arguments.csv):
        files.append({"file": shown(name), "rows": rows})
        if not arguments.json and not arguments.quiet:
            print(shown(f"{os.path.join(arguments.csv, name)}: {rows} rows"), flush=True)
    if arguments.json:
        print_json({"run": shown(log), "folder": shown(arguments.csv), "files": files})


def make_folder(path: str) -> None:
    """Creates a folder and those above it that do not exist."""
    parts = path.split("/")
    for folder in ("/".join(parts[: count + 1]) for count in range(len(parts))):
        try:
            if folder:
                os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise Unwritable(
                    f"{folder}: cannot create this folder: a file with that name exists"
                ) from None
        except OSError as error:
            raise Unwritable(f"{folder}: cannot create this folder: {error.strerror}") from None


COMMAND = Command(
    name="export",
    summary="writes the tables of a run's log as CSV files",
    arguments="RUN --csv DIR [--json]",
    help="""\
Writes every table of the log of RUN (a folder or its run.h5, also during the run) into a file of its
own in DIR, such as train_by_microbatch.csv. The first line of a file contains the names and units of
the columns; every other line is a row. Existing files with these names are replaced. Gradients that
probes stored (probe.gradients) are tensors and are left out. The command needs Python with h5py, as
petra report does (Debian: python3-h5py).""",
    inputs=(1, 1),
    needs=("h5py", "numpy", "xxhash"),
    options=(Option("csv", "DIR", "the folder to write to; created if it does not exist"),),
    run=run,
)


def main() -> None:
    """Is analysis/petra_export.py."""
    execute(replace(COMMAND, run=write), sys.argv[1:])
