#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ticks on the CPU as a table: cpu_table.py BENCH_TICK [--peer PYTHON] [--rounds N] [--widths 16,64] [--threads N] [--groups N]

Times bench_tick (a tick of `petra`, `backprop` and `delayed`, RevNet-18 and -50, fp32 and, where the machine has it, bf16) and, with
--peer, the Python that has PyTorch, peer_pytorch_tick.py (a tick of `petra`, RevNet-18, eager), each as a process of its own, in
alternation, N rounds of all; prints medians of the rounds' medians in ms, the ratio of a tick to its convolutions alone, and the peak of the
resident memory. Nothing else should run meanwhile."""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "peer_pytorch_tick.py")


def run(command):
    """(standard output, peak of the resident memory in MB); None where it fails, the reason told."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment)
        error = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            print(f"left out: {' '.join(command)}: {error.strip().splitlines()[-1] if error.strip() else child.returncode}", file=sys.stderr)
            return None
        out.seek(0)
        return out.read(), usage.ru_maxrss * 1024 / 1e6


def tick(o, width, precision, depth, method):
    command = [o.bench_tick]
    for setting in (f"model.width={width}", f"model.depth={depth}", f"device.precision={precision}", f"method.name={method}",
                    f"device.threads={o.threads}", f"device.groups={o.groups}"):
        command += ["--set", setting]
    found = run(command)
    if not found:
        return None
    medians = {line[:34].strip(): float(line[34:].split()[1]) for line in found[0].splitlines()[2:]}
    # The convolutions are those of `petra`, which does each forward twice.
    return medians["tick, ms"], medians["tick / convolutions"] if method == "petra" else None, found[1]


def peer(o, width, precision):
    found = run([o.peer, PEER, "--device", "cpu", "--batches", "64", "--precisions", precision, "--width", str(width), "--warmup", "24",
                 "--ticks", "5", "--blocks", "3"])
    match = found and re.search(r"ms=([\d.]+)", found[0])
    return (float(match.group(1)), None, found[1]) if match else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench_tick")
    parser.add_argument("--peer", help="a Python that has PyTorch")
    parser.add_argument("--widths", default="16,64", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--depths", default="18,50", type=lambda text: [int(word) for word in text.split(",")])
    for name, value in ("rounds", 3), ("threads", len(os.sched_getaffinity(0))), ("groups", 1):
        parser.add_argument(f"--{name}", default=value, type=int)
    o = parser.parse_args()
    o.bench_tick = os.path.abspath(o.bench_tick)
    if o.peer:
        os.environ["OMP_NUM_THREADS"] = str(o.threads)
    found = {}
    for _ in range(o.rounds):
        for width in o.widths:
            for depth in o.depths:
                for precision in "fp32", "bf16":
                    for who in ("petra", "backprop", "delayed") + (("PyTorch",) if o.peer and depth == 18 else ()):
                        key = (depth, width, precision, who)
                        if key in found and found[key] is None:
                            continue
                        one = peer(o, width, precision) if who == "PyTorch" else tick(o, width, precision, depth, who)
                        found[key] = found.get(key, []) + [one] if one else None
    print(f"{o.threads} threads in {o.groups} group{'s' * (o.groups > 1)}, batch 64, medians of {o.rounds} rounds in alternation\n")
    print("| network | width | precision | tick of | ms | over its convolutions | peak MB |\n|---|---|---|---|---|---|---|")
    for (depth, width, precision, who), rows in found.items():
        if rows:
            middle = [statistics.median(column) if column[0] is not None else None for column in zip(*rows)]
            print(f"| RevNet-{depth} | {width} | {precision} | {'`petra` in PyTorch, eager' if who == 'PyTorch' else f'`{who}`'} | {middle[0]:.1f} | "
                  f"{'' if middle[1] is None else f'{middle[1]:.2f}'} | {middle[2]:.0f} |")


main()
