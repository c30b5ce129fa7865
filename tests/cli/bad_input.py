# SPDX-License-Identifier: Apache-2.0
"""Wrong command lines, configs, data and weights: one line, the right exit status, and nothing is
spoilt."""

import os
import resource
import signal
import subprocess

import h5py

from program import CIFAR10_FILES, SMALL, ProgramTest, cifar_records, main, write_cifar10

USAGE = 2  # wrong command line or config
FAILED = 1  # failed while running


class CommandLine(ProgramTest):
    def test_usage(self):
        self.bad(USAGE, ["subcommand", "train", "--help"])
        self.bad(USAGE, ["'trian'", "train, init"], "trian")
        self.bad(USAGE, ["'--verbose'", "--help"], "--verbose")
        self.bad(
            USAGE, ["--frobnicate", "petra train --help"], "train", "small.yaml", "--frobnicate"
        )
        self.bad(USAGE, "-x", "train", "small.yaml", "-x")
        self.bad(USAGE, "--json=3", "train", "small.yaml", "--json=3")
        self.bad(USAGE, "--set", "train", "small.yaml", "--set")
        self.bad(USAGE, ["a.yaml", "b.yaml"], "train", "a.yaml", "b.yaml")
        self.bad(USAGE, "config", "train")
        self.bad(USAGE, "config", "inspect")
        self.bad(USAGE, "--output", "train", "small.yaml", "--output", "")
        self.bad(USAGE, "petra info takes no", "info", "small.yaml")
        self.bad(USAGE, "petra info takes no", "info", "--set", "run.seed=1")
        self.bad(USAGE, ["evaluate", "--output"], "evaluate", "small.yaml", "--output", "x")
        many = ["--set", "run.seed=1"] * 300
        self.bad(USAGE, "256", "train", "small.yaml", *many)

    def test_set(self):
        def bad_set(text, *words):
            self.bad(USAGE, ["--set", *words], "train", "small.yaml", "--set", text)

        bad_set("run.seed", "run.seed")
        bad_set("=3")
        bad_set("", "")
        bad_set("run.sead=3", "run.sead", "run.seed")
        bad_set("run=3", "run")
        bad_set("run.epochs=1.5", "run.epochs", "integer")
        bad_set("run.epochs=[", "run.epochs")
        bad_set("lr.milestones=[5, 3]", "lr.milestones", "rising")
        bad_set("lr.milestones=[5, x]", "lr.milestones")
        bad_set("run.name=a/b", "run.name")
        bad_set("data.augment=[rotate]", "data.augment", "crop")
        bad_set("data.set=mnist", "data.set", "mnist", "cifar10")
        bad_set("model.family=vgg", "model.family", "vgg", "revnet")
        bad_set("model.depth=19", "model.depth", "18, 34, 50 or 101")
        bad_set("model.shape=cone", "model.shape", "cone", "pyramid", "constant")
        bad_set("model.bottleneck=wide", "model.bottleneck", "wide", "standard", "variant")
        bad_set("method.name=petro", "method.name", "petro", "backprop")
        bad_set("optim.momentum=1", "optim.momentum")
        bad_set("optim.lr=.inf", "optim.lr")
        bad_set("optim.lr=-1", "optim.lr")

    def test_nothing_is_written_for_a_wrong_command(self):
        before = sorted(os.listdir(self.folder))
        self.bad(USAGE, "epochs", "train", "small.yaml", "--set", "run.epochs=0", "--output", "out")
        self.bad(
            FAILED,
            "nowhere",
            "train",
            "small.yaml",
            "--set",
            "data.set=cifar10",
            "--set",
            "data.path=nowhere",
            "--output",
            "out",
        )
        self.bad(
            FAILED,
            "no.h5",
            "train",
            "small.yaml",
            "--set",
            "model.weights=no.h5",
            "--output",
            "out",
        )
        self.assertEqual(sorted(os.listdir(self.folder)), before)


