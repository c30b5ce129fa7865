# SPDX-License-Identifier: Apache-2.0
"""Random clusters whose messages take time, with every method that searches its order: no run takes
longer than with the order for equal costs (docs/semantics/schedule.md), and a simulation of the
printed order in this file has the makespan of petra simulate.

PETRA_TEST_RANDOM=FIRST:COUNT: the first seed, and how many clusters are simulated."""

import collections
import heapq
import json
import math
import os
import random
import re

import h5py

from program import ProgramTest, main

FIRST, COUNT = map(int, os.environ.get("PETRA_TEST_RANDOM", "1:12").split(":"))
METHODS = ["zb-h2", "zb-v", "v-half", "v-min", "interleaved-zb"]
# Two clusters for which the order for equal costs was once better than the one that was found.
V_MIN = {
    "method.name": "v-min",
    "method.accumulate": 7,
    "cluster.stages": 6,
    "cluster.cost.model": "constant",
    "cluster.cost.forward_s": 0.013,
    "cluster.cost.backward_s": 0.0193,
    "cluster.cost.weight_gradient_s": 0.0137,
    "cluster.speeds": [0.5, 2, 1.25],
    "cluster.message.forward_bytes": 1000,
    "cluster.message.backward_bytes": 47000,
    "cluster.link.bandwidth_Bps": 8000000,
}
ZB_H2 = {
    "method.name": "zb-h2",
    "method.accumulate": 7,
    "cluster.stages": 4,
    "cluster.cost.model": "constant",
    "cluster.cost.forward_s": 0.013,
    "cluster.cost.backward_s": 0.03,
    "cluster.cost.weight_gradient_s": 0.01,
    "cluster.link.latency_s": 0.00031,
    "cluster.message.forward_bytes": 30000,
    "cluster.message.backward_bytes": 2000,
    "cluster.link.bandwidth_Bps": 1000000,
}


def draw(r: random.Random) -> dict:
    """The settings of a cluster."""

    def seconds(least, most):
        return round(10 ** r.uniform(least, most), 9)

    def rate():
        return int(10 ** r.uniform(6, 8))

    method, devices, k = r.choice(METHODS), r.randint(2, 6), r.randint(1, 16)
    chunks = {"zb-h2": 1, "interleaved-zb": r.choice([2, 3])}.get(method, 2)
    if method == "interleaved-zb":
        k = devices * r.randint(1, 3)
    weight_gradient = seconds(-3, -1.5)
    settings = {
        "method.name": method,
        "method.accumulate": k,
        "cluster.stages": chunks * devices,
        "cluster.cost.model": "constant",
        "cluster.cost.forward_s": seconds(-3, -1.5),
        "cluster.cost.weight_gradient_s": weight_gradient,
        "cluster.cost.backward_s": round(weight_gradient + seconds(-3, -1.5), 9),
        "cluster.cost.update_s": r.choice([0, seconds(-4, -2)]),
        "cluster.speeds": [round(r.uniform(0.4, 2), 6) for _ in range(devices)],
        "cluster.engines": r.choice([1, 1, 1, 2]),
        "cluster.message.forward_bytes": int(10 ** r.uniform(2, 5)),
        "cluster.message.backward_bytes": int(10 ** r.uniform(2, 5)),
        "cluster.link.latency_s": r.choice([0, seconds(-5, -2)]),
        "cluster.link.bandwidth_Bps": rate(),
        "cluster.link.sharing": r.choice(["fifo", "fifo", "fair"]),
        "cluster.card_Bps": r.choice([0, 0, rate()]),
        "cluster.node_size": r.choice([1, 1, 2, 3]),
        "cluster.replicas": r.choice([1, 1, 1, 2]),
        "cluster.message.gradient_bytes": int(10 ** r.uniform(2, 5)),
        "cluster.host.action_s": r.choice([0, 0, 0, seconds(-5, -3)]),
    }
    if method == "interleaved-zb":
        settings["method.chunks"] = chunks
    if r.random() < 0.3:
        settings.update(
            {
                "cluster.node_link.preset": "none",
                "cluster.node_link.latency_s": r.choice([0, seconds(-5, -3)]),
                "cluster.node_link.bandwidth_Bps": rate(),
            }
        )
    return settings


