#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peer_simpy.py J M: the pipeline of peer_petra with SimPy (3 or later): a process a stage, an
event a message. Prints what peer_petra prints. Exit status 77: no SimPy."""

import sys
import time

try:
    import simpy
except ImportError:
    sys.exit(77)

FORWARD_NS, BACKWARD_NS, UPDATE_NS = 1000003, 2000029, 1009


def stage(env, j, stages, microbatches, up, down, count):
    """Stage j, from 0; up[j][m] and down[j][m]: the message of microbatch m has come from below,
    from above."""
    ahead = min(stages - 1 - j, microbatches)
    for slot in range(microbatches + ahead):
        if slot < microbatches:
            if j > 0:
                yield up[j][slot]
            yield env.timeout(FORWARD_NS)
            count[0] += 1
            if j + 1 < stages:
                up[j + 1][slot].succeed()
        if slot >= ahead:
            if j + 1 < stages:
                yield down[j][slot - ahead]
            yield env.timeout(BACKWARD_NS)
            count[0] += 1
            if j > 0:
                down[j - 1][slot - ahead].succeed()
    yield env.timeout(UPDATE_NS)
    count[0] += 1


def main():
    stages, microbatches = int(sys.argv[1]), int(sys.argv[2])
    env, count = simpy.Environment(), [0]
    up, down = (
        [[env.event() for _ in range(microbatches)] for _ in range(stages)] for _ in range(2)
    )
    for j in range(stages):
        env.process(stage(env, j, stages, microbatches, up, down, count))
    start = time.perf_counter()
    env.run()
    wall = time.perf_counter() - start
    print(env.now, count[0], f"{wall:.9f}")


main()
