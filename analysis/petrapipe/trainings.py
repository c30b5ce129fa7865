# SPDX-License-Identifier: Apache-2.0
"""The attribute `training` of the log of a run in PyTorch: lines "KEY: VALUE" with everything that
determines the training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# A run with the attribute does not use the keys of these sections of its config.
UNUSED = ("model.", "optim.", "device.")


def lines_of(training: str | None) -> dict[str, str]:
    """Returns the lines by their keys.

    >>> lines_of("trainer.seed: 1\\nstage.1: Stem")
    {'trainer.seed': '1', 'stage.1': 'Stem'}
    """
    found: dict[str, str] = {}
    for line in (training or "").split("\n"):
        key, colon, value = line.partition(":")
        if key:
            found.setdefault(key, value[1:] if value.startswith(" ") else value)
    return found


def has_key(training: str | None, key: str) -> bool:
    """Returns whether a key of the config has an effect in a run with this attribute; None: the log
    lacks the attribute."""
    return training is None or not key.startswith(UNUSED)


def differences(trainings: Sequence[str | None]) -> Iterator[tuple[str, list[str | None]]]:
    """Yields each key whose value differs between any of the runs, with the values; None if a run
    does not have the key.

    >>> list(differences(["a: 1\\nb: 2", "a: 1"]))
    [('b', ['2', None])]
    """
    runs = [lines_of(training) for training in trainings]
    for key in dict.fromkeys(key for lines in runs for key in lines):
        values = [lines.get(key) for lines in runs]
        if any(value != values[0] for value in values):
            yield key, values


def is_missing(backend: str, training: str | None) -> bool:
    """Returns whether the log of a run in PyTorch lacks the attribute: an earlier version wrote
    it."""
    return backend.startswith("PyTorch ") and training is None
