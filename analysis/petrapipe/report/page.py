# SPDX-License-Identifier: Apache-2.0
"""The page of a report: HTML that contains its style, its script, its figures and the plotting
library, so that it loads nothing."""

from __future__ import annotations

import base64
import functools
import gzip
import html
import itertools
import json
import os
from collections.abc import Collection, Sequence

from ..configs import NEUTRAL_KEYS, UNCOMPARED_KEYS
from ..modules import modules
from ..text import shown
from .data import RunData, unlike

MOST_ROWS = 8  # of a table above the figures that is visible at once
HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="quiet">{subtitle}</p>
<nav aria-label="Sections"><ul>
{links}
</ul></nav>
<p id="state" role="status">Unpacking the figures …</p>
<noscript><p>The figures are drawn by JavaScript, which is switched off; \
the tables can be read without.</p></noscript>
</header>
<main>
{body}
</main>
<script id="data" type="application/json">{data}</script>
<script id="library" type="text/plain">{library}</script>
<script>
{script}</script>
</body>
</html>
"""


def read(name: str) -> str:
    """Returns the text of a file beside this one."""
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Collection[int] = (),
) -> str:
    """Returns a table; the columns in `numbers` are aligned right."""

    def escape(text: str) -> str:
        return html.escape(shown(text))

    def cell(column: int, text: str) -> str:
        return f"<td{number_class(column)}>{escape(text)}</td>"

    def head(column: int, name: str) -> str:
        return f'<th scope="col"{number_class(column)}>{escape(name)}</th>'

    def number_class(column: int) -> str:
        return ' class="number"' if column in numbers else ""

    lines = ["<tr>" + "".join(itertools.starmap(head, enumerate(header))) + "</tr>"]
    for row in rows:
        short = ' class="short"' if len(row[0]) <= 40 else ""  # a longer name takes several lines
        lines.append(
            f'<tr><th scope="row"{short}>{escape(row[0])}</th>'
            + "".join(cell(c, t) for c, t in enumerate(row[1:], 1))
            + "</tr>"
        )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(caption, True)}">'
        f"<table><caption>{html.escape(caption)}</caption>\n"
        + "\n".join(lines)
        + "\n</table></div>"
    )


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def significant(value: float | None, digits: int = 6) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def differences(runs: Sequence[RunData]) -> str:
    """Returns a note on runs whose results cannot be compared directly; "" if all are alike."""
    found = unlike(runs)
    if not found:
        return ""
    items = "\n".join(
        f"<li>{html.escape(words_of(name, values))}</li>" for name, values in found.items()
    )
    return (
        '<div class="unlike" role="note"><p><strong>These runs are unlike.</strong> They differ in'
        " what follows, so a difference between their losses, times or bytes is not that of their"
        f" methods alone.</p>\n<ul>\n{items}\n</ul></div>"
    )


def words_of(name: str, values: dict[str, list[str]]) -> str:
    return shown(
        f"{name}: " + "; ".join(f"{value} ({', '.join(names)})" for value, names in values.items())
    )


def what_was_run(runs: Sequence[RunData]) -> str:
    """Returns tables of the runs and of the differences between their configs."""
    if not runs:
        return ""
    columns = [
        ("run", [run.name for run in runs]),
        ("method", [run.method for run in runs]),
        ("k", [run.config.get("method.accumulate", "?") for run in runs]),
        ("samples per update", [str(run.update_samples() or "-") for run in runs]),
        ("stages", [str(run.stage_count() or "-") for run in runs]),
        ("devices", [str(run.devices() or "-") for run in runs]),
        ("mode", [run.run.mode() for run in runs]),
        ("state", ["complete" if run.run.complete else "not complete" for run in runs]),
        ("epochs", ["-" if run.simulated else str(len(run.epochs["epoch"])) for run in runs]),
        *(
            (f"{clock} time (s)", [significant(run.time_s(clock)) for run in runs])
            for clock in ("virtual", "wall")
        ),
        ("train loss (nat)", [number(run.last("train_loss"), 4) for run in runs]),
        ("eval loss (nat)", [number(run.last("eval_loss"), 4) for run in runs]),
        ("eval top-1 (%)", [percent(run.last("eval_top1")) for run in runs]),
        ("eval top-5 (%)", [percent(run.last("eval_top5")) for run in runs]),
        (
            "fullest stage (MB)",
            [
                significant(
                    None if run.fullest_stage_bytes() is None else 1e-6 * run.fullest_stage_bytes(),
                    4,
                )
                for run in runs
            ],
        ),
        (
            "begun (UTC)",
            [run.run.attributes["created"].replace("T", " ").replace("Z", "") for run in runs],
        ),
    ]
    columns = [(name, cells) for name, cells in columns if set(cells) != {"-"}]
    words = ("run", "method", "mode", "state")
    parts = [
        differences(runs),
        table(
            "Runs, with the last losses and accuracies",
            [name for name, _ in columns],
            list(zip(*(cells for _, cells in columns))),
            numbers=[place for place, (name, _) in enumerate(columns) if name not in words],
        ),
    ]
    keys = sorted({key for run in runs for key in run.keys})
    differing = [key for key in keys if len({run.keys.get(key) for run in runs}) > 1]
    if len(runs) == 1:
        key_rows: list[Sequence[str]] = list(runs[0].config.items())
        parts.append(
            "<details><summary>Config</summary>"
            + table("Config", ("key", runs[0].name), key_rows)
            + "</details>"
        )
    elif differing:
        differing.sort(key=lambda key: key in NEUTRAL_KEYS)
        key_rows = [
            (
                key + (" (changes no result)" if key in UNCOMPARED_KEYS else ""),
                *(run.keys.get(key, "not set") for run in runs),
            )
            for key in differing
        ]
        text = table(
            "Keys in which the configs differ", ("key", *(run.name for run in runs)), key_rows
        )
        parts.append(
            text
            if len(key_rows) <= MOST_ROWS
            else (
                f"<details><summary>The {len(key_rows)} keys in which the configs"
                f" differ</summary>{text}</details>"
            )
        )
    else:
        parts.append("<p>Their configs are equal in every key.</p>")
    described = [
        (run.name, *(shown(run.run.attributes[name]) for name in ("network", "optimiser", "data")))
        for run in runs
        if run.run.mode() == "pytorch"
    ]
    if described:
        parts.append(
            table(
                "Runs in PyTorch: what they train (the keys of model, optim and data.set do not"
                " say it)",
                ("run", "network", "optimiser", "data"),
                described,
            )
        )
        trained = [run for run in runs if run.training]
        if trained:
            rows = [
                (key, *(run.training.get(key, "-") for run in trained))
                for key in dict.fromkeys(key for run in trained for key in run.training)
            ]
            parts.append(
                "<details><summary>What the trainer trained with</summary>"
                + table(
                    "What the trainer in PyTorch trained with",
                    ("", *(run.name for run in trained)),
                    rows,
                )
                + "</details>"
            )
    commands = [
        (
            run.name,
            run.run.attributes["command"],
            run.run.attributes["petra_version"],
            run.run.attributes["backend"],
        )
        for run in runs
    ]
    parts.append(
        "<details><summary>Commands, versions and backends</summary>"
        + table("Commands", ("run", "command", "petra", "backend"), commands)
        + "</details>"
    )
    return "\n".join(parts)


def left_out(sections: Sequence[dict]) -> list[str]:
    """Returns a line for each reason: sections without figures, and runs that sections with figures
    lack."""
    lines: dict = {}
    for section in sections:
        if section["missing"] or section["without"]:
            of = f" of {', '.join(section['without'])}" if section["without"] else ""
            lines.setdefault(section["missing"] or section["reason"], []).append(
                section["title"] + of
            )
    return [f"{', '.join(titles)}: {reason}" for reason, titles in lines.items()]


def body_of(sections: Sequence[dict], tables: str) -> str:
    parts = []
    if tables:
        parts.append(
            '<section id="runs" aria-labelledby="runs-title"><h2 id="runs-title">What was'
            f" run</h2>\n{tables}\n</section>"
        )
    for section in sections:
        name = section["id"]
        if section["figures"] or section["notes"]:
            inner = "".join(f"<p>{html.escape(note)}</p>" for note in section["notes"])
            inner += "".join(
                f'<div class="unlike" role="note"><p>{html.escape(warning)}</p></div>'
                for warning in section.get("warnings", ())
            )
            inner += "".join(table(*one) for one in section.get("tables", ()))
            if section["figures"]:
                inner = (
                    f"<p>{html.escape(section['text'])}</p>{inner}<div"
                    f' class="figures{" wide" if name == "timeline" else ""}"></div>'
                )
            parts.append(
                f'<section id="{name}" aria-labelledby="{name}-title"><h2'
                f' id="{name}-title">{html.escape(section["title"])}</h2>{inner}</section>'
            )
    lines = left_out(sections)
    if lines:
        items = "\n".join(f"<li>{html.escape(line)}</li>" for line in lines)
        parts.append(
            '<section id="left-out" aria-labelledby="left-out-title"><h2 id="left-out-title">Left'
            f" out</h2>\n<ul>\n{items}\n</ul>\n</section>"
        )
    return "\n".join(parts)


@functools.lru_cache(maxsize=1)
def packed_library() -> str:
    """Returns Plotly's library, packed."""
    (offline,) = modules("plotly.offline")
    return base64.b64encode(
        gzip.compress(offline.get_plotlyjs().encode("utf-8"), 9, mtime=0)
    ).decode("ascii")


def page(title: str, subtitle: str, runs: Sequence[RunData], sections: Sequence[dict]) -> str:
    """Returns the page as text. The library is packed to a third of its size; browsers unpack it
    (DecompressionStream)."""
    tables = what_was_run(runs)
    drawn = [
        {"id": section["id"], "figures": section["figures"]}
        for section in sections
        if section["figures"]
    ]
    links = [
        (section["id"], section["title"])
        for section in sections
        if section["figures"] or section["notes"]
    ]
    links = (
        ([("runs", "What was run")] if tables else [])
        + links
        + ([("left-out", "Left out")] if left_out(sections) else [])
    )
    return PAGE.format(
        title=html.escape(shown(title)),
        subtitle=html.escape(shown(subtitle)),
        css=read("page.css"),
        script=read("page.js"),
        links="\n".join(
            f'<li><a href="#{name}">{html.escape(text)}</a></li>' for name, text in links
        ),
        body=body_of(sections, tables),
        library=packed_library(),
        data=json.dumps(drawn, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace(
            "<", "\\u003c"
        ),
    )
