#!/usr/bin/python3
"""Trains with and without mitigations of delay: mitigations.py [--petra PETRA] [--runs FOLDER] [--figure PNG].

Runs that are complete in FOLDER already are read, not run again. Prints a table and draws it. Needs h5py and, for the
figure, matplotlib."""

import argparse
import os
import subprocess
import sys
import time

os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MITIGATIONS = {
    "none": {},
    "lr_rescheduling": {"lr_rescheduling": 256},
    "discrepancy_correction": {"discrepancy_correction": 0.135},
    "both of PipeMare": {"lr_rescheduling": 256, "discrepancy_correction": 0.135},
    "spike_compensation": {"spike_compensation": "true"},
    "weight_prediction: velocity": {"weight_prediction": "velocity"},
    "weight_prediction: difference": {"weight_prediction": "difference"},
    "spike + velocity": {"spike_compensation": "true", "weight_prediction": "velocity"},
    "gradient_shrinking": {"gradient_shrinking": 0.8},
    "stage_momentum": {"stage_momentum": 0.99},
}
STASHED = [name for name in MITIGATIONS if "discrepancy_correction" not in MITIGATIONS[name]]
# Method, stages, what is tried.
GROUPS = [
    ("backprop", 10, ["none"]),
    ("petra", 10, list(MITIGATIONS)),
    ("delayed", 10, STASHED),
    ("petra", 4, ["none", "lr_rescheduling", "spike_compensation", "weight_prediction: difference"]),
]


def train(arguments, method, stages, name):
    """Last epoch's training loss, evaluation loss and top-1; None for a run that diverged."""
    folder = os.path.join(arguments.runs, f"{method}-{stages}-{name}".replace(" ", "-").replace(":", ""))
    settings = [f"method.name={method}"]
    if stages != 10:
        settings += ["stages.partition=balanced", f"stages.count={stages}"]
    settings += [f"method.mitigation.{key}={value}" for key, value in MITIGATIONS[name].items()]
    if not os.path.exists(os.path.join(folder, "weights.h5")):
        command = [arguments.petra, "train", "--overwrite", os.path.join(HERE, "base.yaml"), "--quiet", "--output", folder]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if "diverged" in done.stderr:
            return None
        if done.returncode != 0:
            sys.exit(f"mitigations.py: {' '.join(command)}: {done.stderr}")
    with h5py.File(os.path.join(folder, "run.h5"), "r") as file:
        epoch = file["epoch"]
        return tuple(float(epoch[column][-1]) for column in ("train_loss", "eval_loss", "eval_top1"))


def draw(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
    names = list(MITIGATIONS)[::-1]
    groups = [group[:2] for group in GROUPS[1:]]
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    width = 0.8 / len(groups)
    for i, group in enumerate(groups):
        for position, name in enumerate(names):
            found = results.get((*group, name))
            if found:
                axes.barh(position + (1 - i) * width, found[0], width, color=["#0072b2", "#e69f00", "#009e73"][i],
                          label=f"{group[0]}, J = {group[1]}" if name == "none" else None)
    axes.axvline(results["backprop", 10, "none"][0], color="black", linestyle="--", label="backprop")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("mean training loss of the last epoch (nat)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncol=4, frameon=False)
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--petra", default="build/petra")
    parser.add_argument("--runs", default="runs/mitigations")
    parser.add_argument("--figure")
    arguments = parser.parse_args()
    start = time.monotonic()
    results = {}
    print("| method | J | mitigation | train loss, last epoch | evaluation loss | evaluation top-1 |\n|---|---|---|---|---|---|")
    for method, stages, names in GROUPS:
        for name in names:
            found = results[method, stages, name] = train(arguments, method, stages, name)
            figures = f"{found[0]:.3f} | {found[1]:.3f} | {100 * found[2]:.1f} %" if found else "diverged | – | –"
            print(f"| `{method}` | {stages} | {name} | {figures} |", flush=True)
    print(f"\n{time.monotonic() - start:.0f} s", flush=True)
    if arguments.figure:
        draw(results, arguments.figure)


if __name__ == "__main__":
    main()
