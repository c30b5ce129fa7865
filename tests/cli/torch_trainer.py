# SPDX-License-Identifier: Apache-2.0
"""petrapipe.Trainer on small networks of a user: what is refused and how, resumed runs, dropout,
mitigations, evaluation. tests/cli/torch_runtime.py compares it with the program."""

import math
import random

from program import PETRA, ProgramTest, main
from torch_case import Join, Split

# isort: split
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from petrapipe import (
    Chain,
    Coupling,
    Diverged,
    Error,
    Mitigation,
    Plan,
    StageError,
    Trainer,
    cut,
)
from petrapipe.mitigations import DiscrepancyCorrection, ErrorFeedback, LrRescheduling
from petrapipe.tensors import as_tuple, bytes_of

GENERATOR = torch.Generator().manual_seed(1)
IMAGES = torch.randn(20, 10, 6, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.randint(0, 3, (20, 10), generator=GENERATOR)
BATCHES = list(zip(IMAGES, LABELS))


class Middle(nn.Module):
    """A stage that does to its streams what a test says."""

    def __init__(self, function, inputs=4):
        super().__init__()
        self.linear, self.function = nn.Linear(inputs, 4), function
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, a, b):
        return self.function(self, a, b)


def branch(p=0.1):
    return nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(p))


def network(middle=None):
    torch.manual_seed(0)
    return [
        module.double()
        for module in (
            Split(6, 8),
            middle or Coupling(branch()),
            Coupling(branch(), "leapfrog"),
            Join(8, 3),
        )
    ]


def change_in_place(self, a, b):
    a.mul_(2)
    return self.linear(a), b


def count_calls(self, a, b):
    self.calls += 1
    return self.linear(a), b


def bind_calls(self, a, b):
    self.calls = self.calls + 1
    return self.linear(a), b


def with_norms(count):
    """A function of a Middle that calls its batch norm so often; it never calls a second one."""

    def function(self, a, b):
        a = self.linear(a)
        for _ in range(count):
            a = self.norm(a)
        return a, b

    middle = Middle(function)
    middle.norm, middle.other = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    return middle


class NotItsInverse(Middle):
    def inverse(self, c, d):
        return d, c


class Ahead(Mitigation):
    def predict(self, weights, velocity, delay):
        return (
            {name: weight + delay * velocity[name] for name, weight in weights.items()}
            if velocity
            else weights
        )


