# SPDX-License-Identifier: Apache-2.0
"""Runs of petra in Python: their logs, figures and weights, and petra's methods over any network in PyTorch.

    import petrapipe
    run = petrapipe.Run("runs/mine")

A name is loaded when it is used, so `import petrapipe` needs no other module. docs/reports.md and docs/pytorch.md are the guides."""

from __future__ import annotations

import importlib
import os
from typing import Any

__version__ = "0.1.0"  # tests/cli/package.py compares it with configure.ac

# The program keeps run.h5 open while it writes; a lock would exclude readers. This must be set before h5py is loaded, because it
# overrides the request for each file.
os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"

# The names that `petrapipe.NAME` has, and the module of each.
_MODULE_OF = {
    "Diverged": "errors",
    "Error": "errors",
    "MissingModule": "errors",
    "StageError": "errors",
    "Unreadable": "errors",
    "Unwritable": "errors",
    "Labelled": "runs",
    "Run": "runs",
    "log_path": "runs",
    "run_names": "runs",
    "read_config": "configs",
    "half_interval": "statistics",
    "read_summary": "sweeps",
    "run_sweep": "sweep.sweep",
    "Plan": "plan",
    "compare": "comparison",
    "list_runs": "run_list",
    # These need torch.
    "Chain": "trainer",
    "Trainer": "trainer",
    "cut": "trainer",
    "Coupling": "coupling",
    "Mitigation": "mitigations",
    "build": "networks",
    "of_state_dict": "networks",
}
_MODULES = {
    *_MODULE_OF.values(),
    "export",
    "figures",
    "report",
    "run_log",
    "stages",
    "tensorboard",
    "text",
    "transformers",
    "weights",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        found = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    elif name in _MODULES:
        found = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, *_MODULES})
