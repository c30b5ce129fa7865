# SPDX-License-Identifier: Apache-2.0
"""Whole periods that petra simulate skips (docs/semantics/time.md): on random clusters every figure
is that of the run that performs each action, which --critical-path makes it do. Every method skips
some.

PETRA_TEST_RANDOM=FIRST:COUNT: the first seed, and how many clusters are simulated."""

import json
import os
import random

from program import SANITIZED, ProgramTest, main, sample

FIRST, COUNT = map(
    int, os.environ.get("PETRA_TEST_RANDOM", "1:30" if SANITIZED else "1:90").split(":")
)
LOOPS = ["interleaved", "looped-bfs", "interleaved-zb"]


def draw_method(r, method, devices):
    """Settings of a method, some of which it refuses; the number of stages."""
    chunks = r.choice([1, 2, 3]) if method["program"] in LOOPS else method["chunks"]
    k = r.choice([1, 1, 2, 3, 4, 6, 8, 12])
    if method["program"] in ("interleaved", "interleaved-zb"):
        k = devices * r.choice([1, 2, 3])
    elif method["program"] == "dualpipe-v":
        k = 2 * devices + r.choice([0, 1, 3])
    found = {"method.name": method["name"], "method.accumulate": k}
    if chunks > 1:
        found["method.chunks"] = chunks
    if method["program"] == "arrival":
        found["method.credit"] = r.choice([0, 1, 3, 2 * devices, 2 * devices + 3])
    for chance, key, value in (
        (0.1, "method.sync_period", k * r.choice([1, 2, 3])),
        (0.1, "method.head", r.choice(["split", "fused"])),
        (0.1, "method.early_recompute", "true"),
        (0.1, "run.drain", r.choice(["true", "false"])),
    ):
        if r.random() < chance:
            found[key] = value
    if method["program"] in ("lockstep", "forward-locked", "1f1b-async"):
        found.update(
            r.choice(
                [
                    {},
                    {},
                    {"method.mitigation.sync_warmup_epochs": r.choice([1, 2])},
                    {"method.extra_delay": r.choice([1, 2])},
                    {"method.mitigation.lr_rescheduling": r.choice([5, 300])},
                ]
            )
        )
    return found, devices * max(chunks, 1)


def draw_cluster(r, devices, stages):
    found = {
        "cluster.engines": r.choice([1, 1, 2]),
        "cluster.overlap": r.choice([0, 0, 0.3, 1]),
        "cluster.replicas": r.choice([1, 1, 1, 1, 2, 4]),
    }
    if r.random() < 0.3:
        found["cluster.speeds"] = [r.choice([1, 1, 0.5, 1.3, 2]) for _ in range(devices)]
    if r.random() < 0.2:
        found.update(
            {
                "cluster.stragglers.stages": [r.randint(1, stages)],
                "cluster.stragglers.factor": r.choice([1.1, 2, 3.7]),
            }
        )
    if r.random() < 0.6:
        found.update(
            {
                "cluster.link.latency_s": r.choice([0, 1e-6, 1e-3, 0.02]),
                "cluster.link.bandwidth_Bps": r.choice([0, 1e6, 3.3e7, 1e9]),
                "cluster.link.sharing": r.choice(["fifo", "fair"]),
            }
        )
        if r.random() < 0.5:
            found.update(
                {
                    "cluster.card_Bps": r.choice([1e6, 2.7e7, 1e9]),
                    "cluster.node_size": r.choice([1, 2, 3]),
                }
            )
            if r.random() < 0.5:
                found.update(
                    {
                        "cluster.node_link.latency_s": r.choice([0, 1e-6, 1e-4]),
                        "cluster.node_link.bandwidth_Bps": r.choice([0, 7e7, 1e10]),
                    }
                )
    if r.random() < 0.2:
        found.update(
            {
                "cluster.host.action_s": r.choice([1e-3, 1e-2]),
                "cluster.host.share": r.choice(["cluster", "node", "device"]),
                "cluster.host.ahead": r.choice([0, 1, 4]),
            }
        )
    return found


