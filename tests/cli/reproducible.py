# SPDX-License-Identifier: Apache-2.0
"""The same config and seed give the same bits, whatever loads the images; another seed gives
others."""

import os

import h5py
import numpy

from program import ProgramTest, main, write_cifar10

TIMES = {"train/wall_s", "epoch/wall_s", "epoch/images_per_s"}

CIFAR = """\
run: {name: cifar, epochs: 2, seed: 7}
data: {set: cifar10, path: cifar, batch: 4, augment: [crop, flip], eval_limit: 6}
model: {width: 2}
optim: {lr_scaling: none, lr: 0.01}
lr: {warmup_epochs: 0}
device: {threads: 1}
"""


class Reproducible(ProgramTest):
    def setUp(self):
        super().setUp()
        write_cifar10(self, records=10)
        self.write("cifar.yaml", CIFAR)

    def result(self, config, folder="out", **values):
        """The data sets of run.h5 but the times, as bytes, and weights.h5."""
        self.good("train", config, "--output", folder, "--quiet", *self.set_options(**values))
        found = {"weights.h5": self.read(f"{folder}/weights.h5")}

        def put(name, item):
            if isinstance(item, h5py.Dataset) and name not in TIMES:
                found[name] = item[()].tobytes()

        with h5py.File(self.path(f"{folder}/run.h5"), "r") as run:
            run.visititems(put)
            self.assertGreater(len(run["train/loss"]), 0)
            self.assertTrue(numpy.isfinite(run["epoch/eval_loss"][:]).all())
        self.assertIn("memory/peak_bytes", found)
        self.assertIn("model/stages", found)
        return found

    def same(self, first, second, what):
        self.assertEqual(first.keys(), second.keys())
        different = [name for name in first if first[name] != second[name]]
        self.assertEqual(different, [], what)

    def test_threads_that_load(self):
        for backend in ["cpu", "ref"]:
            for config, method, threads in [
                ("cifar.yaml", "petra", 1),
                ("cifar.yaml", "reversible", 1),
                ("small.yaml", "petra", 2),
            ]:
                values = {
                    "device__backend": backend,
                    "device__threads": threads,
                    "method__name": method,
                }
                first = self.result(config, data__workers=1, **values)
                for workers in [2, 4]:
                    self.same(
                        first,
                        self.result(config, data__workers=workers, **values),
                        (backend, config, workers),
                    )
                other = self.result(config, run__seed=8, **values)
                self.assertNotEqual(first["train/loss"], other["train/loss"])
                self.assertNotEqual(first["weights.h5"], other["weights.h5"])

    def test_cores_of_what_gsl_multiplies(self):
        """Basis rotation has its bases by GSL, which has OpenBLAS with as many threads as it finds
        cores."""
        turned = self.set_options(
            data__batch=4,
            data__limit=16,
            run__epochs=2,
            run__eval_every=0,
            model__family="revvit",
            model__depth=1,
            model__width=16,
            model__heads=2,
            model__patch=8,
            optim__name="basis-rotation",
            optim__rotation_every=2,
            optim__lr=0.01,
        )
        for backend in "ref", "cpu":
            found = []
            for threads in "1", "2":
                self.good(
                    "train",
                    "small.yaml",
                    "--output",
                    "out",
                    "--quiet",
                    "--set",
                    f"device.backend={backend}",
                    *turned,
                    env={**os.environ, "OPENBLAS_NUM_THREADS": threads},
                )
                found.append(self.read("out/weights.h5"))
            self.assertEqual(*found, backend)

    def test_threads_that_openmp_does_not_give(self):
        """What oneDNN is promised is what it gets: the losses are those of as many threads as there
        are, to the bit, and nothing hangs. OpenMP gives no more dynamic threads than there are
        cores."""
        more = len(os.sched_getaffinity(0)) + 1
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("OMP_") or name == "OMP_WAIT_POLICY"
        }
        tokens = {
            "data__set": "grammar",
            "data__augment": "[]",
            "data__batch": 4,
            "model__family": "gpt",
            "model__depth": 1,
            "model__width": 8,
            "model__heads": 2,
            "model__context": 16,
            "method__name": "backprop",
            "optim__name": "adamw",
            "optim__lr": 0.01,
        }
        images = {
            "data__batch": 8,
            "data__limit": 32,
            "stages__partition": "balanced",
            "stages__count": 2,
        }
        groups = {**images, "device__groups": 2}

        def train(threads, values, **environment):
            options = self.set_options(
                device__backend="cpu",
                device__threads=threads,
                run__epochs=1,
                run__eval_every=0,
                run__max_microbatches=4,
                run__checkpoint_every=0,
                **values,
            )
            code, _, error = self.run_petra(
                "train", "small.yaml", "--output", "out", *options, env={**clean, **environment}
            )
            self.assertEqual(code, 0, error)
            with h5py.File(self.path("out/run.h5"), "r") as run:
                return run["train/loss"][:].tobytes(), [
                    line for line in error.splitlines() if "warning" in line
                ]

        for values, environment, asked, given, reason in [
            (tokens, {"OMP_THREAD_LIMIT": "1"}, 2, 1, "OMP_THREAD_LIMIT is 1"),
            (images, {"OMP_THREAD_LIMIT": "1"}, 2, 1, "OMP_THREAD_LIMIT is 1"),
            (images, {"OMP_THREAD_LIMIT": "2"}, 3, 2, "OMP_THREAD_LIMIT is 2"),
            (tokens, {"OMP_MAX_ACTIVE_LEVELS": "0"}, 2, 1, "OMP_MAX_ACTIVE_LEVELS is 0"),
            (images, {"OMP_MAX_ACTIVE_LEVELS": "0"}, 2, 1, "OMP_MAX_ACTIVE_LEVELS is 0"),
            (tokens, {"OMP_DYNAMIC": "true"}, more, more, None),
            (images, {"OMP_DYNAMIC": "true"}, more, more, None),
            # A region of one thread has the second number for regions within.
            (tokens, {"OMP_NUM_THREADS": "1,3", "OMP_THREAD_LIMIT": "1"}, 1, 1, None),
            # Each group is a team of its own; OpenMP's variables are read again for each of its
            # threads.
            (groups, {"OMP_THREAD_LIMIT": "1"}, 2, 2, None),
            (groups, {"OMP_THREAD_LIMIT": "1"}, 4, 2, "OMP_THREAD_LIMIT is 1"),
            (groups, {"OMP_DYNAMIC": "true"}, 2 * more, 2 * more, None),
        ]:
            loss, warnings = train(asked, values, **environment)
            what = (values, environment, asked)
            self.assertEqual(loss, train(given, values)[0], what)
            team, size = (
                asked // values.get("device__groups", 1),
                given // values.get("device__groups", 1),
            )
            line = (
                f"petra: warning: device.threads: {team} threads per operation were requested, but"
                f" OpenMP gives {size} ({reason}); operations run on {size}"
            )
            self.assertEqual(warnings, [line] if reason else [], what)
        # Where no number is asked for, nothing is said.
        found = train(0, images, OMP_THREAD_LIMIT="1")
        self.assertEqual(found, (train(1, images)[0], []))

    def test_what_the_options_of_the_data_change(self):
        first = self.result("cifar.yaml", method__name="backprop")
        for values in [
            {"data__shuffle": "false"},
            {"data__augment": "[crop]"},
            {"data__augment": "[flip]"},
        ]:
            other = self.result("cifar.yaml", method__name="backprop", **values)
            self.assertNotEqual(first["train/loss"], other["train/loss"], values)

    def test_training_from_initial_weights(self):
        for config, values in [
            ("small.yaml", {"device__backend": "cpu"}),
            ("cifar.yaml", {"device__backend": "ref"}),
            ("small.yaml", {"device__backend": "ref", "device__precision": "fp64"}),
        ]:
            first = self.result(config, **values)
            self.good("init", config, "--output", "start", "--quiet", *self.set_options(**values))
            self.same(
                first,
                self.result(config, model__weights="start/weights.h5", **values),
                (config, values),
            )
            # Reading and writing again changes nothing.
            self.good(
                "init",
                config,
                "--output",
                "again",
                "--quiet",
                *self.set_options(model__weights="start/weights.h5", **values),
            )
            self.assertEqual(self.read("start/weights.h5"), self.read("again/weights.h5"))
            self.assertNotEqual(first["weights.h5"], self.read("start/weights.h5"))


main()
