# SPDX-License-Identifier: Apache-2.0
"""Converts weights.h5 to a state_dict of PyTorch and back (docs/pytorch.md).

    to_state("weights.h5", "model.pt") # also .npz and .safetensors, which need no PyTorch
    to_petra("resnet18.pth", "weights.h5")         # for petra train --set model.weights=weights.h5
    to_petra("gpt2.safetensors", "gpt2.h5", heads=12)
    to_petra("llama/model.safetensors", "llama.h5", context=1024)

The network (family, depth, stem, width, classes, ...) follows from the names and shapes of the
tensors. A ResNet has the names of torchvision. A RevNet also has these names, and the names of
networks.py if torchvision has no counterpart. weights_transformers.py is for GPTs and Llamas.
Convolutions are (out, in, height, width), linear layers (out, in), everything of a batch norm
(channels,)."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import weights_transformers as transformers
from .errors import Error
from .modules import modules
from .run_log import replace
from .text import brief, shown
from .weights_files import ENDINGS, petra_file, read_petra, read_state, state_file

if TYPE_CHECKING:
    import numpy

Shape = tuple[int, ...]  # of a tensor

# By group; petra has no other depths of this shape.
BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
}
# The depth by these numbers and whether blocks are bottlenecks.
DEPTHS: dict[tuple[tuple[int, ...], bool], int] = {
    (BLOCKS[depth], depth >= 50): depth for depth in BLOCKS
}
NORM = {
    "scale": "weight",
    "shift": "bias",
    "running_mean": "running_mean",
    "running_var": "running_var",
}
# Wrappers add these parts of names: torch.compile, FSDP and checkpointed activations anywhere,
# DataParallel at the front.
WRAPPERS, FRONT = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"), "module."
AVERAGED = "n_averaged"  # number of states in an average of weights (torch.optim.swa_utils)


class Network:
    """A RevNet or ResNet, in the words of a config.

    >>> print(Network("revnet", 18, 64, "cifar", 10, "conv"))
    revnet-18 width 64, cifar stem, 10 classes
    """

    def __init__(
        self,
        family: str,
        depth: int,
        width: int,
        stem: str,
        classes: int,
        downsample: str,
        shape: str = "pyramid",
        bottleneck: str = "standard",
    ) -> None:
        self.family, self.depth, self.width = family, depth, width
        self.stem, self.classes, self.downsample, self.shape, self.bottleneck = (
            stem,
            classes,
            downsample,
            shape,
            bottleneck,
        )

    def __str__(self) -> str:
        words = [f"{self.family}-{self.depth} width {self.width}", f"{self.stem} stem"]
        words += (
            ["constant shape"]
            if self.shape == "constant"
            else ["variant bottleneck"]
            if self.bottleneck == "variant"
            else []
        )
        return ", ".join(words + [f"{self.classes} classes"])

    def has_bottlenecks(self) -> bool:
        return self.shape == "pyramid" and self.depth >= 50

    def settings(self) -> str:
        """Returns the options of petra that make this network."""
        values = {
            "family": self.family,
            "depth": self.depth,
            "width": self.width,
            "stem": self.stem,
            "classes": self.classes,
        }
        defaults = {"downsample": "conv", "shape": "pyramid", "bottleneck": "standard"}
        values |= {
            key: getattr(self, key)
            for key, default in defaults.items()
            if getattr(self, key) != default
        }
        return " ".join(f"--set model.{key}={value}" for key, value in values.items())

    def blocks(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yields (group, index in it, stride, inputs, planes, outputs) of every block between stem
        and head; inputs and outputs are the numbers of channels of a stream."""
        inputs = self.width
        for group, count in enumerate(
            BLOCKS[self.depth] if self.shape == "pyramid" else (self.depth,)
        ):
            for index in range(count):
                planes = self.width if self.downsample == "invertible" else self.width << group
                outputs = (
                    self.width << 2 * group
                    if self.downsample == "invertible"
                    else planes * (4 if self.has_bottlenecks() else 1)
                )
                yield group + 1, index, 2 if group and not index else 1, inputs, planes, outputs
                inputs = outputs


def unit(
    petra: str, torch: str, norm: str, outputs: int, inputs: int, kernel: int
) -> Iterator[tuple[str, str, Shape]]:
    """Yields (name in weights.h5, name in the state_dict, shape) of each tensor of a convolution
    and its batch norm."""
    number = re.search(r"\d?$", petra).group()
    own = f"{petra}/conv/weight" if "shortcut" in petra else f"{petra}/weight"
    bn = f"{petra}/bn" if "shortcut" in petra else re.sub(r"conv\d?$", f"bn{number}", petra)
    yield own, f"{torch}.weight", (outputs, inputs, kernel, kernel)
    for name, other in NORM.items():
        yield f"{bn}/{name}", f"{norm}.{other}", (outputs,)


