# SPDX-License-Identifier: Apache-2.0
"""Reads runs of petra, for notebooks and scripts.

    import petrapipe
    run = petrapipe.Run("runs/mine") # a folder, or its run.h5; also while the run continues
    run.config["method.name"], run.complete, run.stages
    run.epochs, run.losses, run.actions         # pandas.DataFrame, the units in .attrs["units"]
    run.peak_memory                             # pandas.DataFrame, stage by category, bytes
    cosine = run.probe("cosine/method_delayed") # Labelled: .values, .dims, .coords; .sel(stage=3),
        .mean("probe"), .to_xarray()
    run.array("memory/peak_bytes")              # any data set of the log, labelled

Needs h5py and numpy; only DataFrames need pandas, and only to_xarray() needs xarray (Debian:
python3-h5py python3-pandas python3-xarray). docs/hdf5-schema.md describes the contents of a run.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .configs import read_config
from .errors import Error, MissingModule, Unreadable
from .modules import modules

if TYPE_CHECKING:
    import h5py
    import numpy
    import pandas
    import xarray
else:
    h5py, numpy = modules("h5py", "numpy")

from . import log_check, run_schema, seals
from .log_check import LEGENDS

# Texts of the root. The last four describe in words what a run in PyTorch trains, and how; other
# logs lack them.
ATTRIBUTES = (
    "created",
    "command",
    "backend",
    "petra_version",
    "git_commit",
    *log_check.OPTIONAL_TEXTS,
)
# Keys of the config from which readers compute.
WHOLE_KEYS = (
    "method.accumulate",
    "method.chunks",
    "data.batch",
    "cluster.stages",
    "cluster.replicas",
)
# The errors that h5py raises if it cannot read an object.
READ_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError)


def open_log(path: str) -> h5py.File:
    """Opens an HDF5 file for reading, without a lock if this h5py can."""
    try:
        return h5py.File(path, "r", locking=False)
    except (TypeError, ValueError):  # an h5py before 3.5, or an HDF5 without this option
        return h5py.File(path, "r")
    except OSError as error:
        if "locking flag" not in str(error):
            raise
        return h5py.File(path, "r")  # this process has it open with a lock


def _check_seal(path: str) -> None:
    """Compares a log with its seal (docs/hdf5-schema.md), if this Python has xxhash."""
    with contextlib.suppress(MissingModule):
        seals.check(path)


@contextlib.contextmanager
def opened(path: str, checked: bool = False) -> Iterator[h5py.File]:
    """Opens the log of a run and checks it (log_check.py), unless it was `checked`. Raises
    Unreadable with one line if something in it cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable(f"{path}: not readable as a run log: not a regular file")
        if not checked:
            _check_seal(path)
        with open_log(path) as file:
            if not checked:
                log_check.check(file, path)
            yield file
    except READ_ERRORS as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Unreadable(
            f"{path}: not readable as a run log: {' '.join(str(reason).split())}"
        ) from None


def text_attribute(node: h5py.Group | h5py.Dataset, name: str) -> str:
    """Returns an attribute as text, for any string type; "" if it is missing."""
    value = node.attrs.get(name, "")
    if hasattr(value, "ravel") and not isinstance(value, bytes):
        value = value.ravel()[0] if value.size else ""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def texts_attribute(node: h5py.Group | h5py.Dataset, name: str) -> list[str]:
    """Returns an attribute that is a list of texts; [] if it is missing."""
    return [
        text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text)
        for text in numpy.ravel(node.attrs.get(name, []))
    ]


