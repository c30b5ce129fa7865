# SPDX-License-Identifier: Apache-2.0
"""method.schedule: the order of a file runs like a built-in one, or is refused with one line."""

import os
import threading

import h5py

from program import ProgramTest, main, sample

# A network of 10 stages on a cluster whose every trait can show in a trace.
PRICED = """\
run: {name: priced, max_microbatches: 23, seed: 5}
data: {set: shapes, batch: 8, limit: 64, augment: [], workers: 1}
model: {width: 1}
method: {accumulate: 5}
cluster:
  cost:
    {model: constant, forward_s: 1.3, backward_s: 2.1, reconstruct_s: 0.7, weight_gradient_s: 0.9,
     update_s: 0.2}
  link: {latency_s: 0.01, bandwidth_Bps: 1.0e+5}
  jitter: {model: gamma, scale: 0.3}
"""
# One method of each program with an order.
METHODS = [
    "backprop",
    "reversible",
    "gpipe",
    "1f1b",
    "interleaved",
    "zb-h1",
    "petra",
    "delayed",
    "pipedream",
    "ddg",
    "fr",
]
CONSTANT_RATE = ["--set", "lr.warmup_epochs=0", "--set", "lr.milestones=[]"]
TWO = ["--set", "cluster.stages=2"]


class ScheduleFile(ProgramTest):
    def order(self, *arguments):
        """What petra schedule prints; of an order that ends too early it says so."""
        code, out, error = self.run_petra("schedule", *arguments)
        self.assertEqual(code, 0, error)
        self.assertRegex(
            error, r"\A(petra: warning: none of \d+ microbatches returns to stage 1 .*\n)?\Z"
        )
        return out

    def keep(self, name, *arguments):
        text = self.order(*arguments)
        self.write(name, text)
        return text

    def traces(self, config, *options):
        """Of the method's own order and of the file with it."""
        self.keep("own.schedule", config, *options)
        found = self.good_json("simulate", config, *options, "--trace", "a.json")
        again = self.good_json(
            "simulate",
            config,
            *[o.replace("run.drain=true", "run.drain=auto") for o in options],
            "--set",
            "method.schedule=own.schedule",
            "--trace",
            "b.json",
        )
        self.assertEqual(self.read("a.json"), self.read("b.json"), options)
        self.assertEqual(again["program"], "file")
        for key in "makespan_ns", "actions", "microbatches", "bubble_fraction", "stages":
            self.assertEqual(found[key], again[key], (key, options))
        return found

    def test_same_trace(self):
        self.write("c.yaml", PRICED)
        for method in sample(METHODS):
            for engines in "1", "2":
                options = ["--set", f"method.name={method}", "--set", f"cluster.engines={engines}"]
                if method == "interleaved":
                    options += ["--set", "method.accumulate=10"]
                self.traces("c.yaml", *options)
                self.assertIn("1E7", self.read("own.schedule").decode())

    def test_same_trace_of_ends_and_heads(self):
        self.write("c.yaml", PRICED)
        for method, more in (
            ("petra", ["run.drain=true"]),
            ("delayed", ["method.head=split", "cluster.engines=2"]),
            ("ddg", ["run.drain=true"]),
            ("fr", ["method.head=fused", "cluster.engines=2"]),
            ("petra", ["run.max_microbatches=3", "method.accumulate=1"]),
            ("gpipe", ["method.head=fused"]),
            ("interleaved", ["method.accumulate=10", "method.chunks=5"]),
        ):
            options = [
                text for value in (f"method.name={method}", *more) for text in ("--set", value)
            ]
            self.traces("c.yaml", *options)

    def test_without_a_model(self):
        for method in "petra", "1f1b", "zb-h1":
            found = self.traces(
                "-",
                "--set",
                f"method.name={method}",
                "--set",
                "cluster.stages=7",
                "--set",
                "run.max_microbatches=30",
                "--set",
                "method.accumulate=6",
            )
            self.assertEqual(len(found["stages"]), 7)

    def test_training(self):
        for method in "petra", "delayed", "interleaved", "zb-h1", "pipedream-2bw", "ddg", "fr":
            k = 10 if method == "pipedream-2bw" else 5 if method == "interleaved" else 3
            options = [
                "--set",
                f"method.name={method}",
                "--set",
                f"method.accumulate={k}",
                "--set",
                "run.max_microbatches=16",
                *CONSTANT_RATE,
            ]
            self.keep("own.schedule", "small.yaml", *options)
            self.good(
                "train", "small.yaml", *options, "--output", "a", "--trace", "a.json", "--quiet"
            )
            self.good(
                "train",
                "small.yaml",
                *options,
                "--output",
                "b",
                "--trace",
                "b.json",
                "--quiet",
                "--set",
                "method.schedule=own.schedule",
            )
            self.assertEqual(self.read("a.json"), self.read("b.json"))
            self.assertEqual(self.read("a/weights.h5"), self.read("b/weights.h5"))

    def test_inspect(self):
        self.keep(
            "own.schedule",
            "small.yaml",
            "--set",
            "run.max_microbatches=60",
            "--set",
            "method.accumulate=2",
        )
        for method in "petra", "dsp":
            found = self.good_json(
                "inspect",
                "small.yaml",
                "--set",
                "method.schedule=own.schedule",
                "--set",
                f"method.name={method}",
            )
            self.assertEqual(
                [stage["delay"] for stage in found["stages"]], [2 * (10 - j) for j in range(1, 11)]
            )
            self.assertEqual(
                [stage["lag"] for stage in found["stages"]], [10 - j for j in range(1, 11)]
            )
        self.bad(
            2,
            "--memory",
            "inspect",
            "small.yaml",
            "--set",
            "method.schedule=own.schedule",
            "--memory",
            "paper",
        )

    def test_orders_of_ones_own(self):
        # Stage 1 forwards backwards in time, stage 2 as they come; updates cover one and two
        # microbatches.
        self.write(
            "a.schedule",
            "# mine\n1: 1F2 1F0 1F1 1B2 1U2 1B0 1B1 1U1\n2: 2F2 2B2 2F0 2B0 2U0 2F1 2B1 2U1\n",
        )
        found = self.good_json(
            "simulate",
            "-",
            *TWO,
            "--set",
            "method.schedule=a.schedule",
            "--set",
            "method.name=gpipe",
        )
        # Stage 1: F 0-3, B2 at 4 (after 2B2), B0 at 7, B1 at 10.
        self.assertEqual(
            (found["makespan_s"], found["actions"], found["microbatches"]), (12, 16, 3)
        )
        self.assertEqual([stage["lag_max"] for stage in found["stages"]], [1, 0])
        self.assertEqual([stage["in_flight_max"] for stage in found["stages"]], [3, 1])
        # A microbatch below all that were in flight before.
        self.write(
            "a.schedule",
            "1: 1F5 1B5 1U5 1F3 1F4 1B3 1B4 1F0 1F1 1F2 1B2 1B1 1B0\n2: 2B5 2B3 2B4 2B0 2B1 2B2\n",
        )
        found = self.good_json("simulate", "-", *TWO, "--set", "method.schedule=a.schedule")
        self.assertEqual(found["stages"][0]["in_flight_max"], 3)
        self.assertEqual(found["stages"][0]["bytes_up"], 0)

    def test_rounds_of_the_network(self):
        # The same orders with and without: only the clock tells them apart.
        text = (
            "1: 1F0 || || 1F1 || 1B0 1U0 || 1F2 || 1B1 1U1 || || 1B2 1U2\n"
            "2: 2F0 || 2B0 2U0 || 2F1 || 2B1 2U1 || 2F2 || 2B2 2U2\n"
        )
        self.write("a.schedule", text)
        self.assertEqual(self.good("schedule", "a.schedule"), text)
        self.write("b.schedule", text.replace("|| ", ""))
        found = [
            self.good_json(
                "simulate",
                "-",
                *TWO,
                "--set",
                f"method.schedule={name}.schedule",
                "--set",
                "method.name=pipedream",
                "--critical-path",
            )
            for name in "ab"
        ]
        # Rounds of F F | B.
        self.assertEqual([one["makespan_s"] for one in found], [2 + 2 + 2 + 2 + 2 + 2 + 2, 12])
        for one in found:
            self.assertEqual(sum(one["critical_path"]["ns"].values()), one["makespan_ns"])
            self.assertEqual(one["critical_path"]["ns"]["wait"], 0)
        two = [
            "--set",
            "stages.partition=balanced",
            "--set",
            "stages.count=2",
            "--set",
            "method.accumulate=1",
            "--set",
            "method.name=pipedream",
            *CONSTANT_RATE,
        ]
        for name in "ab":
            self.good(
                "train",
                "small.yaml",
                *two,
                "--set",
                f"method.schedule={name}.schedule",
                "--output",
                name,
                "--quiet",
            )
        self.assertEqual(self.read("a/weights.h5"), self.read("b/weights.h5"))
        self.refuse(text.replace("2F0 ||", "2F0 |"), "a.schedule:2: both | and ||", *TWO)
        self.refuse(
            text.replace("2F0 ||", "2F0 || || || ||"),
            "device 1, action 3 (1B0): deadlock: it waits for 2B0, whose round comes",
            *TWO,
        )

    def test_pipes(self):
        text = self.keep("own.schedule", "small.yaml")
        self.assertEqual(self.good("schedule", "-", stdin=text.encode()), text)
        self.assertEqual(
            self.good("schedule", "-", stdin=b"method: {name: petra}\nmodel: {width: 1}\n"),
            self.good("schedule", "-", stdin=b""),
        )
        os.mkfifo(self.path("pipe"))
        for content, words in ((text, text), ("method: {name: petra}\n", "1: 1F0")):
            writer = threading.Thread(target=self.write, args=("pipe", content))
            writer.start()
            self.assertIn(words, self.good("schedule", "pipe"))
            writer.join()
        self.bad(2, "standard input:1: '1X0' is not an action", "schedule", "-", stdin=b"1: 1X0\n")
        self.bad(
            2, ["standard input:2: run.sed", "unknown"], "schedule", "-", stdin=b"\nrun: {sed: 1}\n"
        )
        self.bad(2, "standard input: longer than", "schedule", "-", stdin=b"# " + b"x" * (1 << 20))
        long = b"1: 1B0 1U0\n" + b"# nothing\n" * (1 << 18)  # longer than any config
        self.assertEqual(self.good("schedule", "-", stdin=long), "1: 1B0 1U0\n")

    def test_config_reaches_the_orders(self):
        chunks = self.good(
            "schedule",
            "-",
            *self.set_options(
                cluster__stages=8,
                method__name="interleaved",
                method__chunks=4,
                method__accumulate=2,
            ),
        )
        self.assertEqual(len(chunks.splitlines()), 2)
        self.assertIn("7F0", chunks.splitlines()[0])
        split = self.good(
            "schedule", "-", *self.set_options(cluster__stages=2, method__head="split")
        )
        self.assertTrue(split.splitlines()[1].startswith("2: 2F0 | 2F1 2B0"), split)
        self.bad(
            2,
            ["method.chunks", "interleaves"],
            "schedule",
            "-",
            *self.set_options(cluster__stages=4, method__chunks=2),
        )
        self.bad(
            2,
            "run.drain",
            "schedule",
            "-",
            *self.set_options(method__name="gpipe", run__drain="false"),
        )
        self.assertEqual(
            [
                line.split()[0]
                for line in self.good(
                    "schedule", "-", *TWO, "--gantt", "--set", "cluster.engines=2"
                ).splitlines()
            ],
            ["time", "1F", "1B", "2F", "2B"],
        )

    def refuse(self, text, words, *options, command="simulate", config="-"):
        self.write("a.schedule", text)
        self.bad(2, words, command, config, "--set", "method.schedule=a.schedule", *options)

    def test_bad_files(self):
        for text, words in (
            (b"", "a.schedule: no device"),
            (b"\x00\xff\x01garbage", "a.schedule:1: expected the line of device 1"),
            (b"1: \xff\x1b[2J", "a.schedule:1: '\\xff\\x1b[2J' is not an action"),
            (b"method: {name: petra}\n", "a.schedule:1: expected the line of device 1"),
            (
                b"1: 1F0 1B0\n2: 2B0 2B1\n",
                "device 2, action 2 (2B1): it needs 1F1, which no device does",
            ),
            (b"1: 1F0 1B0\n2: 2B0 2B0\n", "device 2, action 2 (2B0): it has been done before"),
            (b"1: 1F0 1B0 1F1 1B1\n2: 2B1 2B0\n", "device 1, action 2 (1B0): deadlock"),
            (b"1: 1F0 1B0 1E0\n2: 2B0\n", "device 1, action 3 (1E0): stage 2 has no 2E0"),
            (
                b"1: 1F0 1B0 1E0\n2: 2B0 2E0 2E0\n",
                "device 2, action 3 (2E0): it has been done before",
            ),
            (b"1: 1F0 1B0\n", "device 1, action 2 (1B0)"),
            (
                b"1: 1F0 1B0\n2: 2F0 2B0\n3: 3B0\n",
                "3 stages on 3 devices; expected the 2 stages of this config",
            ),
        ):
            self.refuse(
                text,
                words if text != b"1: 1F0 1B0\n" else "1 stages on 1 devices; expected the 2",
                *TWO,
            )
        self.bad(
            1,
            "none.schedule: cannot be read",
            "simulate",
            "-",
            *TWO,
            "--set",
            "method.schedule=none.schedule",
        )

    def test_file_against_config(self):
        good = "1: 1F0 1B0 1U0\n2: 2B0 2U0\n"
        for words, key in (
            ("run.max_microbatches", "run.max_microbatches=2"),
            ("method.head", "method.head=split"),
            ("run.drain", "run.drain=true"),
            ("method.chunks", "method.chunks=2"),
            ("method.program", "method.program=gpipe"),
            ("method.credit", "method.credit=2"),
        ):
            self.refuse(good, [words, "expected"], *TWO, "--set", key)
        self.refuse(
            "1: 1F0 1B0\n2: 2F0 2B0\n",
            "expected preset or split",
            *TWO,
            "--set",
            "method.head=fused",
        )
        self.refuse(
            "1: 1F0 2F0 3F0 4F0 4B0 3B0 2B0 1B0\n",
            "method.chunks",
            "--set",
            "cluster.stages=4",
            "--set",
            "method.chunks=2",
        )

    def test_what_cannot_be_trained(self):
        base = [
            "--set",
            "stages.partition=balanced",
            "--set",
            "stages.count=2",
            "--set",
            "run.eval_every=0",
            "--output",
            "no",
        ]
        many = [" ".join(f"{line}{m}" for m in range(17)) for line in ("1F", "1B", "2B")]
        for text, words, more in (
            (
                "1: 1F1 1F0 1B0 1B1\n2: 2B0 2B1\n",
                "action 1 (1F1): the training data is read in order; expected microbatch 0",
                [],
            ),
            ("1: 1F0 1F1 1B0 1B1 1U1\n2: 2B0 2B1\n", "(1U1): it covers 2 backwards", []),
            ("1: 1F0 1B0 1E0\n2: 2B0 2E0\n", "(1E0): an evaluation where run.eval_every is 0", []),
            (
                "1: 1F0 1B0 1E0\n2: 2B0 2E0\n",
                "(1E0): expected the evaluation of microbatch 7",
                ["run.eval_every=1"],
            ),
            (
                f"1: {many[0]} {many[1]}\n2: {many[2]}\n",
                "stage 1: no evaluation at the end of an epoch; expected 1E7",
                ["run.eval_every=1", "run.epochs=3"],
            ),
            (
                "1: 1F0 1F1 1B0 1U0 1B1 1U1 1F2 1F3 1B2 1U2\n2: 2B0 2B1 2B2\n",
                "(1U0): it covers 1 backwards",
                ["method.name=pipedream-2bw", "method.accumulate=2"],
            ),
            # Microbatch 4 is in the third window of two: it reads the weights after the first
            # update.
            (
                "1: 1F0 1F1 1F2 1F3 1F4 1B0\n2: 2B0 2B1\n",
                (
                    "action 5 (1F4): it comes after 0 updates of its stage; the double buffer"
                    " expects 1 or 2"
                ),
                ["method.name=pipedream-2bw", "method.accumulate=2", "method.head=fused"],
            ),
            (
                (
                    "1: 1F0 1F1 1F2 1F3 1B1 1B2 1U2 1F4 1B3 1B4 1U4 1B0\n"
                    "2: 2B0 2B1 2U1 2B2 2B3 2U3 2B4\n"
                ),
                (
                    "action 12 (1B0): it comes after 2 updates of its stage; the double buffer"
                    " expects 0 or 1"
                ),
                ["method.name=pipedream-2bw", "method.accumulate=2", "method.head=fused"],
            ),
            ("1: 1F99 1F0\n2: " + "2E0 " * 99 + "\n", "2E0", []),
            (
                f"1: {many[0]} {many[1]}\n2: {many[2]}\n",
                "17 microbatches, but 2 epochs have 16",
                [],
            ),
        ):
            self.refuse(
                text,
                words,
                *base,
                *[o for value in more for o in ("--set", value)],
                command="train",
                config="small.yaml",
            )
        self.assertFalse(os.path.exists(self.path("no")))


