#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of a microbatch on several processes, predicted from a profile and measured:
predicted.py [PETRA] [--runs=N] [--draw]. Writes predicted.csv and predicted.png beside itself;
--draw makes the figure from the existing table. Exit status 1 if a run fails; the figures are not
checked."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

CONFIG = os.path.join(HERE, "revnet18.yaml")
TABLE, FIGURE = (os.path.join(HERE, "predicted" + ending) for ending in (".csv", ".png"))
RUNS = next((int(word[7:]) for word in sys.argv if word.startswith("--runs=")), 10)
RANKS = 2
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_WAIT_POLICY": "passive",
    "OMPI_MCA_btl_base_warn_component_unused": "0",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
# Two hosts of this machine, with 1 Gbit/s in each direction and, if the kernel can delay, 1 ms.
TWO_HOSTS = os.path.join(HERE, "two_hosts.sh")
DELAYED, LIMITED = "netem delay 1ms rate 1gbit limit 100000", "tbf rate 1gbit burst 64kb limit 64mb"
TCP = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_btl_tcp_if_include": "10.9.0.0/24",
}
CASES = [("balanced", []), ("unbalanced", ["--set", "cluster.placement=[7, 3]"]), ("slow link", [])]


def discipline():
    """Returns the tc discipline of a slow link; None if rights or programs are missing, with a line
    that says so."""
    for words in DELAYED, LIMITED:
        tried = subprocess.run(
            [TWO_HOSTS, words, "true"], stderr=subprocess.PIPE, text=True, check=False
        )
        if tried.returncode == 0:
            print(f"slow link: tc {words}")
            return words
    print("slow link: skipped:", tried.stderr.strip().splitlines()[-1])
    return None


def mpirun(ranks, arguments, slow=None):
    command = ["mpirun", "-n", str(ranks), os.path.abspath(sim.PETRA), *arguments, "--quiet"]
    if slow:
        command[3:3] = ["--host", "10.9.0.1,10.9.0.2"]
        command = [TWO_HOSTS, slow, *command]
    run = subprocess.run(
        command,
        env={**os.environ, **MPI, **(TCP if slow else {})},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    if run.returncode:
        sys.exit(f"{' '.join(command)}\n{run.stderr}")


def row(case, number, folder):
    pace = sim.petra("inspect", folder)["pace"]
    found = {
        "case": case,
        "run": number,
        **{
            f"{name}_s": pace["microbatch_s"][name]
            for name in ("measured", "predicted", "low", "high")
        },
    }
    for key in "measured", "predicted":
        found[f"busy_{key}"] = " ".join(f"{rank[key]:.3f}" for rank in pace["ranks"])
    print(json.dumps(found), flush=True)
    return found


def compute():
    """Measures; makes a profile before every run, because the speed of the machine drifts."""
    rows, slow = [], discipline()
    with tempfile.TemporaryDirectory() as folder:
        profile, out = os.path.join(folder, "p.h5"), os.path.join(folder, "run")
        for number in range(1, RUNS + 1):
            for case, options in CASES:
                link = slow if case == "slow link" else None
                if case == "slow link" and not slow:
                    continue
                mpirun(RANKS, ["profile", CONFIG, "--output", profile], link)
                mpirun(
                    RANKS,
                    [
                        "train",
                        CONFIG,
                        "--overwrite",
                        "--set",
                        "run.mode=execute",
                        "--set",
                        f"cluster.cost.profile={profile}",
                        *options,
                        "--output",
                        out,
                    ],
                    link,
                )
                rows.append(row(case, number, out))
    sim.write_table(
        TABLE, [{key: value if value is not None else "" for key, value in r.items()} for r in rows]
    )


def ratios(rows, case):
    return [r["predicted_s"] / r["measured_s"] for r in rows if r["case"] == case]


def cases_of(rows):
    return list(dict.fromkeys(r["case"] for r in rows))


def tables(rows):
    body = []
    for case in cases_of(rows):
        own, ratio = [r for r in rows if r["case"] == case], ratios(rows, case)
        inside = sum(bool(r["low_s"]) and r["low_s"] <= r["measured_s"] <= r["high_s"] for r in own)
        measured, predicted = (
            f"{1e3 * statistics.median(r[key] for r in own):.2f}"
            for key in ("measured_s", "predicted_s")
        )
        body.append(
            [
                case,
                len(own),
                measured,
                predicted,
                f"{statistics.median(ratio):.3f}",
                f"{100 * statistics.median(abs(x - 1) for x in ratio):.1f} %",
                inside,
            ]
        )
    sim.markdown(
        [
            "case",
            "runs",
            "measured ms",
            "predicted ms",
            "predicted / measured, median",
            "median error",
            "within the interval",
        ],
        body,
    )


def draw(rows):
    plt = sim.pyplot()
    cases = cases_of(rows)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    edge = 1.1e3 * max([r["measured_s"] for r in rows] + [r["predicted_s"] for r in rows])
    left.plot([0, edge], [0, edge], color="0.6", linewidth=1, zorder=0)
    for case in cases:
        own, place = [r for r in rows if r["case"] == case], cases.index(case)
        spread = [
            [1e3 * max(0, r["predicted_s"] - r["low_s"]) for r in own],
            [1e3 * max(0, r["high_s"] - r["predicted_s"]) for r in own],
        ]
        left.errorbar(
            [1e3 * r["measured_s"] for r in own],
            [1e3 * r["predicted_s"] for r in own],
            spread,
            fmt=sim.MARKERS[place],
            markersize=5,
            elinewidth=0.7,
            color=sim.COLOURS[place],
            label=case,
        )
    left.set(
        xlim=(0, edge),
        ylim=(0, edge),
        xlabel="measured (ms a microbatch)",
        ylabel="predicted (ms a microbatch)",
        title="Each run a point; bars: quartiles of the profile's times; line: equal",
    )
    handles, labels = left.get_legend_handles_labels()
    right.axhspan(0.9, 1.1, color="0.92", zorder=0)
    right.axhline(1, color="0.6", linewidth=1, zorder=0)
    for place, case in enumerate(cases):
        ratio = ratios(rows, case)
        right.scatter(
            [place + 0.04 * (i - (len(ratio) - 1) / 2) for i in range(len(ratio))],
            ratio,
            s=22,
            marker=sim.MARKERS[place],
            color=sim.COLOURS[place],
        )
    right.set_xticks(
        range(len(cases)),
        [c.replace(" link", "\nlink") for c in cases],
        fontsize=8,
    )
    right.set(
        ylabel="predicted / measured (1)",
        title="The same runs; band: 10 %",
        ylim=(
            min(0.5, *(min(ratios(rows, c)) for c in cases)) - 0.05,
            max(1.3, *(max(ratios(rows, c)) for c in cases)) + 0.05,
        ),
    )
    sim.legend_below(figure, handles, labels, len(labels))
    sim.save(figure, FIGURE)


def main():
    if not sim.DRAW_ONLY:
        compute()
    rows = sim.read_table(TABLE)
    tables(rows)
    if not sim.TABLES_ONLY:
        draw(rows)


if __name__ == "__main__":
    main()
