# SPDX-License-Identifier: Apache-2.0
"""Sweeps according to their summary.csv (docs/sweep.md). Needs only the standard library."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence

from .errors import Unreadable


def read_summary(path: str) -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Returns the lines of a sweep's summary.csv: (combination, values of the keys that the grid
    varies, its row as texts by column). A combination that does not set a key has the value of the
    base config (summaries of earlier versions lack it: there the key is missing). A grid with rows
    has `row` among the keys. docs/sweep.md describes the columns; *_mean and *_interval95 are empty
    if there is no value."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            found = list(reader)
            names = list(reader.fieldnames or [])
            varied = names[names.index("overrides") + 1 : names.index("cells")] if found else []
            check_summary(path, names, found)
            return [
                (
                    row["combination"],
                    {key: sole(row[key]) for key in varied}
                    or dict(part.split("=", 1) for part in row["overrides"].split("; ") if part),
                    row,
                )
                for row in found
            ]
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise Unreadable(
            f"{path}: not the summary of a sweep: {getattr(error, 'strerror', None) or error}"
        ) from None


def check_summary(path: str, names: Sequence[str], rows: Sequence[dict]) -> None:
    """Refuses a summary without a column that its figures need, and a summary with a cell that
    should be a number and is not."""
    figures = [name for name in names if name.endswith(("_mean", "_interval95"))]
    needed = [
        "cells",
        "complete",
        *(name[:-5] + "_interval95" for name in names if name.endswith("_mean")),
    ]
    missing = [name for name in needed if name not in names]
    if rows and missing:
        raise Unreadable(f"{path}: not the summary of a sweep: no column {missing[0]}")
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise Unreadable(
                f"{path}: not the summary of a sweep: line {line} has another number of cells than"
                " line 1"
            )
        for name in ("cells", "complete", *figures):
            text = row[name]
            whole = name in ("cells", "complete")
            if not (re.fullmatch("[0-9]{1,9}", text) if whole else text == "" or is_finite(text)):
                raise Unreadable(
                    f"{path}: not the summary of a sweep: line {line}: {name} is {text[:40]!r};"
                    f" expected a {'whole ' * whole}number"
                )


def is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def sole(value: str) -> str:
    """Returns the value of a list with one entry, such as method.extra_delay: [4], which a grid may
    also write.

    >>> sole("[4]"), sole("[1, 2]"), sole("4")
    ('4', '[1, 2]', '4')
    """
    return (
        value[1:-1]
        if value[:1] == "[" and value[-1:] == "]" and "," not in value and value != "[]"
        else value
    )


def cell_name(keys: Iterable[str], values: dict[str, str]) -> str:
    """Names a cell by these keys: the method by its name alone, other keys by the last part of the
    key and the value, or by the whole key if two keys have the same last part. Keys that the cell
    does not set, and has from the base config, are left out.

    >>> keys = ["method.name", "method.accumulate", "optim.lr"]
    >>> cell_name(keys, {"method.name": "petra", "method.accumulate": "4"})
    'petra, accumulate 4'
    """
    keys = list(keys)
    ends = [key.rsplit(".", 1)[-1] for key in keys]
    words = [
        (key if ends.count(end) > 1 else end) + " " if key != "method.name" else ""
        for key, end in zip(keys, ends)
    ]
    return ", ".join(word + values[key] for key, word in zip(keys, words) if key in values) or (
        "base" if keys else ""
    )
