# SPDX-License-Identifier: Apache-2.0
"""A grid of runs: a base config and the keys that vary, as a YAML file (docs/sweep.md).

A cell is a combination of a row (a named set of overrides), a value of each axis and a seed. The C
program knows the keys of configs and the values that they accept. It is asked to check them, so
that an error has the same line here as for a config."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn

import yaml

from .errors import Error, Unreadable
from .nearest import hint
from .text import shortened

MAX_CELLS = 10000
MAX_NAME = 200  # bytes of the name of a cell; file systems allow 255 for a file name
MAX_ROW_NAME = 64
MAX_BYTES = 1 << 20  # of a grid; the program refuses longer ones
SHOWN = 48  # bytes of a free text in a message
KEYS = ("base", "config", "command", "axes", "rows", "seeds")

# Sends a request to `petra inspect --requests` (program.py) and returns the answer; raises Error
# with the line of an error.
Ask = Callable[[dict], dict]


@dataclass(frozen=True)
class Value:
    """One value of one key."""

    key: str
    line: int
    text: str  # as in the file; a list as "[a, b]"
    source: str  # the part of the file


@dataclass
class Row:
    line: int
    name: str | None = None
    values: list[Value] = field(default_factory=list)


@dataclass
class Axis:
    key: str
    line: int
    values: list[Value] = field(default_factory=list)
    label: str = ""  # short form of the key for names: a part of its path


@dataclass
class Grid:
    file: str  # as shown in messages
    path: str  # "-": standard input
    base: str | None = None  # None: the config is in the grid
    config: str | None = None  # its text at its position in the file
    command: str = "train"
    rows: list[Row] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)  # without seeds
    seeds: Axis | None = None
    cells: int = 0

    @property
    def seed_count(self) -> int:
        """Returns the number of cells of a combination: the seeds of combination c are the cells
        from c * seed_count on."""
        return len(self.seeds.values) if self.seeds else 1

    @property
    def combinations(self) -> int:
        return self.cells // self.seed_count

    def values(self, cell: int) -> tuple[Row | None, list[Value]]:
        """Returns the row of a cell (counted from 0) and its values: of the row, of the axes, and
        its seed. The last axis varies fastest."""
        found: list[Value] = []
        for axis in reversed([*self.axes, *([self.seeds] if self.seeds else [])]):
            cell, index = divmod(cell, len(axis.values))
            found.insert(0, axis.values[index])
        row = self.rows[cell] if self.rows else None
        return row, [*(row.values if row else ()), *found]

    def name(self, cell: int, seed: bool = True) -> str:
        """Returns the name of a cell, such as "name=petra_accumulate=4_seed=1", which file systems,
        shells and YAML accept without quoting. Without `seed`: the name of its combination ("all"
        if only seeds vary)."""
        row, values = self.values(cell)
        axes = [*self.axes, *([self.seeds] if self.seeds else [])]
        values = values[len(values) - len(axes) :]
        parts = [row.name or ""] if row else []
        for axis, value in zip(axes, values):
            if seed or axis is not self.seeds:
                parts.append(f"{axis.label}={plain(value.text)}")
        return "_".join(parts) or "all"

    def overrides(self, combination: int) -> list[tuple[str, str]]:
        """Returns the keys and values of a combination as written in the file, without the seed."""
        _, values = self.values(combination * self.seed_count)
        return [(value.key, value.text) for value in (values[:-1] if self.seeds else values)]

    def varied(self) -> list[str]:
        """Returns the keys that rows or axes set, each once, rows first, without seeds."""
        keys = [value.key for row in self.rows for value in row.values]
        return list(dict.fromkeys([*keys, *(axis.key for axis in self.axes)]))

    def row_name(self, combination: int) -> str | None:
        """Returns the name of a combination's row; None if the grid has no rows."""
        row, _ = self.values(combination * self.seed_count)
        return row.name if row else None

    def check_set(self, setting: str) -> None:
        """Refuses a --set argument that names a key that the grid varies."""
        key = setting.split("=", 1)[0]
        if key in self.varied() or (self.seeds and key == self.seeds.key):
            raise Error(
                f"--set {shortened(setting, 160)}: the grid {self.file} varies this key; expected"
                " one that no axis, row or seeds set"
            )

    def layers(self, cell: int | None, settings: Sequence[str]) -> list[dict[str, Any]]:
        """Returns the layers of the config of a cell, for the program (program.py): the base, then
        `settings`, then the cell's overrides, then run.name, which is the name of the cell. None:
        only the base and the settings."""
        base: dict[str, Any] = (
            {"path": self.base} if self.base else {"name": self.path, "text": self.config}
        )
        layers: list[dict[str, Any]] = [base, {"set": list(settings)}]
        if cell is not None:
            _, values = self.values(cell)
            layers += [self.layer(values), {"set": [f'run.name="{self.name(cell)}"']}]
        return layers

    def layer(self, values: Sequence[Value], check: bool = False) -> dict[str, Any]:
        """Returns a layer of values in lines of this file. With `check` the values are only
        compared with the table of keys."""
        layer = {
            "name": self.file,
            "set": [f"{value.key}={value.source}" for value in values],
            "lines": [value.line for value in values],
        }
        return {**layer, "check": True} if check else layer


