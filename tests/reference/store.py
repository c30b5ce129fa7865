# SPDX-License-Identifier: Apache-2.0
"""Files: CIFAR-10 binary records in, weights (HDF5, /parameters/SS/NAME) in and out, and initial
weights."""

import h5py
import numpy as np
import torch

MEAN = np.array((0.4914, 0.4822, 0.4465))
DEVIATION = np.array((0.2023, 0.1994, 0.2010))
RECORD_BYTES = 3073


def fnv1a(data):
    """64-bit FNV-1a of bytes."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


class Records:
    """Microbatches in file order; an epoch is whole batches alone, and the next epoch starts again
    at record 0."""

    def __init__(self, path, batch, dtype):
        raw = np.fromfile(path, np.uint8)
        if raw.size == 0 or raw.size % RECORD_BYTES:
            raise ValueError(
                f"{path}: {raw.size} bytes is no whole number of records of {RECORD_BYTES} bytes"
            )
        raw = raw.reshape(-1, RECORD_BYTES)
        if len(raw) < batch:
            raise ValueError(f"{path}: {len(raw)} records are fewer than one batch of {batch}")
        self.batch, self.dtype = batch, dtype
        self.per_epoch = len(raw) // batch
        self.labels = torch.from_numpy(raw[:, 0].astype(np.int64))
        self.pixels = raw[:, 1:].reshape(-1, 3, 32, 32)

    def __call__(self, microbatch):
        start = microbatch % self.per_epoch * self.batch
        pixels = self.pixels[start : start + self.batch].astype(np.float64)
        # In double precision; a single precision run rounds the result once.
        images = (pixels / 255 - MEAN[:, None, None]) / DEVIATION[:, None, None]
        return torch.from_numpy(images).to(self.dtype), self.labels[start : start + self.batch]


class Windows:
    """Microbatches of windows of `context` tokens, each of which has the token behind it as its
    label; the tokens are the bytes of a file, in their order, and windows do not overlap."""

    def __init__(self, path, batch, context):
        self.tokens = torch.from_numpy(np.fromfile(path, np.uint8).astype(np.int64))
        self.batch, self.context = batch, context
        self.per_epoch = (len(self.tokens) - 1) // context // batch
        if self.per_epoch < 1:
            raise ValueError(f"{path}: {len(self.tokens)} tokens are fewer than one batch")

    def __call__(self, microbatch):
        first = microbatch % self.per_epoch * self.batch * self.context
        part = self.tokens[first : first + self.batch * self.context + 1]
        return part[:-1].view(self.batch, -1), part[1:].view(self.batch, -1)


def initial(blocks, seed):
    """[{name: float64 array}] per block: U(+-1/sqrt(fan_in)) for convolutions and the head, batch
    norms at identity."""
    rng = np.random.Generator(np.random.PCG64(seed))
    weights = []
    for block in blocks:
        tensors = {}
        fan_in = 1
        for name, shape in block.tensors:
            if name.endswith("/weight"):
                fan_in = int(np.prod(shape[1:]))
            if name.endswith(("/weight", "/bias")):
                value = rng.uniform(-1, 1, shape) / np.sqrt(fan_in)
            else:
                value = np.full(shape, 1.0 if name.endswith(("scale", "running_var")) else 0.0)
            tensors[name] = value.astype(np.float32).astype(np.float64)
        weights.append(tensors)
    return weights


def to_torch(weights, dtype):
    return [{n: torch.from_numpy(v).to(dtype) for n, v in tensors.items()} for tensors in weights]


def set_attribute(file, name, value):
    """Strings become fixed-length, null-terminated ones, which C reads without vlen memory."""
    if isinstance(value, str):
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(len(value) + 1)
        space = h5py.h5s.create(h5py.h5s.SCALAR)
        attribute = h5py.h5a.create(file.id, name.encode(), kind, space)
        attribute.write(np.array(value.encode(), f"S{len(value) + 1}"))
    elif isinstance(value, bool):
        file.attrs.create(name, int(value), dtype=np.int64)
    elif isinstance(value, (int, np.integer)):
        file.attrs.create(
            name, value, dtype=np.uint64 if value >= 1 << 63 or name.endswith("fnv1a") else np.int64
        )
    else:
        file.attrs.create(name, value, dtype=np.float64)


def open_new(path):
    return h5py.File(path, "w", libver=("v110", "v110"))


def write(path, weights, attributes=None, datasets=None):
    """Weights as f64; `datasets`: {path: array} beside them; `attributes`: of the root."""
    with open_new(path) as file:
        for name, value in (attributes or {}).items():
            set_attribute(file, name, value)
        entries = dict(datasets or {})
        for number, tensors in enumerate(weights, 1):
            for name, value in tensors.items():
                entries[f"/parameters/{number:02d}/{name}"] = np.asarray(value, np.float64)
        for name, value in entries.items():
            # Filters cost more than they save on a handful of numbers.
            options = (
                {
                    "compression": "gzip",
                    "compression_opts": 9,
                    "shuffle": True,
                    "chunks": value.shape,
                }
                if value.size > 64
                else {}
            )
            file.create_dataset(name, data=value, track_times=False, **options)


def read_flat(path):
    """{"SS/NAME": float64 array}"""
    tensors = {}
    with h5py.File(path, "r") as file:
        if "parameters" not in file:
            raise ValueError(f"{path}: no group /parameters")
        file["parameters"].visititems(
            lambda name, item: (
                tensors.update({name: item[()].astype(np.float64)})
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    return tensors


def read(path, blocks):
    """[{name: float64 array}] per block; every tensor must be there with its shape, and no
    other."""
    flat = read_flat(path)
    weights = []
    for number, block in enumerate(blocks, 1):
        tensors = {}
        for name, shape in block.tensors:
            key = f"{number:02d}/{name}"
            if key not in flat or flat[key].shape != shape:
                raise ValueError(
                    f"{path}: {key} has shape {flat[key].shape if key in flat else None}, expected"
                    f" {shape}"
                )
            tensors[name] = flat.pop(key)
        weights.append(tensors)
    if flat:
        raise ValueError(
            f"{path}: tensors that the network does not have: {', '.join(sorted(flat))}"
        )
    return weights
