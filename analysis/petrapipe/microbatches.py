# SPDX-License-Identifier: Apache-2.0
"""The microbatches of a run, read from what a user has: a DataLoader, a list, or a function of the number of a microbatch."""

from __future__ import annotations

from typing import Any

import torch

from .errors import Error
from .stage import Streams, as_tuple, seeded


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


class Microbatches:
    """`length` is the number of microbatches until the data repeat; None for a function."""

    def __init__(self, data: Any, device: torch.device, seed: int) -> None:
        self.data, self.device, self.seed = data, device, seed
        self.length = self._length()
        self._place = 0  # of the next microbatch of the iterator
        self._iterator: Any = None
        self._peeked: dict[int, tuple[Streams, Any]] = {}

    def _length(self) -> int | None:
        if callable(self.data):
            return len(self.data) if hasattr(self.data, "__len__") else None
        try:
            if isinstance(self.data, torch.utils.data.DataLoader) or hasattr(self.data, "__getitem__"):
                return len(self.data) or None
        except TypeError:  # a DataLoader of a stream
            pass
        raise Error(f"data: is a {type(self.data).__name__}, which has no length; expected a DataLoader or a list, or a function of the number of the microbatch")

    def __getitem__(self, m: int) -> tuple[Streams, Any]:
        """Returns the input, as a tuple, and the target of microbatch m, from 0, on the device."""
        values = self._read(m)
        if not isinstance(values, (tuple, list)) or len(values) != 2:
            length = f" of {len(values)}" if isinstance(values, (tuple, list)) else ""
            raise Error(f"data: microbatch {m} is a {type(values).__name__}{length}; expected (input, target)")
        if values[1] is None:
            raise Error(f"data: microbatch {m} has the target None; expected a tensor: the input, if the loss needs no other")
        return as_tuple(moved(values[0], self.device)), moved(values[1], self.device)

    def peek(self, m: int) -> tuple[Streams, Any]:
        """Returns a microbatch before the run, which will read it again; close() forgets it."""
        if m not in self._peeked:
            self._peeked[m] = self[m]
        return self._peeked[m]

    def close(self) -> None:
        """Ends the processes of a DataLoader, and forgets what was peeked."""
        self._iterator, self._peeked = None, {}

    def _read(self, m: int) -> tuple:
        """Returns microbatch m as the user gives it."""
        if callable(self.data):
            return self.data(m)
        if isinstance(self.data, torch.utils.data.DataLoader):
            return self._next(m)
        return self.data[m % self.length]

    def _next(self, m: int) -> tuple:
        """Returns microbatch m of a DataLoader. Its random numbers depend on the seed and m, also if the loader or its sampler has a generator."""
        own = (getattr(part, "generator", None) for part in (self.data, self.data.sampler, self.data.batch_sampler))
        generators = [torch.default_generator, *(generator for generator in own if generator is not None)]
        if self._iterator is None or self._place > m or self._place // self.length != m // self.length:
            self._place, self._iterator = m - m % self.length, None
        batch = None
        while self._place <= m:
            with seeded(hash((self.seed, 0, 0, self._place)), generators):
                if self._iterator is None:
                    self._iterator = iter(self.data)
                batch = next(self._iterator, None)
            if batch is None:
                raise Error(f"data: the DataLoader ends after {self._place % self.length} microbatches; expected {self.length}, which is its length")
            self._place += 1
        if self._place % self.length == 0:
            self._iterator = None
        return batch
