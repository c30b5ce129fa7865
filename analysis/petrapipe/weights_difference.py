# SPDX-License-Identifier: Apache-2.0
"""Two files of weights, tensor by tensor and bit by bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy
from h5py import h5d, h5g, h5o, h5s, h5t

from .guard import guarded
from .hdf5_file import ERRORS, File, text_of

GROUP = "/parameters"
FIRST_BYTES = 63  # of the name of the first tensor that differs


@dataclass
class Difference:
    """How two files differ. A tensor differs if its type, shape or bits differ in the second file,
    or if the second file lacks it."""

    tensors: int  # of the first file
    differing: int = 0  # of these
    shapes: int = 0  # of those that differ: another shape, or only in the first file
    more: int = 0  # tensors that only the second file has
    first: str = ""  # name of the first that differs
    largest: float = 0.0  # |a - b| over tensors of equal shape; not finite if a value is not

    @property
    def equal(self) -> bool:
        return self.differing + self.more == 0


class WeightsFile(File):
    """An open file of weights."""

    def tensors(self) -> dict[str, numpy.ndarray]:
        """Returns all tensors, in the order of their names. A tensor with two names occurs
        twice."""
        group = h5g.open(self.file, GROUP.encode()) if self.has(GROUP) else None
        if group is None:
            raise self.refuse(f"not a weights file: no group {GROUP}")
        names: list[bytes] = []
        try:
            group.links.visit(names.append)
        except ERRORS:
            raise self.refuse(f"{GROUP} cannot be listed") from None
        found = {}
        for name in map(text_of, names):
            if self.is_data_set(f"{GROUP}/{name}"):
                found[name] = self.values(f"{GROUP}/{name}")
        return found

    def is_data_set(self, name: str) -> bool:
        try:
            place = name.encode("utf-8", "surrogateescape")
            return h5o.get_info(self.file, place).type == h5o.TYPE_DATASET
        except ERRORS:
            raise self.refuse(f"{name} cannot be opened") from None

    def values(self, name: str) -> numpy.ndarray:
        node = self.data_set(name, whole=True)
        if not isinstance(node, h5d.DatasetID):
            raise self.refuse(f"{name} cannot be opened")
        kind, extent = node.get_type(), node.get_space().get_simple_extent_dims()
        if kind.get_class() != h5t.FLOAT or not self.can_hold(node, extent, kind.get_size()):
            raise self.refuse(f"{name} is not a tensor of floating-point numbers")
        values = numpy.empty(extent, "f4" if kind.get_size() == 4 else "f8")
        try:
            if values.size:
                node.read(h5s.ALL, h5s.ALL, values)
        except ERRORS:
            raise self.refuse(f"{name} cannot be read") from None
        return values


def tensors_of(path: str) -> dict[str, numpy.ndarray]:
    with WeightsFile(path) as file:
        return file.tensors()


def same_bits(a: numpy.ndarray, b: numpy.ndarray) -> bool:
    """Returns whether two tensors have one type, one shape and equal bits.

    >>> same_bits(numpy.zeros(2), numpy.zeros(2)), same_bits(numpy.zeros(2), -numpy.zeros(2))
    (True, False)
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    whole = f"u{a.dtype.itemsize}"
    return bool((a.reshape(-1).view(whole) == b.reshape(-1).view(whole)).all())


def difference_of(a: Mapping[str, numpy.ndarray], b: Mapping[str, numpy.ndarray]) -> Difference:
    """Compares tensors by their names.

    >>> difference_of({"w": numpy.zeros(2)}, {"w": numpy.array([0, 0.5]), "v": numpy.zeros(1)})
    Difference(tensors=1, differing=1, shapes=0, more=1, first='w', largest=0.5)
    """
    found = Difference(len(a), more=len(b.keys() - a.keys()))
    for name, mine in a.items():
        other = b.get(name)
        if other is not None and same_bits(mine, other):
            continue
        found.differing += 1
        found.first = found.first or name
        if other is None or other.shape != mine.shape:
            found.shapes += 1
        elif mine.size and not math.isnan(found.largest):
            with numpy.errstate(all="ignore"):
                most = float(numpy.abs(mine.astype("f8") - other.astype("f8")).max())
            found.largest = most if math.isnan(most) else max(found.largest, most)
    return found


def compare_weights(a: str, b: str) -> Difference:
    """Compares two files of weights. Raises Unreadable if a file cannot be read."""
    found = difference_of(guarded(a, tensors_of), guarded(b, tensors_of))
    found.first = text_of(found.first.encode("utf-8", "surrogateescape")[:FIRST_BYTES])
    return found
