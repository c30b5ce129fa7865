# SPDX-License-Identifier: Apache-2.0
"""Shared by the plotting scripts: their errors, the look of the figures, summaries of sweeps, Student's t.

It loads only the standard library; modules(...) and pyplot() load the rest, and print one line if it is missing."""

import codecs
import csv
import html
import importlib
import importlib.util
import os
import shutil
import signal
import statistics
import subprocess
import sys
import unicodedata
import warnings

# Okabe and Ito's colours: readers with any kind of colour vision can distinguish them.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
LINES = ["-", "--", ":", "-."]
FORMATS = (".png", ".svg", ".pdf")
DPI = 150
# Keys that change no result: they determine where files go (docs/config.md), or how a run gets to the same results.
# tests/check_analysis compares them with src/config/keys.c.
NEUTRAL_KEYS = {"run.name", "run.output", "run.keep_checkpoint", "run.mode", "run.checkpoint_every", "data.path", "data.workers",
                "cluster.placement", "cluster.timeout_s", "cluster.transport", "cluster.gpus", "device.streams"}
# These keys are for comparing runs: data at another place may be other data.
UNCOMPARED_KEYS = NEUTRAL_KEYS - {"data.path"}


def loss_unit(labels):
    """Returns the unit of losses of runs whose labels have these kinds ("images", "tokens")."""
    return "nats per " + " or ".join(kind.removesuffix("s") for kind in sorted(set(labels)))


def shown(text):
    """Returns a free text (a name of a file or a run, a value of a config) as every figure, table and message prints it: one line. Each byte of a
    character that could disturb a terminal, and each byte that is not UTF-8, has the form \\x1b, as in the program (src/base/utf8.h)."""
    def one(character):
        code = ord(character)
        plain = not (code < 0x20 or 0x7f <= code <= 0x9f or code in (0x61c, 0x200e, 0x200f, 0xfeff, 0xfffe, 0xffff) or 0x2028 <= code <= 0x202e or
                     0x2066 <= code <= 0x2069 or 0xd800 <= code <= 0xdfff)
        return character if plain else "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape" if 0xdc80 <= code <= 0xdcff else "surrogatepass"))
    return "".join(map(one, str(text)))


# A stream writes this instead of a byte or a character that its encoding lacks.
codecs.register_error("petra", lambda error: (shown(error.object[error.start:error.end]) if any(0xd800 <= ord(character) <= 0xdfff for character in
                      error.object[error.start:error.end]) else "?" * (error.end - error.start), error.end))


def drawn(text):
    """Returns a free text that matplotlib draws unchanged: a $ begins no mathematics, and a leading _ does not hide it from a legend."""
    text = shown(text).replace("$", r"\$")
    return "\u200b" + text if text.startswith("_") else text


def plotted(text):
    """Returns a free text that Plotly draws unchanged: it begins no tag such as <b>, and no reference such as &lt;."""
    return html.escape(shown(text), quote=False)


