# SPDX-License-Identifier: Apache-2.0
"""The terms of the losses of a run: which labels count and how many are right; and evaluations.

Nothing is guessed from the types of outputs and targets. A loss is a classification if a call of it
calls cross_entropy, nll_loss or multi_margin_loss of PyTorch once, or once with the first output of
the network; the arguments of that call have the scores, the labels and the label to ignore."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .errors import Diverged, Error
from .microbatches import moved, parts_of, samples_of, without_workers
from .stage import Stage
from .tensors import as_tuple, seeded, tensors_in

_CLASSIFIERS = (functional.cross_entropy, functional.nll_loss, functional.multi_margin_loss)
UNKNOWN = math.nan


@dataclass
class _Call:
    """A call of one of _CLASSIFIERS."""

    scores: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None = None  # of each class
    ignored: int | None = None
    mean: bool = True  # whether it returns the mean over the labels that count

    @classmethod
    def of(
        cls,
        function: Callable,
        scores: torch.Tensor,
        target: torch.Tensor,
        *more: Any,
        **named: Any,
    ) -> _Call:
        """Takes the arguments of the function."""
        between = ("p", "margin") if function is functional.multi_margin_loss else ()
        order = (
            *between,
            "weight",
            "size_average",
            *(() if between else ("ignore_index",)),
            "reduce",
            "reduction",
        )
        if between:
            given = {**dict(zip(order, more)), **named}
            given.pop("weight", None)  # its mean does not divide by them
        else:
            given = {"ignore_index": -100, **dict(zip(order, more)), **named}
        mean = given.get("reduction", "mean") == "mean" and given.get("reduce") is not False
        return cls(
            scores.detach(),
            target.detach(),
            given.get("weight"),
            given.get("ignore_index"),
            mean and given.get("size_average") is not False,
        )

    def counted(self) -> torch.Tensor:
        """Returns which labels count."""
        if self.ignored is None:
            return torch.ones_like(self.target, dtype=torch.bool)
        return self.target != self.ignored

    def share(self) -> float:
        """Returns the divisor of the mean: the number of labels that count, or the sum of their
        weights."""
        if self.target.is_floating_point():  # probabilities of the classes
            return self.target.numel() / self.target.shape[1 if self.target.dim() > 1 else 0]
        labels = self.target[self.counted()].long()
        if not self.mean or self.weight is None:
            return float(labels.numel())
        return float(self.weight.to(labels.device)[labels].sum())


class _Calls(TorchFunctionMode):
    """Records the calls of _CLASSIFIERS."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Call] = []

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if function in _CLASSIFIERS:
            named = dict(kwargs or {})
            first = named.pop("input") if "input" in named else args[0]
            rest = args if "input" in (kwargs or {}) else args[1:]
            target = named.pop("target") if "target" in named else rest[0]
            more = rest if "target" in (kwargs or {}) else rest[1:]
            self.found.append(_Call.of(function, first, target, *more, **named))
        return function(*args, **(kwargs or {}))


@dataclass
class Counts:
    """The counts that a loss gives for one microbatch. `weight`: the share of its loss in a mean
    over several microbatches. `labels`, `right` and `five`: the labels that count, how many of them
    have the highest score, and how many are among the five highest; NaN if the loss has no
    classes."""

    weight: float
    labels: float = UNKNOWN
    right: float = UNKNOWN
    five: float = UNKNOWN

    @property
    def top1(self) -> float:
        return self.right / self.labels if self.labels else UNKNOWN


class ObservedLoss:
    """The loss of a user. counts() returns the counts of the latest call since watch()."""

    def __init__(self, loss: Callable) -> None:
        self.loss = loss
        self._calls: list[_Call] | None = None
        self._watching = False
        self._output: Any = None

    def __call__(self, output: Any, target: Any) -> torch.Tensor:
        with _Calls() as calls:
            value = self.loss(output, target)
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"it returns {_kind_of(value)}, not the mean as a tensor")
        if (
            torch.is_grad_enabled()
            and not value.requires_grad
            and any(t.requires_grad for t in tensors_in(output))
        ):
            raise TypeError("its mean has no gradient (detach(), item() or integers)")
        found = calls.found
        if (
            len(found) == 1
            and value.dim() == 0
            and bool(torch.isnan(value))
            and found[0].share() == 0
        ):
            # PyTorch has 0 / 0, and a gradient of zeros.
            value = torch.nan_to_num(value, nan=0.0)
        if self._watching:
            self._calls, self._output, self._watching = found, output, False
        return value

    def watch(self) -> None:
        """Records the counts of the next call."""
        self._watching = True

    def counts(self, target: Any) -> Counts:
        """Returns the counts of the call after watch(), and forgets them."""
        calls, output = self._calls or [], self._output
        self._calls = self._output = None
        weight = calls[0].share() if len(calls) == 1 else float(samples_of(target))
        if len(calls) > 1:
            first = next(tensors_in(output), None)
            calls = [
                one
                for one in calls
                if first is not None and one.scores.data_ptr() == first.data_ptr()
            ]
        if len(calls) != 1 or calls[0].target.is_floating_point():
            return Counts(weight)
        return Counts(weight, *_right(calls[0]))


