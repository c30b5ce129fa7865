# SPDX-License-Identifier: Apache-2.0
"""Writes a simulation as execution traces of MLCommons Chakra, the workloads of ASTRA-sim:
DIR/petra.N.et for device N from 0. docs/formats.md describes the nodes.

`petra simulate --chakra DIR` starts this as a child, which reads every action from its standard
input (src/record/action_stream.c). F, B, W and U are compute nodes; E takes no time and has no
node. A message between devices is a node of its sender and a node of its receiver, written when the
action that uses it has ended; so a message that no action uses has no node. A node waits for nodes
of its own file: the order of its device, and the data it uses."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .errors import Error, Unwritable
from .sweep.files import make_folder

VERSION = "0.0.4"  # of Chakra's schema
FLUSH_BYTES = 1 << 16
ACTION = re.compile(rb"(\d+)([FBWUE])(\d+)")
FORWARD, BACKWARD, WEIGHT_GRADIENT, UPDATE, EVALUATE = b"F", b"B", b"W", b"U", b"E"
COMPUTE, SEND, RECEIVE = 4, 5, 6  # types of nodes

Action = tuple  # stage, kind, microbatch


# --- messages of protobuf (chakra.proto) ---


def varint(value: int) -> bytes:
    """Returns a number of at least 0 in the form of protobuf.

    >>> varint(300).hex()
    'ac02'
    """
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value)


def part(place: int, data: bytes) -> bytes:
    return varint(place << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: bytes) -> bytes:
    return part(1, name.encode()) + value


# Readers take these types: is_cpu_op as a bool, comm_size as an int64, the others as int32. A
# reader without is_cpu_op treats the node as a node of the host.
INT32, INT64, BOOL, STRING = 7, 9, 27, 29
ON_DEVICE = part(10, attribute("is_cpu_op", number(BOOL, 0)))


def metadata(method: str) -> bytes:
    return part(1, VERSION.encode()) + part(
        2, attribute("method", part(STRING, method.encode("utf-8", "surrogateescape")))
    )


def node(
    id: int, name: bytes, kind: int, after: list[int], duration_us: int = 0, more: bytes = b""
) -> bytes:
    """Returns a node; as in any message of proto3, a number that is 0 is left out."""
    data = number(1, id) if id else b""
    data += part(2, name) + number(3, kind)
    if after:
        data += part(5, b"".join(map(varint, after)))
    if duration_us:
        data += number(7, duration_us)
    return data + ON_DEVICE + more


def message_attributes(size: int, tag: int, source: int, target: int) -> bytes:
    return part(10, attribute("comm_size", number(INT64, size))) + b"".join(
        part(10, attribute(name, number(INT32, value)))
        for name, value in (("comm_tag", tag), ("comm_src", source), ("comm_dst", target))
    )


# --- the files ---


class Files:
    """The files of all devices, which appear under their names when all of them are complete. There
    may be more files than a process may have open. Nodes therefore wait in memory, and a file is
    open only while nodes are appended to it."""

    def __init__(self, folder: str, devices: int, method: str, overwrite: bool) -> None:
        self.folder, self.devices = folder, devices
        make_folder(folder)
        for path, _ in self.existing():
            with contextlib.suppress(OSError):
                if not stat.S_ISREG(os.lstat(path).st_mode):
                    raise Unwritable(
                        f"{path}: cannot replace: not a regular file; expected another folder"
                    )
            if not overwrite:
                raise Error(
                    f"--chakra: {path} already exists; expected --overwrite to replace the files of"
                    " an earlier simulation, or another folder"
                )
        self.waiting = [bytearray() for _ in range(devices)]
        self.made = 0
        for device in range(devices):
            self.made = device + 1
            self.add(device, metadata(method))
            self.flush(device, os.O_CREAT | os.O_TRUNC)

    def existing(self) -> Iterator[tuple[str, int]]:
        """Yields the files petra.N.et of the folder, and N."""
        try:
            names = os.listdir(self.folder)
        except OSError as error:
            raise Unwritable(f"{self.folder}: cannot be read: {error.strerror}") from None
        for name in names:
            found = re.fullmatch(r"petra\.(0|[1-9][0-9]{0,8})\.et", name)
            if found:
                yield self.path(int(found[1])), int(found[1])

    def path(self, device: int) -> str:
        return f"{self.folder}/petra.{device}.et"

    def temporary(self, device: int) -> str:
        return f"{self.folder}/.petra.{device}.et.tmp"

    def add(self, device: int, message: bytes) -> None:
        """Adds a message to the file of a device, after its length."""
        waiting = self.waiting[device]
        waiting += varint(len(message)) + message
        if len(waiting) > FLUSH_BYTES:
            self.flush(device)

    def flush(self, device: int, flags: int = os.O_APPEND) -> None:
        try:
            descriptor = os.open(self.temporary(device), os.O_WRONLY | os.O_NOFOLLOW | flags, 0o666)
            with open(descriptor, "wb") as file:
                file.write(self.waiting[device])
        except OSError as error:
            raise Unwritable(f"{self.path(device)}: cannot be written: {error.strerror}") from None
        self.waiting[device].clear()

    def finish(self) -> None:
        """Completes and renames the files, and removes files of more devices that an earlier
        command left: ASTRA-sim reads as many files as its network has devices."""
        for device in range(self.devices):
            self.flush(device)
        for device in range(self.devices):
            try:
                os.rename(self.temporary(device), self.path(device))
            except OSError as error:
                raise Unwritable(
                    f"{self.path(device)}: cannot be written: {error.strerror}"
                ) from None
        self.made = 0
        for path, device in self.existing():
            if device >= self.devices:
                try:
                    os.unlink(path)
                except OSError as error:
                    raise Unwritable(f"{path}: cannot be removed: {error.strerror}") from None

    def discard(self) -> None:
        """Removes files that were not finished; the files of an earlier command then remain as they
        were."""
        for device in range(self.made):
            with contextlib.suppress(OSError):
                os.unlink(self.temporary(device))


# --- the simulation ---


@dataclass
class Stage:
    device: int
    forward_bytes: int
    backward_bytes: int
    fused: bool  # its B is its F as well
    has_loss: bool
    sends_down: bool


@dataclass
class Facts:
    """The facts about a simulation that are known before it begins."""

    method: str
    devices: int
    engines: int  # of a device
    by_arrival: bool  # the devices have no fixed order
    split_backward: bool
    credit: int
    stages: list[Stage] = field(default_factory=list)
    orders: list[list[tuple]] = field(default_factory=list)  # by device: (round, action, joined)


@dataclass
class Reader:
    """Reads the order of a device for the actions of one engine. Positions count the actions of the
    device from 0, without E; -1: there is none."""

    at: int = 0  # in the order
    round: int = 0
    count: int = 0  # position of the next action
    last: list[int] = field(default_factory=lambda: [-1, -1])  # by engine: its last action
    join: int = -1  # the last action of the other engine that the actions of this engine wait for


# The nodes of the action at a position: its message, the action, the message that it sends. A
# device that can do only one of two messages at a time does the message with the smaller number.
def compute_node(position: int) -> int:
    return 3 * position + 1


# The uses of a result at a stage. CREDIT: with method.credit, a B of stage 1 lets it read one more
# microbatch.
INPUT_FORWARD, INPUT_BACKWARD, OWN_FORWARD, OWN_BACKWARD, CREDIT = range(5)


class Graph:
    """Makes the nodes of the actions, in the order in which the actions end."""

    def __init__(self, facts: Facts, files: Files) -> None:
        self.facts, self.files = facts, files
        self.readers = [(Reader(), Reader()) for _ in range(facts.devices)]  # by engine
        self.rest_ns = [0] * facts.devices  # the parts of durations below a whole microsecond
        self.step: list[tuple[Action, int]] = []  # actions of a step that have ended, their nodes
        self.finished = 0  # microbatches whose B has ended at stage 1
        # By stage, use and microbatch: the node of a result, and the node with which its step ends.
        self.results: dict[tuple[int, int, int], tuple[int, int]] = {}

    def engine(self, kind: bytes) -> int:
        return int(self.facts.engines == 2 and kind != FORWARD)

    def passes(self, reader: Reader, engine: int, kind: bytes) -> None:
        """Moves past an action in the order of the device."""
        its = self.engine(kind)
        if kind in (EVALUATE, UPDATE):
            if its == engine:  # it waits for everything before it
                reader.join = reader.last[1 - engine]
            elif kind == UPDATE:  # F and B wait for it
                reader.join = reader.count
        if kind != EVALUATE:
            reader.last[its] = reader.count
            reader.count += 1

    def find(self, action: Action, device: int) -> tuple[int, list[int], bool]:
        """Returns the position of an action, the actions that it waits for, and whether the next
        action is in the same step."""
        facts, engine = self.facts, self.engine(action[1])
        reader = self.readers[device][engine]
        order = [] if facts.by_arrival else facts.orders[device]
        while facts.by_arrival or reader.at < len(order):
            number, found, joined = (0, action, False) if facts.by_arrival else order[reader.at]
            reader.at += 1
            if number != reader.round:
                reader.round = number
                reader.join = reader.last[1 - engine]
            position, before = reader.count, reader.last[engine]
            self.passes(reader, engine, found[1])
            if found[1] == EVALUATE or self.engine(found[1]) != engine:
                continue
            if found != action:
                break
            after = [one for one in (before, reader.join) if one >= 0]
            return position, after, joined and facts.engines == 1
        raise Error(
            f"--chakra: {text_of(action)} is not the next action in the order of its device"
        )

    def take(self, stage: int, use: int, microbatch: int) -> tuple[int, int]:
        try:
            return self.results.pop((stage, use, microbatch))
        except KeyError:
            raise Error(
                f"--chakra: stage {stage} uses a result of microbatch {microbatch} that nobody"
                " computed"
            ) from None

    def write_message(
        self, use: Action, source: int, result: tuple[int, int], compute: int, after: list[int]
    ) -> None:
        """Writes the two nodes of the message that `use` receives, with the result of stage
        `source`."""
        stage, _, microbatch = use
        stages = self.facts.stages
        backward = source > stage
        sender = stages[source - 1]
        size = sender.backward_bytes if backward else sender.forward_bytes
        tag = (microbatch * len(stages) + stage - 1) * 2 + backward
        target = stages[stage - 1].device
        # The networks of ASTRA-sim refuse 0 bytes.
        more = message_attributes(max(size, 1), tag, sender.device, target)
        text = text_of((source, BACKWARD if backward else FORWARD, microbatch)).encode()
        send = node(result[0] + 1, b"send " + text, SEND, [result[1]], more=more)
        self.files.add(sender.device, send)
        receive = node(compute - 1, b"receive " + text, RECEIVE, after, more=more)
        self.files.add(target, receive)
        add_new(after, compute - 1)

    def credit(self, stage: int) -> int:
        """Returns method.credit if it may delay the F of stage 1; else 0. In a fixed order it is
        part of the order."""
        return self.facts.credit if self.facts.by_arrival and stage == 1 else 0

    def add_data(self, action: Action, compute: int, after: list[int]) -> None:
        """Adds the data that an action waits for to `after`, which has the order of the device so
        far."""
        stage, kind, microbatch = action
        stages = self.facts.stages
        about = stages[stage - 1]
        up = kind == FORWARD or (kind == BACKWARD and about.fused)
        down = kind == BACKWARD and not about.fused
        source = stage - 1 if up else stage + 1
        if (up and stage > 1) or (down and not about.has_loss):
            result = self.take(stage, INPUT_FORWARD if up else INPUT_BACKWARD, microbatch)
            if stages[source - 1].device == about.device:
                add_new(after, result[1])
            else:
                self.write_message(action, source, result, compute, after)
        if down:
            add_new(after, self.take(stage, OWN_FORWARD, microbatch)[1])
        credit = self.credit(stage)
        if kind == FORWARD and 0 < credit <= microbatch:
            add_new(after, self.take(stage, CREDIT, microbatch)[1])
        if kind == WEIGHT_GRADIENT:
            add_new(after, self.take(stage, OWN_BACKWARD, microbatch)[1])

    def keep_own(self, action: Action, id: int) -> None:
        """Keeps the node of an action for the later actions of its stage."""
        stage, kind, microbatch = action
        if kind == FORWARD:
            self.results[stage, OWN_FORWARD, microbatch] = id, id
        elif kind == BACKWARD:
            if self.facts.split_backward:
                self.results[stage, OWN_BACKWARD, microbatch] = id, id
            credit = self.credit(stage)
            if credit > 0:
                self.results[stage, CREDIT, self.finished + credit] = id, id
                self.finished += 1

    def keep_output(self, action: Action, id: int, end: int) -> None:
        """Keeps the node of an action, and the last one of its step, for the stage that uses its
        result."""
        stage, kind, microbatch = action
        if kind == FORWARD and stage < len(self.facts.stages):
            self.results[stage + 1, INPUT_FORWARD, microbatch] = id, end
        elif kind == BACKWARD and self.facts.stages[stage - 1].sends_down:
            self.results[stage - 1, INPUT_BACKWARD, microbatch] = id, end

    def pass_other(self, action: Action, device: int) -> None:
        """With a program by arrival, the order of a device is the order in which its actions
        end."""
        kind = action[1]
        for engine, reader in enumerate(self.readers[device]):
            if engine != self.engine(kind) or kind == EVALUATE:
                self.passes(reader, engine, kind)

    def end(self, action: Action, ns: int) -> None:
        """Adds the nodes of an action that has ended after so many nanoseconds."""
        device = self.facts.stages[action[0] - 1].device
        if self.facts.by_arrival:
            self.pass_other(action, device)
        if action[1] == EVALUATE:
            return
        position, before, joined = self.find(action, device)
        # The last action of a step, which waits for the others, has the time of the step.
        duration_us, self.rest_ns[device] = divmod(
            (0 if joined else ns) + self.rest_ns[device], 1000
        )
        id = compute_node(position)
        after: list[int] = []
        for one in before:
            add_new(after, compute_node(one))
        self.add_data(action, id, after)
        self.files.add(device, node(id, text_of(action).encode(), COMPUTE, after, duration_us))
        self.keep_own(action, id)
        self.step.append((action, id))
        if not joined:
            for part, its in self.step:
                self.keep_output(part, its, id)
            self.step.clear()


def add_new(after: list[int], id: int) -> None:
    if id not in after:
        after.append(id)


def text_of(action: Action) -> str:
    return f"{action[0]}{action[1].decode()}{action[2]}"


def action_of(word: bytes) -> Action:
    stage, kind, microbatch = ACTION.fullmatch(word).groups()
    return int(stage), kind, int(microbatch)


# --- the lines that the program writes ---


def read_facts(lines: Iterator[bytes]) -> tuple[Facts | None, bytes]:
    """Returns the facts that are known before the simulation begins, and the first line after
    them."""
    facts, method = None, ""
    for line in lines:
        word, *rest = line.split()
        if word == b"method":
            method = line[7:-1].decode("utf-8", "surrogateescape")
        elif word == b"run":
            devices, engines, by_arrival, split_backward, credit = map(int, rest)
            facts = Facts(method, devices, engines, bool(by_arrival), bool(split_backward), credit)
            facts.orders = [[] for _ in range(devices)]
        elif word == b"stage" and facts:
            device, forward, backward, fused, has_loss, sends_down = map(int, rest)
            facts.stages.append(
                Stage(device, forward, backward, bool(fused), bool(has_loss), bool(sends_down))
            )
        elif word == b"order" and facts:
            order = facts.orders[int(rest[0])]
            order.append((int(rest[1]), action_of(rest[2]), rest[3] == b"1"))
        else:
            return facts, line
    return facts, b""


def write(lines: Iterable[bytes], folder: str, overwrite: bool) -> None:
    """Writes the files of the simulation that the lines describe; no file if the last line does not
    say that they are complete."""
    lines = iter(lines)
    facts, line = read_facts(lines)
    if not facts:
        return
    files = None
    try:
        files = Files(folder, facts.devices, facts.method, overwrite)
        graph = Graph(facts, files)
        while line.startswith(b"end "):
            _, action, ns = line.split()
            graph.end(action_of(action), int(ns))
            line = next(lines, b"")
        if line == b"complete\n":
            files.finish()
    finally:
        if files:
            files.discard()
