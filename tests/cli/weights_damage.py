# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files of weights: each is converted to the bits that its library reads, or
refused with one line. No file ends the process, takes long, or runs code.

PETRA_TEST_DAMAGE: how many damaged files of each kind. The files of PyTorch need torch in the
Python of the tests, or of PETRA_TEST_TORCH_PYTHON."""

import importlib.util
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import tarfile
import threading
import unittest
import zipfile

import h5py
import numpy

from program import main
from weights_case import ANALYSIS, HAS_SAFETENSORS, NO_SAFETENSORS, TORCH, Weights, of_tokens

COUNT = int(os.environ.get("PETRA_TEST_DAMAGE", "6"))
HANG_S, MOST_BYTES = 120, 3 << 30
PYTHON = sys.executable if importlib.util.find_spec("torch") else TORCH

# Converts the files of its arguments, one after the other: arguments in, status and standard error
# out.
WORKER = """
import contextlib, io, json, os, resource, sys, traceback
sys.path.insert(0, sys.argv[1])
sys.argv = ["weights_pytorch.py"]
import entry
from petrapipe import modules, weights, weights_files
loaded = ("h5py", "numpy", "xxhash", *os.environ["LOADED"].split())
found = [modules.modules(name) for name in loaded]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_DATA, (%d, %d))
ran = []
forbidden = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "ctypes.dlopen"}
def watch(event, values):
    started = event == "subprocess.Popen" and weights_files.TRY not in values[1]
    if event in forbidden or started:
        ran.append(event)
sys.addaudithook(watch)
for line in sys.stdin:
    sys.argv[1:] = json.loads(line)
    out, error, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            entry.end(weights.main)
        except SystemExit as end:
            status = end.code
        except BaseException:
            traceback.print_exc()
            status = "traceback"
    print(json.dumps([status, out.getvalue(), error.getvalue(), ran]), flush=True)
    ran.clear()
""" % (MOST_BYTES, MOST_BYTES)

NUMBERS = [
    True,
    False,
    None,
    0,
    -1,
    -256,
    1,
    3,
    2**31,
    2**63,
    2**64,
    10**30,
    1.5,
    -0.0,
    1e400,
    float("nan"),
    "8",
    "",
    [],
    [4],
    {},
    {"a": 1},
]
LABELS = [
    "",
    "gpt",
    "1.2.3",
    "gpt-999999999 width 8, 2 heads, context 5, 64 classes",
    "gpt-3 width 12, 0 heads, context 5, 64 classes",
    "gpt-3 width 12, 2 heads, context 5, 99999999999999999999 classes",
    "gpt-" + "9" * 5000 + " width 12, 2 heads, context 5, 64 classes",
    (
        "llama-3 width 12, 2 heads (1 of keys and values), hidden 20, rotary base 1.2.3, context 5,"
        " 64 classes"
    ),
    (
        "llama-3 width 12, 2 heads (5 of keys and values), hidden 20, rotary base 100, context 5,"
        " 64 classes"
    ),
    (
        "llama-3 width 12, 2 heads (1 of keys and values), hidden 20, rotary base 9e999, context 5,"
        " 64 classes"
    ),
    (
        "llama-900 width 12, 2 heads (1 of keys and values), hidden 20, rotary base 100, context 5,"
        " 64 classes"
    ),
    "revgpt-3 width 12, 2 heads, context 5, 64 classes\n",
    "gpt-\u0663 width 12, 2 heads, context 5, 64 classes",
]


def change_bytes(stream, data, within):
    """Flips, replaces or swaps up to four bytes, or cuts; half of the places are within the first
    bytes."""
    data = bytearray(data)
    if stream.random() < 0.15:
        return bytes(data[: stream.randrange(len(data))])
    for _ in range(stream.randint(1, 4)):
        place = stream.randrange(min(within, len(data)) if stream.random() < 0.5 else len(data))
        kind = stream.random()
        data[place] = (
            data[place] ^ 1 << stream.randrange(8)
            if kind < 0.5
            else stream.choice([0, 1, 0x2D, 0x39, 0x7F, 0xFF])
            if kind < 0.8
            else data[-place - 1]
        )
    return bytes(data)


def change_json(stream, tree):
    """Changes a value at a random place of JSON, or its key."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = stream.choice(keys)
        if isinstance(tree[key], (dict, list)) and tree[key] and stream.random() < 0.7:
            tree = tree[key]
            continue
        if isinstance(tree, dict) and stream.random() < 0.1:
            tree[
                stream.choice(["", "a" * 5000, "../x", "model.layers.99999999999.x", "\ud800"])
            ] = tree.pop(key)
        else:
            tree[key] = stream.choice(NUMBERS)
        return


