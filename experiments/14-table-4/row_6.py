#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Row 6 against row 2 of table 4: row_6.py [PETRA] [KEY=VALUE ...] [--draw]. Trains `delayed` and
`delayed-reversible` from the same weights for a few microbatches, writes row-6.csv (the distance of
their weights over the distance that these moved), and prints it as a table; --draw prints that of
the existing CSV. Exit status 1 if a distance is larger than the rounding of the inversion can
explain."""

import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

h5py, numpy = sim.modules("h5py", "numpy")
CONFIG, DISTANCES = (os.path.join(HERE, name) for name in ("base-mini.yaml", "row-6.csv"))
# Double precision is computed by plain loops: a small network, small microbatches.
SIZE = ["--set", "model.width=4", "--set", "data.batch=8"]
SETS = [word for text in sys.argv[1:] if "=" in text for word in ("--set", text)]
MICROBATCHES = [30, 60]
# In double precision rounding is 1e-16 an operation; ReLUs that flip make any difference grow
# without bound, so the run is short.
LARGEST = {"fp64": 1e-11, "fp32": None}


def parameters(path):
    """Returns all trained weights as one vector (statistics of batch norms are not weights)."""
    found = []
    with h5py.File(path, "r") as file:
        file["parameters"].visititems(
            lambda name, node: (
                found.append(numpy.asarray(node, "f8").ravel())
                if isinstance(node, h5py.Dataset) and "running" not in name
                else None
            )
        )
    return numpy.concatenate(found)


def measure():
    """Yields a row for each precision and length."""
    with tempfile.TemporaryDirectory() as folder:
        for precision in LARGEST:
            common = [
                *SIZE,
                *SETS,
                "--set",
                f"device.precision={precision}",
                "--set",
                "run.eval_every=0",
            ]
            start = os.path.join(folder, f"start-{precision}")
            sim.petra("init", CONFIG, *common, "--output", start)
            initial = parameters(
                os.path.join(start, "weights.h5") if os.path.isdir(start) else start
            )
            for microbatches in MICROBATCHES:
                ends = []
                for method in "delayed", "delayed-reversible":
                    place = os.path.join(folder, f"{method}-{precision}-{microbatches}")
                    sim.petra(
                        "train",
                        CONFIG,
                        "--overwrite",
                        *common,
                        "--set",
                        f"method.name={method}",
                        "--set",
                        f"run.max_microbatches={microbatches}",
                        "--output",
                        place,
                    )
                    ends.append(parameters(os.path.join(place, "weights.h5")))
                yield {
                    "precision": precision,
                    "microbatches": microbatches,
                    "distance_over_moved": float(
                        numpy.linalg.norm(ends[0] - ends[1]) / numpy.linalg.norm(ends[0] - initial)
                    ),
                }


def main():
    if not sim.DRAW_ONLY:
        sim.write_table(DISTANCES, list(measure()))
    found = {
        (row["precision"], row["microbatches"]): row["distance_over_moved"]
        for row in sim.read_table(DISTANCES)
    }
    names = {"fp64": "double", "fp32": "single"}
    sim.markdown(
        ["precision", *(f"after {microbatches} microbatches" for microbatches in MICROBATCHES)],
        [
            [
                names[precision],
                *(f"{found[precision, microbatches]:.1e}" for microbatches in MICROBATCHES),
            ]
            for precision in LARGEST
        ],
    )
    return any(
        LARGEST[precision] is not None and not distance <= LARGEST[precision]
        for (precision, _), distance in found.items()
    )


if __name__ == "__main__":
    sys.exit(main())
