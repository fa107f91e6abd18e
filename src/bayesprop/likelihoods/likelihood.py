"""What a likelihood is: how targets y depend on the outputs f(x) of a network.

Every function here works on the outputs (n, ...) of ONE draw of the weights; who has many draws maps over them with
`torch.func.vmap`. `encode` and `check` look at values and refuse with the line to write instead. `log_prob` and its
neighbours never look: they run in the innermost loop, under vmap, under compilation and inside captured CUDA graphs.

Shapes. One row is one example. Dimensions of size one behind the rows carry nothing and are dropped on both sides, so a
network with one output column, (n, 1), fits targets (n,) and targets (n, 1), and the mean is (n,) for both. What still
differs after that is refused and never broadcast: (n, T) against (n,) would otherwise be an n x n comparison.
Classification has its classes in dimension 1, as `torch.nn.functional.cross_entropy` does: outputs (n, K) for labels
(n,), and (n, K, height, width) for one label per pixel, (n, height, width). The labels of one row are independent given
the outputs, so `log_prob` is their sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from bayesprop.errors import CapabilityError, DataError

if TYPE_CHECKING:
    from bayesprop.latents import Latent

__all__ = ["Likelihood", "Task", "compact", "first_row", "first_value", "same_rows", "sum_targets", "widen"]

Task = Literal["classification", "regression", "count"]


class Likelihood(ABC):
    """The base of all likelihoods; each is a frozen dataclass in a file of its own.

    `latents` given to a function is a mapping from a latent's name to its constrained value for this draw. It may hold
    the latents of others, too, which are ignored.
    """

    task: ClassVar[Task]

    @property
    def latents(self) -> tuple[Latent, ...]:
        """What is learnt together with the weights, such as the scale of the noise."""
        return ()

    @property
    def has_cdf(self) -> bool:
        """Whether `cdf` has a closed form; quantiles are exact if so, and come from samples if not."""
        return False

    @abstractmethod
    def encode(self, targets: Any) -> Tensor:
        """Targets in the dtype that `log_prob` takes; values that no output could explain are refused."""

    @abstractmethod
    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Hold encoded targets against one forward pass of the network.

        `outputs` may be those of the first few rows only: shapes are compared behind the rows, the values of all
        targets are looked at.
        """

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        """log p(y | f) of each row, (n,), summed over a row's targets, in at least float32."""

    @abstractmethod
    def mean(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        """E[y | f]: (n,) or (n, T); for classification the probabilities, (n, K, ...), also with two classes."""

    @abstractmethod
    def sample(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        """One y for each row, from torch's global generator: call it inside `rng.quarantine`."""

    def variance(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        """Var[y | f], in the shape of the mean: the noise that remains when the weights are known."""
        raise CapabilityError(
            f"{self!r} has no variance: labels are names, not numbers", write="entropy(outputs, latents)"
        )

    def entropy(self, outputs: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        """Entropy in nats of y given f, one for each label: (n,), or (n, ...) with several labels in a row."""
        if self.task != "classification":
            raise CapabilityError(
                f"{self!r} has an entropy only through its mixture over draws", write="prediction.entropy"
            )
        return torch.special.entr(self.mean(outputs, latents)).sum(1)

    def cdf(self, outputs: Tensor, values: Tensor, latents: Mapping[str, Tensor]) -> Tensor:
        """P(y <= value | f), elementwise in the shape of the mean."""
        raise CapabilityError(
            f"{self!r} has no closed form for its distribution function",
            expected="a likelihood whose has_cdf is True: Gaussian, HeteroscedasticGaussian, Poisson, "
            "or StudentT with a whole number of degrees of freedom",
            write="prediction.samples(), and count how many are below the value",
        )


def compact(tensor: Tensor, keep: int = 1) -> Tensor:
    """Drop dimensions of size one behind the first `keep`: only static shapes, nothing that vmap or compilers mind."""
    behind = tuple(tensor.shape[keep:])
    if 1 not in behind:
        return tensor
    return tensor.reshape(*tensor.shape[:keep], *(size for size in behind if size != 1))


def widen(outputs: Tensor) -> Tensor:
    """Half precision becomes float32, because sums of exponentials need its range; float64 stays."""
    return outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs


def sum_targets(values: Tensor) -> Tensor:
    """Sum over everything behind the rows: (n, ...) to (n,)."""
    return values.flatten(1).sum(1) if values.dim() > 1 else values


def first_row(wrong: Tensor) -> int:
    """The first row in which anything is wrong; `wrong` is a boolean (n, ...) with at least one True."""
    return int(torch.nonzero(wrong)[0, 0])


def first_value(values: Tensor, wrong: Tensor) -> float:
    """The first value that is wrong, as a Python number."""
    return values[wrong][0].item()


def same_rows(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> None:
    """Refuse outputs that cannot be one row for each target."""
    if outputs.dim() == 0 or outputs.shape[0] > targets.shape[0]:
        raise DataError(
            f"{likelihood!r}: the network must return one row for each row of the inputs",
            received=f"outputs {tuple(outputs.shape)} for targets {tuple(targets.shape)}",
            expected=f"outputs ({targets.shape[0]}, ...)",
            write="a network that keeps the first dimension, e.g. torch.nn.Flatten(start_dim=1) and not x.flatten()",
        )
