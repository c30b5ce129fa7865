# SPDX-License-Identifier: Apache-2.0
"""petra plan: an enumeration by petra simulate finds nothing that is better than its rows; every
row runs and gives the printed figures; limits and bad options."""

import itertools
import json
import os
import shlex
import unittest

from program import SANITIZED, ProgramTest, main

REVGPT = """\
data: {set: grammar, batch: 2}
model: {family: revgpt, depth: 2, width: 32, heads: 2, context: 16}
stages: {partition: balanced, count: 2}
method: {name: 1f1b, accumulate: 2}
cluster: {cost: {model: roofline, device: v100}, link: {preset: pcie4-x16}}
"""
GPT = """\
data: {set: grammar, batch: 3}
model: {family: gpt, depth: 3, width: 64, heads: 2, context: 32}
stages: {partition: balanced, count: 3}
method: {name: 1f1b, accumulate: 4}
cluster:
  cost: {model: kernels, device: v100, launch_s: 1.0e-6}
  link: {latency_s: 1.0e-5, bandwidth_Bps: 1.0e+9}
  speeds: [1, 0.5, 2]
"""
REVNET = """\
run: {max_microbatches: 24}
data: {set: shapes, batch: 4, limit: 64, augment: []}
model: {width: 4}
stages: {partition: balanced, count: 6}
method: {name: zb-h1, accumulate: 6}
cluster: {cost: {model: roofline, device: cpu-core}, link: {latency_s: 1.0e-4}, engines: 2}
"""
LARGE = os.environ.get("PETRA_TEST_PLAN")
# Stages per device of methods in a loop or a V; all others have one.
LOOPS, VS = (
    ["interleaved", "looped-bfs", "interleaved-zb"],
    ["zb-v", "v-half", "v-min", "dualpipe-v"],
)


def cuts(blocks, stages):
    for places in itertools.combinations(range(1, blocks), stages - 1):
        yield [end - begin for begin, end in zip((0, *places), (*places, blocks))]


SLOW = unittest.skipIf(
    SANITIZED, "sanitizers: thousands of simulations; the other tests search as well"
)


