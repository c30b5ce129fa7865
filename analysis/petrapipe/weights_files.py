# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the files of weights.py: weights.h5, and a state_dict in a .pt, .pth, .npz or
.safetensors file.

The files that are read may come from anywhere. No file runs code, and the sizes of tensors that a
file states are compared with the bytes that it has before these are read. A file that cannot be
read is an Error of one line."""

from __future__ import annotations

import collections
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import seals, weights_release as release
from .errors import Error
from .modules import modules
from .text import brief

if TYPE_CHECKING:
    import h5py
    import numpy
    import torch

ENDINGS = (".pt", ".pth", ".npz", ".safetensors")
DEFLATE = (
    1032  # Deflate, the compression of zip and HDF5 files, makes at most so many bytes of one.
)
# The storages of PyTorch, by the names of their classes.
ELEMENT_BYTES = {
    "ComplexDoubleStorage": 16,
    "ComplexFloatStorage": 8,
    "DoubleStorage": 8,
    "FloatStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "LongStorage": 8,
    "IntStorage": 4,
    "ShortStorage": 2,
    "CharStorage": 1,
    "ByteStorage": 1,
    "BoolStorage": 1,
    "UntypedStorage": 1,
    "QInt32Storage": 4,
    "QInt8Storage": 1,
    "QUInt8Storage": 1,
    "QUInt4x2Storage": 1,
    "QUInt2x4Storage": 1,
}
NAME_LENGTH = 500  # of a tensor, at most; names of networks have fewer than 100 characters


def reason(error: BaseException) -> str:
    """Returns the message of an exception of a library as a short line."""
    text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return brief(text, 200)


def floats(value: numpy.ndarray) -> numpy.ndarray:
    """Returns floating point numbers in the double precision of this machine if they are at least
    as wide, otherwise in single precision; other numbers unchanged."""
    (numpy,) = modules("numpy")
    if value.dtype.kind != "f":
        return value
    with numpy.errstate(over="ignore"):  # the infinities are refused later
        return value.astype("f8" if value.dtype.itemsize >= 8 else "f4", copy=False)


# --- weights.h5 ---


def read_petra(path: str) -> tuple[dict[str, numpy.ndarray], str]:
    """Returns ({name: array} of /parameters, the attribute `model`, "" if there is none). A file
    without a seal is read by another process first, as the program does: the HDF5 library may crash
    in a damaged file, or never end."""
    modules("h5py")
    if seals.check(path) != seals.WHOLE:
        try:
            limit_s = 10 + os.path.getsize(path) // 10**7
            limit_bytes = 10**9 + 4 * os.path.getsize(path)
            done = subprocess.run(
                [sys.executable, "-B", "-c", TRY, path, str(limit_s), str(limit_bytes), *sys.path],
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        except OSError as error:
            raise Error(f"{path}: cannot be read: {reason(error)}") from None
        if done.returncode:
            raise Error(
                f"{path}: damaged: the HDF5 library cannot read it ({ending_of(done)}); expected a"
                " weights file"
            )
    return read_hdf5(path)


# Reads the file of the first argument, with limits in seconds of the processor and in bytes; the
# other arguments are sys.path.
TRY = """
import resource, sys
path, seconds, size, *sys.path[:] = sys.argv[1:]
limits = {"RLIMIT_CORE": 0, "RLIMIT_CPU": int(seconds), "RLIMIT_DATA": int(size)}
for kind, limit in limits.items():
    resource.setrlimit(getattr(resource, kind), (limit, limit))
from petrapipe import errors, weights_files
try:
    weights_files.read_hdf5(path)
except errors.Error:
    pass  # the process that wants the file finds the same
