# SPDX-License-Identifier: Apache-2.0
"""Reads runs of petra, for notebooks and scripts.

    import petra_runs
    run = petra_runs.Run("runs/mine")           # a folder, or its run.h5; also while the run continues
    run.config["method.name"], run.complete, run.stages
    run.epochs, run.losses, run.actions         # pandas.DataFrame, the units in .attrs["units"]
    run.peak_memory                             # pandas.DataFrame, stage by category, bytes
    cosine = run.probe("cosine/method_delayed") # Labelled: .values, .dims, .coords; .sel(stage=3), .mean("probe"), .to_xarray()
    run.array("memory/peak_bytes")              # any data set of the log, labelled

Needs h5py and numpy; only DataFrames need pandas, and only to_xarray() needs xarray (Debian: python3-h5py python3-pandas python3-xarray).
docs/hdf5-schema.md describes the contents of a run. No function here ends the process: an error raises petra_runs.Error with one line.
"""

import contextlib
import os
import re

# The program keeps the file open while it writes; a lock would exclude readers. This must be set before h5py is loaded, because it
# overrides the request for each file.
os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"

import h5py  # noqa: E402
import numpy  # noqa: E402

# The attribute that names the entries of a dimension with this name.
LEGENDS = {"category": "categories", "part": "parts", "kind": "kinds", "figure": "columns"}


class Error(ValueError):
    """A run lacks the requested data. `status` is the exit status of a script that ends with it (docs/adr/0004-exit-codes.md)."""

    status = 2


class Unreadable(Error):
    """A file is missing, or is not the log of a run."""

    status = 1


def open_log(path):
    """Opens an HDF5 file for reading, without a lock if this h5py can."""
    try:
        return h5py.File(path, "r", locking=False)
    except (TypeError, ValueError):  # an h5py before 3.5, or an HDF5 without this option
        return h5py.File(path, "r")


def text_attribute(node, name):
    """Returns an attribute as text, for any string type; "" if it is missing."""
    value = node.attrs.get(name, "")
    if hasattr(value, "ravel") and not isinstance(value, bytes):
        value = value.ravel()[0] if value.size else ""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def texts_attribute(node, name):
    """Returns an attribute that is a list of texts; [] if it is missing."""
    return [text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else str(text) for text in numpy.ravel(node.attrs.get(name, []))]


def unquoted(text):
    return text.strip().strip("\"'")


def read_config(text):
    """Returns an expanded config as a dictionary of dotted keys and texts. It reads block style, and a mapping in braces within one line."""
    values, path = {}, []
    for line in text.splitlines():
        match = re.match(r"( *)([\w.]+):(?: +(.*))?$", line)
        if not match:
            continue
        depth, rest = len(match.group(1)), (match.group(3) or "").strip()
        path = [entry for entry in path if entry[0] < depth] + [(depth, match.group(2))]
        key = ".".join(name for _, name in path)
        if rest.startswith("{"):
            values.update((f"{key}.{name}", unquoted(value)) for name, value in re.findall(r"([\w.]+): *(\[[^]]*\]|[^,}]*)", rest))
        elif rest:
            values[key] = unquoted(rest)
    return values


