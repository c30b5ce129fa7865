# SPDX-License-Identifier: Apache-2.0
"""cluster.placement in petra simulate: ranks of several stages, held against a replay of the order
written again here; a profile whose link was measured."""

import random

import h5py
import numpy

from program import ProgramTest, main

KINDS = "FBWUE"
CASES = [
    ("petra", []),
    (
        "petra",
        ["--set", "method.accumulate=3", "--set", "method.head=split", "--set", "run.drain=true"],
    ),
    ("backprop", []),
    ("1f1b", ["--set", "method.accumulate=8"]),
    ("zb-h1", ["--set", "method.accumulate=8"]),
    ("gpipe-checkpoint", ["--set", "method.accumulate=8", "--set", "method.early_recompute=true"]),
    ("ddg", []),
    ("pipedream", []),
    ("delayed", ["--set", "cluster.engines=2"]),
]


def replay(rows, rank_of, duration, transmission, latency):
    """[(start, end)] of actions in the order in which all ranks go through them: each rank does its
    own in turn, and waits for messages alone. rows: (stage, kind, microbatch); transmission(stage,
    to): of a message, which waits until the line is free."""
    last, free, line, come, times = max(row[0] for row in rows), {}, {}, {}, []
    heads = {m for stage, kind, m in rows if stage == last and kind == "F"}
    for stage, kind, m in rows:
        rank, start = rank_of[stage], 0
        if kind == "F" or (kind == "B" and stage == last and m not in heads):
            start = come.get((stage, "up", m), 0)
            assert stage == 1 or (stage, "up", m) in come
        elif kind == "B" and stage < last:
            start = come[stage, "down", m]
        start = max(start, free.get(rank, 0))
        end = free[rank] = start + duration[stage, kind, m]
        times.append((start, end))
        to = {"F": stage + 1, "B": stage - 1}.get(kind, 0)
        if 1 <= to <= last and not (kind == "F" and stage == last):
            there, way = end, (rank, rank_of[to])
            if rank != rank_of[to]:
                line[way] = max(line.get(way, 0), end) + transmission(stage, to)
                there = line[way] + latency
            come[to, "up" if to > stage else "down", m] = there
    return times


