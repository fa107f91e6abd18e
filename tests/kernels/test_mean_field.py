"""The two native passes against their definition in double precision, column by column."""

from __future__ import annotations

import math

import pytest
import torch

from bayesprop.distributions.elementwise import Family
from bayesprop.kernels import mean_field, native, noise
from bayesprop.layout import Block
from bayesprop.priors import Cauchy, Flat, ScaleMixture, bind

from .conftest import CASES, Adam, Bench, compare, rounding

pytestmark = pytest.mark.usefixtures("native_code")

SPLITS = {"one piece": [3128], "odd pieces": [1, 37, 1024, 3, 0, 2063], "single columns": [1] * 9}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("case", CASES)
def test_the_update_is_its_definition(case, split):
    """Two particles with rates and KL weights of their own; what lies behind the random weights stays as it is."""
    bench = Bench(case, SPLITS[split])
    found = bench.run()
    compare(found, bench.define(), atol=rounding(case))
    covered = sum(bench.split)
    for tensor, before in zip(found, bench.tensors, strict=True):
        assert torch.equal(tensor[:, covered:], before[:, covered:])
        assert not torch.isclose(tensor[:, :covered], before[:, :covered], rtol=1e-6, atol=0.0).all()


def test_every_family_is_tested_and_the_kernels_numbers_are_those_of_the_densities():
    assert {family for family, *_ in CASES.values()} == mean_field.FAMILIES.keys()
    assert len(mean_field.FAMILIES) == 5
    assert {number for number, _ in mean_field.FAMILIES.values()} == {1, 2, 3, 4, 5}  # 0 is the normal's closed form


@pytest.mark.parametrize("prior", [Cauchy(0.1, 0.6), ScaleMixture(0.25, 1.5, 0.05), Flat()])
def test_what_a_prior_says_of_itself_is_what_the_kernel_takes(prior):
    """The order of the numbers is a contract between the rooms: here it is used on both sides."""
    family = bind(prior, (Block("x", (4,), 0),)).family
    assert isinstance(family, Family)
    assert (family.name, family.parameters) in [(name, numbers) for name, numbers, *_ in CASES.values()]


def test_weight_decay_shrinks_the_means_of_its_particle_only():
    plain = Bench("normal", [101])
    decayed = Bench("normal", [101], adams=(Adam(weight_decay=0.4), Adam(mean_rate=0.02, rho_rate=0.06)))
    compare(decayed.run(), decayed.define())
    difference = plain.run()[0] - decayed.run()[0]
    torch.testing.assert_close(difference[0, :101], 0.05 * 0.4 * plain.tensors[0][0, :101], rtol=1e-4, atol=1e-6)
    assert torch.equal(difference[1], torch.zeros(106))
    for one, other in zip(plain.run()[1:], decayed.run()[1:], strict=True):
        assert torch.equal(one, other)


def test_the_first_step_of_adam_has_the_length_of_its_rate():
    """With the usual betas, from moments of zero. float(1 - 0.999f) is off by 1.3e-5, half of which is in the step."""
    usual = Adam(beta1=0.9, beta2=0.999, epsilon=1e-8, step=0)
    bench = Bench("normal", [1027], adams=(usual,), kl_weights=(0.3,))
    for moment in bench.tensors[2:]:
        moment.zero_()
    found, defined = bench.run(), bench.define()
    steps = (found[0] - bench.tensors[0])[0, :1027].abs()
    torch.testing.assert_close(steps, torch.full_like(steps, 0.05), rtol=2e-5, atol=1e-6)
    compare(found, defined, rtol=1e-4)


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 7, 1023, 1025, 3333])
def test_a_sample_is_its_definition(columns):
    generator = torch.Generator().manual_seed(columns)
    mean, rho = torch.randn(2, columns + 3, generator=generator), 9.0 * torch.randn(2, columns + 1, generator=generator)
    keys = torch.tensor([[5, 0], [6, 2]])
    found = mean_field.sample(mean, rho, keys, 9, 1, columns)
    epsilon = noise.normal(keys, 9, 1, columns).double()
    std = torch.log1p(rho[:, :columns].double().exp())
    torch.testing.assert_close(found[:, :columns].double(), mean[:, :columns] + std * epsilon, rtol=2e-6, atol=1e-6)
    assert torch.equal(found[:, columns:], mean[:, columns:])


