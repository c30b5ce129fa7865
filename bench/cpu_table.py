#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ticks on the CPU as a table, beside PyTorch: cpu_table.py BENCH_TICK [--peer PYTHON]
[--write bench/RESULTS.md] [--minutes 10]

Times bench_tick and, with --peer, the Python that has PyTorch, peer_pytorch_tick.py, eager and with
torch.compile: a tick of `petra` and one of `backprop`, RevNet-18 and -50, fp32 and, where the
machine has it, bf16. Each is a process of its own, one after the other, N rounds of all; printed
are medians of the rounds' medians in ms, the ratio of a tick to its convolutions alone, and the
peak of the resident memory of each process. --write puts the table in the place of the one between
the marks in that file. Nothing else should run meanwhile: threads wait as they do by default,
spinning (--wait passive where other programs run).

What is not done after --minutes is left out and said to be; of each network torch.compile comes
last, as compiling takes its time. `--prepare` only compiles what the table will need, without a
limit and without timing, so that PyTorch finds it in its cache (TORCHINDUCTOR_CACHE_DIR)."""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "peer_pytorch_tick.py")
BLOCKS = {18: 10, 50: 18}  # stages, one a block
OURS, EAGER, COMPILED = "petra", "PyTorch, eager", "PyTorch, torch.compile"


class Clock:
    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes if minutes else None

    def left(self):
        return None if self.end is None else max(0.0, self.end - time.monotonic())


def last_line(text, default):
    lines = text.strip().splitlines()
    return lines[-1] if lines else default


def run(command, clock, environment):
    """(standard output, peak of the resident memory in MB); None where it fails or does not end in
    time, which is told."""
    left = clock.left()
    name = " ".join(command)
    if left == 0:
        return None
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        child = subprocess.Popen(
            command, stdout=out, stderr=error, text=True, env=environment, start_new_session=True
        )
        end = None if left is None else time.monotonic() + left
        pid = 0
        try:
            while not pid:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if not pid and end and time.monotonic() > end:
                    print(f"left out: {name}: no time", file=sys.stderr)
                    return None
                time.sleep(0 if pid else 0.05)
        finally:
            if not pid:  # also where this script is ended
                # A session of its own: the compilers that it has started as well.
                os.killpg(child.pid, signal.SIGKILL)
                os.wait4(child.pid, 0)
                child.returncode = -signal.SIGKILL
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        error.seek(0)
        if child.returncode:
            print(f"left out: {name}: {last_line(error.read(), child.returncode)}", file=sys.stderr)
            return None
        return out.read(), usage.ru_maxrss * 1024 / 1e6


def ours(o, job, clock, environment):
    depth, width, precision, method = job
    # From the first loss on: until all stages have something to do.
    warmup = BLOCKS[depth] if method == "petra" else 3
    command = [o.bench_tick, "--ticks", str(o.ticks), "--warmup", str(warmup)]
    for setting in (
        f"model.width={width}",
        f"model.depth={depth}",
        f"device.precision={precision}",
        f"method.name={method}",
        f"data.batch={o.batch}",
        f"device.threads={o.threads}",
    ):
        command += ["--set", setting]
    found = run(command, clock, environment)
    if not found:
        return None
    lines = found[0].splitlines()
    o.backend = lines[0].split("; ", 1)[1]
    medians = {line[:34].strip(): float(line[34:].split()[1]) for line in lines[2:]}
    # The convolutions are those of `petra`, which does each forward twice.
    return (
        medians["tick, ms"],
        medians["tick / convolutions"] if method == "petra" else None,
        found[1],
    )


def peer(o, job, clock, environment, compiled):
    depth, width, precision, method = job
    ticks = [
        "--ticks",
        "1",
        "--blocks",
        "1" if o.prepare else str(o.ticks),
        "--warmup",
        "1" if o.prepare else "3",
    ]
    command = [
        o.peer,
        "-W",
        "ignore",
        "-B",
        PEER,
        "--device",
        "cpu",
        "--batches",
        str(o.batch),
        "--precisions",
        precision,
        "--width",
        str(width),
        "--depth",
        str(depth),
        "--method",
        method,
        "--filled",
    ] + ticks
    found = run(command + ["--compile"] * compiled, clock, environment)
    match = found and re.search(r"ms=([\d.]+)", found[0])
    if not match:
        return None
    o.pytorch = re.search(r"PyTorch ([^,]+)", found[0]).group(1)
    return float(match.group(1)), None, found[1]


def measure(o, clock):
    """{job: {who: (ms, ratio to the convolutions or None, MB)}}."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(o.threads), "OMP_WAIT_POLICY": o.wait}
    if o.wait == "default":
        del environment["OMP_WAIT_POLICY"]
    jobs = [
        (depth, width, precision, method)
        for depth in o.depths
        for width in o.widths
        for precision in ("fp32", "bf16")
        for method in ("petra", "backprop")
    ]
    found = {job: {} for job in jobs}
    first = [] if o.prepare else [OURS, EAGER] if o.peer else [OURS]
    phases = [
        (depth, names)
        for depth in o.depths
        for names in (first, [COMPILED] if o.peer and o.compile else [])
    ]
    order = [
        (job, who) for depth, names in phases for job in jobs if job[0] == depth for who in names
    ]
    for job, who in o.rounds * order:
        one = (
            ours(o, job, clock, environment)
            if who == OURS
            else peer(o, job, clock, environment, who == COMPILED)
        )
        if one:
            found[job].setdefault(who, []).append(one)
    return {
        job: {
            who: tuple(
                None if column[0] is None else statistics.median(column) for column in zip(*rows)
            )
            for who, rows in by.items()
        }
        for job, by in found.items()
    }