class Placement(ProgramTest):
    def trace(self, name, *options):
        found = self.good_json(
            "simulate", "small.yaml", *options, "--set", "run.trace_actions=true", "--output", name
        )
        with h5py.File(self.path(f"{name}/run.h5"), "r") as file:
            trace = file["trace/actions"]
            rows = list(
                zip(
                    trace["stage"][:].tolist(),
                    [KINDS[k] for k in trace["kind"][:]],
                    trace["microbatch"][:].tolist(),
                )
            )
            times = list(zip(trace["start_ns"][:].tolist(), trace["end_ns"][:].tolist()))
            versions = dict(
                zip(
                    rows,
                    zip(trace["version_read"][:].tolist(), trace["version_written"][:].tolist()),
                )
            )
            stages = {
                name: file["model/stages"][name] for name in ("forward_bytes", "backward_bytes")
            }
        return found, rows, times, versions, stages

    def test_against_a_replay(self):
        draw = random.Random(5)
        common = [
            "--set",
            "cluster.jitter.model=gamma",
            "--set",
            "cluster.jitter.scale=0.4",
            "--set",
            "run.max_microbatches=40",
            "--set",
            "cluster.link.latency_s=0.25",
            "--set",
            "cluster.link.bandwidth_Bps=1e5",
            "--set",
            "cluster.cost.model=constant",
            "--set",
            "cluster.cost.update_s=0.5",
            "--set",
            "run.eval_every=0",
        ]
        for method, options in CASES:
            options = [*common, "--set", f"method.name={method}", *options]
            _, rows, times, versions, bytes_of = self.trace("free", *options)
            duration = {row: end - start for row, (start, end) in zip(rows, times)}
            if "method.early_recompute=true" in options:  # which no process does: as without
                _, plain, plain_times, _, _ = self.trace(
                    "plain", *options, "--set", "method.early_recompute=false"
                )
                duration = {row: end - start for row, (start, end) in zip(plain, plain_times)}
            for _ in range(2):
                cuts = sorted(draw.sample(range(1, 10), draw.randrange(0, 5)))
                placement = [b - a for a, b in zip([0, *cuts], [*cuts, 10])]
                rank_of = {stage: sum(stage > cut for cut in cuts) for stage in range(1, 11)}

                def transmission(stage, to):
                    size = bytes_of["forward_bytes" if to > stage else "backward_bytes"][stage - 1]
                    return round(1e9 * int(size) / 1e5)

                expected = dict(zip(rows, replay(rows, rank_of, duration, transmission, 250000000)))
                found, placed, placed_times, placed_versions, _ = self.trace(
                    "placed", *options, "--set", f"cluster.placement={placement}"
                )
                self.assertEqual(dict(zip(placed, placed_times)), expected, (method, placement))
                self.assertEqual(placed_versions, versions)
                end = max(end for _, end in expected.values())
                self.assertEqual(found["makespan_ns"], end)
                busy = [
                    sum(e - s for row, (s, e) in expected.items() if rank_of[row[0]] == r) / end
                    for r in range(len(placement))
                ]
                self.assertEqual([rank["stages"] for rank in found["ranks"]], placement)
                numpy.testing.assert_allclose(
                    [rank["busy"] for rank in found["ranks"]], busy, rtol=1e-12
                )
                with h5py.File(self.path("placed/run.h5"), "r") as file:
                    self.assertEqual(file["simulate/of_stage"][:].tolist(), list(rank_of.values()))
                    numpy.testing.assert_allclose(file["simulate/rank_busy"][:], busy, rtol=1e-12)

    def without_buffers(self, found, bytes_of):
        """Takes from the memory of ten processes two buffers for each message that is sent and four
        for each that comes; each has 128 bytes of its own."""
        up, down = (
            [int(size) + 128 for size in bytes_of[f"{way}_bytes"]]
            for way in ("forward", "backward")
        )
        for j, stage in enumerate(found["stages"]):
            held = (2 * up[j] + 4 * down[j + 1] if j < 9 else 0) + (
                4 * up[j - 1] + 2 * down[j] if j > 0 else 0
            )
            stage["peak_bytes"]["messages"] -= held
            stage["peak_bytes"]["total"] -= held

    def test_one_stage_each_is_as_without(self):
        # Neither engines, locks nor early recomputation.
        for method in (
            "petra",
            "1f1b",
            "pipedream",
        ):
            options = [
                "--set",
                f"method.name={method}",
                "--set",
                "method.accumulate=4",
                "--set",
                "cluster.link.latency_s=0.1",
            ]
            free, *expected, bytes_of = self.trace("free", *options)
            placed, *found, _ = self.trace(
                "placed", *options, "--set", f"cluster.placement={[1] * 10}"
            )
            self.assertEqual(found, expected)
            for run in placed, free:
                for device, stage in zip(run["devices"], run["stages"]):
                    self.assertEqual(device.pop("peak_bytes"), stage["peak_bytes"]["total"])
            self.without_buffers(placed, bytes_of)
            totals = [
                sum(stage["peak_bytes"]["total"] for stage in run["stages"])
                for run in (placed, free)
            ]
            (self.assertEqual if method == "petra" else self.assertGreater)(*totals, method)
            for number, (apart, together) in enumerate(zip(placed["stages"], free["stages"])):
                # What is kept and sent is there twice.
                kept = {"graph", "total", "messages"} if method != "petra" else set()
                for category in apart["peak_bytes"].keys() - kept:
                    self.assertEqual(
                        apart["peak_bytes"][category],
                        together["peak_bytes"][category],
                        (method, number, category),
                    )
                del apart["peak_bytes"], together["peak_bytes"]
            self.assertEqual(
                {**placed, "ranks": [], "link": None, "wall_s": 0}, {**free, "wall_s": 0}
            )

    def test_interleaved(self):
        options = [
            "--set",
            "method.name=interleaved",
            "--set",
            "method.accumulate=5",
            "--set",
            "run.max_microbatches=20",
        ]
        _, rows, times, _, _ = self.trace("free", *options)
        duration = {row: end - start for row, (start, end) in zip(rows, times)}
        # Five devices of two stages.
        rank_of = {stage: int((stage - 1) % 5 >= 2) for stage in range(1, 11)}
        _, placed, found, _, _ = self.trace("placed", *options, "--set", "cluster.placement=[2, 3]")
        self.assertEqual(
            dict(zip(placed, found)),
            dict(zip(rows, replay(rows, rank_of, duration, lambda stage, to: 0, 0))),
        )

    def test_what_is_refused(self):
        for words, *options in [
            [
                "cluster.placement=[4, 4]: the numbers sum to 8; expected 10, the stages",
                "--set",
                "cluster.placement=[4, 4]",
            ],
            [
                "cluster.placement=[10, 1]: the numbers sum to 11; expected 10",
                "--set",
                "cluster.placement=[10, 1]",
            ],
            [
                "with method petra-arrival, which has no fixed order",
                "--set",
                "cluster.placement=[4, 6]",
                "--set",
                "method.name=petra-arrival",
            ],
        ]:
            self.bad(2, words, "simulate", "small.yaml", *options)


