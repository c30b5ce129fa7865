# SPDX-License-Identifier: Apache-2.0
"""Reads a file that may be damaged. HDF5 may crash or loop on such a file, or take all memory.

A file whose seal fits is read immediately. Any other file is read in a child process with limits,
which sends the content that it has read (the program does the same in src/base/hdf5.c)."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import stat
from collections.abc import Callable
from typing import Any, TypeVar

from . import seals
from .errors import Error, Unreadable

# The limits of a child, in addition to what the process already uses.
MEMORY_BYTES, MEMORY_PER_BYTE, SECONDS, BYTES_PER_SECOND = 256 << 20, 16, 5, 20_000_000
# A child of a process with several threads may wait for ever for a lock that another thread held.
# After this number of seconds it ends, and another child is started.
WAIT_SECONDS, CHILDREN = 60, 3
FATAL = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)

Value = TypeVar("Value")


def guarded(path: str, read: Callable[[str], Value]) -> Value:
    """Returns read(path), which may raise an Error. Raises Unreadable for a file that is
    damaged."""
    check_open(path)
    if seals.check(path) == seals.WHOLE:
        return read(path)
    for _ in range(CHILDREN):
        status, answer = in_child(path, read)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM):
            break
    if answer:
        kind, value = pickle.loads(answer)  # of our own child
        if kind == "value":
            return value
        error = Unreadable(value)
        error.status = kind
        raise error
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended_by in (signal.SIGXCPU, signal.SIGKILL):
        raise Unreadable(f"{path}: damaged file: reading it takes too long for its size")
    if ended_by == signal.SIGALRM:
        raise Unreadable(
            f"{path}: cannot be read: {CHILDREN} processes waited for {WAIT_SECONDS} s and longer "
            "without an end"
        )
    raise Unreadable(f"{path}: damaged file: HDF5 crashes or runs out of memory on it")


def check_open(path: str) -> None:
    """Raises Unreadable if a file cannot be opened, or is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path}: cannot open: {getattr(error, 'strerror', error)}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Unreadable(f"{path}: cannot open: expected a regular file")
    finally:
        os.close(descriptor)


def in_child(path: str, read: Callable[[str], Any]) -> tuple[int, bytes]:
    """Reads a file in a child process. Returns the status of the process, and its answer."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        run_child(path, read, there)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return status, answer if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 else b""


def run_child(path: str, read: Callable[[str], Any], pipe: int) -> None:
    """Sends the content that was read, or the line of the error, and ends the process. A crash is
    silent."""
    status = 1
    try:
        limit_process(os.path.getsize(path))
        try:
            answer: tuple = ("value", read(path))
        except Error as error:
            answer = error.status, str(error)
        with os.fdopen(pipe, "wb") as file:
            file.write(pickle.dumps(answer))
        status = 0
    finally:
        leave(status)


# The child ends here: the process was forked, and nothing of the parent may run in it.
leave = os._exit


def limit_process(size: int) -> None:
    """Sets limits for reading a file of this number of bytes."""
    for number in FATAL:
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(WAIT_SECONDS + size // BYTES_PER_SECOND)
    limit(resource.RLIMIT_CORE, 0)
    times = os.times()
    used = int(times.user + times.system) + 1
    limit(resource.RLIMIT_CPU, used + SECONDS + size // BYTES_PER_SECOND)
    with (
        contextlib.suppress(OSError, ValueError),
        open("/proc/self/statm", encoding="ascii") as file,
    ):
        space = int(file.read().split()[0]) * resource.getpagesize()
        limit(resource.RLIMIT_AS, space + MEMORY_BYTES + MEMORY_PER_BYTE * size)


def limit(kind: int, most: int) -> None:
    """Lowers a limit of this process."""
    soft, hard = resource.getrlimit(kind)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(kind, (most, hard))
