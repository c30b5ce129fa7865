# SPDX-License-Identifier: Apache-2.0
"""How optimisers and learning-rate schedulers of a user are called: step() without arguments, a
loss for ReduceLROnPlateau, train() and eval() of schedule-free optimisers. Objects that need
another call are refused before the first update."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import torch

from .errors import Error, StageError
from .stage import Stage
from .tensors import seeded

_REHEARSED_STEPS = 10_000  # of a scheduler; a few tenths of a second


def reason_of(error: BaseException) -> str:
    """Returns an exception in one line."""
    return f"{type(error).__name__}: {error}".strip().split("\n")[0].rstrip(": ")


def making(optimizer: Callable, number: int) -> Callable:
    """Returns the function `optimizer` of a user, changed so that an exception becomes an error of
    one line."""

    def make(parameters: list) -> Any:
        try:
            return optimizer(parameters)
        except Error:
            raise
        except Exception as error:  # a function of the user
            raise StageError(
                f"stage {number}: optimizer= fails: {reason_of(error)}; expected a "
                "function of a list of parameters that returns an optimiser"
            ) from error

    return make


def _required(function: Callable) -> list[str]:
    """Returns the names of the arguments without which a function cannot be called."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of an extension
        return []
    return [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


# --- optimisers ---


def check_optimizers(stages: Iterable[Stage]) -> None:
    """Raises StageError for an optimiser that lacks a rate, or whose step needs a closure. The
    first optimiser of each class is rehearsed on a copy of the parameters of its stage."""
    known: set = set()
    for stage in stages:
        for one in stage.optimizers:
            where = f"stage {stage.number} ({stage.name}): {type(one).__name__}"
            for group in one.param_groups:
                lr = group.get("lr")
                if not isinstance(lr, (int, float, torch.Tensor)):
                    raise StageError(f"{where} has the learning rate {lr}; expected a number")
            needs = _required(one.step)
            if needs or type(one) not in known and _needs_closure(one):
                raise StageError(
                    f"{where} calls the network at each step (its step needs "
                    f"{_named(needs)}); expected an optimiser that needs the "
                    "gradients alone"
                )
            known.add(type(one))


def _named(needs: list[str]) -> str:
    return needs[0] if needs and needs[0] != "closure" else "a closure"


def _needs_closure(one: torch.optim.Optimizer) -> bool:
    """Returns whether a step fails without a closure and succeeds with one. The optimiser is not
    changed."""
    try:
        _step(_copy(one))
    except Exception:  # a step may raise any exception
        with contextlib.suppress(Exception):
            _step(_copy(one), lambda: torch.zeros(()))
            return True
    return False


def _step(one: torch.optim.Optimizer, *closure: Callable) -> None:
    with warnings.catch_warnings(), seeded(0):
        warnings.simplefilter("ignore")
        for group in one.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.zeros_like(parameter)
        one.step(*closure)


def _copy(one: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Returns a copy with parameters of its own and all attributes, which Optimizer's own copy
    leaves out."""
    other = object.__new__(type(one))
    named = {name: value for name, value in one.__dict__.items() if name != "step"}
    other.__dict__.update(copy.deepcopy(named, {id(one): other}))
    return other


def _with_modes(stages: Iterable[Stage]) -> Iterator[torch.optim.Optimizer]:
    for stage in stages:
        for one in stage.optimizers:
            if callable(getattr(one, "train", None)) and callable(getattr(one, "eval", None)):
                yield one


def to_training(stages: Iterable[Stage]) -> None:
    """Calls train() of the optimisers that have it, so that the parameters are the weights of
    training."""
    for one in _with_modes(stages):
        one.train()


def to_evaluation(stages: Iterable[Stage]) -> None:
    """Calls eval() of the optimisers that have it, so that the parameters are the weights for
    evaluations."""
    for one in _with_modes(stages):
        one.eval()


def evaluation_weights(stage: Stage) -> list[torch.Tensor] | None:
    """Returns copies of the weights for evaluations, if an optimiser of the stage has such weights.
    Afterwards the weights of training are the same as before, to the bit."""
    if not any(True for _ in _with_modes([stage])):
        return None
    held = [(parameter, parameter.data, parameter.data.clone()) for parameter in stage.parameters]
    to_evaluation([stage])
    found = [parameter.data.clone() for parameter in stage.parameters]
    to_training([stage])
    for parameter, data, value in held:
        parameter.data = data.copy_(value)
    return found


# --- schedulers ---


class Schedulers:
    """The schedulers of the stages: `of[stage]` is a list, one per optimiser. Without a function
    they are empty lists."""

    def __init__(self, stages: list[Stage], make: Callable | None, updates: list[int]) -> None:
        self.of: list[list] = [[] for _ in stages]
        self._waiting: set[int] = set()  # for a loss
        if make is None:
            return
        for stage, some in zip(stages, self.of):
            for one in stage.optimizers:
                some.append(self._made(stage, one, make))
        self._waiting = {id(one) for some in self.of for one in some if waits_for_loss(one)}
        longest = max(range(len(stages)), key=lambda j: updates[j])
        for scheduler in self.of[longest]:
            self._rehearse(stages[longest], scheduler, updates[longest])

    @staticmethod
    def _made(stage: Stage, one: torch.optim.Optimizer, make: Callable) -> Any:
        where = f"stage {stage.number}: scheduler="
        try:
            found = make(one)
        except Error:
            raise
        except Exception as error:  # a function of the user
            raise StageError(
                f"{where} fails for {type(one).__name__}: {reason_of(error)}; "
                "expected a function of an optimiser that returns a scheduler"
            ) from error
        name = type(found).__name__
        if not callable(getattr(found, "step", None)) or not hasattr(found, "state_dict"):
            raise StageError(f"{where} returns a {name}; expected a learning-rate scheduler")
        own = getattr(found, "optimizer", one)
        if own is not one and getattr(own, "param_groups", None) is not one.param_groups:
            raise StageError(
                f"{where} returns a {name} of another optimiser; expected one of the "
                "optimiser that it is given"
            )
        needs = _required(found.step)
        if needs and not waits_for_loss(found):
            raise StageError(
                f"{where} returns a {name}, whose step needs {needs[0]}; expected a "
                "scheduler that steps after each update without arguments"
            )
        if waits_for_loss(found) and getattr(found, "mode", "min") != "min":
            raise StageError(
                f"{where} returns a {name} with mode {found.mode!r}, but it is given "
                "the loss; expected mode='min'"
            )
        return found

    @staticmethod
    def _rehearse(stage: Stage, scheduler: Any, updates: int) -> None:
        """Raises StageError if a copy of the scheduler fails before the end of the run."""
        if waits_for_loss(scheduler):
            return
        total = getattr(scheduler, "total_steps", None)
        if isinstance(total, int) and total < updates:
            raise StageError(
                f"stage {stage.number}: the {type(scheduler).__name__} has {total} "
                f"steps; expected at least the {updates} updates of the run"
            )
        other = _without_parameters(scheduler)
        if other is None:
            return
        with warnings.catch_warnings(), seeded(0):
            warnings.simplefilter("ignore")
            for update in range(min(updates, _REHEARSED_STEPS)):
                try:
                    other.step()
                except Exception as error:  # a scheduler or function of the user
                    raise StageError(_failing(stage, scheduler, update, error)) from error

    def step(self, stage: Stage) -> None:
        """Steps the schedulers of a stage after one of its updates."""
        for one in self.of[stage.number - 1]:
            if id(one) not in self._waiting:
                try:
                    one.step()
                except Exception as error:
                    raise StageError(_failing(stage, one, stage.updates - 1, error)) from error

    def end_epoch(self, loss: float) -> None:
        """Steps the schedulers that wait for a loss."""
        for some in self.of:
            for one in some:
                if id(one) in self._waiting:
                    one.step(loss)


def waits_for_loss(scheduler: Any) -> bool:
    """Returns whether a scheduler is like ReduceLROnPlateau."""
    needs = _required(scheduler.step)
    return needs in (["metrics"], ["metric"], ["val_loss"])


def _failing(stage: Stage, scheduler: Any, update: int, error: BaseException) -> str:
    return (
        f"stage {stage.number}: the {type(scheduler).__name__} fails after update "
        f"{update + 1}: {reason_of(error)}; expected a scheduler for all updates of the run"
    )


def _without_parameters(scheduler: Any) -> Any:
    """Returns a copy of a scheduler whose optimiser has the same groups without parameters; None
    if it cannot be copied."""
    own = getattr(scheduler, "optimizer", None)
    if own is None:
        return None
    other = object.__new__(type(own))
    groups = [
        {
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        for group in own.param_groups
    ]
    other.__dict__.update(own.__dict__)
    other.__dict__.update(
        param_groups=[{"params": [], **group} for group in groups], state=defaultdict(dict)
    )
    try:
        return copy.deepcopy(scheduler, {id(own): other})
    except Exception:  # an object of the user
        return None
