"""The covariance of a dense network whose hidden layers are infinitely wide, read off the network and its prior.

For layers x -> W phi(x) + b with independent weights of mean 0 and variances v (of W) and u (of b), and n inputs to a
layer, the pre-activations of a wide network are Gaussian with covariances

    K_1(x, x') = u_1 + v_1 x . x',    K_l(x, x') = u_l + n_l v_l E[phi(f(x)) phi(f(x'))],  f ~ GP(0, K_(l-1))      (1)

n_l is the width of the user's own network: what is kept as the width grows is n_l v_l, the variance scaled with fan-in.
The outputs of the last layer are independent, each with the covariance K_L. The expectations are `dual_activations`.

References: Neal 1996; Lee, Bahri, Novak, Schoenholz, Pennington, Sohl-Dickstein, "Deep Neural Networks as Gaussian
Processes", ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesprop.errors import ConfigurationError
from bayesprop.layout import Block
from bayesprop.model import Model
from bayesprop.posteriors.dual_activations import dual, is_known, second_moment

__all__ = ["WideLayer", "WideNetwork"]

ALTERNATIVES = "BayesByBackprop(), or HMC() for few data"


@dataclass(frozen=True)
class WideLayer:
    """One dense layer: the columns of its weight and bias (None where there is none), n, and the activation that its
    inputs have passed."""

    weight: Block
    bias: Block | None
    inputs: int
    activation: nn.Module


class WideNetwork:
    """Equation (1) for a model whose network is a dense `nn.Sequential` with a normal prior of mean 0.

    `hyper` (particles, H) are the unconstrained columns behind the weights: scales of hierarchical priors, and the
    likelihood's own.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layers = _layers(model)
        self.outputs = self.layers[-1].weight.shape[0]
        _check_prior(model)
        start = torch.zeros(1, model.layout.latent, dtype=torch.float64)
        for latent in model.latents:
            start[:, model.layout.by_name[latent.name].columns] = latent.initial_column()
        spread = self._spread(start)
        for layer in self.layers:
            for block in (layer.weight, layer.bias):
                if block is not None and not torch.allclose(spread[:, block.columns], spread[:, block.start, None]):
                    raise _refused(f"weights of {block.name} whose prior has several scales", "one scale for each")

    def _spread(self, theta: Tensor) -> Tensor:
        """Standard deviations of the weights (particles, W) for the columns of the scales in theta."""
        prior, width = self.model.bound_prior, self.model.layout.random
        std = prior.prior_std()
        assert std is not None
        std = std.to(theta)
        if prior.centred:
            return std.expand(len(theta), -1)
        rest = theta[:, width:]
        ones, zeros = (torch.cat((rest.new_full((len(rest), width), x), rest), dim=1) for x in (1.0, 0.0))
        return std * (prior.weights(ones) - prior.weights(zeros))

    def variances(self, hyper: Tensor) -> list[tuple[Tensor, Tensor]]:
        """n_l v_l and u_l of (1) for each layer, (particles,) each; v_1 alone for the first."""
        hyper = hyper.double()
        spread = self._spread(torch.cat((hyper.new_zeros(len(hyper), self.model.layout.random), hyper), dim=1))
        found = []
        for number, layer in enumerate(self.layers):
            weight = spread[:, layer.weight.start].square() * (layer.inputs if number else 1.0)
            none = torch.zeros_like(weight)
            found.append((weight, none if layer.bias is None else spread[:, layer.bias.start].square()))
        return found

    def __call__(self, hyper: Tensor, one: Tensor, other: Tensor) -> Tensor:
        """K_L between rows (particles, n, ...) and (particles, m, ...): float64 (particles, n, m)."""
        one, other = one.flatten(2).double(), other.flatten(2).double()
        across = one @ other.transpose(1, 2)
        squares = [one.square().sum(-1), other.square().sum(-1)]
        for number, (layer, (v, u)) in enumerate(zip(self.layers, self.variances(hyper), strict=True)):
            if number:
                across = dual(layer.activation, squares[0], squares[1], across)
                squares = [second_moment(layer.activation, square) for square in squares]
            across = u[:, None, None] + v[:, None, None] * across
            squares = [u[:, None] + v[:, None] * square for square in squares]
        return across

    def own(self, hyper: Tensor, rows: Tensor) -> Tensor:
        """K_L among the rows, with its diagonal exact: (particles, n, n)."""
        found = self(hyper, rows, rows)
        exact = self.diagonal(hyper, rows)
        return found + torch.diag_embed(exact - found.diagonal(dim1=1, dim2=2))

    def diagonal(self, hyper: Tensor, rows: Tensor) -> Tensor:
        """K_L(x, x) of each row: (particles, n)."""
        square = rows.flatten(2).double().square().sum(-1)
        for number, (layer, (v, u)) in enumerate(zip(self.layers, self.variances(hyper), strict=True)):
            square = u[:, None] + v[:, None] * (second_moment(layer.activation, square) if number else square)
        return square


# -- what can be read off a network ------------------------------------------------------------------------------------


def _leaves(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The modules that do something, in their order, each by its name."""
    if type(module) is nn.Sequential:
        for key, child in module._modules.items():  # named_children leaves out what it has seen: a shared activation
            assert child is not None
            yield from _leaves(child, f"{name}.{key}" if name else key)
    else:
        yield name, module


def _layers(model: Model) -> list[WideLayer]:
    found: list[WideLayer] = []
    activation: nn.Module = nn.Identity()
    for name, module in _leaves(model.network, ""):
        if type(module) is nn.Flatten and not found:
            continue
        if type(module) is nn.Linear:
            prefix = f"{name}." if name else ""
            blocks = [model.layout.by_name.get(prefix + key) for key in ("weight", "bias")]
            weight, bias = blocks
            for key, block in zip(("weight", "bias"), blocks, strict=True):
                if getattr(module, key) is not None and (block is None or block.kind != "random" or block.aliases):
                    raise _refused(f"{prefix}{key}, which is fixed, tied or a point estimate", "random weights alone")
            assert weight is not None
            found.append(WideLayer(weight, bias, module.in_features, activation))
            activation = nn.Identity()
        elif is_known(module) and found and type(activation) is nn.Identity:
            activation = module
        else:
            raise _refused(f"{name or 'the network'}: {module}", "Linear, and between them one of the activations")
    if not found or type(activation) is not nn.Identity or model.output is not None:
        raise _refused("a network that does not end in a dense layer", "a dense layer at the end")
    return found


def _check_prior(model: Model) -> None:
    """Normal with mean 0, each with a scale that is known or learnt in its non-centred form."""
    for group in model.bound_prior.groups:
        location = group.arguments.get("loc", 0.0)
        moved = location != 0.0 if isinstance(location, int | float) else bool((location.values != 0.0).any())
        if group.density.name != "normal" or moved or any(factor.centred for factor in group.factors):
            what = "a centred scale that is learnt" if group.density.name == "normal" and not moved else "another prior"
            raise _refused(f"{what} ({group.density.name})", "Normal(0, scale), or a hyperprior for the scale")
    if model.bound_prior.prior_std() is None:
        raise _refused("a prior whose scales differ between particles", "Normal(0, scale)")


def _refused(received: str, expected: str) -> ConfigurationError:
    return ConfigurationError(
        "the infinitely wide network is known for dense layers with a normal prior",
        received=received,
        expected=f"an nn.Sequential: {expected} (ReLU, LeakyReLU, Erf, Tanh, Sigmoid, SiLU, GELU, Softplus)",
        write=f"NNGP() for such a network; for this one {ALTERNATIVES}",
    )
