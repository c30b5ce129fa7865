# SPDX-License-Identifier: Apache-2.0
"""What --json prints has the schemas of docs/json/: every member is in its schema, and every member that a schema
requires is printed. Skipped without python3-jsonschema."""

import glob
import json
import os
import unittest

from program import ProgramTest, main, sample

try:
    import jsonschema
except ImportError:
    jsonschema = None

FOLDER = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "docs", "json")

TOKENS = """\
data: {set: grammar, batch: 2, limit: 24, eval_limit: 4}
model: {family: revgpt, depth: 1, width: 4, heads: 1, context: 4}
"""
EQUAL = "cluster: {stages: 4}\nrun: {max_microbatches: 40}\n"
SETTINGS = (
    {},
    {"method.name": "petra-arrival", "method.credit": 4},
    {"method.name": "gpipe", "method.accumulate": 4, "cluster.replicas": 2},
    {"method.name": "zb-v", "method.accumulate": 4, "cluster.stages": 4},
    {"method.name": "interleaved", "method.accumulate": 4, "method.chunks": 2, "cluster.stages": 4},
    {"method.name": "1f1b", "cluster.link.bandwidth_Bps": 1e6, "cluster.engines": 2},
    {"method.name": "dgl"},
    {"cluster.host.action_s": 1e-3},
)


def load(name):
    with open(os.path.join(FOLDER, f"{name}.schema.json"), encoding="utf-8") as file:
        return json.load(file)


@unittest.skipUnless(jsonschema, "python3-jsonschema is missing")
class JsonContract(ProgramTest):
    def setUp(self):
        super().setUp()
        self.file("images.yaml", "data: {set: shapes, batch: 8, limit: 64}\nmodel: {width: 1}\n")
        self.file("tokens.yaml", TOKENS)
        self.file("equal.yaml", EQUAL)

    def file(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def fits(self, schema, *arguments):
        """Runs a command with --json; its output must have the schema."""
        with self.subTest(arguments=arguments):
            value = self.good_json(*arguments)
            self.check(schema, value)
            return value

    def check(self, schema, value):
        errors = sorted(jsonschema.Draft7Validator(load(schema)).iter_errors(value), key=str)
        self.assertEqual([f"{list(error.path)}: {error.message[:300]}" for error in errors], [])

    def settings(self, values):
        return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]

    def test_schemas_are_valid_and_closed(self):
        """Each object of a schema refuses members that the schema does not name."""

        def closed(node):
            if isinstance(node, dict):
                if "properties" in node:
                    self.assertIs(
                        node.get("additionalProperties"), False, sorted(node["properties"])
                    )
                for child in node.values():
                    closed(child)
            elif isinstance(node, list):
                for child in node:
                    closed(child)

        names = sorted(os.path.basename(path) for path in glob.glob(f"{FOLDER}/*.schema.json"))
        self.assertEqual(
            names,
            [
                f"{name}.schema.json"
                for name in ("methods", "plan", "requests", "schedule", "simulate")
            ],
        )
        for name in names:
            schema = load(name.removesuffix(".schema.json"))
            jsonschema.Draft7Validator.check_schema(schema)
            closed(schema)

    def test_an_undocumented_member_fails(self):
        value = self.good_json("methods")
        value["methods"][0]["more"] = 1
        with self.assertRaises(AssertionError):
            self.check("methods", value)

    def test_simulate(self):
        for config in ("images.yaml", "tokens.yaml", "equal.yaml"):
            for settings in sample(SETTINGS):
                self.fits(
                    "simulate",
                    "simulate",
                    config,
                    *self.settings({"run.max_microbatches": 40, **settings}),
                )
        for options in (
            ("--critical-path",),
            ("--memory", "paper"),
            ("--set", "cluster.placement=[2, 2]", "--set", "cluster.stages=4"),
            ("--set", "run.max_microbatches=1"),
        ):
            self.fits("simulate", "simulate", "images.yaml", *options)
        status, out, _ = self.run_petra(
            "simulate", "images.yaml", "--set", "method.name=petra-arrival", "--json", "--quiet"
        )
        self.assertEqual(status, 0)
        self.check("simulate", json.loads(out))
        self.assertTrue(json.loads(out)["runaway"])

    def test_schedule(self):
        for settings in sample(SETTINGS):
            if settings.get("method.name") == "dgl":
                continue
            self.fits(
                "schedule",
                "schedule",
                "equal.yaml",
                *self.settings({"data.limit": 320, "run.max_microbatches": 40, **settings}),
            )
        self.fits("schedule", "schedule", "tokens.yaml", "--set", "probe.per_epoch=2")
        self.file("given.schedule", self.good("schedule", "equal.yaml"))
        self.assertEqual(self.fits("schedule", "schedule", "given.schedule")["stages"], 4)

    def test_methods(self):
        self.fits("methods", "methods")
        for config in ("images.yaml", "tokens.yaml", "equal.yaml"):
            value = self.fits("methods", "methods", config, "--set", "run.max_microbatches=40")
            self.assertEqual(value["schema"], 1)

    def test_plan(self):
        short = ("--set", "run.max_microbatches=40")
        self.fits("plan", "plan", "equal.yaml", *short)
        self.fits(
            "plan", "plan", "tokens.yaml", "--devices", "2", "--memory", "1GB", "--exact", *short
        )
        self.fits("plan", "plan", "images.yaml", "--devices", "2", "--lag-at-most", "4", *short)

    def test_requests(self):
        config = [{"path": "images.yaml"}, {"set": ["run.max_microbatches=40"]}]
        words = [
            "network",
            "method",
            "formats",
            "data",
            "optimiser",
            "costs",
            "links",
            "numbers",
            "config",
        ]
        asked = {
            "inspect": (
                {
                    "config": config,
                    "keys": True,
                    "numbers": ["optim.lr"],
                    "words": words,
                    "size": True,
                    "method": True,
                    "plan": True,
                    "batches": 8,
                    "check": "train",
                },
                {"config": [{"set": ["optim.lr=x"]}], "size": True},
            ),
            "simulate": (
                {"config": config},
                {"config": config, "losses": 8, "training": {"batches": 8, "losses": 8}},
            ),
        }
        for command, requests in asked.items():
            self.file("requests.json", "".join(json.dumps(one) + "\n" for one in requests))
            lines = self.good(command, "--requests", "requests.json").splitlines()
            self.assertEqual(len(lines), len(requests))
            for line in lines:
                answer = json.loads(line)
                if "makespan_s" in answer:
                    self.assertEqual(answer.pop("warnings"), [])
                    self.check("simulate", answer)
                else:
                    self.check("requests", answer)


if __name__ == "__main__":
    main()
