# SPDX-License-Identifier: Apache-2.0
"""bench_device at a small size: the lines that a table is made of, on cpu and over the fake run
time of CUDA; and the same tick in PyTorch, where there is one."""

import os
import re
import subprocess
import sys
import unittest

SMALL = [
    "--small",
    "--set",
    "model.width=1",
    "--set",
    "device.threads=1",
    "--set",
    "data.workers=1",
]


def bench(program, *arguments):
    run = subprocess.run(
        [f"bench/{program}", *SMALL, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
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
        found[key] = dict(re.findall(r"(\w+)=(\S+)", rest))
    return run, found


def below(found, start):
    return {key[len(start) :]: values for key, values in found.items() if key.startswith(start)}


class BenchDevice(unittest.TestCase):
    def check_time(self, values):
        least, middle, most = (float(values[name]) for name in ("min", "ms", "max"))
        self.assertTrue(0 < least <= middle <= most, values)

    def test_cpu(self):
        run, found = bench("bench_device", "--set", "device.backend=cpu", "--batches", "2,4")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        for batch in (2, 4):
            key = f"cpu/fp32/b{batch}/graph-auto"
            tick = found[f"tick/{key}"]
            self.check_time(tick)
            self.assertAlmostEqual(
                float(tick["images_per_s"]),
                1e3 * batch / float(tick["ms"]),
                delta=1 + 0.01 * 1e3 * batch / float(tick["ms"]),
            )
            self.assertGreater(float(found[f"loader/{key}"]["ms"]), 0)
            for name in ("copy", "conv"):
                self.check_time(found[f"ceiling/{key}/{name}"])
            operations = below(found, f"op/{key}/")
            for values in operations.values():
                self.check_time(values)
            # RevNet-18: the stem, 16 convolutions in the paths of 8 blocks, 3 shortcuts.
            calls = {
                kind: sum(
                    int(v["per_tick"])
                    for name, v in operations.items()
                    if name.startswith(f"conv.{kind}/")
                )
                for kind in ("forward", "data", "filter")
            }
            self.assertEqual(calls, {"forward": 40, "data": 19, "filter": 20})
            self.assertEqual(
                sum(
                    int(v["per_tick"])
                    for name, v in operations.items()
                    if name.startswith("norm.backward/")
                ),
                20,
            )
            self.assertEqual(sum(name.startswith("sgd/") for name in operations), 10)
            convolutions = sum(
                float(v["ms"]) * int(v["per_tick"])
                for name, v in operations.items()
                if name.startswith("conv.")
            )
            self.assertAlmostEqual(
                float(found[f"sum/{key}/convolutions"]["ms"]),
                convolutions,
                delta=0.01 + 0.01 * convolutions,
            )

    def test_graphs(self):
        run, found = bench(
            "bench_device_fake",
            "--set",
            "device.backend=cuda",
            "--set",
            "data.batch=1",
            "--graphs",
            "on,off",
            "--warmup",
            "40",
            "--no-operations",
        )
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        on, off = found["tick/cuda/fp32/b1/graph-on"], found["tick/cuda/fp32/b1/graph-off"]
        self.check_time(on)
        self.check_time(off)
        self.assertGreater(int(on["graphs"]), 0)
        self.assertGreater(float(on["graph_segments_per_tick"]), 10)
        self.assertEqual((int(off["graphs"]), float(off["graph_segments_per_tick"])), (0, 0))

    def test_device_operations(self):
        run, found = bench(
            "bench_device_fake",
            "--set",
            "device.backend=cuda",
            "--set",
            "data.batch=1",
            "--no-ticks",
        )
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertGreater(len(below(found, "op/cuda/fp32/b1/graph-auto/")), 60)

    def test_inner_tensors(self):
        """In bf16 the operations within a block are those of a tick: half the bytes of fp32, but
        for the streams of a join."""
        run, found = bench(
            "bench_device_fake",
            "--set",
            "device.backend=cuda",
            "--set",
            "data.batch=1",
            "--no-ticks",
            "--precisions",
            "fp32,bf16",
        )
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        wide, narrow = (
            below(found, f"op/cuda/{precision}/b1/graph-auto/") for precision in ("fp32", "bf16")
        )
        self.assertEqual(set(wide), set(narrow))
        shares = {
            "norm.forward": 1 / 2,
            "norm.forward.add": 3 / 4,
            "norm.backward": 1 / 2,
            "conv.forward": 1 / 2,
            "conv.data": 1 / 2,
            "add": 1,
        }
        for name, values in wide.items():
            share = shares.get(name.split("/")[0])
            if share and float(values["mib"]) > 0.1:
                self.assertAlmostEqual(
                    float(narrow[name]["mib"]) / float(values["mib"]), share, delta=0.02, msg=name
                )

    def test_failure(self):
        """What a backend cannot do is said, and the others are measured."""
        run, found = bench(
            "bench_device",
            "--set",
            "device.backend=cpu",
            "--set",
            "data.batch=2",
            "--no-operations",
            "--precisions",
            "tf32,fp32",
        )
        self.assertEqual(run.returncode, 1)
        self.assertIn("failed/device.precision=tf32", found)
        self.assertIn("tick/cpu/fp32/b2/graph-auto", found)

    def test_usage(self):
        for arguments in (["--ticks", "0"], ["--blocks", "65"], ["--wrong", "1"], ["--batches"]):
            run, _ = bench("bench_device", *arguments)
            self.assertEqual((run.returncode, run.stdout), (2, ""), arguments)
            self.assertIn("bench_device: " + arguments[0], run.stderr)


def pytorch():
    """A Python with PyTorch: PYTORCH_INTERPRETER, or this one."""
    python = os.environ.get("PYTORCH_INTERPRETER") or sys.executable
    try:
        there = (
            subprocess.run(
                [python, "-c", "import torch.utils._pytree; torch.utils._pytree.tree_leaves"],
                capture_output=True,
                check=False,
            ).returncode
            == 0
        )
    except OSError:
        there = False
    return python if there else None


class PeerPytorch(unittest.TestCase):
    def test_small(self):
        python = pytorch()
        if not python:
            self.skipTest("no PyTorch 2 (PYTORCH_INTERPRETER names a Python that has it)")
        script = os.path.join(os.environ.get("srcdir") or ".", "bench/peer_pytorch_tick.py")
        run = subprocess.run(
            [
                python,
                "-B",
                script,
                "--device",
                "cpu",
                "--width",
                "16",
                "--batches",
                "2",
                "--ticks",
                "2",
                "--blocks",
                "2",
                "--warmup",
                "20",
                "--precisions",
                "fp32,bf16",
                "--check",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        for precision in ("fp32", "bf16"):
            line = re.search(rf"^pytorch/cpu/{precision}/b2 ms=(\S+) ", run.stdout, re.MULTILINE)
            self.assertTrue(line and float(line.group(1)) > 0, run.stdout)
        self.assertIn("check/", run.stdout)

    def test_count(self):
        """Its convolutions are as many as tick_model's, and move the same bytes; in bf16 half of
        them."""
        python = pytorch()
        if not python:
            self.skipTest("no PyTorch 2 (PYTORCH_INTERPRETER names a Python that has it)")
        script = os.path.join(os.environ.get("srcdir") or ".", "bench/peer_pytorch_tick.py")
        run = subprocess.run(
            [
                python,
                "-B",
                script,
                "--count",
                "--width",
                "16",
                "--batches",
                "2",
                "--precisions",
                "tf32,bf16",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        theirs = dict(line.split(" ", 1) for line in run.stdout.splitlines())
        ours = dict(
            line.split(" ", 1)
            for line in subprocess.run(
                [
                    "bench/tick_model",
                    "--set",
                    "model.width=16",
                    "--batches",
                    "2",
                    "--precisions",
                    "tf32,bf16",
                ],
                capture_output=True,
                text=True,
                check=True,
                timeout=300,
            ).stdout.splitlines()
        )
        moved = r"launches=(\S+) +read_mb=(\S+) +written_mb=(\S+)"
        for precision in ("tf32", "bf16"):
            self.assertEqual(
                re.match(moved, theirs[f"pytorch-op/{precision}/b2/convolution"]).groups(),
                re.match(
                    moved, ours[f"model/cuda/{precision}/b2/graph-auto/conv.forward"].strip()
                ).groups(),
            )
            self.assertTrue(
                theirs[f"pytorch-op/{precision}/b2/convolution_backward"].startswith("launches=39 ")
            )
        self.assertNotIn("pytorch-op/tf32/b2/_to_copy", theirs)


unittest.main(verbosity=2)
