# SPDX-License-Identifier: Apache-2.0
"""Lines and files of a sweep. A file is replaced completely or not at all; a folder can be
locked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time

from ..errors import Unreadable, Unwritable
from ..text import shown


def print_line(text: str) -> None:
    """Prints a line immediately, as readers of the output of a long sweep expect."""
    print(shown(text), flush=True)


def make_folder(path: str) -> None:
    """Makes a folder and its parent folders; an existing folder is fine."""
    part = ""
    for name in path.split("/"):
        part += name
        if name:
            try:
                os.mkdir(part)
            except OSError as error:
                if error.errno != errno.EEXIST or not os.path.isdir(part):
                    exists = error.errno == errno.EEXIST
                    why = "a file with that name exists" if exists else error.strerror
                    raise Unwritable(f"{part}: cannot create this folder: {why}") from None
        part += "/"


def write_atomically(path: str, content: bytes) -> None:
    """Makes `path` hold exactly this content. After success it is on the disk, its name included;
    after a failure the earlier content of `path` still exists."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.tmp")
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a folder stops the rename itself
            raise Unwritable(
                f"{path}: cannot replace: not a regular file; expected the name of a file"
            )
    verb = "write"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        verb = "replace"
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise Unwritable(f"{path}: cannot {verb}: {error.strerror}") from None
    sync_folder(path, folder)


def sync_folder(path: str, folder: str) -> None:
    """Syncs a folder. It is not a failure if the folder cannot be opened or the file system cannot
    sync a folder."""
    try:
        opened = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            raise Unwritable(f"{path}: cannot sync its folder: {error.strerror}") from None
    finally:
        os.close(opened)


def try_lock(path: str, operation: int) -> int | None:
    """Locks a folder; returns its descriptor, or None if another process has the lock. File systems
    without locks refuse nothing."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Unreadable(f"{path}: cannot open this folder: {error.strerror}") from None
    for attempt in range(2):  # perhaps a program that only checks the lock has it for a moment
        try:
            fcntl.flock(folder, operation | fcntl.LOCK_NB)
            return folder
        except BlockingIOError:
            time.sleep(0.05 if attempt == 0 else 0)
        except OSError:
            return folder
    os.close(folder)
    return None


def lock_folder(path: str, summarises: bool, single: bool, prints: bool) -> int | None:
    """Locks the folder of a sweep: one sweep at a time, but any number of --cell (`single`), each
    of which has its cell's own lock. A command that only `summarises` may run beside these. Beside
    a sweep, which writes the summary itself, the command writes nothing, and this function returns
    None. It is an error if the command would not print anything either."""
    make_folder(path)
    lock = None
    if summarises and not single:
        lock = try_lock(path, fcntl.LOCK_EX)
        if lock is None:
            lock = try_lock(path, fcntl.LOCK_SH)
        if lock is not None or prints:
            return lock
    lock = try_lock(path, fcntl.LOCK_SH if single else fcntl.LOCK_EX)
    if lock is None:
        raise Unwritable(
            f"{path}: another sweep (or run) is writing to this folder; expected it to be free (or"
            " --output)"
        )
    return lock
