# SPDX-License-Identifier: Apache-2.0
"""petra inspect --requests and petra simulate --requests: one answer a request, equal to what the
commands print; and petrapipe.program, which asks."""

import json
import os
import subprocess
import sys

from program import PETRA, ProgramTest, main

ANALYSIS = os.path.join(os.path.abspath(os.environ["srcdir"]), "analysis")
sys.path.insert(0, ANALYSIS)
os.environ["PETRA"] = PETRA

from petrapipe import program  # noqa: E402

CLUSTER = {"cluster.stages": 4, "cluster.link.latency_s": 0.5, "run.max_microbatches": 40}
SETTINGS = [f"{key}={value}" for key, value in CLUSTER.items()]


class Requests(ProgramTest):
    def ask(self, command, *requests):
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        done = subprocess.run(
            [PETRA, command, "--requests", "-"],
            input=lines,
            capture_output=True,
            text=True,
            cwd=self.folder,
            check=True,
        )
        self.assertEqual(done.stderr, "")
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), len(requests))
        return answers

    def test_values_are_those_of_the_config(self):
        self.write("part.yaml", "cluster: {link: {preset: wan}, stages: 0}\nmodel: {width: 7}\n")
        layers = [
            {"path": "small.yaml"},
            {"path": "part.yaml", "keys": "cluster"},
            {"set": ["optim.lr=0.3", "run.name='a \"b\"'"]},
        ]
        (answer,) = self.ask(
            "inspect",
            {"config": layers, "keys": True, "numbers": ["optim.lr", "cluster.link.latency_s"]},
        )
        keys = answer["keys"]
        self.assertEqual(answer["numbers"], {"optim.lr": 0.3, "cluster.link.latency_s": 0.025})
        self.assertEqual(keys["model.width"]["value"], "1")  # the part has no effect on it
        self.assertEqual(keys["run.name"]["value"], '"a \\"b\\""')
        self.assertEqual(program.plain(keys["run.name"]["value"]), 'a "b"')
        expected = {"value": "0.3", "decides": "results", "set": True, "default": False}
        self.assertEqual(keys["optim.lr"], {**expected, "label": "--set optim.lr=0.3"})
        self.assertFalse(keys["cluster.link.latency_s"]["set"])  # it follows from the preset
        self.assertFalse(keys["cluster.link.latency_s"]["default"])
        self.assertTrue(keys["optim.momentum"]["default"])
        self.assertEqual(keys["optim.momentum"]["label"], "small.yaml: optim.momentum (default)")
        self.assertEqual(
            {key["decides"] for key in keys.values()}, {"results", "length", "way", "place"}
        )

    def test_words_size_and_plan(self):
        layers = [{"path": "small.yaml"}]
        names = ["network", "method", "formats", "optimiser", "data", "costs", "links", "numbers"]
        (answer,) = self.ask(
            "inspect",
            {
                "config": layers,
                "words": names,
                "size": True,
                "method": True,
                "plan": True,
                "batches": 8,
            },
        )
        found = self.good_json("inspect", "small.yaml")
        self.assertEqual(answer["words"]["network"], "RevNet-18, width 1, cifar stem")
        self.assertEqual(answer["words"]["method"], "petra, k = 1")
        self.assertEqual(answer["words"]["formats"], "")
        self.assertEqual(answer["plan"]["stages"], len(found["stages"]))
        self.assertEqual(answer["plan"]["microbatches"], 16)
        self.assertEqual(answer["size"]["parameters"], found["parameters"])
        self.assertEqual(answer["size"]["update_samples"], 8)
        self.assertEqual(answer["method"], {"delayed": True, "local": False, "by_arrival": False})

    def test_the_whole_config_is_that_of_a_run(self):
        (answer,) = self.ask("inspect", {"config": [{"path": "small.yaml"}], "words": ["config"]})
        self.good("simulate", "small.yaml", "--output", "run")
        self.assertEqual(answer["words"]["config"], self.read("run/config.yaml").decode())

    def test_errors_are_answers(self):
        requests = [
            {"config": [{"set": ["optim.lr=x"]}]},
            {"config": [{"set": ["optim.lr=-1"], "name": "--over"}]},
            {"config": [{"path": "none.yaml"}]},
            {"config": [{"name": "log.h5", "text": "a: 1"}]},
            {"config": [{"path": "small.yaml", "keys": "cluster"}]},
            {"config": [{"path": "small.yaml", "keys": "data"}]},
            {"config": []},
            {"config": [], "numbers": ["run.name"]},
            {"config": [], "keys": ["optim.rate"]},
            {"config": [], "words": ["optim"]},
            {"config": [], "check": "plan"},
            {"config": [], "size": 1},
            {"config": [], "sizes": True},
            {"config": [{"set": ["cluster.stages=3"]}], "check": "train"},
            {"size": True},
            [],
        ]
        answers = self.ask("inspect", *requests)
        lines = [answer.get("error") for answer in answers]
        line = self.bad(1, "none.yaml", "inspect", "none.yaml")
        self.assertEqual((f"petra: {lines[2]}\n", answers[2]["status"]), (line, 1))
        line = self.bad(2, "optim.lr", "inspect", "small.yaml", "--set", "optim.lr=x")
        self.assertEqual(f"petra: {lines[0]}\n", line)
        self.assertTrue(lines[1].startswith("--over: optim.lr=-1: "), lines[1])
        self.assertTrue(lines[3].startswith("log.h5: a: unknown key"), lines[3])
        self.assertTrue(lines[4].startswith("small.yaml: sets no key of the section cluster"))
        self.assertIsNone(lines[6])
        self.assertEqual(lines[7], "run.name is a string; expected a real number")
        for index in (5, 8, 9, 10, 11, 12, 13, 14, 15):
            self.assertIsNotNone(lines[index], requests[index])
            self.assertEqual(answers[index]["status"], 2)

    def test_a_line_that_is_no_json_has_an_answer(self):
        self.write("requests", 'nonsense\n\n{"config": []}\n')
        answers = self.good("inspect", "--requests", "requests").splitlines()
        self.assertEqual(["error" in json.loads(answer) for answer in answers], [True, False])
        self.bad(1, "none: cannot open", "inspect", "--requests", "none")
        self.bad(2, "--requests: also", "inspect", "small.yaml", "--requests", "requests")

    def test_a_simulation_is_that_of_the_command(self):
        settings = [argument for text in SETTINGS for argument in ("--set", text)]
        (answer,) = self.ask("simulate", {"config": [{"path": "small.yaml"}, {"set": SETTINGS}]})
        found = self.good_json("simulate", "small.yaml", *settings)
        self.assertEqual(answer.pop("warnings"), [])
        self.assertEqual({**answer, "wall_s": 0}, {**found, "wall_s": 0})

    def test_warnings_are_part_of_the_answer(self):
        layers = [{"set": [*SETTINGS, "cluster.cost.device=h100"]}]
        (answer,) = self.ask("simulate", {"config": layers})
        self.assertEqual(len(answer["warnings"]), 1)
        self.assertIn("cluster.cost.device", answer["warnings"][0])

    def test_losses(self):
        config = [
            {
                "set": [
                    *SETTINGS,
                    "cluster.message.forward_bytes=100",
                    "method.name=1f1b",
                    "method.accumulate=4",
                ]
            }
        ]
        training = {"batches": 40, "losses": 40}
        all_of_them, some = self.ask(
            "simulate",
            {"config": config, "losses": 10, "training": training},
            {"config": config, "losses": 10, "losses_of": [3, 9], "training": training},
        )
        starts, sent = all_of_them["losses"]["start_ns"], all_of_them["losses"]["bytes"]
        self.assertEqual((len(starts), len(sent)), (10, 10))
        self.assertEqual(starts[0], 3 * 10**9 + 3 * 5 * 10**8)  # three forwards, three messages
        self.assertEqual(sorted(starts), starts)
        self.assertEqual(
            some["losses"], {"start_ns": [starts[3], starts[9]], "bytes": [sent[3], sent[9]]}
        )
        bad, never = self.ask(
            "simulate",
            {"config": config, "losses": 10, "losses_of": [10], "training": training},
            {"config": config, "losses": 41, "losses_of": [39, 40], "training": training},
        )
        self.assertEqual(bad["status"], 2)
        self.assertEqual(never["losses"]["start_ns"][1], None)

    def test_a_process_answers_step_by_step(self):
        with program.Program("simulate") as process:
            for stages in (2, 3):
                layers = [program.set_layer([f"cluster.stages={stages}"])]
                found = process.ask({"config": layers, "times_alone": True})
                self.assertEqual(len(found["stages"]), stages)
            with self.assertRaises(program.PetraError) as caught:
                process.ask({"config": [program.set_layer(["cluster.stages=x"])]})
            self.assertEqual(caught.exception.status, 2)
            self.assertIn("--set cluster.stages=x: 'x' is not an integer", str(caught.exception))

    def test_a_thousand_questions(self):
        layers = [program.text_layer("log", "optim: {lr: 0.1}\n")]
        answers = program.inspect({"config": layers, "keys": ["optim.lr"]} for _ in range(1000))
        self.assertEqual({answer["keys"]["optim.lr"]["value"] for answer in answers}, {"0.1"})
        self.assertEqual(program.inspect([]), [])


if __name__ == "__main__":
    main()
