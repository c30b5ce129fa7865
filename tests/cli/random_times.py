# SPDX-License-Identifier: Apache-2.0
"""Random clusters of equal stages with every method that has an order: the times of petra simulate
are computed again from nothing but that order (petra schedule), the costs and the rules of
docs/semantics/time.md, and are the same to the nanosecond.

PETRA_TEST_RANDOM=FIRST:COUNT: the first seed, and how many clusters are simulated."""

import collections
import json
import math
import os
import random
import re

import h5py

from program import ProgramTest, main

FIRST, COUNT = map(int, os.environ.get("PETRA_TEST_RANDOM", "1:25").split(":"))
FUSED = [
    "backprop",
    "reversible",
    "checkpoint",
    "delayed",
    "dsp",
    "delayed-reversible",
    "approximate-input",
    "petra",
]
LOCKED = ["ddg", "fr"]
METHODS = (
    FUSED
    + LOCKED
    + ["gpipe", "gpipe-checkpoint", "1f1b", "interleaved", "zb-h1", "pipedream", "pipedream-2bw"]
)
REBUILD = [
    "reversible",
    "checkpoint",
    "gpipe-checkpoint",
    "fr",
    "dsp",
    "delayed-reversible",
    "approximate-input",
    "petra",
]
Action = collections.namedtuple("Action", "kind stage microbatch")
Span = collections.namedtuple("Span", "start end")


def seconds(r):
    """Odd nanoseconds, so that two messages are hardly ever sent at one moment."""
    return r.randint(1, 2 * 10**9) * 1e-9


def draw(r):
    """(settings, stages, devices)"""
    method, stages, k = r.choice(METHODS), r.randint(1, 8), r.randint(1, 4)
    devices, settings = stages, {"method.name": method}
    if method == "interleaved":
        settings["method.chunks"], devices = r.choice([2, 3]), r.randint(1, 4)
        stages, k = settings["method.chunks"] * devices, devices * r.randint(1, 3)
    if method == "pipedream-2bw":
        k = stages + r.randint(0, 2)
    if method in ("delayed", "dsp", "petra"):
        settings.update(
            r.choice([{}, {}, {"method.extra_delay": r.randint(1, 3)}, {"method.head": "split"}])
        )
    weight_gradient = seconds(r)
    settings.update(
        {
            "method.accumulate": k,
            "run.max_microbatches": k * r.randint(1, 10),
            "run.drain": r.choice(["auto", "true"]),
            "cluster.stages": stages,
            "cluster.engines": r.choice([1, 2]),
            "cluster.speeds": [round(r.uniform(0.3, 3), 6) for _ in range(devices)],
            "cluster.cost.model": "constant",
            "cluster.cost.forward_s": seconds(r),
            "cluster.cost.weight_gradient_s": weight_gradient,
            "cluster.cost.backward_s": weight_gradient + seconds(r),
            "cluster.cost.reconstruct_s": seconds(r),
            "cluster.cost.update_s": r.choice([0, seconds(r)]),
            "cluster.message.forward_bytes": r.choice([0, r.randint(1, 10**6)]),
            "cluster.message.backward_bytes": r.choice([0, r.randint(1, 10**6)]),
            "cluster.message.gradient_bytes": r.randint(1, 10**6),
            "cluster.replicas": r.choice([1, 1, 2, 3]),
            "cluster.link.latency_s": r.choice([0, seconds(r)]),
            "cluster.link.bandwidth_Bps": r.choice([0, r.randint(10**5, 10**7)]),
            "cluster.card_Bps": r.choice([0, r.randint(10**5, 10**7)]),
            "cluster.node_size": r.randint(1, 3),
            **r.choice(
                [
                    {},
                    {
                        "cluster.node_link.preset": "none",
                        "cluster.node_link.latency_s": r.choice([0, seconds(r)]),
                        "cluster.node_link.bandwidth_Bps": r.choice([0, r.randint(10**5, 10**7)]),
                    },
                ]
            ),
            "cluster.jitter.model": r.choice(["none", "none", "gamma", "lognormal"]),
            "cluster.stragglers.stages": r.choice([[], [r.randint(1, stages)]]),
            "cluster.stragglers.factor": 2.5,
        }
    )
    return settings, stages, devices


