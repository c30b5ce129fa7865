# SPDX-License-Identifier: Apache-2.0
"""HDF5 files of petra, read by h5py's low-level functions: a thousand logs take seconds.

Nothing is read from another file, and no data set has more values than the file can hold. The lines
of the errors are the same as in the program (src/base/hdf5.c, src/io/hdf5_file.c)."""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import numpy
from h5py import h5a, h5d, h5f, h5l, h5o, h5p, h5s, h5t

from .errors import Unreadable

ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, AttributeError)
DEFLATE_MOST = 1032  # deflate makes at most so many bytes of one
TEXT_MOST_BYTES = 1 << 24
Self = TypeVar("Self", bound="File")


def reason_of(error: Exception) -> str:
    """Returns the innermost message of HDF5: "Can't open file (truncated file)" has it in brackets.

    >>> reason_of(OSError("Unable to open file (truncated file: eof = 4000)"))
    'truncated file: eof = 4000'
    """
    text = " ".join(str(error).strip("'\"").split())
    found = re.search(r"\((.*)\)$", text)
    return found.group(1) if found else text or "unknown HDF5 error"


class File:
    """An open file; a context manager. Every refusal is one line that names the file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = self.open()
        self.size = self.file.get_filesize()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def refuse(self, words: str) -> Unreadable:
        return Unreadable(f"{self.path}: {words}")

    def open(self) -> h5f.FileID:
        name = self.path.encode("utf-8", "surrogateescape")
        if not h5f.is_hdf5(name):
            raise self.refuse("not an HDF5 file")
        access = h5p.create(h5p.FILE_ACCESS)
        access.set_fclose_degree(h5f.CLOSE_STRONG)
        try:
            file = h5f.open(name, h5f.ACC_RDONLY, access)
        except ERRORS as error:
            if "h5clear" in str(error):
                raise self.refuse(
                    "is marked as open for writing: its writer is still running, or was killed; "
                    "after a kill, `h5clear -s` makes the file readable"
                ) from None
            raise self.refuse(f"damaged or truncated HDF5 file: {reason_of(error)}") from None
        try:
            self.check_links(file)
        except Exception:
            file.close()
            raise
        return file

    def check_links(self, file: h5f.FileID) -> None:
        """Refuses a link to another file."""

        def foreign(name: bytes, link: Any) -> bytes | None:
            return None if link.type in (h5l.TYPE_HARD, h5l.TYPE_SOFT) else name

        try:
            name = file.links.visit(foreign, info=True)
            other = b"of an unknown kind"
            if name is not None and file.links.get_info(name).type == h5l.TYPE_EXTERNAL:
                other = file.links.get_val(name)[0]
        except ERRORS:
            raise self.refuse("damaged HDF5 file: its links cannot be listed") from None
        if name is not None:
            raise self.refuse(
                f"/{text_of(name)} is a link to another file ({text_of(other)}); expected the"
                " values in this file"
            )

    def has(self, name: str) -> bool:
        """Returns whether there is an object of this name."""
        try:
            return self.file.links.exists(name.encode())
        except ERRORS:
            return False

    # --- attributes ---

    def attribute(self, name: str, kind: int) -> tuple[h5a.AttrID, h5t.TypeID] | None:
        """Returns an attribute with one value of this class, and its type."""
        if not h5a.exists(self.file, name.encode()):
            return None
        attribute = h5a.open(self.file, name.encode())
        found = attribute.get_type()
        if attribute.get_space().get_simple_extent_npoints() != 1 or found.get_class() != kind:
            return None
        return attribute, found

    def text(self, name: str) -> str:
        found = self.attribute(name, h5t.STRING)
        if not found:
            raise self.refuse(
                f"no attribute {name} of type string; expected a file of this kind that petra wrote"
            )
        attribute, kind = found
        if not kind.is_variable_str() and kind.get_size() > TEXT_MOST_BYTES:
            raise self.refuse(
                f"attribute {name} of {kind.get_size()} bytes; expected at most {TEXT_MOST_BYTES}"
            )
        try:
            value = numpy.empty((), kind.dtype)
            attribute.read(value)
        except ERRORS:
            raise self.refuse(f"attribute {name} cannot be read") from None
        value = value[()]
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
        return text_of(data.split(b"\0", 1)[0])

    def integer(self, name: str, kind: str) -> int:
        found = self.attribute(name, h5t.INTEGER)
        if not found:
            raise self.refuse(
                f"no attribute {name} of type integer; expected a file of this kind that petra"
                " wrote"
            )
        value = numpy.zeros((), kind)
        try:
            found[0].read(value)
        except ERRORS:
            raise self.refuse(f"attribute {name} cannot be read") from None
        return int(value)

    def integer_or_zero(self, name: str, kind: str) -> int:
        return self.integer(name, kind) if h5a.exists(self.file, name.encode()) else 0

    # --- data sets ---

    def data_set(self, name: str, whole: bool = False) -> h5d.DatasetID | None:
        """Opens a data set whose values are in this file; None if there is none. `whole`: all of
        its values must have been written."""
        try:
            node = h5o.open(self.file, name.encode("utf-8", "surrogateescape"))
        except ERRORS:
            return None
        if not isinstance(node, h5d.DatasetID):
            return None
        full = name if name.startswith("/") else f"/{name}"
        try:
            space, properties = node.get_space(), node.get_create_plist()
        except ERRORS:
            raise self.refuse(f"{full}: damaged data set") from None
        if properties.get_layout() == h5d.VIRTUAL:
            raise self.refuse(
                f"{full} is a virtual data set, a view of others; expected a data set that contains"
                " its values"
            )
        if properties.get_external_count() > 0:
            other = text_of(properties.get_external(0)[0])
            raise self.refuse(
                f"{full} keeps its values in another file ({other}); expected them in this file"
            )
        if space.get_simple_extent_type() == h5s.NULL:
            raise self.refuse(f"{full} has no values (a null dataspace)")
        if whole and not is_written(node, space, properties):
            parts = " in full: parts of it are missing" if node.get_storage_size() else ""
            raise self.refuse(f"{full} was never written{parts}")
        return node

    def can_hold(self, node: h5d.DatasetID, extent: tuple[int, ...], value_bytes: int) -> bool:
        """Returns whether the file can have all values of a data set."""
        stored = node.get_storage_size()
        most = stored * (DEFLATE_MOST if node.get_create_plist().get_nfilters() else 1)
        return stored <= self.size and math.prod(extent) * value_bytes <= most


def is_written(node: h5d.DatasetID, space: h5s.SpaceID, properties: h5p.PropDCID) -> bool:
    """Returns whether all values of a data set have been written."""
    layout = properties.get_layout()
    if space.get_simple_extent_npoints() == 0 or layout == h5d.COMPACT:
        return True
    if layout == h5d.CHUNKED:
        chunks = zip(space.get_simple_extent_dims(), properties.get_chunk())
        return node.get_num_chunks(space) >= math.prod(
            -(-extent // chunk) for extent, chunk in chunks
        )
    return node.get_storage_size() > 0 and node.get_offset() is not None


def text_of(data: bytes | str) -> str:
    """Returns the text of bytes, even if they are not all UTF-8."""
    return data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
