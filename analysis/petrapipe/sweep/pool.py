# SPDX-License-Identifier: Apache-2.0
"""Runs the open cells, up to sweep.jobs of them concurrently."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import program
from ..errors import Error
from .cells import State
from .children import ENDS, Child, Launcher, end_child
from .files import print_line
from .summary import write_summary

if TYPE_CHECKING:
    from .sweep import Sweep

SUMMARY_S = 2  # minimum time between two summaries while cells run
SUMMARY_SHARE = 20  # the next summary waits for this many times the duration of the last one
GRACE_S = 30  # between SIGTERM and SIGKILL: a run may need time to save its state
WORDS = {
    State.OPEN: "open",
    State.COMPLETE: "done",
    State.FAILED: "failed",
    State.STOPPED: "stopped",
}


def ignore(number: int, frame: Any) -> None:
    """Handles a signal: the pool reads its number from a pipe."""


@contextlib.contextmanager
def watched() -> Iterator[int]:
    """Yields a descriptor from which the numbers of arrived signals are read: SIGCHLD and the
    signals that request the end, except signals that the parent of this process set to be ignored
    (nohup)."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    numbers = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ignore) for number in (*numbers, signal.SIGCHLD)}
    earlier = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(earlier)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        os.close(read)
        os.close(write)


class Pool:
    def __init__(self, sweep: Sweep, launcher: Launcher, signals: int) -> None:
        self.sweep, self.launcher, self.signals = sweep, launcher, signals
        self.children: list[Child | None] = [None] * sweep.jobs  # by slot
        self.open = [cell for cell in sweep.chosen if cell.state is State.OPEN]
        self.total = len(self.open)
        self.ended = 0  # runs that have ended
        self.stopped: int | None = None  # the first signal that requested the end
        self.killing = False
        self.stopped_s = 0.0
        self.stale = True  # a cell has ended since the last summary
        self.next_summary_s = 0.0
        self.error: Error | None = None

    def signal_children(self, number: int) -> None:
        for child in self.children:
            if child:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, number)

    def stop(self, number: int) -> None:
        """The first signal ends the runs gently, a second signal ends them immediately."""
        if self.stopped is None:
            self.stopped, self.stopped_s = number, time.monotonic()
            self.signal_children(signal.SIGTERM)
        else:
            self.killing = True
            self.signal_children(signal.SIGKILL)

    def start_cells(self) -> None:
        for slot, child in enumerate(self.children):
            if child is None and self.open:
                self.children[slot] = self.launcher.start(self.open.pop(0), slot)

    def reap(self) -> None:
        for slot, child in enumerate(self.children):
            if not child:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid != child.pid:
                continue
            self.children[slot] = None
            self.attempt(end_child, self.sweep, child, status, self.stopped is not None)
            self.ended += 1
            self.stale = True
            if self.sweep.talks:
                word, seconds = WORDS[child.cell.state], time.monotonic() - child.start_s
                print_line(
                    f"[{self.ended}/{self.total}] {child.cell.name}: {word} after {seconds:.1f} s",
                )

    def wait_for_signal(self) -> None:
        """Waits for a signal, but checks every second in any case."""
        if select.select([self.signals], [], [], 1)[0]:
            for number in os.read(self.signals, 4096):
                if number != signal.SIGCHLD:
                    self.stop(number)
        late = time.monotonic() - self.stopped_s > GRACE_S
        if self.stopped is not None and not self.killing and late:
            self.stop(signal.SIGKILL)

    def write_summary(self) -> None:
        """Writes the summary, which shows readers the progress of the sweep."""
        start = time.monotonic()
        if self.sweep.only is not None or not self.stale or start < self.next_summary_s:
            return
        self.stale = False
        write_summary(self.sweep)
        end = time.monotonic()
        self.next_summary_s = start + max(SUMMARY_S, SUMMARY_SHARE * (end - start))

    def attempt(self, act: Callable[..., None], *arguments: Any) -> None:
        """A failure of the sweep itself (such as a full disk) ends the running cells and is the
        result."""
        try:
            act(*arguments)
        except Error as error:
            self.error = self.error or error

    def run(self) -> None:
        self.attempt(self.write_summary)
        if not self.error:
            self.attempt(self.start_cells)
        while any(self.children):
            if self.error and self.stopped is None:
                self.stop(signal.SIGTERM)
            self.wait_for_signal()
            self.reap()
            if not self.error and self.stopped is None:
                self.attempt(self.start_cells)
            if not self.error:
                self.attempt(self.write_summary)


def run_cells(sweep: Sweep) -> int | None:
    """Runs the open cells, up to sweep.jobs concurrently. A failed cell is not a failure here.
    Returns the signal that ended the sweep."""
    count = sum(cell.state is State.OPEN for cell in sweep.chosen)
    sweep.jobs = min(sweep.jobs, count)
    if sweep.jobs == 0:
        return None
    launcher = Launcher(sweep, program.find())
    try:
        with watched() as signals:
            pool = Pool(sweep, launcher, signals)
            pool.run()
    finally:
        launcher.close()
    if pool.error:
        raise pool.error
    return pool.stopped
