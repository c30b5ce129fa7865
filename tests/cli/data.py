# SPDX-License-Identifier: Apache-2.0
"""petra data, and data sets in HDF5: what petra writes and what others write, whole and wrong;
ImageNet-32's batches."""

import os
import pickle
import re
import resource
import shutil
import subprocess
import sys

import h5py
import numpy

from program import CIFAR10_FILES, ProgramTest, cifar_records, main, write_cifar10

SCRIPT = os.path.abspath(
    os.path.join(os.environ.get("srcdir", "."), "scripts/downsampled_imagenet_to_hdf5")
)
CONFIG = """\
run: {name: data, epochs: 2}
data: {set: hdf5, path: a.h5, batch: 4, workers: 2}
model: {width: 1}
device: {threads: 1}
"""


class DataTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("hdf5.yaml", CONFIG)

    def make(self, name="a.h5", attributes=None, **parts):
        """An HDF5 data set as anyone would write it; train_images=None leaves it out."""
        stream = numpy.random.default_rng(1)
        content = {
            "train/images": stream.integers(0, 256, (13, 3, 32, 32), "u1"),
            "train/labels": numpy.arange(13) % 7,
            "eval/images": stream.integers(0, 256, (5, 3, 32, 32), "u1"),
            "eval/labels": numpy.arange(5) % 7,
        }
        content.update({key.replace("_", "/"): value for key, value in parts.items()})
        head = {
            "schema_version": 1,
            "classes": 7,
            "mean": [0.5, 0.4, 0.3],
            "deviation": [0.2, 0.2, 0.25],
            **(attributes or {}),
        }
        with h5py.File(self.path(name), "w") as file:
            for key, value in content.items():
                if isinstance(value, dict):
                    file.create_dataset(key, **value)
                elif value is not None:
                    file[key] = value
            for key, value in head.items():
                if value is not None:
                    file.attrs[key] = value
        return content

    def weights(self, name, *options):
        self.good("train", *options, "--output", name, "--quiet")
        return self.read(f"{name}/weights.h5")


class Usage(DataTest):
    def test_usage(self):
        self.assertIn("\n  data ", self.good("--help"))
        text = self.good("data", "--help")
        for word in ["verify", "convert", "generate", "--output FILE", "--json"]:
            self.assertIn(word, text)
        self.bad(2, "no action; expected verify, convert or generate", "data")
        self.bad(2, "no action 'check'", "data", "check", "small.yaml")
        self.bad(2, "needs a config file", "data", "verify")
        self.bad(2, "needs --output FILE", "data", "convert", "small.yaml")
        self.bad(2, "needs --output FILE", "data", "generate")
        self.bad(2, "takes no --output", "data", "verify", "small.yaml", "--output", "a.h5")
        self.bad(2, "expected one file", "data", "verify", "small.yaml", "other.yaml")
        self.bad(2, "takes no --gantt", "data", "verify", "small.yaml", "--gantt")


