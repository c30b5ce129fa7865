# SPDX-License-Identifier: Apache-2.0
"""What the tests with JPEG files share: a Python that can make them, a folder of all sorts of
them."""

import io
import os
import subprocess
import sys

from program import PETRA, ProgramTest

try:
    import numpy
    from PIL import Image
except ImportError:  # another interpreter of this machine may have them
    OTHER = "/usr/bin/python3"
    if (
        sys.executable != OTHER
        and os.path.exists(OTHER)
        and subprocess.run(
            [OTHER, "-c", "import PIL, numpy, h5py"], stderr=subprocess.DEVNULL, check=False
        ).returncode
        == 0
    ):
        os.execv(OTHER, [OTHER, "-B", *sys.argv])
    print("skipped: no Python with PIL, numpy and h5py")
    sys.exit(77)

if (
    "libjpeg-turbo"
    not in subprocess.run([PETRA, "info"], capture_output=True, text=True, check=True).stdout
):
    print("skipped: this petra has no decoder for JPEG images")
    sys.exit(77)

DUMP = os.path.abspath("tests/dump_batches")
SIZE, RESIZE = 24, 28
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def picture(width, height, seed=0):
    """A smooth colour image with some detail."""
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [
        128
        + 100
        * numpy.sin((x * (3 + c) + 2 * seed) / width * 3)
        * numpy.cos((y * (2 + c) + seed) / height * 3)
        for c in range(3)
    ]
    return Image.fromarray(numpy.stack(planes, 2).clip(0, 255).astype(numpy.uint8))


def jpeg(image, **options):
    stream = io.BytesIO()
    image.save(stream, "JPEG", **{"quality": 92, **options})
    return stream.getvalue()


# Every sort that has to work: name -> bytes. Sizes that 8, 16 and the resized size do not divide.
SORTS = {
    "420.jpg": jpeg(picture(101, 67, 1)),
    "444.JPEG": jpeg(picture(67, 101, 2), subsampling=0),
    "422.jpeg": jpeg(picture(64, 64, 3), subsampling=1),
    "cmyk.jpeg": jpeg(picture(90, 70, 4).convert("CMYK")),
    "grey.jpeg": jpeg(picture(50, 80, 5).convert("L")),
    "large.JPG": jpeg(picture(700, 500, 6)),
    "progressive.jpg": jpeg(picture(83, 45, 7), progressive=True),
    "thin.jpg": jpeg(picture(300, 9, 8)),
    "tiny.jpg": jpeg(picture(1, 1, 9)),
}


class ImageTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write(
            "images.yaml",
            f"""\
run: {{name: images, epochs: 2}}
data: {{set: imagefolder, path: images, batch: 4, workers: 1, image_size: {SIZE}, resize: {RESIZE}}}
model: {{width: 1, stem: cifar}}
device: {{threads: 1}}
""",
        )

    def write_folder(self, folder="images"):
        """Classes: alpha has every sort, beta and gamma a few; val has no gamma."""
        for name, data in SORTS.items():
            self.write(f"{folder}/train/alpha/{name}", data)
        for name in ["420.jpg", "grey.jpeg", "cmyk.jpeg"]:
            self.write(f"{folder}/train/beta/{name}", SORTS[name])
        self.write(f"{folder}/train/gamma/444.JPEG", SORTS["444.JPEG"])
        self.write(f"{folder}/train/.hidden", b"")
        for name in ["large.JPG", "thin.jpg"]:
            self.write(f"{folder}/val/alpha/{name}", SORTS[name])
        self.write(f"{folder}/val/beta/tiny.jpg", SORTS["tiny.jpg"])

    def batches(self, first, end, batch, **values):
        """Training images as the loader gives them, (images, 3, SIZE, SIZE), back as pixels from 0
        to 255."""
        out = subprocess.run(
            [
                DUMP,
                "images.yaml",
                str(first),
                str(end),
                *self.set_options(data__batch=batch, **values),
            ],
            cwd=self.folder,
            capture_output=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(out.returncode, 0, out.stderr)
        images = numpy.frombuffer(out.stdout, "f8").reshape(-1, 3, SIZE, SIZE)
        self.assertEqual(len(images), (end - first) * batch)
        return 255 * (
            images * numpy.reshape(DEVIATION, (1, 3, 1, 1)) + numpy.reshape(MEAN, (1, 3, 1, 1))
        )


def evaluation_view(data):
    """The field's evaluation transform by another implementation: (3, SIZE, SIZE)."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    width, height = image.size
    short = min(width, height)
    width, height = RESIZE * width // short, RESIZE * height // short
    image = image.resize((width, height), Image.BILINEAR)
    left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
    return numpy.asarray(image.crop((left, top, left + SIZE, top + SIZE)), "f8").transpose(2, 0, 1)


def training_view(data, seed, epoch, record):
    """The training transform by another implementation, from the full image, and whether petra
    decodes it at 1/2 or less; the window is petra's."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    out = subprocess.run(
        [DUMP, "--window", *map(str, [seed, epoch, record, image.height, image.width])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    flip, top, left, height, width = map(int, out.split())
    image = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE), Image.BILINEAR)
    pixels = numpy.asarray(image, "f8").transpose(2, 0, 1)
    return pixels[:, :, ::-1] if flip else pixels, min(height, width) >= 2 * SIZE
