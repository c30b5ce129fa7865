# SPDX-License-Identifier: Apache-2.0
"""The places at which petra reach simulates runs: the files of --on and --as, whose keys replace
the keys of a run (docs/reach.md)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .program import PetraError, Program, check, failure, file_layer, set_layer
from .reach_groups import ReachRun

# A run is simulated as all devices of its plan execute it, independent of the processes that have
# executed it.
OF_ONE_PROCESS = ["run.mode=emulate", "cluster.placement=[]", "run.trace_actions=false"]
# A model determines its messages; a run in PyTorch has the bytes of its messages in its config.
WITH_A_MODEL = [
    "cluster.stages=0",
    "cluster.message.forward_bytes=0",
    "cluster.message.backward_bytes=0",
    "cluster.message.gradient_bytes=0",
]
# For each section a key that shows whether the keys of the section are read one by one.
EXAMPLES = ("cluster.engines", "model.width", "data.batch", "stages.count")
NOT_OF_CLUSTER = (
    "cluster.message.up",
    "cluster.message.down",
    "cluster.replicas",
    "cluster.stages",
    "cluster.placement",
    "cluster.gpus",
    "cluster.transport",
    "cluster.timeout_s",
)
NOT_OF_MODEL = ("model.weights", "model.new_head")
ALSO_OF_MODEL = (
    "data.set",
    "data.path",
    "data.batch",
    "data.vocabulary",
    "data.image_size",
    "stages.partition",
    "stages.count",
    "stages.blocks",
)
IGNORED_BYTES = 399


@dataclass(frozen=True)
class Place:
    """The files whose keys replace the keys of the runs: a cluster and a model."""

    on: str | None = None
    model: str | None = None
    model_set: str | None = None  # a setting that follows from the model

    @property
    def is_logged(self) -> bool:
        """Whether the seconds come from the logs."""
        return self.on is None and self.model is None

    def layers(self, run: ReachRun, more: str | None = None) -> list[dict[str, Any]]:
        """Returns the config of a run at this place; `more` is a setting of --over."""
        found = [run.layer()]
        if self.on is not None:
            found.append(file_layer(self.on, "cluster"))
        if self.model is not None:
            found.append(file_layer(self.model, "model"))
        settings = [
            *OF_ONE_PROCESS,
            *(WITH_A_MODEL if run.summary.of_pytorch and self.model else []),
        ]
        settings += [text for text in (self.model_set, more) if text is not None]
        return [*found, set_layer(settings, "--over")]

    def named(self, error: PetraError) -> PetraError:
        """Adds the file of --as or --on to an error that does not name it."""
        line = str(error)
        if self.model is not None and self.model not in line:
            return PetraError(f"with --as {self.model}: {line}", error.status)
        if self.model is None and self.on is not None and self.on not in line:
            return PetraError(f"with --on {self.on}: {line}", error.status)
        return error

    def checked(self, answer: dict) -> dict:
        """Returns an answer of the program; raises its error with the file that it is about."""
        try:
            return check(answer)
        except PetraError as error:
            raise self.named(error) from None


# --- the files of --on and --as ---


def is_of_cluster(key: str) -> bool:
    return key.startswith("cluster.") and key not in NOT_OF_CLUSTER


def is_of_model(key: str) -> bool:
    return (key.startswith("model.") and key not in NOT_OF_MODEL) or key in ALSO_OF_MODEL


class Files:
    """The files of --on and --as: which keys they set."""

    def __init__(self, inspector: Program) -> None:
        self.inspector = inspector
        self.found: dict[str, dict[str, dict[str, Any]]] = {}

    def read(self, place: Place) -> dict[str, dict[str, Any]]:
        """Returns the keys that the file of a place sets."""
        path = place.on if place.on is not None else place.model
        assert path is not None
        if path not in self.found:
            self.inspector.send({"config": [file_layer(path)], "keys": True})
            keys = place.checked(self.inspector.receive())["keys"]
            self.found[path] = {key: one for key, one in keys.items() if one["set"]}
        return self.found[path]

    def check_cluster(self, path: str, runs: Sequence[ReachRun]) -> None:
        keys = self.read(Place(on=path))
        stages, replicas = keys.get("cluster.stages"), keys.get("cluster.replicas")
        if stages and stages["value"] != "0":
            raise failure(
                "cluster.stages",
                stages["label"],
                f"{stages['value']} stages without a model, but the runs have their own; expected "
                "0",
            )
        for run in runs if replicas else ():
            own = run.keys["cluster.replicas"]
            if replicas and own != replicas["value"]:
                raise failure(
                    "cluster.replicas",
                    replicas["label"],
                    f"{replicas['value']}, but {run.log} was trained with {own}, which its updates "
                    "depend on; expected no "
                    "cluster.replicas",
                )

    def model_place(self, path: str | None) -> Place:
        """Returns the place of a model. Its vocabulary is the vocabulary that its file states."""
        if path is None:
            return Place()
        place = Place(model=path)
        keys = self.read(place)
        vocabulary, data = keys.get("data.vocabulary"), keys.get("data.set")
        if vocabulary and vocabulary["value"] != "0" and not data:
            return Place(model=path, model_set="data.set=tokens")
        if data and data["value"] != "tokens" and not vocabulary:
            return Place(model=path, model_set="data.vocabulary=0")
        return place

    def warn_ignored(self, place: Place, with_model: bool) -> None:
        """Warns of keys of the files that are not read; a section of which no key is read is named
        once."""
        both = place.on == place.model
        for option, path in (("on", place.on), ("as", place.model if with_model else None)):
            if path is None:
                continue
            of_cluster = option == "on"
            takes = is_of_cluster if of_cluster else is_of_model
            also = is_of_model if of_cluster else is_of_cluster

            def is_read(key: str, takes: Any = takes, also: Any = also) -> bool:
                return takes(key) or (both and also(key))

            read_sections = {key.partition(".")[0] for key in EXAMPLES if is_read(key)}
            ignored: dict[str, None] = {}
            for key in self.read(Place(on=path)):
                section = key.partition(".")[0]
                checked = of_cluster and key in ("cluster.replicas", "cluster.stages")
                if not is_read(key) and not checked:
                    ignored[key if section in read_sections else section] = None
            words = ", ".join(ignored)
            if words:
                warnings.warn(
                    f"{path}: no effect in a file of --{option}: {words[:IGNORED_BYTES]}; they "
                    "stay those of the runs",
                    stacklevel=2,
                )
