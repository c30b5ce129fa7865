# SPDX-License-Identifier: Apache-2.0
"""scripts/get_data: CIFAR from a copy of its archive that is made here; what is there, what is
damaged, what cannot be fetched."""

import hashlib
import io
import os
import signal
import subprocess
import tarfile
import time

from program import CIFAR10_FILES, ProgramTest, cifar_records, main

SCRIPT = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "scripts/get_data"))
FOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}


class GetData(ProgramTest):
    def archive(self, folder, files):
        """(path, MD5) of an archive as the page has it."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))
        return self.write("copy.tar.gz", packed.getvalue()), hashlib.md5(
            packed.getvalue()
        ).hexdigest()

    def cifar10(self):
        return self.archive(
            FOLDERS["cifar10"], {name: cifar_records(8, i) for i, name in enumerate(CIFAR10_FILES)}
        )

    def fetch(self, *arguments, md5="", path=None):
        environment = {**os.environ, "PETRA_TEST_MD5": md5, **({"PATH": path} if path else {})}
        return subprocess.Popen(
            [SCRIPT, *arguments],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, *arguments, **options):
        process = self.fetch(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def refused(self, words, *arguments, code=1, **options):
        status, _, err = self.get(*arguments, **options)
        self.assertEqual(status, code, err)
        for word in words:
            self.assertIn(word, err)

    def nothing_left(self, folder):
        self.assertEqual(os.listdir(self.path(folder)), [])

    def test_train_from_a_copy(self):
        copy, md5 = self.cifar10()
        status, out, err = self.get("cifar10", "--url", f"file://{copy}", md5=md5)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("path: data/cifar-10-batches-bin", out)
        self.assertEqual(os.listdir(self.path("data")), ["cifar-10-batches-bin"])
        self.assertEqual(self.read("data/cifar-10-batches-bin/test_batch.bin"), cifar_records(8, 5))
        # The default of data.path is what the script made.
        self.good("data", "verify", self.write("c.yaml", "data: {set: cifar10, batch: 8}\n"))
        os.remove(copy)
        status, out, _ = self.get("cifar10", md5=md5)  # there already: nothing is fetched
        self.assertEqual(status, 0)
        self.assertIn("left as it is", out)
        os.remove(self.path("data/cifar-10-batches-bin/test_batch.bin"))
        self.refused(["lacks test_batch.bin"], "cifar10", md5=md5)

    def test_hundred_classes_into_a_folder(self):
        copy, md5 = self.archive(FOLDERS["cifar100"], {"train.bin": b"1", "test.bin": b"2"})
        self.assertEqual(self.get("cifar100", "my sets/here", f"--url={copy}", md5=md5)[0], 0)
        self.assertEqual(self.read("my sets/here/cifar-100-binary/test.bin"), b"2")

    def test_what_is_wrong_leaves_nothing(self):
        copy, md5 = self.cifar10()
        self.refused(
            ["the MD5 is", "expected c32a1d4ab5d03f1284b67883e8d87530"],
            "cifar10",
            "data",
            "--url",
            copy,
        )
        self.nothing_left("data")
        self.refused(
            ["expected 03b5dce01913d631647c71ecec9e9cb8"], "cifar100", "data", "--url", copy
        )
        with open(copy, "r+b") as file:
            file.truncate(os.path.getsize(copy) // 2)
        self.refused(["damaged copy"], "cifar10", "data", "--url", copy, md5=md5)
        self.refused(
            ["cannot be unpacked"],
            "cifar10",
            "data",
            "--url",
            copy,
            md5=hashlib.md5(self.read(copy)).hexdigest(),
        )
        short, md5 = self.archive(FOLDERS["cifar10"], {"data_batch_1.bin": b"1"})
        self.refused(
            ["the archive lacks cifar-10-batches-bin/data_batch_2.bin"],
            "cifar10",
            "data",
            "--url",
            short,
            md5=md5,
        )
        self.nothing_left("data")

    def test_offline(self):
        # A port where nobody listens; a machine with none of the programs.
        words = [
            "cannot be fetched",
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            "get_data cifar10 data --url /PATH/cifar-10-binary.tar.gz",
        ]
        self.refused(words, "cifar10", "--url", "http://127.0.0.1:1/cifar-10-binary.tar.gz")
        self.refused(words, "cifar10", "--url", "file:///nowhere/cifar-10-binary.tar.gz")
        os.mkdir(self.path("bin"))
        for name in ["sh", "mktemp", "mkdir", "rm", "cp"]:
            os.symlink(
                f"/bin/{name}" if os.path.exists(f"/bin/{name}") else f"/usr/bin/{name}",
                self.path(f"bin/{name}"),
            )
        self.refused(
            ["none of curl, wget and python3", *words],
            "cifar10",
            "--url",
            "http://127.0.0.1:1/x",
            path=self.path("bin"),
        )
        self.nothing_left("data")

    def test_interrupted(self):
        os.mkfifo(self.path("pipe"))  # an archive that does not come
        process = self.fetch("cifar10", "--url", self.path("pipe"))
        with open(self.path("pipe"), "wb"):  # opened by the script's copy: it is in the middle
            while not any(name.startswith(".get_data.") for name in os.listdir(self.path("data"))):
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143, err)
        self.nothing_left("data")

    def test_usage(self):
        self.assertEqual(self.get("--help")[0], 0)
        for words, *arguments in [
            ["no data set;"],
            ["no data set 'mnist'", "mnist"],
            ["superfluous argument 'b'", "cifar10", "a", "b"],
            ["--url needs", "cifar10", "--url"],
            ["unknown option '-x'", "cifar10", "-x"],
            ["is empty", ""],
        ]:
            self.refused([words], *arguments, code=2)


if __name__ == "__main__":
    main()
