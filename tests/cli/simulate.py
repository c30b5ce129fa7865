# SPDX-License-Identifier: Apache-2.0
"""petra simulate: closed forms, the trace that a training run gives as well, and wrong input."""

import collections
import json
import os
import re
import stat
import subprocess

from program import PETRA, ProgramTest, main

CLUSTER = """\
run: {name: priced, epochs: 1, max_microbatches: 12, eval_every: 0, seed: 3, drain: true}
data: {set: shapes, batch: 4, limit: 64, augment: [], workers: 1}
model: {width: 1}
method: {accumulate: 2}
device: {threads: 1}
cluster:
  engines: 2
  cost: {model: constant, forward_s: 1.3, backward_s: 2.1, reconstruct_s: 0.7, update_s: 0.2}
  link: {latency_s: 0.01, bandwidth_Bps: 1.0e+5, sharing: fair}
  node_size: 3
  card_Bps: 1.5e+5
  jitter: {model: gamma, scale: 0.3}
  stragglers: {stages: [2, 5], factor: 1.5}
  pauses: {mean_between_s: 10, duration_s: 1}
  failures: {mean_between_s: 30, restart_s: 2}
"""


# RevNet-18 of width 1 on 32 x 32 images, its convolutions by block: channels in, out, kernel, side
# in, side out.
REVNET = [[(3, 2, 3, 32, 32)]]
for planes, before, side in (1, 1, 32), (2, 1, 16), (4, 2, 8), (8, 4, 4):
    up = 32 if planes == 1 else 2 * side
    REVNET.append([(before, planes, 3, up, side), (planes, planes, 3, side, side)])
    if planes > 1:
        REVNET[-1].append((before, planes, 1, up, side))
    REVNET.append([(planes, planes, 3, side, side)] * 2)
FLOPS, BYTES_A_SECOND = 80e9, 25.6e9  # the peaks of cpu-core


def roofline(flops, floats):
    """Nanoseconds of a kernel."""
    return 1e9 * max(flops / FLOPS, 4 * floats / BYTES_A_SECOND)


def revnet_costs(images):
    """Nanoseconds of forward, backward, reconstruction and update of each stage, by the rules of
    the roofline."""
    costs = []
    for block in REVNET:
        forward = backward = weights = 0
        for come, go, kernel, side_in, side_out in block:
            x, y, w = images * come * side_in**2, images * go * side_out**2, come * go * kernel**2
            conv = roofline(2 * w * images * side_out**2, x + w + y)
            forward += conv + roofline(7 * y, 3 * y)
            backward += conv * (1 if block is REVNET[0] else 2) + roofline(11 * y, 5 * y)
            weights += w + 2 * go
        if block is not REVNET[0]:
            added = images * block[0][1] * block[0][4] ** 2
            forward += roofline(added, 3 * added)
            backward += roofline(added, 3 * added)
        costs.append([forward, backward, forward, roofline(6 * weights, 5 * weights)])
    pool = roofline(images * 16 * 16, images * 16 * 17)  # two streams of 8 channels, 4 x 4
    product = roofline(2 * images * 160, images * 16 + 160 + images * 10)
    costs.append([pool + product, pool + 2 * product, 0, roofline(6 * 170, 5 * 170)])
    return costs


# Whole flushes of each method.
LONGER = [
    "--set",
    "method.accumulate=10",
    "--set",
    "run.max_microbatches=30",
    "--set",
    "data.limit=160",
]


