# SPDX-License-Identifier: Apache-2.0
"""What the subcommands do and print when all is well."""

import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import termios
import time

import h5py
import numpy

from program import ProgramTest, main, sample

SUBCOMMANDS = [
    "train",
    "init",
    "evaluate",
    "inspect",
    "list",
    "compare",
    "reach",
    "export",
    "report",
    "simulate",
    "profile",
    "schedule",
    "sweep",
    "methods",
    "plan",
    "data",
    "info",
]


class Help(ProgramTest):
    def test_help(self):
        usage = self.good("--help")
        for command in SUBCOMMANDS:
            self.assertIn(f"\n  {command} ", usage)
            text = self.good(command, "--help")
            self.assertTrue(text.startswith(f"usage: petra {command} "), text)
            self.assertIn("--json", text)
        self.assertEqual(self.good("-h"), usage)
        self.assertRegex(self.good("--version"), r"^petra \d+\.\d+\.\d+\n$")

    def test_help_config(self):
        text = self.good("train", "--help-config")
        rows = [
            line
            for line in self.good("train", "--help-config-markdown").splitlines()
            if line.startswith("| `")
        ]
        self.assertGreater(len(rows), 40)
        for row in rows:
            self.assertEqual(row.count("|"), 6, row)
            self.assertIn("\n" + row.split("`")[1] + ": ", text)

    def test_methods_and_info(self):
        names = [method["name"] for method in self.good_json("methods")["methods"]]
        self.assertEqual(
            names,
            [
                "backprop",
                "reversible",
                "checkpoint",
                "gpipe",
                "gpipe-checkpoint",
                "1f1b",
                "interleaved",
                "looped-bfs",
                "zb-h1",
                "zb-h2",
                "interleaved-zb",
                "zb-v",
                "v-half",
                "v-min",
                "dualpipe-v",
                "pipedream",
                "pipedream-2bw",
                "paci",
                "ddg",
                "fr",
                "dgl",
                "delayed",
                "dsp",
                "delayed-reversible",
                "approximate-input",
                "petra",
                "petra-arrival",
            ],
        )
        text = self.good("methods").splitlines()
        self.assertEqual([line.split()[0] for line in text[1:]], names)
        info = self.good_json("info")
        self.assertEqual([backend["name"] for backend in info["backends"]], ["ref", "cpu"])
        self.assertIn(info["version"].split()[0], self.good("--version"))
        self.assertIn("HDF5", self.good("info"))


