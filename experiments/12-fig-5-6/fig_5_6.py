#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far the gradients of petra are from exact ones over 90 epochs: fig_5_6.py [PETRA] [--draw]
[--runs=FOLDER].

Reads the log of petra-k1 in the folder of experiment 01 (runs/first-light, or FOLDER), draws
figures 5 and 6 and writes probes.csv. It then trains 150 further microbatches from the weights of
this run, at two rates and in two precisions, into FOLDER/from-weights (existing runs are not
repeated), and writes from_weights.csv. scales.csv has the batch-norm scales of these weights and of
those of the other long runs. Prints the tables; --draw prints them from the existing CSV files.
Needs h5py, numpy and matplotlib."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

PROBES, FROM_WEIGHTS, SCALES = (
    os.path.join(HERE, name) for name in ("probes.csv", "from_weights.csv", "scales.csv")
)
CONFIG = os.path.join(os.path.dirname(HERE), "01-first-light", "base-90.yaml")
PLOT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "analysis", "plot_probe.py")
RUNS = sweeps.WORDS.get("runs", "runs/first-light")
LONG_RUN = os.path.join(RUNS, "ninety", "{}_epochs=90_seed=1")
RUN = LONG_RUN.format("petra-k1")
LONG = {
    "backprop": "`backprop`",
    "petra-k1": "`petra`, k = 1",
    "petra-k4": "`petra`, k = 4",
    "petra-k16": "`petra`, k = 16",
}
PAIRS = [
    ("method_delayed", "PETRA and delayed"),
    ("method_end_to_end", "PETRA and end-to-end"),
    ("delayed_end_to_end", "delayed and end-to-end"),
]
# The training from the weights: precisions, and rates, of which the first changes nothing.
PRECISIONS, RATES = ["bf16", "fp32"], [1e-6, 0.25]
MICROBATCHES, PROBED = 150, 15


def probes(path):
    """Yields, for each epoch, the names of quantities with their values: arrays of (probes,
    stages)."""
    run = petrapipe.Run(path)
    quantities = {"cosine_" + pair: run.probe("cosine/" + pair) for pair, _ in PAIRS} | {
        "reconstruction_error": run.probe("reconstruction_error")
    }
    epoch = quantities["reconstruction_error"].coords["epoch"] + 1
    return {
        int(e): {name: found.values[epoch == e] for name, found in quantities.items()}
        for e in sorted(set(epoch))
    }


def of_epochs(path):
    """Yields a row for each epoch and stage: means, and the number of probes at which the method is
    closer to end-to-end."""
    for epoch, found in probes(path).items():
        nearer = found["cosine_method_end_to_end"] > found["cosine_delayed_end_to_end"]
        for stage in range(nearer.shape[1]):
            means = {name: values[:, stage].mean() for name, values in found.items()}
            yield {
                "epoch": epoch,
                "stage": stage + 1,
                "probes": len(nearer),
                **{name: "" if mean != mean else f"{mean:.4f}" for name, mean in means.items()},
                "method_nearer": int(nearer[:, stage].sum()),
            }


def train_on(precision, rate):
    """Returns the folder of a run from the weights of the long run, at one rate."""
    output = os.path.join(RUNS, "from-weights", f"{precision}_{rate:g}")
    sets = {
        "run.epochs": 1,
        "data.limit": MICROBATCHES * 64,
        "lr.warmup_epochs": 0,
        "lr.milestones": "[]",
        "probe.per_epoch": PROBED,
        "optim.lr": rate,
        "device.precision": precision,
        "model.weights": os.path.join(RUN, "weights.h5"),
    }
    if not os.path.exists(os.path.join(output, "weights.h5")):
        words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        subprocess.run(
            [
                sim.PETRA,
                "train",
                "--overwrite",
                os.path.join(RUN, "config.yaml"),
                "--output",
                output,
                *words,
            ],
            check=True,
        )
    return output