class Labelled:
    """An array whose dimensions have names and whose entries have coordinates: a small part of
    xarray.DataArray. to_xarray() makes one if xarray is installed. `values` has one axis for each
    of `dims`, and a coordinate has one entry for each index of its dimension: the dimension of its
    name, or the dimension in `along` (an epoch belongs to "probe").

    >>> coords = {"probe": numpy.arange(2), "stage": numpy.array([1, 2])}
    >>> cosine = Labelled([[0.5, 1.0], [0.7, numpy.nan]], ["probe", "stage"], coords)
    >>> cosine.sel(stage=1).values.tolist(), cosine.mean("probe").values.tolist()
    ([0.5, 0.7], [0.6, 1.0])
    """

    def __init__(
        self,
        values: Any,
        dims: Sequence[str],
        coords: Mapping[str, numpy.ndarray] | None = None,
        units: str = "1",
        name: str = "",
        along: Mapping[str, str] | None = None,
    ) -> None:
        self.values, self.dims, self.coords = numpy.asarray(values), tuple(dims), dict(coords or {})
        self.units, self.name, self.along = units, name, dict(along or {})

    def __repr__(self) -> str:
        extents = ", ".join(f"{dim}: {extent}" for dim, extent in zip(self.dims, self.values.shape))
        return f"<Labelled {self.name} ({extents}) in {self.units}>\n{self.values!r}"

    def _without(self, dim: str, values: numpy.ndarray) -> Labelled:
        coords = {
            name: places
            for name, places in self.coords.items()
            if self.along.get(name, name) != dim
        }
        return Labelled(
            values,
            [other for other in self.dims if other != dim],
            coords,
            self.units,
            self.name,
            self.along,
        )

    def sel(self, **places: Any) -> Labelled:
        """Returns the part at these coordinates: sel(stage=3), sel(category="graph"). Raises Error
        if there is no such part."""
        result = self
        for dim, place in places.items():
            if dim not in result.dims:
                raise Error(
                    f"{self.name}: has no dimension {dim}; expected one of {', '.join(result.dims)}"
                )
            found = numpy.flatnonzero(result.coords[dim] == place)
            if len(found) == 0:
                raise Error(
                    f"{self.name}: has no {dim} {place}; expected one of"
                    f" {', '.join(map(str, result.coords[dim]))}"
                )
            result = result._without(
                dim, numpy.take(result.values, found[0], axis=result.dims.index(dim))
            )
        return result

    def mean(self, dim: str) -> Labelled:
        """Returns the mean over a dimension without NaN; NaN if no value remains."""
        return self._without(dim, mean(self.values, self.dims.index(dim)))

    def to_xarray(self) -> xarray.DataArray:
        coords = {
            name: (self.along.get(name, name), places) for name, places in self.coords.items()
        }
        (xarray,) = modules("xarray")
        return xarray.DataArray(self.values, coords, self.dims, self.name, {"units": self.units})


def mean(values: numpy.ndarray, axis: int = 0) -> numpy.ndarray:
    """Returns the mean over one dimension without NaN; NaN if no value remains. The result lacks
    this dimension.

    >>> mean(numpy.array([[1.0, numpy.nan], [3.0, numpy.nan]])).tolist()
    [2.0, nan]
    """
    finite = numpy.isfinite(values)
    count = finite.sum(axis=axis)
    sums = numpy.where(finite, values, 0.0).sum(axis=axis)
    return numpy.where(count > 0, sums / numpy.maximum(count, 1), numpy.nan)


def log_path(place: str) -> str:
    """Returns the path of the log of a run: the file itself, or the file in the folder."""
    return os.path.join(place, "run.h5") if os.path.isdir(place) else place


