# SPDX-License-Identifier: Apache-2.0
"""The output of the subcommands: aligned tables of text, and JSON as the program prints it
(src/base/text.h, json.h).

A table is written once, as a list of columns, for the text and for JSON."""

from __future__ import annotations

import json
import math
import numbers
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from .text import is_shown, shown

# First and last characters of ranges: combining or invisible marks, and characters that East Asian
# fonts draw wide.
NO_COLUMN = (
    (0x300, 0x36F), (0x483, 0x489), (0x591, 0x5BD), (0x64B, 0x65F), (0x93C, 0x93C), (0x94D, 0x94D),
    (0xE31, 0xE31), (0xE34, 0xE3A), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x200B, 0x200D),
    (0x20D0, 0x20FF), (0xFE00, 0xFE0F), (0xFE20, 0xFE2F), (0xE0100, 0xE01EF),
)  # fmt: skip
TWO_COLUMNS = (
    (0x1100, 0x115F), (0x231A, 0x231B), (0x2E80, 0x303E), (0x3041, 0x4DBF), (0x4E00, 0xA4CF),
    (0xA960, 0xA97F), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE30, 0xFE6F), (0xFF00, 0xFF60),
    (0xFFE0, 0xFFE6), (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF),
    (0x20000, 0x3FFFD),
)  # fmt: skip


def within(code: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Returns whether a number is in one of the ranges, which are in order."""
    at = bisect_right(ranges, (code, 0x110000)) - 1
    return at >= 0 and code <= ranges[at][1]


def width_of(text: str) -> int:
    """Returns the number of columns of a terminal that a displayable text takes.

    >>> width_of("ab"), width_of("日本"), width_of("e\u0301")
    (2, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(1 - within(ord(one), NO_COLUMN) + within(ord(one), TWO_COLUMNS) for one in text)


def is_nan(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isnan(value)


def real(format: str) -> Callable[[float], str]:
    """Returns a function that prints a real number as C does, NaN included.

    >>> real("%.2f")(0.5), real("%.2f")(float("nan"))
    ('0.50', 'nan')
    """
    return lambda value: "-nan" if is_nan(value) and math.copysign(1, value) < 0 else format % value


@dataclass(frozen=True)
class Column:
    """A column of a table. `heading`: in the text; None: it is only in JSON. `key`: in JSON; None:
    it is only in the text. `value` gets the value of a row; by default it is row[key]. `format`
    makes the text of a value, by % or as a function; None becomes "-", and so does NaN without a
    function. `scale` is the factor from the unit of JSON to the unit of the text. Numbers are
    aligned right."""

    heading: str | None
    key: str | None = None
    format: str | Callable[[Any], str] = "%s"
    value: Callable[[Any], Any] | None = None
    scale: float | None = None
    right: bool | None = None

    def of(self, row: Any) -> Any:
        """Returns the value of a row, in the unit of JSON."""
        return self.value(row) if self.value else row[self.key]

    def text(self, row: Any) -> str:
        """Returns the cell of a row."""
        value = self.of(row)
        if value is None or (isinstance(self.format, str) and is_nan(value)):
            return "-"
        if self.scale is not None:
            value = value * self.scale
        return self.format(value) if callable(self.format) else self.format % (value,)

    @property
    def is_right(self) -> bool:
        if self.right is not None:
            return self.right
        return isinstance(self.format, str) and not self.format.endswith("s")


def table_text(columns: Sequence[Column], rows: Iterable[Any]) -> str:
    """Returns a table with its headings; two blanks separate the columns, and no line ends in a
    blank.

    >>> columns = [Column("run", "run"), Column("loss", "loss", "%.2f")]
    >>> print(table_text(columns, [{"run": "a", "loss": 1}]), end="")
    run  loss
    a    1.00
    """
    shown_columns = [column for column in columns if column.heading is not None]
    cells = [[column.text(row) for column in shown_columns] for row in rows]
    return cells_text(
        [column.heading or "" for column in shown_columns],
        cells,
        [column.is_right for column in shown_columns],
    )


def cells_text(
    headings: Sequence[str], cells: Iterable[Sequence[str]], right: Sequence[bool]
) -> str:
    """Returns a table of texts; `right`: the columns that are aligned right."""
    lines = [list(headings), *([shown(cell) for cell in row] for row in cells)]
    widths = [max(map(width_of, column)) for column in zip(*lines)]
    texts = []
    for line in lines:
        padded = [
            " " * (width - width_of(cell)) + cell if one else cell + " " * (width - width_of(cell))
            for cell, width, one in zip(line, widths, right)
        ]
        texts.append("  ".join(padded).rstrip(" ") + "\n")
    return "".join(texts)


def records(columns: Sequence[Column], rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns the rows as objects of JSON.

    >>> records([Column("J", "stages", "%d")], [{"stages": 2}])
    [{'stages': 2}]
    """
    kept = [column for column in columns if column.key is not None]
    return [{column.key or "": column.of(row) for column in kept} for row in rows]


# --- JSON ---


def real_text(value: float) -> str:
    """Returns a number with 17 digits; "null" if it is not finite.

    >>> real_text(0.1), real_text(1), real_text(1e-5), real_text(1e22), real_text(float("nan"))
    ('0.10000000000000001', '1.0', '1.0000000000000001e-5', '1e22', 'null')
    """
    if not math.isfinite(value):
        return "null"
    text = "%.17g" % value
    if "e" in text:
        return re.sub(r"e([+-])0*", lambda sign: "e" + sign.group(1).replace("+", ""), text)
    return text if "." in text else text + ".0"


def string_text(value: str) -> str:
    r"""Returns a string in quotes; a byte that is not UTF-8 becomes \x1b, and a character that a
    terminal does not show \u001b.

    >>> print(string_text('a "b"\n\u202e'))
    "a \"b\"\n\u202e"
    """
    value = "".join(
        f"\\x{ord(one) - 0xDC00:02x}" if "\udc80" <= one <= "\udcff" else one for one in value
    )
    text = json.dumps(value, ensure_ascii=False)
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if is_shown(ord(one)) else f"\\u{ord(one):04x}" for one in text)


def json_text(value: Any, indent: int | None = 2, level: int = 0) -> str:
    """Returns a value as JSON: with line breaks, or with indent=None on one line.

    >>> print(json_text({"a": [1, 0.5, None], "b": {}}, None))
    {"a": [1, 0.5, null], "b": {}}
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return real_text(float(value))
    if isinstance(value, Mapping):
        parts = [
            f"{string_text(key)}: {json_text(one, indent, level + 1)}" for key, one in value.items()
        ]
        begin, end = "{", "}"
    else:
        parts = [json_text(one, indent, level + 1) for one in value]
        begin, end = "[", "]"
    if not parts or indent is None:
        return begin + ", ".join(parts) + end
    line = "\n" + " " * indent * (level + 1)
    return begin + line + ("," + line).join(parts) + "\n" + " " * indent * level + end


def print_json(value: Any) -> None:
    """Prints an object to standard output."""
    print(json_text(value))
