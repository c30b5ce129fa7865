"""Probes as they stand in run.h5: the schema of docs/hdf5-schema.md, figures that follow from the logged gradients, and weights
that are the same with and without them."""

import h5py
import numpy

from program import ProgramTest, main

PAIRS = {"method_delayed": ("method", "delayed"), "method_end_to_end": ("method", "end_to_end"),
         "delayed_end_to_end": ("delayed", "end_to_end")}
MEASURES = ["cosine", "norm_ratio", "relative_error"]

SMALL = """\
run: {name: probed, epochs: 2, eval_every: 0}
data: {set: shapes, batch: 4, limit: 96, augment: [crop], workers: 1}
model: {width: 2}
stages: {partition: list, blocks: [1, 4, 3, 2]}
method: {name: petra, accumulate: 2}
optim: {lr_scaling: none, lr: 0.02}
lr: {warmup_epochs: 0}
device: {threads: 1, backend: ref, precision: fp64}
probe: {per_epoch: 3, gradients: true}
"""


def figures(x, y):
    norm = numpy.linalg.norm
    return [x.ravel() @ y.ravel() / norm(x) / norm(y), norm(x) / norm(y), norm(x - y) / norm(y)]


class Probe(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("probed.yaml", SMALL)

    def train(self, folder, **values):
        self.good("train", "probed.yaml", "--output", folder, "--quiet", *self.set_options(**values))
        return self.path(f"{folder}/run.h5")

    def test_the_log(self):
        with h5py.File(self.train("out"), "r") as run:
            probe = run["probe"]
            names = [name.decode() for name in probe["parameter/name"][:]]
            stages = probe["parameter/stage"][:]
            # Of 24 microbatches an epoch those at 4, 12, 20; of the last windows not all stages have updated.
            self.assertEqual(list(probe["microbatch"][:]), [4, 12, 20, 28, 36])
            self.assertEqual(list(probe["epoch"][:]), [0, 0, 0, 1, 1])
            with h5py.File(self.path("out/weights.h5"), "r") as weights:
                shapes = {}
                weights["parameters"].visititems(
                    lambda name, item: shapes.update({name: item.shape}) if isinstance(item, h5py.Dataset) else None)
            self.assertEqual(sorted(names), sorted(name for name in shapes if "running" not in name))
            self.assertEqual(list(stages), sorted(stages))
            self.assertEqual([int((stages == j).sum()) for j in [1, 2, 3, 4]], [3, 27, 24, 8])
            self.assertEqual(int(probe["parameter/zero"][:].sum()), 0)
            for pair, (x, y) in PAIRS.items():
                for t in range(5):
                    expected = numpy.array([figures(probe[f"gradients/{x}/{name}"][t], probe[f"gradients/{y}/{name}"][t])
                                            for name in names])
                    for m, measure in enumerate(MEASURES):
                        found = probe[f"parameter/{measure}/{pair}"][t]
                        numpy.testing.assert_allclose(found, expected[:, m], rtol=1e-10, atol=1e-12)
                        numpy.testing.assert_allclose(probe[f"{measure}/{pair}"][t],
                                                      [found[stages == j].mean() for j in [1, 2, 3, 4]], rtol=1e-12)
                    whole = [[numpy.concatenate([probe[f"gradients/{g}/{name}"][t].ravel()
                                                 for name, s in zip(names, stages) if s == j]) for g in (x, y)]
                             for j in [1, 2, 3, 4]]
                    numpy.testing.assert_allclose(probe[f"concatenated_cosine/{pair}"][t],
                                                  [figures(*both)[0] for both in whole], rtol=1e-12)
            # The stages begin with the stem, a reversible block, a downsampling one, and a reversible one of the fused action.
            error = probe["reconstruction_error"][:]
            self.assertEqual([bool(numpy.isnan(error[:, j]).all()) for j in range(4)], [True, False, True, True])
            self.assertTrue((error[:, 1] > 0).all() and (error[:, 1] < 1).all())
            self.check_schema(probe, names, shapes)

    def check_schema(self, probe, names, shapes):
        def check(name, item):
            if not isinstance(item, h5py.Dataset):
                return
            labels = [dim.label for dim in item.dims]
            self.assertEqual(len(labels), item.ndim, name)
            self.assertTrue(all(labels), name)
            self.assertTrue(item.attrs["units"], name)
            if name.startswith("gradients/"):
                of = name.split("/", 2)[2]
                self.assertEqual(item.shape, (5,) + shapes[of])
                self.assertEqual(item.dtype, numpy.float64)
                self.assertEqual(item.attrs["units"], "nat")
                self.assertIsNotNone(item.chunks)
                self.assertEqual(item.compression, "gzip")
        probe.visititems(check)
        self.assertEqual([len(probe["gradients"][g]) for g in ["method", "delayed", "end_to_end"]], [10, 10, 10])
        self.assertEqual(len(probe["peak_bytes"]), len(probe["peak_bytes"].attrs["categories"]))
        self.assertGreater(probe["peak_bytes"][:].sum(), 0)

    def test_nothing_else_changes(self):
        self.train("with")
        self.train("without", probe__per_epoch=0)
        self.assertEqual(self.read("with/weights.h5"), self.read("without/weights.h5"))
        with h5py.File(self.path("with/run.h5"), "r") as one, h5py.File(self.path("without/run.h5"), "r") as other:
            self.assertNotIn("probe", other)
            for name in ["train/loss", "train/virtual_s", "epoch/train_loss", "memory/peak_bytes", "memory/total_peak_bytes"]:
                self.assertEqual(one[name][:].tobytes(), other[name][:].tobytes(), name)

    def test_single_precision_without_gradients(self):
        with h5py.File(self.train("out", device__backend="cpu", device__precision="fp32", probe__gradients="false",
                                  method__accumulate=1, probe__per_epoch=24, optim__lr=0), "r") as run:
            self.assertNotIn("gradients", run["probe"])
            self.assertGreater(len(run["probe/microbatch"]), 36)
            for pair in PAIRS:
                numpy.testing.assert_allclose(run[f"probe/cosine/{pair}"][:], 1, atol=1e-3)


if __name__ == "__main__":
    main()
