# SPDX-License-Identifier: Apache-2.0
"""Completes the log of a run that a test makes up, so that it has all that docs/hdf5-schema.md
requires."""

import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../analysis"))
from petrapipe import log_check, run_schema


def put(file, name, values, units, dimensions):
    """Writes a data set with its attributes, or only the attributes that it lacks."""
    if name not in file:
        file[name] = values
    for key, texts in (("units", units), ("DIMENSION_LABELS", list(dimensions))):
        if key not in file[name].attrs and texts:
            run_schema.put_texts(file[name], key, texts)


def complete(file):
    """Adds what an open log lacks: attributes, and the data sets of each group that it has, with
    as many rows as the others of the group; real numbers are NaN, whole numbers 0."""
    for name in log_check.TEXTS:
        if name not in file.attrs:
            file.attrs[name] = ""
    for name, value in (("schema_version", 1), ("complete", 1), ("seed", 1)):
        if name not in file.attrs:
            file.attrs[name] = value
    for group in ("train", "epoch"):
        file.require_group(group)
    if not any(f"epoch/{name}" in file for name, _ in run_schema.RATES.values()):
        file["epoch/images_per_s"] = numpy.full(
            len(file["epoch/eval_top1"]) if "epoch/eval_top1" in file else 0, numpy.nan
        )
    extents = {}
    for name, (_, _, dimensions) in log_check.SETS.items():
        if name in file:
            extents.update(
                {
                    (name.split("/")[0] if dimension != "stage" else "", dimension): extent
                    for dimension, extent in zip(dimensions, file[name].shape)
                }
            )
    for name, (kind, unit, dimensions) in log_check.SETS.items():
        group = name.split("/")[0]
        rare = name in log_check.RARE or group not in file
        if name in file or not rare:
            shape = [
                extents.get((name.split("/")[0] if dimension != "stage" else "", dimension), 0)
                for dimension in dimensions
            ]
            values = numpy.full(
                shape,
                b"" if kind == "S" else numpy.nan if kind == "<f8" else 0,
                "S1" if kind == "S" else kind,
            )
            put(file, name, values, unit, dimensions)
            for dimension in dimensions:
                if (
                    dimension in log_check.LEGENDS
                    and log_check.LEGENDS[dimension] not in file[name].attrs
                ):
                    run_schema.put_texts(
                        file[name], log_check.LEGENDS[dimension], log_check.NAMES[name]
                    )
    if "trace/actions/kind" in file and "kinds" not in file["trace/actions/kind"].attrs:
        run_schema.put_texts(file["trace/actions/kind"], "kinds", run_schema.KINDS)
