# SPDX-License-Identifier: Apache-2.0
"""The columns of run.h5 (docs/hdf5-schema.md) that the PyTorch runtime writes, and data sets made
from these tables.

tests/cli/torch_log.py compares the tables with the tables of the program
(src/record/run_h5_columns.c), and the data sets with the data sets that the program writes."""

from __future__ import annotations

import math

import h5py
import numpy

from . import seals
from .configs import read_config

NUMBER, LOSS, SECONDS, INDEX, SMALL_INDEX = (
    ("<f8", "1"),
    ("<f8", "nat"),
    ("<f8", "s"),
    ("<i8", "1"),
    ("<i4", "1"),
)

# Groups to which rows are added one by one: (name of a row, rows of a chunk, {column: (type,
# unit)}).
GROUPS = {
    "train": (
        "microbatch",
        1024,
        {
            "microbatch": INDEX,
            "epoch": SMALL_INDEX,
            "lr": NUMBER,
            "loss": LOSS,
            "top1": NUMBER,
            "wall_s": SECONDS,
            "virtual_s": SECONDS,
        },
    ),
    "epoch": (
        "epoch",
        64,
        {
            "epoch": SMALL_INDEX,
            "train_loss": LOSS,
            "train_top1": NUMBER,
            "eval_loss": LOSS,
            "eval_top1": NUMBER,
            "eval_top5": NUMBER,
            "lr": NUMBER,
            "wall_s": SECONDS,
        },
    ),
    "trace/actions": (
        "action",
        4096,
        {
            "start_ns": ("<i8", "ns"),
            "end_ns": ("<i8", "ns"),
            "stage": SMALL_INDEX,
            "kind": SMALL_INDEX,
            "microbatch": INDEX,
            "version_read": INDEX,
            "version_written": INDEX,
        },
    ),
    "probe": ("probe", 64, {"microbatch": INDEX, "epoch": SMALL_INDEX}),
}
# The last column of /epoch.
RATES = {
    "images": ("images_per_s", ("<f8", "images/s")),
    "tokens": ("tokens_per_s", ("<f8", "tokens/s")),
}
# Values of data.set whose samples are windows of model.context tokens.
TOKEN_SETS = (
    "text",
    "tokens",
    "grammar",
)
STAGES = {
    "stage": SMALL_INDEX,
    "name": ("S", "1"),
    "reversible": SMALL_INDEX,
    "parameters": ("<i8", "count"),
    "forward_flops": ("<i8", "FLOP/image"),
    "forward_bytes": ("<i8", "byte"),
    "backward_bytes": ("<i8", "byte"),
    "delay": ("<i4", "microbatches"),
}
PARAMETERS = {"name": ("S", "1"), "stage": SMALL_INDEX, "zero": SMALL_INDEX}
# Dimensions; type int64, unit byte.
MEMORY = {
    "peak_bytes": ("stage", "category"),
    "total_peak_bytes": ("stage",),
    "backend_bytes": ("rank", "part"),
}
# The largest values of run.epochs, data.batch and data.limit (src/config/keys.c).
MAXIMUM_EPOCHS, MAXIMUM_BATCH, MAXIMUM_SAMPLES = 10**6, 10**9, 10**12
KINDS = ("F", "B", "W", "U", "E")
CATEGORIES = (
    "parameters",
    "gradients",
    "momentum",
    "statistics",
    "input_buffer",
    "weight_buffer",
    "graph",
    "messages",
    "workspace",
)
MEASURES = ("cosine", "norm_ratio", "relative_error")
PAIRS = ("method_delayed", "method_end_to_end", "delayed_end_to_end")
# The figures of a probe, of type and unit NUMBER: {name: dimension}.
FIGURES = {
    **{
        f"{measure}/{pair}": "stage"
        for measure in (*MEASURES, "concatenated_cosine")
        for pair in PAIRS
    },
    "reconstruction_error": "stage",
    **{f"parameter/{measure}/{pair}": "parameter" for measure in MEASURES for pair in PAIRS},
}
# Names of the entries of a dimension: (attribute of its data set, names).
LEGENDS = {
    "category": ("categories", CATEGORIES),
    "part": ("parts", ("tensors", "filters", "scratch")),
}
PARAMETER_NAME_BYTES, FIGURE_CHUNK_BYTES = 64, 16 * 1024


def open_file(path: str, mode: str) -> h5py.File:
    """Opens a log, without a lock if this h5py can."""
    try:
        return h5py.File(path, mode, libver=("earliest", "latest"), locking=False)
    except (TypeError, ValueError):  # an h5py before 3.5, or an HDF5 without this option
        return h5py.File(path, mode, libver=("earliest", "latest"))


