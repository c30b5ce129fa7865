# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: the choice of the Python that runs them, and their end by
one line and an exit status.

    if __name__ == "__main__":
        run("petrapipe.figures.training", "h5py", "numpy", wished=["matplotlib"])

The functions of petrapipe raise exceptions; only this file ends a process. It loads only the
standard library before the Python is chosen."""

import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings

from petrapipe.errors import Error
from petrapipe.modules import modules
from petrapipe.text import shown

# The variable that a Python finds in its environment if another Python has chosen it.
CHOSEN = "PETRA_PYTHON_CHOSEN"
HERE = os.path.dirname(os.path.realpath(__file__))
# Ends with status 0 if this Python loads the modules of the first list and finds those of the
# second.
LOOK = (
    "import importlib as i, importlib.util as u, sys; [i.import_module(n) for n in"
    " sys.argv[1].split()]; sys.exit(not all(map(u.find_spec, sys.argv[2].split())))"
)


def run(module, *needed, wished=()):
    """Runs the function main of a module, in a Python that has the modules `needed` and if possible
    those `wished`. An Error ends the script with one line and its exit status, `script | head` ends
    it silently."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in sys.stdout, sys.stderr:
        stream.reconfigure(errors="petra")
    os.environ["MPLBACKEND"] = "Agg"  # draws into files
    warnings.simplefilter("once", UserWarning)
    warnings.showwarning = lambda message, *_: warn(message)  # such as a character that no font has

    def chosen():
        choose_python(needed, wished)
        importlib.import_module(module).main()

    end(chosen)


def end(main):
    """Calls a function; an Error ends the process with one line and its exit status."""
    try:
        main()
    except Error as error:
        warn(error)
        sys.exit(error.status)


def one_line(kind, error, trace):
    """Is sys.excepthook of scripts that have no main."""
    if issubclass(kind, Error):
        warn(error)
        sys.exit(error.status)
    sys.__excepthook__(kind, error, trace)


def warn(text):
    """Prints one line with the name of the script."""
    print(f"{os.path.basename(sys.argv[0])}: {shown(text)}", file=sys.stderr)


def choose_python(needed, wished):
    """Restarts the script in the Python that PETRA_PYTHON names. Without this variable it stays in
    the current Python if that has the modules; otherwise it restarts in another that has them.
    Raises MissingModule if none has those needed."""
    wanted, chosen = os.environ.get("PETRA_PYTHON"), os.environ.pop(CHOSEN, None)
    if wanted and not chosen and shutil.which(wanted) != sys.executable:
        restart_in(wanted)
    for more in dict.fromkeys((tuple(wished), ())):
        if wanted or chosen or has_modules(needed, more):
            break
        found = next(
            (
                python
                for python in dict.fromkeys(other_pythons())
                if has_modules(needed, more, python)
            ),
            None,
        )
        if found:
            restart_in(found)
    modules(*needed)


def restart_in(python):
    """Runs this script from its beginning in another Python."""
    os.environ[CHOSEN] = python
    try:
        options = ["-B"] * sys.dont_write_bytecode + ["-X", "utf8"] * sys.flags.utf8_mode
        os.execvp(python, [python, *options, *sys.argv])
    except OSError as error:
        raise CannotStart(
            f"{python} cannot be started: {error.strerror}; expected the path of a Python in"
            " PETRA_PYTHON"
        ) from None


class CannotStart(Error):
    """PETRA_PYTHON names no program."""

    status = 1


def other_pythons():
    """Yields the Python that configure found, for an installed script and for one of the sources
    built in build/; then those on PATH and Debian's."""
    for folder in (
        os.path.dirname(os.path.abspath(sys.argv[0])),
        HERE,
        os.path.join(os.path.dirname(HERE), "build/analysis"),
    ):
        try:
            with open(os.path.join(folder, "python"), encoding="utf-8") as file:
                yield file.read().strip()
        except (OSError, ValueError):
            pass
    yield from ("python3", "/usr/bin/python3")
    names = set()
    for folder in os.get_exec_path():
        try:
            names.update(name for name in os.listdir(folder) if re.fullmatch(r"python3\.\d+", name))
        except OSError:
            pass
    yield from sorted(names, key=lambda name: -int(name[8:]))


def has_modules(needed, wished, python=None):
    """Returns whether this Python, or another, loads the modules `needed` and finds those `wished`,
    which may be slow to load."""
    if python is not None:
        try:
            return (
                subprocess.run(
                    [python, "-c", LOOK, " ".join(needed), " ".join(wished)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                ).returncode
                == 0
            )
        except OSError:
            return False
    try:
        modules(*needed)
    except Error:
        return False
    return all(map(importlib.util.find_spec, wished))
