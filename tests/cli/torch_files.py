# SPDX-License-Identifier: Apache-2.0
"""The files of petrapipe.Trainer: what a checkpoint refuses, damaged and edited files, overwriting,
kills, full disks, and runs that become longer.

PETRA_TEST_KILLS and PETRA_TEST_DISKS: the number of kills and full disks. PETRA_TEST_DAMAGE: the
number of flipped bits in each file."""

import copy
import functools
import gc
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings

from program import PETRA, ProgramTest, main
from torch_case import Join, Split

# isort: split
import torch
from torch import nn
from torch.optim import lr_scheduler

from petrapipe import (
    Coupling,
    Error,
    Mitigation,
    Trainer,
    plain_file,
)

CPU = torch.device("cpu")
DELAYS = {"method.mitigation.error_feedback": True}


class Stop(Exception):
    pass


def branch(p):
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(p), nn.Tanh())


def network(seed=0, p=0.1):
    torch.manual_seed(seed)
    return [Split(6, 16), Coupling(branch(p)), Coupling(branch(p)), Join(16, 4)]


def microbatch(m, at=None, seconds=0.0, seed=0):
    if at is not None and m >= at:
        raise Stop
    time.sleep(seconds)
    generator = torch.Generator().manual_seed(1000 * seed + m)
    x = torch.randn(8, 6, generator=generator)
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()


def sgd(parameters, lr=0.05, **more):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, **more)


def make(
    output=None, method="petra", stages=None, at=None, config=None, seconds=0.0, seed=0, **more
):
    options = {
        "microbatches": 24,
        "epoch": 8,
        "optimizer": sgd,
        "evaluate": [microbatch(1000)],
        "petra": PETRA,
        "data": functools.partial(microbatch, at=at, seconds=seconds, seed=seed),
        **more,
    }
    return Trainer(
        stages or network(seed),
        {"method.name": method, "method.accumulate": 2, "probe.per_epoch": 1, **(config or {})},
        options.pop("loss", None) or nn.CrossEntropyLoss(),
        output=output,
        **options,
    )


def numbers(trainer):
    """All that a run computes, as bytes."""
    weights = [
        t.detach().clone().numpy().tobytes()
        for stage in trainer.stages
        for module in stage.modules
        for t in module.state_dict().values()
    ]
    rows = [
        [row[key] for key in ("epoch", "train_loss", "train_top1", "eval_loss", "eval_top1", "lr")]
        for row in trainer.epochs
    ]
    probes = [
        (first, {key: value.tobytes() for key, value in figures.items()})
        for first, figures in trainer.probes
    ]
    return weights, sorted(trainer.losses.items()), repr(rows), probes