class Labelled:
    """An array whose dimensions have names and whose entries have coordinates: a small part of xarray.DataArray. to_xarray() makes one if xarray is
    installed. A coordinate belongs to the dimension of its name, or to that of `along`: an epoch belongs to "probe"."""

    def __init__(self, values, dims, coords=None, units="1", name="", along=None):
        self.values, self.dims, self.coords = numpy.asarray(values), tuple(dims), dict(coords or {})
        self.units, self.name, self.along = units, name, dict(along or {})

    def __repr__(self):
        extents = ", ".join(f"{dim}: {extent}" for dim, extent in zip(self.dims, self.values.shape))
        return f"<Labelled {self.name} ({extents}) in {self.units}>\n{self.values!r}"

    def _without(self, dim, values):
        coords = {name: places for name, places in self.coords.items() if self.along.get(name, name) != dim}
        return Labelled(values, [other for other in self.dims if other != dim], coords, self.units, self.name, self.along)

    def sel(self, **places):
        """Returns the part at these coordinates: sel(stage=3), sel(category="graph"). Raises Error if there is none."""
        result = self
        for dim, place in places.items():
            if dim not in result.dims:
                raise Error(f"{self.name}: has no dimension {dim}; expected one of {', '.join(result.dims)}")
            found = numpy.flatnonzero(result.coords[dim] == place)
            if len(found) == 0:
                raise Error(f"{self.name}: has no {dim} {place}; expected one of {', '.join(map(str, result.coords[dim]))}")
            result = result._without(dim, numpy.take(result.values, found[0], axis=result.dims.index(dim)))
        return result

    def mean(self, dim):
        """Returns the mean over a dimension without NaN; NaN if no value remains."""
        return self._without(dim, mean(self.values, self.dims.index(dim)))

    def to_xarray(self):
        coords = {name: (self.along.get(name, name), places) for name, places in self.coords.items()}
        return optional("xarray").DataArray(self.values, coords, self.dims, self.name, {"units": self.units})


def mean(values, axis=0):
    """Returns the mean over one dimension without NaN; NaN if no value remains."""
    finite = numpy.isfinite(values)
    count = finite.sum(axis=axis)
    sums = numpy.where(finite, values, 0.0).sum(axis=axis)
    return numpy.where(count > 0, sums / numpy.maximum(count, 1), numpy.nan)


def optional(name):
    """Loads a module that only a part of this module needs."""
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f"this needs the module {name} ({error}); expected it beside h5py, in Debian the package python3-{name}") from None


def log_path(place):
    """Returns the path of the log of a run: the file itself, or the one in the folder."""
    return os.path.join(place, "run.h5") if os.path.isdir(place) else place


