#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random pipelines with links, simulated twice: by petra (tests/pipeline_case) and by SimPy, an
established discrete-event simulator. Their makespans must agree to 1 ns per action and message on
the critical path. Exit status 77: no SimPy.

usage: pipeline_simpy.py [CASES [SEED [FILE]]]
FILE is written with the cases and SimPy's makespans. Where Python has no SimPy (3 or later;
Debian's python3-simpy is version 2), petra is held against such a file, tests/golden/pipelines.txt;
without that file the test is skipped (77)."""

import math
import os
import random
import subprocess
import sys

try:
    import simpy
except ImportError:
    simpy = None


class Fifo:
    """A message asks for its link and cards when it is sent and holds them all while it is
    transmitted."""

    def __init__(self, env, case):
        self.env, self.case, self.resources = env, case, {}

    def resource(self, key):
        return self.resources.setdefault(key, simpy.Resource(self.env, capacity=1))

    def transmit(self, keys, rates, size):
        requests = [self.resource(key).request() for key in keys]
        yield simpy.AllOf(self.env, requests)
        yield self.env.timeout(math.floor(1e9 * size / min(rates) + 0.5) if rates else 0)
        for key, request in zip(keys, requests):
            self.resource(key).release(request)


class Fair:
    """A fluid: all rates rise together until a resource is full; its flows stay there, the others
    rise on."""

    def __init__(self, env, case):
        self.env, self.case, self.flows, self.since = env, case, [], 0.0
        self.changed = env.event()
        self.env.process(self.loop())

    def rates(self):
        capacity, rising, level = {}, list(self.flows), {}
        for flow in self.flows:
            capacity.update(zip(flow["keys"], flow["caps"]))
        used = dict.fromkeys(capacity, 0.0)
        done = 0.0
        while rising:
            count = {k: sum(k in f["keys"] for f in rising) for k in capacity}
            step = min((capacity[k] - used[k]) / n for k, n in count.items() if n)
            done += step
            for k, n in count.items():
                used[k] += step * n
            full = {
                k for k, n in count.items() if n and capacity[k] - used[k] <= 1e-9 * capacity[k]
            }
            for flow in [f for f in rising if full.intersection(f["keys"])]:
                level[id(flow)] = done
                rising.remove(flow)
        return level

    def loop(self):
        while True:
            level = self.rates()
            self.changed = self.env.event()
            ends = [f["left"] / level[id(f)] * 1e9 for f in self.flows]
            waits = [self.changed] + ([self.env.timeout(max(0.0, min(ends)))] if ends else [])
            start = self.env.now
            yield simpy.AnyOf(self.env, waits)
            for f in self.flows:
                f["left"] -= level[id(f)] * (self.env.now - start) * 1e-9
            # Less than 0.01 ns is left.
            for f in [f for f in self.flows if f["left"] / level[id(f)] * 1e9 <= 0.01]:
                self.flows.remove(f)
                f["ended"].succeed()
            for f in self.coming():
                self.flows.append(f)

    def coming(self):
        found, self.waiting = getattr(self, "waiting", []), []
        return found

    def transmit(self, keys, rates, size):
        if not rates or size == 0:
            return
        limited = [(k, r) for k, r in zip(keys, rates)]
        flow = {
            "keys": [k for k, _ in limited],
            "caps": [r for _, r in limited],
            "left": float(size),
            "ended": self.env.event(),
        }
        self.waiting = getattr(self, "waiting", []) + [flow]
        if not self.changed.triggered:
            self.changed.succeed()
        yield flow["ended"]


class Pipeline:
    def __init__(self, case):
        self.case, self.env = case, simpy.Environment()
        self.network = (Fair if case["sharing"] == "fair" else Fifo)(self.env, case)
        self.mail, self.last = {}, 0
        for stage in range(1, case["J"] + 1):
            self.env.process(
                self.lockstep(stage) if case["program"] == "lockstep" else self.sequential(stage)
            )
        self.env.run()

    def message(self, key):
        return self.mail.setdefault(key, self.env.event())

    def send(self, stage, to, m):
        case = self.case
        forward = to > stage
        size = case["costs"][stage - 1][4 if forward else 5]
        ours, theirs = (stage - 1) // case["node_size"], (to - 1) // case["node_size"]
        keys, rates = [("link", stage, to)], [case["bandwidth"]]
        if ours != theirs and case["card"]:
            keys += [("out", ours), ("in", theirs)]
            rates += [case["card"]] * 2
        if case["sharing"] == "fair":
            keys, rates = zip(*[(k, r) for k, r in zip(keys, rates) if r] or [((), 0)])
            rates = [r for r in rates if r]
        else:
            rates = [r for r in rates if r]
        yield from self.network.transmit(keys, rates, size)
        yield self.env.timeout(case["latency"])
        self.message(("F" if forward else "B", to, m)).succeed()

    def work(self, duration):
        yield self.env.timeout(duration)
        self.last = max(self.last, self.env.now)

    def forward(self, stage, m):
        if stage > 1:
            yield self.message(("F", stage, m))
        yield from self.work(self.case["costs"][stage - 1][0])
        self.env.process(self.send(stage, stage + 1, m))

    def backward(self, stage, m):
        cost = self.case["costs"][stage - 1]
        if stage == self.case["J"]:
            if stage > 1:
                yield self.message(("F", stage, m))
            yield from self.work(cost[0] + cost[1])
        else:
            yield self.message(("B", stage, m))
            yield from self.work(cost[1] + cost[2])
        if stage > 1:
            self.env.process(self.send(stage, stage - 1, m))

    def update(self, stage, m):
        if (m + 1) % self.case["k"] == 0:
            yield from self.work(self.case["costs"][stage - 1][3])

    def sequential(self, stage):
        for m in range(self.case["M"]):
            if stage < self.case["J"]:
                yield from self.forward(stage, m)
            yield from self.backward(stage, m)
            yield from self.update(stage, m)

    def lockstep(self, stage):
        case = self.case
        delay = 2 * (case["J"] - stage)
        ticks = case["M"] + delay if case["drain"] else max(0, case["M"] - (stage - 1))
        for tick in range(ticks):
            b = tick - delay
            parts = [self.forward(stage, tick)] if tick < case["M"] and stage < case["J"] else []
            parts += [self.backward(stage, b)] if b >= 0 else []
            if case["engines"] == 2:
                yield simpy.AllOf(self.env, [self.env.process(p) for p in parts])
            else:
                for part in parts:
                    yield from part
            if b >= 0:
                yield from self.update(stage, b)


def random_case(rng):
    J = rng.randint(1, 9)
    return {
        "program": rng.choice(["lockstep", "lockstep", "sequential"]),
        "engines": rng.randint(1, 2),
        "sharing": rng.choice(["fifo", "fair"]),
        "latency": rng.choice([0, rng.randint(1, 10**9)]),
        "bandwidth": rng.choice([0, rng.uniform(1e3, 1e7)]),
        "card": rng.choice([0, rng.uniform(1e3, 1e7)]),
        "node_size": rng.randint(1, 3),
        "J": J,
        "M": rng.randint(1, 24),
        "k": rng.randint(1, 4),
        "drain": rng.randint(0, 1),
        # Costs of about a second in odd nanoseconds: two messages are never sent at the same
        # moment.
        "costs": [
            [rng.randint(1, 2 * 10**9) for _ in range(4)]
            + [rng.choice([0, rng.randint(1, 10**6)]), rng.randint(0, 10**6)]
            for _ in range(J)
        ],
    }


def line(case):
    head = [
        case[k]
        for k in (
            "program",
            "engines",
            "sharing",
            "latency",
            "bandwidth",
            "card",
            "node_size",
            "J",
            "M",
            "k",
            "drain",
        )
    ]
    return "\n".join(" ".join(map(str, row)) for row in [head] + case["costs"]) + "\n"


def allowed(case):
    """A path through the pipeline has at most 3 actions a tick and two messages between ticks.
    Under fifo all times are whole nanoseconds in both, and must be equal."""
    if case["sharing"] == "fifo":
        return 0
    return (
        5 * (case["M"] + 2 * case["J"]) * (2 * case["J"] if case["program"] == "sequential" else 1)
    )


def simulated():
    """[(makespan, allowed difference, text of the case)]"""
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    cases = [random_case(rng) for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100)]
    return [(Pipeline(case).last, allowed(case), line(case)) for case in cases]


def recorded():
    path = os.path.join(os.environ.get("srcdir", "."), "tests/golden/pipelines.txt")
    if not os.path.exists(path):
        print(
            "skipped: this Python has no simpy (3 or later), and there is no"
            " tests/golden/pipelines.txt"
        )
        sys.exit(77)
    with open(path, encoding="utf-8") as file:
        blocks = file.read().strip().split("\n\n")
    found = []
    for block in blocks:
        head, text = block.split("\n", 1)
        found.append((float(head.split()[0]), int(head.split()[1]), text + "\n"))
    return found


def main():
    expected = simulated() if simpy else recorded()
    text = "".join(case for _, _, case in expected)
    output = subprocess.run(
        ["tests/pipeline_case"], input=text, capture_output=True, text=True, check=True
    ).stdout.split()
    if len(output) != len(expected):
        sys.exit(f"pipeline_simpy: {len(output)} makespans for {len(expected)} cases")
    failed, worst = 0, 0
    for makespan, (reference, most, case) in zip(map(int, output), expected):
        difference = abs(makespan - reference)
        worst = max(worst, difference)
        if difference > most:
            failed += 1
            print(f"petra {makespan} ns, SimPy {reference} ns, allowed {most}:\n{case}")
    print(
        f"pipeline_simpy: {len(expected)} pipelines ({'simulated now' if simpy else 'recorded'}),"
        f" {failed} differ, largest difference {worst:.3g} ns"
    )
    if simpy and len(sys.argv) > 3:
        with open(sys.argv[3], "w", encoding="utf-8") as file:
            file.write(
                "\n".join(f"{reference!r} {most}\n{case}" for reference, most, case in expected)
            )
    sys.exit(1 if failed else 0)


main()
