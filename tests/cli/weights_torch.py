# SPDX-License-Identifier: Apache-2.0
"""analysis/weights_pytorch.py and model.new_head: weights to a state_dict and back, what is
refused, fine-tuning with another head; the logits of petra and of PyTorch, with the Python of
PETRA_TEST_TORCH_PYTHON, which has torch, numpy and h5py."""

import os
import subprocess
import sys

import h5py
import numpy

from program import main
from weights_case import ANALYSIS, FILES, OPTIONS, TOKENS, TORCH, Weights, of_network, of_tokens

import petrapipe  # by the path of weights_case
from petrapipe import modules, weights, weights_release

NETWORKS = [
    ("revnet", 18, "cifar", "conv"),
    ("revnet", 34, "imagenet", "conv"),
    ("revnet", 50, "cifar", "conv"),
    ("revnet", 18, "cifar", "invertible"),
    ("resnet", 18, "cifar", "conv"),
    ("resnet", 34, "cifar", "conv"),
    ("resnet", 50, "imagenet", "conv"),
    ("revnet", 50, "cifar", "conv", "pyramid", "variant"),
    ("revnet", 101, "imagenet", "conv"),
    ("revnet", 3, "cifar", "conv", "constant"),
    ("revnet", 8, "imagenet", "conv", "constant"),
]
MORE = [
    ("revnet", 50, "imagenet", "conv"),
    ("revnet", 34, "imagenet", "invertible"),
    ("resnet", 18, "imagenet", "conv"),
]
LOGITS = os.path.join(os.path.dirname(ANALYSIS), "tests/reference/torch_logits.py")