class Run:
    """A run according to its log. Every attribute is read on access, from the current file."""

    def __init__(self, place):
        self.path = log_path(os.fspath(place))
        with self._open() as file:
            self.attributes = {name: text_attribute(file, name) for name in ("created", "command", "backend", "petra_version", "git_commit")}
            self.complete = int(file.attrs.get("complete", 0)) == 1
            self.epoch_microbatches = int(file.attrs.get("microbatches_per_epoch", 0))  # 0: unknown
            self.config = read_config(text_attribute(file, "config"))

    def __repr__(self):
        return f"<Run {self.path}: {self.config.get('method.name', '?')}, {'complete' if self.complete else 'not complete'}>"

    @contextlib.contextmanager
    def _open(self):
        try:
            with open_log(self.path) as file:
                yield file
        except (OSError, KeyError) as error:
            raise Unreadable(f"{self.path}: not readable as a run log: {error}") from None

    def has(self, name):
        """Returns whether the log has this group or data set."""
        with self._open() as file:
            return name in file

    def columns(self, group, names=None):
        """Returns the data sets of a group that have one dimension, cut to the shortest length, because a run may be writing them."""
        with self._open() as file:
            if group not in file:
                raise Error(f"{self.path}: has no {group}")
            found = file[group]
            names = names or [name for name in found if isinstance(found[name], h5py.Dataset) and found[name].ndim == 1]
            missing = [name for name in names if name not in found]
            if missing:
                raise Unreadable(f"{self.path}: not readable as a run log: no data set {group}/{missing[0]}")
            columns = {name: found[name][:] for name in names}
        length = min((len(column) for column in columns.values()), default=0)
        return {name: column[:length] for name, column in columns.items()}

    def is_simulated(self):
        """Whether petra simulate made the run; a rehearsal (cluster.stages with run.mode: execute) is not simulated."""
        return self.attributes["backend"] == "none: costs only"

    def clock(self):
        """The clock of the actions: "wall" in an executed run, otherwise "virtual"."""
        return "wall" if self.config.get("run.mode") == "execute" and not self.is_simulated() else "virtual"

    def microbatches_per_epoch(self):
        """The number in the log. If the log lacks it, the number of rows of the first epoch, which is complete as soon as a row of another epoch
        follows."""
        epochs = self.columns("train", ["epoch"])["epoch"]
        return self.epoch_microbatches or max(1, int(numpy.count_nonzero(epochs == epochs[:1])))

    def array(self, name):
        """Returns any data set as Labelled; stages count from 1, other dimensions count from 0 or have names."""
        with self._open() as file:
            if name not in file:
                raise Error(f"{self.path}: has no {name}")
            node = file[name]
            dims = texts_attribute(node, "DIMENSION_LABELS") or [f"dimension_{d}" for d in range(node.ndim)]
            coords = {}
            for dim, extent in zip(dims, node.shape):
                names = texts_attribute(node, LEGENDS[dim]) if dim in LEGENDS else []
                coords[dim] = numpy.array(names) if names else numpy.arange(extent) + (dim == "stage")
            return Labelled(node[()], dims, coords, text_attribute(node, "units") or "1", name)

    def frame(self, group, names=None):
        """Returns columns of a group as a pandas.DataFrame, with their units in .attrs["units"]."""
        frame = optional("pandas").DataFrame(self.columns(group, names))
        with self._open() as file:
            frame.attrs["units"] = {name: text_attribute(file[group][name], "units") for name in frame.columns}
        return frame

    @property
    def epochs(self):
        return self.frame("epoch")

    @property
    def losses(self):
        """The losses, one row per microbatch."""
        return self.frame("train")

    def action_columns(self):
        """The columns of /trace/actions; `kind` as letters: F, B, W, U, E."""
        if not self.has("trace/actions"):
            raise Error(f"{self.path}: no actions; expected a run with run.trace_actions: true")
        columns = self.columns("trace/actions")
        with self._open() as file:
            letters = numpy.array(texts_attribute(file["trace/actions/kind"], "kinds"))
        whole = columns["kind"] >= 0  # the last rows of a running run may be fill values
        columns = {name: column[whole] for name, column in columns.items()}
        columns["kind"] = letters[columns["kind"]]
        return columns

    @property
    def devices(self):
        """The device of each stage, from 1, of a run that recorded its actions; [] if every device has one stage."""
        with self._open() as file:
            return file["trace/actions/stage"].attrs.get("devices", []) if "trace/actions" in file else []

    def stage_labels(self, stages):
        """Labels for stages: "5", or "5 (device 1)" if devices have several."""
        devices = self.devices
        return [f"{stage} (device {devices[stage - 1]})" if 0 < stage <= len(devices) else str(stage) for stage in stages]

    @property
    def actions(self):
        return optional("pandas").DataFrame(self.action_columns())

    @property
    def stages(self):
        """Names of the stages, from the first on; [] for a run without a model."""
        with self._open() as file:
            rows = file["model/stages"][:] if "model/stages" in file else numpy.zeros(0, dtype=[("name", "S1")])
        return [name.decode("utf-8", "backslashreplace") for name in rows["name"]]

    @property
    def peak_memory(self):
        """Maximum bytes of each stage, by category and in total; the maxima need not be at the same moment."""
        pandas, peaks = optional("pandas"), self.array("memory/peak_bytes")
        frame = pandas.DataFrame(peaks.values, index=pandas.Index(peaks.coords["stage"], name="stage"), columns=peaks.coords["category"])
        frame["total"] = self.array("memory/total_peak_bytes").values
        return frame

    def probe(self, name):
        """Returns a figure of /probe such as "cosine/method_delayed", with dimensions (probe, stage) and the coordinates `epoch` and `microbatch` of
        each probe."""
        if not self.has("probe/epoch"):
            raise Error(f"{self.path}: no probes in it; expected a run with probe.per_epoch > 0")
        found = self.array("probe/" + name)
        dim = found.dims[0]
        with self._open() as file:
            rows = {place: file["probe/" + place][:] for place in ("epoch", "microbatch") if "probe/" + place in file}
        length = min(len(found.values), *map(len, rows.values()))  # the run may be writing: all are cut to the shortest
        found.values, found.coords[dim] = found.values[:length], found.coords[dim][:length]
        for place, values in rows.items():
            found.coords[place], found.along[place] = values[:length], dim
        return found