"""


def ending_of(done: subprocess.CompletedProcess) -> str:
    """Returns how a process ended, in words."""
    if done.returncode < 0:
        return (
            "it takes too long"
            if -done.returncode in (signal.SIGXCPU, signal.SIGKILL)
            else f"it crashes with signal {-done.returncode}"
        )
    return brief(
        (
            done.stderr.decode(errors="replace").strip().splitlines()
            or [f"status {done.returncode}"]
        )[-1]
    )


def read_hdf5(path: str) -> tuple[dict[str, numpy.ndarray], str]:
    """Reads a file for `read_petra`, within this process."""
    (h5py,) = modules("h5py")
    values = {}

    def take(name: str, item: Any) -> None:
        if not isinstance(name, str):
            raise Error(f"{path}: /parameters/{brief(name)} is no name in UTF-8")
        if isinstance(item, h5py.Dataset):
            check_stored(path, f"/parameters/{name}", item)
            values[name] = floats(item[()])

    try:
        with h5py.File(path, "r") as file:
            if not isinstance(
                file.get("parameters", getlink=True), h5py.HardLink
            ) or not isinstance(file["parameters"], h5py.Group):
                raise Error(f"{path}: not a weights file: no group /parameters")
            file["parameters"].visititems(take)
            label = file.attrs.get("model", "")
            label = (
                label.decode("utf-8", "backslashreplace")
                if isinstance(label, bytes)
                else str(label)
            )
    except Error:
        raise
    except Exception as error:  # of many classes if the file is damaged
        raise Error(f"{path}: cannot be read: {reason(error)}") from None
    return values, label


def check_stored(path: str, name: str, item: h5py.Dataset) -> None:
    """Raises Error unless a data set has floating point numbers, which are in the file."""
    if item.dtype.kind != "f" or item.shape is None:
        raise Error(f"{path}: {name} has no floating point numbers")
    if item.is_virtual or item.external:
        raise Error(f"{path}: {name} has its numbers in another file; expected them in this one")
    stored, wanted = item.id.get_storage_size(), item.dtype.itemsize
    for extent in item.shape:
        wanted *= int(extent)
    largest = DEFLATE * stored if item.id.get_create_plist().get_nfilters() else stored
    if wanted > largest or stored > os.path.getsize(path):
        raise Error(
            f"{path}: {name} has shape {item.shape}, {wanted} bytes; expected no more than the"
            f" {stored} bytes that the file has of it"
        )


def petra_file(network: Any, values: Mapping[str, numpy.ndarray]) -> bytes:
    """Returns a sealed file weights.h5 with these values, by their names in it."""
    h5py, numpy = modules("h5py", "numpy")
    labels = {1: ["channel"], 2: ["out", "in"], 4: ["out", "in", "kh", "kw"]}
    with h5py.File(
        "weights.h5", "w", libver="earliest", driver="core", backing_store=False
    ) as file:
        file.attrs["schema_version"] = numpy.int32(1)
        file.attrs["petra_version"] = "none: written by weights_pytorch.py"
        file.attrs["model"] = str(network)
        for name, value in values.items():
            data = file.create_dataset(f"parameters/{name}", data=value)
            data.attrs["units"] = "1"
            for axis, label in enumerate(labels[value.ndim]):
                data.dims[axis].label = label
        file.flush()
        content = file.id.get_file_image()
    return seals.seal_of(content) + content


# --- .safetensors ---


def read_safetensors(path: str) -> dict[str, numpy.ndarray]:
    """Reads the tensors of a file; the package safetensors checks it. BF16 becomes single
    precision."""
    numpy, package = modules("numpy", "safetensors")
    kinds = {
        "F64": "<f8",
        "F32": "<f4",
        "F16": "<f2",
        "BF16": "<u2",
        "I64": "<i8",
        "I32": "<i4",
        "I16": "<i2",
        "I8": "i1",
        "U8": "u1",
        "BOOL": "?",
    }
    with open(path, "rb") as file:
        data = file.read()
    try:
        found = package.deserialize(data)
    except package.SafetensorError as error:
        raise Error(f"{path}: no safetensors file: {reason(error)}") from None
    values = {}
    for name, entry in found:
        kind = entry["dtype"]
        if kind not in kinds:
            raise Error(
                f"{path}: {brief(name)} is of type {brief(kind)}; expected one of"
                f" {', '.join(kinds)}"
            )
        array = numpy.frombuffer(entry["data"], kinds[kind])
        if kind == "BF16":
            array = (array.astype("<u4") << 16).view("<f4")
        values[name] = array.reshape(entry["shape"])
    return values


# --- .npz ---


def check_zip(path: str, archive: zipfile.ZipFile) -> None:
    """Raises Error unless each member of an archive occurs once and is undamaged, and is no larger
    than its bytes allow."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise Error(f"{path}: has two members of the same name")
    for member in members:
        if member.file_size > DEFLATE * member.compress_size:
            raise Error(
                f"{path}: its member {brief(member.filename)} would be {member.file_size} bytes of"
                f" {member.compress_size}"
            )
    if sum(member.compress_size for member in members) > os.path.getsize(path):
        raise Error(f"{path}: its members have more bytes than the file")
    if (wrong := archive.testzip()) is not None:
        raise Error(f"{path}: damaged: its member {brief(wrong)} does not match its CRC-32")


