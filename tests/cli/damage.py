# SPDX-License-Identifier: Apache-2.0
"""Files that were changed: bytes flipped, swapped or cut in every kind of file that petra reads,
values changed inside checkpoints. Each run ends by itself, in little time and memory, and what it
refuses it refuses with one line.

PETRA_TEST_DAMAGE: how many files of each kind (checkpoints with changed values: half as many)."""

import os
import random
import resource
import shutil
import struct
import subprocess
import time

import h5py
import numpy

from program import SANITIZED, ProgramTest, main

COUNT = int(os.environ.get("PETRA_TEST_DAMAGE", "10" if SANITIZED else "4"))
MOST_S, MOST_KIB = 10, 500 * 1024

CONFIG = """\
run:
  {name: damaged, epochs: 3, seed: 3, eval_every: 1, checkpoint_every: 1, keep_checkpoint: true,
   trace_actions: true}
data: {set: shapes, batch: 4, limit: 24, eval_limit: 8, workers: 1}
model: {width: 1}
stages: {partition: balanced, count: 4}
device: {threads: 1}
"""

# Together they keep graphs, inputs, old versions, a double buffer, a copy, probes, deferred
# gradients, a pool's mask and measured durations.
CHECKPOINTS = [
    ["method.name=petra", "method.accumulate=2", "probe.per_epoch=2"],
    ["method.name=pipedream", "method.accumulate=2", "probe.per_epoch=1", "probe.gradients=true"],
    ["method.name=zb-h1", "method.accumulate=3", "device.backend=ref", "data.limit=20"],
    ["method.name=pipedream-2bw", "method.accumulate=4"],
    ["method.name=petra", "method.sync_period=3", "cluster.cost.model=measured"],
    ["method.name=petra-arrival", "method.credit=6", "probe.per_epoch=1"],
    ["method.name=pipedream", "model.stem=imagenet", "device.backend=ref", "method.head=split"],
]


# --- the seal, from its description alone (docs/hdf5-schema.md) ---

MASK = (1 << 64) - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def rotate(x, bits):
    return (x << bits | x >> (64 - bits)) & MASK


def xxh64(data):
    lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
    whole = len(data) // 32
    if whole:
        a, b, c, d = lanes
        for w, x, y, z in struct.iter_unpack("<4Q", data[: 32 * whole]):
            a = rotate((a + w * P2) & MASK, 31) * P1 & MASK
            b = rotate((b + x * P2) & MASK, 31) * P1 & MASK
            c = rotate((c + y * P2) & MASK, 31) * P1 & MASK
            d = rotate((d + z * P2) & MASK, 31) * P1 & MASK
        value = (rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)) & MASK
        for lane in (a, b, c, d):
            value = ((value ^ rotate(lane * P2 & MASK, 31) * P1 & MASK) * P1 + P4) & MASK
    else:
        value = P5
    value = (value + len(data)) & MASK
    rest = data[32 * whole :]
    while len(rest) >= 8:
        value = (
            rotate(
                value ^ rotate(int.from_bytes(rest[:8], "little") * P2 & MASK, 31) * P1 & MASK, 27
            )
            * P1
            + P4
        ) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        value = (
            rotate(value ^ int.from_bytes(rest[:4], "little") * P1 & MASK, 23) * P2 + P3
        ) & MASK
        rest = rest[4:]
    for byte in rest:
        value = rotate(value ^ byte * P5 & MASK, 11) * P1 & MASK
    value = (value ^ value >> 33) * P2 & MASK
    value = (value ^ value >> 29) * P3 & MASK
    return value ^ value >> 32


def seal_again(data):
    """The same file with a seal that fits its content, as one who means to changes it."""
    block = bytearray(data[:512])
    struct.pack_into("<Q", block, 24, len(data))
    struct.pack_into("<Q", block, 32, xxh64(data[512:]))
    struct.pack_into("<Q", block, 496, xxh64(bytes(block[:496])))
    return bytes(block) + data[512:]


