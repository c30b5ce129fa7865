#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Row 6 against row 2 of table 4: row_6.py [PETRA] [KEY=VALUE ...]. Trains `delayed` and `delayed-reversible` from the same weights
for a few microbatches, and prints how far apart their weights are over how far they moved. Exit status 1 where that is more than
the rounding of the inversion can explain."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

h5py, numpy = sim.common.modules("h5py", "numpy")
CONFIG = os.path.join(HERE, "base-mini.yaml")
# Double precision is computed by plain loops: a small network, small microbatches.
SIZE = ["--set", "model.width=4", "--set", "data.batch=8"]
MICROBATCHES = [30, 60]
# In double precision rounding is 1e-16 an operation; ReLUs that flip make any difference grow without bound, so the run is short.
LARGEST = {"fp64": 1e-11, "fp32": None}


def petra(program, *arguments):
    run = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, stdin=subprocess.DEVNULL)
    if run.returncode:
        sys.exit(f"{program} {' '.join(arguments)}\n{run.stdout}")


def parameters(path):
    """All trained weights as one vector (statistics of batch norms are no weights)."""
    found = []
    with h5py.File(path, "r") as file:
        file["parameters"].visititems(
            lambda name, node: found.append(numpy.asarray(node, "f8").ravel()) if isinstance(node, h5py.Dataset) and "running" not in name else None)
    return numpy.concatenate(found)


def main():
    program = next((a for a in sys.argv[1:] if "=" not in a), "build/petra")
    sets = [text for a in sys.argv[1:] if "=" in a for text in ("--set", a)]
    wrong = 0
    print("| precision | microbatches | distance over distance moved | |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for precision, most in LARGEST.items():
            common = [*SIZE, *sets, "--set", f"device.precision={precision}", "--set", "run.eval_every=0", "--quiet"]
            start = os.path.join(folder, f"start-{precision}")
            petra(program, "init", CONFIG, *common[:-1], "--output", start)
            initial = parameters(os.path.join(start, "weights.h5") if os.path.isdir(start) else start)
            for microbatches in MICROBATCHES:
                ends = []
                for method in "delayed", "delayed-reversible":
                    place = os.path.join(folder, f"{method}-{precision}-{microbatches}")
                    petra(program, "train", CONFIG, "--overwrite", *common, "--set", f"method.name={method}", "--set", f"run.max_microbatches={microbatches}",
                          "--output", place)
                    ends.append(parameters(os.path.join(place, "weights.h5")))
                ratio = float(numpy.linalg.norm(ends[0] - ends[1]) / numpy.linalg.norm(ends[0] - initial))
                bad = most is not None and ratio > most
                wrong += bad
                print(f"| {precision} | {microbatches} | {ratio:.1e} | {'too far apart' if bad else ''} |", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
