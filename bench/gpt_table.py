#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT, or a Llama, on the CPU beside PyTorch: gpt_table.py BUILD TEXT --peer PYTHON
[--family gpt|llama] [--epochs N] [--rounds N] [--write bench/RESULTS.md]

BUILD is a folder with ./petra and ./bench/bench_tick. Four blocks of width 128, 4 heads (of a Llama
2 of keys and values, and 352 hidden features), context 128, 16 windows of the bytes of TEXT a
microbatch, back-propagation with AdamW, in petra and in PyTorch (peer_pytorch_gpt.py: the same
initial weights and windows), eager. Ticks: processes one after the other, N rounds of all, each the
median of so many ticks; printed are medians of the rounds, the least and the largest. Nothing else
should run meanwhile. --epochs: also trains for so many (warm-up of one, then half a cosine) and
prints losses; 0: not. --write puts both in the place of what is between the marks in that file."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from cpu_table import HERE, replace_between_marks

PEER = os.path.join(HERE, "peer_pytorch_gpt.py")
OURS, THEIRS = "petra", "PyTorch"
BATCH, CONTEXT, DEPTH, WIDTH, HEADS, RATE = 16, 128, 4, 128, 4, 1e-3
LLAMA = {"model.kv_heads": 2, "model.hidden": 352}


def settings(o, precision):
    values = {
        "data.set": "text",
        "data.path": os.path.abspath(o.text),
        "data.batch": BATCH,
        "model.family": o.family,
        "model.depth": DEPTH,
        "model.width": WIDTH,
        "model.heads": HEADS,
        "model.context": CONTEXT,
        "method.name": "backprop",
        "optim.name": "adamw",
        "optim.lr": RATE,
        "optim.lr_scaling": "none",
        "device.backend": "cpu",
        "device.threads": o.threads,
        "device.precision": precision,
        **(LLAMA if o.family == "llama" else {}),
    }
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def run(command):
    return subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ).stdout


def peer(o, precision, *more):
    numbers = {
        "batch": BATCH,
        "context": CONTEXT,
        "depth": DEPTH,
        "width": WIDTH,
        "heads": HEADS,
        "lr": RATE,
        "threads": o.threads,
    }
    options = [word for key, value in numbers.items() for word in (f"--{key}", str(value))]
    out = run(
        [
            o.peer,
            "-W",
            "ignore",
            PEER,
            o.text,
            "--family",
            o.family,
            "--precision",
            precision,
            "--fused",
            *options,
            *map(str, more),
        ]
    )
    return [json.loads(line) for line in out.splitlines()]


def tick(o, who, precision):
    """Milliseconds of a tick, and what computed it."""
    if who == THEIRS:
        row = peer(o, precision, "--no-eval", "--microbatches", o.ticks + 10)[0]
        return row["tick_ms"], row["torch"]
    out = run(
        [
            os.path.join(o.build, "bench/bench_tick"),
            *settings(o, precision),
            "--ticks",
            str(o.ticks),
            "--warmup",
            "10",
        ]
    )
    lines = out.splitlines()
    row = next(line for line in lines if line.startswith("tick, ms"))
    return float(row.split()[-2]), lines[0].split("; ", 1)[1]


def ticks(o):
    found, about = {}, {}
    for _ in range(o.rounds):
        for precision in o.precisions:
            for who in OURS, THEIRS:
                ms, about[who] = tick(o, who, precision)
                found.setdefault((precision, who), []).append(ms)
                print(f"{precision} {who}: {ms:.2f} ms", file=sys.stderr)
    lines = [
        (
            f"{o.threads} threads, {o.rounds} rounds, each the median of {o.ticks} ticks (least to"
            f" largest round); {about[OURS]}; PyTorch {about[THEIRS]}, eager, fused AdamW. Ratio:"
            " PyTorch's time over petra's."
        ),
        "",
        "| precision | petra: ms | PyTorch: ms | ratio |",
        "|---|---|---|---|",
    ]
    for precision in o.precisions:
        rows = [found[precision, who] for who in (OURS, THEIRS)]
        cells = [f"{statistics.median(row):.1f} ({min(row):.1f} to {max(row):.1f})" for row in rows]
        ratio = statistics.median(theirs / mine for mine, theirs in zip(*rows))
        lines.append(f"| {precision} | {cells[0]} | {cells[1]} | {ratio:.2f} |")
    return lines


def warmup(o):
    """The epochs of warm-up: one, unless there is no other epoch."""
    return min(1, o.epochs - 1)


def train(o, precision):
    """Rows of epochs."""
    schedule = {
        "run.epochs": o.epochs,
        "lr.schedule": "cosine",
        "lr.epochs": o.epochs,
        "lr.warmup_epochs": warmup(o),
        "lr.milestones": "[]",
    }
    more = [word for key, value in schedule.items() for word in ("--set", f"{key}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        out = run(
            [
                os.path.join(o.build, "petra"),
                "train",
                "-",
                *settings(o, precision),
                *more,
                "--output",
                folder,
                "--overwrite",
                "--json",
            ]
        )
    return json.loads(out)["epochs"]


def losses(o):
    rows = {}
    for precision in o.precisions:
        rows[precision, OURS] = train(o, precision)
        rows[precision, THEIRS] = peer(
            o,
            precision,
            "--epochs",
            o.epochs,
            "--schedule-epochs",
            o.epochs,
            "--warmup-epochs",
            warmup(o),
        )
    names = [(precision, who) for precision in o.precisions for who in (OURS, THEIRS)]
    lines = [
        "",
        (
            f"Loss in nats a byte after {'each of ' if o.epochs > 1 else ''}{o.epochs}"
            f" epoch{'s' * (o.epochs > 1)}, training / validation:"
        ),
        "",
        "| epoch | " + " | ".join(f"{who}, {precision}" for precision, who in names) + " |",
        "|---" * (1 + len(names)) + "|",
    ]
    for e in range(o.epochs):
        cells = [
            f"{rows[name][e]['train_loss']:.4f} / {rows[name][e]['eval_loss']:.4f}"
            for name in names
        ]
        lines.append(f"| {e + 1} | " + " | ".join(cells) + " |")
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("build")
    parser.add_argument("text")
    parser.add_argument("--peer", required=True, help="a Python that has PyTorch")
    parser.add_argument("--family", default="gpt", choices=("gpt", "llama"))
    parser.add_argument("--precisions", default="fp32,bf16", type=lambda text: text.split(","))
    parser.add_argument(
        "--write", metavar="FILE", help="a page with the marks, such as bench/RESULTS.md"
    )
    for name, value in (
        ("rounds", 3),
        ("ticks", 50),
        ("threads", len(os.sched_getaffinity(0))),
        ("epochs", 0),
    ):
        parser.add_argument(f"--{name}", default=value, type=int)
    o = parser.parse_args()
    text = "\n".join((ticks(o) if o.rounds else []) + (losses(o) if o.epochs else []))
    print(text)
    if o.write:
        replace_between_marks(o.write, f"gpt_table.py, {o.family}", text)


if __name__ == "__main__":
    main()
