# SPDX-License-Identifier: Apache-2.0
"""Shared by the experiments that only simulate: many runs of `petra simulate`, tables, the look of
the figures."""

import concurrent.futures
import csv
import json
import os
import statistics
import subprocess
import sys
import textwrap

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "analysis")
)
import entry

from petrapipe.figures import look
from petrapipe.figures.look import COLOURS, MARKERS, legend_below, style  # noqa: F401
from petrapipe.modules import modules  # noqa: F401
from petrapipe.statistics import half_interval

sys.excepthook = entry.one_line

BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK = COLOURS
WINE, OLIVE = "#882255", "#999933"  # of Paul Tol's muted scheme
# Each method has one look in all figures: the colour shows its family, the marker the member.
METHOD_LOOKS = {
    "backprop": (BLACK, "o"),
    "reversible": (BLACK, "s"),
    "checkpoint": (BLACK, "^"),
    "gpipe": (GREEN, "o"),
    "gpipe-checkpoint": (GREEN, "s"),
    "1f1b": (SKY, "o"),
    "interleaved": (SKY, "s"),
    "zb-h1": (SKY, "^"),
    "looped-bfs": (SKY, "v"),
    "zb-h2": (SKY, "D"),
    "interleaved-zb": (SKY, "P"),
    "zb-v": (OLIVE, "o"),
    "v-half": (OLIVE, "s"),
    "v-min": (OLIVE, "^"),
    "dualpipe-v": (OLIVE, "D"),
    "pipedream": (PINK, "o"),
    "pipedream-2bw": (PINK, "s"),
    "paci": (PINK, "^"),
    "ddg": (WINE, "o"),
    "fr": (WINE, "s"),
    "dgl": (GREEN, "^"),
    "delayed": (ORANGE, "o"),
    "dsp": (ORANGE, "s"),
    "delayed-reversible": (VERMILION, "o"),
    "approximate-input": (VERMILION, "s"),
    "petra": (BLUE, "o"),
    "petra-arrival": (BLUE, "s"),
}
TABLES_ONLY = "--tables" in sys.argv  # no matplotlib needed
DRAW_ONLY = "--draw" in sys.argv  # from the existing tables
_PLACES = [
    argument for argument in sys.argv[1:] if not argument.startswith("--") and "=" not in argument
]
PETRA = _PLACES[0] if _PLACES else "build/petra"


def petra(*arguments):
    """Returns the JSON object that petra prints."""
    run = subprocess.run(
        [PETRA, *arguments, "--json"],
        capture_output=True,
        check=False,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if run.returncode:
        sys.exit(f"{PETRA} {' '.join(arguments)}\n{run.stderr}")
    return json.loads(run.stdout)


def methods():
    """Returns the methods by name, in the order of `petra methods`."""
    return {method["name"]: method for method in petra("methods")["methods"]}


def simulate(config, sets, *more):
    """Makes one run; `sets` is a dictionary of keys and values."""
    return petra(
        "simulate",
        config,
        *[text for key, value in sets.items() for text in ("--set", f"{key}={value}")],
        *more,
    )


def simulate_all(config, jobs):
    """Makes the runs of all dictionaries of keys, two at a time, and returns them in their
    order."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda sets: simulate(config, sets), jobs))


def write_table(path, rows):
    """Writes a list of dictionaries with the same keys as CSV; numbers are as short as possible
    with 7 exact digits."""
    other = next((row for row in rows if list(row) != list(rows[0])), None)
    if other:
        sys.exit(
            f"{path}: a row has the columns {', '.join(other)}, the first one {', '.join(rows[0])}"
        )
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0].keys())
        for row in rows:
            writer.writerow(
                [f"{value:.7g}" if isinstance(value, float) else value for value in row.values()]
            )
    print(f"written: {os.path.relpath(path)} ({len(rows)} rows)")


def read_table(path):
    """Reads the table of write_table, with numbers as numbers; ends the script if there is none."""
    if not os.path.exists(path):
        sys.exit(
            f"{os.path.basename(sys.argv[0])}: {path}: No such file or directory; expected a table"
            " (CSV)"
        )

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
    """Prints a table in the form of a README."""
    print("\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def mean_text(values, digits):
    """Returns the mean for a table, ± half of its 95 % interval if there are several values."""
    half = half_interval(values)
    return f"{statistics.fmean(values):.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


def method_look(name):
    """Returns colour and marker of a method of `petra methods`."""
    if name not in METHOD_LOOKS:
        sys.exit(f"simulations.py: method {name} has no look; expected it in METHOD_LOOKS")
    colour, marker = METHOD_LOOKS[name]
    return {"color": colour, "marker": marker}


def plot_all(axis, curves, near, size=5.0):
    """Draws curves ((x, y, keywords) each) so that none hides another. Curves that coincide
    (near(y, y) is true for all their points) share one path: the first is solid, the others lie on
    it in alternating dashes, and later markers are smaller. Returns the groups."""
    groups = []
    for x, y, keywords in curves:
        group = next(
            (
                g
                for g in groups
                if list(g[0][0]) == list(x) and all(near(a, b) for a, b in zip(g[0][1], y))
            ),
            None,
        )
        if group is None:
            groups.append([(x, y, keywords)])
        else:
            group.append((x, y, keywords))
    for group in groups:
        dash, largest = 3, size * (1.5 if len(group) > 1 else 1)
        for place, (x, y, keywords) in enumerate(group):
            look = {
                "linestyle": "-"
                if place == 0
                else (dash * (place - 1), (dash, dash * (len(group) - 1))),
                "markersize": largest * 0.8**place,
            }
            if "markerfacecolor" not in keywords and any(
                keywords["color"] == other["color"] for _, _, other in group[:place]
            ):
                look |= {"markeredgecolor": "white", "markeredgewidth": 0.4}
            axis.plot(x, y, **{**look, **keywords})
    return groups


def name_ends(axis, groups, step=0.042, width=30):
    """Names the curves of each group of plot_all at their right ends, one below another. Scales and
    limits are set before."""
    fraction = axis.yaxis.get_transform().transform
    low, high = fraction(list(axis.get_ylim()))
    ends = sorted(
        (((fraction([group[0][1][-1]])[0] - low) / (high - low), group) for group in groups),
        key=lambda end: end[0],
    )
    texts = [
        textwrap.fill(
            ", ".join(keywords["label"] for _, _, keywords in group), width, break_on_hyphens=False
        )
        for _, group in ends
    ]
    heights = [step * (1 + text.count("\n")) for text in texts]
    places = []
    for (at, _), height in zip(ends, heights):
        places.append(max(at - height / 2, places[-1] + heights[len(places) - 1] if places else -1))
    for i in reversed(range(len(places))):  # no higher than the panel
        places[i] = min(places[i], (places[i + 1] if i + 1 < len(places) else 1.02) - heights[i])
    for (at, _group), text, height, place in zip(ends, texts, heights, places):
        axis.annotate(
            text,
            (1, at),
            (1.04, place + height / 2),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=7,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": "#999999",
                "linewidth": 0.6,
                "shrinkA": 1,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def legend_of(figure, looks, columns, size=8):
    """Draws one legend below all panels, from a dictionary of names and looks."""
    from matplotlib.lines import Line2D

    legend_below(
        figure, [Line2D([], [], **look) for look in looks.values()], list(looks), columns, size
    )


def pyplot():
    """Returns matplotlib.pyplot, set up; prints a line if it is missing."""
    os.environ["MPLBACKEND"] = "Agg"  # draws into files
    return look.pyplot()


def save(figure, path):
    look.save(figure, path)
    print(f"written: {os.path.relpath(path)}")