def columns_of(text):
    """Returns the number of columns of a terminal that a shown text takes."""
    return sum(0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def padded(text, columns, right=False):
    """Returns a free text padded to this number of columns, aligned left or right."""
    text = shown(text)
    blanks = " " * (columns - columns_of(text))
    return blanks + text if right else text + blanks


def cell(text):
    """Returns a free text for a table of Markdown, in which | would end the cell."""
    return shown(text).replace("|", r"\|")


class Error(Exception):
    """An argument is wrong (status 2), or a file or a module is missing or cannot be read (1). The status is the exit status of a script that ends
    with it (docs/adr/0004-exit-codes.md)."""

    def __init__(self, text, status=2):
        super().__init__(text)
        self.status = status


def fail(text, status=2):
    """Raises an Error: it ends a script with one line (`end`), and a notebook that calls the functions can catch it."""
    raise Error(text, status)


def modules(*names):
    """Returns the modules with these names. Otherwise fails with one line: which are missing in which Python, and what to install."""
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
        fail(f"{sys.executable} cannot load the module{s} {', '.join(missing)}{why}; expected a Python that can: another by its path in "
             f"PETRA_PYTHON, or this one after {sys.executable} -m pip install {' '.join(missing)} (Debian's /usr/bin/python3: the "
             f"package{s} {' '.join('python3-' + name for name in missing)})", 1)
    return found


# The variable that a Python finds in its environment if another Python has chosen it.
CHOSEN = "PETRA_PYTHON_CHOSEN"


def start(name, *needed, wished=()):
    """Call this at the head of a script, with its __name__; it does nothing if the script is imported. From here on an Error ends the script with one
    line. The script runs in the Python that PETRA_PYTHON names in the environment; without this variable, in the current Python if it has the
    modules, otherwise in another that has them."""
    if name != "__main__":
        return
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.excepthook = one_line
    for stream in sys.stdout, sys.stderr:
        stream.reconfigure(errors="petra")
    wanted, chosen = os.environ.get("PETRA_PYTHON"), os.environ.pop(CHOSEN, None)
    if wanted and not chosen and shutil.which(wanted) != sys.executable:
        go_on_by(wanted)
    for names in (*needed, *wished), needed:
        if wanted or chosen or has_modules(names):
            break
        found = next((python for python in other_pythons() if has_modules(names, python)), None)
        if found:
            go_on_by(found)
    modules(*(name for name in needed if not has_modules([name])))


def go_on_by(python):
    """Runs this script from its beginning in another Python."""
    os.environ[CHOSEN] = python
    try:
        os.execvp(python, [python, *(["-B"] if sys.dont_write_bytecode else []), *sys.argv])
    except OSError as error:
        fail(f"{python} cannot be started: {error.strerror}; expected the path of a Python in PETRA_PYTHON", 1)


def other_pythons():
    """Returns the Python that configure found, for an installed script and for one of the sources built in build/; then Debian's."""
    own = os.path.dirname(os.path.realpath(__file__))
    for folder in os.path.dirname(os.path.abspath(sys.argv[0])), own, os.path.join(os.path.dirname(own), "build/analysis"):
        try:
            with open(os.path.join(folder, "python"), encoding="utf-8") as file:
                yield file.read().strip()
        except (OSError, ValueError):
            pass
    yield from ("python3", "/usr/bin/python3")


def has_modules(names, python=None):
    """Returns whether this Python, or another, finds modules with these names."""
    if python is None:
        return all(importlib.util.find_spec(name) for name in names)
    look = "import sys, importlib.util as u; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))"
    try:
        return subprocess.run([python, "-c", look, *names], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def runs():
    """Returns the module petra_runs; fails with one line if it lacks a module."""
    modules("h5py", "numpy")
    return importlib.import_module("petra_runs")


def stop(error):
    """Ends the process with the line and the status of an Error."""
    warn(error)
    sys.exit(error.status)


def warn(text):
    """Prints one line about what a script leaves out."""
    print(f"{os.path.basename(sys.argv[0])}: {shown(text)}", file=sys.stderr)


def one_line(kind, error, trace):
    """Is sys.excepthook of a script."""
    if isinstance(error, Error):
        stop(error)
    sys.__excepthook__(kind, error, trace)


def end(main):
    """Runs a script; an Error (petra_runs.Error as well) ends it with one line and its exit status, `script | head` silently."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        main()
    except (Error, ValueError) as error:
        if not hasattr(error, "status"):
            raise
        stop(error)


def pyplot():
    """matplotlib.pyplot, set up for files and with the look of all figures."""
    matplotlib, = modules("matplotlib")
    matplotlib.use("Agg")
    warnings.simplefilter("once")
    warnings.showwarning = lambda message, *_: warn(message)  # such as a character that no font has
    plt, = modules("matplotlib.pyplot")
    plt.rcParams.update({"font.size": 9, "axes.titlesize": "medium", "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6,
                         "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
                         "lines.linewidth": 1.4, "lines.markersize": 4.5, "svg.hashsalt": "petra"})
    return plt


def style(number):
    """Returns colour, marker and line of a curve by its number, from 0. No two of 49 share both colour and marker; no two of the first 7 share
    either."""
    turn = number // len(COLOURS)
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[(number + turn) % len(MARKERS)],
            "linestyle": LINES[turn % len(LINES)]}


def legend_below(figure, handles, labels, columns, size=8):
    """Draws one legend for all panels, below them and not on the curves. The figure must have layout="constrained"."""
    legend = figure.legend(handles, labels, loc="lower center", ncol=columns, fontsize=size)
    share = legend.get_window_extent(figure.canvas.get_renderer()).height / figure.bbox.height + 0.01
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))


def save(figure, path):
    """Writes the figure; the ending of the file name selects the format. The same figure gives the same bytes."""
    ending = os.path.splitext(path)[1]
    if ending not in FORMATS:
        fail(f"{path}: cannot be drawn; expected a name that ends in {', '.join(FORMATS)}")
    undated = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[ending]
    try:
        figure.savefig(path, dpi=DPI, metadata=undated)
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror or error}", 1)


def read_summary(path):
    """Returns the lines of a sweep's summary.csv: (combination, values of the keys that the grid varies, its row as texts by column). A combination
    that does not set a key has the value of the base config (summaries of earlier versions lack it: there the key is missing). A grid with rows has
    `row` among the keys. docs/sweep.md describes the columns; *_mean and *_interval95 are empty if there is no value."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            found = list(reader)
            names = list(reader.fieldnames or [])
            varied = names[names.index("overrides") + 1:names.index("cells")] if found else []
            return [(row["combination"], {key: sole(row[key]) for key in varied} or
                     dict(part.split("=", 1) for part in row["overrides"].split("; ") if part), row) for row in found]
    except (OSError, KeyError, ValueError) as error:
        fail(f"{path}: not the summary of a sweep: {getattr(error, 'strerror', None) or error}", 1)


def sole(value):
    """Returns the value of a list with one entry, such as method.extra_delay: [4], which a grid may also write."""
    return value[1:-1] if value[:1] == "[" and value[-1:] == "]" and "," not in value and value != "[]" else value


def cell_name(keys, values):
    """Names a cell by some of its keys: the method by its name alone, others by the last part of the key and the value, or by the whole key if two
    keys have the same last part. Keys that the cell does not set, and has from the base config, are left out."""
    ends = [key.rsplit(".", 1)[-1] for key in keys]
    words = [(key if ends.count(end) > 1 else end) + " " if key != "method.name" else "" for key, end in zip(keys, ends)]
    return ", ".join(word + values[key] for key, word in zip(keys, words) if key in values) or ("base" if keys else "")


def run_names(paths):
    """Names runs by their folders (the value of --output), or by their files if these are not called run.h5, with as many parent folders as are
    needed to distinguish them."""
    parts = []
    for path in paths:
        folder, name = os.path.split(os.path.abspath(path))
        parts.append(folder.split(os.sep) if name == "run.h5" else [*folder.split(os.sep), os.path.splitext(name)[0]])
    taken = [1] * len(paths)
    while True:
        names = ["/".join(part[-count:]) for part, count in zip(parts, taken)]
        more = [min(count + 1, len(part)) if names.count(name) > 1 else count for name, part, count in zip(names, parts, taken)]
        if more == taken:
            return names
        taken = more


# Two-sided 95 % of Student's t by degrees of freedom; further on four terms of its expansion about the normal distribution's
# 1.959964 (Abramowitz and Stegun 26.7.5), which are right to 1e-3 from 10 on.
T_QUANTILES = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def half_interval(values):
    """Returns half of the 95 % interval of the mean of `values` (Student's t); 0 for a single value, which has no scatter."""
    count = len(values)
    if count < 2:
        return 0.0
    z, v = 1.959964, count - 1
    quantile = T_QUANTILES[v - 1] if v <= len(T_QUANTILES) else (
        z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2) + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3))
    return quantile * statistics.stdev(values) / count**0.5