class Plan(ProgramTest):
    def simulated(self, config, settings):
        """(seconds per sample, memory of the fullest device, largest lag); None: it cannot run."""
        options = [text for setting in settings for text in ("--set", setting)]
        code, out, error = self.run_petra("simulate", config, *options, "--json", "--quiet")
        if code == 2:
            self.assertEqual(len(error.splitlines()), 1, error)
            return None
        self.assertEqual(code, 0, error)
        found = json.loads(out)
        if found["time_per_microbatch_s"] is None:
            return None
        batch = [
            int(setting.split("=")[1]) for setting in settings if setting.startswith("data.batch=")
        ]
        return (
            found["time_per_microbatch_s"] / batch[0],
            max(device["peak_bytes"] for device in found["devices"]),
            max(stage["lag_max"] for stage in found["stages"]),
        )

    def rows(self, config, *options):
        found = self.good_json("plan", config, *options, "--quiet")
        points = [
            (row["seconds_per_sample"], row["peak_bytes"], row["lag_max"])
            for row in found["points"]
        ]
        self.assertTrue(points)
        self.assertEqual(points, sorted(points))
        for a, b in itertools.permutations(points, 2):
            self.assertFalse(all(x <= y for x, y in zip(a, b)), (a, b))
        return found, points

    def check_runs(self, config, batch, *options):
        """Every row runs with its settings, and has the figures that it prints."""
        found, points = self.rows(config, *options)
        for row, point in zip(found["points"], points):
            settings = row["set"]
            if not any(setting.startswith("data.batch=") for setting in settings):
                settings = settings + [f"data.batch={batch}"]
            self.assertEqual(self.simulated(config, settings), point, row)
            self.assertEqual(len(row["blocks"]), row["stages"])
        return found, points

    def enumerate(self, config, text, devices, blocks, samples, methods, keeps):
        """Nothing that petra simulate can run is better than the rows of petra plan in both time
        and memory."""
        self.write(config, text)
        _, points = self.check_runs(config, samples[0])
        tried = ran = 0
        for name, keep, k in itertools.product(
            methods, keeps, [k for k in range(1, samples[1] + 1) if samples[1] % k == 0]
        ):
            chunks = [2] if name in VS else [1, 2, 3, 4] if name in LOOPS else [1]
            for chunk in chunks:
                for cut in cuts(blocks, chunk * devices):
                    settings = [
                        f"method.name={name}",
                        f"method.keep={keep}",
                        f"method.accumulate={k}",
                        f"data.batch={samples[1] // k}",
                        "stages.partition=list",
                        f"stages.blocks={cut}",
                    ]
                    settings += [f"method.chunks={chunk}"] if name in LOOPS else []
                    settings += (
                        [f"method.credit={2 * devices - 1}"] if name == "petra-arrival" else []
                    )
                    result = self.simulated(config, settings)
                    tried += 1
                    if result is None:
                        continue
                    ran += 1
                    self.assertTrue(
                        any(all(x <= y for x, y in zip(point, result)) for point in points),
                        (settings, result),
                    )
        self.assertGreater(ran, tried / 4)
        return ran

    def enumerate_methods(self, text, blocks):
        methods = [method["name"] for method in self.good_json("methods")["methods"]]
        # Another keep would be another gradient.
        fixed = [
            "dsp",
            "fr",
            "petra",
            "petra-arrival",
            "approximate-input",
        ]
        self.enumerate(
            "c.yaml",
            text,
            2,
            blocks,
            (2, 4),
            [name for name in methods if name not in fixed + ["dgl"]],
            ["graph", "input", "nothing"],
        )
        self.enumerate("c.yaml", text, 2, blocks, (2, 4), fixed, ["preset"])

    @SLOW
    def test_revgpt(self):
        self.enumerate_methods(REVGPT.replace("depth: 2", "depth: 1"), 4)

    @unittest.skipUnless(LARGE, "PETRA_TEST_PLAN is not set")
    def test_deeper_revgpt(self):
        self.enumerate_methods(REVGPT, 6)

    @unittest.skipUnless(LARGE, "PETRA_TEST_PLAN is not set")
    def test_gpt(self):
        methods = ["1f1b", "zb-h1", "pipedream", "delayed", "interleaved"]
        self.enumerate("c.yaml", GPT, 3, 8, (3, 12), methods, ["graph", "input"])

    @unittest.skipUnless(LARGE, "PETRA_TEST_PLAN is not set")
    def test_revnet(self):
        self.enumerate("c.yaml", REVNET, 6, 10, (4, 24), ["1f1b", "petra"], ["preset"])

    def test_limits(self):
        """A limit leaves the rows that are within it."""
        self.write("c.yaml", REVGPT.replace("depth: 2", "depth: 1"))
        found, points = self.rows("c.yaml")
        memory = sorted(point[1] for point in points)[len(points) // 2]
        self.assertEqual(
            self.rows("c.yaml", "--memory", str(memory))[1],
            [point for point in points if point[1] <= memory],
        )
        self.assertEqual(
            self.rows("c.yaml", "--lag-at-most", "0")[1],
            [point for point in points if point[2] == 0],
        )
        self.assertEqual(
            self.rows("c.yaml", "--lag-at-most", "1")[1],
            [point for point in points if point[2] <= 1],
        )
        self.assertTrue(all(row["exact"] for row in self.rows("c.yaml", "--exact")[0]["points"]))
        least = min(points, key=lambda point: point[1])
        row = found["points"][points.index(least)]
        error = self.bad(
            2,
            [f"the least memory is {least[1]} bytes, of {row['method']} on {row['stages']} stages"],
            "plan",
            "c.yaml",
            "--memory",
            str(least[1] - 1),
        )
        self.assertTrue(error.startswith("petra: --memory "), error)
        self.rows("c.yaml", "--memory", str(least[1]))

    def test_units(self):
        self.write("c.yaml", REVGPT.replace("depth: 2", "depth: 1"))
        for text, size in (
            ("80GB", 80e9),
            ("0.5GiB", 2**29),
            ("512MB", 512e6),
            ("600000KiB", 600000 * 1024),
            ("1e9", 1e9),
            ("70000000B", 7e7),
        ):
            self.assertEqual(
                self.good_json("plan", "c.yaml", "--quiet", "--memory", text)["memory_bytes"], size
            )

    def test_devices(self):
        """Another number of devices than the config's; without a model stages are scaled, so that
        the work stays the same."""
        self.write("c.yaml", REVGPT)
        found, _ = self.rows("c.yaml", "--devices", "3")
        self.assertEqual(found["devices"], 3)
        self.assertTrue(all(row["stages"] % 3 == 0 for row in found["points"]))
        self.write("e.yaml", "method: {name: 1f1b, accumulate: 12}\ncluster: {stages: 4}\n")
        rows = self.good_json("plan", "e.yaml", "--devices", "6", "--quiet")["points"]
        for row in rows:
            options = [text for setting in row["set"] for text in ("--set", setting)]
            simulated = self.good_json("simulate", "e.yaml", *options)
            self.assertEqual(simulated["time_per_microbatch_s"], row["time_per_microbatch_s"])
            self.assertEqual(len(simulated["devices"]), 6)
            self.assertIsNone(row["peak_bytes"])
        self.assertAlmostEqual(min(row["time_per_microbatch_s"] for row in rows), 2, 2)

    def test_a_row_trains(self):
        self.write("c.yaml", REVGPT.replace("data: {set", "data: {limit: 16, set"))
        row = min(
            self.good_json("plan", "c.yaml", "--exact", "--quiet")["points"],
            key=lambda row: row["peak_bytes"],
        )
        options = [text for setting in row["set"] for text in ("--set", setting)]
        self.good(
            "train",
            "c.yaml",
            "--set",
            "run.epochs=1",
            "--set",
            "run.eval_every=0",
            "--set",
            "device.threads=1",
            *options,
        )

    def test_text(self):
        self.write("c.yaml", REVGPT.replace("depth: 2", "depth: 1"))
        lines = self.good("plan", "c.yaml", "--quiet", "--all").splitlines()
        rows = self.good_json("plan", "c.yaml", "--quiet")["points"]
        table = lines[next(i for i, line in enumerate(lines) if line.startswith("row ")) + 1 :][
            : len(rows)
        ]
        self.assertEqual([line.split()[1] for line in table], [row["method"] for row in rows])
        for row, line in zip(rows, lines[-len(rows) :]):
            self.assertEqual(
                shlex.split(line)[1:],
                [text for setting in row["set"] for text in ("--set", setting)],
            )

    def test_rows_of_a_different_trade(self):
        """A row is left out if a printed one of its method is faster, with no larger lag and at
        most a tenth more memory."""
        self.write("c.yaml", REVGPT.replace("depth: 2", "depth: 1"))
        rows, shown = self.good_json("plan", "c.yaml", "--quiet")["points"], []
        for number, row in enumerate(rows, 1):
            if all(
                rows[i - 1]["method"] != row["method"]
                or rows[i - 1]["lag_max"] > row["lag_max"]
                or rows[i - 1]["peak_bytes"] > 1.1 * row["peak_bytes"]
                for i in shown
            ):
                shown.append(number)
        text = self.good("plan", "c.yaml", "--quiet")
        lines = text.splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith("row ")) + 1
        self.assertEqual(
            [int(line.split()[0]) for line in lines[begin : begin + len(shown)]], shown
        )
        self.assertEqual([int(line.split()[0]) for line in lines[-len(shown) :]], shown)
        self.assertLess(len(shown), len(rows))
        self.assertRegex(text, f"\n{len(rows) - len(shown)} more rows? \\(--all\\): ")
        self.assertIn("Time, memory and lag are computed; the loss is not.", text)

    def test_without_reversible_blocks(self):
        """Methods that invert keep the inputs of blocks that cannot be inverted."""
        for family, kept in ("gpt", "input"), ("revgpt", "nothing"):
            self.write("c.yaml", REVGPT.replace("depth: 2", "depth: 1").replace("revgpt", family))
            methods = {
                row["name"]: row["keep"]
                for row in self.good_json("methods", "c.yaml", "--quiet")["methods"]
            }
            self.assertEqual(
                [methods[name] for name in ("petra", "reversible", "1f1b", "checkpoint")],
                [kept, kept, "graph", "input"],
            )
            keeps = {row["keep"] for row in self.good_json("plan", "c.yaml", "--quiet")["points"]}
            self.assertEqual("nothing" in keeps, family == "revgpt")

    def test_bad(self):
        self.write("c.yaml", REVGPT)
        for size in "80XB", "-3", "", "GB", "0", "1e30", "nan", "0x10", "1 GB":
            self.bad(2, ["--memory: '", "such as 80GB"], "plan", "c.yaml", "--memory", size)
        code, _, error = self.run_petra("plan", "c.yaml", "--set", "run.max_microbatches=2")
        self.assertEqual((code, error.count("\n")), (0, 1), error)
        self.assertIn(
            "was simulated for 2 microbatches, too few for the lag to reach its final value;"
            " expected at least",
            error,
        )
        self.bad(2, "--devices: '0'; expected an integer", "plan", "c.yaml", "--devices", "0")
        self.bad(
            2, "--lag-at-most: 'x'; expected an integer", "plan", "c.yaml", "--lag-at-most", "x"
        )
        self.bad(2, "100 devices for a network of 6 blocks", "plan", "c.yaml", "--devices", "100")
        self.bad(2, "petra plan needs a config", "plan")
        self.bad(2, "a list of processes", "plan", "c.yaml", "--set", "cluster.placement=[1, 1]")
        self.bad(
            2,
            "4 stages without a model with --memory",
            "plan",
            "c.yaml",
            "--set",
            "cluster.stages=4",
            "--set",
            "cluster.cost.model=unit",
            "--memory",
            "1GB",
        )
        self.bad(2, "3 speeds for 2 devices", "plan", "c.yaml", "--set", "cluster.speeds=[1, 2, 3]")

    @SLOW
    def test_rows_run(self):
        for text, batch in (GPT, 3), (REVNET, 4):
            self.write("c.yaml", text)
            self.check_runs("c.yaml", batch)


if __name__ == "__main__":
    main()
