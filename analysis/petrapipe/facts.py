# SPDX-License-Identifier: Apache-2.0
"""The facts on which a training in PyTorch depends, in the form of the attribute `training` of its
log: lines `key: value` with dotted keys (docs/hdf5-schema.md).

Equal trainings have equal lines, in every process: no value has an address, a time or the order of
a set. Code and long texts are abbreviated by a digest in brackets. Names that end in "seed" are
left out of digests, because runs that differ in seeds alone belong together."""

from __future__ import annotations

import dis
import functools
import hashlib
import os
import re
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import nn

from .microbatches import parts_of
from .stage import Stage
from .tensors import tensors_in

_LONG, _FEW = 100, 16  # characters of a value; entries of a list
# Entries of a group that change no result, or that are recorded under another name.
_NOT_OF_GROUP = {
    "params",
    "param_names",
    "initial_lr",
    "lr",
    "foreach",
    "fused",
    "capturable",
    "differentiable",
}
# Attributes of schedulers that contain their position, and the rates of the groups, which are
# recorded.
_NOT_OF_SCHEDULER = {
    "optimizer",
    "base_lrs",
    "last_epoch",
    "verbose",
    "_step_count",
    "_last_lr",
    "_get_lr_called_within_step",
    "_is_initial",
    "_initial_step",
}
_LIBRARIES = tuple(
    os.path.join(path, "")
    for path in {
        *(sysconfig.get_paths().get(name, "") for name in ("stdlib", "purelib", "platlib")),
        os.path.dirname(os.path.dirname(torch.__file__)),
        os.path.dirname(__file__),
    }
    if path
)


def digest(value: bytes | str) -> str:
    data = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
    return hashlib.blake2b(data, digest_size=4).hexdigest()


def short(text: str, length: int = _LONG) -> str:
    """Returns a text in one line; a long text is cut and gets a digest."""
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 14]}... [{digest(text)}]"


def name_of(thing: Any) -> str:
    """Returns the full name of a class or a function."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None) or type(thing).__name__
    return name if module in (None, "builtins") else f"{module}.{name}"


def _is_users(thing: Any) -> bool:
    """Returns whether the code of a class or a function belongs to the user and not to a
    library."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return getattr(thing, "__module__", "builtins") == "__main__" or module is None
    return not os.path.abspath(file).startswith(_LIBRARIES)