def draw_work(r, stages):
    """Equal stages, or a model, and the samples."""
    batches = r.choice([1, 2, 3, 7, 20, 100, 391])
    if stages > 8 or r.random() < 0.5:
        forward = r.choice([1e-3, 7.123456e-3, 0.01])
        backward = round(forward * r.choice([1, 1.5, 2, 2.3]), 9)
        return {
            "cluster.stages": stages,
            "cluster.cost.model": "constant",
            "cluster.cost.forward_s": forward,
            "cluster.cost.backward_s": backward,
            "cluster.cost.reconstruct_s": r.choice([5e-4, 2e-3]),
            "cluster.cost.weight_gradient_s": round(backward * r.choice([0.3, 0.5]), 9),
            "cluster.cost.update_s": r.choice([0, 1e-4, 1e-3]),
            "cluster.message.forward_bytes": r.choice([0, 1000, 123457]),
            "cluster.message.backward_bytes": r.choice([0, 1000, 123457]),
            "cluster.message.gradient_bytes": r.choice([0, 99999]),
            "data.set": "shapes",
            "data.batch": 1,
            "data.limit": batches,
        }
    return {
        "model.family": r.choice(["revnet", "resnet"]),
        "model.width": 4,
        "data.set": "shapes",
        "data.batch": 2,
        "data.limit": 2 * batches,
        "stages.partition": "balanced",
        "stages.count": stages,
        "cluster.cost.model": r.choice(["roofline", "kernels", "unit"]),
    }


def options(settings):
    return [
        word
        for key, value in settings.items()
        for word in ("--set", f"{key}={json.dumps(value) if isinstance(value, list) else value}")
    ]


class Cycles(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("empty.yaml", "run: {epochs: 100000}\n")
        self.methods = self.good_json("methods")["methods"]

    def both(self, settings):
        """What petra simulate says of both runs, without what only one of them has; None if it
        refuses the settings."""
        found = []
        for more in [], ["--critical-path"]:
            code, out, error = self.run_petra(
                "simulate", "empty.yaml", "--json", *options(settings), *more
            )
            found.append(json.loads(out) if code == 0 else error)
        if isinstance(found[0], str):
            self.assertEqual(found[0], found[1])
            return None
        self.assertEqual(found[1]["microbatches_skipped"], 0)
        skipped = found[0]["microbatches_skipped"]
        for one in found:
            for name in "wall_s", "critical_path", "microbatches_skipped":
                del one[name]
            for stage in one["stages"]:
                stage.pop("critical_ns", None)
        self.assertEqual(found[0], found[1], " ".join(options(settings)))
        return skipped

    def test_random_clusters(self):
        compared = skipping = 0
        for seed in range(FIRST, FIRST + COUNT):
            r = random.Random(seed)
            devices = r.choice([1, 2, 3, 4, 5, 8])
            method, stages = draw_method(r, r.choice(self.methods), devices)
            settings = {
                **method,
                **draw_cluster(r, devices, stages),
                **draw_work(r, stages),
                "run.eval_every": r.choice([0, 1, 1, 2, 3, 7]),
                "run.max_microbatches": r.choice(
                    [r.randint(1, 60), r.randint(100, 3000), r.randint(3000, 20000)]
                ),
            }
            skipped = self.both(settings)
            compared += skipped is not None
            skipping += bool(skipped)
        if COUNT >= 50:
            self.assertGreater(compared, COUNT / 2)
            self.assertGreater(skipping, compared / 4)

    def test_every_method(self):
        for method in sample(self.methods):
            stages = 4 * max(method["chunks"], 1)
            settings = {
                "method.name": method["name"],
                "method.accumulate": 8,
                "run.max_microbatches": 10000,
                "run.eval_every": 0,
                "cluster.stages": stages,
                "cluster.engines": 2,
                "cluster.link.bandwidth_Bps": 1e6,
                "cluster.link.latency_s": 0.1,
                "cluster.message.forward_bytes": 300000,
                "cluster.message.backward_bytes": 200000,
            }
            if method["program"] == "arrival":
                settings["method.credit"] = 7
            self.assertGreater(self.both(settings), 8000, method["name"])

    def test_epochs_that_are_shorter_than_the_pipeline(self):
        """Whole epochs are skipped, each with its evaluation."""
        for epoch in sample((5, 20, 37, 100)):
            settings = {
                "model.family": "revvit",
                "model.depth": 7,
                "model.width": 8,
                "model.heads": 2,
                "data.set": "shapes",
                "data.batch": 1,
                "data.limit": epoch,
                "run.eval_every": 1,
                "run.max_microbatches": 8000,
            }
            self.assertGreater(self.both(settings), 7000, epoch)

    def test_a_million_microbatches_on_a_thousand_stages(self):
        """Without skipping this would take minutes. The figures are those of a closed form: 1f1b of
        a flush, at F = 1 s and B = 2 s."""
        found = self.good_json(
            "simulate",
            "empty.yaml",
            "--set",
            "cluster.stages=1000",
            "--set",
            "run.max_microbatches=1000000",
            "--set",
            "run.eval_every=0",
            "--set",
            "method.name=1f1b",
            "--set",
            "method.accumulate=8",
        )
        self.assertEqual(found["makespan_ns"], 125000 * (999 + 8) * 3 * 10**9)
        self.assertGreater(found["microbatches_skipped"], 999000)


if __name__ == "__main__":
    main()
