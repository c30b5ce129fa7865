# SPDX-License-Identifier: Apache-2.0
"""Questions to the program petra, which knows what a config means and simulates it
(docs/requests.md).

    answers = inspect([{"config": [text_layer(name, text)], "keys": ["optim.lr"], "size": True}])
    answers[0]["keys"]["optim.lr"]["value"]           # "0.1", as YAML
    with Program("simulate") as program:              # one question after the other
        seconds = program.ask({"config": layers, "times_alone": True})["time_per_microbatch_s"]

One process of the program answers all questions, so that a question costs no more than its own
work."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import Error, Unreadable
from .text import shown

Request = Mapping[str, Any]
Answer = dict  # of str to anything


class PetraError(Error):
    """A question that the program answers with an error. The message is the line of the program,
    `status` its exit status."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status


def find(path: str | None = None) -> str:
    """Returns the path of the program: `path`, the environment variable PETRA, the program that was
    built, installed or bundled with this package, or `petra` on PATH."""
    return path or os.environ.get("PETRA") or _own()


@functools.cache
def _own() -> str:
    package = os.path.dirname(os.path.abspath(__file__))
    for beside in ("../../build/petra", "../../petra", "../../../../bin/petra"):
        path = os.path.normpath(os.path.join(package, beside))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which("petra")
    if found:
        return found
    raise Unreadable(
        "no program petra beside this package or on PATH; expected its path in the environment "
        "variable PETRA"
    )


# --- the layers of a config; each one overrides those before it ---


def text_layer(name: str, text: str) -> dict[str, Any]:
    """Returns a layer with the text of a config. `name` is the file that messages name."""
    return {"name": shown(name), "text": text}


def file_layer(path: str, keys: str | None = None) -> dict[str, Any]:
    """Returns a layer with the config in a file; `keys` is "cluster" or "model" for a file of which
    only these keys are read."""
    return {"path": path} if keys is None else {"path": path, "keys": keys}


def set_layer(settings: Sequence[str], name: str | None = None) -> dict[str, Any]:
    """Returns a layer with settings "KEY=VALUE". `name` is their origin, which messages name; None:
    they are the settings of --set."""
    return {"set": list(settings)} if name is None else {"set": list(settings), "name": name}


# --- questions ---


def check(answer: Answer) -> Answer:
    """Returns the answer. Raises PetraError if it is an error."""
    if "error" in answer:
        raise PetraError(answer["error"], answer["status"])
    return answer


def ended(status: int, errors: str) -> Error:
    """Returns the error of a program that ended before its last answer."""
    line = errors.strip().splitlines()[-1] if errors.strip() else f"exit status {status}"
    return Unreadable(f"{find()}: ended without an answer: {line}")


def encoded(request: Request) -> bytes:
    try:
        return json.dumps(request, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        raise Error(f"{shown(request['config'])}: not UTF-8; expected names in UTF-8") from None


class Program:
    """A process of the program that answers one question after the other; a context manager.
    `command` is "inspect" or "simulate"."""

    def __init__(self, command: str) -> None:
        self.line = [find(), command, "--requests", "-"]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        if self.process:
            self.process.communicate()
            self.process = None

    def ask(self, request: Request) -> Answer:
        """Returns the answer to a question. Raises PetraError if it is an error."""
        self.send(request)
        return check(self.receive())

    def send(self, request: Request) -> None:
        """Sends a question, whose answer receive() returns. At most one other question may wait for
        its answer."""
        if not self.process:
            self.process = started(self.line, None)
        assert self.process.stdin
        try:
            self.process.stdin.write(encoded(request))
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # receive() finds the end

    def receive(self) -> Answer:
        """Returns the answer to the first question that waits for it."""
        assert self.process and self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise ended(self.process.wait(), "")
        return json.loads(line)


def started(line: list[str], errors: int | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=1 << 16
        )
    except OSError as error:
        raise Unreadable(
            f"{line[0]}: cannot be started: {error.strerror}; expected the program petra"
        ) from None


def ask_all(command: str, requests: Iterable[Request]) -> list[Answer]:
    """Returns the answers to questions, in their order; the answer to a question that failed has
    "error" and "status"."""
    questions = b"".join(map(encoded, requests))
    if not questions:
        return []
    process = started([find(), command, "--requests", "-"], subprocess.PIPE)
    output, errors = process.communicate(questions)
    answers = [json.loads(line) for line in output.splitlines()]
    if process.returncode != 0 or len(answers) != questions.count(b"\n"):
        raise ended(process.returncode, errors.decode(errors="replace"))
    return answers


def inspect(requests: Iterable[Request]) -> list[Answer]:
    """Returns what configs mean (docs/requests.md), in the order of the questions; see ask_all."""
    return ask_all("inspect", requests)


def simulate(requests: Iterable[Request]) -> list[Answer]:
    """Returns the simulations of configs (docs/requests.md), in the order of the questions; see
    ask_all."""
    return ask_all("simulate", requests)


# --- values ---


def plain(value: str) -> Any:
    """Returns the value of a key, which an answer has as YAML.

    >>> plain("0.1"), plain("[1, 2]"), plain('"a b"'), plain("sgd"), plain("true")
    (0.1, [1, 2], 'a b', 'sgd', True)
    """
    try:
        return json.loads(value)
    except ValueError:
        if value.startswith("["):  # a list of words
            return value[1:-1].split(", ")
        return value


def failure(key: str, label: str | None, text: str) -> PetraError:
    """Returns the error of a value of a config that is wrong in combination with other values.
    `label` is the label of the key in an answer.

    >>> str(failure("optim.lr", "--set optim.lr=2", "2: too large"))
    '--set optim.lr=2: too large'
    """
    label = label or f"default: {key}"
    value, _, rest = text.partition(": ")
    return PetraError(f"{label}: {rest if label.endswith('=' + value) else text}", 2)
