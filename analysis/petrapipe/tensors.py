# SPDX-License-Identifier: Apache-2.0
"""Tensors and the containers of tensors that go between stages: their memory, their values, graphs
that begin at them, and random numbers from a seed."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch

Streams = tuple  # tensors between stages; None stands for a gradient that does not exist


def as_tuple(values: Any) -> Streams:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (Mapping, tuple, list, deque)):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from tensors_in(value)


def bytes_of(values: Any) -> int:
    """Returns the bytes of a tensor, or of all tensors in nested containers; tensors of the same
    elements count once."""
    found = {}
    for t in tensors_in(values):
        size = t.numel() * t.element_size()
        found[id(t) if t.layout != torch.strided else (t.data_ptr(), size)] = size
    return sum(found.values())


def detached(tensors: Streams) -> Streams:
    return tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in tensors)


def has_gradient(tensor: Any) -> bool:
    """Returns whether a tensor has a type that supports gradients."""
    return isinstance(tensor, torch.Tensor) and (tensor.is_floating_point() or tensor.is_complex())


def leaf(tensor: Any) -> Any:
    """Returns a tensor that shares the values and begins a graph of its own."""
    return (
        tensor.detach().requires_grad_(has_gradient(tensor))
        if isinstance(tensor, torch.Tensor)
        else tensor
    )


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether two tensors hold the same values; a NaN equals a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all()) if has_gradient(a) else torch.equal(a, b)


def memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the address and the bytes of the memory that a tensor shares with its views."""
    if tensor.layout != torch.strided:
        return id(tensor), bytes_of(tensor)
    storage = getattr(tensor, "untyped_storage", tensor.storage)()
    return storage.data_ptr(), storage.nbytes()


@contextlib.contextmanager
def seeded(
    seed: int, generators: Sequence[torch.Generator] = (torch.default_generator,)
) -> Iterator[None]:
    """A context in which these generators, random and numpy.random draw from a seed; afterwards
    they continue as if nothing had been drawn. (torch.manual_seed also queues a call for GPUs that
    no one has used yet, with the stack of each.)"""
    states = [generator.get_state() for generator in generators]
    python = random.getstate()
    arrays = numpy.random.get_state()
    try:
        for generator in generators:
            generator.manual_seed(seed & (2**63 - 1))
        random.seed(seed)
        numpy.random.seed(seed & (2**32 - 1))
        yield
    finally:
        random.setstate(python)
        numpy.random.set_state(arrays)
        for generator, state in zip(generators, states):
            generator.set_state(state)
