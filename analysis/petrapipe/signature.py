# SPDX-License-Identifier: Apache-2.0
"""Everything on which the numbers of a run depend, in words. A checkpoint and the trainer that
reads it must agree in it.

The words of two trainers differ if an argument differs: a class, a number, a tensor, which
function. The code of functions and classes of the user is compared separately, because a change of
the code need not change a number."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from .configs import NEUTRAL_KEYS
from .errors import Error
from .plain_file import packed

# A run may become longer. `data.limit` is the length of an epoch, which the order of actions shows.
LENGTH_KEYS = {"run.epochs", "run.max_microbatches", "data.limit"}
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
LONG, MANY = 200, 20  # characters and entries; a longer value is named by a digest
DEPTH = 4  # of objects within objects
LIBRARIES = ("torch", "petrapipe")  # their versions determine their code


def digest_of(value: Any) -> str:
    """Returns a digest of plain data and tensors; the name of its class for anything else."""
    try:
        return packed(value, "")[-1].hex()
    except Error:
        return type(value).__qualname__


class Signature:
    """`facts` by names in words, and digests of `code` by the same names."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.code: dict[str, str] = {}

    def add(self, name: str, value: Any, depth: int = 0) -> None:
        """Adds a description of a value."""
        kind = type(value)
        if isinstance(value, PLAIN):
            text = repr(value)
            short = f"{text[: LONG // 2]}... {digest_of(text)}"
            self.facts[name] = text if len(text) <= LONG else short
        elif isinstance(value, torch.Tensor):
            about = f"a tensor {tuple(value.shape)} of {value.dtype}"
            self.facts[name] = f"{about}, digest {digest_of(value.detach())}"
        elif isinstance(
            value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
        ):
            self.facts[name] = f"{value.__qualname__}"
            self._add_code(name, value)
            self._add_closure(name, getattr(value, "__func__", value), depth)
        elif isinstance(value, functools.partial):
            self.add(name, value.func, depth + 1)
            self.add(f"{name}: arguments", value.args, depth + 1)
            self.add(f"{name}: keywords", value.keywords, depth + 1)
        elif isinstance(value, (list, tuple, set, frozenset)) and len(value) > MANY:
            self.facts[name] = f"a {kind.__name__} of {len(value)}, digest {digest_of(value)}"
        elif isinstance(value, (list, tuple)):
            self.facts[name] = f"a {kind.__name__} of {len(value)}"
            for i, one in enumerate(value):
                self.add(f"{name}[{i}]", one, depth + 1)
        elif isinstance(value, Mapping):
            self.facts[name] = f"a {kind.__name__} of {len(value)}"
            for key, one in value.items():
                self.add(f"{name}: {key}", one, depth + 1)
        else:
            self.facts[name] = kind.__qualname__
            self._add_code(name, kind)
            if depth < DEPTH and not isinstance(value, torch.optim.Optimizer):
                self._add_parts(name, value, depth)

    def _add_parts(self, name: str, value: Any, depth: int) -> None:
        """Adds the attributes of an object; for a module also its buffers, parameters and
        modules."""
        skipped = "_" if isinstance(value, nn.Module) else "__"
        for key, one in getattr(value, "__dict__", {}).items():
            if not key.startswith(skipped):
                self.add(f"{name}: {key}", one, depth + 1)
        if isinstance(value, nn.Module):
            for key, one in [
                *value.named_buffers(recurse=False),
                *value.named_parameters(recurse=False),
                *value.named_children(),
            ]:
                self.add(f"{name}: {key}", one, depth + 1)

    def _add_closure(self, name: str, function: Any, depth: int) -> None:
        """Adds the numbers and texts that a function has captured where it was defined."""
        for key, cell in zip(
            getattr(getattr(function, "__code__", None), "co_freevars", ()),
            getattr(function, "__closure__", None) or (),
        ):
            with_value = getattr(cell, "cell_contents", None)
            if isinstance(with_value, (*PLAIN, torch.Tensor, tuple)):
                self.add(f"{name}: {key}", with_value, depth + 1)

    def _add_code(self, name: str, value: Any) -> None:
        kinds = value.__mro__ if isinstance(value, type) else [value]
        found = []
        for one in kinds:
            if str(getattr(one, "__module__", "")).split(".")[0] not in (*LIBRARIES, "builtins"):
                own = vars(one).values() if isinstance(one, type) else [one]
                functions = [getattr(part, "__func__", part) for part in own]
                found += [_code(f.__code__) for f in functions if isinstance(f, types.FunctionType)]
        if found:
            self.code[name] = digest_of(found)

    def add_network(self, name: str, modules: Iterable[nn.Module]) -> None:
        """Adds the modules of a stage with their plain attributes."""
        for position, module in enumerate(modules):
            for path, part in module.named_modules():
                place = f"{name}, module {position}{'.' if path else ''}{path}"
                own = [
                    f"{key}={one!r}"
                    for key, one in sorted(vars(part).items())
                    if key[0] != "_" and isinstance(one, (*PLAIN, tuple))
                ]
                own = [text for text in own if len(text) <= LONG]
                self.facts[place] = f"{type(part).__qualname__}({', '.join(own)})"
                self._add_code(place, type(part))

    def difference(self, theirs: Mapping[str, str]) -> str | None:
        """Returns the differences from other facts, in words."""
        for name in [*self.facts, *theirs]:
            mine, other = self.facts.get(name, "missing"), theirs.get(name, "missing")
            if mine != other:
                return f"{name} is {mine}, and was {other} in its run"
        return None

    def changed_code(self, theirs: Mapping[str, str]) -> list[str]:
        """Returns the names of functions and classes with different code. Code of two versions of
        Python cannot be compared."""
        if theirs.get("Python") != self.code.get("Python"):
            return []
        return [name for name, code in self.code.items() if theirs.get(name, code) != code]


