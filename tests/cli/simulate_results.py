# SPDX-License-Identifier: Apache-2.0
"""What petra simulate leaves behind: memory that is what a training run's allocator holds, run.h5,
the critical path."""

import h5py
import numpy

from program import ProgramTest, main

RUN = [
    "--set",
    "run.epochs=10",
    "--set",
    "run.eval_every=0",
    "--set",
    "run.max_microbatches=13",
    "--set",
    "method.accumulate=2",
]
LIST = ["--set", "stages.partition=list", "--set", "stages.blocks=[2, 3, 5]"]
CASES = [
    ["--set", "method.name=petra"],
    [
        "--set",
        "method.name=petra",
        *LIST,
        "--set",
        "cluster.engines=2",
        "--set",
        "cluster.link.latency_s=0.3",
        "--set",
        "device.backend=ref",
        "--set",
        "device.precision=fp64",
    ],
    [
        "--set",
        "method.name=petra",
        "--set",
        "model.family=resnet",
        "--set",
        "method.accumulate=1",
        "--set",
        "method.mitigation.error_feedback=true",
    ],
    ["--set", "method.name=backprop", "--set", "cluster.jitter.model=gamma"],
    [
        "--set",
        "method.name=backprop",
        *LIST,
        "--set",
        "model.family=resnet",
        "--set",
        "device.backend=ref",
    ],
    [
        "--set",
        "method.name=zb-h1",
        "--set",
        "run.max_microbatches=40",
        "--set",
        "method.accumulate=20",
        "--set",
        "cluster.jitter.model=gamma",
    ],
    ["--set", "method.name=zb-h1", *LIST, "--set", "method.keep=input", "--set", "model.depth=18"],
    [
        "--set",
        "method.name=zb-h1",
        "--set",
        "method.accumulate=13",
        "--set",
        "method.keep=nothing",
        "--set",
        "cluster.jitter.model=gamma",
    ],
    [
        "--set",
        "method.name=zb-h1",
        "--set",
        "stages.partition=balanced",
        "--set",
        "stages.count=1",
        "--set",
        "method.head=fused",
    ],
    [
        "--set",
        "method.name=ddg",
        "--set",
        "cluster.jitter.model=gamma",
        "--set",
        "optim.name=muon",
        "--set",
        "optim.lr=0.01",
        "--set",
        "optim.clip=0.01",
    ],
    [
        "--set",
        "method.name=ddg",
        *LIST,
        "--set",
        "model.family=resnet",
        "--set",
        "run.drain=true",
        "--set",
        "cluster.engines=2",
        "--set",
        "optim.name=adamw",
        "--set",
        "optim.lr=0.001",
    ],
    ["--set", "method.name=fr", "--set", "cluster.link.latency_s=5", "--set", "method.head=fused"],
    ["--set", "method.name=reversible", "--set", "model.depth=50", "--set", "model.stem=imagenet"],
    [
        "--set",
        "method.name=reversible",
        "--set",
        "stages.partition=balanced",
        "--set",
        "stages.count=1",
    ],
    # What an action takes depends on what came before it: B where the weights are others than at F,
    # U after a warm-up, F where its copy of the weights is refreshed.
    [
        "--set",
        "method.name=approximate-input",
        "--set",
        "data.set=grammar",
        "--set",
        "model.family=revgpt",
        "--set",
        "model.width=8",
        "--set",
        "model.context=8",
        "--set",
        "model.depth=3",
        "--set",
        "data.batch=1",
        "--set",
        "method.accumulate=1",
    ],
    [
        "--set",
        "method.name=petra",
        "--set",
        "data.limit=8",
        "--set",
        "data.batch=2",
        "--set",
        "method.mitigation.sync_warmup_epochs=1",
        "--set",
        "method.mitigation.weight_prediction=difference",
        "--set",
        "run.drain=true",
    ],
    [
        "--set",
        "method.name=gpipe",
        "--set",
        "model.family=resnet",
        "--set",
        "model.width=1",
        "--set",
        "data.batch=1",
        "--set",
        "method.sync_period=2",
    ],
    [
        "--set",
        "method.name=reversible",
        "--set",
        "model.family=gpt",
        "--set",
        "model.width=8",
        "--set",
        "model.depth=3",
        "--set",
        "data.set=grammar",
        "--set",
        "data.batch=1",
        "--set",
        "method.sync_period=2",
    ],
]
HELD = [
    "parameters",
    "gradients",
    "momentum",
    "statistics",
    "input_buffer",
    "weight_buffer",
    "graph",
    "messages",
    "workspace",
]
COLUMNS = ["start_ns", "end_ns", "stage", "kind", "microbatch", "version_read", "version_written"]


