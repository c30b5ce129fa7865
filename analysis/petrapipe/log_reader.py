# SPDX-License-Identifier: Apache-2.0
"""Reads parts of the logs of many runs, for list, compare, inspect and reach.

    with LogReader("runs/mine/run.h5") as log:
        config, loss = log.text("config"), log.column("train/loss", float)

Only what is asked for is read and checked, so that a log costs about a millisecond. Run (runs.py)
checks a whole log."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Any

from .errors import MissingModule, Unreadable
from .modules import modules

if TYPE_CHECKING:
    import h5py
    import numpy
else:
    h5py, numpy = modules("h5py", "numpy")

from . import seals
from .runs import READ_ERRORS, open_log

SCHEMA_VERSION = 1
DEFLATE = 1032  # deflate makes at most so many bytes of one
CLASSES = {int: h5py.h5t.INTEGER, float: h5py.h5t.FLOAT}
TYPES = {int: "int64", float: "float64"}


def reason_of(error: BaseException) -> str:
    """Returns why HDF5 failed: h5py has the innermost message in parentheses."""
    text = " ".join(str(error).split())
    start = text.find("(")
    return text[start + 1 : -1] if start >= 0 and text.endswith(")") else text


def check_file(path: str) -> None:
    """Raises Unreadable unless the path is an HDF5 file as petra wrote it, as far as its seal
    says."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable(f"{path}: not a regular file")
    except OSError as error:
        raise Unreadable(f"{path}: cannot open: {error.strerror}") from None
    with contextlib.suppress(MissingModule):  # the digest needs xxhash
        seals.check(path)
    if not h5py.is_hdf5(path):
        raise Unreadable(f"{path}: not an HDF5 file")


class LogReader:
    """An open log of a run; a context manager. What cannot be read, or is not what it should be,
    raises Unreadable with one line."""

    def __init__(self, path: str) -> None:
        self.path = path
        check_file(path)
        try:
            self.file = open_log(path)
        except READ_ERRORS as error:
            raise Unreadable(
                f"{path}: damaged or truncated HDF5 file: {reason_of(error)}"
            ) from None
        self.root = self.file.id
        try:
            self.check_schema()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def check_schema(self) -> None:
        if not h5py.h5a.exists(self.root, b"schema_version") or not self.has("train"):
            raise Unreadable(
                f"{self.path}: not the log of a run: expected the attribute schema_version and the"
                " group train"
            )
        version = self.whole("schema_version")
        if version != SCHEMA_VERSION:
            raise Unreadable(f"{self.path}: schema_version is {version}, expected {SCHEMA_VERSION}")

    # --- attributes ---

    def has_attribute(self, name: str) -> bool:
        return h5py.h5a.exists(self.root, name.encode())

    def attribute(self, name: str, kind: str) -> Any:
        """Returns an attribute with one value, whose type is "string" or "integer"."""
        try:
            value = numpy.asarray(self.file.attrs[name]) if self.has_attribute(name) else None
        except READ_ERRORS:
            raise Unreadable(f"{self.path}: attribute {name} cannot be read") from None
        kinds = "iu" if kind == "integer" else "OSU"
        if value is None or value.size != 1 or value.dtype.kind not in kinds:
            raise Unreadable(
                f"{self.path}: no attribute {name} of type {kind}; expected a file of this kind"
                " that petra wrote"
            )
        return value.ravel()[0]

    def text(self, name: str) -> str:
        """Returns an attribute of the root that is a text."""
        value = self.attribute(name, "string")
        return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)

    def optional_text(self, name: str) -> str | None:
        """Returns an attribute of the root that is a text; None if there is none."""
        return self.text(name) if self.has_attribute(name) else None

    def whole(self, name: str, default: int | None = None) -> int:
        """Returns an attribute of the root that is a whole number; `default`, unless that is None,
        if there is none."""
        if default is not None and not self.has_attribute(name):
            return default
        return int(self.attribute(name, "integer"))

    # --- data sets ---

    def has(self, name: str) -> bool:
        """Returns whether the log has a group or data set."""
        return self.link_of(name) is not None

    def link_of(self, name: str) -> Any:
        """Returns information about a link; None if there is none. The values may not be in another
        file."""
        links, found = self.root.links, None
        parts = name.encode().split(b"/")
        for count in range(1, len(parts) + 1):
            place = b"/".join(parts[:count])
            if not links.exists(place):
                return None
            found = links.get_info(place)
            if found.type == h5py.h5l.TYPE_EXTERNAL:
                file, _ = links.get_val(place)
                raise Unreadable(
                    f"{self.path}: /{place.decode()} is a link to another file"
                    f" ({file.decode(errors='surrogateescape')}); expected the values in this file"
                )
        return found

    def data_set(self, name: str, kind: type, rank: int) -> Any:
        """Returns a data set of int or float with this number of dimensions."""
        node = None
        if self.has(name):
            with contextlib.suppress(*READ_ERRORS):
                node = h5py.h5o.open(self.root, name.encode())
        if not isinstance(node, h5py.h5d.DatasetID):
            raise Unreadable(f"{self.path}: not the log of a run: no data set {name}")
        plist = node.get_create_plist()
        if plist.get_layout() == h5py.h5d.VIRTUAL:
            raise Unreadable(
                f"{self.path}: /{name} is a virtual data set, a view of others; expected a data set"
                " that contains its values"
            )
        if plist.get_external_count() > 0:
            other = plist.get_external(0)[0]
            raise Unreadable(
                f"{self.path}: /{name} keeps its values in another file"
                f" ({other.decode(errors='surrogateescape')}); expected them in this file"
            )
        if node.get_type().get_class() != CLASSES[kind] or len(node.shape or ()) != rank:
            raise Unreadable(f"{self.path}: not the log of a run: {name} has another type or rank")
        self.check_size(node, plist, name)
        return node

    def check_size(self, node: Any, plist: Any, name: str) -> None:
        stored, size = node.get_storage_size(), node.get_type().get_size()
        for extent in node.shape:
            size *= int(extent)
        most = stored * (DEFLATE if plist.get_nfilters() else 1)
        if size > most or stored > self.root.get_filesize():
            raise Unreadable(
                f"{self.path}: not the log of a run: {name} has more values than the file can hold"
            )

    def values(self, name: str, kind: type, rank: int = 1) -> numpy.ndarray:
        """Returns all values of a data set of int or float."""
        node = self.data_set(name, kind, rank)
        found = numpy.empty(node.shape, TYPES[kind])
        try:
            if found.size:
                node.read(h5py.h5s.ALL, h5py.h5s.ALL, found)
        except READ_ERRORS as error:
            last = name.rpartition("/")[2]
            raise Unreadable(f"{self.path}: {last} cannot be read: {reason_of(error)}") from None
        return found

    def columns(self, group: str, names: dict[str, type]) -> dict[str, numpy.ndarray]:
        """Returns columns of a group, cut to the shortest: a run may be writing them."""
        found = {name: self.values(f"{group}/{name}", kind) for name, kind in names.items()}
        length = min(map(len, found.values()))
        return {name: values[:length] for name, values in found.items()}
