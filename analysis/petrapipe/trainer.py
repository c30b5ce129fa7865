# SPDX-License-Identifier: Apache-2.0
"""Trains any network in PyTorch, cut into stages, in the order and by the rules of a method of
petra.

    stages = [nn.Sequential(...), Coupling(F), Coupling(G), nn.Linear(...)]
    trainer = Trainer(stages, {"method.name": "petra"}, nn.CrossEntropyLoss(), optimizer=lambda
        parameters: torch.optim.SGD(parameters, lr=0.1),
                      data=loader, epochs=3, evaluate=test_loader, output="runs/mine")
    trainer.run()

docs/your-model.md is the guide. All stages are on one device, and one stream of it: the trainer
shows what a method does to gradients, accuracy and memory, not how fast J devices are, which
`petra simulate` computes."""

from __future__ import annotations

import contextlib
import copy
import math
import re
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

import torch
from torch import nn

from . import arguments, facts, mitigations as known, protocols, run_schema
from .checkpoints import Checkpoints
from .configs import read_config
from .errors import Diverged, Error, StageError
from .evaluation import Batches, ObservedLoss, evaluate as run_evaluation, rehearse
from .microbatches import Microbatches, parts_of, samples_of
from .schedule import Plan
from .probe import Probe, Window, figures
from .run_log import RunLog
from .signature import digest_of
from .stage import Stage, Streams, as_tuple, bytes_of, equal
from .stage_checks import check_stage, same_outputs


class Chain(nn.Sequential):
    """Modules one after the other, with tensors or tuples of tensors between them."""

    def forward(self, *xs: torch.Tensor) -> Any:
        for module in self:
            xs = as_tuple(module(*xs))
        return xs[0] if len(xs) == 1 else xs


