# SPDX-License-Identifier: Apache-2.0
"""The CSV of PyTorch's pipelining runtime, the devices of the stages, and joined actions."""

import os

from program import ProgramTest, main

# One flush of two microbatches on two ranks with two stages each, in a V.
V = """\
0F0,0F1,,3F0,"(3F1;3B0)OVERLAP_F_B",3B1,0I0,0I1,0W0,0W1
1F0,2F0,1F1,2F1,2B0,2B1,1B0,1B1
"""
V_TEXT = """\
1: 1F0 1F1 4F0 4F1+4B0+4W0 4B1+4W1 1B0 1B1 1W0 1W1 1U1 4U1
2: 2F0 3F0 2F1 3F1 3B0+3W0 3B1+3W1 2B0+2W0 2B1+2W1 2U1 3U1
"""
FOUR = [
    "--set",
    "cluster.stages=4",
    "--set",
    "method.name=1f1b",
    "--set",
    "method.accumulate=2",
    "--set",
    "run.max_microbatches=2",
]
PYTORCH = os.path.join(
    os.path.abspath(os.environ.get("srcdir", ".")), "experiments/26-orders-of-pytorch"
)
SYNCHRONOUS = {"gpipe", "gpipe-checkpoint", "1f1b", "zb-h1"}


def flush_of(text):
    """The F, B and W of a printed schedule, without rounds."""
    return [
        [word for word in line.split() if word[-1] == ":" or not {"U", "E", "|"} & set(word)]
        for line in text.splitlines()
    ]


