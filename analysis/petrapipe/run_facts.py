# SPDX-License-Identifier: Apache-2.0
"""Runs as `petra list`, `petra compare` and `petra inspect` describe them: the contents of their
logs (log_summary.py), the answers of the program about their configs (program.py), and whether they
are still running."""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import Error, Unreadable
from .log_summary import Summary, read
from .program import PetraError, inspect, plain, text_layer

# The folder to which --overwrite moves an earlier run (src/run/earlier_run.c).
EARLIER_RUN = (".earlier-run", ".earlier-run.moving")
WORDS = ("method", "formats", "network", "optimiser", "data")


@dataclass
class RunFacts:
    """A run. `words` and `keys` are the answers of the program about its config."""

    place: str  # as it was given
    folder: str
    log: str
    summary: Summary
    state: str  # "complete", "running" or "stopped"
    answer: Mapping[str, Any]

    def value(self, key: str) -> Any:
        """Returns the value of a key of the config that was requested."""
        return plain(self.answer["keys"][key]["value"])

    @property
    def method(self) -> str:
        """Such as "petra, k = 4, with method.keep: graph"."""
        return self.answer["words"]["method"] + self.answer["words"]["formats"]

    @property
    def network(self) -> str:
        """Such as "RevNet-18, width 16, cifar stem"; of a run in PyTorch the words of its log."""
        if self.summary.of_pytorch:
            return f"{self._words(self.summary.network)} (PyTorch)"
        return self.answer["words"]["network"]

    @property
    def optimiser(self) -> str:
        """Such as "adamw, lr 0.001"."""
        if self.summary.of_pytorch:
            return self._words(self.summary.optimiser)
        return self.answer["words"]["optimiser"]

    @property
    def data(self) -> str:
        """Such as "grammar, windows of 128 tokens"."""
        if self.summary.of_pytorch:
            return self._words(self.summary.data)
        return self.answer["words"]["data"]

    @staticmethod
    def _words(text: str | None) -> str:
        return "not in the log" if text is None else text

    @property
    def mode(self) -> str:
        """How it ran: "emulate", "execute", "simulate" or "pytorch"."""
        if self.summary.is_simulated:
            return "simulate"
        return "pytorch" if self.summary.of_pytorch else str(self.value("run.mode"))

    @property
    def trains(self) -> bool:
        """Whether it trains a network on data: it is neither a simulation nor without a model."""
        summary = self.summary
        return not summary.is_simulated and (
            self.value("cluster.stages") == 0 or summary.of_pytorch
        )

    @property
    def optimiser_name(self) -> str:
        """The name of the optimiser alone."""
        return self.optimiser.split(",", 1)[0]

    @property
    def stages(self) -> int:
        """The number of stages. For a simulation it is the number in the config, which may be 0."""
        return len(self.summary.stages) or int(self.value("cluster.stages"))

    @property
    def has_training(self) -> bool:
        """Whether a run in PyTorch recorded everything that determines its training; other runs
        always did."""
        return not self.summary.of_pytorch or self.summary.training is not None


def joined(folder: str, name: str) -> str:
    """Returns the path of a file in a folder.

    >>> joined("runs/", "run.h5"), joined("runs", "run.h5")
    ('runs/run.h5', 'runs/run.h5')
    """
    return folder + name if folder.endswith("/") else f"{folder}/{name}"


def earlier_run_in(folder: str) -> list[str]:
    """Returns the names under which a folder has the earlier run of petra train --overwrite."""
    return [name for name in EARLIER_RUN if os.path.exists(joined(folder, name))]


def warn_of_earlier_run(folder: str) -> None:
    """Warns of an earlier run that a killed --overwrite has moved within this folder."""
    found = earlier_run_in(folder)
    if found and not is_locked(folder):
        warnings.warn(
            f"{folder}: contains an earlier run in {found[0]}, where --overwrite moved it; the next"
            " petra train or simulate in this folder restores it",
            stacklevel=2,
        )


def is_locked(folder: str) -> bool:
    """Returns whether a process of this machine holds the lock of a folder: a run is in progress
    there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # a file system without locks
    finally:
        os.close(descriptor)
    return False


def log_path(place: str) -> str:
    """Returns the log of a run: the path itself or, if that is a folder, its run.h5."""
    return joined(place, "run.h5") if os.path.isdir(place) else place


def log_of(place: str) -> str:
    """Does the same as log_path, and warns of an earlier run beside the log."""
    if os.path.isdir(place):
        warn_of_earlier_run(place)
    return log_path(place)


def folder_of(place: str) -> str:
    """Returns the folder of a run that is given by its folder or by its log.

    >>> folder_of("run.h5"), folder_of("/run.h5"), folder_of("a/run.h5")
    ('.', '/', 'a')
    """
    if os.path.isdir(place):
        return place
    folder, slash, _ = place.rpartition("/")
    return folder or (slash or ".")


def state_of(summary: Summary, folder: str) -> str:
    if summary.complete:
        return "complete"
    return "running" if is_locked(folder) else "stopped"


def words_asked(*more: str) -> list[str]:
    """Returns the names of the words to request that describe a run."""
    return [*WORDS, *more]


def config_request(summary: Summary, **wanted: Any) -> dict[str, Any]:
    """Returns the question about the config of a log."""
    return {"config": [text_layer(summary.path, summary.config)], **wanted}


def facts_of(places: Sequence[str], **wanted: Any) -> list[RunFacts | Error]:
    """Returns the runs of folders or logs; an Error for a run that cannot be read. `wanted`: the
    questions to the program about their configs, in addition to the words (docs/requests.md)."""
    found: list[Any] = [_summary_of(place) for place in places]
    asked = [i for i, one in enumerate(found) if isinstance(one, Summary)]
    requests = [config_request(found[i], words=words_asked(), **wanted) for i in asked]
    for i, answer in zip(asked, inspect(requests)):
        summary, folder = found[i], folder_of(places[i])
        if "error" in answer:
            found[i] = PetraError(answer["error"], answer["status"])
        else:
            state = state_of(summary, folder)
            found[i] = RunFacts(places[i], folder, summary.path, summary, state, answer)
    return found


def _summary_of(place: str) -> Summary | Error:
    try:
        summary = read(log_path(place))
        summary.config.encode()
        return summary
    except Error as error:
        return error
    except UnicodeEncodeError:
        return Unreadable(f"{place}: the config of this log is not UTF-8")


def all_facts_of(places: Sequence[str], **wanted: Any) -> list[RunFacts]:
    """Returns the runs as facts_of does; raises the first Error. Prints the warnings of the program
    about the configs, and warns of earlier runs beside these runs."""
    found = []
    for place, facts in zip(places, facts_of(places, **wanted)):
        if os.path.isdir(place):
            warn_of_earlier_run(place)
        if isinstance(facts, Error):
            raise facts
        warn_of_config(facts.answer)
        found.append(facts)
    return found


def warn_of_config(answer: Mapping[str, Any]) -> None:
    """Prints the warnings that the program gave with its answer about a config."""
    for line in answer.get("warnings", ()):
        warnings.warn(line, stacklevel=2)
