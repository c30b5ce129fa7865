# SPDX-License-Identifier: Apache-2.0
"""petra simulate --fit: known numbers are found again from the times that they give; wrong
input."""

from program import ProgramTest, main

SETTINGS = {
    "cluster.stages": 4,
    "run.max_microbatches": 64,
    "run.drain": "true",
    "cluster.cost.model": "constant",
    "cluster.cost.forward_s": 0.03,
    "cluster.cost.backward_s": 0.05,
    "cluster.cost.reconstruct_s": 0.02,
    "cluster.link.latency_s": 0.001,
}
VARY = "cluster.cost.forward_s+cluster.cost.backward_s,cluster.host.action_s"


class Fit(ProgramTest):
    def options(self, **more):
        settings = {**SETTINGS, **{key.replace("__", "."): value for key, value in more.items()}}
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def measured(self, **more):
        return self.good_json("simulate", "-", *self.options(**more))["time_per_microbatch_s"]

    def test_finds_what_was_there(self):
        truth = {
            "cluster__cost__forward_s": 0.045,
            "cluster__cost__backward_s": 0.075,
            "cluster__host__action_s": 0.02,
        }
        rows = ["method.name,cluster.host.share,seconds"]
        for method, share in ("petra", "cluster"), ("backprop", "cluster"), ("dsp", "device"):
            seconds = self.measured(method__name=method, cluster__host__share=share, **truth)
            rows.append(f" {method} , {share},{seconds!r}")
        self.write("times.csv", "# measured\n\n" + "\n".join(rows) + "\n")
        found = self.good_json(
            "simulate",
            "-",
            *self.options(cluster__host__action_s=0.01),
            "--fit",
            self.path("times.csv"),
            "--vary",
            VARY,
        )
        values = {
            key: value for factor in found["factors"] for key, value in factor["values"].items()
        }
        for key, value in truth.items():
            self.assertAlmostEqual(values[key.replace("__", ".")] / value, 1, places=3)
        self.assertLess(found["worst_log"], 1e-3)
        self.assertEqual(len(found["measurements"]), 3)
        self.assertEqual([factor["undetermined"] for factor in found["factors"]], [False, False])
        # The same file as Windows programs write it.
        quoted = [",".join(f'"{cell.strip()}"' for cell in row.split(",")) for row in rows]
        self.write("windows.csv", "\ufeff" + "\r\n".join(quoted) + "\r\n")
        again = self.good_json(
            "simulate",
            "-",
            *self.options(cluster__host__action_s=0.01),
            "--fit",
            self.path("windows.csv"),
            "--vary",
            VARY,
        )
        self.assertEqual(again, found)
        # A value with commas.
        self.write("lists.csv", 'cluster.speeds,seconds\n"[1, 1, 1, 1]",0.4\n')
        self.assertEqual(
            self.good_json(
                "simulate",
                "-",
                *self.options(),
                "--fit",
                self.path("lists.csv"),
                "--vary",
                "cluster.cost.backward_s",
            )["measurements"][0]["settings"],
            ["cluster.speeds=[1, 1, 1, 1]"],
        )
        # A key that these times do not depend on, and more factors than times.
        self.write("one.csv", "method.name,seconds\nbackprop,0.4\n")
        out = self.good(
            "simulate",
            "-",
            *self.options(),
            "--fit",
            self.path("one.csv"),
            "--vary",
            "cluster.cost.backward_s,cluster.cost.reconstruct_s",
        )
        self.assertIn("the measurements do not determine it", out)
        self.assertIn("no more measurements than factors", out)

    def test_wrong_input(self):
        def refused(text, words, vary=VARY, code=2):
            self.write("times.csv", text)
            self.bad(
                code,
                words,
                "simulate",
                "-",
                *self.options(cluster__host__action_s=1),
                "--fit",
                self.path("times.csv"),
                "--vary",
                vary,
            )

        refused("method.name\npetra\n", [":1:", "not the header", "expected"])
        refused("method.name,seconds\npetra,1,2\n", [":2:", "3 values; expected 2"])
        refused(
            "method.name,seconds\n\npetra,-1\n", [":3:", "'-1' seconds; expected a number above 0"]
        )
        refused("method.name,seconds\n", ["no measurement; expected"])
        refused("method.nam,seconds\npetra,1\n", ["times.csv:2: method.nam=petra: ", "expected"])
        refused(
            "method.name,seconds\npetra,1\n\nnone,1\n",
            ["times.csv:4: method.name=none: no method", "expected"],
        )
        refused(
            "method.name,cluster.host.action_s,seconds\npetra,1,2\n",
            [":1:", "cluster.host.action_s, which --vary also names; expected"],
        )
        refused(
            "method.name,method.name,seconds\npetra,dsp,2\n", [":1:", "method.name twice; expected"]
        )
        good = "method.name,seconds\npetra,1\n"
        refused(good, "method.name is a string; expected a real number", "method.name")
        refused(good, "cluster.host.seconds: no such key; expected", "cluster.host.seconds")
        refused(good, "0 with --vary, which multiplies it; expected", "cluster.cost.update_s")
        refused(good, "no key; expected keys", ",")
        refused(
            good,
            "cluster.host.action_s twice; expected",
            "cluster.host.action_s,cluster.cost.forward_s+cluster.host.action_s",
        )
        self.bad(2, "--fit without --vary; expected both", "simulate", "-", "--fit", "x")
        self.bad(
            2,
            "an option of a single simulation",
            "simulate",
            "-",
            "--fit",
            "x",
            "--vary",
            VARY,
            "--critical-path",
        )


main()
