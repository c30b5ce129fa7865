# SPDX-License-Identifier: Apache-2.0
"""The seal of an HDF5 file of petra: its first 512 bytes, with the length of the file and a digest
of the rest (docs/hdf5-schema.md, "The seal"; the program has the same in src/base/seal.c).

The digest is XXH64 because the program checks it. The module xxhash computes it as fast as a disk
reads; plain Python would need a second for 15 MB."""

from __future__ import annotations

import os
import struct
from typing import Any

from .errors import Unreadable
from .modules import modules

BYTES = 512
NONE, OPEN, WHOLE = 0, 1, 2
MAGIC, HDF5_SIGNATURE, VERSION, PARTS = b"PETRA-H5", b"\x89HDF\r\n\x1a\n", 1, 2
# Magic, version, state, bytes, digest, number of parts, and of each part offset, bytes and digest.
WORDS = struct.Struct("<8s11Q")
TEXT = b"\nA file of petra: length and digest (XXH64); the HDF5 file begins at byte 512.\n"
CHUNK_BYTES = 1 << 20


def digest() -> Any:
    """Returns an object with update(bytes) and intdigest()."""
    return modules("xxhash")[0].xxh64()


def _digest_of(*parts: bytes) -> int:
    found = digest()
    for part in parts:
        found.update(part)
    return found.intdigest()


def seal_of(content: bytes) -> bytes:
    """Returns the seal of a file whose bytes after the seal are `content`."""
    words = (VERSION, WHOLE, BYTES + len(content), _digest_of(content), *[0] * 7)
    block = (WORDS.pack(MAGIC, *words) + TEXT).ljust(BYTES - 16, b"\0")
    return block + struct.pack("<Q", _digest_of(block)) + MAGIC


def _find(block: bytes, name: str) -> tuple:
    """Returns the words of a seal; those of no seal if there is none. Raises Unreadable if it is
    invalid."""
    begins, ends = block[:8] == MAGIC, len(block) == BYTES and block[-8:] == MAGIC
    if block[:8] == HDF5_SIGNATURE or not (begins or ends):
        return (b"", VERSION, NONE, *[0] * 9)
    if not (begins and ends) or struct.unpack("<Q", block[-16:-8])[0] != _digest_of(block[:-16]):
        raise Unreadable(
            f"{name}: damaged or truncated file: its seal does not match; expected the file as "
            "petra wrote it"
        )
    words = WORDS.unpack(block[: WORDS.size])
    if words[1] != VERSION or words[5] > PARTS:
        raise Unreadable(
            f"{name}: its seal is of version {words[1]}; expected {VERSION}: it is a later petra's"
        )
    return words


def check(path: str, name: str = "") -> int:
    """Checks the seal of a file, and all that it covers except parts. Returns NONE for a file
    without a seal, OPEN for a file that is being written or was abandoned, WHOLE for a file that is
    unchanged since petra wrote it. Raises Unreadable, with `name` or the path in front, for a
    damaged file and for a file that cannot be read."""
    name = name or os.fspath(path)
    try:
        with open(path, "rb") as file:
            _, _, state, size, expected, count, *parts = _find(file.read(BYTES), name)
            if state in (NONE, OPEN):
                return state
            found, length = digest(), os.fstat(file.fileno()).st_size
            if length != size:
                raise Unreadable(
                    f"{name}: damaged or truncated file: {length} bytes, and it was written with "
                    f"{size}"
                )
            ends = [parts[3 * i] for i in range(count)] + [size]
            for i, end in enumerate(ends):
                left = end - file.tell()
                while left > 0 and (chunk := file.read(min(left, CHUNK_BYTES))):
                    found.update(chunk)
                    left -= len(chunk)
                if i < count:
                    file.seek(end + parts[3 * i + 1])
    except OSError as error:
        raise Unreadable(
            f"{name}: cannot be read: {error.strerror or error}; expected a file of petra"
        ) from None
    if found.intdigest() != expected:
        raise Unreadable(
            f"{name}: damaged or truncated file: its content was changed; expected the file as "
            "petra wrote it"
        )
    return WHOLE


def content_of(image: bytes, name: str) -> bytes:
    """Returns the content behind the seal of a file in memory. Raises Unreadable unless the file is
    whole."""
    words = _find(image[:BYTES], name)
    if words[2:6] != (WHOLE, len(image), _digest_of(image[BYTES:]), 0):
        raise Unreadable(
            f"{name}: damaged or truncated file: its seal does not match; expected the file as "
            "petra wrote it"
        )
    return image[BYTES:]