class Config(ProgramTest):
    def test_formats_of_stages_without_tensors(self):
        commands = [
            (name, "small.yaml")
            for name in ("simulate", "schedule", "inspect", "profile", "plan", "methods", "init")
        ]
        for command in (*commands, ("schedule", "small.yaml", "--json")):
            for key in "cluster.message.up", "cluster.message.down", "method.keep_precision":
                self.bad(
                    USAGE,
                    f"{key}=int8: int8 with cluster.stages: 4, which have no tensors",
                    *command,
                    "--set",
                    "cluster.stages=4",
                    "--set",
                    f"{key}=int8",
                )
            self.bad(
                USAGE,
                "cluster.message sets bytes, which belong to cluster.stages",
                *command,
                "--set",
                "cluster.message.forward_bytes=4",
            )

    def test_a_file_is_named_once(self):
        """A value of --set is not repeated in the message about it."""
        self.good("init", "small.yaml", "--output", "start", "--quiet")
        path = "start/weights.h5"
        for command in ("train", "small.yaml"), ("evaluate", "small.yaml"):
            error = self.bad(
                USAGE,
                f"--set model.weights={path}: weights of revnet-18 width 1",
                *command,
                "--set",
                f"model.weights={path}",
                "--set",
                "model.width=2",
            )
            self.assertEqual(error.count(path), 1)
        self.write("c.yaml", f"base: small.yaml\nmodel: {{weights: {path}, width: 2}}\n")
        error = self.bad(USAGE, f"c.yaml:2: model.weights: {path}: weights of", "train", "c.yaml")
        self.assertEqual(error.count(path), 1)
        self.write("a.schedule", "1: 1F0 1B0 1U0\n")
        error = self.bad(
            USAGE,
            "--set method.schedule=a.schedule: 1 stages",
            "simulate",
            "small.yaml",
            "--set",
            "method.schedule=a.schedule",
        )
        self.assertEqual(error.count("a.schedule"), 1)

    def bad_config(self, text, words, code=USAGE):
        self.write("bad.yaml", text)
        self.bad(code, ["bad.yaml", *words], "train", "bad.yaml")

    def test_keys_and_types(self):
        self.bad_config("run: {seed: 1}\n\nmodel:\n  widht: 3\n", ["4", "widht", "width"])
        self.bad_config("runs: {seed: 1}\n", ["1", "runs", "run"])
        for value in [
            "1.5",
            "010",
            "nan",
            '"1"',
            "true",
            "[1]",
            "{a: 1}",
            "",
            "1e3",
            "0x10",
            "99999999999999999999",
        ]:
            self.bad_config(
                f"data: {{set: shapes}}\nrun:\n  epochs: {value}\n", ["3", "run.epochs", "integer"]
            )
        self.bad_config("data: {shuffle: 1}\n", ["1", "data.shuffle", "true or false"])
        self.bad_config("optim: {lr: fast}\n", ["1", "optim.lr", "number"])
        self.bad_config("run: {seed: 1, seed: 2}\n", ["1", "seed"])
        self.bad_config("run: [1, 2]\n", ["1", "run"])
        self.bad_config("- 1\n- 2\n", ["1"])
        self.bad_config("run: {seed: 1\ndata: {}\n", ["2"])
        self.bad_config("run: {seed: 1}\n---\nrun: {seed: 2}\n", ["2"])

    def test_impossible_values(self):
        for text, words in [
            ("data: {batch: 0}", ["data.batch"]),
            ("data: {batch: -3}", ["data.batch"]),
            ("model: {width: 0}", ["model.width"]),
            ("stages: {partition: balanced, count: 11}", ["stages.count", "10"]),
            ("stages: {partition: balanced}", ["stages.count"]),
            ("stages: {partition: list, blocks: [5, 4]}", ["stages.blocks", "9", "10"]),
            ("stages: {partition: list, blocks: [5, 6]}", ["stages.blocks", "11", "10"]),
            ("stages: {partition: list}", ["stages.blocks"]),
            ("stages: {partition: list, blocks: [10, 0]}", ["stages.blocks"]),
            ("model: {classes: 5}\ndata: {set: shapes}", ["model.classes", "10"]),
            ("data: {set: shapes, limit: 7, batch: 8}", ["data.batch", "7", "8"]),
            ("data: {set: cifar100, path: nowhere}", ["model.classes", "100"]),
            ("data: {set: shapes}\ndevice: {backend: cpu, precision: fp64}", ["fp64", "ref"]),
            (
                "data: {set: shapes}\nrun: {drain: false}\nmethod: {name: backprop}",
                ["run.drain", "backprop"],
            ),
        ]:
            self.bad_config(text + "\n", words)

    def test_normalisation_of_one_value(self):
        """Images of 32 x 32 are 1 x 1 in the last group behind the stem of ImageNet: a batch norm
        of one image has one value for each channel."""
        self.write(
            "one.yaml",
            "model: {width: 2, stem: imagenet}\n"
            "data: {set: shapes, limit: 8, eval_limit: 8, batch: 1, augment: []}\n"
            "run: {epochs: 1, eval_every: 1}\n"
            "method: {name: backprop, accumulate: 2}\n"
            "lr: {warmup_epochs: 0}\n"
            "device: {threads: 1}\n",
        )
        words = [
            "one.yaml:2: data.batch: 1 image of 32 x 32 pixels per microbatch:",
            "group4.block1/bn1 (stage 8)",
            "(1, 16, 1, 1)",
            "at least 2",
        ]
        for command in (
            ["train", "one.yaml", "--output", "one"],
            ["train", "one.yaml", "--output", "one", "--set", "data.recalibrate=2"],
            ["simulate", "one.yaml"],
            ["profile", "one.yaml"],
            ["inspect", "one.yaml", "--memory", "paper"],
        ):
            self.bad(USAGE, words, *command)
        self.assertFalse(os.path.exists(self.path("one")))
        for setting, found in [
            ("model.depth=34", "bn1"),
            ("model.depth=50", "bn2"),
            ("model.family=resnet", "bn1"),
            ("cluster.replicas=2", "per microbatch and replica"),
            ("method.name=petra", "bn1"),
        ]:
            self.bad(
                USAGE,
                ["data.batch: 1 image", "group4.block1", found],
                "train",
                "one.yaml",
                "--output",
                "one",
                "--set",
                setting,
            )
        self.write(
            "grid.yaml", "config: {model: {width: 2, stem: imagenet}}\naxes: {data.batch: [2, 1]}\n"
        )
        self.bad(
            USAGE,
            ["data.batch: 1 image of 32 x 32", "group4.block1/bn1"],
            "sweep",
            "grid.yaml",
            "--output",
            "cells",
        )
        # What neither trains nor estimates statistics is done, and so is a batch of two.
        self.good("init", "one.yaml", "--output", "start", "--quiet")
        weights = ["--set", "model.weights=start/weights.h5"]
        self.good("evaluate", "one.yaml", *weights)
        self.bad(USAGE, words, "evaluate", "one.yaml", *weights, "--set", "data.recalibrate=2")
        self.good("inspect", "one.yaml")
        self.good(
            "train",
            "one.yaml",
            "--output",
            "two",
            "--quiet",
            "--set",
            "data.batch=2",
            "--set",
            "data.recalibrate=2",
            "--set",
            "data.eval_limit=5",
        )
        # A layer norm of one feature.
        self.bad_config(
            "data: {set: grammar, augment: []}\nmodel: {family: gpt, width: 1, heads: 1}\n",
            ["model.width", "1 feature", "at least 2"],
        )

    def test_not_a_config(self):
        # May be there on the next node.
        self.bad(FAILED, ["none.yaml", "No such file"], "train", "none.yaml")
        for command in ["train", "init", "evaluate"]:
            self.bad(FAILED, [self.folder, "Is a directory"], command, self.folder)
        self.bad_config(bytes(range(256)) * 8, [])
        self.bad_config(b"\x89PNG\r\n\x1a\n" + bytes(64), [])
        self.bad_config(b"run: {name: \xff}\n", [])
        self.bad_config(b"run: {seed: 1}\n\x00\n", [])
        self.bad_config("[" * 100000, [])
        self.bad_config("a: &a [*a]\n", [])
        self.bad(USAGE, "standard input", "train", "-", stdin=b"run: {epochs: none}\n")
        # As a run: a folder without run.h5, a file that is neither.
        self.bad(FAILED, "run.h5", "inspect", self.folder)
        self.write("small.h5", b"\x89HDF\r\n\x1a\n")
        self.write("garbage.h5", b"\x89HDF\r\n\x1a\n" + bytes(500))
        self.bad(FAILED, "garbage.h5", "inspect", "garbage.h5")
        self.bad(FAILED, "none.h5", "inspect", "none.h5")
        self.bad(
            USAGE, ["--set", "small.h5 is a run"], "inspect", "small.h5", "--set", "run.seed=1"
        )

    def test_empty_config_means_all_defaults(self):
        self.assertEqual(self.good_json("inspect", "-", stdin=b"")["width"], 64)