def read_npz(path: str) -> dict[str, numpy.ndarray]:
    (numpy,) = modules("numpy")
    headers = {
        (1, 0): numpy.lib.format.read_array_header_1_0,
        (2, 0): numpy.lib.format.read_array_header_2_0,
    }
    with zipfile.ZipFile(path) as archive:
        check_zip(path, archive)
        for member in archive.infolist():
            name = brief(member.filename.removesuffix(".npy"))
            with archive.open(member) as file:
                version = numpy.lib.format.read_magic(file)
                if version not in headers:
                    raise Error(
                        f"{path}: {name} is an array of the format {version}; expected"
                        f" {' or '.join(map(str, headers))}"
                    )
                shape, _, dtype = headers[version](file)
                wanted = dtype.itemsize
                for extent in shape:
                    wanted *= int(extent)
                if wanted != member.file_size - file.tell() and not dtype.hasobject:
                    raise Error(
                        f"{path}: {name} has shape {shape}, {wanted} bytes; expected the"
                        f" {member.file_size - file.tell()} bytes that the file has of it"
                    )
    with numpy.load(path, allow_pickle=False) as file:
        if len(set(file.files)) < len(file.files):
            raise Error(f"{path}: has two arrays of the same name")
        return {name: file[name] for name in file.files}


# --- .pt and .pth ---