class _Describer:
    """Describes values. It follows functions and objects to a maximum depth."""

    def __init__(self) -> None:
        self.within: set[int] = set()  # the values that are being described

    def text(self, value: Any, depth: int = 0) -> str:
        if value is None or isinstance(
            value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
        ):
            return repr(value) if not isinstance(value, torch.Size) else repr(tuple(value))
        if isinstance(value, torch.Tensor):
            return _tensor(value)
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            return _tensor(torch.as_tensor(numpy.asarray(value)))
        if isinstance(value, (type, types.ModuleType, torch.Generator)):
            return self._class(value) if isinstance(value, type) else type(value).__name__
        if depth > 4 or id(value) in self.within:
            return name_of(type(value))
        self.within.add(id(value))
        try:
            return self._inner(value, depth)
        except Exception:  # an object of the user, which need not have a description
            return name_of(type(value))
        finally:
            self.within.discard(id(value))

    def _inner(self, value: Any, depth: int) -> str:
        if isinstance(value, (list, tuple)):
            inner = ", ".join(self.text(one, depth + 1) for one in value)
            return "[" + (inner if len(value) <= _FEW else short(inner)) + "]"
        if isinstance(value, (set, frozenset)):
            return "{" + ", ".join(sorted(self.text(one, depth + 1) for one in value)) + "}"
        if isinstance(value, Mapping):
            return self._call("", value, depth)
        if isinstance(value, functools.partial):
            named = {str(i): one for i, one in enumerate(value.args)}
            return self._call(self.text(value.func, depth + 1), {**named, **value.keywords}, depth)
        if isinstance(value, types.MethodType):
            return f"{self.text(value.__self__, depth + 1)}.{value.__name__}"
        if isinstance(value, types.FunctionType):
            return self._function(value, depth)
        if callable(value) and hasattr(value, "__qualname__"):  # of an extension
            return name_of(value)
        if isinstance(value, torch.optim.Optimizer):
            return self._optimizer(value, depth)
        return self._object(value, depth)

    def _call(self, name: str, values: Mapping, depth: int, left_out: Iterable[str] = ()) -> str:
        """Returns NAME(key=value, ...), without values that are None or False."""
        given = {
            str(key): value
            for key, value in values.items()
            if value is not None
            and value is not False
            and str(key) not in left_out
            and not str(key).endswith("seed")
        }
        inner = ", ".join(f"{key}={self.text(given[key], depth + 1)}" for key in sorted(given))
        return f"{name}({inner})"

    def _class(self, kind: type) -> str:
        if not _is_users(kind):
            return name_of(kind)
        own = [
            self._code(function)
            for _, function in sorted(vars(kind).items())
            if isinstance(function, types.FunctionType)
        ]
        return f"{name_of(kind)} [{digest(' '.join(own))}]" if own else name_of(kind)

    def _object(self, value: Any, depth: int) -> str:
        if isinstance(getattr(value, "_orig_mod", None), nn.Module):  # compiled
            return self.text(value._orig_mod, depth)
        named = {
            name: one
            for name, one in getattr(value, "__dict__", {}).items()
            if not name.startswith("_") and name != "training"
        }
        if isinstance(value, nn.Module):
            named.update(value.named_buffers(recurse=False))
            named.update(value.named_children())
        return self._call(self._class(type(value)), named, depth)

    def _optimizer(self, value: torch.optim.Optimizer, depth: int) -> str:
        left_out = {"defaults", "state", "param_groups", "step"}
        named = {name: one for name, one in value.__dict__.items() if not name.startswith("_")}
        kind = self._class(type(value))
        found = self._call(kind, named, depth, left_out)
        return kind if found == f"{kind}()" else found

    def scheduler(self, value: Any, depth: int = 0) -> str:
        """Does the same as text(), but includes private attributes, which contain some of the
        arguments."""
        named, name = dict(value.__dict__), self._class(type(value))
        self.within.add(id(value))
        inner = named.pop("_schedulers", None)
        if isinstance(inner, (list, tuple)):
            name += "[" + ", ".join(self.scheduler(one, depth + 1) for one in inner) + "]"
        return self._call(name, named, depth, _NOT_OF_SCHEDULER)

    def _function(self, function: types.FunctionType, depth: int) -> str:
        function = getattr(function, "_torchdynamo_orig_callable", function)  # before torch.compile
        if not isinstance(function, types.FunctionType) or not _is_users(function):
            return name_of(function)
        code = self._code(function)
        names = {
            one.argval
            for one in dis.get_instructions(function.__code__)
            if one.opname == "LOAD_GLOBAL"
        }
        values = {
            name: function.__globals__[name] for name in names if name in function.__globals__
        }
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                values[name] = cell.cell_contents
            except ValueError:  # it has no value yet
                pass
        code += self._call("", values, depth) + self.text(function.__defaults__, depth + 1)
        return f"{name_of(function)} [{digest(code)}]"

    @staticmethod
    def _code(function: types.FunctionType) -> str:
        def of(code: types.CodeType) -> str:
            constants = [
                of(one) if isinstance(one, types.CodeType) else _Describer().text(one)
                for one in code.co_consts
                if one != function.__doc__
            ]
            return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"

        return of(function.__code__)


def _tensor(value: torch.Tensor) -> str:
    if value.numel() <= _FEW and value.layout == torch.strided:
        return repr(value.detach().cpu().tolist())
    kind = f"{str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    return f"{kind} [{digest(_bytes(value))}]"


def _bytes(value: torch.Tensor) -> bytes:
    value = value.detach().dequantize() if value.is_quantized else value.detach()
    value = value if value.layout == torch.strided else value.to_dense()
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def described(value: Any) -> str:
    """Returns a value in words, in one line: numbers by repr, objects by their class and public
    attributes, functions by their full name and a digest of their code and of the values that it
    reads."""
    return "none" if value is None else short(_Describer().text(value), 400)