# --- changes ---


def change_bytes(stream, data):
    """Flips up to four bits, swaps two bytes, or cuts; the first 4 KiB, where HDF5's own data
    begin, are hit half of the times."""
    data = bytearray(data)

    def place():
        return stream.randrange(min(len(data), 4096) if stream.random() < 0.5 else len(data))

    kind = stream.choice(["flip", "swap", "byte", "cut"])
    if kind == "cut":
        return bytes(data[: stream.randrange(len(data))])
    for _ in range(stream.randint(1, 4)):
        a, b = place(), place()
        if kind == "flip":
            data[a] ^= 1 << stream.randrange(8)
        elif kind == "byte":
            data[a] = stream.choice([0, 1, 0x7F, 0x80, 0xFF, stream.randrange(256)])
        else:
            data[a], data[b] = data[b], data[a]
    return bytes(data)


def other_value(stream, value):
    if isinstance(value, (float, numpy.floating)):
        return stream.choice(
            [
                float("nan"),
                float("inf"),
                -1.0,
                0.0,
                1e300 if value.dtype == "f8" else 1e30,
                2 * float(value),
            ]
        )
    if value.dtype == numpy.uint8:
        return stream.randrange(256)
    return stream.choice(
        [
            -1,
            0,
            1,
            2,
            int(value) + 1,
            int(value) - 1,
            1 << 31,
            (1 << 63) - 1,
            -(1 << 63),
            1 << 40,
            stream.randrange(100),
        ]
    )


def change_values(stream, path):
    """Changes one to three values, sometimes the extent of an item or its name; those that count or
    refer most."""
    with h5py.File(path, "r+") as file:
        names = []
        file.visititems(
            lambda name, item: (
                names.append(name) if isinstance(item, h5py.Dataset) and item.size else None
            )
        )
        counts = [name for name in names if file[name].dtype == numpy.int64]
        changed = []
        for _ in range(stream.randint(1, 3)):
            name = stream.choice(counts if stream.random() < 0.8 else names)
            if name not in file:
                continue
            values = file[name][()]
            what = stream.random()
            if what < 0.05:
                del file[name]
                file[name] = numpy.resize(values, stream.choice([1, 2, values.size + 1]))
            elif what < 0.08:
                file.move(name, name + "x")
            else:
                place = tuple(stream.randrange(extent) for extent in values.shape)
                values[place] = other_value(stream, values[place])
                file[name][...] = values
            changed.append(f"{name} {what:.2f}")
    return changed


