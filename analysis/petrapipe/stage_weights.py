# SPDX-License-Identifier: Apache-2.0
"""The weights of a stage: their optimisers, the versions that are still read, and their updates
with mitigations of delay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .errors import Error, StageError
from .mitigations import Mitigation, overrides
from .stage_passes import Passes


@dataclass
class Version:
    """The weights after some number of updates: `theta`, the weights that updates change, and
    `read`, the weights that forwards read (a prediction)."""

    theta: list
    read: list


class Weights(Passes):
    """Modules whose weights learn. `updates` counts the updates, and is the number of the latest
    version; `versions` has the older versions that something will still read."""

    def __init__(
        self,
        number: int,
        modules: Sequence[nn.Module],
        optimizer: Callable,
        device: torch.device,
        seed: int,
        autocast: torch.dtype | None = None,
        loss: Callable | None = None,
    ) -> None:
        super().__init__(number, modules, device, seed, autocast, loss)
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
        self.corrected: list | None = None
        self._refresh()

    def groups(self) -> Iterator[dict]:
        return (group for one in self.optimizers for group in one.param_groups)

    def _refresh(self) -> None:
        """The parameters share their memory with `current` until an update gives them other
        memory."""
        self.current = [parameter.data for parameter in self.parameters]
        self.read = self.current

    def weights(self, version: int, rule: str = "stashed") -> list:
        """Returns the tensors of a version: with the rule `latest` the weights that updates change,
        corrected if a mitigation requests it; with `theta` the same without the correction;
        otherwise the weights that forwards read."""
        if version == self.updates:
            found = Version(self.current, self.read)
        else:
            found = self.versions[version]
        if rule == "latest" and self.corrected is not None:
            return self.corrected
        return found.theta if rule in ("latest", "theta") else found.read

    def named(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, tensors))

    def count(self, gradients: list, accumulate: int) -> None:
        """Adds the gradients of one microbatch to the gradients of the next update."""
        for place, g in enumerate(gradients):
            if g is not None:
                share = g if accumulate == 1 else g / accumulate
                self.sum[place] = share if self.sum[place] is None else self.sum[place] + share
        self.counted += 1

    def update(self, keep_old: bool, clip: float | None, rate: float | None, first: int) -> None:
        """U. `keep_old`: something will still read the weights before it. `rate`: the learning rate
        of the config, if the config determines it. Mitigations begin with update number `first`."""
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
        # An optimiser may replace them.
        self.current[:] = [parameter.data for parameter in self.parameters]
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
        """Returns minus the learning rate times the momentum of SGD."""
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
