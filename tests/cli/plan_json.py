# SPDX-License-Identifier: Apache-2.0
"""petra schedule --json: the plan of a training has what petra train does. Versions, times, rates
and windows of probes are compared with run.h5; what run.h5 does not contain is computed here from
the documents."""

import collections
import json

import h5py
import numpy

from program import SANITIZED, ProgramTest, main, sample

# Four stages: embedding, attention, MLP, head. 12 microbatches per epoch, 24 in all.
CONFIG = """\
run: {name: planned, epochs: 2, trace_actions: true}
data: {set: grammar, batch: 2, limit: 24, eval_limit: 4}
model: {family: revgpt, depth: 1, width: 4, heads: 1, context: 4}
optim: {lr: 0.01}
lr: {warmup_epochs: 1}
device: {threads: 1}
probe: {per_epoch: 2}
"""
J, N, M = 4, 12, 24
COLUMNS = [
    "kind",
    "stage",
    "microbatch",
    "device",
    "start_ns",
    "end_ns",
    "weights",
    "inverse_weights",
    "kept_until",
    "learning_rate",
    "epoch",
]
Row = collections.namedtuple("Row", COLUMNS)
ROUNDS = ("lockstep", "1f1b-async", "forward-locked")  # programs with a delay


def version(index):
    return None if index < 0 else int(index)