class Convert(DataTest):
    def test_cifar10_and_back(self):
        """Training is the same bit for bit, wherever the images lie: crop, flip and normalisation
        do not change."""
        write_cifar10(self)
        cifar = [
            "small.yaml",
            *self.set_options(
                data__set="cifar10", data__path="cifar", data__augment="[crop,flip]", data__limit=0
            ),
        ]
        found = self.good_json("data", "convert", *cifar, "--output", "a.h5")
        self.assertEqual(
            found,
            {"output": "a.h5", "train": 40, "eval": 8, "height": 32, "width": 32, "classes": 10},
        )
        expected = self.weights("one", *cifar)
        hdf5 = [
            "small.yaml",
            *self.set_options(
                data__set="hdf5", data__path="a.h5", data__augment="[crop,flip]", data__limit=0
            ),
        ]
        self.assertEqual(self.weights("two", *hdf5), expected)
        self.assertEqual(self.weights("three", *hdf5, "--set", "data.workers=4"), expected)
        with h5py.File(self.path("a.h5")) as file:
            records = b"".join(self.read(f"cifar/{name}") for name in CIFAR10_FILES[:5])
            records = numpy.frombuffer(records, "u1").reshape(-1, 3073)
            numpy.testing.assert_array_equal(
                file["train/images"][:].reshape(-1, 3072), records[:, 1:]
            )
            numpy.testing.assert_array_equal(file["train/labels"][:], records[:, 0])
            self.assertEqual(file["train/images"].attrs["units"], "1")
            self.assertEqual(
                [d.label for d in file["eval/images"].dims], ["image", "channel", "row", "column"]
            )
            self.assertEqual(
                (file.attrs["source"], file.attrs["schema_version"]), ("cifar10: cifar", 1)
            )
        # An HDF5 set is a set like the others.
        self.good("data", "convert", *hdf5, "--output", "b.h5", "--quiet")
        self.assertEqual(self.weights("four", *hdf5, "--set", "data.path=b.h5"), expected)

    def test_cifar100(self):
        self.write("c/train.bin", cifar_records(30, 1, (20, 100)))
        self.write("c/test.bin", cifar_records(7, 2, (20, 100)))
        options = self.set_options(
            data__set="cifar100", data__path="c", data__limit=0, data__eval_limit=0
        )
        self.assertIn(
            "30 training and 7 evaluation images of 32 x 32 in 100 classes",
            self.good("data", "convert", "small.yaml", *options, "--output", "a.h5"),
        )
        single = self.set_options(data__set="cifar100", data__path="c/test.bin", data__limit=0)
        found = self.good_json("data", "convert", "small.yaml", *single, "--output", "a.h5")
        self.assertEqual((found["train"], found["eval"]), (7, 0))
        self.bad(2, "no group /eval", "train", "hdf5.yaml", "--set", "model.classes=100")
        self.good(
            "train",
            "hdf5.yaml",
            "--quiet",
            *self.set_options(model__classes=100, run__eval_every=0),
        )

    def test_generate(self):
        self.good("data", "generate", "small.yaml", "--set", "data.set=cifar10", "--output", "a.h5")
        self.assertEqual(
            self.weights(
                "two", "small.yaml", *self.set_options(data__set="hdf5", data__path="a.h5")
            ),
            self.weights("one", "small.yaml"),
        )
        options = self.set_options(data__limit=3, data__eval_limit=2)
        self.good("data", "generate", "--output", "b.h5", *options)
        with h5py.File(self.path("b.h5")) as file:
            self.assertEqual((len(file["train/images"]), len(file["eval/images"])), (3, 2))
            self.assertEqual(list(file["class_names"][:2]), [b"disc", b"square"])

    def test_a_full_disk_leaves_what_was_there(self):
        self.good("data", "generate", "small.yaml", "--output", "a.h5")
        before = self.read("a.h5")
        for limit in [1000, 100000]:
            self.bad(
                1,
                "a.h5: cannot write",
                "data",
                "generate",
                "--output",
                "a.h5",
                preexec_fn=lambda limit=limit: resource.setrlimit(
                    resource.RLIMIT_FSIZE, (limit, limit)
                ),
            )
            self.assertEqual(self.read("a.h5"), before)
            self.assertEqual(
                [name for name in os.listdir(self.folder) if name.endswith(".tmp")], []
            )
        self.bad(
            1, "no/a.h5: cannot write", "data", "generate", "small.yaml", "--output", "no/a.h5"
        )

    def test_a_broken_set_is_not_converted(self):
        write_cifar10(self)
        self.write("cifar/data_batch_3.bin", b"\x0b" + bytes(3072))
        options = self.set_options(data__set="cifar10", data__path="cifar")
        self.bad(
            1, "has the label 11", "data", "convert", "small.yaml", *options, "--output", "a.h5"
        )
        self.assertFalse(os.path.exists(self.path("a.h5")))


