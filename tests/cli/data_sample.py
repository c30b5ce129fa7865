# SPDX-License-Identifier: Apache-2.0
"""Real photographs, where a checkout of the project has them beside it
(../shared/data/imagenet-sample.tar): all are read, and a network is trained on them."""

import os
import sys
import tarfile

import images
from images import ImageTest
from program import main

SAMPLE = os.path.join(os.environ.get("srcdir", "."), "..", "shared", "data", "imagenet-sample.tar")
if not os.path.exists(SAMPLE):
    print(f"skipped: {SAMPLE} is not there")
    sys.exit(77)


class Sample(ImageTest):
    def setUp(self):
        super().setUp()
        with tarfile.open(SAMPLE) as archive:
            archive.extractall(self.folder)
            self.files = [name for name in archive.getnames() if name.endswith(".JPEG")]
        self.options = self.set_options(data__path="imagenet-sample", model__classes=65)

    def test_all_are_read(self):
        found = self.good_json(
            "data",
            "verify",
            "images.yaml",
            *self.options,
            *self.set_options(data__image_size=224, data__resize=256),
        )
        self.assertEqual(sum(split["images"] for split in found["splits"]), len(self.files))
        self.assertEqual(found["problems"], 0)

    def test_views(self):
        # One image a class: in the order of the classes.
        train = sorted(name for name in self.files if "/train/" in name)
        views = self.batches(0, 1, len(train), data__path="imagenet-sample", data__shuffle="false")
        differences = []
        for record, name in enumerate(train):
            expected, _ = images.training_view(self.read(name), 1, 0, record)
            differences.append(abs(views[record] - expected).mean())
        # Reduced decoding is another filter: on the sharpest of photographs a few levels on
        # average, on most under one.
        middle = images.numpy.median(differences)
        print(
            f"mean difference to full decoding, levels of 255: median {middle:.2f},"
            f" largest {max(differences):.2f}"
        )
        self.assertLess(middle, 2)
        self.assertLess(max(differences), 6)

    def test_train(self):
        options = [
            *self.options,
            *self.set_options(
                data__image_size=64,
                data__resize=72,
                model__stem="imagenet",
                model__width=4,
                run__max_microbatches=3,
                run__eval_every=1,
                data__batch=21,
            ),
        ]
        for workers in [1, 2]:
            out = self.good_json(
                "train",
                "images.yaml",
                "--output",
                f"out{workers}",
                "--set",
                f"data.workers={workers}",
                "--set",
                "method.name=backprop",
                *options,
            )
            self.assertEqual((out["microbatches"], out["losses"]), (3, 3))
        self.assertEqual(self.read("out1/weights.h5"), self.read("out2/weights.h5"))


main()
