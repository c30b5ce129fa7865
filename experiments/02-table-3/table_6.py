#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Table 6 of the paper beside what petra counts, stage by stage: table_6.py [PETRA]. Nothing is
checked: README.md says why the two differ."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PETRA = sys.argv[1] if len(sys.argv) > 1 else "build/petra"
# The paper's stage -> GB, as far as its table can be read.
PAPER = {
    18: {"3": 2.67, "5": 1.13, "6": 0.31, "7": 0.57, "8": 0.25, "9": 0.11},
    34: {"1-4": 1.01, "6-8": 0.52, "9": 1.66, "13": 0.71, "14-16": 0.25, "17": 0.11},
}
# The paper names RevNet-18's non-reversible stages 3, 5, 7: it counts from 0. Its groups of
# RevNet-34 fit 18 stages counted from 0 with four blocks in every group, not the 3, 4, 6, 3 of that
# network (README.md), so that its values cannot be compared with stages.


def inspect(depth, accounting):
    config = os.path.join(HERE, f"revnet{depth}-cifar10.yaml")
    command = [PETRA, "inspect", config, "--memory", accounting, "--json"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    # Neither inputs nor weights kept.
    return found["stages"], found["memory"]["rows"][3]["stages_bytes"]


def compare_buffers():
    """Compares buffers: the additional memory of a first block of a group in the paper's RevNet-34,
    compared with its RevNet-18, comes only from the delay."""
    _, rows = inspect(18, "strict")
    for group, stage, more in ((3, 5, 8), (4, 7, 4)):
        stages = {3: ("9", "5"), 4: ("13", "7")}[group]
        paper = PAPER[34][stages[0]] - PAPER[18][stages[1]]
        print(
            f"group {group}, first block: {paper:.2f} GB more in the paper's RevNet-34 than in its"
            f" RevNet-18; {more} inputs of ours: {more * rows[stage]['input'] / 1e9:.2f} GB"
        )


def main():
    for depth, paper in PAPER.items():
        stages, counted = inspect(depth, "paper")
        strict = inspect(depth, "strict")[1]
        print(
            f"RevNet-{depth}: GB a stage\n"
            "stage  block          reversible  paper accounting  strict accounting"
            + ("  table 6" if depth == 18 else "")
        )
        for j, (stage, one, both) in enumerate(zip(stages, counted, strict)):
            value = paper.get(str(j)) if depth == 18 else None
            print(
                f"{j + 1:5}  {stage['name']:13}  {'yes' if stage['reversible'] else 'no':10} "
                f" {one['total'] / 1e9:16.2f}  {both['total'] / 1e9:17.2f}"
                + (f"  {value:7.2f}" if value is not None else "")
            )
        if depth != 18:
            print(
                "table 6: "
                + ", ".join(f"stages {name}: {value:.2f}" for name, value in paper.items())
            )
        print()
    compare_buffers()


if __name__ == "__main__":
    main()