def cut(model: nn.Sequential, at: Sequence[int] | int) -> list:
    """Returns the stages of a model: `at` are the positions, from 0, of the children that begin a
    stage after the first; or a number of stages, each with about as many children. Within a stage
    every reversible module is alone, and the modules between two of them are one."""
    children = list(model)
    if isinstance(at, int):
        if not 1 <= at <= len(children):
            raise Error(
                f"cut: {at} stages of {len(children)} children; expected 1 to {len(children)}"
                " stages"
            )
        at = [number * len(children) // at for number in range(1, at)]
    bounds = [0, *at, len(children)]
    if sorted(set(bounds)) != bounds:
        raise Error(f"cut: {list(at)}; expected increasing positions from 1 to {len(children) - 1}")
    stages = []
    for first, end in zip(bounds, bounds[1:]):
        groups: list = []
        for child in children[first:end]:
            if hasattr(child, "inverse") or not groups or isinstance(groups[-1], nn.Module):
                groups.append(child if hasattr(child, "inverse") else [child])
            else:
                groups[-1].append(child)
        stages.append(
            [
                group
                if isinstance(group, nn.Module)
                else group[0]
                if len(group) == 1
                else Chain(*group)
                for group in groups
            ]
        )
    return stages


class Trainer:
    """Trains stages by a plan.

    stages: a list with one nn.Module per stage, or a list of modules for a stage whose modules keep
        and invert one by one; or an nn.Sequential, with `cut`. A message between stages is a tensor
        or a tuple of tensors. A module is reversible if it has `inverse(*outputs)` (Coupling).
    config: method, probes and mitigations: the path of a config, YAML text, or a mapping of dotted
    keys ({"method.name": "petra"}), which may be nested. loss: loss(output, target), the mean over
    the microbatch. Top-1 is known if it calls cross_entropy, nll_loss or multi_margin_loss of
    PyTorch. optimizer: called with the list of a stage's parameters; returns a torch optimiser or a
    list of them. Its train() and eval() are called if it has both. data: a DataLoader or another
    iterable that can be read again; a list of microbatches (input, target); or a function from the
    number of a microbatch,
        from 0, to (input, target). Objects with set_epoch receive the number of each epoch.
    microbatches, epochs: the length of the run; `epoch` the number of microbatches of an epoch if
    `data` has no length. evaluate: an iterable of (input, target) for the evaluation at the end of
    an epoch.
    clip: the maximum norm of the gradient of a stage. autocast: a dtype for torch.autocast.
    scheduler: called with each optimiser; returns a learning-rate scheduler, which steps after each
        update (ReduceLROnPlateau: after each epoch, with its loss); or "config" for the rates of
        the config.
    mitigations: Mitigations in addition to those of the config. seed: of the random numbers;
    without it run.seed of the config. output: the folder of the run, with run.h5 and checkpoint.pt.
    checkpoint_every: microbatches between two checkpoints. resume: continue from
        it, also with more epochs or microbatches. overwrite: replace an earlier run in the folder,
            when this one has its first loss.
    A run ends as in petra: without run.drain, lockstep methods end while microbatches are in
    flight, and their last losses are missing. on_epoch: called at the end of an epoch, after its
    evaluation, with its row of `epochs`, a dictionary: epoch, train_loss, eval_loss, eval_top1 and
    others. `training` is what the run depends on, by key, as its log has it (facts.py).
    plan: a Plan instead of that of the config. petra: the path of the program; without it the
    environment variable PETRA, then PATH."""

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
        modules = self._modules(stages, cut)
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
        self.epoch_length = epoch or self.microbatches.length
        self.batch = self._batch()
        unused = (
            []
            if plan is None
            else [
                name
                for name, value in (
                    ("config", config),
                    ("microbatches", microbatches),
                    ("epochs", epochs),
                    ("epoch", epoch),
                )
                if value
            ]
        )
        if unused:
            warnings.warn(
                f"{', '.join(unused)}: no effect beside plan=, which has them; expected"
                f" {'{}' if unused == ['config'] else 'none of them'}",
                stacklevel=2,
            )
        self.plan = plan or self._plan(
            config,
            len(modules),
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
        self.by_config, self.tracing = (
            scheduler == "config",
            self.config.get("run.trace_actions") == "true",
        )
        method = self.plan.method
        self.rules = (method["backward_weights"], method["invert_weights"])
        self._refuse(method)
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
                modules_of,
                method["keep"],
                protocols.making(optimizer, number),
                self.device,
                self.seed,
                autocast,
                self.loss if number == len(modules) else None,
                self._outlives(number),
            )
            for number, modules_of in enumerate(modules, 1)
        ]
        self.shares_frozen = False
        self._check_shared()
        protocols.check_optimizers(self.stages)
        protocols.to_training(self.stages)
        updates = [
            int(((self.plan.kind == "U") & (self.plan.stage == stage.number)).sum())
            for stage in self.stages
        ]
        self.stepping = protocols.Schedulers(
            self.stages, None if self.by_config else scheduler, updates
        )
        self.schedulers = self.stepping.of
        self._warn(config if plan is None else {}, clip)
        wanted = [*known.of_config(self.config), *mitigations]
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
        self.losses: dict[int, float] = {}
        self.epochs: list[dict[str, float]] = []
        self.probes: list[tuple[int, dict]] = []
        self.probe = Probe(self.plan, self._probed)
        self._place_uses()
        self.up: dict[tuple[int, int], Streams] = {}
        self.down: dict[tuple[int, int], tuple[Streams, Streams]] = {}
        self.waiting = [0] * len(self.stages)  # bytes of the messages for each stage
        self.targets: dict[int, Any] = {}
        self.held: dict[tuple[int, int], list] = {}  # gradients that wait for W
        self.snapshots: dict[int, list] = {}
        self.row, self.seconds, self.evaluating = 0, 0.0, 0.0
        self.peaks = [[0] * len(run_schema.CATEGORIES) for _ in self.stages]
        self.totals = [0] * len(self.stages)
        self._count_epochs()
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
        rows = self._prepare()
        if self.evaluation is not None:
            rehearse(self.stages, self.evaluation, self.loss, self.device)
        self._open(rows, resume, overwrite)
        self.microbatches.close()

    # --- set-up ---

    @staticmethod
    def _modules(stages: Any, at: Sequence[int] | int | None) -> list[list[nn.Module]]:
        if isinstance(stages, nn.Sequential):
            stages = cut(stages, range(1, len(stages)) if at is None else at)
        elif at is not None:
            raise Error("cut: expected an nn.Sequential; a list of stages is already cut")
        found = [list(stage) if isinstance(stage, (list, tuple)) else [stage] for stage in stages]
        for number, modules in enumerate(found, 1):
            for module in modules:
                if not isinstance(module, nn.Module):
                    raise StageError(
                        f"stage {number}: is a {type(module).__name__}; expected an nn.Module or a"
                        " list of them"
                    )
        if not found:
            raise Error("stages: an empty list; expected at least one module")
        return found

    def _plan(
        self,
        config: Any,
        stages: int,
        microbatches: int | None,
        epochs: int | None,
        petra: str | None,
        keys: Mapping[str, Any],
    ) -> Plan:
        if microbatches is None:
            if epochs is None or self.epoch_length is None:
                raise Error(
                    "the length of the run is not known; expected microbatches=, or epochs= and"
                    " data with a length (or epoch=)"
                )
            microbatches = epochs * self.epoch_length
        self.epoch_length = self.epoch_length or microbatches
        passes, samples = -(-microbatches // self.epoch_length), self.batch * self.epoch_length
        if passes > run_schema.MAXIMUM_EPOCHS:
            raise Error(
                f"microbatches: {microbatches} are {passes} epochs of {self.epoch_length}; expected"
                f" at most {run_schema.MAXIMUM_EPOCHS} epochs: epoch= makes them longer"
            )
        if self.batch > run_schema.MAXIMUM_BATCH or samples > run_schema.MAXIMUM_SAMPLES:
            raise Error(
                f"data: {self.epoch_length} microbatches of {self.batch} samples in an epoch;"
                f" expected at most {run_schema.MAXIMUM_BATCH} and in all"
                f" {run_schema.MAXIMUM_SAMPLES} samples: epoch= makes it shorter"
            )
        xs, target = self.microbatches.peek(0)
        windows = self._is_windows(xs, target)  # the log counts tokens and not samples
        keys = {
            "data__set": "tokens" if windows else "cifar10",
            **({"model__context": target.shape[1]} if windows else {}),
            **keys,
        }
        try:
            return Plan.of_config(
                config,
                petra=petra,
                cluster__stages=stages,
                run__max_microbatches=microbatches,
                run__epochs=passes,
                data__batch=self.batch,
                data__limit=samples,
                **keys,
            )
        except (
            Error
        ) as error:  # it names arguments of this call, and no keys that the user has not set
            raise Error(
                re.sub(
                    r"^petra: --set ([\w.]+)=",
                    lambda match: (
                        f"{arguments.NAMES[match[1]]}: "
                        if match[1] in arguments.NAMES
                        else match[0]
                    ),
                    str(error),
                )
            ) from None

    def _batch(self) -> int:
        """Returns the samples of a microbatch, whose last one may have fewer."""
        loader = next(
            (one for one in parts_of(self.data)[0] if isinstance(one, torch.utils.data.DataLoader)),
            None,
        )
        xs, target = self.microbatches.peek(0)
        alone = (
            isinstance(target, torch.Tensor) and not target.dim()
        )  # a sample without a dimension for the batch
        return getattr(loader, "batch_size", None) or (1 if alone else max(1, samples_of(xs)))

    @staticmethod
    def _is_windows(xs: Streams, target: Any) -> bool:
        """Returns whether samples are windows of tokens: the input has integers, and a label for
        each."""

        def integers(t: Any) -> bool:
            return (
                isinstance(t, torch.Tensor)
                and t.dim() == 2
                and t.dtype in (torch.int64, torch.int32)
            )

        return (
            integers(target)
            and target.shape[1] > 0
            and any(integers(x) and x.shape == target.shape for x in xs)
        )

    def _warn(self, config: Any, clip: float | None) -> None:
        """Warns of settings without effect, in one line each."""

        def warn(text: str) -> None:
            warnings.warn(text, stacklevel=3)

        without = arguments.without_effect(config, self.by_config, clip)
        if without:
            named = ", ".join(without[:6]) + (
                f" and {len(without) - 6} more" if len(without) > 6 else ""
            )
            warn(
                f"config: {named}: no effect; the network, the optimiser, the data and the length"
                " are those of the call"
            )
        if self.plan.method["keep"] == "nothing" and not any(
            any(stage.reversible) for stage in self.stages
        ):
            warn(
                "no stage is reversible, so the stages keep their inputs and compute again"
                f" (checkpointing), although {self.plan.method['name']} keeps nothing of reversible"
                " stages; expected stages with inverse(), such as Coupling"
            )

    def _refuse(self, method: Mapping[str, Any]) -> None:
        formats = ("cluster.message.up", "cluster.message.down", "method.keep_precision")
        for key, off in (
            ("cluster.replicas", "1"),
            ("data.recalibrate", "0"),
            *((key, "native") for key in formats),
        ):
            if self.config.get(key, off) != off:
                raise Error(f"{key}: not available for networks in PyTorch; expected {off}")
        if (
            int(method.get("sync_period") or 0) > 0
            and self.plan.fused_head
            and method["backward_weights"] == "latest"
        ):
            raise Error(
                "method.sync_period: the last stage reads two kinds of weights in one action;"
                " expected method.head: split"
            )
        plan = self.plan
        key, forward, backward = (
            plan.stage * (plan.microbatches + 1) + plan.microbatch,
            plan.rows("F"),
            plan.rows("B"),
        )
        read = dict(zip(key[forward].tolist(), plan.weights[forward].tolist()))
        if method["keep"] == "graph" and any(
            read.get(one, version) != version
            for one, version in zip(key[backward].tolist(), plan.weights[backward].tolist())
        ):
            raise Error(
                "method.keep: a graph of PyTorch has the weights of its forward, but the backward"
                " of this method reads others; expected method.keep: input, or"
                " method.backward_weights: stashed"
            )

    def _outlives(self, number: int) -> bool:
        """Returns whether an update or another pass comes between the forward and the backward of a
        microbatch of a stage."""
        kinds = self.plan.kind[self.plan.stage == number]
        kinds = kinds[(kinds == "F") | (kinds == "B") | (kinds == "U")]
        return bool(len(self.plan.probes)) or bool(((kinds[:-1] == "F") & (kinds[1:] != "B")).any())

    def _check_shared(self) -> None:
        """Raises StageError if two stages would train a parameter. They may share one that is
        frozen."""
        owners: dict[int, int] = {}
        for stage in self.stages:
            for name, parameter in zip(stage.names, stage.parameters):
                owner = owners.setdefault(id(parameter), stage.number)
                if owner != stage.number and parameter.requires_grad:
                    raise StageError(
                        f"stage {stage.number} ({stage.name}): its parameter {name} is also one of"
                        f" stage {owner}; expected weights of one stage: untie them, or put both"
                        " modules into one stage"
                    )
                if owner != stage.number:
                    self.shares_frozen = True

    def _place_uses(self) -> None:
        """Finds, for each stage and version, the last row that needs it: a pass, an evaluation or a
        probe; the end of the run if a microbatch is still in flight then."""
        self.method_last = self.plan.last_uses()
        self.last = [rows.copy() for rows in self.method_last]
        evaluations = self.plan.rows("E")
        ends = {int(self.plan.microbatch[row]): row for row in evaluations.tolist()}
        uses = [
            (
                (int(self.plan.stage[row]), int(self.plan.weights[row])),
                ends[int(self.plan.microbatch[row])],
            )
            for row in evaluations.tolist()
        ]
        self.evaluation_ends = set(ends.values())
        backwards = set(
            zip(
                self.plan.stage[self.plan.kind == "B"].tolist(),
                self.plan.microbatch[self.plan.kind == "B"].tolist(),
            )
        )
        forwards = self.plan.rows("F")
        uses += [
            ((stage, version), len(self.plan))
            for stage, m, version in zip(
                *(
                    column[forwards].tolist()
                    for column in (self.plan.stage, self.plan.microbatch, self.plan.weights)
                )
            )
            if (stage, m) not in backwards
        ]  # a longer run that continues this one reads them
        for (stage, version), row in [*uses, *self.probe.uses.items()]:
            self.last[stage - 1][version] = max(self.last[stage - 1][version], row)

    def _count_epochs(self) -> None:
        """Counts the losses and the places of evaluations that each epoch will have, also if no
        evaluation is given: the epoch ends there, after its updates. An epoch that the run does not
        complete never has all of them, and no row."""
        plan = self.plan
        complete = plan.microbatches // max(1, plan.epoch_microbatches)
        self.open_epochs: dict[int, dict] = {}
        losing = "B" if plan.fused_head else "F"
        for epoch in plan.epoch[(plan.kind == losing) & (plan.stage == plan.stages)].tolist():
            self.open_epochs.setdefault(
                epoch, {"losses": int(epoch >= complete), "evaluations": 0}
            )["losses"] += 1
        for row in self.evaluation_ends:
            self.open_epochs.setdefault(int(plan.epoch[row]), {"losses": 0, "evaluations": 0})[
                "evaluations"
            ] += 1
        for entry in self.open_epochs.values():
            entry.update(
                sum=0.0, weight=0.0, right=0.0, labels=0.0, samples=0, lr=math.nan, wall_s=0.0
            )

    def _prepare(self) -> list[dict]:
        """Runs every stage once on the first microbatch. Returns the rows of /model/stages."""
        xs, target = self.microbatches.peek(0)
        samples = samples_of(xs) or 1
        rows = []
        for stage, delay in zip(self.stages, self.plan.header["stage"]):
            last = stage.number == len(self.stages)
            streams = bytes_of(
                [x for x in xs if isinstance(x, torch.Tensor) and x.is_floating_point()]
            )
            back = streams + (
                bytes_of(xs)
                if stage.number > 1 and self.stages[stage.number - 2].inverts(-1)
                else 0
            )
            ys, flops = check_stage(stage, xs, 0, target if last else None)
            if any(p.grad is not None for other in self.stages for p in other.parameters):
                raise StageError(
                    f"stage {stage.number} ({stage.name}): gives a gradient to a parameter of"
                    " another stage; expected the parameters of its own modules: join the stages"
                    " that share it"
                )
            if last and (ys[0].dim() or not ys[0].is_floating_point()):
                raise StageError(
                    f"stage {stage.number} ({stage.name}): the loss has shape {tuple(ys[0].shape)};"
                    " expected one number, the mean over the microbatch"
                )
            rows.append(
                {
                    "name": stage.name,
                    "reversible": int(stage.inverts(0)),
                    "parameters": sum(p.numel() for p in stage.parameters if p.requires_grad),
                    "forward_flops": flops // samples,
                    "forward_bytes": 0 if last else bytes_of(ys),
                    "backward_bytes": back if stage.number > 1 else 0,
                    "delay": int(delay["delay_microbatches"] or 0),
                }
            )
            xs = ys
        self._check_apart()
        return rows

    def _check_apart(self) -> None:
        """Raises StageError if a module reads what another one has left in an attribute, because in
        a pipeline that belongs to another microbatch: microbatch 0 passes, then 1, then every
        module computes 0 again, from the last one to the first."""
        calls: list[list[tuple]] = [[], []]
        given = [x for x in self.microbatches.peek(0)[0] if isinstance(x, torch.Tensor)]
        copies = [x.clone() for x in given]
        with torch.no_grad(), contextlib.ExitStack() as stack:
            for stage in self.stages:
                stack.enter_context(stage.unchanged())
            for m in range(min(2, self.plan.microbatches)):
                xs, target = self.microbatches.peek(m)
                if not all(map(equal, given, copies)):
                    raise Error(
                        "data: microbatch 1 changes the tensors of microbatch 0; expected new ones"
                        " for each microbatch"
                    )
                for stage in self.stages:
                    own = target if stage.number == len(self.stages) else None
                    for b in range(len(stage.modules)):
                        before, xs = xs, stage.call(b, stage.current, xs, 0, None, own)
                        calls[m].append((stage, b, before, own, xs))
            for stage, b, xs, own, ys in reversed(calls[0]) if calls[1] else ():
                try:
                    same = same_outputs(stage, ys, stage.call(b, stage.current, xs, 0, None, own))
                except StageError:
                    same = False
                if not same:
                    raise stage.error(
                        b,
                        "computes something else after another microbatch has passed the stages"
                        " below; it reads what another module has left in an attribute, which"
                        " belongs to another microbatch; expected this tensor as an input, as part"
                        " of the messages",
                    )

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
        """Returns descriptions of the network, the optimiser and the data for the log, and what the
        training depends on."""
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
        if self.shares_frozen:  # and perhaps it is frozen no longer
            self._check_shared()
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
            raise Diverged(self._why(m, value))
        epoch, lr, now = (
            int(self.plan.epoch[row]),
            float(next(self.stages[-1].groups())["lr"]),
            time.monotonic() - self.started,
        )
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
        entry = self.open_epochs.get(epoch)
        if not entry:
            return
        entry.update(
            losses=entry["losses"] - 1,
            sum=entry["sum"] + found.weight * value,
            weight=entry["weight"] + found.weight,
            right=entry["right"] + found.right,
            labels=entry["labels"] + found.labels,
            samples=entry["samples"] + samples_of(target),
            lr=lr,
            wall_s=now,
        )
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

    def _why(self, m: int, value: float) -> str:
        for stage in self.stages:
            for name, tensor in zip(stage.names, stage.current):
                if not bool(torch.isfinite(tensor).all()):
                    return (
                        f"microbatch {m}: the loss is {value}: stage {stage.number} ({stage.name})"
                        f" has weights that are not finite ({name}, after {stage.updates} updates);"
                        " expected a lower learning rate, or clip="
                    )
        xs, target = self.microbatches[m]
        with torch.no_grad():
            for stage in self.stages:
                xs = stage.through(
                    stage.current, xs, m, None, target if stage.number == len(self.stages) else None
                )
                if not all(
                    bool(torch.isfinite(x).all())
                    for x in xs
                    if isinstance(x, torch.Tensor) and x.is_floating_point()
                ):
                    return (
                        f"microbatch {m}: the loss is {value}: stage {stage.number} ({stage.name})"
                        " has outputs that are not finite; expected finite inputs, a lower"
                        " learning rate, or clip="
                    )
        return f"microbatch {m}: the loss is {value}; expected a lower learning rate, or clip="

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
        elif row in self.evaluation_ends and int(self.plan.epoch[row]) in self.open_epochs:
            self.open_epochs[int(self.plan.epoch[row])]["evaluations"] -= 1
            self._close_epochs()
        return version

    def _evaluate(self, epoch: int, taken: list) -> None:
        before = time.monotonic()
        found = run_evaluation(self.stages, taken, self.evaluation, self.loss, self.device, epoch)
        entry = self.open_epochs[epoch]
        entry.update(
            evaluations=entry["evaluations"] - 1, wall_s=time.monotonic() - self.started, **found
        )
        self.evaluating += time.monotonic() - before
        self._close_epochs()

    epoch_started = 0.0

    def _close_epochs(self) -> None:
        """Writes the rows of the epochs that have all their losses and evaluations, in order."""
        while self.open_epochs:
            epoch = min(self.open_epochs)
            entry = self.open_epochs[epoch]
            if entry["losses"] or entry["evaluations"]:
                return
            del self.open_epochs[epoch]
            spent = max(1e-9, entry["wall_s"] - self.epoch_started - self.evaluating)
            row = {
                "epoch": epoch,
                "train_loss": entry["sum"] / entry["weight"] if entry["weight"] else math.nan,
                "train_top1": entry["right"] / entry["labels"] if entry["labels"] else math.nan,
                "eval_loss": entry.get("eval_loss", math.nan),
                "eval_top1": entry.get("eval_top1", math.nan),
                "eval_top5": entry.get("eval_top5", math.nan),
                "lr": entry["lr"],
                "wall_s": entry["wall_s"],
                "samples_per_s": entry["samples"] / spent if entry["samples"] else math.nan,
            }
            self.epoch_started, self.evaluating = entry["wall_s"], 0.0
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
        """Puts a message for a stage into a box; _take takes it."""
        box[stage, m] = message
        self.waiting[stage - 1] += bytes_of(message)
        self._measure(self.stages[stage - 1], "")

    def _take(self, box: dict, stage: int, m: int) -> tuple:
        message = box.pop((stage, m))
        self.waiting[stage - 1] -= bytes_of(message)
        return message

    def _measure(self, stage: Stage, kind: str) -> None:
        """Counts what the stage holds in an action, or without one. A version that only a probe or
        an evaluation still reads does not count."""
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
