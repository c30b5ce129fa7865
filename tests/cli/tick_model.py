# SPDX-License-Identifier: Apache-2.0
"""tick_model at a small size: what it counts against what follows from the shapes of RevNet-18, and
how it prices that."""

import os
import re
import subprocess
import tempfile
import unittest

WIDTH, SIDE = 4, 32
GRAPH = "graph-auto"


class Unit:
    """A convolution with its batch norm: channels, kernel, side of the image before and after."""

    def __init__(self, inputs, outputs, kernel, before, after):
        self.inputs, self.outputs, self.kernel, self.before, self.after = (
            inputs,
            outputs,
            kernel,
            before,
            after,
        )

    def x(self, batch):
        return batch * self.inputs * self.before**2

    def y(self, batch):
        return batch * self.outputs * self.after**2

    def filter(self):
        return self.inputs * self.outputs * self.kernel**2

    def flops(self, batch):
        return 2 * self.y(batch) * self.inputs * self.kernel**2


STEM = Unit(3, 2 * WIDTH, 3, SIDE, SIDE)
REVERSIBLE, OTHERS = [], []  # blocks: first unit, second unit[, shortcut]
channels, side = WIDTH, SIDE
for group in range(4):
    planes = WIDTH << group
    if group:
        half = side // 2
        OTHERS.append(
            [
                Unit(channels, planes, 3, side, half),
                Unit(planes, planes, 3, half, half),
                Unit(channels, planes, 1, side, half),
            ]
        )
        channels, side = planes, half
    for _ in range(1 if group else 2):
        REVERSIBLE.append([Unit(channels, channels, 3, side, side) for _ in range(2)])
UNITS = [STEM] + [unit for block in REVERSIBLE + OTHERS for unit in block]
MATRIX = ("conv.forward", "conv.data", "conv.filter", "product")
LINEAR = ("norm.statistics", "norm.apply", "norm.backward", "elements", "images")


