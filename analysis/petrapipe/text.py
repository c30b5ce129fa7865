# SPDX-License-Identifier: Apache-2.0
"""Free texts (names of files and runs, values of configs) as figures, tables, pages and messages
show them."""

from __future__ import annotations

import codecs
import html
import unicodedata
from collections.abc import Iterable
from typing import Any


def is_shown(code: int) -> bool:
    """Returns whether a character may be printed on a terminal: it is not a control character, not
    a mark that changes the direction, and not a half character.

    >>> is_shown(ord("a")), is_shown(10), is_shown(0x202E)
    (True, False, False)
    """
    return not (
        code < 0x20
        or 0x7F <= code <= 0x9F
        or code in (0x61C, 0x200E, 0x200F, 0xFEFF, 0xFFFE, 0xFFFF)
        or 0x2028 <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
        or 0xD800 <= code <= 0xDFFF
    )


def shown(text: object) -> str:
    r"""Returns a free text as every figure, table and message prints it: one line. Each byte of a
    character that could disturb a terminal, and each byte that is not UTF-8, has the form \x1b, as
    in the program (src/base/utf8.h).

    >>> print(shown("two\nlines"))
    two\x0alines
    """

    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        one
        if is_shown(ord(one))
        else "".join(
            f"\\x{byte:02x}"
            for byte in one.encode(
                "utf-8", "surrogateescape" if "\udc80" <= one <= "\udcff" else "surrogatepass"
            )
        )
        for one in text
    )


def _written(error: Any) -> tuple[str, int]:
    text = error.object[error.start : error.end]
    foreign = any(0xD800 <= ord(character) <= 0xDFFF for character in text)
    return shown(text) if foreign else "?" * len(text), error.end


# A stream with errors="petra" writes this instead of a byte or a character that its encoding lacks.
codecs.register_error("petra", _written)


def shortened(text: object, size: int) -> str:
    """Returns a free text as `shown` does, cut to fewer than `size` bytes of UTF-8; a text that is
    cut ends in "...".

    >>> shortened("abcdefgh", 9), shortened("abcdefgh", 8)
    ('abcdefgh', 'abcd...')
    """
    parts = [shown(character) for character in str(text)]
    used = fits = 0  # bytes; fits: how many can stay if "..." follows
    for part in parts:
        used += len(part.encode())
        if used >= size:
            return "".join(parts).encode()[:fits].decode() + "..."
        fits = used if used + 4 <= size else fits
    return "".join(parts)


def brief(value: object, length: int = 80) -> str:
    """Returns a value of a file of others, on one line and with at most this number of characters.

    >>> brief("a" * 100, 10)
    'aaaaaaa...'
    """
    try:
        text = " ".join(str(value).split())
    except (
        ValueError,
        RecursionError,
    ):  # an integer of thousands of digits, lists deep within each other
        text = f"a long {type(value).__name__}"
    return text if len(text) <= length else text[: length - 3] + "..."


def drawn(text: object) -> str:
    r"""Returns a free text that matplotlib draws unchanged: a $ does not begin mathematics, and a
    leading _ does not hide it from a legend.

    >>> print(drawn("5 $ a_b"))
    5 \$ a_b
    """
    text = shown(text).replace("$", r"\$")
    return "\u200b" + text if text.startswith("_") else text


def plotted(text: object) -> str:
    """Returns a free text that Plotly draws unchanged: it does not begin a tag such as <b> or a
    reference such as &lt;.

    >>> plotted("<b>")
    '&lt;b&gt;'
    """
    return html.escape(shown(text), quote=False)


def columns_of(text: str) -> int:
    """Returns the number of columns of a terminal that a shown text takes.

    >>> columns_of("ab"), columns_of("日本")
    (2, 4)
    """
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


def padded(text: object, columns: int, right: bool = False) -> str:
    """Returns a free text padded to this number of columns, aligned left or right.

    >>> padded("ab", 4), padded("ab", 4, right=True)
    ('ab  ', '  ab')
    """
    text = shown(text)
    blanks = " " * (columns - columns_of(text))
    return blanks + text if right else text + blanks


def cell(text: object) -> str:
    r"""Returns a free text for a table of Markdown, in which | would end the cell.

    >>> print(cell("a|b"))
    a\|b
    """
    return shown(text).replace("|", r"\|")


def edit_distance(a: str, b: str) -> int:
    """Returns the number of letters to change, add, leave out or exchange with the next one that
    makes `a` from `b`.

    >>> edit_distance("trian", "train"), edit_distance("bse", "base")
    (1, 1)
    """
    cost = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            moved = min(cost[i - 1][j], cost[i][j - 1]) + 1
            cost[i][j] = min(moved, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                cost[i][j] = min(cost[i][j], cost[i - 2][j - 2] + 1)
    return cost[-1][-1]


def nearest_hint(word: str, names: Iterable[str], before: str = "") -> str:
    """Returns "; did you mean NAME?" for the name that a misspelled word most likely means, or "".

    >>> nearest_hint("trian", ("train", "simulate"))
    '; did you mean train?'
    """
    found, given = "", word.lower()
    best = 2 + (len(word) - 1) // 4  # too far: one mistake in four letters, two in five
    for name in names if 2 <= len(word) <= 63 else ():
        near = name.lower()
        distance = 1 if near.startswith(given) else edit_distance(given, near)
        if distance < best:
            best, found = distance, name
    return f"; did you mean {before}{found}?" if found else ""