def _code(code: types.CodeType) -> str:
    """Returns a text that is equal for functions with equal instructions and constants."""
    constants = [
        _code(one)
        if isinstance(one, types.CodeType)
        else str(sorted(map(repr, one)))
        if isinstance(one, frozenset)
        else repr(one)
        for one in code.co_consts
    ]
    return str((code.co_code.hex(), constants, code.co_names))


def of_trainer(trainer: Any) -> Signature:
    """Returns the signature of a trainer that has not run yet."""
    found = Signature()
    found.code["Python"] = sys.version.split()[0]
    for key, value in trainer.config.items():
        if key not in LENGTH_KEYS | NEUTRAL_KEYS:
            found.facts[f"config: {key}"] = value
    found.add("clip", trainer.clip)
    found.add("seed", trainer.seed)
    found.add("loss", trainer.loss.loss)
    found.add("learning rates of the config", trainer.by_config)
    _add_data(found, trainer)
    for stage, schedulers in zip(trainer.stages, trainer.schedulers):
        name = f"stage {stage.number}"
        found.add_network(name, stage.modules)
        found.facts[f"{name}: parameters"] = ", ".join(
            f"{one} {tuple(t.shape)} {t.dtype}" for one, t in zip(stage.names, stage.parameters)
        )
        found.add(f"{name}: autocast", stage.autocast)
        places = {id(parameter): one for one, parameter in zip(stage.names, stage.parameters)}
        for i, one in enumerate(stage.optimizers):
            place = f"the optimiser of {name}" + (f" (number {i + 1})" if i else "")
            found.facts[place] = type(one).__qualname__
            for g, group in enumerate(one.param_groups):
                own = f"{place}, parameter group {g}" if len(one.param_groups) > 1 else place
                found.facts[f"{own}: parameters"] = ", ".join(
                    places.get(id(parameter), "?") for parameter in group["params"]
                )
                for key, value in group.items():
                    if key not in ("params", "param_names"):
                        found.add(f"{own}: {key}", value)
        for kind, objects in (("scheduler", schedulers), ("mitigations", stage.mitigations)):
            found.facts[f"the {kind} of {name}"] = (
                ", ".join(type(one).__qualname__ for one in objects) or "none"
            )
            for i, one in enumerate(objects):
                found.add(f"the {kind} of {name}" + f" (number {i + 1})", one)
    return found


def _add_data(found: Signature, trainer: Any) -> None:
    data, length = trainer.data, trainer.microbatches.length
    loader = isinstance(data, torch.utils.data.DataLoader)
    words = "" if length is None else f" of {length} microbatches"
    found.facts["data"] = type(data).__qualname__ + words
    if loader:
        found.facts["data: dataset"] = type(data.dataset).__qualname__
        found.facts["data: sampler"] = type(data.sampler).__qualname__
        found.add("data: batch_size", data.batch_size)
    first = digest_of(trainer.microbatches.peek(0))
    # A function may draw random numbers that no seed determines.
    repeats = not callable(data) or digest_of(trainer.microbatches[0]) == first
    found.facts["data: microbatch 0"] = first if repeats else "other numbers in each call"
    evaluation = trainer.evaluation.data if trainer.evaluation else None
    words = f" of {len(evaluation)}" if hasattr(evaluation, "__len__") else ""
    found.facts["evaluate"] = type(evaluation).__qualname__ + words
    if isinstance(evaluation, (list, tuple)) and evaluation:
        found.facts["evaluate: microbatch 0"] = digest_of(evaluation[0])
