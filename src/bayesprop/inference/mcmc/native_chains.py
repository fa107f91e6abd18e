"""Which models have native trajectories, and how.

`explain` says whether a model has them, and why not if not; the choice is never silent. What has none takes the
definition in `target` and `leapfrog`, which gives the same trajectories to float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bayesprop.inference.joints import native_joint
from bayesprop.inference.mcmc.target import Point
from bayesprop.kernels import chains
from bayesprop.kernels.small_stack import Joint
from bayesprop.model import Batch, Model

__all__ = ["NativeTarget", "explain", "native_target"]


def _joint(model: Model) -> Joint | str:
    found = native_joint(model)
    if isinstance(found, Joint) and found.center.dim() > 1:
        return "a prior with numbers for each particle"
    return found


def explain(model: Model) -> str:
    """One sentence: which body runs the trajectories of a model, and why."""
    found = _joint(model)
    if isinstance(found, str):
        return f"plain torch: {found}"
    library = chains.library()
    return library.reason if library.handle is not None else f"plain torch: {library.reason}"


@dataclass(frozen=True)
class NativeTarget:
    """The log joint of one model and all of its rows, ready for trajectories."""

    joint: Joint
    inputs: Tensor
    targets: Tensor
    rows: int

    def trajectory(
        self, start: Point, momentum: Tensor, scale: Tensor, step_size: float, steps: int
    ) -> tuple[Point, Tensor]:
        """As `leapfrog.trajectory`: where the steps lead all chains, and the momentum there."""
        theta, gradient, momentum = (t.contiguous().clone() for t in (start.theta, start.gradient, momentum))
        value, data_term = chains.trajectory(
            self.joint,
            self.inputs,
            self.targets,
            self.rows,
            theta,
            gradient,
            momentum,
            scale.contiguous(),
            step_size,
            steps,
        )
        return Point(theta, value, data_term, gradient, {}), momentum


def native_target(model: Model, batch: Batch) -> NativeTarget | None:
    """None where `explain` says plain torch."""
    found = _joint(model)
    if isinstance(found, str) or chains.library().handle is None or not isinstance(batch.inputs, Tensor):
        return None
    targets = batch.targets.flatten(2) if batch.targets.dim() > 2 else batch.targets[..., None]
    inputs = batch.inputs.flatten(2)
    if inputs.shape[2] != found.stack.layers[0].inputs:  # several rows of outputs for one row of inputs
        return None
    return NativeTarget(found, chains.in_blocks(inputs), chains.in_blocks(targets), batch.rows)
