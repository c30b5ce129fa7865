# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package. A function that fails raises one of them with one line: what is
wrong, where, and what was expected."""

from __future__ import annotations


class Error(Exception):
    """The user must change an argument, a config or a file. `status` is the exit status of a script
    that ends with the error (docs/adr/0004-exit-codes.md)."""

    status = 2


class Unreadable(Error):
    """A file or folder is missing, or does not have the expected content."""

    status = 1


class Unwritable(Error):
    """A file cannot be written."""

    status = 1


class MissingModule(Error, ImportError):
    """This Python lacks a module that the function needs."""

    status = 1


class StageError(Error):
    """A module of the user cannot be trained as a stage. The message begins with the number of the
    stage."""


class Diverged(Error):
    """A loss is not finite."""

    status = 1
