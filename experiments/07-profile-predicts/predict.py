#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of a microbatch, predicted from a cost profile and measured in training: predict.py
[PETRA] [--rounds=N] [--draw].

Each round makes a profile and then trains with each method, so that other load affects both alike.
All rounds use one compute thread, then all use two. With one thread the script also measures the
processor time of training, which depends less on load. Writes predicted.csv, a row for each round,
and prints the tables; --draw prints those of the existing CSV. Needs h5py and numpy. It checks
nothing."""

import os
import resource
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

h5py, numpy = sim.modules("h5py", "numpy")
CONFIG, PREDICTED = (os.path.join(HERE, name) for name in ("revnet18.yaml", "predicted.csv"))
METHODS = ("backprop", "reversible", "petra")
ROUNDS = int(sweeps.WORDS.get("rounds", "5"))
# Microbatches of a run: before START the pipeline fills and memory is allocated.
START, END = (
    30,
    130,
)


def sum_of_costs(stages, method):
    """Returns the seconds of all actions of one microbatch, one after another, as in emulation. The
    fused head reconstructs nothing."""
    total = sum(
        stage[part]["median_s"] for stage in stages for part in ("forward", "backward", "update")
    )
    return total + (
        0
        if method == "backprop"
        else sum(stage["reconstruct"]["median_s"] for stage in stages[:-1])
    )


def simulated(sets, method, profile):
    """Returns the time of one microbatch by `petra simulate`: sequential methods one at a time,
    lockstep its tick on J devices."""
    return sim.petra(
        "simulate",
        CONFIG,
        *sets,
        "--set",
        f"method.name={method}",
        "--set",
        "cluster.cost.model=profile",
        "--set",
        f"cluster.cost.profile={profile}",
    )["time_per_microbatch_s"]


def train(sets, method, microbatches, folder):
    """Returns the folder of the run, and its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    sim.petra(
        "train",
        CONFIG,
        "--overwrite",
        *sets,
        "--set",
        f"method.name={method}",
        "--set",
        f"run.max_microbatches={microbatches}",
        "--output",
        folder,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return folder, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure():
    """Yields a row for each number of threads, round and method."""
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "p.h5")
        for threads in 1, 2:
            sets = ["--set", f"device.threads={threads}"]
            for number in range(1, ROUNDS + 1):
                stages = sim.petra("profile", CONFIG, *sets, "--output", profile)["stages"]
                for method in METHODS:
                    run, processor = train(sets, method, END, os.path.join(folder, method))
                    with h5py.File(os.path.join(run, "run.h5"), "r") as file:
                        taken = float(numpy.median(numpy.diff(file["train/wall_s"][START:])))
                    row = {
                        "threads": threads,
                        "round": number,
                        "method": method,
                        "sum_of_costs_s": sum_of_costs(stages, method),
                        "simulated_s": simulated(sets, method, profile),
                        "wall_s": taken,
                        "processor_s": "",
                    }
                    if threads == 1:
                        row["processor_s"] = (
                            processor - train(sets, method, START, os.path.join(folder, "short"))[1]
                        ) / (END - START)
                    yield row


def tables(rows):
    def ratios(threads, method, predicted, measured):
        return [
            row[predicted] / row[measured]
            for row in rows
            if (row["threads"], row["method"]) == (threads, method)
        ]

    def quartiles(values):
        return (
            f"{numpy.median(values):.2f} ({numpy.quantile(values, 0.25):.2f} .."
            f" {numpy.quantile(values, 0.75):.2f})"
        )

    rounds = max(row["round"] for row in rows)
    lines = [(f"`{method}`", method, "sum_of_costs_s") for method in METHODS] + [
        (f"`{method}`, simulated", method, "simulated_s") for method in METHODS[:2]
    ]
    sim.markdown(
        [
            f"predicted / measured, wall, median of {rounds} rounds (quartiles)",
            "1 thread",
            "2 threads",
        ],
        [
            [name, *(quartiles(ratios(threads, method, predicted, "wall_s")) for threads in (1, 2))]
            for name, method, predicted in lines
        ],
    )
    sim.markdown(
        [
            f"one thread, {rounds} rounds",
            "predicted (wall) / training (processor), median (least, largest)",
        ],
        [
            [f"`{method}`", f"{numpy.median(found):.2f} ({min(found):.2f}, {max(found):.2f})"]
            for method in METHODS
            for found in [ratios(1, method, "sum_of_costs_s", "processor_s")]
        ],
    )


def main():
    if not sim.DRAW_ONLY:
        sim.write_table(PREDICTED, list(measure()))
    tables(sim.read_table(PREDICTED))


if __name__ == "__main__":
    main()
