# SPDX-License-Identifier: Apache-2.0
"""analysis/weights_pytorch.py and model.new_head: weights to a state_dict and back, what is refused, fine-tuning with another head; the
logits of petra and of PyTorch, with the Python of PETRA_TEST_TORCH_PYTHON, which has torch, numpy and h5py."""

import contextlib
import io
import json
import os
import subprocess
import sys

import h5py
import numpy

from program import ProgramTest, main

ANALYSIS = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "analysis"))
sys.path.insert(0, ANALYSIS)
import entry  # noqa: E402: from the folder of the scripts
import petrapipe  # noqa: E402
from petrapipe import modules, weights, weights_release  # noqa: E402

NETWORKS = [("revnet", 18, "cifar", "conv"), ("revnet", 34, "imagenet", "conv"), ("revnet", 50, "cifar", "conv"),
            ("revnet", 18, "cifar", "invertible"), ("resnet", 18, "cifar", "conv"), ("resnet", 34, "cifar", "conv"),
            ("resnet", 50, "imagenet", "conv"), ("revnet", 50, "cifar", "conv", "pyramid", "variant"), ("revnet", 101, "imagenet", "conv"),
            ("revnet", 3, "cifar", "conv", "constant"), ("revnet", 8, "imagenet", "conv", "constant")]
MORE = [("revnet", 50, "imagenet", "conv"), ("revnet", 34, "imagenet", "invertible"), ("resnet", 18, "imagenet", "conv")]
LOGITS = os.path.join(os.path.dirname(ANALYSIS), "tests/reference/torch_logits.py")
TORCH = os.environ.get("PETRA_TEST_TORCH_PYTHON")


def of_network(family, depth, stem, downsample, shape="pyramid", bottleneck="standard", width=2):
    values = {"family": family, "depth": depth, "stem": stem, "downsample": downsample, "width": width, "shape": shape, "bottleneck": bottleneck}
    return [text for key, value in values.items() for text in ("--set", f"model.{key}={value}")]


# (family, coupling, first part of the names in a state_dict)
TOKENS = [("gpt", "additive", "transformer"), ("revgpt", "additive", "reversible"), ("revgpt", "leapfrog", "leapfrog"),
          ("llama", "additive", "model"), ("revllama", "additive", "reversible"), ("revllama", "leapfrog", "leapfrog")]


# Options for the numbers that the state_dict of a GPT or Llama does not contain.
OPTIONS = [("--heads", "2"), ("--heads", "2", "--rotary-base", "100", "--context", "5")]


def of_tokens(family, coupling="additive"):
    """A GPT or Llama of 3 blocks, whose heads are no function of its width."""
    values = {"model.family": family, "model.depth": 3, "model.width": 12, "model.heads": 2, "model.context": 5, "data.set": "grammar"}
    values |= {"model.kv_heads": 1, "model.hidden": 20, "model.rotary_base": 100} if "llama" in family else {}
    values |= {"model.coupling": coupling} if coupling != "additive" else {}
    return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]


class Weights(ProgramTest):
    def initial(self, name, *options):
        self.good("init", "small.yaml", "--output", "initial", "--quiet", *options)
        os.replace(self.path("initial/weights.h5"), self.path(name))
        return self.tensors(name)

    def tensors(self, name):
        found = {}
        with h5py.File(self.path(name), "r") as file:
            file["parameters"].visititems(lambda key, item: found.update({key: item[()]}) if isinstance(item, h5py.Dataset) else None)
        return found

    def equal(self, a, b):
        self.assertEqual(list(a), list(b))
        for name in a:
            self.assertEqual(a[name].dtype, b[name].dtype, name)
            numpy.testing.assert_array_equal(a[name], b[name], name)

    def convert(self, *arguments):
        """What the script prints."""
        before, sys.argv = sys.argv, ["weights_pytorch.py", *(self.path(word) if "." in word else word for word in arguments)]
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                entry.end(weights.main)
        finally:
            sys.argv = before
        return out.getvalue()

    def refused(self, words, *arguments):
        error = io.StringIO()
        with contextlib.redirect_stderr(error), self.assertRaises(SystemExit) as end:
            self.convert(*arguments)
        print(error.getvalue().strip())
        self.assertEqual(end.exception.code, 2)
        self.assertEqual(len(error.getvalue().splitlines()), 1, error.getvalue())
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, error.getvalue())
        self.assertFalse([name for name in os.listdir(self.folder) if ".tmp" in name])

    def state(self, name="model.npz"):
        with numpy.load(self.path(name)) as file:
            return {key: file[key] for key in file.files}


