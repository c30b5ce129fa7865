# SPDX-License-Identifier: Apache-2.0
"""GPTs and Llamas to a state_dict and back: their names, Hugging Face's config.json, and what is
refused."""

import json
import os
import unittest

import h5py
import numpy

from program import main
from weights_case import FILES, HAS_SAFETENSORS, NO_SAFETENSORS, OPTIONS, TOKENS, Weights, of_tokens

from petrapipe import weights_files  # by the path of weights_case


class Transformers(Weights):
    def test_tokens_there_and_back(self):
        for family, coupling, trunk in TOKENS:
            before, llama = self.initial("a.h5", *of_tokens(family, coupling)), "llama" in family
            label = (
                f"{family}-3 width 12, 2 heads"
                + (" (1 of keys and values), hidden 20, rotary base 100" if llama else "")
                + ", context 5"
            )
            label += ", leapfrog coupling" if coupling == "leapfrog" else ""
            for file in FILES:
                self.assertEqual(
                    self.convert("a.h5", file).split(": ")[1],
                    f"{label}, 64 classes; {30 if llama else 41} tensors\n",
                )
                text = self.convert(file, "b.h5", *OPTIONS[llama])
                self.equal(self.tensors("b.h5"), before)
            state = self.state()
            self.assertEqual({name.split(".")[0] for name in state}, {trunk, "lm_head"})
            # petra takes it with the settings that are printed, finds the same, and not as the
            # other family.
            settings = [
                "--set",
                "data.set=grammar",
                *text.splitlines()[1].split(": ")[1].split(),
                "--set",
                "model.weights=b.h5",
            ]
            self.equal(self.initial("c.h5", *settings), before)
            other = family.removeprefix("rev") if family.startswith("rev") else f"rev{family}"
            self.bad(
                2,
                [f"weights of {label}", f"expected those of {other}-3"],
                "init",
                "small.yaml",
                *settings,
                "--set",
                f"model.family={other}",
                "--set",
                "model.coupling=additive",
                "--set",
                "method.name=backprop",
                "--output",
                "out",
            )
            if llama:
                parts = [state[f"{trunk}.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
                numpy.testing.assert_array_equal(numpy.concatenate(parts), before["04/qkv/weight"])
                self.assertEqual([len(part) for part in parts], [12, 6, 6])
                continue
            # Conv1D has (in, out); rows of c_attn are q, k, v one behind the other in both.
            numpy.testing.assert_array_equal(
                state[f"{trunk}.h.1.attn.c_attn.weight"].T, before["04/qkv/weight"]
            )
            self.assertEqual(state[f"{trunk}.h.2.mlp.c_proj.weight"].shape, (48, 12))

    def test_names_are_those_of_gpt_2(self):
        """Files as they were published: the trunk alone, with its masks and without a head."""
        before = self.initial("a.h5", *of_tokens("gpt"))
        self.convert("a.h5", "model.npz")
        layer = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
        names = {
            f"h.{i}.{part}.{kind}"
            for i in range(3)
            for part in layer
            for kind in ("weight", "bias")
        }
        names |= {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"}
        state = self.state()
        self.assertEqual(set(state), {f"transformer.{name}" for name in names} | {"lm_head.weight"})
        bare = {name.removeprefix("transformer."): value for name, value in state.items()}
        del bare["lm_head.weight"]
        bare |= {
            "h.0.attn.bias": numpy.ones((1, 1, 5, 5), "f4"),
            "h.0.attn.masked_bias": numpy.float32(-1e4),
        }
        numpy.savez(self.path("bare.npz"), **bare)
        self.assertIn(
            "; the head's matrix is a copy of the table of tokens\n",
            self.convert("bare.npz", "b.h5", "--heads", "2"),
        )
        self.equal(self.tensors("b.h5"), {**before, "08/fc/weight": before["01/tokens/weight"]})
        for words, *options in (("--heads N",), ("5 heads for 12 features", "--heads", "5")):
            self.refused(["model.npz: ", words], "model.npz", "c.h5", *options)
        attention = "transformer.h.1.attn.c_attn.weight"
        for words, name, others in (
            ("no tensor transformer.ln_f.bias", "transformer.ln_f.bias", {}),
            ("layers [0, 2]", "transformer.h.1.", {}),
            ("has shape (36, 12), expected (12, 36)", attention, {attention: state[attention].T}),
        ):
            numpy.savez(
                self.path("wrong.npz"),
                **{key: value for key, value in state.items() if not key.startswith(name)},
                **others,
            )
            self.refused(["wrong.npz: ", words], "wrong.npz", "c.h5", "--heads", "2")
        self.initial("r.h5")
        self.convert("r.h5", "r.npz")
        self.refused(
            "--heads is for a GPT or Llama, and none has these tensors",
            "r.npz",
            "c.h5",
            "--heads",
            "2",
        )
        self.unseal("a.h5")
        with h5py.File(self.path("a.h5"), "r+") as file:
            del file.attrs["model"]
        self.refused("a.h5: its attribute model is ''", "a.h5", "c.npz")

    def test_long_description(self):
        """Weights whose attribute `model` is about as long as it can be are those of their
        network."""
        options = of_tokens("revllama", "leapfrog") + [
            "--set",
            "model.rotary_base=1234570",
            "--set",
            "model.context=65536",
        ]
        before = self.initial("a.h5", *options)
        self.equal(self.initial("b.h5", *options, "--set", "model.weights=a.h5"), before)
        self.assertIn(
            "rotary base 1234570, context 65536, leapfrog coupling, 64 classes; 30 tensors",
            self.convert("a.h5", "a.npz"),
        )

    def llama(self, trunk="model."):
        """A Llama with 2 layers of width 8, 4 heads of which 2 are of keys and values, 20 features
        in the MLP, by the names of Hugging Face."""
        random = numpy.random.default_rng(1)
        shapes = {"embed_tokens": (9, 8), "norm": (8,)}
        for layer in "01":
            shapes |= {
                f"layers.{layer}.self_attn.{part}_proj": (rows, 8)
                for part, rows in (("q", 8), ("k", 4), ("v", 4), ("o", 8))
            }
            shapes |= {
                f"layers.{layer}.mlp.{part}_proj": shape
                for part, shape in (("gate", (20, 8)), ("up", (20, 8)), ("down", (8, 20)))
            }
            shapes |= {
                f"layers.{layer}.{part}_layernorm": (8,) for part in ("input", "post_attention")
            }
        names = {f"{trunk}{name}.weight": shape for name, shape in shapes.items()} | {
            "lm_head.weight": (9, 8)
        }
        return {name: random.normal(size=shape).astype("f4") for name, shape in names.items()}

    def test_names_are_those_of_llama(self):
        state = self.llama()
        numpy.savez(self.path("model.npz"), **state)
        text = self.convert("model.npz", "b.h5", "--heads", "4", "--context", "7")
        self.assertIn("b.h5: 15 tensors; there is no config.json", text)
        self.assertIn(
            "model.family=llama --set model.depth=2 --set model.width=8 --set model.heads=4 --set"
            " model.kv_heads=2 --set model.hidden=20 --set model.rotary_base=10000 --set"
            " model.context=7\n",
            text,
        )
        values, layer = self.tensors("b.h5"), "model.layers.1"
        self.assertEqual(
            {name for name in values if name[:2] in ("01", "04", "05", "06")},
            {
                "01/tokens/weight",
                "04/norm/scale",
                "04/qkv/weight",
                "04/proj/weight",
                "05/norm/scale",
                "05/gate_up/weight",
                "05/down/weight",
                "06/norm/scale",
                "06/fc/weight",
            },
        )
        for name, parts in (
            ("04/qkv/weight", [f"{layer}.self_attn.{part}_proj.weight" for part in "qkv"]),
            ("05/gate_up/weight", [f"{layer}.mlp.{part}_proj.weight" for part in ("gate", "up")]),
            ("05/norm/scale", [f"{layer}.post_attention_layernorm.weight"]),
            ("06/norm/scale", ["model.norm.weight"]),
        ):
            numpy.testing.assert_array_equal(
                values[name], numpy.concatenate([state[part] for part in parts]), name
            )
        self.convert("b.h5", "c.npz")
        self.equal({name: self.state("c.npz")[name] for name in state}, state)
        # A file of the trunk alone, with a buffer of older programs; its head is the table.
        bare = {name: value for name, value in self.llama("").items() if name != "lm_head.weight"}
        numpy.savez(
            self.path("bare.npz"),
            **bare,
            **{"layers.0.self_attn.rotary_emb.inv_freq": numpy.ones(1, "f4")},
        )
        self.assertIn(
            "; the head's matrix is a copy of the table of tokens; there is",
            self.convert("bare.npz", "d.h5", "--heads", "4"),
        )
        self.equal(self.tensors("d.h5"), {**values, "06/fc/weight": values["01/tokens/weight"]})

    def test_llamas_refused(self):
        state = self.llama()
        numpy.savez(self.path("model.npz"), **state)
        for words, *options in (
            ("--heads N",),
            ("3 heads for 8 features", "--heads", "3"),
            ("8 heads of 1 features; expected an even", "--heads", "8"),
            (
                (
                    "k_proj.weight has 4 rows; expected those of a number of heads, each of 8"
                    " features, that divides 1"
                ),
                "--heads",
                "1",
            ),
            ("rotary base 0; expected a number, 1 .. 1e12", "--heads", "4", "--rotary-base", "0"),
            ("model.context would be 0; petra has at least 1", "--heads", "4", "--context", "0"),
        ):
            self.refused(["model.npz: ", words], "model.npz", "b.h5", *options)
        keys, gate, bias = (
            f"model.layers.1.{name}"
            for name in ("self_attn.k_proj.weight", "mlp.gate_proj.weight", "self_attn.k_proj.bias")
        )
        for words, others in (
            (f"no tensor {gate}", {gate: None}),
            ("no tensor model.layers.0.mlp.gate_proj.weight", {gate.replace("1", "0"): None}),
            (f"{keys} has shape (8, 8), expected (4, 8)", {keys: numpy.ones((8, 8), "f4")}),
            (
                f"{keys.replace('1', '0')} has shape (4,); expected a matrix",
                {keys.replace("1", "0"): numpy.ones(4, "f4")},
            ),
            (f"{bias} is not a tensor of this network", {bias: numpy.ones(4, "f4")}),
            ("layers [0, 1, 3]: no Llama has these", {gate.replace("1", "3"): state[gate]}),
        ):
            numpy.savez(
                self.path("wrong.npz"),
                **{name: value for name, value in {**state, **others}.items() if value is not None},
            )
            self.refused(["wrong.npz: ", words], "wrong.npz", "b.h5", "--heads", "4")
        self.initial("r.h5")
        self.convert("r.h5", "r.npz")
        self.refused(
            "--rotary-base and --context are for a Llama, and none has these tensors",
            "r.npz",
            "c.h5",
            "--context",
            "5",
        )
        self.refused(
            "--key, --names, --heads, --rotary-base and --context are for reading",
            "r.h5",
            "c.npz",
            "--context",
            "5",
        )

    @unittest.skipUnless(HAS_SAFETENSORS, NO_SAFETENSORS)
    def test_config_json(self):
        """What is beside the tensors of a Llama, as transformers writes it."""
        state, config = (
            self.llama(),
            {
                "model_type": "llama",
                "num_attention_heads": 4,
                "hidden_size": 8,
                "rms_norm_eps": 1e-5,
                "head_dim": 2,
                "hidden_act": "silu",
            },
        )
        self.write("model.safetensors", weights_files.state_file(".safetensors", state))
        new, old = (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
            {"rope_theta": 1e6, "rope_scaling": None},
        )
        for more, base in ((new, "500000"), (old, "1000000"), ({}, "10000")):
            self.write("config.json", json.dumps({**config, **more}))
            text = self.convert("model.safetensors", "b.h5")
            self.assertIn(
                "--set model.heads=4 --set model.kv_heads=2 --set model.hidden=20 --set"
                f" model.rotary_base={base} --set model.context=128\n",
                text,
            )
            self.assertEqual(
                text,
                self.convert("model.safetensors", "b.h5", "--heads", "4", "--rotary-base", base),
            )
        for words, *options in (
            ("--heads is 2, and config.json beside the file says 4", "--heads", "2"),
            (
                "--rotary-base is 7, and config.json beside the file says 10000",
                "--rotary-base",
                "7",
            ),
        ):
            self.refused(["model.safetensors: ", words], "model.safetensors", "c.h5", *options)
        for words, more in (
            ("rms_norm_eps is 1e-06; expected 1e-05", {"rms_norm_eps": 1e-6}),
            ("model_type is gemma", {"model_type": "gemma"}),
            (
                "rope_parameters or rope_scaling is llama3; expected default",
                {"rope_parameters": {"rope_type": "llama3", "factor": 8}},
            ),
            (
                "rope_parameters or rope_scaling is linear",
                {"rope_scaling": {"type": "linear", "factor": 2}},
            ),
            ("attention_bias is True; expected False", {"attention_bias": True}),
            ("mlp_bias is True", {"mlp_bias": True}),
            ("head_dim is 4; expected 2", {"head_dim": 4}),
            ("sliding_window is 4096; expected null", {"sliding_window": 4096}),
            (
                "layer_types is ['full_attention', 'sliding_attention']",
                {"layer_types": ["full_attention", "sliding_attention"]},
            ),
            ("hidden_act is gelu", {"hidden_act": "gelu"}),
            ("partial_rotary_factor is 0.5", {"partial_rotary_factor": 0.5}),
            ("num_attention_heads is four; expected a number", {"num_attention_heads": "four"}),
            (
                "its tensors have num_key_value_heads 2, and config.json beside the file says 1",
                {"num_key_value_heads": 1},
            ),
            ("its tensors have num_hidden_layers 2, and", {"num_hidden_layers": 3}),
            ("its tensors have vocab_size", {"vocab_size": 3}),
        ):
            self.write("config.json", json.dumps({**config, **more}))
            self.refused(["config.json", words], "model.safetensors", "c.h5", "--heads", "4")
        self.write("config.json", json.dumps({"head_dim": 2, "rms_norm_eps": 1e-5}))
        self.convert("model.safetensors", "c.h5", "--heads", "4")
        for words, text in (
            ("config.json: cannot be read: ", "{"),
            ("config.json: no JSON object", "[]"),
        ):
            self.write("config.json", text)
            self.refused(words, "model.safetensors", "c.h5", "--heads", "4")
        # Other networks have no such file.
        self.initial("g.h5", *of_tokens("gpt"))
        self.convert("g.h5", "gpt.safetensors")
        self.convert("gpt.safetensors", "c.h5", "--heads", "2")
        numpy.savez(self.path("model.npz"), **state)
        self.refused("config.json: no JSON object", "model.npz", "c.h5", "--heads", "4")
        os.remove(self.path("config.json"))
        text = self.convert("model.npz", "c.h5", "--heads", "4", "--rotary-base", "7")
        self.assertIn(
            "there is no config.json beside the file, so that rms_norm_eps is assumed to be 1e-05"
            " and the rotary positions to be unscaled, with the base 7\n",
            text,
        )
        for words, *options in (
            ("rotary base 0.5; expected a number, 1 .. 1e12", "--rotary-base", "5e-1"),
            ("rotary base 1e+13; expected", "--rotary-base", "1e13"),
            ("model.context would be 70000; petra has at most 65536", "--context", "70000"),
        ):
            self.refused(["model.npz: ", words], "model.npz", "c.h5", "--heads", "4", *options)
        table = "model.embed_tokens.weight"
        numpy.savez(self.path("large.npz"), **{**state, table: numpy.ones((65537, 8), "f4")})
        self.refused(
            "large.npz: data.vocabulary would be 65537; petra has at most 65536",
            "large.npz",
            "c.h5",
            "--heads",
            "4",
        )

    @unittest.skipUnless(HAS_SAFETENSORS, NO_SAFETENSORS)
    def test_metadata(self):
        """Hugging Face's library asks for a format in the metadata of a file; the bits are those of
        the tensors."""
        self.initial("a.h5", *of_tokens("llama"))
        self.convert("a.h5", "a.safetensors")
        self.convert("a.h5", "a.npz")
        import safetensors

        with safetensors.safe_open(self.path("a.safetensors"), "np") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})
            self.equal(
                {name: file.get_tensor(name) for name in sorted(file.keys())},
                dict(sorted(self.state("a.npz").items())),
            )

    def test_head_and_config(self):
        """Whether the head is the table of the tokens: what config.json says and what the file
        has."""
        state, head = self.llama(), "lm_head.weight"
        table, copied = (
            state["model.embed_tokens.weight"],
            "; the head's matrix is a copy of the table of tokens",
        )
        config = {
            "model_type": "llama",
            "num_attention_heads": 4,
            "hidden_size": 8,
            "rms_norm_eps": 1e-5,
        }
        bare = {name: value for name, value in state.items() if name != head}
        for words, ties, values in (
            (None, False, bare),
            (None, None, bare),
            (copied, True, bare),
            ("", False, state),
            ("", None, state),
            ("", True, {**bare, head: table}),
            (
                (
                    "; the head's matrix is that of the file, although config.json says that it is"
                    " the table of the tokens (tie_word_embeddings)"
                ),
                True,
                state,
            ),
        ):
            self.write(
                "config.json",
                json.dumps(config | ({} if ties is None else {"tie_word_embeddings": ties})),
            )
            numpy.savez(self.path("m.npz"), **values)
            if words is None:
                said = "says that it is not" if ties is False else "does not say that it is"
                self.refused(
                    f"m.npz: no tensor lm_head.weight, and config.json beside the file {said} the"
                    " table",
                    "m.npz",
                    "b.h5",
                )
                continue
            self.assertEqual(
                self.convert("m.npz", "b.h5").splitlines()[0].split("/")[-1],
                f"b.h5: 15 tensors{words}",
            )
            numpy.testing.assert_array_equal(
                self.tensors("b.h5")["06/fc/weight"], values.get(head, table)
            )
        # A GPT ties them unless its config.json says another thing.
        self.initial("g.h5", *of_tokens("gpt"))
        self.convert("g.h5", "g.npz")
        numpy.savez(
            self.path("bare.npz"),
            **{name: value for name, value in self.state("g.npz").items() if name != head},
        )
        self.write("config.json", json.dumps({"model_type": "gpt2"}))
        self.assertIn(copied, self.convert("bare.npz", "b.h5", "--heads", "2"))
        self.write("config.json", json.dumps({"model_type": "gpt2", "tie_word_embeddings": False}))
        self.refused("bare.npz: no tensor lm_head.weight", "bare.npz", "b.h5", "--heads", "2")

    def test_context_of_config(self):
        numpy.savez(self.path("m.npz"), **self.llama())
        config = {
            "model_type": "llama",
            "num_attention_heads": 4,
            "rms_norm_eps": 1e-5,
            "max_position_embeddings": 256,
        }
        self.write("config.json", json.dumps(config))
        self.assertNotIn(";", self.convert("m.npz", "b.h5", "--context", "256"))
        self.assertIn(
            "; model.context is 257, and the model was made for at most 256 tokens"
            " (max_position_embeddings of config.json)\n",
            self.convert("m.npz", "b.h5", "--context", "257"),
        )
        self.write("config.json", json.dumps({**config, "max_position_embeddings": 100}))
        self.assertIn("; model.context is 128, and", self.convert("m.npz", "b.h5"))

    def test_parts_and_other_names(self):
        """A part of a model, Meta's names and other transformers are no ResNets."""
        state = self.llama()
        second = {
            name: value
            for name, value in state.items()
            if "layers.1" in name or name in ("model.norm.weight", "lm_head.weight")
        }
        first = {name: value for name, value in state.items() if name not in second}
        for name, values in (
            ("model-00002-of-00002.npz", second),
            ("model-00001-of-00002.npz", first),
        ):
            numpy.savez(self.path(name), **values)
            for options in (), ("--context", "8"), ("--heads", "4"):
                self.refused(
                    f"{name}: part {name[10]} of a model in 2 files; expected one file with all",
                    name,
                    "b.h5",
                    *options,
                )
        numpy.savez(self.path("part.npz"), **second)
        self.refused(
            [
                "part.npz: has model.layers.1.",
                "no transformer.wte.weight or model.embed_tokens.weight",
            ],
            "part.npz",
            "b.h5",
        )
        numpy.savez(self.path("whole-00001-of-00001.npz"), **state)
        self.convert("whole-00001-of-00001.npz", "b.h5", "--heads", "4")
        meta = {
            "tok_embeddings.weight": state["model.embed_tokens.weight"],
            "layers.0.attention.wq.weight": numpy.ones((8, 8), "f4"),
        }
        for values in meta, {f"model.{name}": value for name, value in meta.items()}:
            numpy.savez(self.path("consolidated.npz"), **values)
            self.refused(
                ["is a name of Meta's release of Llama", "expected Hugging Face's names"],
                "consolidated.npz",
                "b.h5",
                "--heads",
                "4",
            )

    def test_sizes(self):
        """Sizes that petra's networks do not have, and names with other numbers."""
        state = self.llama()
        gate, keys = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.self_attn.k_proj.weight"
        for words, others in (
            ("model.width would be 0", {"model.embed_tokens.weight": numpy.ones((9, 0), "f4")}),
            ("data.vocabulary would be 0", {"model.embed_tokens.weight": numpy.ones((0, 8), "f4")}),
            ("model.hidden would be 0", {gate: numpy.ones((0, 8), "f4")}),
            ("k_proj.weight has 0 rows", {keys: numpy.ones((0, 8), "f4")}),
            (
                "is not a tensor of this network",
                {"model.layers." + "9" * 200 + ".x": numpy.ones(1, "f4")},
            ),
            ("has 5000 characters: aaa", {"a" * 4000 + "b" * 1000: numpy.ones(1, "f4")}),
        ):
            numpy.savez(self.path("wrong.npz"), **{**state, **others})
            if "width" in words:
                self.refused(["wrong.npz: "], "wrong.npz", "b.h5", "--heads", "4")
            else:
                self.refused(["wrong.npz: ", words], "wrong.npz", "b.h5", "--heads", "4")

    def test_two_tensors_of_one_name(self):
        state = self.llama()
        numpy.savez(self.path("m.npz"), **state, other=numpy.ones(8, "f4"))
        self.write("names.txt", "other model.norm.weight\n")
        self.refused(
            "names.txt: two tensors of the state_dict would have the name model.norm.weight",
            "m.npz",
            "b.h5",
            "--heads",
            "4",
            "--names",
            "names.txt",
        )

    def test_other_byte_order(self):
        """Numbers of another byte order keep their precision."""
        state = {name: value.astype(">f8") for name, value in self.llama().items()}
        numpy.savez(self.path("m.npz"), **state)
        self.convert("m.npz", "b.h5", "--heads", "4")
        self.convert("b.h5", "c.npz")
        self.equal(
            dict(sorted(self.state("c.npz").items())),
            {name: value.astype("f8") for name, value in sorted(state.items())},
        )


main()