def tensors(network: Network | transformers.Transformer) -> Iterator[tuple[str, str, Shape]]:
    """Yields (name in weights.h5, name in the state_dict, shape in weights.h5) of every tensor,
    from the stem to the head. Of a Llama, a tensor of weights.h5 may have several rows: it stacks
    their tensors along its first axis."""
    if isinstance(network, transformers.Transformer):
        yield from transformers.tensors(network)
        return
    streams = 2 if network.family == "revnet" else 1
    yield from unit(
        "01/conv",
        "conv1",
        "bn1",
        streams * network.width,
        3,
        7 if network.stem == "imagenet" else 3,
    )
    number, outputs = 1, network.width
    for group, index, stride, inputs, planes, outputs in network.blocks():
        number += 1
        petra, torch = f"{number:02d}", f"layer{group}.{index}"
        read = outputs if network.bottleneck == "variant" else inputs  # by the first convolution
        sides = (
            [(planes, read, 1), (planes, planes, 3), (outputs, planes, 1)]
            if network.has_bottlenecks()
            else [(planes, inputs, 3), (outputs, planes, 3)]
        )
        for i, (out, into, kernel) in enumerate(sides, 1):
            yield from unit(
                f"{petra}/conv{i}", f"{torch}.conv{i}", f"{torch}.bn{i}", out, into, kernel
            )
        if (stride == 1 and inputs == outputs) or network.downsample == "invertible":
            continue
        for stream in ("1", "2") if streams == 2 and network.has_bottlenecks() else ("",):
            shortcut = f"{torch}.downsample{stream}"
            yield from unit(
                f"{petra}/shortcut{stream}", f"{shortcut}.0", f"{shortcut}.1", outputs, inputs, 1
            )
    yield f"{number + 1:02d}/fc/weight", "fc.weight", (network.classes, streams * outputs)
    yield f"{number + 1:02d}/fc/bias", "fc.bias", (network.classes,)


def network_of(
    path: str,
    counts: tuple[int, ...],
    shape: Callable[[str], Shape],
    has_conv3: bool,
    has_shortcut: bool,
    head: str,
) -> Network:
    """Returns the network with these numbers of blocks by group; shape(name) is the shape of a
    tensor by its name in the state_dict."""
    constant = counts[1:] == (0, 0, 0) and counts[0] > 0 and not has_conv3 and not has_shortcut
    if not constant and (counts, has_conv3) not in DEPTHS:
        raise Error(
            f"{path}: a network of {', '.join(map(str, counts))} blocks by group; expected 2, 2, 2,"
            " 2 (depth 18), 3, 4, 6, 3 (34 or 50), 3, 4, 23, 3 (101) or a single group without"
            " shortcuts (constant shape)"
        )
    stem, first, fc = shape("conv1.weight"), shape("layer1.0.conv1.weight"), shape("fc.weight")
    if (
        len(stem) != 4
        or stem[2] not in (3, 7)
        or len(first) != 4
        or len(fc) != 2
        or stem[0] not in (first[0], 2 * first[0])
        or (constant and stem[0] == first[0])
    ):
        raise Error(
            f"{path}: first convolution {stem}, that of the first block {first}, {head} {fc}: no"
            " network of petra has these; expected 7x7 or 3x3 and one or two streams"
        )
    transformers.check_sizes(
        path, {"model.width": first[0], "model.classes": fc[0], "model.depth": max(counts)}
    )
    family = "revnet" if stem[0] == 2 * first[0] else "resnet"
    stem_name = "imagenet" if stem[2] == 7 else "cifar"
    if constant:
        return Network(family, counts[0], first[0], stem_name, fc[0], "conv", shape="constant")
    return Network(
        family,
        DEPTHS[counts, has_conv3],
        first[0],
        stem_name,
        fc[0],
        "invertible" if family == "revnet" and not has_shortcut and not has_conv3 else "conv",
        bottleneck="variant"
        if family == "revnet" and has_conv3 and first[1] != first[0]
        else "standard",
    )


