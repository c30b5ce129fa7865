# SPDX-License-Identifier: Apache-2.0
"""petra report: what is on the page, and, where Chromium is, that a browser draws all of it."""

import contextlib
import html
import importlib
import importlib.util
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

import h5py
import numpy

import made_up_log
from program import PETRA, ProgramTest, main

ROOT = os.path.abspath(os.environ.get("srcdir") or ".")
sys.path.insert(0, os.path.join(ROOT, "analysis"))
sys.dont_write_bytecode = True
os.environ["PYTHON"], os.environ["PYTHONDONTWRITEBYTECODE"], os.environ["MPLBACKEND"] = (
    sys.executable,
    "1",
    "Agg",
)
import entry  # noqa: E402

from petrapipe import runs, sweeps, text as texts  # noqa: E402
from petrapipe.figures import (  # noqa: E402
    accumulation as plot_accumulation,
    sweep as plot_sweep,
    timeline as plot_timeline,
)
from petrapipe.report import (  # noqa: E402
    data as report_data,
    figures as report_figures,
    page as report_page,
)

HAS_PLOTLY = importlib.util.find_spec("plotly") is not None
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECTIONS = ["training", "fidelity", "lag", "memory", "timeline", "pace", "sweeps"]
SUMMARY = """\
combination,overrides,cells,complete,eval_top1_mean,eval_top1_interval95
a,"method.name=petra; method.accumulate=1",2,2,0.5,0.1
b,"method.name=petra; method.accumulate=4",2,2,0.25,0.05
c,"method.name=<b>; method.accumulate=1",1,1,0.75,
"""


class Pythons(ProgramTest):
    """The Python that scripts run by, where the first one on PATH has no h5py."""

    def setUp(self):
        super().setUp()
        self.bare = self.path("bare/bin/python3")
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", self.path("bare")], check=True
        )
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHON", "PETRA_PYTHON")
        }
        self.environment["PATH"] = os.path.dirname(self.bare) + ":" + self.environment["PATH"]
        scripts = sorted(
            name for name in os.listdir(os.path.join(ROOT, "analysis")) if name.endswith(".py")
        )
        self.scripts = [
            path
            for path in (os.path.join(ROOT, "analysis", name) for name in scripts)
            if os.access(path, os.X_OK)
        ]
        self.assertEqual(len(self.scripts), 10)

    def run_by(self, python, *command, **more):
        """Exit status and the last line of an error, of which there is no other; more: variables of
        the environment."""
        environment = self.environment | ({"PETRA_PYTHON": python} if python else {}) | more
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        self.assertLessEqual(len(ended.stderr.splitlines()), 1, ended.stderr)
        return ended.returncode, ended.stderr

    def test_named(self):
        """The one of PETRA_PYTHON, whatever comes first on PATH and whatever configure found."""
        for script in self.scripts:
            self.assertEqual(self.run_by(sys.executable, script, "--help"), (0, ""), script)
            status, line = self.run_by("/no/python", script, "--help")
            self.assertEqual(
                (
                    status,
                    line.startswith(
                        os.path.basename(script) + ": /no/python cannot be started: No such file"
                    ),
                ),
                (1, True),
                line,
            )
            # Need no module for some of what they do.
            if any(word in script for word in ("sweep", "accumulation", "reach")):
                continue
            status, line = self.run_by(self.bare, script, "--help")
            self.assertEqual(
                (
                    status,
                    f"{self.bare} cannot load the modules" in line
                    and f"{self.bare} -m pip install " in line,
                ),
                (1, True),
                line,
            )
        status, line = self.run_by(self.bare, PETRA, "report", "x", "--output", "x.html")
        self.assertEqual(
            (status, f"{self.bare} cannot load the modules h5py, numpy, plotly;" in line),
            (1, True),
            line,
        )
        status, line = self.run_by("/no/python", PETRA, "report", "x", "--output", "x.html")
        self.assertEqual(
            (status, line.startswith("petra: /no/python: cannot be started: ")), (1, True), line
        )

    def test_remembered(self):
        """The one that configure found."""
        with open("analysis/python", encoding="utf-8") as file:
            found = file.read().strip()
        if (
            subprocess.run(
                [found, "-c", "import h5py, numpy, plotly"], capture_output=True, check=False
            ).returncode
            != 0
        ):
            self.skipTest(f"configure found {found}, which lacks a module")
        status, line = self.run_by(None, PETRA, "report", "x", "--output", "x.html")
        self.assertEqual((status, "x: no such file or folder" in line), (1, True), line)
        folder = self.path("installed")
        shutil.copytree(
            os.path.join(ROOT, "analysis"),
            folder,
            ignore=shutil.ignore_patterns("build", "__pycache__"),
        )
        shutil.copy("analysis/python", folder)
        for script in self.scripts:
            self.assertEqual(
                self.run_by(None, os.path.join(folder, os.path.basename(script)), "--help"),
                (0, ""),
                script,
            )

    def test_another(self):
        """If the chosen Python lacks h5py, or cannot load it, another on PATH takes over; if there
        is none, one line says what is missing."""
        self.write("broken/h5py.py", "raise ImportError('libhdf5.so.103 is not there')")
        self.write(
            "bare/bin/python3.99", f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} "$@"\n'
        )
        os.chmod(self.path("bare/bin/python3.99"), 0o755)
        script = [
            self.bare,
            "-B",
            os.path.join(ROOT, "analysis/petra_export.py"),
            "--csv",
            "x",
            "y",
        ]
        report = [PETRA, "report", "y", "--output", "x.html"]
        for more in {}, {"PYTHONPATH": self.path("broken")}:
            self.assertEqual(
                self.run_by(None, *script, **more)[1],
                "petra_export.py: y: not readable as a run log: No such file or directory\n",
            )
            if HAS_PLOTLY:
                self.assertIn(
                    "y: no such file or folder",
                    self.run_by(None, *report, PYTHON=self.bare, **more)[1],
                )
        os.remove(self.path("bare/bin/python3.99"))
        for command in script, report:
            status, line = self.run_by(
                None, *command, PYTHON=self.bare, PYTHONPATH=self.path("broken")
            )
            self.assertEqual(
                (
                    status,
                    "h5py" in line,
                    "(libhdf5.so.103 is not there); expected a Python that can" in line,
                ),
                (1, True, True),
                line,
            )