class Replay(ProgramTest):
    """A recorded run as a schedule."""

    JITTERED = [
        "run.max_microbatches=24",
        "run.epochs=2",
        "data.limit=64",
        "data.batch=4",
        "stages.partition=balanced",
        "stages.count=4",
        "run.eval_every=0",
        "cluster.engines=2",
        "cluster.jitter.model=lognormal",
        "cluster.jitter.scale=0.7",
        "cluster.stragglers.stages=[2]",
        "cluster.stragglers.factor=2",
        "run.trace_actions=true",
        "lr.warmup_epochs=0",
    ]

    def options(self, *settings):
        return [word for setting in (*self.JITTERED, *settings) for word in ("--set", setting)]

    def test_arrival_replayed(self):
        recorded = ["method.name=petra-arrival", "method.credit=7"]
        self.good(
            "train",
            "small.yaml",
            *self.options(*recorded, "run.seed=5"),
            "--output",
            "one",
            "--quiet",
        )
        # Other random draws, other costs, the order of the record: the same weights, although the
        # clock is another.
        replay = [
            "method.name=petra-arrival",
            "method.schedule=one/run.h5",
            "run.seed=5",
            "cluster.cost.model=constant",
            "cluster.cost.forward_s=3",
            "cluster.cost.backward_s=1",
        ]
        self.good("train", "small.yaml", *self.options(*replay), "--output", "two", "--quiet")
        self.assertEqual(self.read("one/weights.h5"), self.read("two/weights.h5"))
        # It is the order that makes them: without the record the same draws give others.
        other = [
            *recorded,
            "run.seed=5",
            "cluster.cost.model=constant",
            "cluster.cost.forward_s=3",
            "cluster.cost.backward_s=1",
        ]
        self.good("train", "small.yaml", *self.options(*other), "--output", "three", "--quiet")
        self.assertNotEqual(self.read("one/weights.h5"), self.read("three/weights.h5"))
        # The same record in text form.
        self.write("order.txt", self.good("schedule", "one/run.h5"))
        replay[1] = "method.schedule=order.txt"
        self.good("train", "small.yaml", *self.options(*replay), "--output", "four", "--quiet")
        self.assertEqual(self.read("one/weights.h5"), self.read("four/weights.h5"))
        self.bad(
            2,
            "method.credit",
            "train",
            "small.yaml",
            *self.options(*replay, "method.credit=7"),
            "--output",
            "five",
            "--quiet",
        )

    def test_numbers_of_a_record(self):
        self.good("train", "small.yaml", *self.options(), "--output", "one", "--quiet")
        for column, value, expected in (
            ("microbatch", 2**63 - 1, "a microbatch of 0 .. 999999999999"),
            ("microbatch", -1, "a microbatch of 0 .. 999999999999"),
            ("stage", 2**31 - 1, "a stage of 1 .. 100000"),
            ("kind", 5, "a kind of 0 .. 4"),
        ):
            with (
                h5py.File(self.path("one/run.h5"), "r") as source,
                h5py.File(self.path("other.h5"), "w") as copy,
            ):
                for name in source:
                    source.copy(name, copy)
                copy.attrs.update(source.attrs)
                copy["trace/actions"][column][3] = value
            self.bad(
                1,
                f"other.h5: /trace/actions: row 3 is not an action; expected {expected}",
                "schedule",
                "other.h5",
            )

    def test_no_record(self):
        self.good("train", "small.yaml", "--output", "plain", "--quiet")
        self.bad(
            1, "plain/run.h5: ", "simulate", "small.yaml", "--set", "method.schedule=plain/run.h5"
        )
        self.bad(
            1,
            "plain/weights.h5: ",
            "simulate",
            "small.yaml",
            "--set",
            "method.schedule=plain/weights.h5",
        )


main()