def from_weights():
    """Yields a row for each of these runs and each stage: means over the second half of its
    probes."""
    for precision in PRECISIONS:
        for rate in RATES:
            for found in probes(train_on(precision, rate)).values():
                for stage in range(found["reconstruction_error"].shape[1]):
                    means = {
                        name: values[len(values) // 2 :, stage].mean()
                        for name, values in found.items()
                    }
                    yield {
                        "precision": precision,
                        "lr": rate,
                        "stage": stage + 1,
                        **{
                            name: "" if mean != mean else f"{mean:.4f}"
                            for name, mean in means.items()
                        },
                    }


def scales():
    """Yields, for each completed long run and each stage, the root mean square of the scales of its
    last batch norm."""
    import h5py

    for name in LONG:
        path = os.path.join(LONG_RUN.format(name), "weights.h5")
        if not os.path.exists(path):
            continue
        with h5py.File(path) as file:
            for stage, tensors in sorted(file["parameters"].items()):
                norms = sorted(group for group in tensors if group.startswith("bn"))
                if norms:
                    values = tensors[norms[-1]]["scale"][:].astype(float)
                    yield {
                        "run": name,
                        "stage": int(stage),
                        "scale": float((values**2).mean() ** 0.5),
                    }


def steps():
    """Returns the epochs after which the rate drops."""
    with open(CONFIG, encoding="utf-8") as file:
        config = petrapipe.read_config(file.read())
    return [int(part) for part in config["lr.milestones"].strip("[]").split(",")]


def by_stage(rows, name):
    return [row[name] for row in sorted(rows, key=lambda row: row["stage"])]


def shown(values, form="{:.3f}"):
    return ["–" if value == "" else form.format(value) for value in values]


def tables(rows, further, norms):
    first, second = steps()
    last = max(r["epoch"] for r in rows)
    header = ["stage 1", *map(str, range(2, 1 + max(r["stage"] for r in rows)))]
    body = []
    for name, words in [("cosine_" + pair, words) for pair, words in PAIRS] + [
        ("reconstruction_error", "reconstruction error")
    ]:
        for epoch in 1, first // 2, first, second, last:
            body.append(
                [
                    f"{words}, epoch {epoch}",
                    *shown(by_stage([r for r in rows if r["epoch"] == epoch], name)),
                ]
            )
    for words, part in (
        ("before", [r for r in rows if r["epoch"] <= first]),
        ("after", [r for r in rows if r["epoch"] > first]),
    ):
        counts = [
            [
                sum(r[name] for r in part if r["stage"] == stage)
                for name in ("method_nearer", "probes")
            ]
            for stage in range(1, len(header))
        ]
        body.append(
            [
                (
                    f"probes at which PETRA is closer to end-to-end, {words} the first step of the"
                    " rate"
                ),
                *(f"{100 * a / b:.0f} %" for a, b in counts),
                "–",
            ]
        )
    print(f"{sum(r['probes'] for r in rows if r['stage'] == 1)} probes")
    sim.markdown(["", *header], body)
    body = []
    for name, words in (
        ("reconstruction_error", "reconstruction error"),
        ("cosine_method_delayed", "PETRA and delayed"),
    ):
        for precision in PRECISIONS:
            for rate in RATES:
                body.append(
                    [
                        words,
                        precision,
                        f"{rate:g}",
                        *shown(
                            by_stage(
                                [
                                    r
                                    for r in further
                                    if (r["precision"], r["lr"]) == (precision, rate)
                                ],
                                name,
                            )
                        ),
                    ]
                )
    sim.markdown(["from the weights at the end", "precision", "rate", *header], body)
    found = {words: [r["scale"] for r in norms if r["run"] == run] for run, words in LONG.items()}
    body = [[words, *shown(values, "{:.1f}")] for words, values in found.items() if values]
    sim.markdown(
        ["root mean square of the scales of the last batch norm", *header[: len(body[0]) - 1]], body
    )


def main():
    if not sim.DRAW_ONLY:
        subprocess.run(
            [
                sys.executable,
                PLOT,
                RUN,
                "--figure-5",
                os.path.join(HERE, "figure-5.png"),
                "--figure-6",
                os.path.join(HERE, "figure-6.png"),
            ],
            check=True,
        )
        sim.write_table(PROBES, list(of_epochs(RUN)))
        sim.write_table(FROM_WEIGHTS, list(from_weights()))
        sim.write_table(SCALES, list(scales()))
    tables(*map(sim.read_table, (PROBES, FROM_WEIGHTS, SCALES)))


if __name__ == "__main__":
    main()
