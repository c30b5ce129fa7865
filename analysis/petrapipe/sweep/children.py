# SPDX-License-Identifier: Apache-2.0
"""One run of a cell: a process of the program petra. The sweep notices only its end."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import Error, Unwritable
from ..text import shown
from .cells import Cell, State, keep_simulation, read_cell
from .files import make_folder, write_atomically

if TYPE_CHECKING:
    from .sweep import Sweep

LOCK_TRIES, LOCK_PAUSE_S = 300, 0.1
TAIL_BYTES = 8192
REASON_BYTES = 447
PR_SET_PDEATHSIG = 1
# Signals that request the end of a sweep.
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PRINTED = ".simulate.json.tmp.out"  # in the folder of a cell: what petra simulate prints


@dataclass
class Child:
    cell: Cell
    pid: int
    log_start: int  # bytes of log.txt before the output of this run
    start_s: float


class Launcher:
    """Starts the runs of cells."""

    def __init__(self, sweep: Sweep, path: str) -> None:
        self.sweep = sweep
        self.libc = ctypes.CDLL(None)
        # The file that is open now, even if another file replaces it while the sweep runs.
        self.program = os.open(path, os.O_RDONLY)
        script = os.read(self.program, 2) == b"#!"  # its interpreter could not open it again
        self.path = path if script else f"/proc/self/fd/{self.program}"
        self.environment = dict(os.environ)
        if sweep.jobs > 1:  # waiting threads must not keep other cells from the cores
            self.environment.setdefault("OMP_WAIT_POLICY", "passive")

    def close(self) -> None:
        os.close(self.program)

    def start(self, cell: Cell, slot: int) -> Child:
        """Starts the run of a cell in a process group of its own, in slot `slot` of sweep.jobs."""
        start_s = time.monotonic()
        make_folder(cell.folder)
        config = os.path.join(cell.folder, "config.yaml")
        write_atomically(config, cell.config.encode())
        log_path = os.path.join(cell.folder, "log.txt")
        trains = self.sweep.grid.command == "train"
        opened: list[int] = []
        try:
            log = open_file(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, opened)
            folder = open_file(cell.folder, os.O_RDONLY | os.O_DIRECTORY, opened)
            output = log
            if not trains:
                printed = os.path.join(cell.folder, PRINTED)
                output = open_file(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, opened)
            arguments = ["petra", *arguments_of(cell, trains, config)]
            log_start = begin_log(log, log_path, arguments)
            cores = None
            if cell.values["device.threads"] == "0":
                cores = share_of_cores(self.sweep.jobs, slot, self.sweep.worth)
            pid = self.fork(arguments, log, output, folder, cores)
        except OSError as error:
            raise Error(f"{cell.name}: its run cannot be started: {error.strerror}") from None
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return Child(cell, pid, log_start, start_s)

    def fork(
        self, arguments: list[str], log: int, output: int, folder: int, cores: set[int] | None
    ) -> int:
        sys.stdout.flush()
        parent = os.getpid()
        # Until the child has its own handlers, a signal must wait, because the handlers of the
        # sweep are not meant for the child.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
        pid = os.fork()
        if pid == 0:
            try:
                self.become(arguments, log, output, folder, cores, parent)
            except BaseException as error:
                reason = getattr(error, "strerror", None) or error
                os.write(2, f"petra: {self.path}: cannot be started: {reason}\n".encode())
            finally:
                os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            os.setpgid(pid, pid)  # in both processes: whichever is first
        except OSError:
            pass
        return pid

    def become(
        self,
        arguments: list[str],
        log: int,
        output: int,
        folder: int,
        cores: set[int] | None,
        parent: int,
    ) -> None:
        """Runs in the child. The sweep may be killed at any moment: the kernel then sends SIGTERM
        to its children."""
        os.setpgid(0, 0)
        self.libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (*ENDS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            if callable(signal.getsignal(number)) or number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(log, 2)
        if cores:
            os.sched_setaffinity(0, cores)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        wait_for_folder(folder)
        os.execve(self.path, arguments, self.environment)


def open_file(path: str, flags: int, opened: list[int]) -> int:
    try:
        opened.append(os.open(path, flags, 0o666))
    except OSError as error:
        raise Unwritable(f"{path}: cannot open: {error.strerror}") from None
    return opened[-1]


def arguments_of(cell: Cell, trains: bool, config: str) -> list[str]:
    """Returns the arguments of petra. A training continues from its checkpoint if it has one."""
    if not trains:
        return ["simulate", config, "--json"]
    # A checkpoint comes with a log. If the log cannot be read and there is no checkpoint, nothing
    # in the folder is useful.
    anew = cell.spoilt and not os.path.exists(os.path.join(cell.folder, "checkpoint.h5"))
    return ["train", config, "--output", cell.folder, "--overwrite" if anew else "--resume"]


def begin_log(log: int, path: str, arguments: list[str]) -> int:
    """Writes a line into the log before the output of this run; returns where that output
    begins."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        os.write(log, f"== {when} {' '.join(map(shown, arguments))}\n".encode())
    except OSError as error:
        raise Unwritable(f"{path}: cannot write: {error.strerror}") from None
    return os.lseek(log, 0, os.SEEK_END)


