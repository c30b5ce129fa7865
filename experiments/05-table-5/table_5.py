#!/usr/bin/env python3
"""Table 5 of the paper beside what petra predicts: table_5.py [PETRA]. Exit status 1 if a time is not the expected one."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PETRA = sys.argv[1] if len(sys.argv) > 1 else "build/petra"
PAPER = {18: (160.3, 53.4), 34: (235.6, 97.1)}
PCIE_BPS = 31.5e9  # PCIe 4.0, 16 lanes of 16 GT/s at 128/130, one direction
# Arithmetic, bytes a second of a link (0: infinite), engines.
CASES = [("tf32", 0, 1), ("fp32", 0, 1), ("tf32", PCIE_BPS, 1), ("fp32", PCIE_BPS, 1), ("tf32", 0, 2), ("fp32", 0, 2)]
# Milliseconds that README.md states: reversible, petra, by depth in the order of CASES. Recorded from a run: they guard
# against change, no more.
EXPECTED = {
    18: [(12.62, 2.01), (63.31, 8.95), (73.34, 8.52), (124.03, 10.24), (12.62, 1.47), (63.31, 6.67)],
    34: [(23.74, 2.01), (129.93, 8.95), (124.40, 8.52), (230.60, 10.47), (23.74, 1.47), (129.93, 6.67)],
}


def simulate(depth, method, arithmetic, bandwidth, engines, *more):
    """Milliseconds of a microbatch, utilizations of the stages."""
    command = [PETRA, "simulate", os.path.join(HERE, f"revnet{depth}.yaml"), "--json"]
    for value in (f"method.name={method}", f"cluster.cost.arithmetic={arithmetic}", f"cluster.link.bandwidth_Bps={bandwidth}",
                  f"cluster.engines={engines}", *more):
        command += ["--set", value]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return 1e3 * found["time_per_microbatch_s"], [stage["utilization"] for stage in found["stages"]]


def main():
    wrong = 0
    print("depth  arithmetic  link GB/s  engines  reversible ms  petra ms  speed-up")
    for depth, (reversible, petra) in PAPER.items():
        print(f"{depth:5}  {'paper':10}  {'-':>9}  {'-':>7}  {reversible:13.1f}  {petra:8.1f}  {reversible / petra:7.1f}x")
        for case, expected in zip(CASES, EXPECTED[depth]):
            arithmetic, bandwidth, engines = case
            times = [simulate(depth, method, *case)[0] for method in ("reversible", "petra")]
            wrong += sum(round(time, 2) != value for time, value in zip(times, expected))
            link = f"{bandwidth / 1e9:.1f}" if bandwidth else "infinite"
            print(f"{depth:5}  {arithmetic:10}  {link:>9}  {engines:7}  {times[0]:13.2f}  {times[1]:8.2f}  "
                  f"{times[0] / times[1]:7.1f}x")
    print("\nstages.partition: balanced, tf32, infinite links, one engine\ndepth  devices  petra ms  busiest  mean busy")
    for depth, counts in (18, (10, 9, 6, 5)), (34, (18, 17, 9, 6)):
        for count in counts:
            time, busy = simulate(depth, "petra", "tf32", 0, 1, "stages.partition=balanced", f"stages.count={count}")
            print(f"{depth:5}  {count:7}  {time:8.2f}  {max(busy):7.2f}  {sum(busy) / count:9.2f}")
    print(f"{wrong} of {4 * len(CASES)} times differ from the expected ones")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