class Pipeline:
    """The rules: what an action of the order may have to wait for. Spans are those that petra
    simulated."""

    def __init__(self, settings, stages, devices, order, spans):
        self.settings, self.stages, self.devices, self.order, self.spans = (
            settings,
            stages,
            devices,
            order,
            spans,
        )
        self.method, self.replicas = settings["method.name"], settings["cluster.replicas"]
        self.fused = (
            self.method in FUSED
            and "method.extra_delay" not in settings
            and "method.head" not in settings
        )
        self.arrivals = self.transmit(self.sent())
        # Of the rounds of the whole pipeline, where there are such.
        self.ends = collections.defaultdict(int)
        if self.method in LOCKED:
            for action, span in spans.items():
                self.ends[self.locked_round(action)] = max(
                    self.ends[self.locked_round(action)], span.end
                )

    def device(self, stage):
        return (stage - 1) % self.devices

    def locked_round(self, action):
        """Round 2m has F of microbatch m, round 2m + 1 B of microbatch m - (J - j) at stage j."""
        return (
            2 * action.microbatch
            if action.kind == "F"
            else 2 * (action.microbatch + self.stages - action.stage) + 1
        )

    # --- messages ---

    def sent(self):
        """(moment, from, to, bytes, the action that waits for it); to: None for an exchange between
        replicas."""
        for action, span in self.spans.items():
            to = action.stage + {"F": 1, "B": -1}.get(action.kind, self.stages)
            if 1 <= to <= self.stages:
                size = self.settings[
                    "cluster.message." + {"F": "forward_bytes", "B": "backward_bytes"}[action.kind]
                ]
                yield (
                    span.end,
                    self.device(action.stage),
                    self.device(to),
                    size,
                    Action(action.kind, to, action.microbatch),
                )
        for device, actions in self.order.items() if self.replicas > 1 else ():
            last = {}
            for _, action in actions:
                if action.kind in "BW":
                    last[action.stage] = self.spans[action].end
                elif action.kind == "U":
                    size = (
                        2
                        * (self.replicas - 1)
                        * math.ceil(self.settings["cluster.message.gradient_bytes"] / self.replicas)
                    )
                    yield last[action.stage], device, None, size, action

    def transmit(self, messages):
        """When each arrives, by the action that waits for it: a transmission has its link and the
        cards of its nodes alone, in the order of sends."""
        free, arrivals = collections.defaultdict(int), {}
        for moment, source, target, size, action in sorted(
            messages, key=lambda message: message[0]
        ):
            if source == target:
                arrivals[action] = moment
                continue
            node = source // self.settings["cluster.node_size"]
            other = node if target is None else target // self.settings["cluster.node_size"]
            link = (
                "node_link"
                if node == other
                and target is not None
                and "cluster.node_link.preset" in self.settings
                else "link"
            )
            line, rates = (
                [("link", source, target)],
                [self.settings[f"cluster.{link}.bandwidth_Bps"]],
            )
            if (target is None or node != other) and self.settings["cluster.card_Bps"]:
                line += [("out", node), ("in", other)]
                rates.append(self.settings["cluster.card_Bps"])
            slowest = min(filter(None, rates), default=None)
            end = max(moment, *(free[part] for part in line)) + (
                math.floor(1e9 * size / slowest + 0.5) if slowest else 0
            )
            free.update(dict.fromkeys(line, end))
            arrivals[action] = end + round(1e9 * self.settings[f"cluster.{link}.latency_s"]) * (
                2 if target is None else 1
            )
        return arrivals

    # --- actions ---

    def message_of(self, action):
        """What an action waits for from another stage or from the replicas; 0: nothing."""
        waits = (
            (action.kind == "F" and action.stage > 1)
            or (action.kind == "B" and action.stage < self.stages)
            or (action.kind == "U" and self.replicas > 1)
        )
        if action.kind == "B" and action.stage == self.stages > 1 and self.fused:
            return self.arrivals[action._replace(kind="F")]
        return self.arrivals[action] if waits else 0

    def starts(self):
        """(action, when it starts by the rules)"""
        for actions in self.order.values():
            engines, updated, passed, number, before, now = [0, 0], 0, 0, 0, 0, 0
            for found, action in actions:
                # Nothing of a round starts on its device before all of the one before has ended.
                if found != number:
                    number, before = found, now
                engine = int(action.kind != "F" and self.settings["cluster.engines"] == 2)
                reasons = [
                    engines[engine],
                    passed if action.kind == "U" else updated,
                    self.message_of(action),
                ]
                if self.method in LOCKED:
                    reasons += [
                        end
                        for earlier, end in self.ends.items()
                        if earlier < self.locked_round(action)
                    ]
                else:
                    reasons.append(before)
                own = {"B": "F", "W": "B"}.get(action.kind)
                if own and action._replace(kind=own) in self.spans:
                    reasons.append(self.spans[action._replace(kind=own)].end)
                yield action, max(reasons)
                end = self.spans[action].end
                engines[engine] = end
                now = max(now, end)
                if action.kind == "U":
                    updated = end
                else:
                    passed = max(passed, end)

    def cost(self, action):
        """Nanoseconds, without a random part."""
        cost = {
            name: self.settings[f"cluster.cost.{name}_s"]
            for name in ("forward", "backward", "reconstruct", "weight_gradient", "update")
        }
        found = {"F": cost["forward"], "W": cost["weight_gradient"], "U": cost["update"]}.get(
            action.kind
        )
        if action.kind == "B":
            found = (
                cost["backward"]
                - (cost["weight_gradient"] if self.method == "zb-h1" else 0)
                + (cost["reconstruct"] if self.method in REBUILD else 0)
            )
            if action.stage == self.stages and self.fused:
                found = cost["forward"] + cost["backward"]
        factor = (
            self.settings["cluster.stragglers.factor"]
            if action.stage in self.settings["cluster.stragglers.stages"]
            else 1
        )
        return 1e9 * found * factor / self.settings["cluster.speeds"][self.device(action.stage)]


