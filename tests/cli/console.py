# SPDX-License-Identifier: Apache-2.0
"""The console blocks of a Markdown page: read, run and compared.
`python3 tests/cli/console.py --update PETRA PAGE...` writes what the commands print into the pages
(`make regen-docs`, `make regen-tutorial`).

    ```console            commands behind "$ ", each followed by what it prints
    ```yaml, # NAME.yaml  a file that the commands of the page find
    ```sh                 what is not run; tests/cli/pages.py lists these commands
    ```text, ```python    neither

A shown line "..." stands for any lines, a "…" in a line for any text. Below a command whose output
begins with the line "# (figures of one machine)" words are compared, but neither numbers nor how
many lines a table has. A command that fails shows its error, the line that begins with "petra: ".
Trainings are made shorter by SHORT, but with --update.

    <!-- printed by: COMMAND -->   up to the next <!-- end --> stands what COMMAND prints, as
                                   Markdown
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.abspath(
    os.environ.get("srcdir") or os.path.join(os.path.dirname(__file__), "../..")
)
PRINTED = re.compile(r"<!-- printed by: (.+) -->")
FILE = re.compile(r"# ([\w-]+\.yaml)\b")
ONE_MACHINE = "# (figures of one machine)"
NUMBER = r"[-+]?\d[\d.:]*(?:e[-+]?\d+)?|nan|(?<=\s)-(?=[\s,]|$)"
# What is never the same twice, or differs with the kernels of a processor, as --update masks it.
VARIABLE = [
    (r"\d+ actions in \S+ s", "… actions in … s"),
    (r"(  lr \S+) +\d+ images/s .*", r"\1 …"),
    (r"^(memory +)\S+ MB in ", r"\1… MB in "),
    (r'^("(?:config|petra_version)": ").*(",)$', r"\1…\2"),
]
# Sizes in the files of a page, outside of --update. 4096 images is the tutorial, whose probes need
# some 40 microbatches.
SHORT = [
    (r"\blimit: 4096", "limit: 352"),
    (r"\blimit: (?!352\b)\d+", "limit: 128"),
    (r"\beval_limit: \d+", "eval_limit: 64"),
    (r"seeds: \[.*\]", "seeds: [1, 2]"),
]
TIMEOUT_S = 300  # of one command; the longest takes seconds


class Fence:
    """A fenced block: the number of its first line, its kind, its lines without the fences."""

    def __init__(self, line, kind):
        self.line, self.kind, self.lines = line, kind, []


class Command:
    """A command of a console block: its number of line, its text, the lines shown below it."""

    def __init__(self, line, text):
        self.line, self.text, self.shown = line, text, []


def fences(lines):
    """The fenced blocks of a page; indented fences are not known."""
    found, current = [], None
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if current is None:
                current = Fence(number + 1, line[3:].strip())
            else:
                found.append(current)
                current = None
        elif current is not None:
            current.lines.append(line)
    if current is not None:
        raise ValueError(f"line {current.line - 1}: a block without an end")
    return found


def commands(fence):
    """The commands of a console block in their order."""
    found, continued = [], False
    for number, line in enumerate(fence.lines, fence.line):
        if continued:
            found[-1].text += "\n" + line
        elif line.startswith("$ "):
            found.append(Command(number, line[2:]))
        elif not found:
            raise ValueError(f"line {number}: output without a command")
        else:
            found[-1].shown.append(line)
            continue
        continued = line.endswith("\\")
    return found


def plain(lines):
    """Lines without their figures: a number, or the - in place of one, is 0, blanks are one, and
    lines that are then the same are one."""
    found = []
    for line in lines:
        line = re.sub(r" +", " ", re.sub(NUMBER, "0", line.rstrip())).strip()
        if line not in found[-1:]:
            found.append(line)
    return found


def line_matches(shown, line):
    return (
        re.fullmatch(
            ".*".join(re.escape(part) for part in shown.rstrip().split("…")), line.rstrip()
        )
        is not None
    )


def stripped(lines):
    """Without the blank lines at the end."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def mismatch(shown, lines):
    """None, or what is wrong with the printed lines."""
    shown, lines = stripped(shown), stripped(lines)
    if shown[:1] == [ONE_MACHINE]:
        shown, lines = plain(shown[1:]), plain(lines)
    at = 0
    for index, want in enumerate(shown):
        if want == "...":
            rest = shown[index + 1 :]
            if not rest:
                return None
            while at < len(lines) and not line_matches(rest[0], lines[at]):
                at += 1
        elif at >= len(lines):
            return f"shown, not printed: {want}"
        elif not line_matches(want, lines[at]):
            return f"shown:   {want}\n    printed: {lines[at]}"
        else:
            at += 1
    return None if at == len(lines) else f"printed, not shown: {lines[at]}"


def masked(lines):
    """The lines without what VARIABLE says."""
    found = []
    for line in lines:
        for pattern, replacement in VARIABLE:
            line = re.sub(pattern, replacement, line)
        found.append(line.rstrip())
    return found