def cells(job, by, rival):
    mine, other = by.get(OURS), by.get(rival)
    if not other:
        return ["not measured", "", ""]
    return [f"{other[0]:.1f}", f"{other[0] / mine[0]:.2f}" if mine else "", f"{other[2]:.0f}"]


def table(o, found):
    commit = subprocess.run(
        ["git", "-C", HERE, "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    rounds = f"{o.rounds} round{'s' * (o.rounds > 1)}, each the median of {o.ticks} ticks"
    lines = [
        (
            f"{o.threads} thread{'s' * (o.threads > 1)}, batch {o.batch}, {rounds}; commit"
            f" {commit or 'not known'};"
            f" {o.backend or 'bench_tick did not run'}"
            f"{f'; PyTorch {o.pytorch}' if o.pytorch else '; without PyTorch'}."
            " Ratio: PyTorch's time over petra's. MB: peak of the process's resident memory."
        ),
        "",
    ]
    head = ["network", "width", "precision", "tick of", "ms", "over its convolutions", "MB"]
    for who in (EAGER, COMPILED) if o.peer else ():
        head += [f"{who}: ms", "ratio", "MB"]
    lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for job, by in found.items():
        depth, width, precision, method = job
        mine = by.get(OURS)
        row = [f"RevNet-{depth}", str(width), precision, f"`{method}`"]
        row += (
            [f"{mine[0]:.1f}", "" if mine[1] is None else f"{mine[1]:.2f}", f"{mine[2]:.0f}"]
            if mine
            else ["not measured", "", ""]
        )
        for who in (EAGER, COMPILED) if o.peer else ():
            row += cells(job, by, who)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def replace_between_marks(path, name, text):
    """Puts the text between the marks of the script `name` in a page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise SystemExit(f"{name}: {path}: expected the marks {begin} and {end}, each once")
    first, rest = page.split(begin)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{first}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bench_tick")
    parser.add_argument("--peer", help="a Python that has PyTorch")
    parser.add_argument(
        "--write", metavar="FILE", help="a page with the marks, such as bench/RESULTS.md"
    )
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--prepare", action="store_true", help="only compiles")
    parser.add_argument("--wait", default="default", choices=("default", "active", "passive"))
    parser.add_argument("--minutes", default=10, type=float, help="0: no limit")
    for name, value in ("widths", "16,64"), ("depths", "18,50"):
        parser.add_argument(
            f"--{name}", default=value, type=lambda text: [int(word) for word in text.split(",")]
        )
    for name, value in (
        ("rounds", 1),
        ("ticks", 3),
        ("batch", 64),
        ("threads", len(os.sched_getaffinity(0))),
    ):
        parser.add_argument(f"--{name}", default=value, type=int)
    o = parser.parse_args()
    o.bench_tick, o.backend, o.pytorch = os.path.abspath(o.bench_tick), None, None
    if (
        o.peer
        and subprocess.run(
            [o.peer, "-W", "ignore", "-c", "import torch"], capture_output=True, check=False
        ).returncode
    ):
        print(f"cpu_table: {o.peer} has no PyTorch: no comparison", file=sys.stderr)
        o.peer = None
    return o


def main():
    o = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = measure(o, Clock(0 if o.prepare else o.minutes))
    if o.prepare:
        return
    text = table(o, found)
    print(text)
    if o.write:
        replace_between_marks(o.write, "cpu_table.py", text)


if __name__ == "__main__":
    main()
