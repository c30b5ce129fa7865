# SPDX-License-Identifier: Apache-2.0
"""petra compare: the differences between runs, in their configs and in their results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..command import INPUTS_MAX, Command
from ..table import cells_text, print_json
from ..text import shown

if TYPE_CHECKING:
    from ..comparison import Beside, Comparison
    from ..run_facts import RunFacts
    from ..weights_difference import Difference

# --- as JSON ---


def run_record(run: RunFacts, results: dict[str, float], beside: Beside | None) -> dict[str, Any]:
    return {
        "run": run.place,
        "state": run.state,
        "mode": run.mode,
        "optimiser": run.optimiser_name if run.trains else None,
        "data": run.data if run.trains else None,
        "petra_version": run.summary.petra_version,
        "results": results,
        "beside_the_first": beside and beside.record(),
    }


def record(found: Comparison) -> dict[str, Any]:
    """Returns the object that --json prints."""
    rows = zip(found.runs, found.results, [None, *found.beside])
    return {"runs": [run_record(*row) for row in rows], "config": [vars(s) for s in found.config]}


# --- as tables ---


def table(found: Comparison, first: str, rows: Sequence[Sequence[str]]) -> str:
    """Returns a table with a column for each run behind the names of the rows."""
    return cells_text([first, *found.names()], rows, [False, *(True for _ in found.runs)])


def result_rows(found: Comparison) -> list[list[str]]:
    from ..comparison import FIGURES

    rows = [["mode", *(run.mode for run in found.runs)]]
    rows.append(["state", *(run.state for run in found.runs)])
    for name, title, scale, decimals in FIGURES:
        values = [results[name] for results in found.results]
        if not all(map(math.isnan, values)):
            texts = ["-" if math.isnan(v) else f"{scale * v:.{decimals}f}" for v in values]
            rows.append([title, *texts])
    return rows


def run_line(run: RunFacts, name: str) -> str:
    parts = [f"{name}  {run.place}: {run.method}"]
    parts += [run.network] if run.summary.of_pytorch else []
    parts += [run.optimiser, run.data] if run.trains else []
    return "; ".join(parts)


def weights_text(w: Difference) -> str:
    """Returns how the weights differ. A tensor with another shape in the other file has no largest difference."""
    if w.equal:
        return f"equal to the bit, all {w.tensors} tensors"
    text = f"{w.differing} of {w.tensors} tensors differ"
    text += f", first {w.first}" if w.first else ""
    text += f", {w.shapes} in shape or by name" if w.shapes else ""
    if w.differing > w.shapes:
        text += f", {'the others ' if w.shapes else ''}by at most {w.largest:.3g}"
    return text + (f"; {w.more} only in the other file" if w.more else "")


def beside_lines(beside: Beside, name: str) -> list[str]:
    if beside.losses == 0:
        losses = "no microbatch has a loss in both runs"
    elif beside.equal == beside.losses:
        losses = f"equal to the bit in all {beside.losses} microbatches of both runs"
    else:
        losses = f"equal to the bit in the first {beside.equal} of {beside.losses} microbatches"
    weights = (
        weights_text(beside.weights)
        if beside.weights
        else "weights.h5 is missing in one of the runs or in both"
    )
    return [f"losses   A and {name}: {losses}", f"weights  A and {name}: {weights}"]


def print_tables(found: Comparison) -> None:
    from ..alike import unlike_text

    names = found.names()
    untold = [name for run, name in zip(found.runs, names) if not run.has_training]
    note = f"note: {', '.join(untold)}: "
    for run, name in zip(found.runs, names):
        print(shown(run_line(run, name)))
    print()
    if found.config:
        rows = [[s.key, *("-" if v is None else v for v in s.values)] for s in found.config]
        print(table(found, "config", rows), end="")
        if untold:
            print(
                f"{note}the keys of model, optim and data.set do not describe what a run in PyTorch trains"
            )
    if untold:
        print(
            f"{note}the log does not record its optimiser in full, so that runs with equal keys may be "
            "different trainings"
        )
    if not found.config:
        print(f"their configs are equal in every key{' that their logs record' if untold else ''}")
    print()
    unlike = unlike_text([run.answer["size"] for run in found.runs], names)
    if unlike:
        print(f"unlike   {unlike}\n")
    print(table(found, "result", result_rows(found)))
    for beside, name in zip(found.beside, names[1:]):
        for line in beside_lines(beside, name):
            print(shown(line))


def run(arguments: SimpleNamespace) -> None:
    """Prints the tables, or an object."""
    from ..comparison import comparison_of

    found = comparison_of(arguments.inputs)
    if arguments.json:
        print_json(record(found))
    else:
        print_tables(found)


COMMAND = Command(
    name="compare",
    summary="compares runs: configs (key by key), results, and losses and weights (bit by bit)",
    arguments="RUN RUN... [--json]",
    help="""\
Compares two or more runs (folders or their run.h5). Prints the keys in which the configs differ, and
the results side by side. For each run after the first, prints whether its losses and its weights
(weights.h5) are equal to those of the first run to the bit.""",
    inputs=(2, INPUTS_MAX),
    needs=("h5py", "numpy", "xxhash"),
    run=run,
)