def absent(text):
    """Why a command cannot run here; None: it can."""
    if "mpirun" in text and not shutil.which("mpirun"):
        return "there is no mpirun"
    if "analysis/" in text and not importlib.util.find_spec("matplotlib"):
        return "this Python has no matplotlib"
    return None


class Page:
    """A page, run in a scratch folder of its own that has the sources' folders and build/petra."""

    def __init__(self, path, petra, short=True):
        self.path, self.petra, self.short = path, petra, short
        with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
            self.lines = file.read().split("\n")
        self.problems, self.count = [], 0

    def prepare(self, folder):
        for name in ("analysis", "docs", "experiments", "scripts"):
            os.symlink(os.path.join(SOURCE, name), os.path.join(folder, name))
        os.mkdir(os.path.join(folder, "build"))
        os.symlink(self.petra, os.path.join(folder, "build/petra"))
        os.symlink(sys.executable, os.path.join(folder, "build/python3"))
        self.environment = {
            **os.environ,
            "PATH": f"{folder}/build:{os.environ['PATH']}",
            "OMP_WAIT_POLICY": "passive",
            "MPLCONFIGDIR": f"{folder}/.matplotlib",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }
        for fence in fences(self.lines):
            name = FILE.match(fence.lines[0]) if fence.kind == "yaml" and fence.lines else None
            if name:
                text = "\n".join(fence.lines) + "\n"
                for pattern, replacement in SHORT if self.short else []:
                    text = re.sub(pattern, replacement, text)
                with open(os.path.join(folder, name.group(1)), "w", encoding="utf-8") as file:
                    file.write(text)

    def execute(self, folder, text):
        """(exit status, lines of standard output and of errors)"""
        try:
            run = subprocess.run(
                ["sh", "-c", text],
                cwd=folder,
                env=self.environment,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=TIMEOUT_S if self.short else None,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 124, [f"not done within {TIMEOUT_S} s"]
        errors = [line for line in run.stderr.splitlines() if line.startswith("petra: ")]
        if run.returncode != 0 and not errors:
            errors = run.stderr.splitlines()[-3:]
        return run.returncode, run.stdout.splitlines() + errors

    def check(self, folder, command):
        """The lines that the command printed; notes what is wrong. None: it was not run."""
        reason = absent(command.text)
        if reason:
            print(f"{self.path}:{command.line}: not run, {reason}: {command.text}")
            return None
        status, lines = self.execute(folder, command.text)
        self.count += 1
        wrong = mismatch(command.shown, lines)
        if (
            wrong is None
            and status != 0
            and not any(line.startswith("petra: ") for line in command.shown)
        ):
            wrong = f"ended with {status}"
        if wrong:
            self.problems.append(f"{self.path}:{command.line}: {command.text}\n    {wrong}")
        fresh = self.loose(command) and not self.short and "..." not in command.shown
        return lines if wrong or fresh else command.shown

    @staticmethod
    def loose(command):
        return command.shown[:1] == [ONE_MACHINE]

    def run(self):
        """Runs all; self.lines become what the page should be."""
        with tempfile.TemporaryDirectory(prefix="petra-page-") as folder:
            self.prepare(folder)
            changes = []
            for fence in fences(self.lines):
                for command in commands(fence) if fence.kind == "console" else []:
                    printed = self.check(folder, command)
                    if printed is not None and printed is not command.shown:
                        begin = command.line + command.text.count("\n")
                        mark = [ONE_MACHINE] if self.loose(command) else []
                        changes.append(
                            (begin, begin + len(stripped(command.shown)), mark + masked(printed))
                        )
            changes += self.printed(folder)
        for begin, end, lines in sorted(changes, reverse=True):
            self.lines[begin:end] = lines

    def printed(self, folder):
        """The changes of what stands between <!-- printed by --> and <!-- end -->."""
        changes = []
        for number, line in enumerate(self.lines, 1):
            match = PRINTED.fullmatch(line)
            if not match:
                continue
            if "<!-- end -->" not in self.lines[number:]:
                raise ValueError(f"line {number}: no <!-- end --> follows")
            end = self.lines.index("<!-- end -->", number)
            status, lines = self.execute(folder, match.group(1))
            self.count += 1
            if status != 0 or not lines:
                self.problems.append(
                    f"{self.path}:{number}: {match.group(1)} ended with {status}: {lines}"
                )
            elif lines != self.lines[number:end]:
                self.problems.append(f"{self.path}:{number}: not what {match.group(1)} prints")
                changes.append((number, end, lines))
        return changes

    def write(self):
        with open(os.path.join(SOURCE, self.path), "w", encoding="utf-8") as file:
            file.write("\n".join(self.lines))


def main():
    if len(sys.argv) < 4 or sys.argv[1] != "--update":
        sys.exit("usage: console.py --update PETRA PAGE...")
    for path in sys.argv[3:]:
        page = Page(path, os.path.abspath(sys.argv[2]), short=False)
        page.run()
        page.write()
        for problem in page.problems:
            print(f"changed: {problem}")
        print(f"{path}: {page.count} commands, {len(page.problems)} changed")


if __name__ == "__main__":
    main()
