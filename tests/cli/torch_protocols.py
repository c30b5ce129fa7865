# SPDX-License-Identifier: Apache-2.0
"""petrapipe.Trainer and the objects of a user: how optimisers, schedulers, samplers and loaders are
called, what metrics are means of, which settings have no effect, what the log says that trained.
tests/cli/torch_trainer.py tests the training itself."""

import math
import os
import warnings

from program import PETRA, ProgramTest, main
from torch_case import Join, Split

# isort: split
import h5py
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, IterableDataset

from petrapipe import Coupling, Error, Plan, Run, StageError, Trainer
from petrapipe.figures.accumulation import read_runs
from petrapipe.microbatches import Microbatches

WIDE = torch.float64


def batches(count=6, samples=8, seed=1):
    g = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(samples, 5, generator=g, dtype=WIDE),
            torch.randint(3, (samples,), generator=g),
        )
        for _ in range(count)
    ]


def network(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Sequential(nn.Tanh(), nn.Linear(7, outputs))).double()


def pixels(labels):
    """A network, and microbatches of images whose targets are `labels`, of shape (4, 6, 6)."""
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(2)
    model = nn.Sequential(nn.Conv2d(5, 7, 1), nn.Sequential(nn.Tanh(), nn.Conv2d(7, 3, 1))).double()
    return model, [(torch.randn(4, 5, 6, 6, generator=g, dtype=WIDE), one) for one in labels]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


class Numbered(Dataset):
    """Sample i is full of i."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return torch.full((5,), float(i), dtype=WIDE), i % 3


class Noisy(Numbered):
    def __getitem__(self, i):
        return torch.randn(5, dtype=WIDE), i % 3


class Shuffling(torch.utils.data.Sampler):
    """Another order in each epoch, if it receives the epoch."""

    def __init__(self):
        self.epoch, self.told = 0, []

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.told.append(epoch)

    def __len__(self):
        return 24

    def __iter__(self):
        return iter(
            torch.randperm(24, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        )


class Bar:
    """Shows a loader while it is read, like tqdm."""

    def __init__(self, iterable):
        self.iterable = iterable

    def __len__(self):
        return len(self.iterable)

    def __iter__(self):
        yield from self.iterable


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.full((5,), float(i), dtype=WIDE), i % 3) for i in range(24)])


class Sharpness(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        assert closure is not None, "this optimiser needs a closure"
        closure()


class Averaging(torch.optim.SGD):
    """SGD whose parameters in evaluation are the mean of the iterates."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.5)
        self.mode = None

    def put(self, mode, key):
        if self.mode != mode:
            self.mode = mode
            for p in self.param_groups[0]["params"]:
                if key in self.state[p]:
                    p.data.copy_(self.state[p][key])

    def train(self):
        self.put("train", "iterate")

    def eval(self):
        self.put("eval", "mean")

    @torch.no_grad()
    def step(self, closure=None):
        if self.mode != "train":
            raise RuntimeError("not in training mode")
        super().step()
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            count = state["count"] = state.get("count", 0) + 1
            state["iterate"], mean = p.clone(), state.get("mean", torch.zeros_like(p))
            state["mean"] = mean + (p - mean) / count


