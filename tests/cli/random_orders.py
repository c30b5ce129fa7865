# SPDX-License-Identifier: Apache-2.0
"""Random orders of actions (method.schedule), whatever they do late or out of turn: petra simulate has the actions and the memory of petra train, to the
nanosecond and the byte, and a run on several processes its bits.

PETRA_TEST_RANDOM=FIRST:COUNT: the first seed, and how many orders are run."""

import json
import os
import random
import shutil

from execute import petra_info_says_mpi
from program import main
from random_runs import Compared, draw, options

FIRST, COUNT = map(int, os.environ.get("PETRA_TEST_RANDOM", "1:5").split(":"))
# What an order from a file has not, or simulates without.
LEFT_OUT = ["data.recalibrate", "method.extra_delay", "method.head", "probe.per_epoch", "run.drain", "run.keep"]


class Stage:
    """What one stage has done."""

    def __init__(self):
        self.done = {kind: set() for kind in "FBW"}
        self.since_update = []  # microbatches, in the order of their B

    def note(self, kind, microbatch):
        if kind == "U":
            self.since_update = []
        else:
            self.done[kind].add(microbatch)
        if kind == "B":
            self.since_update.append(microbatch)


def choices(stages, microbatches, accumulate, fused, split, at_once):
    """What may come next: (kind, stage from 1, microbatch), at most `at_once` microbatches between F and B of stage 1."""
    for number, stage in enumerate(stages, 1):
        below, above = (stages[i].done if 0 <= i < len(stages) else None for i in (number - 2, number))
        head = above is None and fused
        come = below["F"] if below else {len(stage.done["B" if head else "F"])} & set(range(microbatches))
        if not head and (below or len(stage.done["F"]) < len(stage.done["B"]) + at_once):
            yield from (("F", number, m) for m in come - stage.done["F"])
        if len(stage.since_update) < accumulate:
            ready = come if head else stage.done["F"]
            yield from (("B", number, m) for m in (ready & above["B"] if above else ready) - stage.done["B"])
        elif not split or stage.done["W"] == stage.done["B"]:
            yield "U", number, stage.since_update[-1]
        if split:
            yield from (("W", number, m) for m in stage.done["B"] - stage.done["W"])


def draw_order(r, count, devices, *rules):
    """Lines of a file: each action comes after all that it needs."""
    stages, lines = [Stage() for _ in range(count)], [[] for _ in range(devices)]
    at_once = r.choice([1, 2, 3, 100])
    while found := sorted(choices(stages, *rules, at_once)):
        kind, stage, microbatch = r.choice(found)
        stages[stage - 1].note(kind, microbatch)
        lines[(stage - 1) % devices].append(f"{stage}{kind}{microbatch}")
    return "".join(f"{device}: {' '.join(line)}\n" for device, line in enumerate(lines, 1))


class RandomOrders(Compared):
    def accepted(self, r):
        """Settings with which the run "one" was trained, in an order of their own."""
        while True:
            settings = {key: value for key, value in draw(r).items() if key not in LEFT_OUT and not key.startswith("method.mitigation")}
            if r.random() < 0.3:
                settings.update({"method.name": "zb-h1", "method.keep": r.choice(["graph", "nothing"])})
            settings["run.eval_every"] = 0
            code, out, _ = self.run_petra("inspect", "small.yaml", *options(settings), "--json")
            if code != 0:
                continue
            stages = len(json.loads(out)["stages"])
            devices = r.choice([stages, stages, r.randint(1, stages)])
            microbatches = 3 * (settings["data.limit"] // (settings["data.batch"] * settings.get("cluster.replicas", 1)))
            self.write("random.schedule", draw_order(r, stages, devices, microbatches, settings["method.accumulate"], r.random() < 0.5,
                                                     settings["method.name"] == "zb-h1"))
            settings["method.schedule"] = "random.schedule"
            code, out, error = self.train(settings, "one")
            if code == 0:
                return settings
            self.assertEqual((code, out, len(error.splitlines()), error[:7]), (2, "", 1, "petra: "), f"{settings}: {error}")

    def test_all_agree(self):
        executes = shutil.which("mpirun") and petra_info_says_mpi()
        for seed in range(FIRST, FIRST + COUNT):
            r = random.Random(seed)
            settings = self.accepted(r)
            what = f"PETRA_TEST_RANDOM={seed}:1, {json.dumps(settings)}"
            self.simulated(settings, what)
            if executes:
                self.executed(settings, r.choice([2, 3]) * settings.get("cluster.replicas", 1), what)


if __name__ == "__main__":
    main()
