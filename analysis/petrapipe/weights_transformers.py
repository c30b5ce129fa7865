# SPDX-License-Identifier: Apache-2.0
"""The names of the tensors of a GPT or Llama in a state_dict: the names of Hugging Face's
GPT2LMHeadModel and LlamaForCausalLM. A reversible network has the same names with `reversible`
instead of `transformer` or `model`, or with `leapfrog` if this is its coupling, because nothing
else in a state_dict distinguishes them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import Error
from .text import brief

# The first part of the names, by family and coupling; and the table of the tokens below it.
TRUNKS = {
    ("gpt", "additive"): "transformer",
    ("revgpt", "additive"): "reversible",
    ("revgpt", "leapfrog"): "leapfrog",
    ("llama", "additive"): "model",
    ("revllama", "additive"): "reversible",
    ("revllama", "leapfrog"): "leapfrog",
}
TABLES = {"gpt": "wte.weight", "llama": "embed_tokens.weight"}
HEAD = "lm_head.weight"
# Buffers of a trunk that no longer belong to a state_dict: masks of the attention, frequencies of
# rotary positions.
BUFFERS = r"h\.\d+\.attn\.(bias|masked_bias)$|\.rotary_emb\.inv_freq$"
ROTARY_BASE, CONTEXT = 10000.0, 128  # petra's defaults
EPSILON = 1e-5  # of petra's RMS norm
# The largest values of petra's keys.
LARGEST = {
    "data.vocabulary": 65536,
    "model.classes": 100000,
    "model.width": 4096,
    "model.depth": 1000,
    "model.heads": 1024,
    "model.hidden": 65536,
    "model.context": 65536,
}
NUMBER = "[1-9][0-9]{0,8}"
LABEL = re.compile(
    rf"(?P<family>(?:rev)?(?:gpt|llama))-(?P<depth>{NUMBER}) width (?P<width>{NUMBER}),"
    rf" (?P<heads>{NUMBER}) heads"
    rf"(?: \((?P<kv_heads>{NUMBER}) of keys and values\))?"
    rf"(?:, hidden (?P<hidden>{NUMBER}),"
    r" rotary base (?P<rotary_base>[0-9]{1,13}(?:\.[0-9]{1,15})?(?:e[+-][0-9]{2})?))?"
    rf", context (?P<context>{NUMBER})"
    rf"(?:, (?P<coupling>leapfrog) coupling)?, (?P<classes>{NUMBER}) classes"
)
# A file of a model that was saved in several; a tensor of a layer of a transformer; the names of
# Meta's release.
PART = re.compile(r"-0*([1-9][0-9]{0,6})-of-0*([1-9][0-9]{0,6})\.\w+$")
LAYER = re.compile(r"(?:^|\.)(?:h|layers)\.[0-9]+\.")
META = re.compile(
    r"(?:^|\.)(?:tok_embeddings|layers\.[0-9]+\."
    r"(?:attention\.w[qkvo]|feed_forward\.w[123]))\.weight$"
)


@dataclass
class Transformer:
    """A GPT or Llama, ordinary or reversible, in the words of a config; the last four members are
    for Llamas and for reversible networks.

    >>> Transformer("gpt", 2, 8, 2, 5, 64).settings().replace("--set ", "")
    'model.family=gpt model.depth=2 model.width=8 model.heads=2 model.context=5'
    >>> llama = Transformer("revllama", 2, 8, 4, 5, 64, kv_heads=2, hidden=20, coupling="leapfrog")
    >>> for part in str(llama).split(", "):
    ...     print(part)
    revllama-2 width 8
    4 heads (2 of keys and values)
    hidden 20
    rotary base 10000
    context 5
    leapfrog coupling
    64 classes
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
        words += [f"context {self.context}"] + [f"{self.coupling} coupling"] * (
            self.coupling != "additive"
        )
        return ", ".join(words + [f"{self.classes} classes"])

    def kind(self) -> str:
        """Returns "gpt" or "llama"."""
        return self.family.removeprefix("rev")

    def trunk(self) -> str:
        """Returns the first part of the names in a state_dict."""
        return TRUNKS[self.family, self.coupling]

    def settings(self) -> str:
        """Returns the options of petra that make this network."""
        values = {
            "family": self.family,
            "depth": self.depth,
            "width": self.width,
            "heads": self.heads,
        }
        if self.kind() == "llama":
            values |= {
                "kv_heads": self.kv_heads,
                "hidden": self.hidden,
                "rotary_base": f"{self.rotary_base:.15g}",
            }
        values |= {"context": self.context} | (
            {} if self.coupling == "additive" else {"coupling": self.coupling}
        )
        return " ".join(f"--set model.{key}={value}" for key, value in values.items())


