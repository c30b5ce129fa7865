# SPDX-License-Identifier: Apache-2.0
"""Random orders of actions (method.schedule), whatever they do late or out of turn: petra simulate
has the actions and the memory of petra train, to the nanosecond and the byte, and a run on several
processes its bits.

PETRA_TEST_RANDOM=FIRST:COUNT: the first seed, and how many orders are run."""

import json
import os
import random
import shutil

from execute import petra_info_says_mpi
from orders import draw_order
from program import SANITIZED, main
from random_runs import Compared, draw, options

FIRST, COUNT = map(
    int, os.environ.get("PETRA_TEST_RANDOM", "1:2" if SANITIZED else "1:5").split(":")
)
# What an order from a file has not, or simulates without.
LEFT_OUT = [
    "data.recalibrate",
    "method.extra_delay",
    "method.head",
    "probe.per_epoch",
    "run.drain",
    "run.keep",
]


class RandomOrders(Compared):
    def accepted(self, r):
        """Settings with which the run "one" was trained, in an order of their own."""
        while True:
            settings = {
                key: value
                for key, value in draw(r).items()
                if key not in LEFT_OUT and not key.startswith("method.mitigation")
            }
            if r.random() < 0.3:
                settings.update(
                    {"method.name": "zb-h1", "method.keep": r.choice(["graph", "nothing"])}
                )
            settings["run.eval_every"] = 0
            code, out, _ = self.run_petra("inspect", "small.yaml", *options(settings), "--json")
            if code != 0:
                continue
            stages = len(json.loads(out)["stages"])
            devices = r.choice([stages, stages, r.randint(1, stages)])
            microbatches = 3 * (
                settings["data.limit"]
                // (settings["data.batch"] * settings.get("cluster.replicas", 1))
            )
            self.write(
                "random.schedule",
                draw_order(
                    r,
                    stages,
                    devices,
                    microbatches,
                    settings["method.accumulate"],
                    r.random() < 0.5,
                    settings["method.name"] == "zb-h1",
                ),
            )
            settings["method.schedule"] = "random.schedule"
            code, out, error = self.train(settings, "one")
            if code == 0:
                return settings
            self.assertEqual(
                (code, out, len(error.splitlines()), error[:7]),
                (2, "", 1, "petra: "),
                f"{settings}: {error}",
            )

    def test_all_agree(self):
        executes = shutil.which("mpirun") and petra_info_says_mpi()
        for seed in range(FIRST, FIRST + COUNT):
            r = random.Random(seed)
            settings = self.accepted(r)
            what = f"PETRA_TEST_RANDOM={seed}:1, {json.dumps(settings)}"
            self.simulated(settings, what)
            if executes:
                self.executed(
                    settings, r.choice([2, 3]) * settings.get("cluster.replicas", 1), what
                )


if __name__ == "__main__":
    main()
