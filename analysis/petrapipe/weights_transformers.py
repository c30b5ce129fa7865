# SPDX-License-Identifier: Apache-2.0
"""The names of the tensors of a GPT in a state_dict: those of Hugging Face's GPT2LMHeadModel. A RevGPT has the same names with
`reversible` instead of `transformer`, because nothing else in a state_dict distinguishes the two."""

from __future__ import annotations

import re
from typing import Iterator, Mapping

from .errors import Error

TRUNKS = {"gpt": "transformer", "revgpt": "reversible"}
HEAD = "lm_head.weight"
TABLE = "wte.weight"  # the table of the tokens, below the trunk
# Buffers of a trunk that no longer belong to a state_dict: masks of the attention.
MASKS = r"h\.\d+\.attn\.(bias|masked_bias)$"


class Transformer:
    """A GPT or RevGPT, in the words of a config.

    >>> Transformer("gpt", 2, 8, 2, 5, 64).settings()
    '--set model.family=gpt --set model.depth=2 --set model.width=8 --set model.heads=2 --set model.context=5'
    """

    def __init__(self, family: str, depth: int, width: int, heads: int, context: int, classes: int) -> None:
        self.family, self.depth, self.width, self.heads, self.context, self.classes = family, depth, width, heads, context, classes

    def __str__(self) -> str:
        return f"{self.family}-{self.depth} width {self.width}, {self.heads} heads, context {self.context}, {self.classes} classes"

    def settings(self) -> str:
        """Returns the options of petra that make this network."""
        values = {"family": self.family, "depth": self.depth, "width": self.width, "heads": self.heads, "context": self.context}
        return " ".join(f"--set model.{key}={value}" for key, value in values.items())


def norm(petra: str, torch: str, width: int) -> list[tuple[str, str, tuple]]:
    return [(f"{petra}/scale", f"{torch}.weight", (width,)), (f"{petra}/shift", f"{torch}.bias", (width,))]


def linear(petra: str, torch: str, outputs: int, inputs: int) -> list[tuple[str, str, tuple]]:
    return [(f"{petra}/weight", f"{torch}.weight", (outputs, inputs)), (f"{petra}/bias", f"{torch}.bias", (outputs,))]


def tensors(network: Transformer) -> Iterator[tuple[str, str, tuple]]:
    """Yields (name in weights.h5, name in the state_dict, shape in weights.h5) of every tensor, from the embedding to the head."""
    trunk, width = TRUNKS[network.family], network.width
    yield "01/tokens/weight", f"{trunk}.{TABLE}", (network.classes, width)
    yield "01/positions/weight", f"{trunk}.wpe.weight", (network.context, width)
    for layer in range(network.depth):
        attention, mlp, torch = f"{2 * layer + 2:02d}", f"{2 * layer + 3:02d}", f"{trunk}.h.{layer}"
        yield from norm(f"{attention}/ln", f"{torch}.ln_1", width)
        yield from linear(f"{attention}/qkv", f"{torch}.attn.c_attn", 3 * width, width)
        yield from linear(f"{attention}/proj", f"{torch}.attn.c_proj", width, width)
        yield from norm(f"{mlp}/ln", f"{torch}.ln_2", width)
        yield from linear(f"{mlp}/fc", f"{torch}.mlp.c_fc", 4 * width, width)
        yield from linear(f"{mlp}/proj", f"{torch}.mlp.c_proj", width, 4 * width)
    head = f"{2 * network.depth + 2:02d}"
    yield from norm(f"{head}/ln", f"{trunk}.ln_f", width)
    yield f"{head}/fc/weight", HEAD, (network.classes, width)


def is_transposed(name: str) -> bool:
    """Returns whether a tensor of a state_dict is (in, out): the weight of a Conv1D, Hugging Face's linear map.

    >>> is_transposed("transformer.h.0.attn.c_attn.weight"), is_transposed("lm_head.weight")
    (True, False)
    """
    return re.search(r"\.c_(attn|proj|fc)\.weight$", name) is not None


def network_of_petra(path: str, label: str, shapes: Mapping[str, tuple]) -> Transformer | None:
    """Returns the network of weights.h5, whose attribute `model` is `label`; None for another kind."""
    if "01/tokens/weight" not in shapes:
        return None
    found = re.fullmatch(r"(gpt|revgpt)-(\d+) width (\d+), (\d+) heads, context (\d+), (\d+) classes", label)
    if not found:
        raise Error(f"{path}: its attribute model is '{label}'; expected that of a gpt or a revgpt, whose tensors have the same names")
    return Transformer(found[1], *(int(number) for number in found.groups()[1:]))


def rectified(values: Mapping) -> tuple[dict, bool]:
    """Returns a state_dict with the parts that Hugging Face omits: the prefix of a trunk that was saved alone, and the head if it is the table of the
    tokens. The second value says whether the head was added."""
    values = dict(values)
    if TABLE in values:
        values = {name if name == HEAD else f"{TRUNKS['gpt']}.{name}": value for name, value in values.items()}
    trunk = next((trunk for trunk in TRUNKS.values() if f"{trunk}.{TABLE}" in values), None)
    values = {name: value for name, value in values.items() if not re.search(MASKS, name)}
    tied = trunk is not None and HEAD not in values
    if tied:
        values[HEAD] = values[f"{trunk}.{TABLE}"].copy()
    return values, tied


def network_of_state(path: str, shapes: Mapping[str, tuple], heads: int | None) -> Transformer | None:
    """Returns the network of a rectified state_dict with these shapes; None for another kind."""
    found = [family for family, trunk in TRUNKS.items() if f"{trunk}.{TABLE}" in shapes]
    if not found:
        return None
    family, trunk = found[0], TRUNKS[found[0]]
    layers = {int(match[1]) for match in (re.match(rf"{trunk}\.h\.(\d+)\.", name) for name in shapes) if match}
    table, positions = shapes[f"{trunk}.{TABLE}"], shapes.get(f"{trunk}.wpe.weight", ())
    if len(found) > 1 or layers != set(range(len(layers))) or not layers or len(table) != 2 or len(positions) != 2:
        raise Error(f"{path}: {trunk}.{TABLE} {table}, {trunk}.wpe.weight {positions}, layers {sorted(layers)}: no GPT-2 has these")
    if not heads:
        raise Error(f"{path}: a state_dict does not contain the number of heads; expected --heads N (of a function: heads=N)")
    if heads < 0 or table[1] % heads:
        raise Error(f"{path}: {heads} heads for {table[1]} features; expected a divisor")
    return Transformer(family, len(layers), table[1], heads, positions[0], table[0])
