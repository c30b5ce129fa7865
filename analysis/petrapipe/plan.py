# SPDX-License-Identifier: Apache-2.0
"""The plan of a run as data: which action comes when, and which version of the weights it reads (docs/plan-format.md).

    plan = Plan.of_config({"method.name": "petra", "method.accumulate": 2}, stages=8, microbatches=1000)
    plan = Plan.read("plan.json")                   # what `petra schedule CONFIG --json` printed

The program computes the plan; nothing here decides an order."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Mapping, Sequence

import numpy

from petrapipe.errors import Error

FORMAT, VERSION = "petra-plan", 1
KINDS = "FBWUE"
# Columns of `actions` with their types; a null of the file is -1, or NaN.
COLUMNS = {"kind": "U1", "stage": int, "microbatch": int, "device": int, "start_ns": int, "end_ns": int, "weights": int, "inverse_weights": int,
           "kept_until": int, "learning_rate": float, "epoch": int}


def binary(path: str | None = None) -> str:
    """Returns the program to call: `path`, the environment variable PETRA, or `petra` on PATH."""
    return path or os.environ.get("PETRA") or "petra"


class Plan:
    """The header of a plan, and its actions as one array per column, in the order in which they are performed.

    `kind` has letters (F, B, W, U, E), `stage` counts from 1. `weights` and `inverse_weights` are versions: a version is a number of updates of the
    stage."""

    def __init__(self, header: Mapping[str, Any], columns: Mapping[str, Sequence]) -> None:
        self.header = dict(header)
        self.method = self.header["method"]
        self.config: str = self.header["config"]
        self.stages, self.microbatches, self.accumulate, self.epoch_microbatches, self.warmup_microbatches = (
            int(self.header[key]) for key in ("stages", "microbatches", "accumulate", "epoch_microbatches", "warmup_microbatches"))
        # Of each stage in updates; NaN if it is not fixed.
        self.delays = [float("nan" if stage["delay_updates"] is None else stage["delay_updates"]) for stage in self.header["stage"]]
        self.probes = self.header["probes"]
        for name, kind in COLUMNS.items():
            setattr(self, name, self._array(columns[name], kind))

    @staticmethod
    def _array(values: Sequence, kind: Any) -> numpy.ndarray:
        if kind == "U1":
            return numpy.array(values, dtype=kind)
        missing = -1 if kind is int else numpy.nan
        return numpy.array([missing if value is None else value for value in values], dtype=numpy.int64 if kind is int else numpy.float64)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def fused_head(self) -> bool:
        """Whether F and B of the last stage are one action, named B."""
        return self.method["head"] == "fused"

    @classmethod
    def of_json(cls, text: str, name: str = "the plan") -> "Plan":
        """Returns the plan of a text. Raises Error if it is not one, or if its version is another."""
        try:
            header = json.loads(text)
        except ValueError as error:
            raise Error(f"{name}: not a plan: {error}; expected what `petra schedule CONFIG --json` prints") from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise Error(f"{name}: not a plan; expected what `petra schedule CONFIG --json` prints for a config")
        if header.get("version") != VERSION:
            raise Error(f"{name}: a plan of version {header.get('version')}; expected version {VERSION}")
        names, rows = header.pop("columns"), header.pop("actions")
        missing = [column for column in COLUMNS if column not in names]
        if missing:
            raise Error(f"{name}: has no column {missing[0]}; expected {', '.join(COLUMNS)}")
        columns = list(zip(*rows)) if rows else [[] for _ in names]
        return cls(header, dict(zip(names, columns)))

    @classmethod
    def read(cls, path: str) -> "Plan":
        """Returns the plan of a file."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls.of_json(file.read(), str(path))
        except OSError as error:
            raise Error(f"{path}: cannot be read: {error.strerror or error}") from None

    @classmethod
    def of_config(cls, config: str | Mapping[str, Any], *, petra: str | None = None, **keys: Any) -> "Plan":
        """Returns the plan that the program makes of a config: a path, YAML text with line breaks, or a mapping of dotted keys. `keys` are further
        settings, in which two underscores stand for the dot: cluster__stages=8."""
        text, settings = "", {}
        if isinstance(config, Mapping):
            settings.update(config)
        elif "\n" in config:
            text = config
        else:
            try:
                with open(config, encoding="utf-8") as file:
                    text = file.read()
            except OSError as error:
                raise Error(f"{config}: cannot be read: {error.strerror or error}; expected a config") from None
        settings.update((key.replace("__", "."), value) for key, value in keys.items())
        command = [binary(petra), "schedule", "-", "--json"]
        for key, value in settings.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{key}={shown}"]
        try:
            result = subprocess.run(command, input=text or "run: {}\n", capture_output=True, text=True, check=False)
        except OSError as error:
            raise Error(f"{command[0]}: cannot be started: {error.strerror}; expected the program petra, by the argument petra=, the environment variable "
                        "PETRA or PATH") from None
        if result.returncode:
            raise Error(result.stderr.strip() or f"petra schedule failed with status {result.returncode}")
        return cls.of_json(result.stdout)

    def rows(self, kind: str) -> numpy.ndarray:
        """Returns the numbers of the rows with an action of this kind."""
        return numpy.flatnonzero(self.kind == kind)

    def last_uses(self) -> dict[tuple[int, int], int]:
        """Returns, for each stage (from 1) and each version that F, B or E reads, the last row that reads it."""
        found: dict[tuple[int, int], int] = {}
        reads = self.kind != "U"
        for column in (self.weights, self.inverse_weights):
            for row in numpy.flatnonzero(reads & (column >= 0)).tolist():
                key = (int(self.stage[row]), int(column[row]))
                found[key] = max(found.get(key, -1), row)
        return found
