# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this package. Functions raise them; only scripts end the process."""


class Error(ValueError):
    """An input lacks what was asked for. `status` is the exit status of a script that ends with it (docs/adr/0004-exit-codes.md)."""

    status = 2


class Unreadable(Error):
    """A file is missing or damaged, or cannot be written."""

    status = 1


class StageError(Error):
    """A module of the user cannot be trained as a stage. The message begins with the number of the stage."""


class Diverged(Error):
    """A loss is not finite."""

    status = 1