class Conversion(Weights):
    def test_there_and_back(self):
        for network in NETWORKS:
            before = self.initial("a.h5", *of_network(*network))
            for file in FILES:
                self.convert("a.h5", file)
                text = self.convert(file, "b.h5")
                self.equal(self.tensors("b.h5"), before)
            # petra takes it with the settings that are printed, and finds the same.
            settings = text.splitlines()[1].split(": ")[1].split()
            self.equal(self.initial("c.h5", *settings, "--set", "model.weights=b.h5"), before)
            self.assertIn(f"model.depth={network[1]}", settings)

    def test_double(self):
        before = self.initial(
            "a.h5", *self.set_options(device__backend="ref", device__precision="fp64")
        )
        self.assertEqual({value.dtype.itemsize for value in before.values()}, {8})
        for file in FILES:
            self.convert("a.h5", file)
            self.convert(file, "b.h5")
            self.equal(self.tensors("b.h5"), before)

    def test_names_are_torchvisions(self):
        # resnet18 and resnet50 of torchvision have 62 and 161 parameters, and a mean and a variance
        # for each of 20 and 53 batch norms.
        for depth, count, names in (
            (18, 62 + 2 * 20, ("layer4.1.conv2.weight",)),
            (50, 161 + 2 * 53, ("layer1.0.downsample.1.running_var",)),
        ):
            self.initial("a.h5", *of_network("resnet", depth, "imagenet", "conv", width=1))
            self.convert("a.h5", "model.npz")
            state = self.state()
            self.assertEqual(len(state), count)
            for name in (
                "conv1.weight",
                "bn1.bias",
                "layer2.0.downsample.0.weight",
                "layer3.1.bn2.running_mean",
                "fc.bias",
                *names,
            ):
                self.assertIn(name, state)

    def test_old_files_name_their_network(self):
        """The label of a network of an older petra is the same as before; those of the newer
        networks differ, and petra compares them."""
        for network, label in (
            (("revnet", 18, "cifar", "conv"), "revnet-18 width 2, cifar stem, 10 classes"),
            (
                ("revnet", 50, "cifar", "conv", "pyramid", "variant"),
                "revnet-50 width 2, cifar stem, variant bottleneck, 10 classes",
            ),
            (
                ("revnet", 3, "cifar", "conv", "constant"),
                "revnet-3 width 2, cifar stem, constant shape, 10 classes",
            ),
        ):
            self.initial("a.h5", *of_network(*network))
            self.convert("a.h5", "model.npz")
            self.convert("model.npz", "b.h5")
            for name in "a.h5", "b.h5":
                with h5py.File(self.path(name), "r") as file:
                    self.assertEqual(file.attrs["model"], label)
        self.bad(
            2,
            [
                "a.h5: weights of revnet-3 width 2, cifar stem, constant shape",
                "expected those of revnet-18",
            ],
            "init",
            "small.yaml",
            "--set",
            "model.width=2",
            "--set",
            "model.weights=a.h5",
            "--output",
            "out",
        )

    def test_script(self):
        self.initial("a.h5")
        run = subprocess.run(
            [sys.executable, os.path.join(ANALYSIS, "weights_pytorch.py"), "a.h5", "b.npz"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(
            run.stdout, "b.npz: revnet-18 width 1, cifar stem, 10 classes; 102 tensors\n"
        )

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
        numpy.testing.assert_array_equal(
            after["01/bn/running_mean"], before["01/bn/running_mean"] - bias
        )
        numpy.testing.assert_array_equal(
            after["02/bn1/running_mean"], before["02/bn1/running_mean"] - bias[:1]
        )
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
        self.refused(
            ["names.txt:1: ", "has no stem.d"], "model.npz", "b.h5", "--names", "names.txt"
        )
        self.write("names.txt", "stem.c\n")
        self.refused(
            "names.txt:1: 1 words; expected two names", "model.npz", "b.h5", "--names", "names.txt"
        )

    def test_refused(self):
        self.initial("a.h5")
        self.convert("a.h5", "model.npz")

        def changed(words, **values):
            state = self.state()
            state.update({name.replace("__", "."): value for name, value in values.items()})
            numpy.savez(
                self.path("bad.npz"),
                **{name: value for name, value in state.items() if value is not None},
            )
            self.refused(["bad.npz: ", words], "bad.npz", "b.h5")

        one = numpy.ones(1, "f4")
        changed("no tensor layer2.0.bn1.bias", layer2__0__bn1__bias=None)
        changed("layer2.0.bn1.bias has shape (1,), expected (2,)", layer2__0__bn1__bias=one)
        changed(
            "layer1.0.bn1.bias has an element that is not a finite number",
            layer1__0__bn1__bias=one * numpy.nan,
        )
        changed(
            "bn1.running_var has a variance below 0", bn1__running_var=numpy.array([1, -1], "f4")
        )
        changed("layer1.0.se.weight is not a tensor of this network", layer1__0__se__weight=one)
        changed(
            "3, 2, 2, 2 blocks by group; expected 2, 2, 2, 2 (depth 18)",
            layer1__2__conv1__weight=one,
        )
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
        """What wrappers of a module add to names: torch.compile, DataParallel, FSDP, an average of
        weights."""
        before = self.initial("a.h5")
        self.convert("a.h5", "model.npz")
        state = self.state()
        inner = {
            name.replace("layer1.0.", "layer1.0._orig_mod."): value for name, value in state.items()
        }
        for number, (prefix, of) in enumerate(
            (
                ("_orig_mod.", state),
                ("module._orig_mod.", state),
                ("_orig_mod.module.", state),
                ("", inner),
                ("module.module._orig_mod._orig_mod.", inner),
                ("_fsdp_wrapped_module.", state),
            )
        ):
            numpy.savez(
                self.path("other.npz"), **{prefix + name: value for name, value in of.items()}
            )
            self.convert("other.npz", f"{number}.h5")
            self.equal(self.tensors(f"{number}.h5"), before)
        numpy.savez(
            self.path("other.npz"),
            n_averaged=3,
            **{"module." + name: value for name, value in state.items()},
        )
        self.convert("other.npz", "average.h5")
        self.equal(self.tensors("average.h5"), before)
        numpy.savez(self.path("other.npz"), **state, **{"_orig_mod.fc.bias": state["fc.bias"]})
        self.refused(
            "other.npz: fc.bias and _orig_mod.fc.bias are both fc.bias", "other.npz", "b.h5"
        )
        for kind in "complex64", "int8", "bool", "S4":
            numpy.savez(
                self.path("other.npz"), **{**state, "fc.bias": state["fc.bias"].astype(kind)}
            )
            self.refused("fc.bias is of type ", "other.npz", "b.h5")
        self.assertFalse(os.path.exists(self.path("b.h5")))

    def test_functions_raise(self):
        """What a notebook calls ends by an exception and not its process; nor is the process's
        SIGPIPE changed by an import."""
        gpt = {
            "transformer.wte.weight": (8, 4),
            "transformer.wpe.weight": (5, 4),
            "transformer.h.0.ln_1.weight": (4,),
        }
        with self.assertRaisesRegex(
            petrapipe.Error, "number of heads; expected --heads N .of a function: heads=N."
        ):
            weights.network_of_state("x", gpt)
        for call in (
            (weights.network_of_state, "x", {}),
            (weights.network_of_petra, "x", "", {}),
            (weights.read_state, "no.npz", None),
            (weights.read_petra, self.path("no.h5")),
            (modules.modules, "no_such_module"),
            (weights.renamed, "no", {}),
        ):
            with self.assertRaises(petrapipe.Error, msg=str(call)):
                call[0](*call[1:])
        before = (
            "import signal, sys; sys.path.insert(0, sys.argv[1]); import entry, petrapipe.weights;"
            " print(signal.getsignal(signal.SIGPIPE).name)"
        )
        self.assertEqual(
            subprocess.run(
                [sys.executable, "-B", "-c", before, ANALYSIS],
                capture_output=True,
                text=True,
                check=True,
            ).stdout,
            "SIG_IGN\n",
        )


# The layers of the release of PETRA's authors (github.com/stephane-rivaud/PETRA,
# async_torch/models/models_RevNet.py), by name and shape, with the channels of one stream: a
# convolution has a bias, and every layer names its shortcuts.
def release_conv(suffix, outputs, inputs, kernel):
    return {
        f"weight_conv{suffix}": (outputs, inputs, kernel, kernel),
        f"bias_conv{suffix}": (outputs,),
        f"weight_bn{suffix}": (outputs,),
        f"bias_bn{suffix}": (outputs,),
    }


def release_layer(convs, shortcuts):
    parameters = {}
    for suffix, sizes in [*convs.items(), *shortcuts.items()]:
        parameters |= (
            release_conv(suffix, *sizes)
            if sizes
            else {name: (0,) for name in release_conv(suffix, 1, 1, 1)}
        )
    return parameters


def release_basic(inputs, outputs, downsample):
    return release_layer(
        {"_1": (outputs, inputs, 3), "_2": (outputs, outputs, 3)},
        {"_ds": (outputs, inputs, 1) if downsample else None},
    )


def release_bottleneck(inputs, hidden, outputs, downsample, variant):
    shortcut = (outputs, inputs, 1) if downsample else None
    return release_layer(
        {
            "_1": (hidden, outputs if variant else inputs, 1),
            "_2": (hidden, hidden, 3),
            "_3": (outputs, hidden, 1),
        },
        {"_ds": shortcut, "_tilde_ds": shortcut},
    )


def release_network(depth, variant, blocks, classes, kernel):
    """[parameters of each layer] of make_layers_revnetDEPTH, or of make_layers_revnet_fixed_size
    with so many blocks of 128 channels a stream."""
    if blocks:
        inner, first, inputs = [release_basic(128, 128, False)] * blocks, 128, 128
    else:
        groups, inner, first, inputs = (
            {18: (2, 2, 2, 2), 101: (3, 4, 23, 3)}.get(depth, (3, 4, 6, 3)),
            [],
            64,
            64,
        )
        for group, count in enumerate(groups):
            for _ in range(count):
                hidden = 64 << group
                outputs = hidden if depth < 50 else 4 * hidden
                inner.append(
                    release_basic(inputs, outputs, inputs != outputs)
                    if depth < 50
                    else release_bottleneck(inputs, hidden, outputs, inputs != outputs, variant)
                )
                inputs = outputs
    return [
        release_conv("", 2 * first, 3, kernel),
        *inner,
        {"weight": (classes, 2 * inputs), "bias": (classes,)},
    ]


def release_statistics(layer):
    """{name: shape}; a basic block calls its first running mean running_mean, its variance
    running_var_1."""
    found = {
        f"running_{kind}{name.removeprefix('weight_bn')}": shape
        for kind in ("mean", "var")
        for name, shape in layer.items()
        if "weight_bn" in name
    }
    if "weight_bn_2" in layer and "weight_bn_3" not in layer:
        found["running_mean"] = found.pop("running_mean_1")
    return found


RELEASE = [
    ("revnet18", 18, False, 0),
    ("revnet34", 34, False, 0),
    ("revnet50", 50, False, 0),
    ("revnet50_variant", 50, True, 0),
    ("revnet101", 101, False, 0),
    ("revnet101_variant", 101, True, 0),
    ("fixed_size", 0, False, 20),
]


class Release(Weights):
    def options(self, depth, variant, blocks, classes, stem):
        return of_network(
            "revnet",
            depth or blocks,
            stem,
            "conv",
            "constant" if blocks else "pyramid",
            "variant" if variant else "standard",
            128 if blocks else 64,
        ) + ["--set", f"model.classes={classes}"]

    def test_parameter_counts(self):
        """petra's parameters and the biases of the release's convolutions are the parameters of the
        release."""
        for name, depth, variant, blocks in RELEASE:
            for stem, classes, kernel in (("cifar", 10, 3), ("imagenet", 1000, 7)):
                layers = release_network(depth, variant, blocks, classes, kernel)
                sizes = [
                    (key, int(numpy.prod(shape)))
                    for layer in layers
                    for key, shape in layer.items()
                ]
                total, biases = (
                    sum(size for _, size in sizes),
                    sum(size for key, size in sizes if key.startswith("bias_conv")),
                )
                found = self.good_json(
                    "inspect", "small.yaml", *self.options(depth, variant, blocks, classes, stem)
                )["parameters"]
                print(
                    f"{name}, {stem}, {classes} classes: {total} parameters in the release,"
                    f" {biases} of them biases of convolutions, {found} in petra"
                )
                self.assertEqual(found + biases, total, name)

    def test_names(self):
        """A state_list becomes a state_dict with all names of the network and the biases."""
        for name, depth, variant, blocks in RELEASE:
            layers = release_network(depth, variant, blocks, 10, 3)
            state = [
                (
                    {key: numpy.empty(shape, "V0") for key, shape in layer.items()},
                    {},
                    {
                        key: numpy.empty(shape, "V0")
                        for key, shape in release_statistics(layer).items()
                    },
                    {},
                    [],
                )
                for layer in layers
            ]
            self.assertTrue(weights_release.is_state_list(state))
            shapes = {key: value.shape for key, value in weights_release.state_of(state).items()}
            network = weights.network_of_state(name, shapes)
            self.assertEqual(
                (network.family, network.depth, network.bottleneck, network.shape),
                (
                    "revnet",
                    depth or blocks,
                    "variant" if variant else "standard",
                    "constant" if blocks else "pyramid",
                ),
            )
            wanted = {key: shape for _, key, shape in weights.tensors(network)}
            biases = {
                key.removesuffix("weight") + "bias": shape[:1]
                for key, shape in wanted.items()
                if len(shape) == 4
            }
            self.assertEqual(shapes, wanted | biases, name)

    def test_checkpoint(self):
        """A file as the release writes it, and the logits of the same network with its biases, for
        constant shape."""
        if not TORCH:
            self.skipTest(
                "PETRA_TEST_TORCH_PYTHON is not set: no Python with torch, numpy and h5py"
            )
        self.write(
            "make.py",
            """
import torch
from torch.nn import functional as F
torch.manual_seed(1)

def statistics(n, mean, variance):
    return {mean: torch.randn(n), variance: torch.rand(n) + 0.5}

def conv(o, i, suffix):
    return {
        f"weight_conv{suffix}": torch.randn(o, i, 3, 3) / 4,
        f"bias_conv{suffix}": torch.randn(o),
        f"weight_bn{suffix}": torch.rand(o) + 0.5,
        f"bias_bn{suffix}": torch.randn(o),
    }

def block():
    kinds = ("weight_conv", "bias_conv", "weight_bn", "bias_bn")
    empty = {f"{kind}_ds": torch.empty(0) for kind in kinds}
    parameters = conv(2, 2, "_1") | empty | conv(2, 2, "_2")
    buffers = (
        statistics(2, "running_mean", "running_var_1")
        | {"running_mean_ds": torch.empty(0), "running_var_ds": torch.empty(0)}
        | statistics(2, "running_mean_2", "running_var_2")
    )
    return (parameters, {}, buffers, {}, [])

stem = (conv(4, 3, ""), {}, statistics(4, "running_mean", "running_var"), {}, [])
head = ({"weight": torch.randn(10, 4), "bias": torch.randn(10)}, {}, {}, {}, [])
layers = [stem, block(), block(), head]
release = {"epoch": 3, "state_list": layers, "best_acc": torch.tensor(0.5), "run_id": None}
torch.save(release, "release.pth")

def unit(x, layer, suffix, mean, variance):
    p, s = layer[0], layer[2]
    y = F.conv2d(x, p[f"weight_conv{suffix}"], p[f"bias_conv{suffix}"], 1, 1)
    scale, shift = p[f"weight_bn{suffix}"], p[f"bias_bn{suffix}"]
    return F.relu(F.batch_norm(y, s[mean], s[variance], scale, shift))

images = torch.randn(2, 3, 8, 8)
a, b = unit(images, layers[0], "", "running_mean", "running_var").chunk(2, 1)
for layer in layers[1:-1]:
    first = unit(a, layer, "_1", "running_mean", "running_var_1")
    a, b = b + unit(first, layer, "_2", "running_mean_2", "running_var_2"), a
logits = F.linear(torch.cat([a, b], 1).mean((2, 3)), layers[-1][0]["weight"], layers[-1][0]["bias"])
torch.save([images, logits], "logits.pth")
""",
        )
        self.write(
            "compare.py",
            """
import sys
import torch
sys.path.insert(0, sys.argv[1])
import petrapipe
images, logits = torch.load("logits.pth")
model = petrapipe.of_state_dict(torch.load("a.pt")).eval().requires_grad_(False)
print(float((model(images) - logits).abs().max() / logits.abs().max()))
""",
        )
        self.assertEqual(self.torch_run("make.py").stderr, "")
        run = self.torch_run(
            os.path.join(ANALYSIS, "weights_pytorch.py"),
            "release.pth",
            "a.h5",
            "--key",
            "state_list",
        )
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertEqual(
            run.stdout,
            "a.h5: 27 tensors; 5 biases of convolutions are now in the running means\n"
            "its network: --set model.family=revnet --set model.depth=2 --set model.width=2 --set"
            " model.stem=cifar --set model.classes=10 --set model.shape=constant\n",
        )
        self.assertEqual(
            self.torch_run(os.path.join(ANALYSIS, "weights_pytorch.py"), "a.h5", "a.pt").stderr, ""
        )
        run = self.torch_run("compare.py", ANALYSIS)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertLess(float(run.stdout), 1e-5)  # single precision
        settings = [
            "--set",
            "model.shape=constant",
            "--set",
            "model.depth=2",
            "--set",
            "model.width=2",
            "--set",
            "model.weights=a.h5",
        ]
        self.assertEqual(len(self.initial("b.h5", *settings)), 27)

    def torch_run(self, *arguments):
        return subprocess.run(
            [TORCH, "-B", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )


class FineTuning(Weights):
    def test_new_head(self):
        twelve = self.initial("twelve.h5", "--set", "model.classes=12", "--set", "run.seed=9")
        start = ["--set", "model.weights=twelve.h5"]
        self.bad(
            2,
            [
                "twelve.h5: weights of revnet-18 width 1, cifar stem, 12 classes",
                "expected those of ",
                "10 classes",
            ],
            "train",
            "small.yaml",
            *start,
            "--output",
            "out",
        )
        found = self.initial("new.h5", *start, "--set", "model.new_head=true")
        random = self.initial("random.h5")
        for name, value in found.items():
            numpy.testing.assert_array_equal(
                value, (random if name.startswith("10/") else twelve)[name], name
            )
        self.good(
            "train",
            "small.yaml",
            *start,
            "--set",
            "model.new_head=true",
            "--output",
            "tuned",
            "--quiet",
        )
        self.good(
            "train", "small.yaml", "--set", "model.weights=new.h5", "--output", "same", "--quiet"
        )
        self.equal(self.tensors("tuned/weights.h5"), self.tensors("same/weights.h5"))
        for command in "train", "inspect":
            self.bad(
                2,
                ["model.new_head", "there is no model.weights"],
                command,
                "small.yaml",
                "--set",
                "model.new_head=true",
            )
        self.bad(
            2,
            ["model.new_head", "random weights", "expected false"],
            "evaluate",
            "small.yaml",
            *start,
            "--set",
            "model.new_head=true",
        )


class Logits(Weights):
    def setUp(self):
        super().setUp()
        if not TORCH:
            self.skipTest(
                "PETRA_TEST_TORCH_PYTHON is not set: no Python with torch, numpy and h5py"
            )

    def torch(self, *arguments):
        return subprocess.run(
            [TORCH, "-B", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )

    def dumped(self, weights, *options):
        dump = os.path.abspath("tests/dump_logits")
        out = subprocess.run(
            [dump, "small.yaml", *options, "--set", f"model.weights={weights}"],
            cwd=self.folder,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        self.write("dump", out)
        values = numpy.frombuffer(out)
        count, classes = int(values[0] * values[4]), int(values[5])
        return values[-count * classes :].reshape(count, classes), values[
            -count * (classes + 1) : -count * classes
        ].astype(int)

    def scatter(self, name, factor):
        """Statistics, scales, shifts and biases as after a training, and weights times `factor`, so
        that each has its part in the result."""
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
        """petra's and PyTorch's of random weights, and of the program whose names they are, where
        torch_logits.py has it."""
        # Of the largest logit; rounding is 1e-16 and 6e-8 of it in each of up to 50 layers.
        backend, bound = {"fp64": ("ref", 1e-12), "fp32": ("cpu", 1e-5)}[precision]
        options = options + self.set_options(
            device__backend=backend,
            device__precision=precision,
            data__batch=4,
            method__name="backprop",
        )
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
        found = self.good_json(
            "evaluate",
            "small.yaml",
            *options,
            "--set",
            "model.weights=a.h5",
            "--set",
            "data.eval_limit=4",
        )
        self.assertLess(abs(found["loss"] - loss), 1e-5 * abs(logits).max())

    def comes_back(self, *options):
        run = self.torch(os.path.join(ANALYSIS, "weights_pytorch.py"), "model.pt", "b.h5", *options)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.equal(self.tensors("b.h5"), self.tensors("a.h5"))

    def test_equal_logits(self):
        for network in NETWORKS + MORE:
            for precision in "fp64", "fp32":
                # Of torchvision's width, where torch_logits.py compares with it.
                width = (
                    64
                    if precision == "fp32" and network[0] == "resnet" and network[2] == "imagenet"
                    else 4
                )
                self.same_logits(network, of_network(*network, width=width), precision)
        self.comes_back()

    def test_equal_logits_of_tokens(self):
        for family, coupling, _ in TOKENS:
            for precision in "fp64", "fp32":
                self.same_logits(
                    (family, coupling),
                    of_tokens(family, coupling),
                    precision,
                    ("2", "100")[: 1 + ("llama" in family)],
                )
            self.comes_back(*OPTIONS["llama" in family])

    def test_files_of_others(self):
        self.initial("a.h5")
        self.write(
            "make.py",
            "import torch\n"
            "state = torch.load('model.pt')\n"
            "torch.save({'epoch': 3, 'model': state}, 'nested.pt')\n"
            "torch.save([1], 'list.pt')\n"
            "torch.save({n: v.bfloat16() for n, v in state.items()}, 'half.pt')\n"
            "import argparse\n"
            "torch.save({'model': state, 'args': argparse.Namespace(lr=1)}, 'args.pt')\n"
            "for name, of in (('sparse', torch.Tensor.to_sparse), ('complex', lambda w:"
            " w.to(torch.complex64)), ('int8', torch.Tensor.char),\n"
            "                 ('quantised', lambda w: torch.quantize_per_tensor(w, 0.1, 0,"
            " torch.qint8)), ('meta', lambda w: w.to('meta'))):\n"
            "    torch.save({**state, 'fc.weight': of(state['fc.weight'])}, name + '.pt')\n"
            "open('junk.pt', 'wb').write(b'\\x1b[31mjunk')\n"
            "open('empty.pt', 'w')\n",
        )
        script = os.path.join(ANALYSIS, "weights_pytorch.py")
        self.torch(script, "a.h5", "model.pt")
        self.assertEqual(self.torch("-W", "ignore", "make.py").stderr, "")
        for name, words in (
            ("nested.pt", "no state_dict; one may be under --key model"),
            ("list.pt", "no state_dict"),
            ("nothing.pt", "nothing.pt: cannot be read: No such file"),
            ("empty.pt", "it ends too soon"),
            ("junk.pt", "Unsupported operand 27"),
            ("args.pt", "it holds argparse.Namespace beside tensors"),
            ("sparse.pt", "fc.weight is a tensor of layout torch.sparse_coo"),
            ("complex.pt", "fc.weight is a tensor of torch.complex64"),
            ("int8.pt", "fc.weight is of type int8"),
            (
                "quantised.pt",
                "fc.weight is a quantised tensor|it holds torch._utils._rebuild_qtensor",
            ),
            ("meta.pt", "fc.weight is a tensor without data"),
        ):
            run = self.torch(script, name, "b.h5")
            self.assertEqual((run.returncode, len(run.stderr.splitlines())), (2, 1), run.stderr)
            self.assertRegex(run.stderr, words)
            self.assertTrue(run.stderr.rstrip("\n").isprintable(), ascii(run.stderr))
        self.write(
            "call.py",
            "import sys, torch\n"
            f"sys.path.insert(0, {ANALYSIS!r})\n"
            "import petrapipe\n"
            "state = torch.load('model.pt')\n"
            "petrapipe.of_state_dict({'_orig_mod.' + name: value for name, value in"
            " state.items()})\n"
            "try:\n"
            "    petrapipe.of_state_dict({'a': torch.ones(2)})\n"
            "except petrapipe.Error as error:\n"
            "    print(error)\n"
            "try:\n"
            "    petrapipe.of_state_dict(petrapipe.build(petrapipe.networks.Transformer('gpt', 1,"
            " 4, 2, 5, 8)).state_dict())\n"
            "except petrapipe.Error as error:\n"
            "    print(error)\n",
        )
        done = self.torch("call.py")
        for words in (
            "state_dict: no tensor conv1.weight",
            "state_dict: a state_dict does not contain the number of heads",
        ):
            self.assertIn(words, done.stdout, done.stderr)
        self.assertEqual(self.torch(script, "nested.pt", "b.h5", "--key", "model").stderr, "")
        self.equal(self.tensors("b.h5"), self.tensors("a.h5"))
        self.assertEqual(self.torch(script, "half.pt", "b.h5").stderr, "")
        for name, value in self.tensors("b.h5").items():
            numpy.testing.assert_allclose(value, self.tensors("a.h5")[name], rtol=2**-8)


main()
