# SPDX-License-Identifier: Apache-2.0
"""Reads run.h5 with h5py while a process writes it, kills that process, and reads the file again.

Usage: read_while_running.py TEST_RUN_H5, where TEST_RUN_H5 is the test program that can be the
writer.
"""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

os.environ.pop("HDF5_USE_FILE_LOCKING", None)  # a reader of the usual kind, which locks

SECONDS = 2.0
TRAIN = ["microbatch", "epoch", "lr", "loss", "top1", "wall_s", "virtual_s"]
EPOCH = [
    "epoch",
    "train_loss",
    "train_top1",
    "eval_loss",
    "eval_top1",
    "eval_top5",
    "lr",
    "wall_s",
    "images_per_s",
]


def read(path):
    """All columns, cut to the shortest of their group, without the rows that a flush has only
    announced."""
    with h5py.File(path, "r") as file:
        groups = {}
        for group, names in (("train", TRAIN), ("epoch", EPOCH)):
            columns = {name: file[group][name][:] for name in names}
            rows = min(len(column) for column in columns.values())
            groups[group] = {name: column[:rows] for name, column in columns.items()}
        return groups


def check_rows(train, torn_allowed):
    """The rows are those of the writer; in the middle of a flush, fill values may stand at the
    end."""
    index = numpy.arange(len(train["microbatch"]))
    expected = {
        "microbatch": index,
        "epoch": index // 100,
        "lr": 0.1 + index,
        "loss": 1 / (1 + index),
        "top1": index / 3,
        "wall_s": index / 7,
        "virtual_s": 2.0 * index,
    }
    torn = 0
    for name, column in train.items():
        good = column == expected[name]
        fill = numpy.isnan(column) if column.dtype.kind == "f" else column == -1
        assert numpy.all(good | fill), f"{name}: {column[~(good | fill)][:5]}"
        torn += int(numpy.count_nonzero(~good))
    assert torn_allowed or torn == 0, f"{torn} values are missing"
    return torn


def check_attributes(path):
    with h5py.File(path, "r") as file:
        assert file.attrs["schema_version"] == 1
        assert file.attrs["command"] == "petra train a.yaml"
        assert file.attrs["config"] == "run:\n  name: é\n"
        assert int(file.attrs["seed"]) == 2**64 - 1
        for name in ("petra_version", "git_commit", "created", "backend", "libraries"):
            assert isinstance(file.attrs[name], str) and file.attrs[name]
        sets = []
        file.visititems(
            lambda name, item: sets.append(item) if isinstance(item, h5py.Dataset) else None
        )
        assert len(sets) == len(TRAIN) + len(EPOCH) + 1
        for item in sets:
            assert "units" in item.attrs, item.name
            assert all(dimension.label for dimension in item.dims), item.name
        stages = file["model/stages"]
        assert stages["name"].tolist() == [b"stem", b"block of a longer name", b"head"]
        assert stages["forward_flops"].tolist() == [2**40, 22, 1]
        assert len(stages.attrs["units"]) == len(stages.dtype.names)


def read_repeatedly(path):
    """Reads for SECONDS; answers the numbers of reads, of reads that failed, and of torn values."""
    reads = failures = torn = seen = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            train = read(path)["train"]
        except OSError as error:  # in the middle of a flush; the next try must do
            failures += 1
            print(f"read {reads + failures}: {error}")
            train = read(path)["train"]
        reads += 1
        torn += check_rows(train, True)
        rows = len(train["microbatch"])
        assert rows >= seen, f"{rows} rows after {seen}"
        seen = rows
    assert seen > 100, f"only {seen} rows seen"
    return reads, failures, torn


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.h5")
        writer = subprocess.Popen([sys.argv[1], "writer", path, "60"])
        try:
            for _ in range(2000):
                if os.path.exists(path) or writer.poll() is not None:
                    break
                time.sleep(0.005)
            reads, failures, torn = read_repeatedly(path)
            assert writer.poll() is None, "the writer ended by itself"
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        groups = read(path)
        torn_after = check_rows(groups["train"], True)
        check_attributes(path)
        rows, epochs = len(groups["train"]["microbatch"]), len(groups["epoch"]["epoch"])
        assert rows > 100 and epochs >= 1
        assert all(math.isnan(value) for value in groups["epoch"]["eval_loss"][1::2])
        print(
            f"{reads} reads, {failures} failed at first, {torn} values torn; "
            f"after the kill {rows} rows, {epochs} epochs, {torn_after} values torn"
        )


main()
