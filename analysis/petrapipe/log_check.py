# SPDX-License-Identifier: Apache-2.0
"""The check of a run's log that every reader in Python makes: Run, report, export, figures,
tensorboard.

The tables say what docs/hdf5-schema.md says; tests/cli/damaged_logs.py compares them.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy

from . import run_schema
from .errors import Unreadable

SCHEMA_VERSION = 1
# Attributes of the root. A log may lack the attributes in OPTIONAL.
TEXTS = ("petra_version", "git_commit", "created", "command", "backend", "libraries", "config")
OPTIONAL_TEXTS = ("network", "optimiser", "data", "training")
# The largest value of each.
WHOLE = {
    "schema_version": 2**31 - 1,
    "complete": 1,
    "seed": 2**64 - 1,
    "microbatches_per_epoch": 2**63 - 1,
}
# Earlier versions did not write the second one.
OPTIONAL_WHOLE = (
    "complete",
    "microbatches_per_epoch",
)
# The attribute that names the entries of a dimension with this name.
LEGENDS = {"category": "categories", "part": "parts", "kind": "kinds", "figure": "columns"}
# The names that a reader expects of some of them.
NAMES = {
    "trace/actions/kind": run_schema.KINDS,
    "memory/peak_bytes": run_schema.CATEGORIES,
    "probe/peak_bytes": run_schema.CATEGORIES,
    "memory/bytes": (*run_schema.CATEGORIES, "total"),
    **{
        f"pace/{name}": ("measured", "predicted", "low", "high")
        for name in ("microbatch_s", "stage_s", "busy")
    },
}

# The groups that only the program writes: "TYPE UNIT DIMENSION ..." by name.
_OTHERS = """
epoch/eval_loss_recalibrated <f8 nat epoch
epoch/eval_top1_recalibrated <f8 1 epoch
epoch/eval_top5_recalibrated <f8 1 epoch
local/train_loss <f8 nat epoch stage
local/train_top1 <f8 1 epoch stage
probe/peak_bytes <i8 byte category
memory/bin_ns <i8 ns
memory/bytes <i8 byte bin stage category
simulate/makespan_s <f8 s
simulate/makespan_ns <i8 ns
simulate/time_per_microbatch_s <f8 s
simulate/time_per_microbatch_low_s <f8 s
simulate/time_per_microbatch_high_s <f8 s
simulate/bubble_fraction <f8 1
simulate/actions <i8 count
simulate/microbatches <i8 count
simulate/wall_s <f8 s
simulate/utilization <f8 1 stage
simulate/lag_mean <f8 updates stage
simulate/lag_max <i8 updates stage
simulate/in_flight_max <i8 microbatches stage
simulate/kept_max <i8 microbatches stage
simulate/bytes_up <i8 byte stage
simulate/bytes_down <i8 byte stage
simulate/bytes_exchanged <i8 byte stage
simulate/rank_busy <f8 1 rank
simulate/critical_stage_ns <i8 ns stage
simulate/critical_ns <i8 ns kind
simulate/of_stage <i4 1 stage
ranks/of_stage <i4 1 stage
ranks/replica <i4 1 rank
ranks/time_ns <i8 ns rank part
ranks/sent <i8 1,byte rank part
pace/microbatch_s <f8 s figure
pace/stage_s <f8 s stage figure
pace/busy <f8 1 rank figure
"""
# Data sets that their group may lack: only some runs have them.
RARE = {
    "epoch/images_per_s",
    "epoch/tokens_per_s",
    "memory/backend_bytes",
    "memory/bin_ns",
    "memory/bytes",
    "probe/peak_bytes",
    "ranks/replica",
    *(
        f"simulate/{name}"
        for name in (
            "time_per_microbatch_low_s",
            "time_per_microbatch_high_s",
            "bytes_exchanged",
            "rank_busy",
            "critical_stage_ns",
            "critical_ns",
            "of_stage",
        )
    ),
    *(f"epoch/eval_{name}_recalibrated" for name in ("loss", "top1", "top5")),
}
_REQUIRED_GROUPS = ("train", "epoch")


def _tables() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    sets: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for group, (row, _, columns) in run_schema.GROUPS.items():
        sets.update(
            {f"{group}/{name}": (kind, unit, (row,)) for name, (kind, unit) in columns.items()}
        )
    sets.update(
        {f"epoch/{name}": (*column, ("epoch",)) for name, column in run_schema.RATES.values()}
    )
    sets.update(
        {
            f"probe/{name}": (*run_schema.NUMBER, ("probe", dimension))
            for name, dimension in run_schema.FIGURES.items()
        }
    )
    sets.update(
        {
            f"probe/parameter/{name}": (*column, ("parameter",))
            for name, column in run_schema.PARAMETERS.items()
        }
    )
    sets.update(
        {
            f"memory/{name}": ("<i8", "byte", dimensions)
            for name, dimensions in run_schema.MEMORY.items()
        }
    )
    for line in _OTHERS.split("\n")[1:-1]:
        name, kind, unit, *dimensions = line.split(" ")
        sets[name] = kind, unit.replace(",", ", "), tuple(dimensions)
    return sets


# (type, unit, dimensions) of each data set of a log, except the table model/stages.
SETS = _tables()
# The dimensions that grow while a run writes.
_ROWS = {row for row, _, _ in run_schema.GROUPS.values()}
# The smallest value of a whole number that may be less than 0.
LEAST = {
    "trace/actions/version_written": -1,
    "trace/actions/version_read": -1,
    "memory/backend_bytes": -1,
}
_KINDS = {"i": "iu", "f": "f", "S": "S"}
_WORDS = {"i": "whole numbers", "f": "real numbers", "S": "texts of fixed length"}


class Check:
    """The check of one open log. Every refusal is one line that names the file and the object."""

    def __init__(self, file: h5py.File, path: str) -> None:
        self.file, self.path = file, path
        self.extents: dict[tuple[str, str], tuple[int, str]] = {}

    def refuse(self, words: str) -> Unreadable:
        return Unreadable(f"{self.path}: not readable as a run log: {words}")

    def run(self) -> None:
        """Checks attributes, groups, and the types, dimensions and lengths of the data sets;
        reads no values of data sets."""
        self.root()
        groups = dict.fromkeys(name.split("/")[0] for name in SETS)
        present = {group for group in groups if self.node(group, h5py.Group) is not None}
        for group in _REQUIRED_GROUPS:
            if group not in present:
                raise self.refuse(f"no group {group}")
        self.stages()
        for name in SETS:
            self.data_set(name, present)
        rates = [f"epoch/{name}" for name, _ in run_schema.RATES.values()]
        if not any(name in self.file for name in rates):
            raise self.refuse(f"no data set {' or '.join(rates)}")
        self.places()

    def root(self) -> None:
        for name in (*TEXTS, *OPTIONAL_TEXTS):
            if name in self.file.attrs:
                self.texts(self.file, name, 1)
            elif name in TEXTS:
                raise self.refuse(f"no attribute {name}")
        for name, most in WHOLE.items():
            if name in self.file.attrs:
                value = self.attribute(self.file, name)
                if (
                    value.size != 1
                    or value.dtype.kind not in "iu"
                    or not 0 <= int(value.ravel()[0]) <= most
                ):
                    raise self.refuse(
                        f"the attribute {name} is {_short(value)}; "
                        f"expected a whole number of 0 to {most}"
                    )
            elif name not in OPTIONAL_WHOLE:
                raise self.refuse(f"no attribute {name}")
        version = int(numpy.ravel(self.file.attrs["schema_version"])[0])
        if version != SCHEMA_VERSION:
            raise self.refuse(f"schema_version is {version}; expected {SCHEMA_VERSION}")

    def node(self, name: str, kind: Any) -> Any:
        """Returns the object of this kind; None if there is none. A link to another file is not
        followed."""
        node: Any = self.file
        for part in name.split("/"):
            if part not in node.keys():
                return None
            if not isinstance(node.get(part, getlink=True), h5py.HardLink):
                raise self.refuse(f"{name} is a link; expected the data in this file")
            node = node[part]
            if not isinstance(node, (h5py.Group, h5py.Dataset)):
                raise self.refuse(f"{name} is neither a group nor a data set")
            if isinstance(node, h5py.Dataset):
                break
        if not isinstance(node, kind) or node.name != "/" + name:
            raise self.refuse(f"{name} is not a {'group' if kind is h5py.Group else 'data set'}")
        return node

    def data_set(self, name: str, present: set[str]) -> None:
        kind, unit, dimensions = SETS[name]
        group = name.split("/")[0]
        node = self.node(name, h5py.Dataset) if group in present else None
        if node is None:
            if name in RARE or self.may_lack(group, present):
                return
            raise self.refuse(f"no data set {name}")
        check_stored(node, self.path)
        if (
            node.dtype.kind not in _KINDS[kind.strip("<")[0]]
            or node.dtype.itemsize > 8
            and node.dtype.kind != "S"
        ):
            raise self.refuse(
                f"{name} has the type {_short(node.dtype)}; expected {_WORDS[kind.strip('<')[0]]}"
            )
        if node.shape is None or node.ndim != len(dimensions):
            raise self.refuse(
                f"{name} has the shape {node.shape}; expected {len(dimensions)} dimensions"
            )
        if self.texts(node, "units") != [unit]:
            raise self.refuse(
                f"{name} has the unit {', '.join(self.texts(node, 'units'))!r}; expected {unit!r}"
            )
        self.dimensions(node, name, dimensions)

    def may_lack(self, group: str, present: set[str]) -> bool:
        """Returns whether data sets of a group may be missing: the group itself is missing, or it
        is still empty."""
        return (
            group not in present
            or group == "memory"
            and not {"peak_bytes", "total_peak_bytes"} & set(self.file[group])
        )

    def dimensions(self, node: h5py.Dataset, name: str, dimensions: tuple[str, ...]) -> None:
        """Checks names and lengths: a stage, a parameter, and a row of a group have one number
        of entries everywhere."""
        if dimensions and self.texts(node, "DIMENSION_LABELS") != list(dimensions):
            raise self.refuse(
                f"{name} has the dimensions {_short(self.texts(node, 'DIMENSION_LABELS'))}; "
                f"expected {', '.join(dimensions)}"
            )
        for dimension, extent in zip(dimensions, node.shape):
            if dimension in LEGENDS:
                names = self.texts(node, LEGENDS[dimension])
                if len(names) != extent or tuple(names) != NAMES.get(name, tuple(names)):
                    raise self.refuse(
                        f"{name}: its attribute {LEGENDS[dimension]} is {_short(names)}, "
                        f"of {extent} columns; "
                        f"expected {', '.join(NAMES.get(name, ['a name for each']))}"
                    )
                continue
            place = "" if dimension in ("stage", "parameter") else name.split("/")[0]
            first, of = self.extents.setdefault((place, dimension), (extent, name))
            if extent != first and not (dimension in _ROWS and self.is_running()):
                raise self.refuse(
                    f"{name} has {extent} entries of {dimension}; expected {first}, as {of} has"
                )
        if name == "trace/actions/kind" and tuple(self.texts(node, "kinds")) != NAMES[name]:
            raise self.refuse(
                f"{name}: its attribute kinds is {_short(self.texts(node, 'kinds'))}; "
                f"expected {', '.join(NAMES[name])}"
            )

    def is_running(self) -> bool:
        """Returns whether the run may be writing, so that lengths may differ and the last rows
        may be fill values."""
        return int(numpy.ravel(self.file.attrs.get("complete", 0))[0]) != 1

    def stages(self) -> None:
        name = "model/stages"
        node = self.node(name, h5py.Dataset) if self.node("model", h5py.Group) is not None else None
        if node is None:
            return
        check_stored(node, self.path)
        if node.shape is None or node.ndim != 1 or node.dtype.names is None:
            raise self.refuse(
                f"{name} has the shape {node.shape} and the type {_short(node.dtype)}; "
                "expected a table with a row for each stage"
            )
        for member, (kind, _) in run_schema.STAGES.items():
            if (
                member not in node.dtype.names
                or node.dtype[member].kind not in _KINDS[kind.strip("<")[0]]
                or node.dtype[member].shape
            ):
                raise self.refuse(
                    f"{name} has no member {member} with {_WORDS[kind.strip('<')[0]]}"
                )
        units = [unit for _, unit in run_schema.STAGES.values()]
        if self.texts(node, "units") not in (
            units,
            [unit.replace("image", "window") for unit in units],
        ):
            raise self.refuse(
                f"{name} has the units {_short(self.texts(node, 'units'))}; "
                f"expected {', '.join(units)}"
            )
        self.dimensions(node, name, ("stage",))

    def places(self) -> None:
        """Checks the attribute with the device of each stage."""
        node = self.file.get("trace/actions/stage")
        if node is not None and "devices" in node.attrs:
            devices = self.attribute(node, "devices")
            if devices.ndim != 1 or devices.dtype.kind not in "iu" or (devices < 1).any():
                raise self.refuse(
                    f"trace/actions/stage: its attribute devices is {_short(devices)}; "
                    "expected a device, from 1, for each stage"
                )

    def attribute(self, node: h5py.HLObject, name: str) -> numpy.ndarray:
        try:
            return numpy.asarray(node.attrs[name])
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            where = "" if node.name == "/" else node.name.strip("/") + ": its "
            raise self.refuse(f"{where}attribute {name} cannot be read: {_short(error)}") from None

    def texts(self, node: h5py.HLObject, name: str, count: int | None = None) -> list[str]:
        """Returns an attribute that is a text or a list of texts."""
        where = "the" if node.name == "/" else node.name.strip("/") + ": its"
        if name not in node.attrs:
            raise self.refuse(f"{where.replace(': its', '')} has no attribute {name}")
        values = numpy.ravel(self.attribute(node, name)).tolist()
        if not all(isinstance(value, (str, bytes)) for value in values) or count not in (
            None,
            len(values),
        ):
            raise self.refuse(
                f"{where} attribute {name} is {_short(values)}; "
                f"expected {'a text' if count == 1 else 'texts'}"
            )
        return [
            value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
            for value in values
        ]


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def check(file: h5py.File, path: str) -> None:
    """Checks an open log against docs/hdf5-schema.md. Raises Unreadable, with one line that
    names the file and the object."""
    Check(file, path).run()


def check_stored(node: h5py.Dataset, path: str) -> None:
    """Refuses a data set whose values are in another file, and a data set with more values than the
    file can hold."""
    name = node.name.strip("/")
    if node.is_virtual or node.external:
        raise Unreadable(
            f"{path}: not readable as a run log: {name} keeps its values in another file; "
            "expected them in this one"
        )
    stored, deflate = node.id.get_storage_size(), 1032  # deflate makes at most so many bytes of one
    most = stored * (deflate if node.id.get_create_plist().get_nfilters() else 1)
    size = node.dtype.itemsize
    for extent in node.shape or ():
        size *= int(extent)
    if size > most or stored > h5py.h5i.get_file_id(node.id).get_filesize():
        raise Unreadable(
            f"{path}: not readable as a run log: {name} has the shape {node.shape}, "
            "which is more than the file can hold"
        )


def check_values(name: str, values: numpy.ndarray, path: str) -> None:
    """Checks values of a data set: no count, index or size is less than 0, and no time is less than
    0 or infinite. NaN means that a value is not known. Rows that the run is writing must have been
    cut."""
    kind, unit, _ = SETS.get(name, ("", "", ()))
    if kind.startswith("<i"):
        least = LEAST.get(name, 0)
        wrong = values < least
        expected = f"{least} or more"
    elif unit == "s":
        wrong, expected = (values < 0) | numpy.isinf(values), "a time of 0 or more"
    elif kind == "<f8" and name.startswith("probe/"):  # measures: cosines, and norms beside norms
        cosine = "cosine" in name
        wrong = (abs(values) > 1.001) if cosine else (values < 0) | (values > 1e300)
        expected = "-1 to 1" if cosine else "0 or more"
    else:
        return
    if wrong.any():
        place = (
            ", ".join(str(int(index)) for index in numpy.argwhere(wrong)[0])
            if numpy.ndim(values)
            else ""
        )
        raise Unreadable(
            f"{path}: not readable as a run log: {name}{f'[{place}]' if place else ''} is "
            f"{numpy.asarray(values)[wrong].ravel()[0]}; expected {expected}"
        )


def check_actions(columns: dict[str, numpy.ndarray], stages: int, path: str) -> None:
    """Checks the columns of /trace/actions together. stages: the number of stages, 0 if it is not
    known."""
    stage, kind = columns["stage"], columns["kind"]
    for name, wrong, expected in (
        ("kind", kind >= len(run_schema.KINDS), f"less than {len(run_schema.KINDS)}"),
        (
            "stage",
            (stage < 1) | (stage > (stages or 100000)),
            f"a stage from 1 to {stages or 100000}",
        ),
        ("end_ns", columns["end_ns"] < columns["start_ns"], "a time that is not before start_ns"),
    ):
        if wrong.any():
            row = int(numpy.flatnonzero(wrong)[0])
            raise Unreadable(
                f"{path}: not readable as a run log: trace/actions/{name}[{row}] is "
                f"{columns[name][row]}; expected {expected}"
            )


def filled(columns: dict[str, numpy.ndarray]) -> int:
    """Returns the number of rows, from the first, before the fill values of a run that is
    writing: -1 in an index."""
    indices = [
        columns[name] for name in ("microbatch", "epoch", "stage", "kind") if name in columns
    ]
    length = min((len(column) for column in columns.values()), default=0)
    for column in indices:
        written = numpy.flatnonzero(column[:length] != -1)
        length = int(written[-1]) + 1 if len(written) else 0
    return length