class Link(ProgramTest):
    def setUp(self):
        super().setUp()
        self.good(
            "profile",
            "small.yaml",
            "--set",
            "profile.repetitions=1",
            "--set",
            "profile.warmup=0",
            "--output",
            "p.h5",
            "--quiet",
        )
        self.priced = [
            "small.yaml",
            "--set",
            "cluster.cost.model=profile",
            "--set",
            "cluster.cost.profile=p.h5",
            "--set",
            "run.max_microbatches=60",
            "--set",
            "run.eval_every=0",
        ]

    def change(
        self,
        times=(0.001, 0.003, 0.009),
        sizes=(64, 1064, 4064),
        pack=0.0,
        unpack=0.0,
        spread=(0.5, 1, 2),
        alone=None,
        carry=None,
    ):
        """Costs of round numbers in place of the measured ones, and a link. alone: times of
        messages with nothing the other way, and by how much faster stages are while the other
        process waits."""
        with h5py.File(self.path("p.h5"), "r+") as file:
            for part, seconds in (
                ("forward", 0.010),
                ("backward", 0.020),
                ("reconstruct", 0.005),
                ("weight_gradient", 0.010),
                ("update", 0.001),
            ):
                file["stages"][part][...] = seconds
                file["spread"][part][...] = [
                    [
                        seconds * spread[0] / 2,
                        seconds * spread[0],
                        seconds,
                        seconds * spread[2],
                        seconds * spread[2] * 2,
                    ]
                ] * 10
            if "link" in file:
                del file["link"]
            file.attrs["ranks"] = numpy.int32(2)
            file["link/bytes"] = numpy.array(sizes, dtype="i8")
            file["link/time"] = [
                [t * spread[0] / 2, t * spread[0], t, t * spread[2], t * spread[2] * 2, t]
                for t in times
            ]
            if "alone" in file:
                del file["alone"]
            if alone:
                file["link/alone"] = [
                    [t * spread[0] / 2, t * spread[0], t, t * spread[2], t * spread[2] * 2, t]
                    for t in alone[0]
                ]
                for part in file["stages"]:
                    if part in file["spread"]:
                        file[f"alone/{part}"] = file["stages"][part][:] * alone[1]
            file["link/pack"] = [pack] * len(times)
            file["link/unpack"] = [unpack] * len(times)
            if carry is not None:
                file["link/carry"] = [carry] * len(times)
        self.unseal("p.h5")

    def simulate(self, *options):
        return self.good_json("simulate", *self.priced, *options)

    def test_times_of_messages(self):
        self.change()
        sequential = ["--set", "method.name=backprop", "--set", "cluster.placement=[4, 6]"]
        stage = self.good_json("inspect", *self.priced, "--set", "method.name=backprop")["stages"]

        def line(size):
            return 0.001 + (min(size, 1064) - 64) * 2e-6 + max(0, size - 1064) * 2e-6

        there = line(stage[3]["forward_bytes"]) + line(stage[4]["backward_bytes"])
        found = self.simulate(*sequential)
        self.assertEqual(found["link"], "profile")
        header = self.good(
            "simulate",
            *self.priced,
            *sequential,
            "--set",
            "cluster.stragglers.stages=[2]",
            "--set",
            "cluster.stragglers.factor=3",
        )
        self.assertIn(
            "(p.h5); cluster.stragglers.stages: [2], cluster.stragglers.factor: 3\n"
            "links    as the profile measured between processes",
            header,
        )
        # F and B of ten stages, one after the other, and all updates but that of stage 5, which
        # comes when its B has sent its message; the two messages in between.
        self.assertAlmostEqual(
            found["time_per_microbatch_s"], 10 * 0.030 + 9 * 0.001 + there, delta=1e-5
        )
        without = self.simulate(*sequential, "--set", "cluster.link.bandwidth_Bps=1e15")
        self.assertEqual(without["link"], "config")
        self.assertAlmostEqual(
            found["time_per_microbatch_s"] - without["time_per_microbatch_s"], there, places=6
        )
        inside = self.simulate("--set", "method.name=backprop", "--set", "cluster.placement=[10]")
        # All updates, no message.
        self.assertAlmostEqual(inside["time_per_microbatch_s"], 0.310, places=8)
        self.change(pack=0.002, unpack=0.0005)  # twice each
        self.assertAlmostEqual(
            self.simulate(*sequential)["time_per_microbatch_s"] - found["time_per_microbatch_s"],
            0.005,
            places=6,
        )
        self.change(carry=0.003)  # at both ends of both messages
        self.assertAlmostEqual(
            self.simulate(*sequential)["time_per_microbatch_s"] - found["time_per_microbatch_s"],
            0.012,
            places=6,
        )

    def test_alone(self):
        """One process at a time: all takes what it takes alone. Together: between the two, by how
        much they overlap."""
        sequential = ["--set", "method.name=backprop", "--set", "cluster.placement=[4, 6]"]
        stage = self.good_json("inspect", *self.priced, "--set", "method.name=backprop")["stages"]

        def line(size):
            return 0.001 + (min(size, 1064) - 64) * 1e-6 + max(0, size - 1064) * 1e-6

        self.change(alone=((0.001, 0.002, 0.005), 0.8))
        there = line(stage[3]["forward_bytes"]) + line(stage[4]["backward_bytes"])
        found = self.simulate(*sequential)
        self.assertAlmostEqual(
            found["time_per_microbatch_s"], 0.8 * (10 * 0.030 + 9 * 0.001) + there, delta=1e-5
        )
        # The updates of the upper stages alone go on while the lower ones begin; quartiles as
        # before.
        self.assertAlmostEqual(
            found["time_per_microbatch_low_s"], found["time_per_microbatch_s"] / 2, delta=1e-5
        )
        self.assertAlmostEqual(
            found["time_per_microbatch_high_s"], 2 * found["time_per_microbatch_s"], delta=1e-5
        )
        # The other process waits, and its core carries.
        self.change(alone=((0.001, 0.002, 0.005), 0.8), carry=0.003)
        self.assertAlmostEqual(
            self.simulate(*sequential)["time_per_microbatch_s"],
            found["time_per_microbatch_s"],
            delta=5e-5,
        )
        times, busy = {}, {}
        for placement in [5, 5], [9, 1]:
            for name, alone in (
                ("together", None),
                ("alone", ((0.001, 0.003, 0.009), 0.8)),
                ("same", ((0.001, 0.003, 0.009), 1)),
            ):
                self.change(alone=alone)
                found = self.simulate("--set", f"cluster.placement={placement}")
                times[placement[0], name], busy[placement[0], name] = (
                    found["time_per_microbatch_s"],
                    found["ranks"][1]["busy"],
                )
            self.assertEqual(times[placement[0], "same"], times[placement[0], "together"])
        # Of nine stages and one the first process computes all the time, and the other with it for
        # `busy` of that.
        share = busy[9, "alone"]
        self.assertLess(share, 0.15)
        self.assertAlmostEqual(
            times[9, "alone"] / times[9, "together"], 0.8 + 0.2 * share, delta=0.002
        )
        self.assertGreater(times[5, "alone"] / times[5, "together"], 0.97)
        self.assertLess(times[5, "alone"], times[5, "together"])

    def test_interval(self):
        self.change()
        for options in (
            ["--set", "cluster.placement=[4, 6]"],
            [
                "--set",
                "method.name=1f1b",
                "--set",
                "method.accumulate=6",
                "--set",
                "cluster.placement=[2, 8]",
            ],
            [],
        ):
            found = self.simulate(*options)
            middle = found["time_per_microbatch_s"]
            self.assertAlmostEqual(found["time_per_microbatch_low_s"], middle / 2, delta=1e-7)
            self.assertAlmostEqual(found["time_per_microbatch_high_s"], 2 * middle, delta=1e-7)
        # Where nothing scatters, several processes still do what is in no profile.
        with h5py.File(self.path("p.h5"), "r+") as file:
            for name, spread in file["spread"].items():
                spread[:] = file[f"stages/{name}"][:][:, None]
            file["link/time"][:] = file["link/time"][:][:, 5:]
            if "alone" in file["link"]:
                file["link/alone"][:] = file["link/alone"][:][:, 5:]
        for options, wider in (["--set", "cluster.placement=[4, 6]"], 1 / 0.9), ([], 1):
            found = self.simulate(*options)
            self.assertAlmostEqual(
                found["time_per_microbatch_low_s"], found["time_per_microbatch_s"], delta=1e-7
            )
            self.assertAlmostEqual(
                found["time_per_microbatch_high_s"],
                wider * found["time_per_microbatch_s"],
                delta=1e-7,
            )
        with h5py.File(self.path("p.h5"), "r+") as file:
            del file["spread"]
        self.assertIsNone(self.simulate()["time_per_microbatch_low_s"])
        self.assertIsNone(self.good_json("simulate", "small.yaml")["time_per_microbatch_low_s"])

    def test_broken_links_are_refused(self):
        self.bad(
            2,
            "fair with the measured link of the profile",
            "simulate",
            *self.with_link(),
            "--set",
            "cluster.link.sharing=fair",
            "--set",
            "cluster.placement=[4, 6]",
        )
        whole = self.read("p.h5")
        for change, words in [
            (
                lambda f: f["link/time"].__setitem__((1, 2), -1.0),
                "/link/time: -1 s for message 2; expected 0 ..",
            ),
            (
                lambda f: f["link/pack"].__setitem__(0, float("nan")),
                "/link/pack: nan s for message 1; expected 0 ..",
            ),
            (
                lambda f: f["link"].__setitem__("carry", [0.0, 1.0]),
                "/link/carry has 2 values; expected 3",
            ),
            (
                lambda f: f["link/bytes"].__setitem__(1, 64),
                "/link/bytes: message 2: expected rising sizes",
            ),
            (
                lambda f: f["link/bytes"].__setitem__(0, 0),
                "/link/bytes: 0 for message 1; expected 1 or more",
            ),
            (
                lambda f: f["link"].__delitem__("time"),
                "no data set /link/time; expected a cost profile",
            ),
            (
                lambda f: f["link"].__setitem__("alone", [1.0, 2.0, 3.0]),
                "/link/alone has another shape or type",
            ),
            (
                lambda f: f["link"].__setitem__("alone", f["link/time"][:]),
                "no group /alone; expected a cost profile",
            ),
            (
                lambda f: f["link"].__delitem__("bytes"),
                "no data set /link/bytes; expected a cost profile",
            ),
            (lambda f: f.attrs.__delitem__("ranks"), "no attribute ranks"),
            (
                lambda f: f["spread/update"].__setitem__((0, 1), float("nan")),
                "/spread/update: nan s for stage 1; expected a finite number",
            ),
        ]:
            self.write("p.h5", whole)
            with h5py.File(self.path("p.h5"), "r+") as file:
                change(file)
            self.unseal("p.h5")
            self.bad(1, ["p.h5: ", words], "simulate", *self.priced)

    def with_link(self):
        self.change()
        return self.priced


if __name__ == "__main__":
    main()
