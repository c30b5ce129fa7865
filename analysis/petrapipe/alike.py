# SPDX-License-Identifier: Apache-2.0
"""The quantities that make runs comparable: their devices, and the samples of an update. A size is
the `size` of an answer of the program (docs/requests.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .text import shown

QUANTITIES = ("devices", "update_samples", "update_labels")
NAMED = 3  # names that a value lists


def quantity_of(size: Mapping[str, int], quantity: str) -> int:
    """Returns a quantity; 0 if it is not known."""
    return size[quantity] if size["devices"] > 0 else 0


def are_alike(a: Mapping[str, int], b: Mapping[str, int]) -> bool:
    """Returns whether the runs differ neither in devices nor in samples."""
    return all(a[quantity] == b[quantity] for quantity in QUANTITIES)


def values_text(values: Sequence[int], names: Sequence[str]) -> str:
    """Returns each value with the names that have it; "" if all known values are equal.

    >>> values_text([8, 4, 8, 0], ["a", "b", "c", "d"])
    '8 (a; c), 4 (b)'
    """
    texts = []
    for value in dict.fromkeys(values):
        having = [shown(name) for name, one in zip(names, values) if one == value]
        if value == 0:
            continue
        more = len(having) - NAMED
        others = f" and {more} other{'s' if more > 1 else ''}" if more > 0 else ""
        texts.append(f"{value} ({'; '.join(having[:NAMED])}{others})")
    return ", ".join(texts) if len(texts) > 1 else ""


def unlike_text(
    sizes: Sequence[Mapping[str, int]], names: Sequence[str], samples: str = "samples"
) -> str:
    """Returns the quantities in which runs or groups differ, each value with the names that have
    it; "" if all are alike. `samples` is the word for samples.

    >>> size = {"devices": 4, "update_samples": 8, "update_labels": 8}
    >>> unlike_text([size, {**size, "devices": 2}], ["1f1b", "zb-v"])
    'devices: 4 (1f1b), 2 (zb-v)'
    """

    def differing(quantity: str, word: str) -> list[str]:
        text = values_text([quantity_of(size, quantity) for size in sizes], names)
        return [f"{word}: {text}"] if text else []

    parts = differing("update_samples", f"{samples} per update") or differing(
        "update_labels", "tokens per update"
    )
    return "; ".join([*differing("devices", "devices"), *parts])