class Plan:
    """A plan, read as JSON, and the settings that it comes from."""

    def __init__(self, text, settings):
        self.text, self.header, self.settings = text, json.loads(text), settings
        self.rows = [Row(*row) for row in self.header["actions"]]
        self.k, self.method = self.header["accumulate"], self.header["method"]
        self.warmup = self.header["warmup_microbatches"]
        extra = settings.get("method.extra_delay", [0])
        self.extra = extra if len(extra) == J else extra * J

    def has_rounds(self):
        return self.method["program"] in ROUNDS

    def reference(self, m, j, i):
        """The version of stage i in the end-to-end network for m at stage j, by
        docs/semantics/gradient-fidelity.md."""
        if self.has_rounds() and m >= self.warmup:
            m = max(self.warmup, min(max(0, m + i - j + self.extra[j - 1] - self.extra[i - 1]), M))
        return m // self.k

    def reference_by_clock(self, m, j, i):
        at = next(n for n, row in enumerate(self.rows) if row[:3] == ("B", j, m))
        return sum(
            row.kind == "U"
            and row.stage == i
            and (n < at if i == j else row.start_ns <= self.rows[at].start_ns)
            for n, row in enumerate(self.rows)
        )

    def delays(self, j):
        """(delay in microbatches, D, E) by docs/semantics/mitigation.md."""
        program, split = self.method["program"], self.method["head"] == "split"
        if program == "arrival":
            return None, None, None
        if not self.has_rounds():
            return 0, 0, 0
        split = split and not any(self.extra)  # its tick counts as one of the extra delay
        delay = (2 * (J - j) + split if program == "lockstep" else J - j) + self.extra[j - 1]
        descent = (
            ((j - 1) // 2 if program == "1f1b-async" else j - 1) + self.extra[0] - self.extra[j - 1]
        )
        buffered = self.method["forward_weights"] == "double_buffer"
        return (
            delay,
            None if self.method["sync_period"] else 1 if buffered else delay / self.k,
            descent / self.k,
        )


class PlanJson(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("planned.yaml", CONFIG)

    @staticmethod
    def options(settings):
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def plan(self, settings):
        return Plan(
            self.good("schedule", "planned.yaml", "--json", *self.options(settings)), settings
        )

    # --- what run.h5 has ---

    def check_actions(self, plan, run):
        trace = run["trace/actions"]
        names = (
            "start_ns",
            "end_ns",
            "stage",
            "kind",
            "microbatch",
            "version_read",
            "version_written",
        )
        self.assertEqual(len(plan.rows), len(trace["stage"]))
        for row, found in zip(plan.rows, zip(*(trace[name][:] for name in names))):
            start, end, stage, kind, microbatch, read, written = map(int, found)
            self.assertEqual(row[:3] + row[4:6], ("FBWUE"[kind], stage, microbatch, start, end))
            expected = None if row.kind == "W" else version(written if row.kind == "U" else read)
            self.assertEqual(row.weights, expected, row)

    def check_losses(self, plan, run):
        """The rate of the last stage's updates, and the epochs in whose mean the losses count."""
        train = {name: run[f"train/{name}"][:] for name in ("microbatch", "lr", "loss")}
        place = {int(m): n for n, m in enumerate(train["microbatch"])}
        losses = collections.defaultdict(list)
        last = {
            row.microbatch: row.learning_rate
            for row in plan.rows
            if row.kind == "U" and row.stage == J
        }
        self.assertGreater(len(set(last.values())), 1)
        for m, rate in last.items():
            self.assertEqual(rate, train["lr"][place[m]])
        for row in plan.rows:
            loss = row.stage == J and row.kind == ("F" if plan.method["head"] == "split" else "B")
            if loss:
                losses[row.epoch].append(train["loss"][place[row.microbatch]])
            self.assertEqual(row.epoch is None, not loss and row.kind != "E")
            self.assertEqual(row.learning_rate is None, row.kind != "U")
            if row.kind == "E":
                self.assertEqual(row.epoch, row.microbatch // N)
            elif row.kind == "U":  # of the same round as an update of the last stage
                m = row.microbatch
                if plan.method["program"] == "lockstep" and m >= plan.warmup:
                    m += J - row.stage + plan.extra[row.stage - 1] - plan.extra[J - 1]
                if m in last:
                    self.assertAlmostEqual(row.learning_rate, last[m], delta=1e-15)
        self.assertEqual(sum(map(len, losses.values())), len(place))
        for epoch, mean in zip(run["epoch/epoch"][:], run["epoch/train_loss"][:]):
            self.assertAlmostEqual(numpy.mean(losses[int(epoch)]), mean, delta=1e-6)

    def check_probes(self, plan, run):
        probes = plan.header["probes"]
        self.assertEqual(
            [probe["microbatch"] for probe in probes], list(run["probe/microbatch"][:])
        )
        self.assertGreater(len(probes), 1)
        reference = (
            plan.reference_by_clock if plan.method["program"] == "arrival" else plan.reference
        )
        for probe in probes:
            self.assertEqual((probe["microbatches"], len(probe["end_to_end"])), (plan.k, plan.k))
            for m, found in enumerate(probe["end_to_end"], probe["microbatch"]):
                self.assertEqual(
                    found, [[reference(m, j, i) for i in range(1, J + 1)] for j in range(1, J + 1)]
                )

    # --- what it does not have ---

    def check_kept(self, plan):
        """Walks through the rows."""
        freeing = "W" if plan.method["split_backward"] else "B"
        read, updates, ends = {}, collections.Counter(), {}
        for n, row in enumerate(plan.rows):
            key = row.stage, row.microbatch
            fused = row.stage == J and plan.method["head"] == "fused"
            if row.kind == freeing:
                ends[key] = n
            if row.kind == "F":
                read[key] = row.weights
            inverse = None
            if row.kind == "B" and not fused:
                inverse = {"none": None, "latest": updates[row.stage], "stashed": read[key]}[
                    plan.method["invert_weights"]
                ]
            self.assertEqual(row.inverse_weights, inverse, row)
            updates[row.stage] += row.kind == "U"
        for row in plan.rows:
            begins = "B" if row.stage == J and plan.method["head"] == "fused" else "F"
            keeps = row.kind == begins != freeing
            self.assertEqual(
                row.kept_until, ends.get((row.stage, row.microbatch)) if keeps else None, row
            )
        returned = sum(row.kind == "B" and row.stage == 1 for row in plan.rows)
        self.assertEqual(plan.header["drain"], returned == M)

    def check_devices(self, plan):
        """Actions of a step start at one moment."""
        starts = {f"{row.stage}{row.kind}{row.microbatch}": row.start_ns for row in plan.rows}
        devices = plan.header["devices"]
        for number, device in enumerate(devices, 1):
            actions = [action for step in device for action in step.split("+")]
            self.assertEqual(
                sorted(actions),
                sorted(
                    f"{row.stage}{row.kind}{row.microbatch}"
                    for row in plan.rows
                    if row.device == number
                ),
            )
            for step in device:
                together = {starts[action] for action in step.split("+") if "W" not in action}
                self.assertLessEqual(len(together), plan.settings.get("cluster.engines", 1), step)
        for stage in plan.header["stage"]:
            self.assertEqual(
                {row.device for row in plan.rows if row.stage == stage["stage"]}, {stage["device"]}
            )

    def check_header(self, plan):
        header = plan.header
        self.assertEqual(
            (header["format"], header["version"], header["columns"]), ("petra-plan", 1, COLUMNS)
        )
        self.assertEqual(
            [header[key] for key in ("stages", "microbatches", "epoch_microbatches")], [J, M, N]
        )
        self.assertEqual(
            header["warmup_microbatches"],
            N * plan.settings.get("method.mitigation.sync_warmup_epochs", 0),
        )
        for stage in header["stage"]:
            self.assertEqual(
                [stage[key] for key in ("delay_microbatches", "delay_updates", "descent_updates")],
                list(plan.delays(stage["stage"])),
                stage,
            )
        lines = plan.text.splitlines()
        self.assertEqual(lines[-len(plan.rows) - 3], '"actions": [')
        self.assertEqual(
            [json.loads(line.rstrip(",")) for line in lines[-len(plan.rows) - 2 : -2]],
            header["actions"],
        )

    def check(self, settings):
        plan = self.plan(settings)
        self.good("train", "planned.yaml", "--output", "out", "--quiet", *self.options(settings))
        with h5py.File(self.path("out/run.h5"), "r") as run:
            self.check_actions(plan, run)
            self.check_losses(plan, run)
            self.check_probes(plan, run)
            self.assertEqual(plan.header["config"], run.attrs["config"])
        self.check_kept(plan)
        self.check_devices(plan)
        self.check_header(plan)
        return plan

    def check_without_model(self, plan):
        """cluster.stages has the same plan, whatever the network is."""
        bare = self.plan({**plan.settings, "cluster.stages": J}).header
        self.assertIn("stages: 4", bare.pop("config"))
        self.assertEqual(
            bare, {key: value for key, value in plan.header.items() if key != "config"}
        )

    # --- tests ---

    def test_every_method(self):
        kinds, inverses = set(), 0
        for method in sample(self.good_json("methods")["methods"]):
            buffered = method["forward_weights"] == "double_buffer"
            for k in (
                (J, 6)
                if buffered
                else (2, 4)
                if method["name"].startswith("interleaved")
                else (1, 3)
            ):
                with self.subTest(method=method["name"], k=k):
                    plan = self.check({"method.name": method["name"], "method.accumulate": k})
                    if k < 3:
                        self.check_without_model(plan)
                    kinds |= {row.kind for row in plan.rows}
                    inverses += any(row.inverse_weights for row in plan.rows)
                    if method["name"] == "dualpipe-v":
                        self.assertTrue(
                            any("+" in step for device in plan.header["devices"] for step in device)
                        )
        if not SANITIZED:
            self.assertEqual(kinds, set("FBWUE"))
            self.assertGreater(inverses, 4)

    def test_options(self):
        late = {"method.extra_delay": [3, 2, 2, 0]}
        for settings in (
            {"method.mitigation.sync_warmup_epochs": 1},
            {
                "method.mitigation.sync_warmup_epochs": 1,
                "method.name": "pipedream",
                "method.accumulate": 3,
            },
            late,
            {**late, "method.name": "pipedream"},
            {**late, "method.name": "ddg", "method.accumulate": 2},
            {
                "method.extra_delay": [2],
                "method.accumulate": 2,
                "method.mitigation.weight_prediction": "spectrain",
            },
            {"method.sync_period": 3},
            {"method.sync_period": 4, "method.accumulate": 2, "method.head": "split"},
            {"method.head": "split", "run.drain": "true"},
            {"run.drain": "true", "method.accumulate": 4},
            {"method.invert_weights": "latest", "method.backward_weights": "stashed"},
            {"cluster.engines": 2, "method.name": "zb-h1", "method.accumulate": 4},
            {"method.head": "fused", "method.name": "zb-h1", "method.accumulate": 2},
            {"cluster.link.latency_s": 0.5, "method.name": "petra-arrival", "method.accumulate": 2},
            {
                "optim.name": "adamw",
                "optim.lr": 0.001,
                "lr.schedule": "cosine",
                "lr.epochs": 3,
                "cluster.jitter.model": "gamma",
                "cluster.jitter.scale": 0.3,
            },
        ):
            with self.subTest(**settings):
                self.check_without_model(self.check({"method.name": "petra", **settings}))

    def test_order_from_a_file(self):
        options = {"method.name": "pipedream", "run.max_microbatches": M}
        self.write("own.schedule", self.good("schedule", "planned.yaml", *self.options(options)))
        own = self.plan(options).header
        found = self.plan({"method.name": "pipedream", "method.schedule": "own.schedule"}).header
        for key in "actions", "devices", "probes", "drain":
            self.assertEqual(found[key], own[key])
        self.assertEqual(
            [(stage["delay_microbatches"], stage["delay_updates"]) for stage in found["stage"]],
            [(3, None), (2, None), (1, None), (0, None)],
        )
        self.assertEqual(
            self.good_json("schedule", "own.schedule"),
            {"stages": J, "microbatches": M, "devices": own["devices"]},
        )

    def test_length(self):
        """Without a model the samples of an epoch are data.limit, even if data.set has fewer."""
        bare = {"cluster.stages": 2, "run.eval_every": 0, "probe.per_epoch": 0}
        for settings, epoch, microbatches in (
            (
                {
                    "data.set": "shapes",
                    "data.limit": 1281167,
                    "data.batch": 256,
                    "run.epochs": 90,
                    "run.max_microbatches": 10,
                },
                5004,
                10,
            ),
            ({"data.set": "text", "data.limit": 7}, 3, 6),
            ({"data.limit": 17, "cluster.replicas": 2}, 4, 8),
            (
                {"data.set": "cifar100", "data.limit": 0, "data.batch": 1000, "run.epochs": 1},
                50,
                50,
            ),
        ):
            header = self.plan({**bare, **settings}).header
            self.assertEqual(
                (header["epoch_microbatches"], header["microbatches"], header["probes"]),
                (epoch, microbatches, []),
            )

    def test_refusals(self):
        self.write(
            "odd.schedule",
            "1: 1F0 1F1 1B0 1U0 1B1 1U1\n"
            "2: 2F0 2B0 2U0 2F1 2B1 2U1\n"
            "3: 3F0 3B0 3U0 3F1 3B1 3U1\n"
            "4: 4B0 4U0 4B1 4U1\n",
        )
        for words, settings in (
            (["cluster.cost.model", "nothing to measure"], {"cluster.cost.model": "measured"}),
            (["data.batch", "an epoch has 24"], {"data.batch": 25}),
            (["run.epochs", "20000000 actions"], {"run.epochs": 1000000}),
            (
                ["data.path", "does not exist"],
                {"data.set": "text", "data.limit": 0, "data.path": "missing.txt"},
            ),
            (
                ["probe.per_epoch", "undefined"],
                {"method.schedule": "odd.schedule", "run.max_microbatches": 0, "run.eval_every": 0},
            ),
            (["lr.epochs", "cosine"], {"cluster.stages": 4, "lr.schedule": "cosine"}),
            (["optim.beta1", "sgd"], {"cluster.stages": 4, "optim.beta1": 0.8}),
            (
                ["method.mitigation", "no delay"],
                {
                    "cluster.stages": 4,
                    "method.name": "gpipe",
                    "method.mitigation.gradient_shrinking": 0.5,
                },
            ),
        ):
            with self.subTest(**settings):
                self.bad(
                    2,
                    words,
                    "schedule",
                    "planned.yaml",
                    "--json",
                    *self.options({"method.name": "petra", **settings}),
                )


if __name__ == "__main__":
    main()