class TorchCsv(ProgramTest):
    def synchronous(self):
        """The methods whose updates all come at the end of a flush, with the options of eight
        stages, k = 8."""
        for method in self.good_json("methods")["methods"]:
            options = [
                "--set",
                "cluster.stages=8",
                "--set",
                f"method.name={method['name']}",
                "--set",
                "method.accumulate=8",
                "--set",
                "method.head=split",
                "--set",
                "run.max_microbatches=8",
            ]
            code, text, error = self.run_petra("schedule", "-", *options, "--format", "torch-csv")
            if code == 0:
                yield method["name"], options, text
            else:
                self.assertRegex(
                    error,
                    r"\Apetra: (.* (?:updates between passes|has a loss at every stage), which the"
                    r" CSV of --format torch-csv cannot express; expected a synchronous method"
                    r"|program arrival has no order of its own.*)\n\Z",
                )
                self.assertFalse(method["name"] in SYNCHRONOUS)

    def test_round_trip(self):
        names = set()
        for name, options, text in self.synchronous():
            names.add(name)
            self.write("a.csv", text)
            own, read = self.good("schedule", "-", *options), self.good("schedule", "a.csv")
            self.assertEqual(flush_of(own), flush_of(read), name)
            self.assertEqual(self.good("schedule", "a.csv", "--format", "torch-csv"), text, name)
            if name == "gpipe-checkpoint":
                continue  # the CSV does not say what is stored
            options[-1] = "run.max_microbatches=20"  # two flushes and a part of one
            built_in = self.good_json("simulate", "-", *options)
            options[3] = "method.name=" + (
                "reversible"
                if name == "reversible"
                else "checkpoint"
                if name == "checkpoint"
                else "gpipe"
            )
            from_csv = self.good_json("simulate", "-", *options, "--set", "method.schedule=a.csv")
            for key in "makespan_ns", "actions", "bubble_fraction":
                self.assertEqual(built_in[key], from_csv[key], (name, key))
        self.assertLessEqual(
            SYNCHRONOUS | {"interleaved", "looped-bfs", "dualpipe-v", "backprop"}, names
        )

    def test_pairs(self):
        plain = V.replace('"', "")
        quoted = "\n".join(
            ",".join(f'"{cell}"' for cell in line.split(",")) for line in plain.split("\n") if line
        )
        for text in V, plain, V.replace("\n", "\r\n") + "\r\n", quoted:
            self.write("v.csv", text)
            self.assertEqual(self.good("schedule", "v.csv"), V_TEXT)
        self.write("v.csv", V.replace('"', ""))
        self.write("v.schedule", V_TEXT)
        self.assertEqual(self.good("schedule", "v.schedule"), V_TEXT)
        found = [
            self.good_json(
                "simulate",
                "-",
                *FOUR,
                "--set",
                "method.schedule=v.csv",
                "--set",
                f"cluster.overlap={overlap}",
            )["makespan_s"]
            for overlap in ("0", "0.5", "1")
        ]
        self.assertEqual(found[0] - found[2], 1)  # the F of the pair is hidden
        self.assertEqual(found[0] - found[1], 0.5)

    def test_busy_time_of_a_pair(self):
        """The two actions share the time of their step: a device is never busier than the clock."""
        self.write("v.csv", V.replace('"', ""))
        for overlap in "0", "0.5", "1":
            found = self.good_json(
                "simulate",
                "-",
                *FOUR,
                "--set",
                "method.schedule=v.csv",
                "--set",
                f"cluster.overlap={overlap}",
            )
            work = 2 * 4 * 3 - float(overlap)  # two microbatches at four stages, F 1, B 1, W 1
            busy = sum(stage["utilization"] for stage in found["stages"]) * found["makespan_s"]
            self.assertAlmostEqual(busy, work)
            self.assertAlmostEqual(found["bubble_fraction"], 1 - work / (2 * found["makespan_s"]))

    def test_orders_of_pytorch(self):
        """Each can be simulated, and petra's own is as fast and keeps no more."""
        for peer, method in (
            ("Interleaved1F1B", "interleaved"),
            ("LoopedBFS", "looped-bfs"),
            ("InterleavedZeroBubble", "interleaved-zb"),
            ("ZBVZeroBubble", "zb-v"),
            ("DualPipeV", "dualpipe-v"),
        ):
            for k in 8, 16:
                options = [
                    "--set",
                    "cluster.stages=8",
                    "--set",
                    f"method.accumulate={k}",
                    "--set",
                    f"run.max_microbatches={k}",
                ]
                theirs = self.good_json(
                    "simulate",
                    "-",
                    *options,
                    "--set",
                    f"method.schedule={PYTORCH}/{peer}-{k}.csv",
                    "--set",
                    "method.name=gpipe",
                )
                own = self.good_json("simulate", "-", *options, "--set", f"method.name={method}")
                self.assertLessEqual(own["makespan_ns"], theirs["makespan_ns"], (peer, k))
                kept = [
                    max(device["kept_max"] for device in found["devices"])
                    for found in (own, theirs)
                ]
                self.assertLessEqual(kept[0], kept[1], (peer, k))

    def test_training_in_orders_of_pytorch(self):
        options = [
            "--quiet",
            "--set",
            "stages.partition=balanced",
            "--set",
            "stages.count=8",
            "--set",
            "method.accumulate=8",
            "--set",
            "run.max_microbatches=12",
            "--set",
            "run.epochs=2",
        ]
        self.good("train", "small.yaml", *options, "--set", "method.name=gpipe", "--output", "a")
        for peer in (
            "Interleaved1F1B",
            "InterleavedZeroBubble",
            "ZBVZeroBubble",
            "DualPipeV",
            "LoopedBFS",
        ):
            self.good(
                "train",
                "small.yaml",
                *options,
                "--set",
                "method.name=1f1b",
                "--set",
                f"method.schedule={PYTORCH}/{peer}-8.csv",
                "--output",
                "b",
            )
            same = self.read("a/weights.h5") == self.read("b/weights.h5")
            self.assertEqual(same, peer != "LoopedBFS", peer)

    def test_bad_files(self):
        for text, line in (
            (
                "0F0,0B0,1X0\n",
                (
                    "b.csv:1: '1X0' is not an action; expected a stage, F, B, I or W, and a"
                    " microbatch, such as 0F3"
                ),
            ),
            (
                "0F0\n1F0,1B0,(1F1;1B1)OVERLAP\n",
                "b.csv:2: '(1F1;1B1)OVERLAP' is not an action; expected a pair such as",
            ),
            (
                "0F0,0B0\n1F0,(1B0;)OVERLAP_F_B\n",
                "b.csv:2: '(1B0;)OVERLAP_F_B' is not an action; expected a pair such as",
            ),
            (
                "0F0,0B0\n1F0,(1B0)OVERLAP_F_B\n",
                "b.csv:2: '(1B0)OVERLAP_F_B' is not an action; expected a pair such as",
            ),
            (
                "0F0,0F2,0B0,0B2\n1F0,1B0,1F2,1B2\n",
                "b.csv: 0F1 is missing; expected microbatches 0 to 2",
            ),
            (
                "0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n",
                "b.csv: 0B1 is missing; expected microbatches 0 to 1 at every stage",
            ),
            (
                "rank 0,0F0\n",
                (
                    "b.csv:1: expected the line of device 1, beginning with '1:', or the CSV of"
                    " PyTorch"
                ),
            ),
            ("0F0,0B0\n1B0,1F1\n", "b.csv:2: 1B0: it comes without its forward 1F0"),
            ("0F0,0B0\n1F0\n", "b.csv:1: 0B0: it needs 1B0, which no device does"),
            ("0F0,1F0,0B0\n1B0\n", "b.csv:1: 1F0: stage 1 is on rank 1"),
            ("0F0,0I0\n1F0,1I0,1W0\n", "b.csv:1: 0I0: its weight gradient 0W0 is missing"),
            ("0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0,1F0\n", "b.csv:2: 1F0: it has been done before"),
            (
                "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
                "b.csv:1: 0B0: deadlock: it waits for 1B0, but rank 1 waits at 1F1 before that",
            ),
            ("0F0,0B0\n\n1F0,1B0\n", "b.csv:2: rank 1 has no F, B, I or W"),
        ):
            self.write("b.csv", text)
            if text[0] != "r":  # as an argument it is taken for a config
                self.bad(2, line, "schedule", "b.csv")
            self.bad(2, line, "simulate", "-", *FOUR, "--set", "method.schedule=b.csv")

    def test_forms(self):
        self.write("v.csv", "\ufeff" + V.replace('"', ""))
        self.assertEqual(self.good("schedule", "v.csv"), V_TEXT)
        for options, line in (
            (["--format", "csv"], "--format: unknown format 'csv'; expected text or torch-csv"),
            (
                ["--format", "torch-csv", "--gantt"],
                "--format, --gantt and --json: expected one of them",
            ),
            (["--gantt", "--json"], "--format, --gantt and --json: expected one of them"),
        ):
            self.bad(2, line, "schedule", "v.csv", *options)
        # The F of a fused last stage is written out, also if its B is in a step.
        fused = self.good(
            "schedule",
            "-",
            "--set",
            "cluster.stages=4",
            "--set",
            "method.name=dualpipe-v",
            "--set",
            "method.accumulate=4",
            "--set",
            "method.head=fused",
            "--format",
            "torch-csv",
        )
        self.write("f.csv", fused)
        self.assertIn("3F1,(0F3;3B1)OVERLAP_F_B", fused)
        self.good("schedule", "f.csv")
        # Updates within the file.
        self.write(
            "e.schedule", "1: 1F0 1B0 1U0 1E0 1F1 1B1 1U1 1E1\n2: 2F0 2B0 2U0 2E0 2F1 2B1 2U1 2E1\n"
        )
        self.bad(
            2, "(1F1): it comes after an update", "schedule", "e.schedule", "--format", "torch-csv"
        )

    def test_missing_updates(self):
        self.write("u.schedule", "1: 1F0 1F1 1B0 1B1 1U1\n2: 2F0 2B0 2F1 2B1\n")
        self.bad(
            2,
            "u.schedule: stage 2: no update (U) after its last 2 backwards; expected one after each"
            " 2 of them",
            "train",
            "small.yaml",
            "--set",
            "stages.partition=balanced",
            "--set",
            "stages.count=2",
            "--set",
            "method.accumulate=2",
            "--set",
            "run.eval_every=0",
            "--set",
            "method.name=gpipe",
            "--set",
            "method.schedule=u.schedule",
            "--output",
            "no",
        )

    def test_length_of_a_flush(self):
        self.write("v.csv", V.replace('"', ""))
        options = ["simulate", "-", *FOUR, "--set", "method.schedule=v.csv"]
        self.bad(
            2,
            "method.accumulate=3: 3, but a flush of v.csv has 2 microbatches; expected 2",
            *options,
            "--set",
            "method.accumulate=3",
        )
        self.bad(
            2,
            "method.schedule=v.csv: 4 stages on 2 devices; expected the 6 stages",
            *options,
            "--set",
            "cluster.stages=6",
        )

    def test_training(self):
        """The CSV of two ranks trains as gpipe does, to the bit, also if the last flush is
        smaller."""
        self.write("v.csv", V.replace('"', ""))
        options = [
            "--quiet",
            "--set",
            "stages.partition=balanced",
            "--set",
            "stages.count=4",
            "--set",
            "method.accumulate=2",
            "--set",
            "run.max_microbatches=11",
            "--set",
            "run.eval_every=1",
            "--set",
            "probe.per_epoch=1",
        ]
        self.good("train", "small.yaml", *options, "--set", "method.name=gpipe", "--output", "a")
        self.good(
            "train",
            "small.yaml",
            *options,
            "--set",
            "method.name=gpipe",
            "--set",
            "method.schedule=v.csv",
            "--output",
            "b",
        )
        self.good(
            "train",
            "small.yaml",
            *options,
            "--set",
            "method.name=dualpipe-v",
            "--set",
            "cluster.overlap=0.5",
            "--output",
            "c",
        )
        for other in "b", "c":
            self.assertEqual(self.read("a/weights.h5"), self.read(f"{other}/weights.h5"))


