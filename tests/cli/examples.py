# SPDX-License-Identifier: Apache-2.0
"""Every command in the EXAMPLES of the manual runs, on a small network and few images."""

import os
import re
import stat
import subprocess
import sys

from program import PETRA, ProgramTest, main

# What the examples' config is; each command gets these as well, so that it takes a second.
CONFIG = "run: {name: mine, epochs: 1}\ndata: {set: shapes}\n"
SMALL = [
    "data.limit=64",
    "data.eval_limit=32",
    "data.batch=8",
    "data.workers=1",
    "run.epochs=1",
    "profile.repetitions=1",
    "profile.warmup=0",
    "device.threads=1",
    "run.checkpoint_every=0",
]
WITH_KEYS = (
    "train",
    "init",
    "evaluate",
    "inspect",
    "simulate",
    "profile",
    "schedule",
    "sweep",
    "data",
)


def examples():
    """(what it shows, its lines of shell) of each example."""
    with open(
        os.path.join(os.environ.get("srcdir", "."), "docs/petra.1"), encoding="utf-8"
    ) as file:
        section = file.read().split(".SH EXAMPLES\n")[1].split(".SH ")[0]
    found = re.findall(
        r"^([A-Z][^\n]*):\n\.PP\n\.RS\n\.nf\n(.*?)\.fi\n", section, re.MULTILINE | re.DOTALL
    )
    assert len(found) == section.count("\n.nf\n"), section
    return [(title, lines.replace("\\-", "-").replace("\\\\", "\\")) for title, lines in found]


def has_plotly():
    return (
        subprocess.run(
            [sys.executable, "-c", "import h5py, numpy, plotly"], capture_output=True, check=False
        ).returncode
        == 0
    )


class Examples(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("mine.yaml", CONFIG)
        sets = " ".join(f"--set {key}" for key in SMALL)
        wrapper = self.write(
            "bin/petra",
            f"""#!/bin/sh
case $1 in
  {"|".join(WITH_KEYS)})
    [ "$1" = data ] && [ "$2" = generate ] || set -- "$@" {sets}
    case "$*" in *--set\\ model.width=*) ;; *) set -- "$@" --set model.width=1 ;; esac ;;
esac
exec {PETRA} "$@"
""",
        )
        os.chmod(wrapper, stat.S_IRWXU)

    def shell(self, script):
        return subprocess.run(
            ["sh", "-ec", script],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={
                **os.environ,
                "PETRA_PYTHON": sys.executable,
                "PATH": self.path("bin") + ":" + os.environ["PATH"],
            },
        )

    def test_manual(self):
        shown = examples()
        self.assertGreaterEqual(len(shown), 7)
        for title, script in shown:
            print(title)
            if "runs/mine/weights.h5" in script:
                self.good("init", "mine.yaml", "--set", "model.width=1", "--quiet")
            if "weights_pytorch.py" in script:
                continue  # tests/cli/weights_torch.py, where there is PyTorch
            if "runs/a runs/b" in script:
                self.write(
                    "cluster.yaml",
                    "cluster: {cost: {model: roofline, device: h100}, link: {preset: 10gbe}}\n",
                )
                keys = [
                    *SMALL,
                    "model.width=1",
                    "stages.count=2",
                    "stages.partition=balanced",
                    "data.batch=4",
                    "data.limit=160",
                ]
                for seed, name in enumerate(["a", "b"]):
                    self.good(
                        "train",
                        "mine.yaml",
                        *(word for key in [*keys, f"run.seed={seed}"] for word in ("--set", key)),
                        "--output",
                        f"runs/{name}",
                        "--quiet",
                    )
                if not has_plotly():
                    script = script.replace("petra report", "! petra report")
            if "data.path=imagenet" not in script:
                run = self.shell(script)
                self.assertEqual(run.returncode, 0, f"{title}\n{script}\n{run.stdout}{run.stderr}")
                continue
            # There is no such folder: the command is right as far as that.
            for line in script.splitlines():
                run = self.shell(line)
                self.assertEqual(
                    (run.returncode, run.stderr.count("\n")),
                    (1, 1),
                    f"{title}\n{line}\n{run.stderr}",
                )
                self.assertIn("data.path: imagenet: no such folder", run.stderr)


main()