class Verify(DataTest):
    def test_generated(self):
        found = self.good_json("data", "verify", "small.yaml")
        self.assertEqual([split["name"] for split in found["splits"]], ["train", "eval"])
        self.assertEqual([split["images"] for split in found["splits"]], [64, 32])
        self.good("data", "generate", "small.yaml", "--output", "a.h5")
        with h5py.File(self.path("a.h5")) as file:
            for split in found["splits"]:
                pixels = file[split["name"] + "/images"][:] / 255
                numpy.testing.assert_allclose(split["mean"], pixels.mean((0, 2, 3)), rtol=1e-12)
                numpy.testing.assert_allclose(split["deviation"], pixels.std((0, 2, 3)), rtol=1e-9)
                counts = numpy.bincount(file[split["name"] + "/labels"][:], minlength=10)
                self.assertEqual(split["class_counts"], list(counts))
        self.assertIn("64 images as 32 x 32, 10 classes", self.good("data", "verify", "small.yaml"))
        self.assertEqual(self.good("data", "verify", "small.yaml", "--quiet"), "")

    def test_every_problem_of_cifar(self):
        write_cifar10(self)
        broken = bytearray(self.read("cifar/data_batch_1.bin"))
        broken[0] = 10
        broken[3073 * 4] = 255
        self.write("cifar/data_batch_1.bin", bytes(broken))
        self.write("cifar/data_batch_2.bin", b"")
        os.remove(self.path("cifar/data_batch_3.bin"))
        self.write("cifar/data_batch_4.bin", self.read("cifar/data_batch_4.bin") + b"x")
        os.remove(self.path("cifar/test_batch.bin"))
        options = self.set_options(data__set="cifar10", data__path="cifar", data__limit=0)
        code, out, error = self.run_petra("data", "verify", "small.yaml", *options)
        self.assertEqual((code, len(error.splitlines())), (1, 6), error)
        for text in [
            "data_batch_1.bin: record 0 ",
            "data_batch_1.bin: record 4 ",
            "data_batch_2.bin: the file is empty",
            "data_batch_3.bin: No such file",
            "data_batch_4.bin: 1 bytes are left over",
            "test_batch.bin: No such file",
        ]:
            self.assertIn(text, error)
        self.assertIn("train  22 images", out)  # 6 of batch 1, 8 of 4, 8 of 5
        self.assertIn("problems: 5", out)

    def test_every_wrong_label(self):
        labels = numpy.arange(13)
        self.make(train_labels=labels, eval_labels=[0, -1, 2, 3, 7])
        code, out, error = self.run_petra("data", "verify", "hdf5.yaml", "--json")
        self.assertEqual((code, len(error.splitlines())), (1, 8), error)
        self.assertIn(
            "a.h5: /eval/labels: record 1 (from 0) has the label -1, expected 0 to 6", error
        )
        self.assertIn('"problems": 8', out)

    def test_what_train_refuses_is_a_problem(self):
        """The line of train, which ends it with `status`, is a line of verify, which counts it."""
        small = numpy.zeros((13, 3, 24, 32), "u1")
        head = {"mean": [125.3, 123.0, 113.9], "deviation": [63.0, 62.1, 66.7]}
        for status, words, parts, options in [
            (
                2,
                "images of 32 x 24 pixels for a network that was built for 32 x 32",
                {"eval_images": small[:5]},
                {},
            ),
            (2, "model.classes=6: 6 outputs for the 7 classes", {}, {"model__classes": 6}),
            (
                2,
                "data.batch=14: a batch of 14 images, but the training set has 13",
                {},
                {"data__batch": 14},
            ),
            (
                2,
                "images of 4 x 4 are too small for this stem",
                {"train_images": small[..., :4, :4], "eval_images": small[:5, :, :4, :4]},
                {},
            ),
            (
                2,
                "data.batch=1: 1 image of 8 x 8 pixels",
                {"train_images": small[..., :8, :8], "eval_images": small[:5, :, :8, :8]},
                {"data__batch": 1},
            ),
            (
                2,
                "no group /eval, and so no evaluation split",
                {"eval_images": None, "eval_labels": None},
                {},
            ),
            (
                1,
                (
                    "mean 125.3 and deviation 63 of channel 0, expected those of pixel / 255, from"
                    " 0 to 1"
                ),
                {"attributes": head},
                {},
            ),
            (
                1,
                "mean 0.5 and deviation 63 of channel 0",
                {"attributes": {"deviation": [63.0, 0.2, 0.2]}},
                {},
            ),
        ]:
            self.make(**parts)
            given = ["hdf5.yaml", "--quiet", *self.set_options(**options)]
            self.bad(status, words, "train", *given)
            code, _, error = self.run_petra("data", "verify", *given)
            self.assertEqual(code, 1)
            self.assertIn(words, error)
        self.make(eval_images=None, eval_labels=None)
        self.good("data", "verify", "hdf5.yaml", "--set", "run.eval_every=0")

    def test_a_set_that_cannot_be_opened(self):
        self.make(train_images=None)
        code, out, error = self.run_petra("data", "verify", "hdf5.yaml")
        self.assertEqual((code, len(error.splitlines())), (1, 1), error)
        self.assertIn("train  cannot be opened", out)
        self.assertIn("eval   5 images", out)