def network_of_petra(
    path: str, label: str, shapes: Mapping[str, Shape]
) -> Network | transformers.Transformer:
    """Returns the network whose tensors in weights.h5 have these shapes; `label` is the attribute
    `model` of the file."""
    if (found := transformers.network_of_petra(path, label, shapes)) is not None:
        return found
    blocks = {name.split("/")[0] for name in shapes}
    fc, first = shapes.get(f"{len(blocks):02d}/fc/weight", ()), shapes.get("02/conv1/weight", ())
    # In a network of constant shape, and only there, the head has two features for each channel of
    # the first block.
    constant = len(fc) == 2 and len(first) == 4 and fc[1] == 2 * first[0]
    counts = (
        (len(blocks) - 2, 0, 0, 0)
        if constant
        else {sum(groups) + 2: groups for groups in BLOCKS.values()}.get(len(blocks))
    )
    if not counts:
        raise Error(
            f"{path}: {len(blocks)} blocks; expected the 10 of depth 18, the 18 of depths 34 and"
            " 50, the 35 of depth 101, or constant shape"
        )
    names = {
        "conv1.weight": "01/conv/weight",
        "layer1.0.conv1.weight": "02/conv1/weight",
        "fc.weight": f"{len(blocks):02d}/fc/weight",
    }

    def shape(name: str) -> tuple[int, ...]:
        if names[name] not in shapes:
            raise Error(f"{path}: no tensor /parameters/{names[name]}")
        return shapes[names[name]]

    return network_of(
        path,
        counts,
        shape,
        any("/conv3/" in name for name in shapes),
        any("/shortcut" in name for name in shapes),
        "head",
    )


def network_of_state(
    path: str,
    shapes: Mapping[str, Shape],
    heads: int | None = None,
    rotary_base: float | None = None,
    context: int | None = None,
) -> Network | transformers.Transformer:
    """Returns the network whose tensors in a state_dict have these shapes; `heads` is for a GPT or
    Llama, `rotary_base` and `context` (None: petra's defaults) for a Llama. `path` names the
    state_dict in an Error."""
    if (
        network := transformers.network_of_state(path, shapes, heads, rotary_base, context)
    ) is not None:
        return network
    if heads or rotary_base is not None or context is not None:
        option = "--rotary-base and --context are for a Llama"
        if heads:
            option = "--heads is for a GPT or Llama"
        raise Error(f"{path}: {option}, and none has these tensors")
    found = [re.match(r"layer([1-4])\.([0-9]+)\.", name) for name in shapes]
    counts = [
        len({match.group(2) for match in found if match and match.group(1) == group})
        for group in "1234"
    ]

    def shape(name: str) -> tuple[int, ...]:
        if name not in shapes:
            raise Error(
                f"{path}: no tensor {name}; expected the names of torchvision's ResNets, of"
                " petrapipe.networks, or of Hugging Face's GPT2LMHeadModel or LlamaForCausalLM"
            )
        return shapes[name]

    shape("conv1.weight")
    return network_of(
        path,
        tuple(counts),
        shape,
        any(".conv3." in name for name in shapes),
        any(".downsample" in name for name in shapes),
        "fc.weight",
    )


