#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of this experiment from the log of a run, and probes.csv beside the script: fig_5_6.py RUN. Cosines are means over the
probes of an epoch, or of all."""

import csv
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../analysis"))
import petra_runs  # noqa: E402

PAIRS = [("method_delayed", "PETRA and delayed"), ("method_end_to_end", "PETRA and end-to-end"),
         ("delayed_end_to_end", "delayed and end-to-end")]
EPOCHS = (1, 3, 5, 7)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run = petra_runs.Run(sys.argv[1])
    cosine = {pair: run.probe("cosine/" + pair).values for pair, _ in PAIRS}
    epoch = run.probe("cosine/method_delayed").coords["epoch"] + 1
    nearer = cosine["method_end_to_end"] > cosine["delayed_end_to_end"]
    stages = nearer.shape[1]
    with open(os.path.join(HERE, "probes.csv"), "w", encoding="ascii", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["epoch", "stage", "probes"] + ["cosine_" + pair for pair, _ in PAIRS] + ["share_method_nearer"])
        for e in sorted(set(epoch)):
            at = epoch == e
            for s in range(stages):
                means = [f"{cosine[pair][at, s].mean():.4f}" for pair, _ in PAIRS]
                out.writerow([e, s + 1, at.sum(), *means, f"{nearer[at, s].mean():.3f}"])
    print("| | stage 1 | " + " | ".join(map(str, range(2, stages + 1))) + " |")
    print("|---" * (stages + 1) + "|")
    for pair, words in PAIRS:
        for e in EPOCHS:
            print(f"| {words}, epoch {e} | " + " | ".join(f"{c:.3f}" for c in cosine[pair][epoch == e].mean(axis=0)) + " |")
    for text, part in (("before the first step of the rate", epoch <= 5), ("after it", epoch > 5)):
        shares = [f"{x:.0%}" for x in nearer[part].mean(axis=0)[:-1]] + ["-"]
        print(f"| probes at which PETRA is the nearer to end-to-end, {text} | " + " | ".join(shares).replace("%", " %") + " |")
    print(f"{len(epoch)} probes", file=sys.stderr)


if __name__ == "__main__":
    main()