class Training(ProgramTest):
    def trainer(self, method="petra", stages=None, k=1, **more):
        options = {
            "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
            "data": BATCHES,
            "microbatches": 40,
            "petra": PETRA,
        }
        config = {"method.name": method, "method.accumulate": k, **more.pop("config", {})}
        loss = more.pop("loss", nn.CrossEntropyLoss())
        return Trainer(stages or network(), config, loss, **{**options, **more})

    def refused(self, kind, words, **options):
        with self.assertRaises(kind) as caught:
            self.trainer(**options).run()
        message = str(caught.exception)
        print(message)
        self.assertEqual(len(message.splitlines()), 1)
        for word in words:
            self.assertIn(word, message)

    def test_modules_that_are_refused(self):
        def stage_2(middle, *words):
            self.refused(StageError, ("stage 2 (", *words), stages=network(middle))

        stage_2(Middle(change_in_place), "in place", "expected inplace=False")
        stage_2(
            Middle(lambda self, a, b: (self.linear(a) * random.SystemRandom().random(), b)),
            "called again",
            "random numbers of torch",
        )
        stage_2(Middle(count_calls), "the buffer calls")
        stage_2(Middle(bind_calls), "the buffer calls")
        stage_2(with_norms(2), "a batch norm twice")
        stage_2(
            Middle(lambda self, a, b: (self.linear(a), self.linear.weight[:1])),
            "returns a parameter",
            "clone()",
        )
        stage_2(Chain(nn.LazyLinear(4)), "no shape yet")
        stage_2(NotItsInverse(lambda self, a, b: (self.linear(a) + b, a)), "inverse")
        stage_2(
            Middle(lambda self, a, b: (self.linear(a), b), inputs=5),
            "shape (10, 4), (10, 4)",
            "expected outputs of stage 1",
        )
        stage_2(
            Middle(lambda self, a, b: (self.linear(a) / 0 - self.linear(a) / 0, b)), "not finite"
        )
        stage_2(Middle(lambda self, a, b: {"a": a}), "returns dict")
        stage_2(
            Middle(lambda self, a, b: (self.linear(a).detach(), b.detach())),
            "without a gradient",
            "expected no detach()",
        )
        stage_2(Chain(nn.Identity()), "no parameter")
        kept = Middle(lambda self, a, b: (setattr(self, "skip", a), (self.linear(a), b))[1])
        self.refused(
            StageError,
            ("stage 3 (", "left in an attribute", "part of the messages"),
            stages=[
                *network(kept)[:2],
                Middle(lambda self, a, b: (self.linear(a) + kept.skip, b)).double(),
                network()[3],
            ],
        )
        shared = network()
        shared[2] = shared[1]
        self.refused(StageError, ("stage 3", "also one of stage 2"), stages=shared)
        self.refused(
            StageError,
            ("stage 4", "shape (10,)", "expected one number"),
            loss=nn.CrossEntropyLoss(reduction="none"),
        )

    def test_settings_that_are_refused(self):
        self.refused(Error, ("no method 'petro'",), method="petro")
        self.refused(
            Error,
            ("spectrain is not available",),
            config={"method.mitigation.weight_prediction": "spectrain"},
        )
        self.refused(
            Error,
            ("stage_momentum", "a Mitigation of your own"),
            config={"method.mitigation.stage_momentum": 0.95},
        )
        self.refused(Error, ("the length of the run",), microbatches=None)
        self.refused(Error, ("checkpoint_every", "output="), checkpoint_every=5)
        with self.assertWarnsRegex(
            UserWarning,
            "no stage makes an update: method.accumulate is 100, and the run has 40 microbatches",
        ):
            self.trainer(k=100)
        with self.assertRaisesRegex(Error, '{"method.name": "petra"}'):
            Plan.of_config("petra", petra=PETRA)
        self.assertEqual(
            Plan.of_config(
                "method: {name: dsp}", petra=PETRA, cluster__stages=2, run__max_microbatches=2
            ).method["name"],
            "dsp",
        )
        self.refused(Error, ("cannot be started", "PETRA"), petra=self.path("none"))
        self.refused(
            Error,
            ("the weights of its forward",),
            method="pipedream",
            config={"method.backward_weights": "latest"},
        )
        self.refused(Error, ("cluster.replicas",), config={"cluster.replicas": 2})
        for key in "cluster.message.up", "cluster.message.down", "method.keep_precision":
            self.refused(Error, (key, "expected native"), config={key: "int8"})
            plan = Plan.of_config(
                {"stages.partition": "balanced", "stages.count": 4, key: "int8"},
                petra=PETRA,
                run__max_microbatches=9,
            )
            self.refused(
                Error, (key, "not available for networks in PyTorch; expected native"), plan=plan
            )
        self.refused(
            Error,
            ("which no backward of delayed reads",),
            method="delayed",
            mitigations=[DiscrepancyCorrection(0.1)],
        )
        self.refused(Error, ("expected torch.bfloat16",), autocast=torch.float16)
        self.refused(Error, ("loss: has parameters",), loss=nn.Linear(3, 3))
        self.refused(
            Error,
            ("4 stages; expected 3",),
            stages=network()[:3],
            plan=Plan.of_config(
                {"method.name": "petra"}, petra=PETRA, cluster__stages=4, run__max_microbatches=9
            ),
        )

    def test_arguments_that_are_refused(self):
        for words, options in (
            (
                ("optimizer: is a SGD", "expected a function"),
                {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)},
            ),
            (("optimizer= returns a NoneType",), {"optimizer": lambda parameters: None}),
            (("stages: is a Linear",), {"stages": nn.Linear(2, 2)}),
            (("loss: is a str",), {"loss": "ce"}),
            (("clip: -1",), {"clip": -1}),
            (("device: ",), {"device": "gpu"}),
            (("mitigations: is a type",), {"mitigations": Ahead}),
            (
                ("the loss fails on output and target, (10, 3)",),
                {"data": [(x, y.int()) for x, y in BATCHES]},
            ),
            (("microbatch 0 is a tuple of 3",), {"data": [(x, y, y) for x, y in BATCHES]}),
        ):
            self.refused(Error, words, **options)

    def test_mitigations_that_are_refused(self):
        class InPlace(Mitigation):
            def predict(self, weights, velocity, delay):
                for weight in weights.values():
                    weight.mul_(2)
                return weights

        class Partial(Mitigation):
            def gradient(self, gradients, delay):
                return dict(list(gradients.items())[1:])

        self.refused(
            Error,
            ("InPlace.predict changes weights in place",),
            method="delayed",
            mitigations=[InPlace()],
        )
        self.refused(
            Error,
            ("Partial.gradient returns nothing for",),
            method="delayed",
            mitigations=[Partial()],
        )

    def test_a_checkpoint_of_another_run_is_refused(self):
        options = {"output": self.path("run"), "checkpoint_every": 5}
        self.trainer(**options).run()
        for words, more in (
            (
                ("stage 2, module 0.function.3 is Dropout(", "p=0.2", "p=0.1"),
                {"stages": network(Coupling(branch(0.2)))},
            ),
            (("clip is 1.0, and was None",), {"clip": 1.0}),
            (
                ("the optimiser of stage 1 is SGD, and was AdamW",),
                {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.01)},
            ),
            (("the mitigations of stage 1 is Ahead, and was none",), {"mitigations": [Ahead()]}),
        ):
            self.refused(Error, words, resume=True, **{**options, **more})
        again = self.trainer(resume=True, **options).run()
        self.assertRaises(Error, again.run)
        with open(again.checkpoint, "wb") as file:
            file.write(b"no checkpoint")
        self.refused(Error, ("checkpoint.pt: cannot be read",), resume=True, **options)

    def test_a_checkpoint_near_the_end_resumes(self):
        """Of the last microbatches of an undrained run there is no backward."""
        for method, k in (("delayed", 1), ("delayed", 3), ("dsp", 1)):
            whole = self.trainer(method, k=k, microbatches=16).run()
            for every in (11, 12, 13):
                options = {
                    "k": k,
                    "microbatches": 16,
                    "output": self.path(f"{method}-{k}-{every}"),
                    "checkpoint_every": every,
                }
                self.trainer(method, **options).run()
                self.same(whole, self.trainer(method, resume=True, **options).run(), method)

    def test_probes_are_no_memory_of_the_stages(self):
        for method in ("pipedream", "petra", "delayed"):
            plain, probed = (
                self.trainer(method, config={"probe.per_epoch": count}).run() for count in (0, 2)
            )
            self.assertEqual(plain.peaks, probed.peaks, method)
            self.assertEqual(plain.totals, probed.totals, method)

    def test_python_random_numbers_are_repeated(self):
        def drop(self, a, b):
            return (self.linear(a) if random.random() < 0.5 else a) + 0 * self.linear(a), b

        runs = []
        for method in ("backprop", "checkpoint"):
            torch.manual_seed(1)
            runs.append(self.trainer(method, stages=network(Middle(drop))).run())
        for m, loss in runs[0].losses.items():
            self.assertAlmostEqual(loss, runs[1].losses[m], delta=1e-9)

    def test_divergence_names_the_stage(self):
        def broken(self, a, b):
            self.runs = getattr(self, "runs", 0) + 1
            return self.linear(a), b

        stages = network(Middle(broken))
        trainer = self.trainer(stages=stages)
        with torch.no_grad():
            stages[1].linear.weight[0, 0] = math.nan
        with self.assertRaises(Diverged) as caught:
            trainer.run()
        self.assertIn(
            "stage 2 (Middle) has weights that are not finite (linear.weight, after 0 updates)",
            str(caught.exception),
        )

    def test_frozen_weights_are_part_of_a_checkpoint(self):
        def stages():
            torch.manual_seed(len(made))
            made.append(Chain(nn.Linear(4, 4), nn.Linear(4, 4)))
            made[-1][0].requires_grad_(False)
            return network(Coupling(made[-1]))

        made: list = []
        self.trainer(stages=stages(), output=self.path("frozen"), checkpoint_every=10).run()
        self.trainer(stages=stages(), output=self.path("frozen"), resume=True).run()
        self.assertTrue(torch.equal(made[0][0].weight, made[1][0].weight))

    def test_a_reversible_stage_may_carry_a_mask(self):
        class Begin(Split):
            def forward(self, x):
                return *super().forward(x), x[:, 0] > 0

        class Masked(Coupling):
            def forward(self, a, b, mask):
                return *super().forward(a, b), mask

            def inverse(self, a, b, mask):
                return *super().inverse(a, b), mask

        class End(Join):
            def forward(self, a, b, mask):
                return super().forward(a * mask[:, None], b)

        torch.manual_seed(0)
        trainer = self.trainer(
            stages=[
                module.double() for module in (Begin(), Masked(branch()), Masked(branch()), End())
            ],
            config={"probe.per_epoch": 2},
        )
        for _, figures in trainer.run().probes:
            self.assertTrue((figures["reconstruction_error"][1:3] < 10).all())

    def test_a_resumed_run_has_the_same_bits(self):
        for method, k, mitigations in (
            ("petra", 1, ()),
            ("delayed", 1, (Ahead(), LrRescheduling(5))),
            ("pipedream-2bw", 4, (ErrorFeedback(),)),
            ("zb-h1", 3, ()),
            ("dsp", 2, ()),
        ):

            def trainer(folder, **more):
                return self.trainer(
                    method,
                    k=k,
                    mitigations=mitigations,
                    config={"probe.per_epoch": 2},
                    evaluate=BATCHES[:2],
                    output=self.path(folder),
                    scheduler=lambda one: torch.optim.lr_scheduler.ExponentialLR(one, 0.99),
                    **more,
                )

            whole = trainer(f"{method}-whole").run()
            first = trainer(method, checkpoint_every=7)
            first.plan.kind, rows = first.plan.kind[: len(first.plan) * 5 // 8], first.plan.kind
            first.run()
            again = trainer(method, resume=True)
            self.assertEqual(len(again.plan), len(rows))
            self.assertLess(0, again.row)
            again.run()
            self.same(whole, again, method)

    def same(self, a, b, what):
        for one, other in zip(a.stages, b.stages):
            for name, x, y in zip(one.names, one.parameters, other.parameters):
                self.assertTrue(torch.equal(x, y), f"{what}: stage {one.number}: {name}")
            for x, y in zip(one.buffers(), other.buffers()):
                self.assertTrue(torch.equal(x, y), f"{what}: stage {one.number}: a buffer")
        self.assertEqual(a.losses, b.losses, what)
        self.assertEqual(
            [
                (m, {name: values.tolist() for name, values in found.items()}.__repr__())
                for m, found in a.probes
            ],
            [
                (m, {name: values.tolist() for name, values in found.items()}.__repr__())
                for m, found in b.probes
            ],
            what,
        )
        self.assertEqual(
            [
                {name: row[name] for name in ("train_loss", "eval_loss", "eval_top1", "lr")}
                for row in a.epochs
            ],
            [
                {name: row[name] for name in ("train_loss", "eval_loss", "eval_top1", "lr")}
                for row in b.epochs
            ],
            what,
        )

    def test_epochs_that_the_run_does_not_complete(self):
        for drain, losses in ((True, 50), (False, 47)):
            trainer = self.trainer(
                "petra", microbatches=50, config={"run.drain": drain}, evaluate=BATCHES[:2]
            ).run()
            self.assertEqual(len(trainer.losses), losses)
            self.assertEqual(
                [(row["epoch"], math.isfinite(row["eval_loss"])) for row in trainer.epochs],
                [(0, True), (1, True)],
            )

    def test_backprop_is_plain_pytorch(self):
        """Also with dropout: the random numbers are those of the keys."""
        stages = network(Coupling(branch(0)))
        stages[2] = Coupling(branch(0)).double()
        copy = [
            type(stage)(*([] if not isinstance(stage, Coupling) else [branch(0)])).double()
            for stage in stages
        ]
        for mine, theirs in zip(copy, stages):
            mine.load_state_dict(theirs.state_dict())
        trainer = self.trainer("backprop", stages=stages).run()
        parameters = [p for stage in copy for p in stage.parameters()]
        optimizer, loss = torch.optim.AdamW(parameters, lr=0.01), nn.CrossEntropyLoss()
        for m in range(40):
            x, target = BATCHES[m % len(BATCHES)]
            optimizer.zero_grad()
            xs = (x,)
            for stage in copy:
                xs = stage(*xs)
                xs = xs if isinstance(xs, tuple) else (xs,)
            value = loss(xs[0], target)
            value.backward()
            optimizer.step()
            self.assertAlmostEqual(value.item(), trainer.losses[m], delta=1e-12)
        for mine, theirs in zip(copy, stages):
            for x, y in zip(mine.state_dict().values(), theirs.state_dict().values()):
                self.assertTrue(torch.allclose(x, y, rtol=1e-9, atol=1e-12))

    def test_recomputation_repeats_dropout(self):
        """At rate 0 every method has the gradient of backpropagation, dropout included."""
        found = {}
        for method in (
            "backprop",
            "reversible",
            "checkpoint",
            "petra",
            "dsp",
            "delayed-reversible",
            "approximate-input",
        ):
            trainer = self.trainer(
                method,
                optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
                config={"probe.per_epoch": 2},
            ).run()
            found[method] = trainer
            for _, figures in trainer.probes:
                for name, values in figures.items():
                    if name.startswith("relative_error"):
                        self.assertLess(values.max(), 1e-12, f"{method}: {name}")
            for m in set(trainer.losses) & set(found["backprop"].losses):
                self.assertAlmostEqual(trainer.losses[m], found["backprop"].losses[m], delta=1e-12)

    def test_a_batch_norm_that_is_not_called_keeps_its_statistics(self):
        stages = network(with_norms(1))
        self.trainer("dsp", stages=stages).run()
        self.assertTrue(torch.equal(stages[1].other.running_mean, torch.zeros(4).double()))
        self.assertFalse(torch.equal(stages[1].norm.running_mean, torch.zeros(4).double()))

    def test_a_checkpoint_within_a_module_changes_nothing(self):
        """It calls parts of the module again in the backward, when the stage has other weights than
        in the forward."""

        def part(self, a):
            return torch.tanh(self.norm(self.linear(a)))

        def run(method, function):
            torch.manual_seed(1)
            middle = Middle(function)
            middle.norm = nn.BatchNorm1d(4)
            return self.trainer(method, stages=network(middle)).run()

        for method in ("delayed", "dsp", "pipedream"):
            whole = run(method, lambda self, a, b: (part(self, a), b))
            again = run(
                method, lambda self, a, b: (checkpoint(part, self, a, use_reentrant=False), b)
            )
            self.same(whole, again, method)

    def test_complex_streams_have_gradients(self):
        def run(function, back):
            torch.manual_seed(1)
            middle, stages = Middle(function), network()
            stages[1:3] = middle.double(), Middle(back).double()
            return self.trainer("dsp", stages=stages).run()

        plain = run(lambda self, a, b: (self.linear(a), b), lambda self, a, b: (self.linear(a), b))
        turned = run(
            lambda self, a, b: (torch.complex(self.linear(a), a), b),
            lambda self, a, b: (self.linear(a.real), b),
        )
        for m in plain.losses:
            self.assertAlmostEqual(plain.losses[m], turned.losses[m], delta=1e-12)

    def test_data_that_are_refused(self):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(zip(IMAGES.flatten(0, 1), LABELS.flatten()))

        class Short(Stream):
            def __len__(self):
                return 300

        buffer = torch.empty_like(IMAGES[0])
        for data, *words in (
            (iter(BATCHES), "data: is a list_iterator that can be read only once"),
            (
                torch.utils.data.DataLoader(Short(), batch_size=10),
                "ends after 20 microbatches",
                "expected 30",
            ),
            ([{"x": x} for x in IMAGES], "microbatch 0 is a dict"),
            ([(x, None) for x in IMAGES], "the target None"),
            (
                lambda m: (buffer.copy_(IMAGES[m % 20]), LABELS[m % 20]),
                "microbatch 1 changes the tensors of microbatch 0",
            ),
        ):
            self.refused(Error, words, data=data)

    def test_a_loader_gives_the_same_data_to_a_resumed_run(self):
        def loader(**more):
            return torch.utils.data.DataLoader(
                torch.utils.data.TensorDataset(IMAGES.flatten(0, 1), LABELS.flatten()),
                batch_size=10,
                shuffle=True,
                **more,
            )

        for name, more in (
            ("plain", {}),
            ("generator", {"generator": torch.Generator().manual_seed(3), "num_workers": 1}),
        ):
            options = {"microbatches": None, "epochs": 2, "evaluate": BATCHES[:1]}
            whole = self.trainer(data=loader(**more), **options).run()
            first = self.trainer(
                data=loader(**more), output=self.path(name), checkpoint_every=7, **options
            )
            first.plan.kind = first.plan.kind[: len(first.plan) * 5 // 8]
            first.run()
            again = self.trainer(
                data=loader(**more), output=self.path(name), resume=True, **options
            )
            self.assertLess(0, again.row)
            self.same(whole, again.run(), name)

    def test_labels_and_targets(self):
        def halves(batches):
            return [(x, torch.cat((target[:5], torch.full((5,), -100)))) for x, target in batches]

        trainer = self.trainer(
            "backprop",
            data=halves(BATCHES),
            evaluate=halves(BATCHES[:1]),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
        )
        row = trainer.run().epochs[0]
        with torch.no_grad():
            for stage in trainer.stages:
                stage.modules[0].eval()
            xs = (IMAGES[0],)
            for stage in trainer.stages:
                xs = as_tuple(stage.modules[0](*xs))
        self.assertAlmostEqual(
            row["eval_top1"], (xs[0].argmax(1)[:5] == LABELS[0, :5]).double().mean().item()
        )
        self.assertEqual(row["eval_top5"], 1.0)

        def loss(output, target):
            return nn.functional.cross_entropy(
                output, target["labels"] if isinstance(target, dict) else target[0]
            )

        found = [
            self.trainer(
                data=[(x, give(target)) for x, target in BATCHES],
                loss=loss,
                evaluate=[(x, give(target)) for x, target in BATCHES[:2]],
            ).run()
            for give in (lambda target: (target, IMAGES), lambda target: {"labels": target})
        ]
        plain = self.trainer(evaluate=BATCHES[:2]).run()
        for trainer in found:
            self.assertEqual(trainer.losses, plain.losses)
            self.assertEqual(
                [row["eval_loss"] for row in trainer.epochs],
                [row["eval_loss"] for row in plain.epochs],
            )

    def test_a_run_has_all_its_epochs(self):
        trainer = self.trainer("backprop", microbatches=None, epochs=11, data=BATCHES[:2])
        self.assertEqual(trainer.plan.microbatches, 22)
        trainer.run()
        self.assertEqual(len(trainer.losses), 22)
        with self.assertRaises(Error):
            trainer.run()

    def test_what_a_config_sets(self):
        self.assertEqual(self.trainer(config={"optim.clip": 0.5}).clip, 0.5)
        runs = [
            self.trainer(config={"run.seed": one}, **more)
            for one, more in ((1, {}), (2, {}), (1, {"seed": 2}))
        ]
        self.assertEqual([run.seed for run in runs], [1, 2, 2])
        losses = [run.run().losses for run in runs]
        self.assertNotEqual(losses[0], losses[1])
        self.assertEqual(losses[1], losses[2])

    def test_memory(self):
        for method, k in (("petra", 1), ("pipedream", 1), ("backprop", 3), ("zb-h1", 3)):
            plain = self.trainer(method, k=k).run()
            probed = self.trainer(
                method, k=k, config={"probe.per_epoch": 2}, evaluate=BATCHES[:1]
            ).run()
            self.assertEqual((plain.peaks, plain.totals), (probed.peaks, probed.totals), method)
            for stage, peak in zip(plain.stages, plain.peaks):
                weights = sum(p.numel() * 8 for p in stage.parameters)
                self.assertEqual(peak[0], weights)
                # Three wait for W; at stage 1 B and W alternate.
                gradients = 1 if k == 1 else 3 if method == "zb-h1" and stage.number > 1 else 2
                self.assertEqual(peak[1], weights * gradients, f"{method}: gradients")
                self.assertLessEqual(2 * weights, peak[2])
                # A linear layer at the input saves the input alone.
                self.assertEqual(peak[6] > 0, method != "petra" or stage.number > 1)
                self.assertLess(0, peak[7])
        one, two = (
            self.trainer("petra", mitigations=mitigations).run().peaks
            for mitigations in ((), (ErrorFeedback(),))
        )
        for j, (a, b) in enumerate(zip(one, two)):
            self.assertEqual(b[2] - a[2], a[0] * (6 - 2 * j), "the last steps")
        sent = torch.zeros(4)
        # The same elements count once.
        self.assertEqual(bytes_of((sent, {"again": sent.detach()}, torch.zeros(4))), 32)

    def test_what_an_optimiser_may_do(self):
        class Replacing(torch.optim.SGD):
            """SGD that gives its parameters new memory."""

            def step(self, closure=None):
                for p in self.param_groups[0]["params"]:
                    p.data = p.data.clone()
                super().step()

        def run(kind, method):
            return self.trainer(
                method, optimizer=lambda parameters: kind(parameters, lr=0.01)
            ).run()

        for method in ("backprop", "petra", "delayed"):
            self.same(run(torch.optim.SGD, method), run(Replacing, method), method)
        self.refused(StageError, ("stage 1 (Split)", "LBFGS"), optimizer=torch.optim.LBFGS)

    def test_a_stage_may_have_parameters_without_gradients(self):
        def stages():
            torch.manual_seed(1)
            return network(Middle(lambda self, a, b: (torch.tanh(a), b)))

        sgd = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9)}
        velocity = {"method.mitigation.weight_prediction": "velocity"}
        found = [
            self.trainer(stages=stages(), **sgd, **more).run()
            for more in ({}, {"clip": 1e9}, {"config": velocity})
        ]
        self.same(found[0], found[1], "a clip")
        for trainer in found:
            self.assertTrue(torch.equal(trainer.stages[1].parameters[0], stages()[1].linear.weight))
        self.refused(StageError, ("AdamW lacks the momentum",), config=velocity)

    def test_mitigations_of_a_user(self):
        class Shift(Mitigation):
            """Adds a number to every bias. Its state is within a dictionary; the order of its
            result is another than that of the names."""

            def __init__(self):
                self.state = {"stages": set()}

            def stepped(self, weights, change, delay):
                self.state["stages"].add(self.stage)
                return {
                    name: value + 0.01 if name.endswith("bias") else value
                    for name, value in reversed(list(weights.items()))
                }

        class Stop(Mitigation):
            def rate(self, update, delay):
                return 0.0

        trainer = self.trainer(
            mitigations=[Shift(), Stop()],
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
            scheduler="config",
        ).run()
        before = network()
        for stage, module in zip(trainer.stages[:3], before):
            self.assertEqual(stage.mitigations[0].state, {"stages": {stage.number}})
            for (name, old), new in zip(module.named_parameters(), stage.parameters):
                shift = 0.01 * stage.updates if name.endswith("bias") else 0
                self.assertLess(
                    (new - old - shift).abs().max().item(), 1e-12, f"stage {stage.number}: {name}"
                )

    def test_an_sequential_is_cut(self):
        children = [nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)]
        stages = cut(nn.Sequential(*children), [2, 4])
        self.assertEqual(
            [[type(module).__name__ for module in stage] for stage in stages],
            [["Chain"], ["Chain"], ["Linear"]],
        )
        trainer = self.trainer(
            "pipedream",
            stages=nn.Sequential(*children).double(),
            k=1,
            cut=[2, 4],
            evaluate=BATCHES[:3],
        ).run()
        self.assertEqual(len(trainer.losses), 40)
        self.assertEqual([row["epoch"] for row in trainer.epochs], [0, 1])
        rows = []
        trainer = self.trainer(
            "pipedream", stages=nn.Sequential(*children).double(), cut=3, on_epoch=rows.append
        ).run()
        self.assertEqual([stage.name for stage in trainer.stages], ["Linear", "Chain", "Chain"])
        self.assertEqual(rows, trainer.epochs)
        self.refused(Error, ("6 stages of 5",), stages=nn.Sequential(*children).double(), cut=6)
        self.refused(
            Error, ("increasing positions",), stages=nn.Sequential(*children).double(), cut=[4, 2]
        )


if __name__ == "__main__":
    main()