def wait_for_folder(folder: int) -> None:
    """Waits for the lock of a folder: a run that a killed sweep has left behind may take a moment
    to end, and locks the folder until then."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            time.sleep(LOCK_PAUSE_S)
    fcntl.flock(folder, fcntl.LOCK_UN)


def share_of_cores(jobs: int, slot: int, worth: int | None) -> set[int] | None:
    """Returns the cores of a slot if `jobs` cells share the cores of this process: device.threads:
    0 counts the cores that a process may use, so that the cells together use each core once.
    `worth` is the number of cores that a limit of processor time is worth."""
    if jobs < 2:
        return None
    cores = sorted(os.sched_getaffinity(0))
    count = len(cores)
    first = slot * count // jobs if jobs <= count else slot % count
    end = (slot + 1) * count // jobs if jobs <= count else first + 1
    if worth and worth < count:
        share = (slot + 1) * worth // jobs - slot * worth // jobs
        if share < end - first:
            end = first + max(share, 1)
    return set(cores[first:end])


# --- the end of a run ---


def end_child(sweep: Sweep, child: Child, status: int, stopping: bool) -> None:
    """Collects the results of the ended child; `status` is the status of waitpid. Sets the state of
    its cell, to stopped instead of failed if `stopping`."""
    cell, trains = child.cell, sweep.grid.command == "train"
    if status != 0:
        cell.reason = reason_of(cell, child.log_start, status)
        cell.state = State.STOPPED if stopping else State.FAILED
        return
    if not trains:
        keep_simulation(cell, os.path.join(cell.folder, PRINTED))
    read_cell(cell, trains, sweep.keys)
    if cell.state is not State.COMPLETE:
        cell.reason = f"ended without an error, but its results are not in {cell.folder}"
        cell.state = State.FAILED


def reason_of(cell: Cell, log_start: int, status: int) -> str:
    """Returns why a run failed."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"ended by signal {number} ({signal.strsignal(number)})"
    words = last_words(os.path.join(cell.folder, "log.txt"), log_start)
    return words or f"exit status {os.WEXITSTATUS(status)} without a message"


def last_words(path: str, start: int) -> str:
    """Returns the last error line of this run in the log, else its last line, else nothing."""
    try:
        with open(path, "rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(start, end - TAIL_BYTES))
            text = log.read(TAIL_BYTES)
    except OSError:
        return ""
    lines = [line for line in text.split(b"\n") if line]
    errors = [
        line[7:]
        for line in lines
        if line.startswith(b"petra: ") and not line.startswith(b"petra: warning: ")
    ]
    found = (errors or lines or [b""])[-1]
    return found[:REASON_BYTES].decode(errors="backslashreplace")
