# SPDX-License-Identifier: Apache-2.0
"""Writes every table of a run's log as a file of comma-separated values (RFC 4180, UTF-8, lines end
in a line feed): what `petra export` does.

A table is a group of run.h5 and its dimensions: train_by_microbatch.csv. The set of tables depends
on the file (docs/hdf5-schema.md). The first columns are the indices of the dimensions: stages count
from 1, all others from 0. Then each data set has a column, NAME [UNIT], without [UNIT] if the unit
is 1. Real numbers have 17 digits; NaN is an empty cell. Gradients of probes (tensors) are left
out."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

import h5py
import numpy

from .errors import Unreadable, Unwritable
from .log_check import LEGENDS, check_stored
from .runs import log_path, opened, texts_attribute

BLOCK_VALUES = 1 << 16  # of a column, read at once
MOST_DIMENSIONS = 3


def quoted(text: str) -> str:
    """Returns a cell of a CSV file.

    >>> quoted("plain"), quoted('a "b", c')
    ('plain', '"a ""b"", c"')
    """
    return '"' + text.replace('"', '""') + '"' if re.search('[,"\n\r]', text) else text


class Column:
    """A data set, or a member of a compound data set. It has one column, or one for each entry of
    its last dimension if the entries have names."""

    def __init__(
        self,
        node: h5py.Dataset,
        name: str,
        units: str,
        kind: str,
        member: str | None = None,
        places: Sequence[str] = (),
        values: Sequence[str] = (),
    ) -> None:
        self.node, self.name, self.member, self.kind = node, name, member, kind
        self.places, self.values = list(places), list(values)
        parts = units.split(", ")
        self.units = (
            parts
            if self.places and len(parts) == len(self.places)
            else [units] * max(1, len(self.places))
        )

    def names(self) -> Iterator[str]:
        """Yields the heads of the columns."""
        for place, unit in zip([f"_{place}" for place in self.places] or [""], self.units):
            yield self.name + place + ("" if unit == "1" else f" [{unit}]")

    def cells(self, part: Any) -> list[list[str]]:
        """Returns the texts of a part of the data set: a list for each column."""
        found = self.node[part]
        found = numpy.asarray(found[self.member] if self.member else found)
        return [
            [self.text(value) for value in column]
            for column in found.reshape(-1, max(1, len(self.places))).T.tolist()
        ]

    def text(self, value: Any) -> str:
        if self.kind == "S":
            return quoted(value.decode("utf-8", "surrogateescape"))
        if self.kind == "f":
            return f"{value:.17g}" if value == value else ""
        return self.values[value] if 0 <= value < len(self.values) else str(value)


class Table:
    """All columns of the same group and dimensions, except dimensions with named entries."""

    def __init__(self, path: str, dimensions: list[str], shape: Sequence[int]) -> None:
        self.name = path.split("/")[0] + ("_by_" + "_".join(dimensions) if dimensions else "")
        self.dimensions, self.shape = dimensions, list(shape)
        self.columns: list[Column] = []

    def add(self, column: Column) -> None:
        """Adds a column; the column that counts the rows comes first."""
        self.columns.insert(0 if [column.name] == self.dimensions else len(self.columns), column)

    def write(self, file: TextIO) -> int:
        """Writes the lines and returns their number."""
        rows, inner = (self.shape[0] if self.shape else 1), int(numpy.prod(self.shape[1:]))
        counted = self.columns and [self.columns[0].name] == self.dimensions
        dimensions = [] if counted else self.dimensions
        file.write(
            ",".join(
                dimensions + [quoted(name) for column in self.columns for name in column.names()]
            )
            + "\n"
        )
        block = max(1, BLOCK_VALUES // max(1, inner))
        for first in range(0, rows if inner else 0, block):
            count = min(block, rows - first)
            places = (
                numpy.unravel_index(
                    numpy.arange(first * inner, (first + count) * inner), self.shape
                )
                if dimensions
                else ()
            )
            cells: list[Iterable[str]] = [
                map(str, (place + (dimension == "stage")).tolist())
                for dimension, place in zip(dimensions, places)
            ]
            for column in self.columns:
                cells += column.cells(slice(first, first + count) if self.shape else ())
            file.writelines(",".join(line) + "\n" for line in zip(*cells))
        return rows * inner


def tables_of(file: h5py.File, path: str) -> Iterable[Table]:
    """Returns the tables of a log; `path` names it in an Error."""
    tables: dict[tuple, Table] = {}

    def add(name: str | bytes, node: h5py.Group | h5py.Dataset) -> None:
        name = os.fsdecode(name)  # bytes, if it is not UTF-8
        if not isinstance(node, h5py.Dataset) or name.startswith("probe/gradients/"):
            return
        check_stored(node, path)
        dimensions = texts_attribute(node, "DIMENSION_LABELS")
        if len(dimensions) != node.ndim:
            raise Unreadable(
                f"{path}: /{name}: its dimensions have no names; expected a file that petra wrote"
            )
        units = texts_attribute(node, "units")
        legend = LEGENDS.get(dimensions[-1]) if dimensions else None
        places = texts_attribute(node, legend) if legend else []
        if legend and len(places) != node.shape[-1]:
            raise Unreadable(
                f"{path}: /{name}: its attribute {legend} has {len(places)} names; expected"
                f" {node.shape[-1]}"
            )
        dimensions = dimensions[: node.ndim - (legend is not None)]
        members = node.dtype.names if node.ndim == 1 else None
        if len(dimensions) > MOST_DIMENSIONS or not members and node.dtype.kind not in "iufS":
            return
        table = tables.setdefault(
            (name.split("/")[0], *dimensions),
            Table(name, dimensions, node.shape[: len(dimensions)]),
        )
        if table.shape[1:] != list(node.shape[1 : len(dimensions)]):
            raise Unreadable(
                f"{path}: /{name} has other dimensions than others of its group: {node.shape},"
                f" {table.shape}"
            )
        if dimensions:
            table.shape[0] = min(table.shape[0], node.shape[0])  # a run may be writing now
        for m, member in enumerate(members or []):
            if node.dtype[member].kind in "iufS":
                table.add(
                    Column(
                        node,
                        member,
                        units[m] if m < len(units) else "1",
                        node.dtype[member].kind,
                        member,
                    )
                )
        if not members:
            below = name.split("/", 1)[-1].replace("/", "_")
            values = (
                texts_attribute(node, "kinds") if not legend and node.dtype.kind in "iu" else []
            )
            table.add(
                Column(
                    node,
                    below,
                    units[0] if len(units) == 1 else "1",
                    node.dtype.kind,
                    None,
                    places,
                    values,
                )
            )

    file.visititems(add)
    return tables.values()


def write_table(table: Table, folder: str) -> tuple[str, int]:
    """Writes a complete table or none; returns the name of its file and its number of rows."""
    name = f"{table.name}.csv"
    path, temporary = os.path.join(folder, name), os.path.join(folder, f".{name}.tmp")
    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise Unwritable(
                f"{path}: cannot replace: not a regular file; expected the name of a file"
            )
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            rows = table.write(file)
        os.replace(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise Unwritable(f"{path}: cannot write: {error.strerror or error}") from None
    return name, rows


def export(place: str, folder: str) -> Iterator[tuple[str, int]]:
    """Writes every table of the log of a run (its folder or run.h5) into a folder. Yields the name
    of each file and its number of rows."""
    path = log_path(place)
    with opened(path) as log:
        for table in tables_of(log, path):
            yield write_table(table, folder)
