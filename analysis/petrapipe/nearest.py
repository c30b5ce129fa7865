# SPDX-License-Identifier: Apache-2.0
"""Suggestions for a misspelled name, for the end of an error line: the same as src/base/text.c
makes."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 63  # bytes of a word that is compared


def distance(a: str, b: str) -> int:
    """Returns the minimum number of insertions, deletions, replacements and swaps of neighbours
    that turn a into b.

    >>> distance("trian", "train"), distance("eval", "evaluate")
    (1, 4)
    """
    cost = [[i + j for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost[i][j] = min(
                cost[i - 1][j] + 1,
                cost[i][j - 1] + 1,
                cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
            )
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                cost[i][j] = min(cost[i][j], cost[i - 2][j - 2] + 1)
    return cost[len(a)][len(b)]


def hint(word: str, names: Iterable[str], before: str = "") -> str:
    """Returns "; did you mean NAME?" for the name that resembles a word, or that begins with it; ""
    if there is none.

    >>> hint("jsno", ["output", "json"], "--")
    '; did you mean --json?'
    >>> hint("xyzzy", ["output", "json"])
    ''
    """
    if not 2 <= len(word) <= LONGEST:
        return ""
    given, found = word.lower(), None
    # The first distance that is too large: one mistake is allowed in four letters, two in five.
    best = 2 + (len(word) - 1) // 4
    for name in names:
        if len(name) > LONGEST:
            continue
        far = 1 if name.lower().startswith(given) else distance(given, name.lower())
        if far < best:
            best, found = far, name
    return f"; did you mean {before}{found}?" if found else ""
