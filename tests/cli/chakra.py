# SPDX-License-Identifier: Apache-2.0
"""petra simulate --chakra: the files are decoded by protobuf's own compiler and Python module, and
replayed."""

import collections
import json
import os
import random
import shutil
import subprocess
import sys

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    print("skipped: no Python module of protobuf")
    sys.exit(77)
from program import ProgramTest, main

if not shutil.which("protoc"):
    print("skipped: no protoc")
    sys.exit(77)

COMPUTE, SEND, RECEIVE = 4, 5, 6
CLUSTER = {
    "cluster.stages": 4,
    "run.max_microbatches": 24,
    "method.accumulate": 4,
    "cluster.cost.model": "constant",
    "cluster.cost.forward_s": 0.003,
    "cluster.cost.backward_s": 0.007,
    "cluster.cost.weight_gradient_s": 0.002,
    "cluster.cost.reconstruct_s": 0.0031,
    "cluster.cost.update_s": 0.0005,
    "cluster.message.forward_bytes": 1000,
    "cluster.message.backward_bytes": 300,
}
INTERLEAVED = {"method.name": "interleaved", "method.chunks": 2, "cluster.stages": 8}


def messages():
    """The classes of the messages, from the schema that petra has."""
    root = os.environ.get("srcdir", ".")
    found = subprocess.run(
        [
            "protoc",
            f"--proto_path={root}",
            "--descriptor_set_out=/dev/stdout",
            f"{root}/analysis/petrapipe/chakra.proto",
        ],
        capture_output=True,
        check=True,
    ).stdout
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(found).file:
        pool.Add(file)
    # Since version 4.22 of the module a function makes the classes, before a method.
    make = (
        getattr(message_factory, "GetMessageClass", None)
        or message_factory.MessageFactory(pool).GetPrototype
    )
    return [
        make(pool.FindMessageTypeByName(f"petra.chakra.{name}"))
        for name in ("GlobalMetadata", "Node")
    ]


METADATA, NODE = messages()


