# SPDX-License-Identifier: Apache-2.0
"""The subcommands of petra that are written in Python: their tables of options, their help and
their errors.

A subcommand is a module of petrapipe/commands/ with a Command, and is loaded when it is requested.
The program starts one by analysis/petra_python.py and passes all arguments on; `python -m petrapipe
NAME ...` does the same."""

from __future__ import annotations

import errno
import getopt
import importlib
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Callable, TextIO

from .commands import NAMES, PARTS
from .errors import Error
from .modules import modules
from .nearest import hint
from .program import find
from .text import shown

INPUTS_MAX = 4096
SETS_MAX = 256
LINE_BYTES = 2047  # of a message; what follows is cut
SHORT_OPTIONS = "ho:"
FILES_OF_RUNS = ("run.h5", "checkpoint.h5", "weights.h5")


@dataclass(frozen=True)
class Option:
    """An option of a subcommand. `value` is the placeholder of its value in the help, or "a|b" for
    one of these; None if it has no value. `repeated`: 0 if the last value counts, 1 if a second
    value is an error, else the maximum number of values, which are a list. An option without help
    is for scripts, and is not shown."""

    name: str
    value: str | None = None
    help: str | None = None
    repeated: int = 0

    @property
    def member(self) -> str:
        return self.name.replace("-", "_")


@dataclass(frozen=True)
class Command:
    """A subcommand. `inputs` are the minimum and maximum numbers of files or folders; with
    `takes_config` the maximum is 1. If `actions` is, for example, "a, b or c", the first argument
    is one of these words. `needs` are the modules that `run` needs, `wished` the modules that it
    loads later. If `writes` is set, it writes files with any arguments, otherwise only with the
    options --output, --trace and --csv. A `lasting` subcommand continues if its standard output is
    no longer read."""

    name: str
    summary: str
    arguments: str
    help: str
    run: Callable[[SimpleNamespace], None]
    options: Sequence[Option] = field(default_factory=tuple)
    inputs: tuple[int, int] = (0, 0)
    actions: str | None = None
    takes_config: bool = False
    needs: Sequence[str] = ("h5py", "numpy")
    wished: Sequence[str] = ()
    writes: bool = False
    lasting: bool = False

    def all_options(self) -> list[Option]:
        """Returns the options of this subcommand and the options of all subcommands, in the order
        of the help."""
        writer = any(option.name == "output" for option in self.options)
        return [
            *([SET] if self.takes_config else []),
            *self.options,
            JSON,
            QUIET_WRITER if writer else QUIET,
            *(CONFIG_HELP if self.takes_config else []),
            HELP,
        ]


SET = Option(
    "set",
    "KEY=VALUE",
    "overrides a key of the config, such as --set optim.lr=0.05; may be repeated; VALUE is YAML:"
    " quote a list or a text with spaces (--set 'lr.milestones=[10, 15]'), and quote a text with '"
    " #' or ': ' twice (--set 'data.path=\"/data/my #1 set\"')",
    SETS_MAX,
)
JSON = Option("json", None, "prints one JSON object to standard output, and nothing else")
QUIET = Option("quiet", None, "prints no warnings")
QUIET_WRITER = Option(
    "quiet",
    None,
    "prints only errors, the object of --json and, of petra simulate without --output, the result",
)
CONFIG_HELP = (
    Option(
        "help-config",
        None,
        "prints every key of a config with its type, default, range and meaning",
    ),
    Option("help-config-markdown"),
    Option("help-log-markdown"),
)
HELP = Option("help", None, "prints this text")


class Usage(Error):
    """The command line is wrong."""


def load(name: str) -> Command:
    """Returns the subcommand with this name."""
    return importlib.import_module(f"{__package__}.commands.{name}").COMMAND


# --- messages ---


def say(text: object) -> None:
    """Prints a line of the program to standard error. A line that is too long is cut, as in
    base/log.c."""
    line = str(text).encode("utf-8", "surrogateescape")[:LINE_BYTES]
    try:
        print(
            "petra: " + shown(line.decode("utf-8", "surrogateescape")), file=sys.stderr, flush=True
        )
    except OSError:
        pass  # standard error is not read


def warn(text: object) -> None:
    """Prints a warning, unless --quiet was given."""
    warnings.warn(str(text), UserWarning, stacklevel=2)


# --- the help ---


def help_text(command: Command) -> str:
    """Returns what `petra NAME --help` prints."""
    lines = [
        f"usage: petra {command.name}{' ' * bool(command.arguments)}{command.arguments}\n"
        f"\n{command.help}\n"
        "options:\n"
    ]
    for option in command.all_options():
        if option.help:
            head = f"  --{option.name + (' ' + option.value if option.value else ''):13s} "
            lines.append(wrapped(head, option.help))
    return "".join(lines)


