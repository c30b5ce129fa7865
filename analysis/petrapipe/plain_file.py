# SPDX-License-Identifier: Apache-2.0
"""A file of tensors and plain data, which is checked as a whole before any part of it is used, and
which runs no code.

Plain data are None, truth values, numbers, strings, bytes, the containers of Python with them, and
arrays of numpy. Layout, with little-endian numbers of 64 bits: `PETRA-CK`, the version, the length
of a JSON text, the length of the file; the text; blocks of bytes that begin at multiples of 64; the
XXH64 (seed 0) of everything before it. Tensors that share memory share it in the file too, and keep
their strides."""

from __future__ import annotations

import collections
import json
import struct
from collections.abc import Iterable
from typing import Any

import numpy
import torch

from .errors import Error, Unreadable
from .seals import digest

MAGIC, VERSION, ALIGNMENT = b"PETRA-CK", 1, 64
HEAD = struct.Struct("<8s3Q")
DEPTH = 50  # of containers within containers
SEQUENCES = {tuple: "tuple", set: "set", frozenset: "frozenset", torch.Size: "size"}
MAPPINGS = {dict: "dict", collections.OrderedDict: "ordered", collections.Counter: "counter"}
FACTORIES = {
    None: "None",
    list: "list",
    dict: "dict",
    int: "int",
    float: "float",
    set: "set",
    tuple: "tuple",
}
KINDS = {name: kind for table in (SEQUENCES, MAPPINGS, FACTORIES) for kind, name in table.items()}
DTYPES = {str(kind): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}


def _bytes_of(t: torch.Tensor) -> memoryview:
    """Returns the bytes of a tensor of one dimension without gaps."""
    return memoryview(t.cpu().view(torch.uint8).numpy())


