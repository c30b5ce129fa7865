# SPDX-License-Identifier: Apache-2.0
"""The names of the tensors of a GPT or Llama in a state_dict: those of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM. A reversible network has the
same names with `reversible` instead of `transformer` or `model`, or with `leapfrog` if this is its coupling, because nothing else in a state_dict
distinguishes them."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping

from .errors import Error

# The first part of the names, by family and coupling; and the table of the tokens below it.
TRUNKS = {("gpt", "additive"): "transformer", ("revgpt", "additive"): "reversible", ("revgpt", "leapfrog"): "leapfrog",
          ("llama", "additive"): "model", ("revllama", "additive"): "reversible", ("revllama", "leapfrog"): "leapfrog"}
TABLES = {"gpt": "wte.weight", "llama": "embed_tokens.weight"}
HEAD = "lm_head.weight"
# Buffers of a trunk that no longer belong to a state_dict: masks of the attention, frequencies of rotary positions.
BUFFERS = r"h\.\d+\.attn\.(bias|masked_bias)$|\.rotary_emb\.inv_freq$"
ROTARY_BASE, CONTEXT = 10000.0, 128  # petra's defaults
EPSILON = 1e-5  # of petra's RMS norm
# The largest values of petra's keys.
LARGEST = {"data.vocabulary": 65536, "model.width": 4096, "model.context": 65536}
LABEL = re.compile(r"(?P<family>(?:rev)?(?:gpt|llama))-(?P<depth>\d+) width (?P<width>\d+), (?P<heads>[1-9]\d*) heads(?: \((?P<kv_heads>\d+) of keys and values\))?"
                   r"(?:, hidden (?P<hidden>\d+), rotary base (?P<rotary_base>[\d.e+-]+))?, context (?P<context>\d+)(?:, (?P<coupling>leapfrog) coupling)?, "
                   r"(?P<classes>\d+) classes")


@dataclass
class Transformer:
    """A GPT or Llama, ordinary or reversible, in the words of a config; the last four are those of Llamas, and of reversible networks.

    >>> Transformer("gpt", 2, 8, 2, 5, 64).settings()
    '--set model.family=gpt --set model.depth=2 --set model.width=8 --set model.heads=2 --set model.context=5'
    >>> print(Transformer("revllama", 2, 8, 4, 5, 64, kv_heads=2, hidden=20, coupling="leapfrog"))
    revllama-2 width 8, 4 heads (2 of keys and values), hidden 20, rotary base 10000, context 5, leapfrog coupling, 64 classes
    """

    family: str
    depth: int
    width: int
    heads: int
    context: int
    classes: int
    kv_heads: int = 0
    hidden: int = 0
    rotary_base: float = ROTARY_BASE
    coupling: str = "additive"

    def __str__(self) -> str:
        words = [f"{self.family}-{self.depth} width {self.width}", f"{self.heads} heads"]
        if self.kind() == "llama":
            words[-1] += f" ({self.kv_heads} of keys and values)"
            words += [f"hidden {self.hidden}", f"rotary base {self.rotary_base:.15g}"]
        words += [f"context {self.context}"] + [f"{self.coupling} coupling"] * (self.coupling != "additive")
        return ", ".join(words + [f"{self.classes} classes"])

    def kind(self) -> str:
        """Returns "gpt" or "llama"."""
        return self.family.removeprefix("rev")

    def trunk(self) -> str:
        """Returns the first part of the names in a state_dict."""
        return TRUNKS[self.family, self.coupling]

    def settings(self) -> str:
        """Returns the options of petra that make this network."""
        values = {"family": self.family, "depth": self.depth, "width": self.width, "heads": self.heads}
        if self.kind() == "llama":
            values |= {"kv_heads": self.kv_heads, "hidden": self.hidden, "rotary_base": f"{self.rotary_base:.15g}"}
        values |= {"context": self.context} | ({} if self.coupling == "additive" else {"coupling": self.coupling})
        return " ".join(f"--set model.{key}={value}" for key, value in values.items())


def norm(petra: str, torch: str, width: int) -> list[tuple[str, str, tuple]]:
    return [(f"{petra}/scale", f"{torch}.weight", (width,)), (f"{petra}/shift", f"{torch}.bias", (width,))]


def linear(petra: str, torch: str, outputs: int, inputs: int) -> list[tuple[str, str, tuple]]:
    return [(f"{petra}/weight", f"{torch}.weight", (outputs, inputs)), (f"{petra}/bias", f"{torch}.bias", (outputs,))]


def tensors(network: Transformer) -> Iterator[tuple[str, str, tuple]]:
    """Yields (name in weights.h5, name in the state_dict, shape in weights.h5) of every tensor, from the embedding to the head. A tensor of weights.h5
    that has several rows stacks their tensors along its first axis."""
    trunk, width, head = network.trunk(), network.width, f"{2 * network.depth + 2:02d}"
    yield "01/tokens/weight", f"{trunk}.{TABLES[network.kind()]}", (network.classes, width)
    if network.kind() == "gpt":
        yield "01/positions/weight", f"{trunk}.wpe.weight", (network.context, width)
    for layer in range(network.depth):
        attention, mlp = f"{2 * layer + 2:02d}", f"{2 * layer + 3:02d}"
        if network.kind() == "llama":
            yield from llama_layer(network, attention, mlp, f"{trunk}.layers.{layer}")
        else:
            yield from gpt_layer(width, attention, mlp, f"{trunk}.h.{layer}")
    yield from norm(f"{head}/ln", f"{trunk}.ln_f", width) if network.kind() == "gpt" else [(f"{head}/norm/scale", f"{trunk}.norm.weight", (width,))]
    yield f"{head}/fc/weight", HEAD, (network.classes, width)


def gpt_layer(width: int, attention: str, mlp: str, torch: str) -> Iterator[tuple[str, str, tuple]]:
    """Yields the rows of `tensors` for one layer."""
    yield from norm(f"{attention}/ln", f"{torch}.ln_1", width)
    yield from linear(f"{attention}/qkv", f"{torch}.attn.c_attn", 3 * width, width)
    yield from linear(f"{attention}/proj", f"{torch}.attn.c_proj", width, width)
    yield from norm(f"{mlp}/ln", f"{torch}.ln_2", width)
    yield from linear(f"{mlp}/fc", f"{torch}.mlp.c_fc", 4 * width, width)
    yield from linear(f"{mlp}/proj", f"{torch}.mlp.c_proj", width, 4 * width)


def llama_layer(network: Transformer, attention: str, mlp: str, torch: str) -> Iterator[tuple[str, str, tuple]]:
    """Yields the rows of `tensors` for one layer."""
    width, hidden, shared = network.width, network.hidden, network.width // network.heads * network.kv_heads
    yield f"{attention}/norm/scale", f"{torch}.input_layernorm.weight", (width,)
    for part, outputs in (("q", width), ("k", shared), ("v", shared)):
        yield f"{attention}/qkv/weight", f"{torch}.self_attn.{part}_proj.weight", (outputs, width)
    yield f"{attention}/proj/weight", f"{torch}.self_attn.o_proj.weight", (width, width)
    yield f"{mlp}/norm/scale", f"{torch}.post_attention_layernorm.weight", (width,)
    for part in ("gate", "up"):
        yield f"{mlp}/gate_up/weight", f"{torch}.mlp.{part}_proj.weight", (hidden, width)
    yield f"{mlp}/down/weight", f"{torch}.mlp.down_proj.weight", (width, hidden)


def is_transposed(name: str) -> bool:
    """Returns whether a tensor of a state_dict is (in, out): the weight of a Conv1D, Hugging Face's linear map in a GPT.

    >>> is_transposed("transformer.h.0.attn.c_attn.weight"), is_transposed("lm_head.weight")
    (True, False)
    """
    return re.search(r"\.c_(attn|proj|fc)\.weight$", name) is not None


def network_of_petra(path: str, label: str, shapes: Mapping[str, tuple]) -> Transformer | None:
    """Returns the network of weights.h5, whose attribute `model` is `label`; None for another kind."""
    if "01/tokens/weight" not in shapes:
        return None
    found = LABEL.fullmatch(label)
    if not found or ("llama" in found["family"]) != (found["hidden"] is not None):
        raise Error(f"{path}: its attribute model is '{label}'; expected that of a gpt, revgpt, llama or revllama, whose tensors have the same names")
    values = {name: value for name, value in found.groupdict().items() if value is not None}
    values |= {name: int(value) for name, value in values.items() if value.isdigit()}
    if "llama" in found["family"]:
        values = {"kv_heads": values["heads"]} | values | {"rotary_base": float(values["rotary_base"])}
    return Transformer(**values)


def rectified(values: Mapping) -> tuple[dict, bool]:
    """Returns a state_dict with the parts that Hugging Face omits: the prefix of a trunk that was saved alone, and the head if it is the table of the
    tokens. The second value says whether the head was added."""
    values = dict(values)
    for kind, table in TABLES.items():
        if table in values:
            values = {name if name == HEAD else f"{TRUNKS[kind, 'additive']}.{name}": value for name, value in values.items()}
    values = {name: value for name, value in values.items() if not re.search(BUFFERS, name)}
    found = tables_in(values)
    tied = bool(found) and HEAD not in values
    if tied:
        values[HEAD] = values[table_of(*found[0])].copy()
    return values, tied


def table_of(family: str, coupling: str) -> str:
    """Returns the name of the table of the tokens in a state_dict."""
    return f"{TRUNKS[family, coupling]}.{TABLES[family.removeprefix('rev')]}"


def tables_in(values: Mapping) -> list[tuple[str, str]]:
    """Returns (family, coupling) of each network whose table of the tokens a state_dict has."""
    return [which for which in TRUNKS if table_of(*which) in values]


def network_of_state(path: str, shapes: Mapping[str, tuple], heads: int | None = None, rotary_base: float | None = None,
                     context: int | None = None) -> Transformer | None:
    """Returns the network of a rectified state_dict with these shapes; None for another kind. `rotary_base` and `context` are for a Llama."""
    found = tables_in(shapes)
    if not found:
        return None
    (family, coupling), (trunk, kind) = found[0], (TRUNKS[found[0]], found[0][0].removeprefix("rev"))
    layers = {int(match[1]) for match in (re.match(rf"{trunk}\.(?:h|layers)\.(\d+)\.", name) for name in shapes) if match}
    table, positions = shapes[table_of(family, coupling)], shapes.get(f"{trunk}.wpe.weight", ())
    if len(found) > 1 or layers != set(range(len(layers))) or not layers or len(table) != 2 or (kind == "gpt" and len(positions) != 2):
        other = f" {trunk}.wpe.weight {positions}," if kind == "gpt" else ""
        raise Error(f"{path}: {table_of(family, coupling)} {table},{other} layers {sorted(layers)}: no {'GPT-2' if kind == 'gpt' else 'Llama'} has these")
    if kind == "gpt" and (rotary_base is not None or context is not None):
        raise Error(f"{path}: --rotary-base and --context are for a Llama, and these are the tensors of a GPT")
    if heads is None:
        raise Error(f"{path}: a state_dict does not contain the number of heads; expected --heads N (of a function: heads=N)")
    if not isinstance(heads, int) or heads < 1 or table[1] % heads:
        raise Error(f"{path}: {heads} heads for {table[1]} features; expected a divisor")
    for key, value in ("data.vocabulary", table[0]), ("model.width", table[1]), ("model.context", context or 1):
        if value > LARGEST[key]:
            raise Error(f"{path}: {key} would be {value}; petra has at most {LARGEST[key]}")
    network = Transformer(family, len(layers), table[1], heads, positions[0] if kind == "gpt" else CONTEXT if context is None else context, table[0], coupling=coupling)
    return network if kind == "gpt" else completed(path, network, shapes, ROTARY_BASE if rotary_base is None else rotary_base)


def completed(path: str, network: Transformer, shapes: Mapping[str, tuple], rotary_base: float) -> Transformer:
    """Sets what the shapes of the first layer say about a Llama, and its base."""
    layer = f"{network.trunk()}.layers.0"
    of_head, keys, gate = network.width // network.heads, f"{layer}.self_attn.k_proj.weight", f"{layer}.mlp.gate_proj.weight"
    for name in keys, gate:
        if len(shapes.get(name, ())) != 2:
            raise Error(f"{path}: {name} has shape {shapes[name]}; expected a matrix" if name in shapes else f"{path}: no tensor {name}")
    shared = shapes[keys][0] // of_head
    if of_head % 2:
        raise Error(f"{path}: {network.heads} heads of {of_head} features; expected an even number of features, because positions rotate pairs of them")
    if not shared or shapes[keys][0] % of_head or network.heads % shared:
        raise Error(f"{path}: {keys} has {shapes[keys][0]} rows; expected those of a number of heads, each of {of_head} features, that divides {network.heads}")
    if not 1 <= rotary_base <= 1e12:
        raise Error(f"{path}: rotary base {rotary_base:g}; expected a number, 1 .. 1e12")
    if network.context < 1:
        raise Error(f"{path}: context {network.context}; expected a positive number")
    network.kv_heads, network.hidden, network.rotary_base = shared, shapes[gate][0], float(rotary_base)
    return network


# --- config.json of Hugging Face ---

def read_config(source: str) -> dict[str, Any]:
    """Returns what the config.json beside a file says about a Llama and its tensors do not: `heads`, if the number is there, and
    `rotary_base`; {} without such a file. Raises Error for what petra does not have."""
    config = config_beside(source)
    return {} if config is None else facts_of_config(config_path(source), config)


def config_path(source: str) -> str:
    return os.path.join(os.path.dirname(source), "config.json")


def config_beside(source: str) -> dict[str, Any] | None:
    """Returns the content of the config.json beside a file; None if there is none."""
    path = config_path(source)
    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise Error(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(config, dict):
        raise Error(f"{path}: no JSON object")
    return config


def facts_of_config(path: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `heads`, if it is there, and `rotary_base`; a key that is missing has the value that Hugging Face's LlamaConfig gives it.

    >>> facts_of_config("config.json", {"rms_norm_eps": 1e-5, "num_attention_heads": 4, "rope_theta": 5e5})
    {'rotary_base': 500000.0, 'heads': 4}
    >>> facts_of_config("config.json", {"rms_norm_eps": 1e-6})
    Traceback (most recent call last):
    petrapipe.errors.Error: config.json: rms_norm_eps is 1e-06; expected 1e-05, the only one that petra has
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope if isinstance(rope, dict) else {"rope_type": rope}
    heads, width = config.get("num_attention_heads"), config.get("hidden_size")
    base = rope.get("rope_theta") or config.get("rope_theta") or ROTARY_BASE
    for key, value, kinds in (("num_attention_heads", heads, (int, type(None))), ("rope_theta", base, (int, float))):
        if not isinstance(value, kinds):
            raise Error(f"{path}: {key} is {value!r}; expected a number")
    of_head = width // heads if isinstance(width, int) and heads else config.get("head_dim")
    # Key, value, and what petra has.
    epsilon = "rms_norm_eps" if "rms_norm_eps" in config else "the default of rms_norm_eps"
    rules = [("model_type", config.get("model_type", "llama"), "llama"), (epsilon, config.get("rms_norm_eps", 1e-6), EPSILON),
             ("hidden_act", config.get("hidden_act", "silu"), "silu"),
             ("the type of its rope_parameters or rope_scaling", rope.get("rope_type", rope.get("type", "default")), "default"),
             ("partial_rotary_factor", rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0, 1.0),
             ("attention_bias", config.get("attention_bias") or False, False), ("mlp_bias", config.get("mlp_bias") or False, False),
             ("head_dim", config.get("head_dim") or of_head, of_head), ("sliding_window", config.get("sliding_window"), None),
             ("layer_types", sorted(set(map(str, config.get("layer_types") or ["full_attention"]))), ["full_attention"])]
    for key, value, own in rules:
        if value != own:
            raise Error(f"{path}: {key} is {value}; expected {'null' if own is None else own}, the only one that petra has")
    return {"rotary_base": float(base)} | ({} if heads is None else {"heads": heads})


def compare_with_config(source: str, network: Transformer) -> str:
    """Returns what a conversion of a Llama assumes because there is no config.json beside the file, "" if there is one. Raises Error if the file says
    another size than the tensors."""
    config = config_beside(source)
    if config is None:
        return ("; there is no config.json beside the file, so that rms_norm_eps is assumed to be 1e-05 and the rotary positions to be unscaled, "
                f"with the base {network.rotary_base:.15g}")
    for key, own in (("hidden_size", network.width), ("intermediate_size", network.hidden), ("num_hidden_layers", network.depth),
                     ("num_key_value_heads", network.kv_heads), ("vocab_size", network.classes)):
        if config.get(key) not in (None, own):
            raise Error(f"{source}: its tensors have {key} {own}, and config.json beside the file says {config[key]}; expected the same number")
    return ""


def merged(path: str, given: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what options (`given`, None if they were not) and a config.json (`found`) say about a Llama. Raises Error if they contradict each other."""
    for name, value in found.items():
        if given.get(name) not in (None, value):
            raise Error(f"{path}: --{name.replace('_', '-')} is {given[name]:g}, and config.json beside the file says {value:g}; expected the same number")
    return {name: found.get(name, value) for name, value in given.items()}
