# SPDX-License-Identifier: Apache-2.0
"""The runs below a folder, one in each row: the table that `petra list` prints, and a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .errors import Error, Unreadable
from .modules import modules
from .run_facts import RunFacts, facts_of, joined, warn_of_earlier_run
from .table import Column, real
from .text import shown

if TYPE_CHECKING:
    import pandas

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


def folders_in(folder: str) -> Iterator[str]:
    """Yields the folders with a run.h5, in the order of their names. Links to folders are not
    followed, because they may lead in circles."""
    warn_of_earlier_run(folder)
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
    """Returns the runs in or below a folder, one in each row; a run that cannot be read has the
    state "unreadable" and a `reason`."""
    (pandas,) = modules("pandas")
    names = [column.key for column in COLUMNS if column.key]
    return pandas.DataFrame(rows_of(folder), columns=[*names, "reason"])
