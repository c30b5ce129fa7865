# SPDX-License-Identifier: Apache-2.0
"""cluster.host: closed forms, and an event loop written apart from petra's."""

import heapq
import random

from program import SANITIZED, ProgramTest, main, sample

NS = 1e9


def host_of(device, case):
    return (
        0
        if case["share"] == "cluster"
        else device // case["node"]
        if case["share"] == "node"
        else device
    )


class Loop:
    """Devices with one engine that do their actions in order; a host issues one action at a time,
    requests in the order in which they come. All times are whole nanoseconds."""

    def __init__(self, case, orders):
        self.case, self.orders = case, orders
        self.stages = len(orders)
        self.mail, self.events, self.last = set(), [], 0
        self.done, self.started, self.issued = ([0] * self.stages for _ in range(3))
        self.busy, self.asked = [False] * self.stages, [False] * self.stages
        self.lines, self.serving = {}, {}
        self.late, self.latest = (
            0,
            {},
            # requests behind one of the same moment by a device of a larger number; the last one of
            # each host
        )
        now = 0
        self.look(now)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                self.happen(now, *heapq.heappop(self.events)[2:])
            self.look(now)
        assert self.done == [len(order) for order in orders], "deadlock"

    def push(self, time, *what):
        self.count = getattr(self, "count", 0) + 1
        heapq.heappush(self.events, (time, self.count, *what))

    def happen(self, now, kind, device, payload):
        if kind == "mail":
            self.mail.add(payload)
        elif kind == "issued":
            self.issued[device] += 1
            self.asked[device] = False
            self.serving[host_of(device, self.case)] = False
        else:
            stage, what, m = payload
            self.busy[device] = False
            self.done[device] += 1
            self.last = now
            if what == "F" and stage < self.stages:
                self.push(now + self.case["latency"], "mail", device, ("F", stage + 1, m))
            if what == "B" and stage > 1:
                self.push(now + self.case["latency"], "mail", device, ("B", stage - 1, m))

    def fed(self, action):
        stage, what, m = action
        fused = stage == self.stages
        if what == "F" or (what == "B" and fused):
            return stage == 1 or ("F", stage, m) in self.mail
        return what == "U" or ("B", stage, m) in self.mail

    def look(self, now):
        asks = []
        for d, order in enumerate(self.orders):
            if (
                not self.busy[d]
                and self.started[d] < len(order)
                and self.fed(order[self.started[d]])
            ):
                if self.issued[d] > self.started[d]:
                    self.busy[d] = True
                    self.push(
                        now + self.duration(order[self.started[d]]),
                        "end",
                        d,
                        order[self.started[d]],
                    )
                    self.started[d] += 1
                elif self.case["ahead"] == 0:
                    asks.append(d)
            if (
                self.issued[d] < len(order)
                and self.issued[d] - self.started[d] < self.case["ahead"]
            ):
                asks.append(d)
        before = dict(self.latest)
        for d in asks:
            if not self.asked[d]:
                self.asked[d] = True
                host = host_of(d, self.case)
                self.late += before.get(host, (0, 0)) > (now, d)
                self.latest[host] = now, d
                self.lines.setdefault(host, []).append(d)
        for host, line in self.lines.items():
            if line and not self.serving.get(host):
                self.serving[host] = True
                self.push(now + self.case["host"], "issued", line.pop(0), None)

    def duration(self, action):
        stage, what, _ = action
        costs = self.case["costs"]
        time = {
            "F": costs[0],
            "B": costs[1] + (costs[0] if stage == self.stages else costs[2]),
            "U": costs[3],
        }[what]
        return time // self.case["speeds"][stage - 1]


def parsed(text):
    for kind in "FBU":
        if kind in text:
            stage, microbatch = text.split(kind)
            return int(stage), kind, int(microbatch)
    raise ValueError(text)


