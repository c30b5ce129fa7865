# SPDX-License-Identifier: Apache-2.0
"""petra simulate --chakra: writes execution traces. The program has read the options, and writes
the actions to standard input."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from ..command import Command, Option


def run(arguments: SimpleNamespace) -> None:
    """Writes the files."""
    from ..chakra import write

    write(sys.stdin.buffer, arguments.output, arguments.overwrite)


COMMAND = Command(
    name="chakra",
    summary="writes a simulation as execution traces of MLCommons Chakra",
    arguments="--output DIR [--overwrite]",
    help="Is started by petra simulate --chakra; see petra simulate --help.",
    options=(Option("output", "DIR", "the folder of the files"), Option("overwrite")),
    needs=(),
    run=run,
)