def create_in_memory(name: str) -> h5py.File:
    """Creates a log that has no file, with room for a seal in front. `name` is not the name of
    another open file."""
    return h5py.File(
        name,
        "w",
        driver="core",
        backing_store=False,
        userblock_size=seals.BYTES,
        libver=("earliest", "latest"),
    )


def samples_of(config: str) -> tuple[str, int]:
    """Returns the kind of samples of a config (YAML), a key of RATES, and the labels of a sample:
    the tokens of a window, or 1."""
    keys = read_config(config)
    return (
        ("tokens", int(keys["model.context"]))
        if keys.get("data.set") in TOKEN_SETS
        else ("images", 1)
    )


def columns_of(group: str, samples: str) -> list[str]:
    """Returns the names of the data sets to which each row of a group adds a value."""
    more = {"epoch": [RATES[samples][0]], "probe": FIGURES}
    return [*GROUPS[group][2], *more.get(group, ())]


def put_texts(node: h5py.HLObject, name: str, texts: str | list[str] | tuple[str, ...]) -> None:
    node.attrs.create(name, texts, dtype=h5py.string_dtype())


def put_set(
    file: h5py.File,
    name: str,
    values: numpy.ndarray,
    unit: str | list[str],
    dimensions: tuple[str, ...],
) -> None:
    """Writes a data set of fixed shape; replaces the values of an existing data set."""
    if name in file:
        file[name][...] = values
        return
    node = file.create_dataset(name, data=values)
    put_texts(node, "units", unit)
    put_texts(node, "DIMENSION_LABELS", dimensions)


def put_memory(file: h5py.File, values: dict) -> None:
    """Writes data sets of /memory, by name."""
    for name, one in values.items():
        put_set(file, f"memory/{name}", numpy.asarray(one, "<i8"), "byte", MEMORY[name])
        if MEMORY[name][-1] in LEGENDS:
            put_texts(file[f"memory/{name}"], *LEGENDS[MEMORY[name][-1]])


def create_rows(file: h5py.File, group: str, samples: str, extents: dict[str, int]) -> None:
    """Creates the data sets of a group without rows. extents: of the dimensions "stage" and
    "parameter"."""
    row, chunk_rows, columns = GROUPS[group]
    for name in columns_of(group, samples):
        more = [FIGURES[name]] if group == "probe" and name in FIGURES else []
        kind, unit = columns.get(name) or (NUMBER if more else RATES[samples][1])
        shape = [extents[dimension] for dimension in more]
        rows = max(1, min(chunk_rows, FIGURE_CHUNK_BYTES // (8 * shape[0]))) if more else chunk_rows
        early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        node = file.create_dataset(
            f"{group}/{name}",
            (1, *shape),
            kind,
            maxshape=(None, *shape),
            chunks=(rows, *shape),
            dcpl=early,
            fillvalue=math.nan if kind == "<f8" else -1,
        )
        # The first row has made the index of the chunks, which a reader needs.
        node.resize(0, axis=0)
        put_texts(node, "units", unit)
        put_texts(node, "DIMENSION_LABELS", [row, *more])
        if name == "kind":
            put_texts(node, "kinds", KINDS)


def put_stages(file: h5py.File, stages: list[dict], samples: str) -> None:
    """Writes /model/stages; entries that a dictionary lacks are 0."""
    rows = [
        {**stage, "stage": number, "name": stage["name"].encode()}
        for number, stage in enumerate(stages, 1)
    ]
    length = max(len(row["name"]) for row in rows) or 1
    kind = [(name, f"S{length}" if kind == "S" else kind) for name, (kind, _) in STAGES.items()]
    table = numpy.array([tuple(row.get(name, 0) for name in STAGES) for row in rows], kind)
    put_set(
        file,
        "model/stages",
        table,
        [
            unit.replace("image", "window") if samples == "tokens" else unit
            for _, unit in STAGES.values()
        ],
        ("stage",),
    )


def put_parameters(file: h5py.File, parameters: list[tuple]) -> None:
    """Writes the table of tensors that the dimension "parameter" counts: (name, stage, zero)."""
    length = max([PARAMETER_NAME_BYTES, *(len(name.encode()) for name, _, _ in parameters)])
    columns = list(zip(*((name.encode(), stage, zero) for name, stage, zero in parameters)))
    for (name, (kind, unit)), values in zip(PARAMETERS.items(), columns):
        put_set(
            file,
            f"probe/parameter/{name}",
            numpy.array(values, f"S{length}" if kind == "S" else kind),
            unit,
            ("parameter",),
        )
