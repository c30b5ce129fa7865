# SPDX-License-Identifier: Apache-2.0
"""The sweep as a Slurm array job with one task per cell."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import command, program
from ..errors import Unreadable
from ..text import shown
from .cells import State

if TYPE_CHECKING:
    from .sweep import Sweep


def quoted(text: str) -> str:
    r"""Returns a text in single quotes for a shell. Characters that a terminal does not show become
    bytes that the shell's printf makes.

    >>> print(quoted("it's"))
    'it'\''s'
    """
    parts = []
    for character in text:
        if character == "'":
            parts.append("'\\''")
        elif character == "\n" or shown(character) == character:  # $() removes line breaks
            parts.append(character)
        else:
            data = character.encode("utf-8", "surrogateescape")
            parts += [f"'\"$(printf '\\{byte:03o}')\"'" for byte in data]
    return "'" + "".join(parts) + "'"


def ranges(numbers: Iterable[int]) -> str:
    """Returns rising numbers in the form that Slurm accepts.

    >>> ranges([1, 2, 3, 4, 7])
    '1-4,7'
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def print_script(sweep: Sweep) -> None:
    """Prints a script for sbatch that runs the open cells as an array."""
    path = os.path.realpath(program.find())
    try:
        folder = os.getcwd()
    except OSError as error:
        raise Unreadable(f"the working directory: cannot be read: {error.strerror}") from None
    numbers = [cell.number + 1 for cell in sweep.cells if cell.state is State.OPEN]
    if not numbers:
        if not sweep.quiet:
            command.say(f"{sweep.directory}: every cell is complete; there is nothing to submit")
        return
    at_once = f"%{sweep.jobs}" if sweep.jobs_given else ""
    words = [quoted(path), "sweep", quoted(sweep.grid.path)]
    for setting in sweep.settings:
        words += ["--set", quoted(setting)]
    words += ["--output", quoted(sweep.directory), "--cell", '"$SLURM_ARRAY_TASK_ID"']
    print(f"#!/bin/sh\n#SBATCH --job-name=petra-sweep\n#SBATCH --array={ranges(numbers)}{at_once}")
    print(f"cd {quoted(folder)} || exit 1\nexec {' '.join(words)}")
