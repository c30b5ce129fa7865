# SPDX-License-Identifier: Apache-2.0
"""The same config and seed give the same bits, whatever loads the images; another seed gives others."""

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
            for config, method, threads in [("cifar.yaml", "petra", 1), ("cifar.yaml", "reversible", 1),
                                            ("small.yaml", "petra", 2)]:
                values = {"device__backend": backend, "device__threads": threads, "method__name": method}
                first = self.result(config, data__workers=1, **values)
                for workers in [2, 4]:
                    self.same(first, self.result(config, data__workers=workers, **values), (backend, config, workers))
                other = self.result(config, run__seed=8, **values)
                self.assertNotEqual(first["train/loss"], other["train/loss"])
                self.assertNotEqual(first["weights.h5"], other["weights.h5"])

    def test_cores_of_what_gsl_multiplies(self):
        """Basis rotation has its bases by GSL, which has OpenBLAS with as many threads as it finds cores."""
        turned = self.set_options(data__batch=4, data__limit=16, run__epochs=2, run__eval_every=0, model__family="revvit", model__depth=1, model__width=16,
                                  model__heads=2, model__patch=8, optim__name="basis-rotation", optim__rotation_every=2, optim__lr=0.01)
        for backend in "ref", "cpu":
            found = []
            for threads in "1", "2":
                self.good("train", "small.yaml", "--output", "out", "--quiet", "--set", f"device.backend={backend}", *turned,
                          env={**os.environ, "OPENBLAS_NUM_THREADS": threads})
                found.append(self.read("out/weights.h5"))
            self.assertEqual(*found, backend)

    def test_what_the_options_of_the_data_change(self):
        first = self.result("cifar.yaml", method__name="backprop")
        for values in [{"data__shuffle": "false"}, {"data__augment": "[crop]"}, {"data__augment": "[flip]"}]:
            other = self.result("cifar.yaml", method__name="backprop", **values)
            self.assertNotEqual(first["train/loss"], other["train/loss"], values)

    def test_training_from_initial_weights(self):
        for config, values in [("small.yaml", {"device__backend": "cpu"}), ("cifar.yaml", {"device__backend": "ref"}),
                               ("small.yaml", {"device__backend": "ref", "device__precision": "fp64"})]:
            first = self.result(config, **values)
            self.good("init", config, "--output", "start", "--quiet", *self.set_options(**values))
            self.same(first, self.result(config, model__weights="start/weights.h5", **values), (config, values))
            # Reading and writing again changes nothing.
            self.good("init", config, "--output", "again", "--quiet",
                      *self.set_options(model__weights="start/weights.h5", **values))
            self.assertEqual(self.read("start/weights.h5"), self.read("again/weights.h5"))
            self.assertNotEqual(first["weights.h5"], self.read("start/weights.h5"))


main()