def model(*arguments, width=WIDTH):
    run = subprocess.run(
        [
            "bench/tick_model",
            "--set",
            f"model.width={width}",
            "--set",
            "device.threads=1",
            "--set",
            "data.workers=1",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    # The address sanitizer says so of every program with fibres.
    run.stderr = "".join(
        line
        for line in run.stderr.splitlines(True)
        if "ASan doesn't fully support makecontext" not in line
    )
    found = {}
    for line in run.stdout.splitlines():
        key, _, rest = line.partition(" ")
        if key in found:
            raise AssertionError(f"two lines begin with {key}")
        found[key] = {
            name: float(value) if re.fullmatch(r"-?[0-9.]+(e[-+]?[0-9]+)?", value) else value
            for name, value in re.findall(r"(\w+)=\s*(\S+)", rest)
        }
    return run, found


def rows(found, precision, batch):
    start = f"model/cuda/{precision}/b{batch}/{GRAPH}/"
    return {key[len(start) :]: row for key, row in found.items() if key.startswith(start)}


def read(row):
    return round(1e6 * row["read_mb"])


def written(row):
    return round(1e6 * row["written_mb"])


class Counts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_, cls.found = model("--precisions", "tf32,bf16", "--batches", "2,4,6", "--kernels")

    def row(self, kind, precision="tf32", batch=2):
        return rows(self.found, precision, batch)[kind]

    def test_status(self):
        self.assertEqual((self.run_.returncode, self.run_.stderr), (0, ""))

    def test_convolutions(self):
        """Forward in F and again in B, to invert or to compute anew; both gradients in B, of the
        input of all but the stem."""
        for precision, size in (("tf32", 4), ("bf16", 2)):
            for batch in (2, 4, 6):
                forward, data, filters = (self.row(kind, precision, batch) for kind in MATRIX[:3])
                self.assertEqual(
                    [row["launches"] for row in (forward, data, filters)], [40, 19, 20]
                )
                x, w, y = (
                    [f(u) for u in UNITS]
                    for f in (lambda u: u.x(batch), Unit.filter, lambda u: u.y(batch))
                )
                self.assertEqual(read(forward), 2 * size * sum(x + w))
                self.assertEqual(written(forward), 2 * size * sum(y))
                self.assertEqual(read(data), size * sum(w[1:] + y[1:]))
                self.assertEqual(written(data), size * sum(x[1:]))
                self.assertEqual(read(filters), size * sum(x + y))
                self.assertEqual(written(filters), size * sum(w))
                flops = [u.flops(batch) for u in UNITS]
                for row, expected in (
                    (forward, 2 * sum(flops)),
                    (data, sum(flops[1:])),
                    (filters, sum(flops)),
                ):
                    self.assertAlmostEqual(row["gflop"], 1e-9 * expected, delta=6e-5)

    def test_conversions(self):
        """None while numbers are read in the type that they were written in; with wide gradients,
        which the stand-in has in one, neither. Weights that are stashed are copied without their
        numbers in bf16, which are made for each convolution that reads them but the stem's, whose
        backward reads none."""
        for batch in (2, 4, 6):
            for precision in ("tf32", "bf16"):
                found = self.row("conversion", precision, batch)
                self.assertEqual((found["launches"], read(found)), (0, 0))
        run, found = model(
            "--precisions", "bf16", "--batches", "2", "--set", "method.name=pipedream"
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        stashed = found[f"model/cuda/bf16/b2/{GRAPH}/conversion"]
        self.assertEqual(stashed["launches"], 19)
        self.assertEqual(read(stashed), 2 * written(stashed))

    def test_norm_apply(self):
        """In F of all units; in B of both of a block that is inverted and of the first of one that
        is not. The second unit of a block adds to (or is taken from) a stream or the shortcut's
        output. Four vectors each."""
        for batch in (2, 4, 6):
            applied = (
                UNITS + [u for block in REVERSIBLE for u in block] + [block[0] for block in OTHERS]
            )
            joined = [block[1] for block in 2 * REVERSIBLE + OTHERS]
            row = self.row("norm.apply", "tf32", batch)
            self.assertEqual(row["launches"], len(applied))
            self.assertEqual(
                read(row),
                4
                * (
                    sum(u.y(batch) + 4 * u.outputs for u in applied)
                    + sum(u.y(batch) for u in joined)
                ),
            )
            self.assertEqual(written(row), 4 * sum(u.y(batch) for u in applied))

    def test_norm_passes(self):
        """x once for the statistics; x and dy twice for the gradient, and dx."""
        y = sum(u.y(2) for u in UNITS)
        vectors = sum(u.outputs for u in UNITS)
        self.assertEqual(read(self.row("norm.statistics")), 4 * 2 * y)
        self.assertEqual(written(self.row("norm.statistics")), 4 * 2 * 2 * vectors)
        backward = self.row("norm.backward")
        self.assertAlmostEqual(read(backward), 4 * 4 * y, delta=4 * 16 * vectors)
        self.assertAlmostEqual(written(backward), 4 * y, delta=4 * 8 * vectors)

    def test_batches(self):
        """Activations grow with the batch, exactly; what belongs to parameters does not."""
        for precision in ("tf32", "bf16"):
            at = {batch: rows(self.found, precision, batch) for batch in (2, 4, 6)}
            for kind in LINEAR:
                for bytes_of in (read, written):
                    two, four, six = (bytes_of(at[batch][kind]) for batch in (2, 4, 6))
                    self.assertEqual(four - two, six - four, kind)
                self.assertGreater(
                    read(at[4][kind]) + written(at[4][kind]),
                    read(at[2][kind]) + written(at[2][kind]),
                    kind,
                )
            for kind in ("split", "elements", "images"):
                self.assertEqual(written(at[4][kind]), 2 * written(at[2][kind]), kind)
            self.assertEqual(at[2]["optimiser"], at[6]["optimiser"])

    def test_optimiser(self):
        """Parameter, velocity and gradient are read, two of them written: filters, scales and
        shifts, the head's weights."""
        last = REVERSIBLE[-1][0].outputs
        parameters = sum(u.filter() + 2 * u.outputs for u in UNITS) + 10 * 2 * last + 10
        row = self.row("optimiser")
        self.assertEqual(
            (row["launches"], read(row), written(row)), (10, 12 * parameters, 8 * parameters)
        )

    def test_sums(self):
        for precision in ("tf32", "bf16"):
            key = f"cuda/{precision}/b4/{GRAPH}"
            kinds = rows(self.found, precision, 4)
            total, elementwise = self.found[f"sum/{key}"], self.found[f"elementwise/{key}"]
            self.assertEqual(kinds["other"]["launches"], 0)
            for name in ("launches", "read_mb", "written_mb", "ms"):
                own = sum(row[name] for kind, row in kinds.items() if kind != "transfer")
                matrix = sum(kinds[kind][name] for kind in MATRIX)
                self.assertAlmostEqual(total[name], own, delta=2e-3)
                self.assertAlmostEqual(elementwise[name], own - matrix, delta=2e-3)
            kernels = [row for line, row in self.found.items() if line.startswith(f"kernel/{key}/")]
            self.assertEqual(
                sum(row["launches"] for row in kernels),
                sum(row["launches"] for row in kinds.values()),
            )
            # Convolutions, products, batch norms (sums with their end, output; sums with their end,
            # gradient), running statistics of the nine stages that have some, sums of gradients,
            # updates, the head and its loss, images.
            self.assertEqual(
                total["launches"],
                (20 + 20 + 19 + 20) + 3 + (2 * 20 + 33 + 2 * 20) + 9 + 8 + 10 + 8 + 1,
            )
            # F and B of nine stages, the head's in one, ten updates.
            self.assertEqual(total["segments"], 9 + 9 + 1 + 10)
            ratio = (elementwise["read_mb"] + elementwise["written_mb"]) / sum(
                self.found[f"elementwise/cuda/tf32/b4/{GRAPH}"][name]
                for name in ("read_mb", "written_mb")
            )
            self.assertAlmostEqual(elementwise["of_tf32"], ratio, delta=1e-4)


class Prices(unittest.TestCase):
    def prices(self, *arguments):
        run, found = model("--precisions", "tf32", "--batches", "2", *arguments)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return found

    def test_launches(self):
        rates = []
        for name in ("copy_bytes_per_s", "tf32_flops_per_s"):
            rates += ["--rate", f"{name}=1e30"]
        for graph, name in (("auto", "graph_launch_s"), ("off", "launch_s")):
            found = self.prices(*rates, "--set", f"device.graph={graph}", "--rate", f"{name}=1e-3")
            total = found[f"sum/cuda/tf32/b2/graph-{graph}"]
            self.assertEqual(total["ms"], total["launches"])

    def test_bytes_and_flops(self):
        free = ["--rate", "graph_launch_s=1e-30", "--rate", "launch_s=1e-30"]
        found = rows(
            self.prices(*free, "--rate", "copy_bytes_per_s=1e6", "--rate", "tf32_flops_per_s=1e30"),
            "tf32",
            2,
        )
        for kind in ("norm.apply", "conv.forward"):
            self.assertAlmostEqual(
                found[kind]["ms"],
                1e3 * (found[kind]["read_mb"] + found[kind]["written_mb"]),
                delta=1e-3,
            )
        found = rows(
            self.prices(*free, "--rate", "copy_bytes_per_s=1e30", "--rate", "tf32_flops_per_s=1e9"),
            "tf32",
            2,
        )
        self.assertAlmostEqual(
            found["conv.data"]["ms"], 1e3 * found["conv.data"]["gflop"], delta=0.06
        )
        self.assertEqual(found["norm.apply"]["ms"], 0)

    def test_files(self):
        """Measured rates as bench_device prints them; PyTorch's count beside."""
        with tempfile.TemporaryDirectory() as folder:
            rates, count = os.path.join(folder, "rates"), os.path.join(folder, "count")
            with open(rates, "w", encoding="utf-8") as file:
                file.write(
                    "# of a card\n"
                    "launch_s=3e-6\n"
                    "ceiling/cuda/tf32/b64/graph-on/copy ms=1.0 gb_per_s=4000.0\n"
                    "ceiling/cuda/tf32/b64/graph-on/conv ms=1.0 tflop_per_s=250.5"
                    " shape=64x512x32x32\n"
                    "device/cuda method=petra: H200\n"
                )
            with open(count, "w", encoding="utf-8") as file:
                file.write(
                    "pytorch-count/tf32/b2 launches=608 read_mb=8 written_mb=2\n"
                    "pytorch-count/tf32/b22 launches=1 read_mb=1 written_mb=1\n"
                )
            found = self.prices("--rates", rates, "--pytorch", count)
            with open(count, "w", encoding="utf-8") as file:
                file.write(
                    "pytorch-count/tf32/b2 launches=608 read_mb=8 written_mb=2 depth=18"
                    f" width={WIDTH + 1}\n"
                )
            self.assertNotIn(
                "launches_over_ours",
                self.prices("--pytorch", count)[f"pytorch/cuda/tf32/b2/{GRAPH}"],
            )
            with open(rates, "w", encoding="utf-8") as file:
                file.write("launch=3\n")
            run, _ = model("--rates", rates)
            self.assertEqual(run.returncode, 2)
        self.assertEqual(
            [
                found[f"rate/{name}"]["value"]
                for name in ("launch_s", "copy_bytes_per_s", "tf32_flops_per_s")
            ],
            [3e-6, 4e12, 2.505e14],
        )
        beside, total = found[f"pytorch/cuda/tf32/b2/{GRAPH}"], found[f"sum/cuda/tf32/b2/{GRAPH}"]
        self.assertAlmostEqual(beside["launches_over_ours"], 608 / total["launches"], delta=1e-3)
        self.assertAlmostEqual(
            beside["mb_over_ours"], 10 / (total["read_mb"] + total["written_mb"]), delta=1e-3
        )


class Refusals(unittest.TestCase):
    def test_usage(self):
        for arguments in (
            ["--warmup", "0"],
            ["--rate", "speed=1"],
            ["--rate", "launch_s=-1"],
            ["--wrong", "1"],
            ["--batches"],
            ["--rates", "/none"],
            ["--pytorch", "/none"],
        ):
            run, _ = model(*arguments)
            self.assertEqual((run.returncode, run.stdout), (2, ""), arguments)
            self.assertIn("tick_model: " + arguments[0], run.stderr)

    def test_not_steady(self):
        """A pipeline that is still filling is no tick; others are counted all the same."""
        run, found = model("--warmup", "3", "--set", "data.batch=2")
        self.assertEqual((run.returncode, list(rows(found, "fp32", 2))), (1, []))
        self.assertIn("not steady", run.stderr)

    def test_backend(self):
        run, _ = model("--set", "device.backend=cpu", "--set", "data.batch=2")
        self.assertEqual(run.returncode, 1)
        self.assertIn("expected cuda", run.stderr)


unittest.main(verbosity=2)
