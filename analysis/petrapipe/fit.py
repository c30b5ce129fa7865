# SPDX-License-Identifier: Apache-2.0
"""Fits numbers of a config to measured times, so that simulations reproduce them (petra simulate
--fit).

Measurements are lines of comma-separated values. The first line has the names of config keys and,
last, `seconds`; empty lines and lines that begin with # are ignored. The fit multiplies the numbers
of keys by factors, starting from 1, until the mean square of ln(simulated / measured) is least;
simulated is the time per microbatch of a simulation with the settings of a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import program
from .errors import Error, Unreadable

FACTORS, MEASUREMENTS, KEYS = 16, 256, 16  # maximum numbers
FARTHEST = 12.0  # the search is limited to factors of e^12
FIRST_STEP, CLOSE_ENOUGH = 0.4, 1e-5  # in units of ln(factor)
EVALUATIONS = 600
UNDETERMINED = 1e-9  # change of the mean square


@dataclass
class Factor:
    """Keys with numbers that one factor multiplies."""

    # By key: the value in the config, above 0.
    starts: dict[str, float] = field(default_factory=dict)
    factor: float = 1.0
    undetermined: bool = False  # half and twice the factor fit as well

    def values(self) -> dict[str, float]:
        return {key: start * self.factor for key, start in self.starts.items()}


@dataclass
class Measurement:
    where: str  # FILE:LINE
    settings: list[str]  # "method.name=petra", for the config
    measured_s: float  # per microbatch
    simulated_s: float = math.nan


@dataclass
class Fit:
    factors: list[Factor]
    measurements: list[Measurement]
    rms: float = math.nan  # of ln(simulated / measured): root mean square
    worst: float = math.nan  # its largest magnitude


# --- the factors ---


def read_factors(layers: Sequence[dict], vary: str, ask: Any) -> list[Factor]:
    """Splits `vary` at its commas and +, and asks the program for the numbers of its keys."""
    factors: list[Factor] = []
    for group in filter(None, vary.split(",")):
        if len(factors) == FACTORS:
            raise Error(f"--vary: more than {FACTORS} factors; expected fewer")
        factors.append(Factor())
        for key in filter(None, group.split("+")):
            if any(key in factor.starts for factor in factors):
                raise Error(f"--vary: {key} twice; expected each key once")
            if len(factors[-1].starts) == KEYS:
                raise Error(f"--vary: more than {KEYS} keys of one factor; expected fewer")
            factors[-1].starts[key] = start_of(layers, key, ask)
    if not factors or not factors[-1].starts:
        raise Error(
            "--vary: no key; expected keys, such as cluster.host.action_s,cluster.cost.launch_s"
        )
    return factors


def start_of(layers: Sequence[dict], key: str, ask: Any) -> float:
    start = ask({"config": layers, "numbers": [key]})["numbers"][key]
    if not start > 0:
        label = ask({"config": layers, "keys": [key]})["keys"][key]["label"]
        text = "with --vary, which multiplies it; expected a number above 0 to begin with"
        raise program.failure(key, label, f"{start:g} {text}")
    return start


# --- the measurements ---


def cells_of(line: str) -> list[str]:
    """Returns the cells of a line, without the blanks around them and without quotes. In quotes a
    cell may contain commas.

    >>> cells_of(' petra , "[1, 2]",3')
    ['petra', '[1, 2]', '3']
    """
    cells, begin, quoted = [], 0, False
    for i, character in enumerate(line):
        quoted ^= character == '"'
        if character == "," and not quoted:
            cells.append(line[begin:i])
            begin = i + 1
    cells = [cell.strip(" \t\n\v\f\r") for cell in [*cells, line[begin:]]]
    return [cell[1:-1] if len(cell) >= 2 and cell[0] == cell[-1] == '"' else cell for cell in cells]


def lines_of(path: str) -> Iterator[tuple[int, str]]:
    """Yields the lines that are neither empty nor comments, with their numbers."""
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\n")
                if line.strip(" \t\r\n") and not line.lstrip(" \t\r\n").startswith("#"):
                    yield number, line
    except IsADirectoryError as error:
        raise Unreadable(f"{path}: cannot read: {error.strerror}") from None
    except OSError as error:
        raise Unreadable(f"{path}: cannot open: {error.strerror}") from None


def read_header(where: str, cells: Sequence[str], factors: Sequence[Factor]) -> None:
    """Checks that keys to vary are the same in all measurements, and that no column occurs
    twice."""
    if not 2 <= len(cells) <= KEYS + 1 or cells[-1] != "seconds":
        raise Error(
            f"{where}: not the header of a file of measurements; expected up to {KEYS} config keys"
            " and, last, seconds"
        )
    for i, key in enumerate(cells):
        if key in cells[:i]:
            raise Error(f"{where}: {key} twice; expected each key once")
        if any(key in factor.starts for factor in factors):
            raise Error(
                f"{where}: {key}, which --vary also names; expected the key in only one of them"
            )


def seconds_of(where: str, text: str) -> float:
    try:
        seconds = math.nan if "_" in text else float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise Error(f"{where}: '{text}' seconds; expected a number above 0")
    return seconds


def read_measurements(path: str, factors: Sequence[Factor]) -> list[Measurement]:
    """Raises Error with FILE:LINE, or Unreadable."""
    found: list[Measurement] = []
    header: list[str] = []
    for number, line in lines_of(path):
        where, cells = f"{path}:{number}", cells_of(line)
        if not header:
            read_header(where, cells, factors)
            header = cells
            continue
        if len(cells) != len(header):
            count = min(len(cells), KEYS + 2)
            raise Error(f"{where}: {count} values; expected {len(header)}, as in the header")
        if len(found) == MEASUREMENTS:
            raise Error(f"{where}: too many measurements; expected at most {MEASUREMENTS}")
        settings = [f"{key}={cell}" for key, cell in zip(header[:-1], cells)]
        found.append(Measurement(where, settings, seconds_of(where, cells[-1])))
    if not found:
        raise Error(f"{path}: no measurement; expected a header and a line for each measurement")
    return found


# --- the fit ---


class Fitting:
    """The function that the fit minimises."""

    def __init__(self, fit: Fit, config: dict[str, Any], ask: Any) -> None:
        self.fit, self.config, self.ask = fit, config, ask
        self.evaluations = 0

    def simulate(self, one: Measurement) -> float:
        """Returns the time of a measurement with the factors of the fit."""
        varied = [
            f"{key}={value:.17g}"
            for factor in self.fit.factors
            for key, value in factor.values().items()
        ]
        layers = [
            self.config,
            program.set_layer(one.settings, one.where),
            program.set_layer(varied, "--vary"),
        ]
        seconds = self.ask({"config": layers, "times_alone": True})["time_per_microbatch_s"]
        if seconds is None or not seconds > 0:
            key = "run.max_microbatches"
            (answer,) = program.inspect([{"config": layers, "keys": [key]}])
            raise program.failure(
                key,
                program.check(answer)["keys"][key]["label"],
                "the simulation gives no time per microbatch to fit; expected more microbatches, or"
                " costs",
            )
        return seconds

    def misfit(self, x: Sequence[float]) -> float:
        """Returns the mean square of ln(simulated / measured) at the logarithms of the factors."""
        fit = self.fit
        self.evaluations += 1
        beyond = 0.0
        for factor, at in zip(fit.factors, x):
            beyond += max(0.0, abs(at) - FARTHEST)
            factor.factor = math.exp(min(max(at, -FARTHEST), FARTHEST))
        total = fit.worst = 0.0
        for one in fit.measurements:
            one.simulated_s = self.simulate(one)
            apart = math.log(one.simulated_s / one.measured_s)
            total += apart * apart
            fit.worst = max(fit.worst, abs(apart))
        return total / len(fit.measurements) + beyond

    def descend(self, x: Sequence[float], step: float) -> list[float]:
        """Returns the minimum that a simplex with this side finds from x; no derivative is needed,
        so the function may have kinks."""
        from scipy.optimize import minimize

        corners = [list(x)] + [
            [value + step * (i == k) for i, value in enumerate(x)] for k in range(len(x))
        ]
        options = {
            "initial_simplex": corners,
            "xatol": CLOSE_ENOUGH,
            "fatol": math.inf,
            "maxfev": max(1, EVALUATIONS - self.evaluations),
        }
        return list(minimize(self.misfit, x, method="Nelder-Mead", options=options).x)

    def run(self) -> None:
        """Searches twice, the second time from the point where the first search ended, with a
        smaller simplex."""
        x = self.descend([0.0] * len(self.fit.factors), FIRST_STEP)
        x = self.descend(x, FIRST_STEP / 4)
        best = self.misfit(x)
        for i, factor in enumerate(self.fit.factors):
            apart = []
            for more in (-math.log(2), math.log(2)):
                apart.append(abs(self.misfit([*x[:i], x[i] + more, *x[i + 1 :]]) - best))
            factor.undetermined = max(apart) <= UNDETERMINED
        self.fit.rms = math.sqrt(self.misfit(x))


def fit(layers: Sequence[dict], path: str, vary: str) -> Fit:
    """Fits the keys of `vary`, such as
    "cluster.cost.forward_s+cluster.cost.backward_s,cluster.host.action_s", to the measurements in a
    file. `layers` are the layers of the config (program.py): keys joined by + share a factor, and a
    comma separates factors."""
    with program.Program("inspect") as inspect:
        factors = read_factors(layers, vary, inspect.ask)
        found = Fit(factors, read_measurements(path, factors))
        text = inspect.ask({"config": layers, "words": ["config"]})["words"]["config"]
    with program.Program("simulate") as simulate:
        config = program.text_layer("the config of the fit", text)
        Fitting(found, config, simulate.ask).run()
    return found
