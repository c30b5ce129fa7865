# SPDX-License-Identifier: Apache-2.0
"""petra inspect for a run: its request, its epochs, its memory, its ranks. The program inspects
configs itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..command import Command
from ..table import Column, cells_text, print_json, records, table_text
from ..text import shown

if TYPE_CHECKING:
    from ..log_summary import Summary

PACE = ("measured", "predicted", "low", "high")
PACE_TEXT = (
    "\npace: measured, and predicted by petra simulate from the costs; low, high: predicted with"
    " all costs at their\n"
    "quartiles (high of the run is at least a ninth above the prediction, for work that no profile"
    " covers);\n"
    "ratio: predicted / measured; stages: time in actions per microbatch"
)
RANKS_TEXT = (
    "\nranks: wall-clock seconds in actions; in conversions between tensors and messages; in"
    " waiting for others"
)
MEMORY_TEXT = (
    "\npeak memory in MB (10^6 bytes): the peak of each category, and the peak of their sum"
)


# --- epochs ---


def epoch_columns(summary: Summary) -> list[Column]:
    """Returns the columns of /epoch in the order of the log. The table has the rate before the wall
    time, and of tokens two more columns, which follow from the loss."""
    rate = "tokens" if summary.tokens else "images"
    columns = [
        Column("epoch", "epoch", lambda epoch: str(epoch + 1), right=True),
        Column("train loss", "train_loss", "%.4f"),
        Column("train top-1 %", "train_top1", "%.2f", scale=100),
        Column("eval loss", "eval_loss", "%.4f"),
        Column("eval top-1 %", "eval_top1", "%.2f", scale=100),
        Column("eval top-5 %", "eval_top5", "%.2f", scale=100),
        Column("lr", "lr", "%.4g"),
        Column(None, "wall_s"),
        Column(f"{rate}/s", f"{rate}_per_s", "%.0f", lambda row: row["rate"]),
        Column("wall s", None, "%.1f", lambda row: row["wall_s"]),
    ]
    if summary.recalibrated and not summary.tokens:
        columns += [
            Column("recal. loss", "eval_loss_recalibrated", "%.4f"),
            Column("recal. top-1 %", "eval_top1_recalibrated", "%.2f", scale=100),
            Column("recal. top-5 %", "eval_top5_recalibrated", "%.2f", scale=100),
        ]
    if summary.tokens:
        columns += [
            Column("eval perplexity", None, "%.3f", lambda row: perplexity(row["eval_loss"])),
            Column("eval bits/token", None, "%.4f", lambda row: row["eval_loss"] / math.log(2)),
        ]
    return columns


def perplexity(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def epoch_rows(summary: Summary) -> list[dict[str, Any]]:
    lists = {name: column.tolist() for name, column in summary.epochs.items()}
    return [dict(zip(lists, row)) for row in zip(*lists.values())]


# --- JSON ---


def stage_record(summary: Summary, j: int) -> dict[str, Any]:
    row = summary.stages[j]
    found = {
        "stage": row.get("stage", 0),
        "name": row["name"],
        "reversible": bool(row.get("reversible", 0)),
        "parameters": row.get("parameters", 0),
        "forward_flops": row.get("forward_flops", 0),
        "delay": row.get("delay", 0),
    }
    if summary.local_loss is not None and len(summary.local_loss):
        found["train_loss"] = summary.local_loss[-1][j]
        found["train_top1"] = summary.local_top1[-1][j]
    if summary.peak_bytes is not None and j < len(summary.peak_bytes):
        from ..run_schema import CATEGORIES

        peaks = dict(zip(CATEGORIES, summary.peak_bytes[j]))
        found["peak_bytes"] = {**peaks, "total": summary.total_peak_bytes[j]}
    return found


def pace_record(summary: Summary) -> dict[str, Any] | None:
    """Returns the speed of an executed run beside its prediction."""
    if summary.pace is None:
        return None

    def rows(name: str, label: str, first: int) -> list[dict[str, Any]]:
        return [
            {**dict(zip(PACE, row)), label: i} for i, row in enumerate(summary.pace[name], first)
        ]

    return {
        "microbatch_s": dict(zip(PACE, summary.pace["microbatch_s"])),
        "ranks": rows("busy", "rank", 0),
        "stages": rows("stage_s", "stage", 1),
    }


def record(summary: Summary) -> dict[str, Any]:
    """Returns the object that --json prints."""
    return {
        "run": summary.path,
        "created": summary.created,
        "petra_version": summary.petra_version,
        "command": summary.command,
        "backend": summary.backend,
        "seed": signed(summary.seed),
        "microbatches": summary.microbatches,
        "epochs": records(epoch_columns(summary), epoch_rows(summary)),
        "stages": [stage_record(summary, j) for j in range(len(summary.stages))],
        "pace": pace_record(summary),
    }


def signed(number: int) -> int:
    """Returns a number of 64 bits as JSON has it in the program."""
    return number - (1 << 64) if number >= 1 << 63 else number


# --- text ---


def length_line(summary: Summary) -> str:
    if summary.simulated is None:
        epochs, losses = summary.epoch_count, summary.microbatches
        return (
            f"length   {epochs} epoch{'' if epochs == 1 else 's'}, losses of {losses} "
            f"microbatch{'' if losses == 1 else 'es'}"
        )
    line = f"length   simulated: {summary.simulated} microbatches in {summary.makespan_s:.9g} s"
    per_microbatch = summary.time_per_microbatch_s
    if per_microbatch is not None and math.isfinite(per_microbatch):
        line += f", {per_microbatch:.9g} s per microbatch"
    return line


def kept_line(summary: Summary) -> str:
    """Returns which weights a run with run.keep: best keeps; among equal evaluations it is the
    first."""
    import numpy

    values = -summary.epochs["eval_loss"] if summary.tokens else summary.epochs["eval_top1"]
    if not len(values) or numpy.isnan(values).all():
        return "weights  of the best evaluation (none yet)"
    row = int(numpy.nanargmax(values))
    file = "weights.h5" if summary.complete else "best.h5"
    value = (
        f"loss {summary.epochs['eval_loss'][row]:.4f}"
        if summary.tokens
        else f"top-1 {100 * summary.epochs['eval_top1'][row]:.2f} %"
    )
    return (
        f"weights  of the best evaluation: epoch {summary.epochs['epoch'][row] + 1}, {value}"
        f" ({file})"
    )


def what_lines(summary: Summary) -> list[str]:
    """Returns the request of the run, and its progress."""
    from ..program import check, inspect
    from ..run_facts import RunFacts, config_request, warn_of_config, words_asked

    keys = ["cluster.stages", "probe.per_epoch", "run.keep", "run.mode"]
    (answer,) = inspect([config_request(summary, words=words_asked("numbers"), keys=keys)])
    warn_of_config(answer)
    run = RunFacts(summary.path, "", summary.path, summary, "", check(answer))
    stages = f", {run.stages} stage{'' if run.stages == 1 else 's'}" if run.stages > 0 else ""
    lines = [f"network  {run.network}{stages}", f"method   {answer['words']['method']}"]
    if run.trains:
        lines += [f"optim    {run.optimiser}", f"data     {run.data}"]
    lines += answer["words"]["numbers"].splitlines()
    probes = run.value("probe.per_epoch")
    lines.append(f"probes   {f'{probes} an epoch' if probes > 0 else 'none'}")
    complete = "complete" if summary.complete else "not complete: still running, or interrupted"
    lines += [f"state    {complete}", length_line(summary)]
    return [*lines, kept_line(summary)] if run.value("run.keep") == "best" else lines


def print_local(summary: Summary) -> None:
    """Prints the training loss and accuracy of each stage of a run with local losses in its last
    epoch."""
    columns = [
        Column("stage", None, "%d", lambda j: j + 1),
        Column("blocks", None, value=lambda j: summary.stages[j]["name"]),
        Column("train loss", None, "%.4f", lambda j: float(summary.local_loss[-1][j])),
        Column("train top-1 %", None, "%.2f", lambda j: 100 * float(summary.local_top1[-1][j])),
    ]
    print(f"\nheads of the stages in epoch {len(summary.local_loss)}:")
    print(table_text(columns, range(len(summary.stages))), end="")


def print_memory(summary: Summary) -> None:
    from ..run_schema import CATEGORIES

    rows = [
        [str(j), stage["name"], *(f"{1e-6 * one:.3f}" for one in (*peaks.tolist(), int(total)))]
        for j, (stage, peaks, total) in enumerate(
            zip(summary.stages, summary.peak_bytes, summary.total_peak_bytes), 1
        )
    ]
    headings = ["stage", "blocks", *CATEGORIES, "peak"]
    print(MEMORY_TEXT)
    print(cells_text(headings, rows, [name != "blocks" for name in headings]), end="")


def print_ranks(summary: Summary) -> None:
    """Prints how each rank of an executed run spent its time."""
    of_stage = summary.of_stage.tolist()

    def seconds(part: int) -> Any:
        return lambda rank: 1e-9 * int(summary.time_ns[rank][part])

    columns = [
        Column("rank", None, "%d", lambda rank: rank),
        Column("replica", None, "%d", lambda rank: rank // summary.places),
        Column("stages", None, "%d", lambda rank: of_stage.count(rank % summary.places)),
        Column("computing s", None, "%.3f", seconds(0)),
        Column("copying s", None, "%.3f", seconds(1)),
        Column("waiting s", None, "%.3f", seconds(2)),
        Column("wall s", None, "%.3f", seconds(3)),
        Column("messages", None, "%d", lambda rank: int(summary.sent[rank][0])),
        Column("MB sent", None, "%.3f", lambda rank: 1e-6 * int(summary.sent[rank][1])),
    ]
    print(RANKS_TEXT)
    print(table_text(columns, range(summary.ranks)), end="")


def print_pace(summary: Summary) -> None:
    """Prints tables by rank and by stage."""
    rows = [("ms a microbatch", summary.pace["microbatch_s"], 1e3)]
    rows += [(f"rank {r} busy", row, 1) for r, row in enumerate(summary.pace["busy"])]
    ranks = summary.of_stage.tolist()
    rows += [
        (f"stage {j} (rank {rank}) ms", row, 1e3)
        for j, (row, rank) in enumerate(zip(summary.pace["stage_s"], ranks), 1)
    ]
    cells = [[name, *pace_cells(row.tolist(), scale)] for name, row, scale in rows]
    print(PACE_TEXT)
    print(cells_text(["", *PACE, "ratio"], cells, [False, *[True] * 5]), end="")


def pace_cells(row: Sequence[float], scale: float) -> list[str]:
    """Returns the texts of the figures, and the text of the ratio of predicted to measured."""
    measured, predicted = row[:2]
    ratio = predicted / measured if measured > 0 else math.nan
    values = [*(scale * value for value in row), ratio]
    return ["-" if math.isnan(value) else f"{value:.4f}" for value in values]


def print_run(summary: Summary) -> None:
    """Prints everything."""
    print(shown(summary.path))
    print(shown(f"created  {summary.created} by petra {summary.petra_version}"))
    print(shown(f"command  {summary.command}"))
    print(shown(f"backend  {summary.backend}"))
    for line in what_lines(summary):
        print(shown(line))
    if summary.epoch_count:
        print("\n" + table_text(epoch_columns(summary), epoch_rows(summary)), end="")
    if summary.local_loss is not None and len(summary.local_loss):
        print_local(summary)
    if summary.peak_bytes is not None and len(summary.peak_bytes):
        print_memory(summary)
    if summary.ranks:
        print_ranks(summary)
    if summary.pace is not None:
        print_pace(summary)


def run(arguments: SimpleNamespace) -> None:
    """Prints a run, or an object."""
    from ..log_summary import read
    from ..run_facts import log_of

    summary = read(log_of(arguments.input))
    if arguments.json:
        print_json(record(summary))
    else:
        print_run(summary)


COMMAND = Command(
    name="inspect",
    summary="prints the summary of a run",
    arguments="RUN.h5|DIR [--json]",
    help="""\
For a run (its folder or its run.h5, also during the run): prints its settings, its epochs and its peak
memory.""",
    inputs=(1, 1),
    needs=("h5py", "numpy", "xxhash"),
    run=run,
)