def write_actions(path, count, stages=4, length=30, gap=20):
    """The log of a run with so many actions: on each stage F, twice as long B and, after every
    fourth, an update of 2; random gaps."""
    gaps, busy, rows, microbatch = numpy.random.default_rng(count), [0] * stages, [], 0
    while len(rows) < count:
        for stage in range(stages):
            for kind, time in (
                ((0, length), (1, 2 * length), (3, 2))
                if microbatch % 4 == 3
                else ((0, length), (1, 2 * length))
            ):
                start = busy[stage] + int(gaps.integers(1, gap + 1))
                busy[stage] = start + time
                rows.append((1000 * start, 1000 * busy[stage], stage + 1, kind, microbatch, 0, -1))
        microbatch += 1
    os.makedirs(os.path.dirname(path))
    with h5py.File(path, "w", libver="earliest") as run:
        run.attrs["config"], run.attrs["complete"] = (
            "method:\n  name: petra\nrun:\n  mode: emulate\n",
            1,
        )
        for name, column in zip(
            (
                "start_ns",
                "end_ns",
                "stage",
                "kind",
                "microbatch",
                "version_read",
                "version_written",
            ),
            zip(*rows[:count]),
        ):
            run["trace/actions/" + name] = numpy.array(column)
        made_up_log.complete(run)


def has(image, colour):
    """Where an image has a colour, or one near to it: the runs of columns with it."""
    wanted = numpy.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    columns = (abs(image[:, :, :3] - wanted).max(axis=2) < 0.25).any(axis=0)
    return int((columns[1:] & ~columns[:-1]).sum() + columns[0])