class RandomTimes(ProgramTest):
    def order(self, options):
        """By device, from 0: (round, action) one after the other."""
        order = {}
        for line in self.good("schedule", "small.yaml", "--quiet", *options).splitlines():
            device, _, words = line.partition(":")
            if not device.isdigit():
                continue
            found, number = order.setdefault(int(device) - 1, []), 0
            for word in words.split():
                if word.strip("|") == "":
                    number += 1
                    continue
                stage, kind, microbatch = re.fullmatch(r"(\d+)([FBWU])(\d+)", word).groups()
                found.append((number, Action(kind, int(stage), int(microbatch))))
        return order

    def simulated(self, options):
        """(spans by action, the printed results)"""
        results = self.good_json("simulate", "small.yaml", "--quiet", *options, "--output", "out")
        with h5py.File(self.path("out/run.h5"), "r") as file:
            columns = file["trace/actions"]
            kinds = [
                kind.decode() if isinstance(kind, bytes) else kind
                for kind in columns["kind"].attrs["kinds"]
            ]
            rows = zip(
                *(
                    columns[name][:].tolist()
                    for name in ("kind", "stage", "microbatch", "start_ns", "end_ns")
                )
            )
            return {
                Action(kinds[kind], stage, microbatch): Span(start, end)
                for kind, stage, microbatch, start, end in rows
            }, results

    def test_every_start_is_that_of_the_rules(self):
        self.write("small.yaml", "run: {trace_actions: true}\n")
        for seed in range(FIRST, FIRST + COUNT):
            settings, stages, devices = draw(random.Random(seed))
            what = f"PETRA_TEST_RANDOM={seed}:1, {json.dumps(settings)}"
            options = [
                text for key, value in settings.items() for text in ("--set", f"{key}={value}")
            ]
            spans, results = self.simulated(options)
            order = self.order(options)
            self.assertEqual(
                sorted(spans),
                sorted(action for actions in order.values() for _, action in actions),
                what,
            )
            pipeline = Pipeline(settings, stages, devices, order, spans)
            for action, start in pipeline.starts():
                self.assertEqual(spans[action].start, start, f"{action}: {what}")
                if settings["cluster.jitter.model"] == "none":
                    self.assertAlmostEqual(
                        spans[action].end - spans[action].start,
                        pipeline.cost(action),
                        delta=6,
                        msg=f"{action}: {what}",
                    )
            self.assertEqual(results["makespan_ns"], max(span.end for span in spans.values()), what)


if __name__ == "__main__":
    main()