class Host(ProgramTest):
    def options(self, case):
        settings = {
            "cluster.stages": len(case["speeds"]),
            "cluster.cost.model": "constant",
            "cluster.speeds": case["speeds"],
            "cluster.link.latency_s": case["latency"] / NS,
            "cluster.host.action_s": case["host"] / NS,
            "cluster.host.ahead": case["ahead"],
            "cluster.host.share": case["share"],
            "cluster.node_size": case["node"],
            "method.name": case["method"],
            "method.accumulate": case["k"],
            "run.max_microbatches": case["M"],
            "method.head": "fused",
            "run.drain": "true",
            **case.get("more", {}),
        }
        for name, cost in zip(
            ("forward_s", "backward_s", "reconstruct_s", "update_s"), case["costs"]
        ):
            settings[f"cluster.cost.{name}"] = f"{cost / NS:.9f}"
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def simulated(self, case):
        return self.good_json("simulate", "-", *self.options(case))

    def against_the_loop(self, case):
        if case["method"] == "1f1b-checkpoint":
            case |= {"method": "1f1b", "more": {"method.keep": "input"}}
        orders = self.good_json("schedule", "-", *self.options(case))["devices"]
        expected = Loop(case, [[parsed(text) for text in order] for order in orders])
        self.assertEqual(self.simulated(case)["makespan_ns"], expected.last, case)
        return expected

    def test_against_an_event_loop(self):
        rng = random.Random(7)
        for _ in sample(range(40)):
            stages = rng.randint(1, 7)
            self.against_the_loop(
                {
                    "speeds": [rng.choice([1, 2, 4]) for _ in range(stages)],
                    # Speeds divide the costs; so large and odd that no two things happen at one
                    # moment but at the start.
                    "costs": [4 * rng.randint(10**7, 10**9) for _ in range(4)],
                    "latency": rng.choice([0, rng.randint(1, 10**8)]),
                    "host": rng.randint(10**6, 10**9),
                    "ahead": rng.choice([0, 1, 2, 5]),
                    "node": rng.randint(1, 3),
                    "share": rng.choice(["cluster", "node", "device"]),
                    "k": rng.randint(1, 4),
                    "M": rng.randint(1, 20),
                    "method": rng.choice(["petra", "reversible", "1f1b-checkpoint", "dsp"]),
                }
            )

    def test_requests_of_one_moment(self):
        """By device, but one that follows an action of no length comes after those that do not:
        costs are such that many things happen at one moment, and updates take no time."""
        rng = random.Random(11)
        late = 0
        for _ in sample(range(40)):
            stages = rng.randint(2, 7)
            late += self.against_the_loop(
                {
                    "speeds": [rng.choice([1, 2]) for _ in range(stages)],
                    "costs": [2 * rng.randint(1, 3) for _ in range(3)] + [rng.choice([0, 0, 0, 2])],
                    "latency": rng.choice([0, 2]),
                    "host": rng.randint(1, 3),
                    "ahead": rng.choice([0, 1, 2]),
                    "node": rng.randint(2, 3),
                    "share": rng.choice(["cluster", "node"]),
                    "k": rng.randint(1, 2),
                    "M": rng.randint(4, 20),
                    "method": rng.choice(["petra", "1f1b-checkpoint", "dsp"]),
                }
            ).late
        self.assertGreater(late, 10 if not SANITIZED else 0)

    def case(self, **more):
        return {
            "speeds": [1] * 6,
            "costs": [7000, 16000, 5000, 3000],
            "latency": 0,
            "host": 11000,
            "ahead": 0,
            "node": 1,
            "share": "cluster",
            "k": 1,
            "M": 96,
            "method": "petra",
        } | more

    def test_closed_forms(self):
        # One after the other each pass is issued and done; updates are issued and done beside the
        # backward below, but for that of stage 1, which the next microbatch waits for.
        found = self.simulated(self.case(method="reversible"))
        self.assertEqual(
            found["makespan_ns"],
            96 * ((6 * 2 - 1) * 11000 + 6 * (7000 + 16000) + 5 * 5000 + 11000 + 3000),
        )
        # Lockstep: a host that is ahead takes as long as it has to issue in a tick (a fused head is
        # one action less), or the slowest stage does, which is then never kept waiting.
        for host in 11000, 100, 1700, 1900:
            for share, served in ("cluster", 17), ("node", 9), ("device", 3):
                case = self.case(
                    host=host, ahead=6, share=share, node=3, speeds=[4, 4, 1, 4, 2, 4], M=480
                )
                slowest = sum(case["costs"])
                found = self.simulated(case)
                self.assertAlmostEqual(
                    found["time_per_microbatch_s"] * NS,
                    max(served * host, slowest),
                    delta=1e-6 * slowest,
                    msg=str((host, share)),
                )
                self.assertAlmostEqual(
                    found["host_busy"], min(1, served * host / slowest), delta=0.05
                )
        # Without being ahead a lone device waits for its host before every action.
        found = self.simulated(self.case(share="device"))
        self.assertAlmostEqual(found["time_per_microbatch_s"] * NS, 3 * 11000 + 31000, delta=1e-3)

    def test_kernels(self):
        """cluster.host.kernel_s counts the kernels of an action; launch_s the same on the device:
        one after the other they take as long."""
        options = [
            word
            for text in (
                "method.name=reversible",
                "data.batch=8",
                "cluster.cost.model=kernels",
                "run.max_microbatches=4",
            )
            for word in ("--set", text)
        ]
        bound = self.good_json("simulate", "-", *options)
        roofline = self.good_json("simulate", "-", *options, "--set", "cluster.cost.model=roofline")
        self.assertEqual(bound["makespan_ns"], roofline["makespan_ns"])
        self.assertIsNone(bound["host_busy"])
        launch = self.good_json("simulate", "-", *options, "--set", "cluster.cost.launch_s=1.0e-5")
        host = self.good_json("simulate", "-", *options, "--set", "cluster.host.kernel_s=1.0e-5")
        self.assertEqual(
            launch["makespan_ns"] - bound["makespan_ns"], host["makespan_ns"] - bound["makespan_ns"]
        )
        self.assertGreater(launch["makespan_ns"], bound["makespan_ns"] + 4 * 10 * 10 * 10**4)
        half = [
            word
            for name in ("matrix_flops", "matrix_bytes", "elementwise_bytes")
            for word in ("--set", f"cluster.cost.efficiency.{name}=0.5")
        ]
        self.assertAlmostEqual(
            self.good_json("simulate", "-", *options, *half)["makespan_ns"] / bound["makespan_ns"],
            2,
            places=5,
        )

    def test_evaluations_take_no_time(self):
        """They are not issued, and leave the room of a host that is ahead to others."""

        def makespan(every):
            settings = [
                "data.batch=64",
                "data.limit=640",
                "cluster.host.action_s=0.3",
                "cluster.host.ahead=1",
                f"run.eval_every={every}",
            ]
            return self.good_json(
                "simulate", "-", *[word for text in settings for word in ("--set", text)]
            )["makespan_ns"]

        self.assertEqual(makespan(1), makespan(0))

    def test_refused(self):
        for words, *options in [
            ["which has no fixed order", "method.name=petra-arrival"],
            ["processes issue", "cluster.placement=[5,5]"],
            ["processes issue", "run.mode=execute"],
        ]:
            self.bad(
                2,
                words,
                "simulate",
                "-",
                "--set",
                "cluster.host.action_s=1",
                *[word for option in options for word in ("--set", option)],
            )
        self.bad(
            2,
            "no kernels to count",
            "simulate",
            "-",
            "--set",
            "cluster.host.kernel_s=1",
            "--set",
            "cluster.stages=3",
        )


main()
