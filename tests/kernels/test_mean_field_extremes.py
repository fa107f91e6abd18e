"""The update where single precision could fail: tails, peaks, scales next to nothing, gradients of zero."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from bayesprop.kernels import mean_field

from .conftest import CASES, Adam, Bench, compare, mixture, rounding, score

pytestmark = pytest.mark.usefixtures("native_code")


def test_a_gradient_of_zero_moves_nothing():
    """A dead unit under a flat prior: no square root of zero may become a NaN, nor that of a denormal number."""
    usual = Adam(beta1=0.9, beta2=0.999, epsilon=1e-8, step=0)
    bench = Bench("flat", [515], adams=(usual,), kl_weights=(0.0,))
    for moment in bench.tensors[2:]:
        moment.zero_()
    for size in (0.0, 1e-20, 1e-30):
        bench.gradients = [torch.full((1, 515), size)]
        found = bench.run()
        for tensor, before in zip(found[:2], bench.tensors[:2], strict=True):
            torch.testing.assert_close(tensor, before, rtol=0.0, atol=1e-7)
        assert all(t.isfinite().all() for t in found)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rho", [-60.0, -6.9, 0.0, 60.0])
def test_extreme_scales_stay_finite(case, rho):
    """At rho = -60 the standard deviation is 9e-27 and its inverse times its slope is 1: no 0 * inf."""
    bench = Bench(case, [1027], kl_weights=(0.3, 1.0))
    bench.tensors[1].fill_(rho)
    found, defined = bench.run(), bench.define()
    compare(found, defined, atol=rounding(case, max(rho, 1.0)))
    w = mean_field.sample(bench.tensors[0], bench.tensors[1], bench.keys, 7, 1, 1027)
    assert w.isfinite().all()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rho", [-100.0, 100.0])
def test_beyond_what_single_precision_holds_the_step_still_leads_back(case, rho):
    """exp(-100) is no float: below -80 the scale is that of -80, whose slope over its size is still 1."""
    bench = Bench(case, [1027], kl_weights=(0.3, 1.0))
    bench.tensors[1].fill_(rho)
    for moment in bench.tensors[2:]:  # what went before would move rho, too
        moment.zero_()
    found = bench.run()
    assert all(t.isfinite().all() for t in found)
    if rho < 0.0:
        assert bool((found[1][:, :1027] > rho).all())  # the entropy's gradient is -1 everywhere


def kernel_score(family: str, numbers: Sequence[float], weights: Tensor) -> Tensor:
    """What the kernel takes for d log p / dw: Adam's first moment is minus the gradient when it has no memory.

    At rho = -40 the standard deviation is 4e-18, so that w is the mean to the last bit.
    """
    tensors = [weights.clone(), torch.full_like(weights, -40.0), *(torch.zeros_like(weights) for _ in range(4))]
    mean_field.adam_update(
        tensors,
        [torch.zeros_like(weights)],
        torch.tensor([[3, 0]]),
        0,
        1,
        family=family,
        parameters=numbers,
        closed_form=False,
        adam=[(0.0, 0.0, 0.0, 0.0, 1e-8, 1.0, 1.0, 1.0)],
        likelihood_weight=0.0,
        kl_weights=[1.0],
    )
    assert torch.equal(tensors[0], weights)
    return -tensors[2]


@pytest.mark.parametrize("case", CASES)
def test_scores_from_the_middle_to_the_tails(case):
    family, numbers, *_ = CASES[case]
    grid = torch.cat((torch.linspace(-2.0, 2.0, 4001), torch.tensor([1e-6, 30.0, -1e3, 1e4])))[None]
    # Next to the peak what counts is the distance from it, which has few digits where loc is not 0.
    found, expected = kernel_score(family, numbers, grid).double(), score(case, grid.double())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "scales",
    [
        (1.0, math.exp(-6.0)),
        (2.0, math.exp(-8.0)),
        (math.exp(-1.0), math.exp(-8.0)),
        (math.exp(-6.0), 1.0),  # the other way round: the odds of the first component run to zero in the tails
    ],
)
def test_the_mixture_of_the_paper_far_in_its_tails_and_between_its_scales(scales):
    """At w = 1000 only the wide component speaks: the score is -w / scale1^2, neither 0 nor a NaN.

    The narrow component's precision is millions of times larger: what is left of it must not drown the wide one.
    """
    wide, narrow = max(scales), min(scales)
    numbers = (0.5, *scales)
    tails = torch.tensor([[1e3, -1e3, 30.0, 0.5, -0.1]])
    torch.testing.assert_close(kernel_score("scale_mixture", numbers, tails), -tails / wide**2, rtol=1e-5, atol=0.0)
    between = torch.linspace(-10.0 * narrow, 10.0 * narrow, 2001)[None]
    leaf = between.double().requires_grad_()
    (expected,) = torch.autograd.grad(mixture(*numbers).log_prob(leaf).sum(), leaf)
    # The odds, up to exp(-50), have the rounding of their logarithm: 50 * 2^-23 = 6e-6.
    torch.testing.assert_close(kernel_score("scale_mixture", numbers, between).double(), expected, rtol=2e-5, atol=1e-3)