# --- data ---


def data_in_words(data: Any, batch: int) -> str:
    """Returns a description of data in words."""
    parts = parts_of(data)[0]
    loader = next((one for one in parts if isinstance(one, torch.utils.data.DataLoader)), None)
    if loader is not None:
        return f"{type(loader.dataset).__name__} in batches of {loader.batch_size or batch}"
    if callable(data):
        return f"the function {getattr(data, '__name__', type(data).__name__)}"
    if hasattr(data, "__len__"):
        return f"a {type(data).__name__} of {len(data)} microbatches"
    return f"the stream {type(data).__name__}"


def data_facts(data: Any, batch: int) -> str:
    """Returns a description of data and of the objects that determine their order. It does not
    contain the values of the data."""
    words = [data_in_words(data, batch)]
    parts = parts_of(data)[0]
    loader = next((one for one in parts if isinstance(one, torch.utils.data.DataLoader)), None)
    if loader is None:
        return words[0]
    dataset = loader.dataset
    if hasattr(dataset, "__len__"):
        words.append(f"{len(dataset)} samples")
    plain = {
        name: value
        for name, value in sorted(getattr(dataset, "__dict__", {}).items())
        if isinstance(value, (bool, int, float, str)) or "transform" in name
    }
    plain = {
        name: value
        for name, value in plain.items()
        if not name.startswith("_") and not name.endswith("seed")
    }
    words += [f"{name} {described(value)}" for name, value in plain.items() if value is not None]
    order = [one for one in (loader.batch_sampler, loader.sampler) if one is not None]
    library = ("BatchSampler", "_InfiniteConstantSampler")
    words += [type(one).__name__ for one in order if type(one).__name__ not in library]
    return short(", ".join([*words, *(["drop_last"] if loader.drop_last else [])]), 300)


# --- stages ---


def network_facts(stage: Stage) -> str:
    """Returns the classes of the modules of a stage, with a digest of their code, shapes and
    settings."""
    words = " ".join(re.sub(" at 0x[0-9a-f]+", "", repr(module)) for module in stage.modules)
    tensors = [
        (name, tuple(t.shape), str(t.dtype), t.requires_grad)
        for module in stage.modules
        for name, t in (*module.named_parameters(), *module.named_buffers())
    ]
    plain = [_attributes(part) for module in stage.modules for part in module.modules()]
    words = " ".join(words.split())
    found = digest(f"{words} {tensors} {plain}")
    return f"{short(stage.name)} [{found}]"


def _attributes(part: nn.Module) -> str:
    values = {
        name: value
        for name, value in part.__dict__.items()
        if not name.startswith("_")
        and name != "training"
        and isinstance(value, (bool, int, float, str, tuple, types.FunctionType, functools.partial))
    }
    describer = _Describer()
    return describer._call(describer._class(type(part)), values, 1)


def optimizer_facts(stage: Stage, by_config: bool) -> dict[str, str]:
    """Returns each entry of each group of a stage, under GROUP.NAME. `by_config`: the config has
    the rates, and `lr_share` is the share of these rates that a group has."""
    found, number, names = {}, 0, {id(p): name for name, p in zip(stage.names, stage.parameters)}
    base = next(stage.groups())["initial_lr"]
    for one in stage.optimizers:
        for group in one.param_groups:
            number += 1
            mine = [names.get(id(p), "another") for p in group["params"]]
            rate = group["initial_lr"]
            lr = {"lr_share": rate / base if base else 1.0} if by_config else {"lr": rate}
            entries = {
                "class": None,
                **lr,
                **{str(name): value for name, value in group.items() if name not in _NOT_OF_GROUP},
            }
            found[f"{number}.class"] = described(one)
            for name, value in entries.items():
                if value is not None and value is not False and not name.endswith("seed"):
                    found[f"{number}.{re.sub('[^A-Za-z0-9_]', '_', name)}"] = described(value)
            if len(mine) != len(stage.parameters):
                found[f"{number}.parameters"] = short(", ".join(mine))
    return found