def norm(petra: str, torch: str, width: int) -> list[tuple[str, str, tuple]]:
    return [
        (f"{petra}/scale", f"{torch}.weight", (width,)),
        (f"{petra}/shift", f"{torch}.bias", (width,)),
    ]


def linear(petra: str, torch: str, outputs: int, inputs: int) -> list[tuple[str, str, tuple]]:
    return [
        (f"{petra}/weight", f"{torch}.weight", (outputs, inputs)),
        (f"{petra}/bias", f"{torch}.bias", (outputs,)),
    ]


def tensors(network: Transformer) -> Iterator[tuple[str, str, tuple]]:
    """Yields (name in weights.h5, name in the state_dict, shape in weights.h5) of every tensor,
    from the embedding to the head. A tensor of weights.h5 that has several rows stacks their
    tensors along its first axis."""
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
    yield from (
        norm(f"{head}/ln", f"{trunk}.ln_f", width)
        if network.kind() == "gpt"
        else [(f"{head}/norm/scale", f"{trunk}.norm.weight", (width,))]
    )
    yield f"{head}/fc/weight", HEAD, (network.classes, width)


def gpt_layer(width: int, attention: str, mlp: str, torch: str) -> Iterator[tuple[str, str, tuple]]:
    """Yields the rows of `tensors` for one layer."""
    yield from norm(f"{attention}/ln", f"{torch}.ln_1", width)
    yield from linear(f"{attention}/qkv", f"{torch}.attn.c_attn", 3 * width, width)
    yield from linear(f"{attention}/proj", f"{torch}.attn.c_proj", width, width)
    yield from norm(f"{mlp}/ln", f"{torch}.ln_2", width)
    yield from linear(f"{mlp}/fc", f"{torch}.mlp.c_fc", 4 * width, width)
    yield from linear(f"{mlp}/proj", f"{torch}.mlp.c_proj", width, 4 * width)


def llama_layer(
    network: Transformer, attention: str, mlp: str, torch: str
) -> Iterator[tuple[str, str, tuple]]:
    """Yields the rows of `tensors` for one layer."""
    width = network.width
    hidden = network.hidden
    shared = network.width // network.heads * network.kv_heads
    yield f"{attention}/norm/scale", f"{torch}.input_layernorm.weight", (width,)
    for part, outputs in (("q", width), ("k", shared), ("v", shared)):
        yield f"{attention}/qkv/weight", f"{torch}.self_attn.{part}_proj.weight", (outputs, width)
    yield f"{attention}/proj/weight", f"{torch}.self_attn.o_proj.weight", (width, width)
    yield f"{mlp}/norm/scale", f"{torch}.post_attention_layernorm.weight", (width,)
    for part in ("gate", "up"):
        yield f"{mlp}/gate_up/weight", f"{torch}.mlp.{part}_proj.weight", (hidden, width)
    yield f"{mlp}/down/weight", f"{torch}.mlp.down_proj.weight", (width, hidden)


def is_transposed(name: str) -> bool:
    """Returns whether a tensor of a state_dict is (in, out): the weight of a Conv1D, Hugging Face's
    linear map in a GPT.

    >>> is_transposed("transformer.h.0.attn.c_attn.weight"), is_transposed("lm_head.weight")
    (True, False)
    """
    return re.search(r"\.c_(attn|proj|fc)\.weight$", name) is not None


def network_of_petra(path: str, label: str, shapes: Mapping[str, tuple]) -> Transformer | None:
    """Returns the network of weights.h5, whose attribute `model` is `label`; None for another
    kind."""
    if "01/tokens/weight" not in shapes:
        return None
    found = LABEL.fullmatch(label)
    if not found or ("llama" in found["family"]) != (found["hidden"] is not None):
        raise Error(
            f"{path}: its attribute model is '{brief(label)}'; expected that of a gpt, revgpt,"
            " llama or revllama, whose tensors have the same names"
        )
    values: dict[str, Any] = {
        name: value for name, value in found.groupdict().items() if value is not None
    }
    values |= {name: int(value) for name, value in values.items() if value.isdigit()}
    if "llama" in found["family"]:
        values = (
            {"kv_heads": values["heads"]} | values | {"rotary_base": float(values["rotary_base"])}
        )
    network = Transformer(**values)
    check_network(path, network)
    blocks = len({name.split("/")[0] for name in shapes})
    if blocks != 2 * network.depth + 2:
        raise Error(
            f"{path}: has {blocks} blocks, and its attribute model says depth {network.depth};"
            f" expected {2 * network.depth + 2} blocks"
        )
    return network