class Simulate(ProgramTest):
    def simulate(self, **values):
        options = [
            text
            for key, value in values.items()
            for text in ("--set", f"{key.replace('__', '.')}={value}")
        ]
        return self.good_json("simulate", "-", *options)

    def test_in_flight_and_kept(self):
        """zb-h1 gives a microbatch up at its W, and has it behind it at its B."""
        for method, in_flight, kept in (
            ("zb-h1", [6, 5, 4, 3, 2, 1], [6] * 6),
            ("1f1b", [6, 5, 4, 3, 2, 1], [6, 5, 4, 3, 2, 1]),
        ):
            options = self.set_options(
                cluster__stages=6, method__name=method, method__accumulate=12
            )
            found = self.good_json("simulate", "-", *options)["stages"]
            self.assertEqual([stage["in_flight_max"] for stage in found], in_flight)
            self.assertEqual([stage["kept_max"] for stage in found], kept)

    def test_closed_forms(self):
        for stages, count in (2, 7), (10, 160), (23, 31):
            for method, per_stage in ("backprop", 3), ("reversible", 4):
                found = self.simulate(
                    cluster__stages=stages, run__max_microbatches=count, method__name=method
                )
                # The fused head reconstructs nothing.
                each = per_stage * stages - (per_stage - 3)
                self.assertEqual(found["makespan_s"], each * count)
                self.assertEqual(found["time_per_microbatch_s"], each)
                self.assertEqual(found["actions"], count * (3 * stages - 1))
                self.assertAlmostEqual(found["bubble_fraction"], 1 - 1 / stages, places=12)
                self.assertFalse(found["runaway"])
                self.assertEqual([s["lag_max"] for s in found["stages"]], [0] * stages)

    def test_lockstep(self):
        for engines, seconds in (1, 4), (2, 3):
            for k in 1, 3:
                found = self.simulate(
                    cluster__stages=6,
                    cluster__engines=engines,
                    method__accumulate=k,
                    run__drain="true",
                )
                self.assertEqual(found["microbatches"], 96)
                self.assertEqual(found["time_per_microbatch_s"], seconds)
                self.assertEqual(
                    [s["lag_max"] for s in found["stages"]],
                    [-(-2 * (6 - j) // k) for j in range(1, 7)],
                )
        up = self.simulate(
            cluster__stages=3,
            cluster__message__forward_bytes=5,
            cluster__message__backward_bytes=7,
            run__drain="true",
        )
        self.assertEqual(
            [(s["bytes_up"], s["bytes_down"]) for s in up["stages"]],
            [(240, 0), (240, 336), (0, 336)],
        )

    def test_speeds(self):
        speeds = [1, 0.5, 4, 0.25, 2, 1]
        options = dict(cluster__stages=6, cluster__speeds=speeds, run__drain="true")
        # Lockstep: the tick is that of the slowest device, 1 + (2 + 1) unit costs over its speed;
        # the fused head has 3.
        found = self.simulate(**options)
        self.assertEqual(found["time_per_microbatch_s"], max(4 / 0.25, 3 / speeds[-1]))
        self.assertEqual(
            self.simulate(**dict(options, cluster__speeds=speeds[:5] + [0.1]))[
                "time_per_microbatch_s"
            ],
            3 / 0.1,
        )
        self.assertEqual(
            self.simulate(**dict(options, cluster__engines=2))["time_per_microbatch_s"], 3 / 0.25
        )
        # One at a time: the sum over the devices.
        found = self.simulate(**options, method__name="reversible")
        self.assertEqual(
            found["time_per_microbatch_s"], sum(4 / speed for speed in speeds[:5]) + 3 / speeds[5]
        )
        # Speed 1 everywhere is what no speeds are; where stages share a device, its speed is
        # theirs.
        plain, same = (
            self.simulate(cluster__stages=6, cluster__speeds=list_) for list_ in ([], [1] * 6)
        )
        del plain["wall_s"], same["wall_s"]
        self.assertEqual(plain, same)
        found = self.simulate(
            cluster__stages=4,
            method__name="interleaved",
            method__chunks=2,
            method__accumulate=4,
            cluster__speeds=[1, 0.5],
        )
        busy = [stage["utilization"] for stage in found["stages"]]
        self.assertAlmostEqual(busy[1] / busy[0], 2, places=12)
        self.assertAlmostEqual(busy[2] / busy[0], 1, places=12)
        # A model's stages are scaled as well, and training runs under the same clock.
        small = [
            "small.yaml",
            *self.set_options(
                cluster__speeds=[1, 2] * 5,
                run__max_microbatches=8,
                run__epochs=1,
                run__eval_every=0,
            ),
        ]
        self.good("simulate", *small, "--trace", "a.json")
        self.good("train", *small, "--trace", "b.json", "--output", "out", "--quiet")
        self.assertEqual(self.read("a.json"), self.read("b.json"))
        self.assertEqual(
            [stage["F"] for stage in self.durations("a.json")[:4]], [10**9, 5 * 10**8] * 2
        )

    def test_trace_of_training_is_the_same(self):
        self.write("c.yaml", CLUSTER)
        for sharing in "fair", "fifo":
            for drain in "true", "auto":
                options = [
                    "--set",
                    f"cluster.link.sharing={sharing}",
                    "--set",
                    f"run.drain={drain}",
                ]
                found = self.good_json("simulate", "c.yaml", *options, "--trace", "a.json")
                self.good("simulate", "c.yaml", *options, "--trace", "b.json")
                self.good(
                    "train", "c.yaml", *options, "--trace", "c.json", "--output", "out", "--quiet"
                )
                self.assertEqual(self.read("a.json"), self.read("b.json"))
                self.assertEqual(self.read("a.json"), self.read("c.json"))
                self.assertEqual(len(self.phases("a.json")["X"]), found["actions"])
        options = [
            "--set",
            "cluster.node_link.latency_s=0.003",
            "--set",
            "cluster.node_link.bandwidth_Bps=3e5",
        ]
        for sharing in "fair", "fifo":
            options += ["--set", f"cluster.link.sharing={sharing}"]
            self.good("simulate", "c.yaml", *options, "--trace", "a.json")
            self.good(
                "train",
                "c.yaml",
                *options,
                "--trace",
                "b.json",
                "--output",
                "out",
                "--quiet",
                "--overwrite",
            )
            self.assertEqual(self.read("a.json"), self.read("b.json"))
            self.assertNotEqual(self.read("a.json"), self.read("c.json"))
        self.good("simulate", "c.yaml", "--set", "run.seed=4", "--trace", "d.json")
        self.assertNotEqual(self.read("c.json"), self.read("d.json"))

    def test_every_method_gives_the_trace_of_its_training(self):
        """The versions that passes read and updates write are in the trace; durations scatter."""
        self.write("c.yaml", CLUSTER)
        methods = [m["name"] for m in json.loads(self.good("methods", "--json"))["methods"]]
        self.assertIn("petra", methods)
        overrides = [
            [f"method.name={m}"] + ["method.credit=6"] * (m == "petra-arrival") for m in methods
        ]
        overrides += [
            ["method.name=petra", "method.sync_period=5"],
            ["method.name=delayed", "method.keep=input"],
            ["method.name=petra", "method.program=1f1b-async"],
            ["method.name=dsp", "method.head=split"],
            ["method.name=petra-arrival", "method.credit=4", "cluster.engines=2"],
            ["method.name=petra", "method.extra_delay=3"],
            ["method.name=pipedream", "method.extra_delay=[4, 2, 0, 0]"],
            ["method.name=petra", "cluster.host.action_s=0.4"],
            [
                "method.name=ddg",
                "cluster.host.action_s=0.3",
                "cluster.host.ahead=2",
                "cluster.host.share=device",
            ],
            ["method.name=zb-h1", "method.keep=input"],
            ["method.name=gpipe-checkpoint", "method.early_recompute=true"],
        ]
        for override in overrides:
            options = [
                "run.max_microbatches=16",
                "run.drain=auto",
                "stages.partition=balanced",
                "stages.count=4",
                "run.eval_every=0",
                "cluster.stragglers.stages=[2]",
                "method.accumulate=4",
            ] + override
            options = [word for option in options for word in ("--set", option)]
            self.good("simulate", "c.yaml", *options, "--trace", "a.json")
            self.good(
                "train", "c.yaml", *options, "--trace", "b.json", "--output", "out", "--quiet"
            )
            simulated, trained = self.read("a.json"), self.read("b.json")
            self.assertEqual(simulated, trained, override)

    def test_every_network_has_a_ledger(self):
        for network in (
            ["model.downsample=invertible"],
            ["model.family=resnet", "model.depth=50"],
            ["model.depth=50"],
            ["model.depth=34"],
            ["model.depth=101", "model.bottleneck=variant"],
            ["model.depth=3", "model.shape=constant"],
            ["data.set=grammar", "model.family=revgpt", "model.heads=1"],
            ["model.family=vit", "model.heads=1"],
            [
                "data.set=grammar",
                "model.family=revllama",
                "model.heads=1",
                "model.coupling=leapfrog",
            ],
        ):
            options = [
                word
                for setting in network + ["method.name=backprop", "model.width=2", "data.batch=2"]
                for word in ("--set", setting)
            ]
            found = self.good_json("simulate", "-", *options)
            self.assertGreater(found["stages"][0]["peak_bytes"]["parameters"], 0)

    def test_gamma_of_any_scale(self):
        for scale in 1e-9, 0.001, 0.02, 0.5, 3, 10:
            found = self.simulate(
                cluster__stages=1,
                method__name="backprop",
                run__max_microbatches=2000,
                cluster__jitter__model="gamma",
                cluster__jitter__scale=scale,
            )
            # Twelve deviations of the mean of 2000 draws at least.
            self.assertAlmostEqual(found["makespan_s"] / 6000, 1, delta=1e-6 + 0.4 * scale)

    def test_a_trace_replaces_no_pipe(self):
        os.mkfifo(self.path("pipe"))
        self.bad(
            1,
            "pipe: cannot replace: not a regular file",
            "simulate",
            "-",
            "--set",
            "cluster.stages=2",
            "--trace",
            "pipe",
        )
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    def test_length_is_of_whole_updates(self):
        """The time per microbatch of gpipe is (k + J - 1) / k times 3 s, however k stands to 16
        microbatches a stage."""
        for k, length in ((1, 48), (3, 48), (7, 49), (30, 60), (100, 200)):
            found = self.good_json(
                "simulate",
                "-",
                *self.set_options(cluster__stages=3, method__name="gpipe", method__accumulate=k),
            )
            self.assertEqual(found["microbatches"], length)
            self.assertAlmostEqual(found["time_per_microbatch_s"], 3 * (k + 2) / k, delta=1e-9)

    def test_links_by_name(self):
        options = [
            "simulate",
            "small.yaml",
            "--set",
            "cluster.cost.model=roofline",
            "--set",
            "cluster.link.preset=10gbe",
        ]
        found = self.good_json(*options)
        by_hand = self.good_json(
            *options[:4],
            "--set",
            "cluster.link.latency_s=20e-6",
            "--set",
            "cluster.link.bandwidth_Bps=1.25e9",
        )
        self.assertEqual(found["makespan_ns"], by_hand["makespan_ns"])
        self.assertAlmostEqual(
            found["images_per_s"] * found["time_per_microbatch_s"], 8, delta=1e-9
        )
        text = self.good(*options)
        self.assertIn("\nlinks    latency 2e-05 s, bandwidth 1.25e+09 B/s (10gbe)\n", text)
        self.assertIn(f" s per microbatch, {found['images_per_s']:.6g} images/s, ", text)
        self.assertIn(
            "B/s (10gbe but for the latency)\n",
            self.good(*options, "--set", "cluster.link.latency_s=1"),
        )
        # Neither are units of time seconds, nor have equal stages images.
        self.assertIsNone(self.good_json("simulate", "small.yaml")["images_per_s"])
        self.assertIsNone(
            self.good_json(
                "simulate",
                "small.yaml",
                "--set",
                "cluster.stages=3",
                "--set",
                "cluster.cost.model=constant",
            )["images_per_s"]
        )

    def test_links_inside_and_between_nodes(self):
        """One microbatch on four stages, two to a node: its timeline by hand, in milliseconds."""
        options = self.set_options(
            cluster__stages=4,
            method__name="gpipe",
            run__max_microbatches=1,
            cluster__cost__model="constant",
            cluster__message__forward_bytes=8 * 10**6,
            cluster__message__backward_bytes=4 * 10**6,
            cluster__node_size=2,
            cluster__link__latency_s=0.01,
            cluster__link__bandwidth_Bps=10**8,
        )
        node_link = self.set_options(
            cluster__node_link__latency_s=0.001, cluster__node_link__bandwidth_Bps=10**9
        )
        for sharing in "fifo", "fair":
            options += ["--set", f"cluster.link.sharing={sharing}"]
            found = self.good_json("simulate", "-", *options, *node_link, "--critical-path")
            path = {
                name: nanoseconds // 10**6
                for name, nanoseconds in found["critical_path"]["ns"].items()
            }
            passes, transmission, latency = (
                4 * 1000 + 4 * 2000,
                8 + 80 + 8 + 4 + 40 + 4,
                4 * 1 + 2 * 10,
            )
            self.assertEqual(
                [path["transmission"], path["latency"], path["queueing"]],
                [transmission, latency, 0],
            )
            self.assertEqual(found["makespan_ns"], (passes + transmission + latency) * 10**6)
            # The replicas are on other nodes: 10^7 bytes between nodes, and twice the latency.
            replicas = self.set_options(cluster__replicas=2, cluster__message__gradient_bytes=10**7)
            found = self.good_json("simulate", "-", *options, *node_link, *replicas)
            self.assertEqual(
                found["makespan_ns"], (passes + transmission + latency + 100 + 20) * 10**6
            )
            # The card halves the bandwidth between the nodes, but not inside.
            found = self.good_json(
                "simulate", "-", *options, *node_link, "--set", "cluster.card_Bps=50000000"
            )
            self.assertEqual(
                found["makespan_ns"], (passes + transmission + 80 + 40 + latency) * 10**6
            )
            # Without the second level every link is that between nodes, whatever the size of a
            # node.
            for more in (
                [],
                ["--set", "cluster.node_link.preset=same"],
                ["--set", "cluster.node_size=1", "--quiet", *node_link],
            ):
                found = self.good_json("simulate", "-", *options, *more)
                self.assertEqual(found["makespan_ns"], (passes + 3 * (80 + 40) + 6 * 10) * 10**6)
        self.assertIn(
            "; nodes of 2, card infinite, inside: latency 0.001 s, bandwidth 1e+09 B/s\n",
            self.good("simulate", "-", *options, *node_link),
        )
        self.assertIn(
            "inside: latency 2e-06 s, bandwidth 9e+11 B/s (nvlink5)\n",
            self.good("simulate", "-", *options, "--set", "cluster.node_link.preset=nvlink5"),
        )
        self.assertIn(
            "; nodes of 1, card infinite, no link inside\n",
            self.good(
                "simulate",
                "-",
                *options,
                "--set",
                "cluster.node_link.preset=nvlink5",
                "--set",
                "cluster.node_size=1",
                "--quiet",
            ),
        )
        self.bad(
            2,
            ["cluster.node_link.bandwidth_Bps", "preset: same", "expected another preset"],
            "simulate",
            "-",
            *options,
            *node_link[2:],
            "--set",
            "cluster.node_link.preset=same",
        )

    def test_roofline(self):
        options = [
            "simulate",
            "-",
            "--set",
            "cluster.cost.model=roofline",
            "--set",
            "cluster.cost.device=cpu-core",
            "--set",
            "method.name=reversible",
            "--set",
            "run.max_microbatches=3",
            "--trace",
            "t.json",
        ]
        # The stem of RevNet-18 for one image, by hand: a convolution of 2 * 3456 * 1024 FLOPs at 80
        # GFLOP/s, 88473.6 ns; batch norm of 131072 elements at 25.6 GB/s, 61440 ns forward and
        # 102400 ns backward; 3712 parameters, 2900 ns.
        self.good(*options, "--set", "data.batch=1")
        self.assertEqual(
            self.durations("t.json")[0], {"F": 149914, "B": 190874 + 149914, "U": 2900}
        )
        # All ten stages.
        found = self.good_json(*options, "--set", "data.batch=4", "--set", "model.width=1")
        costs = revnet_costs(4)
        expected = [{"F": f, "B": b + r, "U": u} for f, b, r, u in costs]
        expected[-1] = {"B": costs[-1][0] + costs[-1][1], "U": costs[-1][3]}  # the fused head
        durations = self.durations("t.json")
        self.assertEqual(
            [sorted(stage) for stage in durations], [sorted(stage) for stage in expected]
        )
        for stage, wanted in zip(durations, expected):
            for kind in stage:  # of one or two parts, each rounded to a whole nanosecond
                self.assertAlmostEqual(
                    stage[kind], wanted[kind], delta=(1 if kind == "B" else 0.5) + 1e-6
                )
        self.assertEqual(found["time_per_microbatch_s"], found["makespan_s"] / 3)
        busy = sum(sum(stage.values()) for stage in durations) * 3
        self.assertAlmostEqual(
            sum(s["utilization"] for s in found["stages"]) * found["makespan_ns"] / busy,
            1,
            places=12,
        )
        # A stage of several blocks costs their sum, but for half a nanosecond in each of four
        # parts.
        whole = self.good_json(
            *options,
            "--set",
            "data.batch=4",
            "--set",
            "model.width=1",
            "--set",
            "stages.partition=balanced",
            "--set",
            "stages.count=1",
        )
        total = 3 * sum(sum(stage) - stage[2] for stage in costs)
        self.assertAlmostEqual(whole["makespan_ns"], total, delta=3 * 4 * 0.5 + 1e-6)

    def test_roofline_of_training(self):
        options = [
            "--set",
            "cluster.cost.model=roofline",
            "--set",
            "cluster.cost.device=cpu-core",
            "--set",
            "run.epochs=1",
            "--set",
            "run.eval_every=0",
            "--set",
            "run.max_microbatches=8",
        ]
        self.good("simulate", "small.yaml", *options, "--trace", "a.json")
        self.good(
            "train", "small.yaml", *options, "--trace", "b.json", "--output", "out", "--quiet"
        )
        self.assertEqual(self.read("a.json"), self.read("b.json"))

    def durations(self, name):
        """Nanoseconds of each kind of action at each stage, which must be the same for all
        microbatches."""
        found = collections.defaultdict(dict)
        for event in self.phases(name)["X"]:
            kind, nanoseconds = event["cat"], round(1e3 * event["dur"])
            self.assertEqual(
                found[event["args"]["stage"]].setdefault(kind, nanoseconds), nanoseconds
            )
        return [found[stage] for stage in sorted(found)]

    def phases(self, name):
        events = json.loads(self.read(name))["traceEvents"]
        found = collections.defaultdict(list)
        for event in events:
            found[event["ph"]].append(event)
        return found

    def test_arrows_have_two_ends(self):
        """Of every method: each arrow and each message on its way, also where the run ends while
        some are under way."""
        self.write("c.yaml", CLUSTER)
        lost = 0
        for method in self.good_json("methods")["methods"]:
            self.good(
                "simulate",
                "c.yaml",
                "--quiet",
                "--set",
                f"method.name={method['name']}",
                "--set",
                "run.drain=auto",
                *LONGER,
                "--trace",
                "t.json",
                "--output",
                "out",
            )
            slices = self.phases("t.json")["X"]
            sent = sum(
                event["cat"] == "F"
                and event["args"]["stage"] < 10
                or event["cat"] == "B"
                and event["args"]["stage"] > 1
                for event in slices
            )
            arrows = self.arrows("t.json")
            self.assertGreater(arrows, 0, method["name"])
            lost += sent - arrows
        self.assertGreater(lost, 0, "no run ended with a message under way")

    def test_no_arrow_to_what_takes_no_time(self):
        """Viewers find no slice for it, and say that the trace is faulty."""
        free = self.set_options(
            cluster__stages=4,
            cluster__cost__model="constant",
            cluster__cost__backward_s=1,
            run__max_microbatches=20,
        )
        for forward, arrows in (0, 3 * 20), (1, 2 * 3 * 20):
            self.good(
                "simulate",
                "-",
                *free,
                *self.set_options(cluster__cost__forward_s=forward, run__drain="true"),
                "--trace",
                "t.json",
            )
            self.assertEqual(self.arrows("t.json"), arrows)

    def test_devices_of_a_trace(self):
        """Its processes are devices, named after their stages; with one stage on each, these
        alone."""
        shared = self.set_options(
            cluster__stages=6,
            method__name="interleaved",
            method__chunks=3,
            method__accumulate=4,
            cluster__link__latency_s=0.3,
        )
        for engines in 1, 2:
            self.good(
                "simulate",
                "-",
                *shared,
                *self.set_options(cluster__engines=engines),
                "--trace",
                "t.json",
            )
            self.assertGreater(self.arrows("t.json"), 0)
            found = self.phases("t.json")
            self.assertEqual(
                {
                    event["pid"]: event["args"]["name"]
                    for event in found["M"]
                    if event["name"] == "process_name"
                },
                {1: "device 1: stages 1, 3, 5", 2: "device 2: stages 2, 4, 6"},
            )
            for event in found["X"]:
                stage = event["args"]["stage"]
                self.assertEqual(
                    (event["pid"], event["name"]),
                    ((stage - 1) % 2 + 1, f"{stage}{event['cat']}{event['args']['microbatch']}"),
                )
            self.assertEqual(
                {(event["pid"], event["name"]) for event in found["C"]},
                {
                    ((stage - 1) % 2 + 1, f"stage {stage}: held between F and B")
                    for stage in range(1, 7)
                },
            )
            self.assertEqual(
                {event["name"] for event in found["b"]},
                {f"forward message to stage {stage}" for stage in range(2, 7)}
                | {f"backward message to stage {stage}" for stage in range(1, 6)},
            )

    def test_a_large_trace_is_announced(self):
        """Before the run, which is stopped here; as large as it says, to a factor, and no line for
        a small one."""

        def options(microbatches):
            return [
                "simulate",
                "-",
                "--trace",
                "trace.json",
                *[
                    word
                    for text in (
                        "cluster.stages=50",
                        f"run.max_microbatches={microbatches}",
                        "cluster.link.latency_s=0.1",
                    )
                    for word in ("--set", text)
                ],
            ]

        code, _, error = self.run_petra(*options(200))
        self.assertEqual((code, error), (0, ""))
        size = os.path.getsize(self.path("trace.json"))
        with subprocess.Popen(
            [PETRA, *options(200000)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.path(""),
        ) as process:
            line = process.stderr.readline()
            process.kill()
        found = re.match(
            r"petra: warning: --trace: the file may grow to about ([0-9.e+]+) GB, for [0-9.e+]+"
            r" actions; run.max_microbatches limits them$",
            line,
        )
        self.assertTrue(found, line)
        self.assertLess(size * 1000, float(found[1]) * 1e9)
        self.assertGreater(size * 1000, float(found[1]) * 1e9 / 2)

    def test_trace_is_whole(self):
        self.good(
            "simulate",
            "-",
            "--set",
            "cluster.stages=50",
            "--set",
            "cluster.link.latency_s=0.5",
            "--set",
            "run.drain=true",
            "--set",
            "run.max_microbatches=100",
            "--trace",
            "t.json",
        )
        found = self.phases("t.json")
        self.assertEqual(
            collections.Counter(e["cat"] for e in found["X"]), {"F": 4900, "B": 5000, "U": 5000}
        )
        for phase in "s", "f", "b", "e":  # every message starts, ends and is on its way once
            self.assertEqual(len(found[phase]), 2 * 49 * 100)
            self.assertEqual(len({e["id"] for e in found[phase]}), 2 * 49 * 100)
        self.assertEqual(len(found["C"]), 2 * 49 * 100)
        self.assertEqual(
            {(e["pid"], e["args"]["name"]) for e in found["M"] if e["name"] == "process_name"},
            {(s, f"stage {s}") for s in range(1, 51)},
        )
        sent = {e["id"]: e["ts"] for e in found["b"]}
        for event in found["e"]:
            self.assertAlmostEqual(event["ts"] - sent[event["id"]], 5e5, places=3)

    def test_tokens_without_a_file(self):
        """The vocabulary replaces the file; the figures are those with a file."""
        self.write(
            "c.yaml",
            "data: {set: tokens, path: nowhere/train.bin, batch: 2}\n"
            "model: {family: gpt, depth: 2, width: 8, heads: 2, context: 16}\n"
            "method: {name: pipedream}\n"
            "cluster: {cost: {model: roofline}}\n",
        )
        for command in "simulate", "methods", "schedule", "inspect", "train":
            self.bad(1, ["nowhere/train.bin: No such file", "data.vocabulary"], command, "c.yaml")
        given = ["c.yaml", "--set", "data.vocabulary=300"]
        found = self.good_json("simulate", *given)
        for command in "methods", "schedule", "inspect":
            self.good(command, *given)
        self.bad(1, "nowhere/train.bin: No such file", "train", *given)
        with open(self.path("here.bin"), "wb") as file:
            file.write(bytes([7, 0] * 20000))
        with_file = self.good_json("simulate", *given, "--set", "data.path=here.bin")
        self.assertGreater(len(found.pop("stages")), 4)
        for name in "time_per_microbatch_s", "makespan_ns", "tokens_per_s", "devices":
            self.assertEqual(found[name], with_file[name])
        warm_up = ["--set", "method.mitigation.sync_warmup_epochs=1"]
        self.bad(
            2,
            ["sync_warmup_epochs", "nowhere/train.bin", "expected the file, data.limit"],
            "simulate",
            *given,
            *warm_up,
        )
        limited = [*warm_up, "--set", "data.limit=20"]
        self.assertEqual(
            self.good_json("simulate", *given, *limited)["makespan_ns"],
            self.good_json("simulate", *given, *limited, "--set", "data.path=here.bin")[
                "makespan_ns"
            ],
        )

    def test_quiet(self):
        """--quiet suppresses warnings; the result is printed unless it is in a file."""
        cost = ["--set", "cluster.cost.forward_s=3"]
        out = self.good("simulate", "small.yaml", "--quiet", *cost)
        self.assertIn("makespan ", out)
        self.assertEqual(self.good("simulate", "small.yaml", "--quiet", "--output", "out"), "")

    def test_keys_without_effect(self):
        self.write("c.yaml", "base: small.yaml\ncluster:\n  cost: {device: h100, model: unit}\n")
        for expected, *settings in (
            (
                (
                    "c.yaml:3: cluster.cost.device: has no effect; expected cluster.cost.model:"
                    " roofline or kernels beside it"
                ),
            ),
            ("", "cluster.cost.model=roofline"),
            ("", "cluster.cost.model=constant"),
            (
                "data.resize=300: has no effect; expected data.set: imagefolder",
                "data.resize=300",
                "cluster.cost.model=unit",
            ),
            (
                "jitter.scale=0.3: has no effect; expected cluster.jitter.model beside it",
                "cluster.jitter.scale=0.3",
                "cluster.cost.device=a100",
            ),
            (
                "",
                "cluster.jitter.scale=0.3",
                "cluster.jitter.model=gamma",
                "cluster.cost.device=a100",
            ),
            (
                "ahead=1: has no effect; expected cluster.host.action_s or cluster.host.kernel_s",
                "cluster.host.ahead=1",
                "cluster.cost.device=a100",
            ),
        ):
            code, _, error = self.run_petra(
                "simulate", "c.yaml", *(word for setting in settings for word in ("--set", setting))
            )
            self.assertEqual((code, error.count("\n")), (0, 1 if expected else 0), error)
            self.assertIn(expected, error)

    def test_wrong_input(self):
        self.bad(
            2, ["cluster.stages", "0 .. 100000"], "simulate", "-", "--set", "cluster.stages=-1"
        )
        self.bad(
            2,
            ["cluster.stages", "1 .. 100000"],
            "simulate",
            "-",
            "--set",
            "cluster.message.forward_bytes=3",
        )
        self.bad(
            2,
            ["cluster.link.latency_s", "expected"],
            "simulate",
            "-",
            "--set",
            "cluster.link.latency_s=.nan",
        )
        self.bad(
            2,
            ["cluster.stragglers.stages", "1 .. 4"],
            "simulate",
            "-",
            "--set",
            "cluster.stages=4",
            "--set",
            "cluster.stragglers.stages=[5]",
        )
        self.bad(
            2,
            ["method.credit", "arrival"],
            "simulate",
            "-",
            "--set",
            "cluster.stages=4",
            "--set",
            "method.credit=3",
        )
        self.bad(
            2,
            ["method.chunks", "interleaves"],
            "simulate",
            "-",
            "--set",
            "cluster.stages=4",
            "--set",
            "method.chunks=2",
        )
        self.bad(
            2,
            ["cluster.jitter.scale", "0 .. 1"],
            "simulate",
            "-",
            "--set",
            "cluster.jitter.scale=2",
            "--set",
            "cluster.jitter.model=exponential",
        )
        for key in ("pauses", "failures"):
            self.bad(
                2,
                [f"cluster.{key}.mean_between_s", "expected 0 or at least 1e-06"],
                "simulate",
                "-",
                "--set",
                "cluster.stages=4",
                "--set",
                f"cluster.{key}.mean_between_s=1e-9",
            )
        self.bad(
            2,
            ["cluster.stages", "cannot be trained"],
            "train",
            "small.yaml",
            "--set",
            "cluster.stages=4",
        )
        for wrong, words in (
            ("cluster.stages=4", "cluster.stages"),
            ("device.precision=fp64", "expected device.precision: fp32"),
            ("cluster.cost.arithmetic=tf32", "cpu-core has no peak for tf32"),
            ("cluster.cost.device=a10", "h100"),
        ):
            self.bad(
                2,
                words,
                "simulate",
                "-",
                "--set",
                "cluster.cost.model=roofline",
                "--set",
                "cluster.cost.device=cpu-core",
                "--set",
                wrong,
            )
        for speeds, words in (
            ("[1, 0]", "'0' is out of range"),
            ("[1, -2]", "out of range"),
            ("[.nan]", "not a finite number"),
            ("1", "not a list"),
            ("[1, 2, 3]", ["3 speeds for 4 devices", "expected one per device"]),
            ("[1.0e-6, 1, 1, 1]", "expected less than 9e9 s"),
        ):
            self.bad(
                2,
                ["cluster.speeds"] + [words] if isinstance(words, str) else words,
                "simulate",
                "-",
                "--set",
                "cluster.stages=4",
                "--set",
                "cluster.cost.model=constant",
                "--set",
                "cluster.cost.forward_s=10000",
                "--set",
                f"cluster.speeds={speeds}",
            )
        self.bad(2, "--trace", "info", "--trace", "x.json")
        self.bad(
            1,
            "nowhere/t.json",
            "simulate",
            "-",
            "--set",
            "cluster.stages=4",
            "--trace",
            "nowhere/t.json",
        )
        self.bad(
            2,
            ["virtual clock", "expected"],
            "simulate",
            "-",
            "--set",
            "cluster.stages=4",
            "--set",
            "cluster.cost.model=constant",
            "--set",
            "cluster.cost.forward_s=1000000",
            "--set",
            "run.max_microbatches=1000000",
        )


main()
