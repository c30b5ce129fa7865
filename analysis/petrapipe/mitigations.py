# SPDX-License-Identifier: Apache-2.0
"""Changes of the update or of the weights that counteract delay (docs/semantics/mitigation.md).

A mitigation of your own is a subclass with one of these functions, for example:

    class Ahead(Mitigation):
        def predict(self, weights, velocity, delay):
            return {name: weight + delay * velocity[name] for name, weight in weights.items()}

    Trainer(..., mitigations=[Ahead()])

Each stage has a copy of its own, so that it may keep tensors in its attributes; a checkpoint
contains them. Weights, gradients and velocities are dictionaries from the names of the stage's
parameters to tensors; a function returns new tensors and changes none. `delay` is the mean delay of
the stage in updates once the pipeline is full (D). A stage without delay takes the plain step and
calls none of these."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch

from .errors import Error

Tensors = Mapping[str, torch.Tensor]


class Mitigation:
    """The plain step. `stage` (from 1) and `stages` are set before the first call."""

    stage = stages = 0
    # `velocity` is the expected change of the weights per update. "change": the change of the last
    # update. "momentum": minus the learning rate times the momentum of torch.optim.SGD.
    velocity = "change"

    def rate(self, update: int, delay: float) -> float:
        """Returns the factor of the learning rate of update number `update`, from 0."""
        return 1.0

    def gradient(self, gradients: Tensors, delay: float) -> Tensors:
        """Returns the gradients that the optimiser receives."""
        return gradients

    def predict(self, weights: Tensors, velocity: Tensors, delay: float) -> Tensors:
        """Returns the weights that forwards read until the next update. `velocity` is empty before
        the first update."""
        return weights

    def correct(self, weights: Tensors, velocity: Tensors, delay: float) -> Tensors:
        """Returns the weights that backwards and their inversions read until the next update, if
        they read the latest weights."""
        return weights

    def stepped(self, weights: Tensors, change: Tensors, delay: float) -> Tensors:
        """Returns the weights after an update whose step was `change`."""
        return weights


def overrides(mitigation: Mitigation, name: str) -> bool:
    """Returns whether a mitigation defines a function with this name."""
    return getattr(type(mitigation), name) is not getattr(Mitigation, name)


class LrRescheduling(Mitigation):
    """The rate of update i is divided by max(D, 1)^p, p = 1 - min(i / updates, 1) (PipeMare,
    T1)."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def rate(self, update: int, delay: float) -> float:
        return max(delay, 1.0) ** -(1 - min(update / self.updates, 1))


class DiscrepancyCorrection(Mitigation):
    """Backwards read weights - D average, where the average follows the changes with decay^(1 / D)
    (PipeMare, T2)."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.average: dict[str, torch.Tensor] = {}

    def correct(self, weights: Tensors, velocity: Tensors, delay: float) -> Tensors:
        keep = self.decay ** (1 / delay)
        self.average = {
            name: (1 - keep) * value + (keep * self.average[name] if name in self.average else 0)
            for name, value in velocity.items()
        }
        return {name: weight - delay * self.average[name] for name, weight in weights.items()}


class WeightPrediction(Mitigation):
    """Forwards read weights + D horizon velocity (linear weight prediction)."""

    def __init__(self, velocity: str = "change", horizon: float = 1.0) -> None:
        self.velocity, self.horizon = velocity, horizon

    def predict(self, weights: Tensors, velocity: Tensors, delay: float) -> Tensors:
        return (
            {
                name: weight + delay * self.horizon * velocity[name]
                for name, weight in weights.items()
            }
            if velocity
            else weights
        )


class GradientShrinking(Mitigation):
    """The gradient is multiplied by factor^(J - j)."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def gradient(self, gradients: Tensors, delay: float) -> Tensors:
        return {
            name: self.factor ** (self.stages - self.stage) * value
            for name, value in gradients.items()
        }


class ErrorFeedback(Mitigation):
    """Each step u_t adds u_t - u_(t - D)."""

    def __init__(self) -> None:
        self.steps: deque = deque()

    def stepped(self, weights: Tensors, change: Tensors, delay: float) -> Tensors:
        if delay != int(delay):
            raise Error(
                f"stage {self.stage}: error feedback needs a delay of whole updates; its delay is"
                f" {delay:g}"
            )
        self.steps.append(change)
        if len(self.steps) <= delay:
            return weights
        earlier = self.steps.popleft()
        return {name: weight + (change[name] - earlier[name]) for name, weight in weights.items()}


def of_config(config: Mapping[str, str]) -> list[Mitigation]:
    """Returns the mitigations of a config as dotted keys and texts. Raises Error for a mitigation
    that this runtime lacks."""
    found: list[Mitigation] = []
    off = {"", "0", "1", "false", "none", "null", "off", "0.0", "1.0"}
    prefix = "method.mitigation."
    keys = {key[len(prefix) :]: value for key, value in config.items() if key.startswith(prefix)}
    known = {
        "lr_rescheduling",
        "discrepancy_correction",
        "weight_prediction",
        "prediction_horizon",
        "gradient_shrinking",
        "error_feedback",
        "sync_warmup_epochs",
    }
    for key, value in keys.items():
        if key not in known and value not in off:
            raise Error(
                f"method.mitigation.{key}: not available for networks in PyTorch; expected a"
                " Mitigation of your own (petrapipe.mitigations)"
            )
    if keys.get("lr_rescheduling", "0") != "0":
        found.append(LrRescheduling(int(keys["lr_rescheduling"])))
    if float(keys.get("discrepancy_correction", 0)) != 0:
        found.append(DiscrepancyCorrection(float(keys["discrepancy_correction"])))
    prediction = keys.get("weight_prediction", "none")
    if prediction not in off:
        kinds = {"velocity": "momentum", "difference": "change"}
        if prediction not in kinds:
            raise Error(
                f"method.mitigation.weight_prediction: {prediction} is not available for networks"
                f" in PyTorch; expected {' or '.join(kinds)}"
            )
        found.append(WeightPrediction(kinds[prediction], float(keys.get("prediction_horizon", 1))))
    if float(keys.get("gradient_shrinking", 1)) != 1:
        found.append(GradientShrinking(float(keys["gradient_shrinking"])))
    if keys.get("error_feedback", "false") == "true":
        found.append(ErrorFeedback())
    return found
