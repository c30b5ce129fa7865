# SPDX-License-Identifier: Apache-2.0
"""What `petra info` tells of CUDA: a build without it says so; one with it names its libraries, and
its devices or why there are none. What the build is, config.h tells."""

import os
import re
import subprocess

from program import PETRA, SMALL, ProgramTest, main

with open("config.h", encoding="utf-8") as file:
    BUILT = "#define PETRA_HAVE_CUDA 1" in file.read()


class CudaInfo(ProgramTest):
    def test_text_and_json_agree(self):
        found = self.good_json("info")["cuda"]
        text = self.good("info")
        self.assertRegex(text, r"\ncuda       " + re.escape(found["build"]) + "\n")
        for index, device in enumerate(found["devices"]):
            self.assertIn(f"device {index}: {device}\n", text)
            self.assertRegex(device, r"^.+, compute capability \d+\.\d, \d+\.\d GiB$")
        self.assertEqual("no_device" in found, not found["devices"])
        if not found["devices"]:
            self.assertIn(found["no_device"] + "\n", text)

    def test_build(self):
        found = self.good_json("info")["cuda"]
        if not BUILT:
            self.assertEqual(found["build"], "not in this build (./configure --with-cuda)")
            self.assertEqual(found["no_device"], "no CUDA device: CUDA is not in this build")
            return
        match = re.match(
            r"CUDA run time (\d+)\.\d+, cuDNN (\d+)\.\d+\.\d+, cuBLAS (\d+)\.\d+\.\d+, (?:NCCL"
            r" \d+\.\d+\.\d+, )?kernels for (sm_\d+ ?)+$",
            found["build"],
        )
        self.assertTrue(match, found["build"])
        self.assertGreaterEqual(int(match.group(2)), 9)

    def test_no_driver_is_needed(self):
        needed = subprocess.run(["ldd", PETRA], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("libcuda.so", needed)
        self.assertEqual("libcudart" in needed, BUILT)

    def test_no_device_visible(self):
        """Devices that are hidden, or none: the line says which error it was."""
        found = self.good_json("info", env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})["cuda"]
        if BUILT:
            self.assertEqual(found["devices"], [])
            self.assertRegex(found["no_device"], r"^no CUDA device: .*\(error \d+\)$")

    def test_the_stub_for_linking(self):
        """The toolkit's libcuda.so for linking, found in place of a driver: error 34."""
        stub = next(
            (
                p
                for p in [
                    "/usr/local/cuda/lib64/stubs",
                    "/opt/cuda/lib64/stubs",
                    "/usr/lib/x86_64-linux-gnu/stubs",
                ]
                if os.path.exists(p + "/libcuda.so")
            ),
            None,
        )
        if not BUILT or stub is None:
            self.skipTest("no CUDA, or no stub of its driver")
        os.symlink(stub + "/libcuda.so", self.path("libcuda.so.1"))
        found = self.good_json("info", env={**os.environ, "LD_LIBRARY_PATH": self.folder})["cuda"]
        self.assertIn("is the stub for linking (error 34)", found["no_device"])

    def refused(self, code, text, *settings):
        self.write("small.yaml", SMALL)
        sets = [word for setting in settings for word in ("--set", setting)]
        self.bad(
            code,
            text,
            "train",
            "small.yaml",
            "--output",
            "out",
            *sets,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        self.assertFalse(os.path.exists(self.path("out/weights.h5")))

    def test_training_without_a_device(self):
        wanted = "there is no CUDA device" if BUILT else "is not in this build"
        self.refused(2, "device.backend: cuda", "device.backend=cuda")
        self.refused(2, wanted, "device.backend=cuda")
        self.refused(2, wanted, "device.precision=tf32")

    def test_precisions_that_a_backend_has_not(self):
        self.refused(
            2,
            "device.precision=tf32: tf32 with device.backend: cpu, which computes in fp32, bf16;"
            " expected device.backend: cuda",
            "device.precision=tf32",
            "device.backend=cpu",
        )
        self.refused(
            2, "bf16 with device.backend: ref", "device.precision=bf16", "device.backend=ref"
        )
        self.refused(
            2,
            "fp64 with device.backend: cuda, which computes in fp32, tf32, bf16; expected"
            " device.backend: ref",
            "device.precision=fp64",
            "device.backend=cuda",
        )

    def test_simulation_needs_no_device(self):
        self.write("small.yaml", SMALL)
        for setting in "device.backend=cuda", "device.precision=bf16":
            self.good("simulate", "small.yaml", "--output", "out", "--quiet", "--set", setting)


main()