def test_standard_deviations_keep_all_their_digits():
    """log(1 + e^rho) for rho from -80 to 60, where 1 + e^rho in single precision would lose up to all of them."""
    rho = torch.linspace(-80.0, 60.0, 30_011)[None]
    keys, mean = torch.tensor([[1, 0]]), torch.zeros(1, 30_011)
    epsilon = noise.normal(keys, 0, 1, 30_011).double()
    found = mean_field.sample(mean, rho, keys, 0, 1, 30_011).double()
    torch.testing.assert_close(found, torch.log1p(rho.double().exp()) * epsilon, rtol=2e-6, atol=0.0)


def test_the_update_draws_the_noise_of_the_sample_again():
    """A gradient of w with respect to rho is eps times the slope: the update's first moment of rho tells its eps."""
    keys, zero = torch.tensor([[5, 0], [6, 0]]), torch.zeros(2, 2049)
    w = mean_field.sample(zero, zero, keys, 3, 1, 2049)
    tensors = [zero.clone() for _ in range(6)]
    mean_field.adam_update(
        tensors,
        [torch.ones(2, 2049)],
        keys,
        3,
        1,
        family="flat",
        parameters=(),
        closed_form=False,
        adam=[(0.0, 0.0, 0.0, 0.0, 1e-8, 1.0, 1.0, 1.0)] * 2,
        likelihood_weight=1.0,
        kl_weights=[0.0, 0.0],
    )
    torch.testing.assert_close(w / math.log(2.0), tensors[4] / 0.5, rtol=1e-6, atol=1e-6)


def test_rows_of_a_wider_matrix_are_found():
    """The columns of the random weights may be a view of more: rows are addressed one by one."""
    bench = Bench("normal", [101, 30])
    expected = bench.run()
    bench.tensors = [torch.cat((t, torch.zeros(2, 50)), dim=1)[:, : t.shape[1]] for t in bench.tensors]
    left, right = torch.cat(bench.gradients, dim=1).split([101, 30], dim=1)
    bench.gradients = [left, right.T.contiguous().T]
    assert not any(gradient.is_contiguous() for gradient in bench.gradients)
    for one, other in zip(bench.run(), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("case", ["normal, closed form", "scale mixture"])
def test_threads_change_nothing(case, many_threads):
    bench = Bench(case, [5000, 1, 4999])
    assert native.threads(10_000).value == 2
    two = bench.run()
    sample = mean_field.sample(*bench.tensors[:2], bench.keys, 7, 1, 10_000)
    torch.set_num_threads(1)
    assert native.threads(10_000).value == 1
    for one, other in zip(bench.run(), two, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(mean_field.sample(*bench.tensors[:2], bench.keys, 7, 1, 10_000), sample)


def test_no_columns_are_no_work():
    bench = Bench("normal", [])
    for one, other in zip(bench.run(), bench.tensors, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("columns", [1, 16, 1025, 5000])
def test_a_sample_that_is_drawn_ahead_is_the_sample_of_the_next_step(native_code, columns):
    """To the last bit, whichever pieces the gradient comes in; and the noise that is kept is that of the counter."""
    bench = Bench("scale mixture", [columns])
    mean, rho, *_ = (t[:, :columns].contiguous() for t in bench.tensors)
    kept = torch.empty(2, columns)
    theta = mean_field.sample(mean, rho, bench.keys, 7, 1, columns, kept=kept)
    assert torch.equal(kept, noise.normal(bench.keys, 7, 1, columns))
    assert torch.equal(theta, mean_field.sample(mean, rho, bench.keys, 7, 1, columns))
    tensors = [t[:, :columns].clone() for t in bench.tensors]
    family, numbers, closed, _ = CASES[bench.case]
    arguments = {
        "family": family,
        "parameters": numbers,
        "closed_form": closed,
        "adam": [adam.numbers for adam in bench.adams],
        "likelihood_weight": -0.5,
        "kl_weights": bench.kl_weights,
    }
    apart = [t.clone() for t in tensors]
    cut = columns // 3
    pieces = [bench.gradients[0][:, :cut], bench.gradients[0][:, cut:]] if cut else bench.gradients
    mean_field.adam_update(tensors, pieces, bench.keys, 7, 1, ahead=(theta, kept), **arguments)
    mean_field.adam_update(apart, pieces, bench.keys, 7, 1, **arguments)
    for one, other in zip(tensors, apart, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(kept, noise.normal(bench.keys, 8, 1, columns))
    assert torch.equal(theta, mean_field.sample(apart[0], apart[1], bench.keys, 8, 1, columns))
