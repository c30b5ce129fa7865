# SPDX-License-Identifier: Apache-2.0
"""Trains any network in PyTorch, cut into stages, in the order and by the rules of a method of
petra.

    stages = [nn.Sequential(...), Coupling(F), Coupling(G), nn.Linear(...)]
    trainer = Trainer(
        stages,
        {"method.name": "petra"},
        nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        data=loader,
        epochs=3,
        evaluate=test_loader,
        output="runs/mine",
    )
    trainer.run()

docs/your-model.md is the guide. All stages are on one device, and one stream of it: the trainer
shows what a method does to gradients, accuracy and memory, not how fast J devices are, which
`petra simulate` computes."""

from __future__ import annotations

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from . import arguments, facts, mitigations as known, protocols, run_schema, stage_checks
from .chain import modules_of
from .checkpoints import Checkpoints
from .configs import read_config
from .epoch_rows import EpochRows
from .errors import Diverged, Error, StageError
from .evaluation import Batches, ObservedLoss, evaluate as run_evaluation, rehearse
from .microbatches import Microbatches, samples_of
from .probe import Probe, Window, figures
from .run_log import RunLog
from .schedule import Plan
from .signature import digest_of
from .stage import Stage
from .tensors import Streams, bytes_of


class Trainer:
    """Trains stages by a plan.

    stages: a list with one nn.Module per stage, or a list of modules for a stage whose modules keep
        and invert one by one; or an nn.Sequential, with `cut`. A message between stages is a tensor
        or a tuple of tensors. A module is reversible if it has `inverse(*outputs)` (Coupling).
    config: method, probes and mitigations: the path of a config, YAML text, or a mapping of dotted
        keys ({"method.name": "petra"}), which may be nested.
    loss: loss(output, target), the mean over the microbatch. Top-1 is known if it calls
        cross_entropy, nll_loss or multi_margin_loss of PyTorch.
    optimizer: called with the list of a stage's parameters; returns a torch optimiser or a list of
        them. Its train() and eval() are called if it has both.
    data: a DataLoader or another iterable that can be read again; a list of microbatches (input,
        target); or a function from the number of a microbatch, from 0, to (input, target). Objects
        with set_epoch receive the number of each epoch.
    microbatches, epochs: the length of the run; `epoch` the number of microbatches of an epoch if
        `data` has no length.
    evaluate: an iterable of (input, target) for the evaluation at the end of an epoch.
    clip: the maximum norm of the gradient of a stage.
    autocast: a dtype for torch.autocast.
    scheduler: called with each optimiser; returns a learning-rate scheduler, which steps after each
        update (ReduceLROnPlateau: after each epoch, with its loss); or "config" for the rates of
        the config.
    mitigations: Mitigations in addition to those of the config.
    seed: of the random numbers; without it run.seed of the config.
    output: the folder of the run, with run.h5 and checkpoint.pt.
    checkpoint_every: microbatches between two checkpoints.
    resume: continue from the checkpoint, also with more epochs or microbatches.
    overwrite: replace an earlier run in the folder, when this one has its first loss.
    on_epoch: called at the end of an epoch, after its evaluation, with its row of `epochs`, a
        dictionary: epoch, train_loss, eval_loss, eval_top1 and others.
    plan: a Plan instead of that of the config.
    petra: the path of the program; without it the environment variable PETRA, the program of
        this package, or PATH.

    A run ends as in petra: without run.drain, lockstep methods end while microbatches are in
    flight, and their last losses are missing. `training` contains the facts on which the run
    depends, by key, as in its log (facts.py)."""

    def __init__(
        self,
        stages: Sequence | nn.Sequential,
        config: str | Mapping[str, Any],
        loss: Callable,
        *,
        optimizer: Callable,
        data: Any,
        microbatches: int | None = None,
        epochs: int | None = None,
        epoch: int | None = None,
        evaluate: Iterable | None = None,
        cut: Sequence[int] | int | None = None,
        device: str | torch.device = "cpu",
        output: str | None = None,
        clip: float | None = None,
        autocast: torch.dtype | None = None,
        scheduler: Callable | str | None = None,
        mitigations: Sequence[known.Mitigation] = (),
        seed: int | None = None,
        plan: Plan | None = None,
        petra: str | None = None,
        checkpoint_every: int = 0,
        resume: bool = False,
        overwrite: bool = False,
        on_epoch: Callable[[dict], None] | None = None,
    ) -> None:
        arguments.check_types(
            stages,
            config,
            loss,
            optimizer,
            data,
            evaluate,
            scheduler,
            mitigations,
            plan,
            clip,
            autocast,
            on_epoch,
        )
        arguments.check_integers(
            {"microbatches": 1, "epochs": 1, "epoch": 1, "seed": 0, "checkpoint_every": 0}, locals()
        )
        self.data, self.output, self.clip = data, output, clip
        self.checkpoint_every, self.on_epoch, self.ended = checkpoint_every, on_epoch, False
        if checkpoint_every and not output:
            raise Error("checkpoint_every: a checkpoint needs a folder; expected output=")
        self.device = arguments.device_of(device)
        modules = modules_of(stages, cut)
        if isinstance(loss, nn.Module) and any(
            p.requires_grad for p in loss.to(self.device).parameters()
        ):
            raise Error(
                "loss: has parameters, which no optimiser would have; expected them in the last"
                " stage"
            )
        if autocast is torch.float16:
            raise Error(
                "autocast: gradients in float16 need a scale of the loss, which the trainer lacks;"
                " expected torch.bfloat16"
            )
        self.microbatches = Microbatches(data, self.device, 1 if seed is None else seed, epoch)
        self.batch = arguments.batch_of(data, self.microbatches)
        if plan is not None:
            arguments.warn_beside_plan(
                config=config, microbatches=microbatches, epochs=epochs, epoch=epoch
            )
        self.plan = plan or arguments.plan_of(
            config,
            len(modules),
            self.microbatches,
            self.batch,
            epoch or self.microbatches.length,
            microbatches,
            epochs,
            petra,
            {} if seed is None else {"run__seed": seed},
        )
        if self.plan.stages != len(modules):
            raise Error(
                f"the plan has {self.plan.stages} stages; expected {len(modules)}, one per stage of"
                " the network"
            )
        self.config = read_config(self.plan.config)
        self.seed = self.microbatches.seed = (
            int(self.config.get("run.seed", 1)) if seed is None else seed
        )
        self.evaluation = None if evaluate is None else Batches(evaluate, self.seed)
        if clip is None:
            self.clip = float(self.config.get("optim.clip", 0)) or None
        self.by_config = scheduler == "config"
        self.tracing = self.config.get("run.trace_actions") == "true"
        method = self.plan.method
        self.rules = (method["backward_weights"], method["invert_weights"])
        arguments.refuse(self.plan, self.config)
        if not len(self.plan.rows("U")):
            warnings.warn(
                f"no stage makes an update: method.accumulate is {self.plan.accumulate}, and the"
                f" run has {self.plan.microbatches} microbatches",
                stacklevel=2,
            )
        self.loss = ObservedLoss(loss)
        self.stages = [
            Stage(
                number,
                own,
                method["keep"],
                protocols.making(optimizer, number),
                self.device,
                self.seed,
                autocast,
                self.loss if number == len(modules) else None,
                self.plan.outlives(number),
            )
            for number, own in enumerate(modules, 1)
        ]
        self.shares_frozen = stage_checks.check_shared(self.stages)
        protocols.check_optimizers(self.stages)
        protocols.to_training(self.stages)
        updates = [
            int(((self.plan.kind == "U") & (self.plan.stage == stage.number)).sum())
            for stage in self.stages
        ]
        called = scheduler if callable(scheduler) else None
        self.stepping = protocols.Schedulers(self.stages, called, updates)
        self.schedulers = self.stepping.of
        arguments.warn_of(
            config if plan is None else {}, self.plan, self.stages, self.by_config, clip
        )
        self._mitigate([*known.of_config(self.config), *mitigations])
        self.losses: dict[int, float] = {}
        self.epochs: list[dict[str, float]] = []
        self.probes: list[tuple[int, dict]] = []
        self.probe = Probe(self.plan, self._probed)
        self.method_last = self.plan.last_uses()
        self.last = self.plan.last_needs(self.probe.uses)
        self.evaluation_ends = set(self.plan.evaluation_ends().values())
        self.sums = EpochRows(self.plan)
        self.up: dict[tuple[int, int], Streams] = {}
        self.down: dict[tuple[int, int], tuple[Streams, Streams]] = {}
        self.waiting = [0] * len(self.stages)  # bytes of the messages for each stage
        self.targets: dict[int, Any] = {}
        self.held: dict[tuple[int, int], list] = {}  # gradients that wait for W
        self.snapshots: dict[int, list] = {}
        self.row, self.seconds = 0, 0.0
        self.peaks = [[0] * len(run_schema.CATEGORIES) for _ in self.stages]
        self.totals = [0] * len(self.stages)
        self.training = facts.training_facts(
            self.stages,
            self.schedulers,
            self.config,
            self.by_config,
            {
                "loss": loss,
                "clip": self.clip,
                "autocast": autocast,
                "batch": self.batch,
                "data": facts.data_facts(data, self.batch),
                "evaluate": "none" if evaluate is None else facts.data_facts(evaluate, self.batch),
                "mitigations": list(mitigations),
                "seed": self.seed,
                "device": self.device.type,
            },
        )
        self.log: RunLog | None = None
        rows = stage_checks.try_stages(self.stages, self.plan, self.microbatches)
        if self.evaluation is not None:
            rehearse(self.stages, self.evaluation, self.loss, self.device)
        self._open(rows, resume, overwrite)
        self.microbatches.close()

    def _mitigate(self, wanted: Sequence[known.Mitigation]) -> None:
        """Gives every stage a copy of each mitigation."""
        method = self.plan.method
        if wanted and any(map(math.isnan, self.plan.delays)):
            raise Error(
                f"mitigations: the delay of {method['name']} with this config is not fixed;"
                " expected a method with a fixed delay"
            )
        if "latest" not in self.rules and any(
            known.overrides(mitigation, "correct") for mitigation in wanted
        ):
            raise Error(
                "mitigations: a correction changes the latest weights, which no backward of"
                f" {method['name']} reads; expected another method"
            )
        for stage, delay in zip(self.stages, self.plan.delays):
            stage.delay = delay
            for mitigation in wanted:
                own = copy.deepcopy(mitigation)
                own.stage, own.stages = stage.number, self.plan.stages
                stage.mitigations.append(own)

    def _open(self, rows: list[dict], resume: bool, overwrite: bool) -> None:
        self.checkpoints: Checkpoints | None = None
        if not self.output:
            if resume:
                raise Error("resume: expected output=, the folder of the run")
            return
        self.checkpoints = Checkpoints(self)
        names = [
            (f"{stage.number:02d}/{name}", stage.number, 0)
            for stage in self.stages
            for name in stage.names
        ]
        self.log = RunLog(
            self.output,
            self.plan,
            self.seed,
            rows,
            f"PyTorch {torch.__version__} on {self.device}",
            f"PyTorch {torch.__version__}",
            "petrapipe.Trainer",
            names if self.plan.probes else None,
            self.tracing,
            overwrite,
            **self._in_words(),
            state=self.checkpoints.restore() if resume else None,
        )

    def _in_words(self) -> dict[str, str]:
        """Returns descriptions of the network, the optimiser and the data for the log, and the
        facts on which the training depends."""
        rates = self.plan.learning_rate[self.plan.rows("U")].tolist() if self.by_config else None
        names = {type(one).__name__: None for some in self.schedulers for one in some}
        more = [*names, *([f"clip {self.clip:g}"] if self.clip else [])]
        return {
            "network": facts.network_in_words(self.stages),
            "optimiser": facts.optimiser_in_words(self.stages, rates, more),
            "data": facts.data_in_words(self.data, self.batch),
            "training": facts.lines_of(
                {
                    **self.training,
                    "trainer.weights_seed": facts.weights_digest(self.stages),
                    "trainer.data_seed": digest_of(self.microbatches.peek(0)),
                }
            ),
        }

    # --- the run ---

    def run(self) -> Trainer:
        """Performs the rows of the plan from the current one to the end. Raises Diverged at a loss
        that is not finite, and StageError for a module that cannot be trained. A trainer runs
        once."""
        if self.ended:
            raise Error(
                "run: this run has ended; expected a new Trainer, with resume=True to continue from"
                " its checkpoint"
            )
        self.started = time.monotonic() - self.seconds
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        perform = {
            "F": self._forward,
            "B": self._backward,
            "W": self._weight_gradient,
            "U": self._update,
            "E": self._snapshot,
        }
        plan, reported = self.plan, len(self.losses)
        try:
            while self.row < len(plan):
                row = self.row
                number, m = int(plan.stage[row]), int(plan.microbatch[row])
                stage, kind = self.stages[number - 1], str(plan.kind[row])
                version = perform[kind](row, stage, m)
                if self.log and self.tracing:
                    self.log.action(
                        int(plan.start_ns[row]),
                        int(plan.end_ns[row]),
                        number,
                        run_schema.KINDS.index(kind),
                        m,
                        version,
                        stage.updates if kind == "U" else -1,
                    )
                self.probe.after(row, self.stages)
                for old in [old for old in stage.versions if self.last[number - 1][old] <= row]:
                    del stage.versions[old]
                self._measure(stage, kind)
                self.row += 1
                if (
                    self.checkpoint_every
                    and len(self.losses) >= reported + self.checkpoint_every
                    and self.checkpoints.due
                ):
                    reported, self.seconds = len(self.losses), time.monotonic() - self.started
                    self.save()
            self._finish(True)
            protocols.to_evaluation(self.stages)
        except BaseException:
            if not self.ended:
                with contextlib.suppress(Error):  # the first error is the one to report
                    self._finish(False)
            raise
        return self

    def _forward(self, row: int, stage: Stage, m: int) -> int:
        version, last = int(self.plan.weights[row]), stage.number == len(self.stages)
        xs = self._inputs(stage, m)
        target = self.targets.pop(m) if last else None
        self.probe.forwarded(stage, m, xs, target if last else self.targets.get(m))
        self.loss.watch()
        ys = stage.forward(m, xs, version, target)
        if last:
            self._loss(row, m, ys, target)
        else:
            self._post(self.up, stage.number + 1, m, ys)
        return version

    def _inputs(self, stage: Stage, m: int) -> Streams:
        if stage.number > 1:
            return self._take(self.up, stage.number, m)
        xs, self.targets[m] = self.microbatches[m]
        return xs

    def _backward(self, row: int, stage: Stage, m: int) -> int:
        version, last = int(self.plan.weights[row]), stage.number == len(self.stages)
        if last and self.plan.fused_head:
            xs = self._inputs(stage, m)
            target = self.targets.pop(m)
            self.probe.forwarded(stage, m, xs, target)
            self.loss.watch()
            losses, xs, dxs, gradients = stage.head(m, xs, version, target)
            self._loss(row, m, losses, target)
        else:
            ys, dys = (
                ((), (torch.ones((), device=self.device),))
                if last
                else self._take(self.down, stage.number, m)
            )
            inverse = int(self.plan.inverse_weights[row])
            xs, dxs, gradients = stage.backward(
                m, ys, dys, version, None if inverse < 0 else inverse, self.rules
            )
            self.probe.backwarded(stage, m, xs)
        if stage.number > 1:
            self._post(
                self.down,
                stage.number - 1,
                m,
                (xs if self.stages[stage.number - 2].inverts(-1) else (), dxs),
            )
        if self.plan.method["split_backward"]:
            self.held[stage.number, m] = gradients
        else:
            stage.count(gradients, self.plan.accumulate)
        return version

    def _weight_gradient(self, row: int, stage: Stage, m: int) -> int:
        stage.count(self.held.pop((stage.number, m)), self.plan.accumulate)
        return stage.updates

    def _update(self, row: int, stage: Stage, m: int) -> int:
        if self.shares_frozen:  # and perhaps it is no longer frozen
            self.shares_frozen = stage_checks.check_shared(self.stages)
        self.probe.updating(stage, m)
        keep = bool(self.last[stage.number - 1][stage.updates] > row)
        rate = float(self.plan.learning_rate[row]) if self.by_config else None
        try:
            stage.update(
                keep, self.clip, rate, self.plan.warmup_microbatches // self.plan.accumulate
            )
        except Error:
            raise
        except Exception as error:  # an optimiser or a mitigation of the user
            raise StageError(
                f"stage {stage.number} ({stage.name}): update {stage.updates + 1} fails:"
                f" {protocols.reason_of(error)}; expected an optimiser that needs the gradients"
                " alone"
            ) from error
        self.stepping.step(stage)
        return stage.updates - 1

    def _loss(self, row: int, m: int, losses: Streams, target: Any) -> None:
        found, value = self.loss.counts(target), float(losses[0])
        self.losses[m] = value if found.weight else math.nan  # no label counts
        if not math.isfinite(value):
            raise Diverged(stage_checks.why_not_finite(self.stages, self.microbatches, m, value))
        epoch, now = int(self.plan.epoch[row]), time.monotonic() - self.started
        lr = float(next(self.stages[-1].groups())["lr"])
        if self.by_config:
            lr = self._rate_of(m, lr)
        if self.log and found.weight:
            self.log.train(
                microbatch=m,
                epoch=m // max(1, self.plan.epoch_microbatches),
                lr=lr,
                loss=value,
                top1=found.top1,
                wall_s=now,
                virtual_s=1e-9 * int(self.plan.start_ns[row]),
            )
        if self.sums.add_loss(epoch, value, found, samples_of(target), lr, now):
            self._close_epochs()

    def _rate_of(self, m: int, other: float) -> float:
        """Returns the rate of the config for the next update of the last stage."""
        if not hasattr(self, "_rates"):
            rows = [
                row
                for row in self.plan.rows("U").tolist()
                if self.plan.stage[row] == self.plan.stages
            ]
            self._rates = [
                (int(self.plan.microbatch[row]), float(self.plan.learning_rate[row]))
                for row in rows
            ]
        k = self.plan.accumulate
        return self._rates[m // k][1] if m // k < len(self._rates) else other

    def _probed(self, window: Window) -> None:
        found = figures(window, self.stages)
        self.probes.append((window.first, found))
        if self.log:
            self.log.probe(
                window.first, window.first // max(1, self.plan.epoch_microbatches), found
            )

    # --- evaluation ---

    def _snapshot(self, row: int, stage: Stage, m: int) -> int:
        version = int(self.plan.weights[row])
        if self.evaluation is not None:
            taken = self.snapshots.setdefault(m, [None] * len(self.stages))
            taken[stage.number - 1] = (
                version,
                [buffer.clone() for buffer in stage.buffers()],
                protocols.evaluation_weights(stage),
            )
            if row in self.evaluation_ends:
                self._evaluate(int(self.plan.epoch[row]), self.snapshots.pop(m))
        elif row in self.evaluation_ends and int(self.plan.epoch[row]) in self.sums.open:
            self.sums.open[int(self.plan.epoch[row])]["evaluations"] -= 1
            self._close_epochs()
        return version

    def _evaluate(self, epoch: int, taken: list) -> None:
        before = time.monotonic()
        found = run_evaluation(self.stages, taken, self.evaluation, self.loss, self.device, epoch)
        now = time.monotonic()
        self.sums.add_evaluation(epoch, found, now - before, now - self.started)
        self._close_epochs()

    def _close_epochs(self) -> None:
        for row in self.sums.complete():
            self.epochs.append(row)
            self.stepping.end_epoch(
                row["train_loss"] if self.evaluation is None else row["eval_loss"]
            )
            if self.log:
                self.log.epoch(**row)
            if self.on_epoch:
                self.on_epoch(row)

    # --- memory ---

    def _post(self, box: dict, stage: int, m: int, message: tuple) -> None:
        """Puts a message for a stage into a box; _take removes it."""
        box[stage, m] = message
        self.waiting[stage - 1] += bytes_of(message)
        self._measure(self.stages[stage - 1], "")

    def _take(self, box: dict, stage: int, m: int) -> tuple:
        message = box.pop((stage, m))
        self.waiting[stage - 1] -= bytes_of(message)
        return message

    def _measure(self, stage: Stage, kind: str) -> None:
        """Counts the bytes that the stage holds during an action, or without an action. A version
        that only a probe or an evaluation still reads does not count."""
        j = stage.number - 1
        older = sum(1 for version in stage.versions if self.method_last[j][version] > self.row)
        now = [
            *stage.held(kind, older, sum(1 for number, _ in self.held if number == stage.number)),
            self.waiting[j],
            0,
        ]
        self.peaks[j] = list(map(max, self.peaks[j], now))
        self.totals[j] = max(self.totals[j], sum(now))

    def _finish(self, complete: bool) -> None:
        self.seconds, self.ended = time.monotonic() - self.started, True
        self.microbatches.close()
        if self.log:
            self.log.memory(self.peaks, self.totals)
            if self.device.type == "cuda":
                self.log.backend_memory(torch.cuda.max_memory_allocated(self.device))
            self.log.close(complete)

    # --- checkpoints ---

    @property
    def checkpoint(self) -> str:
        return self._checkpoints().path

    def save(self) -> None:
        """Writes checkpoint.pt, from which a run with resume=True continues to the same bits on the
        same machine."""
        self._checkpoints().save()

    def _checkpoints(self) -> Checkpoints:
        if not self.checkpoints:
            raise Error("checkpoint: needs a folder; expected output=")
        return self.checkpoints
