#!/usr/bin/env python3
"""Table 1 of the paper beside what petra says of its methods: table_1.py [PETRA]. Exit status 1 if a ratio of a method
that this build has is not the expected one."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PETRA = sys.argv[1] if len(sys.argv) > 1 else "build/petra"
# Method -> messages up and down per boundary, in activations of the ResNet; FLOPs per stage, in forward passes.
EXPECTED = {"backprop": (1, 1, 3), "reversible": (2, 4, 4), "delayed": (1, 1, 3), "dsp": (1, 1, 4), "petra": (2, 4, 4)}
DEPTHS = (18, 34, 50)


def petra(*arguments):
    return json.loads(subprocess.run([PETRA, *arguments, "--json"], stdout=subprocess.PIPE, check=True).stdout)


def stages(method, family, depth):
    return petra("inspect", os.path.join(HERE, "table-1.yaml"), "--set", f"method.name={method}", "--set",
                 f"model.family={family}", "--set", f"model.depth={depth}")["stages"]


def ratios(found, unit, key):
    """Of every message that there is: the head sends none up, the stem none down."""
    return {a[key] / b[key] for a, b in zip(found, unit) if b[key]}


def flops(method):
    """Forward passes of one stage for one microbatch: F, a backward pass of twice its work, and F again where B computes it."""
    return 1 + 2 + (1 if method["recomputes"] else 0)


def main():
    methods = {method["name"]: method for method in petra("methods")["methods"]}
    wrong = 0
    print("method      network  up: expected  measured  down: expected  measured  FLOPs: expected  measured")
    for name, (up, down, work) in EXPECTED.items():
        if name not in methods:
            print(f"{name:10}  not in this build")
            continue
        family = "revnet" if methods[name]["inverts"] else "resnet"
        found_up, found_down = set(), set()
        for depth in DEPTHS:
            unit, found = stages("backprop", "resnet", depth), stages(name, family, depth)
            found_up |= ratios(found, unit, "forward_bytes")
            found_down |= ratios(found, unit, "backward_bytes")
        wrong += found_up != {up} or found_down != {down} or flops(methods[name]) != work
        shown = ["/".join(f"{value:g}" for value in sorted(values)) for values in (found_up, found_down)]
        print(f"{name:10}  {family:7}  {up:12}  {shown[0]:>8}  {down:14}  {shown[1]:>8}  {work:15}  {flops(methods[name]):8}")
    print("\nwork of F at the reversible blocks, RevNet over ResNet:", end="")
    for depth in DEPTHS:
        unit, found = stages("backprop", "resnet", depth), stages("petra", "revnet", depth)
        values = {a["forward_flops"] / b["forward_flops"] for a, b in zip(found, unit) if a["reversible"]}
        wrong += values != {1}
        print(f" depth {depth}: " + "/".join(f"{value:g}" for value in sorted(values)), end=";")
    print(f"\n{wrong} rows differ from the expected ones")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