class Files(ProgramTest):
    def setUp(self):
        super().setUp()
        self.run_folder, self.checkpoint, self.log = (
            self.path("run"),
            self.path("run/checkpoint.pt"),
            self.path("run/run.h5"),
        )

    def line(self, function, *words):
        """The function raises an Error of one line with these words."""
        with self.assertRaises(Error) as caught, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function()
        message = str(caught.exception)
        print(message)
        gc.collect()  # a trainer that does not run keeps its folder
        self.assertEqual(len(message.splitlines()), 1)
        for word in words:
            self.assertIn(word, message)
        return message

    def stopped(self, at=15, output=None, **options):
        """A run that an exception ends after its checkpoint at the 8th loss."""
        gc.collect()
        trainer = make(
            output or self.run_folder,
            at=at,
            **{"checkpoint_every": 8, "overwrite": True, **options},
        )
        self.assertRaises(Stop, trainer.run)
        return trainer

    def resumed(self, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(self.run_folder, resume=True, **{"checkpoint_every": 8, **options}).run()

    def test_what_a_checkpoint_compares(self):
        """An argument that changes the numbers of a run is refused, in words that say what
        differs."""

        def step(gamma):
            return lambda optimizer: lr_scheduler.StepLR(optimizer, 4, gamma)

        def groups(rate):
            return lambda parameters: torch.optim.SGD(
                [{"params": parameters[:1]}, {"params": parameters[1:], "lr": rate}], lr=0.05
            )

        def cosine(optimizer):
            return lr_scheduler.CosineAnnealingLR(optimizer, 18)

        class Scaled(Mitigation):
            def __init__(self, factor):
                self.factor = factor

            def rate(self, update, delay):
                return self.factor

        weight, plain, stepped, last = torch.ones(4), {}, {"scheduler": step(0.5)}, None
        for was, now, *words in (
            (stepped, {"scheduler": None}, "the scheduler of stage 1 is none, and was StepLR"),
            (plain, {"scheduler": step(0.5)}, "the scheduler of stage 1 is StepLR, and was none"),
            (stepped, {"scheduler": step(0.25)}, "gamma is 0.25, and was 0.5"),
            (stepped, {"scheduler": cosine}, "is CosineAnnealingLR, and was StepLR"),
            (
                {"optimizer": groups(0.1)},
                {"optimizer": groups(0.2)},
                "parameter group 1: lr is 0.2, and was 0.1",
            ),
            (
                plain,
                {"optimizer": functools.partial(sgd, weight_decay=0.1)},
                "the optimiser of stage 1: weight_decay is 0.1, and was 0",
            ),
            (
                plain,
                {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)},
                "loss: label_smoothing is 0.1, and was 0.0",
            ),
            (plain, {"loss": nn.CrossEntropyLoss(weight=2 * weight)}, "loss: weight is a tensor"),
            (
                plain,
                {"loss": nn.functional.cross_entropy},
                "loss is cross_entropy, and was CrossEntropyLoss",
            ),
            (
                {"mitigations": [Scaled(0.5)]},
                {"mitigations": [Scaled(0.25)]},
                "factor is 0.25, and was 0.5",
            ),
            (plain, {"data": functools.partial(microbatch, seed=5)}, "data: microbatch 0 is"),
            (
                {"data": [microbatch(m) for m in range(8)], "epoch": None},
                {"data": microbatch, "epoch": 8},
                "data is",
            ),
            (plain, {"evaluate": None}, "evaluate is NoneType, and was list"),
            (plain, {"stages": network(p=0.2)}, "stage 2, module 0.function.2 is Dropout"),
            (
                plain,
                {"config": {"method.mitigation.lr_rescheduling": 5}},
                "config: method.mitigation.lr_rescheduling is 5, and was 0",
            ),
        ):
            if was is not last:
                trainer = make(
                    self.run_folder, checkpoint_every=8, overwrite=True, **{"at": 15, **was}
                )
                trainer.run() if "data" in was else self.assertRaises(Stop, trainer.run)
                last = was
            with self.subTest(words=words):
                self.line(lambda: make(self.run_folder, resume=True, **{**was, **now}), *words)
        for options in (
            {"scheduler": lambda one: lr_scheduler.OneCycleLR(one, 0.1, total_steps=20)},
            {"optimizer": torch.optim.Adam, "config": DELAYS, "method": "delayed"},
        ):
            whole = numbers(make(**options).run())
            self.stopped(**options)
            self.assertEqual(numbers(self.resumed(**options)), whole, options)

    def test_other_code_is_said(self):
        def with_code(number):
            return lambda optimizer: lr_scheduler.LambdaLR(
                optimizer, (lambda e: 0.9**e) if number else (lambda e: 0.8**e)
            )

        self.stopped(scheduler=with_code(0))
        with self.assertWarnsRegex(
            UserWarning, "the code of the scheduler of stage 1.*is not that of its run"
        ):
            make(self.run_folder, resume=True, scheduler=with_code(1))

    def test_objects_are_refused_before_the_first_update(self):
        class Keeps(Mitigation):
            def __init__(self):
                self.history = {"first": [Target()]}

        class Target:
            values = microbatch(0)[1]

        self.line(
            lambda: make(self.run_folder, checkpoint_every=8, mitigations=[Keeps()]),
            "stage 1: mitigation Keeps['history']['first'][0]: is a __main__.Files.",
        )
        self.line(
            lambda: make(
                self.run_folder,
                checkpoint_every=8,
                evaluate=None,
                data=lambda m: (microbatch(m)[0], Target()),
                loss=lambda y, target: nn.functional.cross_entropy(y, target.values),
            ),
            "data: the target of microbatch 0: is a",
            "Target",
        )
        make(self.run_folder, mitigations=[Keeps()])
        self.line(make().save, "checkpoint: needs a folder")

    def test_an_earlier_run(self):
        """overwrite=True keeps an earlier run until the first loss, and then nothing of it; what a
        kill leaves in between is refused."""
        self.stopped()
        earlier = self.read("run/run.h5"), self.read("run/checkpoint.pt")
        self.line(
            lambda: make(self.run_folder),
            "run.h5: exists; expected another output, overwrite=True, or resume=True",
        )
        make(self.run_folder, overwrite=True)
        gc.collect()
        self.stopped(at=2, checkpoint_every=100)
        self.assertEqual((self.read("run/run.h5"), self.read("run/checkpoint.pt")), earlier)
        shutil.copytree(self.run_folder, self.path("earlier"))
        self.stopped(at=10, seed=2, checkpoint_every=100)
        self.assertEqual(os.listdir(self.run_folder), ["run.h5"])
        self.line(lambda: self.resumed(seed=2), "checkpoint.pt: cannot be read: No such file")
        shutil.copy(self.path("earlier/checkpoint.pt"), self.run_folder)
        self.line(lambda: self.resumed(seed=2), "checkpoint.pt: belongs to another run than")
        self.line(lambda: self.resumed(), "checkpoint.pt: belongs to another run than")
        os.unlink(self.log)
        self.line(lambda: make(self.run_folder), "checkpoint.pt: exists; expected another output")
        self.assertEqual(numbers(self.resumed()), numbers(make().run()))

    def test_flipped_bits(self):
        """A flipped bit in the checkpoint is refused; one in the log is reported, and the
        checkpoint has its rows."""
        whole = numbers(make().run())
        self.stopped()
        count = int(os.environ.get("PETRA_TEST_DAMAGE", "8"))
        plan, chosen = make().plan, random.Random(1)
        shutil.copytree(self.run_folder, self.path("before"))
        size = os.path.getsize(self.checkpoint)
        for bit in [0, 8 * size - 1, *(chosen.randrange(8 * size) for _ in range(count))]:
            self.flip("before/checkpoint.pt", "run/checkpoint.pt", bit)
            self.line(
                lambda: make(self.run_folder, resume=True, plan=plan),
                "checkpoint.pt: cannot be read: it ",
            )
        size = os.path.getsize(self.log)
        for bit in [0, 8 * size - 1, *(chosen.randrange(8 * size) for _ in range(count))]:
            shutil.copytree(self.path("before"), self.run_folder, dirs_exist_ok=True)
            self.flip("before/run.h5", "run/run.h5", bit)
            with self.assertWarnsRegex(UserWarning, r"run\.h5: .*; the log in .* replaces it"):
                trainer = make(self.run_folder, resume=True, plan=plan).run()
            self.assertEqual(numbers(trainer), whole)
        self.assertEqual(self.good_json("list", "run")["runs"][0]["state"], "complete")

    def flip(self, source, target, bit):
        content = bytearray(self.read(source))
        content[bit // 8] ^= 1 << bit % 8
        self.write(target, bytes(content))

    def test_edited_files(self):
        """No code of a checkpoint runs, and one whose content was changed on purpose, with a right
        digest, is refused in one line."""
        self.stopped(config={"run.trace_actions": True})
        options = {
            "config": {"run.trace_actions": True},
            "plan": make(config={"run.trace_actions": True}).plan,
        }

        class Evil:
            def __reduce__(self):
                return os.mkdir, (evil,)

        evil = self.path("evil")
        content = plain_file.read(self.checkpoint, CPU, "a checkpoint")
        for write in (
            lambda file: torch.save({"version": 1, "x": Evil()}, file),
            lambda file: pickle.dump(Evil(), file),
        ):
            with open(self.checkpoint, "wb") as file:
                write(file)
            self.line(
                lambda: make(self.run_folder, resume=True, **options),
                "cannot be read: it does not begin as a file of this version",
            )
        self.assertFalse(os.path.exists(evil))
        changes = [(lambda state, name=name: state.pop(name)) for name in content]
        changes += [
            (lambda state, name=name: state.__setitem__(name, value))
            for name in content
            for value in (None, "text")
            if name != "evaluating"
            and name
            not in ("seconds", "epoch_started", "probes", "epochs", "peaks", "totals", "waiting")
        ]
        changes += [
            (lambda state, name=name: state["stages"][1].pop(name)) for name in content["stages"][1]
        ]
        changes += [
            lambda state: state["stages"][0]["parameters"].__setitem__(0, torch.zeros(3)),
            lambda state: state["stages"].pop(),
            lambda state: state["stages"][1].__setitem__("updates", 7),
            lambda state: state["up"].clear(),
            lambda state: state["targets"].clear(),
            lambda state: state["stages"][1]["kept"].clear(),
            lambda state: state["log"]["rows"]["train"].pop("loss"),
            lambda state: state.__setitem__("row", 10**9),
            lambda state: state.__setitem__("row", -1),
        ]
        for change in (
            changes
            if "PETRA_TEST_DAMAGE" in os.environ
            else random.Random(int(time.time())).sample(changes, 15)
        ):
            changed = copy.deepcopy(content)
            change(changed)
            with open(self.checkpoint, "wb") as file:
                file.writelines(plain_file.packed(changed, "a checkpoint"))
            with self.subTest(change=change.__code__.co_firstlineno, name=change.__defaults__):
                self.line(lambda: make(self.run_folder, resume=True, **options))
        for value in ([], {"a": 1}, [[]] * 3):
            with open(self.checkpoint, "wb") as file:
                file.writelines(plain_file.packed(value, "a value"))
            self.line(
                lambda: make(self.run_folder, resume=True, **options),
                "is no checkpoint of this version",
            )

    def worker(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-B", os.path.abspath(__file__), "worker", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_kills(self):
        """A run that is killed at any moment continues to the same bits, or has no checkpoint yet;
        its log can always be read."""
        began, chosen = time.monotonic(), random.Random(int(time.time()))
        whole = numbers(make(checkpoint_every=1, output=self.path("whole"), seconds=0.01).run())
        took = time.monotonic() - began
        for _ in range(int(os.environ.get("PETRA_TEST_KILLS", "2"))):
            shutil.rmtree(self.run_folder, ignore_errors=True)
            process = self.worker(self.run_folder, 0.01)
            process.stdout.readline()
            time.sleep(chosen.uniform(0, 1.2 * took))
            process.kill()
            self.assertIn(process.wait(), (-signal.SIGKILL, 0))
            print("killed with", sorted(os.listdir(self.run_folder)))
            self.good("inspect", "run")
            if os.path.exists(self.checkpoint):
                self.assertEqual(numbers(self.resumed(checkpoint_every=1)), whole)
            else:
                self.line(lambda: self.resumed(checkpoint_every=1), "cannot be read: No such file")
            process.communicate()

    def test_full_disks(self):
        """A run that finds no room ends with one line and no signal; it continues when there is
        room."""
        whole = numbers(make().run())
        make(self.run_folder, checkpoint_every=1).run()
        sizes = [os.path.getsize(path) for path in (self.log, self.checkpoint)]
        chosen = random.Random(int(time.time()))
        for i in range(int(os.environ.get("PETRA_TEST_DISKS", "1"))):
            shutil.rmtree(self.run_folder, ignore_errors=True)
            limit = chosen.randrange(1000, max(sizes)) if i else min(sizes) + 200
            process = self.worker(self.run_folder, 0, limit)
            error = process.communicate()[1]
            print(limit, process.returncode, error, sorted(os.listdir(self.run_folder)))
            self.assertEqual((process.returncode, len(error.splitlines())), (1, 1))
            self.assertIn("cannot be written: ", error)
            self.assertEqual([name for name in os.listdir(self.run_folder) if "tmp" in name], [])
            if os.path.exists(self.checkpoint):
                self.assertEqual(numbers(self.resumed(checkpoint_every=1)), whole)

    def test_no_room_at_the_end(self):
        """The last write of the log fails: the run can be continued."""
        trainer = make(self.run_folder, checkpoint_every=8)
        close = trainer.log.close
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

        def without_room(complete):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
            try:
                close(complete)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        trainer.log.close = without_room
        self.line(trainer.run, "run.h5: cannot be written: File too large")
        self.assertEqual(self.good_json("list", "run")["runs"][0]["state"], "stopped")
        self.assertEqual(numbers(self.resumed()), numbers(make().run()))
        self.assertEqual(self.good_json("list", "run")["runs"][0]["state"], "complete")

    def test_a_checkpoint_at_every_loss(self):
        """A run continues to the same bits from each of its checkpoints."""
        for method in ("petra", "1f1b"):
            folder = self.path(method)
            shutil.rmtree(self.run_folder, ignore_errors=True)
            trainer = make(folder, method=method, checkpoint_every=1)
            save, places = trainer.save, []

            def saved(save=save, places=places, folder=folder):
                save()
                places.append(f"{folder}-{len(places)}")
                os.mkdir(places[-1])
                shutil.copy(f"{folder}/checkpoint.pt", places[-1])

            trainer.save = saved
            whole = numbers(trainer.run())
            self.assertGreater(len(places), 15)
            for place in places[:: 1 if "PETRA_TEST_DAMAGE" in os.environ else 4]:
                self.run_folder = place
                again = self.resumed(method=method, plan=trainer.plan)
                self.assertEqual(numbers(again), whole, place)

    def test_longer_runs(self):
        """A run that has ended or was stopped becomes longer, to the bits of a run that was so long
        from the beginning; if it cannot, a line says so."""
        longer = 0
        cases = [(method, "auto", (21, 45)) for method in ("petra", "1f1b", "delayed")] + [
            ("petra", "true", (24, 40)),
            ("gpipe", "auto", (24, 40)),
        ]
        for method, drain, (first, second) in cases:
            options = {"method": method, "config": {"run.drain": drain}}
            shutil.rmtree(self.run_folder, ignore_errors=True)
            make(self.run_folder, microbatches=first, checkpoint_every=5, **options).run()
            try:
                found = numbers(self.resumed(microbatches=second, checkpoint_every=5, **options))
            except Error as error:
                print(method, drain, first, second, error)
                continue
            longer += 1
            self.assertEqual(
                found,
                numbers(make(microbatches=second, **options).run()),
                (method, drain, first, second),
            )
            self.assertEqual(self.good_json("inspect", "run")["microbatches"], len(found[1]))
        print(longer, "of", len(cases), "runs have become longer")
        self.assertGreater(longer, 3)
        loader = torch.utils.data.DataLoader(
            [tuple(part[i] for part in microbatch(m)) for m in range(4) for i in range(8)],
            8,
            shuffle=True,
        )
        options = {
            "data": loader,
            "epoch": None,
            "microbatches": None,
            "config": {"probe.per_epoch": 0},
        }
        make(self.path("epochs"), epochs=2, checkpoint_every=3, **options).run()
        self.run_folder = self.path("epochs")
        self.assertEqual(
            numbers(self.resumed(epochs=5, **options)), numbers(make(epochs=5, **options).run())
        )
        self.line(
            lambda: self.resumed(epochs=1, **options), "which are not the first ones of this run"
        )


def work(folder, seconds, limit="0"):
    """A run in a process of its own, with a limit of the size of files."""
    trainer = make(folder, seconds=float(seconds), checkpoint_every=1) if limit == "0" else None
    print("begun", flush=True)
    if int(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    try:
        (trainer or make(folder, checkpoint_every=1)).run()
    except Error as error:
        print(error, file=sys.stderr)
        sys.exit(error.status)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(*sys.argv[2:])
    else:
        main()
