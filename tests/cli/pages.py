#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md, the tutorials, commands.md, faq.md, which-schedule.md, plan-format.md
and docs/methods/ runs and prints what the page shows. The form of the pages is that of console.py;
`make regen-docs` writes what the commands print. What stands in ```sh blocks is not run, and is
listed here. It takes 30 to 40 s of processor, most of it the tutorial's sweep: not under
sanitizers, not again from an archive."""

import glob
import os
import re
import unittest

import console
from program import PETRA, main

# Beginnings of the lines in ```sh blocks, and why they are not run.
NOT_RUN = {
    "./quickstart": "installs packages and builds",
    "./check": "builds and tests",
    "./bootstrap": "changes the sources",
    "git clone": "needs a network",
    "cd ": "the shell of each command is a new one",
    "mkdir -p build": "goes with cd",
    "../configure": "builds",
    "make": "builds",
    "petra report": "needs plotly; tests/cli/report.py runs it",
    "build/petra report": "the same",
    "export PATH": "the shell of each command is a new one",
}


@unittest.skipIf(
    "ASAN_OPTIONS" in os.environ,
    "sanitizers: other tests run the same commands; this one is about pages",
)
class Pages(unittest.TestCase):
    """One test a page, made below."""

    def check_page(self, path):
        page = console.Page(path, PETRA)
        for fence in console.fences(page.lines):
            where = f"{path}:{fence.line}"
            self.assertIn(
                fence.kind,
                ("console", "yaml", "sh", "text", "python"),
                f"{where}: a block of no known kind",
            )
            for line in fence.lines if fence.kind == "sh" else []:
                self.assertTrue(
                    any(line.startswith(begin) for begin in NOT_RUN),
                    f"{where}: not run and not listed: {line}",
                )
            for line in fence.lines if fence.kind == "text" else []:
                self.assertFalse(
                    re.match(r"(\$ |(\S*/)?petra )", line),
                    f"{where}: a command in a text block: {line}",
                )
        page.run()
        self.assertGreater(page.count, 0, f"{path}: no command")
        self.assertEqual(
            page.problems,
            [],
            "\n" + "\n".join(page.problems) + "\n(make regen-docs writes what the commands print)",
        )
        print(f"{path}: {page.count} commands")


class Matching(unittest.TestCase):
    """What counts as the output that is shown."""

    def test_lines(self):
        self.assertIsNone(console.mismatch(["a 1", "...", "z …"], ["a 1", "b", "c", "z 5 s"]))
        self.assertIsNone(console.mismatch(["a", ""], ["a"]))
        for shown, printed in (
            (["a 1"], ["a 2"]),
            (["a"], []),
            ([], ["a"]),
            (["a", "..."], ["b"]),
            (["...", "z"], ["a"]),
            (["B0 ... ...|F1"], ["B0 ... ...|F2"]),
            (["a", "b"], ["b", "a"]),
        ):
            self.assertIsNotNone(console.mismatch(shown, printed), (shown, printed))

    def test_figures_of_one_machine(self):
        for printed in (
            ["loss 10.5, 12.5 %"],
            ["loss  -, - %"],
            ["loss nan, 1 %", "loss 2, 1 %"],
            ["loss -0.1, 1e-05 %"],
        ):
            self.assertIsNone(console.mismatch([console.ONE_MACHINE, "loss  2.31, 9 %"], printed))
        self.assertIsNotNone(console.mismatch([console.ONE_MACHINE, "loss 2.31"], ["error 2.31"]))
        self.assertIsNotNone(console.mismatch([console.ONE_MACHINE, "loss 2.31"], ["loss"]))

    def test_masks(self):
        lines = [
            "memory   93.109 MB in tensors of",
            "  memory 1 MB",
            "bubble 0.05; 1600 actions in 0.003 s",
            "a  0.5 +- 0.1",
        ]
        masked = [
            "memory   … MB in tensors of",
            "  memory 1 MB",
            "bubble 0.05; … actions in … s",
            "a  0.5 +- 0.1",
        ]
        self.assertEqual(console.masked(lines), masked)
        self.assertIsNone(console.mismatch(masked, lines))


def pages():
    yield from (
        "README.md",
        "docs/tutorial.md",
        "docs/optimiser-and-delay.md",
        "docs/reach.md",
        "docs/commands.md",
        "docs/faq.md",
        "docs/which-schedule.md",
        "docs/plan-format.md",
    )
    yield from sorted(
        os.path.relpath(path, console.SOURCE)
        for path in glob.glob(os.path.join(console.SOURCE, "docs/methods/*.md"))
    )


for page_path in pages():
    setattr(
        Pages,
        "test_" + re.sub(r"\W", "_", page_path),
        lambda self, path=page_path: self.check_page(path),
    )

if __name__ == "__main__":
    main()