def check_sizes(path: str, sizes: Mapping[str, int]) -> None:
    """Raises Error unless petra supports networks with these values of keys."""
    for key, value in sizes.items():
        if not 1 <= value <= LARGEST[key]:
            raise Error(
                f"{path}: {key} would be {brief(value)}; petra has at"
                f" {f'most {LARGEST[key]}' if value > 0 else 'least 1'}"
            )


def check_network(path: str, network: Transformer) -> None:
    """Raises Error unless petra supports networks of this size."""
    check_sizes(
        path,
        {
            "data.vocabulary": network.classes,
            "model.width": network.width,
            "model.depth": network.depth,
            "model.heads": network.heads,
            "model.context": network.context,
        }
        | ({"model.hidden": network.hidden} if network.kind() == "llama" else {}),
    )
    if network.width % network.heads:
        raise Error(
            f"{path}: {network.heads} heads for {network.width} features; expected a divisor"
        )
    if network.kind() == "llama":
        of_head, shared = network.width // network.heads, network.kv_heads
        if of_head % 2:
            raise Error(
                f"{path}: {network.heads} heads of {of_head} features; expected an even number of"
                " features, because positions rotate pairs of them"
            )
        if shared < 1 or network.heads % shared:
            raise Error(
                f"{path}: {shared} heads of keys and values; expected a number that divides"
                f" {network.heads}"
            )
        if not 1 <= network.rotary_base <= 1e12:
            raise Error(
                f"{path}: rotary base {network.rotary_base:g}; expected a number, 1 .. 1e12"
            )


def rectified(values: Mapping) -> tuple[dict, bool]:
    """Returns a state_dict with the parts that Hugging Face omits: the prefix of a trunk that was
    saved alone, and the head if it is the table of the tokens. The second value says whether the
    head was added."""
    values = dict(values)
    for kind, table in TABLES.items():
        if table in values:
            values = {
                name if name == HEAD else f"{TRUNKS[kind, 'additive']}.{name}": value
                for name, value in values.items()
            }
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


def network_of_state(
    path: str,
    shapes: Mapping[str, tuple],
    heads: int | None = None,
    rotary_base: float | None = None,
    context: int | None = None,
) -> Transformer | None:
    """Returns the network of a rectified state_dict with these shapes; None for another kind.
    `rotary_base` and `context` are for a Llama."""
    found = tables_in(shapes)
    refuse_others(path, shapes, bool(found))
    if not found:
        return None
    (family, coupling), (trunk, kind) = (
        found[0],
        (TRUNKS[found[0]], found[0][0].removeprefix("rev")),
    )
    layers = {
        int(match[1])
        for match in (
            re.match(rf"{trunk}\.(?:h|layers)\.([0-9]{{1,9}})\.", name) for name in shapes
        )
        if match
    }
    table, positions = shapes[table_of(family, coupling)], shapes.get(f"{trunk}.wpe.weight", ())
    if (
        len(found) > 1
        or layers != set(range(len(layers)))
        or not layers
        or len(table) != 2
        or (kind == "gpt" and len(positions) != 2)
    ):
        other = f" {trunk}.wpe.weight {positions}," if kind == "gpt" else ""
        raise Error(
            f"{path}: {table_of(family, coupling)} {table},{other} layers {brief(sorted(layers))}:"
            f" no {'GPT-2' if kind == 'gpt' else 'Llama'} has these"
        )
    if kind == "gpt" and (rotary_base is not None or context is not None):
        raise Error(
            f"{path}: --rotary-base and --context are for a Llama, and these are the tensors of"
            " a GPT"
        )
    if heads is None:
        raise Error(
            f"{path}: a state_dict does not contain the number of heads; expected --heads N (of a"
            " function: heads=N)"
        )
    if type(heads) is not int or heads < 1 or table[1] % heads:
        raise Error(f"{path}: {brief(heads)} heads for {table[1]} features; expected a divisor")
    network = Transformer(
        family,
        len(layers),
        table[1],
        heads,
        positions[0] if kind == "gpt" else CONTEXT if context is None else context,
        table[0],
        coupling=coupling,
    )
    if kind == "llama":
        complete(path, network, shapes, ROTARY_BASE if rotary_base is None else rotary_base)
    check_network(path, network)
    return network