class SimulateResults(ProgramTest):
    def test_memory_is_the_allocators(self):
        for number, case in enumerate(CASES):
            options = ["small.yaml", *RUN, *case]
            found = self.good_json("simulate", *options, "--trace", "a.json", "--quiet")
            self.good("train", *options, "--output", f"out{number}", "--trace", "b.json", "--quiet")
            with h5py.File(self.path(f"out{number}/run.h5"), "r") as file:
                peaks, totals = file["memory/peak_bytes"][:], file["memory/total_peak_bytes"][:]
                self.assertEqual(list(file["memory/peak_bytes"].attrs["categories"]), HELD)
            self.assertEqual(found["accounting"], "measured")
            for category, held in zip(HELD, peaks.T):
                self.assertEqual(
                    [stage["peak_bytes"][category] for stage in found["stages"]],
                    list(held),
                    (case, category),
                )
            self.assertEqual(
                [stage["peak_bytes"]["total"] for stage in found["stages"]], list(totals), case
            )
            for category in "parameters", "gradients", "graph", "messages", "workspace":
                self.assertGreater(peaks[:, HELD.index(category)].max(), 0, (case, category))
            # Not the peaks alone: the counters of both traces are the same at every moment.
            self.assertEqual(self.read("a.json"), self.read("b.json"))
            self.assertIn(b'"memory (bytes)"', self.read("a.json"))

    def test_memory_by_hand(self):
        options = [
            "small.yaml",
            *RUN,
            "--set",
            "device.backend=ref",
            "--set",
            "run.max_microbatches=60",
            "--set",
            "run.drain=true",
            "--set",
            "data.batch=8",
        ]
        # In a RevNet that keeps inputs a reversible block's stays with it when it is sent on, and
        # counts at the next stage.
        for family, method, delay in (
            ("revnet", "petra", True),
            ("revnet", "reversible", False),
            ("resnet", "dsp", True),
            ("resnet", "checkpoint", False),
        ):
            network = ["--set", f"model.family={family}", "--set", f"method.name={method}"]
            stages = self.good_json("inspect", "small.yaml", "--set", "data.batch=8", *network)[
                "stages"
            ]
            found = self.good_json("simulate", *options, *network)["stages"]
            for j, (stage, known) in enumerate(zip(found, stages, strict=True)):
                held, bytes_once = stage["peak_bytes"], 4 * known["parameters"]
                self.assertEqual(
                    [held[c] for c in ("parameters", "gradients", "momentum")],
                    [bytes_once, 2 * bytes_once, bytes_once],
                )
                tau = 2 * (len(stages) - 1 - j) if delay else 0
                batch = 4 * 8 * 3 * 32 * 32 if j == 0 else stages[j - 1]["forward_bytes"]
                # The head's F and B are one action.
                keeps = not known["reversible"] and j < len(stages) - 1
                self.assertEqual(
                    held["input_buffer"], (tau + 1) * batch if keeps else 0, (method, j)
                )

    def test_weights_kept(self):
        options = ["small.yaml", *RUN, "--set", "run.max_microbatches=100"]
        for k in 1, 3:
            for method in "delayed", "delayed-reversible", "approximate-input", "petra":
                found = self.good_json(
                    "simulate",
                    *options,
                    "--set",
                    f"method.name={method}",
                    "--set",
                    f"method.accumulate={k}",
                )
                for j, stage in enumerate(found["stages"]):
                    versions = 0 if method == "petra" else -(-2 * (9 - j) // k)
                    self.assertEqual(
                        stage["peak_bytes"]["weight_buffer"],
                        versions * stage["peak_bytes"]["parameters"],
                    )
        double = self.good_json(
            "simulate",
            *options,
            "--set",
            "method.name=pipedream-2bw",
            "--set",
            "method.accumulate=10",
        )
        for stage in double["stages"]:
            self.assertEqual(
                stage["peak_bytes"]["weight_buffer"], stage["peak_bytes"]["parameters"]
            )

    def test_paper_and_strict(self):
        rows = {"delayed": 0, "dsp": 1, "approximate-input": 2, "petra": 3}
        for accounting in "paper", "strict":
            expected = self.good_json(
                "inspect", "small.yaml", "--memory", accounting, "--set", "method.accumulate=2"
            )["memory"]["rows"]
            for method, row in rows.items():
                found = self.good_json(
                    "simulate",
                    "small.yaml",
                    *RUN,
                    "--set",
                    "run.max_microbatches=100",
                    "--memory",
                    accounting,
                    "--set",
                    f"method.name={method}",
                )
                self.assertEqual(found["accounting"], accounting)
                for stage, known in zip(
                    found["stages"], expected[row]["stages_bytes"], strict=True
                ):
                    held = stage["peak_bytes"]
                    self.assertEqual(
                        [
                            held["parameters"],
                            held["statistics"],
                            held["input_buffer"],
                            held["weight_buffer"],
                            held["total"],
                        ],
                        [
                            known["parameters"],
                            known["statistics"],
                            known["input"] + known["input_buffer"],
                            known["weight_buffer"],
                            known["total"],
                        ],
                        (accounting, method),
                    )

    def test_log(self):
        options = [
            "small.yaml",
            *RUN,
            "--set",
            "method.name=petra",
            "--set",
            "cluster.link.bandwidth_Bps=1e4",
            "--set",
            "cluster.link.latency_s=0.1",
            "--set",
            "run.trace_actions=true",
            "--set",
            "cluster.engines=2",
        ]
        found = self.good_json("simulate", *options, "--output", "out", "--critical-path")
        self.good("train", *options, "--output", "trained", "--quiet")
        with (
            h5py.File(self.path("out/run.h5"), "r") as file,
            h5py.File(self.path("trained/run.h5"), "r") as trained,
        ):
            self.assertEqual(len(file["model/stages"]), 10)
            group = file["simulate"]
            for name in (
                "makespan_s",
                "makespan_ns",
                "time_per_microbatch_s",
                "bubble_fraction",
                "actions",
                "microbatches",
                "wall_s",
            ):
                if found[name] is not None:
                    self.assertEqual(group[name][()], found[name], name)
            for name in (
                "utilization",
                "lag_mean",
                "lag_max",
                "in_flight_max",
                "kept_max",
                "bytes_up",
                "bytes_down",
            ):
                self.assertEqual(
                    list(group[name]), [stage[name] for stage in found["stages"]], name
                )
                self.assertEqual(group[name].dims[0].label, "stage")
            self.check_critical(file, found)
            self.check_memory(file, found)
            self.check_actions(file["trace/actions"], trained["trace/actions"], found["actions"])
        self.assertIn("stage", self.good("inspect", "out"))
        self.assertEqual(self.good_json("simulate", "small.yaml", *RUN)["critical_path"], None)

    def check_critical(self, file, found):
        parts = found["critical_path"]["ns"]
        self.assertEqual(sum(parts.values()), found["makespan_ns"])
        self.assertGreater(parts["transmission"], 0)
        self.assertGreater(parts["latency"], 0)
        self.assertEqual(parts["wait"], 0)
        self.assertEqual(
            dict(zip(file["simulate/critical_ns"].attrs["kinds"], file["simulate/critical_ns"])),
            parts,
        )
        self.assertEqual(
            list(file["simulate/critical_stage_ns"]),
            [stage["critical_ns"] for stage in found["stages"]],
        )
        self.assertEqual(
            sum(file["simulate/critical_stage_ns"]), sum(parts[kind] for kind in "FBWU")
        )

    def check_memory(self, file, found):
        levels = file["memory/bytes"]
        self.assertEqual(levels.attrs["accounting"], "measured")
        self.assertEqual(list(levels.attrs["categories"]), [*HELD, "total"])
        self.assertLessEqual(levels.shape[0], 1024)
        self.assertEqual((levels.shape[0] - 1), found["makespan_ns"] // file["memory/bin_ns"][()])
        highest = levels[:].max(axis=0)
        for stage, row in zip(found["stages"], highest, strict=True):
            self.assertEqual(dict(zip([*HELD, "total"], row)), stage["peak_bytes"])

    def check_actions(self, rows, trained, count):
        table = {name: rows[name][:] for name in COLUMNS}
        for name in COLUMNS:
            self.assertEqual(rows[name].dims[0].label, "action")
            self.assertIn(rows[name].attrs["units"], ["1", "ns"])
            self.assertEqual(table[name].tolist(), trained[name][:].tolist(), name)
        self.assertEqual(len(table["stage"]), count)
        self.assertTrue((numpy.diff(table["start_ns"]) >= 0).all())
        self.assertTrue((table["end_ns"] >= table["start_ns"]).all())
        self.assertEqual(list(rows["kind"].attrs["kinds"]), ["F", "B", "W", "U", "E"])
        update = table["kind"] == 3
        self.assertTrue((table["version_written"][~update] == -1).all())
        self.assertTrue(
            (table["version_written"][update] == table["version_read"][update] + 1).all()
        )
        # Every F before its B, at each stage but the head, which has no F.
        for stage in range(1, 10):
            at = {
                (k, m): i
                for i, (s, k, m) in enumerate(
                    zip(table["stage"], table["kind"], table["microbatch"])
                )
                if s == stage
            }
            self.assertTrue(all(at[0, m] < i for (k, m), i in at.items() if k == 1))

    def test_log_without_model(self):
        options = [
            "-",
            "--set",
            "cluster.stages=700",
            "--set",
            "run.max_microbatches=8",
            "--set",
            "run.drain=true",
            "--set",
            "run.trace_actions=true",
        ]
        found = self.good_json("simulate", *options, "--output", "big")
        with h5py.File(self.path("big/run.h5"), "r") as file:
            self.assertEqual(len(file["trace/actions/stage"]), found["actions"])
            self.assertGreater(found["actions"], 2 * 4096)  # several chunks
            self.assertEqual(len(file["simulate/utilization"]), 700)
            self.assertNotIn("stages", file["model"])
            self.assertNotIn("bytes", file["memory"])
            self.assertNotIn("critical_ns", file["simulate"])

    def test_wrong_usage(self):
        self.bad(
            2,
            ["--memory", "measured, paper or strict"],
            "simulate",
            "small.yaml",
            "--memory",
            "all",
        )
        self.bad(
            2,
            ["cluster.stages", "--memory"],
            "simulate",
            "-",
            "--set",
            "cluster.stages=4",
            "--memory",
            "paper",
        )
        self.bad(2, "--critical-path", "train", "small.yaml", "--critical-path")
        self.bad(1, "file", "simulate", "small.yaml", "--output", "small.yaml")


main()