class Schedule(ProgramTest):
    def test_methods(self):
        for method in sample(self.good_json("methods")["methods"]):
            options = self.set_options(
                method__name=method["name"],
                method__accumulate=10,
                run__epochs=4,
                run__max_microbatches=30,
            )
            if method["program"] == "arrival":
                self.assertIn(
                    "has no order", self.bad(2, "arrival", "schedule", "small.yaml", *options)
                )
                continue
            text = self.good("schedule", "small.yaml", *options)
            lines = [line.split() for line in text.splitlines()]
            self.assertEqual(
                [line[0] for line in lines], [f"{d}:" for d in range(1, 10 // method["chunks"] + 1)]
            )
            found = self.good_json("schedule", "small.yaml", *options)["devices"]
            self.assertEqual(
                found, [[word for word in line[1:] if word not in ("|", "||")] for line in lines]
            )
            with open(self.path("a.schedule"), "w", encoding="utf-8") as file:
                file.write("# of " + method["name"] + "\n" + text)
            self.assertEqual(self.good("schedule", "a.schedule"), text)
            for line in self.good("schedule", "small.yaml", "--gantt", *options).splitlines():
                self.assertLessEqual(len(line), 120)

    def test_chart(self):
        with open(self.path("a.schedule"), "w", encoding="utf-8") as file:
            file.write("1: 1F0 1F1 1B0 1B1 1U1\n2: 2F0 2B0 2F1 2B1 2U1\n")
        self.assertEqual(
            self.good("schedule", "a.schedule", "--gantt").splitlines(),
            [
                "time 0              5",
                "   1 F0 F1       B0 ..    B1 ..|",
                "   2    F0 B0 .. F1 B1 ..|",
            ],
        )

    def test_chart_is_as_wide_as_the_terminal(self):
        def widest(columns, **environment):
            """The longest line on a terminal of so many columns."""
            reader, terminal = os.openpty()
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            with self.start(
                "schedule",
                "small.yaml",
                "--gantt",
                stdout=terminal,
                env={**os.environ, **environment},
            ) as process:
                os.close(terminal)
                text = b""
                try:
                    while more := os.read(reader, 4096):
                        text += more
                except OSError:  # the terminal has closed
                    pass
            os.close(reader)
            self.assertEqual(process.returncode, 0)
            return max(len(line) for line in text.decode().splitlines())

        for columns, least, most in (80, 74, 79), (50, 44, 49), (20, 34, 39), (0, 112, 119):
            self.assertIn(widest(columns), range(least, most + 1), columns)
        self.assertIn(widest(200, COLUMNS="60"), range(54, 60))
        self.assertEqual(widest(80, COLUMNS="0"), widest(80))
        self.assertEqual(widest(80, COLUMNS="wide"), widest(80))

    def test_chart_that_no_screen_holds(self):
        self.write("a.schedule", "1: " + " ".join(f"1F{m} 1B{m}" for m in range(60000)) + "\n")
        self.bad(
            2,
            ["at least 120000 units of time", "expected at most 100000 cells"],
            "schedule",
            "a.schedule",
            "--gantt",
        )
        self.bad(
            2,
            "expected at most 100000 cells",
            "schedule",
            "small.yaml",
            "--gantt",
            "--set",
            "cluster.stages=100",
            "--set",
            "run.max_microbatches=100000",
        )
        self.write("a.schedule", "1: 1F9223372036854775807 1B9223372036854775807\n")
        for options in [], ["--gantt"]:
            self.bad(
                2,
                "a.schedule:1: '1F9223372036854775807' is not an action; expected a microbatch of 0"
                " .. 999999999999",
                "schedule",
                "a.schedule",
                *options,
            )

    def test_options(self):
        self.bad(
            2,
            "petra train takes no --gantt; see petra train --help",
            "train",
            "small.yaml",
            "--gantt",
        )
        self.bad(2, "petra info takes no --set", "info", "--set", "run.seed=1")
        self.bad(2, "--json takes no value", "inspect", "small.yaml", "--json=yes")
        self.bad(2, "unknown option --jason", "inspect", "small.yaml", "--jason")
        self.bad(2, "--trace needs a value", "train", "small.yaml", "--trace")
        self.bad(
            2, "--trace: expected a file, got an empty name", "train", "small.yaml", "--trace="
        )
        self.bad(
            2,
            "--output: expected a folder, got an empty name",
            "train",
            "small.yaml",
            "--output",
            "",
        )
        self.bad(2, "no subcommand ''; expected train, init,", "")
        for command, meant in (
            (["trian"], "train"),
            (["eval"], "evaluate"),
            (["help", "simluate"], "simulate"),
            (["halp"], "help"),
            (["train", "--jsno"], "--json"),
            (["sweep", "--ouput=x"], "--output"),
            (["data", "verfy"], "verify"),
            (["--versoin"], "--version"),
            (["-hlep"], "--help"),
        ):
            self.bad(2, f"; did you mean {meant}?", *command)
        for key, value, meant in (
            ("method.name", "petar", "petra"),
            ("method.program", "1f1b_async", "1f1b-async"),
            ("method.keep", "inptu", "input"),
        ):
            self.bad(
                2,
                [
                    f"'{value}'; expected "
                    if key != "method.keep"
                    else f"'{value}' is unknown; expected ",
                    f"; did you mean {meant}?",
                ],
                "simulate",
                "small.yaml",
                "--set",
                f"{key}={value}",
            )
        for command in (
            ["xyzzy"],
            ["--xyzzy"],
            ["--"],
            ["train", "--xyzzy"],
            ["simulate", "small.yaml", "--set", "device.precision=fp16"],
        ):
            self.assertNotIn("did you mean", self.run_petra(*command)[2])
        self.assertEqual(self.good("help", "train"), self.good("train", "--help"))
        self.assertEqual(self.good("help"), self.good("--help"))

    def test_manual_of_each_subcommand(self):
        source = os.environ.get("srcdir", ".")
        with open(os.path.join(source, "docs/petra.1"), encoding="utf-8") as file:
            overview = file.read().replace("\\-", "-")
        with open(os.path.join(source, "docs/local.mk"), encoding="utf-8") as file:
            installed = set(re.findall(r"docs/petra-(\w+)\.1", file.read()))
        commands = re.findall(r"^  (\w+) +\w", self.good("--help"), re.MULTILINE)
        self.assertGreaterEqual(len(commands), 11)
        self.assertEqual(installed, set(commands), "docs/local.mk: SUBCOMMAND_MANUALS")
        for command in sample(commands):
            self.assertIn(f".BR petra-{command} (1)", overview)
            told = self.good("--version") + self.good("--help") + self.good("help", command)
            page = subprocess.run(
                ["awk", "-v", f"name={command}", "-f", os.path.join(source, "docs/manual.awk")],
                input=told,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            self.assertTrue(page.startswith(f".TH PETRA-{command.upper()} 1 "), page)
            text = self.good(command, "--help")
            options = re.findall(r"^  --([\w-]+)( [A-Z]\S*| \S+\|\S+)?  ", text, re.MULTILINE)
            self.assertIn("json", [name for name, _ in options])
            shown = re.findall(
                r"^\.TP\n\\fB--(\S+)\\fR(.*)", page.replace("\\-", "-"), re.MULTILINE
            )
            self.assertEqual([name for name, _ in shown], [name for name, _ in options])
            for (name, value), (_, styled) in zip(options, shown):
                self.assertEqual(re.sub(r"\\f[BIR]", "", styled).strip(), value.strip(), name)
            # Every word of the help is there.
            words = [
                re.sub(r"[^A-Za-z]", "", word)
                for word in text.split("options:")[0].split("\n\n", 1)[1].split()
            ]
            found = {
                re.sub(r"[^A-Za-z]", "", word) for word in re.sub(r"\\f[BIR]|\\", "", page).split()
            }
            self.assertEqual([word for word in words if word and word not in found], [])
            if shutil.which("groff"):
                run = subprocess.run(
                    ["groff", "-man", "-ww", "-z", "-Tutf8"],
                    input=page,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual((run.returncode, run.stderr), (0, ""), command)

    def test_file_without_a_key(self):
        self.write("on.yaml", "base: empty.yaml\n")
        self.write("grid.yaml", "base: empty.yaml\naxes: {optim.lr: [0.1]}\n")
        for text in "", "\n# only a comment\n", "---\n":
            self.write("empty.yaml", text)
            for command in (
                ("inspect", "empty.yaml"),
                ("simulate", "empty.yaml"),
                ("schedule", "empty.yaml"),
                ("plan", "on.yaml"),
                ("sweep", "grid.yaml"),
            ):
                self.bad(2, "empty.yaml: contains no key; expected a config", *command)
        for command in "inspect", "simulate", "schedule":
            self.good(command, "-")

    def test_one(self):
        """One head and one microbatch are singular; weights.h5 has the label that all files
        have."""
        one = self.set_options(
            data__set="grammar",
            model__family="revgpt",
            model__depth=1,
            model__width=8,
            model__heads=1,
            model__context=8,
            run__max_microbatches=1,
            run__eval_every=0,
        )
        self.assertIn(
            "RevGPT of 1 block, width 8, 1 head, context 8",
            self.good("inspect", "small.yaml", *one),
        )
        self.assertIn(", 1 microbatch of 8 windows", self.good("simulate", "small.yaml", *one))
        self.good("init", "small.yaml", *one, "--output", "start", "--quiet")
        with h5py.File(self.path("start/weights.h5"), "r") as file:
            self.assertIn(", 1 heads, ", file.attrs["model"])

    def test_missing_file(self):
        """The exit status of a file that does not exist is 1, whatever the file is."""
        self.good("train", "small.yaml", "--output", "run", "--quiet")
        self.write("on.yaml", "base: nope\n")
        self.write("grid.yaml", "base: nope\naxes: {optim.lr: [0.1]}\n")
        configs = [
            (command, "nope")
            for command in (
                "train",
                "init",
                "evaluate",
                "inspect",
                "simulate",
                "profile",
                "schedule",
                "sweep",
                "methods",
                "plan",
            )
        ]
        small = ("simulate", "small.yaml", "--set")
        for command in (
            *configs,
            ("data", "verify", "nope"),
            ("data", "convert", "nope", "--output", "a.h5"),
            ("simulate", "on.yaml"),
            ("sweep", "grid.yaml"),
            ("list", "nope"),
            ("compare", "run", "nope"),
            ("export", "nope", "--csv", "a"),
            ("reach", "nope", "--loss", "1"),
            ("reach", "run", "--loss", "9", "--window", "1", "--on", "nope"),
            ("reach", "run", "--loss", "9", "--window", "1", "--as", "nope"),
            (*small, "method.schedule=nope"),
            (*small, "cluster.cost.model=profile", "--set", "cluster.cost.profile=nope"),
            (
                "simulate",
                "small.yaml",
                *self.set_options(cluster__cost__model="constant"),
                "--fit",
                "nope",
                "--vary",
                "cluster.cost.forward_s",
            ),
            ("train", "small.yaml", "--output", "a", "--set", "model.weights=nope"),
        ):
            self.bad(1, "nope", *command)

    def test_wrong_schedule(self):
        with open(self.path("a.schedule"), "w", encoding="utf-8") as file:
            file.write("1: 1F0 1B0 1F1 1B1\n2: 2B1 2B0\n")
        self.bad(2, "device 1, action 2 (1B0): deadlock", "schedule", "a.schedule")
        self.bad(2, "no keys for --set", "schedule", "a.schedule", "--set", "run.seed=1")
        self.bad(2, "takes no --gantt", "methods", "--gantt")


class Inspect(ProgramTest):
    def test_config(self):
        found = self.good_json("inspect", "small.yaml")
        stages = found["stages"]
        self.assertEqual(len(stages), 10)
        self.assertEqual([stage["delay"] for stage in stages], [2 * (10 - j) for j in range(1, 11)])
        self.assertEqual(sum(stage["parameters"] for stage in stages), found["parameters"])
        # 10 classes, 8 channels of two streams
        self.assertEqual(stages[-1]["parameters"], 10 * 16 + 10)
        text = self.good("inspect", "small.yaml")
        self.assertIn("group4.block2", text)
        self.assertIn(str(found["parameters"]), text)
        for method, values, delay in (
            ("petra", {"method__head": "split"}, lambda j: 2 * (10 - j) + 1),
            ("pipedream", {}, lambda j: 10 - j),
            ("gpipe", {}, lambda j: 0),
            ("petra-arrival", {}, lambda j: -1),
        ):
            stages = self.good_json(
                "inspect", "small.yaml", *self.set_options(method__name=method, **values)
            )["stages"]
            self.assertEqual(
                [stage["delay"] for stage in stages], [delay(j) for j in range(1, 11)], method
            )
            self.assertEqual(
                [stage["lag"] for stage in stages], [delay(j) for j in range(1, 11)], method
            )
        # A stage of a split head keeps one input more.
        fused, split = (
            self.good_json(
                "inspect", "small.yaml", "--memory", "strict", "--set", f"method.head={head}"
            )["memory"]["rows"][0]["stages_bytes"]
            for head in ("fused", "split")
        )
        for j in range(1, 9):
            self.assertEqual(
                split[j]["input_buffer"] * 2 * (9 - j), fused[j]["input_buffer"] * (2 * (9 - j) + 1)
            )
        self.bad(
            2,
            "which needs fixed delays",
            "inspect",
            "small.yaml",
            "--memory",
            "strict",
            "--set",
            "method.name=petra-arrival",
        )
        one = self.good_json(
            "inspect",
            "small.yaml",
            *self.set_options(stages__partition="balanced", stages__count=1),
        )
        self.assertEqual([stage["delay"] for stage in one["stages"]], [0])

    def test_run(self):
        self.good("train", "small.yaml", "--output", "out", "--quiet", overwrite=False)
        folder, file = self.good("inspect", "out"), self.good("inspect", "out/run.h5")
        self.assertEqual(folder, file)
        self.assertIn("petra train small.yaml --output out --quiet", folder)
        self.assertIn(
            "network  RevNet-18, width 1, cifar stem, 10 stages\n"
            "method   petra, k = 1\n"
            "optim    sgd, lr 0.1\n"
            "data     shapes, the first 64 images\n"
            "probes   none\n"
            "state    complete\n"
            "length   2 epochs, losses of 7 microbatches\n",
            folder,
        )
        for method, delays in (
            ("petra", "26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, ..., 0"),
            ("backprop", "0 (x 14)"),
        ):
            self.assertIn(
                f"\ndelays   {delays} microbatches from F to B, by stage\n",
                self.good(
                    "train",
                    "small.yaml",
                    "--output",
                    "gpt",
                    *self.set_options(
                        data__set="grammar",
                        data__limit=8,
                        model__family="revgpt",
                        model__depth=6,
                        model__width=4,
                        model__heads=1,
                        model__context=4,
                        method__name=method,
                        optim__name="adamw",
                        optim__lr=0.001,
                        optim__weight_decay=0.2,
                        run__epochs=1,
                    ),
                ),
            )
        self.assertIn(
            "\noptim    adamw, lr 0.001, with optim.weight_decay: 0.2\n"
            "data     grammar, windows of 4 tokens, the first 8 windows\n",
            self.good("inspect", "gpt"),
        )
        self.good("simulate", "small.yaml", "--output", "simulated", "--quiet")
        self.assertIn(
            "\nlength   simulated: 160 microbatches in 611 s, 4 s per microbatch\n",
            self.good("inspect", "simulated"),
        )
        found = self.good_json("inspect", "out")
        self.assertEqual(found, self.good_json("inspect", "out/run.h5"))
        self.assertEqual(len(found["epochs"]), 2)
        self.assertEqual(found["seed"], 1)
        with h5py.File(self.path("out/run.h5"), "r") as run:
            self.assertEqual(found["epochs"][1]["eval_loss"], run["epoch/eval_loss"][1])
            self.assertEqual(found["microbatches"], len(run["train/loss"]))
        # The expanded config is the config of the same run.
        self.assertEqual(
            self.good_json("inspect", "out/config.yaml"), self.good_json("inspect", "small.yaml")
        )


class Train(ProgramTest):
    def test_config_from_a_pipe(self):
        self.good("train", "-", "--output", "piped", "--quiet", stdin=self.read("small.yaml"))
        self.good("train", "small.yaml", "--output", "file", "--quiet")
        self.assertEqual(self.read("piped/weights.h5"), self.read("file/weights.h5"))
        self.assertEqual(self.read("piped/config.yaml"), self.read("file/config.yaml"))
        self.good("train", "file/config.yaml", "--output", "again", "--quiet")
        self.assertEqual(self.read("again/weights.h5"), self.read("file/weights.h5"))

    def test_folder(self):
        self.good("train", "small.yaml", *self.set_options(run__output="a/b", run__name="c"))
        self.assertEqual(
            sorted(os.listdir(self.path("a/b/c"))), ["config.yaml", "run.h5", "weights.h5"]
        )
        self.good("train", "small.yaml", "--output", "d/")
        self.assertEqual(
            sorted(os.listdir(self.path("d"))), ["config.yaml", "run.h5", "weights.h5"]
        )

    def test_quiet(self):
        for command in [
            ["train", "small.yaml"],
            ["init", "small.yaml", "--output", "initial"],
            ["train", "small.yaml", "--set", "model.family=resnet"],
        ]:
            self.assertEqual(self.run_petra(*command, "--quiet"), (0, "", ""))

    def test_json(self):
        found = self.good_json("train", "small.yaml", "--output", "out")
        self.assertEqual((found["output"], found["method"], found["stages"]), ("out", "petra", 10))
        with h5py.File(self.path("out/run.h5"), "r") as run:
            self.assertEqual(found["losses"], len(run["train/loss"]))
            # another order of summation
            self.assertAlmostEqual(found["mean_loss"], run["train/loss"][:].mean(), delta=1e-12)
            self.assertEqual(
                [row["eval_top1"] for row in found["epochs"]], list(run["epoch/eval_top1"])
            )

    def test_lines(self):
        header, lines = self.good(
            "train",
            "small.yaml",
            "--output",
            "out",
            "--set",
            "run.epochs=10",
            "--set",
            "method.name=backprop",
            "--set",
            "method.head=split",
        ).split("\n\n")
        self.assertEqual(
            header.splitlines(),
            [
                "network  RevNet-18, width 1, cifar stem, 10 stages",
                "method   backprop, k = 1, with method.head: split",
                "delays   0, 0, 0, 0, 0, 0, 0, 0, 0, 0 microbatches from F to B, by stage",
                "length   80 microbatches of 8 images, 8 an epoch",
                (
                    "rate     0.003125 (optim.lr 0.1 x images per update / 256), reached after 5"
                    " epochs"
                ),
                (
                    "writes   out/{config.yaml,run.h5,weights.h5}; during the run checkpoint.h5 and"
                    " checkpoint/"
                ),
                (
                    "time     unknown (for an estimate run petra profile, then set"
                    " cluster.cost.model: profile)"
                ),
                header.splitlines()[7],
                (
                    "disk     weights.h5:"
                    f" {4e-6 * self.good_json('inspect', 'small.yaml')['parameters']:.3f} MB of"
                    " parameters; run.h5: 52 bytes per microbatch; a checkpoint: less than the"
                    " memory; MB: 10^6 bytes"
                ),
            ],
        )
        with h5py.File(self.path("out/run.h5"), "r") as run:
            self.assertEqual(
                header.splitlines()[7],
                f"memory   {1e-6 * run['memory/total_peak_bytes'][:].sum():.3f} MB in tensors of "
                "the stages (counted by petra simulate)",
            )
        lines = lines.splitlines()
        self.assertEqual(len(lines), 11)
        for epoch, line in enumerate(lines[:10], 1):
            self.assertTrue(line.startswith(f"epoch {epoch:2d}/10  train loss "), line)
            self.assertEqual(
                [line.find(word) for word in ("eval loss", "lr ", "images/s")],
                [lines[0].find(word) for word in ("eval loss", "lr ", "images/s")],
            )
        self.assertIn("80 microbatches with backprop on 10 stages; written: out/", lines[10])

    def test_header_of_what_takes_more(self):
        """Memory is that of all replicas; actions and probes take room in run.h5 beside the
        losses."""

        def lines(*sets):
            text = self.good(
                "inspect", "small.yaml", *(word for value in sets for word in ("--set", value))
            ).splitlines()
            return text[-2].split()[1], text[-1]

        one, _ = lines("data.batch=4", "run.trace_actions=true")
        two, disk = lines("data.batch=4", "run.trace_actions=true", "cluster.replicas=2")
        self.assertAlmostEqual(float(two), 2 * float(one), delta=0.0011)  # both are rounded
        self.assertIn("run.h5: 52 bytes per microbatch plus actions; a checkpoint", disk)
        self.assertIn(
            " plus actions and probes; a checkpoint",
            lines("run.trace_actions=true", "probe.per_epoch=1")[1],
        )

    def test_memory_of_what_is_held(self):
        """Of a whole flush, however large, and of a run that ends before the pipeline is full; what
        grows with the run is not told."""
        for sets in (
            ["method.name=gpipe", "method.accumulate=200"],
            ["method.name=petra", "run.max_microbatches=4"],
            ["method.name=petra-arrival", "run.max_microbatches=50"],
        ):
            options = [
                word
                for value in ("data.batch=1", "data.limit=200", "run.eval_every=0", *sets)
                for word in ("--set", value)
            ]
            text = self.good("train", "small.yaml", *options, "--output", "out")
            with h5py.File(self.path("out/run.h5"), "r") as run:
                line = (
                    f"\nmemory   {1e-6 * run['memory/total_peak_bytes'][:].sum():.3f} MB in tensors"
                    " of the stages"
                )
            self.assertIn(line, text)
            if "method.name=gpipe" not in sets:
                self.assertIn(line, self.good("inspect", "small.yaml", *options))
        self.assertIn(
            "\nmemory   unknown: forward runs ahead of backward",
            self.good("inspect", "small.yaml", "--set", "method.name=petra-arrival"),
        )

    def test_shorter_than_an_epoch(self):
        few = (
            self.good(
                "train",
                "small.yaml",
                "--set",
                "run.max_microbatches=3",
                "--set",
                "method.name=backprop",
                "--output",
                "few",
            )
            .split("\n\n")[1]
            .splitlines()
        )
        self.assertEqual(len(few), 1)
        with h5py.File(self.path("few/run.h5"), "r") as run:
            self.assertIn(f"mean loss {run['train/loss'][:].mean():.4f} over 3;", few[0])
        none = self.good("train", "small.yaml", "--set", "run.max_microbatches=3")
        self.assertIn("too few to produce a loss", none)

    def test_no_update(self):
        """A run too short for an update says so, and leaves the weights as they were; one that
        makes a single update does not."""

        def of(command, method, k, *more):
            code, out, error = self.run_petra(
                command,
                "small.yaml",
                *self.set_options(
                    data__limit=64,
                    run__max_microbatches=8,
                    run__eval_every=0,
                    method__name=method,
                    method__accumulate=k,
                ),
                *more,
            )
            self.assertEqual(code, 0, error)
            return error

        self.good("init", "small.yaml", "--output", "before", "--quiet")
        for method, enough in ("backprop", 8), ("gpipe", 8), ("petra-arrival", 8):
            line = (
                f"warning: no stage makes an update in this run: an update takes {enough + 1}"
                " microbatches (method.accumulate), the run has 8"
            )
            for command, more in ("train", ["--output", f"of-{method}"]), ("simulate", []):
                self.assertIn(line, of(command, method, enough + 1, *more), (command, method))
            with (
                h5py.File(self.path(f"of-{method}/weights.h5")) as found,
                h5py.File(self.path("before/weights.h5")) as before,
            ):
                self.assertTrue(
                    (
                        found["parameters/10/fc/weight"][:] == before["parameters/10/fc/weight"][:]
                    ).all(),
                    method,
                )
            self.assertNotIn("no stage", of("simulate", method, enough), method)
        # Four stages, of which the last one sees five of the eight microbatches.
        few = self.set_options(stages__partition="balanced", stages__count=4)
        self.assertIn(
            "has 8 (run.epochs, run.max_microbatches), and ends while they are in flight"
            " (run.drain)",
            of("simulate", "petra", 6, *few),
        )
        self.assertEqual(
            [
                of("simulate", "petra", 5, *few),
                of("simulate", "petra", 8, *few, "--set", "run.drain=true"),
            ],
            ["", ""],
        )

    def test_evaluate_equals_the_last_row(self):
        for backend, precision in [("cpu", "fp32"), ("ref", "fp32"), ("ref", "fp64")]:
            values = self.set_options(
                device__backend=backend,
                device__precision=precision,
                method__mitigation__spike_compensation="true",
            )
            self.good("train", "small.yaml", *values, "--output", "out", "--quiet")
            found = self.good_json(
                "evaluate", "small.yaml", *values, "--set", "model.weights=out/weights.h5"
            )
            with h5py.File(self.path("out/run.h5"), "r") as run:
                for name in ["loss", "top1", "top5"]:
                    self.assertEqual(
                        found[name], run[f"epoch/eval_{name}"][-1], (backend, precision, name)
                    )
            self.assertEqual(found["images"], 32)
        text = self.good("evaluate", "small.yaml", *values, "--set", "model.weights=out/weights.h5")
        self.assertIn(f"top-1 {100 * found['top1']:.2f} %", text)


class Estimate(ProgramTest):
    def test_time_from_a_profile(self):
        self.good(
            "profile", "small.yaml", "--output", "p.h5", "--quiet", "--set", "profile.repetitions=1"
        )
        sets = self.set_options(
            cluster__cost__model="profile", cluster__cost__profile="p.h5", run__max_microbatches=3
        )
        with h5py.File(self.path("p.h5"), "r") as file:
            parts = {
                part: file["stages"][part][:]
                for part in ("forward", "backward", "reconstruct", "update")
            }
        seconds = sum(parts["forward"] + parts["backward"] + parts["update"]) + sum(
            parts["reconstruct"][:-1]
        )
        line = next(
            line
            for line in self.good("inspect", "small.yaml", *sets).splitlines()
            if line.startswith("time ")
        )
        self.assertEqual(
            line.split(" s per microbatch")[1],
            ", from p.h5: all stages in sequence, without data loading and evaluation",
        )
        # Three digits.
        self.assertAlmostEqual(float(line.split()[1]), seconds, delta=0.006 * seconds)
        train = self.good("train", "small.yaml", *sets, "--output", "out")
        self.assertRegex(
            train,
            r"\ntime     \d+:\d\d:\d\d \("
            + re.escape(line.split()[1])
            + " s per microbatch\\), from p.h5",
        )

    def test_time_of_a_run_that_goes_on(self):
        """Of what is left, not of all."""
        self.good(
            "profile", "small.yaml", "--output", "p.h5", "--quiet", "--set", "profile.repetitions=1"
        )
        with h5py.File(self.path("p.h5"), "r+") as file:
            for part in ("forward", "backward", "weight_gradient", "reconstruct", "update"):
                file["stages"][part][:] = 0
            file["stages/forward"][0] = 60
        with open(self.path("p.h5"), "r+b") as file:  # without its seal
            file.write(bytes(512))
        sets = self.set_options(
            cluster__cost__model="profile",
            cluster__cost__profile="p.h5",
            run__keep_checkpoint="true",
            method__name="backprop",
        )
        first = self.good("train", "small.yaml", *sets, "--output", "out", "--set", "run.epochs=2")
        self.assertIn("\ntime     0:16:00 (60 s per microbatch), from p.h5", first)
        more = self.good(
            "train", "small.yaml", *sets, "--output", "out", "--set", "run.epochs=4", "--resume"
        )
        self.assertIn("resumed from out/checkpoint.h5: microbatch 8 (epoch 2)", more)
        self.assertIn(
            "\ntime     0:24:00 for the remaining 24 microbatches (60 s per microbatch), from p.h5",
            more,
        )


class Keep(ProgramTest):
    """run.keep: best."""

    def train(self, folder, *arguments, **values):
        sets = self.set_options(
            run__epochs=4,
            method__name="backprop",
            optim__lr_scaling="none",
            lr__warmup_epochs=0,
            optim__lr=0.5,
            **values,
        )
        self.good("train", "small.yaml", *sets, "--output", folder, "--quiet", *arguments)
        return sets

    def rows(self, folder):
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as run:
            return (
                list(run["epoch/eval_top1"]),
                list(run["epoch/eval_loss"]),
                run["train/loss"][:].tobytes(),
            )

    def test_best(self):
        self.train("last")
        sets = self.train("best", run__keep="best")
        top1, loss, _ = rows = self.rows("best")
        self.assertEqual(rows, self.rows("last"))
        best = top1.index(max(top1))
        self.assertEqual(
            sorted(os.listdir(self.path("best"))), ["config.yaml", "run.h5", "weights.h5"]
        )
        found = self.good_json(
            "evaluate", "small.yaml", *sets, "--set", "model.weights=best/weights.h5"
        )
        self.assertEqual(
            (found["epoch"], found["top1"], found["loss"]), (best + 1, top1[best], loss[best])
        )
        self.assertIn(
            f" (epoch {best + 1}, the best of its run): 32 images",
            self.good("evaluate", "small.yaml", "--set", "model.weights=best/weights.h5"),
        )
        self.assertIn(
            f"\nweights  of the best evaluation: epoch {best + 1}, top-1 {100 * top1[best]:.2f} %"
            " (weights.h5)\n",
            self.good("inspect", "best"),
        )
        last = self.good_json(
            "evaluate", "small.yaml", *sets, "--set", "model.weights=last/weights.h5"
        )
        self.assertEqual((last["epoch"], last["top1"], last["loss"]), (None, top1[-1], loss[-1]))
        self.assertNotIn("weights  ", self.good("inspect", "last"))

    def test_best_of_tokens(self):
        """By the loss, which rises from epoch to epoch here; the highest accuracy is that of
        another one."""
        sets = self.train(
            "best",
            "--set",
            "optim.lr=0.1",
            run__keep="best",
            run__seed=2,
            data__set="grammar",
            model__family="revgpt",
            model__depth=1,
            model__width=4,
            model__heads=1,
            model__context=4,
        )
        top1, loss, _ = self.rows("best")
        best = loss.index(min(loss))
        self.assertNotEqual(best, top1.index(max(top1)))
        found = self.good_json(
            "evaluate", "small.yaml", *sets, "--set", "model.weights=best/weights.h5"
        )
        self.assertEqual((found["epoch"], found["loss"]), (best + 1, loss[best]))
        self.assertIn(
            f"\nweights  of the best evaluation: epoch {best + 1}, loss {loss[best]:.4f}"
            " (weights.h5)\n",
            self.good("inspect", "best"),
        )

    def test_resume(self):
        whole, parts = {"run__keep": "best"}, {"run__keep": "best", "run__keep_checkpoint": "true"}
        self.train("whole", **whole)
        self.train("parts", "--set", "run.epochs=2", **parts)
        self.train("parts", "--resume", **parts)
        self.assertEqual(self.read("parts/weights.h5"), self.read("whole/weights.h5"))
        self.assertEqual(self.rows("parts"), self.rows("whole"))
        self.bad(
            2,
            "parts/run.h5: was written with run.keep: best, but the config has last",
            "train",
            "small.yaml",
            "--resume",
            "--output",
            "parts",
            *self.set_options(run__epochs=5, run__keep="last"),
        )

    def test_resume_without_the_best_weights(self):
        """Told before anything of the folder is changed; the file put back, the run goes on."""
        values = {"run__keep": "best", "run__keep_checkpoint": "true"}
        self.train("whole", run__keep="best")
        sets = self.train("out", "--set", "run.epochs=3", **values)
        os.rename(self.path("out/weights.h5"), self.path("elsewhere.h5"))
        before = self.read("out/run.h5")
        self.bad(
            1,
            "out/best.h5: neither this file nor out/weights.h5 exists, but 2 epochs of the run are"
            " done",
            "train",
            "small.yaml",
            *sets,
            "--output",
            "out",
            "--resume",
        )
        self.assertEqual(self.read("out/run.h5"), before)
        os.rename(self.path("elsewhere.h5"), self.path("out/weights.h5"))
        self.train("out", "--resume", **values)
        self.assertEqual(self.read("out/weights.h5"), self.read("whole/weights.h5"))

    def test_what_cannot_be_gone_on_with_stays(self):
        """A run that is to become shorter than its best weights is refused before anything of it is
        changed."""
        sets = self.train("out", run__keep="best", run__keep_checkpoint="true")
        self.unseal("out/weights.h5")
        with h5py.File(self.path("out/weights.h5"), "r+") as file:
            file.attrs["epoch"] = numpy.int32(4)
        before = {
            name: self.read(f"out/{name}")
            for name in ("run.h5", "weights.h5", "checkpoint.h5", "config.yaml")
        }
        self.bad(
            2,
            "out/weights.h5 has the weights of epoch 4, but the run ends after epoch 3",
            "train",
            "small.yaml",
            *sets,
            "--output",
            "out",
            "--resume",
            "--set",
            "run.max_microbatches=31",
        )
        self.assertEqual({name: self.read(f"out/{name}") for name in before}, before)

    def test_refusals(self):
        best = ["train", "small.yaml", "--output", "out", "--set", "run.keep=best"]
        self.bad(
            2,
            "run.keep=best: best in a run without an evaluation",
            *best,
            "--set",
            "run.eval_every=0",
        )
        self.bad(2, "(0 whole epochs, run.eval_every: 1)", *best, "--set", "run.max_microbatches=7")
        self.write("out/best.h5", b"of a run that was killed")
        self.good(*best, "--quiet")
        self.assertEqual(
            sorted(os.listdir(self.path("out"))), ["config.yaml", "run.h5", "weights.h5"]
        )

    def test_a_folder_that_is_in_use(self):
        os.mkdir(self.path("out"))
        folder = os.open(self.path("out"), os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        self.bad(
            1,
            "out: another run is writing to this folder; expected a folder of its own",
            "train",
            "small.yaml",
            "--output",
            "out",
        )
        self.assertEqual(os.listdir(self.path("out")), [])


class Launched(ProgramTest):
    """Launchers say by variables how many processes they started: none of them may write as though
    it were the only one."""

    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0"}

    def petra(self, variables, *arguments):
        launchers = ("OMPI_", "PMI", "SLURM_", "PALS_", "MV2_", "MPI_LOCAL")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(launchers) or name.startswith("OMPI_ALLOW")
        }
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if "ASAN_OPTIONS" in os.environ:  # Open MPI leaves memory behind
            allowed["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"
        return self.run_petra(*arguments, env={**kept, **allowed, **variables})

    def test_one_of_several(self):
        self.write("grid.yaml", b"base: small.yaml\nseeds: [1, 2]\n")
        commands = [
            ["train", "small.yaml", "--output", "out"],
            ["train", "small.yaml", "--set", "run.mode=execute", "--output", "out"],
            ["profile", "small.yaml", "--output", "out"],
            [
                "train",
                "small.yaml",
                "--set",
                "run.mode=execute",
                "--set",
                "cluster.stages=4",
                "--output",
                "out",
            ],
            ["init", "small.yaml", "--output", "out"],
            ["simulate", "small.yaml", "--output", "out"],
            ["sweep", "grid.yaml", "--output", "out"],
        ]
        # Each command with one launcher, and each launcher with a command that is for several
        # processes.
        launchers = [
            {"PMI_SIZE": "2", "PMI_RANK": "0"},
            self.step,
            {**self.step, "PMIX_RANK": "0"},
            {"OMPI_COMM_WORLD_SIZE": "2"},
            {"MPI_LOCALNRANKS": "2"},
            {"PMIX_RANK": "1"},
            {"PALS_SIZE": "2"},
            {"MV2_COMM_WORLD_SIZE": "2", "SLURM_STEP_NUM_TASKS": "1"},
        ]
        cases = [(self.step, command) for command in commands] + [
            (launcher, commands[1]) for launcher in launchers[:1] + launchers[2:]
        ]
        for variables, command in cases:
            status, out, error = self.petra(variables, *command)
            self.assertEqual(
                (status, out, error.count("\n")), (2, "", 1), (variables, command, error)
            )
            self.assertIn(
                "launched 2 processes" if "srun" in error[:20] else "2 processes were launched",
                error,
            )
            self.assertFalse(os.path.exists(self.path("out")), (variables, command))
        self.assertIn(
            "expected run.mode: execute for one run on all of them",
            self.petra(self.step, *commands[0])[2],
        )

    def test_one_alone(self):
        """A batch script sees the number of its job's tasks; a task's shell may be of a step of
        one; a cell is a run of its own."""
        self.write("grid.yaml", b"base: small.yaml\nseeds: [1, 2]\n")
        for number, variables in enumerate(
            [
                {"SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_PROCID": "0"},
                {**self.step, "SLURM_STEP_NUM_TASKS": "1"},
                {**self.step, "SLURM_STEP_ID": "4294967290"},
                {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
            ]
        ):
            self.assertEqual(
                self.petra(variables, "train", "small.yaml", "--quiet", "--output", f"out{number}"),
                (0, "", ""),
                variables,
            )
        self.assertEqual(
            self.petra(
                self.step, "sweep", "grid.yaml", "--quiet", "--output", "cells", "--cell", "2"
            ),
            (0, "", ""),
        )
        self.assertEqual(self.petra(self.step, "simulate", "small.yaml", "--quiet")[0], 0)


class WhileRunning(ProgramTest):
    """A run in the background that would last for hours."""

    def begin(self):
        process = self.start(
            "train",
            "small.yaml",
            "--output",
            "out",
            "--set",
            "run.epochs=100000",
            "--set",
            "run.eval_every=0",
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def rows(self):
        with h5py.File(self.path("out/run.h5"), "r") as run:
            columns = {len(column) for column in run["train"].values()}
            self.assertEqual(len(run["model/stages"]), 10)
        return min(columns)

    def test_lines_come_at_once_and_the_log_survives_a_kill(self):
        process = self.begin()
        while process.stdout.readline().strip():  # the header
            pass
        for epoch in range(1, 4):  # into a pipe, long before a buffer of 4 KiB is full
            self.assertTrue(
                process.stdout.readline().decode().startswith(f"epoch {epoch:6d}/100000  ")
            )
        deadline = time.monotonic() + 60
        rows = 0
        while rows == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
            os.set_blocking(process.stdout.fileno(), False)
            process.stdout.read()
            try:
                rows = self.rows()
            except OSError:
                continue  # opened in the middle of a flush
        self.assertGreater(rows, 0)
        self.assertIsNone(process.poll())
        self.assertIn("created", self.good("inspect", "out"))
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertGreaterEqual(self.rows(), rows)
        found = self.good_json("inspect", "out")
        self.assertGreaterEqual(found["microbatches"], rows)
        self.assertFalse(os.path.exists(self.path("out/weights.h5")))
        # The folder can be used again.
        self.good("train", "small.yaml", "--output", "out", "--quiet")
        self.assertEqual(
            sorted(os.listdir(self.path("out"))), ["config.yaml", "run.h5", "weights.h5"]
        )


main()