def refuse_others(path: str, names: Iterable[str], has_table: bool) -> None:
    """Raises Error for a part of a transformer, and for a Llama with the names of Meta's
    release."""
    if other := next(filter(META.search, names), None):
        raise Error(
            f"{path}: {brief(other)} is a name of Meta's release of Llama, in which queries and"
            " keys are in another order for its rotary positions; expected Hugging Face's names:"
            " convert the file by convert_llama_weights_to_hf.py of transformers first"
        )
    layer = next(filter(LAYER.search, names), None)
    if (has_table or layer) and (part := PART.search(path)) and part[2] != "1":
        raise Error(
            f"{path}: part {part[1]} of a model in {part[2]} files; expected one file with all of"
            " its tensors"
        )
    if layer and not has_table:
        raise Error(
            f"{path}: has {brief(layer)} and no"
            f" {' or '.join(table_of(kind, 'additive') for kind in TABLES)}: a part of a"
            " transformer, or one that petra does not have; expected all tensors of a"
            " GPT2LMHeadModel or LlamaForCausalLM in one file"
        )


def complete(
    path: str, network: Transformer, shapes: Mapping[str, tuple], rotary_base: float
) -> None:
    """Sets the properties of a Llama that follow from the shapes of its first layer, and its
    base."""
    layer = f"{network.trunk()}.layers.0"
    of_head = network.width // network.heads
    keys = f"{layer}.self_attn.k_proj.weight"
    gate = f"{layer}.mlp.gate_proj.weight"
    for name in keys, gate:
        if len(shapes.get(name, ())) != 2:
            raise Error(
                f"{path}: {name} has shape {shapes[name]}; expected a matrix"
                if name in shapes
                else f"{path}: no tensor {name}"
            )
    shared = shapes[keys][0] // of_head if of_head else 0
    if not of_head % 2 and (not shared or shapes[keys][0] % of_head or network.heads % shared):
        raise Error(
            f"{path}: {keys} has {shapes[keys][0]} rows; expected those of a number of heads, each"
            f" of {of_head} features, that divides {network.heads}"
        )
    network.kv_heads = shared
    network.hidden = shapes[gate][0]
    network.rotary_base = float(rotary_base)


# --- config.json of Hugging Face ---


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
    except RecursionError:
        raise Error(
            f"{path}: cannot be read: lists or objects that are deep within each other"
        ) from None
    except (OSError, ValueError) as error:
        raise Error(
            f"{path}: cannot be read: {brief(getattr(error, 'strerror', None) or error)}"
        ) from None
    if not isinstance(config, dict):
        raise Error(f"{path}: no JSON object")
    return config


