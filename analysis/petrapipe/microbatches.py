# SPDX-License-Identifier: Apache-2.0
"""The microbatches of a run, read from an object of the user: a DataLoader or another iterable that
can be read repeatedly, a list, or a function of the number of a microbatch."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch

from .errors import Error
from .tensors import Streams, as_tuple, seeded


def moved(values: Any, device: torch.device) -> Any:
    """Returns values with their tensors on the device, and lists as tuples."""
    if isinstance(values, (tuple, list)):
        return tuple(moved(value, device) for value in values)
    if isinstance(values, dict):
        return {name: moved(value, device) for name, value in values.items()}
    return values.to(device) if isinstance(values, torch.Tensor) else values


def samples_of(values: Any) -> int:
    """Returns the number of samples of an input or a target."""
    while isinstance(values, (tuple, dict)) and values:
        values = values[0] if isinstance(values, tuple) else next(iter(values.values()))
    return int(values.shape[0]) if isinstance(values, torch.Tensor) and values.dim() else 1


def parts_of(data: Any) -> tuple[list, list[torch.Generator]]:
    """Returns the objects that determine the order of a DataLoader, or of an iterable around one:
    loader, samplers, data set; and the generators from which they draw, including the generator of
    torch."""
    parts: list = []
    waiting = [data]
    while waiting:
        part = waiting.pop(0)
        if part is not None and all(part is not one for one in parts):
            parts.append(part)
            waiting += [
                getattr(part, name, None)
                for name in ("iterable", "sampler", "batch_sampler", "dataset")
            ]
    found = [getattr(part, "generator", None) for part in parts]
    return parts, [
        torch.default_generator,
        *{id(one): one for one in found if isinstance(one, torch.Generator)}.values(),
    ]


def without_workers(data: Any) -> Any:
    """Returns data whose workers begin anew with each iteration, because the random numbers of
    persistent workers depend on everything that they have read."""
    loader = next(
        (part for part in parts_of(data)[0] if isinstance(part, torch.utils.data.DataLoader)), None
    )
    if loader is None or not loader.persistent_workers:
        return data
    other = copy.copy(loader)
    other.__dict__.update(persistent_workers=False, _iterator=None)
    return other


def is_stream(data: Any) -> bool:
    """Returns whether data are read from the beginning to the end, instead of by number."""
    kinds = (torch.utils.data.DataLoader, torch.utils.data.IterableDataset)
    return isinstance(data, kinds) or hasattr(data, "__iter__") and not hasattr(data, "__getitem__")


class Microbatches:
    """`length` is the number of microbatches until the data repeat; None if it is not known.
    `epoch` is the length of a pass through such a stream; without it a pass ends with the
    stream."""

    def __init__(
        self, data: Any, device: torch.device, seed: int, epoch: int | None = None
    ) -> None:
        self.data, self.device, self.seed = data, device, seed
        self.length = self._length()
        self.stream = not callable(data) and is_stream(data)
        self.pass_length = self.length or epoch
        self._place = self._begin = 0  # of the next microbatch of the iterator; of its first one
        self._iterator: Any = None
        self._passes = 0
        self._peeked: dict[int, tuple[Streams, Any]] = {}
        if self.stream and without_workers(data) is not data:
            warnings.warn(
                "data: its persistent workers begin anew with each pass, so that a resumed run"
                " reads the same samples",
                stacklevel=3,
            )

    def _length(self) -> int | None:
        data = self.data
        kind = f"data: is a {type(data).__name__}"
        if callable(data):
            return len(data) if hasattr(data, "__len__") else None
        if any(hasattr(part, "__next__") for part in (data, getattr(data, "iterable", None))):
            raise Error(
                f"{kind} that can be read only once; expected a DataLoader or a list, or a function"
                " of the number of the microbatch"
            )
        if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
            raise Error(
                f"{kind}; expected a DataLoader or a list, or a function of the number of the"
                " microbatch"
            )
        try:
            found = len(data)
        except TypeError:  # a stream
            if is_stream(data):
                return None
            raise Error(
                f"{kind}, which has no length; expected a DataLoader or a list, or a function of"
                " the number of the microbatch"
            ) from None
        if not found:
            raise Error(
                f"{kind} without a microbatch; expected at least one (with drop_last=True an"
                " incomplete one is left out)"
            )
        return found

    def __getitem__(self, m: int) -> tuple[Streams, Any]:
        """Returns the input, as a tuple, and the target of microbatch m, from 0, on the device."""
        values = self._read(m)
        if not isinstance(values, (tuple, list)) or len(values) != 2:
            length = f" of {len(values)}" if isinstance(values, (tuple, list)) else ""
            raise Error(
                f"data: microbatch {m} is a {type(values).__name__}{length}; expected (input,"
                " target)"
            )
        if values[1] is None:
            raise Error(
                f"data: microbatch {m} has the target None; expected a tensor: the input, if the"
                " loss needs no other"
            )
        return as_tuple(moved(values[0], self.device)), moved(values[1], self.device)

    def peek(self, m: int) -> tuple[Streams, Any]:
        """Returns a microbatch before the run, which will read it a second time; close() forgets
        it."""
        if m not in self._peeked:
            self._peeked[m] = self[m]
        return self._peeked[m]

    def close(self) -> None:
        """Ends the processes of a DataLoader, and forgets the microbatches that peek returned."""
        self._iterator, self._peeked = None, {}

    def _read(self, m: int) -> tuple:
        """Returns microbatch m in the form that the user provides."""
        if callable(self.data):
            return self.data(m)
        if self.stream:
            return self._next(m)
        return self.data[m % self.length]

    def _start(self, place: int) -> None:
        """Begins a pass with microbatch `place`. Objects with set_epoch receive the number of the
        pass: samplers that shuffle need it."""
        self._begin, self._passes = (
            place,
            place // self.pass_length if self.pass_length else self._passes + 1 if place else 0,
        )
        for part in parts_of(self.data)[0]:
            if callable(getattr(part, "set_epoch", None)):
                part.set_epoch(self._passes)
        self._iterator = iter(without_workers(self.data))

    def _next(self, m: int) -> tuple:
        """Returns microbatch m of a stream. Its random numbers depend on the seed and m, also if
        the loader or its sampler has a generator."""
        generators, length = parts_of(self.data)[1], self.pass_length
        if (
            self._iterator is None
            or self._place > m
            or length
            and self._place // length != m // length
        ):
            self._place, self._iterator = m - m % length if length else 0, None
        batch = None
        while self._place <= m:
            with seeded(hash((self.seed, 0, 0, self._place)), generators):
                if self._iterator is None:
                    self._start(self._place)
                batch = next(self._iterator, None)
                if batch is None and not length and self._place > self._begin:
                    self._start(self._place)
                    batch = next(self._iterator, None)
            if batch is None:
                raise Error(
                    f"data: the {type(self.data).__name__} ends after {self._place - self._begin}"
                    f" microbatches; expected {self._expected()}"
                )
            self._place += 1
        if length and self._place % length == 0:
            self._iterator = None
        return batch

    def _expected(self) -> str:
        if self.length:
            return f"{self.length}, which is its length"
        return (
            f"{self.pass_length}, the length of an epoch (epoch=)"
            if self.pass_length
            else "at least one"
        )
