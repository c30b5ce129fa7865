#!/usr/bin/env python3
"""Random pipelines with links, simulated twice: by petra (tests/pipeline_case) and by SimPy, an established discrete-event
simulator. Their makespans must agree to 1 ns per action and message on the critical path. Exit status 77: no SimPy.

usage: pipeline_simpy.py [CASES [SEED]]"""

import math
import random
import subprocess
import sys

try:
    import simpy
except ImportError:
    print("skipped: Python has no simpy (Debian: python3-simpy)")
    sys.exit(77)


class Fifo:
    """A message asks for its link and cards when it is sent and holds them all while it is transmitted."""

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
    """A fluid: all rates rise together until a resource is full; its flows stay there, the others rise on."""

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
            full = {k for k, n in count.items() if n and capacity[k] - used[k] <= 1e-9 * capacity[k]}
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
            for f in [f for f in self.flows if f["left"] / level[id(f)] * 1e9 <= 0.01]:  # less than 0.01 ns is left
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
        flow = {"keys": [k for k, _ in limited], "caps": [r for _, r in limited], "left": float(size), "ended": self.env.event()}
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
            self.env.process(self.lockstep(stage) if case["program"] == "lockstep" else self.sequential(stage))
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
        "program": rng.choice(["lockstep", "lockstep", "sequential"]), "engines": rng.randint(1, 2),
        "sharing": rng.choice(["fifo", "fair"]), "latency": rng.choice([0, rng.randint(1, 10**9)]),
        "bandwidth": rng.choice([0, rng.uniform(1e3, 1e7)]), "card": rng.choice([0, rng.uniform(1e3, 1e7)]),
        "node_size": rng.randint(1, 3), "J": J, "M": rng.randint(1, 24), "k": rng.randint(1, 4), "drain": rng.randint(0, 1),
        # Costs of about a second in odd nanoseconds: two messages are never sent at the same moment.
        "costs": [[rng.randint(1, 2 * 10**9) for _ in range(4)] + [rng.choice([0, rng.randint(1, 10**6)]), rng.randint(0, 10**6)]
                  for _ in range(J)],
    }


def line(case):
    head = [case[k] for k in ("program", "engines", "sharing", "latency", "bandwidth", "card", "node_size", "J", "M", "k", "drain")]
    return "\n".join(" ".join(map(str, row)) for row in [head] + case["costs"]) + "\n"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    cases = [random_case(rng) for _ in range(count)]
    text = "".join(map(line, cases))
    output = subprocess.run(["tests/pipeline_case"], input=text, capture_output=True, text=True, check=True).stdout.split()
    failed, worst = 0, {"fifo": 0.0, "fair": 0.0}
    if len(output) != count:
        sys.exit(f"pipeline_simpy: {len(output)} makespans for {count} cases")
    for case, makespan in zip(cases, map(int, output)):
        reference = Pipeline(case).last
        # A path through the pipeline has at most 3 actions a tick and two messages between ticks. Without sharing all
        # times are whole nanoseconds in both, and must be equal.
        ticks = (case["M"] + 2 * case["J"]) * (2 * case["J"] if case["program"] == "sequential" else 1)
        allowed = 5 * ticks if case["sharing"] == "fair" else 0
        difference = abs(makespan - reference)
        worst[case["sharing"]] = max(worst[case["sharing"]], difference / ticks)
        if difference > allowed:
            failed += 1
            print(f"petra {makespan} ns, SimPy {reference} ns, allowed {allowed}:\n{line(case)}")
    print(f"pipeline_simpy: {count} pipelines, {failed} differ; largest difference in ns per tick: fifo {worst['fifo']:g}, fair {worst['fair']:.3g}")
    sys.exit(1 if failed else 0)


main()
