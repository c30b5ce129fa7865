# SPDX-License-Identifier: Apache-2.0
"""petra list: the runs below a folder, one on a line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..command import Command
from ..errors import Error, Unreadable
from ..table import Column, print_json, real, records, table_text
from ..text import shown

if TYPE_CHECKING:
    import pandas

    from ..run_facts import RunFacts

KEYS = ["run.name", "run.mode", "method.name", "method.accumulate", "cluster.stages"]
COLUMNS = (
    Column("run", "run"),
    Column(None, "name"),
    Column(None, "method"),
    Column("method", "method_in_words"),
    Column(None, "accumulate"),
    Column("J", "stages", "%d"),
    Column("mode", "mode"),
    Column(None, "state"),
    Column("state", value=lambda row: row["progress"]),
    Column("optimiser", "optimiser"),
    Column("data", "data"),
    Column(None, "microbatches"),
    Column(None, "epochs"),
    Column("eval loss", "eval_loss", real("%.4f"), right=True),
    Column("eval top-1 %", "eval_top1", "%.2f", scale=100),
    Column(None, "eval_epoch"),
    Column("created", "created"),
)
# What the objects of a run that cannot be read contain.
UNREADABLE = ("run", "state", "reason")


def folders_in(folder: str) -> Iterator[str]:
    """Yields the folders with a run.h5, in the order of their names. Links to folders are not followed, for they may
    lead in circles."""
    from ..run_facts import joined, warn_of_aside

    warn_of_aside(folder)
    if os.path.exists(joined(folder, "run.h5")):
        yield folder
    try:
        with os.scandir(folder) as entries:
            below = [
                entry.name
                for entry in entries
                if entry.name[0] != "." and entry.is_dir(follow_symlinks=False)
            ]
    except OSError as error:
        raise Unreadable(f"{folder}: cannot be listed: {error.strerror}") from None
    for name in sorted(below, key=os.fsencode):
        yield from folders_in(joined(folder, name))


def row_of(facts: RunFacts) -> dict[str, Any]:
    """Returns the values of a run by the keys of JSON, and `progress`, the state in words."""
    summary = facts.summary
    at = summary.last_finite("eval_top1")
    ended = facts.state == "complete" or summary.is_simulated
    epochs = (
        {name: column[at].item() for name, column in summary.epochs.items()}
        if at is not None
        else {}
    )
    return {
        "run": facts.place,
        "name": facts.value("run.name"),
        "method": facts.value("method.name"),
        "method_in_words": facts.method,
        "accumulate": facts.value("method.accumulate"),
        "stages": facts.stages,
        "mode": facts.mode,
        "state": facts.state,
        "progress": facts.state if ended else f"{facts.state} at {summary.microbatches}",
        "optimiser": facts.optimiser_name if facts.trains else None,
        "data": facts.data if facts.trains else None,
        "microbatches": summary.microbatches if summary.simulated is None else summary.simulated,
        "epochs": summary.epoch_count,
        "eval_loss": epochs.get("eval_loss"),
        "eval_top1": epochs.get("eval_top1"),
        "eval_epoch": epochs.get("epoch"),
        "created": summary.created,
    }


def rows_of(folder: str) -> list[dict[str, Any]]:
    """Returns the runs in or below a folder; those that cannot be read have a `reason`."""
    from ..run_facts import facts_of

    if not os.path.isdir(folder):
        raise Unreadable(f"{folder}: no such folder; expected one with runs in it or below")
    places = list(folders_in(folder))
    rows = []
    for place, facts in zip(places, facts_of(places, keys=KEYS)):
        if isinstance(facts, Error):
            empty = dict.fromkeys(column.key for column in COLUMNS if column.key)
            reason = {"state": "unreadable", "progress": "unreadable", "reason": shown(facts)}
            rows.append({**empty, "run": place, **reason})
        else:
            rows.append(row_of(facts))
    return rows


def list_runs(folder: str = "runs") -> pandas.DataFrame:
    """Returns the runs in or below a folder, one in each row; a run that cannot be read has the state "unreadable" and
    a `reason`."""
    from ..modules import modules

    (pandas,) = modules("pandas")
    names = [column.key for column in COLUMNS if column.key]
    return pandas.DataFrame(rows_of(folder), columns=[*names, "reason"])


def json_of(row: dict[str, Any]) -> dict[str, Any]:
    return (
        {name: row[name] for name in UNREADABLE} if "reason" in row else records(COLUMNS, [row])[0]
    )


def run(arguments: SimpleNamespace) -> None:
    """Prints the table, or an object."""
    folder = arguments.input or "runs"
    rows = rows_of(folder)
    if arguments.json:
        print_json({"folder": folder, "runs": [json_of(row) for row in rows]})
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