class OfOthers(DataTest):
    def test_layouts(self):
        content = self.make()
        expected = self.weights("one", "hdf5.yaml")
        last = {
            key.replace("/", "_"): value.transpose(0, 2, 3, 1)
            for key, value in content.items()
            if value.ndim == 4
        }
        self.make("b.h5", **last)
        self.assertEqual(self.weights("two", "hdf5.yaml", "--set", "data.path=b.h5"), expected)
        self.make("c.h5", train_labels=content["train/labels"].astype(">u2"))
        self.assertEqual(self.weights("three", "hdf5.yaml", "--set", "data.path=c.h5"), expected)
        with (
            h5py.File(self.path("d.h5"), "w", userblock_size=512, libver="latest") as file,
            h5py.File(self.path("a.h5")) as old,
        ):
            for name in ["train", "eval"]:
                old.copy(name, file)
            for key, value in old.attrs.items():
                file.attrs[key] = value
        self.assertEqual(self.weights("four", "hdf5.yaml", "--set", "data.path=d.h5"), expected)

    def change(self, name, target, make):
        """A file with what petra wrote in `name`, and the data set `target` made anew by
        make(group, last name, values)."""
        with h5py.File(self.path(name)) as old, h5py.File(self.path("changed.h5"), "w") as file:
            for key in old:
                old.copy(key, file)
            for key, value in old.attrs.items():
                file.attrs[key] = value
            values = file[target][()]
            group, key = file[target].parent, target.rsplit("/", 1)[1]
            del group[key]
            with h5py.File(self.path("other.h5"), "w") as other:
                other["values"] = values
            make(group, key, values)
        return "changed.h5"

    @staticmethod
    def virtual(source):
        def make(group, key, values):
            layout = h5py.VirtualLayout(values.shape, values.dtype)
            layout[...] = h5py.VirtualSource(source, "values", values.shape)
            group.create_virtual_dataset(key, layout)

        return make

    def test_values_elsewhere_or_never_written(self):
        """What HDF5 fills in is not read as data, and a place in another file is not sought in this
        one."""

        def link(group, key, values):
            group[key] = h5py.ExternalLink("other.h5", "/values")

        def link_of_link(group, key, values):
            group.file["elsewhere"] = h5py.ExternalLink("other.h5", "/")
            group[key] = h5py.SoftLink("/elsewhere/values")

        def storage(group, key, values):
            group.create_dataset(
                key, data=values, external=[(self.path("values.bin"), 0, values.nbytes)]
            )

        def unwritten(group, key, values):
            group.create_dataset(key, values.shape, values.dtype)

        def unwritten_chunk(group, key, values):
            group.create_dataset(
                key, values.shape, values.dtype, chunks=(2, *values.shape[1:]), compression="gzip"
            )[:2] = values[:2]

        foreign = [
            (link, "is a link to another file (other.h5)"),
            (link_of_link, "is a link to another file (other.h5)"),
            (storage, f"keeps its values in another file ({self.path('values.bin')})"),
            (self.virtual("other.h5"), "is a virtual data set"),
            (self.virtual("gone.h5"), "is a virtual data set"),
        ]
        missing = [(unwritten, "was never written"), (unwritten_chunk, "was never written in full")]
        self.make()
        for target in ["eval/images", "train/labels"]:
            for make, words in foreign + missing:
                self.change("a.h5", target, make)
                self.bad(
                    1,
                    [f"changed.h5: /{target} {words}"],
                    "data",
                    "verify",
                    "hdf5.yaml",
                    "--quiet",
                    "--set",
                    "data.path=changed.h5",
                )
        self.write("text.txt", b"To be, or not to be. " * 90)
        self.good(
            "data",
            "convert",
            "small.yaml",
            "--output",
            "t.h5",
            *self.set_options(data__set="text", data__path="text.txt"),
        )
        for make, words in foreign + missing:
            self.change("t.h5", "eval/tokens", make)
            self.bad(
                1,
                [f"changed.h5: /eval/tokens {words}"],
                "data",
                "verify",
                "small.yaml",
                "--quiet",
                *self.set_options(data__set="tokens", data__path="changed.h5"),
            )
        for name in ["run", "two"]:
            self.good("train", "small.yaml", "--output", name, "--quiet")
        with h5py.File(self.path("run/weights.h5")) as file:
            tensors = []  # of more than one chunk
            file["parameters"].visititems(
                lambda name, node: (
                    tensors.append(name) if getattr(node, "shape", (0,))[0] > 2 else None
                )
            )
        for make, words in foreign[:1] + foreign[-1:] + missing:
            self.change("run/weights.h5", f"parameters/{tensors[0]}", make)
            self.bad(
                1,
                ["changed.h5: /", words],
                "evaluate",
                "small.yaml",
                "--set",
                "model.weights=changed.h5",
            )
            os.replace(self.path("changed.h5"), self.path("two/weights.h5"))
            self.bad(1, ["two/weights.h5: /", words], "compare", "run", "two")
        for make, words in foreign[1:4]:
            self.change("run/run.h5", "train/loss", make)
            for command in ["inspect", "changed.h5"], ["export", "changed.h5", "--csv", "csv"]:
                self.bad(1, ["changed.h5: /", words], *command)

    def hold(self, name, mode, **options):
        """A Python that has the file open with a lock, until it is killed."""
        code = (
            f"import h5py, sys; f = h5py.File({name!r}, {mode!r}, **{options!r}); f.flush();"
            " print('open', flush=True); sys.stdin.read()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "HDF5_USE_FILE_LOCKING": "TRUE"},
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"open\n")
        return process

    def test_a_lock_and_a_mark_are_not_damage(self):
        self.make()
        locking = {"env": {**os.environ, "HDF5_USE_FILE_LOCKING": "TRUE"}}
        expected = self.good("data", "verify", "hdf5.yaml")
        writer = self.hold("a.h5", "r+")
        self.assertEqual(self.good("data", "verify", "hdf5.yaml", **locking), expected)
        # The library in a program that leaves HDF5 to lock.
        dump = [
            os.path.abspath("tests/dump_batches"),
            "hdf5.yaml",
            "0",
            "1",
        ]
        error = subprocess.run(
            dump, cwd=self.folder, capture_output=True, text=True, check=False, **locking
        ).stderr
        self.assertIn("a.h5: is locked by another process; wait for it to end", error)
        writer.kill()
        writer.wait()
        with (
            h5py.File(self.path("b.h5"), "w", libver="latest") as file,
            h5py.File(self.path("a.h5")) as old,
        ):
            for name in old:
                old.copy(name, file)
            file.attrs.update(old.attrs)
        writer = self.hold("b.h5", "r+", libver="latest")
        options = ["hdf5.yaml", "--quiet", *self.set_options(data__path="b.h5", run__epochs=1)]
        for _ in range(2):  # while the writer is there, and when it was killed
            for command in ["train"], ["data", "verify"]:
                code, _, error = self.run_petra(*command, *options)
                self.assertEqual(code, 1)
                self.assertIn(
                    "b.h5: is marked as open for writing: its writer is still running, or was"
                    " killed; after a kill, `h5clear -s`",
                    error,
                )
            writer.kill()
            writer.wait()
        if shutil.which("h5clear"):
            subprocess.run(["h5clear", "-s", "b.h5"], cwd=self.folder, check=True)
            self.good("data", "verify", *options)

    def test_links_within_the_file(self):
        content = self.make()
        expected = self.weights("one", "hdf5.yaml")

        def link(group, key, values):
            group.file["store"] = values
            group[key] = h5py.SoftLink("/store")

        for target in content:
            self.change("a.h5", target, link)
            self.assertEqual(
                self.weights("two", "hdf5.yaml", "--set", "data.path=changed.h5"), expected
            )

    def test_other_sizes(self):
        stream = numpy.random.default_rng(2)
        self.make(
            train_images=stream.integers(0, 256, (13, 3, 40, 37), "u1"),
            eval_images=stream.integers(0, 256, (5, 3, 40, 37), "u1"),
        )
        stages = self.good_json("inspect", "hdf5.yaml")["stages"]
        self.assertEqual((stages[0]["input"]["height"], stages[0]["input"]["width"]), (40, 37))
        one = self.weights("one", "hdf5.yaml")
        self.assertEqual(self.weights("four", "hdf5.yaml", "--set", "data.workers=4"), one)
        self.make(eval_images=stream.integers(0, 256, (5, 3, 40, 37), "u1"))
        self.bad(
            2,
            "images of 37 x 40 pixels for a network that was built for 32 x 32",
            "train",
            "hdf5.yaml",
        )

    def test_wrong_files(self):
        images = numpy.zeros((13, 3, 32, 32), "u1")
        cases = [
            ("no data set /train/images", {"train_images": None}),
            ("no data set /train/labels", {"train_labels": None}),
            (
                "/train/images: expected unsigned integers of one byte",
                {"train_images": images.astype("i1")},
            ),
            (
                "/train/images: expected unsigned integers of one byte",
                {"train_images": images.astype("u2")},
            ),
            (
                "4 dimensions of another type, expected 4 of integers",
                {"train_images": images.astype("f4")},
            ),
            ("3 dimensions of integers, expected 4", {"train_images": images[0]}),
            (
                "has the shape (13, 32, 32, 32), expected (N, 3, H, W) or (N, H, W, 3)",
                {"train_images": numpy.zeros((13, 32, 32, 32), "u1")},
            ),
            ("has 0 images", {"train_images": images[:0], "train_labels": numpy.zeros(0, "i4")}),
            (
                "in chunks or compressed",
                {"train_images": {"data": images, "chunks": (1, 3, 32, 32)}},
            ),
            ("in chunks or compressed", {"train_images": {"data": images, "compression": "gzip"}}),
            ("was never written", {"train_images": {"shape": images.shape, "dtype": "u1"}}),
            ("has 12 labels for 13 images", {"train_labels": numpy.zeros(12, "i4")}),
            ("expected 1 of integers", {"train_labels": numpy.zeros(13, "f4")}),
            (
                "record 6 (from 0) has the label 7, expected 0 to 6",
                {"train_labels": [0, 1, 2, 3, 4, 5, 7, 0, 0, 0, 0, 0, 0]},
            ),
            ("no attribute schema_version", {"attributes": {"schema_version": None}}),
            ("schema_version 2, expected 1", {"attributes": {"schema_version": 2}}),
            ("no attribute classes", {"attributes": {"classes": None}}),
            ("attribute classes is 0", {"attributes": {"classes": 0}}),
            (
                "attribute classes of the root group: expected 1 integer",
                {"attributes": {"classes": "seven"}},
            ),
            ("no attribute mean", {"attributes": {"mean": None}}),
            (
                "attribute mean of the root group: expected 3 numbers",
                {"attributes": {"mean": [1.0, 2.0]}},
            ),
            ("and a deviation above 0", {"attributes": {"deviation": [1.0, 0.0, 1.0]}}),
            ("expected finite numbers", {"attributes": {"mean": [1.0, float("nan"), 1.0]}}),
        ]
        for words, parts in cases:
            self.make(**parts)
            self.bad(1, ["a.h5", words], "train", "hdf5.yaml")
        self.make()
        whole = self.read("a.h5")
        for size in [len(whole) - 1, len(whole) // 2, 100]:
            self.write("a.h5", whole[:size])
            self.bad(1, ["a.h5"], "train", "hdf5.yaml")
        self.write("a.h5", "text")
        self.bad(1, "a.h5: not an HDF5 file", "train", "hdf5.yaml")
        self.bad(
            1, "nowhere.h5: No such file", "train", "hdf5.yaml", "--set", "data.path=nowhere.h5"
        )
        self.bad(
            1, "is a folder, expected an HDF5 file", "train", "hdf5.yaml", "--set", "data.path=."
        )
        self.bad(2, "data.path: is empty", "train", "hdf5.yaml", "--set", 'data.path=""')
        self.make()
        self.bad(
            2, ["model.classes", "7 classes"], "train", "hdf5.yaml", "--set", "model.classes=6"
        )


class Tokens(DataTest):
    """Sets of tokens by petra data; what is read of files: tests/test_tokens.c."""

    def setUp(self):
        super().setUp()
        self.write(
            "text.yaml", "data: {set: text, path: text.txt, batch: 3}\nmodel: {context: 16}\n"
        )
        self.text = (b"To be, or not to be, that is the question:\n" * 30)[:1001]
        self.write("text.txt", self.text)

    def test_text_to_hdf5_and_back(self):
        found = self.good_json("data", "convert", "text.yaml", "--output", "a.h5")
        self.assertEqual(found, {"output": "a.h5", "train": 900, "eval": 101, "vocabulary": 256})
        with h5py.File(self.path("a.h5")) as file:
            self.assertEqual(bytes([*file["train/tokens"], *file["eval/tokens"]]), self.text)
            self.assertEqual(
                (file["train/tokens"].dtype, file.attrs["vocabulary"]), (numpy.dtype("<u2"), 256)
            )
        one = self.good_json("data", "verify", "text.yaml")
        two = self.good_json(
            "data", "verify", "text.yaml", *self.set_options(data__set="tokens", data__path="a.h5")
        )
        self.assertEqual(one["splits"], two["splits"])
        train = one["splits"][0]
        self.assertEqual(
            (train["tokens"], train["windows"], train["context"], train["vocabulary"]),
            (900, 55, 16, 256),
        )
        counts = numpy.bincount(numpy.frombuffer(self.text[:900], "u1"), minlength=256)
        shares = counts[counts > 0] / 900
        self.assertEqual(
            (train["token_counts"], train["occurring"]), (counts.tolist(), len(shares))
        )
        self.assertAlmostEqual(train["entropy"], -(shares * numpy.log(shares)).sum(), places=12)
        # A token is changed behind petra's back.
        self.write("a.h5", self.read("a.h5").replace(b"T\0o\0", b"S\0o\0", 1))
        self.bad(
            1,
            "records were changed since petra wrote them",
            "data",
            "verify",
            "text.yaml",
            "--quiet",
            *self.set_options(data__set="tokens", data__path="a.h5"),
        )

    def test_files_that_are_no_tokens_of_16_bits(self):
        """Tokens of every width would be read as numbers of 16 bits."""
        stream = numpy.random.default_rng(4)
        values = stream.integers(0, 50257, 4000)
        numpy.save(self.path("shard.npy"), values.astype("<u2"))
        numpy.savez(self.path("shards.npz"), values.astype("<u2"))
        options = [
            "small.yaml",
            "--quiet",
            *self.set_options(
                data__set="tokens",
                data__vocabulary=65536,
                model__context=16,
                model__family="gpt",
                model__depth=1,
                model__width=4,
                model__heads=2,
                optim__name="adamw",
                optim__lr=0.01,
                data__augment="[]",
                stages__partition="balanced",
                stages__count=1,
                run__epochs=1,
            ),
        ]
        for name, content, words in [
            ("shard.npy", self.read("shard.npy"), "is a NumPy file (.npy)"),
            ("shards.npz", self.read("shards.npz"), "is a ZIP archive (.npz?)"),
            ("u4.bin", values.astype("<u4").tobytes(), "integers of 32 or 64 bits"),
            ("i8.bin", values.astype("<i8").tobytes(), "integers of 32 or 64 bits"),
            (
                "small.bin",
                stream.integers(0, 4, 4000).astype("<u4").tobytes(),
                "integers of 32 or 64 bits",
            ),
            ("big.bin", values.astype(">u4").tobytes(), "integers of 32 or 64 bits"),
            (
                "llama.bin",
                stream.integers(0, 128256, 4000).astype("<u4").tobytes(),
                "integers of 32 or 64 bits",
            ),
        ]:
            self.write(name, content)
            for command in ["data", "verify"], ["train"]:
                self.bad(
                    1,
                    [f"{name}: ", words],
                    *command,
                    *options,
                    *self.set_options(data__path=name, data__eval_share=0, run__eval_every=0),
                )
            code, _, error = self.run_petra(
                "data", "verify", *options, "--set", f"data.path={name}"
            )
            # Once for both parts of the file.
            self.assertEqual((code, error.count("\n")), (1, 1), error)
            self.write("folder/train.bin", values.astype("<u2").tobytes())
            self.write("folder/val.bin", content)
            self.bad(
                1,
                ["folder/val.bin: ", words],
                "data",
                "verify",
                *options,
                "--set",
                "data.path=folder",
            )
        with h5py.File(
            self.path("block.h5"), "w", userblock_size=1024
        ) as file:  # HDF5 does not begin at the first byte
            file.attrs.update(schema_version=1, vocabulary=50257)
            file["train/tokens"], file["eval/tokens"] = (
                values.astype("<u2"),
                values[:400].astype("<u2"),
            )
        found = self.good_json(
            "data",
            "verify",
            *options,
            *self.set_options(
                data__vocabulary=0, data__path="block.h5", data__limit=0, data__eval_limit=0
            ),
        )
        self.assertEqual([split["tokens"] for split in found["splits"]], [4000, 400])
        os.mkfifo(self.path("pipe"))
        self.bad(
            1,
            "pipe: is no regular file",
            "data",
            "verify",
            *options,
            "--set",
            "data.path=pipe",
            "--set",
            "data.eval_share=0",
            "--set",
            "run.eval_every=0",
        )
        self.write("folder/val.bin", self.read("block.h5"))
        for setting, name in (
            ("data.path=folder", "folder/val.bin"),
            ("data.eval_path=block.h5", "block.h5"),
        ):
            self.bad(
                1,
                f"{name}: is an HDF5 file",
                "data",
                "verify",
                *options,
                "--set",
                "data.path=folder/train.bin",
                "--set",
                setting,
            )
        for tokens in (
            values,
            stream.integers(0, 4, 4000),
            numpy.zeros(4000),
            numpy.tile([3, 40], 2000),
            numpy.tile([40, 4], 2000),
        ):
            self.write("good.bin", tokens.astype("<u2").tobytes())
            self.good("data", "verify", *options, "--set", "data.path=good.bin")

    def test_grammar_and_limits(self):
        found = self.good_json(
            "data",
            "verify",
            "text.yaml",
            *self.set_options(
                data__set="grammar", data__limit=3, data__eval_limit=2, model__context=128
            ),
        )
        self.assertEqual([split["tokens"] for split in found["splits"]], [4 * 128, 2 * 128 + 1])
        p = 29 / 32
        known = -p * numpy.log(p) - (1 - p) * numpy.log((1 - p) / 3)
        self.assertAlmostEqual(
            found["best_loss"], 3 * known + (7 + 63) / 128 * (numpy.log(4) - known), places=12
        )
        self.assertIn(
            "lowest possible mean loss with model.context 128: 1.7740 nats per token",
            self.good(
                "data",
                "verify",
                "text.yaml",
                *self.set_options(
                    data__set="grammar", data__limit=3, data__eval_limit=2, model__context=128
                ),
            ),
        )

    def test_networks_of_the_same_tensors(self):
        small = [
            "text.yaml",
            "--quiet",
            *self.set_options(model__depth=1, model__width=4, model__heads=2, model__context=5),
        ]
        self.good("init", *small, *self.set_options(model__family="revgpt"), "--output", "w")
        weights = self.set_options(model__weights="w/weights.h5")
        self.good(
            "evaluate",
            *small,
            *weights,
            *self.set_options(model__family="revgpt", data__eval_limit=2),
        )
        for key, value, words in (
            ("family", "gpt", "gpt-1 width 4, 2 heads"),
            ("heads", 1, "revgpt-1 width 4, 1 heads"),
        ):
            self.bad(
                2,
                [
                    "w/weights.h5: weights of revgpt-1 width 4, 2 heads, context 5",
                    "expected those of " + words,
                ],
                "evaluate",
                *small,
                *weights,
                "--set",
                "model.family=revgpt",
                "--set",
                f"model.{key}={value}",
            )

    def test_no_batch_norms(self):
        self.write("images.yaml", "data: {set: shapes}\n")
        for name, family in ("text", "gpt"), ("images", "vit"):
            self.bad(
                2,
                ["data.recalibrate", "has no batch norms; expected 0"],
                "inspect",
                f"{name}.yaml",
                *self.set_options(model__family=family, data__recalibrate=2),
            )

    def test_epochs_of_an_order(self):
        """petra schedule and simulate know how long an epoch of tokens is: here 55 windows, 11
        microbatches."""
        small = [
            "schedule",
            "text.yaml",
            *self.set_options(
                model__family="gpt",
                model__depth=1,
                model__width=4,
                model__heads=2,
                data__batch=5,
                method__name="backprop",
                stages__partition="balanced",
                stages__count=1,
            ),
        ]
        evaluated = lambda *options: re.findall(
            r"E(\d+)", self.good(*small, "--set", "run.max_microbatches=24", *options)
        )
        self.assertEqual(evaluated(), ["10", "21"])
        self.assertEqual(evaluated("--set", "data.limit=35"), ["6", "13", "20"])
        os.remove(self.path("text.txt"))
        self.assertEqual(evaluated(), [])
        self.bad(
            2,
            "method.mitigation.sync_warmup_epochs=1: 1 epochs of data.path: text.txt, which does"
            " not exist",
            *small,
            *self.set_options(
                model__family="revgpt",
                method__name="petra",
                method__mitigation__sync_warmup_epochs=1,
            ),
        )

    def test_shapes_of_sequences(self):
        small = [
            "inspect",
            "text.yaml",
            *self.set_options(model__depth=1, model__width=4, model__heads=2, model__context=5),
        ]
        text = self.good(*small, *self.set_options(model__family="revgpt"))
        self.assertIn("input TxC", text)
        self.assertNotIn("CxHxW", text)
        self.assertNotIn("convolution", text)

    def test_wrong(self):
        self.bad(
            2,
            "text.yaml:1: data.set: text has tokens, but model.family: revnet is a network for"
            " images",
            "train",
            "text.yaml",
        )
        tokens = [
            "data",
            "verify",
            "text.yaml",
            "--quiet",
            *self.set_options(data__set="tokens", data__path="a.h5", run__eval_every=0),
        ]
        good = numpy.arange(300, dtype="<u2") % 50
        for line, values, vocabulary in [
            (
                "/train/tokens: expected unsigned little-endian integers of two bytes",
                good.astype("u1"),
                50,
            ),
            (
                "/train/tokens: expected unsigned little-endian integers of two bytes",
                good.astype(">u2"),
                50,
            ),
            (
                "/train/tokens has 2 dimensions of integers, expected 1 of integers",
                good.reshape(3, 100),
                50,
            ),
            ("/train/tokens is stored in chunks", {"data": good, "chunks": (100,)}, 50),
            ("no attribute vocabulary", good, None),
            ("attribute vocabulary is 65537, expected 1 to 65536", good, 65537),
            ("a.h5: token 49 (from 0) is 49, expected 0 to 48", good, 49),
        ]:
            with self.subTest(line):
                self.make(
                    attributes={"vocabulary": vocabulary},
                    train_images=None,
                    train_labels=None,
                    eval_images=None,
                    eval_labels=None,
                    train_tokens=values,
                )
                self.bad(1, line, *tokens)


class DownsampledImageNet(DataTest):
    def convert(self, *arguments):
        run = subprocess.run(
            [sys.executable, SCRIPT, *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        print(run.stdout, run.stderr)
        return run

    def batches(self, npz, side=16):
        stream = numpy.random.default_rng(3)
        os.makedirs(self.path("b"), exist_ok=True)
        all_images, all_labels = [], []
        for name, count in [*((f"train_data_batch_{i}", 4) for i in range(1, 11)), ("val_data", 6)]:
            batch = {
                "data": stream.integers(0, 256, (count, 3 * side * side), "u1"),
                "labels": stream.integers(1, 1001, count),
            }
            batch["labels"][:2] = 1, 1000
            all_images.append(batch["data"].reshape(-1, 3, side, side))
            all_labels.append(batch["labels"] - 1)
            if npz:
                numpy.savez(self.path(f"b/{name}.npz"), **batch)
            else:
                with open(self.path(f"b/{name}"), "wb") as file:
                    pickle.dump(
                        {
                            **batch,
                            "labels": batch["labels"].tolist(),
                            "mean": batch["data"].mean(0),
                        },
                        file,
                        protocol=2,
                    )
        return numpy.concatenate(all_images), numpy.concatenate(all_labels)

    def test_both_forms(self):
        for npz in [False, True]:
            images, labels = self.batches(npz)
            run = self.convert("b", "a.h5")
            self.assertEqual(run.returncode, 0, run.stderr)
            with h5py.File(self.path("a.h5")) as file:
                numpy.testing.assert_array_equal(file["train/images"][:], images[:40])
                numpy.testing.assert_array_equal(file["eval/images"][:], images[40:])
                numpy.testing.assert_array_equal(file["train/labels"][:], labels[:40])
                self.assertAlmostEqual(file.attrs["mean"][1], 0.456)
            found = self.good_json("data", "verify", "hdf5.yaml", "--set", "model.classes=1000")
            self.assertEqual([split["images"] for split in found["splits"]], [40, 6])
            self.assertEqual(
                [found["splits"][0]["class_counts"][i] >= 10 for i in (0, 999)], [True, True]
            )
            for name in os.listdir(self.path("b")):
                os.remove(self.path(f"b/{name}"))

    def test_train(self):
        self.batches(True, side=32)
        self.assertEqual(self.convert("b", "a.h5").returncode, 0)
        self.good("train", "hdf5.yaml", "--quiet", "--set", "model.classes=1000")

    def test_wrong_batches(self):
        def fails(words):
            run = self.convert("b", "a.h5")
            self.assertNotEqual(run.returncode, 0)
            self.assertEqual((run.stdout, len(run.stderr.splitlines())), ("", 1), run.stderr)
            self.assertIn(words, run.stderr)
            self.assertEqual([name for name in os.listdir(self.folder) if "a.h5" in name], [])

        os.mkdir(self.path("b"))
        fails("expected 1, 2, ... without gaps")
        self.batches(False)
        good = self.read("b/train_data_batch_3")
        self.write("b/train_data_batch_3", good[:200])
        fails("train_data_batch_3: cannot be read")
        self.write("b/train_data_batch_3", b"cos\nsystem\n(S'touch ran'\ntR.")
        fails("it holds os.system")
        self.assertFalse(os.path.exists(self.path("ran")))
        for data, labels, words in [
            (numpy.zeros((2, 768), "u1"), [0, 1], "has the label 0, expected 1 to 1000"),
            (numpy.zeros((2, 768), "u1"), [1], "expected 2 integers"),
            (numpy.zeros((2, 700), "u1"), [1, 1], "expected bytes of shape"),
            (numpy.zeros((2, 768), "f4"), [1, 1], "expected bytes of shape"),
            (numpy.zeros((2, 3072), "u1"), [1, 1], "expected one size"),
        ]:
            self.write("b/train_data_batch_3", pickle.dumps({"data": data, "labels": labels}))
            fails(words)
        self.write("b/train_data_batch_3", good)
        os.remove(self.path("b/train_data_batch_10"))
        os.remove(self.path("b/val_data"))
        fails("0 files val_data")
        os.remove(self.path("b/train_data_batch_4"))
        fails("[1, 2, 3, 5, 6, 7, 8, 9]")


main()