class Protocols(ProgramTest):
    def trainer(self, stages=None, loss=None, method="backprop", **more):
        config = {"method.name": method, "run.drain": True, **more.pop("config", {})}
        data = more.pop("data", None)
        data = batches() if data is None else data
        if "epochs" not in more and "plan" not in more:
            more.setdefault("microbatches", 6)
        return Trainer(
            network() if stages is None else stages,
            config,
            nn.CrossEntropyLoss() if loss is None else loss,
            data=data,
            petra=PETRA,
            **{"optimizer": sgd, **more},
        )

    def refused(self, *words, error=Error, **options):
        """The trainer refuses, in one line, before it runs."""
        with self.assertRaises(error) as caught:
            self.trainer(**options)
        message = str(caught.exception)
        print(message)
        self.assertEqual(len(message.splitlines()), 1)
        for word in words:
            self.assertIn(word, message)

    def said(self, **options):
        """Returns the trainer, and its warnings."""
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            trainer = self.trainer(**options)
        return trainer, [str(one.message) for one in found if one.category is UserWarning]

    # --- optimisers and schedulers ---

    def test_schedulers(self):
        rates = []

        def plateau(optimizer):
            return lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.9)

        for evaluate in (None, batches(1)):
            trainer = self.trainer(epochs=3, evaluate=evaluate, scheduler=plateau).run()
            rates.append([next(stage.groups())["lr"] for stage in trainer.stages])
        self.assertEqual(rates, [[0.025, 0.025]] * 2)
        # An epoch ends where its evaluation would be; in petra, microbatches are in flight there.
        for method, least in (("backprop", 6), ("1f1b", 6), ("petra", 4)):
            for evaluate in (None, batches(1)):
                updates = []
                trainer = self.trainer(
                    method=method,
                    epochs=2,
                    evaluate=evaluate,
                    on_epoch=lambda row, found=updates: found.append(
                        min(stage.updates for stage in trainer.stages)
                    ),
                )
                trainer.run()
                self.assertEqual(updates[0], least, (method, evaluate))
        for steps, good in ((6, True), (5, False)):

            def cycle(optimizer):
                return lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=steps)

            def after(optimizer):
                return lr_scheduler.SequentialLR(
                    optimizer, [lr_scheduler.ConstantLR(optimizer), cycle(optimizer)], [3]
                )

            def listed(optimizer):
                return lr_scheduler.LambdaLR(optimizer, lambda i: ([1.0] * (steps + 1))[i])

            if good:
                for one in (cycle, listed):
                    self.trainer(scheduler=one).run()
            else:
                self.refused(
                    "OneCycleLR has 5 steps; expected at least the 6 updates",
                    scheduler=cycle,
                    error=StageError,
                )
                self.refused(
                    "LambdaLR fails after update 6: IndexError", scheduler=listed, error=StageError
                )
            self.trainer(scheduler=after).run()
        self.refused(
            "stage 1: scheduler= fails for SGD: ZeroDivisionError",
            error=StageError,
            scheduler=lambda one: 1 / 0,
        )

    def test_schedulers_that_are_refused(self):
        class Timed:
            def __init__(self, optimizer):
                self.optimizer = optimizer

            def step(self, epoch):
                pass

            def state_dict(self):
                return {}

        other = sgd([torch.zeros(1, requires_grad=True)])
        for words, scheduler in (
            ("whose step needs epoch", Timed),
            ("returns a NoneType", lambda one: None),
            ("of another optimiser", lambda one: lr_scheduler.ExponentialLR(other, 0.9)),
            ("expected mode='min'", lambda one: lr_scheduler.ReduceLROnPlateau(one, "max")),
        ):
            self.refused(
                "stage 1: scheduler= returns", words, scheduler=scheduler, error=StageError
            )

    def test_optimisers_that_are_refused(self):
        class Unrated(torch.optim.SGD):
            def __init__(self, parameters):
                super().__init__(parameters, lr=0.1)
                self.param_groups[0]["lr"] = None

        def broken(parameters):
            raise KeyError("no setting")

        self.refused(
            "stage 1 (Linear): Sharpness calls the network at each step (its step needs a closure)",
            optimizer=Sharpness,
            error=StageError,
        )
        self.refused("LBFGS calls the network", optimizer=torch.optim.LBFGS, error=StageError)
        self.refused("Unrated has the learning rate None", optimizer=Unrated, error=StageError)
        self.refused("optimizer= fails: KeyError: 'no setting'", optimizer=broken, error=StageError)

    def test_an_optimiser_that_fails(self):
        class Failing(torch.optim.SGD):
            def step(self, closure=None):
                if self.state.setdefault("count", 0) == 3:
                    raise RuntimeError("two\nlines")
                self.state["count"] += 1

        with self.assertRaises(StageError) as caught:
            self.trainer(optimizer=lambda parameters: Failing(parameters, lr=0.1)).run()
        self.assertIn(
            "stage 2 (Sequential): update 4 fails: RuntimeError: two; expected",
            str(caught.exception),
        )

    def test_an_optimiser_with_evaluation_weights(self):
        """Its evaluations are those of a plain loop, and change nothing in the training."""
        losses, held = {}, batches(2, seed=3)
        for method in ("backprop", "petra", "pipedream"):
            for evaluate in (None, held):
                stages = network()
                trainer = self.trainer(
                    stages,
                    method=method,
                    optimizer=Averaging,
                    epochs=2,
                    evaluate=evaluate,
                    output=self.path(f"{method}-{evaluate is None}"),
                    checkpoint_every=4,
                    config={"probe.per_epoch": 1},
                ).run()
                losses.setdefault(method, []).append(trainer.losses)
                with torch.no_grad():
                    exact = sum(float(functional.cross_entropy(stages(x), t)) for x, t in held) / 2
                if evaluate and method != "petra":  # whose evaluation comes before the last updates
                    self.assertAlmostEqual(trainer.epochs[-1]["eval_loss"], exact, places=12)
            self.assertEqual(*losses[method])
            again = self.trainer(
                network(),
                method=method,
                optimizer=Averaging,
                epochs=2,
                evaluate=held,
                output=self.path(f"{method}-False"),
                resume=True,
                config={"probe.per_epoch": 1},
            )
            self.assertLess(0, again.row)
            self.assertEqual(again.run().epochs[-1]["eval_loss"], trainer.epochs[-1]["eval_loss"])
        model, optimizer = network(), None
        optimizer = Averaging(model.parameters())
        optimizer.train()
        for x, t in 2 * batches():
            functional.cross_entropy(model(x), t).backward()
            optimizer.step()
            optimizer.zero_grad()
        optimizer.eval()
        mine = network()
        self.trainer(mine, optimizer=Averaging, epochs=2).run()
        for a, b in zip(model.parameters(), mine.parameters()):
            self.assertLess((a - b).abs().max(), 1e-12)

    # --- loaders ---

    def order(self, data, epochs=3):
        """Returns the first numbers of the microbatches of a run, by epoch."""
        seen = []

        def loss(output, target):
            return functional.cross_entropy(output, target)

        class Noting(nn.Linear):
            def forward(self, x):
                if torch.is_grad_enabled():
                    seen.append(int(x[0, 0]))
                return super().forward(x)

        stages = [Noting(5, 7).double(), nn.Linear(7, 3).double()]
        trainer = self.trainer(stages, loss, data=data, epochs=epochs)
        seen.clear()
        trainer.run()
        return [seen[6 * e : 6 * e + 6] for e in range(epochs)]

    def test_set_epoch_is_called(self):
        for place in ("sampler", "batch_sampler", "both"):
            sampler = Shuffling()
            if place == "sampler":
                loader = DataLoader(Numbered(), 4, sampler=sampler)
            else:
                inner = torch.utils.data.BatchSampler(sampler, 4, False)
                loader = DataLoader(Numbered(), batch_sampler=inner)
            orders = self.order(Bar(loader) if place == "both" else loader)
            expected = [
                torch.randperm(24, generator=torch.Generator().manual_seed(e)).tolist()[::4]
                for e in range(3)
            ]
            self.assertEqual(orders, expected, place)
            self.assertEqual(sampler.told[-3:], [0, 1, 2])

    def test_what_may_be_data(self):
        loader = DataLoader(Numbered(), 4)
        expected = [[0, 4, 8, 12, 16, 20]] * 3
        self.assertEqual(self.order(loader), expected)
        self.assertEqual(self.order(Bar(loader)), expected)
        for options in ({"microbatches": 18}, {"epochs": 3, "epoch": 6}, {"epochs": 6, "epoch": 3}):
            for stream in (DataLoader(Stream(), 4), Bar(DataLoader(Stream(), 4))):
                trainer = self.trainer(data=stream, **options).run()
                self.assertEqual(len(trainer.losses), 18)
                losses = list(trainer.losses.values())
                again = Microbatches(stream, torch.device("cpu"), 1, options.get("epoch"))
                period = options.get("epoch", 6)
                self.assertEqual(
                    [int(again[m][0][0][0, 0]) for m in range(18)],
                    [4 * (m % period) for m in range(18)],
                )
                # As a resumed run reads it.
                self.assertEqual(int(again[7][0][0][0, 0]), 4 * (7 % period))
                self.assertTrue(all(map(math.isfinite, losses)))
        with self.assertRaisesRegex(
            Error, r"the DataLoader ends after 6 microbatches; expected 7, the length of an epoch"
        ):
            self.trainer(data=DataLoader(Stream(), 4), epochs=1, epoch=7).run()
        for words, data in (
            ("data: is a list_iterator that can be read only once", iter(batches())),
            ("data: is a Bar that can be read only once", Bar(iter(batches()))),
            (
                "data: is a DataLoader without a microbatch",
                DataLoader(Numbered(), 25, drop_last=True),
            ),
            ("data: is a list without a microbatch; expected at least one", []),
        ):
            with self.assertRaises(Error) as caught:
                Trainer(
                    network(),
                    {"method.name": "backprop"},
                    nn.CrossEntropyLoss(),
                    data=data,
                    microbatches=6,
                    optimizer=sgd,
                    petra=PETRA,
                )
            self.assertIn(words, str(caught.exception))

    def test_persistent_workers(self):
        """Samples with random numbers: a resumed run reads the same."""

        def trainer(**more):
            loader = DataLoader(Noisy(), 8, shuffle=True, num_workers=1, persistent_workers=True)
            return self.said(
                data=loader, epochs=3, evaluate=loader, output=self.path("run"), **more
            )

        first, said = trainer(checkpoint_every=4)
        self.assertEqual(len([line for line in said if "persistent workers begin anew" in line]), 1)
        whole = first.run()
        again = trainer(resume=True)[0]
        self.assertEqual(again.row > 0 and again.run().losses, whole.losses)
        self.assertEqual(
            [row["eval_loss"] for row in again.epochs], [row["eval_loss"] for row in whole.epochs]
        )

    def test_evaluations_that_are_refused(self):
        self.refused(
            "evaluate: is a generator, which can be read only once",
            evaluate=(one for one in batches()),
        )
        self.refused("evaluate: is a int; expected a DataLoader", evaluate=3)
        self.refused("evaluate: has no microbatch", evaluate=[])
        self.refused(
            "evaluate: microbatch 0 is a tuple of 3; expected (input, target)",
            evaluate=[(x, t, t) for x, t in batches()],
        )
        self.refused(
            "stage 1 (Linear): fails on inputs of shape (8, 3)",
            evaluate=[(x[:, :3], t) for x, t in batches()],
            error=StageError,
        )

    # --- metrics ---

    def test_labels_that_count(self):
        """The evaluation is that of all labels at once, however the loss is written."""

        def function(ignored):
            return lambda y, t: functional.cross_entropy(y, t, ignore_index=ignored)

        class Shifted(nn.Module):
            """A loss within a module, on flattened scores."""

            def __init__(self, ignored):
                super().__init__()
                self.inner = nn.CrossEntropyLoss(ignore_index=ignored)

            def forward(self, y, t):
                return self.inner(y.movedim(1, -1).reshape(-1, 3), t.reshape(-1))

        def log(ignored):
            return lambda y, t: nn.NLLLoss(ignore_index=ignored)(functional.log_softmax(y, 1), t)

        def weighted(ignored):
            return nn.CrossEntropyLoss(
                torch.tensor([1.0, 2.0, 0.5], dtype=WIDE), ignore_index=ignored, label_smoothing=0.1
            )

        for ignored in (-100, 255, 0):
            g, labels = torch.Generator().manual_seed(2), []
            for count in (0, 100, 144, 20):
                target = torch.randint(1 if ignored == 0 else 0, 3, (4, 6, 6), generator=g)
                target.view(-1)[:count] = ignored
                labels.append(target)
            for make in (
                lambda i: nn.CrossEntropyLoss(ignore_index=i),
                function,
                Shifted,
                log,
                weighted,
            ):
                model, data = pixels(labels)
                trainer = self.trainer(
                    model,
                    make(ignored),
                    data=data,
                    epochs=1,
                    evaluate=data,
                    output=self.path("run"),
                    overwrite=True,
                    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
                ).run()
                x, y = (torch.cat(one) for one in zip(*data))
                with torch.no_grad():
                    exact = (
                        float(make(ignored)(model(x), y)),
                        float((model(x).argmax(1) == y)[y != ignored].double().mean()),
                    )
                row = trainer.epochs[0]
                for loss, top1 in (("eval_loss", "eval_top1"), ("train_loss", "train_top1")):
                    self.assertAlmostEqual(row[loss], exact[0], places=12)
                    self.assertAlmostEqual(row[top1], exact[1], places=12)
                self.assertTrue(math.isnan(trainer.losses[2]))
                with h5py.File(
                    self.path("run/run.h5")
                ) as file:  # a microbatch without labels has no loss
                    self.assertEqual(file["train/microbatch"][:].tolist(), [0, 1, 3])

    def test_a_microbatch_without_labels_trains_as_in_pytorch(self):
        data = [
            (x, torch.full_like(t, -100) if m % 3 == 0 else t) for m, (x, t) in enumerate(batches())
        ]
        model, mine = network(), network()

        def decaying(parameters):
            return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)

        optimizer = decaying(model.parameters())
        for x, t in data:
            functional.cross_entropy(model(x), t).backward()
            optimizer.step()
            optimizer.zero_grad()
        for method in ("backprop", "1f1b"):
            mine = network()
            trainer = self.trainer(
                mine,
                data=data,
                epochs=1,
                evaluate=[(x, torch.full_like(t, -100)) for x, t in data],
                optimizer=decaying,
                method=method,
            ).run()
            for a, b in zip(model.parameters(), mine.parameters()):
                self.assertLess((a - b).abs().max(), 1e-12)
            self.assertTrue(math.isnan(trainer.epochs[0]["eval_loss"]))
            self.assertTrue(math.isfinite(trainer.epochs[0]["train_loss"]))

    def test_losses_without_classes(self):
        """Top-1 is unknown if PyTorch's losses are not called with one set of labels."""

        def of_count(y, t):
            return functional.poisson_nll_loss(y[:, 0], t.double())

        def normal(y, t):
            return functional.gaussian_nll_loss(y[:, 0], t.double(), y[:, 1].exp())

        def several(y, t):
            return functional.binary_cross_entropy_with_logits(y, functional.one_hot(t, 3).double())

        def soft(y, t):
            return functional.cross_entropy(y, functional.one_hot(t, 3).double())

        def two(y, t):
            return functional.cross_entropy(2 * y, t) + functional.cross_entropy(3 * y, t)

        data = batches(5) + batches(1, 3)
        for loss, outputs in (
            (of_count, 1),
            (normal, 2),
            (several, 3),
            (soft, 3),
            (two, 3),
            (lambda y, t: functional.cross_entropy(y, 0 * t), 1),
        ):
            model = network(outputs)
            row = self.trainer(model, loss, data=data, epochs=1, evaluate=data).run().epochs[0]
            self.assertEqual(
                [math.isnan(row[name]) for name in ("train_top1", "eval_top1", "eval_top5")],
                [True] * 3,
            )
            with torch.no_grad():
                exact = float(
                    loss(*(f(torch.cat(one)) for f, one in zip((model, lambda t: t), zip(*data))))
                )
            self.assertAlmostEqual(row["eval_loss"], exact, places=12)

    def test_a_main_and_an_auxiliary_loss(self):
        """The labels of the network's first output count."""

        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.main, self.side = nn.Linear(7, 3), nn.Linear(7, 3)

            def forward(self, x):
                return self.main(x), self.side(x)

        def loss(ys, t):
            return functional.cross_entropy(ys[0], t) + 0.3 * functional.cross_entropy(ys[1], t)

        model = nn.Sequential(nn.Linear(5, 7), Two()).double()
        row = self.trainer(model, loss, epochs=1, evaluate=batches(2)).run().epochs[0]
        with torch.no_grad():
            right = [float((model(x)[0].argmax(1) == t).double().mean()) for x, t in batches(2)]
        self.assertAlmostEqual(row["eval_top1"], sum(right) / 2)

    def test_losses_that_are_refused(self):
        for words, loss in (
            (
                "it returns a tuple of Tensor, dict",
                lambda y, t: (functional.cross_entropy(y, t), {}),
            ),
            ("it returns a float", lambda y, t: float(functional.cross_entropy(y, t))),
            ("it returns a NoneType", lambda y, t: None),
            ("its mean has no gradient", lambda y, t: functional.cross_entropy(y, t).detach()),
            ("its mean has no gradient", lambda y, t: (y.argmax(1) == t).sum()),
            ("expected one number", nn.CrossEntropyLoss(reduction="none")),
        ):
            self.refused("stage 2 (Sequential)", words, loss=loss, error=StageError)

    # --- settings ---

    def test_sizes_beyond_those_of_the_data_sets_of_petra(self):
        one = batches()
        trainer = self.trainer(
            data=batches(1, 70000), microbatches=2, output=self.path("large")
        ).run()
        self.assertEqual((trainer.batch, trainer.config["data.batch"]), (70000, "70000"))
        self.good("inspect", self.path("large"))
        self.trainer(data=lambda m: one[m % 6], epoch=100_000_000_000).run()
        self.refused(
            "1000000000000 microbatches of 8 samples in an epoch",
            "epoch= makes it shorter",
            data=lambda m: one[m % 6],
            epoch=10**12,
        )
        self.refused(
            "microbatches: 2000000 are 2000000 epochs of 1",
            "epoch= makes them longer",
            data=one[:1],
            microbatches=2_000_000,
        )
        for name, value in (
            ("microbatches", 0),
            ("epochs", 1.5),
            ("seed", -1),
            ("epoch", 0),
            ("checkpoint_every", -1),
            ("seed", 2**63),
        ):
            self.refused(f"{name}: {value}; expected an integer", **{name: value})
        self.refused("--set cluster.node_size=-1", config={"cluster.node_size": -1})
        # With a model they are bounded as before.
        for key, value in (
            ("data.batch", 65537),
            ("model.context", 65537),
        ):
            sets = (
                "--set",
                "data.set=grammar",
                "--set",
                "data.augment=[]",
                "--set",
                "model.family=gpt",
                "--set",
                "model.width=8",
                "--set",
                "model.heads=2",
            )
            self.bad(2, f"{key}", "schedule", "small.yaml", *sets, "--set", f"{key}={value}")
        batch = self.trainer(data=DataLoader(Numbered(), 5), epochs=1)
        self.assertEqual(batch.batch, 5)
        alone = self.trainer(data=[(x[0], t[0]) for x, t in batches()])
        self.assertEqual(alone.batch, 1)

    def test_targets_that_are_no_windows(self):
        """A log counts tokens if each integer of the input has a label."""

        def labels(shape):
            return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1))

        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(10, 5)

            def forward(self, x):
                return self.table(x)

        several = self.trainer(
            data=[(x, labels((8, 3))) for x, _ in batches()],
            loss=lambda y, t: functional.mse_loss(y, t.double()),
        )
        self.assertEqual(several.config["data.set"], "cifar10")
        tokens = self.trainer(
            [Words().double(), nn.Linear(5, 10).double()],
            lambda y, t: functional.cross_entropy(y.flatten(0, 1), t.flatten()),
            data=[(labels((4, 9)), labels((4, 9)))],
            config={"data.set": "hdf5"},
        )
        self.assertEqual(
            (tokens.config["data.set"], tokens.config["model.context"]), ("tokens", "9")
        )

    def test_settings_without_effect(self):
        with open(self.path("petra.yaml"), "w", encoding="utf-8") as file:
            file.write(
                f"base: {self.path('small.yaml')}\nmethod: {{name: backprop}}\n"
                "optim: {lr: 0.3, clip: 2}\n"
            )
        cases = (
            ({"optim.lr": 0.5, "optim.clip": 1.0}, {}, "optim.lr:"),
            ({"optim": {"lr": 0.5}}, {}, "optim.lr:"),
            ({"optim.clip": 1.0}, {"clip": 2.0}, "optim.clip:"),
            (
                {"optim.lr": 0.5, "optim.weight_decay": 0.1},
                {"scheduler": "config"},
                "optim.weight_decay:",
            ),
            ({"lr.factor": 0.5}, {}, "lr.factor:"),
            (
                {"device.backend": "ref", "model.width": 8, "data.batch": 4, "run.epochs": 7},
                {},
                "device.backend, model.width, data.batch, run.epochs:",
            ),
        )
        for config, more, words in cases:
            found = self.said(config=config, **more)[1]
            self.assertEqual(
                len([line for line in found if line.startswith(f"config: {words} no effect; ")]),
                1,
                (config, found),
            )
        for config, more in (
            ({"optim.clip": 1.0, "probe.per_epoch": 1}, {}),
            ({"optim.lr": 0.1, "lr.factor": 0.5}, {"scheduler": "config"}),
        ):
            self.assertEqual(self.said(config=config, **more)[1], [])
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            Trainer(
                network(),
                self.path("petra.yaml"),
                nn.CrossEntropyLoss(),
                data=batches(),
                microbatches=6,
                optimizer=sgd,
                petra=PETRA,
            )
        self.assertIn(
            "config: optim.lr, run.name, run.epochs, data.set, data.batch, data.limit and ",
            str(found[0].message),
        )
        # nested.
        plan = Plan.of_config(
            {"method": {"name": "petra"}}, petra=PETRA, cluster__stages=2, run__max_microbatches=6
        )
        self.assertEqual(plan.method["name"], "petra")
        self.assertIn(
            "config, epochs: no effect beside plan=, which has them; expected none of them",
            self.said(plan=plan, epochs=2)[1],
        )

    def test_methods_that_keep_nothing_of_reversible_stages(self):
        stages = [Split(5, 8).double(), Coupling(nn.Linear(4, 4)).double(), Join(8, 3).double()]
        for method, given, count in (
            ("petra", None, 1),
            ("petra", stages, 0),
            ("delayed", None, 0),
        ):
            found = self.said(stages=given, method=method)[1]
            self.assertEqual(
                len(
                    [
                        line
                        for line in found
                        if "no stage is reversible, so the stages keep their inputs" in line
                    ]
                ),
                count,
                found,
            )

    def test_options_that_are_refused(self):
        for words, more in (
            ("autocast: is a str; expected torch.bfloat16", {"autocast": "bfloat16"}),
            ("on_epoch: is a dict", {"on_epoch": {}}),
            ("device: meta has no values", {"device": "meta"}),
        ):
            self.refused(words, **more)
        if not torch.cuda.is_available():
            self.refused(
                "device: cuda: ", "expected cpu, or a device of this machine", device="cuda"
            )

    # --- what the log says ---

    def training(self, **options):
        """Returns the attribute `training` of a run as a dictionary, and `optimiser`."""
        folder = self.path(f"log-{len(os.listdir(self.folder))}")
        self.trainer(output=folder, **options).run()
        with h5py.File(os.path.join(folder, "run.h5")) as file:
            lines = file.attrs["training"].split("\n")
            self.assertEqual(lines, sorted(lines, key=lambda line: line.split(": ")[0]))
            return dict(line.split(": ", 1) for line in lines), file.attrs["optimiser"]

    def test_the_log_says_what_trained(self):
        def groups(parameters):
            return torch.optim.AdamW(
                [
                    {"params": parameters[:1]},
                    {"params": parameters[1:], "weight_decay": 0.0, "lr": 3e-3},
                ],
                lr=1e-3,
            )

        def half(one):
            return lr_scheduler.LambdaLR(one, lambda i: 0.5**i)

        def third(one):
            return lr_scheduler.LambdaLR(one, lambda i: 0.3**i)

        W = torch.tensor([1.0, 2.0, 1.0], dtype=WIDE)
        base, words = self.training()
        self.assertEqual(words, "SGD, lr 0.1")
        for name, options in (
            ("first", {}),
            ("second", {}),
            ("third", {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.2)}),
        ):
            stages = network()
            torch.manual_seed(9 if name == "second" else 0)
            self.trainer(
                stages, output=self.path(name), evaluate=batches(1), epochs=1, **options
            ).run()
        points = read_runs(
            [self.path(name) for name in ("first/run.h5", "second/run.h5", "third/run.h5")], 1
        )[0]
        self.assertEqual(sorted(len(point.seeds) for point in points), [1, 2])
        self.assertEqual(self.training()[0], base)
        self.assertEqual(
            {
                name: base[name]
                for name in (
                    "optimiser.1-2.1.lr",
                    "trainer.clip",
                    "trainer.batch",
                    "trainer.scheduler",
                    "trainer.torch_seed",
                )
            },
            {
                "optimiser.1-2.1.lr": "0.1",
                "trainer.clip": "none",
                "trainer.batch": "8",
                "trainer.scheduler": "none",
                "trainer.torch_seed": "0",
            },
        )
        self.assertTrue(all(" at 0x" not in line for line in base.values()))
        found, words = self.training(optimizer=groups, clip=1.0, scheduler=half)
        self.assertEqual(
            words, "AdamW, lr 0.001 to 0.003, weight_decay 0 to 0.01, LambdaLR, clip 1"
        )
        for key, value in (
            ("optimiser.1.1.lr", "0.001"),
            ("optimiser.1.2.lr", "0.003"),
            ("optimiser.1.2.weight_decay", "0.0"),
            ("trainer.clip", "1.0"),
            ("optimiser.2.2.parameters", "1.bias"),
        ):
            self.assertEqual(found[key], value, key)
        others = [
            {"loss": nn.CrossEntropyLoss(ignore_index=255)},
            {"loss": nn.CrossEntropyLoss(W)},
            {"loss": lambda y, t: functional.cross_entropy(y, t)},
            {"loss": lambda y, t: functional.cross_entropy(y, t, W)},
            {"loss": lambda y, t: functional.cross_entropy(y, t, 2 * W)},
            {"clip": 1.0},
            {"clip": 2.0},
            {"autocast": torch.bfloat16},
            {"scheduler": half},
            {"scheduler": third},
            {"scheduler": "config"},
            {"scheduler": "config", "config": {"optim.lr": 0.2}},
            {"optimizer": groups},
            {"evaluate": batches(2)},
            {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)},
            {"optimizer": Averaging},
            {"data": batches(3, 4)},
            {"stages": nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).double()},
            {"data": DataLoader(Numbered(), 8)},
            {"data": DataLoader(Numbered(), 8, shuffle=True)},
            {"data": DataLoader(Numbered(), 8, drop_last=True)},
        ]
        rows = [base, *(self.training(**more)[0] for more in others)]
        without = [
            {key: value for key, value in row.items() if not key.endswith("seed")} for row in rows
        ]
        for i, row in enumerate(without):
            for j in range(i):
                self.assertNotEqual(
                    row, without[j], (others[i - 1], others[j - 1] if j else "the first")
                )
        run = Run(self.path("first"))
        self.assertNotIn("optim.lr", run.settings())
        self.assertEqual(
            (run.settings()["optimiser.1-2.1.lr"], run.settings()["method.name"]),
            ("0.1", "backprop"),
        )
        torch.manual_seed(5)
        other = self.training(
            stages=nn.Sequential(
                nn.Linear(5, 7), nn.Sequential(nn.Tanh(), nn.Linear(7, 3))
            ).double()
        )[0]
        self.assertEqual(
            {key for key in base if base[key] != other[key]},
            {"trainer.torch_seed", "trainer.weights_seed"},
        )


if __name__ == "__main__":
    main()
