# SPDX-License-Identifier: Apache-2.0
"""One stage: a list of modules, the versions of its weights, what it keeps of the microbatches in
flight, its optimiser.

A version is what the parameters hold: a pass puts the tensors of a version into `parameter.data`
and takes them out again. The parameters stay the same objects, so that hooks, `requires_grad_`,
parametrizations and assignments to `parameter.data` have their meaning in PyTorch. A pass sees
empty running statistics, so that a batch norm leaves its batch statistics in them; the stage moves
the real ones once, in the backward. Random numbers of a pass depend only on the seed, the stage,
the module and the microbatch, so that a recomputation draws the same ones."""

from __future__ import annotations

import contextlib
import copy
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .coupling import Coupling
from .errors import Error, StageError
from .mitigations import Mitigation, overrides

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
Streams = tuple  # tensors between stages; None stands for a gradient that does not exist


def as_tuple(values: Any) -> Streams:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (Mapping, tuple, list, deque)):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from tensors_in(value)


def bytes_of(values: Any) -> int:
    """Returns the bytes of a tensor, or of all tensors in nested containers; those of the same
    elements count once."""
    found = {}
    for t in tensors_in(values):
        size = t.numel() * t.element_size()
        found[id(t) if t.layout != torch.strided else (t.data_ptr(), size)] = size
    return sum(found.values())


def detached(tensors: Streams) -> Streams:
    return tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in tensors)


def has_gradient(tensor: Any) -> bool:
    """Returns whether a tensor is of a type that has gradients."""
    return isinstance(tensor, torch.Tensor) and (tensor.is_floating_point() or tensor.is_complex())


def leaf(tensor: Any) -> Any:
    """Returns a tensor that shares the values and begins a graph of its own."""
    return (
        tensor.detach().requires_grad_(has_gradient(tensor))
        if isinstance(tensor, torch.Tensor)
        else tensor
    )


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether two tensors hold the same values; a NaN equals a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all()) if has_gradient(a) else torch.equal(a, b)


def memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Returns the address and the bytes of the memory that a tensor shares with its views."""
    if tensor.layout != torch.strided:
        return id(tensor), bytes_of(tensor)
    storage = getattr(tensor, "untyped_storage", tensor.storage)()
    return storage.data_ptr(), storage.nbytes()


@contextlib.contextmanager
def seeded(
    seed: int, generators: Sequence[torch.Generator] = (torch.default_generator,)
) -> Iterator[None]:
    """Within it these generators, random and numpy.random draw from a seed; afterwards they
    continue as if nothing had been drawn. (torch.manual_seed also queues a call for GPUs that no
    one has used yet, with the stack of each.)"""
    states, python, arrays = (
        [generator.get_state() for generator in generators],
        random.getstate(),
        numpy.random.get_state(),
    )
    try:
        for generator in generators:
            generator.manual_seed(seed & (2**63 - 1))
        random.seed(seed)
        numpy.random.seed(seed & (2**32 - 1))
        yield
    finally:
        random.setstate(python)
        numpy.random.set_state(arrays)
        for generator, state in zip(generators, states):
            generator.set_state(state)


@dataclass
class Version:
    """The weights after some number of updates: `theta`, those that updates change, and `read`,
    those that forwards read (a prediction)."""

    theta: list
    read: list


@dataclass
class Kept:
    """What a stage keeps of a microbatch between F and B."""

    version: int
    inputs: dict = field(default_factory=dict)  # number of the module -> its inputs
    graph: tuple | None = None  # (leaves of the inputs, weights, outputs)
    statistics: list = field(default_factory=list)  # of the pass that made the graph
    target: Any = None  # of the last stage
    bytes: int = 0  # of the inputs


def is_plain(module: nn.Module) -> bool:
    """Returns whether a module is a Coupling that can be evaluated through its function alone:
    nothing else would see a call."""
    if not isinstance(module, Coupling) or (type(module).forward, type(module).inverse) != (
        Coupling.forward,
        Coupling.inverse,
    ):
        return False
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    every = [getattr(nn.modules.module, f"_global{name}", {}) for name in hooks]
    return "forward" not in vars(module) and not any(
        [*every, *(getattr(module, name, {}) for name in hooks)]
    )


class Stage:
    """`number` counts from 1. `loss` makes the last module of the last stage end in a scalar.
    `outlived`: an update or another pass may come between the forward and the backward of a kept
    graph."""

    def __init__(
        self,
        number: int,
        modules: Sequence[nn.Module],
        keep: str,
        optimizer: Callable,
        device: torch.device,
        seed: int,
        autocast: torch.dtype | None = None,
        loss: Callable | None = None,
        outlived: bool = False,
    ) -> None:
        self.outlived = outlived
        self.number, self.modules, self.keep, self.device, self.seed, self.autocast, self.loss = (
            number,
            list(modules),
            keep,
            device,
            seed,
            autocast,
            loss,
        )
        self.name = "+".join(type(module).__name__ for module in self.modules)
        for module in self.modules:
            module.to(device)
        named = {}
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
        for parameter in self.parameters:
            parameter.grad = None
        made = optimizer(self.parameters)
        self.optimizers = list(made) if isinstance(made, (list, tuple)) else [made]
        if not self.optimizers or not all(
            isinstance(one, torch.optim.Optimizer) for one in self.optimizers
        ):
            raise StageError(
                f"stage {number} ({self.name}): optimizer= returns a {type(made).__name__};"
                " expected an optimiser of torch, or a list of them"
            )
        for group in self.groups():
            group.setdefault("initial_lr", group.get("lr"))
        self.mitigations: list[Mitigation] = []
        self.delay = 0.0
        self.updates, self.counted = 0, 0
        self.sum: list = [None] * len(self.parameters)
        self.versions: dict[int, Version] = {}
        self.kept: dict[int, Kept] = {}
        self.corrected: list | None = None
        self.graph_bytes = self._momentum_bytes = 0
        self._refresh()
        self._weight_bytes, self._buffer_bytes = bytes_of(self.current), bytes_of(self.buffers())
        self._learning_bytes = bytes_of([p for p in self.parameters if p.requires_grad])

    # --- weights ---

    def groups(self) -> Iterator[dict]:
        return (group for one in self.optimizers for group in one.param_groups)

    def _refresh(self) -> None:
        """The parameters share their memory with `current` until an update gives them another."""
        self.current = [parameter.data for parameter in self.parameters]
        self.read = self.current

    def weights(self, version: int, rule: str = "stashed") -> list:
        """Returns the tensors of a version: with the rule `latest` what updates change, corrected
        if a mitigation says so; `theta` the same without the correction; otherwise those that
        forwards read."""
        if version == self.updates:
            found = Version(self.current, self.read)
        else:
            found = self.versions[version]
        if rule == "latest" and self.corrected is not None:
            return self.corrected
        return found.theta if rule in ("latest", "theta") else found.read

    def named(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, tensors))

    # --- a pass through one module ---

    @contextlib.contextmanager
    def holding(
        self, modules: Sequence[int], tensors: list, statistics: list | None
    ) -> Iterator[None]:
        """The parameters of these modules hold these tensors. If a module gives a parameter other
        data, `tensors` has these data afterwards. Batch norms in training leave their statistics in
        `statistics`."""
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
        """The latest weights are what the parameters hold, also after an assignment to
        `parameter.data`."""
        for place in places:
            if self.parameters[place].data_ptr() != self.current[place].data_ptr():
                self.current[place] = self.parameters[place].data

    @contextlib.contextmanager
    def drawing(self, *numbers: int) -> Iterator[None]:
        """Within it random numbers depend only on the seed, the stage and these numbers."""
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
        tensors: Sequence[torch.Tensor],
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
        tensors: Sequence[torch.Tensor],
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

    # --- actions ---

    def forward(self, m: int, xs: Streams, version: int, target: Any = None) -> Streams:
        """F. Returns the outputs without a graph; with a target (loss, output)."""
        tensors = self.weights(version)
        kept = self.kept[m] = Kept(version, target=target)
        if self.keep == "graph":
            self._graph(kept, m, xs, tensors)
            return detached(kept.graph[2])
        with torch.no_grad():
            ys = self.through(
                tensors,
                xs,
                m,
                None,
                target,
                lambda b, xs: None if self.inverts(b) else kept.inputs.__setitem__(b, xs),
            )
        kept.bytes = bytes_of(kept.inputs)
        return ys

    def inverts(self, b: int) -> bool:
        return self.keep == "nothing" and self.reversible[b]

    def _graph(self, kept: Kept, m: int, xs: Streams, tensors: Sequence[torch.Tensor]) -> None:
        kept.inputs[0], kept.bytes = xs, bytes_of(xs)
        leaves = tuple(map(leaf, xs)) if self.number > 1 else detached(xs)
        own = set(map(memory_of, tensors))
        with torch.enable_grad(), self._saving(own):
            kept.graph = (
                leaves,
                tensors,
                self.through(tensors, leaves, m, kept.statistics, kept.target),
            )
        own.update(map(memory_of, tensors))  # a forward may have given parameters other data

    def _saving(self, own: set) -> Any:
        """Within it a graph keeps the values of parameters, not the parameters, if an update or
        another pass may come before its backward. A change in place would otherwise count as a
        change of tensors that the graph has saved. `own`: the memory of the parameters of the
        graph."""
        if not self.outlived:
            return contextlib.nullcontext()

        def unpack(saved: tuple) -> torch.Tensor:
            tensor, version = saved
            if tensor._version != version and memory_of(tensor) not in own:
                raise RuntimeError(
                    "a tensor that the backward needs has been modified by an in-place operation"
                )
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(lambda t: (t, t._version), unpack)

    def backward(
        self,
        m: int,
        ys: Streams,
        dys: Streams,
        version: int,
        inverse: int | None,
        rules: tuple[str, str],
    ) -> tuple[Streams, Streams, list]:
        """B. `ys` are the outputs as the stage above knows them, `dys` their gradients; `rules` say
        which weights B and its inversion read. Returns the inputs, kept or reconstructed, their
        gradients, and the gradients of the parameters."""
        kept = self.kept.pop(m)
        if kept.graph:
            leaves, tensors, outputs = kept.graph
            outputs = outputs[:1] if kept.target is not None else outputs
            dxs, gradients = self.differentiate(
                m, range(len(self.modules)), outputs, dys, leaves, tensors
            )
            self.move_statistics(kept.statistics)
            return detached(leaves), dxs, gradients
        tensors = self.weights(version, rules[0])
        inverting = (
            tensors
            if inverse is None or inverse == version and rules[0] == rules[1]
            else self.weights(inverse, rules[1])
        )
        gradients: list = [None] * len(self.parameters)
        statistics: list = []
        for b in reversed(range(len(self.modules))):
            xs = kept.inputs.get(b)
            xs, dys, found = self._through_back(
                b, m, xs, ys, dys, tensors, inverting, statistics, kept.target
            )
            gradients = [
                g if f is None else f if g is None else g + f for g, f in zip(gradients, found)
            ]
            ys = xs
        self.move_statistics(statistics)
        return ys, dys, gradients

    def _through_back(
        self,
        b: int,
        m: int,
        xs: Streams | None,
        ys: Streams,
        dys: Streams,
        tensors: list,
        inverting: list,
        statistics: list,
        target: Any,
    ) -> tuple[Streams, Streams, list]:
        module = self.modules[b]
        with torch.enable_grad():
            if (
                xs is None and inverting is tensors and is_plain(module)
            ):  # one evaluation of F for both
                with self.holding((b,), tensors, statistics), self.seeded(b, m):
                    x1 = leaf(ys[1])
                    f = module.function(x1)
                    x2 = leaf(module._solve(x1, ys[0], f).detach())
                    leaves, outputs = (x1, x2), (module._combine(x1, x2, f), x1)
            else:
                if xs is None:
                    with torch.no_grad(), self.holding((b,), inverting, None), self.seeded(b, m):
                        xs = as_tuple(module.inverse(*ys))
                first = self.number == 1 and b == 0
                leaves = detached(xs) if first else tuple(map(leaf, xs))
                outputs = self.call(b, tensors, leaves, m, statistics, target)
                outputs = (
                    outputs[:1] if target is not None and b == len(self.modules) - 1 else outputs
                )
        dxs, gradients = self.differentiate(m, (b,), outputs, dys, leaves, tensors)
        return detached(leaves), dxs, gradients

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

    def reference(self, m: int, xs: Streams, tensors: list, target: Any = None) -> Kept:
        """Returns the graph of a pass with these weights, which changes nothing of the stage."""
        kept = Kept(0, target=target)
        self._graph(kept, m, xs, [t.clone() for t in tensors])  # a forward may set its weights
        return kept

    def reference_gradients(self, m: int, kept: Kept, dys: Streams) -> tuple[Streams, list]:
        """Returns the gradients of the inputs and of the parameters. `dys`: the gradients of the
        outputs, or of the loss alone."""
        leaves, tensors, outputs = kept.graph
        return self.differentiate(
            m, range(len(self.modules)), outputs[: len(dys)], dys, leaves, tensors
        )

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Afterwards the parameters hold what they held before, in the same memory."""
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

    def head(
        self, m: int, xs: Streams, version: int, target: Any
    ) -> tuple[Streams, Streams, Streams, list]:
        """F, loss and B in one action. Returns (loss, output), the inputs, their gradients and the
        gradients of the parameters."""
        kept = Kept(version, target=target)
        self._graph(kept, m, xs, self.weights(version))
        leaves, tensors, outputs = kept.graph
        dxs, gradients = self.differentiate(
            m,
            range(len(self.modules)),
            outputs[:1],
            (torch.ones_like(outputs[0]),),
            leaves,
            tensors,
        )
        self.move_statistics(kept.statistics)
        return detached(outputs), xs, dxs, gradients

    @staticmethod
    def move_statistics(statistics: list) -> None:
        """Moves the running statistics by those of one microbatch."""
        for norm, mean, variance in statistics:
            norm.num_batches_tracked.add_(1)
            share = 1 / int(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
            norm.running_mean.mul_(1 - share).add_(share * mean)
            norm.running_var.mul_(1 - share).add_(share * variance)

    def count(self, gradients: list, accumulate: int) -> None:
        """Adds the gradients of one microbatch to those of the next update."""
        for place, g in enumerate(gradients):
            if g is not None:
                share = g if accumulate == 1 else g / accumulate
                self.sum[place] = share if self.sum[place] is None else self.sum[place] + share
        self.counted += 1

    def update(self, keep_old: bool, clip: float | None, rate: float | None, first: int) -> None:
        """U. `keep_old`: something will still read the weights before it. `rate`: the learning rate
        of the config, if it rules. Mitigations begin with update number `first`."""
        if keep_old:
            self.versions[self.updates] = Version(self.current, self.read)
            for parameter, g in zip(self.parameters, self.sum):
                if g is not None or parameter.requires_grad:
                    parameter.data = parameter.data.clone()
            self._refresh()
        self.check_owners()
        self._keep_assigned(range(len(self.parameters)))
        active = self.mitigations if self.delay > 0 and self.updates >= first else []
        gradients = self.sum
        if clip is not None and any(g is not None for g in gradients):
            gradients = self._clipped(gradients, clip)
        for mitigation in active:
            if overrides(mitigation, "gradient"):
                given = {name: g for name, g in self.named(gradients).items() if g is not None}
                found = mitigation.gradient(given, self.delay)
                self._complete(mitigation, "gradient", found, list(given))
                gradients = [found.get(name) for name in self.names]
        for parameter, g in zip(self.parameters, gradients):
            parameter.grad = None if g is None else g.to(parameter.dtype)
        factor = 1.0
        for mitigation in active:
            factor *= mitigation.rate(self.updates - first, self.delay)
        rates = [group["lr"] for group in self.groups()]
        if rate is not None:
            base = next(self.groups())["initial_lr"]
            rates = [
                rate * (group["initial_lr"] / base if base else 1.0) for group in self.groups()
            ]
        for group, value in zip(self.groups(), rates):
            group["lr"] = factor * value
        before = [t.clone() for t in self.current] if active else None
        for one in self.optimizers:
            one.step()
        self.current[:] = [
            parameter.data for parameter in self.parameters
        ]  # an optimiser may replace them
        velocity = (
            self._velocity()
            if any(mitigation.velocity == "momentum" for mitigation in active)
            else {}
        )
        for group, value in zip(self.groups(), rates):
            group["lr"] = value
        for parameter in self.parameters:
            parameter.grad = None
        self.updates, self.counted, self.sum = self.updates + 1, 0, [None] * len(self.parameters)
        if active:
            self._mitigate(active, before, velocity)

    def check_owners(self) -> None:
        """Raises StageError if a module has another parameter than at the beginning."""
        for b, owners in enumerate(self.owners):
            for owner, name, place in owners:
                if getattr(owner, name, None) is not self.parameters[place]:
                    raise self.error(
                        b,
                        f"has another object as its parameter {name} than at the beginning, which"
                        " no optimiser has; expected new values in parameter.data",
                    )

    @staticmethod
    def _clipped(gradients: list, clip: float) -> list:
        norm = torch.stack([g.norm() for g in gradients if g is not None]).norm()
        share = torch.clamp(clip / (norm + 1e-6), max=1.0)
        return [None if g is None else g * share for g in gradients]

    def _velocity(self) -> dict[str, torch.Tensor]:
        """Minus the learning rate times the momentum of SGD."""
        found = {}
        for one in self.optimizers:
            for group in one.param_groups:
                if not isinstance(one, torch.optim.SGD) or not group["momentum"]:
                    raise StageError(
                        f"stage {self.number}: {type(one).__name__} lacks the momentum that a"
                        " prediction by momentum needs; expected torch.optim.SGD with momentum, or"
                        " a prediction by the last change"
                    )
                for parameter in group["params"]:
                    buffer = one.state.get(parameter, {}).get("momentum_buffer")
                    if buffer is not None:  # it has had a gradient
                        found[id(parameter)] = -group["lr"] * buffer
        return {
            name: found[id(p)] if id(p) in found else torch.zeros_like(p)
            for name, p in zip(self.names, self.parameters)
        }

    def _complete(
        self,
        mitigation: Mitigation,
        function: str,
        tensors: Any,
        wanted: Sequence[str] | None = None,
    ) -> None:
        missing = [
            name
            for name in wanted or self.names
            if not isinstance(tensors, dict) or name not in tensors
        ]
        if missing:
            raise Error(
                f"mitigations: {type(mitigation).__name__}.{function} returns nothing for"
                f" {missing[0]} of stage {self.number}; expected a dictionary with all names that"
                " it received"
            )

    def _mitigate(self, active: list[Mitigation], before: list, momentum: dict) -> None:
        change = {name: now - old for name, now, old in zip(self.names, self.current, before)}
        for mitigation in active:
            if overrides(mitigation, "stepped"):
                stepped = mitigation.stepped(self.named(self.current), change, self.delay)
                self._complete(mitigation, "stepped", stepped)
                for name, now in self.named(self.current).items():
                    now.copy_(stepped[name])
        if any(overrides(mitigation, "stepped") for mitigation in active):
            change = {name: now - old for name, now, old in zip(self.names, self.current, before)}
        for name, attribute in (("predict", "read"), ("correct", "corrected")):
            tensors = self.named(self.current)
            for mitigation in active:
                if overrides(mitigation, name):
                    writes = [t._version for t in self.current]
                    tensors = getattr(mitigation, name)(
                        tensors,
                        momentum if mitigation.velocity == "momentum" else change,
                        self.delay,
                    )
                    if writes != [t._version for t in self.current]:
                        raise Error(
                            f"mitigations: {type(mitigation).__name__}.{name} changes weights in"
                            " place; expected new tensors"
                        )
                    self._complete(mitigation, name, tensors)
            if any(overrides(mitigation, name) for mitigation in active):
                setattr(self, attribute, [tensors[key].detach() for key in self.names])

    # --- evaluation and checkpoints ---

    def held(self, kind: str, versions: int, waiting: int) -> list[int]:
        """Returns the bytes that the stage holds in an action of this kind, or without one:
        parameters, gradients, momentum, statistics, inputs, further weights, graphs (in a B also
        its own). `versions`: older ones. `waiting`: gradients that wait for W."""
        if kind == "U":
            self._momentum_bytes = bytes_of(
                [
                    [one.state for one in self.optimizers],
                    [mitigation.__dict__ for mitigation in self.mitigations],
                ]
            )
        weights, kept = self._weight_bytes, self.kept.values()
        adds = kind == "W" or kind == "B" and not waiting
        gradients = waiting + min(self.counted, 1 + adds)  # a sum, and the one that was added to it
        further = versions + (self.read is not self.current) + (self.corrected is not None)
        graphs = self.graph_bytes * (kind == "B") + sum(
            self.graph_bytes + one.bytes for one in kept if one.graph
        )
        learning = self._learning_bytes
        return [
            weights,
            learning * gradients,
            self._momentum_bytes,
            self._buffer_bytes,
            sum(one.bytes for one in kept if not one.graph),
            learning * further,
            graphs,
        ]

    def buffers(self) -> list[torch.Tensor]:
        return [buffer for module in self.modules for buffer in module.buffers()]

    def frozen(self) -> list[torch.Tensor]:
        return [
            parameter.data
            for module in self.modules
            for parameter in module.parameters()
            if not has_gradient(parameter)
        ]

    def state(self) -> dict:
        return {
            "parameters": [p.data for p in self.parameters],
            "buffers": self.buffers() + self.frozen(),
            "requires_grad": [p.requires_grad for p in self.parameters],
            "optimizers": [one.state_dict() for one in self.optimizers],
            "mitigations": [mitigation.__dict__ for mitigation in self.mitigations],
            "updates": self.updates,
            "counted": self.counted,
            "sum": self.sum,
            "versions": {number: (v.theta, v.read) for number, v in self.versions.items()},
            "read": None if self.read is self.current else self.read,
            "corrected": self.corrected,
            "kept": {
                m: (kept.version, kept.inputs, kept.graph is not None, kept.target)
                for m, kept in self.kept.items()
            },
            "graph_bytes": self.graph_bytes,
            "momentum_bytes": self._momentum_bytes,
        }

    def restore(self, state: dict) -> None:
        for parameter, value in zip(self.parameters, state["parameters"]):
            parameter.data = value.to(self.device).clone()
        for parameter, learns in zip(self.parameters, state["requires_grad"]):
            parameter.requires_grad_(learns)
        for buffer, value in zip(self.buffers() + self.frozen(), state["buffers"]):
            buffer.copy_(value)
        for one, saved in zip(self.optimizers, state["optimizers"]):
            one.load_state_dict(copy.deepcopy(saved))
        for mitigation, saved in zip(self.mitigations, state["mitigations"]):
            mitigation.__dict__.update(saved)
        self.updates, self.counted, self.sum = state["updates"], state["counted"], state["sum"]
        self.versions = {
            number: Version(theta, read) for number, (theta, read) in state["versions"].items()
        }
        self._refresh()
        self.read, self.corrected = state["read"] or self.current, state["corrected"]
        self.graph_bytes, self._momentum_bytes = state["graph_bytes"], state["momentum_bytes"]
        for m, (version, inputs, graph, target) in state["kept"].items():
            kept = self.kept[m] = Kept(version, inputs, target=target, bytes=bytes_of(inputs))
            if graph:
                self._graph(kept, m, inputs[0], self.weights(version))
