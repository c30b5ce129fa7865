# SPDX-License-Identifier: Apache-2.0
"""One stage: the data that it keeps of the microbatches in flight, its actions F and B, and its
state.

Its passes with any version of the weights are in stage_passes.py, and the versions and updates of
its weights in stage_weights.py."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .coupling import Coupling
from .stage_weights import Version, Weights
from .tensors import Streams, as_tuple, bytes_of, detached, has_gradient, leaf, memory_of


@dataclass
class Kept:
    """The data of a microbatch that a stage keeps between F and B."""

    version: int
    inputs: dict = field(default_factory=dict)  # number of the module -> its inputs
    graph: tuple | None = None  # (leaves of the inputs, weights, outputs)
    statistics: list = field(default_factory=list)  # of the pass that made the graph
    target: Any = None  # of the last stage
    bytes: int = 0  # of the inputs


def is_plain(module: nn.Module) -> bool:
    """Returns whether a module is a Coupling that can be evaluated through its function alone,
    because nothing else would notice a call."""
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


class Stage(Weights):
    """A stage of a pipeline. `keep` states what it keeps of a microbatch between F and B.
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
        super().__init__(number, modules, optimizer, device, seed, autocast, loss)
        self.keep, self.outlived = keep, outlived
        self.kept: dict[int, Kept] = {}
        self.graph_bytes = self._momentum_bytes = 0
        self._weight_bytes, self._buffer_bytes = bytes_of(self.current), bytes_of(self.buffers())
        self._learning_bytes = bytes_of([p for p in self.parameters if p.requires_grad])

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

    def _graph(self, kept: Kept, m: int, xs: Streams, tensors: list) -> None:
        kept.inputs[0], kept.bytes = xs, bytes_of(xs)
        leaves = tuple(map(leaf, xs)) if self.number > 1 else detached(xs)
        own = set(map(memory_of, tensors))
        with torch.enable_grad(), self._saving(own):
            kept.graph = (
                leaves,
                tensors,
                self.through(tensors, leaves, m, kept.statistics, kept.target),
            )
        own.update(map(memory_of, tensors))  # a forward may have assigned other data to parameters

    def _saving(self, own: set) -> Any:
        """A context in which a graph keeps the values of parameters, not the parameters, if an
        update or another pass may come before its backward. A change in place would otherwise count
        as a change of tensors that the graph has saved. `own`: the memory of the parameters of the
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
        gradients = [None] * len(self.parameters)
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
            # One evaluation of F for both.
            if xs is None and inverting is tensors and is_plain(module):
                leaves: Streams
                outputs: Streams
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
