#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes every table of a run's log as a file of comma-separated values: what `petra export` does.

    analysis/petra_export.py RUN --csv DIR

Needs h5py and numpy (Debian: python3-h5py). petrapipe/export.py describes the files.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.commands.export", "h5py", "numpy")
