# SPDX-License-Identifier: Apache-2.0
"""The look of all figures: colours, markers, legends, formats. It loads matplotlib when a figure is
drawn."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import Error, Unwritable
from ..modules import modules

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours: readers with any kind of colour vision can distinguish them.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
LINES = ["-", "--", ":", "-."]
FORMATS = (".png", ".svg", ".pdf")
DPI = 150


def loss_unit(labels: Iterable[str]) -> str:
    """Returns the unit of losses of runs whose labels have these kinds ("images", "tokens").

    >>> loss_unit(["tokens", "images", "tokens"])
    'nats per image or token'
    """
    return "nats per " + " or ".join(kind.removesuffix("s") for kind in sorted(set(labels)))


def pyplot() -> ModuleType:
    """Returns matplotlib.pyplot with the look of all figures. The backend stays as it is: a script
    sets it, and a notebook has its own."""
    (plt,) = modules("matplotlib.pyplot")
    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.titlesize": "medium",
            "axes.grid": True,
            "grid.color": "#dddddd",
            "grid.linewidth": 0.6,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "lines.linewidth": 1.4,
            "lines.markersize": 4.5,
            "svg.hashsalt": "petra",
        }
    )
    return plt


def style(number: int) -> dict[str, str]:
    """Returns colour, marker and line of a curve by its number, from 0. No two of 49 share both
    colour and marker; no two of the first 7 share either."""
    turn = number // len(COLOURS)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[(number + turn) % len(MARKERS)],
        "linestyle": LINES[turn % len(LINES)],
    }


def legend_below(
    figure: Figure,
    handles: Sequence,
    labels: Sequence[str],
    columns: int,
    size: float = 8,
    title: str = "",
) -> None:
    """Draws one legend for all panels, below them and not on the curves, in points of this size.
    The figure must have layout="constrained"."""
    legend = figure.legend(
        handles,
        labels,
        loc="lower center",
        ncol=columns,
        fontsize=size,
        title=title or None,
        title_fontsize=size,
    )
    share = (
        legend.get_window_extent(figure.canvas.get_renderer()).height / figure.bbox.height + 0.01
    )
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))


def save(figure: Figure, path: str) -> None:
    """Writes the figure; the ending of the file name selects the format. The same figure gives the
    same bytes."""
    ending = os.path.splitext(path)[1]
    if ending not in FORMATS:
        raise Error(f"{path}: cannot be drawn; expected a name that ends in {', '.join(FORMATS)}")
    undated = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[
        ending
    ]
    try:
        figure.savefig(path, dpi=DPI, metadata=undated)
    except OSError as error:
        raise Unwritable(f"{path}: cannot be written: {error.strerror or error}") from None