def check_shapes(path: str, wanted: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> None:
    """Raises Error unless these are the names and shapes of the tensors of a network."""
    for name, shape in wanted.items():
        if name not in shapes:
            raise Error(f"{path}: no tensor {name}")
        if shapes[name] != shape:
            raise Error(f"{path}: {name} has shape {shapes[name]}, expected {shape}")
    for name in shapes:
        if name not in wanted:
            raise Error(f"{path}: {brief(name)} is not a tensor of this network")


def check(path: str, wanted: Mapping[str, Shape], values: Mapping[str, numpy.ndarray]) -> None:
    """Raises Error unless `values` are the tensors of these names and shapes, finite, with
    variances of at least 0."""
    (numpy,) = modules("numpy")
    check_shapes(path, wanted, {name: value.shape for name, value in values.items()})
    for name, value in values.items():
        if value.dtype.kind != "f":
            raise Error(f"{path}: {name} is of type {value.dtype}; expected floating point numbers")
        if not numpy.isfinite(value).all():
            raise Error(f"{path}: {name} has an element that is not a finite number")
        if name.endswith("running_var") and (value < 0).any():
            raise Error(f"{path}: {name} has a variance below 0")


# --- state_dicts ---


def unwrapped(path: str, values: Mapping) -> dict:
    """Returns the values by names without the additions of wrappers: parts of names, and a count.

    >>> unwrapped("model.pt", {"module._orig_mod.fc.bias": 1, "n_averaged": 3})
    {'fc.bias': 1}
    """
    found: dict[str, Any] = {}
    first: dict[str, str] = {}
    for name, value in values.items():
        plain = ".".join(part for part in name.split(".") if part not in WRAPPERS)
        if plain == AVERAGED:
            continue
        if plain in found:
            raise Error(f"{path}: {first[plain]} and {name} are both {plain}")
        found[plain], first[plain] = value, name
    while found and all(name.startswith(FRONT) for name in found):
        found = {name[len(FRONT) :]: value for name, value in found.items()}
    return found


def read_plain(path: str, key: str | None = None) -> dict[str, numpy.ndarray]:
    """Returns the tensors of a file of a state_dict, by plain names; `key` is the key of the
    state_dict in a checkpoint."""
    return {
        name: value
        for name, value in unwrapped(path, read_state(path, key)).items()
        if not name.endswith("num_batches_tracked")
    }


def fold_biases(
    values: dict[str, numpy.ndarray], network: Network | transformers.Transformer
) -> int:
    """Moves biases of convolutions, which petra lacks, into the running means of the next batch
    norm. In evaluation the function is the same; in training a batch norm removes any bias. Returns
    their number."""
    if isinstance(network, transformers.Transformer):
        return 0
    count, names = 0, [name for _, name, _ in tensors(network)]
    for at, name in enumerate(names):
        bias = re.sub(r"\.weight$", ".bias", name)
        if bias == name or bias in names or bias not in values or values[bias].dtype.kind != "f":
            continue
        mean = names[at + 3]  # after weight, scale and shift
        if mean in values and values[mean].shape == values[bias].shape:
            values[mean] = values[mean] - values.pop(bias)
            count += 1
    return count


def renamed(path: str, values: Mapping[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
    """Renames the values by the lines of a file: NAME-IN-THE-STATE_DICT NAME-HERE, one tensor per
    line."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = [
                (number, line.split())
                for number, line in enumerate(file, 1)
                if line.split() and not line.startswith("#")
            ]
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: cannot be read: {error}") from None
    for number, row in rows:
        if len(row) != 2:
            raise Error(f"{path}:{number}: {len(row)} words; expected two names")
        if row[0] not in values:
            raise Error(f"{path}:{number}: the state_dict has no {brief(row[0])}")
    here, found = dict(row for _, row in rows), {}
    for name, value in values.items():
        if (new := here.get(name, name)) in found:
            raise Error(
                f"{path}: two tensors of the state_dict would have the name {new}; expected a name"
                " for each"
            )
        found[new] = value
    return found


# --- both ways ---


def turned(name: str, value: numpy.ndarray) -> numpy.ndarray:
    """Converts a tensor between weights.h5 and the state_dict, in both directions: a matrix may be
    transposed."""
    return value.T.copy() if transformers.is_transposed(name) else value


def shapes_in_petra(network: Network | transformers.Transformer) -> dict[str, Shape]:
    """Returns the shape of every tensor in weights.h5 by its name."""
    shapes: dict[str, Shape] = {}
    for petra, _, shape in tensors(network):
        shapes[petra] = (shape[0] + shapes[petra][0] if petra in shapes else shape[0], *shape[1:])
    return shapes


def state_of(
    network: Network | transformers.Transformer, values: Mapping[str, numpy.ndarray]
) -> dict[str, numpy.ndarray]:
    """Converts values by their names in weights.h5, of the shapes of `shapes_in_petra`, to the
    values of a state_dict."""
    state, rows = {}, dict.fromkeys(values, 0)
    for petra, torch, shape in tensors(network):
        first, rows[petra] = rows[petra], rows[petra] + shape[0]
        state[torch] = turned(torch, values[petra][first : rows[petra]])
    return state


def values_of(
    network: Network | transformers.Transformer, state: Mapping[str, numpy.ndarray]
) -> dict[str, numpy.ndarray]:
    """Converts the values of a state_dict to the values of weights.h5."""
    (numpy,) = modules("numpy")
    parts: dict[str, list] = {}
    for petra, torch, _ in tensors(network):
        parts.setdefault(petra, []).append(turned(torch, state[torch]))
    return {
        petra: some[0] if len(some) == 1 else numpy.concatenate(some)
        for petra, some in parts.items()
    }


def shapes_in_state(network: Network | transformers.Transformer) -> dict[str, Shape]:
    """Returns the shape of every tensor in the state_dict by its name."""
    return {
        name: shape[::-1] if transformers.is_transposed(name) else shape
        for _, name, shape in tensors(network)
    }


def read_network(path: str) -> tuple[Network | transformers.Transformer, dict[str, numpy.ndarray]]:
    """Returns the network of a weights.h5, and its weights as the values of a state_dict."""
    values, label = read_petra(path)
    network = network_of_petra(path, label, {name: value.shape for name, value in values.items()})
    check(path, shapes_in_petra(network), values)
    return network, state_of(network, values)


def to_state(source: str, target: str) -> str:
    """Writes the weights of the file weights.h5 `source` as a state_dict. Returns one line about
    them."""
    network, state = read_network(source)
    replace(target, [state_file(os.path.splitext(target)[1], state)], sync=False)
    return (
        f"{shown(target)}:"
        f" {network}{', invertible' if getattr(network, 'downsample', '') == 'invertible' else ''};"
        f" {len(state)} tensors"
    )


def to_petra(
    source: str,
    target: str,
    key: str | None = None,
    names: str | None = None,
    heads: int | None = None,
    rotary_base: float | None = None,
    context: int | None = None,
) -> str:
    """Writes the state_dict in the file `source` as weights.h5. `key` is the key of the state_dict
    in a checkpoint, `names` a file of names (`renamed`), `heads` the number of heads of a GPT or
    Llama, `rotary_base` the base of the rotary positions of a Llama and `context` the number of
    tokens that it will read (None: petra's defaults). The config.json beside a Llama in a
    .safetensors file is read too. Returns two lines: what was written, and the options of petra
    that make its network."""
    state = read_plain(source, key)
    if names:
        state = renamed(names, state)
    state, tied = transformers.rectified(state)
    facts: dict[str, Any] = {"heads": heads, "rotary_base": rotary_base}
    families = [family for family, _ in transformers.tables_in(state)]
    llama = any("llama" in family for family in families)
    config = transformers.config_beside(source) if llama or tied else None
    if llama and config is not None:
        facts = transformers.merged(
            source, facts, transformers.facts_of_config(transformers.config_path(source), config)
        )
    network: Any = network_of_state(
        source, {name: value.shape for name, value in state.items()}, context=context, **facts
    )
    folded = fold_biases(state, network)
    check(source, shapes_in_state(network), state)
    notes = [f"{folded} biases of convolutions are now in the running means"] * bool(folded)
    if families:
        notes += transformers.compare_heads(source, config, network, state, tied)
    if llama:
        notes += transformers.compare_with_config(source, config, network)
    values = values_of(network, state)
    replace(target, [petra_file(network, values)], sync=False)
    return (
        "; ".join([f"{shown(target)}: {len(values)} tensors", *notes])
        + f"\nits network: {network.settings()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="weights.h5 into a state_dict of PyTorch, and back",
        epilog="The endings of the two names "
        f"say which way: .h5 and one of {', '.join(ENDINGS)}; docs/pytorch.md tells more.",
    )
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument(
        "--key", help="the state_dict within a checkpoint, such as model or state_dict"
    )
    parser.add_argument(
        "--heads",
        metavar="N",
        type=int,
        help="of a GPT or Llama, whose state_dict does not tell them",
    )
    parser.add_argument(
        "--rotary-base",
        metavar="X",
        type=float,
        help=(
            "base of the rotary positions of a Llama, whose state_dict does not contain it"
            f" (default: that of config.json, otherwise {transformers.ROTARY_BASE:g})"
        ),
    )
    parser.add_argument(
        "--context",
        metavar="N",
        type=int,
        help=(
            "tokens that a Llama will read at once, model.context (default:"
            f" {transformers.CONTEXT})"
        ),
    )
    parser.add_argument(
        "--names", metavar="FILE", help="lines of two names: a tensor's in the state_dict, and here"
    )
    options = parser.parse_args()
    ends = [os.path.splitext(name)[1] for name in (options.source, options.target)]
    if ends[0] == ".h5" and ends[1] in ENDINGS:
        if (
            options.key
            or options.names
            or options.heads
            or options.rotary_base is not None
            or options.context is not None
        ):
            raise Error(
                "--key, --names, --heads, --rotary-base and --context are for reading a state_dict"
            )
        print(to_state(options.source, options.target))
    elif ends[1] == ".h5" and ends[0] in ENDINGS:
        print(
            to_petra(
                options.source,
                options.target,
                options.key,
                options.names,
                options.heads,
                options.rotary_base,
                options.context,
            )
        )
    else:
        raise Error(
            f"from '{options.source}' to '{options.target}'; expected from .h5 to one of"
            f" {', '.join(ENDINGS)}, or the other way"
        )