def wrapped(head: str, text: str, width: int = 108, indent: int = 19) -> str:
    """Returns a text behind a head, in lines of at most this number of columns."""
    lines = textwrap.wrap(
        text,
        width=width,
        initial_indent=head + " ",
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def completion_lines() -> list[str]:
    """Returns the words of all subcommands in Python for scripts/completion: their actions and
    options."""
    lines = []
    for command in map(load, NAMES):
        actions = (command.actions or "").replace(",", " ").split()
        lines += [f"action {action} {command.name}" for action in actions if action != "or"]
        lines += [
            f"option --{option.name} {command.name}{' ' + option.value if option.value else ''}"
            for option in command.all_options()
            if option.help
        ]
    return lines


# --- the command line ---


def option_of(command: Command, word: str) -> Option | None:
    """Returns the option of an argument --NAME or --NAME=VALUE; None if the subcommand has none."""
    name = word[2:].split("=", 1)[0]
    return next((option for option in command.all_options() if option.name == name), None)


def takers_of(word: str) -> bool:
    """Returns whether any subcommand, in C or in Python, has the option of an argument."""
    try:
        asked = [find(), "--help-completion"]  # which prints those in Python as well
        lines = subprocess.run(
            asked, capture_output=True, text=True, check=False
        ).stdout.splitlines()
    except (OSError, Error):
        lines = completion_lines()
    name = word.split("=", 1)[0]
    return any(line.split()[:2] == ["option", name] for line in lines)


def wrong_option(command: Command, word: str) -> Usage:
    """Returns the error of an option that has no value, that another subcommand has, or that does
    not exist."""
    see = f"see petra {command.name} --help"
    found = option_of(command, word)
    if found:
        return Usage(f"{word}: --{found.name} takes no value; {see}")
    name = word.split("=", 1)[0]
    if word.startswith("--") and takers_of(word):
        return Usage(f"petra {command.name} takes no {name}; {see}")
    names = [option.name for option in reversed(command.all_options()) if option.help]
    return Usage(f"unknown option {word}; {see}{hint(name.lstrip('-'), names, '--')}")


def next_option(command: Command, words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Returns the options of the first word, which may have several letters, with their values, and
    the remaining words."""
    long_options = [option.name + ("=" if option.value else "") for option in command.all_options()]
    for count in (1, 2):
        try:
            found, _ = getopt.getopt(words[:count], SHORT_OPTIONS, long_options)
            return found, words[count:]
        except getopt.GetoptError as error:
            if "requires argument" not in error.msg:
                raise wrong_option(command, words[0]) from None
    raise Usage(f"{words[0]} needs a value; see petra {command.name} --help")


def take(option: Option, value: str, found: SimpleNamespace) -> None:
    """Stores the value of an option."""
    if not option.value:
        setattr(found, option.member, True)
        return
    if not value and option.value in ("DIR", "FILE"):
        kind = "folder" if option.value == "DIR" else "file"
        raise Usage(f"--{option.name}: expected a {kind}, got an empty name")
    if option.repeated > 1:
        values = getattr(found, option.member)
        if len(values) == option.repeated:
            raise Usage(f"more than {option.repeated} --{option.name} options")
        values.append(value)
        return
    if option.repeated == 1 and getattr(found, option.member) is not None:
        raise Usage(f"--{option.name} was given twice; expected it once")
    setattr(found, option.member, value)


def parse(command: Command, words: Sequence[str]) -> SimpleNamespace | None:
    """Returns the arguments of a subcommand: a member for each option, `inputs`, `input` (the first
    of the inputs) and `action`. Returns None if the command line asked for help, which is then
    printed."""
    options = {option.name: option for option in command.all_options()}
    found = SimpleNamespace(action=None, inputs=[], input=None)
    for option in options.values():
        empty: Any = [] if option.repeated > 1 else None if option.value else False
        setattr(found, option.member, empty)
    rest, operands = list(words), []
    while rest:
        if rest[0] == "--":
            operands += rest[1:]
            break
        if rest[0] == "-" or not rest[0].startswith("-"):
            operands.append(rest.pop(0))
            continue
        pairs, rest = next_option(command, rest)
        for name, value in pairs:
            if name == "-o" and "output" not in options:
                raise Usage(f"petra {command.name} takes no -o; see petra {command.name} --help")
            name = {"-o": "output", "-h": "help"}.get(name, name[2:])
            if name == "help":
                print(help_text(command), end="")
                return None
            if name in (option.name for option in CONFIG_HELP):
                sys.stdout.flush()
                subprocess.run([find(), "train", f"--{name}"], check=False)
                return None
            take(options[name], value, found)
    take_operands(command, operands, found)
    return found


def take_operands(command: Command, operands: list[str], found: SimpleNamespace) -> None:
    """Stores the arguments that are not options: an action, files and folders."""
    see = f"see petra {command.name} --help"
    least, most = (command.inputs[0], 1) if command.takes_config else command.inputs
    if command.actions:
        if not operands:
            raise Usage(f"petra {command.name}: no action; expected {command.actions}; {see}")
        found.action = operands.pop(0)
    count = len(operands)
    if most == 0 and count > 0:
        raise Usage(f"petra {command.name} takes no config; {see}")
    if count > most == 1:
        what = "file" if command.takes_config else "file or folder"
        raise Usage(f"expected one {what}, got '{operands[0]}' and '{operands[1]}'")
    if count < least and count == 0:
        raise Usage(
            f"petra {command.name}: no file or folder was given; expected"
            f" {command.arguments.split(' ')[0]}; {see}"
        )
    if count < least or count > most:
        raise Usage(f"petra {command.name}: {count} given; expected {command.arguments}; {see}")
    found.inputs = operands
    found.input = operands[0] if operands else None


def integer(option: str, text: str, least: int, most: int) -> int:
    """Returns the value of an option that is an integer.

    >>> integer("--jobs", "4", 0, 1024)
    4
    """
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise Usage(f"{option}: '{text}'; expected an integer, {least} .. {most}")
    return int(text)


def check_replaced(option: str, path: str, inputs: Sequence[str]) -> None:
    """Refuses an output file that would replace a file that the command reads, or a file of a
    run."""
    try:
        target = os.stat(path)
    except OSError:
        return
    if not stat.S_ISREG(target.st_mode):
        return
    for place in inputs:
        if os.path.exists(place) and os.path.samestat(os.stat(place), target):
            raise Usage(f"--{option}: {path} is also an input; expected another name")
    if os.path.basename(path) in FILES_OF_RUNS:
        raise Usage(
            f"--{option}: {path} exists and has the name of a file of a run; expected another name"
        )


def check_outputs(command: Command, arguments: SimpleNamespace) -> None:
    """Checks the files that the options name, and that one process writes them."""
    written = [name for name in ("output", "trace", "csv") if getattr(arguments, name, None)]
    for option in command.options:
        if option.name in ("output", "trace") and (option.value or "").startswith("FILE"):
            value = getattr(arguments, option.member)
            if value:
                check_replaced(option.name, value, arguments.inputs)
    started = os.environ.get("PETRA_LAUNCHED")  # by the program: how many processes, by what, which
    exempt = getattr(arguments, "cell", None) or getattr(arguments, "slurm", False)
    if started and (command.writes or written) and not exempt:
        count, name, rank = started.split()
        if rank != "0":
            time.sleep(5)  # the first process, which found the same, has ended the others before
        raise Usage(
            f"{count} processes were launched (by {name}), but petra {command.name} runs in one"
            f" process, and each would write the same files; expected one process (or {name} unset,"
            " if each process is to write files of its own)"
        )


# --- running ---


def need(needed: Sequence[str], wished: Sequence[str] = ()) -> None:
    """Raises MissingModule if this Python lacks one of the modules `needed`."""
    modules(*needed)


def execute(command: Command, words: Sequence[str], choose: Callable[..., Any] = need) -> None:
    """Runs a subcommand with the arguments that follow its name. choose(needed, wished) raises
    MissingModule if no Python has the modules `needed`; it may start the process once more in
    another Python."""
    arguments = parse(command, words)
    if arguments is None:
        return
    check_outputs(command, arguments)
    choose(command.needs, command.wished)
    if arguments.quiet:
        warnings.simplefilter("ignore", UserWarning)
    if command.lasting:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    command.run(arguments)


class Output:
    """Standard output. A failed write is remembered until the end, as in C's streams, and later
    output is lost."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        self.attempt(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        self.attempt(lambda stream: stream.flush())

    def attempt(self, action: Callable[[TextIO], Any]) -> None:
        """Performs an operation on the stream, unless an operation has failed before."""
        try:
            if self.stream is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if not self.error:
                action(self.stream)
        except OSError as error:
            self.error = error
            # At its end the interpreter writes the remaining output, and would print lines of its
            # own if that failed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def close_with(self, status: int) -> int:
        """Writes the remaining output. Returns the exit status of the process; `status` is the exit
        status of the subcommand."""
        self.flush()
        if self.error and status == 0 and isinstance(self.error, BrokenPipeError):
            say("warning: the reader closed standard output; the command continued to its end")
        elif self.error and status == 0:
            say("standard output could not be written")
            status = 1
        return status


def main(words: Sequence[str], choose: Callable[..., Any] = need) -> int:
    """Runs the subcommand that the first word names; `choose` as for execute. Returns the exit
    status of the process; an error is one line."""
    output = prepare()
    status = 0
    try:
        if list(words) == ["--help-completion"]:
            print("\n".join(completion_lines()))
        elif words and words[0] in (*NAMES, *PARTS):
            execute(load(words[0]), words[1:], choose)
        else:
            what = f" '{words[0]}'" if words else ""
            near = hint(words[0], NAMES) if words else ""
            names = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"
            raise Usage(f"no subcommand{what}; expected {names} (see petra --help){near}")
    except Error as error:
        say(error)
        status = error.status
    except MemoryError:
        say("out of memory")
        status = 1
    return output.close_with(status)


def prepare() -> Output:
    """Sets up everything that subcommands have in common with the program: signals, streams in
    UTF-8, and warnings of one line."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    streams: list[Any] = [sys.stdout, sys.stderr]
    for stream in streams:
        if stream:
            stream.reconfigure(encoding="utf-8", errors="petra")
    warnings.simplefilter("always", UserWarning)
    warnings.showwarning = lambda message, *_: say(f"warning: {message}")
    sys.stdout = Output(sys.stdout)
    return sys.stdout