def options(settings: dict, **more) -> list:
    """Arguments of petra."""
    everything = {**settings, **{key.replace("__", "."): value for key, value in more.items()}}
    return [text for key, value in everything.items() for text in ("--set", f"{key}={value}")]


def is_simple(settings: dict) -> bool:
    """Whether `makespan_ns` knows all of the cluster."""
    return (
        settings["cluster.engines"] == settings["cluster.replicas"] == 1
        and settings["cluster.link.sharing"] == "fifo"
        and not settings["cluster.host.action_s"]
    )


def makespan_ns(settings: dict, text: str) -> int:
    """Performs a printed order: a device does one action after the other, each when its message has
    arrived; a message has its link, and between nodes their cards, for itself, in the order of
    sends."""
    order = [
        re.findall(r"(\d+)([FBWU])(\d+)", line.split(":")[1])
        for line in text.splitlines()
        if line[:1].isdigit()
    ]
    order = [[(kind, int(stage), int(m)) for stage, kind, m in line] for line in order]
    device_of = {stage: d for d, line in enumerate(order) for _, stage, _ in line}
    last = max(device_of)
    cost = {
        name: round(1e9 * settings[f"cluster.cost.{name}_s"])
        for name in ("forward", "backward", "weight_gradient", "update")
    }
    there, links = {}, collections.defaultdict(int)
    place, busy, ends, end = [0] * len(order), [False] * len(order), [], 0

    def duration(kind, d):
        scaled = {
            name: math.floor(ns / settings["cluster.speeds"][d] + 0.5) for name, ns in cost.items()
        }
        return {
            "F": scaled["forward"],
            "B": scaled["backward"] - scaled["weight_gradient"],
            "W": scaled["weight_gradient"],
            "U": scaled["update"],
        }[kind]

    def start(d, now):
        if busy[d] or place[d] == len(order[d]):
            return
        action = order[d][place[d]]
        kind, stage, _ = action
        if (kind == "F" and stage > 1) or kind == "B":
            if action not in there:
                return
            now = max(now, there[action])
        busy[d] = True
        heapq.heappush(ends, (now + duration(kind, d), d))

    def send(now, source, target, size):
        if source == target:
            return now
        nodes = [d // settings["cluster.node_size"] for d in (source, target)]
        near = nodes[0] == nodes[1] and "cluster.node_link.preset" in settings
        link = "cluster.node_link" if near else "cluster.link"
        lines, rates = [(source, target)], [settings[f"{link}.bandwidth_Bps"]]
        if nodes[0] != nodes[1] and settings["cluster.card_Bps"]:
            lines += [("out", nodes[0]), ("in", nodes[1])]
            rates.append(settings["cluster.card_Bps"])
        done = max(now, *(links[line] for line in lines))
        done += math.floor(1e9 * size / min(rates) + 0.5)
        links.update(dict.fromkeys(lines, done))
        return done + round(1e9 * settings[f"{link}.latency_s"])

    for d in range(len(order)):
        start(d, 0)
    while ends:
        end, d = heapq.heappop(ends)
        kind, stage, m = order[d][place[d]]
        place[d] += 1
        busy[d] = False
        to = stage + {"F": 1, "B": -1}.get(kind, 0)
        target = kind if kind in "FB" and 1 <= to <= last else None
        if kind == "F" and stage == last:
            there["B", stage, m] = end
        elif target:
            size = settings[f"cluster.message.{'forward' if kind == 'F' else 'backward'}_bytes"]
            there[kind, to, m] = send(end, d, device_of[to], size)
            start(device_of[to], end)
        start(d, end)
    assert place == [len(line) for line in order]
    return end


class SearchedOrders(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("empty.yaml", "{}\n")

    def keep_equal(self, settings):
        """Writes the order for equal costs."""
        keys = "method.name", "method.accumulate", "method.chunks", "cluster.stages"
        kept = options({key: settings[key] for key in keys if key in settings})
        form = ["--quiet", "--format", "torch-csv"]
        self.write("equal.csv", self.good("schedule", "empty.yaml", *form, *kept))

    def times(self, settings, flushes):
        """The makespan of a run in the order of the method, and in the one for equal costs."""
        run = {"run.max_microbatches": flushes * settings["method.accumulate"]}
        found = [
            self.good_json("simulate", "empty.yaml", "--quiet", *options({**settings, **more}))
            for more in (run, {**run, "method.schedule": "equal.csv"})
        ]
        return [result["makespan_ns"] for result in found]

    def test_no_order_is_slower_than_that_for_equal_costs(self):
        simulated = 0
        for seed in range(FIRST, FIRST + COUNT):
            settings = draw(random.Random(seed))
            what = f"PETRA_TEST_RANDOM={seed}:1, {json.dumps(settings)}"
            self.keep_equal(settings)
            for flushes in 1, 100:
                found, equal = self.times(settings, flushes)
                self.assertLessEqual(found, equal, f"{flushes} flushes: {what}")
            if not is_simple(settings):
                continue
            simulated += 1
            k = settings["method.accumulate"]
            for microbatches in k, 2 * k + 1:
                run = options(settings, run__max_microbatches=microbatches)
                text = self.good("schedule", "empty.yaml", "--quiet", *run)
                result = self.good_json("simulate", "empty.yaml", "--quiet", *run)
                self.assertEqual(makespan_ns(settings, text), result["makespan_ns"], what)
        self.assertGreaterEqual(simulated, COUNT // 10)

    def test_the_longest_message_may_go_down(self):
        self.keep_equal(V_MIN)
        self.assertEqual(self.times(V_MIN, 1), [904400000, 938700000])

    def test_messages_of_unequal_length(self):
        self.keep_equal(ZB_H2)
        self.assertEqual(self.times(ZB_H2, 1), [437860000, 437860000])

    def test_two_engines_count_without_messages(self):
        settings = {
            "method.name": "v-min",
            "method.accumulate": 10,
            "cluster.stages": 12,
            "cluster.cost.model": "constant",
            "cluster.cost.forward_s": 0.021284,
            "cluster.cost.backward_s": 0.049969,
            "cluster.cost.weight_gradient_s": 0.027166,
            "cluster.speeds": [0.8, 1.25, 1, 0.5, 1, 1.25],
            "cluster.engines": 2,
        }
        self.keep_equal(settings)
        self.assertEqual(self.times(settings, 1), [2436833400, 2436833400])

    def test_a_training_has_the_order_of_petra_schedule(self):
        self.write(
            "train.yaml",
            "run: {trace_actions: true, max_microbatches: 14}\n"
            "data: {set: shapes, batch: 8, limit: 112, eval_limit: 8, augment: [],"
            " workers: 1}\n"
            "model: {width: 1}\nstages: {count: 4, partition: balanced}\n",
        )
        costs = {
            key: value
            for key, value in ZB_H2.items()
            if not key.startswith(("cluster.stages", "cluster.message"))
        }
        arguments = ["train.yaml", "--quiet", *options(costs)]
        text = self.good("schedule", *arguments)
        printed = {
            action
            for line in text.splitlines()
            if line[:1].isdigit()
            for action in enumerate(re.findall(r"\d+[FBWU]\d+", line), 1000 * int(line[0]))
        }
        for command in "train", "simulate":
            self.good(command, *arguments, "--output", "out")
            with h5py.File(self.path("out/run.h5"), "r") as file:
                columns = file["trace/actions"]
                kinds = [
                    bytes(kind).decode() if isinstance(kind, bytes) else kind
                    for kind in columns["kind"].attrs["kinds"]
                ]
                rows = sorted(
                    zip(
                        *(
                            columns[name][:].tolist()
                            for name in ("start_ns", "end_ns", "stage", "microbatch", "kind")
                        )
                    )
                )
            places = collections.defaultdict(int)
            found = set()
            for _, _, stage, microbatch, kind in rows:
                if kinds[kind] in "FBWU":
                    found.add((1000 * stage + places[stage], f"{stage}{kinds[kind]}{microbatch}"))
                    places[stage] += 1
            self.assertEqual(found, printed, command)


if __name__ == "__main__":
    main()
