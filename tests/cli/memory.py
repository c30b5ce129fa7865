# SPDX-License-Identifier: Apache-2.0
"""What a training really takes of the host's memory, beside what its accounts say, and that it does
not grow."""

import os

import h5py

from no_memory import sanitized
from program import PETRA, ProgramTest, main

MB = 1000 * 1000
MORE = 40 * MB  # the log, the loader's batches, oneDNN's kernels
MORE_THAN_BACKEND = 20 * MB  # the same, where nothing is counted that is not held

CONFIG = """\
data: {set: shapes, batch: 48, limit: 960, eval_limit: 48, workers: 1}
model: {width: 8}
device: {threads: 1}
run: {epochs: 2, checkpoint_every: 1}
"""


class Memory(ProgramTest):
    def peak(self, *arguments):
        """Peak of the resident set in bytes. Blocks of 1 MiB and more are mappings of their own,
        because holes in the heap depend on the order of small allocations (up to 40 MB here)."""
        environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576"}
        child = os.posix_spawn(PETRA, [PETRA, *arguments], environment)
        _, status, usage = os.wait4(child, 0)
        self.assertEqual(status, 0)
        return usage.ru_maxrss * 1024

    def setUp(self):
        super().setUp()
        if sanitized():
            self.skipTest("an address sanitizer keeps memory of its own")
        self.write("c.yaml", CONFIG)

    def test_beside_the_accounts(self):
        """The program and its libraries are what a training of next to nothing takes."""
        base = self.peak(
            "train",
            self.path("small.yaml"),
            "--set",
            "run.max_microbatches=1",
            "--output",
            self.path("base"),
            "--quiet",
        )
        narrow = ", no bf16" not in self.good("info")
        for method, precision in [("petra", "fp32"), ("pipedream", "fp32")] + narrow * [
            ("pipedream", "bf16")
        ]:
            out = self.path(f"{method}-{precision}")
            found = self.peak(
                "train",
                self.path("c.yaml"),
                "--set",
                f"method.name={method}",
                "--set",
                f"device.precision={precision}",
                "--output",
                out,
                "--quiet",
            )
            with h5py.File(f"{out}/run.h5", "r") as file:
                counted = int(file["memory/total_peak_bytes"][()].sum())
                ((tensors, filters, scratch),) = file["memory/backend_bytes"][()].tolist()
                self.assertEqual(
                    file["memory/backend_bytes"].attrs["parts"].tolist(),
                    ["tensors", "filters", "scratch"],
                )
            held = tensors + filters + scratch
            print(
                f"{method}, {precision}: {found / MB:.0f} MB, accounts {counted / MB:.0f} MB, base"
                f" {base / MB:.0f} MB, backend {held / MB:.0f} MB, of which filters"
                f" {filters / MB:.2f} MB"
            )
            self.assertGreater(counted, 4 * MORE)  # else nothing is said
            self.assertLess(found, base + counted + MORE)
            self.assertLess(found, base + held + MORE_THAN_BACKEND)
            self.assertGreater(found, held)
            # In fp32 filters are stored as convolutions take them; in bf16 each that is read has a
            # copy, of half its size, for each direction.
            self.assertEqual(filters > 0, precision == "bf16")

    def test_no_growth(self):
        def peak(microbatches):
            return self.peak(
                "train",
                self.path("small.yaml"),
                "--set",
                f"run.max_microbatches={microbatches}",
                "--set",
                "run.epochs=1000",
                "--set",
                "run.checkpoint_every=0",
                "--output",
                self.path(f"ticks-{microbatches}"),
                "--quiet",
            )

        few, many = peak(50), peak(250)
        print(f"50 ticks: {few / MB:.1f} MB, 250 ticks: {many / MB:.1f} MB")
        self.assertLess(many - few, MB)


if __name__ == "__main__":
    main()