class Data(ProgramTest):
    def bad_data(self, words, code=FAILED, name="cifar10", path="cifar", **values):
        options = {"data__set": name, "data__path": path, "data__limit": 0, **values}
        return self.bad(code, words, "train", "small.yaml", *self.set_options(**options))

    def test_cifar10(self):
        self.bad_data(["cifar", "data.path", "No such file"])
        self.bad_data("data.path", code=USAGE, path='""')
        write_cifar10(self)
        for name in CIFAR10_FILES:
            path = f"cifar/{name}"
            good = self.read(path)
            os.rename(self.path(path), self.path("kept"))
            self.bad_data([path, "No such file"])
            os.mkdir(self.path(path))
            self.bad_data([path, "folder"])
            os.rmdir(self.path(path))
            self.write(path, b"")
            self.bad_data([path, "empty"])
            self.write(path, good[:-1])
            self.bad_data([path, "3073", "3072 bytes"])
            self.write(path, good[: 3073 * 5] + b"\x0a" + good[3073 * 5 + 1 :])
            self.bad_data([path, "record 5", "label 10", "0 to 9"])
            os.rename(self.path("kept"), self.path(path))
        self.good(
            "train",
            "small.yaml",
            "--quiet",
            *self.set_options(data__set="cifar10", data__path="cifar"),
        )

    def test_cifar100(self):
        values = {"name": "cifar100", "path": "c100", "model__classes": 100}
        self.bad_data(["c100", "No such file"], **values)
        train, test = cifar_records(16, 1, (20, 100)), cifar_records(8, 2, (20, 100))
        self.write("c100/train.bin", train)
        self.bad_data(["c100/test.bin", "No such file"], **values)
        self.write("c100/test.bin", test[:-2])
        self.bad_data(["c100/test.bin", "3074"], **values)
        self.write("c100/test.bin", cifar_records(8, 3))
        self.bad_data(["c100/test.bin", "cifar10"], **values)
        self.write("c100/test.bin", test)
        self.write("c100/train.bin", b"\x14" + train[1:])
        self.bad_data(["c100/train.bin", "record 0", "coarse label 20", "0 to 19"], **values)
        self.write("c100/train.bin", train[: 3074 + 1] + b"\x64" + train[3074 + 2 :])
        self.bad_data(["c100/train.bin", "record 1", "fine label 100", "0 to 99"], **values)

    def test_one_file_is_no_evaluation_set(self):
        self.write("one.bin", cifar_records(8, 1))
        self.bad_data(["one.bin", "run.eval_every"], code=USAGE, path="one.bin")