class Placeholder:
    """Stands for an object of a pickle."""

    def __new__(cls, *_: Any, **__: Any) -> Placeholder:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def nothing(self, *_: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = nothing


class Records(pickle._Unpickler):  # the one in Python, which takes memory only for what is there
    """Reads the pickle of an archive of PyTorch without PyTorch. It makes dictionaries and
    placeholders and calls nothing else. `claims` are the records of the storages: the key, and the
    number of bytes that the pickle states."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, encoding="utf-8")
        self.claims: list[tuple[str, int]] = []

    def find_class(self, module_name: str, global_name: str) -> type:
        if (module_name, global_name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        return type(global_name, (Placeholder,), {})

    def persistent_load(self, pid: tuple) -> Placeholder:
        _, kind, key, _, count = pid
        self.claims.append((str(key), ELEMENT_BYTES[kind.__name__] * int(count)))
        return Placeholder()


def check_torch(path: str) -> None:
    """Raises Error unless torch.load(weights_only=True) of every version reads the file safely.
    PyTorch 1.13 runs TorchScript and the pickles in tar files, and trusts a storage's number of
    elements, so that it reads other memory."""
    with open(path, "rb") as file:
        begins = file.read(4)
    if begins != b"PK\3\4":  # an older format
        if tarfile.is_tarfile(path):
            raise Error(
                f"{path}: a tar file of PyTorch before 0.4, which can run code; expected a"
                " state_dict of torch.save"
            )
        return
    with zipfile.ZipFile(path) as archive:
        check_zip(path, archive)
        members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
        if "constants.pkl" in members:
            raise Error(
                f"{path}: a TorchScript archive, which contains code; expected a state_dict of"
                " torch.save"
            )
        if "data.pkl" not in members or len(members) < len(archive.infolist()):
            raise Error(f"{path}: no archive of torch.save")
        records = Records(io.BytesIO(archive.read(members["data.pkl"])))
        records.load()
        for key, wanted in records.claims:
            member = members.get(f"data/{key}")
            if member is None or member.file_size != wanted:
                raise Error(
                    f"{path}: damaged: its record data/{brief(key)} has"
                    f" {member.file_size if member else 0} bytes; expected {wanted}"
                )


def read_torch(path: str, key: str | None) -> dict[str, numpy.ndarray]:
    """Returns the tensors of a state_dict, or of the state_dict that a checkpoint has under
    `key`."""
    torch, numpy = modules("torch", "numpy")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # errors of many classes: pickle, zipfile, torch
        raise Error(
            f"{path}: PyTorch cannot load it as weights: {why_not_loaded(str(error))}"
        ) from None
    if key:
        if not isinstance(found, dict) or key not in found:
            raise Error(f"{path}: has no '{key}'")
        found = release.state_of(found[key]) if release.is_state_list(found[key]) else found[key]
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in found.items()
    ):
        names = (
            [str(name) for name, value in found.items() if isinstance(value, dict)]
            if isinstance(found, dict)
            else []
        )
        raise Error(
            f"{path}: no state_dict"
            + (f"; one may be under --key {brief(' or '.join(names))}" if names else "")
        )
    return {name: array_of(path, name, value) for name, value in found.items()}


def why_not_loaded(text: str) -> str:
    """Returns one line for an error of torch.load, which prints many lines with colours."""
    text = re.sub("\x1b\\[[0-9;]*m", "", text)
    if kind := re.search(r"(?:GLOBAL|Unsupported class) ([\w.]+)", text):
        return (
            f"it holds {brief(kind[1])} beside tensors, which PyTorch loads only from a file that"
            " you trust; expected a state_dict alone: if you trust the file, read it by"
            " torch.load(FILE, weights_only=False) and write that part by torch.save"
        )
    found = re.search(r"WeightsUnpickler error:\s*(\S.*)", text)
    return brief(found[1] if found else text.strip().split("\n")[0] or "it ends too soon", 200)


def array_of(path: str, name: str, value: torch.Tensor) -> numpy.ndarray:
    """Returns the numbers of a tensor: narrow types in single precision, integers and truth values
    unchanged."""
    torch, numpy = modules("torch", "numpy")
    kind = (
        "a quantised tensor"
        if value.is_quantized
        else f"a tensor of layout {value.layout}"
        if value.layout != torch.strided
        else "a tensor without data"
        if value.is_meta
        else f"a tensor of {value.dtype}"
        if value.is_complex()
        else None
    )
    if kind:
        raise Error(f"{path}: {brief(name)} is {kind}; expected a dense one of real numbers")
    if value.numel() * value.element_size() > os.path.getsize(path):
        raise Error(
            f"{path}: {brief(name)} repeats its numbers to shape {tuple(value.shape)}, more than"
            " the file has"
        )
    if value.is_floating_point() and value.dtype != torch.float64:
        value = value.float()
    try:
        return numpy.asarray(value.detach())
    except (RuntimeError, TypeError) as error:
        raise Error(
            f"{path}: {brief(name)} is a {type(value).__name__} that has no array: {reason(error)}"
        ) from None


# --- all formats ---


def read_state(path: str, key: str | None = None) -> dict[str, numpy.ndarray]:
    """Returns the tensors of a state_dict in a .pt, .pth, .npz or .safetensors file, by their names
    in it; `key` is the key of the state_dict in a checkpoint."""
    ending = os.path.splitext(path)[1]
    if key and ending not in (".pt", ".pth"):
        raise Error("--key is for .pt and .pth files")
    try:
        if ending in (".pt", ".pth"):
            check_torch(path)
            values = read_torch(path, key)
        else:
            values = read_safetensors(path) if ending == ".safetensors" else read_npz(path)
    except Error:
        raise
    except Exception as error:  # of many classes if the file is damaged
        raise Error(f"{path}: cannot be read: {reason(error)}") from None
    for name in values:
        if len(name) > NAME_LENGTH:
            raise Error(f"{path}: the name of a tensor has {len(name)} characters: {brief(name)}")
    return {name: floats(value) for name, value in values.items()}


def state_file(ending: str, values: Mapping[str, numpy.ndarray]) -> bytes:
    """Returns a file with these values as a state_dict; the ending of its name selects the
    format."""
    (numpy,) = modules("numpy")
    if ending == ".safetensors":
        (package,) = modules("safetensors.numpy")
        return package.save(
            {name: numpy.ascontiguousarray(value) for name, value in values.items()},
            {"format": "pt"},
        )
    file = io.BytesIO()
    if ending == ".npz":
        numpy.savez(file, **values)
    else:
        (torch,) = modules("torch")
        torch.save({name: torch.from_numpy(value.copy()) for name, value in values.items()}, file)
    return file.getvalue()
