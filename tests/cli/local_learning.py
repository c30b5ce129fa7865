# SPDX-License-Identifier: Apache-2.0
"""Local learning (method dgl): nothing is sent down, a stage does not depend on the stages above
it, every mode computes the same, and the independent implementation in tests/reference agrees."""

import os
import shutil
import subprocess
import sys
import unittest

from execute import ENVIRONMENT
from program import PETRA, ProgramTest, main

try:
    import h5py
    import numpy
except ImportError:
    h5py = None

CONFIG = """\
model: {family: revnet, depth: 18, width: 1}
stages: {partition: list, blocks: [3, 4, 3]}
data: {set: shapes, batch: 2, limit: 12, eval_limit: 8, augment: [], workers: 1}
method: {name: dgl}
run: {epochs: 2}
optim: {lr: 0.5}
device: {threads: 1}
"""
REFERENCE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference", "local_learning.py"
)
HEADER = 128  # bytes of the shapes in front of a message between processes


def tensors(path, group):
    found = {}
    with h5py.File(path, "r") as file:
        if group in file:
            file[group].visititems(
                lambda name, item: (
                    found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )
    return found


@unittest.skipUnless(h5py, "no h5py")
class LocalLearning(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("c.yaml", CONFIG)

    def equal(self, one, other):
        self.assertTrue(one)
        self.assertEqual(one.keys(), other.keys())
        for name, value in one.items():
            self.assertEqual(value.tobytes(), other[name].tobytes(), name)

    def weights(self, folder):
        return {
            **tensors(self.path(f"{folder}/weights.h5"), "parameters"),
            **{
                f"head {k}": v
                for k, v in tensors(self.path(f"{folder}/weights.h5"), "auxiliary").items()
            },
        }

    def test_nothing_down(self):
        found = self.good_json("simulate", "c.yaml")
        self.assertEqual([stage["bytes_down"] for stage in found["stages"]], [0, 0, 0])
        self.assertGreater(min(stage["bytes_up"] for stage in found["stages"][:2]), 0)
        self.assertEqual([stage["lag_max"] for stage in found["stages"]], [0, 0, 0])
        self.write(
            "equal.yaml",
            "cluster: {stages: 4, message: {forward_bytes: 8, backward_bytes: 8}}\n"
            "method: {name: dgl}\n",
        )
        self.assertEqual(
            [stage["bytes_down"] for stage in self.good_json("simulate", "equal.yaml")["stages"]],
            [0] * 4,
        )
        backprop = self.good_json("simulate", "c.yaml", "--set", "method.name=backprop")
        self.assertGreater(min(stage["bytes_down"] for stage in backprop["stages"][1:]), 0)
        self.assertEqual(
            [stage["backward_bytes"] for stage in self.good_json("inspect", "c.yaml")["stages"]],
            [0, 0, 0],
        )

    def test_stage_goes_on_before_those_above(self):
        """Unit costs: F takes 1 and B 2, and with an update after each the last of J stages ends M
        microbatches at 3 M + J - 1."""
        found = self.good_json("simulate", "c.yaml", "--set", "run.max_microbatches=50")
        self.assertEqual(found["makespan_s"], 3 * 50 + 2)

    def test_heads_are_counted(self):
        """A head of C channels has, for each of the two streams, a 3x3 convolution and a batch
        norm, then a linear map to 10 classes."""
        stages = {
            name: self.good_json("inspect", "c.yaml", "--set", f"method.name={name}")["stages"]
            for name in ("dgl", "backprop")
        }
        more = [
            a["parameters"] - b["parameters"] for a, b in zip(stages["dgl"], stages["backprop"])
        ]
        self.assertEqual(more, [2 * (9 * c * c + 2 * c) + 10 * 2 * c + 10 for c in (1, 4)] + [0])
        flops = [
            a["forward_flops"] - b["forward_flops"]
            for a, b in zip(stages["dgl"], stages["backprop"])
        ]
        self.assertEqual(
            flops,
            [2 * (2 * 9 * c * c * side * side + 10 * 2 * c) for c, side in ((1, 16), (4, 4))] + [0],
        )

    def test_memory(self):
        """What petra simulate counts is what the stages hold, with one block a stage too, whose
        outputs several stages share."""
        for more in (
            [],
            ["--set", "stages.partition=block", "--set", "stages.blocks=[]"],
            ["--set", "method.keep=input"],
        ):
            self.good(
                "train",
                "c.yaml",
                *more,
                "--set",
                "run.epochs=1",
                "--set",
                "run.eval_every=0",
                "--output",
                "run",
            )
            held = [
                stage["peak_bytes"]["total"] for stage in self.good_json("inspect", "run")["stages"]
            ]
            found = self.good_json(
                "simulate",
                "c.yaml",
                *more,
                "--set",
                "run.max_microbatches=6",
                "--set",
                "run.eval_every=0",
            )
            self.assertEqual(
                [stage["peak_bytes"]["total"] for stage in found["stages"]], held, more
            )

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_executed(self):
        """Two and three ranks compute what one process computes, and the messages on the wire are
        those up and the losses."""
        self.good("train", "c.yaml", "--output", "one")
        for ranks in 2, 3:
            output = f"ranks{ranks}"
            command = [
                "mpirun",
                "--oversubscribe",
                "-n",
                str(ranks),
                PETRA,
                "train",
                "c.yaml",
                "--set",
                "run.mode=execute",
                "--set",
                "run.trace_actions=true",
                "--set",
                "run.eval_every=0",
                "--output",
                output,
            ]
            ended = subprocess.run(
                command,
                cwd=self.folder,
                env={**os.environ, **ENVIRONMENT},
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.equal(self.weights("one"), self.weights(output))
            with (
                h5py.File(self.path("one/run.h5"), "r") as a,
                h5py.File(self.path(f"{output}/run.h5"), "r") as b,
            ):
                for name in "train_loss", "train_top1":
                    self.assertEqual(
                        a[f"local/{name}"][()].tobytes(), b[f"local/{name}"][()].tobytes()
                    )
                of_stage, sent = b["ranks/of_stage"][()], b["ranks/sent"][()]
            up = [stage["forward_bytes"] for stage in self.good_json("inspect", "c.yaml")["stages"]]
            # One message up from its last stage for each of 12 microbatches.
            for rank in range(ranks - 1):
                last = max(j for j in range(3) if of_stage[j] == rank)
                self.assertEqual(sent[rank].tolist(), [12, 12 * (up[last] + HEADER)])

    def test_losses_of_stages(self):
        """The losses of the last stage are those of the run; replicas add up."""
        self.good("train", "c.yaml", "--output", "one")
        with h5py.File(self.path("one/run.h5"), "r") as file:
            self.assertEqual(file["local/train_loss"].shape, (2, 3))
            self.assertEqual(
                file["local/train_loss"][:, 2].tolist(), file["epoch/train_loss"][()].tolist()
            )
            self.assertEqual(
                file["local/train_top1"][:, 2].tolist(), file["epoch/train_top1"][()].tolist()
            )
            self.assertTrue(numpy.isfinite(file["local/train_loss"][()]).all())
            losses = file["local/train_loss"][1].tolist()
        self.assertEqual(
            [stage["train_loss"] for stage in self.good_json("inspect", "one")["stages"]], losses
        )
        self.assertIn("heads of the stages in epoch 2:", self.good("inspect", "one"))
        self.good(
            "train",
            "c.yaml",
            "--set",
            "cluster.replicas=2",
            "--set",
            "data.batch=3",
            "--output",
            "two",
        )
        with h5py.File(self.path("two/run.h5"), "r") as file:
            numpy.testing.assert_allclose(
                file["local/train_loss"][:, 2], file["epoch/train_loss"], rtol=1e-12
            )
        self.good("train", "c.yaml", "--set", "method.name=backprop", "--output", "other")
        with h5py.File(self.path("other/run.h5"), "r") as file:
            self.assertNotIn("local", file)
        self.assertEqual(tensors(self.path("other/weights.h5"), "auxiliary"), {})

    def test_stages_above(self):
        """The blocks of stage 1 and its head learn the same whatever the stages above are: another
        number of them, other weights."""

        def own(folder):
            return {
                n: v
                for n, v in self.weights(folder).items()
                if n[:2] in ("01", "02", "03") or n.startswith("head 01")
            }

        self.good("train", "c.yaml", "--output", "three")
        self.good("train", "c.yaml", "--set", "stages.blocks=[3,7]", "--output", "two")
        self.equal(own("three"), own("two"))
        self.good("init", "c.yaml", "--output", "start")
        with (
            h5py.File(self.path("start/weights.h5"), "r") as old,
            h5py.File(self.path("moved.h5"), "w") as file,
        ):
            file.attrs["model"] = old.attrs["model"]
            old.copy("parameters", file)
            file["parameters/07/conv1/weight"][...] *= 2
            file["parameters/10/fc/weight"][...] += 0.125
        self.good("train", "c.yaml", "--set", "model.weights=moved.h5", "--output", "moved")
        self.equal(own("three"), own("moved"))
        self.assertNotEqual(
            self.weights("three")["10/fc/weight"].tobytes(),
            self.weights("moved")["10/fc/weight"].tobytes(),
        )
        # With backprop stage 1 depends on the weights above, so that the test can fail.
        self.good("train", "c.yaml", "--set", "method.name=backprop", "--output", "a")
        self.good(
            "train",
            "c.yaml",
            "--set",
            "method.name=backprop",
            "--set",
            "model.weights=moved.h5",
            "--output",
            "b",
        )
        self.assertNotEqual(
            self.weights("a")["02/conv1/weight"].tobytes(),
            self.weights("b")["02/conv1/weight"].tobytes(),
        )

    def test_resumed(self):
        for keep in "graph", "input", "nothing":
            options = [
                "--set",
                f"method.keep={keep}",
                "--set",
                "method.accumulate=2",
                "--set",
                "run.checkpoint_every=5 microbatches",
                "--set",
                "run.keep_checkpoint=true",
                "--set",
                "data.limit=24",
            ]
            self.good("train", "c.yaml", *options, "--output", "whole")
            shutil.rmtree(self.path("part"), ignore_errors=True)
            self.good("train", "c.yaml", *options, "--set", "run.epochs=1", "--output", "part")
            self.good("train", "c.yaml", *options, "--output", "part", "--resume")
            self.equal(self.weights("whole"), self.weights("part"))
            with (
                h5py.File(self.path("whole/run.h5"), "r") as a,
                h5py.File(self.path("part/run.h5"), "r") as b,
            ):
                self.assertEqual(
                    a["local/train_loss"][()].tobytes(), b["local/train_loss"][()].tobytes()
                )

    def test_probe(self):
        """The last stage has the end-to-end gradient; the others have it only in part. Heads have
        none."""
        self.good("train", "c.yaml", "--set", "probe.per_epoch=2", "--output", "p")
        with h5py.File(self.path("p/run.h5"), "r") as file:
            cosine = file["probe/concatenated_cosine/method_end_to_end"][()]
            names = [name.decode() for name in file["probe/parameter/name"][()]]
        numpy.testing.assert_allclose(cosine[:, 2], 1, atol=1e-5)
        self.assertLess(abs(cosine[:, :2]).max(), 0.999)
        self.assertTrue(all(1 <= int(name[:2]) <= 10 for name in names))

    def test_tokens(self):
        sets = [
            "--set",
            "model.family=revgpt",
            "--set",
            "model.depth=2",
            "--set",
            "model.width=8",
            "--set",
            "model.heads=2",
            "--set",
            "model.context=8",
            "--set",
            "data.set=grammar",
            "--set",
            "stages.blocks=[2,2,2]",
        ]
        self.good("train", "c.yaml", *sets, "--output", "t")
        heads = tensors(self.path("t/weights.h5"), "auxiliary")
        self.assertEqual(
            {name.split("/", 1)[1] for name in heads}, {"ln/scale", "ln/shift", "fc/weight"}
        )

    def test_refused(self):
        for sets, word in (
            (["method.extra_delay=1"], "has no delay"),
            (["method.mitigation.weight_prediction=difference"], "has no delay"),
            (["method.mitigation.sync_warmup_epochs=1"], "has no delay"),
            (["cluster.cost.model=profile", "cluster.cost.profile=x.h5"], "x.h5"),
        ):
            self.bad(
                2 if word != "x.h5" else 1,
                word,
                "simulate",
                "c.yaml",
                *(w for s in sets for w in ("--set", s)),
            )
        self.bad(2, "auxiliary heads", "profile", "c.yaml")
        self.write("s.schedule", "1: 1F0 1B0 1U0\n2: 2F0 2B0 2U0\n3: 3F0 3B0 3U0\n")
        self.bad(2, "losses of their own", "train", "c.yaml", "--set", "method.schedule=s.schedule")
        self.bad(
            2,
            "losses of their own; expected preset",
            "train",
            "c.yaml",
            "--set",
            "method.program=lockstep",
        )
        self.bad(
            2,
            "no losses of their own; expected preset",
            "train",
            "c.yaml",
            "--set",
            "method.name=petra",
            "--set",
            "method.program=local",
        )
        self.bad(2, "expected 0", "train", "c.yaml", "--set", "method.sync_period=4")

    def test_petrapipe_refuses(self):
        self.write("plan.json", self.good("schedule", "c.yaml", "--json"))
        code = f"import petrapipe; petrapipe.Plan.read({self.path('plan.json')!r})"
        analysis = os.path.join(
            os.path.dirname(os.path.dirname(os.path.dirname(REFERENCE))), "analysis"
        )
        ended = subprocess.run(
            [sys.executable, "-B", "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": analysis},
            check=False,
        )
        self.assertIn("has a loss at every stage, which petrapipe does not run", ended.stderr)

    def test_reference(self):
        ended = subprocess.run(
            [sys.executable, "-c", "import torch"], capture_output=True, check=False
        )
        if ended.returncode != 0:
            self.skipTest("no PyTorch")
        ended = subprocess.run(
            [sys.executable, "-B", REFERENCE, PETRA], capture_output=True, text=True, check=False
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)


if __name__ == "__main__":
    main()