class Weights(ProgramTest):
    def setUp(self):
        super().setUp()
        self.good("init", "small.yaml", "--output", "w", "--quiet")

    def bad_weights(self, words, code=FAILED, path="w/weights.h5", **values):
        self.bad(
            code, words, "evaluate", "small.yaml", *self.set_options(model__weights=path, **values)
        )

    def test_files_that_are_no_weights(self):
        self.bad_weights(["none.h5", "No such file"], path="none.h5")
        self.bad_weights(["w"], path="w")
        self.bad_weights(["small.yaml", "HDF5"], path="small.yaml")
        self.bad_weights("model.weights", code=USAGE, path='""')
        self.write("empty.h5", b"")
        self.bad_weights("empty.h5", path="empty.h5")
        with h5py.File(self.path("other.h5"), "w") as file:
            file["x"] = [1.0]
        self.bad_weights(["other.h5", "parameters"], path="other.h5")

    def test_truncated_at_many_lengths(self):
        whole = self.read("w/weights.h5")
        for cut in range(1, 16):
            self.write("cut.h5", whole[: len(whole) * cut // 16])
            self.bad_weights("cut.h5", path="cut.h5")
        self.write("cut.h5", whole[:-1])
        self.bad_weights("cut.h5", path="cut.h5")

    def test_another_network(self):
        """A sound file that does not fit the config; one that does not say whose weights it has
        differs in its tensors."""
        for words, values in (
            ("width 2", {"model__width": 2}),
            ("revnet-34", {"model__depth": 34}),
            ("revnet-50", {"model__depth": 50}),
            ("resnet-18", {"model__family": "resnet", "method__name": "backprop"}),
            ("11 classes", {"model__classes": 11}),
            ("imagenet", {"model__stem": "imagenet"}),
        ):
            self.bad_weights(
                [
                    "model.weights",
                    "w/weights.h5: weights of revnet-18",
                    "expected those of ",
                    words,
                ],
                code=USAGE,
                **values,
            )
        with h5py.File(self.path("w/weights.h5"), "r+") as file:
            del file.attrs["model"]
        self.unseal("w/weights.h5")
        self.bad_weights(["w/weights.h5", "shape"], model__width=2)

    def test_changed_tensors(self):
        name = "parameters/02/conv1/weight"

        def changed(change, *words):
            self.write("changed.h5", self.read("w/weights.h5"))
            with h5py.File(self.path("changed.h5"), "r+") as file:
                change(file)
            self.bad_weights(["changed.h5", "damaged or truncated"], path="changed.h5")
            self.unseal("changed.h5")
            self.bad_weights(["changed.h5", "02/conv1/weight", *words], path="changed.h5")

        def put_nan(file):
            file[name][0, 0, 1, 1] = float("nan")

        def remove(file):
            del file[name]

        def as_text(file):
            del file[name]
            file[name] = "text"

        def transposed(file):
            values = file[name][:].reshape(-1)
            del file[name]
            file[name] = values

        changed(put_nan, "finite")
        changed(remove)
        changed(as_text)
        changed(transposed)

    def test_stages_do_not_matter(self):
        out = self.good_json(
            "evaluate",
            "small.yaml",
            *self.set_options(
                model__weights="w/weights.h5", stages__partition="balanced", stages__count=3
            ),
        )
        self.assertEqual(
            out,
            self.good_json(
                "evaluate", "small.yaml", *self.set_options(model__weights="w/weights.h5")
            ),
        )
        more = self.good_json(
            "evaluate",
            "small.yaml",
            *self.set_options(model__weights="w/weights.h5", data__recalibrate=2),
        )
        self.assertEqual(
            more.keys() - out.keys(),
            {"loss_recalibrated", "top1_recalibrated", "top5_recalibrated"},
        )
        self.assertEqual({key: more[key] for key in out}, out)


class Output(ProgramTest):
    def test_folders_that_cannot_be(self):
        self.write("file", "in the way")
        self.bad(
            FAILED,
            ["file", "a file with that name exists"],
            "train",
            "small.yaml",
            "--output",
            "file",
        )
        self.bad(FAILED, "file", "train", "small.yaml", "--output", "file/below")
        self.bad(FAILED, "/proc/petra", "train", "small.yaml", "--output", "/proc/petra/run")
        self.bad(FAILED, "/proc/petra", "init", "small.yaml", "--output", "/proc/petra")
        self.bad(FAILED, "small.yaml", "init", "small.yaml", "--output", "small.yaml")
        self.assertEqual(self.read("file"), b"in the way")
        self.assertEqual(self.read("small.yaml").decode(), SMALL)
        for name in ["run.h5", "config.yaml"]:
            os.makedirs(self.path(f"busy-{name}/{name}"))
            self.bad(
                FAILED, f"busy-{name}/{name}", "train", "small.yaml", "--output", f"busy-{name}"
            )
        os.makedirs(self.path("busy/weights.h5"))
        self.bad(FAILED, "busy/weights.h5", "init", "small.yaml", "--output", "busy")
        self.bad(FAILED, "busy/weights.h5", "train", "small.yaml", "--output", "busy", "--quiet")
        for folder in ["busy", "busy-run.h5", "busy-config.yaml"]:
            self.assertEqual(
                [name for name in os.listdir(self.path(folder)) if name.startswith(".")], [], folder
            )

    def readable(self, folder):
        """run.h5, config.yaml and weights.h5 of the folder can be read, and nothing else is
        there."""
        self.assertEqual(
            sorted(set(os.listdir(self.path(folder))) - {"checkpoint", "checkpoint.h5"}),
            ["config.yaml", "run.h5", "weights.h5"],
        )
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            self.assertEqual(file.attrs["schema_version"], 1)
            rows = {len(column) for column in file["train"].values()}
            self.assertEqual(len(rows), 1)
        self.good("inspect", folder)
        self.good("inspect", f"{folder}/config.yaml")
        self.good(
            "evaluate", "small.yaml", *self.set_options(model__weights=f"{folder}/weights.h5")
        )

    def begun(self, folder, before, config, weights):
        """What --overwrite and then a failure left: all of the run before or nothing of it, no half
        file."""
        left = set(os.listdir(self.path(folder)))
        if {name: self.read(f"{folder}/{name}") for name in left if name != "checkpoint"} == before:
            return True
        self.assertLessEqual(
            left, {"config.yaml", "run.h5", "weights.h5", "checkpoint.h5", "checkpoint"}
        )
        if "run.h5" in left:
            self.good("inspect", folder)
        if "config.yaml" in left:
            self.assertEqual(self.read(f"{folder}/config.yaml"), config)
        if "weights.h5" in left:
            self.good(
                "evaluate", "small.yaml", *self.set_options(model__weights=f"{folder}/weights.h5")
            )
            self.assertNotEqual(self.read(f"{folder}/weights.h5"), weights)
        return False

    @staticmethod
    def file_size_limit(size):
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def test_full_disk(self):
        self.good("train", "small.yaml", "--output", "out", "--quiet")
        size = {
            name: os.path.getsize(self.path(f"out/{name}"))
            for name in ["run.h5", "config.yaml", "weights.h5"]
        }
        weights, config = (
            self.read("out/weights.h5"),
            self.read("out/config.yaml").replace(b"  seed: 1\n", b"  seed: 2\n"),
        )
        self.assertNotEqual(config, self.read("out/config.yaml"))
        other = ["train", "small.yaml", "--set", "run.seed=2", "--output", "out", "--quiet"]
        limits = {
            0,
            1,
            100,
            size["config.yaml"] - 1,
            size["config.yaml"],
            4096,
            size["run.h5"] - 1,
            size["weights.h5"] - 1,
            size["weights.h5"] // 2,
            1 << 20,
        }
        # run.h5 has 1 MiB of room reserved behind its content while the run goes on.
        limits |= {(1 << 20) + size["run.h5"] * part // 8 for part in range(1, 9)}
        limits |= {(1 << 20) + size["run.h5"] - 1}
        failed, kept = set(), set()
        for limit in sorted(limits):
            limit_file_size = self.file_size_limit(limit)
            code, _, _ = self.run_petra(*other, preexec_fn=limit_file_size)
            if code == 0:
                self.assertGreaterEqual(limit, size["run.h5"] + (1 << 20))
                continue
            before = {
                name: self.read(f"out/{name}")
                for name in os.listdir(self.path("out"))
                if name != "checkpoint"
            }
            error = self.bad(FAILED, "out/", *other, preexec_fn=limit_file_size)
            failed |= {name for name in size if name in error}
            if self.begun("out", before, config, weights):
                kept.add(limit)
        self.assertLessEqual({0, 1, 100, 4096, size["config.yaml"]}, kept)  # the log cannot be made
        self.assertIn("run.h5", failed)
        self.good("init", "small.yaml", "--output", "start", "--quiet")
        start = self.read("start/weights.h5")
        for limit in [0, 1, 4096, len(start) - 1]:
            self.bad(
                FAILED,
                "start/weights.h5",
                "init",
                "small.yaml",
                "--output",
                "start",
                "--quiet",
                preexec_fn=self.file_size_limit(limit),
            )
            self.assertEqual(self.read("start/weights.h5"), start)

    def test_weights_too_large_for_the_disk(self):
        """A width at which weights.h5 is larger than run.h5 with the room that is reserved in
        it."""
        wide = self.set_options(
            model__width=16, run__max_microbatches=2, run__eval_every=0, method__name="backprop"
        )
        self.good("train", "small.yaml", *wide, "--output", "out", "--quiet")
        weights = self.read("out/weights.h5")
        self.assertGreater(len(weights), 1 << 20)
        limit = len(weights) - 1
        self.assertGreater(limit, os.path.getsize(self.path("out/run.h5")) + (1 << 20))
        self.bad(
            FAILED,
            "out/weights.h5: cannot reserve its ",
            "train",
            "small.yaml",
            *wide,
            "--output",
            "out",
            "--quiet",
            preexec_fn=self.file_size_limit(limit),
        )
        # Of the earlier run.
        self.assertEqual(
            sorted(os.listdir(self.path("out"))), ["config.yaml", "run.h5", "weights.h5"]
        )
        self.assertEqual(self.read("out/weights.h5"), weights)
        self.bad(
            FAILED,
            "new/weights.h5: cannot reserve its ",
            "train",
            "small.yaml",
            *wide,
            "--output",
            "new",
            "--quiet",
            preexec_fn=self.file_size_limit(limit),
        )
        self.assertEqual(os.listdir(self.path("new")), [])  # nothing was trained in vain
        self.good("train", "small.yaml", *wide, "--output", "new", "--quiet", "--resume")
        self.assertEqual(self.read("new/weights.h5"), weights)

    def test_loss_not_finite(self):
        for method in ["backprop", "petra"]:
            self.bad(
                FAILED,
                ["microbatch", "diverged", "optim.lr"],
                "train",
                "small.yaml",
                "--quiet",
                *self.set_options(
                    optim__lr="1.0e+30",
                    optim__lr_scaling="none",
                    lr__warmup_epochs=0,
                    method__name=method,
                    run__epochs=5,
                ),
                "--output",
                method,
            )
            self.assertFalse(os.path.exists(self.path(f"{method}/weights.h5")))
            with h5py.File(self.path(f"{method}/run.h5"), "r") as file:
                self.assertGreater(len(file["train/loss"]), 0)

    def test_standard_output_full_or_closed(self):
        self.good("train", "small.yaml", "--output", "out", "--quiet")
        commands = [
            ["methods"],
            ["info"],
            ["inspect", "small.yaml"],
            ["inspect", "out"],
            ["--help"],
            ["--version"],
            ["train", "--help"],
            ["train", "--help-config"],
            ["init", "small.yaml", "--output", "w"],
            ["train", "small.yaml"],
            ["evaluate", "small.yaml", "--set", "model.weights=out/weights.h5"],
        ]
        commands += [
            [*command, "--json"]
            for command in commands
            if command[0] in ("methods", "info", "inspect", "init")
        ]
        with open("/dev/full", "wb") as full:
            for command in commands:
                code, _, error = self.run_petra(*command, stdout=full)
                lines = [line for line in error.splitlines() if line.startswith("petra: ")]
                self.assertEqual((code, len(lines)), (FAILED, 1), f"{command}: {error}")
                self.assertIn("could not be written", lines[0])
        for command in commands[:2]:  # a reader that has gone
            reader, writer = os.pipe()
            os.close(reader)
            code, _, error = self.run_petra(*command, stdout=writer)
            os.close(writer)
            # As `petra methods | head` ends.
            self.assertEqual((code, error), (-signal.SIGPIPE, ""), command)
        reader, writer = os.pipe()  # of a run, which goes on
        os.close(reader)
        code, _, error = self.run_petra("train", "small.yaml", "--output", "unread", stdout=writer)
        os.close(writer)
        self.assertEqual(code, 0)
        self.assertEqual(
            [line for line in error.splitlines() if line.startswith("petra: ")],
            ["petra: warning: the reader closed standard output; the command continued to its end"],
        )
        self.readable("unread")
        code, _, error = self.run_petra(
            "methods", stdout=subprocess.DEVNULL, preexec_fn=lambda: os.close(1)
        )
        self.assertEqual((code, len(error.splitlines())), (FAILED, 1), error)
        # A run whose standard output is closed must not take the number of that descriptor for a
        # file of its own.
        code, _, error = self.run_petra(
            "train", "small.yaml", "--output", "closed", preexec_fn=lambda: os.close(1)
        )
        self.assertEqual(code, FAILED, error)
        self.readable("closed")


main()
