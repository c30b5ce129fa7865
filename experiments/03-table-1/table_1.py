#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Table 1 of the paper beside what petra says of its methods: table_1.py [PETRA]. Exit status 1 if
a ratio of a method that this build has is not the expected one."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PETRA = sys.argv[1] if len(sys.argv) > 1 else "build/petra"
# Method -> messages up and down per boundary, in activations of the ResNet; FLOPs per stage, in
# forward passes.
EXPECTED = {
    "backprop": (1, 1, 3),
    "reversible": (2, 4, 4),
    "delayed": (1, 1, 3),
    "dsp": (1, 1, 4),
    "petra": (2, 4, 4),
}
DEPTHS = (18, 34, 50)
# Storage and time, on J equal stages whose forward and backward run side by side, as the paper
# assumes: two engines, and the last stage's forward and backward as two actions where graphs are
# kept or nothing runs side by side. That makes every delay of `delayed` one tick longer. By method:
# what stage j keeps of activations and how many older versions of its weights, as functions of J, j
# and k; the time of a batch in forward passes; the head.
STORAGE = {
    "backprop": ("full graph", lambda J, j, k: 1, lambda J, j, k: 0, lambda J: 3 * J, "split"),
    "reversible": ("0", lambda J, j, k: 0, lambda J, j, k: 0, lambda J: 4 * J, "split"),
    "delayed": (
        "2(J - j) x full graph",
        lambda J, j, k: 2 * (J - j) + 2,
        lambda J, j, k: -(-(2 * (J - j) + 1) // k),
        lambda J: 2,
        "split",
    ),
    "dsp": ("2(J - j)", lambda J, j, k: 2 * (J - j) + 1, lambda J, j, k: 0, lambda J: 3, "fused"),
    "petra": ("0", lambda J, j, k: 0, lambda J, j, k: 0, lambda J: 3, "fused"),
}
PAPER_VERSIONS = {
    "backprop": "1",
    "reversible": "1",
    "delayed": "2(J - j)/k",
    "dsp": "1",
    "petra": "1",
}
PAPER_TIME = {"backprop": "3J", "reversible": "4J", "delayed": "2", "dsp": "3", "petra": "3"}
SIZES = ((2, 1), (5, 1), (10, 1), (10, 2), (10, 4), (18, 3))  # J, k


def petra(*arguments):
    return json.loads(
        subprocess.run(
            [PETRA, *arguments, "--json"],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            check=True,
        ).stdout
    )


def stages(method, family, depth):
    return petra(
        "inspect",
        os.path.join(HERE, "table-1.yaml"),
        "--set",
        f"method.name={method}",
        "--set",
        f"model.family={family}",
        "--set",
        f"model.depth={depth}",
    )["stages"]


def ratios(found, unit, key):
    """Returns the ratios of all messages; the head sends none up, the stem none down."""
    return {a[key] / b[key] for a, b in zip(found, unit) if b[key]}


def flops(method):
    """Returns the forward passes of one stage for one microbatch: F, a backward pass of twice its
    work, and F again if B recomputes it."""
    return 1 + 2 + (1 if method["recomputes"] else 0)


def kept(method, stage):
    """Returns the maximum number of microbatches whose graph or input a stage keeps, including the
    current one, and that of older versions of its weights."""
    stashes = "stashed" in (method["backward_weights"], method["invert_weights"])
    return 0 if method["keep"] == "nothing" else stage["in_flight_max"], stage[
        "lag_max"
    ] if stashes else 0


def storage_and_time(methods):
    """Prints the other half of the table; returns the number of its figures that are not as
    expected."""
    wrong = 0
    print(
        "\nstorage and time, J equal stages with forward and backward side by side; measured at J ="
        " 10, k = 1, stages 1 / 5 / 10"
    )
    print(
        "method      activations: paper     measured    versions: paper  measured older  time:"
        " paper  measured (J = 10)  (J = 18)"
    )
    for name, (text, activations, versions, time, head) in STORAGE.items():
        shown = {}
        for J, k in SIZES:
            found = petra(
                "simulate",
                os.path.join(HERE, "storage.yaml"),
                *[
                    option
                    for value in (
                        f"method.name={name}",
                        f"method.accumulate={k}",
                        f"method.head={head}",
                        f"cluster.stages={J}",
                        f"run.max_microbatches={32 * J}",
                    )
                    for option in ("--set", value)
                ],
            )
            pairs = [kept(methods[name], stage) for stage in found["stages"]]
            for j, pair in enumerate(pairs, 1):
                if j == J and head == "fused":
                    # a fused last stage keeps nothing between two actions, and counts the one in
                    # work
                    continue
                expected = activations(J, j, k), versions(J, j, k)
                if pair != expected:
                    wrong += 1
                    print(f"{name}, J = {J}, k = {k}, stage {j}: {pair}; expected {expected}")
            if abs(found["time_per_microbatch_s"] - time(J)) > 1e-9:
                wrong += 1
                print(
                    f"{name}, J = {J}, k = {k}: {found['time_per_microbatch_s']} s; expected"
                    f" {time(J)}"
                )
            shown[J, k] = pairs, found["time_per_microbatch_s"]
        pairs, seconds = shown[10, 1]
        columns = [" / ".join(str(pairs[j - 1][i]) for j in (1, 5, 10)) for i in (0, 1)]
        print(
            f"{name:10}  {text:21}  {columns[0]:>10}  {PAPER_VERSIONS[name]:>15}  {columns[1]:>14} "
            f" {PAPER_TIME[name]:>11}  {seconds:17g}  {shown[18, 3][1]:8g}"
        )
    return wrong


def main():
    methods = {method["name"]: method for method in petra("methods")["methods"]}
    wrong = 0
    print(
        "method      network  up: expected  measured  down: expected  measured  FLOPs: expected "
        " measured"
    )
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
        shown = [
            "/".join(f"{value:g}" for value in sorted(values)) for values in (found_up, found_down)
        ]
        print(
            f"{name:10}  {family:7}  {up:12}  {shown[0]:>8}  {down:14}  {shown[1]:>8}  {work:15} "
            f" {flops(methods[name]):8}"
        )
    print("\nwork of F at the reversible blocks, RevNet over ResNet:", end="")
    for depth in DEPTHS:
        unit, found = stages("backprop", "resnet", depth), stages("petra", "revnet", depth)
        values = {
            a["forward_flops"] / b["forward_flops"] for a, b in zip(found, unit) if a["reversible"]
        }
        wrong += values != {1}
        print(f" depth {depth}: " + "/".join(f"{value:g}" for value in sorted(values)), end=";")
    print()
    wrong += storage_and_time(methods)
    print(f"\n{wrong} figures differ from the expected ones")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
