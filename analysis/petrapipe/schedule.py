# SPDX-License-Identifier: Apache-2.0
"""The plan of a run as data: the order of the actions, and the version of the weights that each
reads (docs/plan-format.md).

    plan = Plan.of_config({"method.name": "petra", "method.accumulate": 2}, stages=8,
        microbatches=1000)
    plan = Plan.read("plan.json")                   # what `petra schedule CONFIG --json` printed

The program computes the plan; nothing here decides an order."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy

from .configs import flattened
from .errors import Error
from .program import find

FORMAT, VERSION = "petra-plan", 1
KINDS = "FBWUE"
# Columns of `actions` with their types; a null of the file is -1, or NaN.
COLUMNS = {
    "kind": "U1",
    "stage": int,
    "microbatch": int,
    "device": int,
    "start_ns": int,
    "end_ns": int,
    "weights": int,
    "inverse_weights": int,
    "kept_until": int,
    "learning_rate": float,
    "epoch": int,
}
BLOCK_LINES = 1 << 17
PUNCTUATION = str.maketrans("", "", "[]}")


class Plan:
    """The header of a plan, and its actions as one array per column, in the order in which they are
    performed.

    `kind` has letters (F, B, W, U, E), `stage` counts from 1. `weights` and `inverse_weights` are
    versions: a version is a number of updates of the stage."""

    kind: numpy.ndarray
    stage: numpy.ndarray
    microbatch: numpy.ndarray
    device: numpy.ndarray
    start_ns: numpy.ndarray
    end_ns: numpy.ndarray
    weights: numpy.ndarray
    inverse_weights: numpy.ndarray
    kept_until: numpy.ndarray
    learning_rate: numpy.ndarray
    epoch: numpy.ndarray

    def __init__(self, header: Mapping[str, Any], columns: Mapping[str, numpy.ndarray]) -> None:
        self.header = dict(header)
        self.method = self.header["method"]
        self.config: str = self.header["config"]
        (
            self.stages,
            self.microbatches,
            self.accumulate,
            self.epoch_microbatches,
            self.warmup_microbatches,
        ) = (
            int(self.header[key])
            for key in (
                "stages",
                "microbatches",
                "accumulate",
                "epoch_microbatches",
                "warmup_microbatches",
            )
        )
        # The delays of the stages in updates. A delay that is not fixed is NaN.
        self.delays = [
            float("nan" if stage["delay_updates"] is None else stage["delay_updates"])
            for stage in self.header["stage"]
        ]
        self.probes = self.header["probes"]
        for name, kind in COLUMNS.items():
            setattr(self, name, self._array(columns[name], kind))

    @staticmethod
    def _array(values: numpy.ndarray, kind: Any) -> numpy.ndarray:
        if kind == "U1":
            return numpy.array(list(KINDS))[values.astype(int)]
        return (
            numpy.where(numpy.isnan(values), -1, values).astype(numpy.int64)
            if kind is int
            else values.copy()
        )

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def fused_head(self) -> bool:
        """Whether F and B of the last stage are one action, named B."""
        return self.method["head"] == "fused"

    @classmethod
    def of_lines(cls, file: Iterable[str], name: str = "the plan") -> Plan:
        """Returns the plan of a file that is open for reading: the header, then the actions in
        blocks, because a long run has millions. Raises Error if the file is not a plan, or if its
        version is different."""
        head, devices, file = [], False, iter(file)
        for line in file:
            if line.startswith('"actions": ['):
                break
            devices = devices or line.startswith('"devices": [')  # the same actions once more
            if not devices:
                head.append(line)
            devices = devices and line.rstrip() != "],"
        try:
            header = json.loads(
                "".join(head).rstrip().rstrip(",")
                + ("" if head and head[-1].startswith("}") else "}")
            )
        except ValueError as error:
            raise Error(
                f"{name}: not a plan: {error}; expected what `petra schedule CONFIG --json` prints"
            ) from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise Error(
                f"{name}: not a plan; expected what `petra schedule CONFIG --json` prints for a"
                " config"
            )
        if header.get("version") != VERSION:
            raise Error(
                f"{name}: a plan of version {header.get('version')}; expected version {VERSION}"
            )
        if header.get("method", {}).get("program") == "local":
            raise Error(
                f"{name}: method {header['method'].get('name')} has a loss at every stage, which"
                " petrapipe does not run; expected another method"
            )
        names = header.pop("columns")
        missing = [column for column in COLUMNS if column not in names]
        if missing:
            raise Error(f"{name}: has no column {missing[0]}; expected {', '.join(COLUMNS)}")
        blocks = []
        while True:
            text = "".join(itertools.islice(file, BLOCK_LINES))
            if not text:
                break
            for index, kind in enumerate(KINDS):
                text = text.replace(f'"{kind}"', str(index))
            text = text.translate(PUNCTUATION).replace("null", "nan").rstrip().rstrip(",")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    blocks.append(numpy.fromstring(text, sep=",") if text else numpy.zeros(0))
                except (DeprecationWarning, ValueError):
                    raise Error(
                        f"{name}: has a line that is not an action; expected the output of `petra"
                        " schedule CONFIG --json`"
                    ) from None
        values = numpy.concatenate(blocks) if blocks else numpy.zeros(0)
        if len(values) % len(names):
            raise Error(
                f"{name}: the last action is not complete; expected the whole output of `petra"
                " schedule CONFIG --json`"
            )
        return cls(header, dict(zip(names, values.reshape(-1, len(names)).T)))

    @classmethod
    def read(cls, path: str) -> Plan:
        """Returns the plan of a file."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls.of_lines(file, str(path))
        except OSError as error:
            raise Error(f"{path}: cannot be read: {error.strerror or error}") from None

    @classmethod
    def of_config(
        cls, config: str | Mapping[str, Any], *, petra: str | None = None, **keys: Any
    ) -> Plan:
        """Returns the plan that the program makes of a config: a path, YAML text, or a mapping of
        dotted keys. `keys` are further settings, in which two underscores stand for the dot:
        cluster__stages=8."""
        text, settings, source = "", {}, "-"
        config = os.fspath(config) if isinstance(config, os.PathLike) else config
        if isinstance(config, Mapping):
            settings.update(flattened(config))
        elif "\n" in config or ": " in config:
            text = config
        else:
            try:
                with open(config, encoding="utf-8") as file:
                    file.read()
                source = os.path.abspath(config)  # its base files are beside it
            except (OSError, UnicodeDecodeError) as error:
                raise Error(
                    f"{config}: cannot be read: {getattr(error, 'strerror', None) or error};"
                    ' expected a config, or a mapping such as {"method.name": "petra"}'
                ) from None
        settings.update((key.replace("__", "."), value) for key, value in keys.items())
        command = [find(petra), "schedule", source, "--json"]
        for key, value in settings.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["--set", f"{key}={shown}"]
        with tempfile.TemporaryFile("w+") as errors:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
                )
            except OSError as error:
                raise Error(
                    f"{command[0]}: cannot be started: {error.strerror}; expected the program"
                    " petra, by the argument petra=, the environment variable PETRA or PATH"
                ) from None
            plan, failure = None, None
            with process:
                with contextlib.suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(text or "run: {}\n")
                try:
                    plan = cls.of_lines(process.stdout)
                except Error as error:
                    failure = error
            if process.returncode:
                errors.seek(0)
                raise Error(
                    errors.read().strip()
                    or f"petra schedule failed with status {process.returncode}"
                )
            if failure:
                raise failure
            return plan

    def rows(self, kind: str) -> numpy.ndarray:
        """Returns the numbers of the rows with an action of this kind."""
        return numpy.flatnonzero(self.kind == kind)

    def last_uses(self) -> list[numpy.ndarray]:
        """Returns, for each stage, the last row in which F, B or E reads each version; -1 for a
        version that is not read."""
        found = []
        for stage in range(1, self.stages + 1):
            own = self.stage == stage
            last = numpy.full(int((own & (self.kind == "U")).sum()) + 1, -1)
            for column in (self.weights, self.inverse_weights):
                rows = numpy.flatnonzero(own & (self.kind != "U") & (column >= 0))
                numpy.maximum.at(last, column[rows], rows)
            found.append(last)
        return found

    def outlives(self, number: int) -> bool:
        """Returns whether an update or another pass comes between the forward and the backward of a
        microbatch of a stage."""
        kinds = self.kind[self.stage == number]
        kinds = kinds[(kinds == "F") | (kinds == "B") | (kinds == "U")]
        return bool(len(self.probes)) or bool(((kinds[:-1] == "F") & (kinds[1:] != "B")).any())

    def evaluation_ends(self) -> dict[int, int]:
        """Returns, for each microbatch after which an evaluation comes, the last row of E."""
        return {int(self.microbatch[row]): row for row in self.rows("E").tolist()}

    def last_needs(self, probes: Mapping[tuple[int, int], int]) -> list[numpy.ndarray]:
        """Returns, for each stage and version, the last row that needs it: a pass, an evaluation or
        a probe; the end of the run if a microbatch is still in flight then. `probes`: the last row
        in which a probe reads a (stage, version)."""
        last = self.last_uses()
        evaluations, ends = self.rows("E"), self.evaluation_ends()
        uses = [
            (
                (int(self.stage[row]), int(self.weights[row])),
                ends[int(self.microbatch[row])],
            )
            for row in evaluations.tolist()
        ]
        backwards = set(
            zip(
                self.stage[self.kind == "B"].tolist(),
                self.microbatch[self.kind == "B"].tolist(),
            )
        )
        forwards = self.rows("F")
        # A longer run that continues this run reads them.
        uses += [
            ((stage, version), len(self))
            for stage, m, version in zip(
                *(
                    column[forwards].tolist()
                    for column in (self.stage, self.microbatch, self.weights)
                )
            )
            if (stage, m) not in backwards
        ]
        for (stage, version), row in [*uses, *probes.items()]:
            last[stage - 1][version] = max(last[stage - 1][version], row)
        return last
