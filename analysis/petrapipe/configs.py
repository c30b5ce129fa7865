# SPDX-License-Identifier: Apache-2.0
"""Configs as petra prints them, and the keys that change no result."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

# Keys that change no result: they determine the paths of files (docs/config.md), or how a run
# computes the same results. tests/check_analysis compares them with src/config/keys.c.
NEUTRAL_KEYS = {
    "run.name",
    "run.output",
    "run.keep_checkpoint",
    "run.mode",
    "run.checkpoint_every",
    "data.path",
    "data.workers",
    "cluster.placement",
    "cluster.timeout_s",
    "cluster.transport",
    "cluster.gpus",
    "device.streams",
}
# These keys matter for comparisons of runs: data at another path may be other data.
UNCOMPARED_KEYS = NEUTRAL_KEYS - {"data.path"}


def unquoted(text: str) -> str:
    return text.strip().strip("\"'")


def read_config(text: str) -> dict[str, str]:
    """Returns an expanded config as a dictionary of dotted keys and texts. It reads block style,
    and a mapping in braces within one line.

    >>> read_config('method:\\n  name: petra\\noptim: {name: sgd, lr: 0.1}\\n')
    {'method.name': 'petra', 'optim.name': 'sgd', 'optim.lr': '0.1'}
    """
    values: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = re.match(r"( *)([\w.]+):(?: +(.*))?$", line)
        if not match:
            continue
        depth, rest = len(match.group(1)), (match.group(3) or "").strip()
        path = [entry for entry in path if entry[0] < depth] + [(depth, match.group(2))]
        key = ".".join(name for _, name in path)
        if rest.startswith("{"):
            values.update(
                (f"{key}.{name}", unquoted(value))
                for name, value in re.findall(r"([\w.]+): *(\[[^]]*\]|[^,}]*)", rest)
            )
        elif rest:
            values[key] = unquoted(rest)
    return values


def flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns a mapping of dotted keys for a mapping that may be nested.

    >>> flattened({"method": {"name": "petra"}, "optim.lr": 0.1})
    {'method.name': 'petra', 'optim.lr': 0.1}
    """
    found = {}
    for key, value in config.items():
        found.update(
            flattened(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return found


def keys_set_by(config: str | Mapping[str, Any]) -> list[str]:
    """Returns the dotted keys that a config sets: a mapping, YAML text, or the path of a file; with
    the keys of its base files."""
    if isinstance(config, Mapping):
        return list(flattened(config))
    text, folder = (config := os.fspath(config)), ""
    if "\n" not in config and ": " not in config:
        folder = os.path.dirname(config)
        with open(config, encoding="utf-8") as file:
            text = file.read()
    keys = read_config(text)
    base = keys.pop("base", None)
    return list(dict.fromkeys([*keys, *(keys_set_by(os.path.join(folder, base)) if base else ())]))