def facts_of_config(path: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `heads`, if it is there, and `rotary_base`; a key that is missing has the value that
    Hugging Face's LlamaConfig gives it.

    >>> config = {"rms_norm_eps": 1e-5, "num_attention_heads": 4, "rope_theta": 5e5}
    >>> facts_of_config("config.json", config)
    {'rotary_base': 500000.0, 'heads': 4}
    >>> facts_of_config("config.json", {"rms_norm_eps": 1e-6})
    Traceback (most recent call last):
    petrapipe.errors.Error: config.json: rms_norm_eps is 1e-06; expected 1e-05, ...
    """
    # Of older and newer versions.
    ropes = [config.get(key) or {} for key in ("rope_scaling", "rope_parameters")]
    ropes = [rope if isinstance(rope, dict) else {"rope_type": rope} for rope in ropes]
    heads = config.get("num_attention_heads")
    width = config.get("hidden_size")
    head_dim = config.get("head_dim")
    bases = [
        one["rope_theta"] for one in (*ropes, config) if one.get("rope_theta") is not None
    ] or [ROTARY_BASE]
    if heads is not None and not (is_number(heads, int) and 1 <= heads <= LARGEST["model.heads"]):
        raise Error(
            f"{path}: num_attention_heads is {brief(heads)}; expected a number, 1 .."
            f" {LARGEST['model.heads']}"
        )
    for base in bases:
        if not (is_number(base, (int, float)) and 1 <= base <= 1e12 and base == bases[0]):
            raise Error(
                f"{path}: rope_theta is {brief(' and '.join(map(brief, bases)))}; expected a"
                " number, 1 .. 1e12"
            )
    layer_types = config.get("layer_types")
    if layer_types is not None and not (
        isinstance(layer_types, list) and all(kind == "full_attention" for kind in layer_types)
    ):
        raise Error(
            f"{path}: layer_types is {brief(layer_types)}; expected a list of full_attention, the"
            " only one that petra has"
        )
    of_head = width // heads if is_number(width, int) and heads else head_dim
    # Key, value, and what petra has.
    epsilon = "rms_norm_eps" if "rms_norm_eps" in config else "the default of rms_norm_eps"
    rules = [
        ("model_type", config.get("model_type", "llama"), "llama"),
        (epsilon, config.get("rms_norm_eps", 1e-6), EPSILON),
        ("hidden_act", config.get("hidden_act", "silu"), "silu"),
        *(
            (
                "the type of its rope_parameters or rope_scaling",
                one.get("rope_type", one.get("type", "default")),
                "default",
            )
            for one in ropes
        ),
        *(
            (f"{key} in its rope_parameters", value, None)
            for rope in ropes
            for key, value in rope.items()
            if isinstance(value, (dict, list))
        ),
        *(
            ("partial_rotary_factor", one.get("partial_rotary_factor"), 1.0)
            for one in (*ropes, config)
            if one.get("partial_rotary_factor") is not None
        ),
        ("attention_bias", config.get("attention_bias") or False, False),
        ("mlp_bias", config.get("mlp_bias") or False, False),
        ("head_dim", of_head if head_dim is None else head_dim, of_head),
        ("sliding_window", config.get("sliding_window"), None),
    ]
    for key, value, own in rules:
        if value != own or isinstance(value, bool) != isinstance(own, bool):
            raise Error(
                f"{path}: {key} is {brief(value)}; expected"
                f" {'null' if own is None else brief(own)}, the only one that petra has"
            )
    return {"rotary_base": float(base)} | ({} if heads is None else {"heads": heads})


def is_number(value: Any, kinds: type | tuple[type, ...]) -> bool:
    """Returns whether a value of JSON is a number, and not a truth value, which is an int in
    Python."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def compare_with_config(
    source: str, config: Mapping[str, Any] | None, network: Transformer
) -> list[str]:
    """Returns what a conversion of a Llama assumes because there is no config.json beside the file,
    or what in the file contradicts this use. Raises Error if the file states another size than the
    tensors."""
    if config is None:
        return [
            "there is no config.json beside the file, so that rms_norm_eps is assumed to be 1e-05"
            f" and the rotary positions to be unscaled, with the base {network.rotary_base:.15g}"
        ]
    for key, own in (
        ("hidden_size", network.width),
        ("intermediate_size", network.hidden),
        ("num_hidden_layers", network.depth),
        ("num_key_value_heads", network.kv_heads),
        ("vocab_size", network.classes),
    ):
        if config.get(key) is not None and not (
            is_number(config[key], (int, float)) and config[key] == own
        ):
            raise Error(
                f"{source}: its tensors have {key} {own}, and config.json beside the file says"
                f" {brief(config[key])}; expected the same number"
            )
    positions = config.get("max_position_embeddings")
    if positions is not None and not (is_number(positions, int) and positions > 0):
        raise Error(
            f"{config_path(source)}: max_position_embeddings is {brief(positions)}; expected a"
            " positive number"
        )
    return [
        f"model.context is {network.context}, and the model was made for at most {positions} tokens"
        " (max_position_embeddings of config.json)"
    ] * (positions is not None and network.context > positions)


def compare_heads(
    source: str,
    config: Mapping[str, Any] | None,
    network: Transformer,
    state: Mapping[str, Any],
    copied: bool,
) -> list[str]:
    """Returns what a conversion should say about the head's matrix; `copied` says that it is a copy
    of the table of tokens, because the file has none. Raises Error if config.json says that it is
    another matrix. Without the key, Hugging Face's Llamas have another matrix, and its GPTs use the
    table."""
    path, key = config_path(source), "tie_word_embeddings"
    ties = (config or {}).get(key, network.kind() == "gpt")
    if not isinstance(ties, bool):
        raise Error(f"{path}: {key} is {brief(ties)}; expected true or false")
    if copied and config is not None and not ties:
        raise Error(
            f"{source}: no tensor {HEAD}, and config.json beside the file"
            f" {'says that it is not' if key in config else 'does not say that it is'} the table of"
            f" the tokens; expected the tensor, or {key}: true"
        )
    if copied:
        return ["the head's matrix is a copy of the table of tokens"]
    table = state[table_of(network.family, network.coupling)]
    if config is None or not ties or (state[HEAD] == table).all():
        return []
    return [
        "the head's matrix is that of the file, although config.json says that it is the table of"
        f" the tokens ({key})"
    ]


def merged(path: str, given: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties of a Llama according to options (`given`, None if an option was not
    given) and a config.json (`found`). Raises Error if they contradict each other."""
    for name, value in found.items():
        if given.get(name) not in (None, value):
            option = name.replace("_", "-")
            text = f"{given[name]:g}" if isinstance(given[name], float) else brief(given[name])
            raise Error(
                f"{path}: --{option} is {text}, and config.json beside the file says {value:g};"
                " expected the same number"
            )
    return {name: found.get(name, value) for name, value in given.items()}