def _right(call: _Call) -> tuple[float, float, float]:
    """Returns the numbers of labels that count, that have the highest score, and that are among the
    five highest."""
    scores = call.scores.movedim(1, -1) if call.scores.dim() > 1 else call.scores
    if scores.shape[-1] < 2:
        return UNKNOWN, UNKNOWN, UNKNOWN
    five = scores.topk(min(5, scores.shape[-1]), dim=-1).indices
    hits = (five == call.target.unsqueeze(-1)) & call.counted().unsqueeze(-1)
    return float(call.counted().sum()), float(hits[..., 0].sum()), float(hits.sum())


def _kind_of(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        inner = ", ".join(type(one).__name__ for one in value)
        return f"a {type(value).__name__} of {inner}"
    return f"a {type(value).__name__}"


# --- evaluation ---


class Batches:
    """The microbatches of evaluations: each evaluation reads them from the beginning, with random
    numbers that depend only on the seed and the epoch."""

    def __init__(self, data: Iterable, seed: int) -> None:
        self.data, self.seed = data, seed
        if hasattr(data, "__next__"):
            raise Error(
                f"evaluate: is a {type(data).__name__}, which can be read only once; "
                "expected a DataLoader or a list of microbatches"
            )

    def read(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """Yields (input, target)."""
        generators, place, iterator = parts_of(self.data)[1], 0, None
        while True:
            with seeded(hash((self.seed, -2, epoch, place)), generators):
                if iterator is None:
                    iterator = iter(without_workers(self.data))
                batch = next(iterator, None)
            if batch is None:
                break
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                length = f" of {len(batch)}" if isinstance(batch, (tuple, list)) else ""
                raise Error(
                    f"evaluate: microbatch {place} is a {type(batch).__name__}{length}; "
                    "expected (input, target)"
                )
            yield batch[0], batch[1]
            place += 1
        if not place:
            raise Error(
                "evaluate: has no microbatch; expected an iterable that can be read again, "
                "such as a DataLoader or a list"
            )


@contextlib.contextmanager
def _evaluating(stages: Sequence[Stage], taken: Sequence[tuple]) -> Iterator[None]:
    """A context in which the stages are in evaluation mode and have the buffers of the
    snapshots."""
    modes = [
        (part, part.training)
        for stage in stages
        for module in stage.modules
        for part in module.modules()
    ]
    held = [[buffer.clone() for buffer in stage.buffers()] for stage in stages]
    try:
        for stage, (_, buffers, _) in zip(stages, taken):
            for module in stage.modules:
                module.eval()
            for buffer, value in zip(stage.buffers(), buffers):
                buffer.copy_(value)
        yield
    finally:
        for part, training in modes:
            part.training = training
        for stage, buffers in zip(stages, held):
            for buffer, value in zip(stage.buffers(), buffers):
                buffer.copy_(value)


def evaluate(
    stages: Sequence[Stage],
    taken: Sequence[tuple],
    batches: Batches,
    loss: ObservedLoss,
    device: torch.device,
    epoch: int,
) -> dict[str, float]:
    """Returns eval_loss, eval_top1 and eval_top5. `taken` has for each stage the version of its
    weights, its buffers, and the weights themselves if its optimiser has different weights for
    evaluations. The loss is NaN if no label counts. Raises Diverged if it is not finite."""
    found = _means(stages, taken, batches.read(epoch), loss, device)
    if found.pop("weight") and not math.isfinite(found["eval_loss"]):
        raise Diverged(
            f"the evaluation after epoch {epoch} has the loss {found['eval_loss']}; "
            "expected a lower learning rate, or clip="
        )
    return found


def rehearse(
    stages: Sequence[Stage], batches: Batches, loss: ObservedLoss, device: torch.device
) -> None:
    """Evaluates the first microbatch before the run, so that unsuitable data are refused before
    it."""
    taken = [
        (stage.updates, [buffer.clone() for buffer in stage.buffers()], None) for stage in stages
    ]
    _means(stages, taken, itertools.islice(batches.read(0), 1), loss, device)


def _means(
    stages: Sequence[Stage],
    taken: Sequence[tuple],
    batches: Iterable[tuple],
    loss: ObservedLoss,
    device: torch.device,
) -> dict[str, float]:
    weight = total = labels = right = five = 0.0
    with _evaluating(stages, taken), torch.no_grad():
        for i, (value, answer) in enumerate(batches):
            xs, target = as_tuple(moved(value, device)), moved(answer, device)
            for stage, (version, _, own) in zip(stages, taken):
                tensors = stage.weights(version, "theta") if own is None else own
                last = stage.number == len(stages)
                if last:
                    loss.watch()
                xs = stage.through(tensors, xs, i, None, target if last else None)
            found = loss.counts(target)
            total, weight = total + float(xs[0]) * found.weight, weight + found.weight
            labels, right, five = labels + found.labels, right + found.right, five + found.five
    return {
        "weight": weight,
        "eval_loss": total / weight if weight else UNKNOWN,
        "eval_top1": right / labels if labels else UNKNOWN,
        "eval_top5": five / labels if labels else UNKNOWN,
    }
