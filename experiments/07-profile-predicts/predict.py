#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of a microbatch, predicted from a cost profile and measured in training: predict.py [--petra PATH] [--rounds N]
[--set KEY=VALUE]... Each round takes a profile and then trains with each method, so that a machine that is busy with other
things is as busy for both. Needs h5py and numpy. Prints; judges nothing."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

h5py, numpy = sim.common.modules("h5py", "numpy")
CONFIG = os.path.join(HERE, "revnet18.yaml")
METHODS = ("backprop", "reversible", "petra")
START = 30  # microbatches of a run that are left out: the pipeline fills, memory is allocated


def petra(path, *arguments):
    return json.loads(subprocess.run([path, *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


def sum_of_costs(stages, method, statistic):
    """Seconds of all actions of one microbatch, computed one after another: what emulation does. The fused head rebuilds nothing."""
    total = sum(stage[part][statistic] for stage in stages for part in ("forward", "backward", "update"))
    return total + (0 if method == "backprop" else sum(stage["reconstruct"][statistic] for stage in stages[:-1]))


def simulated(options, method, profile):
    """What `petra simulate` says of one microbatch: sequential methods one at a time, lockstep its tick on J devices."""
    return petra(options.petra, "simulate", CONFIG, *options.sets, "--set", f"method.name={method}", "--set",
                 "cluster.cost.model=profile", "--set", f"cluster.cost.profile={profile}")["time_per_microbatch_s"]


def measured(options, method, folder):
    """Seconds between the losses of successive microbatches of a training run."""
    petra(options.petra, "train", CONFIG, "--overwrite", *options.sets, "--set", f"method.name={method}", "--output", folder)
    with h5py.File(os.path.join(folder, "run.h5"), "r") as file:
        return numpy.diff(file["train/wall_s"][START:])


def show(name, predicted, taken):
    ratio = [a / b for a, b in zip(predicted, taken)]
    print(f"{name:<24}{1e3 * numpy.median(predicted):10.2f}{1e3 * numpy.median(taken):10.2f}{numpy.median(ratio):9.3f}"
          f"   {numpy.quantile(ratio, 0.25):.3f} .. {numpy.quantile(ratio, 0.75):.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--petra", default="build/petra")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    options.sets = [word for value in options.set for word in ("--set", value)]
    found = {method: {"median": [], "least": [], "simulated": [], "taken": [], "least taken": []} for method in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "p.h5")
        for _ in range(options.rounds):
            stages = petra(options.petra, "profile", CONFIG, *options.sets, "--output", profile)["stages"]
            for method in METHODS:
                row, taken = found[method], measured(options, method, os.path.join(folder, method))
                row["median"].append(sum_of_costs(stages, method, "median_s"))
                row["least"].append(sum_of_costs(stages, method, "min_s"))
                row["simulated"].append(simulated(options, method, profile))
                row["taken"].append(numpy.median(taken))
                row["least taken"].append(taken.min())
    print(f"{options.rounds} rounds; milliseconds a microbatch: medians over the rounds; ratio: predicted / measured, its quartiles over the rounds")
    print(f"{'':<24}{'predicted':>10}{'measured':>10}{'ratio':>9}   quartiles")
    for method in METHODS:
        row = found[method]
        show(f"{method}, medians", row["median"], row["taken"])
        if method == "backprop":  # a difference of two times, as reconstruction is, has no useful minimum
            show(f"{method}, minima", row["least"], row["least taken"])
        if method != "petra":
            show(f"{method}, simulated", row["simulated"], row["taken"])
    print(f"petra, simulated tick on 10 devices: {1e3 * numpy.median(found['petra']['simulated']):.2f} ms")


main()
