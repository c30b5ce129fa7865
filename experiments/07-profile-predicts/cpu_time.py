#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same with processor time in place of wall time, for a machine that is busy: cpu_time.py [PETRA [ROUNDS]]. One compute
thread; the processor time of a microbatch is the difference of a run of 130 microbatches and one of 30, over 100, loader
included."""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

PETRA = sys.argv[1] if len(sys.argv) > 1 else "build/petra"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "revnet18.yaml")
THREADS = ["--set", "device.threads=1", "--quiet"]
METHODS = ("backprop", "reversible", "petra")


def processor_s(folder, method, microbatches):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([PETRA, "train", CONFIG, "--overwrite", *THREADS, "--set", f"run.max_microbatches={microbatches}", "--set", f"method.name={method}",
                    "--output", folder], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    rows = {method: [] for method in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            out = subprocess.run([PETRA, "profile", CONFIG, *THREADS, "--json", "--output", os.path.join(folder, "p.h5")],
                                 stdout=subprocess.PIPE, check=True).stdout
            stages = json.loads(out)["stages"]
            kept = sum(stage[part]["median_s"] for stage in stages for part in ("forward", "backward", "update"))
            rebuilt = sum(stage["reconstruct"]["median_s"] for stage in stages[:-1])
            for method in METHODS:
                taken = (processor_s(folder, method, 130) - processor_s(folder, method, 30)) / 100
                rows[method].append((kept + (0 if method == "backprop" else rebuilt), taken))
    for method, row in rows.items():
        print(method, "predicted ms:", [round(1e3 * p, 2) for p, _ in row], "processor ms:", [round(1e3 * t, 2) for _, t in row],
              "ratio:", [round(p / t, 3) for p, t in row], "median:", round(statistics.median(p / t for p, t in row), 3))


main()
