# SPDX-License-Identifier: Apache-2.0
"""Draws orders of actions, as petra schedule prints them, that are none of a method."""


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
    """What may come next: (kind, stage from 1, microbatch), at most `at_once` microbatches between
    F and B of stage 1."""
    for number, stage in enumerate(stages, 1):
        below, above = (
            stages[i].done if 0 <= i < len(stages) else None for i in (number - 2, number)
        )
        head = above is None and fused
        come = (
            below["F"]
            if below
            else {len(stage.done["B" if head else "F"])} & set(range(microbatches))
        )
        if not head and (below or len(stage.done["F"]) < len(stage.done["B"]) + at_once):
            yield from (("F", number, m) for m in come - stage.done["F"])
        if len(stage.since_update) < accumulate:
            ready = come if head else stage.done["F"]
            yield from (
                ("B", number, m) for m in (ready & above["B"] if above else ready) - stage.done["B"]
            )
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