class Report(ProgramTest):
    made = None  # the runs, made once

    def setUp(self):
        super().setUp()
        self.write("sweep/summary.csv", SUMMARY)
        if Report.made:
            shutil.copytree(os.path.join(Report.made.name, "runs"), self.path("runs"))
            return
        options = ["--quiet", "--set", "run.trace_actions=true"]
        self.good(
            "train",
            "small.yaml",
            *options,
            *self.set_options(data__limit=192, probe__per_epoch=2),
            "--output",
            "runs/mine",
        )
        self.good("simulate", "small.yaml", *options, "--output", "runs/priced")
        with self.edited("runs/mine/run.h5") as run:  # what an executed run has besides
            run["pace/microbatch_s"] = [0.2, 0.1, 0.05, numpy.nan]
            run["pace/stage_s"], run["pace/busy"] = (
                numpy.full((10, 4), 0.01),
                numpy.full((1, 4), 0.5),
            )
            made_up_log.complete(run)
        Report.made = tempfile.TemporaryDirectory(prefix="petra-test-")
        self.addClassCleanup(Report.made.cleanup)
        shutil.copytree(self.path("runs"), os.path.join(Report.made.name, "runs"))

    def sections(self, *names):
        return {
            section["id"]: section
            for section in report_figures.sections(
                [report_data.RunData(self.path(f"runs/{name}/run.h5"), name) for name in names],
                [report_data.SweepData(self.path("sweep/summary.csv"))] if names else [],
            )
        }

    def test_sections(self):
        """Each number that is drawn is one of the log."""
        found = self.sections("mine", "priced")
        self.assertEqual(list(found), SECTIONS)
        json.dumps(list(found.values()), allow_nan=False)
        with h5py.File(self.path("runs/mine/run.h5"), "r") as run:
            _, means = found["training"]["figures"][0]["views"][""]["traces"]
            self.assertEqual(means["y"], [float(f"{loss:.5g}") for loss in run["epoch/train_loss"]])
            cosine = run["probe/cosine/method_end_to_end"][:]
            view = found["fidelity"]["figures"][0]["views"]["0/1/1"]["traces"][0]
            self.assertEqual(
                (view["x"], view["y"]), (run["probe/microbatch"][:].tolist(), list(range(1, 11)))
            )
            numpy.testing.assert_allclose(numpy.array(view["z"], float), cosine.T, rtol=1e-3)
            ratio = found["fidelity"]["figures"][1]["views"]["0/0/1"]["traces"][0]
            numpy.testing.assert_allclose(
                2.0 ** numpy.array(ratio["z"], float),
                run["probe/norm_ratio/method_delayed"][:].T,
                rtol=1e-2,
            )
            total = found["memory"]["figures"][-1]["views"]["0"]["traces"][-1]
            numpy.testing.assert_allclose(
                total["y"], run["memory/total_peak_bytes"][:] / 1e6, rtol=1e-4
            )
        pace = found["pace"]["figures"][0]["views"][""]["traces"]
        self.assertEqual([trace["y"] for trace in pace], [[200.0], [100.0]])
        self.assertEqual(
            (pace[1]["error_y"]["arrayminus"], pace[1]["error_y"]["array"]), ([50.0], [None])
        )
        sweep = found["sweeps"]["figures"][0]
        self.assertEqual(
            [control["choices"] for control in sweep["controls"]],
            [["method.accumulate", "method.name"], ["eval_top1"]],
        )
        band, petra, other = sweep["views"]["0/0"]["traces"]
        self.assertEqual(
            (band["x"], band["y"], petra["y"]),
            ([1, 4, 4, 1], [60.0, 30.0, 20.0, 40.0], [50.0, 25.0]),
        )
        # Plotly knows tags.
        self.assertEqual((other["name"], other["error_y"]["array"]), ("&lt;b&gt;", [None]))
        self.assertIn("one seed", sweep["views"]["0/0"]["note"])

    def test_words_of_tokens(self):
        """Losses of a run on tokens are a token's; where the data are is not said to change
        nothing."""
        self.write(
            "gpt.yaml",
            "data: {set: grammar, batch: 2, limit: 8, eval_limit: 2}\n"
            "run: {epochs: 1}\n"
            "lr: {warmup_epochs: 0}\n"
            "model: {family: revgpt, depth: 1, width: 4, heads: 1, context: 4}\n",
        )
        self.good("train", "gpt.yaml", "--output", "runs/gpt", "--quiet", "--set", "data.path=here")

        def unit(*names):
            return self.sections(*names)["training"]["figures"][0]["views"][""]["layout"]["yaxis"][
                "title"
            ]["text"]

        self.assertEqual(unit("mine", "priced"), "cross-entropy (nats per image)")
        self.assertEqual(unit("gpt"), "cross-entropy (nats per token)")
        self.assertEqual(unit("gpt", "mine"), "cross-entropy (nats per image or token)")
        # What is shown of evaluations of tokens is the loss.
        for names, captions in (
            (("gpt",), ["Loss on the"]),
            (("mine",), ["Accuracy on the"]),
            (("gpt", "mine"), ["Loss on the", "Accuracy on the"]),
        ):
            # Each figure over the epochs has one over time beside it.
            figures = self.sections(*names)["training"]["figures"][2::2]
            self.assertEqual(
                [
                    figure["caption"][: len(caption)]
                    for figure, caption in itertools.zip_longest(
                        figures, captions, fillvalue={"caption": ""}
                    )
                ],
                captions,
            )
        with h5py.File(self.path("runs/gpt/run.h5"), "r") as run:
            self.assertEqual(
                self.sections("gpt")["training"]["figures"][2]["views"][""]["traces"][0]["y"],
                [float(f"{loss:.5g}") for loss in run["epoch/eval_loss"]],
            )
        if importlib.util.find_spec("matplotlib"):
            from petrapipe.figures import training

            found = {
                name: training.Training(self.path(f"runs/{name}/run.h5"), name)
                for name in ("gpt", "mine")
            }
            for chosen, label in (
                (["gpt"], "cross-entropy (nats per token)"),
                (["mine"], "top-1 accuracy (%)"),
                (["mine", "gpt"], "cross-entropy (nats per image or token)"),
            ):
                axes = training.draw([found[name] for name in chosen]).axes[1]
                self.assertEqual((axes.get_ylabel(), axes.get_xlabel()), (label, "epochs trained"))
        text = report_page.what_was_run(
            [
                report_data.RunData(self.path(f"runs/{name}/run.h5"), name)
                for name in ("mine", "gpt")
            ]
        )
        self.assertIn("data.path</", text)
        self.assertNotIn("data.path (", text)

    def test_clock_of_the_actions(self):
        """Of an executed run the wall clock; an older log of a run whose actions were slept is no simulation either."""
        for backend, mode, clock, simulated in (
            ("cpu (oneDNN)", "execute", "wall", False),
            ("none: actions are slept", "execute", "wall", False),
            ("none: costs only", "execute", "virtual", True),
            ("cpu (oneDNN)", "emulate", "virtual", False),
        ):
            with self.edited("runs/priced/run.h5") as run:
                run.attrs["backend"], run.attrs["config"] = backend, f"run: {{mode: {mode}}}\n"
            data = report_data.RunData(self.path("runs/priced/run.h5"), "priced")
            self.assertEqual((data.run.clock(), data.simulated), (clock, simulated))
            if importlib.util.find_spec("matplotlib"):
                figure = plot_timeline.draw(
                    data.run.action_columns(), (0.0, 9.0), "title", data.run.clock()
                )
                self.assertTrue(figure.axes[0].get_xlabel().startswith(clock + " time"))
            views = self.sections("priced")["timeline"]["figures"][0]["views"]
            self.assertTrue(
                all(
                    view["layout"]["xaxis"]["title"]["text"].startswith(clock + " time")
                    for view in views.values()
                )
            )

    def test_place_in_an_epoch(self):
        """A run that is shorter than its first epoch ends within it."""
        self.good(
            "train",
            "small.yaml",
            "--quiet",
            *self.set_options(run__max_microbatches=4, method__name="backprop"),
            "--output",
            "runs/short",
        )
        data = report_data.RunData(self.path("runs/short/run.h5"), "short")
        self.assertEqual(report_data.loss_curve(data)[0], [0.125, 0.25, 0.375, 0.5])
        with self.edited("runs/mine/run.h5") as run:  # as earlier versions wrote it
            del run.attrs["microbatches_per_epoch"]
        self.assertEqual(
            report_data.RunData(self.path("runs/mine/run.h5"), "mine").run.microbatches_per_epoch(),
            24,
        )

    def test_lags_are_those_of_the_simulation(self):
        """Counted from the actions as the simulation itself counts them, for the stage whose F and
        B are one action, too."""
        data = report_data.RunData(self.path("runs/priced/run.h5"), "priced")
        lags = report_data.lags(data)
        self.assertEqual(sorted(lags), list(range(1, 11)))
        numpy.testing.assert_allclose(
            [lags[stage].mean() for stage in range(1, 11)],
            data.run.array("simulate/lag_mean").values,
            rtol=1e-12,
        )
        self.assertEqual(
            [lags[stage].max() for stage in range(1, 11)],
            data.run.array("simulate/lag_max").values.tolist(),
        )
        # B reads the weights of its F, though the stage has others by then.
        for method in (
            "ddg",
            "pipedream-2bw",
        ):
            self.good(
                "simulate",
                "small.yaml",
                "--quiet",
                "--set",
                "run.trace_actions=true",
                "--set",
                f"method.name={method}",
                *self.set_options(method__accumulate=10 if method == "pipedream-2bw" else 1),
                "--output",
                f"runs/{method}",
            )
            data = report_data.RunData(self.path(f"runs/{method}/run.h5"), method)
            lags = report_data.lags(data)
            numpy.testing.assert_allclose(
                [lags[stage].mean() for stage in range(1, 11)],
                data.run.array("simulate/lag_mean").values,
                rtol=1e-12,
            )
            self.assertGreater(lags[1].max(), 0)
        _, _, shares, width = report_data.lag_shares({1: numpy.array([0, 1, 1, 200])})
        self.assertEqual(
            (shares.sum(), shares[0][0], shares[0][-1] + shares[0][-2], width), (1.0, 0.75, 0.25, 4)
        )

    def test_nothing_is_said_without_data(self):
        found = self.sections("priced")
        for name, why in (
            ("training", "no losses in the log"),
            ("fidelity", "probe.per_epoch > 0"),
            ("pace", "run.mode: execute"),
        ):
            self.assertEqual(found[name]["figures"], [])
            self.assertIn(why, found[name]["missing"])
        self.assertEqual(self.sections("mine", "priced")["fidelity"]["without"], ["priced"])

    def test_what_is_left_out_comes_last(self):
        """A heading and a link for each section with figures; then one list, a line a reason. Of a
        sweep alone no section of runs is missed."""
        sections = list(self.sections("mine", "priced").values())
        body = report_page.body_of(sections, "<p>tables</p>")
        self.assertEqual(re.findall('<section id="([^"]*)"', body), ["runs", *SECTIONS, "left-out"])
        self.assertEqual(
            report_page.left_out(sections),
            [
                "Loss and accuracy of priced: no losses in the log, which only a training has",
                "Fidelity of gradients of priced: no probes in the log (probe.per_epoch > 0)",
                (
                    "Predicted and measured of priced: no prediction in the log (run.mode: execute"
                    " with cluster.cost.model: profile)"
                ),
            ],
        )
        for name in SECTIONS[:-1]:
            self.assertNotIn(
                "left out",
                body[
                    body.index(f'<section id="{name}"') : body.index('<section id="left-out"')
                ].lower(),
            )
        sections = list(self.sections("priced").values())
        body = report_page.body_of(sections, "")
        self.assertEqual(
            re.findall('<section id="([^"]*)"', body),
            ["lag", "memory", "timeline", "sweeps", "left-out"],
        )
        self.assertEqual(body.count("<li>"), 3)
        alone = report_figures.sections([], [report_data.SweepData(self.path("sweep/summary.csv"))])
        self.assertEqual(
            ([section["id"] for section in alone], report_page.left_out(alone)), (["sweeps"], [])
        )

    def test_colours_of_cosines(self):
        """From -1 to 1 with 0 in the middle, whatever there is; each shade lies on its side of
        0."""
        for values in [[0.9, 0.99]], [[-0.8, 0.1]], [[numpy.nan, -1.0]]:
            trace = report_figures.heat([1, 2], [1], numpy.array(values), "epoch", "cosine")
            self.assertEqual((trace["zmin"], trace["zmax"]), (-1, 1))
        places = [place for place, _ in report_figures.COSINES]
        self.assertEqual(
            (places, places[0], places[-1], 0.5 in places), (sorted(places), 0, 1, True)
        )
        trace = report_figures.heat([1, 2], [1], numpy.array([[0.25, 3.0]]), "epoch", "norm_ratio")
        self.assertEqual((trace["zmin"], trace["zmax"], trace["z"]), (-2, 2, [[-2.0, 1.585]]))

    def test_axes(self):
        """Stages and epochs have marks at whole numbers; memory is in MB, as the program prints
        it."""
        found = self.sections("mine", "priced")
        for figure in found["training"]["figures"][::2]:
            axis = figure["views"][""]["layout"]["xaxis"]
            self.assertEqual((axis["title"]["text"], axis["dtick"]), ("epochs trained", 1))
            # One of two runs: the legend says which.
            self.assertTrue(figure["views"][""]["layout"]["showlegend"])
        for figure in found["training"]["figures"][1::2]:
            self.assertEqual(
                figure["views"]["0"]["layout"]["xaxis"]["title"]["text"], "virtual time (s)"
            )
        self.assertEqual(
            found["memory"]["figures"][-1]["views"]["0"]["layout"]["yaxis"]["title"]["text"],
            "peak memory (MB)",
        )
        for name, axis in (
            ("fidelity", "yaxis"),
            ("lag", "yaxis"),
            ("memory", "xaxis"),
            ("timeline", "yaxis"),
        ):
            for view in found[name]["figures"][0]["views"].values():
                self.assertEqual(
                    (view["layout"][axis]["title"]["text"], view["layout"][axis]["tickvals"]),
                    ("stage", list(range(1, 11))),
                )

    def test_window_of_a_long_timeline(self):
        parts = report_data.windows(report_data.RunData(self.path("runs/priced/run.h5"), "priced"))
        self.assertEqual(list(parts), ["beginning", "middle", "end"])
        self.assertTrue(all(len(part["stage"]) == report_data.MOST_BARS for part in parts.values()))
        self.assertEqual(parts["end"]["end_ns"].max(), 611 * 10**9)
        section = self.sections("priced")["timeline"]
        self.assertIn(
            f"in a window of {report_data.MOST_BARS} actions", section["figures"][0]["caption"]
        )

    def test_sweep_over_tokens(self):
        """Its first figure is the loss, in the report, in plot_sweep and in plot_accumulation and
        its twin."""
        self.write(
            "grid.yaml",
            "config:\n"
            "  data: {set: grammar, batch: 2, limit: 8, eval_limit: 2}\n"
            "  run: {epochs: 1}\n"
            "  lr: {warmup_epochs: 0}\n"
            "  model: {family: revgpt, depth: 1, width: 4, heads: 1, context: 4}\n"
            "axes: {method.accumulate: [1, 2]}\n"
            "seeds: [1, 2]\n",
        )
        out = self.good("sweep", "grid.yaml", "--output", "tokens")
        self.assertIn("virtual_s", out)  # of an emulation wall time says nothing
        self.assertNotIn("wall_s", out)
        for set_of, folder in ("tokens", "tokens"), ("images", "sweep"):
            data = report_data.SweepData(self.path(folder + "/summary.csv"))
            self.assertEqual(data.figures()[0], "eval_loss" if set_of == "tokens" else "eval_top1")
        self.assertEqual(
            report_data.SweepData(self.path("tokens/summary.csv")).figures()[-1], "wall_s"
        )
        self.assertEqual(
            plot_sweep.read(self.path("tokens/summary.csv"), "method.accumulate", None)[1],
            "eval_loss",
        )
        folder, summary = (
            plot_accumulation.read_runs([self.path("tokens")], 1),
            plot_accumulation.read_summary(self.path("tokens/summary.csv")),
        )
        for points, figure in folder, summary:
            self.assertIs(figure, plot_accumulation.LOSS)
            self.assertEqual(sorted(point.k for point in points), [1, 2])
        for one, other in zip(
            sorted(folder[0], key=lambda point: point.k),
            sorted(summary[0], key=lambda point: point.k),
        ):
            numpy.testing.assert_allclose(
                (one.value, one.half), (other.value, other.half), rtol=1e-4
            )
        if shutil.which("gnuplot") and shutil.which("h5dump"):
            for script, drawn in (
                ("plot_accumulation_gnuplot", "loss on the evaluation set (nats per token)"),
                ("plot_training_gnuplot", "Loss on the evaluation set"),
            ):
                place = "tokens" if "accumulation" in script else "tokens/accumulate=1_seed=1"
                done = subprocess.run(
                    [os.path.join(ROOT, "analysis", script), "a.svg", place],
                    cwd=self.folder,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                # It warns of an axis on which all values are equal.
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(drawn, self.read("a.svg").decode())

    SPARSE = """\
combination,overrides,row,method.name,stages.count,cells,complete,eval_top1_mean,\
eval_top1_interval95
backprop,"method.name=backprop",backprop,backprop,0,3,3,0.5,0.1
petra-2,"stages.count=2",petra-2,petra,2,3,2,0.4,0.1
petra-10,"stages.count=0",petra-10,petra,0,3,0,,
"""

    def test_rows_that_leave_keys_at_their_defaults(self):
        """They have the defaults' values, which the summary tells; over the rows there is one line.
        Cells that are not complete are counted."""
        self.write("sweep/summary.csv", self.SPARSE)
        section = self.sections("mine")["sweeps"]
        (figure,) = section["figures"]
        self.assertEqual(figure["controls"][0]["choices"], ["row", "stages.count", "method.name"])
        self.assertIn("5 of 9 cells complete", figure["caption"])
        (rows,) = figure["views"]["0/0"]["traces"]
        self.assertEqual(
            (rows["y"], figure["views"]["0/0"]["layout"]["xaxis"]["ticktext"]),
            ([50.0, 40.0], ["backprop", "petra-2"]),
        )
        counts = {trace["name"]: trace["x"] for trace in figure["views"]["1/0"]["traces"]}
        self.assertEqual(counts, {"backprop": [0.0], "petra": [2.0]})
        self.write("sweep/summary.csv", self.SPARSE[: self.SPARSE.index("petra-2")])
        self.assertEqual(
            self.sections("mine")["sweeps"]["figures"][0]["controls"][0]["choices"], ["combination"]
        )
        self.write(
            "sweep/summary.csv",
            self.SPARSE[: self.SPARSE.index("backprop")]
            + "petra-10"
            + self.SPARSE.split("petra-10", 1)[1],
        )
        self.assertIn(
            "has no figures yet: 0 of 3 cells complete", self.sections("mine")["sweeps"]["missing"]
        )

    def test_lists_of_one_are_numbers(self):
        """method.extra_delay is a list in a config, and a number in most grids."""
        self.write(
            "sweep/summary.csv",
            "combination,overrides,method.extra_delay,cells,complete,eval_top1_mean,"
            "eval_top1_interval95\n"
            'a,"method.extra_delay=0","[0]",1,1,0.5,\n'
            'b,"method.extra_delay=[16]","[16]",1,1,0.25,\n',
        )
        view = self.sections("mine")["sweeps"]["figures"][0]["views"]["0/0"]
        self.assertEqual([trace["x"] for trace in view["traces"]], [[0.0, 16.0]])
        self.assertEqual(
            [sweeps.sole(value) for value in ("[1, 2]", "[]", "a", "")], ["[1, 2]", "[]", "a", ""]
        )

    def write_timelines(self):
        names = [f"n{count}" for count in (1, 30, 900, 10000)]
        for name in names:
            write_actions(self.path(f"runs/{name}/run.h5"), int(name[1:]))
        return names

    def test_every_choice_has_a_view(self):
        """The page finds a view by the choices of all controls; a figure without controls has one
        view, called ""."""
        for section in self.sections("mine", "priced", *self.write_timelines()).values():
            for figure in section["figures"]:
                keys = [
                    "/".join(map(str, places))
                    for places in itertools.product(
                        *(range(len(one["choices"])) for one in figure["controls"])
                    )
                ]
                self.assertEqual(sorted(keys), sorted(figure["views"]), figure["caption"])

    def test_no_action_vanishes(self):
        """Each has a bar, a part of a column of its kind at its time, or of an update a tick;
        columns are full at most."""
        for name in self.write_timelines():
            for actions in report_data.windows(
                report_data.RunData(self.path(f"runs/{name}/run.h5"), name)
            ).values():
                for two, columns in ((False, 7), (True, 100), (False, 1000)):
                    limits = (int(actions["start_ns"].min()), int(actions["end_ns"].max()))
                    wide, narrow, (ticks, stages) = plot_timeline.details(
                        actions, limits, columns, two
                    )
                    middles = (actions["start_ns"] + actions["end_ns"]) / 2
                    for i in set(range(len(middles))) - set(wide.tolist()):
                        kind, stage, time = actions["kind"][i], actions["stage"][i], middles[i]
                        if kind == "U":
                            self.assertLessEqual(
                                abs(ticks[stages == stage] - time).min(),
                                (limits[1] - limits[0]) / columns,
                            )
                        else:
                            self.assertTrue(
                                any(
                                    row[0] <= time <= row[1] and stage - 0.5 < row[2] < stage + 0.5
                                    for row in narrow[kind]
                                )
                            )
                    for rows in narrow.values():
                        numpy.testing.assert_array_less(
                            rows[:, 2] + rows[:, 3],
                            numpy.round(rows[:, 2]) + plot_timeline.BOTTOM + 1e-6,
                        )

    def test_narrow_actions_are_drawn(self):
        """Forty of each kind, each a thousandth of the time between two, can be counted in the
        figure and in its twin."""
        if not importlib.util.find_spec("matplotlib"):
            self.skipTest("no matplotlib (Debian: python3-matplotlib)")
        from matplotlib import image

        write_actions(self.path("narrow/run.h5"), 80, stages=1, length=1, gap=1)
        with self.edited("narrow/run.h5") as run:
            start = 10**6 * numpy.arange(80)
            (
                run["trace/actions/start_ns"][:],
                run["trace/actions/end_ns"][:],
                run["trace/actions/kind"][:],
            ) = start, start + 1000, numpy.arange(80) % 2
        lines = [
            [
                sys.executable,
                os.path.join(ROOT, "analysis/plot_timeline.py"),
                "narrow",
                "-o",
                "python.png",
            ]
        ]
        if shutil.which("gnuplot") and shutil.which("h5dump"):
            lines.append(
                [os.path.join(ROOT, "analysis/plot_timeline_gnuplot"), "gnuplot.png", "narrow"]
            )
        for line in lines:
            done = subprocess.run(
                line, cwd=self.folder, capture_output=True, text=True, check=False
            )
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            drawn = image.imread(self.path(line[1] if line[1].endswith("png") else line[-1]))
            for kind in "FB":
                colour = plot_timeline.KINDS[kind][1]
                self.assertGreaterEqual(has(drawn, colour), 40, line)

    def test_refusals(self):
        self.bad(2, "petra report needs --output FILE.html", "report", "runs/mine")
        self.bad(
            2,
            "petra report: no file or folder was given; expected RUN...",
            "report",
            "-o",
            "a.html",
        )
        self.bad(2, "petra list takes no -o", "list", "-o", "a.html")
        os.environ["PYTHON"] = "/nothing/python"
        try:
            self.bad(1, "/nothing/python: cannot be started", "report", "runs/mine", "-o", "a.html")
        finally:
            os.environ["PYTHON"] = sys.executable
        self.write(
            "missing/plotly.py",
            'raise ModuleNotFoundError("No module named \'plotly\'", name="plotly")',
        )
        code, out, error = self.run_petra(
            "report",
            "runs/mine",
            "-o",
            "a.html",
            env={**os.environ, "PYTHONPATH": self.path("missing")},
        )
        self.assertEqual((code, out, len(error.splitlines())), (1, "", 1), error)
        self.assertIn("the package python3-plotly", error)
        if HAS_PLOTLY:
            for status, words, *arguments in (
                (1, "nothing: no such file", "nothing", "-o", "a.html"),
                (2, "ends in .html", "runs/mine", "-o", "a.pdf"),
                (1, "runs: has neither run.h5 nor summary.csv", "runs", "-o", "a.html"),
            ):
                code, _, error = self.run_petra("report", *arguments)
                self.assertEqual((code, len(error.splitlines())), (status, 1), error)
                self.assertIn(words, error)
        self.assertFalse(os.path.exists(self.path("a.html")))

    def write_page(self):
        return self.good_json("report", "runs/mine", "runs/priced", "sweep", "-o", "report.html")

    def test_page(self):
        if not HAS_PLOTLY:
            self.skipTest("no plotly (Debian: python3-plotly)")
        found = self.write_page()
        self.assertEqual(
            (found["runs"], found["sweeps"], found["left_out"]), (["mine", "priced"], ["sweep"], {})
        )
        page = self.read("report.html").decode()
        self.assertEqual(found["bytes"], len(page.encode()))
        self.assertLess(found["bytes"], 6_000_000)
        outside = re.sub(r'<script id="library".*?</script>', "", page, flags=re.DOTALL)
        self.assertEqual(re.findall(r"https?:|(?:src|href)=[\"'](?!#|data:)", outside), [])
        self.assertNotIn("<b>", outside)
        self.assertIn("<caption>Keys in which the configs differ</caption>", page)
        from plotly import graph_objects

        data = json.loads(
            re.search(r'<script id="data"[^>]*>(.*?)</script>', page, re.DOTALL).group(1)
        )
        views = [
            view
            for section in data
            for figure in section["figures"]
            for view in figure["views"].values()
        ]
        for view in views:
            # Refuses what Plotly does not know.
            graph_objects.Figure(data=view["traces"], layout=view["layout"])
            for name in "xaxis", "yaxis":
                self.assertTrue(view["layout"][name]["title"]["text"])
        self.assertGreater(len(views), 20)

    def test_in_a_browser(self):
        if not HAS_PLOTLY or not CHROMIUM:
            self.skipTest("no plotly or no Chromium (Debian: python3-plotly chromium)")
        runs = self.write_timelines()
        os.rename(self.path("runs/n1"), self.path("runs/<b>&lt;$x_{1$%{x}"))
        runs[0] = "<b>&lt;$x_{1$%{x}"
        shutil.copytree(self.path("runs/priced"), self.path("runs/p<i>&amp;"))
        runs.append("p<i>&amp;")
        self.good_json(
            "report",
            "runs/mine",
            "runs/priced",
            "sweep",
            *(f"runs/{name}" for name in runs),
            "-o",
            "report.html",
        )
        views = [
            view
            for figure in self.sections("mine", "priced", *runs)["timeline"]["figures"]
            for view in figure["views"].values()
        ]
        with open(os.path.join(ROOT, "tests/cli/walk_report.js"), encoding="utf-8") as file:
            walk = file.read()
        self.write(
            "walked.html",
            self.read("report.html").decode().replace("</body>", f"<script>{walk}</script></body>"),
        )
        self.write(
            "narrow.html",
            '<iframe src="walked.html" style="width: 400px; height: 12000px; border: 0"></iframe>',
        )
        for page, options in (
            ("walked.html", []),
            ("walked.html", ["--blink-settings=preferredColorScheme=0"]),
            ("narrow.html", []),
        ):
            done = subprocess.run(
                [
                    CHROMIUM,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--virtual-time-budget=60000",
                    "--enable-logging=stderr",
                    "--allow-file-access-from-files",
                    "--window-size=1200,12000",
                    f"--user-data-dir={self.path('chromium')}",
                    *options,
                    f"--screenshot={self.path('page.png')}",
                    "file://" + self.path(page),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            told = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
            self.assertEqual(len(told), 1, told)
            self.assertIn("walked: ", told[0])
            result = json.loads(re.search(r"walked: (\{.*\})", told[0]).group(1))
            self.assertEqual(result["empty"], 0, result)
            self.assertGreater(result["views"], 20)
            self.assertLessEqual(
                result["page"], result["window"], "the page is wider than its window"
            )
            self.assertEqual(len(result["timelines"]), len(views))
            # As it stands, though Plotly knows tags and references.
            self.assertIn("p<i>&amp;, mean", result["legends"])
            for view, found in zip(views, result["timelines"]):
                self.compare_details(view["actions"], found)

    def compare_details(self, actions, found):
        """The page draws what `details` says of as many columns, but for what rounding moves to the
        next column; of the zoomed range more."""
        columns = {
            "kind": numpy.array(list(actions["kind"])),
            "stage": numpy.array(actions["stage"]),
            **{name + "_ns": numpy.array(actions[name]) for name in ("start", "end")},
        }
        for shown in found.values():
            wide, narrow, (ticks, _) = plot_timeline.details(
                columns,
                shown["range"],
                shown["columns"],
                actions["lanes"][0] != actions["lanes"][1],
            )
            expected = {
                "wide": len(wide),
                "narrow": sum(map(len, narrow.values())),
                "ticks": len(ticks),
            }
            self.assertGreater(expected["wide"] + expected["narrow"], 0)
            for part, count in expected.items():
                self.assertLessEqual(
                    abs(shown["parts"].get(part, 0) - count),
                    0.02 * count + 1,
                    (part, shown, expected),
                )
        self.assertLess(
            found["zoomed"]["range"][1] - found["zoomed"]["range"][0],
            0.3 * (found["all"]["range"][1] - found["all"]["range"][0]),
        )
        self.assertEqual(found["reset"]["range"], found["all"]["range"])


# Of runs: each is special to something that draws or prints; the last two are no text, or two
# lines.
NAMES = [
    "_x",
    "$x_{1$",
    'a<b>&"c',
    "%s",
    "{}",
    "it's a_b^c~d@e\\f|g",
    "%{x}",
    "\u00e9\u65e5",
    os.fsdecode(b"\xff"),
    "n\new",
]
SHOWN_NAMES = [*NAMES[:-2], r"\xff", r"n\x0aew"]


class Names(ProgramTest):
    """A run or a sweep is called by any name that a folder can have, in every figure, page, table
    and message."""

    def setUp(self):
        super().setUp()
        # Two stages: a timeline has few actions then, and is soon drawn.
        self.good(
            "train",
            "small.yaml",
            "--quiet",
            "--set",
            "run.trace_actions=true",
            *self.set_options(
                stages__partition="balanced", stages__count=2, probe__per_epoch=2, run__epochs=3
            ),
            "--output",
            "runs/_x",
        )
        for name in NAMES[1:]:
            shutil.copytree(self.path("runs/_x"), self.path("runs/" + name))
        self.places = ["runs/" + name for name in NAMES]

    def run_one(self, *line):
        """What it prints. Nothing ends with a traceback, and nothing is said but what is
        expected."""
        done = subprocess.run(
            [
                line[0] if os.path.isabs(line[0]) else os.path.join(ROOT, "analysis", line[0]),
                *line[1:],
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": self.path("stub")},
            capture_output=True,
            check=False,
        )
        return self.printed(
            line, done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
        )

    def run_here(self, script, *arguments):
        """The same, but the script runs in this process, which has already loaded what it needs."""
        streams = [
            io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="petra", write_through=True)
            for _ in range(2)
        ]
        before, argv = os.getcwd(), sys.argv
        os.chdir(self.folder)
        sys.argv = [script, *arguments]
        try:
            with (
                contextlib.redirect_stdout(streams[0]),
                contextlib.redirect_stderr(streams[1]),
                warnings.catch_warnings(),
            ):
                warnings.showwarning = lambda message, *_: entry.warn(message)
                importlib.import_module(
                    "petrapipe.figures." + script.removeprefix("plot_").removesuffix(".py")
                ).main()
        finally:
            os.chdir(before)
            sys.argv = argv
            sys.modules["matplotlib.pyplot"].close("all")
        return self.printed(
            (script, *arguments),
            0,
            *(stream.buffer.getvalue().decode("utf-8") for stream in streams),
        )

    def printed(self, line, status, out, error):
        told = [line for line in error.splitlines() if "missing from current font" not in line]
        self.assertEqual((status, told), (0, []), line)
        return out

    def test_matplotlib(self):
        if not importlib.util.find_spec("matplotlib"):
            self.skipTest("no matplotlib (Debian: python3-matplotlib)")
        from petrapipe.figures import training

        paths = [self.path(place + "/run.h5") for place in self.places]
        figure = training.draw(
            [training.Training(path, name) for path, name in zip(paths, runs.run_names(paths))]
        )
        labels = [
            text.get_text().replace("\u200b", "").replace(r"\$", "$")
            for text in figure.legends[0].get_texts()
        ]
        self.assertEqual(labels, [name + " (petra)" for name in SHOWN_NAMES])
        table = self.run_one(
            "plot_training.py", *self.places, "--table", "-o", os.fsdecode(b"\xff.png")
        )
        self.assertEqual([line.split("  ")[0] for line in table.splitlines()[1:]], SHOWN_NAMES)
        # The last column ends at one place.
        self.assertEqual(len({texts.columns_of(line) for line in table.splitlines()}), 1)
        self.run_one("plot_timeline.py", self.places[-1], "-o", "timeline.png")
        for place in self.places:
            self.run_here("plot_timeline.py", place, "-o", "timeline.png")
        for place, run in (self.places[-2], self.run_here), (self.places[-1], self.run_one):
            run("plot_training.py", place, "-o", "alone.png")
            run("plot_probe.py", place, "-o", "5.png", "--figure-6", "6.png", "--table")
            run("plot_accumulation.py", place + "/run.h5", "-o", "k.png", "--table")
        self.run_here("plot_training.py", "runs/_x", "-o", "alone.png")

    def test_gnuplot(self):
        if not shutil.which("gnuplot") or not shutil.which("h5dump"):
            self.skipTest("no gnuplot or no h5dump (Debian: gnuplot-nox hdf5-tools)")
        self.run_one("plot_training_gnuplot", "it's a.svg", *self.places)
        drawn = re.findall(
            "<tspan[^>]*>([^<]*)</tspan>|<text>(.*?)</text>", self.read("it's a.svg").decode()
        )
        drawn = [html.unescape("".join(found)) for found in drawn]
        # A character that no font here has is shown by its bytes, for gnuplot would cover the
        # figure with it.
        fonts = (
            shutil.which("fc-list")
            and subprocess.run(
                ["fc-list", ":charset=65e5", "family"], capture_output=True, check=True
            ).stdout
        )
        names = [
            name if fonts or fonts is None else name.replace("\u65e5", r"\xe6\x97\xa5")
            for name in SHOWN_NAMES
        ]
        for name in names:
            self.assertIn(name, drawn)
        for place, name in zip(self.places, names):
            self.run_one("plot_timeline_gnuplot", "timeline.svg", place)
            self.assertIn(
                name + ": microbatches", html.unescape(self.read("timeline.svg").decode())
            )
        for place in self.places[4:6] + self.places[-2:]:
            self.run_one("plot_probe_gnuplot", "5.svg", "6.svg", place)
        os.rename(self.path("runs/_x"), self.path("-x"))
        self.run_one("plot_timeline_gnuplot", "timeline.svg", "-x")
        shutil.copytree(self.path("runs"), self.path("-s"))
        done = subprocess.run(
            [os.path.join(ROOT, "analysis/plot_accumulation_gnuplot"), "k.svg", "-s"],
            cwd=self.folder,
            capture_output=True,
            check=False,
        )
        self.assertEqual(
            (done.returncode, b"expected each once" in done.stderr), (2, True), done.stderr
        )

    def test_report(self):
        if not HAS_PLOTLY:
            self.skipTest("no plotly (Debian: python3-plotly)")
        sweep = os.fsdecode(b"\xfe<b>")
        self.write(sweep + "/summary.csv", SUMMARY.replace("a,", '"_$<b>",', 1))
        page = os.fsdecode(b"\xff.html")
        found = json.loads(self.run_one(PETRA, "report", *self.places, sweep, "-o", page, "--json"))
        self.assertEqual(
            (found["report"], found["runs"], found["sweeps"]),
            (r"\xff.html", SHOWN_NAMES, [r"\xfe<b>"]),
        )
        text = self.read(page).decode("utf-8")
        for name in SHOWN_NAMES:
            self.assertIn(f'<th scope="row" class="short">{html.escape(name)}</th>', text)
        data = json.loads(
            re.search(r'<script id="data"[^>]*>(.*?)</script>', text, re.DOTALL).group(1)
        )
        traces = [trace["name"] for trace in data[0]["figures"][2]["views"][""]["traces"]]
        self.assertEqual(traces, [html.escape(name, False) + " (petra)" for name in SHOWN_NAMES])
        self.assertIn(
            r"written: \xff.html", self.run_one(PETRA, "report", *self.places, sweep, "-o", page)
        )

    def test_other_scripts(self):
        self.write("stub/torch.py", "raise ImportError('not this one')")
        self.write(
            "stub/tensorboardX.py",
            "class SummaryWriter:\n"
            "    def __init__(self, folder): pass\n"
            "    def add_scalar(self, *a, **k): pass\n"
            "    def close(self): pass\n",
        )
        out = self.run_one("to_tensorboard.py", *self.places, "-o", os.fsdecode(b"\xfe"))
        self.assertEqual(
            [line.split(": ")[0] for line in out.splitlines()],
            [r"\xfe/" + name for name in SHOWN_NAMES],
        )
        self.assertTrue(
            self.run_one(
                "weights_pytorch.py", self.places[-2] + "/weights.h5", os.fsdecode(b"\xff.npz")
            ).startswith(r"\xff.npz: ")
        )
        self.write(os.fsdecode(b"\xfe/summary.csv"), SUMMARY)
        out = self.run_one("plot_sweep.py", os.fsdecode(b"\xfe"), "--x", "method.accumulate")
        self.assertIn("<b> | 1 | 0.75 | -", out)
        for line in (
            ["plot_sweep.py", os.fsdecode(b"\xfd"), "--x", "a"],
            ["plot_accumulation.py", os.fsdecode(b"\xfd")],
            ["plot_training.py", os.fsdecode(b"\xfd")],
        ):
            done = subprocess.run(
                [os.path.join(ROOT, "analysis", line[0]), *line[1:]],
                cwd=self.folder,
                capture_output=True,
                check=False,
            )
            self.assertEqual(
                (done.returncode, done.stderr.count(b"\n"), rb"\xfd" in done.stderr),
                (1, 1, True),
                done.stderr,
            )

    def test_program(self):
        """Columns of `petra list` begin at one place, which is counted in columns of a terminal;
        JSON has every name in valid UTF-8."""
        lines = self.run_one(PETRA, "list", "runs").splitlines()
        self.assertEqual(len(lines), 1 + len(NAMES))
        places = {texts.columns_of(line[: line.index("  petra, k = 1")]) for line in lines[1:]}
        widest = max(texts.columns_of(line.split("  petra, ")[0].rstrip()) for line in lines[1:])
        self.assertEqual(places, {widest})
        self.assertEqual(lines[0].index("method"), widest + 2)
        self.assertEqual(
            {line.split("  petra, ")[0].rstrip() for line in lines[1:]},
            {"runs/" + name for name in SHOWN_NAMES},
        )
        runs = {
            run["run"] for run in json.loads(self.run_one(PETRA, "list", "runs", "--json"))["runs"]
        }
        # JSON has an escape for a control of its own.
        self.assertEqual(runs, {"runs/" + name for name in [*NAMES[:-2], r"\xff", "n\new"]})
        for place, name in zip(self.places[-2:], SHOWN_NAMES[-2:]):
            out = self.run_one(PETRA, "compare", place, "runs/_x")
            self.assertIn(f"A  runs/{name}: ", out)
            self.assertIn("virtual time s", out)
            json.loads(self.run_one(PETRA, "compare", place, "runs/_x", "--json"))
            self.run_one(PETRA, "export", place, "--csv", "csv-" + os.path.basename(place))
            self.run_one(PETRA, "inspect", place)


class Tensorboard(ProgramTest):
    def test_scalars(self):
        self.good(
            "train",
            "small.yaml",
            "--quiet",
            *self.set_options(data__limit=192, probe__per_epoch=1),
            "--output",
            "mine",
        )
        self.write("stub/torch.py", "raise ImportError('not this one')")
        self.write(
            "stub/tensorboardX.py",
            """
class SummaryWriter:
    def __init__(self, folder): self.rows, self.folder = {}, folder
    def add_scalar(self, tag, value, step, walltime):
        self.rows.setdefault(tag, []).append((step, value, walltime))
    def close(self):
        import json, os
        os.makedirs(self.folder)
        json.dump(self.rows, open(self.folder + "/rows.json", "w"))
""",
        )
        script = os.path.join(ROOT, "analysis/to_tensorboard.py")
        environment = {**os.environ, "PYTHONPATH": self.path("stub")}
        done = subprocess.run(
            [sys.executable, script, "mine", "-o", "events"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(self.read("events/mine/rows.json"))
        with h5py.File(self.path("mine/run.h5"), "r") as run:
            self.assertEqual(
                [value for _, value, _ in rows["train/loss"]], run["train/loss"][:].tolist()
            )
            self.assertEqual(
                [(step, value) for step, value, _ in rows["epoch/eval_top1"]],
                list(enumerate(run["epoch/eval_top1"], 1)),
            )
            self.assertEqual(
                [value for _, value, _ in rows["probe/cosine/method_delayed/stage_02"]],
                run["probe/cosine/method_delayed"][:, 1].tolist(),
            )
            walls = [wall for _, _, wall in rows["train/loss"]]
            self.assertAlmostEqual(
                walls[-1] - walls[0], run["train/wall_s"][-1] - run["train/wall_s"][0], delta=1e-3
            )
        self.write("stub/tensorboardX.py", "raise ImportError('nor this')")
        done = subprocess.run(
            [sys.executable, script, "mine", "-o", "more"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1), done.stderr)
        self.assertIn("has no SummaryWriter", done.stderr)


if __name__ == "__main__":
    main()
