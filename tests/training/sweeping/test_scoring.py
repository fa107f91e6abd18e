"""Scores are those of the posterior's own predictions; what is not finite is told."""

from __future__ import annotations

import math

import pytest
import torch

import bayesprop as bp
from bayesprop.training.sweeping.scoring import fault, score


def test_scores_are_those_that_fit_reports(fit, held_out):
    posterior = fit(validation=held_out)
    inputs, targets = posterior.model.prepare_inputs(held_out[0]), held_out[1]
    nll, error = score(posterior, (inputs, targets), 16)
    last = posterior.context.history[-1]
    assert (nll, error) == (last["validation_nll"], last["validation_rmse"])
    prediction = posterior.predict(inputs, 16)
    assert nll == pytest.approx(-float(prediction.log_prob(targets).mean()), rel=1e-12)


def test_classes_have_an_error_rate(fit, model, pair):
    (inputs, _), network = pair(), torch.nn.Linear(3, 2).double()
    labels = (inputs[:, 0] > 0).long()
    posterior = fit(bp.Model(network, likelihood=bp.likelihoods.Categorical()), (inputs, labels))
    nll, error = score(posterior, (inputs, labels), 8)
    mean = posterior.predict(inputs, 8).mean
    assert error == pytest.approx(float((mean.argmax(1) != labels).double().mean()))
    assert nll == pytest.approx(-float(mean.gather(1, labels[:, None]).log().mean()), rel=1e-9)


def test_what_is_wrong_with_a_setting(fit):
    posterior = fit(epochs=1)
    assert fault(posterior, 2**62) == ""
    assert fault(posterior, 2**62, 0.5) == ""
    assert fault(posterior, 17) == "diverged: the log-likelihood was not finite first at step 17"
    assert fault(posterior, 2**62, math.nan) == "diverged: the validation NLL is nan"
    posterior.tensors()["std"][0, 1] = math.inf
    assert fault(posterior, 2**62) == "diverged: std of the posterior are not finite"
