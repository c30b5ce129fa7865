# SPDX-License-Identifier: Apache-2.0
"""Folders of JPEG images: what becomes of each sort, against another implementation; wrong files;
training from them."""

import os

import h5py

from images import (
    RESIZE,
    SORTS,
    Image,
    ImageTest,
    evaluation_view,
    jpeg,
    numpy,
    picture,
    training_view,
)
from program import main

# Records in petra's order: the first file of every class, the second ...; classes and files by
# their bytes.
ALPHA = sorted(SORTS)
ORDER = [ALPHA[0], "420.jpg", "444.JPEG", ALPHA[1], "cmyk.jpeg", ALPHA[2], "grey.jpeg", *ALPHA[3:]]
LABELS = [0, 1, 2, 0, 1, 0, 1] + [0] * len(ALPHA[3:])
# Rounded to bytes twice in both, in another order, and the conversion of CMYK once more.
ROUNDING = 2


class Views(ImageTest):
    def setUp(self):
        super().setUp()
        self.write_folder()

    def test_evaluation(self):
        self.good("data", "convert", "images.yaml", "--output", "a.h5")
        with h5py.File(self.path("a.h5")) as file:
            self.assertEqual(list(file["train/labels"]), LABELS)
            self.assertEqual(list(file["class_names"]), [b"alpha", b"beta", b"gamma"])
            self.assertEqual(list(file["eval/labels"]), [0, 1, 0])
            for record, name in enumerate(ORDER):
                worst = abs(file["train/images"][record] - evaluation_view(SORTS[name])).max()
                print(f"evaluation view of {name}: largest difference {worst}")
                self.assertLessEqual(worst, ROUNDING, name)
            grey = file["train/images"][ORDER.index("grey.jpeg")]
            self.assertTrue((grey[0] == grey[1]).all() and (grey[0] == grey[2]).all())

    def test_training(self):
        """Decoded in full or at 1/2, 1/4, 1/8: the windows are those of the description, and so are
        the pixels."""
        views = self.batches(0, 6, len(ORDER), data__shuffle="false")
        seen = set()
        for epoch in range(6):
            for record, name in enumerate(ORDER):
                found = views[epoch * len(ORDER) + record]
                expected, reduced = training_view(SORTS[name], 1, epoch, record)
                difference = abs(found - expected)
                # Decoding at 1/2 or less is another filter, which looks over the edge of the window
                # and finds half the colour of an image that has half of it in its file; that pixels
                # are in their places is tested below.
                self.assertLessEqual(
                    difference.max(), 20 if reduced else ROUNDING + 1e-6, (name, epoch)
                )
                seen.add(reduced)
                self.assertLessEqual(difference.mean(), 3 if reduced else 1, (name, epoch))
        self.assertEqual(seen, {False, True})

    def test_reduced_decoding_is_in_place(self):
        """On a slope every symmetric filter gives the same inside: what differs is that pixels lie
        elsewhere. A quarter of a pixel of the image decoded at 1/8 would be 0.7 levels."""
        y, x = numpy.mgrid[0:503, 0:701]
        slope = jpeg(
            Image.fromarray(
                numpy.stack([x * 255 / 701, y * 255 / 503, 255 - x * 255 / 701], 2).astype("u1")
            ),
            quality=100,
            subsampling=0,
        )
        for name in ["a", "b"]:
            self.write(f"slope/train/{name}/1.jpg", slope)
        views = self.batches(0, 30, 2, data__path="slope", data__shuffle="false")
        reductions = 0
        for i, found in enumerate(views):
            expected, reduced = training_view(slope, 1, i // 2, i % 2)
            difference = (found - expected)[:, 1:-1, 1:-1]
            self.assertLessEqual(abs(difference).max(), 2 + 1e-6)
            # Red rises where blue falls: the rest is rounding of colours.
            red, green, blue = difference.mean((1, 2))
            self.assertLessEqual(abs(red - blue) / 2, 0.3)
            self.assertLessEqual(abs(green), 0.3)
            reductions += reduced
        self.assertEqual(reductions, len(views))

    def test_no_augmentation_is_the_evaluation_view(self):
        plain = self.batches(0, 1, len(ORDER), data__shuffle="false", data__augment="[]")
        flipped = self.batches(0, 4, len(ORDER), data__shuffle="false", data__augment="[flip]")
        self.good("data", "convert", "images.yaml", "--output", "a.h5")
        turned = 0
        with h5py.File(self.path("a.h5")) as file:
            for i, found in enumerate(flipped):
                expected = file["train/images"][i % len(ORDER)].astype("f8")
                numpy.testing.assert_allclose(plain[i % len(ORDER)], expected, atol=1e-9)
                if abs(found - expected).max() > 1e-9:
                    numpy.testing.assert_allclose(found, expected[:, :, ::-1], atol=1e-9)
                    turned += 1
        self.assertGreater(turned, len(ORDER))  # about half of 4 times as many

    def test_threads_and_first(self):
        one = self.batches(0, 9, 4)
        for workers in [2, 4]:
            self.assertTrue((self.batches(0, 9, 4, data__workers=workers) == one).all())
            self.assertTrue((self.batches(5, 9, 4, data__workers=workers) == one[20:]).all())
        self.assertFalse((self.batches(0, 9, 4, run__seed=2) == one).all())

    def test_train(self):
        for workers in [1, 2, 4]:
            self.good(
                "train",
                "images.yaml",
                "--output",
                f"out{workers}",
                "--quiet",
                "--set",
                f"data.workers={workers}",
            )
            self.assertEqual(self.read(f"out{workers}/weights.h5"), self.read("out1/weights.h5"))
        found = self.good_json("evaluate", "images.yaml", "--set", "model.weights=out1/weights.h5")
        self.assertEqual(found["images"], 3)
        self.good(
            "train",
            "images.yaml",
            "--output",
            "imagenet",
            "--quiet",
            *self.set_options(model__stem="imagenet", data__image_size=64, data__resize=73),
        )
        with h5py.File(self.path("imagenet/run.h5")) as run:
            self.assertIn("libjpeg-turbo", run.attrs["libraries"])

    def test_inspect_needs_no_images(self):
        found = self.good_json(
            "inspect",
            "images.yaml",
            *self.set_options(data__path="nowhere", data__image_size=224, data__resize=256),
        )
        self.assertEqual(found["stages"][0]["input"]["height"], 224)

    def test_verify(self):
        found = self.good_json("data", "verify", "images.yaml")
        train, evaluation = found["splits"]
        self.assertEqual(
            (found["problems"], train["images"], evaluation["images"]), (0, len(ORDER), 3)
        )
        self.assertEqual(
            (train["class_counts"], evaluation["class_counts"]), ([len(SORTS), 3, 1], [2, 1, 0])
        )
        self.assertEqual(train["class_names"], ["alpha", "beta", "gamma"])
        self.assertEqual(
            train["stored"], {"width_min": 1, "width_max": 700, "height_min": 1, "height_max": 500}
        )
        self.good("data", "convert", "images.yaml", "--output", "a.h5")
        with h5py.File(self.path("a.h5")) as file:
            pixels = file["train/images"][:] / 255
        numpy.testing.assert_allclose(train["mean"], pixels.mean((0, 2, 3)), rtol=1e-12)
        numpy.testing.assert_allclose(train["deviation"], pixels.std((0, 2, 3)), rtol=1e-9)
        self.assertIn("problems: 0", self.good("data", "verify", "images.yaml"))

    def test_orientation_is_ignored(self):
        """Of both byte orders; the second entry of the directory, as cameras write it; an
        orientation of 1 asks for nothing."""
        exif = Image.Exif()
        exif[0x010F] = "maker"
        exif[0x0112] = 6
        big = (
            b"Exif\0\0MM\0*\0\0\0\x08\0\2"
            + b"\1\x0f\0\2\0\0\0\4abc\0"
            + b"\1\x12\0\3\0\0\0\1\0\3\0\0"
            + bytes(4)
        )
        for name, options in (
            ("6", {"exif": exif}),
            ("3", {"exif": big}),
            ("1", {"exif": big.replace(b"\0\3\0\0" + bytes(4), b"\0\1\0\0" + bytes(4))}),
            ("short", {"exif": big[:36]}),
            ("none", {}),
        ):
            self.write(f"turned/train/a/{name}.jpg", jpeg(picture(60, 40), **options))
            self.write(f"turned/val/a/{name}.jpg", jpeg(picture(60, 40)))
        options = self.set_options(data__path="turned")
        found = self.good_json("data", "verify", "images.yaml", *options)
        self.assertEqual([split["exif_oriented"] for split in found["splits"]], [2, 0])
        line = "images with an EXIF orientation, which petra ignores, as torchvision does: 2\n"
        self.assertEqual(self.good("data", "verify", "images.yaml", *options).count(line), 1)
        self.assertIn(
            line, self.good("data", "convert", "images.yaml", "--output", "a.h5", *options)
        )
        with h5py.File(self.path("a.h5")) as file:
            for image in file["train/images"]:
                numpy.testing.assert_array_equal(image, file["eval/images"][0])

    def test_outputs_without_a_class(self):
        line = (
            "model.classes: 10 outputs for the 3 classes of the data set; the others are never"
            " right\n"
        )
        code, _, error = self.run_petra(
            "train", "images.yaml", "--output", "out", "--set", "run.epochs=1"
        )
        self.assertEqual((code, error.count("petra: warning: " + line)), (0, 1), error)
        self.assertIn(line, self.good("data", "verify", "images.yaml"))
        self.assertNotIn(
            "outputs", self.good("data", "verify", "images.yaml", "--set", "model.classes=3")
        )

    def test_flat_folder(self):
        os.rename(self.path("images/train"), self.path("flat"))
        options = self.set_options(data__path="flat", run__eval_every=0)
        self.good("train", "images.yaml", "--output", "out", "--quiet", *options)
        self.bad(
            2,
            ["data.path: flat", "run.eval_every: 0"],
            "train",
            "images.yaml",
            "--set",
            "data.path=flat",
        )
        self.assertEqual(
            len(self.good_json("data", "verify", "images.yaml", *options)["splits"]), 1
        )


class Wrong(ImageTest):
    def setUp(self):
        super().setUp()
        self.write_folder()
        self.good_bytes = jpeg(picture(60, 60))

    def wrong(self, name, words):
        """Training and conversion end at the file, and leave nothing; verification counts it and
        goes on."""
        options = self.set_options(run__epochs=1, data__batch=len(ORDER) + 1, run__eval_every=0)
        self.bad(1, [name, *words], "train", "images.yaml", "--output", "out", "--quiet", *options)
        self.assertFalse(os.path.exists(self.path("out/weights.h5")))
        self.bad(1, [name, *words], "data", "convert", "images.yaml", "--output", "a.h5")
        self.assertEqual(
            [name for name in os.listdir(self.folder) if name.endswith((".h5", ".tmp"))], []
        )
        code, out, error = self.run_petra("data", "verify", "images.yaml", "--json")
        self.assertEqual((code, len(error.splitlines())), (1, 1), error)
        self.assertIn(name, error)
        self.assertIn('"problems": 1', out)

    def test_truncated(self):
        data = self.good_bytes
        for size in [len(data) * 6 // 10, len(data) - 2, 10]:
            self.write("images/train/beta/bad.jpg", data[:size])
            self.wrong("images/train/beta/bad.jpg", ["truncated JPEG image"])

    def test_end_marker_too_early(self):
        data = self.good_bytes
        self.write("images/train/beta/bad.jpg", data[: len(data) * 6 // 10] + b"\xff\xd9")
        self.wrong("images/train/beta/bad.jpg", ["JPEG image: "])

    def test_no_image(self):
        self.write("images/train/beta/bad.jpg", "this is a text\n")
        self.wrong("images/train/beta/bad.jpg", ["not a JPEG image"])

    def test_png(self):
        picture(20, 20).save(self.path("images/train/beta/bad.jpeg"), "PNG")
        self.wrong("images/train/beta/bad.jpeg", ["is a PNG image, expected a JPEG image"])

    def test_empty(self):
        self.write("images/train/gamma/bad.jpg", b"")
        self.wrong("images/train/gamma/bad.jpg", ["the file is empty"])

    def test_folder_in_place_of_a_file(self):
        os.mkdir(self.path("images/train/gamma/bad.jpg"))
        self.wrong("images/train/gamma/bad.jpg", ["is a folder, expected a JPEG file"])

    def test_link_to_nowhere(self):
        os.symlink("nowhere", self.path("images/train/gamma/bad.jpg"))
        self.wrong("images/train/gamma/bad.jpg", ["neither a file nor a link to one"])

    def test_class_without_images(self):
        os.mkdir(self.path("images/train/delta"))
        self.wrong("images/train/delta", ["a class without images"])

    def test_unreadable(self):
        if os.geteuid() == 0:
            self.skipTest("root reads everything")
        os.chmod(self.write("images/train/gamma/bad.jpg", self.good_bytes), 0)
        self.wrong("images/train/gamma/bad.jpg", ["Permission denied"])

    def test_class_of_evaluation_only(self):
        self.write("images/val/omega/a.jpg", self.good_bytes)
        self.bad(
            1,
            ["images/val/omega", "no folder for"],
            "evaluate",
            "images.yaml",
            "--set",
            "model.weights=w.h5",
        )

    def test_superfluous_bytes_are_no_error(self):
        data = self.good_bytes
        self.write("images/train/beta/more.jpg", data[:-2] + b"\0" * 7 + data[-2:] + b"trailer")
        self.good("data", "verify", "images.yaml", "--quiet")

    def test_warnings_of_header_fields_are_no_error(self):
        """What decoding does not use may hold anything: the image is the same."""
        data = self.good_bytes
        app, scan, quantisation = (
            data.index(b"\xff\xe0"),
            data.index(b"\xff\xda"),
            data.index(b"\xff\xdb"),
        )
        frame = data.index(b"\xff\xc0")
        sound = {
            "whole": data,
            "jfif": data[: app + 9] + b"\2" + data[app + 10 :],  # JFIF 2.01
            "parameters": data[: scan + 12]
            + b"\0"
            + data[scan + 13 :],  # the last coefficient of the scan is 0: of some phones
            "adobe": data[:frame]
            + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\7"
            + data[frame:],  # an unknown colour transform
            "between": data[:quantisation] + b"\1\2" + data[quantisation:],
        }
        sound["all"] = (
            sound["parameters"][: app + 9]
            + b"\2"
            + sound["parameters"][app + 10 : quantisation]
            + b"\0\0"
            + sound["parameters"][quantisation:]
        )
        for name, content in sound.items():
            self.write(f"sound/train/a/{name}.jpg", content)
        self.good("data", "convert", "images.yaml", "--output", "a.h5", "--set", "data.path=sound")
        with h5py.File(self.path("a.h5")) as file:
            self.assertEqual(len(file["train/images"]), len(sound))
            for image in file["train/images"]:
                numpy.testing.assert_array_equal(image, file["train/images"][0])

    def test_each_warning_of_coded_bytes_is_an_error(self):
        """Bytes that are missing or left over, also behind a harmless warning, which the decoder
        gives first."""
        image = Image.fromarray(
            numpy.random.default_rng(3).integers(0, 256, (64, 64, 3)).astype("u1")
        )
        for kind, data in (
            ("sequential", jpeg(image)),
            ("progressive", jpeg(image, progressive=True)),
        ):
            quantisation, scan = data.index(b"\xff\xdb"), data.index(b"\xff\xda")
            start = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
            middle = (start + len(data)) // 2
            while 255 in data[middle - 40 : middle + 40]:
                middle += 1
            bad = {
                "half": data[:middle] + b"\xff\xd9",
                "more": data[:-2]
                + data[middle - 20 : middle]
                + data[-2:],  # behind the last coded byte
                "less": data[: middle - 40] + data[middle:],
            }
            if kind == "progressive":
                # Without the last one: of this the decoder does not warn.
                bad["scans"] = data[: data.rindex(b"\xff\xda")] + b"\xff\xd9"
            for name, content in list(bad.items()):
                bad[name + "-between"] = content[:quantisation] + b"\0\0" + content[quantisation:]
                bad[name + "-jfif"] = content[:11] + b"\2" + content[12:]
            for name, content in bad.items():
                self.write(f"{kind}/train/a/{name}.jpg", content)
            code, _, error = self.run_petra(
                "data",
                "verify",
                "images.yaml",
                *self.set_options(data__path=kind, run__eval_every=0),
            )
            told = sorted(line.split(": ")[1].rsplit("/", 1)[1] for line in error.splitlines())
            self.assertEqual((code, told), (1, sorted(name + ".jpg" for name in bad)), error)

    def test_all_problems_are_told(self):
        self.write("images/train/beta/bad1.jpg", self.good_bytes[:200])
        self.write("images/train/gamma/bad2.jpg", b"")
        self.write("images/val/alpha/bad3.jpg", "text")
        os.mkdir(self.path("images/train/delta"))
        os.mkdir(self.path("images/val/beta/bad4.jpeg"))
        code, out, error = self.run_petra("data", "verify", "images.yaml")
        self.assertEqual((code, len(error.splitlines())), (1, 5), error)
        for name in ["bad1", "bad2", "bad3", "bad4", "delta"]:
            self.assertEqual(error.count(name), 1, error)
        self.assertIn(f"train  {len(ORDER)} images", out)
        self.assertIn("problems: 3", out)
        self.assertIn("problems: 2", out)

    def test_other_files_are_left_out_with_a_warning(self):
        self.write("images/train/beta/notes.txt", "text")
        self.write("images/train/list.csv", "text")
        code, _, error = self.run_petra("data", "verify", "images.yaml")
        self.assertEqual((code, len(error.splitlines())), (0, 1), error)
        self.assertIn("warning: images/train: 2 entries", error)
        self.assertEqual(self.run_petra("data", "verify", "images.yaml", "--quiet"), (0, "", ""))

    def test_config(self):
        self.bad(
            2,
            "data.resize: ",
            "train",
            "images.yaml",
            *self.set_options(data__image_size=RESIZE + 1),
        )
        self.bad(
            2,
            ["model.classes", "the 3 classes"],
            "train",
            "images.yaml",
            "--set",
            "model.classes=2",
        )
        self.bad(1, "nowhere: no such folder", "train", "images.yaml", "--set", "data.path=nowhere")
        self.bad(2, "data.path: is empty", "train", "images.yaml", "--set", 'data.path=""')
        os.makedirs(self.path("bare/train"))
        self.bad(
            1, "bare/train: contains no folders", "train", "images.yaml", "--set", "data.path=bare"
        )
        os.makedirs(self.path("half/val"))
        self.bad(
            1, "a folder val but no folder train", "train", "images.yaml", "--set", "data.path=half"
        )


main()
