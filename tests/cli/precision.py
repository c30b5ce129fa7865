# SPDX-License-Identifier: Apache-2.0
"""device.precision: bf16 on the cpu backend: what it keeps of fp32, the memory that is counted, and
the refusal where the processor has no bf16."""

import os

import h5py
import numpy

from program import ProgramTest, main

SMALL = """\
run: {name: small, epochs: 2, eval_every: 0}
data: {set: shapes, batch: 8, limit: 192, workers: 1}
model: {width: 4}
optim: {lr: 0}
device: {threads: 2, backend: cpu}
probe: {per_epoch: 1}
"""

TOKENS = """\
run: {name: tokens, epochs: 2, eval_every: 0}
data: {set: grammar, batch: 8, limit: 192, workers: 1}
model: {family: revgpt, depth: 2, width: 32, heads: 2, context: 32}
optim: {lr: 0}
device: {threads: 2, backend: cpu}
probe: {per_epoch: 1}
"""


class Precision(ProgramTest):
    config = "small.yaml"

    def setUp(self):
        super().setUp()
        self.write("small.yaml", SMALL)
        self.write("tokens.yaml", TOKENS)

    def options(self, precision, *more):
        return [self.config, "--set", f"device.precision={precision}", *more]

    def needs_bf16(self):
        text = " ".join(backend["description"] for backend in self.good_json("info")["backends"])
        if ", no bf16" in text:
            self.skipTest("this processor has no instructions for bf16")

    def test_messages_are_said_to_be_fp32(self):
        """Their bytes are those of fp32 in a simulation that is priced in bf16 and in a run that
        computes in it; the output says so, and only there."""
        priced = [
            "--set",
            "cluster.cost.model=roofline",
            "--set",
            "cluster.cost.device=h100",
            "--set",
            "cluster.cost.arithmetic=",
        ]
        up = {}
        for arithmetic in "fp32", "bf16":
            options = ["simulate", self.config, *priced[:-1], priced[-1] + arithmetic]
            lines = self.good(*options, "--output", f"sim-{arithmetic}").splitlines()
            links = next(line for line in lines if line.startswith("links"))
            self.assertEqual(links.endswith("; messages fp32"), arithmetic == "bf16", links)
            up[arithmetic] = [stage["bytes_up"] for stage in self.good_json(*options)["stages"]]
            self.assertEqual(
                "\nnumbers  bf16 inside blocks, messages fp32\n"
                in self.good("inspect", f"sim-{arithmetic}"),
                arithmetic == "bf16",
            )
        self.assertEqual(up["fp32"], up["bf16"])
        # Costs that name no arithmetic, and bytes that the config gives.
        code, out, error = self.run_petra(
            "simulate", self.config, "--set", "cluster.cost.arithmetic=bf16"
        )
        self.assertEqual(
            (code, "messages fp32" in out, "cluster.cost.arithmetic=bf16: has no effect" in error),
            (0, False, True),
        )
        self.assertNotIn(
            "messages fp32",
            self.good(
                "simulate",
                self.config,
                "--set",
                "cluster.stages=3",
                "--set",
                "device.precision=bf16",
            ),
        )
        bytes_up = {}
        for precision in "fp32", "bf16":
            bytes_up[precision] = [
                stage["forward_bytes"]
                for stage in self.good_json("inspect", *self.options(precision))["stages"]
            ]
            said = "\nMB up, MB down: messages fp32\n" in self.good(
                "inspect", *self.options(precision)
            )
            self.assertEqual(said, precision == "bf16")
            self.assertEqual(
                "; messages fp32\n" in self.good("simulate", *self.options(precision)),
                precision == "bf16",
            )
        self.assertEqual(bytes_up["fp32"], bytes_up["bf16"])
        self.needs_bf16()
        for precision in "fp32", "bf16":
            out = self.good(
                "train",
                *self.options(
                    precision,
                    "--set",
                    "run.epochs=1",
                    "--set",
                    "data.limit=32",
                    "--set",
                    "probe.per_epoch=0",
                ),
                "--output",
                "run",
            )
            self.assertEqual(
                "\nnumbers  bf16 inside blocks, messages fp32\n" in out, precision == "bf16", out
            )
            self.assertEqual("\nnumbers  " in self.good("inspect", "run"), precision == "bf16")

    def test_json_says_the_precision_of_messages(self):
        """It is that by which the bytes of messages are counted."""
        counted = {}
        for precision, said in ("fp32", "fp32"), ("bf16", "fp32"), ("fp64", "fp64"):
            options = self.options(
                precision, *(["--set", "device.backend=ref"] if precision == "fp64" else [])
            )
            simulated, inspected = (
                self.good_json("simulate", *options),
                self.good_json("inspect", *options),
            )
            self.assertEqual(
                (simulated["message_precision"], inspected["message_precision"]),
                (said, said),
                precision,
            )
            counted[precision] = simulated["stages"][0]["bytes_up"]
        self.assertEqual(
            counted, {"fp32": counted["fp32"], "bf16": counted["fp32"], "fp64": 2 * counted["fp32"]}
        )
        priced = self.good_json(
            "simulate",
            self.config,
            "--set",
            "cluster.cost.model=roofline",
            "--set",
            "cluster.cost.arithmetic=bf16",
        )
        self.assertEqual(priced["message_precision"], "fp32")
        self.assertIsNone(
            self.good_json("simulate", self.config, "--set", "cluster.stages=3")[
                "message_precision"
            ]
        )
        profile = [
            "profile",
            *self.options("fp32"),
            "--output",
            "p.h5",
            "--quiet",
            "--set",
            "profile.repetitions=2",
        ]
        self.assertEqual(self.good_json(*profile)["message_precision"], "fp32")

    def test_reconstruction_errs_as_in_fp32(self):
        self.needs_bf16()
        errors, cosines = {}, {}
        for precision in "fp32", "bf16":
            self.good("train", *self.options(precision), "--output", precision, "--quiet")
            with h5py.File(self.path(f"{precision}/run.h5"), "r") as run:
                errors[precision] = run["probe/reconstruction_error"][0]
                cosines[precision] = run["probe/concatenated_cosine/method_end_to_end"][0]
        self.assertEqual(list(numpy.isnan(errors["bf16"])), list(numpy.isnan(errors["fp32"])))
        # F is computed twice from the same bits, so that only the sum and the difference of streams
        # are rounded: half of 2^-23 each, of streams that may be larger than their difference. In
        # bf16 it would be 2^-9.
        self.assertLess(numpy.nanmax(errors["bf16"]), 4 * 2**-23)
        # Streams that are off in the last bit of fp32 may be rounded to another bf16 number, so
        # that gradients differ more.
        self.assertGreater(numpy.nanmin(cosines["bf16"]), 0.99)

    def test_repeats_and_resumes_to_the_bit(self):
        """Kept graphs, with inner tensors in them, are in the checkpoint."""
        self.needs_bf16()
        options = self.options(
            "bf16",
            "--set",
            "method.name=delayed",
            "--set",
            "optim.lr=0.05",
            "--set",
            "probe.per_epoch=0",
        )
        for folder in "one", "two":
            self.good("train", *options, "--output", folder, "--quiet")
        weights = self.read("one/weights.h5")
        self.assertEqual(weights, self.read("two/weights.h5"))
        for name in "weights.h5", "run.h5":
            os.remove(self.path(f"two/{name}"))
        self.good("train", *options, "--output", "two", "--quiet", "--resume")
        self.assertEqual(weights, self.read("two/weights.h5"))

    def test_memory_is_the_allocators(self):
        self.needs_bf16()
        peaks = {}
        for method, precision in ("petra", "fp32"), ("petra", "bf16"), ("delayed", "bf16"):
            options = self.options(
                precision,
                "--set",
                f"method.name={method}",
                "--set",
                "probe.per_epoch=0",
                "--set",
                "run.max_microbatches=22",
            )
            found = self.good_json("simulate", *options, "--quiet")
            self.good("train", *options, "--output", f"{method}-{precision}", "--quiet")
            with h5py.File(self.path(f"{method}-{precision}/run.h5"), "r") as file:
                peaks[method, precision] = file["memory/total_peak_bytes"][:]
            self.assertEqual(
                [stage["peak_bytes"]["total"] for stage in found["stages"]],
                list(peaks[method, precision]),
                method,
            )
        self.assertLess(peaks["petra", "bf16"].sum(), peaks["petra", "fp32"].sum())

    def test_a_processor_without(self):
        environment = dict(os.environ, DNNL_MAX_CPU_ISA="AVX2")
        status, _, error = self.run_petra(
            "train", *self.options("bf16"), "--output", "none", env=environment
        )
        self.assertEqual(status, 2)
        self.assertEqual(len(error.splitlines()), 1, error)
        self.assertIn("bf16 with device.backend: cpu needs AVX512-BF16 or AMX-BF16", error)
        self.assertFalse(os.path.exists(self.path("none")))


class Tokens(Precision):
    """The same of a transformer."""

    config = "tokens.yaml"

    def test_a_gpu_is_refused(self):
        for backend in "cuda", "auto":
            status, _, error = self.run_petra(
                "simulate", *self.options("bf16"), "--set", f"device.backend={backend}"
            )
            self.assertEqual(status, 2)
            self.assertEqual(len(error.splitlines()), 1, error)
            self.assertIn(
                f"bf16 with model.family: revgpt and device.backend: {backend}; expected", error
            )


if __name__ == "__main__":
    main()
