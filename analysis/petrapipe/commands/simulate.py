# SPDX-License-Identifier: Apache-2.0
"""petra simulate --fit: fits numbers of the config to measured times. The program has checked the
options."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

from .. import program
from ..command import Command, Option, warn
from ..table import Column, print_json, table_text
from ..text import shown

if TYPE_CHECKING:
    from ..fit import Fit

COLUMNS = (
    Column("measurement", format="%.511s", value=lambda one: ", ".join(one.settings)),
    Column("measured ms", None, "%.4g", lambda one: one.measured_s, 1e3),
    Column("simulated ms", None, "%.4g", lambda one: one.simulated_s, 1e3),
    Column("ratio", None, "%.4f", lambda one: one.simulated_s / one.measured_s),
)


def object_of(fit: Fit) -> dict:
    return {
        "factors": [
            {"factor": one.factor, "values": one.values(), "undetermined": one.undetermined}
            for one in fit.factors
        ],
        "measurements": [
            {
                "settings": one.settings,
                "measured_s": one.measured_s,
                "simulated_s": one.simulated_s,
            }
            for one in fit.measurements
        ],
        "rms_log": fit.rms,
        "worst_log": fit.worst,
    }


def print_fit(fit: Fit) -> None:
    print(table_text(COLUMNS, fit.measurements))
    for factor in fit.factors:
        for key, start in factor.starts.items():
            value = start * factor.factor
            print(shown(f"{key}: {value:.6g} ({start:.6g} times {factor.factor:.6g})"))
        if factor.undetermined:
            print(
                "  the measurements do not determine it: half the value and twice the value fit as "
                "well"
            )
    factors, measurements = len(fit.factors), len(fit.measurements)
    print(
        f"{factors} factor{'s' * (factors != 1)} fitted to {measurements} "
        f"measurement{'s' * (measurements != 1)}: times "
        f"are {100 * math.expm1(fit.rms):.1f} % off (root mean square), "
        f"{100 * math.expm1(fit.worst):.1f} % at most"
    )
    if factors >= measurements:
        print("there are no more measurements than factors, so a good fit is no evidence")


def run(arguments: SimpleNamespace) -> None:
    """Prints the fitted values, the errors of the times, and the numbers of measurements and
    factors."""
    from ..fit import fit

    place = arguments.input
    base = program.file_layer(place)
    if place == "-":
        base = program.text_layer("-", sys.stdin.buffer.read().decode())
    layers = [base, program.set_layer(arguments.set)]
    (answer,) = program.inspect([{"config": layers, "idle": True}])
    for line in program.check(answer)["warnings"]:
        warn(line)
    found = fit(layers, arguments.fit, arguments.vary)
    if arguments.json:
        print_json(object_of(found))
    else:
        print_fit(found)


COMMAND = Command(
    name="simulate",
    summary="simulates the time and memory of a method on a modelled cluster",
    arguments="CONFIG.yaml [--set KEY=VALUE]... --fit FILE --vary KEYS [--json] [--quiet]",
    help="Fits numbers of the config to measured times; see petra simulate --help.",
    takes_config=True,
    inputs=(1, 1),
    options=(
        Option("fit", "FILE", "the measured times to fit the config to"),
        Option("vary", "KEYS", "the keys whose numbers --fit changes"),
        Option("overwrite"),
    ),
    needs=("numpy", "scipy"),
    run=run,
)
