# SPDX-License-Identifier: Apache-2.0
"""What petra report shows of several runs beside each other, and of runs whose figures would
show one value."""

import json
import os
import re
import shutil
import sys
import tempfile

import h5py
import numpy

import made_up_log
from program import ProgramTest, main

ROOT = os.path.abspath(os.environ.get("srcdir") or ".")
sys.path.insert(0, os.path.join(ROOT, "analysis"))
sys.dont_write_bytecode = True
os.environ["PYTHON"] = sys.executable
from petrapipe.report import data, figures, page  # noqa: E402

CASES = {  # the settings in which a run differs from small.yaml
    "petra": {"method__name": "petra"},
    "backprop": {"method__name": "backprop"},
    "1f1b": {
        "method__name": "1f1b",
        "method__accumulate": 4,
        "probe__per_epoch": 1,
        "run__trace_actions": "true",
    },
    "zb-v": {"method__name": "zb-v", "method__accumulate": 4},
}


class Beside(ProgramTest):
    made = None  # the folder of the runs, made once

    def setUp(self):
        super().setUp()
        if Beside.made is None:
            for name, settings in CASES.items():
                four = {"stages__partition": "balanced", "stages__count": 4, **settings}
                self.good(
                    "train",
                    "small.yaml",
                    "--quiet",
                    "--output",
                    f"runs/{name}",
                    *self.set_options(**four),
                )
            Beside.made = tempfile.TemporaryDirectory(prefix="petra-test-")
            self.addClassCleanup(Beside.made.cleanup)
            shutil.copytree(self.path("runs"), os.path.join(Beside.made.name, "runs"))
        else:
            shutil.copytree(os.path.join(Beside.made.name, "runs"), self.path("runs"))

    def runs(self, *names):
        return [data.RunData(self.path(f"runs/{name}/run.h5"), name) for name in names]

    def sections(self, *names):
        return {section["id"]: section for section in figures.sections(self.runs(*names), [])}

    def columns(self, *names):
        """The table of the runs as {column: cells}."""
        text = page.what_was_run(self.runs(*names))
        table = re.search("<caption>Runs, with.*?</table>", text, re.DOTALL).group(0)
        rows = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr>")[1:]]
        return {column[0]: list(column[1:]) for column in zip(*rows)}

    def test_time(self):
        """Each figure over the epochs has one over virtual time beside it, and the table has the
        time of the whole run."""
        found = self.sections("petra", "backprop")["training"]["figures"]
        self.assertEqual(
            [figure["caption"][:8] for figure in found],
            ["Training", "Training", "Accuracy", "Accuracy"],
        )
        with h5py.File(self.path("runs/backprop/run.h5")) as file:
            virtual_s, epoch = file["train/virtual_s"][:], file["train/epoch"][:]
            accuracy = 100 * file["epoch/eval_top1"][:]
        trace = found[3]["views"]["0"]["traces"][1]
        self.assertEqual(trace["x"], [virtual_s[epoch == e].max() for e in (0, 1)])
        numpy.testing.assert_allclose(trace["y"], accuracy, rtol=1e-4)
        thin = found[1]["views"]["0"]["traces"][2]
        numpy.testing.assert_allclose(thin["x"], virtual_s, rtol=1e-4)
        columns = self.columns("petra", "backprop")
        self.assertEqual(columns["virtual time (s)"][1], f"{virtual_s[-1]:.6g}")
        self.assertLess(
            float(columns["virtual time (s)"][0]), 0.5 * float(columns["virtual time (s)"][1])
        )
        self.assertNotIn("wall time (s)", columns)  # these runs were emulated on this machine

    def test_wall_time_of_an_executed_run(self):
        with self.edited("runs/petra/run.h5") as file:
            file.attrs["config"] = file.attrs["config"].replace("mode: emulate", "mode: execute")
            wall_s = file["train/wall_s"][:]
        found = self.sections("petra", "backprop")["training"]["figures"]
        self.assertEqual(found[1]["controls"][0]["choices"], ["virtual", "wall"])
        self.assertEqual(
            {trace["legendgroup"] for trace in found[1]["views"]["1"]["traces"]}, {"petra"}
        )
        self.assertEqual(
            self.columns("petra", "backprop")["wall time (s)"], [f"{wall_s[-1]:.6g}", "-"]
        )

    def test_devices_and_samples(self):
        """They are what a schedule of the same method has, and a note above the table names what
        differs."""
        columns = self.columns(*CASES)
        self.assertEqual(columns["devices"], ["4", "4", "4", "2"])
        self.assertEqual(columns["samples per update"], ["8", "8", "32", "32"])
        text = page.what_was_run(self.runs(*CASES))
        note = text[: text.index("<table>")]
        self.assertIn("<li>devices: 4 (petra, backprop, 1f1b); 2 (zb-v)</li>", note)
        self.assertIn("<li>samples per update: 8 (petra, backprop); 32 (1f1b, zb-v)</li>", note)
        self.assertNotIn("stages", note)
        self.assertEqual(page.differences(self.runs("petra", "backprop")), "")

    def test_devices_of_every_method(self):
        """The number of stages of a device is the one that the program prints, of each method
        and of a list of devices."""
        for method in self.good_json("methods")["methods"]:
            (run,) = self.runs("petra")
            run.method, run.config["method.name"] = method["name"], method["name"]
            self.assertEqual(run.devices(), 4 // max(1, method["chunks"]), method["name"])
        for setting, count in (("v", 2), ("loop", 2), ("[1, 2, 3, 3]", 3)):
            (run,) = self.runs("petra")
            run.config["stages.devices"] = setting
            self.assertEqual(run.devices(), count, setting)
        run.run.config["cluster.replicas"] = "3"
        self.assertEqual((run.devices(), run.update_samples()), (9, 24))

    def test_unlike(self):
        """Data, network and epochs are named; the place of generated data, seeds and rates are
        not."""
        changed = {
            "data": {"data__limit": 48},
            "network": {"model__width": 2},
            "longer": {"run__epochs": 3},
            "same": {"data__path": "elsewhere", "run__seed": 7, "optim__lr": 0.01},
        }
        for name, settings in changed.items():
            self.good(
                "train",
                "small.yaml",
                "--quiet",
                "--output",
                f"runs/{name}",
                *self.set_options(stages__partition="balanced", stages__count=4, **settings),
            )
        expected = {
            "data": {"data.limit": {"64": ["petra"], "48": ["data"]}},
            "network": {"model.width": {"1": ["petra"], "2": ["network"]}},
            "longer": {"epochs": {"2": ["petra"], "3": ["longer"]}},
            "same": {},
        }
        for name, found in expected.items():
            self.assertEqual(data.unlike(self.runs("petra", name)), found)

    def test_unlike_simulation(self):
        """The time of a simulation is that of its own number of microbatches."""
        self.good(
            "simulate",
            "small.yaml",
            "--quiet",
            "--output",
            "runs/priced",
            "--set",
            "run.max_microbatches=40",
            *self.set_options(stages__partition="balanced", stages__count=4),
        )
        self.assertEqual(
            data.unlike(self.runs("petra", "priced")),
            {"microbatches": {"16": ["petra"], "40": ["priced"]}},
        )

    def test_memory_beside_each_other(self):
        found = self.sections("petra", "backprop")["memory"]["figures"]
        self.assertEqual(len(found), 3)
        for trace, name in zip(found[0]["views"][""]["traces"], ("petra", "backprop")):
            with h5py.File(self.path(f"runs/{name}/run.h5")) as file:
                numpy.testing.assert_allclose(
                    trace["y"], file["memory/total_peak_bytes"][:] / 1e6, rtol=1e-4
                )
        totals = found[1]["views"][""]["traces"][-1]
        numpy.testing.assert_allclose(
            totals["y"], [sum(trace["y"]) for trace in found[0]["views"][""]["traces"]], rtol=1e-4
        )
        self.assertEqual(len(self.sections("petra")["memory"]["figures"]), 1)

    def test_synchronous(self):
        """Gradients that equal their references, and lags that are all 0, are a sentence and not
        a figure of one colour."""
        found = self.sections("1f1b")
        for name, words in ("fidelity", "are equal"), ("lag", "the lag is 0 at every stage"):
            self.assertEqual((found[name]["figures"], found[name]["missing"]), ([], ""))
            self.assertIn(words, found[name]["notes"][0])
        body = page.body_of(list(found.values()), "")
        self.assertIn('<section id="fidelity"', body)
        self.assertEqual(
            [
                line
                for line in page.left_out(list(found.values()))
                if "Fidelity" in line or "Lags" in line
            ],
            [],
        )

    def made_up(self, name, probes, stages, value, losses=4):
        """A log with probes whose cosines have this value."""
        os.makedirs(self.path(f"runs/{name}"))
        with h5py.File(self.path(f"runs/{name}/run.h5"), "w", libver="earliest") as file:
            file.attrs["config"] = "method: {name: petra, accumulate: 1}\n"
            file["train/microbatch"], file["train/epoch"] = (
                numpy.arange(losses),
                numpy.zeros(losses, int),
            )
            file["train/loss"], file["train/virtual_s"] = (
                numpy.full(losses, 2.0),
                numpy.arange(losses) * 1.0,
            )
            file["epoch/epoch"], file["epoch/eval_top1"] = [0], [0.5]
            file["probe/microbatch"], file["probe/epoch"] = (
                numpy.arange(probes),
                numpy.zeros(probes, int),
            )
            file["probe/cosine/method_delayed"] = numpy.full((probes, stages), value)
            made_up_log.complete(file)

    def test_few_values(self):
        """One probe, one stage, one epoch, one loss, equal values, no value: no axis has a place
        between two."""
        for name, case in {
            "one": (1, 1, 0.5, 1),
            "equal": (3, 2, 0.5),
            "none": (2, 2, numpy.nan),
            "same": (2, 2, 1.0),
            "empty": (0, 0, 1.0),
        }.items():
            self.made_up(name, *case)
            found = self.sections(name)
            json.dumps(list(found.values()), allow_nan=False)
            fidelity = found["fidelity"]
            if name in ("one", "equal"):
                views = fidelity["figures"][0]["views"]
                self.assertTrue(all(view["note"] for view in views.values()), name)
                self.assertEqual(views["0/0/0"]["note"], "Every value is 0.5.")
                self.assertEqual(views["0/0/0"]["layout"]["xaxis"]["type"], "category")
                if name == "one":
                    self.assertEqual(views["0/0/1"]["layout"]["xaxis"]["type"], "category")
            else:
                self.assertEqual(fidelity["figures"], [], name)
        self.assertIn("compared no gradients", self.sections("none")["fidelity"]["notes"][0])

    def test_training_of_the_trainer(self):
        """The attribute `training` of a run in PyTorch is printed, and its lines are compared
        like keys."""
        for name, rate in ("petra", "0.1"), ("backprop", "0.2"):
            with self.edited(f"runs/{name}/run.h5") as file:
                file.attrs["backend"], file.attrs["training"] = (
                    "PyTorch 9.9 on cpu",
                    f"lr of group 1: {rate}\nclip: <none>",
                )
        text = page.what_was_run(self.runs("petra", "backprop"))
        self.assertIn(
            '<th scope="row" class="short">lr of group 1</th><td>0.1</td><td>0.2</td>',
            text,
        )
        self.assertIn(
            '<th scope="row" class="short">clip</th><td>&lt;none&gt;</td><td>&lt;none&gt;</td>',
            text,
        )
        self.assertIn("lr of group 1", page.what_was_run(self.runs("petra")))

    def test_printed(self):
        """The command says what is unlike, in words and as JSON."""
        try:
            import plotly  # noqa: F401
        except ImportError:
            self.skipTest("no plotly (Debian: python3-plotly)")
        self.assertIn(
            "unlike: devices: 4 (1f1b); 2 (zb-v)\n",
            self.good("report", "runs/1f1b", "runs/zb-v", "-o", "a.html"),
        )
        found = self.good_json("report", "runs/1f1b", "runs/zb-v", "-o", "a.html")
        self.assertEqual(found["unlike"], {"devices": {"4": ["1f1b"], "2": ["zb-v"]}})


if __name__ == "__main__":
    main()
