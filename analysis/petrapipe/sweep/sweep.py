# SPDX-License-Identifier: Apache-2.0
"""A sweep: from its grid to its summary. Complete cells are not run a second time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import command, program
from ..errors import Error, Unreadable
from ..grids import Ask, Grid, load_grid
from ..modules import find_modules, modules
from ..table import json_text
from .cells import Cell, Keys, State, plain_value, plan_cells, read_cell
from .files import lock_folder, make_folder, print_line, write_atomically
from .pool import run_cells
from .slurm import print_script
from .summary import combinations, csv_text, metrics, summarise

if TYPE_CHECKING:
    import pandas

SETTINGS = "summary.settings.json"  # {"set": ["KEY=VALUE", ...]}, for --jobs 0


class Failed(Error):
    """Cells failed, or a signal stopped the sweep."""

    status = 1


@dataclass
class Sweep:
    grid: Grid
    settings: list[str]  # arguments of --set
    jobs: int = 1  # concurrent cells; 0: none is run
    jobs_given: bool = False  # on the command line
    only: int | None = None  # the one cell of --cell, from 0
    json: bool = False
    quiet: bool = False
    directory: str = ""
    lock: int | None = (
        None  # descriptor of the folder; None: a running sweep there writes its files
    )
    cells: list[Cell] = field(default_factory=list)
    keys: Keys = None
    worth: int | None = None  # cores that a limit of processor time is worth

    @property
    def chosen(self) -> list[Cell]:
        """Returns the cells that this sweep processes."""
        return self.cells if self.only is None else [self.cells[self.only]]

    @property
    def talks(self) -> bool:
        return not self.json and not self.quiet


# --- the folder ---


def cut_last(path: str) -> tuple[str, str]:
    """Returns the part of a path before its last component, and this component.

    >>> cut_last("a/b/"), cut_last("a"), cut_last("/a")
    (('a', 'b'), ('.', 'a'), ('/', 'a'))
    """
    rest, slash, name = (path.rstrip("/") or path[:1]).rpartition("/")
    return (rest or "/") if slash else ".", name


def is_same(a: str, b: str) -> bool:
    """Returns whether two paths lead to the same folder; neither need exist."""
    if os.path.exists(a) or os.path.exists(b):
        return os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b)
    (rest_a, name_a), (rest_b, name_b) = cut_last(a), cut_last(b)
    return name_a == name_b and is_same(rest_a, rest_b)


def join(directory: str, name: str) -> str:
    return directory + ("" if directory.endswith("/") else "/") + name


def find_folder(grid: Grid, base: dict[str, str], output: str | None) -> str:
    """Returns the folder of the sweep, which is not made yet: `output` or, if that is None,
    run.output of the base with the name of the grid's file (with a config in the grid:
    run.output/run.name). Refuses the folder of the base's own run, and a folder that contains a
    run."""
    parent = plain_value(base["run.output"])
    own = join(parent, plain_value(base["run.name"]))
    directory = output
    if directory is None and not grid.base:
        directory = own
    if directory is None:
        if grid.path == "-":
            raise command.Usage(
                "a grid from standard input with a base has no name for its folder; expected"
                " --output DIR"
            )
        name = grid.path.rsplit("/", 1)[-1]
        directory = join(parent, name[: name.rindex(".")] if "." in name[1:] else name)
    if grid.base and is_same(directory, own):
        raise Error(
            f"{directory}: the folder of the base's own run (run.output/run.name of {grid.base});"
            " expected another one for the sweep (--output)"
        )
    for mark in ("run.h5", "checkpoint.h5"):
        if os.path.exists(join(directory, mark)):
            raise Error(
                f"{directory}: contains a run ({mark}); expected another folder for the sweep"
                " (--output)"
            )
    return directory


def keep_settings(sweep: Sweep) -> None:
    """Writes the --set arguments into the folder, unless there are none now and there were none
    before."""
    path = join(sweep.directory, SETTINGS)
    if sweep.settings or os.path.exists(path):  # the settings of an earlier run no longer apply
        write_atomically(path, json_text({"set": sweep.settings}).encode())


def kept_settings(grid: Grid, directory: str) -> list[str]:
    """Returns the --set arguments that an earlier sweep wrote into the folder."""
    path = join(directory, SETTINGS)
    if not os.path.exists(path):
        return []
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise Unreadable(
            f"{path}: not JSON: {error}; expected a file that petra sweep wrote"
        ) from None
    settings = found.get("set") if isinstance(found, dict) else None
    for setting in settings or []:
        if not isinstance(setting, str):
            raise Unreadable(
                f"{path}: 'set' is not a list of strings; expected a file that petra sweep wrote"
            )
        grid.check_set(setting)
    return list(settings or [])


# --- a sweep ---


def open_sweep(
    path: str, settings: Sequence[str], output: str | None, jobs: int, cell: str | None = None
) -> Sweep:
    """Reads a grid, checks all of its cells, and finds the folder, which is not made yet."""
    with program.Program("inspect") as inspect:
        return planned(path, settings, output, jobs, cell, inspect.ask)


def planned(
    path: str, settings: Sequence[str], output: str | None, jobs: int, cell: str | None, ask: Ask
) -> Sweep:
    grid = load_grid(path, ask)
    sweep = Sweep(grid, list(settings), jobs)
    for setting in settings:
        grid.check_set(setting)
    if cell is not None:
        sweep.only = command.integer("--cell", cell, 1, grid.cells) - 1
    answer = ask({"config": grid.layers(None, settings), "keys": True})
    sweep.keys = Keys(answer)
    base = {name: about["value"] for name, about in answer["keys"].items()}
    sweep.directory = find_folder(grid, base, output)
    if jobs == 0:
        sweep.settings = [*kept_settings(grid, sweep.directory), *settings]
    sweep.cells = plan_cells(grid, sweep.directory, sweep.settings, sweep.only, sweep.keys, ask)
    return sweep


def read_cells(sweep: Sweep) -> None:
    for cell in sweep.chosen:
        read_cell(cell, sweep.grid.command == "train", sweep.keys)


def report_start(sweep: Sweep) -> None:
    if not sweep.talks:
        return
    count = len(sweep.cells)
    if sweep.only is not None:
        cell = sweep.cells[sweep.only]
        state = "complete" if cell.state is State.COMPLETE else "open"
        print_line(f"cell {sweep.only + 1} of {count}, {cell.folder}: {state}")
    else:
        complete = sum(cell.state is State.COMPLETE for cell in sweep.cells)
        print_line(f"{count} cells in {sweep.directory}, {complete} complete")


def report_end(sweep: Sweep, stopped: int | None) -> None:
    """Prints a line for each failed cell; raises Failed for the sweep."""
    failed = [cell for cell in sweep.cells if cell.state is State.FAILED]
    for cell in failed:
        command.say(f"{cell.folder}: {cell.reason}")
    if stopped is not None:
        raise Failed(
            f"{sweep.directory}: stopped by signal {stopped} ({signal.strsignal(stopped)}); the"
            " same command continues the sweep"
        )
    if failed and sweep.only is None:
        raise Failed(
            f"{sweep.directory}: {len(failed)} of {len(sweep.cells)} cells failed (log.txt in their"
            " folders); the same command tries them again"
        )
    if failed:
        raise Failed("")  # its line is printed


def cores_worth() -> int | None:
    """Returns the number of cores that the program may use: fewer than there are if processor time
    is limited."""
    done = subprocess.run([program.find(), "info", "--json"], capture_output=True, check=False)
    try:
        return int(json.loads(done.stdout)["cores"])
    except (ValueError, LookupError, TypeError):
        return None


def perform(sweep: Sweep, slurm: bool) -> None:
    if not slurm:
        prints = sweep.json or not sweep.quiet
        sweep.lock = lock_folder(sweep.directory, sweep.jobs == 0, sweep.only is not None, prints)
    read_cells(sweep)
    if slurm:
        make_folder(sweep.directory)
    if sweep.jobs > 0 and sweep.only is None:  # many --cell write no file at once
        keep_settings(sweep)
    if slurm:
        print_script(sweep)
        return
    report_start(sweep)
    if sweep.jobs > 1:
        sweep.worth = cores_worth()
    stopped = run_cells(sweep)
    if sweep.only is None:
        summarise(sweep)
    report_end(sweep, stopped)


def run_sweep(
    grid: str, output: str | None = None, settings: Sequence[str] = (), jobs: int = 1
) -> pandas.DataFrame:
    """Runs the open cells of a grid, `jobs` at once (0: none), and returns the summary as a table
    with a row for each combination: the columns of DIR/summary.csv (docs/sweep.md), which is
    written too. `settings` are texts such as "run.epochs=3"."""
    import io

    pandas = modules("pandas")[0]
    sweep = open_sweep(os.fspath(grid), settings, output, jobs)
    sweep.quiet = True
    try:
        perform(sweep, slurm=False)
    finally:
        if sweep.lock is not None:
            os.close(sweep.lock)
    names, _ = metrics(sweep)
    text = csv_text(sweep, combinations(sweep, names), names)
    return pandas.read_csv(io.StringIO(text))


def run(arguments: Any) -> None:
    """Runs petra sweep with the arguments of the command line."""
    jobs = 1
    find_modules("numpy", "scipy", "h5py")  # loaded when the first cell has ended
    if arguments.input is None:
        raise command.Usage(
            "petra sweep needs a grid file ('-' for standard input); see petra sweep --help"
        )
    if arguments.slurm and (arguments.json or arguments.cell):
        raise command.Usage("--slurm prints a script and cannot be combined with --json or --cell")
    if arguments.slurm and arguments.input == "-":
        raise command.Usage(
            "--slurm with a grid from standard input, which the tasks cannot read; expected a file"
        )
    if arguments.cell and (arguments.json or arguments.jobs):
        raise command.Usage(
            "--cell runs one cell without a summary and cannot be combined with --json or --jobs"
        )
    if arguments.jobs:
        jobs = command.integer("--jobs", arguments.jobs, 1 if arguments.slurm else 0, 1024)
    sweep = open_sweep(arguments.input, arguments.set, arguments.output, jobs, arguments.cell)
    sweep.jobs_given = arguments.jobs is not None
    sweep.json, sweep.quiet = arguments.json, arguments.quiet
    perform(sweep, arguments.slurm)
