# SPDX-License-Identifier: Apache-2.0
"""Loads modules that only a part of the package needs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from .errors import MissingModule

# Debian's packages of modules. The others are not in Debian 12.
DEBIAN = {
    name: f"python3-{name}"
    for name in (
        "h5py",
        "matplotlib",
        "numpy",
        "pandas",
        "plotly",
        "scipy",
        "torch",
        "xxhash",
        "yaml",
    )
}
PIP = {"yaml": "PyYAML"}  # the names that pip knows, if they differ


def modules(*names: str) -> list[ModuleType]:
    """Returns the modules with these names. Otherwise raises MissingModule, whose line names the
    missing modules, the Python, and the packages to install.

    >>> json, = modules("json")
    >>> json.dumps([1])
    '[1]'
    >>> modules("no_such_module")
    Traceback (most recent call last):
    petrapipe.errors.MissingModule: ... cannot load the module no_such_module; expected ...
    """
    found, missing, why = [], [], ""
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ImportError as error:
            missing.append(name.split(".")[0])
            if not isinstance(error, ModuleNotFoundError) or error.name != missing[-1]:
                why = f" ({error})"
    if missing:
        s = "s" if missing[1:] else ""
        packages = [DEBIAN[name] for name in missing if name in DEBIAN]
        others = [name for name in missing if name not in DEBIAN]
        debian = (
            [f"the package{'s' if packages[1:] else ''} {' '.join(packages)}"] if packages else []
        )
        debian += (
            [f"pip install --target FOLDER {' '.join(others)}, and FOLDER in PYTHONPATH"]
            if others
            else []
        )
        raise MissingModule(
            f"{sys.executable} cannot load the module{s} {', '.join(missing)}{why}; expected a"
            " Python that can: another by its path in PETRA_PYTHON, or this one after"
            f" {sys.executable} -m pip install {' '.join(PIP.get(name, name) for name in missing)}"
            f" (Debian's /usr/bin/python3: {'; '.join(debian)})"
        )
    return found


def find_modules(*names: str) -> None:
    """Raises MissingModule as `modules` does, but does not load the modules that it finds."""
    if not all(map(importlib.util.find_spec, names)):
        modules(*names)
