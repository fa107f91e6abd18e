"""How a forward pass meets weights that are distributions: the three estimators.

All three estimate the same expected log-likelihood without bias; they differ in the variance of the gradient and in
cost. For the gradient of a loss averaged over a batch (numbers of passes for one sample):

    estimator               variance    passes through each layer       weight-sized noise
    SharedWeights           highest     1                               yes
    Flipout                 lower       2                               yes
    LocalReparameterization lowest      2                               no (where it applies; flipout elsewhere)

An estimator names the rules; which weight is evaluated by which rule is found by tracing the network (`plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, Protocol

from bayesprop.errors import ConfigurationError
from bayesprop.random_weights import flipout, local
from bayesprop.random_weights.random_weight import Function, Rule

__all__ = ["Estimator", "Flipout", "LocalReparameterization", "RuleName", "SharedWeights"]

RuleName = Literal["local", "flipout", "masked", "shared"]


class Estimator(Protocol):
    """A frozen dataclass with the number of samples per step and the rules of torch functions.

    `rule` is the rule by which a weight is evaluated that each example meets once, `rule_of_positions` the one for
    a weight that positions of an example share.
    """

    rule: ClassVar[RuleName]
    rule_of_positions: ClassVar[RuleName]

    @property
    def samples(self) -> int: ...

    @property
    def rules(self) -> Mapping[Function, Rule]: ...


def _check_samples(estimator: Estimator) -> None:
    name, samples = type(estimator).__name__, estimator.samples
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ConfigurationError(
            f"{name} needs a number of samples per step",
            received=f"samples={samples!r}",
            expected="a whole number of at least 1",
            write=f"{name}(samples=1)",
        )


@dataclass(frozen=True)
class SharedWeights:
    """One weight sample per forward pass, shared by all examples of the batch.

    Choose it when a pass is expensive and the batch is small, when the network mixes examples (batch statistics)
    and this must be exact, or as the reference: it is the estimator of Bayes by Backprop (Blundell et al., 2015).
    Its cost is one ordinary pass per sample. All examples see the same noise, so the variance of the gradient does
    not fall with the batch beyond a floor; more samples lower the floor in proportion.

    With `antithetic=True` samples come in pairs mean + scale * noise and mean - scale * noise, whose odd errors
    cancel: about linear losses gain most. The gradient stays unbiased.

    >>> SharedWeights(samples=4, antithetic=True).samples
    4
    """

    samples: int = 1
    antithetic: bool = False
    rule: ClassVar[RuleName] = "shared"
    rule_of_positions: ClassVar[RuleName] = "shared"

    def __post_init__(self) -> None:
        _check_samples(self)
        if self.antithetic and self.samples % 2:
            raise ConfigurationError(
                "antithetic samples come in pairs",
                received=f"samples={self.samples}",
                expected="an even number of samples",
                write=f"SharedWeights(samples={self.samples + 1}, antithetic=True)",
            )

    @property
    def rules(self) -> Mapping[Function, Rule]:
        return MappingProxyType({})


@dataclass(frozen=True)
class LocalReparameterization:
    """Noise in the outputs of a layer instead of its weights, independent for each example (Kingma et al., 2015).

    Choose it for fully connected networks: where each example meets a weight once (the rows of a matrix in a linear
    layer, one index per example in an embedding) it has the lowest variance of the three, because the noise of the
    weights is integrated out but for one number per output. It costs two passes per layer (mean and variance) and
    no weight-sized noise.

    Where positions of an example share the weight (convolutions, sequences) it uses the rule of flipout:
    independent noise per position would change the joint distribution of an example's outputs, and with it the
    bound that is optimised. A weight that is used more than once, or by an operation without a rule, is shared by
    the batch, which is always right.

    Layers that mix examples (BatchNorm in training mode) see examples whose weights are independent instead of shared;
    what is estimated is then the loss of a network in which each example has weights of its own.

    >>> LocalReparameterization().samples
    1
    """

    samples: int = 1
    rule: ClassVar[RuleName] = "local"
    rule_of_positions: ClassVar[RuleName] = "flipout"

    def __post_init__(self) -> None:
        _check_samples(self)

    @property
    def rules(self) -> Mapping[Function, Rule]:
        return local.RULES


@dataclass(frozen=True)
class Flipout:
    """One weight perturbation per pass, with random signs that decorrelate it between examples (Wen et al., 2018).

    Choose it for convolutions, transformers and everything else in which positions share weights: each example sees
    exactly one weight sample at all its positions, and the variance of the gradient falls with the batch, which
    that of `SharedWeights` does not. Its variance lies between the other two. It costs two passes per layer and
    weight-sized noise.

    A weight that is used more than once, or by an operation without a rule (LSTM, the projections of attention,
    norm layers), is shared by the batch, which is always right. For layers that mix examples see
    `LocalReparameterization`.

    >>> Flipout(samples=2).samples
    2
    """

    samples: int = 1
    rule: ClassVar[RuleName] = "flipout"
    rule_of_positions: ClassVar[RuleName] = "flipout"

    def __post_init__(self) -> None:
        _check_samples(self)

    @property
    def rules(self) -> Mapping[Function, Rule]:
        return flipout.RULES