def _merged(prefix: str, rows: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yields (PREFIX.FIRST-LAST, row) for consecutive equal rows of the stages from 1."""
    first = 0
    for j in range(1, len(rows) + 1):
        if j == len(rows) or rows[j] != rows[first]:
            yield f"{prefix}.{first + 1}" + (f"-{j}" if j > first + 1 else ""), rows[first]
            first = j


def training_facts(
    stages: Sequence[Stage],
    schedulers: Sequence[list],
    config: Mapping[str, str],
    by_config: bool,
    facts: Mapping[str, Any],
) -> dict[str, str]:
    """Returns the lines as a dictionary. `facts` are values of keys of the trainer; a text is used
    as it is."""
    found = {
        f"trainer.{name}": value if isinstance(value, str) else described(value)
        for name, value in facts.items()
    }
    found["trainer.torch_seed"] = str(torch.initial_seed())
    types_of = sorted(
        {str(t.dtype).removeprefix("torch.") for stage in stages for t in stage.parameters}
    )
    found["trainer.dtype"] = ", ".join(types_of)
    if by_config:
        found["trainer.scheduler"] = "config"
        found.update(
            (f"trainer.scheduler.{key}", value)
            for key, value in config.items()
            if key.startswith("lr.") or key in ("optim.lr", "optim.lr_scaling")
        )
    elif any(schedulers):
        rows = [[short(_Describer().scheduler(one), 400) for one in some] for some in schedulers]
        for key, row in _merged("trainer.scheduler", rows):
            found.update((f"{key}.{number}", one) for number, one in enumerate(row, 1))
    else:
        found["trainer.scheduler"] = "none"
    found.update(_merged("stage", [network_facts(stage) for stage in stages]))
    for key, row in _merged("optimiser", [optimizer_facts(stage, by_config) for stage in stages]):
        found.update((f"{key}.{name}", value) for name, value in row.items())
    return dict(sorted(found.items()))


def weights_digest(stages: Sequence[Stage]) -> str:
    """Returns a digest of all weights and buffers."""
    found = hashlib.blake2b(digest_size=4)
    for stage in stages:
        for module in stage.modules:
            for tensor in tensors_in([*module.parameters(), *module.buffers()]):
                found.update(_bytes(tensor))
    return found.hexdigest()


def lines_of(training: Mapping[str, str]) -> str:
    """Returns the attribute `training`."""
    return "\n".join(f"{key}: {' '.join(value.split())}" for key, value in sorted(training.items()))


# --- words ---


def _range(values: Iterable[Any]) -> str:
    """Returns a number, or the smallest and the largest of several."""
    numbers = sorted({float(value) for value in values})
    return f"{numbers[0]:g}" + (f" to {numbers[-1]:g}" if len(numbers) > 1 else "")


def optimiser_in_words(
    stages: Sequence[Stage], rates: Sequence[float] | None, more: Sequence[str]
) -> str:
    """Returns the classes and the values of all groups: "SGD, lr 0.01 to 0.1, momentum 0.9".
    `rates`: the rates of the config, if it has them. `more`: further words."""
    kinds = {type(one).__name__: None for stage in stages for one in stage.optimizers}
    groups = [group for stage in stages for group in stage.groups()]
    words = [" and ".join(kinds)]
    for key, name in (
        ("lr", "initial_lr"),
        ("momentum", "momentum"),
        ("weight_decay", "weight_decay"),
    ):
        values: Sequence[float] = [group.get(name) or 0 for group in groups]
        if key == "lr" and rates:
            values = rates
        if any(values):
            words.append(f"{key} {_range(values)}")
    return ", ".join([*words, *more])


def network_in_words(stages: Sequence[Stage]) -> str:
    """Returns the names of the stages: "Stem, 6 Coupling, Head"."""
    merged = [(key, name) for key, name in _merged("", [stage.name for stage in stages])]
    words = []
    for key, name in merged:
        first, _, last = key[1:].partition("-")
        words.append(f"{int(last) - int(first) + 1} {name}" if last else name)
    text = ", ".join(words)
    return text if len(text) <= _LONG else text[: _LONG - 3] + "..."
