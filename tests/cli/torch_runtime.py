# SPDX-License-Identifier: Apache-2.0
"""petrapipe.Trainer beside the program: a dozen of the runs of tests/reference/torch_runtime.py,
with fewer updates. Debian's PyTorch is enough."""

import os
import sys

import torch_case  # noqa: F401 - ends the test without PyTorch
from program import PETRA, ProgramTest, main

sys.path.insert(0, os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "tests/reference")))
import torch_runtime as reference
from torch_runtime import Case

PREDICTION, RESCHEDULING = (
    {"method.mitigation.weight_prediction": "velocity"},
    {"method.mitigation.lr_rescheduling": 9},
)
CORRECTION, FEEDBACK = (
    {"method.mitigation.discrepancy_correction": 0.135},
    {"method.mitigation.error_feedback": "true"},
)
WARM_UP = {"method.mitigation.sync_warmup_epochs": 1}
COSINE = {"lr.warmup_epochs": 1, "lr.schedule": "cosine", "lr.epochs": 2, "lr.final": 0.1}
# Updates, and what is trained.
CASES = [
    (30, Case("revnet18", "petra")),
    (16, Case("revnet18", "approximate-input", 3, "adamw", {}, (1, 1, 4, 4))),
    (24, Case("resnet18", "pipedream", 1, "sgd", {**PREDICTION, **RESCHEDULING})),
    (24, Case("revnet18-invertible", "petra", 1, "sgd", {"run.drain": "true"})),
    (24, Case("revnet-constant", "petra")),
    (24, Case("gpt", "zb-h1", 3, "adamw")),
    (24, Case("gpt", "pipedream-2bw", 6)),
    (24, Case("gpt", "fr", 1, "sgd", {"method.extra_delay": 3, "optim.clip": 0.05})),
    (36, Case("gpt", "delayed", 1, "adamw", COSINE, (), "config")),
    (36, Case("revgpt", "petra", 3, "sgd", {**WARM_UP, **PREDICTION})),
    (24, Case("revgpt", "dsp", 1, "sgd", {**CORRECTION, **FEEDBACK})),
    (24, Case("revgpt", "delayed-reversible", 3, "adamw", {}, (2, 2, 2))),
    (24, Case("revgpt", "petra", 1, "sgd", {"method.head": "split", "method.sync_period": 5})),
    (24, Case("llama", "1f1b", 3, "adamw")),
    (24, Case("revllama-leapfrog", "petra")),
]
WRONG = [
    ("delay", Case("revgpt", "petra")),
    ("delay", Case("gpt", "1f1b", 3)),
    ("latest-for-stashed", Case("revgpt", "delayed-reversible")),
    ("latest-for-stashed", Case("gpt", "pipedream")),
]


class TorchRuntime(ProgramTest):
    def measure(self, case, updates, wrong=None):
        found = reference.measure(reference.Program(PETRA, self.folder), case, updates, wrong)
        self.assertIsNotNone(found, f"{case.name()}: {wrong} changes nothing")
        print(f"{case.name()}, {updates} updates: {found}", flush=True)
        self.assertNotIn("refused", found, case.name())
        self.assertGreater(found["probes"], 0, case.name())
        return found

    def test_same_weights_losses_and_probes(self):
        for updates, case in CASES:
            self.assertTrue(reference.is_equal(self.measure(case, updates)), case.name())

    def test_wrong_rules_are_found(self):
        for rule, case in WRONG:
            found = self.measure(case, 24, rule)
            for what, bound in (
                ("weights", reference.WEIGHTS),
                ("losses", reference.LOSSES),
                ("figures", reference.FIGURES),
            ):
                self.assertGreater(found[what], 1e3 * bound, f"{case.name()}, {rule}: {what}")

    def test_all_methods_with_a_fixed_order(self):
        """The large comparison has every method of the program."""
        refused = {"paci", "dgl"}  # by the trainer
        methods = {
            method["name"]
            for method in self.good_json("methods")["methods"]
            if method["program"] != "arrival"
        } - refused
        for network in ("gpt", "revgpt", "revnet18", "resnet18"):
            compared = {case.method for case in reference.cases() if case.network == network}
            self.assertLessEqual(methods, compared, network)


if __name__ == "__main__":
    main()