def decode(content):
    """(metadata, nodes): messages, each after its length."""
    found, at = [], 0
    while at < len(content):
        length = shift = 0
        while True:
            byte = content[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        found.append((NODE if found else METADATA).FromString(content[at : at + length]))
        assert at + length <= len(content), "a file ends within a message"
        at += length
    return found[0], found[1:]


def values(node):
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


def message_of(node):
    found = values(node)
    return found["comm_src"], found["comm_dst"], found["comm_tag"], found["comm_size"]


def replay(files):
    """Starts every node when those that it depends on have ended, on a network without cost; {name:
    (start, end)} in microseconds."""
    senders = {
        message_of(node): (device, node.id)
        for device, nodes in enumerate(files)
        for node in nodes
        if node.type == SEND
    }
    needs, users, ready = {}, collections.defaultdict(list), []
    by_key = {(device, node.id): node for device, nodes in enumerate(files) for node in nodes}
    for key, node in by_key.items():
        before = {(key[0], other) for other in node.data_deps}
        if node.type == RECEIVE:
            before.add(senders[message_of(node)])
        needs[key] = len(before)
        for other in before:
            users[other].append(key)
        if not before:
            ready.append(key)
    starts, spans = collections.defaultdict(int), {}
    while ready:
        key = ready.pop()
        end = starts[key] + by_key[key].duration_micros
        spans[key] = starts[key], end
        for user in users[key]:
            starts[user] = max(starts[user], end)
            needs[user] -= 1
            if needs[user] == 0:
                ready.append(user)
    assert len(spans) == len(by_key), "a circle of dependencies"
    return {by_key[key].name: span for key, span in spans.items() if by_key[key].type == COMPUTE}


class Chakra(ProgramTest):
    def simulate(self, folder="out", config="-", **settings):
        """The decoded files, the result of the simulation, and {action: (start, end)} of
        --trace."""
        options = [
            word
            for key, value in settings.items()
            for word in (
                "--set",
                f"{key}={json.dumps(value) if isinstance(value, list) else value}",
            )
        ]
        result = self.good_json(
            "simulate", config, *options, "--chakra", folder, "--trace", "t.json"
        )
        names = sorted(os.listdir(self.path(folder)))
        files = [decode(self.read(f"{folder}/petra.{n}.et")) for n in range(len(names))]
        self.assertEqual(names, sorted(f"petra.{n}.et" for n in range(len(names))))
        for metadata, _ in files:
            self.assertEqual(
                (metadata.version, metadata.attr[0].string_val), ("0.0.4", result["method"])
            )
        spans = {
            e["name"]: (e["ts"], e["ts"] + e["dur"])
            for e in json.loads(self.read("t.json"))["traceEvents"]
            if e["ph"] == "X"
        }
        return [nodes for _, nodes in files], result, spans

    def check_graph(self, files, spans, settings, device_of):
        """Nodes, dependencies and messages."""
        where = {
            node.name: device
            for device, nodes in enumerate(files)
            for node in nodes
            if node.type == COMPUTE
        }
        self.assertEqual(sum(node.type == COMPUTE for nodes in files for node in nodes), len(where))
        self.assertEqual(set(where), set(spans))
        sends, receives = [], []
        for device, nodes in enumerate(files):
            ids = {node.id for node in nodes}
            self.assertEqual(len(ids), len(nodes))
            for node in nodes:
                self.assertLessEqual(set(node.data_deps), ids - {node.id})
                self.assertEqual(len(set(node.data_deps)), len(node.data_deps))
                self.assertIs(values(node)["is_cpu_op"], False)
                if node.type == COMPUTE:
                    self.assertEqual(
                        device_of(
                            int(
                                node.name[
                                    : min(node.name.find(c) for c in "FBWU" if c in node.name)
                                ]
                            )
                        ),
                        device,
                        node.name,
                    )
                    continue
                (sends if node.type == SEND else receives).append(message_of(node))
                self.assertEqual(node.duration_micros, 0)
                self.assertEqual(
                    values(node)["comm_src" if node.type == SEND else "comm_dst"], device
                )
        self.assertEqual(len(set(sends)), len(sends))
        self.assertEqual(sorted(sends), sorted(receives))
        # A message for each action that uses the result of another device.
        stages = settings["cluster.stages"]
        expected = collections.Counter()
        for stage in range(1, stages):
            if device_of(stage) == device_of(stage + 1):
                continue
            for name in spans:
                for kind in "FB":
                    at, _, m = name.partition(kind)
                    if (
                        m
                        and kind == "F"
                        and int(at) == stage
                        and {f"{stage + 1}F{m}", f"{stage + 1}B{m}"} & set(spans)
                    ):
                        expected[
                            device_of(stage),
                            device_of(stage + 1),
                            settings["cluster.message.forward_bytes"],
                        ] += 1
                    if m and kind == "B" and int(at) == stage + 1 and f"{stage}B{m}" in spans:
                        expected[
                            device_of(stage + 1),
                            device_of(stage),
                            settings["cluster.message.backward_bytes"],
                        ] += 1
        self.assertEqual(
            collections.Counter((source, to, size) for source, to, _, size in sends), expected
        )

    def check_times(self, files, result, spans, tolerance=0):
        """Durations, and the start of every action."""
        for nodes in files:
            names = [node.name for node in nodes if node.type == COMPUTE]
            busy = sum(end - start for start, end in (spans[name] for name in names))
            self.assertAlmostEqual(
                sum(node.duration_micros for node in nodes),
                busy,
                delta=1e-6 * busy + (1 if tolerance else 0),
            )
        found = replay(files)
        for name, span in spans.items():
            self.assertAlmostEqual(found[name][0], span[0], delta=tolerance + 1e-3, msg=name)
        self.assertAlmostEqual(
            max(end for _, end in found.values()),
            result["makespan_ns"] / 1000,
            delta=tolerance + 1e-3,
        )

    def test_graph_and_replay(self):
        """With messages that take no time, the replay is the simulation."""
        for settings in [
            {"method.name": "petra"},
            {"method.name": "petra", "method.head": "split", "run.drain": "false"},
            {"method.name": "delayed", "method.extra_delay": 2},
            {"method.name": "backprop"},
            {"method.name": "1f1b"},
            {"method.name": "gpipe"},
            {"method.name": "zb-h1"},
            {"method.name": "pipedream"},
            {"method.name": "petra-arrival", "method.credit": 5},
            INTERLEAVED,
        ]:
            for engines in (1, 2):
                chosen = {**CLUSTER, **settings, "cluster.engines": engines}
                with self.subTest(**chosen):
                    shutil.rmtree(self.path("out"), ignore_errors=True)
                    files, result, spans = self.simulate(**chosen)
                    self.assertEqual(len(files), 4)
                    self.assertEqual(len(spans), result["actions"])
                    self.check_graph(files, spans, chosen, lambda stage: (stage - 1) % 4)
                    self.check_times(files, result, spans)

    def test_steps(self):
        """The last action of a step has its time, and the messages of all of them leave when it
        ends."""
        for overlap in 0, 0.5, 1:
            chosen = {
                **CLUSTER,
                **INTERLEAVED,
                "method.name": "dualpipe-v",
                "cluster.overlap": overlap,
            }
            shutil.rmtree(self.path("out"), ignore_errors=True)
            files, result, spans = self.simulate(**chosen)
            self.assertEqual(len(spans), result["actions"])
            self.check_graph(
                files, spans, chosen, lambda stage: stage - 1 if stage <= 4 else 8 - stage
            )
            found = replay(files)
            self.assertAlmostEqual(
                max(end for _, end in found.values()), result["makespan_ns"] / 1000, delta=1e-3
            )
            for line in self.good_json(
                "schedule",
                "-",
                *self.set_options(
                    **{key.replace(".", "__"): value for key, value in chosen.items()}
                ),
            )["devices"]:
                for step in line:
                    last = step.split("+")[-1]
                    if last in spans and step == last:
                        self.assertAlmostEqual(found[last][0], spans[last][0], delta=1e-3, msg=step)
                    elif last in spans:
                        self.assertAlmostEqual(found[last][1], spans[last][1], delta=1e-3, msg=step)
                        self.assertAlmostEqual(
                            found[last][0], spans[step.split("+")[0]][0], delta=1e-3, msg=step
                        )

    def test_random_durations(self):
        """Every action lasts another time; a duration is in whole microseconds, and no error of
        them adds up on a device."""
        r = random.Random(4)
        for settings in [
            {"method.name": "petra"},
            {"method.name": "1f1b"},
            {"method.name": "zb-h1"},
            INTERLEAVED,
        ]:
            for engines in (1, 2):
                chosen = {
                    **CLUSTER,
                    **settings,
                    "cluster.engines": engines,
                    "cluster.jitter.model": "lognormal",
                    "run.seed": r.randint(1, 99),
                    "cluster.speeds": [round(r.uniform(0.3, 3), 3) for _ in range(4)],
                }
                with self.subTest(**chosen):
                    shutil.rmtree(self.path("out"), ignore_errors=True)
                    files, result, spans = self.simulate(**chosen)
                    self.check_graph(files, spans, chosen, lambda stage: (stage - 1) % 4)
                    self.check_times(files, result, spans, tolerance=len(spans))

    def test_the_network_is_not_in_the_files(self):
        """A slow link changes the times of a simulation, not the nodes."""
        for engines in (1, 2):
            settings = {**CLUSTER, "method.name": "petra", "cluster.engines": engines}
            fast, before, _ = self.simulate("fast", **settings)
            slow, after, _ = self.simulate(
                "slow",
                **settings,
                **{"cluster.link.latency_s": 0.02, "cluster.link.bandwidth_Bps": 30000},
            )
            self.assertGreater(after["makespan_ns"], 2 * before["makespan_ns"])
            for one, other in zip(fast, slow):
                self.assertEqual(
                    sorted(n.SerializeToString() for n in one),
                    sorted(n.SerializeToString() for n in other),
                )

    def test_stages_of_one_device(self):
        """Neighbours on one device exchange without messages."""
        for settings in [
            {"method.name": "petra"},
            {"method.name": "1f1b"},
            {"method.name": "zb-h1"},
        ]:
            chosen = {**CLUSTER, **settings, "cluster.placement": [1, 3]}
            with self.subTest(**chosen):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                files, result, spans = self.simulate(**chosen)
                self.check_graph(files, spans, chosen, lambda stage: int(stage > 1))
                self.check_times(files, result, spans)

    def test_evaluations_and_processes(self):
        """A model with evaluations, which are no nodes; processes that have several stages."""
        for settings in [
            {"cluster.engines": 1},
            {"cluster.engines": 2},
            {"cluster.placement": [4, 6]},
        ]:
            with self.subTest(**settings):
                shutil.rmtree(self.path("out"), ignore_errors=True)
                files, result, spans = self.simulate(
                    config="small.yaml", **settings, **{"method.name": "petra", "run.eval_every": 1}
                )
                self.assertGreater(result["actions"], len(spans))
                self.assertEqual(len(files), len(settings.get("cluster.placement", range(10))))
                self.check_times(files, result, spans, tolerance=len(spans))

    def test_messages_without_bytes(self):
        """They have 1 byte, because networks of ASTRA-sim refuse 0."""
        files, _, _ = self.simulate(**{"cluster.stages": 2, "run.max_microbatches": 2})
        sizes = {message_of(node)[3] for nodes in files for node in nodes if node.type != COMPUTE}
        self.assertEqual(sizes, {1})

    def test_existing_files(self):
        """They are not replaced without --overwrite; a failure leaves them; files of more devices
        do not stay."""

        def listed():
            return {name: self.read(f"out/{name}") for name in os.listdir(self.path("out"))}

        simulate = ["simulate", "-", "--chakra", "out", "--set"]
        self.good(*simulate, "cluster.stages=4")
        self.write("out/petra.5.et.txt", "mine")
        before = listed()
        self.bad(
            2,
            ["already exists", "expected --overwrite"],
            *simulate,
            "cluster.stages=2",
            overwrite=False,
        )
        self.bad(2, "forward-locked", *simulate, "cluster.stages=2", "--set", "method.name=ddg")
        os.mkdir(self.path("out/petra.7.et"))
        self.bad(1, "petra.7.et: cannot replace: not a regular file", *simulate, "cluster.stages=2")
        os.rmdir(self.path("out/petra.7.et"))
        self.bad(
            1,
            "cannot be written: File too large",
            *simulate,
            "cluster.stages=2",
            preexec_fn=lambda: __import__("resource").setrlimit(
                __import__("resource").RLIMIT_FSIZE, (300, 300)
            ),
        )
        self.assertEqual(listed(), before)
        self.good(*simulate, "cluster.stages=2")
        self.assertEqual(set(listed()), {"petra.0.et", "petra.1.et", "petra.5.et.txt"})

    def test_refused(self):
        self.bad(
            2,
            ["cluster.replicas", "expected 1"],
            "simulate",
            "-",
            "--set",
            "cluster.stages=2",
            "--set",
            "cluster.replicas=2",
            "--chakra",
            "out",
        )
        self.bad(
            2,
            "messages; the format has 2147483647 tags",
            "simulate",
            "-",
            "--set",
            "cluster.stages=100000",
            "--set",
            "run.max_microbatches=20000",
            "--chakra",
            "out",
        )
        self.assertFalse(os.path.exists(self.path("out")))
        self.write("file", "mine")
        self.bad(
            1,
            "file: cannot create this folder",
            "simulate",
            "-",
            "--set",
            "cluster.stages=2",
            "--chakra",
            "file",
        )
        self.bad(
            2,
            "--fit was given with an option of a single simulation",
            "simulate",
            "-",
            "--chakra",
            "out",
            "--fit",
            "a",
            "--vary",
            "b",
        )


main()
