# SPDX-License-Identifier: Apache-2.0
"""The requirements that stages must meet to be trained, tried on the first microbatches before the
run begins; and the reasons why a loss is not finite."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from .errors import Error, StageError
from .microbatches import Microbatches, samples_of
from .mitigations import overrides
from .schedule import Plan
from .stage import Stage
from .tensors import (
    Streams,
    as_tuple,
    bytes_of,
    detached,
    equal,
    has_gradient,
    leaf,
    memory_of,
    tensors_in,
)


def leaves_of(outputs: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yields the leaves of the graph of some outputs, which a backward would give a gradient."""
    waiting = [y.grad_fn for y in outputs if isinstance(y, torch.Tensor) and y.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            yield node.variable
        following = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= following
        waiting += following


def _flop_counter() -> Any:
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:  # before PyTorch 2.1
        return contextlib.nullcontext()
    return FlopCounterMode(display=False)


def check_stage(stage: Stage, xs: Streams, m: int, target: Any = None) -> tuple[Streams, int]:
    """Runs the stage on a microbatch and checks the requirements of a training: the same outputs
    twice, no changed buffer that is not a running statistic, no weights that change at every call
    or in a backward, no foreign parameter, inverses that give the inputs back. Counts the bytes of
    its graph. Returns the outputs and the FLOPs of a forward (0 if this PyTorch does not count
    them)."""
    stage.graph_bytes, flops, graphs = 0, 0, []
    with stage.unchanged():
        for b in range(len(stage.modules)):
            xs, size, count = _check_module(stage, b, xs, m, target)
            graphs.append(size)
            flops += count
    stage.graph_bytes = (sum if stage.keep == "graph" or stage.loss else max)(graphs)
    return xs, flops


def _check_module(
    stage: Stage, b: int, xs: Streams, m: int, target: Any
) -> tuple[Streams, int, int]:
    """Checks one module. Returns its outputs, the bytes of its graph and the FLOPs of a forward."""
    module, tensors, found = stage.modules[b], stage.current, set()
    parameters = {memory_of(t) for t in tensors}

    def count(t: torch.Tensor) -> torch.Tensor:
        found.add(memory_of(t))
        return t.detach()

    own = {id(buffer) for norm in stage.norms[b] for buffer in norm.buffers(recurse=False)}
    buffers = {
        name: buffer.clone() for name, buffer in module.named_buffers() if id(buffer) not in own
    }
    leaves, initial = tuple(map(leaf, xs)), _values(stage, b)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
        ys = stage.call(b, tensors, leaves, m, None, target)
    if any(parameter.grad is not None for parameter in stage.parameters):
        raise stage.error(
            b,
            "calls backward() in its forward, and the gradients of its parameters would be lost;"
            " expected this term in the loss, or in the outputs",
        )
    size = sum(
        size for _, size in found - parameters - set(map(memory_of, tensors_in([xs, target])))
    )
    after = dict(module.named_buffers())
    changed = [name for name, before in buffers.items() if not equal(after[name], before)]
    if changed:
        raise stage.error(
            b,
            f"its forward changes the buffer {changed[0]}; expected a module without state besides"
            " running statistics of batch norms",
        )
    if any(memory_of(y) in parameters for y in tensors_in(ys)):
        raise stage.error(
            b, "returns a parameter, which later updates change; expected a copy of it, by clone()"
        )
    stage.check_owners()
    _check_leaves(stage, b, ys, leaves)
    once = _values(stage, b)
    _check_set_weights(stage, b, initial, once)
    with torch.no_grad():
        try:
            with _flop_counter() as counter:
                again = stage.call(b, tensors, xs, m, None, target)
            flops = counter.get_total_flops() if counter else 0
        except StageError:  # the counter does not bear derivatives in a forward, for instance
            again, flops = stage.call(b, tensors, xs, m, None, target), 0
    twice = _values(stage, b)
    name = next(
        (name for name in once if not near(once[name], twice[name], _tolerance(stage))), None
    )
    if name is not None:
        raise stage.error(
            b,
            f"its forward changes its parameter {name} at every call, also when it is called again"
            " for the same microbatch; expected a change that a second call does not repeat, such"
            " as a limit of a norm",
        )
    if not all(
        bool(torch.isfinite(y).all())
        for y in ys
        if isinstance(y, torch.Tensor) and y.is_floating_point()
    ):
        raise stage.error(
            b,
            "has outputs that are not finite on the first microbatch; expected finite weights and"
            " inputs",
        )
    if not same_outputs(stage, ys, again):
        raise stage.error(
            b,
            "computes something else when it is called again with the same input; expected random"
            " numbers of torch, random or numpy.random, which a recomputation repeats, and no state"
            " between calls",
        )
    learns = any(stage.parameters[place].requires_grad for place in stage.places[b])
    if learns and not any(y.requires_grad for y in ys if isinstance(y, torch.Tensor)):
        raise stage.error(
            b,
            "has outputs without a gradient, so neither it nor the stages below would learn;"
            " expected no detach() and no no_grad()",
        )
    ones = tuple(torch.ones_like(y) if has_gradient(y) else None for y in ys)
    stage.differentiate(m, (b,), ys, ones, leaves, tensors)
    name = next(
        (name for name, value in _values(stage, b).items() if not equal(value, twice[name])), None
    )
    if name is not None:
        raise stage.error(
            b,
            f"its backward, or a hook in it, changes its parameter {name}; expected updates by the"
            " optimiser of the stage alone",
        )
    _find_foreign(stage, b)
    ys = detached(ys)
    if stage.inverts(b):
        with torch.no_grad(), stage.holding((b,), tensors, None), stage.seeded(b, m):
            back = as_tuple(module.inverse(*ys))
        if len(back) != len(xs) or not all(
            x.shape == z.shape and near(x, z, 1e-2) for x, z in zip(xs, back)
        ):
            raise stage.error(
                b,
                "its inverse does not give its input back; expected inverse(*forward(*x)) to"
                " equal x",
            )
    return ys, size, flops


def _find_foreign(stage: Stage, b: int) -> None:
    """A module may read parameters of other modules of its stage: its passes and gradients then
    have them too."""
    found = {
        place for place, parameter in enumerate(stage.parameters) if parameter.grad is not None
    }
    stage.places[b] = sorted(found | set(stage.places[b]))
    for place in found:
        stage.parameters[place].grad = None


def _values(stage: Stage, b: int) -> dict[str, torch.Tensor]:
    """Returns copies of the values of the parameters of module b."""
    return {
        stage.names[place]: stage.parameters[place].detach().clone() for place in stage.places[b]
    }


def _check_leaves(stage: Stage, b: int, ys: Streams, leaves: Streams) -> None:
    """Raises StageError if a gradient would go to a tensor that no optimiser of the stage has."""
    known = set(map(id, [*stage.parameters, *leaves]))
    for tensor in leaves_of(ys):
        if id(tensor) not in known:
            raise stage.error(
                b,
                f"reads a tensor of shape {tuple(tensor.shape)} that requires a gradient and is no"
                " parameter of the stage; expected a parameter of its modules: join the stages"
                " that share it",
            )


def _check_set_weights(stage: Stage, b: int, before: dict, after: dict) -> None:
    """Raises StageError if a forward sets its weights and a mitigation gives forwards or backwards
    other weights."""
    name = next((name for name in before if not equal(before[name], after[name])), None)
    if name is None:
        return
    other = [
        one for one in stage.mitigations if overrides(one, "predict") or overrides(one, "correct")
    ]
    if other and stage.delay > 0:
        raise stage.error(
            b,
            f"its forward changes its parameter {name}, but with {type(other[0]).__name__} it has"
            " predicted or corrected weights; expected another mitigation, or weights that only"
            " updates change",
        )


def _tolerance(stage: Stage) -> float:
    kinds = {t.dtype for t in stage.current}
    return (
        2e-2
        if stage.autocast or kinds & {torch.float16, torch.bfloat16}
        else 1e-10
        if kinds == {torch.float64}
        else 1e-5
    )


def same_outputs(stage: Stage, ys: Streams, again: Streams) -> bool:
    """Returns whether two calls have computed the same outputs, within the differences that the
    order of sums may cause."""
    return all(
        near(y.detach(), z, _tolerance(stage))
        for y, z in zip(ys, again)
        if isinstance(y, torch.Tensor)
    )


def near(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    """Returns whether two tensors are equal within a share of the largest value; a NaN equals a
    NaN."""
    if equal(a, b) or a.shape != b.shape or not has_gradient(a):
        return equal(a, b)
    size = a.abs()[torch.isfinite(a)]
    return size.numel() > 0 and bool(
        torch.isclose(a, b, rtol=0.0, atol=tolerance * float(size.max()), equal_nan=True).all()
    )


def check_shared(stages: Sequence[Stage]) -> bool:
    """Raises StageError if two stages would train a parameter. They may share a frozen parameter:
    returns whether they do."""
    owners: dict[int, int] = {}
    shares_frozen = False
    for stage in stages:
        for name, parameter in zip(stage.names, stage.parameters):
            owner = owners.setdefault(id(parameter), stage.number)
            if owner != stage.number and parameter.requires_grad:
                raise StageError(
                    f"stage {stage.number} ({stage.name}): its parameter {name} is also one of"
                    f" stage {owner}; expected weights of one stage: untie them, or put both"
                    " modules into one stage"
                )
            if owner != stage.number:
                shares_frozen = True
    return shares_frozen


def try_stages(stages: Sequence[Stage], plan: Plan, microbatches: Microbatches) -> list[dict]:
    """Runs every stage once on the first microbatch. Returns the rows of /model/stages."""
    xs, target = microbatches.peek(0)
    samples = samples_of(xs) or 1
    rows = []
    for stage, delay in zip(stages, plan.header["stage"]):
        last = stage.number == len(stages)
        streams = bytes_of([x for x in xs if isinstance(x, torch.Tensor) and x.is_floating_point()])
        back = streams + (
            bytes_of(xs) if stage.number > 1 and stages[stage.number - 2].inverts(-1) else 0
        )
        ys, flops = check_stage(stage, xs, 0, target if last else None)
        if any(p.grad is not None for other in stages for p in other.parameters):
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
    check_apart(stages, plan, microbatches)
    return rows


def check_apart(stages: Sequence[Stage], plan: Plan, microbatches: Microbatches) -> None:
    """Raises StageError if a module reads data that another module has left in an attribute,
    because in a pipeline these data belong to another microbatch: microbatch 0 passes, then 1, then
    every module computes 0 again, from the last to the first."""
    calls: list[list[tuple]] = [[], []]
    given = [x for x in microbatches.peek(0)[0] if isinstance(x, torch.Tensor)]
    copies = [x.clone() for x in given]
    with torch.no_grad(), contextlib.ExitStack() as stack:
        for stage in stages:
            stack.enter_context(stage.unchanged())
        for m in range(min(2, plan.microbatches)):
            xs, target = microbatches.peek(m)
            if not all(map(equal, given, copies)):
                raise Error(
                    "data: microbatch 1 changes the tensors of microbatch 0; expected new ones"
                    " for each microbatch"
                )
            for stage in stages:
                own = target if stage.number == len(stages) else None
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


def why_not_finite(
    stages: Sequence[Stage], microbatches: Microbatches, m: int, value: float
) -> str:
    """Returns the reason why the loss of microbatch m has this value."""
    for stage in stages:
        for name, tensor in zip(stage.names, stage.current):
            if not bool(torch.isfinite(tensor).all()):
                return (
                    f"microbatch {m}: the loss is {value}: stage {stage.number} ({stage.name})"
                    f" has weights that are not finite ({name}, after {stage.updates} updates);"
                    " expected a lower learning rate, or clip="
                )
    xs, target = microbatches[m]
    with torch.no_grad():
        for stage in stages:
            xs = stage.through(
                stage.current, xs, m, None, target if stage.number == len(stages) else None
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