def plain(text: str) -> str:
    """Returns a value as a part of a name. Runs of characters other than letters, digits and ".+-_"
    become one '-', except at the ends.

    >>> plain("[crop, flip]"), plain("a/b")
    ('crop-flip', 'a-b')
    """
    return re.sub(
        "[^A-Za-z0-9.+_-]+", "-", re.sub(r"^[^A-Za-z0-9.+_-]+|[^A-Za-z0-9.+_-]+$", "", text)
    )


# --- the file ---


class Parser:
    """Reads the YAML of a grid into its rows, axes and seeds."""

    def __init__(self, grid: Grid, text: str, ask: Ask) -> None:
        self.grid, self.text, self.ask = grid, text, ask
        self.known: set[str] = set()  # keys that the program has accepted

    def fail(self, line: int, path: str, message: str) -> NoReturn:
        path = f": {shortened(path, 160)}" if path else ""
        raise Error(f"{shortened(self.grid.file, 256)}:{line}{path}: {message}")

    def source(self, node: yaml.Node) -> str:
        """Returns the part of the file that is this node; several lines keep their columns."""
        start = node.start_mark
        part = self.text[start.index : node.end_mark.index]
        return " " * start.column + part if "\n" in part else part.rstrip()

    def scalar(self, node: yaml.Node, line: int, path: str, expected: str) -> str:
        """Returns the text of a scalar that is not empty. `path` names it in the error line."""
        if not isinstance(node, yaml.ScalarNode):
            self.fail(line, path, f"{kind_of(node)}; expected {expected}")
        if not node.value:
            self.fail(line, path, f"no value; expected {expected}")
        if "\0" in node.value:
            self.fail(line, path, f"a string with a NUL byte; expected {expected}")
        return node.value

    def pairs(
        self, mapping: yaml.MappingNode, section: str
    ) -> Iterator[tuple[str, int, yaml.Node]]:
        """Yields the name, line and value of each pair; no name may occur twice."""
        seen: dict[str, int] = {}
        for key, value in mapping.value:
            line = line_of(key)
            name = self.scalar(key, line, section, "a key")
            if name in seen:
                self.fail(
                    line, name, f"a repeated key; expected it once (first in line {seen[name]})"
                )
            seen[name] = line
            yield name, line, value

    def check_key(self, key: str, line: int) -> None:
        """Refuses a name that is not a key of a config, and a key that a grid cannot vary."""
        if key not in self.known:
            layer = {"name": self.grid.file, "set": [key], "lines": [line], "check": True}
            self.ask({"config": [layer]})
            self.known.add(key)
        if key in ("run.name", "run.output"):
            self.fail(
                line, key, "a grid names the folders of its cells itself; expected another key"
            )

    def value(self, key: str, node: yaml.Node) -> Value:
        if isinstance(node, yaml.ScalarNode):
            text = node.value
        else:
            items = node.value if isinstance(node, yaml.SequenceNode) else []
            shown = [item.value if isinstance(item, yaml.ScalarNode) else "?" for item in items]
            text = f"[{', '.join(shown)}]"
        return Value(key, line_of(node), text, self.source(node))

    def axis(self, key: str, path: str, line: int, node: yaml.Node) -> Axis:
        if not isinstance(node, yaml.SequenceNode):
            more = " and, before it, a key with dots, such as method.name"
            more = more if isinstance(node, yaml.MappingNode) else ""
            self.fail(line, path, f"{kind_of(node)}; expected a list of values{more}")
        if not node.value:
            self.fail(line, path, "an empty list; expected at least one value")
        if len(node.value) > MAX_CELLS:
            self.fail(line, path, f"{len(node.value)} values; expected at most {MAX_CELLS}")
        axis = Axis(key, line)
        seen = set()
        for item in node.value:
            value = self.value(key, item)
            if value.text in seen:
                shown = shortened(value.text, SHOWN)
                self.fail(value.line, path, f"'{shown}' is repeated; expected each value once")
            seen.add(value.text)
            axis.values.append(value)
        return axis

    def read_axes(self, node: yaml.Node, line: int) -> None:
        if not isinstance(node, yaml.MappingNode) or not node.value:
            what = "nothing in it" if isinstance(node, yaml.MappingNode) else kind_of(node)
            self.fail(
                line,
                "axes",
                f"{what}; expected 'KEY: [VALUE, ...]' lines, such as method.name: [petra,"
                " delayed]",
            )
        for key, at, value in self.pairs(node, "axes"):
            self.check_key(key, at)
            if key == "run.seed":
                self.fail(at, key, "an axis of seeds; expected them in 'seeds: [...]'")
            self.grid.axes.append(self.axis(key, key, at, value))

    def row_name(self, node: yaml.Node) -> str:
        """Reads a row's name, which becomes part of a folder's name."""
        line = line_of(node)
        name = self.scalar(node, line, "rows: name", "a name")
        shown = shortened(name, SHOWN)
        if not re.fullmatch(f"[A-Za-z0-9][A-Za-z0-9._+=-]{{0,{MAX_ROW_NAME - 1}}}", name):
            self.fail(
                line,
                "rows: name",
                f"'{shown}' cannot be a part of a folder's name; expected at most {MAX_ROW_NAME}"
                " letters, digits and ._+-=, a letter or a digit first",
            )
        for other in self.grid.rows:
            if other.name == name:
                self.fail(
                    line,
                    "rows: name",
                    f"'{shown}' is repeated (first in line {other.line}); expected each once",
                )
        return name

    def row_values(self, node: yaml.Node, line: int) -> list[Value]:
        if not isinstance(node, yaml.MappingNode):
            self.fail(
                line,
                "rows: set",
                f"{kind_of(node)}; expected a mapping such as {{method.name: petra}}",
            )
        values = []
        for key, at, value in self.pairs(node, "rows: set"):
            self.check_key(key, at)
            values.append(self.value(key, value))
        return values

    def row(self, node: yaml.Node) -> Row:
        row = Row(line_of(node))
        expected = "expected {name: NAME, set: {KEY: VALUE, ...}}"
        if not isinstance(node, yaml.MappingNode):
            self.fail(row.line, "rows", f"{kind_of(node)}; {expected}")
        has_set = False
        for name, line, value in self.pairs(node, "rows"):
            if name == "name":
                row.name = self.row_name(value)
            elif name == "set":
                has_set = True
                row.values = self.row_values(value, line)
            else:
                shown = shortened(name, SHOWN)
                self.fail(line, "rows", f"unknown key '{shown}'; expected name and set")
        if row.name is None or not has_set:
            lacks = "name" if row.name is None else "set"
            self.fail(row.line, "rows", f"a row without {lacks}; {expected}")
        return row

    def read_rows(self, node: yaml.Node, line: int) -> None:
        count = len(node.value) if isinstance(node, yaml.SequenceNode) else 0
        if not 0 < count <= MAX_CELLS:
            what = "too many rows" if count else "an empty list"
            what = what if isinstance(node, yaml.SequenceNode) else kind_of(node)
            self.fail(
                line,
                "rows",
                f"{what}; expected a list of 1 .. {MAX_CELLS} rows {{name: NAME, set: {{KEY: VALUE,"
                " ...}}",
            )
        for item in node.value:
            self.grid.rows.append(self.row(item))

    def read_base(self, node: yaml.Node, line: int) -> None:
        base = self.scalar(node, line, "base", "the file of a config")
        if base == "-":
            self.fail(
                line,
                "base",
                "standard input cannot be read once per cell; expected the file of a config",
            )
        self.grid.base = os.path.join(os.path.dirname(self.grid.path), base)

    def read_command(self, node: yaml.Node, line: int) -> None:
        command = self.scalar(node, line, "command", "train or simulate")
        if command not in ("train", "simulate"):
            near = hint(command, ("train", "simulate"))
            shown = shortened(command, SHOWN)
            self.fail(line, "command", f"'{shown}'; expected train or simulate{near}")
        self.grid.command = command

    def read(self, root: yaml.Node | None) -> None:
        """Reads the whole file. The seeds are read last, whatever their position."""
        expected = f"a grid, a mapping with any of {', '.join(KEYS)}"
        if not isinstance(root, yaml.MappingNode):
            what = "a list" if isinstance(root, yaml.SequenceNode) else "no mapping"
            self.fail(line_of(root) if root else 1, "", f"{what}; expected {expected}")
        config_line, seeds = 1, None
        for name, line, value in self.pairs(root, ""):
            if name == "base":
                self.read_base(value, line)
            elif name == "command":
                self.read_command(value, line)
            elif name == "axes":
                self.read_axes(value, line)
            elif name == "rows":
                self.read_rows(value, line)
            elif name == "config":
                empty = isinstance(value, yaml.ScalarNode) and not value.value
                config_line = line
                begin = line if empty else line_of(value)
                self.grid.config = "\n" * (begin - 1) + ("''" if empty else self.source(value))
            elif name == "seeds":
                seeds = value, line
            else:
                near = hint(name, KEYS)
                self.fail(
                    line,
                    shortened(name, SHOWN),
                    f"unknown key of a grid; expected one of {', '.join(KEYS)}{near}",
                )
        grid = self.grid
        if (grid.base is None) == (grid.config is None):
            what = "both base and config" if grid.base else "neither base nor config"
            self.fail(config_line, "", f"{what}; expected either 'base: FILE' or 'config: {{...}}'")
        if seeds:
            grid.seeds = self.axis("run.seed", "seeds", seeds[1], seeds[0])
        elif not grid.axes and not grid.rows:
            self.fail(1, "", "nothing is varied; expected axes, rows or seeds")


