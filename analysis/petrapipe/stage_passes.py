# SPDX-License-Identifier: Apache-2.0
"""Passes through the modules of a stage, forward and backward, with any version of their weights.

A version is the content of the parameters: a pass puts the tensors of a version into
`parameter.data` and removes them afterwards. The parameters stay the same objects, so that hooks,
`requires_grad_`, parametrizations and assignments to `parameter.data` have their meaning in
PyTorch. A pass sees empty running statistics, so that a batch norm leaves its batch statistics in
them; the stage moves the real ones once, in the backward. Random numbers of a pass depend only on
the seed, the stage, the module and the microbatch, so that a recomputation draws the same
numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .errors import Error, StageError
from .tensors import Streams, as_tuple, equal, has_gradient, seeded

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Passes:
    """The modules of a stage and their parameters, which hold the tensors `current` between two
    passes. `number` counts from 1. `loss` makes the last module of the last stage end in a
    scalar."""

    def __init__(
        self,
        number: int,
        modules: Sequence[nn.Module],
        device: torch.device,
        seed: int,
        autocast: torch.dtype | None = None,
        loss: Callable | None = None,
    ) -> None:
        self.number, self.modules, self.device = number, list(modules), device
        self.seed, self.autocast, self.loss = seed, autocast, loss
        self.name = "+".join(type(module).__name__ for module in self.modules)
        for module in self.modules:
            module.to(device)
        named: dict[str, nn.Parameter] = {}
        for position, module in enumerate(self.modules):
            for name, parameter in module.named_parameters():
                if nn.parameter.is_lazy(parameter):
                    raise StageError(
                        f"stage {number} ({self.name}): its parameter {name} has no shape yet;"
                        " expected one call of a lazy module before the training"
                    )
                if has_gradient(parameter) and all(
                    parameter is not other for other in named.values()
                ):
                    named[name if len(self.modules) == 1 else f"{position}.{name}"] = parameter
        if not any(parameter.requires_grad for parameter in named.values()):
            raise StageError(
                f"stage {number} ({self.name}): has no parameter that requires a gradient; expected"
                " a stage that learns: join it to a neighbour"
            )
        self.names, self.parameters = list(named), list(named.values())
        places = {id(parameter): place for place, parameter in enumerate(self.parameters)}
        self.places = [
            sorted(
                {
                    places[id(parameter)]
                    for parameter in module.parameters()
                    if id(parameter) in places
                }
            )
            for module in self.modules
        ]
        self.owners = [
            [
                (owner, name, places[id(parameter)])
                for owner in module.modules()
                for name, parameter in owner.named_parameters(recurse=False)
                if id(parameter) in places
            ]
            for module in self.modules
        ]
        self.norms = [
            [
                owner
                for owner in module.modules()
                if isinstance(owner, _BatchNorm) and owner.running_mean is not None
            ]
            for module in self.modules
        ]
        self.reversible = [
            hasattr(module, "inverse") and not (loss and module is self.modules[-1])
            for module in self.modules
        ]
        self.current = [parameter.data for parameter in self.parameters]

    @contextlib.contextmanager
    def holding(
        self, modules: Sequence[int], tensors: list, statistics: list | None
    ) -> Iterator[None]:
        """A context in which the parameters of these modules hold these tensors. If a module gives
        a parameter other data, `tensors` has these data afterwards. Batch norms in training leave
        their statistics in `statistics`."""
        norms = [norm for b in modules for norm in self.norms[b] if norm.training]
        held = [(norm, norm.momentum, dict(norm._buffers)) for norm in norms]
        places = (
            self.places[modules[0]]
            if len(modules) == 1
            else sorted({place for b in modules for place in self.places[b]})
        )
        if tensors is not self.current:
            self._keep_assigned(places)
            for place in places:
                self.parameters[place].data = tensors[place]
        torch.clear_autocast_cache()  # an autocast around the run has copies of other weights
        try:
            for norm in norms:
                norm.momentum = 1.0
                norm._buffers.update(
                    {name: torch.zeros_like(norm._buffers[name]) for name in STATISTICS}
                )
            yield
            calls = [int(norm.num_batches_tracked) for norm in norms]
            if any(count > 1 for count in calls):
                raise self.error(
                    modules[0],
                    "calls a batch norm twice, whose running statistics would be those of the last"
                    " call; expected a batch norm for each call",
                )
            if statistics is not None:
                statistics += [
                    (norm, norm.running_mean.detach(), norm.running_var.detach())
                    for norm, count in zip(norms, calls)
                    if count
                ]
        finally:
            for norm, momentum, buffers in held:
                norm.momentum = momentum
                norm._buffers.update(buffers)
            if tensors is self.current:
                self._keep_assigned(places)
            else:
                for place in places:
                    parameter = self.parameters[place]
                    if parameter.data_ptr() != tensors[place].data_ptr():
                        tensors[place] = parameter.data
                    parameter.data = self.current[place]

    def _keep_assigned(self, places: Iterable[int]) -> None:
        """Makes the content of the parameters the latest weights, also after an assignment to
        `parameter.data`."""
        for place in places:
            if self.parameters[place].data_ptr() != self.current[place].data_ptr():
                self.current[place] = self.parameters[place].data

    @contextlib.contextmanager
    def drawing(self, *numbers: int) -> Iterator[None]:
        """A context in which random numbers depend only on the seed, the stage and these
        numbers."""
        generators = [torch.default_generator]
        if self.device.type == "cuda":
            generators.append(
                torch.cuda.default_generators[
                    self.device.index
                    if self.device.index is not None
                    else torch.cuda.current_device()
                ]
            )
        with seeded(hash((self.seed, self.number, *numbers)), generators):
            yield

    @contextlib.contextmanager
    def seeded(self, b: int, m: int) -> Iterator[None]:
        with self.drawing(b, m):
            with (
                torch.autocast(self.device.type, dtype=self.autocast)
                if self.autocast
                else contextlib.nullcontext()
            ):
                yield

    def call(
        self,
        b: int,
        tensors: list,
        xs: Streams,
        m: int,
        statistics: list | None = None,
        target: Any = None,
    ) -> Streams:
        """Returns the outputs of module b; the last module of the last stage with a target returns
        (loss, its output)."""
        versions = [x._version for x in xs if isinstance(x, torch.Tensor)]
        try:
            with self.holding((b,), tensors, statistics), self.seeded(b, m):
                ys = as_tuple(self.modules[b](*xs))
                if target is not None and b == len(self.modules) - 1:
                    ys = self._with_loss(b, ys, target)
        except StageError:
            raise
        except Exception as error:  # any error of a user's module is one of its stage
            reason = f"{type(error).__name__}: {error}".strip().split("\n")[0]
            if "in-place operation" in reason:
                raise self.error(
                    b,
                    "changes its input or a parameter in place, which PyTorch refuses where"
                    " gradients are computed; expected inplace=False, or a clone",
                ) from error
            shapes = ", ".join(
                str(tuple(x.shape)) if isinstance(x, torch.Tensor) else type(x).__name__ for x in xs
            )
            raise self.error(
                b,
                f"fails on inputs of shape {shapes}: {reason}; expected "
                f"{f'outputs of stage {self.number - 1}' if self.number > 1 else 'inputs'}"
                " that fit",
            ) from error
        if versions != [x._version for x in xs if isinstance(x, torch.Tensor)]:
            raise self.error(
                b, "changes its input in place; expected inplace=False, or a clone of the input"
            )
        if not all(y is None or isinstance(y, torch.Tensor) for y in ys):
            raise self.error(
                b,
                f"returns {', '.join(type(y).__name__ for y in ys)}; expected a tensor or a tuple"
                " of tensors",
            )
        return ys

    def _with_loss(self, b: int, ys: Streams, target: Any) -> Streams:
        try:
            return self.loss(ys[0] if len(ys) == 1 else ys, target), ys[0]
        except Exception as error:
            shapes = " and ".join(
                f"{tuple(t.shape)} of {t.dtype}"
                if isinstance(t, torch.Tensor)
                else type(t).__name__
                for t in (ys[0], target)
            )
            reason = f"{type(error).__name__}: {error}".strip().split("\n")[0]
            raise self.error(
                b,
                f"the loss fails on output and target, {shapes}: {reason}; expected loss(output,"
                " target)",
            ) from error

    def error(self, b: int, text: str) -> StageError:
        module = f"module {b + 1}, " if len(self.modules) > 1 else ""
        return StageError(f"stage {self.number} ({module}{type(self.modules[b]).__name__}): {text}")

    def through(
        self,
        tensors: list,
        xs: Streams,
        m: int,
        statistics: list | None = None,
        target: Any = None,
        keep: Callable[[int, Streams], None] | None = None,
    ) -> Streams:
        """Returns the outputs of all modules, one after the other."""
        for b in range(len(self.modules)):
            if keep:
                keep(b, xs)
            xs = self.call(b, tensors, xs, m, statistics, target)
        return xs

    def differentiate(
        self,
        m: int,
        modules: Sequence[int],
        outputs: Streams,
        dys: Streams,
        leaves: Streams,
        tensors: list,
    ) -> tuple[Streams, list]:
        """Returns the gradients of the leaves and of the parameters, as PyTorch accumulates them:
        hooks on parameters have acted. Meanwhile the parameters hold the tensors, which the graph
        and torch.utils.checkpoint read."""
        pairs = [
            (y, dy)
            for y, dy in zip(outputs, dys)
            if dy is not None and isinstance(y, torch.Tensor) and y.requires_grad
        ]
        inputs = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
        parameters = [(place, self.parameters[place]) for b in modules for place in self.places[b]]
        gradients: list = [None] * len(self.parameters)
        if (
            not pairs
            or not inputs
            and not any(parameter.requires_grad for _, parameter in parameters)
        ):
            return tuple(None for _ in leaves), gradients
        for _, parameter in parameters:
            parameter.grad = None
        try:
            with self.holding(modules, tensors, None), self.drawing(modules[0], m, 1):
                torch.autograd.backward([y for y, _ in pairs], [dy.to(y.dtype) for y, dy in pairs])
            for place, parameter in parameters:
                gradients[place] = parameter.grad
        except Exception as error:  # a hook or a function of the user may raise anything
            if isinstance(error, Error):
                raise
            reason = str(error).strip().split("\n")[0]
            raise StageError(
                f"stage {self.number} ({self.name}): its backward fails: {reason}; expected modules"
                " whose outputs PyTorch can differentiate"
            ) from error
        finally:
            for _, parameter in parameters:
                parameter.grad = None
        return tuple(
            x.grad if isinstance(x, torch.Tensor) and x.requires_grad else None for x in leaves
        ), gradients

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """A context after which the parameters hold the same tensors as before, in the same
        memory."""
        tensors, values = list(self.current), [t.clone() for t in self.current]
        try:
            yield
        finally:
            for parameter, t, value in zip(self.parameters, tensors, values):
                if not equal(t, value):
                    t.copy_(value)
                if parameter.data_ptr() != t.data_ptr():
                    parameter.data = t
            self.current[:] = tensors

    @staticmethod
    def move_statistics(statistics: list) -> None:
        """Moves the running statistics by the statistics of one microbatch."""
        for norm, mean, variance in statistics:
            norm.num_batches_tracked.add_(1)
            share = 1 / int(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
            norm.running_mean.mul_(1 - share).add_(share * mean)
            norm.running_var.mul_(1 - share).add_(share * variance)