class Conversion(Weights):
    def test_there_and_back(self):
        for network in NETWORKS:
            before = self.initial("a.h5", *of_network(*network))
            for file in "model.npz", "model.safetensors":
                self.convert("a.h5", file)
                text = self.convert(file, "b.h5")
                self.equal(self.tensors("b.h5"), before)
            # petra takes it with the settings that are printed, and finds the same.
            settings = text.splitlines()[1].split(": ")[1].split()
            self.equal(self.initial("c.h5", *settings, "--set", "model.weights=b.h5"), before)
            self.assertIn(f"model.depth={network[1]}", settings)

    def test_double(self):
        before = self.initial("a.h5", *self.set_options(device__backend="ref", device__precision="fp64"))
        self.assertEqual({value.dtype.itemsize for value in before.values()}, {8})
        for file in "model.npz", "model.safetensors":
            self.convert("a.h5", file)
            self.convert(file, "b.h5")
            self.equal(self.tensors("b.h5"), before)

    def test_tokens_there_and_back(self):
        for family, coupling, trunk in TOKENS:
            before, llama = self.initial("a.h5", *of_tokens(family, coupling)), "llama" in family
            label = f"{family}-3 width 12, 2 heads" + (" (1 of keys and values), hidden 20, rotary base 100" if llama else "") + ", context 5"
            label += ", leapfrog coupling" if coupling == "leapfrog" else ""
            for file in "model.npz", "model.safetensors":
                self.assertEqual(self.convert("a.h5", file).split(": ")[1], f"{label}, 64 classes; {30 if llama else 41} tensors\n")
                text = self.convert(file, "b.h5", *OPTIONS[llama])
                self.equal(self.tensors("b.h5"), before)
            state = self.state()
            self.assertEqual({name.split(".")[0] for name in state}, {trunk, "lm_head"})
            # petra takes it with the settings that are printed, finds the same, and not as the other family.
            settings = ["--set", "data.set=grammar", *text.splitlines()[1].split(": ")[1].split(), "--set", "model.weights=b.h5"]
            self.equal(self.initial("c.h5", *settings), before)
            other = family.removeprefix("rev") if family.startswith("rev") else f"rev{family}"
            self.bad(2, [f"weights of {label}", f"expected those of {other}-3"], "init", "small.yaml", *settings, "--set", f"model.family={other}",
                     "--set", "model.coupling=additive", "--set", "method.name=backprop", "--output", "out")
            if llama:
                parts = [state[f"{trunk}.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
                numpy.testing.assert_array_equal(numpy.concatenate(parts), before["04/qkv/weight"])
                self.assertEqual([len(part) for part in parts], [12, 6, 6])
                continue
            # Conv1D has (in, out); rows of c_attn are q, k, v one behind the other in both.
            numpy.testing.assert_array_equal(state[f"{trunk}.h.1.attn.c_attn.weight"].T, before["04/qkv/weight"])
            self.assertEqual(state[f"{trunk}.h.2.mlp.c_proj.weight"].shape, (48, 12))

    def test_names_are_those_of_gpt_2(self):
        """Files as they were published: the trunk alone, with its masks and without a head."""
        before = self.initial("a.h5", *of_tokens("gpt"))
        self.convert("a.h5", "model.npz")
        layer = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
        names = {f"h.{i}.{part}.{kind}" for i in range(3) for part in layer for kind in ("weight", "bias")}
        names |= {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"}
        state = self.state()
        self.assertEqual(set(state), {f"transformer.{name}" for name in names} | {"lm_head.weight"})
        bare = {name.removeprefix("transformer."): value for name, value in state.items()}
        del bare["lm_head.weight"]
        bare |= {"h.0.attn.bias": numpy.ones((1, 1, 5, 5), "f4"), "h.0.attn.masked_bias": numpy.float32(-1e4)}
        numpy.savez(self.path("bare.npz"), **bare)
        self.assertIn("; the head's matrix is a copy of the table of tokens\n", self.convert("bare.npz", "b.h5", "--heads", "2"))
        self.equal(self.tensors("b.h5"), {**before, "08/fc/weight": before["01/tokens/weight"]})
        for words, *options in (("--heads N",), ("5 heads for 12 features", "--heads", "5")):
            self.refused(["model.npz: ", words], "model.npz", "c.h5", *options)
        attention = "transformer.h.1.attn.c_attn.weight"
        for words, name, others in (("no tensor transformer.ln_f.bias", "transformer.ln_f.bias", {}), ("layers [0, 2]", "transformer.h.1.", {}),
                                    ("has shape (36, 12), expected (12, 36)", attention, {attention: state[attention].T})):
            numpy.savez(self.path("wrong.npz"), **{key: value for key, value in state.items() if not key.startswith(name)}, **others)
            self.refused(["wrong.npz: ", words], "wrong.npz", "c.h5", "--heads", "2")
        self.initial("r.h5")
        self.convert("r.h5", "r.npz")
        self.refused("--heads is for a GPT or Llama, and none has these tensors", "r.npz", "c.h5", "--heads", "2")
        with h5py.File(self.path("a.h5"), "r+") as file:
            del file.attrs["model"]
        self.refused("a.h5: its attribute model is ''", "a.h5", "c.npz")

    def test_long_description(self):
        """Weights whose attribute `model` is about as long as it can be are those of their network."""
        options = of_tokens("revllama", "leapfrog") + ["--set", "model.rotary_base=1234570", "--set", "model.context=65536"]
        before = self.initial("a.h5", *options)
        self.equal(self.initial("b.h5", *options, "--set", "model.weights=a.h5"), before)
        self.assertIn("rotary base 1234570, context 65536, leapfrog coupling, 64 classes; 30 tensors", self.convert("a.h5", "a.npz"))

    def llama(self, trunk="model."):
        """A Llama with 2 layers of width 8, 4 heads of which 2 are of keys and values, 20 features in the MLP, by the names of Hugging Face."""
        random = numpy.random.default_rng(1)
        shapes = {"embed_tokens": (9, 8), "norm": (8,)}
        for layer in "01":
            shapes |= {f"layers.{layer}.self_attn.{part}_proj": (rows, 8) for part, rows in (("q", 8), ("k", 4), ("v", 4), ("o", 8))}
            shapes |= {f"layers.{layer}.mlp.{part}_proj": shape for part, shape in (("gate", (20, 8)), ("up", (20, 8)), ("down", (8, 20)))}
            shapes |= {f"layers.{layer}.{part}_layernorm": (8,) for part in ("input", "post_attention")}
        names = {f"{trunk}{name}.weight": shape for name, shape in shapes.items()} | {"lm_head.weight": (9, 8)}
        return {name: random.normal(size=shape).astype("f4") for name, shape in names.items()}

    def test_names_are_those_of_llama(self):
        state = self.llama()
        numpy.savez(self.path("model.npz"), **state)
        text = self.convert("model.npz", "b.h5", "--heads", "4", "--context", "7")
        self.assertIn("b.h5: 15 tensors; there is no config.json", text)
        self.assertIn("model.family=llama --set model.depth=2 --set model.width=8 --set model.heads=4 --set model.kv_heads=2 --set model.hidden=20 "
                      "--set model.rotary_base=10000 --set model.context=7\n", text)
        values, layer = self.tensors("b.h5"), "model.layers.1"
        self.assertEqual({name for name in values if name[:2] in ("01", "04", "05", "06")}, {
            "01/tokens/weight", "04/norm/scale", "04/qkv/weight", "04/proj/weight", "05/norm/scale", "05/gate_up/weight", "05/down/weight", "06/norm/scale",
            "06/fc/weight"})
        for name, parts in (("04/qkv/weight", [f"{layer}.self_attn.{part}_proj.weight" for part in "qkv"]),
                            ("05/gate_up/weight", [f"{layer}.mlp.{part}_proj.weight" for part in ("gate", "up")]),
                            ("05/norm/scale", [f"{layer}.post_attention_layernorm.weight"]), ("06/norm/scale", ["model.norm.weight"])):
            numpy.testing.assert_array_equal(values[name], numpy.concatenate([state[part] for part in parts]), name)
        self.convert("b.h5", "c.npz")
        self.equal({name: self.state("c.npz")[name] for name in state}, state)
        # A file of the trunk alone, with a buffer of older programs; its head is the table.
        bare = {name: value for name, value in self.llama("").items() if name != "lm_head.weight"}
        numpy.savez(self.path("bare.npz"), **bare, **{"layers.0.self_attn.rotary_emb.inv_freq": numpy.ones(1, "f4")})
        self.assertIn("; the head's matrix is a copy of the table of tokens; there is", self.convert("bare.npz", "d.h5", "--heads", "4"))
        self.equal(self.tensors("d.h5"), {**values, "06/fc/weight": values["01/tokens/weight"]})

    def test_llamas_refused(self):
        state = self.llama()
        numpy.savez(self.path("model.npz"), **state)
        for words, *options in (("--heads N",), ("3 heads for 8 features", "--heads", "3"), ("8 heads of 1 features; expected an even", "--heads", "8"),
                                ("k_proj.weight has 4 rows; expected those of a number of heads, each of 8 features, that divides 1", "--heads", "1"),
                                ("rotary base 0; expected a number, 1 .. 1e12", "--heads", "4", "--rotary-base", "0"), ("model.context would be 0; petra has at least 1", "--heads", "4", "--context", "0")):
            self.refused(["model.npz: ", words], "model.npz", "b.h5", *options)
        keys, gate, bias = (f"model.layers.1.{name}" for name in ("self_attn.k_proj.weight", "mlp.gate_proj.weight", "self_attn.k_proj.bias"))
        for words, others in ((f"no tensor {gate}", {gate: None}), ("no tensor model.layers.0.mlp.gate_proj.weight", {gate.replace("1", "0"): None}),
                              (f"{keys} has shape (8, 8), expected (4, 8)", {keys: numpy.ones((8, 8), "f4")}),
                              (f"{keys.replace('1', '0')} has shape (4,); expected a matrix", {keys.replace("1", "0"): numpy.ones(4, "f4")}),
                              (f"{bias} is not a tensor of this network", {bias: numpy.ones(4, "f4")}),
                              ("layers [0, 1, 3]: no Llama has these", {gate.replace("1", "3"): state[gate]})):
            numpy.savez(self.path("wrong.npz"), **{name: value for name, value in {**state, **others}.items() if value is not None})
            self.refused(["wrong.npz: ", words], "wrong.npz", "b.h5", "--heads", "4")
        self.initial("r.h5")
        self.convert("r.h5", "r.npz")
        self.refused("--rotary-base and --context are for a Llama, and none has these tensors", "r.npz", "c.h5", "--context", "5")
        self.refused("--key, --names, --heads, --rotary-base and --context are for reading", "r.h5", "c.npz", "--context", "5")

    def test_config_json(self):
        """What is beside the tensors of a Llama, as transformers writes it."""
        state, config = self.llama(), {"model_type": "llama", "num_attention_heads": 4, "hidden_size": 8, "rms_norm_eps": 1e-5, "head_dim": 2, "hidden_act": "silu"}
        self.write("model.safetensors", weights.state_file(".safetensors", state))
        new, old = {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}, {"rope_theta": 1e6, "rope_scaling": None}
        for more, base in ((new, "500000"), (old, "1000000"), ({}, "10000")):
            self.write("config.json", json.dumps({**config, **more}))
            text = self.convert("model.safetensors", "b.h5")
            self.assertIn(f"--set model.heads=4 --set model.kv_heads=2 --set model.hidden=20 --set model.rotary_base={base} --set model.context=128\n", text)
            self.assertEqual(text, self.convert("model.safetensors", "b.h5", "--heads", "4", "--rotary-base", base))
        for words, *options in (("--heads is 2, and config.json beside the file says 4", "--heads", "2"),
                                ("--rotary-base is 7, and config.json beside the file says 10000", "--rotary-base", "7")):
            self.refused(["model.safetensors: ", words], "model.safetensors", "c.h5", *options)
        for words, more in (("rms_norm_eps is 1e-06; expected 1e-05", {"rms_norm_eps": 1e-6}), ("model_type is gemma", {"model_type": "gemma"}),
                            ("rope_parameters or rope_scaling is llama3; expected default", {"rope_parameters": {"rope_type": "llama3", "factor": 8}}),
                            ("rope_parameters or rope_scaling is linear", {"rope_scaling": {"type": "linear", "factor": 2}}),
                            ("attention_bias is True; expected False", {"attention_bias": True}), ("mlp_bias is True", {"mlp_bias": True}),
                            ("head_dim is 4; expected 2", {"head_dim": 4}), ("sliding_window is 4096; expected null", {"sliding_window": 4096}),
                            ("layer_types is ['full_attention', 'sliding_attention']", {"layer_types": ["full_attention", "sliding_attention"]}),
                            ("hidden_act is gelu", {"hidden_act": "gelu"}), ("partial_rotary_factor is 0.5", {"partial_rotary_factor": 0.5}),
                            ("num_attention_heads is four; expected a number", {"num_attention_heads": "four"}),
                            ("its tensors have num_key_value_heads 2, and config.json beside the file says 1", {"num_key_value_heads": 1}),
                            ("its tensors have num_hidden_layers 2, and", {"num_hidden_layers": 3}), ("its tensors have vocab_size", {"vocab_size": 3})):
            self.write("config.json", json.dumps({**config, **more}))
            self.refused(["config.json", words], "model.safetensors", "c.h5", "--heads", "4")
        self.write("config.json", json.dumps({"head_dim": 2, "rms_norm_eps": 1e-5}))
        self.convert("model.safetensors", "c.h5", "--heads", "4")
        for words, text in (("config.json: cannot be read: ", "{"), ("config.json: no JSON object", "[]")):
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
        self.assertIn("there is no config.json beside the file, so that rms_norm_eps is assumed to be 1e-05 and the rotary positions to be unscaled, "
                      "with the base 7\n", text)
        for words, *options in (("rotary base 0.5; expected a number, 1 .. 1e12", "--rotary-base", "5e-1"), ("rotary base 1e+13; expected", "--rotary-base", "1e13"),
                                ("model.context would be 70000; petra has at most 65536", "--context", "70000")):
            self.refused(["model.npz: ", words], "model.npz", "c.h5", "--heads", "4", *options)
        table = "model.embed_tokens.weight"
        numpy.savez(self.path("large.npz"), **{**state, table: numpy.ones((65537, 8), "f4")})
        self.refused("large.npz: data.vocabulary would be 65537; petra has at most 65536", "large.npz", "c.h5", "--heads", "4")

    def test_names_are_torchvisions(self):
        # resnet18 and resnet50 of torchvision have 62 and 161 parameters, and a mean and a variance for each of 20 and 53 batch norms.
        for depth, count, names in ((18, 62 + 2 * 20, ("layer4.1.conv2.weight",)), (50, 161 + 2 * 53, ("layer1.0.downsample.1.running_var",))):
            self.initial("a.h5", *of_network("resnet", depth, "imagenet", "conv", width=1))
            self.convert("a.h5", "model.npz")
            state = self.state()
            self.assertEqual(len(state), count)
            for name in ("conv1.weight", "bn1.bias", "layer2.0.downsample.0.weight", "layer3.1.bn2.running_mean", "fc.bias", *names):
                self.assertIn(name, state)

    def test_old_files_name_their_network(self):
        """The label of a network of an older petra is the same as before; those of the newer networks differ, and petra compares them."""
        for network, label in ((("revnet", 18, "cifar", "conv"), "revnet-18 width 2, cifar stem, 10 classes"),
                               (("revnet", 50, "cifar", "conv", "pyramid", "variant"), "revnet-50 width 2, cifar stem, variant bottleneck, 10 classes"),
                               (("revnet", 3, "cifar", "conv", "constant"), "revnet-3 width 2, cifar stem, constant shape, 10 classes")):
            self.initial("a.h5", *of_network(*network))
            self.convert("a.h5", "model.npz")
            self.convert("model.npz", "b.h5")
            for name in "a.h5", "b.h5":
                with h5py.File(self.path(name), "r") as file:
                    self.assertEqual(file.attrs["model"], label)
        self.bad(2, ["a.h5: weights of revnet-3 width 2, cifar stem, constant shape", "expected those of revnet-18"], "init", "small.yaml",
                 "--set", "model.width=2", "--set", "model.weights=a.h5", "--output", "out")

    def test_script(self):
        self.initial("a.h5")
        run = subprocess.run([sys.executable, os.path.join(ANALYSIS, "weights_pytorch.py"), "a.h5", "b.npz"], cwd=self.folder,
                             capture_output=True, text=True, check=True)
        self.assertEqual(run.stdout, "b.npz: revnet-18 width 1, cifar stem, 10 classes; 102 tensors\n")

    def test_biases_of_convolutions(self):
        before = self.initial("a.h5")
        self.convert("a.h5", "model.npz")
        state = self.state()
        bias = numpy.array([0.5, -2], "f4")
        state["conv1.bias"] = bias
        state["layer1.0.conv1.bias"] = bias[:1]
        numpy.savez(self.path("biased.npz"), **state)
        self.assertIn("; 2 biases of convolutions", self.convert("biased.npz", "b.h5"))
        after = self.tensors("b.h5")
        numpy.testing.assert_array_equal(after["01/bn/running_mean"], before["01/bn/running_mean"] - bias)
        numpy.testing.assert_array_equal(after["02/bn1/running_mean"], before["02/bn1/running_mean"] - bias[:1])
        for name in ("01/bn/running_mean", "02/bn1/running_mean"):
            after[name] = before[name]
        self.equal(after, before)

    def test_other_names(self):
        before = self.initial("a.h5")
        self.convert("a.h5", "model.npz")
        state = {"module." + name: value for name, value in self.state().items()}
        state["module.stem.c"] = state.pop("module.conv1.weight")
        state["module.bn1.num_batches_tracked"] = numpy.array(7)
        numpy.savez(self.path("model.npz"), **state)
        self.refused("no tensor conv1.weight", "model.npz", "b.h5")
        self.write("names.txt", "# of another program\nstem.c conv1.weight\n")
        self.convert("model.npz", "b.h5", "--names", "names.txt")
        self.equal(self.tensors("b.h5"), before)
        self.write("names.txt", "stem.d conv1.weight\n")
        self.refused(["names.txt:1: ", "has no stem.d"], "model.npz", "b.h5", "--names", "names.txt")
        self.write("names.txt", "stem.c\n")
        self.refused("names.txt:1: 1 words; expected two names", "model.npz", "b.h5", "--names", "names.txt")

    def test_refused(self):
        self.initial("a.h5")
        self.convert("a.h5", "model.npz")

        def changed(words, **values):
            state = self.state()
            state.update({name.replace("__", "."): value for name, value in values.items()})
            numpy.savez(self.path("bad.npz"), **{name: value for name, value in state.items() if value is not None})
            self.refused(["bad.npz: ", words], "bad.npz", "b.h5")

        one = numpy.ones(1, "f4")
        changed("no tensor layer2.0.bn1.bias", layer2__0__bn1__bias=None)
        changed("layer2.0.bn1.bias has shape (1,), expected (2,)", layer2__0__bn1__bias=one)
        changed("layer1.0.bn1.bias has an element that is not a finite number", layer1__0__bn1__bias=one * numpy.nan)
        changed("bn1.running_var has a variance below 0", bn1__running_var=numpy.array([1, -1], "f4"))
        changed("layer1.0.se.weight is not a tensor of this network", layer1__0__se__weight=one)
        changed("3, 2, 2, 2 blocks by group; expected 2, 2, 2, 2 (depth 18)", layer1__2__conv1__weight=one)
        changed("no network of petra has these", conv1__weight=numpy.ones((3, 3, 3, 3), "f4"))
        with h5py.File(self.path("bad.h5"), "w") as file:
            file["parameters/01/conv/weight"] = numpy.ones((2, 3, 3, 3))
        self.refused("bad.h5: 1 blocks; expected the 10", "bad.h5", "b.npz")
        self.refused("expected from .h5 to one of .pt", "a.h5", "b.h5")
        self.refused(["nothing.npz: cannot be read", "No such file"], "nothing.npz", "b.h5")
        self.refused("--key is for .pt", "model.npz", "b.h5", "--key", "model")
        self.write("bad.safetensors", b"\x05\0\0\0\0\0\0\0{}")
        self.refused("bad.safetensors: no ", "bad.safetensors", "b.h5")
        self.assertFalse(os.path.exists(self.path("b.h5")))


    def test_prefixes(self):
        """What wrappers of a module add to names: torch.compile, DataParallel, FSDP, an average of weights."""
        before = self.initial("a.h5")
        self.convert("a.h5", "model.npz")
        state = self.state()
        inner = {name.replace("layer1.0.", "layer1.0._orig_mod."): value for name, value in state.items()}
        for number, (prefix, of) in enumerate((("_orig_mod.", state), ("module._orig_mod.", state), ("_orig_mod.module.", state), ("", inner),
                                               ("module.module._orig_mod._orig_mod.", inner), ("_fsdp_wrapped_module.", state))):
            numpy.savez(self.path("other.npz"), **{prefix + name: value for name, value in of.items()})
            self.convert("other.npz", f"{number}.h5")
            self.equal(self.tensors(f"{number}.h5"), before)
        numpy.savez(self.path("other.npz"), n_averaged=3, **{"module." + name: value for name, value in state.items()})
        self.convert("other.npz", "average.h5")
        self.equal(self.tensors("average.h5"), before)
        numpy.savez(self.path("other.npz"), **state, **{"_orig_mod.fc.bias": state["fc.bias"]})
        self.refused("other.npz: fc.bias and _orig_mod.fc.bias are both fc.bias", "other.npz", "b.h5")
        for kind in "complex64", "int8", "bool", "S4":
            numpy.savez(self.path("other.npz"), **{**state, "fc.bias": state["fc.bias"].astype(kind)})
            self.refused("fc.bias is of type ", "other.npz", "b.h5")
        self.assertFalse(os.path.exists(self.path("b.h5")))

    def test_functions_raise(self):
        """What a notebook calls ends by an exception and not its process; nor is the process's SIGPIPE changed by an import."""
        gpt = {"transformer.wte.weight": (8, 4), "transformer.wpe.weight": (5, 4), "transformer.h.0.ln_1.weight": (4,)}
        with self.assertRaisesRegex(petrapipe.Error, "number of heads; expected --heads N .of a function: heads=N."):
            weights.network_of_state("x", gpt)
        for call in ((weights.network_of_state, "x", {}), (weights.network_of_petra, "x", "", {}), (weights.read_state, "no.npz", None),
                     (weights.read_petra, self.path("no.h5")), (modules.modules, "no_such_module"), (weights.renamed, "no", {})):
            with self.assertRaises(petrapipe.Error, msg=str(call)):
                call[0](*call[1:])
        before = "import signal, sys; sys.path.insert(0, sys.argv[1]); import entry, petrapipe.weights; print(signal.getsignal(signal.SIGPIPE).name)"
        self.assertEqual(subprocess.run([sys.executable, "-B", "-c", before, ANALYSIS], capture_output=True, text=True, check=True).stdout, "SIG_IGN\n")


# The layers of the release of PETRA's authors (github.com/stephane-rivaud/PETRA, async_torch/models/models_RevNet.py), by name and shape, with the
# channels of one stream: a convolution has a bias, and every layer names its shortcuts.
def release_conv(suffix, outputs, inputs, kernel):
    return {f"weight_conv{suffix}": (outputs, inputs, kernel, kernel), f"bias_conv{suffix}": (outputs,), f"weight_bn{suffix}": (outputs,),
            f"bias_bn{suffix}": (outputs,)}


def release_layer(convs, shortcuts):
    parameters = {}
    for suffix, sizes in [*convs.items(), *shortcuts.items()]:
        parameters |= release_conv(suffix, *sizes) if sizes else {name: (0,) for name in release_conv(suffix, 1, 1, 1)}
    return parameters


def release_basic(inputs, outputs, downsample):
    return release_layer({"_1": (outputs, inputs, 3), "_2": (outputs, outputs, 3)}, {"_ds": (outputs, inputs, 1) if downsample else None})


def release_bottleneck(inputs, hidden, outputs, downsample, variant):
    shortcut = (outputs, inputs, 1) if downsample else None
    return release_layer({"_1": (hidden, outputs if variant else inputs, 1), "_2": (hidden, hidden, 3), "_3": (outputs, hidden, 1)},
                         {"_ds": shortcut, "_tilde_ds": shortcut})


def release_network(depth, variant, blocks, classes, kernel):
    """[parameters of each layer] of make_layers_revnetDEPTH, or of make_layers_revnet_fixed_size with so many blocks of 128 channels a stream."""
    if blocks:
        inner, first, inputs = [release_basic(128, 128, False)] * blocks, 128, 128
    else:
        groups, inner, first, inputs = {18: (2, 2, 2, 2), 101: (3, 4, 23, 3)}.get(depth, (3, 4, 6, 3)), [], 64, 64
        for group, count in enumerate(groups):
            for _ in range(count):
                hidden = 64 << group
                outputs = hidden if depth < 50 else 4 * hidden
                inner.append(release_basic(inputs, outputs, inputs != outputs) if depth < 50 else
                             release_bottleneck(inputs, hidden, outputs, inputs != outputs, variant))
                inputs = outputs
    return [release_conv("", 2 * first, 3, kernel), *inner, {"weight": (classes, 2 * inputs), "bias": (classes,)}]


def release_statistics(layer):
    """{name: shape}; a basic block calls its first running mean running_mean, its variance running_var_1."""
    found = {f"running_{kind}{name.removeprefix('weight_bn')}": shape for kind in ("mean", "var") for name, shape in layer.items() if "weight_bn" in name}
    if "weight_bn_2" in layer and "weight_bn_3" not in layer:
        found["running_mean"] = found.pop("running_mean_1")
    return found


RELEASE = [("revnet18", 18, False, 0), ("revnet34", 34, False, 0), ("revnet50", 50, False, 0), ("revnet50_variant", 50, True, 0),
           ("revnet101", 101, False, 0), ("revnet101_variant", 101, True, 0), ("fixed_size", 0, False, 20)]


class Release(Weights):
    def options(self, depth, variant, blocks, classes, stem):
        return of_network("revnet", depth or blocks, stem, "conv", "constant" if blocks else "pyramid", "variant" if variant else "standard",
                          128 if blocks else 64) + ["--set", f"model.classes={classes}"]

    def test_parameter_counts(self):
        """petra's parameters and the biases of the release's convolutions are the parameters of the release."""
        for name, depth, variant, blocks in RELEASE:
            for stem, classes, kernel in (("cifar", 10, 3), ("imagenet", 1000, 7)):
                layers = release_network(depth, variant, blocks, classes, kernel)
                sizes = [(key, int(numpy.prod(shape))) for layer in layers for key, shape in layer.items()]
                total, biases = sum(size for _, size in sizes), sum(size for key, size in sizes if key.startswith("bias_conv"))
                found = self.good_json("inspect", "small.yaml", *self.options(depth, variant, blocks, classes, stem))["parameters"]
                print(f"{name}, {stem}, {classes} classes: {total} parameters in the release, {biases} of them biases of convolutions, {found} in petra")
                self.assertEqual(found + biases, total, name)

    def test_names(self):
        """A state_list becomes a state_dict with all names of the network and the biases."""
        for name, depth, variant, blocks in RELEASE:
            layers = release_network(depth, variant, blocks, 10, 3)
            state = [({key: numpy.empty(shape, "V0") for key, shape in layer.items()}, {}, {key: numpy.empty(shape, "V0") for key, shape in
                      release_statistics(layer).items()}, {}, []) for layer in layers]
            self.assertTrue(weights_release.is_state_list(state))
            shapes = {key: value.shape for key, value in weights_release.state_of(state).items()}
            network = weights.network_of_state(name, shapes)
            self.assertEqual((network.family, network.depth, network.bottleneck, network.shape), (
                "revnet", depth or blocks, "variant" if variant else "standard", "constant" if blocks else "pyramid"))
            wanted = {key: shape for _, key, shape in weights.tensors(network)}
            biases = {key.removesuffix("weight") + "bias": shape[:1] for key, shape in wanted.items() if len(shape) == 4}
            self.assertEqual(shapes, wanted | biases, name)

    def test_checkpoint(self):
        """A file as the release writes it, and the logits of the same network with its biases, for constant shape."""
        if not TORCH:
            self.skipTest("PETRA_TEST_TORCH_PYTHON is not set: no Python with torch, numpy and h5py")
        self.write("make.py", """
import torch
from torch.nn import functional as F
torch.manual_seed(1)

def statistics(n, mean, variance):
    return {mean: torch.randn(n), variance: torch.rand(n) + 0.5}

def conv(o, i, suffix):
    return {f"weight_conv{suffix}": torch.randn(o, i, 3, 3) / 4, f"bias_conv{suffix}": torch.randn(o), f"weight_bn{suffix}": torch.rand(o) + 0.5,
            f"bias_bn{suffix}": torch.randn(o)}

def block():
    empty = {f"{kind}_ds": torch.empty(0) for kind in ("weight_conv", "bias_conv", "weight_bn", "bias_bn")}
    return (conv(2, 2, "_1") | empty | conv(2, 2, "_2"), {}, statistics(2, "running_mean", "running_var_1") |
            {"running_mean_ds": torch.empty(0), "running_var_ds": torch.empty(0)} | statistics(2, "running_mean_2", "running_var_2"), {}, [])

layers = [(conv(4, 3, ""), {}, statistics(4, "running_mean", "running_var"), {}, []), block(), block(),
          ({"weight": torch.randn(10, 4), "bias": torch.randn(10)}, {}, {}, {}, [])]
torch.save({"epoch": 3, "state_list": layers, "best_acc": torch.tensor(0.5), "run_id": None}, "release.pth")

def unit(x, layer, suffix, mean, variance):
    p, s = layer[0], layer[2]
    y = F.conv2d(x, p[f"weight_conv{suffix}"], p[f"bias_conv{suffix}"], 1, 1)
    return F.relu(F.batch_norm(y, s[mean], s[variance], p[f"weight_bn{suffix}"], p[f"bias_bn{suffix}"]))

images = torch.randn(2, 3, 8, 8)
a, b = unit(images, layers[0], "", "running_mean", "running_var").chunk(2, 1)
for layer in layers[1:-1]:
    first = unit(a, layer, "_1", "running_mean", "running_var_1")
    a, b = b + unit(first, layer, "_2", "running_mean_2", "running_var_2"), a
logits = F.linear(torch.cat([a, b], 1).mean((2, 3)), layers[-1][0]["weight"], layers[-1][0]["bias"])
torch.save([images, logits], "logits.pth")
""")
        self.write("compare.py", """
import sys
import torch
sys.path.insert(0, sys.argv[1])
import petrapipe
images, logits = torch.load("logits.pth")
model = petrapipe.of_state_dict(torch.load("a.pt")).eval().requires_grad_(False)
print(float((model(images) - logits).abs().max() / logits.abs().max()))
""")
        self.assertEqual(self.torch_run("make.py").stderr, "")
        run = self.torch_run(os.path.join(ANALYSIS, "weights_pytorch.py"), "release.pth", "a.h5", "--key", "state_list")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertEqual(run.stdout, "a.h5: 27 tensors; 5 biases of convolutions are now in the running means\nits network: --set model.family=revnet "
                         "--set model.depth=2 --set model.width=2 --set model.stem=cifar --set model.classes=10 --set model.shape=constant\n")
        self.assertEqual(self.torch_run(os.path.join(ANALYSIS, "weights_pytorch.py"), "a.h5", "a.pt").stderr, "")
        run = self.torch_run("compare.py", ANALYSIS)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertLess(float(run.stdout), 1e-5)  # single precision
        settings = ["--set", "model.shape=constant", "--set", "model.depth=2", "--set", "model.width=2", "--set", "model.weights=a.h5"]
        self.assertEqual(len(self.initial("b.h5", *settings)), 27)

    def torch_run(self, *arguments):
        return subprocess.run([TORCH, "-B", *arguments], cwd=self.folder, capture_output=True, text=True, check=False)


class FineTuning(Weights):
    def test_new_head(self):
        twelve = self.initial("twelve.h5", "--set", "model.classes=12", "--set", "run.seed=9")
        start = ["--set", "model.weights=twelve.h5"]
        self.bad(2, ["twelve.h5: weights of revnet-18 width 1, cifar stem, 12 classes", "expected those of ", "10 classes"], "train", "small.yaml", *start, "--output", "out")
        found = self.initial("new.h5", *start, "--set", "model.new_head=true")
        random = self.initial("random.h5")
        for name, value in found.items():
            numpy.testing.assert_array_equal(value, (random if name.startswith("10/") else twelve)[name], name)
        self.good("train", "small.yaml", *start, "--set", "model.new_head=true", "--output", "tuned", "--quiet")
        self.good("train", "small.yaml", "--set", "model.weights=new.h5", "--output", "same", "--quiet")
        self.equal(self.tensors("tuned/weights.h5"), self.tensors("same/weights.h5"))
        for command in "train", "inspect":
            self.bad(2, ["model.new_head", "there is no model.weights"], command, "small.yaml", "--set", "model.new_head=true")
        self.bad(2, ["model.new_head", "random weights", "expected false"], "evaluate", "small.yaml", *start, "--set", "model.new_head=true")


class Logits(Weights):
    def setUp(self):
        super().setUp()
        if not TORCH:
            self.skipTest("PETRA_TEST_TORCH_PYTHON is not set: no Python with torch, numpy and h5py")

    def torch(self, *arguments):
        return subprocess.run([TORCH, "-B", *arguments], cwd=self.folder, capture_output=True, text=True, check=False)

    def dumped(self, weights, *options):
        dump = os.path.abspath("tests/dump_logits")
        out = subprocess.run([dump, "small.yaml", *options, "--set", f"model.weights={weights}"], cwd=self.folder, check=True,
                             stdout=subprocess.PIPE).stdout
        self.write("dump", out)
        values = numpy.frombuffer(out)
        count, classes = int(values[0] * values[4]), int(values[5])
        return values[-count * classes:].reshape(count, classes), values[-count * (classes + 1):-count * classes].astype(int)

    def scatter(self, name, factor):
        """Statistics, scales, shifts and biases as after a training, and weights times `factor`, so that each has its part in the
        result."""
        random = numpy.random.default_rng(1)
        with h5py.File(self.path(name), "r+") as file:
            for key, value in self.tensors(name).items():
                if key.endswith(("scale", "running_var")):
                    file["parameters"][key][()] = random.uniform(0.5, 1.5, value.shape)
                elif key.endswith(("shift", "running_mean", "bias")):
                    file["parameters"][key][()] = random.uniform(-0.5, 0.5, value.shape)
                else:
                    file["parameters"][key][()] = factor * value
        self.unseal(name)

    def same_logits(self, what, options, precision, heads=()):
        """petra's and PyTorch's of random weights, and of the program whose names they are, where torch_logits.py has it."""
        # Of the largest logit; rounding is 1e-16 and 6e-8 of it in each of up to 50 layers.
        backend, bound = {"fp64": ("ref", 1e-12), "fp32": ("cpu", 1e-5)}[precision]
        options = options + self.set_options(device__backend=backend, device__precision=precision, data__batch=4, method__name="backprop")
        self.initial("a.h5", *options)
        self.scatter("a.h5", 20 if heads else 1)
        run = self.torch(os.path.join(ANALYSIS, "weights_pytorch.py"), "a.h5", "model.pt")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        logits, labels = self.dumped("a.h5", *options)
        run = self.torch(LOGITS, ANALYSIS, "model.pt", "dump", "logits", *heads)
        self.assertEqual(run.returncode, 0, run.stderr)
        other = numpy.fromfile(self.path("logits")).reshape(logits.shape)
        apart = abs(other - logits).max() / abs(logits).max()
        print(f"{what} {precision}: {apart:.2g} of the largest logit apart; {run.stdout.strip()}")
        self.assertLess(apart, bound)
        if run.stdout.endswith("apart\n"):
            self.assertLess(float(run.stdout.split()[2]), 1e-5 * abs(logits).max())
        # The logits are those that petra's own loss is of.
        loss = numpy.mean(numpy.log(numpy.exp(logits).sum(1)) - logits[range(len(labels)), labels])
        found = self.good_json("evaluate", "small.yaml", *options, "--set", "model.weights=a.h5", "--set", "data.eval_limit=4")
        self.assertLess(abs(found["loss"] - loss), 1e-5 * abs(logits).max())

    def comes_back(self, *options):
        run = self.torch(os.path.join(ANALYSIS, "weights_pytorch.py"), "model.pt", "b.h5", *options)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.equal(self.tensors("b.h5"), self.tensors("a.h5"))

    def test_equal_logits(self):
        for network in NETWORKS + MORE:
            for precision in "fp64", "fp32":
                # Of torchvision's width, where torch_logits.py compares with it.
                width = 64 if precision == "fp32" and network[0] == "resnet" and network[2] == "imagenet" else 4
                self.same_logits(network, of_network(*network, width=width), precision)
        self.comes_back()

    def test_equal_logits_of_tokens(self):
        for family, coupling, _ in TOKENS:
            for precision in "fp64", "fp32":
                self.same_logits((family, coupling), of_tokens(family, coupling), precision, ("2", "100")[:1 + ("llama" in family)])
            self.comes_back(*OPTIONS["llama" in family])

    def test_files_of_others(self):
        self.initial("a.h5")
        self.write("make.py", "import torch\nstate = torch.load('model.pt')\n"
                   "torch.save({'epoch': 3, 'model': state}, 'nested.pt')\ntorch.save([1], 'list.pt')\n"
                   "torch.save({n: v.bfloat16() for n, v in state.items()}, 'half.pt')\n"
                   "import argparse\ntorch.save({'model': state, 'args': argparse.Namespace(lr=1)}, 'args.pt')\n"
                   "for name, of in (('sparse', torch.Tensor.to_sparse), ('complex', lambda w: w.to(torch.complex64)), ('int8', torch.Tensor.char),\n"
                   "                 ('quantised', lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.qint8)), ('meta', lambda w: w.to('meta'))):\n"
                   "    torch.save({**state, 'fc.weight': of(state['fc.weight'])}, name + '.pt')\n"
                   "open('junk.pt', 'wb').write(b'\\x1b[31mjunk')\nopen('empty.pt', 'w')\n")
        script = os.path.join(ANALYSIS, "weights_pytorch.py")
        self.torch(script, "a.h5", "model.pt")
        self.assertEqual(self.torch("-W", "ignore", "make.py").stderr, "")
        for name, words in (("nested.pt", "no state_dict; one may be under --key model"), ("list.pt", "no state_dict"),
                            ("nothing.pt", "nothing.pt: cannot be read: No such file"), ("empty.pt", "it ends too soon"), ("junk.pt", "Unsupported operand 27"),
                            ("args.pt", "it holds argparse.Namespace beside tensors"), ("sparse.pt", "fc.weight is a tensor of layout torch.sparse_coo"),
                            ("complex.pt", "fc.weight is a tensor of torch.complex64"), ("int8.pt", "fc.weight is of type int8"),
                            ("quantised.pt", "fc.weight is a quantised tensor|it holds torch._utils._rebuild_qtensor"), ("meta.pt", "fc.weight is a tensor without data")):
            run = self.torch(script, name, "b.h5")
            self.assertEqual((run.returncode, len(run.stderr.splitlines())), (2, 1), run.stderr)
            self.assertRegex(run.stderr, words)
            self.assertTrue(run.stderr.rstrip("\n").isprintable(), ascii(run.stderr))
        self.write("call.py", f"import sys, torch\nsys.path.insert(0, {ANALYSIS!r})\nimport petrapipe\nstate = torch.load('model.pt')\n"
                   "petrapipe.of_state_dict({'_orig_mod.' + name: value for name, value in state.items()})\n"
                   "try:\n    petrapipe.of_state_dict({'a': torch.ones(2)})\nexcept petrapipe.Error as error:\n    print(error)\n"
                   "try:\n    petrapipe.of_state_dict(petrapipe.build(petrapipe.networks.Transformer('gpt', 1, 4, 2, 5, 8)).state_dict())\n"
                   "except petrapipe.Error as error:\n    print(error)\n")
        done = self.torch("call.py")
        for words in "state_dict: no tensor conv1.weight", "state_dict: a state_dict does not contain the number of heads":
            self.assertIn(words, done.stdout, done.stderr)
        self.assertEqual(self.torch(script, "nested.pt", "b.h5", "--key", "model").stderr, "")
        self.equal(self.tensors("b.h5"), self.tensors("a.h5"))
        self.assertEqual(self.torch(script, "half.pt", "b.h5").stderr, "")
        for name, value in self.tensors("b.h5").items():
            numpy.testing.assert_allclose(value, self.tensors("a.h5")[name], rtol=2**-8)


main()