def kind_of(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


def line_of(node: yaml.Node) -> int:
    return node.start_mark.line + 1


# --- checks of the whole grid ---


def count_cells(grid: Grid) -> None:
    cells = len(grid.rows) or 1
    for axis in [*grid.axes, *([grid.seeds] if grid.seeds else [])]:
        cells *= len(axis.values)
        if cells > MAX_CELLS:
            raise Error(
                f"{grid.file}: more than {MAX_CELLS} cells (rows times values of the axes times"
                f" seeds); expected at most {MAX_CELLS}"
            )
    grid.cells = cells


def check_keys(parser: Parser) -> None:
    """Checks that a row, the axes and the seeds have no key in common, because one of the values
    would be lost."""
    grid = parser.grid
    axes = {axis.key: axis for axis in [*grid.axes, *([grid.seeds] if grid.seeds else [])]}
    for row in grid.rows:
        for value in row.values:
            if value.key in axes:
                by = "'seeds'" if value.key == "run.seed" else "an axis"
                parser.fail(
                    value.line,
                    value.key,
                    f"row '{row.name}' sets a key that {by} in line {axes[value.key].line} varies;"
                    " expected one of the two",
                )


def check_values(grid: Grid, ask: Ask) -> None:
    """Checks every value against the program's table of keys."""
    parts: list[Row | Axis] = [*grid.rows, *grid.axes, *([grid.seeds] if grid.seeds else [])]
    ask({"config": [grid.layer([value for part in parts for value in part.values], check=True)]})


def label_axes(grid: Grid) -> None:
    """Labels an axis by the last name of its key, or by the whole key if another axis has the same
    last name."""
    axes = [*grid.axes, *([grid.seeds] if grid.seeds else [])]
    ends = [axis.key.rsplit(".", 1)[-1] for axis in axes]
    for axis, end in zip(axes, ends):
        axis.label = axis.key if ends.count(end) > 1 else end


def check_names(grid: Grid) -> None:
    """Different values may give equal names ("a/b", "a:b")."""
    names = [grid.name(cell) for cell in range(grid.cells)]
    for number, name in enumerate(names, 1):
        if len(name) > MAX_NAME:
            raise Error(
                f"{grid.file}: the name of cell {number} is {len(name)} bytes long"
                f" ('{name[:40]}...'); expected at most {MAX_NAME}: use named rows"
            )
        if name.startswith("summary."):
            raise Error(
                f"{grid.file}: a cell named '{name}', which is reserved for files of the sweep;"
                " expected another name"
            )
    names.sort()
    for one, other in zip(names, names[1:]):
        if one == other:
            raise Error(
                f"{grid.file}: two cells would be named '{one}'; expected values that differ in"
                " letters, digits or one of .+-_ (or named rows)"
            )


# --- loading ---


def read_bytes(path: str, file: str) -> bytes:
    try:
        if path == "-":
            return os.fdopen(os.dup(0), "rb").read(MAX_BYTES + 1)
        with open(path, "rb") as opened:
            return opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(
            f"{file}: cannot be read: {error.strerror}; expected a config file in YAML"
        ) from None


def decoded(data: bytes, file: str) -> str:
    """Returns the text of the file without a byte order mark. The program reports other errors of
    the text."""
    if len(data) > MAX_BYTES:
        raise Error(f"{file}: longer than {MAX_BYTES} bytes; expected a config file in YAML")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Error(
            f"{file}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; expected YAML in UTF-8"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise Error(
            f"{file}:{line}: holds the character U+0000; expected YAML, which allows no such"
            " character"
        )
    return text.removeprefix("\ufeff")


def load_grid(path: str, ask: Ask) -> Grid:
    """Reads and checks the whole file ("-": standard input): its keys, every value against the
    program's table of keys, and the names of the cells. Does not read the base config. Raises
    Error, with FILE:LINE, or Unreadable."""
    grid = Grid(file="standard input" if path == "-" else path, path=path)
    text = decoded(read_bytes(path, grid.file), grid.file)
    ask({"config": [{"name": grid.path, "text": text, "check": True}]})
    parser = Parser(grid, text, ask)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    parser.read(yaml.compose(text, Loader=loader))
    count_cells(grid)
    check_keys(parser)
    check_values(grid, ask)
    label_axes(grid)
    check_names(grid)
    return grid
