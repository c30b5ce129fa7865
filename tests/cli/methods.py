# SPDX-License-Identifier: Apache-2.0
"""petra methods CONFIG: one row per method, each of which is what petra simulate prints for the
method on the same devices."""

from program import ProgramTest, main

EQUAL = """\
method: {name: zb-h1, accumulate: 8}
cluster:
  stages: 4
  cost:
    {model: constant, forward_s: 1.5, backward_s: 2.5, reconstruct_s: 1.25, weight_gradient_s: 1,
     update_s: 0.5}
  message: {forward_bytes: 1000, backward_bytes: 2000}
  link: {latency_s: 0.125, bandwidth_Bps: 4000}
"""
MODEL = """\
run: {epochs: 1}
data: {set: shapes, batch: 4, limit: 64, augment: []}
model: {width: 2}
stages: {partition: balanced, count: 4}
method: {name: 1f1b, accumulate: 8}
"""
# The costs of half a stage of EQUAL.
HALVES = {
    "forward_s": 0.75,
    "backward_s": 1.25,
    "reconstruct_s": 0.625,
    "weight_gradient_s": 0.5,
    "update_s": 0.25,
}


class Methods(ProgramTest):
    def rows(self, *arguments, **options):
        found = self.good_json("methods", *arguments, **options)["methods"]
        self.assertCountEqual(
            [row["name"] for row in found],
            [method["name"] for method in self.good_json("methods")["methods"]],
        )
        times = [
            row["time_per_microbatch_s"]
            for row in found
            if row["time_per_microbatch_s"] is not None
        ]
        self.assertEqual(times, sorted(times))
        self.assertTrue(all(row["time_per_microbatch_s"] is None for row in found[len(times) :]))
        return {row["name"]: row for row in found}

    def simulated(self, config, row, *options):
        credit = (
            ["--set", f"method.credit={2 * row['stages'] - 1}"]
            if row["program"] == "arrival"
            else []
        )
        return self.good_json(
            "simulate", config, "--set", f"method.name={row['name']}", *credit, *options
        )

    def check_row(self, row, found):
        for key in "time_per_microbatch_s", "bubble_fraction":
            self.assertEqual(row[key], found[key], row)
        self.assertEqual(row["lag_max"], max(stage["lag_max"] for stage in found["stages"]), row)
        self.assertEqual(len(found["stages"]), row["stages"])
        self.assertEqual(row["device_kept_max"], row["kept_max"] * row["devices"] / row["stages"])
        self.assertIsNone(row["reason"])
        self.assertEqual(len(found["devices"]), row["devices"])
        self.assertEqual(
            row["kept_max"], max(device["kept_max"] for device in found["devices"]), row
        )
        self.assertEqual(
            row["peak_bytes"],
            max(device["peak_bytes"] for device in found["devices"])
            if found["accounting"]
            else None,
            row,
        )

    def check_peaks(self, found):
        """The peak of a device is at most the sum of those of its stages, which come at different
        moments."""
        below = 0
        for device in found["devices"]:
            peaks = [
                stage["peak_bytes"]["total"]
                for stage in found["stages"]
                if stage["device"] == device["device"]
            ]
            self.assertGreater(device["peak_bytes"], max(peaks) if len(peaks) > 1 else peaks[0] - 1)
            self.assertLessEqual(device["peak_bytes"], sum(peaks))
            below += device["peak_bytes"] < sum(peaks)
        self.assertEqual(below > 0, len(found["stages"]) > len(found["devices"]))

    def test_equal_stages(self):
        self.write("c.yaml", EQUAL)
        rows = self.rows("c.yaml")
        for row in rows.values():
            self.assertEqual((row["devices"], row["stages"] in (4, 8)), (4, True))
            halved = [
                "--set",
                "cluster.stages=8",
                *(
                    word
                    for key, value in HALVES.items()
                    for word in ("--set", f"cluster.cost.{key}={value}")
                ),
            ]
            self.check_row(
                row, self.simulated("c.yaml", row, *(halved if row["stages"] == 8 else []))
            )
            self.assertIsNone(row["peak_bytes"])
        self.assertEqual(
            {name for name, row in rows.items() if row["stages"] == 8}
            >= {"interleaved", "looped-bfs", "dualpipe-v"},
            True,
        )
        # The same devices from a config of eight stages in a loop.
        loop = [
            "--set",
            "method.name=interleaved",
            "--set",
            "cluster.stages=8",
            *(
                word
                for key, value in HALVES.items()
                for word in ("--set", f"cluster.cost.{key}={value}")
            ),
        ]
        self.assertEqual(self.rows("c.yaml", *loop), rows)

    def test_unit_costs(self):
        """The table of docs/which-schedule.md: time per microbatch, microbatches kept by the
        fullest device, largest lag."""
        for devices, k in (4, 8), (2, 4), (3, 12), (8, 16), (4, 16):
            idle, full = (devices - 1) / k, 2 * devices - 1
            late, later = -(-(devices - 1) // k), -(-2 * (devices - 1) // k)
            table = {
                "gpipe": (3 + 3 * idle, k, 0),
                "1f1b": (3 + 3 * idle, devices, 0),
                "interleaved": (3 + 1.5 * idle, devices + (devices - 1) / 2, 0),
                "looped-bfs": (3 + 1.5 * idle, k, 0),
                "zb-h1": (3 + idle, devices, 0),
                "dualpipe-v": (3 + idle, devices + 0.5, 0),
                "interleaved-zb": (3 + idle / 2, devices, 0),
                "gpipe-checkpoint": (4 + 4 * idle, k, 0),
                "backprop": (3 * devices, 1, 0),
                "checkpoint": (4 * devices - 1, 1, 0),
                "reversible": (4 * devices - 1, 1, 0),
                "pipedream": (3, devices, late),
                "pipedream-2bw": (3, devices, 1),
                "delayed": (3, full, later),
                "dsp": (4, full, later),
                "petra": (4, full, later),
                "delayed-reversible": (4, full, later),
                "approximate-input": (4, full, later),
                "ddg": (devices + 2, devices, late),
                "fr": (devices + 3, devices, late),
            }
            rows = self.rows(
                "-", "--set", f"method.accumulate={k}", stdin=b"cluster: {stages: %d}\n" % devices
            )
            for name, (time, kept, lag) in table.items():
                self.assertAlmostEqual(
                    rows[name]["time_per_microbatch_s"], time, 9, (name, devices, k)
                )
                self.assertEqual(
                    (rows[name]["device_kept_max"], rows[name]["lag_max"]),
                    (kept, lag),
                    (name, devices, k),
                )
            # The pipeline fills once in a run of at least two updates, or devices idle at every
            # update.
            for name, time, kept in (
                ("zb-h2", idle / 2, full),
                ("zb-v", idle / 4, devices),
                ("v-half", 1.5 * idle, devices // 2 + 1),
                ("v-min", (4 * devices - 3) / (2 * k), (devices + 1) // 3 + 1),
            ):
                self.assertLessEqual(
                    rows[name]["time_per_microbatch_s"], 3 + time + 1e-9, (name, devices, k)
                )
                self.assertEqual(
                    (rows[name]["device_kept_max"], rows[name]["lag_max"]),
                    (kept, 0),
                    (name, devices, k),
                )
            for name, row in rows.items():
                self.assertEqual(row["exact"], row["lag_max"] == 0 and name != "dgl", name)
        self.assertEqual(
            self.rows(
                "-",
                "--set",
                "method.accumulate=16",
                "--set",
                "method.name=zb-h1",
                stdin=b"cluster: {stages: 4}\n",
            ),
            rows,
        )
        # Three stages per device in a loop; a V has two.
        self.write(
            "c.yaml",
            "method: {name: interleaved, chunks: 3, accumulate: 8}\ncluster: {stages: 12}\n",
        )
        rows = self.rows("c.yaml")
        self.assertEqual(
            [rows[name]["stages"] for name in ("looped-bfs", "dualpipe-v", "gpipe")], [12, 8, 4]
        )
        self.assertEqual(rows["gpipe"]["time_per_microbatch_s"], 3 * 3 * 11 / 8)

    def test_model(self):
        self.write("c.yaml", MODEL)
        rows = self.rows("c.yaml", "--set", "cluster.cost.model=roofline")
        for name in "1f1b", "interleaved", "dualpipe-v", "petra", "pipedream-2bw":
            cut = [
                "--set",
                f"stages.count={rows[name]['stages']}",
                "--set",
                "cluster.cost.model=roofline",
            ]
            found = self.simulated("c.yaml", rows[name], *cut)
            self.check_row(rows[name], found)
            self.check_peaks(found)
        # One block per stage: the ten devices cannot have two stages each.
        rows = self.rows("c.yaml", "--set", "stages.partition=block", "--set", "stages.count=0")
        self.assertEqual((rows["1f1b"]["devices"], rows["dualpipe-v"]["kept_max"]), (10, None))
        self.assertIn("20 stages for a network of 10 blocks", rows["dualpipe-v"]["reason"])

    def test_methods_that_cannot_run(self):
        self.write("c.yaml", EQUAL)
        rows = self.rows("c.yaml", "--set", "method.accumulate=3")
        for name, reason in (
            ("pipedream-2bw", "method.accumulate: 3 with method pipedream-2bw on 4 stages"),
            ("interleaved", "3 microbatches per flush on 4 devices"),
        ):
            self.assertTrue(rows[name]["reason"] and reason in rows[name]["reason"], rows[name])
            self.assertEqual(
                [
                    rows[name][key]
                    for key in ("time_per_microbatch_s", "bubble_fraction", "lag_max", "kept_max")
                ],
                [None] * 4,
            )
        self.check_row(
            rows["gpipe"], self.simulated("c.yaml", rows["gpipe"], "--set", "method.accumulate=3")
        )
        lines = self.good("methods", "c.yaml", "--set", "method.accumulate=3").splitlines()
        row = next(line for line in lines if line.startswith("pipedream-2bw"))
        self.assertEqual(row.split()[:8], ["pipedream-2bw", "4", *"------"])
        self.assertTrue(
            row.endswith(
                "  method.accumulate: 3 with method pipedream-2bw on 4 stages; expected at least 4"
            ),
            row,
        )
        short = self.rows(
            "c.yaml", "--set", "run.max_microbatches=2", "--set", "method.accumulate=1"
        )
        self.assertEqual(
            (short["petra"]["time_per_microbatch_s"], short["petra"]["reason"]), (None, None)
        )

    def test_wrong_input(self):
        self.write("c.yaml", EQUAL)
        self.bad(2, "--set without a config", "methods", "--set", "run.seed=1")
        self.bad(2, "no method 'petar'", "methods", "c.yaml", "--set", "method.name=petar")
        self.bad(
            2,
            "cluster.stragglers.stages=[2]: a list of stages, which differ from method to method",
            "methods",
            "c.yaml",
            "--set",
            "cluster.stragglers.stages=[2]",
        )
        self.bad(
            2,
            "method.accumulate",
            "methods",
            "c.yaml",
            "--set",
            "method.name=pipedream-2bw",
            "--set",
            "method.accumulate=2",
        )


if __name__ == "__main__":
    main()