def safetensors_parts(data):
    (size,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def safetensors_of(header, data):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


def zip_of(data, change):
    """An archive whose members change(name, content) returns, with their checksums."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if (content := change(name, old.read(name))) is not None:
                new.writestr(name, content)
    return out.getvalue()


class Code:
    """A pickle of it runs a program that makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class Damage(Weights):
    def setUp(self):
        super().setUp()
        self.stream, self.worker, self.taken, self.tried = random.Random(53), None, 0, 0
        self.addCleanup(self.stop)

    def stop(self):
        if self.worker:
            self.worker.stdin.close()
            self.worker.wait()
            self.worker.stdout.close()
            self.worker = None

    def ask(
        self, about, *arguments, loaded=("safetensors",) * HAS_SAFETENSORS, python=sys.executable
    ):
        """(status, standard output, standard error) of a conversion; it must end by itself, soon,
        with at most one line of errors, and run nothing."""
        if not self.worker:
            self.worker = subprocess.Popen(
                [python, "-B", "-c", WORKER, ANALYSIS],
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "LOADED": " ".join(loaded)},
            )
        self.worker.stdin.write(json.dumps(arguments) + "\n")
        self.worker.stdin.flush()
        alarm = threading.Timer(HANG_S, self.worker.kill)
        alarm.start()
        line = self.worker.stdout.readline()
        alarm.cancel()
        self.tried += 1
        if not line:
            status = self.worker.wait()
            self.worker.stdin.close()
            self.worker.stdout.close()
            self.worker = None
            self.fail(f"{about}: {arguments} ended the process with {status}")
        status, out, error, ran = json.loads(line)
        self.assertEqual(ran, [], about)
        self.assertFalse(os.path.exists(self.path("ran")), about)
        self.assertIn(status, (0, 1, 2), f"{about}: {error}")
        self.assertEqual(len(error.splitlines()), status != 0, f"{about}: {error}")
        self.assertLess(len(error), 1000, about)
        self.assertEqual(
            [name for name in os.listdir(self.folder) if name.endswith(".tmp")], [], about
        )
        self.taken += status == 0
        return status, out, error

    def said(self, kind):
        print(f"{kind}: {self.tried} files, {self.taken} taken")
        self.tried = self.taken = 0

    def same(self, about, found, expected):
        """The bits of two sets of tensors, in single precision if they were narrower."""
        self.assertEqual(sorted(found), sorted(expected), about)
        for name, value in expected.items():
            value = numpy.asarray(value)
            value = value.astype("f8" if value.dtype.itemsize >= 8 else "f4")
            self.assertEqual(
                (found[name].shape, found[name].tobytes()),
                (value.shape, value.tobytes()),
                f"{about}: {name}",
            )

    def back(self, about, options=()):
        """The tensors of out.h5 by the names of a state_dict."""
        self.assertEqual(self.ask(about, "out.h5", "back.npz", *options)[0], 0)
        self.taken -= 1
        self.tried -= 1
        return self.state("back.npz")

    def llama(self, name):
        """A Llama by the names of Hugging Face in a file, its config.json and its tensors."""
        self.initial("l.h5", *of_tokens("llama"))
        self.convert("l.h5", "l.npz")
        if name != "l.npz":
            self.convert("l.h5", name)
        config = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 12,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "num_hidden_layers": 3,
            "intermediate_size": 20,
            "vocab_size": 64,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "attention_bias": False,
            "max_position_embeddings": 2048,
            "rope_theta": 100.0,
            "rope_scaling": None,
            "tie_word_embeddings": False,
            "head_dim": 6,
        }
        self.write("config.json", json.dumps(config))
        return self.read(name), config, self.state("l.npz")

    @unittest.skipUnless(HAS_SAFETENSORS, NO_SAFETENSORS)
    def test_safetensors(self):
        import safetensors.numpy

        whole, _, _ = self.llama("m.safetensors")
        header, data = safetensors_parts(whole)
        for number in range(COUNT):
            if number % 2:
                other = json.loads(json.dumps(header))
                change_json(self.stream, other)
                content = safetensors_of(other, data)
            else:
                content = change_bytes(self.stream, whole, len(whole) - len(data))
            self.write("d.safetensors", content)
            about = f"safetensors {number}"
            if self.ask(about, "d.safetensors", "out.h5")[0] == 0:
                self.same(about, self.back(about), safetensors.numpy.load(content))
        self.said("safetensors")
        # Headers that a parser of JSON alone would take.
        name, other = (
            "model.layers.1.self_attn.q_proj.weight",
            "model.layers.1.self_attn.o_proj.weight",
        )
        for words, key, value in (
            ("expected usize", "data_offsets", [-256, 0]),
            ("expected usize", "shape", [-1, 12]),
            ("offset", "data_offsets", header[other]["data_offsets"]),
            ("", "data_offsets", [0, 2**40]),
            ("", "dtype", "F8_E4M3"),
        ):
            wrong = json.loads(json.dumps(header))
            wrong[name][key] = value
            self.write("d.safetensors", safetensors_of(wrong, data))
            status, _, error = self.ask(f"{key} {value}", "d.safetensors", "out.h5")
            self.assertEqual((status, words in error), (2, True), error)
        for text in (
            b"[" * 100000,
            b"{}",
            b'{"a":' * 50000,
            b'{"a": ' + b"9" * 5000 + b"}",
            b"\xff\xfe",
            b"",
        ):
            self.write("d.safetensors", safetensors_of(text, data))
            self.assertEqual(self.ask(f"header {text[:9]}", "d.safetensors", "out.h5")[0], 2)

    @unittest.skipUnless(HAS_SAFETENSORS, NO_SAFETENSORS)
    def test_narrow_numbers(self):
        """F16 and BF16 become single precision: the same as PyTorch's, by their bits."""
        whole, _, state = self.llama("m.safetensors")
        for kind, code in (("F16", "<f2"), ("BF16", "<u2"), ("F64", "<f8")):
            header, data, expected = {}, b"", {}
            for name, value in state.items():
                part = (
                    (value.astype("<f4").view("<u4") >> 16).astype(code)
                    if kind == "BF16"
                    else value.astype(code)
                )
                header[name] = {
                    "dtype": kind,
                    "shape": value.shape,
                    "data_offsets": [len(data), len(data) + part.nbytes],
                }
                data += part.tobytes()
                expected[name] = (part.astype("<u4") << 16).view("<f4") if kind == "BF16" else part
            self.write("d.safetensors", safetensors_of(header, data))
            self.assertEqual(self.ask(kind, "d.safetensors", "out.h5")[0], 0)
            self.same(kind, self.back(kind), expected)

    def test_config_json(self):
        name = "m.safetensors" if HAS_SAFETENSORS else "l.npz"
        _, config, state = self.llama(name)
        for number in range(COUNT):
            changed = json.loads(json.dumps(config))
            for _ in range(self.stream.randint(1, 2)):
                change_json(self.stream, changed)
            text = json.dumps(changed)
            self.write(
                "config.json",
                change_bytes(self.stream, text.encode(), len(text)) if number % 2 else text,
            )
            about = f"config {number}: {self.read('config.json')[:2000]}"
            status, out, _ = self.ask(about, name, "out.h5")
            if status == 0:
                self.same(about, self.back(about), state)
                found = json.loads(self.read("config.json"))
                base = found.get("rope_theta")
                self.assertIn(f"rotary_base={10000.0 if base is None else base:.15g} ", out, about)
        self.said("config.json")
        for words, key, value in (
            ("rope_theta is True", "rope_theta", True),
            ("layer_types is True", "layer_types", True),
            ("rope_theta is 0", "rope_theta", 0),
            ("num_attention_heads is True", "num_attention_heads", True),
            ("num_attention_heads is 0", "num_attention_heads", 0),
            ("rope_theta is inf", "rope_theta", 1e400),
            ("rope_theta is nan", "rope_theta", float("nan")),
            ("rope_theta is 500000.0 and 100.0", "rope_parameters", {"rope_theta": 500000.0}),
            (
                "full_attention in its rope_parameters",
                "rope_parameters",
                {"full_attention": {"rope_theta": 5.0}},
            ),
            (
                "rope_parameters or rope_scaling is linear",
                "rope_parameters",
                {"rope_type": "linear"},
            ),
            ("vocab_size 64, and config.json beside the file says True", "vocab_size", True),
            ("tie_word_embeddings is 1; expected true or false", "tie_word_embeddings", 1),
            ("max_position_embeddings is many", "max_position_embeddings", "many"),
        ):
            self.write("config.json", json.dumps({**config, key: value}))
            status, _, error = self.ask(f"{key} {value}", name, "out.h5")
            self.assertEqual((status, words in error), (2, True), error)
        for text in (
            "[" * 100000,
            '{"a":' * 100000,
            '{"rope_theta": ' + "9" * 5000 + "}",
            '{"vocab_size": ' + "9" * 5000 + "}",
            "\ufeff{}",
            "",
            "null",
        ):
            self.write("config.json", text)
            self.assertEqual(self.ask(f"config.json {text[:9]}", name, "out.h5")[0], 2)

    def test_npz(self):
        self.initial("r.h5")
        before = self.tensors("r.h5")
        self.convert("r.h5", "r.npz")
        whole = self.read("r.npz")
        for number in range(COUNT):
            content = change_bytes(self.stream, whole, 512)
            if number % 2:  # headers and numbers with checksums that match
                names = zipfile.ZipFile(io.BytesIO(whole)).namelist()
                chosen = self.stream.choice(names)
                content = zip_of(
                    whole,
                    lambda name, data: (
                        change_bytes(self.stream, data, 128) if name == chosen else data
                    ),
                )
            self.write("d.npz", content)
            about = f"npz {number}"
            if self.ask(about, "d.npz", "out.h5")[0] == 0:
                if number % 2:
                    with numpy.load(io.BytesIO(content)) as file:
                        self.same(
                            about, self.back(about), {name: file[name] for name in file.files}
                        )
                else:
                    self.same(about, self.tensors("out.h5"), before)
        self.said("npz")

        def with_array(data):
            return zip_of(whole, lambda name, old: data if name == "fc.bias.npy" else old)

        def header_of(shape, dtype="<f4"):
            text = (
                f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
                + "\n"
            )
            return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(40)

        code = io.BytesIO()
        numpy.save(code, numpy.array([Code(self.path("ran"))], dtype=object), allow_pickle=True)
        for about, data in (
            ("code in a member", with_array(code.getvalue())),
            ("code", pickle.dumps(Code(self.path("ran")))),
            ("terabytes", with_array(header_of((10**12,)))),
            ("a negative shape", with_array(header_of((-10,)))),
            ("no array", with_array(b"hello")),
            ("one array", code.getvalue()),
            ("nothing", b""),
        ):
            self.write("d.npz", data)
            self.assertEqual(self.ask(about, "d.npz", "out.h5")[0], 2, about)
        bomb = io.BytesIO()
        with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("fc.bias.npy", header_of((2**22,)) + bytes(4 * 2**22 - 40))
        self.write(
            "d.npz",
            bomb.getvalue().replace(
                struct.pack("<I", 4 * 2**22 + 128), struct.pack("<I", 2**32 - 2)
            ),
        )
        self.assertEqual(self.ask("sizes that are not so", "d.npz", "out.h5")[0], 2)

    def test_weights_h5(self):
        for kind, options in (("revnet", ()), ("llama", of_tokens("llama"))):
            self.initial("w.h5", *options)
            whole = self.read("w.h5")
            for number in range(COUNT):
                content = change_bytes(self.stream, whole, 8192)
                self.write("d.h5", bytes(512) + content[512:] if number % 2 else content)
                about = f"weights.h5 {kind} {number}"
                if self.ask(about, "d.h5", "out.npz")[0] == 0:
                    self.assertTrue(number % 2 or content == whole, about)  # a sealed file is whole
                    self.assertEqual(
                        self.ask(
                            about, "out.npz", "out.h5", *(("--heads", "2") if options else ())
                        )[0],
                        0,
                        about,
                    )
                    self.same(about, self.tensors("out.h5"), self.tensors("d.h5"))
                    self.taken, self.tried = self.taken - 1, self.tried - 1
        self.said("weights.h5")
        self.initial("w.h5", *of_tokens("gpt"))
        self.unseal("w.h5")
        whole = self.read("w.h5")

        def with_data(name, *arguments, **options):
            with h5py.File(self.path("d.h5"), "r+") as file:
                del file["parameters"][name]
                file["parameters"].create_dataset(name, *arguments, **options)

        for label in LABELS:
            self.write("d.h5", whole)
            with h5py.File(self.path("d.h5"), "r+") as file:
                file.attrs["model"] = label
            status, _, error = self.ask(f"label {label[:80]}", "d.h5", "out.npz")
            self.assertEqual(status, 2, f"{label[:80]}: {error}")
        for about, arguments, options in (
            ("a data set of 4 TB without data", ((1 << 20, 1 << 20), "f4"), {}),
            (
                "a compressed one",
                ((1 << 20, 1 << 20), "f4"),
                {"compression": "gzip", "chunks": (1024, 1024)},
            ),
            (
                "numbers in another file",
                ((64, 12), "f4"),
                {"external": [(self.path("w.h5"), 0, 64 * 12 * 4)]},
            ),
            ("integers", ((64, 12), "i4"), {}),
            ("texts", ((64, 12), h5py.string_dtype()), {}),
        ):
            self.write("d.h5", whole)
            with_data("01/tokens/weight", *arguments, **options)
            status, _, error = self.ask(about, "d.h5", "out.npz")
            self.assertEqual(
                (status, "/parameters/01/tokens/weight" in error), (2, True), f"{about}: {error}"
            )
        self.write("d.h5", whole)
        with h5py.File(self.path("d.h5"), "r+") as file:
            del file["parameters"]
            file["parameters"] = h5py.ExternalLink(self.path("w.h5"), "/parameters")
        self.assertIn(
            "no group /parameters", self.ask("a link into another file", "d.h5", "out.npz")[2]
        )
        self.write("d.h5", whole)
        layout = h5py.VirtualLayout((64, 12), "f4")
        layout[:] = h5py.VirtualSource(self.path("w.h5"), "parameters/01/tokens/weight", (64, 12))
        with h5py.File(self.path("d.h5"), "r+") as file:
            del file["parameters/01/tokens/weight"]
            file["parameters"].create_virtual_dataset("01/tokens/weight", layout)
        self.assertIn(
            "has its numbers in another file", self.ask("a virtual data set", "d.h5", "out.npz")[2]
        )

    @unittest.skipUnless(PYTHON, "neither this Python nor PETRA_TEST_TORCH_PYTHON has torch")
    def test_pytorch(self):
        self.initial("r.h5")
        before = self.tensors("r.h5")
        asked = {"python": PYTHON, "loaded": ("torch",)}
        self.assertEqual(self.ask("to .pt", "r.h5", "r.pt", **asked)[0], 0)
        whole = self.read("r.pt")
        self.tried = self.taken = 0
        for number in range(COUNT):
            content = change_bytes(self.stream, whole, 512)
            if number % 2:  # the pickle, with a checksum that matches
                content = zip_of(
                    whole,
                    lambda name, data: (
                        change_bytes(self.stream, data, 512) if name.endswith("data.pkl") else data
                    ),
                )
            self.write("d.pt", content)
            about = f"pt {number}"
            if self.ask(about, "d.pt", "out.h5")[0] == 0:
                found = self.tensors("out.h5")
                self.assertEqual(sorted(found), sorted(before))
                if number % 2 == 0:
                    self.same(about, found, before)
        self.said("pt")

        def pickled(change):
            return zip_of(
                whole, lambda name, data: change(data) if name.endswith("data.pkl") else data
            )

        def tar():
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w") as file:
                for name, content in (
                    ("storages", pickle.dumps(0)),
                    ("tensors", pickle.dumps(0)),
                    ("pickle", pickle.dumps(Code(self.path("ran")))),
                ):
                    about = tarfile.TarInfo(name)
                    about.size = len(content)
                    file.addfile(about, io.BytesIO(content))
            return out.getvalue()

        # fc.bias has 10 numbers: its storage claims a gigabyte of the 40 bytes of its record, and
        # so does its shape.
        larger = pickled(lambda data: data.replace(b"K\x0a", b"J\x00\x00\x00\x10"))
        self.assertNotEqual(larger, whole)
        script = zip_of(whole, lambda name, data: data)
        with zipfile.ZipFile(io.BytesIO(script)) as file:
            top = file.namelist()[0].split("/")[0]
        more = io.BytesIO(script)
        with zipfile.ZipFile(more, "a") as file:
            file.writestr(f"{top}/constants.pkl", pickle.dumps(()))
        code = pickle.dumps(Code(self.path("ran")), protocol=2)
        for about, words, data in (
            ("a storage of more than its record", "expected 1073741824", larger),
            ("code", "", pickled(lambda _: code)),
            ("an old file with code", "", code),
            ("a tar file", "a tar file", tar()),
            ("TorchScript", "TorchScript", more.getvalue()),
            (
                "other checksums",
                "CRC",
                whole.replace(
                    before["10/fc/weight"].tobytes(), before["10/fc/weight"].tobytes()[::-1]
                ),
            ),
            (
                "a deep pickle",
                "",
                pickled(lambda _: b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b"."),
            ),
        ):
            self.write("d.pt", data)
            status, _, error = self.ask(about, "d.pt", "out.h5", **asked)
            self.assertEqual((status, words in error), (2, True), f"{about}: {error}")

    def test_full_disk(self):
        """A file that cannot be written ends with one line, and the earlier file is still there."""
        self.initial("r.h5")
        self.convert("r.h5", "r.npz")
        for source, target in (("r.h5", "o.npz"), ("r.npz", "o.h5")) + (
            ("r.h5", "o.safetensors"),
        ) * HAS_SAFETENSORS:
            self.write(target, "before")
            limited = (
                "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
                f"{WORKER}"
            )
            run = subprocess.run(
                [sys.executable, "-B", "-c", limited, ANALYSIS],
                cwd=self.folder,
                input=json.dumps([source, target]) + "\n",
                text=True,
                capture_output=True,
                env={**os.environ, "LOADED": ""},
                check=False,
            )
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            status, _, error, _ = json.loads(run.stdout)
            self.assertEqual(
                (status, error),
                (
                    1,
                    (
                        f"weights_pytorch.py: {target}: cannot be written: File too large; expected"
                        " a disk with room, and a folder that can be written\n"
                    ),
                ),
            )
            self.assertEqual(self.read(target), b"before")


main()
