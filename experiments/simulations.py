"""What the experiments that only simulate share: many runs of `petra simulate`, tables, the look of the figures."""

import concurrent.futures
import csv
import json
import os
import subprocess
import sys

# Okabe and Ito's colours: told apart by readers with any kind of colour vision.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
TABLES_ONLY = "--tables" in sys.argv  # no matplotlib needed
DRAW_ONLY = "--draw" in sys.argv  # from the tables that are there
_PLACES = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
PETRA = _PLACES[0] if _PLACES else "build/petra"


def petra(*arguments):
    """The JSON object that petra prints."""
    run = subprocess.run([PETRA, *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True,
                         stdin=subprocess.DEVNULL)
    if run.returncode:
        sys.exit(f"{PETRA} {' '.join(arguments)}\n{run.stderr}")
    return json.loads(run.stdout)


def methods():
    """By name, in the order of `petra methods`."""
    return {method["name"]: method for method in petra("methods")["methods"]}


def simulate(config, sets, *more):
    """One run: `sets` is a dictionary of keys and values."""
    return petra("simulate", config, *[text for key, value in sets.items() for text in ("--set", f"{key}={value}")], *more)


def simulate_all(config, jobs):
    """Runs of all dictionaries of keys, two at a time, in their order."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda sets: simulate(config, sets), jobs))


def write_table(path, rows):
    """CSV of a list of dictionaries with the same keys; numbers as short as they stay exact to 7 digits."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0].keys())
        for row in rows:
            writer.writerow([f"{value:.7g}" if isinstance(value, float) else value for value in row.values()])
    print(f"written: {os.path.relpath(path)} ({len(rows)} rows)")


def read_table(path):
    """What write_table wrote, numbers as numbers."""

    def value(text):
        try:
            return int(text)
        except ValueError:
            try:
                return float(text)
            except ValueError:
                return text

    with open(path, newline="", encoding="utf-8") as file:
        return [{key: value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def markdown(header, rows):
    """Prints a table as it stands in a README."""
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def pyplot():
    """matplotlib.pyplot, set up; a clear line where it is missing."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("no matplotlib in this Python (Debian: /usr/bin/python3 with python3-matplotlib); --tables does without")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.6, "axes.axisbelow": True,
                         "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "lines.linewidth": 1.4,
                         "lines.markersize": 4.5})
    return plt


def legend_below(figure, axis, columns, share, size=8):
    """One legend for all panels, in the lowest `share` of the figure."""
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=columns, fontsize=size)


def save(figure, path):
    figure.savefig(path, dpi=150, metadata={"Software": None})
    print(f"written: {os.path.relpath(path)}")
