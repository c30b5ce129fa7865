# SPDX-License-Identifier: Apache-2.0
"""Probes as they stand in run.h5: the schema of docs/hdf5-schema.md, figures that follow from the
logged gradients, and weights that are the same with and without them."""

import h5py
import numpy

from program import ProgramTest, main, sample

PAIRS = {
    "method_delayed": ("method", "delayed"),
    "method_end_to_end": ("method", "end_to_end"),
    "delayed_end_to_end": ("delayed", "end_to_end"),
}
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
        self.good(
            "train", "probed.yaml", "--output", folder, "--quiet", *self.set_options(**values)
        )
        return self.path(f"{folder}/run.h5")

    def test_the_log(self):
        with h5py.File(self.train("out"), "r") as run:
            probe = run["probe"]
            names = [name.decode() for name in probe["parameter/name"][:]]
            stages = probe["parameter/stage"][:]
            # Of 24 microbatches an epoch those at 4, 12, 20; of the last windows not all stages
            # have updated.
            self.assertEqual(list(probe["microbatch"][:]), [4, 12, 20, 28, 36])
            self.assertEqual(list(probe["epoch"][:]), [0, 0, 0, 1, 1])
            with h5py.File(self.path("out/weights.h5"), "r") as weights:
                shapes = {}
                weights["parameters"].visititems(
                    lambda name, item: (
                        shapes.update({name: item.shape})
                        if isinstance(item, h5py.Dataset)
                        else None
                    )
                )
            self.assertEqual(
                sorted(names), sorted(name for name in shapes if "running" not in name)
            )
            self.assertEqual(list(stages), sorted(stages))
            self.assertEqual([int((stages == j).sum()) for j in [1, 2, 3, 4]], [3, 27, 24, 8])
            self.assertEqual(int(probe["parameter/zero"][:].sum()), 0)
            for pair, (x, y) in PAIRS.items():
                for t in range(5):
                    expected = numpy.array(
                        [
                            figures(
                                probe[f"gradients/{x}/{name}"][t], probe[f"gradients/{y}/{name}"][t]
                            )
                            for name in names
                        ]
                    )
                    for m, measure in enumerate(MEASURES):
                        found = probe[f"parameter/{measure}/{pair}"][t]
                        numpy.testing.assert_allclose(found, expected[:, m], rtol=1e-10, atol=1e-12)
                        numpy.testing.assert_allclose(
                            probe[f"{measure}/{pair}"][t],
                            [found[stages == j].mean() for j in [1, 2, 3, 4]],
                            rtol=1e-12,
                        )
                    whole = [
                        [
                            numpy.concatenate(
                                [
                                    probe[f"gradients/{g}/{name}"][t].ravel()
                                    for name, s in zip(names, stages)
                                    if s == j
                                ]
                            )
                            for g in (x, y)
                        ]
                        for j in [1, 2, 3, 4]
                    ]
                    numpy.testing.assert_allclose(
                        probe[f"concatenated_cosine/{pair}"][t],
                        [figures(*both)[0] for both in whole],
                        rtol=1e-12,
                    )
            # The stages begin with the stem, a reversible block, a downsampling one, and a
            # reversible one of the fused action.
            error = probe["reconstruction_error"][:]
            self.assertEqual(
                [bool(numpy.isnan(error[:, j]).all()) for j in range(4)], [True, False, True, True]
            )
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
        self.assertEqual(
            [len(probe["gradients"][g]) for g in ["method", "delayed", "end_to_end"]], [10, 10, 10]
        )
        self.assertEqual(len(probe["peak_bytes"]), len(probe["peak_bytes"].attrs["categories"]))
        self.assertGreater(probe["peak_bytes"][:].sum(), 0)

    def test_a_run_that_is_too_short(self):
        """A run without a complete probe says that /probe is empty."""
        code, _, error = self.run_petra(
            "train", "probed.yaml", "--output", "short", *self.set_options(run__max_microbatches=6)
        )
        self.assertEqual(code, 0, error)
        self.assertIn(
            "petra: warning: /probe of short/run.h5 is empty: the run ended before any of its"
            " probes was complete",
            error,
        )
        with h5py.File(self.path("short/run.h5"), "r") as log:
            self.assertEqual(len(log["probe/microbatch"]), 0)

    def test_nothing_else_changes(self):
        self.train("with")
        self.train("without", probe__per_epoch=0)
        self.assertEqual(self.read("with/weights.h5"), self.read("without/weights.h5"))
        with (
            h5py.File(self.path("with/run.h5"), "r") as one,
            h5py.File(self.path("without/run.h5"), "r") as other,
        ):
            self.assertNotIn("probe", other)
            for name in [
                "train/loss",
                "train/virtual_s",
                "epoch/train_loss",
                "memory/peak_bytes",
                "memory/total_peak_bytes",
            ]:
                self.assertEqual(one[name][:].tobytes(), other[name][:].tobytes(), name)

    METHODS = [
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
    ]
    # As many microbatches an epoch as above, of half the images, in a narrower network.
    ONE = {
        "run__epochs": 1,
        "run__max_microbatches": 14,
        "probe__per_epoch": 6,
        "method__accumulate": 4,
        "data__batch": 2,
        "data__limit": 48,
        "model__width": 1,
    }

    def same_probes(self, one, other, what, but=()):
        """All that two runs logged of their probes, and their weights, bit for bit."""
        self.assertEqual(self.read(f"{one}/weights.h5"), self.read(f"{other}/weights.h5"), what)
        found = [{}, {}]
        for values, folder in zip(found, (one, other)):
            with h5py.File(self.path(f"{folder}/run.h5"), "r") as run:

                def keep(name, item, values=values):
                    if isinstance(item, h5py.Dataset):
                        values[name] = (
                            item[()].tobytes() if item.dtype.kind in "fiu" else list(item[()])
                        )

                run["probe"].visititems(keep)
                self.assertGreater(len(run["probe/microbatch"]), 0, what)
        self.assertIn("cosine/method_end_to_end", found[0])
        self.assertEqual(sorted(found[0]), sorted(found[1]))
        for name, value in found[0].items():
            if name not in but:
                self.assertEqual(value, found[1][name], (name, what))

    def test_order_from_a_file(self):
        more = [
            {
                "run__drain": "true",
                "method__name": "petra",
                "method__head": "split",
                "method__accumulate": 1,
            },
            {
                "method__name": "pipedream",
                "run__max_microbatches": 4,
            },  # as short as this the order is that of 1f1b as well
            {"method__name": "1f1b", "run__max_microbatches": 4},
        ]
        for values in sample(
            [{"method__name": name} for name in self.METHODS if name != "dgl"] + more
        ):
            values = {**self.ONE, **values}
            self.write(
                "own.schedule", self.good("schedule", "probed.yaml", *self.set_options(**values))
            )
            self.train("own", **values)
            values.pop("run__drain", None)
            self.train("file", **values, method__schedule="own.schedule")
            self.same_probes("own", "file", values)
        # The order of another program than the method's own, and evaluations that its program would
        # not make there.
        self.write(
            "own.schedule", self.good("schedule", "probed.yaml", *self.set_options(**self.ONE))
        )
        self.train("own", **self.ONE)
        self.train(
            "file",
            **self.ONE,
            method__name="gpipe",
            method__keep="nothing",
            method__schedule="own.schedule",
        )
        self.same_probes("own", "file", "petra's weights in petra's order")

    def test_order_without_references(self):
        values = {
            "stages__partition": "balanced",
            "stages__count": 2,
            "stages__blocks": "[]",
            "method__accumulate": 1,
            "method__schedule": "mine.schedule",
            "run__epochs": 1,
        }
        refused = ["train", "probed.yaml", "--output", "no", *self.set_options(**values)]
        # Stage 1 is two microbatches late, stage 2 one; then an order with no delay, which is
        # synchronous.
        self.write(
            "mine.schedule",
            "1: 1F0 1F1 1F2 1B0 1U0 1F3 1B1 1U1 1B2 1U2 1B3 1U3\n"
            "2: 2F0 2F1 2B0 2U0 2F2 2B1 2U1 2F3 2B2 2U2 2B3 2U3\n",
        )
        self.bad(2, ["probe.per_epoch: 3", "mine.schedule", "neither synchronous"], *refused)
        self.train("late", **values, probe__per_epoch=0)
        self.write(
            "mine.schedule",
            "1: 1F0 1B0 1U0 1F1 1B1 1U1 1F2 1B2 1U2 1F3 1B3 1U3 1F4 1B4 1U4\n"
            "2: 2F0 2B0 2U0 2F1 2B1 2U1 2F2 2B2 2U2 2F3 2B3 2U3 2F4 2B4 2U4\n",
        )
        with h5py.File(self.train("exact", **values), "r") as run:
            numpy.testing.assert_allclose(run["probe/cosine/method_end_to_end"][:], 1, rtol=1e-12)
        # What was recorded by arrival has its references from the clock of that run.
        self.train(
            "arrival", method__name="petra-arrival", run__trace_actions="true", method__credit=5
        )
        self.bad(
            2,
            ["probe.per_epoch: 3", "petra-arrival", "clock"],
            "train",
            "probed.yaml",
            "--output",
            "no",
            *self.set_options(method__name="petra-arrival", method__schedule="arrival/run.h5"),
        )

    def test_the_cluster_does_not_matter(self):
        clusters = [
            {"cluster__link__latency_s": 1e-9},
            {"cluster__link__latency_s": 0.7, "cluster__engines": 2},
            {
                "cluster__jitter__model": "gamma",
                "cluster__jitter__scale": 0.5,
                "cluster__speeds": "[1, 2, 1, 3]",
            },
        ]
        for method in sample(["pipedream", "petra", "zb-h1"]):
            values = {**self.ONE, "method__name": method, "method__accumulate": 2}
            self.train("plain", **values)
            for cluster in clusters:
                self.train("other", **values, **cluster)
                # How long copies are held.
                self.same_probes("plain", "other", (method, cluster), but=["peak_bytes"])

    def test_arrival_in_no_time(self):
        """Everything meets in one moment: all updates count, but the stage's own that come
        later."""
        values = {
            **self.ONE,
            "method__name": "petra-arrival",
            "method__credit": 4,
            "method__accumulate": 1,
            "probe__per_epoch": 24,
            "cluster__cost__model": "constant",
            "cluster__cost__forward_s": 0,
            "cluster__cost__backward_s": 0,
            "cluster__cost__reconstruct_s": 0,
            "cluster__cost__weight_gradient_s": 0,
        }
        with h5py.File(self.train("instant", **values), "r") as run:
            self.assertEqual(list(run["probe/microbatch"][:]), list(range(14)))
            # The first backward of the head is so compared at weights of the end, where at its
            # start all were the first.
            self.assertLess(abs(run["probe/cosine/method_end_to_end"][0, 3]), 0.999)

    def test_single_precision_without_gradients(self):
        with h5py.File(
            self.train(
                "out",
                device__backend="cpu",
                device__precision="fp32",
                probe__gradients="false",
                method__accumulate=1,
                probe__per_epoch=24,
                optim__lr=0,
            ),
            "r",
        ) as run:
            self.assertNotIn("gradients", run["probe"])
            self.assertGreater(len(run["probe/microbatch"]), 36)
            for pair in PAIRS:
                numpy.testing.assert_allclose(run[f"probe/cosine/{pair}"][:], 1, atol=1e-3)


if __name__ == "__main__":
    main()
