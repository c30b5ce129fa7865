"""petra simulate: closed forms, the trace that a training run gives as well, and wrong input."""

import collections
import json

from program import ProgramTest, main

CLUSTER = """\
run: {name: priced, epochs: 1, max_microbatches: 12, eval_every: 0, seed: 3, drain: true}
data: {set: shapes, batch: 4, limit: 64, augment: [], workers: 1}
model: {width: 1}
method: {accumulate: 2}
device: {threads: 1}
cluster:
  engines: 2
  cost: {model: constant, forward_s: 1.3, backward_s: 2.1, reconstruct_s: 0.7, update_s: 0.2}
  link: {latency_s: 0.01, bandwidth_Bps: 1.0e+5, sharing: fair}
  node_size: 3
  card_Bps: 1.5e+5
  jitter: {model: gamma, scale: 0.3}
  stragglers: {stages: [2, 5], factor: 1.5}
  pauses: {mean_between_s: 10, duration_s: 1}
  failures: {mean_between_s: 30, restart_s: 2}
"""


class Simulate(ProgramTest):
    def simulate(self, **values):
        options = [text for key, value in values.items() for text in ("--set", f"{key.replace('__', '.')}={value}")]
        return self.good_json("simulate", "-", *options)

    def test_closed_forms(self):
        for stages, count in (2, 7), (10, 160), (23, 31):
            for method, per_stage in ("backprop", 3), ("reversible", 4):
                found = self.simulate(cluster__stages=stages, run__max_microbatches=count, method__name=method)
                # The fused head reconstructs nothing.
                each = per_stage * stages - (per_stage - 3)
                self.assertEqual(found["makespan_s"], each * count)
                self.assertEqual(found["time_per_microbatch_s"], each)
                self.assertEqual(found["actions"], count * (3 * stages - 1))
                self.assertAlmostEqual(found["bubble_fraction"], 1 - 1 / stages, places=12)
                self.assertFalse(found["runaway"])
                self.assertEqual([s["lag_max"] for s in found["stages"]], [0] * stages)

    def test_lockstep(self):
        for engines, seconds in (1, 4), (2, 3):
            for k in 1, 3:
                found = self.simulate(cluster__stages=6, cluster__engines=engines, method__accumulate=k, run__drain="true")
                self.assertEqual(found["microbatches"], 96)
                self.assertEqual(found["time_per_microbatch_s"], seconds)
                self.assertEqual([s["lag_max"] for s in found["stages"]], [-(-2 * (6 - j) // k) for j in range(1, 7)])
        up = self.simulate(cluster__stages=3, cluster__message__forward_bytes=5, cluster__message__backward_bytes=7, run__drain="true")
        self.assertEqual([(s["bytes_up"], s["bytes_down"]) for s in up["stages"]], [(240, 0), (240, 336), (0, 336)])

    def test_trace_of_training_is_the_same(self):
        self.write("c.yaml", CLUSTER)
        for sharing in "fair", "fifo":
            for drain in "true", "auto":
                options = ["--set", f"cluster.link.sharing={sharing}", "--set", f"run.drain={drain}"]
                found = self.good_json("simulate", "c.yaml", *options, "--trace", "a.json")
                self.good("simulate", "c.yaml", *options, "--trace", "b.json")
                self.good("train", "c.yaml", *options, "--trace", "c.json", "--output", "out", "--quiet")
                self.assertEqual(self.read("a.json"), self.read("b.json"))
                self.assertEqual(self.read("a.json"), self.read("c.json"))
                self.assertEqual(len(self.phases("a.json")["X"]), found["actions"])
        self.good("simulate", "c.yaml", "--set", "run.seed=4", "--trace", "d.json")
        self.assertNotEqual(self.read("c.json"), self.read("d.json"))

    def phases(self, name):
        events = json.loads(self.read(name))["traceEvents"]
        found = collections.defaultdict(list)
        for event in events:
            found[event["ph"]].append(event)
        return found

    def test_trace_is_whole(self):
        self.good("simulate", "-", "--set", "cluster.stages=50", "--set", "cluster.link.latency_s=0.5", "--set", "run.drain=true",
                  "--set", "run.max_microbatches=100", "--trace", "t.json")
        found = self.phases("t.json")
        self.assertEqual(collections.Counter(e["cat"] for e in found["X"]), {"F": 4900, "B": 5000, "U": 5000})
        for phase in "s", "f", "b", "e":  # every message starts, ends and is on its way once
            self.assertEqual(len(found[phase]), 2 * 49 * 100)
            self.assertEqual(len({e["id"] for e in found[phase]}), 2 * 49 * 100)
        self.assertEqual(len(found["C"]), 2 * 49 * 100)
        self.assertEqual({(e["pid"], e["args"]["name"]) for e in found["M"] if e["name"] == "process_name"},
                         {(s, f"stage {s}") for s in range(1, 51)})
        sent = {e["id"]: e["ts"] for e in found["b"]}
        for event in found["e"]:
            self.assertAlmostEqual(event["ts"] - sent[event["id"]], 5e5, places=3)

    def test_wrong_input(self):
        self.bad(2, ["cluster.stages", "0 .. 100000"], "simulate", "-", "--set", "cluster.stages=-1")
        self.bad(2, ["cluster.stages", "1 .. 100000"], "simulate", "-", "--set", "cluster.message.forward_bytes=3")
        self.bad(2, ["cluster.link.latency_s", "expected"], "simulate", "-", "--set", "cluster.link.latency_s=.nan")
        self.bad(2, ["cluster.stragglers.stages", "1 .. 4"], "simulate", "-", "--set", "cluster.stages=4", "--set",
                 "cluster.stragglers.stages=[5]")
        self.bad(2, ["method.credit", "arrival"], "simulate", "-", "--set", "cluster.stages=4", "--set", "method.credit=3")
        self.bad(2, ["method.chunks", "interleaves"], "simulate", "-", "--set", "cluster.stages=4", "--set", "method.chunks=2")
        self.bad(2, ["cluster.jitter.scale", "0 .. 1"], "simulate", "-", "--set", "cluster.jitter.scale=2", "--set",
                 "cluster.jitter.model=exponential")
        self.bad(2, ["cluster.stages", "cannot be trained"], "train", "small.yaml", "--set", "cluster.stages=4")
        self.bad(2, "--trace", "info", "--trace", "x.json")
        self.bad(1, "nowhere/t.json", "simulate", "-", "--set", "cluster.stages=4", "--trace", "nowhere/t.json")
        self.bad(2, ["virtual clock", "expected"], "simulate", "-", "--set", "cluster.stages=4", "--set", "cluster.cost.model=constant",
                 "--set", "cluster.cost.forward_s=1000000", "--set", "run.max_microbatches=1000000")


main()