class Devices(ProgramTest):
    def test_tables(self):
        options = [
            "simulate",
            "-",
            "--set",
            "method.name=dualpipe-v",
            "--set",
            "method.accumulate=8",
            "--set",
            "cluster.stages=8",
        ]
        preset = self.good_json(*options)
        for devices in "v", "[1, 2, 3, 4, 4, 3, 2, 1]":
            self.assertEqual(
                self.good_json(*options, "--set", f"stages.devices={devices}")["makespan_ns"],
                preset["makespan_ns"],
            )
        loop = [
            "simulate",
            "-",
            "--set",
            "method.name=interleaved",
            "--set",
            "method.accumulate=8",
            "--set",
            "cluster.stages=8",
        ]
        preset = self.good_json(*loop, "--set", "method.chunks=4")
        self.assertEqual(
            self.good_json(*loop, "--set", "stages.devices=[1,2,1,2,1,2,1,2]")["makespan_ns"],
            preset["makespan_ns"],
        )

    def test_tables_that_make_no_sense(self):
        v = ["simulate", "-", "--set", "method.name=dualpipe-v", "--set", "cluster.stages=8"]
        for devices, line in (
            ("[1,2,3,4,4,3,2]", "7 numbers for 8 stages; expected one for each stage"),
            (
                "[1,2,3,5,5,3,2,1]",
                "device 4 of 5 has no stage; expected devices from 1 without a gap",
            ),
            (
                "[1,2,3,4,1,2,3,4]",
                "this puts stage 5 on device 1, but dualpipe-v needs it on device 4",
            ),
            (
                "loop",
                (
                    "this puts stage 5 on device 1, but dualpipe-v needs it on device 4; expected"
                    " preset"
                ),
            ),
            (
                "[1,1,1,1,1,1,1,1]",
                "1 device for 8 stages, but dualpipe-v needs 2 on each; expected preset",
            ),
        ):
            self.bad(
                2, f"stages.devices={devices}: {line}", *v, "--set", f"stages.devices={devices}"
            )
        self.bad(
            2,
            "stages.devices=v: v, but 1f1b has one stage on each device; expected preset",
            "simulate",
            "-",
            "--set",
            "method.name=1f1b",
            "--set",
            "cluster.stages=8",
            "--set",
            "stages.devices=v",
        )
        self.bad(
            2,
            "stages.devices=v: this puts stage 5 on device 4, but interleaved needs it on device 1",
            "simulate",
            "-",
            "--set",
            "method.name=interleaved",
            "--set",
            "cluster.stages=8",
            "--set",
            "stages.devices=v",
        )
        self.bad(
            2,
            "method.chunks=3: 3 with method dualpipe-v, whose stages are in a V; expected 2",
            *v,
            "--set",
            "method.chunks=3",
        )

    def test_any_devices(self):
        """A file may have its stages anywhere; messages between devices that are not neighbours
        have links of their own."""
        self.write(
            "b.schedule", "1: 1F0 2F0 5F0 5B0 2B0 1B0 1U0 2U0 5U0\n2: 3F0 4F0 4B0 3B0 3U0 4U0\n"
        )
        self.good_json(
            "simulate", "-", "--set", "cluster.stages=5", "--set", "method.schedule=b.schedule"
        )
        self.write(
            "a.schedule",
            "1: 1F0 4F0 1F1 4F1 4B0 4B1 1B0 1B1 1U1 4U1\n2: 3F0 3F1 3B0 3B1 3U1\n"
            "3: 2F0 2F1 2B0 2B1 2U1\n4: 5F0 5B0 5F1 5B1 5U1\n",
        )
        options = [
            "simulate",
            "-",
            "--set",
            "cluster.stages=5",
            "--set",
            "method.name=gpipe",
            "--set",
            "method.accumulate=2",
            "--set",
            "method.schedule=a.schedule",
        ]
        found = self.good_json(*options)
        slow = self.good_json(*options, "--set", "cluster.link.latency_s=0.25")
        self.assertGreater(slow["makespan_s"], found["makespan_s"])
        self.good_json(*options, "--set", "stages.devices=[1,3,2,1,4]")
        self.bad(
            2,
            "stages.devices=[1,2,3,1,4]: stage 2 is on device 2, but a.schedule has it on device 3;"
            " expected preset",
            *options,
            "--set",
            "stages.devices=[1,2,3,1,4]",
        )


if __name__ == "__main__":
    main()