class _NotPlain(Exception):
    """`place` is where in the value it is, from within."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.place: list[str] = []


class _Writer:
    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.arrays: list[numpy.ndarray] = []
        self.depth = 0

    def plain(self, value: Any) -> Any:
        """Returns the value as JSON. Tensors and arrays are found by their numbers."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind in (torch.Tensor, torch.nn.Parameter):
            return self._tensor(value.detach())
        self.depth += 1
        if self.depth > DEPTH:
            raise _NotPlain(f"is in more than {DEPTH} containers")
        found = self._container(kind, value)
        self.depth -= 1
        return found

    def _container(self, kind: type, value: Any) -> Any:
        if kind is list:
            return self._entries(enumerate(value))
        if kind in SEQUENCES:
            return {SEQUENCES[kind]: self._entries(enumerate(value))}
        if kind in MAPPINGS:
            return {MAPPINGS[kind]: self._pairs(value)}
        if kind is collections.defaultdict and value.default_factory in FACTORIES:
            return {"default": [FACTORIES[value.default_factory], self._pairs(value)]}
        if kind is collections.deque:
            return {"deque": [value.maxlen, self._entries(enumerate(value))]}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind is bytes:
            return {"bytes": self._array(numpy.frombuffer(value, numpy.uint8))}
        if kind is torch.dtype:
            return {"dtype": str(value)}
        if kind is torch.device:
            return {"device": str(value)}
        if isinstance(value, (numpy.ndarray, numpy.generic)) and value.dtype.kind in "biufc":
            name = "array" if kind is numpy.ndarray else "number"
            return {name: self._array(numpy.asarray(value))}
        raise _NotPlain(f"is a {kind.__module__}.{kind.__qualname__}")

    def _entries(self, entries: Iterable) -> list:
        found, key = [], None
        try:
            for key, one in entries:  # noqa: B007 - the key is named if the entry is refused
                found.append(self.plain(one))
        except _NotPlain as error:
            error.place.append(f"[{key!r}]")
            raise
        return found

    def _pairs(self, value: dict) -> list:
        return list(map(list, zip(map(self.plain, value), self._entries(value.items()))))

    def _array(self, value: numpy.ndarray) -> list:
        self.arrays.append(numpy.ascontiguousarray(value))
        return [len(self.arrays) - 1, value.dtype.str, list(value.shape)]

    def _tensor(self, t: torch.Tensor) -> dict:
        if t.layout == torch.sparse_coo:
            parts = [self.plain(t._indices()), self.plain(t._values())]
            return {"sparse": [*parts, list(t.shape), t.is_coalesced()]}
        if t.layout != torch.strided or t.is_quantized or t.device.type == "meta":
            raise _NotPlain(f"is a tensor of {t.layout} and {t.dtype} on {t.device}")
        self.tensors.append(t.resolve_conj().resolve_neg() if t.is_complex() or t.is_neg() else t)
        return {"tensor": len(self.tensors) - 1}

    def blocks(self) -> tuple[list[list], list[memoryview]]:
        """Returns, for each tensor, [block, first byte in it, dtype, shape, strides], and the bytes
        of the blocks: the part of each memory that tensors use, then the arrays."""
        memories: dict[tuple, list[int]] = {}
        spans = []
        for i, t in enumerate(self.tensors):
            size = t.element_size()
            first = t.storage_offset() * size
            length = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))
            end = first + size * length if t.numel() else first
            spans.append((first, end))
            memory = (str(t.device), t.data_ptr() - first if t.numel() else -1)
            memories.setdefault(memory, []).append(i)
        about: list[list] = [[]] * len(self.tensors)
        parts = []
        for (device, _), members in memories.items():
            begin = min(spans[i][0] for i in members) // ALIGNMENT * ALIGNMENT
            end = max(spans[i][1] for i in members)
            smallest = min((self.tensors[i] for i in members), key=lambda t: t.element_size())
            size = smallest.element_size()
            flat = torch.empty(0)
            if end > begin:
                flat = smallest.as_strided(((end - begin) // size,), (1,), begin // size)
            parts.append(_bytes_of(flat))
            for i in members:
                t = self.tensors[i]
                first = spans[i][0] - begin if t.numel() else 0
                layout = [str(t.dtype), list(t.shape), list(t.stride())]
                about[i] = [len(parts) - 1, first, *layout, device != "cpu"]
        arrays = [memoryview(array.reshape(-1).view(numpy.uint8)) for array in self.arrays]
        return about, [*parts, *arrays]


def packed(value: Any, name: str) -> list[bytes | memoryview]:
    """Returns the parts of a file with a value of tensors and plain data. Raises Error, with `name`
    and the position of the object, for an object that is neither a tensor nor plain data."""
    writer = _Writer()
    try:
        tree = writer.plain(value)
    except _NotPlain as error:
        place = "".join(list(reversed(error.place))[: DEPTH // 2])
        raise Error(
            f"{name}{place}: {error}, which a checkpoint cannot have; expected tensors, numbers, "
            "strings, and lists, tuples and dictionaries of them"
        ) from None
    tensors, blocks = writer.blocks()
    places, end = [], 0
    for block in blocks:
        places.append([end, block.nbytes])
        end += -(-block.nbytes // ALIGNMENT) * ALIGNMENT
    about = {"value": tree, "tensors": tensors, "blocks": places}
    about["arrays"] = len(blocks) - len(writer.arrays)
    text = json.dumps(about, separators=(",", ":")).encode()
    text += b" " * (-(HEAD.size + len(text)) % ALIGNMENT)
    parts: list = [HEAD.pack(MAGIC, VERSION, len(text), HEAD.size + len(text) + end + 8), text]
    for block in blocks:
        parts += [block, bytes(-block.nbytes % ALIGNMENT)]
    found = digest()
    for part in parts:
        found.update(part)
    return [*parts, struct.pack("<Q", found.intdigest())]


class _Reader:
    def __init__(self, about: dict, data: memoryview, device: torch.device) -> None:
        places = [data[first : first + size] for first, size in about["blocks"]]
        self.tensors: list[torch.Tensor] = []
        self.arrays = places[about["arrays"] :]
        memories: dict[int, torch.Tensor] = {}
        for block, first, kind, shape, strides, moves in about["tensors"]:
            if block not in memories:
                memory = torch.empty(0, dtype=torch.uint8)
                if len(places[block]):
                    memory = torch.frombuffer(places[block], dtype=torch.uint8).clone()
                memories[block] = memory.to(device) if moves else memory
            dtype, memory = DTYPES[kind], memories[block]
            size = torch.empty(0, dtype=dtype).element_size()
            flat = memory[: len(memory) // size * size].view(dtype)
            self.tensors.append(flat.as_strided(shape, strides, first // size))

    def value(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.value(one) for one in tree]
        if not isinstance(tree, dict):
            return tree
        ((name, content),) = tree.items()
        if name == "tensor":
            return self.tensors[content]
        if name == "sparse":
            indices, values = self.value(content[:2])
            return torch.sparse_coo_tensor(indices, values, content[2])._coalesced_(content[3])
        if name in SEQUENCES.values():
            return KINDS[name](map(self.value, content))
        if name in MAPPINGS.values():
            return KINDS[name]({self.value(key): self.value(one) for key, one in content})
        if name == "default":
            entries = {self.value(key): self.value(one) for key, one in content[1]}
            return collections.defaultdict(KINDS[content[0]], entries)
        if name == "deque":
            return collections.deque(self.value(content[1]), content[0])
        if name == "complex":
            return complex(*content)
        if name == "dtype":
            return DTYPES[content]
        if name == "device":
            return torch.device(content)
        block, kind, shape = content
        if numpy.dtype(kind).kind not in "biufc":
            raise ValueError(f"an array of {kind}")
        array = numpy.frombuffer(self.arrays[block], kind).reshape(shape).copy()
        return {"bytes": array.tobytes, "array": lambda: array, "number": lambda: array[()]}[name]()


def read(path: str, device: torch.device, expected: str) -> Any:
    """Returns the value of a file; tensors that were on another device than the CPU are on
    `device`. Raises Unreadable, whose line ends with what was expected."""
    try:
        with open(path, "rb") as file:
            data = memoryview(bytearray(file.read()))
    except OSError as error:
        raise Unreadable(
            f"{path}: cannot be read: {error.strerror or error}; expected {expected}"
        ) from None
    if len(data) < HEAD.size + 8 or data[:8] != MAGIC:
        raise Unreadable(
            f"{path}: cannot be read: it does not begin as a file of this version; expected "
            f"{expected}"
        )
    found = digest()
    found.update(data[:-8])
    if struct.unpack("<Q", data[-8:])[0] != found.intdigest():
        raise Unreadable(
            f"{path}: cannot be read: it is damaged or truncated: its digest does not match; "
            f"expected {expected}"
        )
    _, version, length, size = HEAD.unpack(data[: HEAD.size])
    if version != VERSION or size != len(data):
        raise Unreadable(
            f"{path}: cannot be read: it has version {version} and {len(data)} bytes; expected "
            f"version {VERSION} and {size} bytes"
        )
    try:
        about = json.loads(bytes(data[HEAD.size : HEAD.size + length]))
        reader = _Reader(about, data[HEAD.size + length : -8], device)
        return reader.value(about["value"])
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise Unreadable(
            f"{path}: cannot be read: its content was changed ({reason}); expected {expected}"
        ) from None