class Damage(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("c.yaml", CONFIG)
        self.stream = random.Random(2026)

    def try_file(self, about, sealed, arguments):
        """One run; whether petra took the file."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        process = self.start(
            *arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        )
        try:
            out, error = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"{about}: {arguments} hangs")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Whatever else the machine does.
        took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        error = error.decode(errors="replace")
        shown = (
            f"{about}: petra {' '.join(arguments)} -> {process.returncode} in {took_s:.1f} s of the"
            f" processor: {error.strip()}"
        )
        self.assertLess(took_s, MOST_S, shown)
        self.assertNotIn("Sanitizer", error, shown)
        self.assertNotIn("runtime error", error, shown)
        if process.returncode == 0 and not sealed:
            return True
        self.assertIn(process.returncode, (1, 2), shown)
        self.assertEqual(len(error.splitlines()), 1, shown)
        self.assertTrue(error.startswith("petra: "), shown)
        return False

    def damage(self, kind, whole, name, sealed, *arguments):
        """COUNT changed copies of a file at `name`, read by the command of the arguments."""
        taken = 0
        self.write(name, whole)
        self.good(*arguments)
        if "--resume" in arguments:
            os.remove(self.path("a/run.h5"))  # else there is nothing left to do
        for number in range(COUNT):
            data = change_bytes(self.stream, whole)
            if data != whole:
                self.write(name, data)
                with self.subTest(kind=kind, number=number):
                    taken += self.try_file(f"{kind} {number}", sealed, arguments)
        print(f"{kind}: {COUNT} files, {taken} taken")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(peak, MOST_KIB, f"{kind}: peak memory of a run")
        self.write(name, whole)

    def both(self, kind, name, *arguments):
        """A file of petra, then the same as others would have made it."""
        whole = self.read(name)
        self.damage(kind, whole, name, True, *arguments)
        self.damage(f"{kind} without a seal", bytes(512) + whole[512:], name, False, *arguments)
        self.write(name, whole)

    def test_weights(self):
        self.good("init", "c.yaml", "--output", "w", "--quiet")
        self.both(
            "weights",
            "w/weights.h5",
            "evaluate",
            "c.yaml",
            "--quiet",
            "--set",
            "model.weights=w/weights.h5",
        )

    def test_profile(self):
        self.good(
            "profile",
            "c.yaml",
            "--output",
            "p.h5",
            "--quiet",
            "--set",
            "profile.repetitions=1",
            "--set",
            "profile.warmup=0",
        )
        self.both(
            "profile",
            "p.h5",
            "simulate",
            "c.yaml",
            "--quiet",
            "--output",
            "s",
            "--set",
            "cluster.cost.model=profile",
            "--set",
            "cluster.cost.profile=p.h5",
        )

    def test_log(self):
        self.good("train", "c.yaml", "--output", "r", "--quiet")
        self.both("log", "r/run.h5", "inspect", "r")
        self.both("recorded order", "r/run.h5", "schedule", "r/run.h5")

    def test_log_of_a_killed_run(self):
        process = self.start(
            "train", "c.yaml", "--output", "k", "--quiet", "--set", "run.epochs=100000"
        )
        while not os.path.exists(self.path("k/run.h5")):
            time.sleep(0.05)
        time.sleep(0.5)
        process.kill()
        process.communicate()
        self.damage("log of a killed run", self.read("k/run.h5"), "k/run.h5", False, "inspect", "k")

    def test_data(self):
        self.good(
            "data", "generate", "c.yaml", "--output", "d.h5", "--quiet", "--set", "data.limit=16"
        )
        train = [
            "train",
            "c.yaml",
            "--output",
            "t",
            "--quiet",
            "--set",
            "run.epochs=1",
            "--set",
            "data.set=hdf5",
            "--set",
            "data.path=d.h5",
            "--set",
            "data.limit=8",
        ]
        whole = self.read("d.h5")
        # Images are in no digest that a run checks: what changes in them is a picture's, and
        # verify's to find.
        self.damage("data set", whole, "d.h5", False, *train)
        self.damage(
            "data set, verified",
            whole,
            "d.h5",
            True,
            "data",
            "verify",
            "c.yaml",
            "--quiet",
            "--set",
            "data.set=hdf5",
            "--set",
            "data.path=d.h5",
        )
        self.damage("data set without a seal", bytes(512) + whole[512:], "d.h5", False, *train)

    def checkpoint(self, settings):
        """(the files of a checkpoint by name, the arguments that go on from it)"""
        options = [word for setting in settings for word in ("--set", setting)]
        arguments = ["train", "c.yaml", *options, "--output", "a", "--quiet"]
        shutil.rmtree(self.path("a"), ignore_errors=True)
        self.good(*arguments)
        os.remove(self.path("a/run.h5"))  # as if it had been cut off
        parts = sorted(f"checkpoint/{name}" for name in os.listdir(self.path("a/checkpoint")))
        return {name: self.read(f"a/{name}") for name in ["checkpoint.h5", *parts]}, [
            *arguments,
            "--resume",
        ]

    def restore(self, files):
        if os.path.exists(self.path("a/run.h5")):
            os.remove(self.path("a/run.h5"))
        shutil.rmtree(self.path("a/checkpoint"))
        os.mkdir(self.path("a/checkpoint"))
        for name, content in files.items():
            self.write(f"a/{name}", content)

    def replace(self, files, name, content):
        """A file of the checkpoint with other content, its seal and its name as they would be;
        returns the name."""
        self.restore(files)
        content = seal_again(content)
        if name == "checkpoint.h5":
            self.write(f"a/{name}", content)
            return f"a/{name}"
        digest = struct.unpack_from("<Q", content, 32)[0]
        stem = name[: -len("-0123456789abcdef.h5")]
        os.remove(self.path(f"a/{name}"))
        self.write(f"a/{stem}-{digest:016x}.h5", content)
        self.write("manifest.h5", files["checkpoint.h5"])
        with h5py.File(self.path("manifest.h5"), "r+") as file:
            file["parts"][-1 if stem.endswith("probes") else int(stem[-2:]) - 1] = numpy.uint64(
                digest
            ).view(numpy.int64)
        self.write("a/checkpoint.h5", seal_again(self.read("manifest.h5")))
        return f"a/{stem}-{digest:016x}.h5"

    def test_checkpoint(self):
        files, arguments = self.checkpoint(CHECKPOINTS[0])
        self.damage("checkpoint", files["checkpoint.h5"], "a/checkpoint.h5", True, *arguments)
        part = next(name for name in files if "stage-02" in name)
        self.damage("part of a checkpoint", files[part], f"a/{part}", True, *arguments)

    def test_values_of_a_checkpoint(self):
        """Values that do not go together are refused; no value, not even one that is taken, does
        harm."""
        taken = 0
        each = max(4, COUNT // 2 // len(CHECKPOINTS) + 1)
        for settings in CHECKPOINTS:
            files, arguments = self.checkpoint(settings)
            for name, content in files.items():
                self.assertEqual(seal_again(content), content, name)
            for number in range(each):
                name = self.stream.choice(sorted(files))
                self.write("changed.h5", files[name])
                changed = change_values(self.stream, self.path("changed.h5"))
                self.replace(files, name, self.read("changed.h5"))
                with self.subTest(changed=changed, name=name):
                    taken += self.try_file(
                        f"checkpoint {settings} {number} {name} {changed}", False, arguments
                    )
        print(f"checkpoints with changed values: {each * len(CHECKPOINTS)} files, {taken} taken")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(peak, MOST_KIB, "checkpoints: peak memory of a run")

    def test_what_is_named(self):
        """Single values and what the line says of them."""
        files, arguments = self.checkpoint(["method.name=pipedream", "method.accumulate=2"])
        stage = next(name for name in files if "stage-01" in name)

        def refused(name, item, index, value, *words):
            self.write("changed.h5", files[name])
            with h5py.File(self.path("changed.h5"), "r+") as file:
                values = file[item][()]
                values[index] = value
                file[item][...] = values
            path = self.replace(files, name, self.read("changed.h5"))
            self.bad(1, [path, f"item /{item}", *words], *arguments)

        refused("checkpoint.h5", "begin", 0, 7, "7 actions")
        refused("checkpoint.h5", "training_log/counts", 0, -5, "epochs complete: -5")
        refused(stage, "stage-01/counts", 0, 10**6, "updates: 1000000")
        refused(stage, "stage-01/versions", 0, -1, "old versions: -1")
        refused(stage, "stage-01/in_flight", 0, 1 << 40, "microbatches: 1099511627776")
        refused(stage, "stage-01/microbatch-0/about", 0, 1 << 62, "microbatch")
        self.restore(files)
        whole = files["checkpoint.h5"]
        self.write("a/checkpoint.h5", whole[:-1] + bytes([whole[-1] ^ 1]))
        self.bad(1, ["a/checkpoint.h5", "damaged or truncated"], *arguments)
        self.write("a/checkpoint.h5", bytes(512) + whole[512:])
        self.bad(1, ["a/checkpoint.h5", "no seal"], *arguments)


if __name__ == "__main__":
    main()