class Run:
    """A run according to its log. Every attribute is read on access, from the current file."""

    def __init__(self, place: str | os.PathLike) -> None:
        self.path = log_path(os.fspath(place))
        self._checked: tuple[int, ...] | None = None  # the file that was checked
        with self._open() as file:
            self.attributes = {name: text_attribute(file, name) for name in ATTRIBUTES}
            self.complete = int(numpy.ravel(file.attrs.get("complete", 0))[0]) == 1
            # 0 if it is not known.
            self.epoch_microbatches = int(
                numpy.ravel(file.attrs.get("microbatches_per_epoch", 0))[0]
            )
            self.config = read_config(text_attribute(file, "config"))
        for key in WHOLE_KEYS:
            self.whole_number(key)

    def __repr__(self) -> str:
        return (
            f"<Run {self.path}: {self.config.get('method.name', '?')},"
            f" {'complete' if self.complete else 'not complete'}>"
        )

    @contextlib.contextmanager
    def _open(self) -> Iterator[h5py.File]:
        """Opens the log; checks it again if it has changed."""
        found = None
        with contextlib.suppress(OSError):
            status = os.stat(self.path)
            found = status.st_ino, status.st_size, status.st_mtime_ns
        with opened(self.path, checked=found is not None and found == self._checked) as file:
            self._checked = found
            yield file

    def whole_number(self, key: str, default: int = 0) -> int:
        """Returns the value of a key of the config that is a whole number; `default` if the config
        lacks the key."""
        text = self.config.get(key, str(default))
        if not re.fullmatch("[0-9]{1,18}", text):
            raise Unreadable(
                f"{self.path}: not readable as a run log: in its config, {key} is {text!r};"
                " expected a whole number"
            )
        return int(text)

    def has(self, name: str) -> bool:
        """Returns whether the log has this group or data set."""
        with self._open() as file:
            return name in file

    def columns(self, group: str, names: Sequence[str] | None = None) -> dict[str, numpy.ndarray]:
        """Returns the data sets of a group that have one dimension, or the data sets with these
        names, by name. All have the shape (rows,): they are cut to the shortest length and before
        fill values, because a run may be writing them. docs/hdf5-schema.md has their units."""
        with self._open() as file:
            found = file.get(group)
            if not isinstance(found, h5py.Group):
                raise Error(f"{self.path}: has no group {group}")
            if not names:
                known = {name for name in found if f"{group}/{name}" in log_check.SETS}
                names = [
                    name
                    for name in found
                    if isinstance(found[name], h5py.Dataset)
                    and found[name].ndim == 1
                    and (name in known or not known)
                ]
            missing = [name for name in names if not isinstance(found.get(name), h5py.Dataset)]
            if missing:
                raise Error(f"{self.path}: has no data set {group}/{missing[0]}")
            for name in names:
                log_check.check_stored(found[name], self.path)
            columns = {name: found[name][:] for name in names}
        length = log_check.filled(columns)
        columns = {name: column[:length] for name, column in columns.items()}
        for name, column in columns.items():
            log_check.check_values(f"{group}/{name}", column, self.path)
        return columns

    def settings(self) -> dict[str, str]:
        """Returns the settings on which the results of the run depend, by key: its config; in
        PyTorch the lines of `training` instead of the keys of optim, model and device, which such a
        run does not use. Keys that end in "seed" are seeds."""
        lines = [line.partition(": ") for line in self.attributes["training"].splitlines()]
        unused = ("optim.", "model.", "device.") if lines else ()
        return {
            **{key: value for key, value in self.config.items() if not key.startswith(unused)},
            **{key: value for key, _, value in lines},
        }

    def is_simulated(self) -> bool:
        """Whether petra simulate made the run."""
        return self.attributes["backend"] == "none: costs only"

    def mode(self) -> str:
        """How it ran: "simulate", "pytorch", or its run.mode."""
        pytorch = self.attributes["backend"].startswith("PyTorch ")
        return (
            "simulate"
            if self.is_simulated()
            else "pytorch"
            if pytorch
            else self.config.get("run.mode", "?")
        )

    def clock(self) -> str:
        """The clock of the actions: "wall" in an executed run, otherwise "virtual"."""
        return (
            "wall"
            if self.config.get("run.mode") == "execute" and not self.is_simulated()
            else "virtual"
        )

    def microbatches_per_epoch(self) -> int:
        """The number in the log. If the log lacks it, the number of rows of the first epoch, which
        is complete as soon as a row of another epoch follows."""
        epochs = self.columns("train", ["epoch"])["epoch"]
        return self.epoch_microbatches or max(1, int(numpy.count_nonzero(epochs == epochs[:1])))

    def array(self, name: str) -> Labelled:
        """Returns any data set as Labelled; stages count from 1, other dimensions count from 0 or
        have names."""
        with self._open() as file:
            node = file.get(name)
            if not isinstance(node, h5py.Dataset):
                raise Error(f"{self.path}: has no data set {name}")
            dims = texts_attribute(node, "DIMENSION_LABELS") or [
                f"dimension_{d}" for d in range(node.ndim)
            ]
            coords = {}
            for dim, extent in zip(dims, node.shape):
                names = texts_attribute(node, LEGENDS[dim]) if dim in LEGENDS else []
                coords[dim] = (
                    numpy.array(names) if names else numpy.arange(extent) + (dim == "stage")
                )
            log_check.check_stored(node, self.path)
            values = node[()]
            log_check.check_values(name, values, self.path)
            return Labelled(values, dims, coords, text_attribute(node, "units") or "1", name)

    def frame(self, group: str, names: Sequence[str] | None = None) -> pandas.DataFrame:
        """Returns columns of a group as a pandas.DataFrame, with their units in .attrs["units"]."""
        (pandas,) = modules("pandas")
        frame = pandas.DataFrame(self.columns(group, names))
        with self._open() as file:
            frame.attrs["units"] = {
                name: text_attribute(file[group][name], "units") for name in frame.columns
            }
        return frame

    @property
    def epochs(self) -> pandas.DataFrame:
        """The columns of /epoch, one row per epoch."""
        return self.frame("epoch")

    @property
    def losses(self) -> pandas.DataFrame:
        """The losses, one row per microbatch."""
        return self.frame("train")

    def action_columns(self) -> dict[str, numpy.ndarray]:
        """The columns of /trace/actions, each of shape (actions,): times in ns, stages from 1,
        microbatches from 0, `kind` as letters: F, B, W, U, E."""
        if not self.has("trace/actions"):
            raise Error(f"{self.path}: no actions; expected a run with run.trace_actions: true")
        columns, stages = self.columns("trace/actions"), len(self.stages) or len(self.devices)
        log_check.check_actions(columns, stages, self.path)
        columns["kind"] = numpy.array(run_schema.KINDS)[columns["kind"]]
        return columns

    @property
    def devices(self) -> Sequence[int]:
        """The device of each stage, from 1, of a run that recorded its actions; [] if every device
        has one stage."""
        with self._open() as file:
            return (
                numpy.ravel(file["trace/actions/stage"].attrs.get("devices", [])).tolist()
                if "trace/actions" in file
                else []
            )

    def stage_labels(self, stages: Sequence[int]) -> list[str]:
        """Labels for stages: "5", or "5 (device 1)" if devices have several."""
        devices = self.devices
        return [
            f"{stage} (device {devices[stage - 1]})" if 0 < stage <= len(devices) else str(stage)
            for stage in stages
        ]

    @property
    def actions(self) -> pandas.DataFrame:
        """The actions, one row each: action_columns as a DataFrame."""
        (pandas,) = modules("pandas")
        return pandas.DataFrame(self.action_columns())

    @property
    def stages(self) -> list[str]:
        """Names of the stages, from the first on; [] for a run without a model."""
        with self._open() as file:
            rows = (
                file["model/stages"][:]
                if "model/stages" in file
                else numpy.zeros(0, dtype=[("name", "S1")])
            )
        return [name.decode("utf-8", "backslashreplace") for name in rows["name"]]

    @property
    def peak_memory(self) -> pandas.DataFrame:
        """Maximum bytes of each stage, by category and in total; the maxima need not be at the same
        moment."""
        (pandas,) = modules("pandas")
        peaks = self.array("memory/peak_bytes")
        frame = pandas.DataFrame(
            peaks.values,
            index=pandas.Index(peaks.coords["stage"], name="stage"),
            columns=peaks.coords["category"],
        )
        frame["total"] = self.array("memory/total_peak_bytes").values
        return frame

    def probe(self, name: str) -> Labelled:
        """Returns a figure of /probe such as "cosine/method_delayed", with dimensions (probe,
        stage) and the coordinates `epoch` and `microbatch` of each probe."""
        if not self.has("probe/epoch"):
            raise Error(f"{self.path}: no probes in it; expected a run with probe.per_epoch > 0")
        found = self.array("probe/" + name)
        dim, rows = found.dims[0], self.columns("probe", ["epoch", "microbatch"])
        # The run may be writing: all are cut to the shortest.
        length = min(len(found.values), len(rows["epoch"]))
        found.values, found.coords[dim] = found.values[:length], found.coords[dim][:length]
        for place, values in rows.items():
            found.coords[place], found.along[place] = values[:length], dim
        return found


def run_names(paths: Sequence[str]) -> list[str]:
    """Names runs by their folders (the value of --output), or by their files if these are not
    called run.h5, with as many parent folders as are needed to distinguish them.

    >>> run_names(["runs/a/run.h5", "runs/b/run.h5", "old/b/run.h5"])
    ['a', 'runs/b', 'old/b']
    """
    parts = []
    for path in paths:
        folder, name = os.path.split(os.path.abspath(path))
        parts.append(
            folder.split(os.sep)
            if name == "run.h5"
            else [*folder.split(os.sep), os.path.splitext(name)[0]]
        )
    taken = [1] * len(paths)
    while True:
        names = ["/".join(part[-count:]) for part, count in zip(parts, taken)]
        more = [
            min(count + 1, len(part)) if names.count(name) > 1 else count
            for name, part, count in zip(names, parts, taken)
        ]
        if more == taken:
            return names
        taken = more
