# SPDX-License-Identifier: Apache-2.0
"""Runs of petra in Python: their logs, figures and weights, and petra's methods over any network in PyTorch."""

import importlib

# What `import petrapipe` offers, by the module that has it. A module is loaded on first use: only some need PyTorch.
_MODULES = {"Chain": "trainer", "Coupling": "coupling", "Diverged": "errors", "Error": "errors", "Mitigation": "mitigations", "Plan": "plan",
            "StageError": "errors", "Trainer": "trainer", "Unreadable": "errors", "cut": "trainer"}
__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(importlib.import_module(f"petrapipe.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'petrapipe' has no attribute {name!r}")
